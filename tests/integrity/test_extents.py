"""Files with extents under gc, fsck, restore, dump and destroy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Put, Update
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import UnsupportedError
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.migrate import dump_volume, load_volume
from s3k_async.model import LayoutName
from s3k_async.oplog.compaction import Compactor
from s3k_async.storage.extents import has_extents, physical_keys
from s3k_async.table.codec import to_item
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume
from s3k_async.volumes.destruction import destroy_volume
from s3k_async.volumes.restoration import restore_volume
from tests.client.rig import memory_config
from tests.integrity.garbage import DAY, Yard, yard

pytestmark = pytest.mark.layouts("path", "tree")


@pytest.fixture(autouse=True)
def no_open_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client has the volume open, so that the lock need not wait."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


@pytest.fixture
async def place(layout: LayoutName, tmp_path: Path) -> AsyncIterator[Yard]:
    async with yard(tmp_path, layout=layout) as made:
        yield made


async def fill(fs: S3kClient) -> bytes:
    """A file with three extents and a hole, whose first object is used in part; returns its
    content."""
    await fs.write("/d/f", b"a" * 100)
    await fs.write_range("/d/f", 50, b"b" * 10)
    await fs.write_range("/d/f", 120, b"c" * 5)
    await fs.write("/d/whole", b"w")
    content = await fs.read("/d/f")
    assert content == b"a" * 50 + b"b" * 10 + b"a" * 40 + bytes(20) + b"c" * 5
    return content


async def names(fs: S3kClient, path: str) -> tuple[str, ...]:
    return physical_keys((await fs.stat(path)).physical)


async def live(fs: S3kClient) -> set[str]:
    found: set[str] = set()
    async for status in fs.list("/", recursive=True):
        found.update(physical_keys(status.physical))
    return found


async def lose_table(place: Yard) -> None:
    await MemoryItems(place.config.name).drop()


async def findings(place: Yard, *, deep: bool = False) -> list[tuple[str, str, str]]:
    await place.settle()
    place.clock.advance(DAY)
    report = await verify_volume(place.volume, deep=deep)
    return sorted(
        (each.kind, each.path, each.action)
        for each in report.findings
        if each.kind != "collectable_data"
    )


async def test_gc_keeps_every_extent_and_removes_the_others(place: Yard) -> None:
    fs = place.client
    content = await fill(fs)
    await fs.append("/log", b"1")
    for number in range(2, 9):
        await fs.append("/log", b"%d" % number)
    await fs.append("/gone", b"1")
    await fs.append("/gone", b"2")
    await fs.delete("/gone")
    await fs.rename("/log", "/d/log")
    await place.settle()
    before = await place.keys()
    assert len(before) > len(await live(fs))
    place.clock.advance(DAY)
    _, swept = await place.gc()
    assert swept.deleted == {}
    assert await place.keys() == before
    place.clock.advance(4 * DAY)
    _, swept = await place.gc()
    assert await place.keys() == await live(fs)
    assert set(swept.deleted) == {"deleted", "replaced"}
    assert await fs.read("/d/f") == content
    assert await fs.read("/d/log") == b"12345678"
    assert await findings(place) == []


async def test_gc_without_the_history_of_a_file_keeps_its_extents(place: Yard) -> None:
    fs = place.client
    content = await fill(fs)
    await place.settle()
    place.clock.advance(10 * DAY)
    assert place.volume.log_blobs is not None
    await Compactor(place.volume.log_blobs, place.runtime).run(dry_run=False)
    await fs.compact("/d/f", whole=True)
    await place.settle()
    place.clock.advance(10 * DAY)
    await place.gc()
    assert await place.keys() == await live(fs)
    assert await fs.read("/d/f") == content


async def test_gc_keeps_the_extents_of_a_file_that_only_the_log_knows(place: Yard) -> None:
    await fill(place.client)
    await place.settle()
    before = await place.keys()
    await place.volume.items.write(Delete(await place.key("/d/f"), Condition()))
    place.clock.advance(20 * DAY)
    marked, _ = await place.gc()
    assert marked.of("lost").objects == 3
    assert await place.keys() == before


async def test_gc_of_a_volume_without_a_log_keeps_every_extent(
    layout: LayoutName, tmp_path: Path
) -> None:
    def without_log(config: VolumeConfig) -> VolumeConfig:
        return replace(config, log_mode="disabled")

    async with yard(tmp_path, layout=layout, change=without_log) as place:
        content = await fill(place.client)
        place.clock.advance(20 * DAY)
        collector = await place.collector()
        marked = await collector.mark(place.candidates)
        assert marked.of("named").objects == 4
        place.clock.advance(20 * DAY)
        await collector.sweep(place.candidates)
        assert await place.keys() == await live(place.client)
        assert await place.client.read("/d/f") == content


async def test_gc_keeps_all_data_of_a_file_whose_extents_are_damaged(place: Yard) -> None:
    fs = place.client
    await fill(fs)
    await place.settle()
    before = await place.keys()
    physical = str((await fs.stat("/d/f")).physical)
    damaged = Update(await place.key("/d/f"), Condition(), {"physpath": physical + ",?"})
    await place.volume.items.write(damaged)
    place.clock.advance(20 * DAY)
    marked, _ = await place.gc()
    assert await place.keys() == before
    assert marked.of("damaged").objects + marked.of("named").objects == len(before)


async def test_fsck_finds_nothing_in_files_that_were_changed_in_place(place: Yard) -> None:
    await fill(place.client)
    assert await findings(place, deep=True) == []


async def test_fsck_takes_no_extent_for_garbage(place: Yard) -> None:
    await fill(place.client)
    await place.settle()
    place.clock.advance(20 * DAY)
    assert (await verify_volume(place.volume, deep=False)).findings == []


async def test_fsck_finds_each_object_of_extents_that_is_lost(place: Yard) -> None:
    fs = place.client
    await fill(fs)
    for key in await names(fs, "/d/f"):
        data = await place.volume.blobs.get(key)
        await place.volume.blobs.delete(key)
        assert await findings(place) == [("data_missing", "/d/f", "report")]
        await place.volume.blobs.put(key, data[:-1])
        assert await findings(place) == [("size_mismatch", "/d/f", "report")]
        await place.volume.blobs.put(key, data)
        assert await findings(place) == []


async def test_fsck_reads_extents_that_cover_their_objects(place: Yard) -> None:
    fs = place.client
    await fill(fs)
    _, second, _ = await names(fs, "/d/f")
    await place.volume.blobs.put(second, b"x" * 10)
    assert await findings(place) == []
    [(kind, path, action)] = await findings(place, deep=True)
    assert (kind, path.rpartition("/")[2], action) == ("checksum_mismatch", "f", "report")


async def test_fsck_reads_objects_of_which_a_file_has_a_part(place: Yard) -> None:
    fs = place.client
    await fill(fs)
    first, _, _ = await names(fs, "/d/f")
    await place.volume.blobs.put(first, b"x" * 100)
    assert await findings(place) == []
    [(kind, path, action)] = await findings(place, deep=True)
    assert (kind, path.rpartition("/")[2], action) == ("checksum_mismatch", "f", "report")


async def test_fsck_reads_what_is_left_of_a_file(place: Yard) -> None:
    fs = place.client
    await fill(fs)
    _, second, third = await names(fs, "/d/f")
    await place.volume.blobs.delete(second)
    await place.volume.blobs.put(third, b"x" * 5)
    assert {kind for kind, _, _ in await findings(place, deep=True)} == {
        "checksum_mismatch",
        "data_missing",
    }


async def test_fsck_reports_a_size_that_is_not_that_of_the_extents(place: Yard) -> None:
    fs = place.client
    await fill(fs)
    await place.settle()
    await place.volume.items.write(Update(await place.key("/d/f"), Condition(), {"size": 4}))
    kinds = {kind for kind, _, _ in await findings(place)}
    assert "size_mismatch" in kinds


async def test_a_lost_table_comes_back_with_its_extents(place: Yard) -> None:
    fs = place.client
    content = await fill(fs)
    place.clock.advance(DAY)
    before = {status.path: status async for status in fs.list("/", recursive=True)}
    await place.settle()
    await fs.close()
    await lose_table(place)
    await restore_volume(place.config, dry_run=False)
    async with S3kClient(config=place.config) as again:
        after = {status.path: status async for status in again.list("/", recursive=True)}
        assert after == before
        assert has_extents(after["/d/f"].physical)
        assert await again.read("/d/f") == content
        await again.append("/d/f", b"!")
        assert await again.read("/d/f") == content + b"!"


async def test_restore_leaves_out_a_file_of_which_an_extent_is_lost(place: Yard) -> None:
    fs = place.client
    await fill(fs)
    last = (await names(fs, "/d/f"))[-1]
    await place.settle()
    await place.volume.blobs.delete(last)
    await fs.close()
    await lose_table(place)
    report = await restore_volume(place.config, dry_run=False)
    async with S3kClient(config=place.config) as again:
        assert await again.read("/d/whole") == b"w"
        assert not await again.exists("/d/f")
    assert report.counts["bytes_missing"] == 1


async def test_a_dump_carries_extents(place: Yard, tmp_path: Path) -> None:
    fs = place.client
    content = await fill(fs)
    dump = str(tmp_path / "dump.jsonl")
    await dump_volume(place.volume, dump)
    target = replace(memory_config(layout=place.config.layout or "path"))
    await load_volume(dump, target, bytes_from=place.volume)
    async with S3kClient(config=target) as loaded:
        assert await loaded.read("/d/f") == content
        assert await loaded.read("/d/whole") == b"w"
        mine = {info.key async for info in list_all(loaded._volume().blobs)}
        assert await live(loaded) <= mine


async def test_extents_are_not_loaded_into_a_volume_without_them(
    place: Yard, tmp_path: Path
) -> None:
    """A version that does not know them could open it, and would not find the bytes."""
    fs = place.client
    content = await fill(fs)
    dump = str(tmp_path / "dump.jsonl")
    await dump_volume(place.volume, dump)
    target = memory_config(layout=place.config.layout or "path")
    await init_volume(target, without=["extents"])
    async with S3kClient(config=target) as empty:
        blobs, mine = empty._volume().blobs, fs._volume().blobs
        for key in await live(fs):
            await blobs.put(key, await mine.get(key, 0, None))
    with pytest.raises(UnsupportedError, match="migrate --enable extents") as raised:
        await load_volume(dump, target, check=True)
    assert raised.value.path == "/d/f"
    async with S3kClient(config=target) as empty:
        assert [each async for each in empty.list("/")] == []
    await load_volume(dump, target, bytes_from=place.volume)
    async with S3kClient(config=target) as loaded:
        assert await loaded.read("/d/f") == content
        assert not has_extents((await loaded.stat("/d/f")).physical)


async def test_destroy_removes_every_object_of_extents(place: Yard) -> None:
    fs = place.client
    await fill(fs)
    await fs.close()
    assert await destroy_volume(place.config, force=True, runtime=place.runtime) == 0


async def test_two_entries_with_one_id_get_data_of_their_own(place: Yard) -> None:
    fs = place.client
    content = await fill(fs)
    await place.settle()
    entry = await place.volume.store.lookup("/d/f")
    twin = replace(entry, path="/d/twin")
    await place.volume.items.write(Put(to_item(twin, place.volume.store.keys), ABSENT))
    place.clock.advance(DAY)
    await repair_volume(place.volume, dry_run=False)
    assert await fs.read("/d/f") == await fs.read("/d/twin") == content
    assert not set(await names(fs, "/d/f")) & set(await names(fs, "/d/twin"))
