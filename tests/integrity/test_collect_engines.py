"""Garbage collection in a loop beside writers, renamers, deleters and readers, on real stores."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

from s3k_async._core.runtime import SYSTEM
from s3k_async.client import S3kClient
from s3k_async.config import Tuning
from s3k_async.errors import (
    BusyError,
    ConflictError,
    LeaseExpiredError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    UncommittedFileError,
)
from s3k_async.integrity.gc_rules import Ages
from s3k_async.model import LayoutName
from s3k_async.volumes import init_volume, open_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integrity.garbage import gc_of, live_keys, stored_keys

AGES: Final = Ages(grace=0.0, lease=1.0, late=3.0)
"""No grace, and hardly any lease: what is deleted is gone seconds later."""
SECONDS: Final = 6.0
DIRECTORIES: Final = ("/a", "/b", "/c")
FILES: Final = 12
LOST: Final = (
    BusyError,
    ConflictError,
    LeaseExpiredError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    UncommittedFileError,
)
"""What racing clients may meet. Missing bytes are not among it: without a grace period a reader may
meet them, but only until it looks again."""


class Crowd:
    """Clients that change a few paths at random."""

    def __init__(self, client: S3kClient, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self.done = 0

    def _path(self) -> str:
        return f"{self._random.choice(DIRECTORIES)}/{self._random.randrange(FILES)}"

    async def write(self) -> None:
        path = self._path()
        await self._client.write(path, path.encode() * self._random.randrange(1, 50))

    async def write_many(self) -> None:
        await self._client.write_many(
            [(path, path.encode()) for path in {self._path() for _ in range(5)}]
        )

    async def stream(self) -> None:
        async with self._client.open(self._path(), "wb") as file:
            await file.write(b"streamed")

    async def rename(self) -> None:
        await self._client.rename(self._path(), self._path(), overwrite=self._random.random() < 0.5)

    async def rename_directory(self) -> None:
        await self._client.rename(
            self._random.choice(DIRECTORIES), f"/d{self._random.randrange(1000)}"
        )

    async def delete(self) -> None:
        await self._client.delete(self._path())

    async def copy(self) -> None:
        await self._client.copy(self._path(), self._path(), overwrite=True)

    async def run(self) -> None:
        deeds: list[Callable[[], Awaitable[None]]] = [
            *[self.write] * 4,
            *[self.rename] * 4,
            self.write_many,
            self.stream,
            self.delete,
            self.copy,
            self.rename_directory,
        ]
        while True:
            with suppress(*LOST):
                await self._random.choice(deeds)()
                self.done += 1
            await checkpoint()


@pytest.mark.layouts("path", "tree")
@volume_backends(
    "dynoxide+seaweedfs",
    "redis",
    "rocksdb",
    slow=["memory", "embedded", "dynamodb_local+seaweedfs"],
)
async def test_a_loop_of_collections_beside_a_crowd_loses_nothing(
    new_volume: VolumeMaker, layout: LayoutName, tmp_path: Path
) -> None:
    config = replace(new_volume(layout=layout), tuning=Tuning(lease=AGES.lease, busy_timeout=2.0))
    await init_volume(config)
    candidates, deleted = str(tmp_path / "candidates"), 0

    async def collect() -> None:
        nonlocal deleted
        collector = gc_of(volume, SYSTEM, AGES)
        await collector.clean_up(await collector.mark(candidates))
        swept = await collector.sweep(candidates)
        assert swept.failures == []
        deleted += sum(count.objects for count in swept.deleted.values())

    async def loop() -> None:
        while True:
            await collect()

    async with S3kClient(config=config) as one, S3kClient(config=config) as two:
        volume = await open_volume(config)
        try:
            crowd = [Crowd(one, 1), Crowd(one, 2), Crowd(two, 3)]
            with anyio.move_on_after(SECONDS):
                async with anyio.create_task_group() as tasks:
                    for each in crowd:
                        tasks.start_soon(each.run)
                    tasks.start_soon(loop)
            assert all(each.done for each in crowd)
            await anyio.sleep(AGES.lease + AGES.late + 1.5)
            await collect()
            files = [status async for status in one.list("/", recursive=True) if status.is_file]
            for status in files:
                assert len(await one.read(status.path)) == status.size
            assert await stored_keys(volume) == await live_keys(one)
            assert files
            assert deleted
        finally:
            await volume.close()
