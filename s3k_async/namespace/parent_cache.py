"""The parent cache: directories known to exist, read once for concurrent callers and kept for
seconds.

No decision depends on the cache. It saves a creation the prior read of its ancestors; the parent is
read after the entry was written in any case.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

__all__ = ["AncestorReads", "ParentCache", "SingleFlight"]

KNOWN_DIRECTORIES: Final = 4096
"""Maximum number of directories; the least recently used are dropped first."""
KNOWN_SECONDS: Final = 5.0
"""Seconds for which a directory is kept after it was seen."""
TURNS: Final = 2
"""How often a task waits for a read in progress; after that it reads for itself."""

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
        """The directory exists."""
        self._until[path] = self._monotonic() + self._seconds
        self._until.move_to_end(path)
        if len(self._until) > self._limit:
            self._until.popitem(last=False)

    def discard(self, path: str) -> None:
        """The directory may be gone, or going away."""
        self._until.pop(path, None)


class SingleFlight:
    """Reads shared by several tasks: each call returns the result of a read that began after the
    call.

    A call during a read of the same key waits for the next read, together with all calls made
    before that begins. The cancellation of a task does not affect the others. Belongs to one event
    loop.
    """

    def __init__(self, read: Callable[[str], Awaitable[bool]]) -> None:
        self._read = read
        self._asked: dict[str, list[asyncio.Future[bool]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    async def ask(self, key: str) -> bool:
        """The result of a read of `key` that begins after this call; raises its errors."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(key, []).append(answer)
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._answer(key))
        return await answer

    async def _answer(self, key: str) -> None:
        asked: list[asyncio.Future[bool]] = []
        try:
            while asked := [answer for answer in self._asked.pop(key, []) if not answer.done()]:
                try:
                    result = await self._read(key)
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # noqa: BLE001 - for the waiting callers
                    _fail(asked, error)
                else:
                    for answer in asked:
                        if not answer.done():
                            answer.set_result(result)
        except asyncio.CancelledError:
            # Occurs only when the event loop ends.
            for answer in [*asked, *self._asked.pop(key, [])]:
                answer.cancel()
            raise
        finally:
            del self._tasks[key]


def _fail(answers: list[asyncio.Future[bool]], error: BaseException) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
            # otherwise asyncio would report an exception that was never retrieved if the task is
            # cancelled now
            answer.exception()


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

        If the read of another task fails or is cancelled, a waiting task reads for itself.
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
