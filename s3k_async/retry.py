"""The one retry policy: full jitter between zero and an exponential bound, ended by a count, a deadline or a budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from s3k_async.errors import (
    ConditionFailedError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    TransactionConflictError,
    UnreachableError,
)
from s3k_async.sources import Sources

__all__ = ["TRANSIENT", "Retries", "RetryAccount", "RetryBudget", "RetryPolicy", "retry", "retry_read"]

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


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """How much may be asked again altogether, so that a service in trouble is not asked many times as much as usual.

    A token bucket: it begins full, a request puts `share` of a token in, time puts `rate` tokens a second in, and
    sending again takes one out. An empty one ends the attempts as a policy does: with the last error.
    """

    share: float = 0.2
    """Retries for each request, in the long run."""
    burst: float = 1000.0
    """Tokens in a full bucket."""
    rate: float = 50.0
    """Retries a second that are free, so that a client with few requests need not give up on a busy service."""


def _patient() -> RetryPolicy:
    return RetryPolicy(attempts=20, deadline=300.0)


@dataclass(frozen=True, slots=True)
class Retries:
    """What is tried again, and how often: for reads, for writes, and for each page of a listing or a scan."""

    read: RetryPolicy = field(default_factory=RetryPolicy)
    write: RetryPolicy = field(default_factory=RetryPolicy)
    scan: RetryPolicy = field(default_factory=_patient)
    """More patient, because the work of all pages before would be lost. Each page counts for itself."""
    budget: RetryBudget = field(default_factory=RetryBudget)

    @classmethod
    def alike(cls, policy: RetryPolicy) -> Retries:
        """One policy for everything."""
        return cls(policy, policy, policy)


class RetryAccount:
    """The tokens of a budget, shared by all requests to one place. Belongs to one event loop."""

    def __init__(self, budget: RetryBudget, sources: Sources) -> None:
        self._budget = budget
        self._sources = sources
        self._tokens = budget.burst
        self._seen = sources.monotonic()

    def earn(self) -> None:
        """A request is sent for the first time."""
        self._tokens = min(self._budget.burst, self._tokens + self._budget.share)

    def spend(self, error: S3kError) -> bool:
        """Whether a request may be sent again after `error`.

        Clients that conflict over an item get an answer each time: that is no load to hold back, and costs nothing.
        """
        if isinstance(error, TransactionConflictError | ConditionFailedError):
            return True
        now = self._sources.monotonic()
        self._tokens = min(self._budget.burst, self._tokens + (now - self._seen) * self._budget.rate)
        self._seen = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


async def retry(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    sources: Sources,
    *,
    on: tuple[type[S3kError], ...] = TRANSIENT,
    account: RetryAccount | None = None,
    failure: S3kError | None = None,
) -> T:
    """Run an idempotent `call` until it succeeds, fails for good, or the policy or the account ends; the last error
    is raised. `failure`: what came of the first attempt, if that was made already."""
    delays = policy.delays(sources)
    while True:
        if failure is None:
            try:
                return await call()
            except on as error:
                failure = error
        delay = next(delays, None)
        if delay is None or (account is not None and not account.spend(failure)):
            raise failure
        await sources.sleep(delay)
        failure = None


async def retry_read(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    sources: Sources,
    *,
    account: RetryAccount | None = None,
    failure: S3kError | None = None,
) -> T:
    """`retry` for a call that changes nothing: what is lost is but an answer, so RequestTimeoutError at the end."""
    try:
        return await retry(call, policy, sources, account=account, failure=failure)
    except ResponseLostError as error:
        raise RequestTimeoutError(
            f"no whole answer came, however often it was asked for ({error.message})", path=error.path
        ) from error
