"""Another layout in place."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Item, Put
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    InvalidPathError,
    ItemFormatError,
    PermissionDeniedError,
    S3kError,
    VolumeFormatError,
    VolumeMismatchError,
)
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.layouts.tree import path_index
from s3k_async.migrate import layout_change, layout_pass
from s3k_async.migrate.layout_change import LayoutResult, change_layout
from s3k_async.model import Entry, LayoutName, Progress
from s3k_async.namespace import multi_path_commit
from s3k_async.oplog.log_reader import LogReader, latest
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.volume_lock import LOOK_SECONDS
from s3k_async.txn.volume_record import RECORD_KEY, RETENTION, TAG, TRASH_RETENTION
from s3k_async.volumes import Volume, init_volume, open_volume
from s3k_async.volumes.claims import CLAIM, read_claim
from s3k_async.volumes.restoration import restore_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integrity.garbage import gc_of
from tests.level import calls_to_try
from tests.migrate.rig import FILES, HURRIED, config, entries, fill, keys, opened, stored
from tests.support import FakeClock, after_call, from_call, under

LATER = replace(HURRIED, now_ms=lambda: HURRIED.now_ms() + 100_000)
ALL_AGES = -100.0
"""A grace under which nothing is young."""
both = pytest.mark.parametrize("layout", ["path", "tree"])


def other(layout: LayoutName) -> LayoutName:
    return "path" if layout == "tree" else "tree"


async def full(settings: VolumeConfig) -> VolumeConfig:
    """A volume with something of everything but directories in the trash."""
    await init_volume(settings)
    await fill(replace(settings, suffix_count=None))
    if settings.layout == "tree":
        async with S3kClient(config=settings) as fs:
            await fs.trash().restore("/trashed")
            await fs.delete("/trashed/with/f")
            await fs.delete("/trashed/with")
            await fs.delete("/trashed")
    return settings


async def change(settings: VolumeConfig, layout: LayoutName, **options: Any) -> VolumeConfig:
    """The settings of the volume in its new layout."""
    await change_layout(settings, layout, runtime=HURRIED, **options)
    return replace(settings, layout=layout)


def plain(found: dict[str, Entry], versions: int = 0) -> dict[str, Entry]:
    """What a change of the layout keeps; so many of them came before."""
    return {
        path: replace(entry, version=entry.version - versions, operation="", directory="")
        for path, entry in found.items()
    }


async def digest(settings: VolumeConfig) -> str:
    """Of the sorted listing, without versions and operations."""
    found = sorted(plain(await entries(settings)).items())
    text = "\n".join(repr(replace(entry, version=0)) for _, entry in found)
    return hashlib.sha256(text.encode()).hexdigest()


async def sound(settings: VolumeConfig, *, interrupted: bool = False) -> None:
    """All items are those of visible entries, and fsck has no findings."""
    await keys(settings)
    assert len(await stored(settings)) == len(await entries(settings))
    async with opened(settings) as volume:
        report = await verify_volume(volume, grace=ALL_AGES, deep=True)
        assert report.problems == []
        assert not interrupted or report.kinds.get("interrupted_change", 0) == 0


async def usable(settings: VolumeConfig) -> None:
    async with S3kClient(config=replace(settings, suffix_count=None, hash=None)) as fs:
        for path, data in FILES.items():
            assert await fs.read(path) == (b"one, again" if path == "/a/1" else data)
        await fs.write("/a/1", b"once more")
        await fs.makedirs("/z")
        await fs.rename("/a", "/z/a")
        assert await fs.read("/z/a/1") == b"once more"
        await fs.delete("/z/a/deep", recursive=True)
        await fs.delete("/top")
        assert {status.path async for status in fs.list("/z", recursive=True)} == {
            "/z/a",
            "/z/a/1",
            "/z/a/2",
        }


@both
@volume_backends("memory", "embedded", "dynoxide+seaweedfs")
async def test_the_layout_of_a_volume_can_be_changed(
    new_volume: VolumeMaker, layout: LayoutName
) -> None:
    before = await full(new_volume(layout=other(layout)))
    wanted, listing = await entries(before), await digest(before)
    told: list[Progress] = []
    done = await change_layout(before, layout, runtime=HURRIED, progress=told.append)
    assert (done.layout, done.entries, done.moved) == (layout, len(wanted), len(wanted))
    after = replace(before, layout=layout)
    assert await digest(after) == listing
    assert plain(await entries(after), 1) == plain(wanted)
    await sound(after)
    async with opened(after) as volume:
        assert volume.record.layout == layout
        assert await volume.table.read_tag(TAG) == volume.record.to_tag()
        claim = await read_claim(volume.place)
        assert claim is not None
        assert claim.flags == volume.record.flags
    phases = ["index", "check", "table", "log", "data", "comparing", "copy", "clean"]
    assert [*dict.fromkeys(each.phase for each in told)] == list(dict.fromkeys(phases))
    await usable(after)
    async with opened(after) as volume:
        assert (await verify_volume(volume, grace=ALL_AGES)).problems == []


async def test_there_and_back_and_there_again() -> None:
    settings = await full(config(4, layout="path"))
    wanted, listing = await entries(settings), await digest(settings)
    layouts: list[LayoutName] = ["tree", "path", "tree"]
    for number, layout in enumerate(layouts, 1):
        settings = await change(settings, layout)
        assert await digest(settings) == listing
        assert plain(await entries(settings), number) == plain(wanted)
        await sound(settings)
    await usable(settings)


@both
async def test_no_effect_on_a_volume_of_the_layout(layout: LayoutName) -> None:
    settings = await full(config(4, layout=layout))
    before, clock = await stored(settings), FakeClock()
    runtime = replace(HURRIED, monotonic=clock.monotonic, now_ms=clock.now_ms)
    client = await open_volume(settings, runtime=runtime)
    done = await change_layout(settings, layout, runtime=HURRIED)
    assert done == LayoutResult(layout, 0, 0)
    assert await stored(settings) == before
    clock.advance(LOOK_SECONDS + 1)
    await client.store.make_directory("/x")  # no client has to open the volume again
    await client.close()


@both
async def test_gc_deletes_nothing_that_lives(layout: LayoutName, tmp_path: Path) -> None:
    """And what was garbage before, whose history is of the other layout."""
    after = await change(await full(config(4, layout=other(layout))), layout)
    async with opened(after) as volume:
        collector = gc_of(volume, SYSTEM, Ages(grace=ALL_AGES, lease=0.0, late=ALL_AGES))
        candidates = str(tmp_path / "candidates")
        await collector.clean_up(await collector.mark(candidates))
        swept = await collector.sweep(candidates)
        deleted = {reason: count.objects for reason, count in swept.deleted.items()}
        assert deleted == {"deleted": 1 + (layout == "path"), "replaced": 1}
        assert swept.failures == []
        assert (await verify_volume(volume, grace=ALL_AGES, deep=True)).problems == []
    await usable(after)


@both
async def test_the_log_has_every_entry_in_the_new_layout(layout: LayoutName) -> None:
    after = await change(await full(config(4, layout=other(layout))), layout)
    found = await entries(after)
    async with opened(after) as volume:
        assert volume.log_blobs is not None
        truths = latest([each async for each in LogReader(volume.log_blobs).records()])
    for entry in found.values():
        truth = truths[entry.id]
        assert (truth.entry, truth.pending, truth.conflict) == (entry, (), ())


async def test_a_lost_table_is_restored_after_a_change_to_layout_path() -> None:
    after = await change(await full(config(4, layout="tree")), "path")
    wanted = plain(await entries(after))
    await MemoryItems(after.name).drop()
    lost = replace(after, suffix_count=None, hash=None)
    report = await restore_volume(lost, dry_run=False, runtime=HURRIED)
    assert report.clean
    assert plain(await entries(after)) == wanted


@both
async def test_what_the_table_did_not_have_does_not_keep_a_restore_from_the_rest(
    layout: LayoutName,
) -> None:
    """Neither what it had lost, nor what a client that died had not finished."""
    before = await full(config(4, layout=other(layout)))
    async with opened(before) as volume:
        lost, kept = await volume.store.get("/a/2"), await volume.store.get("/a/1")
        assert lost is not None
        assert kept is not None
        await volume.items.write(Delete(volume.store.keys.of(lost), Condition()))
        new = replace(kept, path="/a/new", id=HURRIED.uuid(), operation=HURRIED.uuid())
        await volume.log.begin([volume.store.changes.operation("update", None, new)])
    after = await change(before, layout, check=False)
    wanted = plain(await entries(after))
    unsure = replace(after, suffix_count=None, hash=None)
    report = await restore_volume(unsure, subtree="/a", dry_run=False, runtime=HURRIED)
    assert report.counts["other_layout"] == 2
    assert plain(await entries(after)) == wanted
    await MemoryItems(after.name).drop()
    report = await restore_volume(unsure, dry_run=False, runtime=HURRIED)
    assert {each.rule for each in report.problems} == {"other_layout"}
    assert report.counts["other_layout"] == 2
    assert plain(await entries(after)) == wanted


@both
async def test_a_file_that_is_at_two_places_with_one_id(layout: LayoutName) -> None:
    """In one page of a scan: a segment has an object once, and its operations have different
    ids."""
    before = config(1, layout=other(layout))
    await init_volume(before)
    async with S3kClient(config=before) as fs:
        async with fs.stage() as file:
            await file.write(b"x")
        for path in ("/d/g", "/d/h"):
            async with fs.transaction() as tx:
                await tx.publish("/f", file.staged)
            await fs.makedirs("/d", exist_ok=True)
            await fs.rename("/f", path)
        one, two = await fs.stat("/d/g"), await fs.stat("/d/h")
    assert (one.id, one.version) == (two.id, two.version)
    wanted = plain(await entries(before))
    after = await change(before, layout)
    assert plain(await entries(after), 1) == wanted
    assert len({entry.operation for entry in (await entries(after)).values()}) == 3


@both
@pytest.mark.parametrize("damage", [{"id": "odd id"}, {"ver": 2**53}, {"ver": 2**53 - 1}])
async def test_an_entry_that_the_log_cannot_hold_is_refused(
    layout: LayoutName, damage: dict[str, str | int]
) -> None:
    before = await full(config(4, layout=other(layout)))
    async with opened(before) as volume:
        entry = await volume.store.get("/a/1")
        assert entry is not None
        item = await volume.items.get(volume.store.keys.of(entry))
        assert item is not None
        await MemoryItems(before.name).write(Put({**item, **damage}, Condition()))
    found = await stored(before)
    with pytest.raises(ItemFormatError, match="run s3k fsck repair first"):
        await change_layout(before, layout, runtime=HURRIED)
    assert await stored(before) == found
    async with opened(before):
        pass  # not locked


@both
async def test_fsck_of_a_path_where_something_was_unfinished_before(layout: LayoutName) -> None:
    before = await full(config(4, layout=other(layout)))
    async with opened(before) as volume:
        removed, lost = await volume.store.get("/a/1"), await volume.store.get("/a/deep/er/3")
        assert removed is not None
        assert lost is not None
        for entry in (removed, lost):
            await volume.items.write(Delete(volume.store.keys.of(entry), Condition()))
        await volume.log.begin([volume.store.changes.operation("delete", removed, None)])
    after = await change(before, layout, check=False)
    async with opened(after) as volume:

        async def found(path: str) -> set[tuple[str, str]]:
            report = await verify_volume(volume, grace=ALL_AGES, path=path)
            return {(each.kind, each.path) for each in report.problems}

        unfinished = {("log_pending", "/a/1")}
        missing = {("entry_missing", "/a/deep/er/3")}
        assert await found("/a") == await found("/") == unfinished | missing
        assert await found("/a/deep") == missing
        assert await found("/c") == set()
        await repair_volume(volume, dry_run=False, grace=ALL_AGES, path="/a")
        assert await found("/a") == await found("/") == missing


@both
@pytest.mark.parametrize("moment", ["copied", "marked"])
async def test_a_table_that_is_lost_during_a_change_is_restored_as_it_was_before(
    layout: LayoutName, moment: str
) -> None:
    """The mark names the old layout, and the copies are pending."""
    before, plan = await full(config(4, layout=other(layout))), FaultPlan()
    wanted = plain(await entries(before))

    def is_mark(call: Call) -> bool:
        return call.method == "put" and call.key.endswith(CLAIM)

    plan.fail_when(
        lambda call: (
            call.method == "load"
            if moment == "copied"
            else is_mark(call) and sum(map(is_mark, plan.calls)) == 2
        ),
        PermissionDeniedError("no"),
        times=100,
    )
    with pytest.raises(PermissionDeniedError):
        await under(plan, change_layout(before, layout, runtime=HURRIED))
    await MemoryItems(before.name).drop()
    lost = replace(before, suffix_count=None, hash=None)
    report = await restore_volume(lost, dry_run=False, runtime=HURRIED)
    assert report.clean
    assert report.counts["update_undone"] > 0
    assert plain(await entries(before)) == wanted


@both
async def test_a_reservation_is_kept(layout: LayoutName) -> None:
    before = await full(config(4, layout=other(layout)))
    async with opened(before) as volume:
        await volume.store.reserve(await volume.store.prepare("/a/reserved"), exclusive=True)
    wanted = (await entries(before))["/a/reserved"]
    after = await change(before, layout)
    found = (await entries(after))["/a/reserved"]
    assert found.is_reservation
    assert (found.lease_ms, found.physical) == (wanted.lease_ms, wanted.physical)
    await sound(after)
    async with S3kClient(config=after) as fs:
        await fs.delete("/a/reserved")
        assert not await fs.exists("/a/reserved")


async def test_removal_markers_are_dropped() -> None:
    before = await full(config(4, layout="tree"))
    assert len(await stored(before)) == len(await entries(before)) + 3
    after = await change(before, "path")
    assert len(await stored(after)) == len(await entries(after))


async def test_the_retention_of_the_trash_is_the_default_afterwards() -> None:
    settings = await full(config(4, layout="tree"))
    async with S3kClient(config=settings) as fs:
        await fs.trash().set_retention(0)
    settings = await change(settings, "path")
    async with opened(settings) as volume:
        assert RETENTION not in (await volume.items.get(RECORD_KEY) or {})
        assert volume.record.trash_retention is None
    settings = await change(settings, "tree")
    async with S3kClient(config=settings) as fs:
        assert await fs.trash().retention() == TRASH_RETENTION


@both
async def test_a_volume_without_a_log(layout: LayoutName) -> None:
    before = await full(config(4, layout=other(layout), log_mode="disabled"))
    listing = await digest(before)
    assert await digest(await change(before, layout)) == listing


@both
async def test_more_directories_than_are_held_in_memory(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_index.PathIndex.__init__, "__defaults__", (3,))
    monkeypatch.setattr(path_index, "BUFFERED", 1)
    monkeypatch.setattr(layout_pass, "_KNOWN", 2)
    before = await full(config(4, layout=other(layout)))
    listing = await digest(before)
    after = await change(before, layout)
    assert await digest(after) == listing
    await sound(after)


# What is refused changes nothing


async def refused(
    settings: VolumeConfig, layout: LayoutName, error: type[S3kError], match: str
) -> None:
    before = await stored(settings)
    with pytest.raises(error, match=match):
        await change_layout(settings, layout, runtime=HURRIED)
    assert await stored(settings) == before
    async with S3kClient(config=settings) as fs:
        await fs.exists("/as/before")


async def test_a_trash_with_directories_is_refused() -> None:
    settings = config(4, layout="tree")
    await init_volume(settings)
    await fill(settings)
    await refused(settings, "path", DirectoryNotEmptyError, "in the trash")


@both
async def test_an_unfinished_transaction_is_refused(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    settings = await full(config(4, layout=other(layout)))
    writes: list[Call] = []

    async def gate(call: Call) -> None:
        writes.extend([call] * (call.store == "items" and call.method in ("write", "transact")))

    plan = FaultPlan(gate)
    plan.fail_when(lambda _: len(writes) > 1, Died("died"), times=10**9)

    async def transaction() -> None:
        async with S3kClient(config=settings) as fs, fs.transaction() as tx:
            await tx.rename("/a/1", "/b1")
            await tx.rename("/a/2", "/b2")

    with suppress(Died, BaseExceptionGroup):
        await under(plan, transaction())
    await refused(settings, layout, BusyError, "unfinished")


@both
@pytest.mark.parametrize("kind", ["entry_missing", "log_pending"])
async def test_what_only_the_log_knows_is_refused(layout: LayoutName, kind: str) -> None:
    """Repair brings it back, or decides it, before the change; not afterwards."""
    settings = await full(config(4, layout=other(layout)))
    async with opened(settings) as volume:
        entry = await volume.store.get("/a/1")
        assert entry is not None
        if kind == "log_pending":
            await volume.log.begin([volume.store.changes.operation("delete", entry, None)])
        else:
            await volume.items.write(Delete(volume.store.keys.of(entry), Condition()))
    await refused(settings, layout, ItemFormatError, f"{kind} .1..*run s3k fsck repair first")
    async with opened(settings) as volume:
        await repair_volume(volume, dry_run=False, grace=ALL_AGES)
    after = await change(settings, layout)
    async with opened(after) as volume:
        assert (await verify_volume(volume, grace=ALL_AGES)).problems == []
        assert await volume.store.get("/a/1") is not None


@both
async def test_what_a_client_with_a_clock_ahead_left_is_refused(layout: LayoutName) -> None:
    settings = await full(config(4, layout=other(layout)))
    async with opened(settings) as volume:
        entry = await volume.store.get("/a/1")
        assert entry is not None
        deletion = volume.store.changes.operation("delete", entry, None)
        await volume.log.begin([replace(deletion, time_ms=deletion.time_ms + 3_600_000)])
    await refused(settings, layout, ItemFormatError, "log_pending")


async def damaged(settings: VolumeConfig, *changes: Put | Delete) -> VolumeConfig:
    for each in changes:
        await MemoryItems(settings.name).write(each)
    return settings


async def item_of(settings: VolumeConfig, path: str) -> tuple[Item, Delete]:
    async with opened(settings) as volume:
        entry = await volume.store.get(path)
        assert entry is not None
        key = volume.store.keys.of(entry)
        item = await volume.items.get(key)
        assert item is not None
        return item, Delete(key, Condition())


@both
async def test_an_entry_without_its_parent_is_refused(layout: LayoutName) -> None:
    settings = await full(config(4, layout=other(layout)))
    _, remove = await item_of(settings, "/a/deep")
    await refused(await damaged(settings, remove), layout, ItemFormatError, "no parent.*fsck")


@both
async def test_a_directory_id_at_two_places_is_refused(layout: LayoutName) -> None:
    settings = await full(config(4, layout=other(layout)))
    item, _ = await item_of(settings, "/c")
    twin = {**item, "children": "c2"}
    async with opened(settings) as volume:
        scheme = volume.store.keys
        entry_key = scheme.entry_key(scheme.of((await entries(settings))["/c"]))
        key = scheme.key(f"{entry_key}2")
    twin |= {"path": key.partition, "children": key.sort}
    await refused(
        await damaged(settings, Put(twin, ABSENT)), layout, ItemFormatError, "id of another"
    )


@both
async def test_items_that_are_not_the_volumes_are_refused(layout: LayoutName) -> None:
    settings = await full(config(4, layout=other(layout)))
    item, _ = await item_of(settings, "/top")
    strays: list[tuple[Item, str]] = [
        ({"path": "ks://another/-sf0", "children": "x", "ver": 1}, "another layout or volume"),
        ({**item, "path": f"{str(item['path'])[:-1]}9"}, "wrong partition"),
        ({"path": item["path"], "children": "odd", "ver": "x"}, "fsck"),
    ]
    for stray, message in strays:
        put = Put(stray, ABSENT)
        await refused(await damaged(settings, put), layout, ItemFormatError, message)
        await damaged(settings, Delete(put.key, Condition()))
    await sound(await change(settings, layout))


async def test_a_cycle_is_refused() -> None:
    settings = await full(config(4, layout="tree"))
    item, remove = await item_of(settings, "/a")
    found = await entries(settings)
    async with opened(settings) as volume:
        key = volume.store.keys.key(f"{found['/a/deep'].id}/a")
    below = {**item, "path": key.partition, "children": key.sort}
    await damaged(settings, remove, Put(below, ABSENT))
    before = await stored(settings)
    with pytest.raises(ItemFormatError, match="below itself"):
        await change_layout(settings, "path", runtime=HURRIED)
    assert await stored(settings) == before


async def test_a_path_that_is_too_long_for_layout_path_is_refused() -> None:
    settings = config(4, layout="tree")
    await init_volume(settings)
    async with S3kClient(config=settings) as fs:
        long = "/" + "d" * 1000
        await fs.write(f"/a{long}{long}/f", b"deep")
        await fs.makedirs(long)
        await fs.rename("/a", f"{long}/b")
    await refused(settings, "path", InvalidPathError, "longer than")


@both
async def test_a_tag_that_cannot_be_written_is_refused(layout: LayoutName) -> None:
    settings, plan = await full(config(4, layout=other(layout))), FaultPlan()
    before = await stored(settings)
    plan.fail_when(lambda call: call.method == "write_tag", PermissionDeniedError("no"), times=100)
    with pytest.raises(PermissionDeniedError):
        await under(plan, change_layout(settings, layout, runtime=HURRIED))
    assert await stored(settings) == before


# Others meanwhile, and interruptions


@both
async def test_other_clients_are_turned_away_and_open_it_again(layout: LayoutName) -> None:
    settings = await full(config(4, layout=other(layout)))
    clock, plan, seen = FakeClock(), FaultPlan(), set()
    runtime = replace(HURRIED, monotonic=clock.monotonic, now_ms=clock.now_ms)
    old = await open_volume(settings, runtime=runtime)

    async def gate(call: Call) -> None:
        if call.method in ("load", "transact"):
            clock.advance(LOOK_SECONDS)
            for work in (old.store.get("/a"), old.store.make_directory("/new/here")):
                with pytest.raises(BusyError, match="is locked by a migration"):
                    await work
            seen.add(call.method)

    plan.gate = gate
    await under(plan, change_layout(settings, layout, runtime=HURRIED))
    assert seen == {"load", "transact"}
    clock.advance(LOOK_SECONDS)
    for work in (old.store.get("/a"), old.store.make_directory("/new/here")):
        with pytest.raises(VolumeMismatchError, match="open it again"):
            await work
    await old.close()
    with pytest.raises((VolumeMismatchError, VolumeFormatError), match="layout"):
        await open_volume(settings)
    await usable(replace(settings, layout=layout))


async def small(settings: VolumeConfig) -> VolumeConfig:
    """A volume of a few entries, with garbage and a removal marker."""
    await init_volume(settings)
    async with S3kClient(config=settings) as fs:
        await fs.write_many([("/a/b/f", b"f"), ("/a/g", b"g"), ("/h", b"h")])
        await fs.write("/gone/x", b"x")
        await fs.delete("/gone/x")
        await fs.delete("/gone")
    return settings


@both
@pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.slow), "after"])
async def test_a_change_that_dies_at_any_call_is_finished_by_the_same_call(
    layout: LayoutName, moment: Any
) -> None:
    calls = FaultPlan()
    await under(
        calls,
        change_layout(await small(config(2, layout=other(layout))), layout, runtime=HURRIED),
    )
    for number in calls_to_try(len(calls.calls)):
        before, plan = await small(config(2, layout=other(layout))), FaultPlan()
        wanted = plain(await entries(before))
        plan.fail_when(
            from_call(number),
            Died("died"),
            when=moment,
        )
        plan.fail_when(after_call(number), Died("dead"), times=10**9)
        with suppress(Died, BaseExceptionGroup):
            await under(plan, change_layout(before, layout, runtime=HURRIED))
        await change_layout(before, layout, runtime=LATER)
        after = replace(before, layout=layout)
        assert plain(await entries(after), 1) == wanted, number
        await sound(after, interrupted=True)
        async with S3kClient(config=replace(after, suffix_count=None)) as fs:
            assert await fs.read("/a/b/f") == b"f"


@both
@pytest.mark.parametrize("written", [0, 1])
async def test_a_mark_that_cannot_be_written_is_an_error(layout: LayoutName, written: int) -> None:
    """A restore takes the layout from it. Before the first change, and after the last."""
    before, plan = await full(config(4, layout=other(layout))), FaultPlan()
    items = await stored(before)

    def is_mark(call: Call) -> bool:
        return call.method == "put" and call.key.endswith(CLAIM)

    plan.fail_when(
        lambda call: is_mark(call) and sum(map(is_mark, plan.calls)) > written,
        PermissionDeniedError("no"),
        times=100,
    )
    with pytest.raises(PermissionDeniedError):
        await under(plan, change_layout(before, layout, runtime=HURRIED))
    if written == 0:
        assert await stored(before) == items
    else:
        with pytest.raises(BusyError, match="interrupted"):
            await entries(before)
    after = await change(before, layout)
    await sound(after)
    async with opened(after) as volume:
        claim = await read_claim(volume.place)
        assert claim is not None
        assert claim.flags == volume.record.flags


async def test_an_interrupted_change_is_finished_to_the_same_layout_only() -> None:
    settings, plan = await full(config(4, layout="path")), FaultPlan()
    plan.fail_when(lambda call: call.method == "load", PermissionDeniedError("no more"))
    with pytest.raises(PermissionDeniedError):
        await under(plan, change_layout(settings, "tree", runtime=HURRIED))
    with pytest.raises(BusyError, match=r"a migration of the volume \(tree\) was interrupted"):
        await entries(settings)
    with pytest.raises(BusyError, match=r"\(tree\) was interrupted"):
        await change_layout(settings, "path", runtime=HURRIED)
    await sound(await change(settings, "tree"))


async def test_an_old_item_without_an_equal_copy_is_not_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change of the table behind the back of the lock."""
    settings = await full(config(4, layout="path"))
    items = MemoryItems(settings.name)
    commit = layout_change._LayoutChange._commit_segments

    async def lose(self: Any) -> None:
        await commit(self)
        volume: Volume = self._volume
        page = await volume.items.scan(0, 1, limit=10_000)
        copy = next(each for each in page.items if str(each["path"]).startswith("s3k:tree/"))
        await items.write(Put({**copy, "mtime": 1}, Condition(equals={"id": copy["id"]})))

    monkeypatch.setattr(layout_change._LayoutChange, "_commit_segments", lose)
    with pytest.raises(S3kError, match="no copy at its new place"):
        await change_layout(settings, "tree", runtime=HURRIED)


@both
async def test_a_check_of_before_the_change_is_not_resumed(
    layout: LayoutName, tmp_path: Path
) -> None:
    before = await full(config(4, layout=other(layout)))
    async with opened(before) as volume:
        await verify_volume(volume, directory=str(tmp_path))
    async with opened(await change(before, layout)) as volume:
        with pytest.raises(InvalidArgumentError, match="another volume"):
            await verify_volume(volume, directory=str(tmp_path))
