"""Worker threads for the blocking calls of local adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """Worker threads for at most `limit` concurrent blocking calls per event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar("limiter")

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`, which runs to its end even if the awaiting task is cancelled."""
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(self._limit)
            self._limiter.set(limiter)
        return await run_sync(call, limiter=limiter)
