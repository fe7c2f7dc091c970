"""The protocol of writing: pending, then committed or rolled back."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import anyio
import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore, Buffer
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.errors import (
    ConflictError,
    CredentialsError,
    LogFormatError,
    ResponseLostError,
    ServiceError,
    UnreachableError,
)
from s3k_async.oplog import log_writer as log_module
from s3k_async.oplog.entries import LogRecord, Operation, decode, entry_key
from s3k_async.oplog.log_reader import LogReader, latest
from s3k_async.oplog.log_writer import (
    SEGMENT_OPERATIONS,
    DisabledLog,
    NativeLog,
    OperationLog,
)
from s3k_async.oplog.pending_log import PendingLog
from s3k_async.oplog.segments import cut_lines
from s3k_async.testing import Call, Died, FaultPlan
from tests.oplog import operations as sample
from tests.oplog.operations import keys_of, log_blobs, make_directories, records_only
from tests.support import fake_runtime

PENDING = entry_key(sample.CREATE, "pending")
COMMITTED = entry_key(sample.CREATE, "committed")
LOST = ResponseLostError("lost")


async def native(
    faults: FaultPlan | None = None, *, outcome_timeout: float = 30.0
) -> tuple[BlobStore, NativeLog]:
    blobs = await log_blobs(faults)
    return blobs, NativeLog(blobs, fake_runtime(), outcome_timeout=outcome_timeout)


async def logged(blobs: BlobStore) -> list[LogRecord]:
    return records_only([finding async for finding in LogReader(blobs).records()])


async def test_one_operation_is_an_entry() -> None:
    blobs, log = await native()
    pending = await log.begin([sample.CREATE])
    assert decode(await blobs.get(PENDING), PENDING) == LogRecord(sample.CREATE, "pending")
    assert await pending.commit() is True
    assert await keys_of(blobs) == [COMMITTED, PENDING]
    assert decode(await blobs.get(COMMITTED), COMMITTED) == LogRecord(sample.CREATE, "committed")


async def test_a_rollback_leaves_nothing() -> None:
    blobs, log = await native()
    for operations in ([sample.CREATE], make_directories(3)):
        pending = await log.begin(operations)
        assert len(await keys_of(blobs)) == 1
        assert await pending.rollback() is True
        assert await keys_of(blobs) == []


async def test_what_is_pending_of_a_transaction_of_another_client_is_withdrawn() -> None:
    blobs, log = await native()
    ended = await log.begin([sample.CREATE, sample.UPDATE], txn="one")
    await ended.commit({sample.FIRST})
    await log.begin([sample.CREATE, sample.UPDATE], txn="other")
    before = {info.key async for info in list_all(blobs, "")}
    await log.begin([sample.CREATE, sample.UPDATE], txn="one")
    await log.begin([sample.CREATE], together=True, txn="one")
    await log.withdraw("one")
    assert {info.key async for info in list_all(blobs, "")} == before


async def test_several_operations_are_a_segment() -> None:
    blobs, log = await native()
    operations = make_directories(3)
    pending = await log.begin(operations)
    assert [(record.operation, record.state) for record in await logged(blobs)] == [
        (operation, "pending") for operation in operations
    ]
    assert await pending.commit() is True
    assert [(record.operation, record.state) for record in await logged(blobs)] == [
        (operation, "committed") for operation in operations
    ]
    assert [key.partition("/")[0] for key in await keys_of(blobs)] == ["segments", "segments"]


async def test_the_mark_of_a_segment_does_not_repeat_the_operations() -> None:
    blobs, log = await native()
    operations = make_directories(3)
    assert await (await log.begin(operations)).commit({operations[1].id})
    committed, pending = await keys_of(blobs)
    assert len(await blobs.get(committed)) < len(await blobs.get(pending)) / 3
    assert [(record.operation, record.state) for record in await logged(blobs)] == [
        (operations[1], "committed")
    ]


async def test_operations_of_a_segment_that_failed_are_not_pending_and_unknown_ones_are() -> None:
    blobs, log = await native()
    done, failed, unknown = make_directories(3)
    assert await (await log.begin([done, failed, unknown])).commit({done.id}, unknown={unknown.id})
    truths = latest(await logged(blobs))
    assert set(truths) == {done.object_id, unknown.object_id}
    assert truths[done.object_id].committed == LogRecord(done, "committed")
    assert truths[unknown.object_id].pending == (LogRecord(unknown, "pending"),)


@pytest.mark.parametrize("number", [1, 3])
async def test_a_commit_in_which_nothing_succeeded_is_a_rollback(number: int) -> None:
    blobs, log = await native()
    assert await (await log.begin(make_directories(number))).commit(set()) is True
    assert await keys_of(blobs) == []


@pytest.mark.parametrize("number", [1, 3])
async def test_a_commit_in_which_all_is_unknown_leaves_it_pending(number: int) -> None:
    blobs, log = await native()
    operations = make_directories(number)
    assert (
        await (await log.begin(operations)).commit(
            unknown={operation.id for operation in operations}
        )
        is True
    )
    assert [record.state for record in await logged(blobs)] == ["pending"] * number


async def test_what_certainly_failed_is_not_left_pending_because_of_what_is_unknown() -> None:
    blobs, log = await native()
    failed, unknown, other = make_directories(3)
    assert (
        await (await log.begin([failed, unknown, other])).commit(set(), unknown={unknown.id})
        is True
    )
    assert await logged(blobs) == [LogRecord(unknown, "pending")]
    truths = latest(await logged(blobs))
    assert set(truths) == {unknown.object_id}


async def test_many_operations_are_spread_over_segments() -> None:
    blobs, log = await native()
    operations = make_directories(2 * SEGMENT_OPERATIONS + 1)
    pending = await log.begin(operations)
    assert len(await keys_of(blobs)) == 3
    assert await pending.commit(
        {operation.id for operation in operations[: SEGMENT_OPERATIONS + 5]}
    )
    records = await logged(blobs)
    assert {record.operation.id for record in records} == {
        operation.id for operation in operations[: SEGMENT_OPERATIONS + 5]
    }
    assert {record.state for record in records} == {"committed"}
    assert len(await keys_of(blobs)) == 4


async def test_no_operations_are_nothing() -> None:
    blobs, log = await native()
    for ending in ("commit", "rollback"):
        pending = await log.begin([])
        assert await getattr(pending, ending)() is True
    assert await keys_of(blobs) == []


async def test_ids_that_were_not_begun_are_refused_and_change_nothing() -> None:
    blobs, log = await native()
    first, second = make_directories(2)
    pending = await log.begin([first, second])
    before = await keys_of(blobs)
    for arguments in (
        {"succeeded": {"other"}},
        {"unknown": {"other"}},
        {"succeeded": {first.id}, "unknown": {first.id}},
    ):
        with pytest.raises(ValueError, match="begun"):
            await pending.commit(**arguments)
    assert await keys_of(blobs) == before
    assert await pending.rollback() is True


@pytest.mark.parametrize("number", [1, 3, SEGMENT_OPERATIONS * 2 + 1])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failed_pending_write_fails_the_operation_and_leaves_nothing(
    number: int, when: str
) -> None:
    faults = FaultPlan()
    blobs, log = await native(faults)
    faults.fail(1, UnreachableError("no route"), when="before" if when == "before" else "after")
    with pytest.raises(UnreachableError, match="no route"):
        await log.begin(make_directories(number))
    assert await keys_of(blobs) == []
    assert log.failed_rollbacks == 0


async def test_an_operation_that_contradicts_itself_is_refused_before_anything_is_written() -> None:
    blobs, log = await native()
    with pytest.raises(LogFormatError):
        await log.begin([replace(sample.CREATE, version=2)])
    with pytest.raises(LogFormatError):
        await log.begin([sample.CREATE, sample.CREATE])
    assert await keys_of(blobs) == []


async def test_a_lost_answer_to_the_pending_write_is_a_definite_failure() -> None:
    faults = FaultPlan()
    blobs, log = await native(faults)
    faults.fail_when(lambda call: call.method == "put", LOST, when="after")
    with pytest.raises(ServiceError, match="nothing was changed") as caught:
        await log.begin([sample.CREATE])
    assert caught.value.__cause__ is LOST
    assert await keys_of(blobs) == []


async def test_a_pending_write_that_cannot_be_withdrawn_still_fails_with_its_own_error() -> None:
    faults = FaultPlan()
    blobs, log = await native(faults)
    faults.fail_when(lambda call: call.method == "put", CredentialsError("expired"), when="after")
    faults.fail_when(lambda call: call.method == "delete", UnreachableError("no route"))
    with pytest.raises(CredentialsError):
        await log.begin([sample.CREATE])
    assert await keys_of(blobs) == [PENDING]
    assert log.failed_rollbacks == 1


async def test_beginning_the_identical_operation_again_is_fine() -> None:
    blobs, log = await native()
    await log.begin([sample.CREATE])
    again = await log.begin([sample.CREATE])
    assert await again.commit() is True
    assert await keys_of(blobs) == [COMMITTED, PENDING]


async def test_another_operation_under_the_same_id_is_refused_and_the_first_one_stays() -> None:
    blobs, log = await native()
    await log.begin([sample.CREATE])
    first = await blobs.get(PENDING)
    other = replace(sample.CREATE, after=replace(sample.RESERVED, path="/other"))
    with pytest.raises(ConflictError) as caught:
        await log.begin([other])
    assert caught.value.path == PENDING
    assert await blobs.get(PENDING) == first


async def test_a_failure_to_compare_does_not_remove_what_was_there_before() -> None:
    faults = FaultPlan()
    blobs, log = await native(faults)
    await log.begin([sample.CREATE])
    faults.fail_when(lambda call: call.method == "get", UnreachableError("no route"))
    with pytest.raises(UnreachableError):
        await log.begin([sample.CREATE])
    assert await keys_of(blobs) == [PENDING]


async def test_a_failed_commit_is_false_counted_and_logged_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = FaultPlan()
    blobs, log = await native(faults)
    pending = await log.begin([sample.CREATE])
    faults.fail_when(
        lambda call: call.method == "put", CredentialsError("the token AKIASECRET is expired")
    )
    with caplog.at_level(logging.WARNING, "s3k_async.oplog.log_writer"):
        assert await pending.commit() is False
    assert log.failed_commits == 1
    assert caplog.messages == [f"operation log: {COMMITTED} not committed (credentials)"]
    assert await keys_of(blobs) == [PENDING]
    assert await pending.commit() is True


async def test_a_commit_whose_answer_was_lost_is_resolved_by_the_bytes() -> None:
    faults = FaultPlan()
    store = await log_blobs(faults)
    runtime = fake_runtime()
    log = NativeLog(RetryingBlobs(store, RetryPolicy(), runtime), runtime)
    faults.fail_when(lambda call: call.method == "put", LOST, when="after", times=2)
    pending = await log.begin([sample.CREATE])
    faults.fail_when(lambda call: call.method == "put", LOST, when="after", times=2)
    assert await pending.commit() is True
    assert log.failed_commits == 0
    assert await keys_of(store) == [COMMITTED, PENDING]


async def test_committing_twice_is_fine_and_another_record_in_its_place_is_not_replaced() -> None:
    blobs, log = await native()
    pending = await log.begin([sample.CREATE])
    assert await pending.commit() is True
    assert await pending.commit() is True
    await blobs.put(COMMITTED, b"foreign")
    assert await pending.commit() is False
    assert await blobs.get(COMMITTED) == b"foreign"


async def test_part_of_the_segments_committed_is_false_and_each_failure_counted() -> None:
    faults = FaultPlan()
    blobs, log = await native(faults)
    pending = await log.begin(make_directories(2 * SEGMENT_OPERATIONS + 1))
    faults.fail_when(lambda call: call.method == "put", UnreachableError("no route"), times=2)
    assert await pending.commit() is False
    assert log.failed_commits == 2
    assert sum(key.endswith(".committed") for key in await keys_of(blobs)) == 1


async def test_a_failed_rollback_is_false_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = FaultPlan()
    blobs, log = await native(faults)
    pending = await log.begin([sample.CREATE])
    faults.fail_when(lambda call: call.method == "delete", UnreachableError("no route"))
    assert await pending.rollback() is False
    assert log.failed_rollbacks == 1
    assert caplog.messages == [f"operation log: {PENDING} not rolled back (unreachable)"]
    assert await pending.rollback() is True
    assert await keys_of(blobs) == []


async def test_a_rollback_after_a_commit_removes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    faults = FaultPlan()
    blobs, log = await native(faults)
    pending = await log.begin([sample.CREATE])
    faults.fail_when(lambda call: call.method == "put", UnreachableError("no route"))
    assert await pending.commit() is False
    assert await pending.rollback() is False
    assert await keys_of(blobs) == [PENDING]


class Gate:
    """Holds the calls of one method until it is opened."""

    def __init__(self, method: str) -> None:
        self._method = method
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        if call.method == self._method:
            self.reached.set()
            await self.opened.wait()


async def held(
    method: str, *, outcome_timeout: float = 30.0
) -> tuple[BlobStore, NativeLog, PendingLog, Gate]:
    """An operation that has begun, and whose next call of the method will be held."""
    faults = FaultPlan()
    blobs, log = await native(faults, outcome_timeout=outcome_timeout)
    pending = await log.begin([sample.CREATE])
    faults.gate = gate = Gate(method)
    return blobs, log, pending, gate


async def test_a_commit_survives_the_cancellation_of_its_task() -> None:
    blobs, _, pending, gate = await held("put")
    task = asyncio.create_task(pending.commit())
    await gate.reached.wait()
    task.cancel()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert COMMITTED in await keys_of(blobs)


async def test_a_commit_survives_repeated_cancellation() -> None:
    blobs, _, pending, gate = await held("put")
    task = asyncio.create_task(pending.commit())
    await gate.reached.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert COMMITTED in await keys_of(blobs)


async def test_a_commit_in_a_cancelled_scope_is_attempted() -> None:
    blobs, _, pending, gate = await held("put")
    gate.opened.set()
    committed = False
    with anyio.CancelScope() as scope:
        scope.cancel()
        committed = await pending.commit()
    assert committed
    assert COMMITTED in await keys_of(blobs)


async def test_a_rollback_survives_cancellation() -> None:
    blobs, _, pending, gate = await held("delete")
    task = asyncio.create_task(pending.rollback())
    await gate.reached.wait()
    task.cancel()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await keys_of(blobs) == []


async def test_a_commit_that_gets_no_answer_ends_false(caplog: pytest.LogCaptureFixture) -> None:
    _, log, pending, gate = await held("put", outcome_timeout=0.01)
    assert await pending.commit() is False
    assert gate.reached.is_set()
    assert log.failed_commits == 1
    assert caplog.messages == [f"operation log: {COMMITTED} not committed (no answer in time)"]


async def test_a_begin_that_is_cancelled_leaves_nothing() -> None:
    blobs = await log_blobs()
    applied = asyncio.Event()

    class StoredButUnanswered(MemoryBlobs):
        async def put(
            self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
        ) -> BlobInfo:
            info = await blobs.put(key, data, if_absent=if_absent, if_match=if_match)
            applied.set()
            await asyncio.Event().wait()
            return info

    log = NativeLog(StoredButUnanswered(blobs._name), fake_runtime())
    task = asyncio.create_task(log.begin([sample.CREATE]))
    await applied.wait()
    assert await keys_of(blobs) == [PENDING]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await keys_of(blobs) == []


@pytest.mark.parametrize("number", [1, 3])
async def test_a_death_while_beginning_or_committing_runs_no_cleaning_up(number: int) -> None:
    faults = FaultPlan()
    blobs, log = await native(faults)
    faults.die(1, when="after")
    with pytest.raises(Died):
        await log.begin(make_directories(number))
    assert len(await keys_of(blobs)) == 1
    pending = await log.begin([sample.CREATE])
    faults.fail_when(lambda call: call.method == "put", Died(), when="before")
    with pytest.raises(Died):
        await pending.commit()
    assert [record.state for record in await logged(blobs)] == ["pending"] * (number + 1)


async def test_a_disabled_log_keeps_nothing_and_says_yes() -> None:
    log: OperationLog = DisabledLog()
    operations: list[Operation] = [sample.CREATE, sample.UPDATE]
    assert await (await log.begin(operations)).commit({sample.FIRST}) is True
    assert await (await log.begin(operations)).rollback() is True
    await log.withdraw("transaction")
    assert (log.failed_commits, log.failed_rollbacks) == (0, 0)


async def test_long_operations_make_more_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """With paths of three kilobytes five thousand renames were one object of 31 MB."""
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 20_000)
    blobs, log = await native()
    operations = [
        replace(one, after=replace(one.after, path=one.after.path + ("/" + "n" * 980) * 3))
        for one in make_directories(50)
        if one.after is not None
    ]
    pending = await log.begin(operations)
    sizes = [info.size async for info in list_all(blobs, "segments/")]
    assert len(sizes) > 8
    assert max(sizes) < 20_500
    assert {record.operation for record in await logged(blobs)} == set(operations)
    assert await pending.commit({operations[0].id, operations[49].id}, unknown={operations[1].id})
    states = {record.operation.id: record.state for record in await logged(blobs)}
    assert states == {
        operations[0].id: "committed",
        operations[49].id: "committed",
        operations[1].id: "pending",
    }


@pytest.mark.parametrize("most", [1, 2, 5, 9, 100])
def test_lines_are_cut_into_runs(most: int) -> None:
    lines = b"a\nbb\nccc\ndddddddd\ne\n"
    runs = cut_lines(lines, 5, most)
    assert b"".join(run for _, run in runs) == lines
    assert sum(count for count, _ in runs) == 5
    assert all(run.endswith(b"\n") and run.count(b"\n") == count for count, run in runs)
    assert all(len(run) <= most or count == 1 for count, run in runs)
