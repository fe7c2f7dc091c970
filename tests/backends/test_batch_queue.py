"""Batches of the writes of an event loop: concurrent writes are applied together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from s3k_async._core.worker_threads import Threads
from s3k_async.backends.batch_queue import BatchQueue, Rounds, Steps, rounds_of
from s3k_async.errors import NoSpaceError, S3kError
from tests.support import FakeClock, fake_runtime

Applied = list[list[int]]


def queue_of(
    rounds: Rounds,
    apply: Callable[[Sequence[int]], Steps[int]],
    *,
    rank: int = 0,
    most: int = 256,
    clock: FakeClock | None = None,
) -> BatchQueue[int, int]:
    threads = Threads(2, fake_runtime(clock or FakeClock()), disk_reads=count().__next__)
    return BatchQueue(apply, threads, ThreadPoolExecutor(4), rounds, rank=rank, most=most)


def noting(applied: Applied, call: Callable[[], Any] = threading.get_ident) -> Any:
    """Applies a batch by a call in a thread, and returns the numbers written."""

    def steps(batch: Sequence[int]) -> Steps[int]:
        applied.append(list(batch))
        yield [call]
        return list(batch)

    return steps


async def test_what_waits_is_one_batch_with_outcomes_in_order() -> None:
    applied: Applied = []
    queue = queue_of(Rounds(), noting(applied))
    futures = [queue.submit(number) for number in range(8)]
    assert await asyncio.gather(*futures) == list(range(8))
    assert applied == [list(range(8))]


async def test_a_batch_has_at_most_so_many_writes_and_the_rest_follow() -> None:
    applied: Applied = []
    queue = queue_of(Rounds(), noting(applied), most=3)
    futures = [queue.submit(number) for number in range(7)]
    await asyncio.wait_for(queue.drained(), 10)
    assert applied == [[0, 1, 2], [3, 4, 5], [6]]
    assert all(future.done() for future in futures)


async def test_calls_that_write_to_two_queues_come_to_share_every_batch() -> None:
    """Each call writes a file, then to the table; at first one call is ahead of the others."""
    files: Applied = []
    table: Applied = []
    rounds, is_ahead = Rounds(), asyncio.Event()

    def write(batch: Sequence[int]) -> Steps[int]:
        is_ahead.set()
        result: Sequence[int | S3kError] = yield from noting(files)(batch)
        return result

    first, second = queue_of(rounds, write), queue_of(rounds, noting(table), rank=1)

    async def call(number: int) -> None:
        for _ in range(6):
            await first.submit(number)
            await asyncio.sleep(0)
            await second.submit(number)

    alone = asyncio.create_task(call(0))
    await is_ahead.wait()
    await asyncio.gather(alone, *(call(number) for number in range(1, 8)))
    assert (len(files[0]), len(table[0])) == (1, 1)
    assert [len(batch) for batch in (*files[1:5], *table[1:5])] == [8] * 8


async def test_a_table_that_is_always_written_to_holds_up_no_file() -> None:
    files: Applied = []
    table: Applied = []
    rounds = Rounds()
    first = queue_of(rounds, noting(files))
    second = queue_of(rounds, noting(table), rank=1)

    async def fill() -> None:
        waiting = {second.submit(0), second.submit(0)}
        while True:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            waiting |= {second.submit(0) for _ in done}

    filling = [asyncio.create_task(fill()) for _ in range(3)]
    await second.submit(1)
    before = len(table)
    await asyncio.wait_for(first.submit(2), 60)
    assert len(table) - before <= 4
    for each in filling:
        each.cancel()
    await asyncio.wait(filling)
    await second.drained()


async def test_a_steady_stream_of_writes_does_not_postpone_a_batch() -> None:
    applied: Applied = []
    queue = queue_of(Rounds(), noting(applied))
    submitted = 0
    while not applied and submitted < 1000:
        queue.submit(submitted)
        submitted += 1
        await asyncio.sleep(0)
    assert applied
    await queue.drained()
    assert [number for batch in applied for number in batch] == list(range(submitted))


async def test_a_write_that_is_cancelled_before_its_batch_is_dropped() -> None:
    applied: Applied = []
    queue = queue_of(Rounds(), noting(applied))
    first, second = queue.submit(1), queue.submit(2)
    second.cancel()
    assert await first == 1
    assert applied == [[1]]
    queue.submit(3).cancel()
    await queue.drained()
    assert await queue.submit(4) == 4


async def test_an_error_of_a_call_is_raised_in_the_steps_and_fails_each_write_by_itself() -> None:
    raised: list[BaseException] = []

    def full() -> None:
        raise NoSpaceError("full", path="t")

    def steps(batch: Sequence[int]) -> Steps[int]:
        try:
            yield [full, threading.get_ident]
        except NoSpaceError as error:
            raised.append(error)
            raise
        return list(batch)

    queue = queue_of(Rounds(), steps)
    futures = [queue.submit(number) for number in range(3)]
    errors = await asyncio.gather(*futures, return_exceptions=True)
    assert len(raised) == 1
    assert [type(error) for error in errors] == [NoSpaceError] * 3
    assert len({id(error) for error in errors}) == 3


async def test_an_outcome_that_is_an_error_is_that_of_its_write_alone() -> None:
    def steps(batch: Sequence[int]) -> Steps[int]:
        yield ()
        outcomes: list[int | S3kError] = [*batch[:-1], NoSpaceError("full", path="t")]
        return outcomes

    queue = queue_of(Rounds(), steps)
    one, other = queue.submit(1), queue.submit(2)
    assert await one == 1
    with pytest.raises(NoSpaceError):
        await other


async def test_slow_steps_move_to_threads() -> None:
    clock, steps_in = FakeClock(), list[int]()

    def steps(batch: Sequence[int]) -> Steps[int]:
        clock.advance(0.02)
        steps_in.append(threading.get_ident())
        yield [threading.get_ident]
        steps_in.append(threading.get_ident())
        return list(batch)

    queue = queue_of(Rounds(), steps, clock=clock)
    for number in range(6):
        assert await queue.submit(number) == number
    here = threading.get_ident()
    assert steps_in[0] == here
    assert here not in steps_in[-2:]


def test_steps_are_closed_if_the_event_loop_ends_before_them() -> None:
    go, closed = threading.Event(), threading.Event()

    def steps(batch: Sequence[int]) -> Steps[int]:
        try:
            yield [lambda: go.wait(20)]
        finally:
            closed.set()
        return list(batch)

    async def leave() -> None:
        applied = queue_of(Rounds(), steps).submit(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(applied, 0.05)

    asyncio.run(leave())
    assert not closed.is_set()
    go.set()
    assert closed.wait(5)


async def test_queues_of_one_device_share_rounds(tmp_path: Any) -> None:
    (tmp_path / "data").mkdir()
    assert rounds_of(str(tmp_path / "data")) is rounds_of(str(tmp_path / "not" / "there"))
    assert rounds_of(str(tmp_path)) is not rounds_of("/proc")
