"""Checkpoints and compaction: what the log says stays the same, wherever the work ends."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count

import anyio
import pytest

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import (
    LeaseExpiredError,
    LogFormatError,
    PartialFailureError,
    PermissionDeniedError,
    ServiceError,
)
from s3k_async.model import Entry
from s3k_async.oplog import checkpoints, compaction
from s3k_async.oplog.checkpoints import (
    Checkpoint,
    CheckpointReader,
    CheckpointWriter,
    decode_manifest,
    encode_manifest,
)
from s3k_async.oplog.compaction import TOMBSTONE_SECONDS, Compaction, Compactor
from s3k_async.oplog.entries import LogRecord, Operation, seal
from s3k_async.oplog.log_reader import DamagedLog, LogReader, ObjectState, latest
from s3k_async.oplog.log_writer import NativeLog
from s3k_async.testing import Call, Died, FaultPlan, Moment
from tests.oplog.operations import PLACE, keys_of, log_blobs, make_directories, records_only
from tests.support import FakeClock, fake_runtime

DAY = 86_400


class Life:
    """A log that is written to."""

    def __init__(self, blobs: MemoryBlobs, clock: FakeClock) -> None:
        self.blobs = blobs
        self.clock = clock
        self.runtime = fake_runtime(clock, seed=3)
        self.log = NativeLog(blobs, self.runtime)

    def made(self, path: str) -> Operation:
        identity = self.runtime.uuid()
        entry = Entry(path, True, self.runtime.uuid(), 1, 1, 1000, operation=identity)
        return Operation(identity, "create", entry.id, 1, self.clock.now_ms(), None, entry)

    def renamed(self, after: Operation, path: str) -> Operation:
        assert after.after is not None
        identity = self.runtime.uuid()
        entry = after.after.moved(path, operation=identity)
        return Operation(
            identity, "rename", entry.id, entry.version, self.clock.now_ms(), after.after, entry
        )

    def deleted(self, after: Operation) -> Operation:
        entry = after.after
        assert entry is not None
        return Operation(
            self.runtime.uuid(),
            "delete",
            entry.id,
            entry.version + 1,
            self.clock.now_ms(),
            entry,
            None,
        )

    async def commit(self, *operations: Operation, succeeded: set[str] | None = None) -> None:
        assert await (await self.log.begin(operations)).commit(succeeded)

    async def truths(self) -> dict[str, ObjectState]:
        return latest([finding async for finding in LogReader(self.blobs).records()])

    async def says(
        self,
    ) -> dict[str, tuple[Operation | None, tuple[Operation, ...], tuple[Operation, ...]]]:
        """The truth of each object, wherever it stands."""
        return {
            object_id: (
                truth.committed.operation if truth.committed else None,
                tuple(record.operation for record in truth.pending),
                tuple(record.operation for record in truth.conflict),
            )
            for object_id, truth in (await self.truths()).items()
        }

    async def compact(self, faults: FaultPlan | None = None, *, grace: float = 60.0) -> Compaction:
        blobs = faults.blobs(MemoryBlobs(self.blobs._name, self.runtime)) if faults else self.blobs
        return await Compactor(blobs, self.runtime, grace=grace, part_bytes=3000).run(dry_run=False)


async def lived() -> Life:
    """A log with entries and segments, of some that are gone, in doubt, failed, or in conflict."""
    clock = FakeClock()
    name = (await log_blobs())._name
    life = Life(MemoryBlobs(name, runtime=fake_runtime(clock)), clock)
    one, two, *many = [life.made(f"/d{number}") for number in range(12)]
    await life.commit(one)
    await life.commit(two)
    await life.commit(*many)
    moved = [life.renamed(each, f"/m{number}") for number, each in enumerate(many)]
    await life.commit(*moved, succeeded={each.id for each in moved[:7]})
    await life.commit(life.deleted(one))
    await life.commit(*(life.deleted(each) for each in moved[:2]))
    await life.log.begin([life.deleted(two)])
    await life.log.begin([life.renamed(many[8], "/in/doubt"), life.renamed(many[9], "/in/doubt/2")])
    rivals = [life.renamed(moved[3], path) for path in ("/rival", "/other")]
    for rival in rivals:
        await life.commit(rival)
    clock.advance(3600)
    young = life.made("/young")
    await life.commit(young)
    return life


async def test_what_the_log_says_is_the_same_afterwards() -> None:
    life = await lived()
    before, keys = await life.says(), await keys_of(life.blobs)
    done = await life.compact()
    assert await life.says() == before
    after = await keys_of(life.blobs)
    assert done.removed == done.removable == len(set(keys) - set(after)) > 10
    assert (done.objects, done.tombstones, done.dropped, done.damaged) == (13, 3, 0, [])
    assert all(key.endswith("pending") for key in after if key.startswith("segments/"))


async def test_a_dry_run_changes_nothing() -> None:
    life = await lived()
    keys = await keys_of(life.blobs)
    done = await Compactor(life.blobs, life.runtime, grace=60).run()
    assert await keys_of(life.blobs) == keys
    assert (done.objects, done.removed, done.checkpoint) == (13, 0, "")
    assert done.removable > 10


async def test_only_a_dry_run_needs_no_permission_to_read_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = await lived()
    keys = await keys_of(life.blobs)

    async def denied(_: MemoryBlobs) -> int:
        raise PermissionDeniedError("denied")

    monkeypatch.setattr(MemoryBlobs, "now_ms", denied)
    assert (await Compactor(life.blobs, life.runtime, grace=60).run()).removable > 10
    with pytest.raises(PermissionDeniedError):
        await life.compact()
    assert await keys_of(life.blobs) == keys


async def test_what_is_pending_or_young_stays() -> None:
    life = await lived()
    keys = await keys_of(life.blobs)
    pending = {
        key
        for key in keys
        if key.endswith("pending") and key.replace("pending", "committed") not in keys
    }
    (young,) = [
        record.key
        for truth in (await life.truths()).values()
        if (record := truth.committed)
        and record.operation.after
        and record.operation.after.path == "/young"
    ]
    await life.compact()
    assert len(pending) == 2
    assert pending | {young} <= set(await keys_of(life.blobs))


async def test_a_second_run_finds_nothing_to_do() -> None:
    life = await lived()
    await life.compact()
    keys = await keys_of(life.blobs)
    done = await life.compact()
    assert (done.removable, done.checkpoint) == (0, "")
    assert await keys_of(life.blobs) == keys


async def test_a_tombstone_is_dropped_once_it_is_old_and_nothing_else_is_known() -> None:
    life = await lived()
    gone = {
        object_id
        for object_id, said in (await life.says()).items()
        if said[0] and said[0].after is None
    }
    assert len(gone) == 3
    await life.compact()
    assert gone <= (await life.says()).keys()
    life.clock.advance(TOMBSTONE_SECONDS)
    done = await life.compact()
    assert done.dropped == 3
    assert gone.isdisjoint(await life.says())


async def test_a_tombstone_stays_while_something_older_does() -> None:
    life = await lived()
    one = life.made("/one")
    await life.commit(one)
    (entry,) = [
        info.key
        async for info in list_all(life.blobs, "entries/")
        if f"{one.object_id}.0000000001" in info.key
    ][:1]
    data = await life.blobs.get(entry)
    await life.commit(life.deleted(one))
    life.clock.advance(TOMBSTONE_SECONDS + 60)
    await life.compact()
    await life.blobs.put(entry, data)
    life.clock.advance(TOMBSTONE_SECONDS + 60)
    await life.commit(life.made("/more"))
    life.clock.advance(100)
    await life.compact()
    committed = (await life.truths())[one.object_id].committed
    assert committed is not None
    assert committed.operation.kind == "delete"


async def deaths(when: Moment) -> AsyncIterator[tuple[Life, int]]:
    probe = FaultPlan()
    await (await lived()).compact(probe)
    for number in range(1, len(probe.calls) + 1):
        yield await lived(), number


@pytest.mark.parametrize("when", ["before", "after"])
async def test_death_at_every_call_loses_nothing(when: Moment) -> None:
    cases = 0
    async for life, number in deaths(when):
        before = await life.says()
        faults = FaultPlan()
        faults.die(number, when=when)
        with pytest.raises(Died):
            await life.compact(faults)
        assert await life.says() == before, number
        assert not [
            one async for one in LogReader(life.blobs).records() if isinstance(one, DamagedLog)
        ], number
        life.clock.advance(2 * DAY)
        await life.compact()
        assert not [
            one async for one in LogReader(life.blobs).records() if isinstance(one, DamagedLog)
        ], number
        alive = {
            key: said
            for key, said in before.items()
            if said[0] is None or said[0].after is not None or said[1]
        }
        assert alive.items() <= (await life.says()).items()
        await life.compact()
        parts = [key for key in await keys_of(life.blobs) if key.startswith(checkpoints.PARTS)]
        (valid,) = await LogReader(life.blobs).checkpoints.valid()
        assert isinstance(valid, Checkpoint)
        assert parts == valid.part_keys()
        cases += 1
    assert cases > 15


async def dawdle(turns: Iterator[int], call: Call) -> None:
    for _ in range(next(turns) % 5):
        await anyio.lowlevel.checkpoint()


async def test_two_compactions_at_once_lose_nothing() -> None:
    for seed in range(8):
        life = await lived()
        before = await life.says()
        runtime = fake_runtime(life.clock, seed=seed + 100)
        gate = partial(dawdle, count(seed * 7))

        async with anyio.create_task_group() as tasks:
            for source in (life.runtime, runtime):
                blobs = FaultPlan(gate).blobs(MemoryBlobs(life.blobs._name, source))
                tasks.start_soon(
                    lambda b, s: Compactor(b, s, grace=60, part_bytes=3000).run(dry_run=False),
                    blobs,
                    source,
                )
        assert await life.says() == before
        await life.compact()
        assert await life.says() == before
        assert len(await LogReader(life.blobs).checkpoints.valid()) == 1


async def test_a_reader_sees_everything_while_it_is_compacted() -> None:
    probe = FaultPlan()
    await (await lived()).compact(probe)
    for number in range(1, len(probe.calls) + 1, 2):
        life = await lived()
        before = await life.says()
        held, go = anyio.Event(), anyio.Event()

        async def gate(
            call: Call, held: anyio.Event = held, go: anyio.Event = go, number: int = number
        ) -> None:
            if call.number == number:
                held.set()
                await go.wait()

        found: list[LogRecord | DamagedLog] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(life.compact, FaultPlan(gate))
            await held.wait()
            async for finding in LogReader(life.blobs).records():
                found.append(finding)
                go.set()
                await anyio.lowlevel.checkpoint()
        assert not [one for one in found if isinstance(one, DamagedLog)]
        seen = latest(found)
        assert {
            key: truth.committed and truth.committed.operation for key, truth in seen.items()
        } == {key: said[0] for key, said in before.items()}


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
async def test_a_truncated_part_is_damage_and_never_passed_over(cut: int) -> None:
    life = await lived()
    await life.compact()
    key = next(key for key in await keys_of(life.blobs) if key.startswith(checkpoints.PARTS))
    data = await life.blobs.get(key)
    await life.blobs.put(key, data[:cut])
    damaged = [one async for one in LogReader(life.blobs).records() if isinstance(one, DamagedLog)]
    assert [one.key for one in damaged] == [key]
    await life.commit(life.made("/more"))
    life.clock.advance(3 * DAY)
    done = await life.compact()
    assert [one.key for one in done.damaged] == [key]
    assert done.dropped == 0
    assert await life.blobs.head(key) is not None
    await life.blobs.put(key, data)
    assert not [one async for one in LogReader(life.blobs).records() if isinstance(one, DamagedLog)]


async def test_a_missing_part_is_damage() -> None:
    life = await lived()
    await life.compact()
    key = next(key for key in await keys_of(life.blobs) if key.startswith(checkpoints.PARTS))
    await life.blobs.delete(key)
    damaged = [one async for one in LogReader(life.blobs).records() if isinstance(one, DamagedLog)]
    assert [one.key for one in damaged] == [key]
    assert "missing" in str(damaged[0].error)


async def test_a_manifest_of_a_newer_format_is_named_as_such() -> None:
    life = await lived()
    await life.compact()
    (key,) = [key for key in await keys_of(life.blobs) if key.startswith(checkpoints.MANIFESTS)]
    data = (await life.blobs.get(key)).replace(b'"format":1', b'"format":4', 1)
    with pytest.raises(LogFormatError, match="format 4; this version reads up to 3"):
        decode_manifest(data, key)
    await life.blobs.put(key, data)
    done = await life.compact()
    assert [one.key for one in done.damaged] == [key]
    assert key in await keys_of(life.blobs)


async def test_a_part_with_directory_keys_has_the_newer_format() -> None:
    blobs = await log_blobs()
    plain, placed = make_directories(2), make_directories(2, PLACE)
    for number, operations in enumerate([plain, placed]):
        writer = CheckpointWriter(blobs, f"c{number}", 1)
        for operation in operations:
            await writer.add(LogRecord(operation, "committed"))
        checkpoint = await writer.finish([])
        manifest = await blobs.get(checkpoint.key)
        part = await blobs.get(checkpoint.part_key(0))
        assert b'"format":1,' in manifest.partition(b"\n")[0]
        assert b'"format":%d,' % (1 + number) in part.partition(b"\n")[0]
        found = await CheckpointReader(blobs).part(checkpoint, 0)
        assert [one.operation for one in records_only(found or [])] == operations


async def test_a_part_of_another_checkpoint_is_damage() -> None:
    life = await lived()
    await life.compact()
    (valid,) = await LogReader(life.blobs).checkpoints.valid()
    assert isinstance(valid, Checkpoint)
    assert len(valid.parts) > 1
    await life.blobs.put(valid.part_key(0), await life.blobs.get(valid.part_key(1)))
    damaged = [one async for one in LogReader(life.blobs).records() if isinstance(one, DamagedLog)]
    assert [one.key for one in damaged] == [valid.part_key(0)]


async def test_the_history_of_an_object_reads_one_part() -> None:
    life = await lived()
    said = await life.says()
    await life.compact()
    for object_id, (committed, pending, conflict) in said.items():
        faults = FaultPlan()
        found = await LogReader(faults.blobs(MemoryBlobs(life.blobs._name))).history(object_id)
        operations = [one.operation for one in found if isinstance(one, LogRecord)]
        assert {*([committed] if committed else []), *pending, *conflict} <= set(operations)
        assert len(operations) == len({(one.id, one.version) for one in operations})
        assert (
            sum(call.method == "get" and checkpoints.PARTS in call.key for call in faults.calls)
            <= 2
        )


async def test_what_cannot_be_removed_is_told_and_removed_the_next_time() -> None:
    life = await lived()
    before = await life.says()
    key = next(key for key in await keys_of(life.blobs) if key.startswith("segments/"))
    faults = FaultPlan()
    faults.refuse(key, ServiceError("no"))
    with pytest.raises(PartialFailureError, match="1 objects of the log"):
        await life.compact(faults)
    assert await life.says() == before
    done = await life.compact()
    assert key not in await keys_of(life.blobs)
    assert done.removed > 1
    assert await life.says() == before


class SlowRun:
    """A compaction that waits before it writes its manifest."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._held, self._go = anyio.Event(), anyio.Event()

    async def _gate(self, call: Call) -> None:
        if call.method == "put" and str(call.key).startswith(checkpoints.MANIFESTS):
            self._held.set()
            await self._go.wait()

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Start the run, which waits during the body and then ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._life.compact, FaultPlan(self._gate))
            await self._held.wait()
            yield
            self._go.set()


