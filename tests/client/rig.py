"""Clients whose stores' calls are numbered, can be held and can be made to fail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.client import S3kClient, _Opened
from s3k_async.config import MemoryBlobs, MemoryTable, Tuning, VolumeConfig
from s3k_async.model import LayoutName
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume, open_volume
from tests.engines.volumes import fresh_name
from tests.support import under

__all__ = ["TUNING", "faulty_client", "memory_config", "paths"]

TUNING = Tuning(
    part_size=100,
    multipart_threshold=250,
    read_ahead=64,
    busy_timeout=5.0,
    retry=Retries.alike(RetryPolicy(attempts=6, base=0.001)),
)
"""Small pieces, so that small files take the ways of large ones."""


def memory_config(tuning: Tuning = TUNING, layout: LayoutName = "path") -> VolumeConfig:
    """A new volume in memory."""
    name = fresh_name("volume")
    return VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), tuning=tuning, layout=layout)


@asynccontextmanager
async def faulty_client(
    faults: FaultPlan, config: VolumeConfig | None = None, runtime: Runtime = SYSTEM
) -> AsyncIterator[S3kClient]:
    """An open client of a volume in memory, a new one unless given, whose calls go through
    `faults`."""
    if config is None:
        config = memory_config()
        await init_volume(config)
    client = S3kClient(config=config)
    volume = await under(
        faults, open_volume(replace(config), runtime=runtime, counter=client._counter)
    )
    faults.calls.clear()
    client._opened = _Opened(volume, asyncio.get_running_loop(), os.getpid())
    try:
        yield client
    finally:
        await client.close()


async def paths(
    client: S3kClient, path: str = "/", *, include_uncommitted: bool = False
) -> set[str]:
    """Everything below a path."""
    found = client.list(path, recursive=True, include_uncommitted=include_uncommitted)
    return {status.path async for status in found}
