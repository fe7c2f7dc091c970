"""The retry policy: full jitter between zero and an exponential bound, limited by attempts, a
deadline and a budget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeVar

from s3k_async._core.runtime import Runtime
from s3k_async.errors import (
    ConditionFailedError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    TransactionConflictError,
    UnreachableError,
)

__all__ = [
    "DEADLINE",
    "LEAST_RATE",
    "TRANSIENT",
    "Retries",
    "RetryAccount",
    "RetryBudget",
    "RetryPolicy",
    "backoff",
    "deadline",
    "give_up",
    "retry",
    "seconds_left",
    "tried",
]

T = TypeVar("T")

TRANSIENT: tuple[type[S3kError], ...] = (
    ThrottledError,
    TransactionConflictError,
    ResponseLostError,
    RequestTimeoutError,
    UnreachableError,
)
"""Errors after which the identical request may be sent again (a write must then resolve the outcome
of the first)."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries as data. Delays are uniform in [0, min(cap, base * 2^n)] seconds ("full jitter")."""

    attempts: int = 10
    base: float = 0.02
    cap: float = 5.0
    deadline: float = 60.0
    """Seconds after the first failure within which attempts start; those of a store's request have
    as many seconds together, and more for content (`Request` of `request_pipeline`)."""


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """Limit of retries over all requests, so that retries do not multiply the load of a failing
    service.

    A token bucket, initially full: a request adds `share` of a token, time adds `rate` tokens a
    second, a retry takes one. An empty bucket ends the attempts with the last error, like a policy.
    """

    share: float = 0.2
    """Retries per request, as a long-run average."""
    burst: float = 1000.0
    """Tokens in a full bucket."""
    rate: float = 50.0
    """Free retries per second, so that a client with few requests need not give up on a busy
    service."""


def _patient() -> RetryPolicy:
    return RetryPolicy(attempts=20, deadline=300.0)


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry policies for reads, for writes, and for each page of a listing or a scan."""

    read: RetryPolicy = field(default_factory=RetryPolicy)
    write: RetryPolicy = field(default_factory=RetryPolicy)
    scan: RetryPolicy = field(default_factory=_patient)
    """Longer than for reads, because a failure loses the work of all earlier pages. Applies to each
    page."""
    budget: RetryBudget = field(default_factory=RetryBudget)

    @classmethod
    def alike(cls, policy: RetryPolicy) -> Retries:
        """One policy for all requests."""
        return cls(policy, policy, policy)


def backoff(policy: RetryPolicy, runtime: Runtime) -> Iterator[float]:
    """The waits between attempts, with the deadline from the first wait on; ends when no further
    attempt is allowed. So the duration of the first attempt does not count."""
    start = runtime.monotonic()
    for attempt in range(policy.attempts - 1):
        delay = runtime.uniform(0.0, min(policy.cap, policy.base * 2**attempt))
        if runtime.monotonic() + delay - start > policy.deadline:
            return
        yield delay


LEAST_RATE: Final = 16 * 1024
"""Bytes of content a second below which a request is given up: content extends its time limit."""
_LONGEST: Final = 600.0
"""Default time limit of a request, seconds."""

DEADLINE: Final[ContextVar[float | None]] = ContextVar("s3k_deadline", default=None)
"""The end of the time of the present request, by the clock of the event loop; None: the default
time from now on."""


def deadline() -> float:
    """The end of the time of the present request, by the clock of the event loop."""
    end = DEADLINE.get()
    return asyncio.get_running_loop().time() + _LONGEST if end is None else end


def seconds_left() -> float:
    """Remaining time of the present request, at least 0."""
    return max(0.0, deadline() - asyncio.get_running_loop().time())


class RetryAccount:
    """The tokens of a budget, shared by all requests to one service. Belongs to one event loop."""

    def __init__(self, budget: RetryBudget, runtime: Runtime) -> None:
        self._budget = budget
        self._runtime = runtime
        self._tokens = budget.burst
        self._seen = runtime.monotonic()

    def earn(self) -> None:
        """Record the first attempt of a request."""
        self._tokens = min(self._budget.burst, self._tokens + self._budget.share)

    def spend(self, error: S3kError) -> bool:
        """Whether a request may be sent again after `error`.

        Conflicts over an item are answered without load on the service, and cost no token.
        """
        if isinstance(error, TransactionConflictError | ConditionFailedError):
            return True
        now = self._runtime.monotonic()
        self._tokens = min(
            self._budget.burst, self._tokens + (now - self._seen) * self._budget.rate
        )
        self._seen = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


async def retry(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    runtime: Runtime,
    *,
    on: tuple[type[S3kError], ...] = TRANSIENT,
    account: RetryAccount | None = None,
) -> T:
    """Run an idempotent `call` until it succeeds, fails permanently, or the policy or the account
    is exhausted; then the last error is raised as by `give_up`."""
    start, attempts = runtime.monotonic(), 0
    delays = backoff(policy, runtime)
    while True:
        attempts += 1
        try:
            return await call()
        except on as error:
            failure = error
        delay = next(delays, None)
        if delay is None or (account is not None and not account.spend(failure)):
            give_up(failure, tried(attempts, runtime.monotonic() - start))
        await runtime.sleep(delay)


def give_up(failure: S3kError, attempts: str) -> NoReturn:
    """Raise the error of the last of some attempts at an idempotent call: a lost answer as
    RequestTimeoutError, since only the answer of such a call matters."""
    if not isinstance(failure, ResponseLostError):
        raise failure
    raise RequestTimeoutError(
        f"no whole answer came in {attempts} ({failure.message})", path=failure.path
    ) from failure


def tried(attempts: int, seconds: float) -> str:
    """Number and duration of attempts, in words."""
    often = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return f"{often} over {seconds:.1f} s"