async def compact_by_a_clock(life: Life, seconds: float) -> Compaction:
    """A compaction on a machine whose clock is wrong by `seconds`; the store's is correct."""
    ahead = FakeClock(life.clock.seconds + seconds)
    return await Compactor(
        life.blobs, fake_runtime(ahead, seed=str(ahead)), grace=60, part_bytes=3000
    ).run(dry_run=False)


@pytest.mark.parametrize("skew", [2 * DAY, -2 * DAY])
async def test_a_machine_with_a_wrong_clock_leaves_the_parts_of_a_run_in_progress(
    skew: int,
) -> None:
    life = await lived()
    before = await life.says()
    async with SlowRun(life).waiting():
        await compact_by_a_clock(life, skew)
    damaged = [one async for one in LogReader(life.blobs).records() if isinstance(one, DamagedLog)]
    assert damaged == []
    assert await life.says() == before


async def test_a_machine_with_a_wrong_clock_keeps_a_tombstone_that_a_run_in_progress_needs() -> (
    None
):
    life = await lived()
    one = life.made("/one")
    await life.commit(one)
    life.clock.advance(3600)
    async with SlowRun(life).waiting():
        await life.commit(life.deleted(one))
        life.clock.advance(3600)
        await compact_by_a_clock(life, 2 * DAY)
        await life.commit(life.made("/more"))
        life.clock.advance(3600)
        assert (await compact_by_a_clock(life, 2 * DAY)).dropped == 0
    committed = (await life.truths())[one.object_id].committed
    assert committed is not None
    assert committed.operation.kind == "delete"


