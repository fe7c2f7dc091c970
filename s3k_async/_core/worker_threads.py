"""Blocking calls in worker threads."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock
from typing import Generic, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

import anyio
from anyio.to_thread import run_sync

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.runtime import SYSTEM, Runtime

__all__ = ["Threads", "in_thread"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_SLOW_SECONDS = 0.002
"""A short call that takes longer had to wait for the disk, or for a processor; in a thread it would
wait even longer for a processor."""
_LONG_SECONDS = 0.01
"""As `_SLOW_SECONDS`, for a short step of a batch, which may also wait for the journal of the file
system."""
_SLOW_MOST = 3
"""So many slow calls,"""
_CALLS = 100
"""of so many,"""
_PAUSE_SECONDS = 1.0
"""move all to threads for so long."""


async def in_thread(
    call: Callable[[*Arguments], T],
    *arguments: *Arguments,
    limiter: anyio.CapacityLimiter | None = None,
) -> T:
    """The result of a blocking call of limited duration, in a worker thread.

    A cancellation, by asyncio as well, is raised after the end of the call, if it has begun: the
    caller may then close what the call was using. `limiter`: of concurrent calls.
    """
    running = _ThreadCall(partial(call, *arguments))
    try:
        return await run_sync(running.run, limiter=limiter)
    except asyncio.CancelledError:
        # run_sync holds off only anyio's cancellation.
        ended = running.drop()
        if ended is not None:
            await to_the_end(partial(run_sync, ended.wait, limiter=anyio.CapacityLimiter(1)))
        raise


class _ThreadCall(Generic[T]):
    """A call in a thread, whose waiter may be cancelled. A task of its own for each call would cost
    as much processor time as the switch to the thread."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._lock = Lock()
        self._is_running = False
        self._is_dropped = False
        self._ended: Event | None = None

    def run(self) -> T:
        """Run the call in this thread, unless it was dropped."""
        with self._lock:
            if self._is_dropped:
                raise asyncio.CancelledError
            self._is_running = True
        try:
            return self._call()
        finally:
            with self._lock:
                self._is_running = False
                if self._ended is not None:
                    self._ended.set()

    def drop(self) -> Event | None:
        """Do not begin the call any more; if it is running, return the event of its end."""
        with self._lock:
            self._is_dropped = True
            if self._is_running:
                self._ended = Event()
            return self._ended


def _disk_reads() -> int:
    # Other systems count for the process alone.
    scope = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(scope).ru_inblock


class Threads:
    """Worker threads for at most `limit` concurrent blocking calls per event loop."""

    def __init__(
        self,
        limit: int,
        runtime: Runtime = SYSTEM,
        *,
        disk_reads: Callable[[], int] = _disk_reads,
    ) -> None:
        """`disk_reads`: counts the reads of the calling thread that the disk has served."""
        self._limit = limit
        self._disk_reads = disk_reads
        self._seen_reads = -1
        self._runtime = runtime
        # Not anyio's RunVar: the loop would keep it, and the limiter, for its whole lifetime.
        self._limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, anyio.CapacityLimiter] = (
            WeakKeyDictionary()
        )
        self._paused_until = 0.0
        self._calls = 0
        self._slow = 0

    async def run(self, call: Callable[[], T]) -> T:
        """As `in_thread`, within the limit."""
        loop = asyncio.get_running_loop()
        limiter = self._limiters.get(loop)
        if limiter is None:
            limiter = self._limiters[loop] = anyio.CapacityLimiter(self._limit)
        return await in_thread(call, limiter=limiter)

    async def run_short(self, call: Callable[[], T]) -> T:
        """The result of `call`, which takes some tens of microseconds if what it reads is in the
        page cache: less than the switch to a thread and back. It runs on the event loop, but in a
        worker thread for a second after several calls waited for a disk."""
        if self.is_paused:
            return await self.run(call)
        await asyncio.sleep(0)
        began = self._runtime.monotonic()
        try:
            return call()
        finally:
            is_slow = self._runtime.monotonic() - began > _SLOW_SECONDS
            self._count(is_slow=is_slow and self._has_read())

    @property
    def is_paused(self) -> bool:
        """Whether short calls currently run in threads."""
        return self._runtime.monotonic() < self._paused_until

    @contextmanager
    def short_step(self) -> Iterator[None]:
        """Context manager that times a short step of a batch on the event loop, as `run_short`
        does."""
        began = self._runtime.monotonic()
        try:
            yield
        finally:
            self._count(is_slow=self._runtime.monotonic() - began > _LONG_SECONDS)

    def _has_read(self) -> bool:
        """Whether this thread has read from a disk since the last slow call."""
        seen, self._seen_reads = self._seen_reads, self._disk_reads()
        return self._seen_reads != seen

    def _count(self, *, is_slow: bool) -> None:
        self._calls += 1
        self._slow += is_slow
        if self._slow == _SLOW_MOST:
            self._paused_until = self._runtime.monotonic() + _PAUSE_SECONDS
            self._calls = self._slow = 0
        elif self._calls == _CALLS:
            self._calls = self._slow = 0
