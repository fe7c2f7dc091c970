"""A volume in memory with a clock of its own, and what is needed to make garbage in it and to
collect it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import Key
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.config import Tuning, VolumeConfig
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_mark import CollectedData, Marked
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.gc_sweep import GarbageCollector, Swept
from s3k_async.model import LayoutName
from s3k_async.testing import Died, FaultPlan
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import faulty_client, memory_config
from tests.support import FakeClock, fake_runtime, under

__all__ = ["AGES", "DAY", "Yard", "gc_of", "live_keys", "place_of", "stored_keys", "yard"]

DAY = 86_400.0
AGES = Ages(grace=2 * DAY, lease=600.0, late=60.0)
TUNING = Tuning(
    lease=600.0,
    busy_timeout=5.0,
    part_size=100,
    multipart_threshold=250,
    retry=Retries.alike(RetryPolicy(attempts=4)),
)


def place_of(volume: Volume) -> CollectedData:
    return CollectedData.of(volume)


def gc_of(
    volume: Volume,
    runtime: Runtime,
    ages: Ages = AGES,
    *,
    exclusive: bool = False,
    rate: float | None = None,
) -> GarbageCollector:
    audit = AuditTrail(volume.log_blobs, runtime.uuid())
    return GarbageCollector(place_of(volume), runtime, ages, audit, exclusive=exclusive, rate=rate)


async def stored_keys(volume: Volume) -> set[str]:
    """Every physical key that there is."""
    return {info.key async for info in list_all(volume.blobs) if ".id=" in info.key}


async def live_keys(client: S3kClient) -> set[str]:
    """Every physical key that a file of the tree names."""
    return {
        str(status.physical) async for status in client.list("/", recursive=True) if status.is_file
    }


@dataclass
class Yard:
    """One volume; `gc` collects with a client of its own."""

    client: S3kClient
    config: VolumeConfig
    clock: FakeClock
    runtime: Runtime
    faults: FaultPlan
    candidates: str
    opened: list[Volume] = field(default_factory=list)

    @property
    def volume(self) -> Volume:
        return self.client._volume()

    async def collector(
        self, faults: FaultPlan | None = None, ages: Ages = AGES
    ) -> GarbageCollector:
        """A collector over a client of its own; calls count from when that is open."""
        faults = faults or FaultPlan()
        planned, faults._faults = faults._faults, []
        gate, faults.gate = faults.gate, None
        volume = await under(faults, open_volume(self.config, runtime=self.runtime))
        self.opened.append(volume)
        faults.calls.clear()
        faults._faults, faults.gate = planned, gate
        return gc_of(volume, self.runtime, ages, exclusive=volume.log_blobs is None)

    async def gc(self, faults: FaultPlan | None = None, ages: Ages = AGES) -> tuple[Marked, Swept]:
        """Mark, sweep and clean up."""
        collector = await self.collector(faults, ages)
        marked = await collector.mark(self.candidates)
        await collector.clean_up(marked)
        return marked, await collector.sweep(self.candidates)

    async def key(self, path: str) -> Key:
        """The key of the item of a path."""
        store = self.volume.store
        entry = await store.get(path)
        assert entry is not None, path
        return store.keys.of(entry)

    async def settle(self) -> None:
        """Wait for the log's marks."""
        await self.volume.log.drained()

    async def keys(self) -> set[str]:
        return await stored_keys(self.volume)


@asynccontextmanager
async def yard(
    tmp_path: Path,
    *,
    layout: LayoutName = "path",
    change: Callable[[VolumeConfig], VolumeConfig] = lambda config: config,
    seed: int = 11,
) -> AsyncIterator[Yard]:
    """A new volume. Two with one `seed` have the same ids."""
    clock, faults = FakeClock(), FaultPlan()
    runtime = fake_runtime(clock, seed=seed)
    config = change(memory_config(TUNING, layout))
    await init_volume(config, runtime=runtime)
    async with faulty_client(faults, config, runtime) as client:
        place = Yard(client, config, clock, runtime, faults, str(tmp_path / "candidates"))
        try:
            yield place
        finally:
            for volume in place.opened:
                with suppress(Died):
                    await volume.close()
