"""Volumes with a hot and a cold location, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.location import OpenContext
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.config import MemoryBlobs, Tuning, VolumeConfig
from s3k_async.model import LayoutName
from s3k_async.storage.extents import physical_keys
from s3k_async.storage.tier_moves import TierMoves, TierRun
from s3k_async.storage.tier_policy import MovePolicy
from s3k_async.storage.tiered_blobs import TieredBlobs, need_tiers
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import memory_config
from tests.engines.volumes import fresh_name
from tests.support import fake_runtime

__all__ = [
    "ALL",
    "DAMAGED",
    "TUNING",
    "key",
    "move_all",
    "opened",
    "sizes",
    "stores",
    "tiered_damage",
    "tiered_volume",
    "unfinished",
]

ALL = MovePolicy()
TUNING = Tuning(multipart_threshold=64, part_size=32)


def key(number: int) -> str:
    """A physical key."""
    return f"00000000-0000-4000-8000-{number:012x}.id=00000000-0000-4000-8000-{number:012x}"


async def stores() -> tuple[BlobStore, BlobStore]:
    """An empty hot store, and an empty cold one."""
    name = fresh_name("tiers")
    hot, cold = (MemoryBlobs(f"{name}-{part}").open(OpenContext()) for part in ("hot", "cold"))
    await hot.create()
    await cold.create()
    return hot, cold


async def sizes(store: BlobStore) -> dict[str, int]:
    """The size of each blob."""
    return {info.key: info.size async for info in list_all(store)}


async def unfinished(store: BlobStore) -> list[str]:
    """The keys of the unfinished uploads."""
    return [upload.key async for upload in store.list_uploads()]


async def tiered_volume(layout: LayoutName = "path") -> VolumeConfig:
    """A new volume in memory."""
    config = memory_config(TUNING, layout)
    await init_volume(config, hot=f"memory://{config.name}-hot")
    return config


@asynccontextmanager
async def opened(
    config: VolumeConfig, runtime: Runtime = SYSTEM
) -> AsyncIterator[tuple[Volume, TieredBlobs]]:
    """The open volume and its blobs."""
    volume = await open_volume(config, runtime=runtime)
    try:
        yield volume, need_tiers(volume.blobs, config.name)
    finally:
        await volume.close()


DAMAGED = {
    "/hot": (b"right", b"cut"),
    "/cold": (b"longer than it is", b"right"),
    "/neither": (b"longer than it is", b"cut"),
    "/unknown": (b"right", b"right and more"),
    "/part": (b"right", b"right and more"),
    "/deleted": (b"right", b"cut"),
}
"""What the hot and the cold location have of files that were written as `right`."""


@asynccontextmanager
async def tiered_damage(layout: LayoutName = "path") -> AsyncIterator[tuple[Volume, TieredBlobs]]:
    """A volume with an object in both locations for each way in which they can differ in size."""
    config = await tiered_volume(layout)
    async with S3kClient(config=config) as fs, opened(config) as (volume, blobs):
        for path, (hot, cold) in DAMAGED.items():
            await fs.write(path, b"right")
            if path == "/unknown":  # as an object that was composed in the service
                target = await volume.store.prepare(path)
                content = await volume.storage.put(target.object_id, b"right")
                await volume.store.publish(target, replace(content, checksum=""))
            if path in ("/part", "/unknown"):
                await fs.truncate(path, 2)  # of the object only a part
            for key in physical_keys((await volume.store.lookup(path)).physical):
                await blobs.hot.put(key, hot)
                await blobs.cold.put(key, cold)
        await fs.delete("/deleted")
        yield volume, blobs


async def move_all(blobs: TieredBlobs, policy: MovePolicy = ALL) -> TierRun:
    """A run of moves of small parts."""
    return await TierMoves(blobs, fake_runtime(), TUNING).run(policy)
