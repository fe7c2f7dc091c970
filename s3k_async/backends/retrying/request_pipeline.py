"""The request pipeline to one service: fence, concurrency limit, metering, observation, time limit,
and retries within policy and budget."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from s3k_async._core.capacity_limit import CapacityLimit, current_capacity_limit
from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.metering import Meter
from s3k_async._core.observation import ObservedRequest, Observer
from s3k_async._core.retry import (
    DEADLINE,
    LEAST_RATE,
    TRANSIENT,
    Retries,
    RetryAccount,
    RetryPolicy,
    backoff,
    give_up,
    retry,
    tried,
)
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import Keyed, throttled_partitions
from s3k_async.errors import ConditionFailedError, ResponseLostError, S3kError, ThrottledError

__all__ = ["ONE_ATTEMPT", "Fence", "Request", "Sender", "at_once"]

T = TypeVar("T")

ONE_ATTEMPT: Final = RetryPolicy(attempts=1)
"""For requests that are not retried, such as health checks."""

_AT_ONCE: ContextVar[bool] = ContextVar("s3k_at_once", default=False)


@contextmanager
def at_once() -> Iterator[None]:
    """Requests of the body bypass the queue of the concurrency limit: for requests on which the
    work in progress depends, such as the renewal of a lease."""
    token = _AT_ONCE.set(True)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


class Fence(Protocol):
    """Checks that the volume is open to this client; see `txn.volume_lock`."""

    def due(self) -> bool:
        """Whether to check before a request is sent."""

    def late(self) -> bool:
        """Whether to check before an answer is accepted."""

    async def look(self) -> None:
        """Raises S3kError if the volume is closed to this client, or its state cannot be read."""


class Sender:
    """The requests to one service: what they share, and those that are retried after any transient
    error.

    `retries` may be one policy for everything. `limit` bounds the requests in flight and adapts to
    their answers; None: no bound.
    """

    def __init__(
        self,
        retries: Retries | RetryPolicy,
        runtime: Runtime,
        limit: AdaptiveLimit | None,
        meter: Meter,
        observer: Observer | None = None,
    ) -> None:
        self.retries = retries if isinstance(retries, Retries) else Retries.alike(retries)
        self.runtime = runtime
        self.meter = meter
        self.observer = observer
        self.fence: Fence | None = None
        self.limit = limit or AdaptiveLimit(sys.maxsize)
        self.account = RetryAccount(self.retries.budget, runtime)

    async def send(
        self,
        operation: str,
        call: Callable[[], Awaitable[T]],
        policy: RetryPolicy,
        *,
        size: int = 0,
        expected: int = 0,
        again: bool = False,
        throttled: Callable[[T], bool] | None = None,
        received: Callable[[T], int] | None = None,
        many: bool = False,
        keys: Keyed = (),
    ) -> T:
        """The answer to an idempotent request, which `call` sends. `throttled`: whether an answer
        reports throttling; `received`: the bytes of content in it; the others as for `Request`."""
        request = Request(
            self,
            operation,
            policy,
            size=size,
            expected=expected,
            again=again,
            many=many,
            keys=keys,
        )
        while True:
            try:
                async with request:
                    answer = await call()
                    request.throttled = throttled is not None and throttled(answer)
                    if received is not None:
                        request.receive(received(answer))
                    return answer
            except TRANSIENT as error:
                failure = error
            await request.wait(failure)

    async def uncounted(self, call: Callable[[], Awaitable[T]]) -> T:
        """A call with an unlimited number of requests, without metering, as in creation and removal
        of volumes."""
        return await retry(call, self.retries.write, self.runtime, account=self.account)

    def next_delay(self, delays: Iterator[float], failure: S3kError) -> float | None:
        """The wait before a retry after a failure; None if there may be no retry."""
        delay = next(delays, None)
        return delay if delay is not None and self.account.spend(failure) else None


class Request:
    """One request, in one or more attempts. Each attempt is an `async with`:

        request = Request(sender, "GetItem", policy)
        async with request:
            answer = await store.get(key)

    An attempt waits for a slot of the concurrency limit, is stopped by the fence, and is counted.
    All attempts together have the seconds of the policy, and more for `size` bytes of content in
    the request and `expected` ones in its answer. The time starts with the first attempt; waits for
    a slot do not count. `again`: the request was sent before; `many`: the call makes an unlimited
    number of requests, or one that takes the service long, so it has no time limit. `keys`: the
    items of the table that it concerns.
    """

    throttled = False
    """To be set for an answer with throttling but without an error: a part of a batch was not
    processed."""
    _attempts = 0
    _received = 0
    _end: float | None = None
    _delays: Iterator[float] | None = None
    _observed: ObservedRequest | None = None

    def __init__(
        self,
        sender: Sender,
        operation: str,
        policy: RetryPolicy,
        *,
        size: int = 0,
        expected: int = 0,
        again: bool = False,
        many: bool = False,
        keys: Keyed = (),
    ) -> None:
        self._sender = sender
        self._operation = operation
        self._keys = keys
        self._policy = policy
        self._size = size
        self._again = again
        self._seconds = None if many else policy.deadline + (size + expected) / LEAST_RATE
        self._began = sender.runtime.monotonic()

    async def __aenter__(self) -> Self:
        sender = self._sender
        again = self._again or self._attempts > 0
        if not again:
            sender.account.earn()
        self._attempts += 1
        capacity = current_capacity_limit()
        paused = 0.0 if capacity is None else await self._await_capacity(capacity)
        self._epoch, waited = await sender.limit.acquire(at_once=_AT_ONCE.get())
        waited += paused
        try:
            if sender.fence is not None and sender.fence.due():
                await sender.fence.look()
            sender.meter.add(self._operation, retries=int(again), size=self._size)
        except BaseException as error:
            sender.limit.release(self._epoch, error)
            raise
        if self._end is not None:
            self._end += waited
        elif self._seconds is not None:
            self._end = asyncio.get_running_loop().time() + self._seconds
        self._outer = DEADLINE.set(self._end)
        observer = sender.observer
        if observer is not None:
            self._received, self.throttled = 0, False
            self._observed = observer.begin_request(
                sender.meter.part, self._operation, is_retry=again, queued=waited
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        fence = self._sender.fence
        is_answer = error is None or isinstance(error, ConditionFailedError)
        try:
            DEADLINE.reset(self._outer)
            if is_answer and fence is not None and fence.late():
                await _accept(fence, error)
        except BaseException as late:
            error = late
            raise
        finally:
            self._sender.limit.release(self._epoch, error, throttled=self.throttled)
            if self._observed is not None:
                self._end_observation(self._observed, error)

    async def _await_capacity(self, limit: CapacityLimit) -> float:
        """Wait for capacity units of the table; returns the seconds waited."""
        if self._sender.meter.part != "table" or _AT_ONCE.get():
            return 0.0
        began = self._sender.runtime.monotonic()
        await limit.turn(self._operation)
        return self._sender.runtime.monotonic() - began

    def receive(self, size: int) -> None:
        """Count `size` bytes of content in the answer to this attempt."""
        self._received = size
        self._sender.meter.add(self._operation, 0, size=size)

    def _end_observation(self, observed: ObservedRequest, error: BaseException | None) -> None:
        throttled = self.throttled or isinstance(error, ThrottledError)
        observed.end(
            error,
            sent=self._size,
            received=self._received,
            throttled=throttled,
            partitions=throttled_partitions(self._keys, error) if throttled else (),
        )

    async def wait(self, failure: S3kError) -> None:
        """Wait before the next attempt at an idempotent request, after a transient failure. Raises
        it as `give_up` if there may be none."""
        delay = next(self._waits(), None)
        # A retry for which no time is left does not take from the budget of the others.
        if delay is None or self.left() <= delay or not self._sender.account.spend(failure):
            give_up(failure, self.attempts())
        await self._sender.runtime.sleep(delay)

    def delay(self, failure: S3kError) -> float | None:
        """The wait before the next attempt by policy and budget; None if there may be none."""
        return self._sender.next_delay(self._waits(), failure)

    def _waits(self) -> Iterator[float]:
        if self._delays is None:
            self._delays = backoff(self._policy, self._sender.runtime)
        return self._delays

    def left(self) -> float:
        """Remaining seconds; without an attempt so far or a time limit, infinite."""
        return math.inf if self._end is None else self._end - asyncio.get_running_loop().time()

    def attempts(self) -> str:
        """Number and duration of the attempts, in words."""
        return tried(self._attempts, self._sender.runtime.monotonic() - self._began)


async def _accept(fence: Fence, refusal: BaseException | None) -> None:
    """Check the fence for an answer that came late. A failed condition is one, too: nothing was
    changed, and the error has the present item."""
    try:
        await fence.look()
    except S3kError as error:
        if refusal is not None:
            raise
        raise ResponseLostError(
            "the answer came too late: the volume was closed to this client"
        ) from error
