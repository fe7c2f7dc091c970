"""One volume in memory, and clients of it that may die at any call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from anyio import sleep_forever

from s3k_async._core.retry import RetryPolicy
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.bulk import publish
from s3k_async.config import Tuning
from s3k_async.errors import PathNotFoundError
from s3k_async.integrity.verify_rules import Finding
from s3k_async.layouts.path.atomic_changes import AtomicTree
from s3k_async.layouts.path.path_layout import PathLayout
from s3k_async.layouts.path.recursive import Tree
from s3k_async.model import Entry
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.log_writer import NativeLog
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.table.keys import KeyScheme
from s3k_async.testing import FaultPlan
from s3k_async.txn.txn_record import RENEW_SECONDS
from s3k_async.volumes.volume import Volume
from tests.integrity.verifier import Verifier
from tests.support import FakeClock, fake_runtime

__all__ = ["GROWN", "Client", "Paths", "World"]

Paths = Mapping[str, bytes | None]
"""A tree: the bytes of each file; None for a directory."""

TUNING = Tuning(busy_timeout=5.0, lease=600.0, multipart_threshold=64, part_size=32)


@dataclass
class Client:
    """One process that uses the volume."""

    store: MetadataStore
    storage: PhysicalStorage
    tree: Tree
    atomic: AtomicTree

    async def run_change(self, change: Callable[[Client], Awaitable[object]]) -> None:
        """Make the change, and live until its marks are in the log."""
        try:
            await change(self)
        finally:
            await self.store.changes.log.drained()

    async def write(self, path: str, data: bytes, *, overwrite: bool = True) -> None:
        # It has the parts of a volume that writing uses.
        await publish.write(cast(Volume, self), path, data, overwrite=overwrite)

    async def need(self, path: str) -> Entry:
        entry = await self.store.get(path)
        if entry is None:
            raise PathNotFoundError("nothing is there", path=path)
        return entry


@dataclass
class World:
    """The volume, whoever uses it."""

    name: str
    clock: FakeClock = field(default_factory=FakeClock)

    async def start(self) -> World:
        runtime = fake_runtime(self.clock, seed=7)

        async def sleep(seconds: float) -> None:
            # A lease is not renewed while nothing takes time, or renewals would be most of the
            # calls.
            await (sleep_forever() if seconds == RENEW_SECONDS else runtime.sleep(seconds))

        self.runtime = replace(runtime, sleep=sleep)
        await MemoryItems(self.name).create()
        await MemoryBlobs(self.name).create()
        await MemoryBlobs(self.name + "-data").create()
        return self

    async def drop(self) -> None:
        await MemoryItems(self.name).drop()
        await MemoryBlobs(self.name).drop()
        await MemoryBlobs(self.name + "-data").drop()

    def client(self, faults: FaultPlan | None = None) -> Client:
        faults = faults or FaultPlan()
        policy = RetryPolicy(attempts=4)
        items = RetryingItems(
            faults.items(MemoryItems(self.name, self.runtime)), policy, self.runtime
        )
        log = RetryingBlobs(
            faults.blobs(MemoryBlobs(self.name, self.runtime)), policy, self.runtime
        )
        data = RetryingBlobs(
            faults.blobs(MemoryBlobs(self.name + "-data", self.runtime)), policy, self.runtime
        )
        store = MetadataStore(
            items, KeyScheme("v", 2), NativeLog(log, self.runtime), self.runtime, TUNING, PathLayout
        )
        storage = PhysicalStorage(data, self.runtime, TUNING)
        tree = Tree(store)
        return Client(store, storage, tree, AtomicTree(store, tree))

    async def scanned(self) -> dict[str, Entry]:
        """Every entry of the table, whether or not it has parents."""
        return {entry.path: entry async for page in self.client().store.scan("/") for entry in page}

    async def findings(self) -> list[Finding]:
        verifier = Verifier(
            self.client().store,
            MemoryBlobs(self.name + "-data"),
            LogReader(MemoryBlobs(self.name)),
            self.runtime,
            grace=60.0,
        )
        return (await verifier.verify(deep=True)).findings


GROWN: Paths = {
    "/d": None,
    "/d/f": b"one",
    "/d/g": b"two",
    "/d/x": None,
    "/d/x/h": b"three",
    "/d/y": None,
    "/e": None,
    "/e/k": b"four",
}
