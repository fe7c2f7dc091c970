"""Physical storage over numbered blobs in memory, with a read cache on the disk."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from s3k_async._core.retry import RetryPolicy
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.config import Tuning
from s3k_async.storage.cache_directory import CacheDirectory, CacheLimits
from s3k_async.storage.cached_reads import CachedReads
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.testing import Call, FaultPlan
from tests.engines.volumes import fresh_name
from tests.support import FakeClock, fake_runtime

__all__ = ["BLOCK", "OBJECT", "CacheRig", "block_files"]

BLOCK = 100
OBJECT = "4c8a7c1e-0000-4000-8000-000000000001"
SCOPE = "s3k-0b7f/"
LIMITS = CacheLimits(size=1 << 20, high=90, low=70, age=3600)


class CacheRig:
    """`storage` over `blobs` with `cache`; `faults` numbers what reaches the blobs."""

    def __init__(
        self,
        place: Path,
        *,
        limits: CacheLimits = LIMITS,
        gate: Callable[[Call], Awaitable[None]] | None = None,
        writes: bool = False,
        name: str = "",
    ) -> None:
        self.name = name or fresh_name("cached")
        self.faults = FaultPlan(gate)
        # That of the file system: otherwise a file that is being written looks abandoned.
        self.clock = FakeClock(time.time())
        self.runtime = fake_runtime(self.clock, seed=os.getpid())
        self.bare = MemoryBlobs(self.name)
        blobs = RetryingBlobs(
            self.faults.blobs(MemoryBlobs(self.name)), RetryPolicy(attempts=1), self.runtime
        )
        self.directory = CacheDirectory(str(place), self.runtime)
        self.cache = CachedReads(
            self.directory, limits, self.runtime, scope=SCOPE, block=BLOCK, writes=writes
        )
        tuning = Tuning(part_size=250, multipart_threshold=1000)
        self.storage = PhysicalStorage(blobs, self.runtime, tuning, cache=self.cache)

    async def start(self) -> CacheRig:
        await self.bare.create()
        await self.cache.prepare()
        return self

    def fetches(self) -> int:
        """Requests for bytes so far."""
        return sum(call.method in ("get", "get_into") for call in self.faults.calls)


def block_files(place: Path) -> list[Path]:
    """The files of all blocks."""
    return sorted(path for path in place.glob("s3k-blocks/*/*") if path.suffix != ".tmp")
