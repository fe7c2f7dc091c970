"""No volume touches, or lists, what belongs to a neighbour at the same location."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.local.local_blobs import LocalBlobs
from s3k_async.backends.memory.memory_blobs import MemoryBlobs as MemoryBlobStore
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import ABSENT, Item, Put
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import LocalDirectory, MemoryBlobs, MemoryTable, SqliteFile, VolumeConfig
from s3k_async.errors import (
    NotAVolumeError,
    UnsupportedError,
    VolumeExistsError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_mark import CollectedData
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.gc_sweep import GarbageCollector
from s3k_async.integrity.repair import repair_volume
from s3k_async.migrate import dump_volume, load_volume, reshard_volume
from s3k_async.model import Content
from s3k_async.oplog.compaction import Compactor
from s3k_async.oplog.log_reader import DamagedLog, LogReader
from s3k_async.testing import FaultPlan
from s3k_async.txn.volume_record import SCOPE
from s3k_async.volumes import Volume, creation, destroy_volume, init_volume, open_volume
from s3k_async.volumes.claims import CLAIM, belongs_to_a_volume
from s3k_async.volumes.restoration import restore_volume
from tests.engines.volumes import VolumeMaker, fresh_name, volume_backends
from tests.migrate.rig import HURRIED
from tests.old_volume import OldFiles
from tests.support import under

NOW = Ages(grace=-100.0, lease=0.0, late=-100.0)
"""To which everything is old."""
Bytes = dict[str, bytes]
NEW_RECORD = creation._new_record


def settings(**changes: object) -> VolumeConfig:
    name = fresh_name("owner")
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), suffix_count=3)
    return replace(config, **changes)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(config: VolumeConfig, faults: FaultPlan | None = None) -> AsyncIterator[Volume]:
    volume = await under(faults, open_volume(replace(config, suffix_count=None)))
    try:
        yield volume
    finally:
        await volume.close()


async def everything(blobs: BlobStore) -> Bytes:
    return {info.key: await blobs.get(info.key) async for info in list_all(blobs)}


async def fill(config: VolumeConfig) -> Bytes:
    """Files, some replaced, moved and deleted; what is there afterwards."""
    async with S3kClient(config=config) as fs:
        for number in range(4):
            await fs.write(f"/d/{number}", b"%d" % number)
        await fs.write("/d/0", b"again")
        await fs.rename("/d/1", "/moved")
        await fs.delete("/d/2")
        await fs.write_many([("/e/1", b"one"), ("/e/2", b"two")])
        await fs.rename("/e", "/f")
    return await contents(config)


async def contents(config: VolumeConfig) -> Bytes:
    async with S3kClient(config=replace(config, suffix_count=None)) as fs:
        return {
            each.path: await fs.read(each.path)
            async for each in fs.list("/", recursive=True)
            if each.is_file
        }


async def plant(blobs: BlobStore, config: VolumeConfig) -> Bytes:
    """A neighbour of each kind at a location: a volume of S3-FileSystem 1.0, an older native one,
    another one with a scope of its own, and somebody's files; their objects."""
    before = await everything(blobs)
    items = MemoryItems(fresh_name("old"))
    await items.create()
    old = OldFiles(config.name, items, blobs, 3)
    await old.file("/old/f", b"bytes of 1.0")
    await old.reserve("/old/g")
    await blobs.put(f"{SYSTEM.uuid()}.id={SYSTEM.uuid()}", b"bytes without a log")
    other = f"{SCOPE}{SYSTEM.uuid()}"
    await blobs.put(
        f"{other}/{SYSTEM.uuid()}.id={SYSTEM.uuid()}", b"bytes of another native volume"
    )
    await blobs.put(
        f"{other}/entries/00/{SYSTEM.uuid()}.0000000002.{SYSTEM.uuid()}.committed", b"its log"
    )
    for key in ("aaa/part-0", "zzz", "0/part-0", "entries/x", "segments/y"):
        await blobs.put(key, b"somebody's")
    after = await everything(blobs)
    return {key: data for key, data in after.items() if key not in before}


# The operator's tools


