"""Faults of S3-FileSystem 1.0's operation log that must not come back."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.errors import ResponseLostError
from s3k_async.model import Entry
from s3k_async.oplog.binary_entries import JavaEntryV1, write_java
from s3k_async.oplog.entries import LogRecord, Operation, entry_key
from s3k_async.oplog.log_reader import DamagedLog, JavaLogReader, LogReader, ObjectState, latest
from s3k_async.oplog.log_writer import NativeLog
from s3k_async.testing import FaultPlan
from tests.oplog import operations as sample
from tests.oplog.operations import keys_of, log_blobs
from tests.support import fake_runtime


async def truth(blobs: BlobStore) -> ObjectState:
    return latest([finding async for finding in LogReader(blobs).records()])[sample.OBJECT]


def write_of(writer: int) -> Operation:
    """The same version of the same object, written by one of several writers."""
    after: Entry = replace(sample.PUBLISHED, size=writer, operation=f"writer-{writer}")
    return replace(sample.UPDATE, id=f"writer-{writer}", after=after)


@pytest.mark.parametrize("winner_first", [True, False])
async def test_the_rollback_of_a_losing_writer_leaves_the_committed_entry_of_the_winner(
    winner_first: bool,
) -> None:
    blobs = await log_blobs()
    log = NativeLog(blobs, fake_runtime())
    assert await (await log.begin([sample.CREATE])).commit()
    winner, loser = write_of(1), write_of(2)
    first, second = (winner, loser) if winner_first else (loser, winner)
    handles = {operation.id: await log.begin([operation]) for operation in (first, second)}
    assert (await truth(blobs)).committed == LogRecord(sample.CREATE, "committed")
    assert await handles[winner.id].commit()
    assert await handles[loser.id].rollback()
    assert await truth(blobs) == ObjectState(LogRecord(winner, "committed"))


async def test_a_pending_entry_does_not_replace_the_last_good_one() -> None:
    blobs = await log_blobs()
    log = NativeLog(blobs, fake_runtime())
    assert await (await log.begin([sample.CREATE])).commit()
    before = {key: await blobs.get(key) for key in await keys_of(blobs)}
    await log.begin([sample.UPDATE])
    after = {key: await blobs.get(key) for key in await keys_of(blobs)}
    assert before.items() <= after.items()
    assert (await truth(blobs)).committed == LogRecord(sample.CREATE, "committed")


async def test_of_many_racing_writers_none_overwrites_another() -> None:
    """Each writer's calls interleave with all others'; one may commit, as the table's condition
    would have it."""
    blobs = await log_blobs()
    log = NativeLog(blobs, fake_runtime())
    winners: list[int] = []

    async def write(writer: int) -> None:
        handle = await log.begin([write_of(writer)])
        if winners:
            assert await handle.rollback()
            return
        winners.append(writer)
        await anyio.lowlevel.checkpoint()
        assert await handle.commit()

    async with anyio.create_task_group() as tasks:
        for writer in range(64):
            tasks.start_soon(write, writer)
    assert len(winners) == 1
    assert await truth(blobs) == ObjectState(LogRecord(write_of(winners[0]), "committed"))
    assert len(await keys_of(blobs)) == 2


async def test_a_network_error_while_reading_is_not_corruption() -> None:
    faults = FaultPlan()
    blobs = await log_blobs(faults)
    assert await (await NativeLog(blobs, fake_runtime()).begin([sample.CREATE])).commit()
    faults.fail_when(
        lambda call: call.method == "get", ResponseLostError("reset by peer"), when="after"
    )
    with pytest.raises(ResponseLostError):
        await truth(blobs)
    assert await truth(blobs) == ObjectState(LogRecord(sample.CREATE, "committed"))


async def test_an_entry_that_cannot_be_parsed_is_reported_and_never_deleted() -> None:
    faults = FaultPlan()
    blobs = await log_blobs(faults)
    key = entry_key(sample.CREATE, "committed")
    for data in (b"", b"\xac\xed\x00\x05", b'{"s3k":"oplog-entry","format":99}\n'):
        await blobs.put(key, data)
        (found,) = [finding async for finding in LogReader(blobs).records()]
        assert isinstance(found, DamagedLog)
        assert await blobs.get(key) == data
    assert not [call for call in faults.calls if call.method.startswith("delete")]


async def test_a_legacy_java_entry_is_read_as_what_it_is() -> None:
    blobs = await log_blobs()
    legacy = JavaEntryV1(logical="ks://b/f", size=100, ctime=1_600_000_000, committed=True)
    await blobs.put(f"{sample.OBJECT}.info", write_java(legacy))
    (found,) = [finding async for finding in JavaLogReader(blobs).records()]
    assert isinstance(found, LogRecord)
    assert found.operation.after is not None
    assert (found.operation.after.path, found.operation.after.size) == ("/f", 100)


async def test_an_empty_directory_can_be_told_from_the_log_alone() -> None:
    blobs = await log_blobs()
    assert await (await NativeLog(blobs, fake_runtime()).begin([sample.MAKE_DIRECTORY])).commit()
    record = (await truth(blobs)).committed
    assert record is not None
    assert record.operation.after == sample.DIRECTORY


async def test_two_entries_committed_for_one_version_are_both_reported() -> None:
    blobs = await log_blobs()
    log = NativeLog(blobs, fake_runtime())
    for writer in (1, 2):
        assert await (await log.begin([write_of(writer)])).commit()
    found = await truth(blobs)
    assert found.conflict == (
        LogRecord(write_of(1), "committed"),
        LogRecord(write_of(2), "committed"),
    )
