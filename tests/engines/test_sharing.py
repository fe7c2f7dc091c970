"""The workers of a run share an engine: one starts it, and it lives as long as one uses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.engines.process import ROOT

WORKER = """
import sys
from pathlib import Path
from tests.engines.process import Process, engine
from tests.engines.sharing import shared

def start(directory, log):
    process = Process(["/bin/sleep", "600"], log, environment={}, directory=directory)
    return process, engine(1, process.pid)

with shared(start, Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


class Worker:
    """A process that uses the engine until it is told to end."""

    def __init__(self, place: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(place)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def engine(self) -> int:
        """The process of the engine that it uses."""
        assert self._child.stdout is not None
        return int(self._child.stdout.readline())

    def end(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()

    def wait(self) -> None:
        assert self._child.wait() == 0

    def kill(self) -> None:
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()

    def close(self) -> None:
        with self._child:
            self._child.kill()


@contextmanager
def workers(place: Path, count: int) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        started = [Worker(place) for _ in range(count)]
        for each in started:
            stack.callback(each.close)
        yield started


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_all_use_one_and_the_last_ends_it(tmp_path: Path) -> None:
    place = tmp_path / "engine"
    with workers(place, 3) as three:
        engines = {each.engine() for each in three}
        assert len(engines) == 1
        (pid,) = engines
        first, second, third = three
        first.end()
        second.end()
        with workers(place, 1) as late:
            assert late[0].engine() == pid, "later users share it"
        assert alive(pid)
        third.end()
        for each in three:
            each.wait()
        assert not alive(pid)


def test_another_starts_it_after_the_starter_has_died(tmp_path: Path) -> None:
    place = tmp_path / "engine"
    with workers(place, 1) as (starter,):
        pid = starter.engine()
        starter.kill()
    with workers(place, 1) as (other,):
        again = other.engine()
        assert again != pid
        other.end()
        other.wait()
    assert not alive(again)


def test_it_is_started_again_after_its_end(tmp_path: Path) -> None:
    for _ in range(2):
        with workers(tmp_path / "engine", 1) as (only,):
            pid = only.engine()
            only.end()
            only.wait()
        assert not alive(pid)
