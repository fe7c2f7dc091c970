"""Worker threads for the blocking calls of local adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

from s3k_async._core.runtime import SYSTEM, Runtime

__all__ = ["Threads"]

T = TypeVar("T")

_SLOW_SECONDS = 0.002
"""A short call that takes longer had to wait, for the disk or for the processor."""
_PAUSE_SECONDS = 1.0
"""For how long no call runs on the event loop after a slow one."""


class Threads:
    """Worker threads for at most `limit` concurrent blocking calls per event loop."""

    def __init__(self, limit: int, runtime: Runtime = SYSTEM) -> None:
        self._limit = limit
        self._runtime = runtime
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar("limiter")
        self._paused_until = 0.0

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`, which runs to its end even if the awaiting task is cancelled."""
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(self._limit)
            self._limiter.set(limiter)
        return await run_sync(call, limiter=limiter)

    async def run_short(self, call: Callable[[], T]) -> T:
        """The result of `call`, which takes some tens of microseconds if what it reads is in the
        page cache: less than the switch to a thread and back. It runs on the event loop, but in a
        worker thread for a second after one that was slow."""
        if self._runtime.monotonic() < self._paused_until:
            return await self.run(call)
        await asyncio.sleep(0)
        began = self._runtime.monotonic()
        try:
            return call()
        finally:
            ended = self._runtime.monotonic()
            if ended - began > _SLOW_SECONDS:
                self._paused_until = ended + _PAUSE_SECONDS
