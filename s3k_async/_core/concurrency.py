"""Bounded structured concurrency: task groups with a limit, cancelled together when one task
fails."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sized,
)
from contextlib import aclosing, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from s3k_async._core.active_calls import critical
from s3k_async.errors import ThrottledError

__all__ = [
    "AdaptiveLimit",
    "Budget",
    "ByteBudget",
    "ended",
    "gather",
    "interleaved",
    "iterate",
    "merge",
    "raise_first",
    "run_all",
    "to_the_end",
]

T = TypeVar("T")
R = TypeVar("R")


async def run_all(
    work: Callable[[T], Awaitable[object]], items: Iterable[T] | AsyncIterable[T], *, limit: int
) -> None:
    """Await `work(item)` for every item, at most `limit` in flight.

    Items are taken one by one as slots become free, so an endless or lazy source is fine. The first
    error cancels work in flight and is raised as itself, not as a group.
    """
    most = min(limit, len(items)) if isinstance(items, Sized) else limit
    taking = asyncio.Lock()
    started = 1

    async def take_turns() -> None:
        # A task for each item would cost several times as much as its share of a few tasks.
        nonlocal started
        while True:
            async with taking:
                item = await anext(source, _END)
            if isinstance(item, _End):
                return
            if started < most:
                started += 1
                tasks.start_soon(take_turns)
            await work(item)
            await checkpoint()

    try:
        async with aclosing(iterate(items)) as source, anyio.create_task_group() as tasks:
            await take_turns()
    except BaseExceptionGroup as group:
        raise_first(group)


class Budget:
    """Limit of concurrent parts of one piece of work, over all levels of nesting."""

    def __init__(self, size: int) -> None:
        self._free = size

    async def run_all(
        self,
        work: Callable[[T], Awaitable[object]],
        items: Iterable[T] | AsyncIterable[T],
        *,
        cost: Callable[[T], int] = lambda _: 1,
    ) -> None:
        """Await `work(item)` for every item, concurrently within the budget and otherwise one after
        the other. `cost`: an item's share of the budget; the last one may exceed the rest.

        `work` may do the same for parts of its own: no task waits for the budget, so there is no
        deadlock. Items are taken and errors raised as in `run_all`.
        """

        async def one(item: T, taken: int, alone: anyio.Event | None) -> None:
            try:
                await work(item)
            finally:
                if alone is None:
                    self._free += taken
                else:
                    alone.set()

        try:
            async with anyio.create_task_group() as tasks, aclosing(iterate(items)) as source:
                async for item in source:
                    alone = None if self._free > 0 else anyio.Event()
                    taken = cost(item)
                    if alone is None:
                        self._free -= taken
                    tasks.start_soon(one, item, taken, alone)
                    if alone is not None:
                        await alone.wait()
        except BaseExceptionGroup as group:
            raise_first(group)


class AdaptiveLimit:
    """Adaptive limit of requests in flight to one service, by TCP's AIMD rule, between 1 and
    `most`.

    It begins at `most`. A round of successes raises it by one (additive increase). A ThrottledError
    halves it (multiplicative decrease), once for all requests then in flight, because their answers
    reflect the same load. First come, first served. Belongs to one event loop.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._limit = float(self._most)
        self._flying = 0
        self._epoch = 0
        """Incremented when the limit is lowered: errors of requests from earlier epochs do not
        lower it again."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<AdaptiveLimit {self._flying} of {self.limit}, {len(self._waiting)} waiting>"

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return int(self._limit)

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return self._flying

    async def acquire(self, *, at_once: bool = False) -> tuple[int, float]:
        """Take a slot for one request; returns the epoch of its request, and the seconds waited.
        `at_once`: without waiting, beyond the limit if necessary."""
        if at_once or not (self._waiting or self._flying >= int(self._limit)):
            self._flying += 1
            return self._epoch, 0.0
        loop = asyncio.get_running_loop()
        began, place = loop.time(), loop.create_future()
        self._waiting.append(place)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():
                # The slot was assigned during the cancellation.
                self._flying -= 1
                self._assign()
            raise
        return self._epoch, loop.time() - began

    def release(self, epoch: int, error: BaseException | None, *, throttled: bool = False) -> None:
        """Give a slot back after a request of an epoch, which ended with `error` or with an answer
        that may report throttling: decrease, once for all requests of the epoch, or increase."""
        if error is None and not throttled:
            if self._limit < self._most:
                self._limit = min(float(self._most), self._limit + 1.0 / self._limit)
        elif (throttled or isinstance(error, ThrottledError)) and epoch == self._epoch:
            self._epoch += 1
            self._limit = max(1.0, self._limit / 2)
        self._flying -= 1
        if self._waiting:
            self._assign()

    def _assign(self) -> None:
        """Assign free slots to those who wait."""
        while self._waiting and self._flying < self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self._flying += 1
                place.set_result(None)


class ByteBudget:
    """Limit of bytes in flight. First come, first served; a larger request runs alone.

    Belongs to one event loop.

        async with budget.hold(len(data)):
            await send(data)
    """

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncGenerator[None, None]:
        """Reserve `size` bytes for the length of a block, waiting until they are free."""
        held = min(size, self._size)
        if self._waiting or held > self._free:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((held, place))
            try:
                await place
            except BaseException:
                if place.done() and not place.cancelled():
                    self._give_back(held)
                else:
                    place.cancel()
                    self._give_back(0)
                raise
        else:
            self._free -= held
        try:
            yield
        finally:
            self._give_back(held)

    def _give_back(self, size: int) -> None:
        self._free += size
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self._free):
            held, place = self._waiting.popleft()
            if not place.done():
                self._free -= held
                place.set_result(None)


async def gather(work: Callable[[T], Awaitable[R]], items: Iterable[T], *, limit: int) -> list[R]:
    """The results of `work(item)` in the order of the items, at most `limit` in flight."""
    known = list(items)
    if not known:
        return []
    if len(known) == 1:  # needs no task of its own
        return [await work(known[0])]
    results: list[R | None] = [None] * len(known)

    async def one(pair: tuple[int, T]) -> None:
        results[pair[0]] = await work(pair[1])

    await run_all(one, enumerate(known), limit=limit)
    return results  # type: ignore[return-value]


async def iterate(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[T, None]:
    """The items of either kind of iterable. Closes a generator of asynchronous ones."""
    if isinstance(items, AsyncIterable):
        try:
            async for item in items:
                yield item
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()
    else:
        for item in items:
            yield item


def raise_first(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Raise the first error inside a nested group as itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    context = error.__context__
    try:
        raise error
    finally:
        # Else its context is a group that contains it, and pickling of contexts, as in Dask,
        # recurses endlessly.
        error.__context__ = context
        del error


async def merge(
    streams: Iterable[AsyncIterator[T]],
    *,
    limit: int,
    expand: Callable[[T], Iterable[AsyncIterator[T]]] = lambda _: (),
) -> AsyncGenerator[T, None]:
    """The values of the streams in order of arrival, with at most `limit` streams being read.

    `expand` may open further streams for a value, before it is yielded; the latest are read first,
    which keeps the number of waiting streams low for a tree. Each stream is read one value ahead,
    unless its value opened further streams. Leaving early cancels the reads.
    """
    waiting = list(streams)[::-1]
    reading: dict[asyncio.Task[T | _End], AsyncIterator[T]] = {}
    try:
        while waiting or reading:
            while waiting and len(reading) < limit:
                stream = waiting.pop()
                reading[asyncio.create_task(_step(stream))] = stream
            done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                stream = reading.pop(task)
                value = task.result()
                if not isinstance(value, _End):
                    further = list(expand(value))
                    if further:
                        # The streams of a value come before the next value, or a wide tree would be
                        # held in memory.
                        waiting += [stream, *further]
                    else:
                        reading[asyncio.create_task(_step(stream))] = stream
                    yield value
    finally:
        if reading or waiting:
            await to_the_end(partial(_close, reading, waiting))


async def _close(
    reading: Mapping[asyncio.Task[Any], AsyncIterator[Any]], waiting: Iterable[AsyncIterator[Any]]
) -> None:
    """Cancel the reads of streams, and close all."""
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    for stream in [*reading.values(), *waiting]:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


class _End:
    """The end of a stream."""


_END = _End()


async def _step(stream: AsyncIterator[T]) -> T | _End:
    return await anext(stream, _END)


async def to_the_end(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work`, of limited duration, to its end; a cancellation of the caller is raised
    afterwards.

    In a task of its own, because a shielded scope holds off anyio's cancellation but not asyncio's
    (`wait_for`, `timeout`, `Task.cancel`).
    """
    task = asyncio.create_task(work())
    cancelled: asyncio.CancelledError | None = None
    with critical():
        try:
            await ended(task)
        except asyncio.CancelledError as error:
            cancelled = None if _is_of_scope(error) else error
            cancelled = await _shielded(task) or cancelled
    try:
        result = task.result()
    except BaseException as error:
        if cancelled is not None:
            # The caller may retry after a failure; a cancellation must reach it nevertheless.
            raise cancelled from error
        raise
    if cancelled is not None:
        raise cancelled
    return result