async def collect(config: VolumeConfig, directory: Path) -> None:
    async with opened(config) as volume:
        collector = GarbageCollector(
            CollectedData.of(volume), SYSTEM, NOW, AuditTrail(volume.log_blobs, SYSTEM.uuid(), None)
        )
        path = str(directory / "candidates")
        await collector.clean_up(await collector.mark(path))
        assert (await collector.sweep(path)).failures == []


async def repair(config: VolumeConfig, directory: Path) -> None:
    async with opened(config) as volume:
        assert (await repair_volume(volume, dry_run=False, grace=-100.0)).left.problems == []


async def compact(config: VolumeConfig, directory: Path) -> None:
    async with opened(config) as volume:
        assert volume.log_blobs is not None
        await Compactor(volume.log_blobs, SYSTEM, grace=-100.0).run(dry_run=False)


async def reshard(config: VolumeConfig, directory: Path) -> None:
    await reshard_volume(replace(config, suffix_count=None), 5, runtime=HURRIED)


async def restore(config: VolumeConfig, directory: Path) -> None:
    """The table is lost, and made again."""
    assert isinstance(config.table, MemoryTable)
    await MemoryItems(config.table.name).drop()
    await restore_volume(replace(config, suffix_count=None), dry_run=False, runtime=HURRIED)


async def load(config: VolumeConfig, directory: Path) -> None:
    """The table is lost, and loaded from a dump into the volume that is made again."""
    dump = str(directory / "dump")
    async with opened(config) as volume:
        await dump_volume(volume, dump)
    assert isinstance(config.table, MemoryTable)
    await MemoryItems(config.table.name).drop()
    await load_volume(dump, replace(config, suffix_count=None), runtime=HURRIED)


TOOLS: dict[str, Callable[[VolumeConfig, Path], Awaitable[None]]] = {
    "gc": collect,
    "repair": repair,
    "compact": compact,
    "reshard": reshard,
    "restore": restore,
    "load": load,
}


@pytest.mark.parametrize("log", ["beside the data", "elsewhere"])
@pytest.mark.parametrize("tool", TOOLS)
async def test_the_tools_leave_a_neighbours_objects_alone(
    tool: str, log: str, tmp_path: Path
) -> None:
    config = (
        settings() if log == "beside the data" else settings(log=MemoryBlobs(fresh_name("log")))
    )
    await init_volume(config)
    stores = [
        MemoryBlobStore(place.name)
        for place in (config.data, config.log)
        if isinstance(place, MemoryBlobs)
    ]
    before = await fill(config)
    planted = [await plant(blobs, config) for blobs in stores]
    await TOOLS[tool](config, tmp_path)
    assert await contents(config) == before
    for blobs, objects in zip(stores, planted, strict=True):
        assert objects.items() <= (await everything(blobs)).items()
    await destroy_volume(replace(config, suffix_count=None), force=True)
    assert [await everything(blobs) for blobs in stores] == planted


async def test_no_listing_goes_outside_of_the_volumes_own_prefix(tmp_path: Path) -> None:
    config = settings()
    record = await init_volume(config)
    await fill(config)
    faults = FaultPlan()
    async with opened(config, faults) as volume:
        collector = GarbageCollector(
            CollectedData.of(volume), SYSTEM, NOW, AuditTrail(volume.log_blobs, SYSTEM.uuid(), None)
        )
        path = str(tmp_path / "candidates")
        await collector.clean_up(await collector.mark(path))
        await collector.sweep(path)
        await repair_volume(volume, dry_run=False, grace=-100.0)
        assert volume.log_blobs is not None
        await Compactor(volume.log_blobs, SYSTEM, grace=-100.0).run(dry_run=False)
    await under(faults, destroy_volume(replace(config, suffix_count=None), force=True))
    listed = [call.key for call in faults.calls if call.method in ("list", "list_uploads")]
    assert len(listed) > 10
    assert {key for key in listed if not key.startswith(record.scope)} == set()
    written = {
        call.key for call in faults.calls if call.method in ("put", "delete", "start_upload")
    }
    assert {key for key in written if not key.startswith(record.scope)} == {CLAIM}


