"""A limit of the rate at which actions begin."""

from __future__ import annotations

from s3k_async._core.runtime import Runtime

__all__ = ["Pace"]


class Pace:
    """A limit of actions or bytes per second, for concurrent tasks of one event loop. No burst
    follows a pause. `rate` None: no limit."""

    def __init__(self, rate: float | None, runtime: Runtime) -> None:
        self._interval = 0.0 if rate is None else 1.0 / rate
        self._runtime = runtime
        self._next = 0.0
        """When the next action may begin, monotonic."""

    async def turn(self, amount: int = 1) -> None:
        """Wait until the next action may begin; `amount`: what it counts for. First come, first
        served."""
        if not self._interval:
            return
        now = self._runtime.monotonic()
        begin = max(now, self._next)
        self._next = begin + amount * self._interval
        if begin > now:
            await self._runtime.sleep(begin - now)

    def deduct(self, amount: float) -> None:
        """Take this amount without waiting, so that later actions wait for it; a negative amount is
        given back."""
        if self._interval:
            begin = max(self._runtime.monotonic(), self._next)
            self._next = begin + amount * self._interval
