"""One volume, in memory unless said otherwise, and clients of it that die, lose answers or are
cancelled at a call that is chosen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from anyio import sleep_forever

from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async._native import object_id_of
from s3k_async.attributes import Attributes
from s3k_async.backends.location import OpenContext
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import Item
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient, _Opened
from s3k_async.config import (
    BlobLocation,
    MemoryBlobs,
    MemoryTable,
    TableLocation,
    Tuning,
    VolumeConfig,
)
from s3k_async.errors import S3kError
from s3k_async.files.multipart import list_parts, list_uploads
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_mark import CollectedData
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.gc_sweep import GarbageCollector
from s3k_async.integrity.repair import repair_volume
from s3k_async.integrity.verify_rules import Finding
from s3k_async.lifecycle_rules import LifecycleRule
from s3k_async.model import Entry, Feature, LayoutName
from s3k_async.oplog.log_reader import LogReader
from s3k_async.storage.extents import physical_keys
from s3k_async.testing import Died, FaultPlan
from s3k_async.testing.faults import FaultyBlobs
from s3k_async.txn.txn_record import RENEW_SECONDS
from s3k_async.txn.upload_items import MultipartUpload, PartInfo
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.engines.volumes import fresh_name
from tests.integrity.restore_ground import objects_of, restore_at_once
from tests.integrity.verifier import Verifier
from tests.layouts.trees import contradictions, paths_of, stored_and_seen
from tests.support import FakeClock, fake_runtime, under
from tests.torture.model import is_below

__all__ = [
    "Arm",
    "Locate",
    "Marks",
    "Parts",
    "Paths",
    "Rule",
    "Scenario",
    "World",
    "client_of",
    "world_of",
]

Paths: TypeAlias = Mapping[str, bytes | None]
"""A tree: the bytes of each file; None for a directory."""
Arm: TypeAlias = Callable[[FaultPlan], object]
"""Says what is to go wrong once the volume is open."""
Locate: TypeAlias = Callable[[str], tuple[TableLocation, BlobLocation]]
"""Where the table and the data of the volume of a name are; the log is beside the data."""
Rule: TypeAlias = Literal["atomic", "by_file", "moves"]
"""What may be seen half-way: nothing but before and after; each path by itself old or new; the
same, and what is moved is in one of its places."""

Parts: TypeAlias = tuple[str, tuple[tuple[int, int], ...]]
"""A multipart upload: the path of its file, and number and size of each part."""

TRASH = "/.trash"
GRACE = 60.0
"""Seconds; what is younger is left alone by fsck and garbage collection."""
TUNING = Tuning(
    busy_timeout=5.0,
    lease=600.0,
    multipart_threshold=64,
    part_size=32,
    retry=Retries.alike(RetryPolicy(attempts=4)),
)
AGES = Ages(grace=GRACE, lease=TUNING.lease, late=GRACE)


@dataclass(frozen=True)
class Marks:
    """What a tree has beside its bytes."""

    attributes: Mapping[str, Attributes] = field(default_factory=dict)
    """Mode, owner, user metadata and read-only, of each path that has any of them."""
    rules: Collection[LifecycleRule] = ()
    """By path."""
    uploads: Collection[Parts] = frozenset()
    """The open multipart uploads; two that are alike are one."""


@dataclass(frozen=True)
class Scenario:
    """A verb that may be interrupted at every call it makes."""

    before: Paths
    run: Callable[[S3kClient, S3kClient], Awaitable[object]]
    """Given a client of the volume, and one of the volume that `origin` is in."""
    after: Paths
    rule: Rule = "atomic"
    between: Paths = field(default_factory=dict)
    """What may be there as well: directories that are made on the way."""
    gone: bool = False
    """Whether running it again after it was complete finds nothing to do: PathNotFoundError."""
    once: bool = False
    """Whether running it again after it was complete is refused: PathExistsError."""
    implied: bool = False
    """Whether all may be there though something failed: a directory is made by what is put into it,
    the last page of what is copied may fail when everything was, and a run of the rules after the
    last file."""
    again: Paths | None = None
    """The tree after running it again after it was complete, if that is another one."""
    grown: Collection[str] = ()
    """The files that have two extents before."""
    origin: Paths = field(default_factory=dict)
    """What is in another volume, from which it copies."""
    layout: LayoutName = "path"
    """The layout of the volumes."""
    layouts: Sequence[LayoutName] = ("path", "tree")
    """The layouts that support the verb."""
    features: Sequence[Feature] = ()
    """What the volume has beside the features of every new one."""
    prepare: Callable[[S3kClient], Awaitable[object]] | None = None
    """What gives the tree before its marks."""
    marks: tuple[Marks, Marks] = (Marks(), Marks())
    """Before and after."""

    @property
    def is_seen(self) -> bool:
        """Whether what is there before differs from what is there after."""
        return (self.before, self.marks[0]) != (self.after, self.marks[1])


def in_memory(name: str) -> tuple[TableLocation, BlobLocation]:
    """Both in this process."""
    return MemoryTable(name), MemoryBlobs(name)


@dataclass
class World:
    """The volume, whoever uses it, and another one."""

    name: str
    with_origin: bool = False
    layout: LayoutName = "path"
    clock: FakeClock = field(default_factory=FakeClock)
    locate: Locate = in_memory
    with_store_clock: bool = False
    """Whether the store has a clock of its own, which no test advances."""
    features: Sequence[Feature] = ()
    """What the volume has beside the features of every new one."""
    seed: int = 7
    """Of ids: processes of one volume need different ones."""

    async def start(self) -> World:
        """Make the volumes."""
        self.join()
        for config in self._configs():
            await init_volume(config, runtime=self.runtime, enable=self.features)
        return self

    def join(self) -> World:
        """Use volumes that are there."""
        runtime = fake_runtime(self.clock, seed=self.seed)

        async def sleep(seconds: float) -> None:
            # A lease is not renewed while nothing takes time, or renewals would be most of the
            # calls.
            await (sleep_forever() if seconds == RENEW_SECONDS else runtime.sleep(seconds))

        self.runtime = replace(runtime, sleep=sleep)
        self.config = self._config(self.name)
        self.origin = self._config(f"{self.name}-origin") if self.with_origin else self.config
        return self

    async def drop(self) -> None:
        """Remove the volumes, whatever is in them."""
        for config in self._configs():
            for place in (config.table, config.data.below("oplog"), config.data):
                store = place.open(OpenContext(runtime=self.runtime))
                await store.drop()
                await store.close()

    @asynccontextmanager
    async def volume(
        self, config: VolumeConfig | None = None, faults: FaultPlan | None = None
    ) -> AsyncIterator[Volume]:
        """The volume as it is opened by one process, which ends when the body does; dying, it does
        nothing more."""
        volume = await under(faults, open_volume(config or self.config, runtime=self.runtime))
        try:
            yield volume
        except Died:
            with suppress(Died):
                await volume.close()
            raise
        except S3kError:
            with suppress(S3kError):
                await volume.close()
            raise
        else:
            await volume.close()

    @asynccontextmanager
    async def client(self, arm: Arm | None = None) -> AsyncIterator[tuple[S3kClient, S3kClient]]:
        """Clients of the volume and of the origin in a process that goes wrong as `arm` says."""
        faults = FaultPlan()
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(self.volume(self.config, faults))
            there = here
            if self.with_origin:
                there = await stack.enter_async_context(self.volume(self.origin, faults))
            faults.calls.clear()
            if arm is not None:
                arm(faults)
            yield client_of(here), client_of(there)

    async def run(self, scenario: Scenario, arm: Arm | None = None) -> None:
        """Run the verb in a process of its own, which lives until what it deferred is done."""
        async with self.client(arm) as (here, there):
            await scenario.run(here, there)

    async def tree(self) -> dict[str, bytes | None]:
        """What a client sees: the bytes of every file are read."""
        found: dict[str, bytes | None] = {}
        async with self.client() as (fs, _):
            async for status in fs.list("/", recursive=True):
                assert status.path not in found, f"{status.path} twice"
                found[status.path] = None if status.is_dir else await fs.read(status.path)
        return found

    async def marks(self) -> Marks:
        """What a client sees beside the tree. A search for a name of user metadata finds the
        entries that have it."""
        async with self.client() as (fs, _):
            found = {
                status.path: status.attributes
                async for status in fs.list("/", recursive=True)
                if status.attributes != Attributes()
            }
            for name in {name for each in found.values() for name in each.metadata}:
                named = [status.path async for status in fs.find(metadata=name)]
                assert sorted(named) == sorted(
                    path for path, each in found.items() if name in each.metadata
                )
            rules = tuple(await fs.rules()) if "rules" in self.features else ()
            uploads = frozenset([_sizes(*each) for each in await self._uploads(fs._volume())])
            return Marks(found, rules, uploads)

    async def visible(self) -> set[str]:
        """Every path of the table at which a client sees something, whether or not it has
        parents."""
        async with self.client() as (fs, _):
            found = await fs.stat_many(sorted(await self.items()))
            return {status.path for status in found if status is not None and status.committed}

    async def items(self) -> dict[str, Entry]:
        """Every stored item of the table, by path; in layout `tree` without the trash, and without
        intents that are not in effect, since paths depend on them."""
        async with self.volume() as volume:
            entries, seen = await stored_and_seen(volume.store)
        if self.layout == "path":
            return {entry.path: entry for entry in entries}
        by_id = {entry.id: entry for entry in seen}
        paths = paths_of(seen)
        return {
            path: by_id[object_id] for path, object_id in paths.items() if not is_below(path, TRASH)
        }

    async def problems(self) -> set[str]:
        """The kinds of the findings of fsck, and in layout `tree` those of contradictions to the
        log that are found without it."""
        found: set[str] = {each.kind for each in await self.findings() if each.is_problem}
        if self.layout == "path":
            return found
        async with self.volume() as volume:
            assert volume.log_blobs is not None
            return found | await contradictions(volume.store, volume.log_blobs)

    async def findings(self) -> list[Finding]:
        async with self.volume() as volume:
            assert volume.log_blobs is not None
            verifier = Verifier(
                volume.store,
                volume.blobs,
                LogReader(volume.log_blobs),
                self.runtime,
                grace=GRACE,
                place=volume.place,
            )
            return (await verifier.verify(deep=True)).findings

    async def repair(self) -> None:
        """What `s3k fsck repair` does."""
        async with self.volume() as volume:
            await repair_volume(volume, dry_run=False, grace=GRACE)

    async def collect(self) -> set[str]:
        """What `s3k gc` does; the keys that are left, without those of uploads that were open, of
        which it keeps everything."""
        async with self.volume() as volume:
            kept: set[str | None] = {upload.id for upload, _ in await self._uploads(volume)}
            place = CollectedData.of(volume)
            if self.with_store_clock:
                place = replace(place, data=_Clocked(place.data, self.clock))
            audit = AuditTrail(volume.log_blobs, self.runtime.uuid())
            collector = GarbageCollector(place, self.runtime, AGES, audit)
            with TemporaryDirectory() as directory:
                candidates = f"{directory}/candidates"
                marked = await collector.mark(candidates)
                await collector.clean_up(marked)
                swept = await collector.sweep(candidates)
            assert swept.failures == []
            left = {info.key async for info in list_all(volume.blobs)}
            for _, parts in await self._uploads(volume):
                for part in parts:
                    assert left.issuperset(physical_keys(part.content.physical))
            return {key for key in left if object_id_of(key) not in kept | {None}}

    async def named(self) -> set[str]:
        """The keys that the files of the tree name, those of adopted objects apart."""
        async with self.client() as (fs, _):
            return {
                key
                async for status in fs.list("/", recursive=True)
                for key in physical_keys(status.physical)
                if "://" not in key
            }

    async def referenced(self) -> set[str]:
        """The keys that entries name, including entries in the trash, without those of adopted
        objects."""
        async with self.volume() as volume:
            entries, _ = await stored_and_seen(volume.store)
        return {
            key
            for entry in entries
            if entry.committed
            for key in physical_keys(entry.physical)
            if "://" not in key
        }

    async def table(self) -> list[Item]:
        """The items of all objects."""
        async with self.volume() as volume:
            return await objects_of(volume)

    async def lose_table(self) -> None:
        """The table is gone, and what `s3k fsck restore` does."""
        table = self.config.table.open(OpenContext(runtime=self.runtime))
        await table.drop()
        await table.close()
        await restore_at_once(self.config, self.runtime)

    async def _uploads(self, volume: Volume) -> list[tuple[MultipartUpload, list[PartInfo]]]:
        """The open multipart uploads with their parts, in a scenario that has any."""
        if "uploads" not in self.features:
            return []
        return [
            (upload, await list_parts(volume, upload.id)) for upload in await list_uploads(volume)
        ]

    def _config(self, name: str) -> VolumeConfig:
        return VolumeConfig(
            name, *self.locate(name), suffix_count=2, tuning=TUNING, layout=self.layout
        )

    def _configs(self) -> list[VolumeConfig]:
        return [self.config, self.origin] if self.with_origin else [self.config]


def _sizes(upload: MultipartUpload, parts: Sequence[PartInfo]) -> Parts:
    return upload.path, tuple((part.number, part.size) for part in parts)


class _Clocked(FaultyBlobs):
    """Blobs of a store whose time is that of the scenario, which passes faster than its own."""

    def __init__(self, store: BlobStore, clock: FakeClock) -> None:
        super().__init__(store, FaultPlan())
        self._clock = clock

    async def now_ms(self) -> int:
        return self._clock.now_ms()


@asynccontextmanager
async def world_of(scenario: Scenario, **places: Any) -> AsyncIterator[World]:
    """A world in which the scenario can begin; `places` are further fields of it."""
    features = {"features": scenario.features, **places}
    world = World(fresh_name("crash"), bool(scenario.origin), scenario.layout, **features)
    await world.start()
    try:
        async with world.client() as (here, there):
            for fs, paths in ((here, scenario.before), (there, scenario.origin)):
                for path, data in paths.items():
                    if data is None:
                        await fs.makedirs(path)
                    elif path in scenario.grown:
                        await fs.write(path, data[:-1])
                        await fs.append(path, data[-1:])
                    else:
                        await fs.write(path, data)
            if scenario.prepare is not None:
                await scenario.prepare(here)
        world.clock.advance(100)
        yield world
    finally:
        await world.drop()


def client_of(volume: Volume) -> S3kClient:
    """A client of a volume that is open."""
    client = S3kClient(config=volume.config)
    client._opened = _Opened(volume, asyncio.get_running_loop(), os.getpid())
    return client
