"""The one way to do many things at once: structured, bounded, cancelled together when one fails."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

__all__ = ["gather", "run_all"]

T = TypeVar("T")
R = TypeVar("R")


async def run_all(
    work: Callable[[T], Awaitable[object]], items: Iterable[T] | AsyncIterable[T], *, limit: int
) -> None:
    """Await `work(item)` for every item, at most `limit` in flight.

    Items are taken one by one as slots come free, so an endless or lazy source is fine. The first error cancels
    what is in flight and is raised as itself, not as a group.
    """
    slots = anyio.Semaphore(limit)

    async def one(item: T) -> None:
        try:
            await work(item)
        finally:
            slots.release()

    try:
        async with anyio.create_task_group() as tasks:
            async for item in _iterate(items):
                await slots.acquire()
                tasks.start_soon(one, item)
    except BaseExceptionGroup as group:
        raise _first(group) from None


async def gather(work: Callable[[T], Awaitable[R]], items: Iterable[T], *, limit: int) -> list[R]:
    """The results of `work(item)` in the order of the items, at most `limit` in flight."""
    known = list(items)
    results: list[R | None] = [None] * len(known)

    async def one(pair: tuple[int, T]) -> None:
        results[pair[0]] = await work(pair[1])

    if len(known) == 1:
        return [await work(known[0])]
    await run_all(one, enumerate(known), limit=limit)
    return results  # type: ignore[return-value]


async def _iterate(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
