"""Volumes in directories of this machine, and what one process does to them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from s3k_async import S3kClient, S3kSyncClient
from s3k_async.backends.ports.items import Item
from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig
from s3k_async.model import LayoutName
from s3k_async.settings import resolve
from s3k_async.table.keys import is_entry_partition
from s3k_async.txn.volume_record import SCOPE
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.engines.volumes import VolumeMaker
from tests.migrate.rig import fill

__all__ = [
    "FIVE_LEVELS",
    "HANGS",
    "all_items",
    "copy_bytes",
    "embedded",
    "entry_items",
    "filled",
    "five_levels",
    "on",
]

T = TypeVar("T")

HANGS = 1800.0
"""Seconds after which a process has hung: a loaded machine is slow, and not at fault."""

FIVE_LEVELS = [
    f"/a/{day}/{hour}/part-{part}" for day in range(5) for hour in range(3) for part in range(2)
]


def embedded(directory: Path) -> VolumeConfig:
    """The volume `spark`, of layout `path`: its table and its data in a directory."""
    table = SqliteFile(str(directory / "table.db"))
    return VolumeConfig("spark", table, LocalDirectory(str(directory / "data")), layout="path")


def copy_bytes(source: Path, target: Path) -> None:
    """A new embedded volume, with the bytes of another one below its own prefix, as `load --check`
    takes them."""
    made = asyncio.run(
        init_volume(resolve(target, environ={"XDG_CONFIG_HOME": str(target.parent / "nowhere")}))
    )
    (place,) = (source / "data").glob(f"{SCOPE}*/")
    shutil.copytree(place, target / "data" / made.scope, dirs_exist_ok=True)


def on(place: VolumeConfig, work: Callable[[Volume], Awaitable[T]]) -> T:
    """What work on an opened volume returns; it may be locked."""

    async def main() -> T:
        volume = await open_volume(place, locked=True)
        try:
            return await work(volume)
        finally:
            await volume.close()

    return asyncio.run(main())


async def all_items(volume: Volume) -> list[Item]:
    """The whole table, by key."""
    items: list[Item] = []
    page = await volume.items.scan(0, 1)
    items += page.items
    while page.next is not None:
        page = await volume.items.scan(0, 1, cursor=page.next)
        items += page.items
    return sorted(items, key=lambda item: (str(item["path"]), str(item["children"])))


async def entry_items(volume: Volume) -> list[Item]:
    """The entries of the table as they are stored, by key."""
    return [item for item in await all_items(volume) if is_entry_partition(str(item["path"]))]


async def filled(config: VolumeConfig, many: int = 0) -> None:
    """Make a volume of four suffixes, with what `tests.migrate.rig` has of everything, and many
    files beside it."""
    await init_volume(replace(config, suffix_count=4))
    await fill(config)
    async with S3kClient(config=config) as fs:
        await fs.write_many([(f"/many/{number % 7}/{number}", b"") for number in range(many)])


async def five_levels(new_volume: VolumeMaker, layout: LayoutName = "path") -> VolumeConfig:
    """A volume with `FIVE_LEVELS`, odd names, an empty directory and a reservation."""
    config = replace(new_volume(), layout=layout)
    await init_volume(config)
    with S3kSyncClient(config=config) as fs:
        fs.write_many([(path, path.encode()) for path in FIVE_LEVELS])
        fs.write_many([("/a/ä\n𝄞/ß", b"12345"), ("/top", b"1"), ("/ab/c", b"123")])
        fs.makedirs("/empty/below")
    async with S3kClient(config=config) as client:
        store = client._volume().store
        await store.reserve(await store.prepare("/a/being-written"), exclusive=True)
    return config
