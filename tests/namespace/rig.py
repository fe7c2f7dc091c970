"""A metadata store over memory whose every call is numbered and can be made to fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from anyio import sleep_forever

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.config import Tuning
from s3k_async.layouts.path.path_layout import PathLayout
from s3k_async.layouts.path.recursive import Tree
from s3k_async.layouts.tree.tree_layout import TreeLayout
from s3k_async.model import Content, Entry, LayoutName
from s3k_async.namespace.ordered_walk import walk
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.log_reader import LogReader, ObjectState, latest
from s3k_async.oplog.log_writer import NativeLog
from s3k_async.table.keys import Directory, KeyScheme
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.txn_record import RENEW_SECONDS
from tests.support import FakeClock, fake_runtime

__all__ = ["Rig"]


@dataclass
class Rig:
    """One volume in memory; `client()` opens another client of it, with its own faults."""

    name: str
    clock: FakeClock = field(default_factory=FakeClock)
    suffix_count: int = 3
    real_time: bool = False
    """With the fake clock a sleeping task makes time pass at once; where a test holds tasks at a
    gate it must not."""
    layout: LayoutName = "path"
    """In layout `tree` there is no `tree`."""

    logs: list[NativeLog] = field(default_factory=list)

    async def start(self) -> Rig:
        self.runtime: Runtime = SYSTEM if self.real_time else fake_runtime(self.clock, seed=7)
        self.faults = FaultPlan()
        self.store = self.client(self.faults)
        self.tree = Tree(self.store)
        await MemoryItems(self.name).create()
        await MemoryBlobs(self.name).create()
        return self

    def stop_renewing(self) -> None:
        """From now on no client renews the leases of its transactions."""
        sleep = self.runtime.sleep

        async def without_renewals(seconds: float) -> None:
            await (sleep_forever() if seconds == RENEW_SECONDS else sleep(seconds))

        self.runtime = replace(self.runtime, sleep=without_renewals)
        self.store = self.client(self.faults)
        self.tree = Tree(self.store)

    def client(self, faults: FaultPlan | None = None) -> MetadataStore:
        faults = faults or FaultPlan()
        policy = RetryPolicy(attempts=4)
        items = RetryingItems(faults.items(MemoryItems(self.name)), policy, self.runtime)
        log = NativeLog(
            RetryingBlobs(faults.blobs(MemoryBlobs(self.name)), policy, self.runtime), self.runtime
        )
        self.logs.append(log)
        tuning = Tuning(busy_timeout=5.0, lease=600.0)
        keys = KeyScheme("v", self.suffix_count, layout=self.layout)
        layout = PathLayout if self.layout == "path" else TreeLayout
        return MetadataStore(items, keys, log, self.runtime, tuning, layout)

    def content(self, object_id: str, size: int = 3) -> Content:
        return Content(self.runtime.physical_key(object_id), size, "etag", "xxh128:" + "0" * 32)

    async def write(
        self, path: str, *, overwrite: bool = True, store: MetadataStore | None = None
    ) -> Entry:
        store = store or self.store
        target = await store.prepare(path)
        return await store.publish(target, self.content(target.object_id), overwrite=overwrite)

    async def need(self, path: str) -> Entry:
        entry = await self.store.get(path)
        assert entry is not None, path
        return entry

    async def truths(self) -> dict[str, ObjectState]:
        """What the log says, once the marks of all clients that live are written."""
        for log in self.logs:
            with suppress(Died):
                await log.drained()
        return latest([record async for record in LogReader(MemoryBlobs(self.name)).records()])

    async def paths(self) -> set[str]:
        return {entry.path async for page in walk(self.store, Directory.at("/")) for entry in page}

    async def scanned(self) -> set[str]:
        return {entry.path async for page in self.store.scan("/") for entry in page}


def calls(faults: FaultPlan, method: str) -> int:
    """How many calls of a method were made."""
    return sum(call.method == method for call in faults.calls)


def nth(method: str, number: int) -> Callable[[Call], bool]:
    """Matches the n-th call of a method from now on."""
    seen = 0

    def matches(call: Call) -> bool:
        nonlocal seen
        seen += call.method == method
        return call.method == method and seen == number

    return matches
