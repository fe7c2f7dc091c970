"""A volume in memory with a clock of its own, whose files have versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from s3k_async import S3kClient
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import VolumeConfig
from s3k_async.integrity.repair import verify_volume
from s3k_async.model import LayoutName
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.support import FakeClock, fake_runtime

__all__ = ["Place", "a_place"]


@dataclass
class Place:
    """A volume in memory with a clock of its own."""

    fs: S3kClient
    clock: FakeClock
    runtime: Runtime
    config: VolumeConfig

    def tick(self) -> int:
        """A time after everything before, and before everything later."""
        self.clock.advance(5)
        now = self.runtime.now_ms()
        self.clock.advance(5)
        return now

    async def states(self, path: str) -> list[tuple[str, int, bool]]:
        """State, size and whether there is data, of each version."""
        found = await self.fs.versions(path)
        return [(each.state, each.size, each.has_data) for each in found]

    async def contents(self, path: str = "/") -> dict[str, bytes]:
        """All files below a path."""
        found = [each async for each in self.fs.list(path, recursive=True) if each.is_file]
        return {each.path: await self.fs.read(each.path) for each in found}

    async def data(self) -> set[str]:
        """The keys of all data."""
        return {each.key async for each in list_all(self.fs._volume().blobs)}

    async def check(self) -> None:
        """No finding of fsck, and every key of data belongs to one file at most."""
        await self.fs._volume().log.drained()
        self.clock.advance(1000)
        report = await verify_volume(self.fs._volume())
        assert [each for each in report.findings if each.is_problem] == []
        named = [each.physical async for each in self.fs.list("/", recursive=True) if each.is_file]
        assert len(named) == len(set(named))


@asynccontextmanager
async def a_place(layout: LayoutName) -> AsyncIterator[Place]:
    clock = FakeClock()
    runtime = fake_runtime(clock)
    config = replace(memory_config(), layout=layout)
    await init_volume(config, runtime=runtime)
    async with faulty_client(FaultPlan(), config, runtime) as fs:
        yield Place(fs, clock, runtime, config)
