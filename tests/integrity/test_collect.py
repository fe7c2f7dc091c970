"""Garbage collection: what goes, what stays, and when."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from anyio import Path as AsyncPath

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Put, Update, Value
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    ConflictError,
    InvalidArgumentError,
    LogFormatError,
    ReadOnlyVolumeError,
    S3kError,
    UnreachableError,
    VolumeMismatchError,
)
from s3k_async.integrity.gc_rules import DELETABLE, KEPT, RULES, Ages, Reason
from s3k_async.model import LayoutName
from s3k_async.oplog.compaction import Compactor
from s3k_async.table.codec import to_item, unchanged
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.testing import FaultPlan
from s3k_async.txn.volume_record import RECORD_KEY
from s3k_async.txn.write_intent import WriteIntent
from tests.integrity.garbage import AGES, DAY, Yard, gc_of, live_keys, yard

pytestmark = pytest.mark.layouts("path", "tree")


@pytest.fixture
async def place(layout: LayoutName, tmp_path: Path) -> AsyncIterator[Yard]:
    async with yard(tmp_path, layout=layout) as made:
        yield made


async def test_a_tree_with_a_history_keeps_exactly_its_live_bytes(place: Yard) -> None:
    fs = place.client
    for number in range(6):
        await fs.write(f"/a/f{number}", b"old" * 100)
    await fs.write("/a/f0", b"new")
    await fs.rename("/a/f1", "/a/g1")
    await fs.rename("/a/f2", "/a/g1", overwrite=True)
    await fs.delete("/a/f3")
    await fs.rename("/a", "/b")
    await fs.copy("/b/f4", "/c")
    await fs.touch("/b/f5")
    await place.settle()
    assert len(await place.keys()) == 8
    place.clock.advance(5 * DAY)
    marked, swept = await place.gc()
    assert await place.keys() == await live_keys(fs)
    assert {reason: count.objects for reason, count in swept.deleted.items()} == {
        "deleted": 2,
        "replaced": 1,
    }
    assert swept.deleted["replaced"].bytes == 300
    assert marked.of("named").objects == 5
    assert await fs.read("/b/g1") == b"old" * 100


async def test_what_is_young_stays_even_if_nobody_names_it(place: Yard) -> None:
    await place.volume.blobs.put(
        place.runtime.physical_key(place.runtime.uuid()), b"uploaded just now"
    )
    place.clock.advance(AGES.grace + AGES.lease + AGES.late - 1)
    marked, swept = await place.gc()
    assert (marked.of("young").objects, swept.deleted) == (1, {})
    place.clock.advance(2)
    _, swept = await place.gc()
    assert swept.deleted["unpublished"].objects == 1
    assert await place.keys() == set()


async def test_a_reader_keeps_the_bytes_of_a_file_that_was_deleted_for_a_grace_period(
    place: Yard,
) -> None:
    fs = place.client
    await fs.write("/old", b"bytes of a file that is a month old")
    await fs.write("/replaced", b"others")
    place.clock.advance(30 * DAY)
    async with fs.open("/old", "rb") as reader, fs.open("/replaced", "rb") as other:
        await fs.delete("/old")
        await fs.write("/replaced", b"new")
        await place.settle()
        place.clock.advance(AGES.grace - 1)
        marked, swept = await place.gc()
        assert (marked.of("waiting").objects, swept.deleted) == (2, {})
        assert await reader.read() == b"bytes of a file that is a month old"
        assert await other.read() == b"others"
    place.clock.advance(2)
    _, swept = await place.gc()
    assert sum(count.objects for count in swept.deleted.values()) == 2


async def test_an_abandoned_reservation_and_its_upload_are_removed(place: Yard) -> None:
    fs = place.client
    writer = await fs.open("/abandoned", "xb")
    await writer.write(b"x" * 1000)
    await writer.drain()
    await place.settle()
    assert [each async for each in place.volume.blobs.list_uploads()]
    place.clock.advance(AGES.lease + AGES.late - 1)
    await place.gc()
    assert await fs.exists("/abandoned")
    place.clock.advance(2)
    _, swept = await place.gc()
    assert (swept.reservations, swept.uploads) == (1, 0)
    assert not await fs.exists("/abandoned")
    place.clock.advance(AGES.grace)
    _, swept = await place.gc()
    assert swept.uploads == 1
    assert [each async for each in place.volume.blobs.list_uploads()] == []
    with pytest.raises(S3kError):
        await writer.close()
    assert not await fs.exists("/abandoned")


async def test_a_reservation_that_was_taken_over_meanwhile_stays(place: Yard) -> None:
    fs = place.client
    await fs.open("/path", "xb")
    place.clock.advance(DAY)
    collector = await place.collector()
    marked = await collector.mark(place.candidates)
    assert [entry.path.rpartition("/")[2] for entry in marked.reservations] == ["path"]
    await fs.write("/path", b"somebody else's")
    assert (await collector.clean_up(marked)).reservations == 0
    assert await fs.read("/path") == b"somebody else's"


async def test_adopted_and_foreign_bytes_are_never_collected(place: Yard) -> None:
    blobs = place.volume.blobs
    foreign = ["data/part-0", "0123.id=x", "f" * 36, "a/b.id=" + place.runtime.uuid()]
    for key in foreign:
        await blobs.put(key, b"somebody's")
    await place.client.write("/file", b"mine")
    entry = await place.volume.store.get("/file")
    assert entry is not None
    key = place.runtime.physical_key(
        place.runtime.uuid()
    )  # of another object, as an adopted file may have it
    await blobs.put(key, b"adopted")
    adopted = replace(entry, physical=blobs.uri(key), version=entry.version + 1)
    await MemoryItems(place.config.name).write(
        Put(to_item(adopted, place.volume.store.keys), unchanged(entry))
    )
    place.clock.advance(10 * DAY)
    marked, swept = await place.gc()
    assert swept.deleted == {}
    assert (
        marked.of("lost").objects == 1
    )  # the log says that the file has the bytes that it had before
    stored = {info.key async for info in list_all(blobs)}
    assert {*foreign, key} <= stored


async def test_pending_operations_whose_writers_died_do_not_keep_bytes_for_ever(
    place: Yard,
) -> None:
    fs = place.client
    await fs.write("/file", b"first")
    await place.settle()
    place.faults.fail_when(
        lambda call: call.method == "write", UnreachableError("died here"), times=100
    )
    place.faults.fail_when(
        lambda call: call.method == "delete", UnreachableError("died here"), times=100
    )
    with pytest.raises(UnreachableError):
        await fs.write("/file", b"second")
    place.faults._faults.clear()
    place.clock.advance(10 * DAY)
    _, swept = await place.gc()
    assert swept.deleted["unpublished"].objects == 1
    assert await place.keys() == await live_keys(fs)
    assert await fs.read("/file") == b"first"


async def test_bytes_of_an_unfinished_transaction_stay_whatever_their_age(place: Yard) -> None:
    fs, store = place.client, place.volume.store
    await fs.write("/file", b"first")
    entry = await store.get("/file")
    assert entry is not None
    key = place.runtime.physical_key(entry.id)
    await place.volume.blobs.put(key, b"second")
    then = replace(entry, physical=key, version=entry.version + 1, operation=place.runtime.uuid())
    items = MemoryItems(place.config.name)
    intent = WriteIntent("some-job", then).text()
    await items.write(Update(await place.key("/file"), Condition(), {"next": intent}))
    await place.volume.log.begin([store.changes.operation("update", entry, then)])
    await place.settle()
    place.clock.advance(10 * DAY)
    marked, swept = await place.gc()
    assert (marked.of("named").objects, swept.deleted) == (2, {})
    # Without an intent yet, but the transaction is active: its record precedes the pending
    # operations of the log.
    await items.write(Update(await place.key("/file"), Condition(), {"ctime": 1}, ("next",)))
    txn: dict[str, Value] = {
        "path": "s3k:job",
        "children": "some-job",
        "kind": "transaction",
        "state": "preparing",
        "lease": 1,
    }
    await items.write(Put(txn, ABSENT))
    marked, swept = await place.gc()
    assert (swept.kept["undecided"].objects, swept.deleted) == (1, {})
    await items.write(Delete(Put(txn, ABSENT).key, Condition()))
    _, swept = await place.gc()
    assert swept.deleted["unpublished"].objects == 1


@pytest.mark.parametrize("path", ["/new", "/file"])
async def test_bytes_that_a_transaction_has_not_logged_yet_stay_whatever_their_age(
    place: Yard, path: str
) -> None:
    """It prepares a large directory first, and looks at the leases of its files before that
    only."""
    fs, store = place.client, place.volume.store
    await fs.write("/file", b"first")
    await fs.write("/file", b"second")
    there = await store.get(path)
    key = place.runtime.physical_key(there.id if there is not None else place.runtime.uuid())
    await place.volume.blobs.put(key, b"third")
    items = MemoryItems(place.config.name)
    txn: dict[str, Value] = {
        "path": "s3k:job",
        "children": "some-job",
        "kind": "transaction",
        "state": "preparing",
        "lease": 1,
    }
    await items.write(Put(txn, ABSENT))
    await place.settle()
    place.clock.advance(10 * DAY)
    _, swept = await place.gc()
    assert swept.kept["undecided"].objects == 1
    assert (
        sum(count.objects for count in swept.deleted.values()) == 1
    )  # what the log knows to be replaced
    assert key in await place.keys()
    await items.write(Delete(Put(txn, ABSENT).key, Condition()))
    _, swept = await place.gc()
    assert sum(count.objects for count in swept.deleted.values()) == 1
    assert await place.keys() == await live_keys(fs)


async def test_a_lost_table_condemns_nothing(place: Yard) -> None:
    fs = place.client
    for number in range(4):
        await fs.write(f"/a/{number}", b"bytes")
    await place.settle()
    before = await place.keys()
    items = MemoryItems(place.config.name)
    for item in (await items.scan(0, 1)).items:
        key = Put(item, ABSENT).key
        if key != RECORD_KEY:
            await items.write(Delete(key, Condition()))
    place.clock.advance(30 * DAY)
    with pytest.raises(VolumeMismatchError, match="restore"):
        await place.gc()
    await fs.write("/new", b"life goes on")
    marked, swept = await place.gc()
    assert (marked.of("lost").objects, swept.deleted) == (4, {})
    assert before <= await place.keys()


async def test_of_a_table_that_lacks_entries_pending_operations_are_believed(place: Yard) -> None:
    fs = place.client
    await fs.write("/kept", b"kept")
    await fs.write("/lost", b"lost")
    await place.settle()
    log = place.volume.log_blobs
    assert log is not None
    for path in ("/lost", "/unmarked"):
        if path == "/unmarked":
            await fs.write(path, b"its mark was never written")
            await place.settle()
        await MemoryItems(place.config.name).write(Delete(await place.key(path), Condition()))
    newest = [
        info.key async for info in list_all(log, "entries/") if info.key.endswith(".committed")
    ]
    for key in newest:
        if b"/unmarked" in await log.get(key):
            await log.delete(key)
    place.clock.advance(10 * DAY)
    marked, swept = await place.gc()
    assert (marked.of("lost").objects, swept.kept["undecided"].objects, swept.deleted) == (1, 1, {})


async def test_damage_in_the_log_keeps_what_it_may_be_about(place: Yard) -> None:
    fs = place.client
    for path in ("/one", "/two"):
        await fs.write(path, b"bytes")
        await fs.delete(path)
    await place.settle()
    log = place.volume.log_blobs
    assert log is not None
    first = await anext(info.key async for info in list_all(log, "entries/"))
    await log.put(first, b"no log object")
    place.clock.advance(10 * DAY)
    marked, swept = await place.gc()
    assert (marked.of("damaged").objects, swept.deleted["deleted"].objects) == (1, 1)
    await log.put("segments/0.pending", b"no segment")
    with pytest.raises(LogFormatError):
        await place.gc()


async def test_damaged_items_keep_what_they_may_name(place: Yard) -> None:
    fs = place.client
    await fs.write("/one", b"bytes")
    await fs.delete("/one")
    await fs.write("/two", b"bytes")
    await place.settle()
    items, key = MemoryItems(place.config.name), await place.key("/two")
    await items.write(Update(key, Condition(), {"physpath": 7, "next": "nonsense"}))
    place.clock.advance(10 * DAY)
    marked, swept = await place.gc()
    assert (marked.of("damaged").objects, swept.deleted["deleted"].objects) == (1, 1)


async def test_after_a_compaction_the_same_goes_and_stays(place: Yard) -> None:
    fs = place.client
    await fs.write("/replaced", b"old")
    await fs.write("/replaced", b"newer")
    await fs.write("/deleted", b"bytes")
    await fs.delete("/deleted")
    await place.settle()
    place.clock.advance(5 * DAY)
    collector = await place.collector()
    await collector.mark(place.candidates)
    assert place.volume.log_blobs is not None
    compacted = await Compactor(place.volume.log_blobs, place.runtime).run(dry_run=False)
    assert compacted.checkpoint
    with pytest.raises(ConflictError, match="mark again"):
        await collector.sweep(place.candidates)
    _, swept = await place.gc()
    assert sum(count.objects for count in swept.deleted.values()) == 2
    assert await place.keys() == await live_keys(fs)


async def test_a_volume_without_a_log_is_collected_only_alone(
    layout: LayoutName, tmp_path: Path
) -> None:
    def unlogged(config: VolumeConfig) -> VolumeConfig:
        return replace(config, log_mode="disabled")

    async with yard(tmp_path, layout=layout, change=unlogged) as place:
        fs = place.client
        await fs.write("/file", b"old")
        await fs.write("/file", b"new")
        place.clock.advance(10 * DAY)
        with pytest.raises(InvalidArgumentError, match="exclusive"):
            gc_of(place.volume, place.runtime)
        _, swept = await place.gc()
        assert (swept.deleted, swept.kept["waiting"].objects) == (
            {},
            1,
        )  # since when, nobody knows: since it was seen
        place.clock.advance(3 * DAY)
        collector = await place.collector()
        assert (await collector.sweep(place.candidates)).deleted == {}  # handled before
        await collector.mark(place.candidates)
        place.clock.advance(3 * DAY)
        await fs.rename("/file", "/moved")
        with pytest.raises(ConflictError):
            await collector.sweep(place.candidates)
        await collector.mark(place.candidates)
        place.clock.advance(3 * DAY)
        assert (await collector.sweep(place.candidates)).deleted["unnamed"].objects == 1
        assert await place.keys() == await live_keys(fs)


async def test_a_volume_that_is_being_loaded_or_is_not_ours_is_refused(place: Yard) -> None:
    await MemoryItems(place.config.name).write(
        Update(RECORD_KEY, Condition(), {"loading": "somebody"})
    )
    collector = gc_of(place.volume, place.runtime)
    with pytest.raises(BusyError):
        await collector.mark(place.candidates)
    place.volume.store.read_only = True
    with pytest.raises(ReadOnlyVolumeError):
        await collector.mark(place.candidates)
    assert not await AsyncPath(place.candidates).exists()


@pytest.mark.layouts("path")
async def test_deletions_go_in_batches(place: Yard) -> None:
    blobs = place.volume.blobs
    for _ in range(2500):
        await blobs.put(place.runtime.physical_key(place.runtime.uuid()), b"")
    place.clock.advance(10 * DAY)
    faults = FaultPlan()
    _, swept = await place.gc(faults)
    assert swept.deleted["unpublished"].objects == 2500
    assert sum(call.method == "delete_many" for call in faults.calls) == 3


@pytest.mark.layouts("path")
async def test_deletion_keeps_to_its_rate(place: Yard) -> None:
    for _ in range(2500):
        await place.volume.blobs.put(place.runtime.physical_key(place.runtime.uuid()), b"")
    place.clock.advance(10 * DAY)
    collector = gc_of(place.volume, place.runtime, rate=100.0)
    await collector.mark(place.candidates)
    before = place.clock.seconds
    await collector.sweep(place.candidates)
    # 1,000 each at 0, 10 and 20 seconds.
    assert place.clock.seconds - before == pytest.approx(20)


async def test_what_cannot_be_deleted_is_told_and_found_again(place: Yard) -> None:
    keys = [place.runtime.physical_key(place.runtime.uuid()) for _ in range(3)]
    for key in keys:
        await place.volume.blobs.put(key, b"x")
    place.clock.advance(10 * DAY)
    faults = FaultPlan()
    faults.refuse(place.volume.record.scope + keys[1], UnreachableError("no"))
    _, swept = await place.gc(faults)
    assert [key for key, _ in swept.failures] == [keys[1]]
    assert await place.keys() == {keys[1]}
    await place.gc()
    assert await place.keys() == set()


async def test_every_deletion_is_in_the_audit_trail_before_it_happens(
    place: Yard, layout: LayoutName
) -> None:
    await place.client.write("/file", b"bytes")
    await place.client.delete("/file")
    await place.settle()
    place.clock.advance(10 * DAY)
    (key,) = await place.keys()
    faults = FaultPlan()
    faults.fail_when(lambda call: call.method == "delete_many", UnreachableError("died"), times=100)
    with pytest.raises(UnreachableError):
        await place.gc(faults)
    log = place.volume.log_blobs
    assert log is not None
    (trail,) = [info.key async for info in list_all(log, "audit/")]
    (deed,) = [json.loads(line) for line in (await log.get(trail)).splitlines()]
    assert deed == {
        "deed": "delete",
        "key": key,
        "bytes": 5,
        "reason": "deleted",
        # In layout `tree` the entry key: the path may be another by now.
        "paths": ["/file" if layout == "path" else f"{ROOT_ENTRY.id}/file"],
    }
    assert await place.keys() == {key}


async def test_a_list_is_of_one_volume(layout: LayoutName, place: Yard, tmp_path: Path) -> None:
    collector = await place.collector()
    await collector.mark(place.candidates)
    async with yard(tmp_path, layout=layout, seed=12) as other:
        with pytest.raises(InvalidArgumentError):
            await (await other.collector()).sweep(place.candidates)
    text = await AsyncPath(place.candidates).read_text()
    for damaged in (
        text[: len(text) // 2],
        "",
        "[]\n",
        "{}\n",
        text.replace('"format":1', '"format":2'),
    ):
        await AsyncPath(place.candidates).write_text(damaged)
        with pytest.raises(InvalidArgumentError):
            await collector.sweep(place.candidates)


def test_every_reason_is_classified_and_only_these_four_allow_deletion() -> None:
    assert {"deleted", "replaced", "unpublished", "unnamed"} == DELETABLE
    assert set(get_args(Reason)) == DELETABLE | KEPT
    assert not DELETABLE & KEPT
    assert {rule.outcome for rule in RULES.rules} == set(get_args(Reason))


@pytest.mark.parametrize("reason", ["lost", "damaged", "of another version"])
async def test_a_candidate_whose_verdict_does_not_allow_deletion_is_kept(
    place: Yard, reason: str
) -> None:
    await place.client.write("/f", b"bytes")
    await place.client.delete("/f")
    place.clock.advance(10 * DAY)
    collector = gc_of(place.volume, place.runtime)
    await collector.mark(place.candidates)
    candidates = AsyncPath(place.candidates)
    listed = await candidates.read_text("ascii")
    assert listed.count('"reason":"deleted"') == 1
    await candidates.write_text(
        listed.replace('"reason":"deleted"', f'"reason":"{reason}"'), "ascii"
    )
    swept = await collector.sweep(place.candidates)
    assert (swept.deleted, swept.kept["damaged"].objects) == ({}, 1)


async def test_ages_are_those_of_the_stores_clock_and_not_of_this_machines(
    place: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.volume.blobs.put(place.runtime.physical_key(place.runtime.uuid()), b"young")
    ahead = replace(place.runtime, now_ms=lambda: place.clock.now_ms() + int(100 * DAY * 1000))
    monkeypatch.setattr(place.volume.store, "runtime", ahead)
    collector = gc_of(place.volume, ahead, Ages(grace=0.0, lease=600.0))
    assert (await collector.mark(place.candidates)).of("young").objects == 1
