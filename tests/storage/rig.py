"""Physical storage over blobs in memory whose every call is numbered and can be made to fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import Runtime
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.config import Tuning
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.testing import Call, FaultPlan
from tests.engines.volumes import fresh_name
from tests.support import FakeClock, fake_runtime

TUNING = Tuning(part_size=100, multipart_threshold=250, read_ahead=64, max_concurrency=3)
OBJECT = "4c8a7c1e-0000-4000-8000-000000000001"


class StorageRig:
    """`storage` over `blobs`; `faults` numbers what reaches them."""

    def __init__(
        self, tuning: Tuning = TUNING, gate: Callable[[Call], Awaitable[None]] | None = None
    ) -> None:
        self.name = fresh_name("bucket")
        self.faults = FaultPlan(gate)
        self.runtime: Runtime = fake_runtime(FakeClock(), seed=3)
        self.bare = MemoryBlobs(self.name)
        self.blobs = RetryingBlobs(
            self.faults.blobs(MemoryBlobs(self.name)), RetryPolicy(attempts=3), self.runtime
        )
        self.storage = PhysicalStorage(self.blobs, self.runtime, tuning)

    async def start(self) -> StorageRig:
        await self.bare.create()
        return self

    async def keys(self) -> list[str]:
        return [info.key async for info in list_all(self.bare)]

    def count(self, method: str) -> int:
        return sum(call.method == method for call in self.faults.calls)