# Older volumes, which have no scope


@pytest.fixture
def unscoped(monkeypatch: pytest.MonkeyPatch) -> None:
    """New volumes are as they were before there were scopes."""
    make = creation._new_record
    monkeypatch.setattr(
        creation,
        "_new_record",
        lambda config, runtime, **features: replace(make(config, runtime, **features), flags=()),
    )


@pytest.mark.usefixtures("unscoped")
@pytest.mark.parametrize("tool", TOOLS)
async def test_an_older_volume_deletes_only_what_its_log_names(tool: str, tmp_path: Path) -> None:
    config = settings(log=MemoryBlobs(fresh_name("log")))
    assert (await init_volume(config)).flags == ()
    assert isinstance(config.data, MemoryBlobs)
    blobs = MemoryBlobStore(config.data.name)
    before = await fill(config)
    planted = await plant(blobs, config)
    await TOOLS[tool](config, tmp_path)
    assert await contents(config) == before
    assert planted.items() <= (await everything(blobs)).items()
    await destroy_volume(replace(config, suffix_count=None), force=True)
    assert await everything(blobs) == planted


@pytest.mark.parametrize("inside", ["audit", "checkpoints/of/all", "quarantine"])
async def test_destruction_of_an_older_volume_keeps_a_volume_inside_its_log_location(
    inside: str, unscoped: None, tmp_path: Path
) -> None:
    """Its directory has the name of a part of a log."""
    home = f"{tmp_path}/old"
    config = VolumeConfig(
        "old",
        SqliteFile(f"{home}/s3k.sqlite"),
        LocalDirectory(f"{home}/data"),
        log=LocalDirectory(f"{home}/log"),
    )
    await init_volume(config)
    await fill(config)
    other = VolumeConfig(
        "new", MemoryTable(fresh_name("table")), LocalDirectory(f"{home}/log/{inside}")
    )
    await init_volume(other)
    before = await fill(other)
    await destroy_volume(config, force=True)
    entries = tmp_path / "old" / "log" / "entries"
    assert [each for each in entries.rglob("*") if each.is_file()] == []
    assert await contents(other) == before
    await restore(other, tmp_path)
    assert await contents(other) == before


@pytest.mark.parametrize(
    ("inside", "scoped"),
    [
        ("entries", True),
        ("entries/0f", False),
        ("segments", True),
        ("segments", False),
        ("checkpoints/manifests", True),
    ],
)
@pytest.mark.parametrize("tool", TOOLS)
async def test_the_tools_of_an_older_volume_keep_a_volume_inside_its_log_location(
    tool: str, inside: str, scoped: bool, unscoped: None, tmp_path: Path
) -> None:
    """Nor do they take its objects for damaged ones of the log."""
    log = LocalDirectory(str(tmp_path / "log"))
    config = settings(log=log)
    await init_volume(config)
    before = await fill(config)
    other = settings(data=LocalDirectory(f"{log.path}/{inside}"))
    blobs = LocalBlobs(f"{log.path}/{inside}")
    own = await everything(blobs) if await blobs.exists() else {}
    with pytest.MonkeyPatch.context() as patch:
        if scoped:
            patch.setattr(creation, "_new_record", NEW_RECORD)
        await init_volume(other)
    theirs = await fill(other)
    planted = {key: data for key, data in (await everything(blobs)).items() if key not in own}
    await TOOLS[tool](config, tmp_path)
    async with opened(config) as volume:
        assert volume.log_blobs is not None
        records = [each async for each in LogReader(volume.log_blobs).records()]
        assert [each for each in records if isinstance(each, DamagedLog)] == []
    left = await everything(blobs)
    assert {key for key, data in planted.items() if left.get(key) != data} == set()
    assert (await contents(config), await contents(other)) == (before, theirs)


