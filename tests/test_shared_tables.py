"""Several volumes in one table: each has its own prefix, record and lock."""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import count
from typing import TypeAlias

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import Item, Key
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.backends.retrying.prefixed_items import CATALOG
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.errors import (
    VolumeNotFoundError,
)
from s3k_async.model import LayoutName
from s3k_async.txn.volume_record import RECORD_KEY
from s3k_async.volumes.connections import VolumeConnections
from s3k_async.volumes.creation import init_volume
from s3k_async.volumes.destruction import destroy_volume
from tests.migrate.rig import FILES, HURRIED, fill

Items: TypeAlias = dict[Key, Item]
LAYOUTS: tuple[LayoutName, ...] = ("path", "tree")
_tables = (f"shared-{number}" for number in count())


def volume(table: str, prefix: str, layout: LayoutName = "path") -> VolumeConfig:
    """A volume in a table in memory. All have the same name: it is no part of the prefix."""
    data = f"{table}-{prefix or 'alone'}"
    return VolumeConfig(
        "data",
        MemoryTable(table),
        MemoryBlobs(data),
        suffix_count=4,
        layout=layout,
        table_prefix=prefix,
    )


async def table_items(config: VolumeConfig) -> Items:
    """All items of the table, by their keys in it."""
    async with AsyncExitStack() as stack:
        whole, _ = VolumeConnections(config, SYSTEM, None, stack).whole_table()
        return {
            Key(str(item["path"]), str(item["children"])): dict(item)
            async for page in scan_all(whole)
            for item in page
        }


async def own_items(config: VolumeConfig) -> Items:
    """Those that belong to a volume, the catalog's included."""
    prefix = config.table_prefix
    return {
        key: item
        for key, item in (await table_items(config)).items()
        if key.partition.startswith(f"{prefix}/") or key == (CATALOG, prefix)
    }


async def contents(config: VolumeConfig) -> dict[str, bytes | None]:
    async with S3kClient(config=config) as fs:
        found = [status async for status in fs.list("/", recursive=True)]
        return {
            status.path: None if status.is_dir else await fs.read(status.path) for status in found
        }


@pytest.fixture(params=LAYOUTS)
async def neighbours(request: pytest.FixtureRequest) -> tuple[VolumeConfig, VolumeConfig]:
    """Two volumes with equal paths in one table."""
    table = next(_tables)
    pair = volume(table, "a", request.param), volume(table, "a.b", request.param)
    for config in pair:
        await init_volume(config)
        await fill(config)
    return pair


async def test_volumes_have_equal_paths_and_different_files(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    one, two = neighbours
    before = await own_items(two), await contents(two)
    async with S3kClient(config=one) as fs:
        await fs.write("/top", b"changed")
        await fs.rename("/a", "/renamed")
        await fs.delete("/c", recursive=True)
    assert (await own_items(two), await contents(two)) == before
    assert (await contents(one))["/top"] == b"changed"
    assert (await contents(one))["/renamed/deep/er/3"] == FILES["/a/deep/er/3"]
    keys = {key.partition.partition("/")[0] for key in await table_items(one)}
    assert keys == {"a", "a.b", RECORD_KEY.partition, CATALOG}


async def test_destroy_leaves_the_neighbour_as_it_is(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    one, two = neighbours
    before = await own_items(two), await contents(two)
    await destroy_volume(one, force=True, runtime=HURRIED)
    assert await own_items(one) == {}
    assert (await own_items(two), await contents(two)) == before
    with pytest.raises(VolumeNotFoundError, match="no volume with this prefix"):
        async with S3kClient(config=one):
            pass
    await init_volume(one)
    assert await contents(one) == {}
