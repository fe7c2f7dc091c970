"""Committed marks that nobody waits for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import anyio
import pytest

from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.errors import UnreachableError
from s3k_async.oplog.deferred_commits import MARKS_UNDER_WAY, DeferredCommits
from s3k_async.oplog.entries import entry_key
from s3k_async.oplog.log_writer import DisabledLog, NativeLog
from s3k_async.testing import Call, Died, FaultPlan
from tests.oplog import operations as sample
from tests.oplog.operations import keys_of, log_blobs, make_directories
from tests.support import fake_runtime

PENDING = entry_key(sample.CREATE, "pending")
COMMITTED = entry_key(sample.CREATE, "committed")


class Held:
    """Holds every committed object that is being written until it is let go."""

    def __init__(self) -> None:
        self.seen = 0
        self.go = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        if call.key.endswith(".committed"):
            self.seen += 1
            await self.go.wait()


async def held() -> tuple[BlobStore, NativeLog, Held, FaultPlan]:
    gate = Held()
    faults = FaultPlan(gate)
    blobs = await log_blobs(faults)
    return blobs, NativeLog(blobs, fake_runtime()), gate, faults


async def turns() -> None:
    """Let every other task run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("number", [1, 3])
async def test_the_caller_does_not_wait_for_the_mark_and_drained_does(number: int) -> None:
    blobs, log, gate, _ = await held()
    pending = await log.begin(make_directories(number))
    await pending.commit_later()
    assert [key.rpartition(".")[2] for key in await keys_of(blobs)] == ["pending"]
    waiting = asyncio.create_task(log.drained())
    await turns()
    assert gate.seen == 1
    assert not waiting.done()
    gate.go.set()
    await waiting
    assert [key.rpartition(".")[2] for key in await keys_of(blobs)] == ["committed", "pending"]
    await log.close()
    await log.close()


async def test_nothing_is_left_to_wait_for_where_nothing_was_begun() -> None:
    _, log, _, _ = await held()
    await log.drained()
    await DisabledLog().drained()
    await DisabledLog().close()


async def test_what_did_not_happen_is_rolled_back_at_once() -> None:
    blobs, log, _, _ = await held()
    await (await log.begin([sample.CREATE])).commit_later(set())
    assert await keys_of(blobs) == []


async def test_whoever_brings_one_mark_too_many_waits_for_a_place() -> None:
    _, log, gate, _ = await held()
    operations = make_directories(MARKS_UNDER_WAY + 1)
    handles = [await log.begin([operation]) for operation in operations]
    for handle in handles[:-1]:
        await handle.commit_later()
    last = asyncio.create_task(handles[-1].commit_later())
    await turns()
    assert not last.done()
    assert gate.seen == MARKS_UNDER_WAY
    gate.go.set()
    await last
    await log.drained()
    assert gate.seen == MARKS_UNDER_WAY + 1


async def test_a_mark_survives_the_cancellation_of_its_caller() -> None:
    blobs, log, gate, _ = await held()
    begun = asyncio.Event()

    async def change() -> None:
        await (await log.begin([sample.CREATE])).commit_later()
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(change())
    await begun.wait()
    await turns()
    task.cancel()
    gate.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await log.drained()
    assert await keys_of(blobs) == [COMMITTED, PENDING]


async def test_a_mark_that_cannot_be_written_is_counted_and_nobody_hears_of_it() -> None:
    faults = FaultPlan()
    blobs = await log_blobs(faults)
    log = NativeLog(blobs, fake_runtime())
    pending = await log.begin([sample.CREATE])
    faults.fail_when(lambda call: call.method == "put", UnreachableError("no route"))
    await pending.commit_later()
    await log.drained()
    assert log.failed_commits == 1
    assert await keys_of(blobs) == [PENDING]


async def test_what_is_no_error_of_the_store_is_raised_by_whoever_waits() -> None:
    _, log, _, faults = await held()
    faults.gate = None
    faults.fail_when(lambda call: call.key.endswith(".committed"), Died("here"))
    await (await log.begin([sample.CREATE])).commit_later()
    with pytest.raises(Died):
        await log.drained()
    await log.drained()


async def test_closing_that_is_cancelled_leaves_no_mark_under_way() -> None:
    blobs, log, gate, _ = await held()
    await (await log.begin([sample.CREATE])).commit_later()
    await turns()
    with anyio.move_on_after(0) as scope:
        await log.close()
    assert scope.cancelled_caught
    assert len(asyncio.all_tasks()) == 1
    gate.go.set()
    await turns()
    assert await keys_of(blobs) == [PENDING]


async def test_a_forked_child_does_not_write_the_marks_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = DeferredCommits()
    written: list[int] = []

    def mark(number: int) -> Callable[[], Awaitable[None]]:
        async def write() -> None:
            written.append(number)

        return write

    await marks.begin(mark(1))
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    await marks.drained()
    await turns()
    assert written == []
    await marks.begin(mark(2))
    await marks.drained()
    assert written == [2]


async def test_a_mark_is_written_though_the_end_of_the_loop_cancels_it() -> None:
    blobs, log, gate, _ = await held()
    pending = await log.begin([sample.CREATE])
    before = asyncio.all_tasks()
    await pending.commit_later()
    await turns()
    gate.go.set()
    marks = asyncio.all_tasks() - before
    for task in marks:
        task.cancel()
    await asyncio.gather(*marks, return_exceptions=True)
    assert set(await keys_of(blobs)) == {PENDING, COMMITTED}