@pytest.mark.usefixtures("unscoped")
async def test_an_older_volume_still_collects_what_its_log_names(tmp_path: Path) -> None:
    config = settings()
    await init_volume(config)
    before = await fill(config)
    async with opened(config) as volume:
        await volume.blobs.put(f"{SYSTEM.uuid()}.id={SYSTEM.uuid()}", b"in no log")
        assert volume.log_blobs is not None
        collector = GarbageCollector(
            CollectedData.of(volume), SYSTEM, NOW, AuditTrail(volume.log_blobs, SYSTEM.uuid(), None)
        )
        marked = await collector.mark(str(tmp_path / "candidates"))
        swept = await collector.sweep(str(tmp_path / "candidates"))
    assert (
        marked.of("unowned").objects,
        swept.deleted["replaced"].objects,
        swept.deleted["deleted"].objects,
    ) == (
        1,
        1,
        1,
    )
    assert await contents(config) == before


# Two tables and one location


async def copy_of(config: VolumeConfig) -> VolumeConfig:
    """The same items in a table of another name."""
    assert isinstance(config.table, MemoryTable)
    copy = replace(config, table=MemoryTable(fresh_name("copy")))
    assert isinstance(copy.table, MemoryTable)
    target = MemoryItems(copy.table.name)
    await target.create()
    for item in await snapshot(config):
        await target.write(Put(item, ABSENT))
    return replace(copy, suffix_count=None)


async def snapshot(config: VolumeConfig) -> list[Item]:
    assert isinstance(config.table, MemoryTable)
    page = await MemoryItems(config.table.name).scan(0, 1, limit=100_000)
    return [dict(item) for item in page.items]


async def test_a_copied_table_cannot_use_the_location(tmp_path: Path) -> None:
    config = settings()
    await init_volume(config)
    before = await fill(config)
    copy = await copy_of(config)
    assert isinstance(config.data, MemoryBlobs)
    stored = await everything(MemoryBlobStore(config.data.name))
    with pytest.raises(VolumeMismatchError, match="take-over"):
        await open_volume(copy)
    for tool in (collect, repair, compact, reshard):
        with pytest.raises(VolumeMismatchError, match="take-over"):
            await tool(copy, tmp_path)
    with pytest.raises(VolumeMismatchError, match="take-over"):
        await destroy_volume(copy, force=True)
    with pytest.raises(VolumeMismatchError, match="take-over"):
        await restore_volume(copy, subtree="/d", dry_run=False, runtime=HURRIED)
    with pytest.raises((VolumeExistsError, VolumeNotFoundError)):
        await restore(replace(copy, table=MemoryTable(fresh_name("third"))), tmp_path)
    assert await everything(MemoryBlobStore(config.data.name)) == stored
    assert await contents(config) == before


async def test_a_restored_table_takes_the_location_over_when_told_to() -> None:
    config = settings()
    await init_volume(config)
    before = await fill(config)
    copy = await copy_of(config)
    with pytest.raises(VolumeNotFoundError, match="holds no volume"):
        await init_volume(replace(copy, table=MemoryTable(fresh_name("empty"))), take_over=True)
    await init_volume(copy, take_over=True)
    assert await contents(copy) == before
    with pytest.raises(VolumeMismatchError, match="restored under another name"):
        await open_volume(config)
    await init_volume(config, take_over=True)
    assert await contents(config) == before


async def test_a_second_table_with_a_record_of_its_own_cannot_move_in() -> None:
    config = settings()
    await init_volume(config)
    second = settings(data=config.data)
    with pytest.raises(VolumeExistsError, match="belongs to the volume"):
        await init_volume(second)
    other = settings()
    await init_volume(other)
    # Somebody edits its record, or the settings and the record alike.
    record = (await snapshot(other))[0]
    assert isinstance(other.table, MemoryTable)
    await MemoryItems(other.table.name).drop()
    await MemoryItems(other.table.name).create()
    changed = {
        **record,
        "data": f"memory://{config.name}/",
        "log": f"memory://{config.name}/oplog/",
    }
    await MemoryItems(other.table.name).write(Put(changed, ABSENT))
    assert isinstance(config.data, MemoryBlobs)
    stored = await everything(MemoryBlobStore(config.data.name))
    moved = replace(other, data=config.data, suffix_count=None)
    with pytest.raises(VolumeMismatchError, match="record is a copy"):
        await open_volume(moved)
    with pytest.raises(VolumeMismatchError, match="record is a copy"):
        await destroy_volume(moved, force=True)
    assert await everything(MemoryBlobStore(config.data.name)) == stored


