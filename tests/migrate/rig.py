"""Volumes whose tables are moved, and time that does not wait for anybody to notice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import anyio

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.model import Entry
from s3k_async.namespace.ordered_walk import walk
from s3k_async.table.keys import Directory
from s3k_async.testing import FaultPlan
from s3k_async.txn.volume_lock import QUIET_SECONDS
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.support import under

__all__ = ["FILES", "HURRIED", "config", "entries", "fill", "keys", "made", "opened", "stored"]

_names = (f"moving-{number}" for number in count())


async def _sleep(seconds: float) -> None:
    await anyio.sleep(0 if seconds == QUIET_SECONDS else seconds)


HURRIED = replace(SYSTEM, sleep=_sleep)
"""The real thing, but for the wait until others have noticed a lock."""

FILES = {
    "/a/1": b"one",
    "/a/2": b"",
    "/a/deep/er/3": b"three" * 100,
    "/b ä 😀/x:y": b"odd",
    "/c/polygenelubricants": b"java",
    "/top": b"top",
}


def config(suffix_count: int | None = 4, **options: object) -> VolumeConfig:
    """Settings of a volume in memory that does not exist."""
    name = next(_names)
    settings = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), suffix_count=suffix_count)
    return replace(settings, **options)  # type: ignore[arg-type]


async def fill(settings: VolumeConfig) -> None:
    """Files, an empty directory, one that was renamed, and one that is reserved."""
    async with S3kClient(config=settings) as fs:
        for path, data in FILES.items():
            await fs.write(path, data)
        await fs.write("/a/1", b"one, again")
        await fs.makedirs("/empty/within")
        await fs.makedirs("/old/name")
        await fs.write("/old/name/f", b"moved")
        await fs.rename("/old/name", "/new")
        await fs.write("/gone", b"gone")
        await fs.delete("/gone")


async def made(settings: VolumeConfig) -> VolumeConfig:
    """A volume with something in it."""
    await init_volume(settings)
    await fill(settings)
    return settings


@asynccontextmanager
async def opened(settings: VolumeConfig, faults: FaultPlan | None = None) -> AsyncIterator[Volume]:
    volume = await under(faults, open_volume(replace(settings, suffix_count=None, hash=None)))
    try:
        yield volume
    finally:
        await volume.close()


async def entries(settings: VolumeConfig) -> dict[str, Entry]:
    """What is visible of a volume, by path."""
    async with opened(settings) as volume:
        return {
            entry.path: entry
            async for page in walk(volume.store, Directory.at("/"))
            for entry in page
        }


async def stored(settings: VolumeConfig) -> list[dict[str, object]]:
    """The entries' items as they are stored."""
    async with opened(settings) as volume:
        page = await volume.items.scan(0, 1, limit=100_000)
        assert page.next is None
        return [dict(item) for item in page.items if str(item["path"]).startswith("ks://")]


async def keys(settings: VolumeConfig) -> None:
    """Every item is where its path belongs, and once."""
    async with opened(settings) as volume:
        scheme = volume.store.keys
    found = await stored(settings)
    places = [(str(item["path"]), str(item["children"])) for item in found]
    paths = [
        scheme.entry_key(scheme.key("/x")._replace(partition=one, sort=two)) for one, two in places
    ]
    assert len(set(paths)) == len(paths)
    assert [tuple(key) for key in scheme.keys(paths)] == places
