"""Blocking calls in threads; short ones run on the event loop while they are fast."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import aclosing
from itertools import count

import anyio
import pytest

from s3k_async._core import worker_threads
from s3k_async._core.worker_threads import Threads, in_thread
from s3k_async.migrate.load_batch import off_loop
from s3k_async.model import Entry
from tests.support import FakeClock, fake_runtime

LIMIT = 30
"""Seconds after which a test gives up on a thread."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def threads(clock: FakeClock) -> Threads:
    """Threads for which time passes only in calls, each of which reads from a disk."""
    return Threads(2, fake_runtime(clock), disk_reads=count().__next__)


async def on_the_loop(threads: Threads) -> bool:
    return await threads.run_short(threading.get_ident) == threading.get_ident()


async def test_after_several_slow_calls_threads_are_used_for_a_second(
    clock: FakeClock, threads: Threads
) -> None:
    for _ in range(3):
        assert await on_the_loop(threads)
        await threads.run_short(lambda: clock.advance(0.01))
    assert not await on_the_loop(threads)
    clock.advance(0.99)
    assert not await on_the_loop(threads)
    clock.advance(0.02)
    assert await on_the_loop(threads)


async def test_a_slow_call_now_and_then_changes_nothing(clock: FakeClock, threads: Threads) -> None:
    for _ in range(10):
        await threads.run_short(lambda: clock.advance(0.01))
        for _ in range(99):
            assert await on_the_loop(threads)


async def test_slow_calls_without_a_disk_stay_on_the_loop(clock: FakeClock) -> None:
    """The calls waited for a processor, as they would in a thread."""
    reads = 7
    threads = Threads(2, fake_runtime(clock), disk_reads=lambda: reads)
    for _ in range(10):
        assert await on_the_loop(threads)
        await threads.run_short(lambda: clock.advance(0.01))
    reads = 8
    await threads.run_short(lambda: clock.advance(0.01))
    reads = 9
    await threads.run_short(lambda: clock.advance(0.01))
    assert not await on_the_loop(threads)


async def test_slow_calls_that_fail_count(clock: FakeClock, threads: Threads) -> None:
    def fails() -> None:
        clock.advance(1)
        raise LookupError

    for _ in range(3):
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


async def test_a_call_ends_before_the_cancellation_of_its_task() -> None:
    """As of asyncio, which a shielded scope of anyio does not hold off: what the call uses may be
    closed afterwards."""
    began, release = threading.Event(), threading.Event()

    def chunks() -> Generator[list[Entry], None, None]:
        began.set()
        assert release.wait(LIMIT)
        yield []

    async def read() -> None:
        async with aclosing(off_loop(chunks())) as found:
            async for _ in found:
                pass

    task = asyncio.create_task(read())
    assert await asyncio.to_thread(began.wait, LIMIT)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    ended = task.done()
    release.set()
    assert not ended
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_that_has_not_begun_is_dropped_with_its_task() -> None:
    began, release = threading.Event(), threading.Event()
    called: list[str] = []
    limiter = anyio.CapacityLimiter(1)

    def hold() -> None:
        began.set()
        assert release.wait(LIMIT)

    holding = asyncio.create_task(in_thread(hold, limiter=limiter))
    assert await asyncio.to_thread(began.wait, LIMIT)
    waiting = asyncio.create_task(in_thread(called.append, "late", limiter=limiter))
    await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    ended = waiting.done()
    release.set()
    await holding
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended
    assert await in_thread(lambda: "next", limiter=limiter) == "next"
    assert not called


async def test_a_call_that_its_thread_has_not_begun_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task is cancelled after the thread got the call, and before it runs it."""
    queued: list[Callable[[], object]] = []
    called: list[str] = []

    async def queue(run: Callable[[], object], *, limiter: object) -> None:
        del limiter
        queued.append(run)
        await anyio.sleep_forever()

    monkeypatch.setattr(worker_threads, "run_sync", queue)
    task = asyncio.create_task(in_thread(called.append, "late"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (run,) = queued
    with pytest.raises(asyncio.CancelledError):
        run()
    assert not called