async def _shielded(task: asyncio.Task[Any]) -> asyncio.CancelledError | None:
    """Wait until a task has ended, whose caller was cancelled; the last cancellation meanwhile.

    In a shielded scope, since anyio cancels again and again; only then, since a scope is expensive.
    """
    cancelled = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await ended(task)
            except asyncio.CancelledError as error:
                cancelled = error
    return cancelled


def _is_of_scope(error: asyncio.CancelledError) -> bool:
    """Whether a cancellation is that of an enclosing scope of anyio, which raises it again at the
    next await. Such a one has a message."""
    return bool(error.args) and anyio.current_effective_deadline() == -math.inf


async def ended(task: asyncio.Task[Any]) -> None:
    """Wait until a task has ended. A cancellation of the caller does not cancel the task. (As
    `asyncio.wait` of one task, which costs twice as much.)"""
    waiter = task.get_loop().create_future()

    def wake(_task: asyncio.Task[Any]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    task.add_done_callback(wake)
    try:
        await waiter
    finally:
        task.remove_done_callback(wake)


class _Interleaved:
    """Lets other tasks run before and after the body, as around a request."""

    __slots__ = ()

    def __aenter__(self) -> Awaitable[None]:
        return asyncio.sleep(0)

    def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> Awaitable[None]:
        return asyncio.sleep(0) if raised is None else _no_wait()


async def _no_wait() -> None:
    pass


interleaved: Final = _Interleaved()