async def test_a_clock_that_is_set_back_does_not_lengthen_the_time_of_a_compaction() -> None:
    life = await lived()
    keys = await keys_of(life.blobs)
    wall = FakeClock(life.clock.seconds)
    runtime = replace(life.runtime, now_ms=wall.now_ms)  # its monotonic clock continues
    faults = FaultPlan()

    async def gate(call: Call) -> None:
        if call.method == "put":
            life.clock.advance(TOMBSTONE_SECONDS)

    faults.gate = gate
    blobs = faults.blobs(MemoryBlobs(life.blobs._name, runtime))
    with pytest.raises(LeaseExpiredError):
        await Compactor(blobs, runtime, grace=60, part_bytes=3000).run(dry_run=False)
    assert set(keys) <= set(await keys_of(life.blobs))


async def test_a_compaction_that_took_too_long_removes_nothing() -> None:
    life = await lived()
    keys = await keys_of(life.blobs)
    faults = FaultPlan()

    async def gate(call: Call) -> None:
        if call.method == "put":
            life.clock.advance(TOMBSTONE_SECONDS)

    faults.gate = gate
    with pytest.raises(LeaseExpiredError):
        await life.compact(faults)
    assert set(keys) <= set(await keys_of(life.blobs))


async def test_one_run_covers_so_many_segments_and_the_next_run_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction, "MAX_SEGMENTS", 1)
    life = await lived()
    before = await life.says()
    removed = [(await life.compact()).removed for _ in range(4)]
    assert removed[-1] == 0
    assert all(number > 0 for number in removed[:3])
    assert await life.says() == before


