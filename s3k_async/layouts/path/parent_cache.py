"""The parent cache: directories known to exist, read once for concurrent callers and kept for
seconds.

No decision depends on the cache. With it a creation need not read its ancestors first; the parent
is read after the entry was written in any case.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

__all__ = ["AncestorReads", "ParentCache"]

KNOWN_DIRECTORIES: Final = 4096
"""Maximum number of directories; the least recently used are dropped first."""
KNOWN_SECONDS: Final = 5.0
"""Seconds for which a directory is kept after it was seen."""
TURNS: Final = 2
"""How often a task waits for a read in progress; after that it reads the directory itself."""

T = TypeVar("T")


class ParentCache:
    """Recently seen directories; a few thousand for each client."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        limit: int = KNOWN_DIRECTORIES,
        seconds: float = KNOWN_SECONDS,
    ) -> None:
        self._monotonic = monotonic
        self._limit = limit
        self._seconds = seconds
        self._until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, path: str) -> bool:
        until = self._until.get(path)
        if until is None:
            return False
        if until <= self._monotonic():
            del self._until[path]
            return False
        self._until.move_to_end(path)
        return True

    def add(self, path: str) -> None:
        """Note that the directory exists."""
        self._until[path] = self._monotonic() + self._seconds
        self._until.move_to_end(path)
        if len(self._until) > self._limit:
            self._until.popitem(last=False)

    def discard(self, path: str) -> None:
        """Forget a directory that may have been, or may be about to be, removed."""
        self._until.pop(path, None)


class _Look:
    """A read in progress."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.failed = False


class AncestorReads:
    """Reads of a directory's ancestors; at most one at a time for each unknown directory."""

    def __init__(self, known: ParentCache) -> None:
        self._known = known
        self._under_way: dict[str, _Look] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def first(
        self, directory: str, look: Callable[[], Awaitable[T]]
    ) -> tuple[bool, T | None]:
        """Whether this task had to read, and the result; if not, the directory is known by now.

        If the read of another task fails or is cancelled, a waiting task reads the directory
        itself.
        """
        for _ in range(TURNS):
            if directory in self._known:
                return False, None
            other = self._under_way.get(directory)
            if other is None:
                return True, await self._lead(directory, look)
            await other.over.wait()
            if other.failed:
                break
        return (False, None) if directory in self._known else (True, await look())

    async def _lead(self, directory: str, look: Callable[[], Awaitable[T]]) -> T:
        own = self._under_way[directory] = _Look()
        try:
            return await look()
        except Exception:
            own.failed = True
            raise
        finally:
            del self._under_way[directory]
            own.over.set()
