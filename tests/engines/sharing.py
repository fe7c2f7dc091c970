"""One engine for all worker processes of a test run.

The first worker that asks for an engine starts it, and stops it when no other worker uses it.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Self

from tests.engines.process import Engine, Process, running

__all__ = ["shared"]

PAUSE = 0.05
ENTRY, STARTER, USERS = range(3)
"""Bytes of the lock file: held while the use of an engine begins or ends; by the worker that runs
it; by all that use it."""


@contextmanager
def shared(start: Callable[[Path, Path], tuple[Process, Engine]], place: Path) -> Iterator[Engine]:
    """The engine that the files `place.*` describe, started with `start` as `running` does if none
    runs. `place.log` is its log."""
    with _Locks(place.with_suffix(".lock")) as locks, ExitStack() as own:
        with locks.entered():
            starter = locks.take(STARTER)
            if starter:  # none runs, or its worker is dead, and the engine with it
                server = own.enter_context(running(start, place.with_suffix(".log")))
                place.with_suffix(".json").write_text(json.dumps(asdict(server)))
            else:
                server = Engine(**json.loads(place.with_suffix(".json").read_text()))
            locks.share(USERS)
        try:
            yield server
        finally:
            locks.release(USERS)
            if starter:
                locks.stop_after_the_last(own.close)


class _Locks:
    """Locks of fcntl on bytes of a file: the kernel releases them when their process dies, and a
    fork inherits none."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextmanager
    def entered(self) -> Iterator[None]:
        self._lock(fcntl.LOCK_EX, ENTRY)
        try:
            yield
        finally:
            self.release(ENTRY)

    def take(self, byte: int) -> bool:
        """Whether no other process holds the byte; this one does then."""
        try:
            self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, byte)
        except OSError:
            return False
        return True

    def share(self, byte: int) -> None:
        self._lock(fcntl.LOCK_SH, byte)

    def release(self, byte: int) -> None:
        self._lock(fcntl.LOCK_UN, byte)

    def stop_after_the_last(self, stop: Callable[[], None]) -> None:
        while True:
            with self.entered():
                if self.take(USERS):
                    stop()
                    self.release(USERS)
                    self.release(STARTER)
                    return
            time.sleep(PAUSE)

    def _lock(self, operation: int, byte: int) -> None:
        fcntl.lockf(self._file, operation, 1, byte)