async def test_damage_elsewhere_is_left_where_it_is() -> None:
    life = await lived()
    await life.blobs.put("segments/notes.committed", b"notes")
    before = await life.says()
    done = await life.compact()
    assert [one.key for one in done.damaged] == ["segments/notes.committed"]
    assert await life.blobs.get("segments/notes.committed") == b"notes"
    assert await life.says() == before


async def test_a_checkpoint_is_in_parts_by_bytes() -> None:
    blobs = await log_blobs()
    life = Life(blobs, FakeClock())
    writer = CheckpointWriter(blobs, "c", 1, part_bytes=2000)
    operations = sorted(
        (life.made(f"/{'x' * 300}{number}") for number in range(40)), key=lambda one: one.object_id
    )
    for operation in operations:
        await writer.add(LogRecord(operation, "committed"))
    checkpoint = await writer.finish([str(uuid.UUID(int=1))])
    assert checkpoint.count == 40
    assert len(checkpoint.parts) > 10
    sizes = [len(await blobs.get(key)) for key in checkpoint.part_keys()]
    assert max(sizes) < 4000
    found = [
        one.operation async for one in LogReader(blobs).records() if isinstance(one, LogRecord)
    ]
    assert found == operations


async def test_a_checkpoint_outweighs_nothing_that_is_newer() -> None:
    life = await lived()
    one = life.made("/one")
    await life.commit(one)
    life.clock.advance(100)
    await life.compact()
    moved = life.renamed(one, "/moved")
    await life.commit(moved)
    committed = (await life.truths())[one.object_id].committed
    assert committed is not None
    assert committed.operation == moved
    later = replace(life.renamed(moved, "/later"), time_ms=life.clock.now_ms())
    await life.log.begin([later])
    assert [record.operation for record in (await life.truths())[one.object_id].pending] == [later]


async def test_a_manifest_has_the_time_since_which_the_log_is_complete() -> None:
    """Of all checkpoints that it replaces the latest one; an older manifest has only its time."""
    life = await lived()
    late = await life.log.begin([life.made("/late")])
    life.clock.advance(100)
    began = life.clock.now_ms()
    assert (await life.compact(grace=0.0)).checkpoint
    (first,) = await LogReader(life.blobs).checkpoints.valid()
    assert isinstance(first, Checkpoint)
    assert first.history_ms == began
    assert await late.commit()
    life.clock.advance(10)
    second = await life.compact(grace=50.0)
    assert second.checkpoint not in ("", first.id)
    assert await LogReader(life.blobs).checkpoints.history_ms() == began
    document = json.loads(encode_manifest(first).splitlines()[0])
    del document["history_ms"]
    older = decode_manifest(seal(json.dumps(document).encode() + b"\n"), first.key)
    assert older == replace(first, history_ms=first.time_ms)
