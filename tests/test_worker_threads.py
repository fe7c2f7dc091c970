"""Short calls run on the event loop while they are fast."""

from __future__ import annotations

import asyncio
import threading

import pytest

from s3k_async._core import worker_threads
from s3k_async._core.worker_threads import Threads


class Clock:
    """Time that passes only in calls."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker_threads, "monotonic", clock)
    return clock


async def on_the_loop(threads: Threads) -> bool:
    return await threads.run_short(threading.get_ident) == threading.get_ident()


async def test_after_a_slow_call_threads_are_used_for_a_second(clock: Clock) -> None:
    threads = Threads(2)

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


async def test_a_slow_call_that_fails_counts(clock: Clock) -> None:
    threads = Threads(2)

    def fails() -> None:
        clock.seconds += 1
        raise LookupError

    with pytest.raises(LookupError):
        await threads.run_short(fails)
    assert not await on_the_loop(threads)


async def test_calls_on_the_loop_let_other_tasks_run_and_can_be_cancelled(clock: Clock) -> None:
    threads = Threads(2)
    begun = asyncio.Event()

    async def forever() -> None:
        while True:
            await threads.run_short(begun.set)

    task = asyncio.create_task(forever())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
