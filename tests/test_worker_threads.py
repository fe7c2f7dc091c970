"""Short calls run on the event loop while they are fast."""

from __future__ import annotations

import asyncio
import threading

import pytest

from s3k_async._core.worker_threads import Threads
from tests.support import FakeClock, fake_runtime


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def threads(clock: FakeClock) -> Threads:
    """Threads for which time passes only in calls."""
    return Threads(2, fake_runtime(clock))


async def on_the_loop(threads: Threads) -> bool:
    return await threads.run_short(threading.get_ident) == threading.get_ident()


async def test_after_a_slow_call_threads_are_used_for_a_second(
    clock: FakeClock, threads: Threads
) -> None:
    def slow() -> None:
        clock.seconds += 0.01

    assert await on_the_loop(threads)
    assert await on_the_loop(threads)
    await threads.run_short(slow)
    assert not await on_the_loop(threads)
    clock.seconds += 0.99
    assert not await on_the_loop(threads)
    clock.seconds += 0.02
    assert await on_the_loop(threads)


async def test_a_slow_call_that_fails_counts(clock: FakeClock, threads: Threads) -> None:
    def fails() -> None:
        clock.seconds += 1
        raise LookupError

    with pytest.raises(LookupError):
        await threads.run_short(fails)
    assert not await on_the_loop(threads)


async def test_calls_on_the_loop_let_other_tasks_run_and_can_be_cancelled(threads: Threads) -> None:
    begun = asyncio.Event()

    async def forever() -> None:
        while True:
            await threads.run_short(begun.set)

    task = asyncio.create_task(forever())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
