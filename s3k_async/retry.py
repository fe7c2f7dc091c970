"""The one retry policy: full jitter between zero and an exponential bound, ended by a count and by a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from s3k_async.errors import (
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    TransactionConflictError,
    UnreachableError,
)
from s3k_async.sources import Sources

__all__ = ["TRANSIENT", "RetryPolicy", "retry", "retry_read"]

T = TypeVar("T")

TRANSIENT: tuple[type[S3kError], ...] = (
    ThrottledError,
    TransactionConflictError,
    ResponseLostError,
    RequestTimeoutError,
    UnreachableError,
)
"""Errors after which the identical request may be sent again (a write must then settle what became of the first)."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries as data. Delays are uniform in [0, min(cap, base * 2^n)] seconds ("full jitter")."""

    attempts: int = 10
    base: float = 0.02
    cap: float = 5.0
    deadline: float = 60.0
    """No further attempt begins later than this many seconds after the first."""

    def delays(self, sources: Sources) -> Iterator[float]:
        """The waits between attempts; ends when no further attempt is allowed."""
        start = sources.monotonic()
        for attempt in range(self.attempts - 1):
            delay = sources.uniform(0.0, min(self.cap, self.base * 2**attempt))
            if sources.monotonic() + delay - start > self.deadline:
                return
            yield delay


async def retry(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    sources: Sources,
    *,
    on: tuple[type[S3kError], ...] = TRANSIENT,
) -> T:
    """Run an idempotent `call` until it succeeds, fails for good, or the policy ends; the last error is raised."""
    delays = policy.delays(sources)
    while True:
        try:
            return await call()
        except on:
            delay = next(delays, None)
            if delay is None:
                raise
            await sources.sleep(delay)


async def retry_read(call: Callable[[], Awaitable[T]], policy: RetryPolicy, sources: Sources) -> T:
    """`retry` for a call that changes nothing: what is lost is but an answer, so RequestTimeoutError at the end."""
    try:
        return await retry(call, policy, sources)
    except ResponseLostError as error:
        raise RequestTimeoutError(
            f"no whole answer came, however often it was asked for ({error.message})", path=error.path
        ) from error
