"""Tables that S3-FileSystem 1.0 wrote: opened for reading, if their keys are what the given suffix
count makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from s3k_async.backends.memory.memory_blobs import MemoryBlobs as MemoryBlobStore
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Item, ItemStore, Put
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.errors import (
    ConfigError,
    NotAVolumeError,
    ReadOnlyVolumeError,
    VolumeExistsError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.integrity.repair import verify_volume
from s3k_async.table.keys import Directory
from s3k_async.volumes import destroy_volume, init_volume, open_volume
from tests.engines.volumes import fresh_name, fresh_table
from tests.old_volume import suffix

HASHES = {
    "a": 97,
    "f1": 3211,
    "file": 3143036,
    "dir0": 3083587,
    "part-00000": -1741854250,
    "_SUCCESS": 1209037476,
    "é": 233,
    "😀": 1772899,
}
"""`java.lang.String.hashCode` of some names."""


def test_the_old_hash() -> None:
    for name, value in HASHES.items():
        assert suffix(name, 80) == abs(value) % 80


def legacy_item(volume: str, parent: str, name: str, count: int, **changes: Any) -> Item:
    item: dict[str, Any] = {
        "path": f"ks://{volume}{parent}-sf{suffix(name, count)}",
        "children": name,
        "isdir": False,
        "ctime": 1_600_000_000,
        "ver": 2,
        "id": "123e4567-e89b-12d3-a456-426614174000",
        "size": 3,
        "physpath": f"s3a://{volume}/0c9e.id=123e4567-e89b-12d3-a456-426614174000",
        "physcommitted": True,
    }
    return {**item, **changes}


class Legacy:
    def __init__(self, items: ItemStore, config: VolumeConfig) -> None:
        self.items = items
        self.config = config

    async def put(self, *items: Item) -> None:
        for item in items:
            await self.items.write(Put(item, ABSENT))

    async def fill(self, volume: str = "bucket", count: int = 10, parent: str = "/") -> None:
        await self.put(*(legacy_item(volume, parent, name, count) for name in HASHES))


@pytest.fixture(params=["memory", pytest.param("dynoxide", marks=pytest.mark.engine)])
async def legacy(request: pytest.FixtureRequest) -> AsyncIterator[Legacy]:
    name = fresh_name("legacy")
    await MemoryBlobStore(name).create()
    config = VolumeConfig(
        "bucket", MemoryTable(name), MemoryBlobs(name), kind="s3k-1.0", suffix_count=10
    )
    if request.param == "memory":
        items = MemoryItems(name)
        await items.create()
        yield Legacy(items, config)
    else:
        from s3k_async.testing import DynamoItems

        with fresh_table(request.getfixturevalue("dynoxide")) as table:
            store = DynamoItems(table.name, table.aws)
            await store.create()
            yield Legacy(store, replace(config, table=table))
            await store.close()


@pytest.mark.parametrize("kind", ["s3k-1.0", None])
async def test_it_opens_for_reading(legacy: Legacy, kind: Any) -> None:
    await legacy.fill()
    volume = await open_volume(replace(legacy.config, kind=kind))
    assert volume.read_only
    assert (volume.record.kind, volume.config.kind, volume.config.hash) == (
        "s3k-1.0",
        "s3k-1.0",
        "java31",
    )
    entry = await volume.store.get("/part-00000")
    assert entry is not None
    assert (entry.version, entry.size, entry.mtime_ms) == (2, 3, 1_600_000_000_000)
    names = {
        child.path async for page in volume.store.children(Directory.at("/")) for child in page
    }
    assert names == {f"/{name}" for name in HASHES}
    with pytest.raises(ReadOnlyVolumeError):
        await volume.store.prepare("/new")
    with pytest.raises(ReadOnlyVolumeError):
        await volume.store.make_directory("/new")
    await volume.close()
    assert (await legacy.items.scan(0, 1)).items.__len__() == len(HASHES)


@pytest.mark.parametrize("count", [1, 3, 5, 9, 11, 20, 80])
async def test_another_suffix_count_is_refused(legacy: Legacy, count: int) -> None:
    await legacy.fill()
    for kind in ("s3k-1.0", None):
        config = replace(legacy.config, suffix_count=count, kind=kind)
        with pytest.raises(VolumeMismatchError, match=f"not written with suffix count {count}"):
            await open_volume(config)


async def test_entries_far_below_the_root_tell_as_well(legacy: Legacy) -> None:
    await legacy.fill(parent="/deep/down")
    await (await open_volume(legacy.config)).close()
    with pytest.raises(VolumeMismatchError):
        await open_volume(replace(legacy.config, suffix_count=20))


async def test_other_volumes_in_the_table_do_not_matter(legacy: Legacy) -> None:
    await legacy.fill()
    await legacy.fill("bucket-2", 7)
    volume = await open_volume(legacy.config)
    names = {
        child.path async for page in volume.store.children(Directory.at("/")) for child in page
    }
    assert names == {f"/{name}" for name in HASHES}
    await volume.close()


async def test_a_small_volume_in_a_table_full_of_another_is_still_checked() -> None:
    name = fresh_name("legacy")
    config = VolumeConfig(
        "bucket", MemoryTable(name), MemoryBlobs(name), kind="s3k-1.0", suffix_count=10
    )
    legacy = Legacy(MemoryItems(name), config)
    await MemoryItems(name).create()
    for number in range(3000):
        await legacy.put(legacy_item("a-big-one", f"/{number}", "a", 7))
    await legacy.fill()
    with pytest.raises(VolumeMismatchError):
        await open_volume(replace(legacy.config, suffix_count=20))


@pytest.mark.parametrize("kind", ["s3k-1.0", None])
async def test_an_empty_table_is_accepted(legacy: Legacy, kind: Any) -> None:
    volume = await open_volume(replace(legacy.config, kind=kind))
    assert volume.read_only
    assert [page async for page in volume.store.children(Directory.at("/")) if page] == []
    await volume.close()


@pytest.mark.parametrize(
    "item",
    [
        {"path": "no-entry", "children": "x"},
        {"path": "ks://bucket/nosuffix", "children": "a"},
        legacy_item("bucket", "/", "a", 10, ver=0),
        legacy_item("bucket", "/", "a", 10, physpath=7),
    ],
)
async def test_items_that_are_no_entries_are_refused(legacy: Legacy, item: Item) -> None:
    await legacy.put(item)
    with pytest.raises(NotAVolumeError):
        await open_volume(legacy.config)


BAD: dict[str, Item] = {
    "foreign": {"path": "no-entry", "children": "x"},
    "undecodable": {"path": "ks://bucket/nosuffix", "children": "a"},
    "malformed": legacy_item("bucket", "/", "new", 10, ver=0),
    "misplaced": legacy_item("bucket", "/", "new", 10, path="ks://bucket/-sf3"),
}


@pytest.mark.parametrize("bad", sorted(BAD))
async def test_one_bad_item_among_many_does_not_keep_it_closed(
    legacy: Legacy, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    await legacy.fill()
    await legacy.put(BAD[bad])
    volume = await open_volume(legacy.config)
    assert "run fsck" in caplog.text
    for name in HASHES:
        assert await volume.store.get(f"/{name}") is not None
    found = {finding.kind for finding in (await verify_volume(volume, grace=-60.0)).problems}
    assert found & {"foreign_item", "item_damaged", "item_misplaced"}
    await volume.close()


@pytest.mark.parametrize("count", [3, 5, 9, 11, 20, 80])
async def test_another_suffix_count_is_refused_beside_bad_items(legacy: Legacy, count: int) -> None:
    await legacy.fill()
    await legacy.put(*BAD.values())
    with pytest.raises(
        VolumeMismatchError, match=f"not written with suffix count {count}: .* it may be"
    ):
        await open_volume(replace(legacy.config, suffix_count=count))


async def test_half_of_a_volume_misplaced_is_another_count(legacy: Legacy) -> None:
    """With twice the count, half of the names have the same suffix by chance."""
    await legacy.put(*(legacy_item("bucket", "/", f"part-{n:05}", 10) for n in range(100)))
    with pytest.raises(VolumeMismatchError, match="it may be 10"):
        await open_volume(replace(legacy.config, suffix_count=20))
    await (await open_volume(legacy.config)).close()


async def test_without_a_record_a_suffix_count_is_needed(legacy: Legacy) -> None:
    await legacy.fill()
    with pytest.raises(ConfigError, match="suffix_count"):
        await open_volume(replace(legacy.config, kind=None, suffix_count=None))
    with pytest.raises(NotAVolumeError):
        await open_volume(replace(legacy.config, kind="native"))


async def test_a_native_table_is_native_whatever_the_mapping_leaves_open() -> None:
    name = fresh_name("native")
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), suffix_count=3)
    await init_volume(config)
    volume = await open_volume(replace(config, kind=None))
    assert not volume.read_only
    assert volume.record.kind == "native"
    await volume.close()
    with pytest.raises(VolumeMismatchError, match="native"):
        await open_volume(replace(config, kind="s3k-1.0"))
    with pytest.raises(VolumeMismatchError, match="suffix_count"):
        await open_volume(replace(config, kind=None, suffix_count=4))


async def test_it_is_not_destroyed(legacy: Legacy) -> None:
    await legacy.fill()
    with pytest.raises(ReadOnlyVolumeError):
        await destroy_volume(legacy.config, force=True)
    with pytest.raises(NotAVolumeError):
        await destroy_volume(replace(legacy.config, kind=None), force=True)
    assert len((await legacy.items.scan(0, 1)).items) == len(HASHES)


async def test_a_missing_table_or_bucket_is_named(legacy: Legacy) -> None:
    with pytest.raises(VolumeNotFoundError, match="table does not exist"):
        await open_volume(replace(legacy.config, table=MemoryTable("nowhere")))
    with pytest.raises(VolumeNotFoundError) as caught:
        await open_volume(replace(legacy.config, data=MemoryBlobs("nowhere")))
    assert caught.value.path == "memory://nowhere/"


async def test_init_does_not_guess_whose_an_empty_table_is(legacy: Legacy) -> None:
    config = replace(legacy.config, kind=None)
    for exist_ok in (False, True):
        with pytest.raises(ConfigError, match=r"fs\.s3k\.volume\.kind\.bucket = native"):
            await init_volume(config, exist_ok=exist_ok)
    assert (await legacy.items.scan(0, 1)).items == []
    store = MemoryBlobStore(str(getattr(config.data, "name", "")))
    assert [info async for info in list_all(store)] == []
    missing = replace(config, table=MemoryTable(fresh_name("missing")))
    with pytest.raises(ConfigError, match="kind"):
        await init_volume(missing)


async def test_a_volume_that_exists_decides_its_kind_at_init() -> None:
    name = fresh_name("native")
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), suffix_count=3)
    record = await init_volume(config)
    assert await init_volume(replace(config, kind=None), exist_ok=True) == record
    with pytest.raises(VolumeExistsError):
        await init_volume(replace(config, kind=None))
