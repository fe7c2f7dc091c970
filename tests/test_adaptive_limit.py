"""The limit that learns from throttling: its rule, its queue, and how it does against a service of
a given capacity."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.metering import Meter
from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async._core.runtime import Runtime
from s3k_async.backends.retrying.request_pipeline import Sender
from s3k_async.errors import PathNotFoundError, ThrottledError
from tests.support import fake_runtime

# The rule


@asynccontextmanager
async def slot(
    limit: AdaptiveLimit, *, at_once: bool = False, throttled: bool = False
) -> AsyncIterator[None]:
    """The body as one request; `throttled`: its answer reports throttling."""
    epoch, _ = await limit.acquire(at_once=at_once)
    try:
        yield
    except BaseException as error:
        limit.release(epoch, error)
        raise
    limit.release(epoch, None, throttled=throttled)


async def succeed(limit: AdaptiveLimit, times: int = 1) -> None:
    for _ in range(times):
        async with slot(limit):
            pass


async def throttle(limit: AdaptiveLimit) -> None:
    with pytest.raises(ThrottledError):
        async with slot(limit):
            raise ThrottledError("slow down")


async def test_throttling_halves_and_success_adds() -> None:
    limit = AdaptiveLimit(16)
    assert limit.limit == 16
    await throttle(limit)
    assert limit.limit == 8
    await succeed(limit, 9)
    assert limit.limit == 9
    await throttle(limit)
    assert limit.limit == 4


async def test_the_limit_stays_between_one_and_the_most() -> None:
    limit = AdaptiveLimit(4)
    for _ in range(10):
        await throttle(limit)
    assert limit.limit == 1
    await succeed(limit, 100)
    assert limit.limit == 4
    assert AdaptiveLimit(0).limit == 1


async def test_requests_that_were_in_flight_together_halve_once() -> None:
    limit = AdaptiveLimit(8)
    slots = [await limit.acquire() for _ in range(8)]
    for epoch, _ in slots:
        limit.release(epoch, ThrottledError("slow down"))
    assert limit.limit == 4
    await throttle(limit)
    assert limit.limit == 2


async def test_an_answer_can_ask_to_slow_down_without_an_error() -> None:
    limit = AdaptiveLimit(8)
    async with slot(limit, throttled=True):
        pass
    assert limit.limit == 4


async def test_other_errors_say_nothing() -> None:
    limit = AdaptiveLimit(8)
    await throttle(limit)
    for _ in range(20):
        with pytest.raises(PathNotFoundError):
            async with slot(limit):
                raise PathNotFoundError("nothing", path="/")
    assert limit.limit == 4
    assert limit.in_flight == 0


# The queue


async def test_first_come_first_served() -> None:
    limit = AdaptiveLimit(1)
    order: list[int] = []

    async def one(number: int) -> None:
        async with slot(limit):
            await asyncio.sleep(0)
            order.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(one(number))
    assert order == list(range(10))


async def test_what_may_not_wait_goes_beyond_the_limit() -> None:
    limit = AdaptiveLimit(1)
    async with slot(limit):
        waiting = asyncio.create_task(succeed(limit))
        await asyncio.sleep(0)
        async with slot(limit, at_once=True):
            assert limit.in_flight == 2
        assert not waiting.done()
    await waiting
    assert limit.in_flight == 0


async def test_cancelled_waiters_leave_no_hole() -> None:
    limit = AdaptiveLimit(1)
    epoch, _ = await limit.acquire()
    waiting = [asyncio.create_task(succeed(limit)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    limit.release(epoch, None)
    # The second has its room by now, and has not run yet.
    waiting[1].cancel()
    await asyncio.wait(waiting)
    assert [task.cancelled() for task in waiting] == [True, True, False]
    assert limit.in_flight == 0
    await asyncio.wait_for(succeed(limit), 5)


async def test_a_lowered_limit_holds_for_those_who_wait() -> None:
    limit = AdaptiveLimit(4)
    flying = most = 0

    async def one() -> None:
        nonlocal flying, most
        async with slot(limit):
            flying += 1
            most = max(most, flying)
            await asyncio.sleep(0)
            flying -= 1

    await throttle(limit)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(one())
        await asyncio.sleep(0)
        for _ in range(3):
            tasks.create_task(one())
    assert most == 2


# Against a service


class _VirtualSelector(selectors.DefaultSelector):
    """Time passes at once when nobody has anything to do but wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.seconds += timeout or 0.0
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.seconds


