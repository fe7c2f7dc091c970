"""Volumes whose tables are moved, and time that does not wait for anybody to notice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_blobs import MemoryBlobs as MemoryBlobStore
from s3k_async.backends.ports.items import Key
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.model import Entry, LayoutName
from s3k_async.namespace.ordered_walk import walk
from s3k_async.table.keys import is_entry_partition
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.testing import FaultPlan
from s3k_async.txn.volume_lock import QUIET_SECONDS
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.support import under

__all__ = [
    "FILES",
    "HURRIED",
    "config",
    "digest",
    "entries",
    "fill",
    "keys",
    "made",
    "opened",
    "rewritten",
    "share",
    "stored",
]

Lines: TypeAlias = list[dict[str, Any]]
"""The entries of a dump of JSON lines."""

LAYOUT: LayoutName = "path"
"""The layout of volumes, unless they are given another."""
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
    settings = VolumeConfig(
        name, MemoryTable(name), MemoryBlobs(name), suffix_count=suffix_count, layout=LAYOUT
    )
    return replace(settings, **options)  # type: ignore[arg-type]


async def fill(settings: VolumeConfig) -> None:
    """Files, an empty directory, one that was renamed, and in layout `tree` two in the trash."""
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
        if settings.layout == "tree":
            await fs.write("/trashed/with/f", b"in the trash")
            await fs.delete("/trashed", recursive=True)
            await fs.makedirs("/removed")
            await fs.delete("/removed")


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


async def share(source: VolumeConfig, target: VolumeConfig) -> None:
    """The bytes of one volume under the same keys at the place of another."""
    async with opened(source) as volume:
        assert isinstance(target.data, MemoryBlobs)
        scope = (await init_volume(target, runtime=HURRIED)).scope
        place = MemoryBlobStore(target.data.name)
        async for info in list_all(volume.blobs):
            if ".id=" in info.key:
                await place.put(scope + info.key, await volume.blobs.get(info.key))


async def entries(settings: VolumeConfig) -> dict[str, Entry]:
    """What is visible of a volume, by path."""
    async with opened(settings) as volume:
        return {
            entry.path: entry
            async for page in walk(volume.store, volume.store.keys.directory(ROOT_ENTRY))
            for entry in page
        }


async def digest(settings: VolumeConfig) -> str:
    """A digest of the sorted listing, with what a dump holds but for the place of the bytes."""
    found = sorted((await entries(settings)).values(), key=lambda entry: entry.path)
    plain = [replace(each, physical=None, etag="", directory="", pending="") for each in found]
    return hashlib.sha256("\n".join(map(repr, plain)).encode()).hexdigest()


async def stored(settings: VolumeConfig) -> list[dict[str, object]]:
    """The entries' items as they are stored."""
    async with opened(settings) as volume:
        page = await volume.items.scan(0, 1, limit=100_000)
        assert page.next is None
        return [dict(item) for item in page.items if is_entry_partition(str(item["path"]))]


async def keys(settings: VolumeConfig) -> None:
    """Every item is where its entry key belongs, and once."""
    async with opened(settings) as volume:
        scheme = volume.store.keys
    found = await stored(settings)
    places = [Key(str(item["path"]), str(item["children"])) for item in found]
    entry_keys = scheme.entry_keys(places)
    assert len(set(entry_keys)) == len(entry_keys)
    assert scheme.keys(entry_keys) == places


def rewritten(target: str, change: Callable[[Lines], Lines]) -> None:
    """The dump with other entries, and an end that fits them."""
    lines = Path(target).read_text(encoding="ascii").splitlines()
    found = change([json.loads(line) for line in lines[1:-1]])
    body = "".join(f"{line}\n" for line in [lines[0], *map(json.dumps, found)]).encode()
    directories = sum(entry["is_dir"] for entry in found)
    end = {
        "s3k": "dump-end",
        "entries": len(found),
        "files": len(found) - directories,
        "directories": directories,
        "bytes": sum(entry["size"] for entry in found),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    Path(target).write_bytes(body + json.dumps(end, separators=(",", ":")).encode() + b"\n")
