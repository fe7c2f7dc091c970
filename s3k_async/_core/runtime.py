"""Clock, randomness and ids: the only module that reads a clock or a random generator, so that
tests can replace them. The SIGTERM handler (`cli.termination`), which may not import modules, also
reads a clock."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from s3k_async import _native
from s3k_async.errors import InvalidPathError, ItemFormatError

__all__ = ["SYSTEM", "Runtime"]

_SHOWN = 100
"""Characters of an id in an error."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Clock, randomness and ids."""

    now_ms: Callable[[], int]
    """Wall clock, milliseconds since the epoch."""
    monotonic: Callable[[], float]
    """Monotonic clock, seconds."""
    entropy: Callable[[int], bytes]
    """`entropy(n)`: n unpredictable bytes."""
    uniform: Callable[[float, float], float]
    """A random number between two bounds, for jitter."""
    sleep: Callable[[float], Awaitable[None]]
    """Wait for some seconds."""
    file_ms: Callable[[int], int]
    """`file_ms(descriptor)`: set the times of an open file to now by the clock of its file system,
    which machines with other clocks may share; milliseconds since the epoch."""

    def uuid(self) -> str:
        """A random UUID (version 4), lower case."""
        return _native.uuid_text(self.entropy(16))

    def physical_key(self, object_id: str) -> str:
        """A fresh physical key for an object: `<random uuid4>.id=<object id>`. Raises
        ItemFormatError for an id that is invalid in keys, which only a damaged item has."""
        try:
            return _native.physical_key(object_id, self.entropy(16))
        except InvalidPathError as error:
            raise ItemFormatError(
                f"a damaged item: {error.message}", path=object_id[:_SHOWN]
            ) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _file_ms(descriptor: int) -> int:
    os.utime(descriptor)
    return os.fstat(descriptor).st_mtime_ns // 1_000_000


SYSTEM = Runtime(
    now_ms=_now_ms,
    monotonic=time.monotonic,
    entropy=os.urandom,
    uniform=random.uniform,
    sleep=anyio.sleep,
    file_ms=_file_ms,
)
"""The real clock, the operating system's randomness."""
