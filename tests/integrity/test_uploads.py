"""Multipart uploads under gc, fsck, restore, dump, reshard, change of the layout and destroy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Item, Key, Put, Update
from s3k_async.backends.ports.pagination import list_all, scan_all
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import DirectoryNotEmptyError, UploadNotFoundError
from s3k_async.files.multipart import (
    abort_upload,
    complete_upload,
    create_upload,
    list_parts,
    list_uploads,
    put_part,
)
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.migrate import change_layout, dump_volume, load_volume, reshard_volume
from s3k_async.model import LayoutName
from s3k_async.storage.extents import physical_keys
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn import volume_lock
from s3k_async.txn.upload_items import (
    MultipartUpload,
    is_upload_partition,
    part_key,
    upload_key,
)
from s3k_async.volumes import Volume, init_volume
from s3k_async.volumes.destruction import destroy_volume
from s3k_async.volumes.restoration import restore_volume
from tests.client.rig import memory_config
from tests.integrity.garbage import DAY, Yard, yard

pytestmark = pytest.mark.layouts("path", "tree")

EAGER = Ages(grace=0.0, lease=600.0, late=60.0)


@pytest.fixture(autouse=True)
def no_open_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client has the volume open, so that the lock need not wait."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


@pytest.fixture
async def place(layout: LayoutName, tmp_path: Path) -> AsyncIterator[Yard]:
    async with yard(tmp_path, layout=layout) as made:
        yield made


async def begin(volume: Volume, path: str = "/d/f", *, lifetime: float = 30 * DAY) -> str:
    """An upload with two parts, of which one was replaced; returns its id."""
    upload = await create_upload(volume, path, lifetime=lifetime)
    await put_part(volume, upload.id, 2, b"second")
    await put_part(volume, upload.id, 1, b"former")
    await put_part(volume, upload.id, 1, b"first, ")
    return upload.id


async def upload_items(volume: Volume) -> int:
    found = 0
    async for page in scan_all(volume.items):
        found += sum(is_upload_partition(str(item["path"])) for item in page)
    return found


async def live(fs: S3kClient) -> set[str]:
    """The physical keys that files refer to."""
    found: set[str] = set()
    async for status in fs.list("/", recursive=True):
        found.update(physical_keys(status.physical))
    return found


async def findings(volume: Volume) -> list[str]:
    return sorted(each.kind for each in (await verify_volume(volume)).findings)


async def test_gc_keeps_the_parts_of_an_open_upload(place: Yard) -> None:
    volume = place.volume
    upload_id = await begin(volume)
    parts = await place.keys()
    assert len(parts) == 2
    for _ in range(3):
        place.clock.advance(5 * DAY)
        marked, swept = await place.gc(ages=EAGER)
        assert marked.of("uploading").objects == 2
        assert (swept.deleted, swept.multipart) == ({}, 0)
    assert await place.keys() == parts
    assert [each.size for each in await list_parts(volume, upload_id)] == [7, 6]
    await complete_upload(volume, upload_id)
    await place.settle()
    place.clock.advance(5 * DAY)
    marked, swept = await place.gc(ages=EAGER)
    assert await place.keys() == parts == await live(place.client)
    assert (marked.of("named").objects, swept.deleted) == (2, {})
    assert await place.client.read("/d/f") == b"first, second"
    await place.client.delete("/d/f")
    await place.settle()
    place.clock.advance(5 * DAY)
    await place.gc()
    assert await place.keys() == set()


async def test_an_upload_that_is_completed_between_mark_and_sweep_is_kept(place: Yard) -> None:
    volume = place.volume
    upload_id = await begin(volume)
    place.clock.advance(5 * DAY)
    await place.gc(ages=EAGER)
    await volume.items.write(Update(upload_key(upload_id), Condition(), {"state": "aborted"}))
    collector = await place.collector(ages=EAGER)
    assert (await collector.mark(place.candidates)).of("unpublished").objects == 2
    await volume.items.write(Update(upload_key(upload_id), Condition(), {"state": "open"}))
    swept = await collector.sweep(place.candidates)
    assert (swept.kept["uploading"].objects, swept.deleted) == (2, {})
    collector = await place.collector(ages=EAGER)
    await volume.items.write(Update(upload_key(upload_id), Condition(), {"state": "aborted"}))
    assert (await collector.mark(place.candidates)).of("unpublished").objects == 2
    await volume.items.write(Update(upload_key(upload_id), Condition(), {"state": "open"}))
    await complete_upload(volume, upload_id)
    assert (await collector.sweep(place.candidates)).deleted == {}
    assert await place.client.read("/d/f") == b"first, second"


async def test_a_sweep_that_runs_beside_a_completion_deletes_nothing(place: Yard) -> None:
    """At each call of the sweep the upload is completed, or is not."""
    volume, number = place.volume, 0
    while True:
        number += 1
        upload_id = await begin(volume, f"/d/{number}")
        place.clock.advance(5 * DAY)
        key = upload_key(upload_id)
        await volume.items.write(Update(key, Condition(), {"state": "aborted"}))
        faults = FaultPlan()
        collector = await place.collector(faults, EAGER)
        await collector.mark(place.candidates)
        await volume.items.write(Update(key, Condition(), {"state": "open"}))
        faults.calls.clear()

        async def complete(call: Call, at: int = number, upload_id: str = upload_id) -> None:
            if call.number == at:
                await complete_upload(volume, upload_id)

        faults.gate = complete
        await collector.sweep(place.candidates)
        faults.gate = None
        if len(faults.calls) < number:
            assert number > 5
            return
        assert await place.client.read(f"/d/{number}") == b"first, second"


async def test_gc_ends_uploads_that_have_expired(place: Yard) -> None:
    volume = place.volume
    old = [await begin(volume, lifetime=DAY) for _ in range(5)]
    new = await begin(volume)
    place.clock.advance(2 * DAY)
    collector = await place.collector()
    marked = await collector.mark(place.candidates)
    assert marked.over_multipart == sorted(old)
    assert len(await place.keys()) == 12
    swept = await collector.clean_up(marked)
    assert (swept.multipart, len(await place.keys())) == (5, 12)
    for upload_id in old:
        with pytest.raises(UploadNotFoundError):
            await complete_upload(volume, upload_id)
    assert volume.log_blobs is not None
    audit = [info.key async for info in list_all(volume.log_blobs, "audit/")]
    text = b"".join([await volume.log_blobs.get(key) for key in audit])
    assert all(text.count(b'"end_upload","id":"' + upload_id.encode()) == 1 for upload_id in old)
    await complete_upload(volume, new)
    assert await upload_items(volume) == 0
    assert (await collector.mark(place.candidates)).over_multipart == []
    await place.settle()
    place.clock.advance(5 * DAY)
    await place.gc()
    assert await place.keys() == await live(place.client)


async def test_gc_removes_what_interrupted_clients_have_left(place: Yard) -> None:
    """A part item without an upload, and uploads that were ended only half."""
    volume = place.volume
    lost, aborted, completed = [await begin(volume, f"/{name}") for name in "abc"]
    await volume.items.write(Delete(upload_key(lost), Condition()))
    for ended, state in ((aborted, "aborted"), (completed, "completed")):
        await volume.items.write(Update(upload_key(ended), Condition(), {"state": state}))
    place.clock.advance(5 * DAY)
    assert await upload_items(volume) == 8
    _, swept = await place.gc()
    assert (swept.multipart, await upload_items(volume)) == (3, 0)
    place.clock.advance(5 * DAY)
    await place.gc()
    assert await place.keys() == set()


async def test_gc_keeps_the_data_of_an_upload_with_an_unreadable_record(place: Yard) -> None:
    volume = place.volume
    upload_id = await begin(volume, lifetime=DAY)
    await volume.items.write(Update(upload_key(upload_id), Condition(), {"state": "?"}))
    place.clock.advance(20 * DAY)
    marked, swept = await place.gc()
    assert (marked.of("uploading").objects, swept.deleted, len(await place.keys())) == (2, {}, 2)
    assert await findings(volume) == ["item_damaged"]
    await repair_volume(volume, dry_run=False)
    assert await findings(volume) == ["collectable_data", "collectable_data"]
    await place.gc()
    assert (await place.keys(), await upload_items(volume)) == (set(), 0)


async def test_gc_without_a_log_keeps_the_parts(layout: LayoutName, tmp_path: Path) -> None:
    def without_log(config: VolumeConfig) -> VolumeConfig:
        return replace(config, log_mode="disabled")

    async with yard(tmp_path, layout=layout, change=without_log) as place:
        upload_id = await begin(place.volume)
        await place.client.write("/unreferenced", b"x")
        await place.client.delete("/unreferenced")
        place.clock.advance(5 * DAY)
        collector = await place.collector()
        marked = await collector.mark(place.candidates)
        assert marked.of("uploading").objects == 2
        assert await findings(place.volume) == ["orphan_data"]
        place.clock.advance(5 * DAY)
        await collector.sweep(place.candidates)
        assert len(await place.keys()) == 2
        await complete_upload(place.volume, upload_id)
        assert await place.client.read("/d/f") == b"first, second"


async def test_fsck_has_nothing_to_say_about_an_open_upload(place: Yard) -> None:
    volume = place.volume
    await place.client.write("/d/f", b"old")
    upload_id = await begin(volume)
    await place.settle()
    place.clock.advance(20 * DAY)
    assert await findings(volume) == []
    assert (await repair_volume(volume, dry_run=False)).repairs == []
    await complete_upload(volume, upload_id)
    await place.settle()
    place.clock.advance(20 * DAY)
    assert await findings(volume) == ["collectable_data"]
    await abort_upload(volume, await begin(volume))
    assert await findings(volume) == ["collectable_data"]


@pytest.mark.parametrize("change", [{"physpath": 1}, {"size": -1}])
async def test_fsck_repairs_the_damaged_item_of_a_part(place: Yard, change: dict[str, int]) -> None:
    volume = place.volume
    upload_id = await begin(volume)
    await volume.items.write(Update(part_key(upload_id, 1), Condition(), change))
    place.clock.advance(DAY)
    assert await findings(volume) == ["item_damaged"]
    await repair_volume(volume, dry_run=False)
    assert await findings(volume) == []
    assert [each.number for each in await list_parts(volume, upload_id)] == [2]
    await put_part(volume, upload_id, 1, b"again, ")
    await complete_upload(volume, upload_id)
    assert await place.client.read("/d/f") == b"again, second"


async def test_a_lost_table_comes_back_with_completed_uploads(place: Yard) -> None:
    fs, volume = place.client, place.volume
    await fs.write("/d/f", b"old")
    await complete_upload(volume, await begin(volume))
    await begin(volume, "/pending")
    await place.settle()
    place.clock.advance(DAY)
    before = {status.path: status async for status in fs.list("/", recursive=True)}
    await fs.close()
    await MemoryItems(place.config.name).drop()
    await restore_volume(place.config, dry_run=False)
    async with S3kClient(config=place.config) as again:
        after = {status.path: status async for status in again.list("/", recursive=True)}
        assert after == before
        assert await again.read("/d/f") == b"first, second"
        assert await list_uploads(again._volume()) == []


async def test_gc_keeps_what_was_completed_after_the_backup_of_a_table(place: Yard) -> None:
    """A table from a backup has the upload as it was then, and the log has the file."""
    fs, volume = place.client, place.volume
    await fs.write("/other", b"x")
    upload_id = await begin(volume, lifetime=DAY)
    await place.settle()
    backup = await stored(volume)
    await complete_upload(volume, upload_id)
    await place.settle()
    published = await live(fs) - await live_before(backup)
    assert len(published) == 2
    for key in (await stored(volume)).keys() - backup.keys():
        await volume.items.write(Delete(key, Condition()))
    for key, item in backup.items():
        if await volume.items.get(key) is None:
            await volume.items.write(Put(item, ABSENT))
    assert [each.id for each in await list_uploads(volume)] == [upload_id]
    place.clock.advance(5 * DAY)
    for _ in range(3):
        await place.gc(ages=EAGER)
        place.clock.advance(5 * DAY)
    assert await list_uploads(volume) == []
    assert published <= await place.keys()


async def stored(volume: Volume) -> dict[Key, Item]:
    """All items of the table."""
    pages = [page async for page in scan_all(volume.items)]
    return {Key(str(item["path"]), str(item["children"])): item for page in pages for item in page}


async def live_before(backup: dict[Key, Item]) -> set[str]:
    """The physical keys of entries in a table."""
    return {
        key
        for item in backup.values()
        if not is_upload_partition(str(item["path"]))
        for key in physical_keys(str(item.get("physpath", "")))
    }


async def used_again(config: VolumeConfig, upload: MultipartUpload) -> None:
    """The upload can be listed, gets a part, and is completed."""
    async with S3kClient(config=config) as fs:
        volume = fs._volume()
        assert [each.id for each in await list_uploads(volume, "/d")] == [upload.id]
        assert len(await list_parts(volume, upload.id)) == 1
        await put_part(volume, upload.id, 2, b"second")
        await complete_upload(volume, upload.id)
        assert await fs.read("/d/f") == b"first, second"
        assert await upload_items(volume) == 0


async def volume_with_upload(layout: LayoutName) -> tuple[VolumeConfig, MultipartUpload]:
    config = memory_config(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/d/other", b"other")
        upload = await create_upload(fs._volume(), "/d/f")
        await put_part(fs._volume(), upload.id, 1, b"first, ")
    return config, upload


async def test_a_reshard_keeps_uploads(layout: LayoutName) -> None:
    config, upload = await volume_with_upload(layout)
    await reshard_volume(config, 7)
    await used_again(replace(config, suffix_count=None), upload)


async def test_a_change_of_the_layout_keeps_uploads(layout: LayoutName) -> None:
    config, upload = await volume_with_upload(layout)
    await change_layout(config, "path" if layout == "tree" else "tree")
    await used_again(replace(config, layout=None), upload)


async def test_a_dump_has_no_uploads_and_a_load_keeps_them(
    layout: LayoutName, tmp_path: Path
) -> None:
    config, upload = await volume_with_upload(layout)
    target = str(tmp_path / "dump")
    async with S3kClient(config=config) as fs:
        assert (await dump_volume(fs._volume(), target)).files == 1
        await fs.delete("/d/other")
        await fs.delete("/d", recursive=True)
    other = memory_config(layout=layout)
    async with S3kClient(config=config) as fs:
        await load_volume(target, other, bytes_from=fs._volume())
    async with S3kClient(config=other) as fs:
        assert await fs.read("/d/other") == b"other"
        assert await list_uploads(fs._volume()) == []
    if layout == "path":  # in layout `tree` the deleted directory is in the trash
        await load_volume(target, config)
    await used_again(config, upload)


async def test_destroy_removes_the_data_of_uploads(layout: LayoutName) -> None:
    config, _ = await volume_with_upload(layout)
    async with S3kClient(config=config) as fs:
        await fs.delete("/d/other")
        await fs.delete("/d")
        assert await upload_items(fs._volume()) == 2
    if layout == "path":  # in layout `tree`, `fs.delete` leaves a removal marker
        with pytest.raises(DirectoryNotEmptyError, match="multipart uploads"):
            await destroy_volume(config)
    assert await destroy_volume(config, force=True) == 0
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        assert [info async for info in list_all(fs._volume().blobs)] == []
        assert await upload_items(fs._volume()) == 0


async def test_concurrent_gc_and_parts(place: Yard) -> None:
    """Runs of gc with no grace period beside clients that store, replace and complete."""
    volume = place.volume
    upload_id = await begin(volume)
    place.clock.advance(5 * DAY)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: place.gc(ages=EAGER),
        lambda: put_part(volume, upload_id, 1, b"FIRST, "),
        lambda: put_part(volume, upload_id, 3, b", third"),
    ]
    await asyncio.gather(*(call() for call in calls))
    place.clock.advance(5 * DAY)
    await asyncio.gather(place.gc(ages=EAGER), complete_upload(volume, upload_id))
    assert await place.client.read("/d/f") == b"FIRST, second, third"
    await place.settle()
    place.clock.advance(5 * DAY)
    await place.gc(ages=EAGER)
    assert await place.keys() == await live(place.client)
