"""The request pipeline to one service: metering, a concurrency limit, and retries within policy and
budget."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Protocol, TypeVar

from s3k_async._core.concurrency import AdaptiveLimit, Slot
from s3k_async._core.metering import Meter
from s3k_async._core.retry import (
    CALL_TIME,
    TRANSIENT,
    CallTime,
    Retries,
    RetryAccount,
    RetryPolicy,
    retry,
)
from s3k_async._core.runtime import Runtime
from s3k_async.errors import ConditionFailedError, ResponseLostError, S3kError

__all__ = ["Fence", "Sender", "at_once"]

T = TypeVar("T")

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
    """The requests of the retrying stores: fence, concurrency limit, metering, retries.

    `retries` may be one policy for everything. `limit` bounds the requests in flight and adapts to
    their answers; None: no bound.
    """

    def __init__(
        self,
        retries: Retries | RetryPolicy,
        runtime: Runtime,
        limit: AdaptiveLimit | None,
        meter: Meter,
    ) -> None:
        self.retries = retries if isinstance(retries, Retries) else Retries.alike(retries)
        self.runtime = runtime
        self.meter = meter
        self.fence: Fence | None = None
        self._limit = limit or AdaptiveLimit(sys.maxsize)
        self._account = RetryAccount(self.retries.budget, runtime)

    async def send(
        self,
        operation: str,
        request: Callable[[], Awaitable[T]],
        *,
        again: bool = False,
        size: int = 0,
        throttled: Callable[[T], bool] | None = None,
        time: CallTime | None = None,
    ) -> T:
        """One request, once. `operation` is the service's name for it, `size` the bytes of content
        in its body; `throttled`: whether an answer reports throttling. `time`: of the call, None
        for a call with an unlimited number of requests."""
        if not again:
            self._account.earn()
        fence = self.fence
        async with Slot(self._limit, at_once=_AT_ONCE.get()) as slot:
            if slot.waited and time is not None:
                time.extend(slot.waited)
            if fence is not None and fence.due():
                await fence.look()
            self.meter.add(operation, retries=int(again), size=size)
            if time is not None:
                time.begin()
            try:
                token = CALL_TIME.set(time)
                try:
                    answer = await request()
                finally:
                    CALL_TIME.reset(token)
            except ConditionFailedError:
                # It is certain that nothing was changed; the current item in the error is an
                # answer like any other.
                if fence is not None and fence.late():
                    await fence.look()
                raise
            if fence is not None and fence.late():
                try:
                    await fence.look()
                except S3kError as error:
                    raise ResponseLostError(
                        "the answer came too late: the volume was closed to this client"
                    ) from error
            slot.throttled = throttled is not None and throttled(answer)
            return answer

    async def read(
        self,
        operation: str,
        request: Callable[[], Awaitable[T]],
        *,
        policy: RetryPolicy | None = None,
        size: int = 0,
        received: Callable[[T], int] | None = None,
        many: bool = False,
    ) -> T:
        """A read with retries; `size`: the bytes of content requested, `received`: those in an
        answer; `many`: the call may make many requests."""
        policy = policy or self.retries.read
        time, began = None if many else CallTime(policy, size), self.runtime.monotonic()
        try:
            answer = await self.send(operation, request, time=time)
        except TRANSIENT as error:
            sending = partial(self.send, operation, request, again=True, time=time)
            account = self._account
            answer = await retry(
                sending,
                policy,
                self.runtime,
                account=account,
                failure=error,
                began=began,
                time=time,
            )
        if received is not None:
            self.meter.add(operation, 0, size=received(answer))
        return answer

    async def scan(
        self, operation: str, request: Callable[[], Awaitable[T]], *, many: bool = False
    ) -> T:
        """As `read`, for one page of a listing or a scan; `many`: for many pages."""
        return await self.read(operation, request, policy=self.retries.scan, many=many)

    async def write(
        self,
        operation: str,
        request: Callable[[], Awaitable[T]],
        *,
        size: int = 0,
        again: bool = False,
        throttled: Callable[[T], bool] | None = None,
        many: bool = False,
    ) -> T:
        """An idempotent write with retries. `again`: it was sent before; `many`: the call may make
        many requests, or one that takes the service long."""
        policy = self.retries.write
        time, began = None if many else CallTime(policy, size), self.runtime.monotonic()
        try:
            return await self.send(
                operation, request, again=again, size=size, throttled=throttled, time=time
            )
        except TRANSIENT as error:
            sending = partial(
                self.send, operation, request, again=True, size=size, throttled=throttled, time=time
            )
            account = self._account
            return await retry(
                sending,
                policy,
                self.runtime,
                account=account,
                failure=error,
                began=began,
                time=time,
            )

    async def uncounted(self, call: Callable[[], Awaitable[T]]) -> T:
        """A call with an unlimited number of requests, without metering, as in creation and removal
        of volumes."""
        return await retry(call, self.retries.write, self.runtime, account=self._account)

    def next_delay(self, delays: Iterator[float], error: S3kError) -> float | None:
        """The wait before a retry after `error`; None if it may not be retried."""
        delay = next(delays, None)
        return delay if delay is not None and self._account.spend(error) else None