def in_virtual_time(main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    """Run a simulation: hours of it take what its computing takes."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        loop = runner.get_loop()
        usual = fake_runtime(seed=7)
        runtime = Runtime(
            now_ms=lambda: int(loop.time() * 1000),
            monotonic=loop.time,
            entropy=usual.entropy,
            uniform=usual.uniform,
            sleep=asyncio.sleep,
            file_ms=lambda _: int(loop.time() * 1000),
        )
        runner.run(main(runtime))


@dataclass
class Service:
    """Answers within `latency` seconds so many requests a second, and refuses the others, as
    DynamoDB does."""

    runtime: Runtime
    capacity: float
    latency: float = 0.01
    tokens: float = 100.0
    seen: float = 0.0
    served: int = 0
    refused: int = 0

    async def request(self) -> None:
        now = self.runtime.monotonic()
        self.tokens = min(
            max(1.0, self.capacity / 20), self.tokens + (now - self.seen) * self.capacity
        )
        self.seen = now
        refused = self.tokens < 1.0
        if refused:
            self.refused += 1
        else:
            self.tokens -= 1.0
            self.served += 1
        await self.runtime.sleep(self.latency)
        if refused:
            raise ThrottledError("slow down")


@dataclass
class Load:
    """Workers that keep sending through one limit."""

    service: Service
    limit: AdaptiveLimit
    samples: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        retries = Retries(write=RetryPolicy(attempts=50, deadline=1000.0))
        self.sender = Sender(retries, self.service.runtime, self.limit, Meter("table"))

    async def run(self, seconds: float, workers: int = 64) -> None:
        """Send for so long; an error of the sender ends the test."""
        self.samples.clear()
        clock = self.service.runtime.monotonic
        end = clock() + seconds

        async def work() -> None:
            while clock() < end:
                await self.sender.send("PutItem", self.service.request, self.sender.retries.write)
                self.samples.append(self.limit.limit)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(workers):
                tasks.create_task(work())

    async def served(self, during: Awaitable[None]) -> int:
        before = self.service.served
        await during
        return self.service.served - before


def test_the_limit_finds_the_capacity_and_keeps_near_it() -> None:
    """1,000 requests a second of 10 ms each are 10 in flight."""

    async def main(runtime: Runtime) -> None:
        load = Load(Service(runtime, capacity=1000), AdaptiveLimit(64))
        await load.run(2)
        load.service.refused = 0
        served = await load.served(load.run(6))
        assert served >= 0.8 * 6 * 1000
        assert 5 <= sum(load.samples) / len(load.samples) <= 20
        assert load.service.refused <= 0.1 * served

    in_virtual_time(main)


def test_the_limit_recovers_with_the_capacity() -> None:
    async def main(runtime: Runtime) -> None:
        load = Load(Service(runtime, capacity=200), AdaptiveLimit(64))
        await load.run(10)
        assert max(load.samples[-100:]) <= 10
        load.service.capacity = 100_000
        await load.run(2)
        assert load.samples[-1] == 64

    in_virtual_time(main)


def test_without_throttling_nothing_is_held_back() -> None:
    async def main(runtime: Runtime) -> None:
        load = Load(Service(runtime, capacity=1e9), AdaptiveLimit(64))
        served = await load.served(load.run(1))
        assert load.limit.limit == 64
        assert served >= 0.98 * 64 / load.service.latency

    in_virtual_time(main)


def test_a_service_that_can_do_next_to_nothing_is_served_to_the_end() -> None:
    """Five requests a second, for many who want more: nobody fails, and nearly all that can be done
    is done."""

    async def main(runtime: Runtime) -> None:
        load = Load(Service(runtime, capacity=5), AdaptiveLimit(64))
        served = await load.served(load.run(120, workers=16))
        assert served >= 0.7 * 5 * 120

    in_virtual_time(main)
