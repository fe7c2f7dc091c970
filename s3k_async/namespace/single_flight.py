"""Reads shared by concurrent callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["SingleFlight"]


K = TypeVar("K", bound=Hashable)


class SingleFlight(Generic[K]):
    """Reads shared by several tasks: each call returns the result of a read that began after the
    call.

    A call during a read of the same key waits for the next read, together with all calls made
    before that begins. The cancellation of a task does not affect the others. Belongs to one event
    loop.
    """

    def __init__(self, read: Callable[[K], Awaitable[bool]]) -> None:
        self._read = read
        self._asked: dict[K, list[asyncio.Future[bool]]] = {}
        self._tasks: dict[K, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    async def ask(self, key: K) -> bool:
        """The result of a read of `key` that begins after this call; raises its errors."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(key, []).append(answer)
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._answer(key))
        return await answer

    async def _answer(self, key: K) -> None:
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
