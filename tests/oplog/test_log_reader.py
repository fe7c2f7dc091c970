"""Reading the log back, and what it says of each object."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.errors import ResponseLostError, UnreachableError
from s3k_async.model import UNCOMMITTED, Entry
from s3k_async.oplog.binary_entries import JavaEntryV1, JavaEntryV2, write_java
from s3k_async.oplog.compaction import Compactor
from s3k_async.oplog.entries import LogRecord, LogState, Operation, encode, entry_key, segment_key
from s3k_async.oplog.log_objects import ENTRY_BYTES, MANIFEST_BYTES
from s3k_async.oplog.log_reader import DamagedLog, JavaLogReader, LogReader, ObjectState, latest
from s3k_async.oplog.log_writer import NativeLog
from s3k_async.oplog.segments import SegmentCommit, encode_segment, encode_segment_commit
from s3k_async.testing import Call, FaultPlan
from tests.oplog import operations as sample
from tests.oplog.operations import keys_of, log_blobs, make_directories, records_only
from tests.support import FakeClock, fake_runtime

LIFE = (sample.CREATE, sample.UPDATE, sample.RENAME, sample.DELETE)


SOURCES = fake_runtime()


async def commit(blobs: BlobStore, *operations: Operation) -> None:
    assert await (await NativeLog(blobs, SOURCES).begin(operations)).commit()


async def findings(blobs: BlobStore) -> list[LogRecord | DamagedLog]:
    return [finding async for finding in LogReader(blobs).records()]


async def test_every_operation_is_read_once_in_its_highest_state() -> None:
    blobs = await log_blobs()
    for operation in LIFE[:3]:
        await commit(blobs, operation)
    log = NativeLog(blobs, fake_runtime(seed=1))
    await log.begin([sample.DELETE])
    bulk = make_directories(4)
    await (await log.begin(bulk)).commit({bulk[0].id, bulk[1].id}, unknown={bulk[2].id})
    records = records_only(await findings(blobs))
    assert [(record.operation, record.state) for record in records] == [
        (bulk[0], "committed"),
        (bulk[1], "committed"),
        (bulk[2], "pending"),
        (sample.CREATE, "committed"),
        (sample.UPDATE, "committed"),
        (sample.RENAME, "committed"),
        (sample.DELETE, "pending"),
    ]
    assert {record.key for record in records} <= set(await keys_of(blobs))


async def test_a_slow_operation_that_leaves_its_group_in_mid_reading_is_read() -> None:
    """At every call of the reader: it is in the segment before, and in an entry afterwards."""
    slow, *others = make_directories(3)
    ways: dict[str, Callable[[LogReader], AsyncIterator[Any]]] = {
        "records": LogReader.records,
        "objects": LogReader.objects,
    }
    for name, read in ways.items():
        moment = calls = 1
        while moment <= calls:
            plan = FaultPlan()
            blobs = await log_blobs(plan)
            await commit(blobs, *others)
            segment = str(UUID(int=7))
            await blobs.put(
                segment_key(segment, "pending"), encode_segment(segment, [slow, others[0]])
            )
            mark = SegmentCommit(segment, 2, (others[0].id,), ())

            async def leave(
                call: Call,
                moment: int = moment,
                blobs: BlobStore = blobs,
                mark: SegmentCommit = mark,
                plan: FaultPlan = plan,
            ) -> None:
                if call.number == moment:
                    plan.gate = None  # the calls below are none of the reader
                    await blobs.put(
                        entry_key(slow, "pending"), encode(LogRecord(slow, "pending", ""))
                    )
                    await blobs.put(segment_key(mark.id, "committed"), encode_segment_commit(mark))

            plan.calls.clear()
            plan.gate = leave
            found = [each async for each in read(LogReader(blobs))]
            seen = found if name == "records" else [one for each in found for one in each.findings]
            assert slow.id in {each.operation.id for each in records_only(seen)}, (name, moment)
            calls = len(plan.calls)
            moment += 1
        assert calls > 2


async def test_a_log_of_many_pages_is_read_whole() -> None:
    blobs = await log_blobs()
    operations = make_directories(1500)
    for operation in operations:
        await commit(blobs, operation)
    assert [record.operation for record in records_only(await findings(blobs))] == operations


async def test_an_empty_log_has_no_records() -> None:
    assert await findings(await log_blobs()) == []


async def test_the_history_of_an_object_is_its_entries_and_its_part_of_the_segments() -> None:
    blobs = await log_blobs()
    await commit(blobs, sample.DELETE)
    await commit(blobs, sample.CREATE, *make_directories(3))
    await commit(blobs, sample.RENAME)
    await commit(blobs, sample.UPDATE, replace(make_directories(5)[4], version=1))
    longer = f"{sample.OBJECT}0"
    await commit(
        blobs, replace(sample.CREATE, object_id=longer, after=replace(sample.RESERVED, id=longer))
    )
    history = records_only(await LogReader(blobs).history(sample.OBJECT))
    assert [record.operation for record in history] == list(LIFE)
    assert await LogReader(blobs).history("nobody") == []


async def test_damage_is_reported_in_place_and_never_touched() -> None:
    blobs = await log_blobs()
    await commit(blobs, sample.CREATE)
    await commit(blobs, sample.UPDATE)
    damaged = entry_key(sample.UPDATE, "committed")
    await blobs.put(damaged, (await blobs.get(damaged))[:-5])
    await blobs.put("entries/12/readme.txt", b"hello")
    await blobs.put("segments/5e6.committed", b'{"s3k":"oplog-segment","format":4}\n')
    before = {key: await blobs.get(key) for key in await keys_of(blobs)}
    found = await findings(blobs)
    assert {
        finding.key: str(finding.error) for finding in found if isinstance(finding, DamagedLog)
    } == {
        damaged: f"truncated or damaged: {damaged}",
        "entries/12/readme.txt": "not the key of an operation log object: entries/12/readme.txt",
        "segments/5e6.committed": "operation log format 4; this version reads up to 3, a newer one "
        "is needed: "
        "segments/5e6.committed",
    }
    # The pending twin of the damaged entry is still good, and then it counts.
    assert latest(found)[sample.OBJECT] == ObjectState(
        LogRecord(sample.CREATE, "committed"), pending=(LogRecord(sample.UPDATE, "pending"),)
    )
    assert {key: await blobs.get(key) for key in await keys_of(blobs)} == before
    history = await LogReader(blobs).history(sample.OBJECT)
    assert [finding.key for finding in history if isinstance(finding, DamagedLog)] == [
        damaged,
        "segments/5e6.committed",
    ]


async def test_a_damaged_mark_leaves_the_operations_of_its_segment_pending() -> None:
    blobs = await log_blobs()
    operations = make_directories(3)
    await commit(blobs, *operations)
    committed, pending = await keys_of(blobs)
    mark = await blobs.get(committed)
    foreign = encode_segment_commit(
        SegmentCommit(committed.removeprefix("segments/").removesuffix(".committed"), 3, ("other",))
    )
    for wrong in (foreign, b""):
        await blobs.put(committed, wrong)
        found = await findings(blobs)
        assert isinstance(found[0], DamagedLog)
        assert found[0].key == committed
        assert found[1:] == [LogRecord(operation, "pending") for operation in operations]
    await blobs.put(pending, b"")
    assert [
        finding.key for finding in await findings(blobs) if isinstance(finding, DamagedLog)
    ] == [committed, pending]
    await blobs.put(committed, mark)
    assert [
        finding.key for finding in await findings(blobs) if isinstance(finding, DamagedLog)
    ] == [pending]


async def test_a_mark_whose_pending_object_is_missing_is_damage_by_name() -> None:
    blobs = await log_blobs()
    await commit(blobs, *make_directories(3))
    committed, pending = await keys_of(blobs)
    await blobs.delete(pending)
    (found,) = await findings(blobs)
    assert isinstance(found, DamagedLog)
    assert (found.key, found.error.path) == (committed, committed)
    assert "pending object" in str(found.error)
    assert "missing" in str(found.error)


async def test_a_mark_without_a_success_whose_pending_object_is_missing_is_no_damage() -> None:
    """The writer removed it, since all its operations failed, after repair had marked it."""
    blobs = await log_blobs()
    ids = tuple(operation.id for operation in make_directories(3))
    for number, mark in enumerate(
        (SegmentCommit("s0", 3, (), ids), SegmentCommit("s1", 3, (), ids[:1]))
    ):
        await blobs.put(segment_key(f"s{number}", "committed"), encode_segment_commit(mark))
    assert await findings(blobs) == []


async def test_what_is_pending_bears_the_key_of_the_object_that_says_so() -> None:
    """By it fsck knows an open segment, whether it was found in a listing or read by its id."""
    blobs = await log_blobs()
    operations = make_directories(3)
    begun, marked, damaged = (f"{name}-{number}" for number, name in enumerate("xyz"))
    for segment in (begun, marked, damaged):
        await blobs.put(segment_key(segment, "pending"), encode_segment(segment, operations))
    mark = SegmentCommit(marked, 3, (), (operations[0].id,))
    await blobs.put(segment_key(marked, "committed"), encode_segment_commit(mark))
    await blobs.put(segment_key(damaged, "committed"), b"damaged")
    reader = LogReader(blobs)
    listed = {part.segment: {one.key for one in part.records} async for part in reader.segments()}
    states: dict[str, LogState] = {begun: "pending", marked: "committed", damaged: "committed"}
    for segment, state in states.items():
        read = await reader.segment(segment)
        keys = {one.key for one in read if isinstance(one, LogRecord)}
        assert keys == listed[segment] == {segment_key(segment, state)}
    assert await reader.open_segments("segments/") == [begun]


async def test_a_segment_that_is_compacted_away_while_it_is_read_is_passed_over() -> None:
    blobs = await log_blobs()
    await commit(blobs, *make_directories(3))
    keys = await keys_of(blobs)

    class CompactedMeanwhile(MemoryBlobs):
        async def get(
            self, key: str, start: int = 0, end: int | None = None, **conditions: Any
        ) -> bytes:
            data = await super().get(key, start, end)
            for gone in keys:
                await blobs.delete(gone)
            return data

    assert await findings(CompactedMeanwhile(blobs._name)) == []


async def test_segments_of_every_format_are_merged() -> None:
    """What format 1 committed in full and what a mark names, together, and the highest state wins
    for each."""
    blobs = await log_blobs()
    old = Path(__file__).parent.parent / "data" / "oplog"
    done, failed, unknown = make_directories(3)
    for number, part in (
        (1, "pending"),
        (1, "committed-part"),
        (2, "pending"),
        (2, "committed-part"),
    ):
        data = (old / f"segment-{number}-{part}.jsonl").read_bytes()
        await blobs.put(f"segments/5e6.{part.partition('-')[0]}", data)
        if part == "committed-part":
            assert [
                (record.operation, record.state) for record in records_only(await findings(blobs))
            ] == [
                (done, "committed"),
                (unknown, "pending"),
            ]
    assert failed.object_id not in latest(await findings(blobs))


@pytest.mark.parametrize("method", ["get", "list"])
async def test_an_error_of_the_store_is_raised_and_is_no_damage(method: str) -> None:
    faults = FaultPlan()
    blobs = await log_blobs(faults)
    await commit(blobs, sample.CREATE)
    faults.fail_when(lambda call: call.method == method, UnreachableError("no route"))
    with pytest.raises(UnreachableError):
        await findings(blobs)
    faults.fail_when(lambda call: call.method == method, ResponseLostError("lost"), when="after")
    with pytest.raises(ResponseLostError):
        await LogReader(blobs).history(sample.OBJECT)
    assert len(await findings(blobs)) == 1


async def test_what_is_rolled_back_while_it_is_read_is_passed_over() -> None:
    blobs = await log_blobs()
    log = NativeLog(blobs, fake_runtime())
    handles = [await log.begin([operation]) for operation in make_directories(3)]
    handles.append(await log.begin(make_directories(2)))

    class RolledBackMeanwhile(MemoryBlobs):
        async def get(
            self, key: str, start: int = 0, end: int | None = None, **conditions: Any
        ) -> bytes:
            for handle in handles:
                await handle.rollback()
            return await super().get(key, start, end)

    assert await findings(RolledBackMeanwhile(blobs._name)) == []


def test_the_highest_committed_version_wins_whatever_the_order() -> None:
    records = [LogRecord(operation, "committed") for operation in LIFE]
    records += [LogRecord(operation, "pending") for operation in LIFE]
    for seed in range(20):
        random.Random(seed).shuffle(records)
        assert latest(records) == {
            sample.OBJECT: ObjectState(LogRecord(sample.DELETE, "committed"))
        }


def test_operations_above_the_committed_version_are_pending_in_order() -> None:
    rival = replace(sample.RENAME, id=sample.FIRST)
    records = [
        LogRecord(sample.DELETE, "pending"),
        LogRecord(sample.RENAME, "pending"),
        LogRecord(rival, "pending"),
        LogRecord(sample.UPDATE, "pending"),
        LogRecord(sample.UPDATE, "committed"),
        LogRecord(sample.CREATE, "pending"),
    ]
    assert latest(records) == {
        sample.OBJECT: ObjectState(
            LogRecord(sample.UPDATE, "committed"),
            pending=(
                LogRecord(rival, "pending"),
                LogRecord(sample.RENAME, "pending"),
                LogRecord(sample.DELETE, "pending"),
            ),
        )
    }


def test_an_object_that_was_never_committed_has_only_pending_operations() -> None:
    assert latest([LogRecord(sample.CREATE, "pending")]) == {
        sample.OBJECT: ObjectState(None, pending=(LogRecord(sample.CREATE, "pending"),))
    }
    assert latest([]) == {}


def test_a_pending_loser_of_the_committed_version_is_not_pending() -> None:
    loser = replace(sample.RENAME, id="loser")
    records = [LogRecord(loser, "pending"), LogRecord(sample.RENAME, "committed")]
    assert latest(records)[sample.OBJECT].pending == ()


@given(
    st.permutations(
        [sample.CREATE, sample.UPDATE, sample.WRITE_AT_ONCE, replace(sample.UPDATE, time_ms=2**50)]
    )
)
def test_different_operations_committed_for_one_version_are_a_conflict(
    operations: list[Operation],
) -> None:
    truth = latest([LogRecord(operation, "committed") for operation in operations])[sample.OBJECT]
    assert truth.committed == LogRecord(replace(sample.UPDATE, time_ms=2**50), "committed")
    assert set(truth.conflict) == {
        LogRecord(sample.UPDATE, "committed"),
        LogRecord(sample.WRITE_AT_ONCE, "committed"),
        LogRecord(replace(sample.UPDATE, time_ms=2**50), "committed"),
    }


def test_the_same_operation_found_twice_is_no_conflict_and_neither_is_one_below() -> None:
    rival = replace(sample.UPDATE, id="rival")
    records = [
        LogRecord(sample.RENAME, "committed", "entry"),
        LogRecord(sample.RENAME, "committed", "segment"),
    ]
    records += [LogRecord(sample.UPDATE, "committed"), LogRecord(rival, "committed")]
    truth = latest(records)[sample.OBJECT]
    assert (truth.committed, truth.conflict) == (LogRecord(sample.RENAME, "committed"), ())


V2 = JavaEntryV2(
    ctime=1_600_000_000,
    size=42,
    physical=f"s3://data/0b0e8a54-3c3f-4f0e-9d7e-1f7d6e5c4b3a.id={sample.OBJECT}",
    logical="ks://b/d/\u00e9 \U0001f600",
    committed=True,
    version=3,
    id=sample.OBJECT,
    state="COMMITTED",
    kind="UPDATE",
)
FILE = Entry(
    path="/d/\u00e9 \U0001f600",
    is_dir=False,
    id=sample.OBJECT,
    version=3,
    ctime=1_600_000_000,
    mtime_ms=1_600_000_000_000,
    size=42,
    physical=V2.physical,
    committed=True,
)
KEY = f"{sample.OBJECT}.info"
STORED_MS = 1_700_000_000_000


async def java_blobs(data: bytes, key: str = KEY) -> MemoryBlobs:
    blobs = await log_blobs()
    await MemoryBlobs(blobs._name, runtime=fake_runtime(FakeClock())).put(key, data)
    return blobs


async def java_findings(
    blobs: BlobStore, volume: str | None = None
) -> list[LogRecord | DamagedLog]:
    return [finding async for finding in JavaLogReader(blobs, volume=volume).records()]


async def test_java_entries_become_records() -> None:
    expected = {
        replace(V2): LogRecord(
            Operation("", "update", sample.OBJECT, 3, STORED_MS, None, FILE), "committed"
        ),
        replace(V2, kind="DELETE", state="PENDING"): LogRecord(
            Operation("", "delete", sample.OBJECT, 4, STORED_MS, FILE, None), "pending"
        ),
        replace(
            V2, kind="CREATE", committed=False, physical=UNCOMMITTED, size=0, version=1
        ): LogRecord(
            Operation(
                "",
                "create",
                sample.OBJECT,
                1,
                STORED_MS,
                None,
                replace(FILE, version=1, committed=False, physical=UNCOMMITTED, size=0),
            ),
            "committed",
        ),
    }
    for entry, record in expected.items():
        blobs = await java_blobs(write_java(entry))
        assert await java_findings(blobs) == [record]
        assert await JavaLogReader(blobs).history(sample.OBJECT) == [record]
        assert records_only(await java_findings(blobs))[0].key == KEY


async def test_of_a_v1_entry_is_said_what_can_be_said() -> None:
    for committed in (True, False):
        entry = JavaEntryV1(logical="ks://b/f", size=100, ctime=1_600_000_000, committed=committed)
        file = Entry(
            path="/f",
            is_dir=False,
            id=sample.OBJECT,
            version=0,
            ctime=1_600_000_000,
            mtime_ms=1_600_000_000_000,
            size=100,
            physical=None if committed else UNCOMMITTED,
            committed=committed,
        )
        kind = "update" if committed else "create"
        operation = Operation("", kind, sample.OBJECT, 0, STORED_MS, None, file)  # type: ignore[arg-type]
        found = await java_findings(await java_blobs(write_java(entry)))
        assert found == [LogRecord(operation, "committed")]
        assert latest(found)[sample.OBJECT].committed == found[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        write_java(V2)[:-1],
        write_java(V2) + b"\0",
        write_java(replace(V2, id=sample.FIRST)),
        write_java(replace(V2, logical="s3://b/f")),
        write_java(replace(V2, logical="ks://b/../x")),
        write_java(replace(V2, logical="ks://b/a//x")),
        write_java(replace(V2, logical="ks://b/" + "x" * 1025)),
        write_java(replace(V2, logical="ks://b")),
        write_java(replace(V2, logical="ks://b/")),
        write_java(replace(V2, logical="/f")),
        write_java(replace(V2, size=-1)),
        write_java(replace(V2, version=0)),
        encode(LogRecord(sample.CREATE, "pending")),
    ],
)
async def test_damaged_java_entries_are_reported_and_stay(data: bytes) -> None:
    blobs = await java_blobs(data)
    (found,) = await java_findings(blobs)
    assert isinstance(found, DamagedLog)
    assert found.key == found.error.path == KEY
    assert await blobs.get(KEY) == data


async def test_other_objects_of_the_bucket_are_passed_over_unread() -> None:
    faults = FaultPlan()
    blobs = await log_blobs(faults)
    for key in (
        f"{sample.FIRST}.id={sample.OBJECT}",
        "notes.info",
        f"backup/{KEY}",
        f"{KEY}.old",
        "entries/x",
    ):
        await blobs.put(key, b"other")
    assert await java_findings(blobs) == []
    assert not [call for call in faults.calls if call.method == "get"]


async def test_entries_of_another_volume_are_left_out() -> None:
    blobs = await java_blobs(write_java(replace(V2, logical="ks://b-2/f")))
    assert await java_findings(blobs, "b") == []
    assert len(await java_findings(blobs, "b-2")) == len(await java_findings(blobs)) == 1


async def test_a_java_log_of_many_pages_is_read_whole() -> None:
    blobs = await log_blobs()
    for operation in make_directories(1100):
        await blobs.put(
            f"{operation.object_id}.info", write_java(replace(V2, id=operation.object_id))
        )
    assert len(records_only(await java_findings(blobs))) == 1100
    assert await JavaLogReader(blobs).history(sample.OBJECT) == []
    assert await JavaLogReader(blobs).history("../x") == []


class Bounded(MemoryBlobs):
    """A store that notes how much of an object may be asked for at once."""

    asked = 0

    async def get(
        self, key: str, start: int = 0, end: int | None = None, **conditions: Any
    ) -> bytes:
        assert end is not None, f"{key} is read whole, whatever its size"
        self.asked = max(self.asked, end - start)
        return await super().get(key, start, end)


async def test_no_object_of_the_log_is_read_whole_whatever_its_size() -> None:
    """A log object of 300 MB took fsck past 2.5 GB."""
    blobs = Bounded("test-reader-bounded")
    await blobs.create()
    await commit(blobs, *LIFE[:2])
    await (await NativeLog(blobs, SOURCES).begin(make_directories(2))).commit()
    await Compactor(blobs, fake_runtime(), grace=0.0).run()
    await commit(blobs, sample.RENAME)
    reader = LogReader(blobs)
    assert [finding async for finding in reader.records()]
    assert await reader.history(sample.UPDATE.object_id)
    assert await reader.segment("none") == []
    assert 0 < blobs.asked <= MANIFEST_BYTES + 1
    await blobs.drop()


async def test_an_object_that_is_too_large_is_damage() -> None:
    blobs = await log_blobs()
    await commit(blobs, sample.CREATE)
    key = entry_key(sample.UPDATE, "committed")
    whole = encode(LogRecord(sample.UPDATE, "committed"))
    await blobs.put(key, b" " * (ENTRY_BYTES + 1 - len(whole)) + whole)
    found = await findings(blobs)
    (damage,) = [each for each in found if isinstance(each, DamagedLog)]
    assert damage.key == key
    assert "1,048,576" in str(damage.error)
    assert [each.operation for each in found if isinstance(each, LogRecord)] == [sample.CREATE]


async def test_the_newest_objects_are_found_without_reading_the_others() -> None:
    clock, faults = FakeClock(), FaultPlan()
    blobs = faults.blobs(MemoryBlobs("newest-of-a-log", fake_runtime(clock)))
    await blobs.create()
    try:
        *operations, last = make_directories(301)
        for operation in operations:
            clock.advance(1)
            data = encode(LogRecord(operation, "committed"))
            await blobs.put(entry_key(operation, "committed"), data)
        clock.advance(1)
        segment = str(UUID(int=1))
        await blobs.put(segment_key(segment, "pending"), encode_segment(segment, [last]))
        faults.calls.clear()
        found = [part async for part in LogReader(blobs).newest(3)]
        expected = {each.id for each in (*operations[-2:], last)}
        assert {each.operation.id for part in found for each in part.records} == expected
        assert sum(call.method == "get" for call in faults.calls) == 3
    finally:
        await blobs.drop()