@pytest.mark.parametrize("tool", ["gc", "repair"])
async def test_an_older_table_restored_in_place_loses_nothing_that_the_log_knows(
    tool: str, tmp_path: Path
) -> None:
    config = settings()
    await init_volume(config)
    older_paths = (await fill(config)).keys()
    older = await snapshot(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/since", b"written since the backup")
        await fs.write("/d/3", b"replaced since the backup")
    newest = await contents(config)
    assert isinstance(config.table, MemoryTable)
    await MemoryItems(config.table.name).drop()
    await MemoryItems(config.table.name).create()
    for item in older:
        await MemoryItems(config.table.name).write(Put(item, ABSENT))
    assert isinstance(config.data, MemoryBlobs)
    await TOOLS[tool](config, tmp_path)
    assert set(newest.values()) <= set(
        (await everything(MemoryBlobStore(config.data.name))).values()
    )
    assert (await contents(config)).keys() >= older_paths
    if tool == "gc":
        await restore(config, tmp_path)
        assert await contents(config) == newest
    else:
        assert await contents(config) == {**newest, "/d/3": b"3"}, (
            "repair takes the table's word for what it has"
        )


async def test_a_missing_mark_is_written_again() -> None:
    config = settings()
    await init_volume(config)
    before = await fill(config)
    assert isinstance(config.data, MemoryBlobs)
    await MemoryBlobStore(config.data.name).delete(CLAIM)
    assert await contents(config) == before
    with pytest.raises(NotAVolumeError, match="take-over"):
        await destroy_volume(replace(config, suffix_count=None), force=True)
    await init_volume(config, take_over=True)
    await restore_volume(
        replace(config, suffix_count=None), subtree="/", dry_run=False, runtime=HURRIED
    )
    assert await contents(config) == before


# Locations that are somebody's


NEIGHBOURS = {
    "log of 1.0": "123e4567-e89b-12d3-a456-426614174000.info",
    "bytes of 1.0": "0e0e0e0e-e89b-42d3-a456-426614174000.id=123e4567-e89b-12d3-a456-426614174000",
    "another volume": f"{SCOPE}123e4567-e89b-12d3-a456-426614174000/x",
}


@pytest.mark.parametrize("key", NEIGHBOURS.values(), ids=list(NEIGHBOURS))
@pytest.mark.parametrize("place", ["data", "log"])
async def test_a_location_with_objects_of_another_volume_is_refused(
    place: str, key: str, tmp_path: Path
) -> None:
    source = settings()
    await init_volume(source)
    await fill(source)
    async with opened(source) as volume:
        await dump_volume(volume, str(tmp_path / "dump"))
    config = settings(log=MemoryBlobs(fresh_name("log")))
    location = config.data if place == "data" else config.log
    assert isinstance(location, MemoryBlobs)
    blobs = MemoryBlobStore(location.name)
    await blobs.create()
    for number in range(2100):  # over two pages, most of it in one directory
        await blobs.put(f"0/{number}" if number < 2050 else f"{number}", b"")
    await blobs.put(key, b"precious")
    for make in (
        lambda: init_volume(config),
        lambda: load_volume(str(tmp_path / "dump"), config, runtime=HURRIED),
    ):
        with pytest.raises(VolumeExistsError, match=r"docs/moving\.md"):
            await make()
    assert await blobs.head(CLAIM) is None
    assert await blobs.get(key) == b"precious"
    await blobs.delete(key)
    await init_volume(config)


async def test_a_refused_log_location_leaves_no_mark_at_the_data() -> None:
    first = settings(log=MemoryBlobs(fresh_name("log")))
    await init_volume(first)
    refused = settings(log=first.log)
    with pytest.raises(VolumeExistsError, match="belongs to the volume"):
        await init_volume(refused)
    await init_volume(settings(data=refused.data))


@volume_backends("embedded", "dynoxide+seaweedfs")
async def test_what_is_there_is_looked_at_by_the_directory(new_volume: VolumeMaker) -> None:
    config, neighbour = new_volume(), new_volume()
    await init_volume(neighbour)
    async with opened(neighbour) as volume:
        for number in range(30):
            await volume.place.put(f"b/{number}", b"")
        await volume.place.put("c", b"")
    with pytest.raises(VolumeExistsError, match="belongs to the volume"):
        await init_volume(replace(config, data=neighbour.data))
    await fill(neighbour)
    async with opened(neighbour) as volume:
        await volume.place.delete(CLAIM)
        await volume.place.delete(f"oplog/{CLAIM}")
    with pytest.raises(VolumeExistsError, match="objects of another volume"):
        await init_volume(replace(config, data=neighbour.data))
    await init_volume(neighbour, take_over=True)


async def test_objects_of_a_volume_are_not_adopted() -> None:
    config = settings()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        place = fs._volume().place
        for key in [
            *NEIGHBOURS.values(),
            f"sub/{CLAIM}",
            f"sub/{NEIGHBOURS['another volume']}",
            f"sub/{NEIGHBOURS['log of 1.0']}",
        ]:
            await place.put(key, b"x")
            assert belongs_to_a_volume(key)
            with pytest.raises(UnsupportedError, match="belongs to a volume"):
                async with fs.transaction() as tx:
                    await tx.adopt("/f", place.uri(key))
        await place.put("part-0.parquet", b"x")
        assert not (await fs.adopt_many([("/f", place.uri("part-0.parquet"))])).failures


# Embedded volumes


async def test_an_embedded_volume_may_be_moved_and_reached_by_a_link_but_its_table_not_copied(
    tmp_path: Path,
) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    config = VolumeConfig(
        "vol", SqliteFile(str(home / "t.sqlite")), LocalDirectory(str(data)), suffix_count=2
    )
    await init_volume(config)
    await fill(config)
    (tmp_path / "link").symlink_to(home)
    linked = replace(config, table=SqliteFile(str(tmp_path / "link" / "t.sqlite")))
    async with opened(linked):
        pass
    (home / "copy.sqlite").write_bytes((home / "t.sqlite").read_bytes())
    with pytest.raises(VolumeMismatchError, match="take-over"):
        await open_volume(
            replace(config, table=SqliteFile(str(home / "copy.sqlite")), suffix_count=None)
        )


async def test_a_copy_of_an_embedded_volume_whose_log_is_elsewhere_is_refused(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    config = VolumeConfig(
        "vol",
        SqliteFile(str(home / "t.sqlite")),
        LocalDirectory(str(home / "data")),
        LocalDirectory(str(tmp_path / "log")),
    )
    await init_volume(config)
    await fill(config)
    shutil.copytree(home, tmp_path / "copy")
    table, data = (
        SqliteFile(str(tmp_path / "copy" / "t.sqlite")),
        LocalDirectory(str(tmp_path / "copy" / "data")),
    )
    copy = replace(config, table=table, data=data)
    with pytest.raises(VolumeMismatchError, match="take-over"):
        await open_volume(copy)
    with pytest.raises(VolumeMismatchError, match="take-over"):
        await destroy_volume(copy, force=True)
    second = replace(config, name="other", table=SqliteFile(str(tmp_path / "b" / "t.sqlite")))
    with pytest.raises(VolumeExistsError, match="belongs to the volume"):
        await init_volume(replace(second, data=LocalDirectory(str(tmp_path / "b" / "data"))))
    await contents(config)


@pytest.mark.parametrize("place", ["data", "log", "hot"])
async def test_a_new_volume_is_refused_in_the_directory_of_an_empty_one(
    place: str, tmp_path: Path
) -> None:
    """The marks of an embedded volume name its table without the directory, and a second one whose
    table has the same name would share the id, and so the bytes, of the first."""
    first, second = (
        VolumeConfig(
            name,
            SqliteFile(str(tmp_path / name / "metadata.sqlite")),
            LocalDirectory(str(tmp_path / name / "data")),
            LocalDirectory(str(tmp_path / name / "oplog")),
        )
        for name in ("first", "second")
    )
    hot = str(tmp_path / "first" / "hot")
    await init_volume(first, hot=hot)
    places = [tmp_path / "first" / each / CLAIM for each in ("data", "oplog", "hot")]
    marks = [each.read_bytes() for each in places]
    intruder = {
        "data": replace(second, data=first.data),
        "log": replace(second, log=first.log),
        "hot": second,
    }[place]
    with pytest.raises(VolumeExistsError, match="belongs to the volume 'first'"):
        await init_volume(intruder, hot=hot if place == "hot" else "")
    assert [each.read_bytes() for each in places] == marks
    await fill(first)


@pytest.mark.parametrize("part", ["data", "log"])
async def test_an_unmounted_disk(part: str, tmp_path: Path) -> None:
    """Without the log, gc would delete what was just deleted, and without the data, a move of tiers
    would delete its source."""
    home, place = tmp_path / "home", tmp_path / "d"
    config = VolumeConfig(
        "vol",
        SqliteFile(str(home / "t.sqlite")),
        LocalDirectory(str(place if part == "data" else home / "data")),
        LocalDirectory(str(place if part == "log" else home / "log")),
    )
    await init_volume(config)
    before = await fill(config)
    place.rename(tmp_path / "away")
    place.mkdir()
    for tool in (collect, repair, compact, reshard):
        with pytest.raises(VolumeNotFoundError, match="not mounted"):
            await tool(config, tmp_path)
    with pytest.raises(VolumeNotFoundError, match="not mounted"):
        await contents(config)
    place.rmdir()
    (tmp_path / "away").rename(place)
    (place / CLAIM).unlink()
    await init_volume(config, take_over=True)
    assert await contents(config) == before


async def test_a_volume_whose_table_is_lost_is_not_made_anew_over_its_bytes(tmp_path: Path) -> None:
    config = settings()
    await init_volume(config)
    before = await fill(config)
    assert isinstance(config.table, MemoryTable)
    await MemoryItems(config.table.name).drop()
    with pytest.raises(VolumeExistsError, match="restore"):
        await init_volume(config)
    await restore_volume(replace(config, suffix_count=None), dry_run=False, runtime=HURRIED)
    assert await contents(config) == before


async def test_only_the_volume_that_a_mark_names_can_take_its_location_over() -> None:
    config, other = settings(), settings()
    await init_volume(config)
    await init_volume(other)
    thief = replace(await copy_of(other), data=config.data)
    assert isinstance(thief.table, MemoryTable)
    items = MemoryItems(thief.table.name)
    record = next(item for item in await snapshot(thief) if item["path"] == "s3k:volume")
    await items.drop()
    await items.create()
    places = {"data": f"memory://{config.name}/", "log": f"memory://{config.name}/oplog/"}
    await items.write(Put({**record, **places}, ABSENT))
    with pytest.raises(VolumeExistsError, match="belongs to the volume"):
        await init_volume(thief, take_over=True)
    await contents(config)


async def test_a_damaged_mark_is_written_again() -> None:
    config = settings()
    await init_volume(config)
    before = await fill(config)
    assert isinstance(config.data, MemoryBlobs)
    await MemoryBlobStore(config.data.name).put(CLAIM, b"")
    with pytest.raises(NotAVolumeError, match="damaged"):
        await open_volume(config)
    await init_volume(config, take_over=True)
    assert await contents(config) == before


@pytest.mark.usefixtures("unscoped")
async def test_an_older_volume_does_not_collect_what_it_has_adopted(tmp_path: Path) -> None:
    config = settings()
    await init_volume(config)
    async with opened(config) as volume:
        key = f"{SYSTEM.uuid()}.id={SYSTEM.uuid()}"
        await volume.place.put(key, b"of another system")
        uri = volume.place.uri(key)
        target = await volume.store.prepare("/f")
        await volume.store.publish(target, Content(uri, 17, "", ""))
    async with S3kClient(config=config) as fs:
        await fs.delete("/f")
    await collect(config, tmp_path)
    assert isinstance(config.data, MemoryBlobs)
    assert await MemoryBlobStore(config.data.name).get(key) == b"of another system"
