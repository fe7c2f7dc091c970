"""A volume in memory with lifecycle rules and a clock of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async._core.runtime import Runtime
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import PARTITION, Item
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.client import S3kClient
from s3k_async.config import Tuning, VolumeConfig
from s3k_async.integrity.repair import verify_volume
from s3k_async.model import Feature, LayoutName
from s3k_async.namespace.due_items import FIRST_HOUR, is_rule_partition
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.support import FakeClock, fake_runtime

__all__ = ["DAY", "HOUR", "Ruled", "ruled"]

HOUR = 3600.0
DAY = 86_400.0
TUNING = Tuning(
    lease=600.0,
    busy_timeout=5.0,
    part_size=100,
    multipart_threshold=250,
    retry=Retries.alike(RetryPolicy(attempts=4)),
)


@dataclass
class Ruled:
    """One volume with a client."""

    client: S3kClient
    config: VolumeConfig
    clock: FakeClock
    runtime: Runtime
    faults: FaultPlan

    async def after(self, path: str, seconds: float) -> None:
        """Let time pass until so long after the last modification of a file. What waits lets the
        clock of the test run, too."""
        status = await self.client.stat(path)
        self.clock.seconds = status.mtime_ms / 1000 + seconds

    async def paths(self) -> set[str]:
        """The files of the volume."""
        found = self.client.list("/", recursive=True)
        return {each.path async for each in found if each.is_file}

    async def stored(self) -> list[Item]:
        """Rules, due items and requested scans, without the first hour."""
        items = MemoryItems(self.config.name)
        found = [item async for page in scan_all(items) for item in page]
        return [
            item
            for item in found
            if is_rule_partition(str(item[PARTITION])) and item[PARTITION] != FIRST_HOUR.partition
        ]

    async def due_items(self) -> list[Item]:
        """The due items."""
        return [item for item in await self.stored() if "entry" in item]

    async def findings(self) -> list[tuple[str, str]]:
        """What fsck finds, once the log is written and everything is old enough to be judged."""
        await self.client._volume().log.drained()
        self.clock.advance(DAY)
        report = await verify_volume(self.client._volume())
        return sorted(
            (each.kind, each.path) for each in report.findings if each.kind != "collectable_data"
        )


@asynccontextmanager
async def ruled(
    layout: LayoutName = "path",
    *,
    features: tuple[Feature, ...] = ("rules",),
    change: Callable[[VolumeConfig], VolumeConfig] = lambda config: config,
) -> AsyncIterator[Ruled]:
    """A new volume with rules."""
    clock, faults = FakeClock(), FaultPlan()
    runtime = fake_runtime(clock, seed=5)
    config = change(memory_config(TUNING, layout))
    await init_volume(config, runtime=runtime, enable=features)
    async with faulty_client(faults, config, runtime) as client:
        yield Ruled(client, config, clock, runtime, faults)
