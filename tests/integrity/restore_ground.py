"""A log and data objects that tests of restore plans write by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeAlias
from unittest.mock import patch

import pytest
from anyio import sleep_forever
from anyio.lowlevel import checkpoint

from s3k_async import _native
from s3k_async._core.runtime import Runtime
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.items import OPERATION, PARTITION, SORT, Item, Value
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.config import VolumeConfig
from s3k_async.errors import DirectoryNotEmptyError
from s3k_async.integrity.local_restore import ExistingEntries, plan_restore
from s3k_async.integrity.restore_plan import ClaimRow
from s3k_async.integrity.restore_report import RestoreReport
from s3k_async.layouts.tree.trash_items import moved_to_trash
from s3k_async.model import (
    TRASH_ID,
    Deletion,
    Entry,
    LayoutName,
    TrashState,
)
from s3k_async.oplog.entries import Operation, OperationKind
from s3k_async.oplog.external_sort import SortedLine
from s3k_async.oplog.log_writer import NativeLog
from s3k_async.table.codec import from_item
from s3k_async.table.keys import KeyScheme, is_entry_partition
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.testing import Died, FaultPlan, Moment
from s3k_async.txn import volume_lock
from s3k_async.volumes import Volume, open_volume
from s3k_async.volumes.restoration import TREE_PLANS, restore_volume
from tests.level import calls_to_try
from tests.oplog.operations import log_blobs
from tests.support import FakeClock, fake_runtime, under

Place: TypeAlias = tuple[int, int]
REACHED: set[str] = set()
"""The outcomes in the reports of all plans."""


@dataclass
class Ground:
    """A log and bytes, written to by hand."""

    log_blobs: MemoryBlobs
    data: MemoryBlobs
    layout: LayoutName = "path"
    clock: FakeClock = field(default_factory=FakeClock)
    ids: dict[str, str] = field(default_factory=lambda: {"/": ROOT_ENTRY.id})
    """In layout `tree` the ids of the directories that were made last at each path."""
    items: dict[str, Mapping[str, Value]] = field(default_factory=dict)
    """The items of the last plan, by object id."""

    def __post_init__(self) -> None:
        self.runtime = fake_runtime(self.clock, seed=5)
        self.log = NativeLog(self.log_blobs, self.runtime)

    @property
    def keys(self) -> KeyScheme:
        return KeyScheme("v", 2, layout=self.layout)

    def parent(self, path: str) -> str:
        """The directory key that an entry at the path has, beside its path."""
        parent = path.rpartition("/")[0] or "/"
        return self.ids.setdefault(parent, self.runtime.uuid()) if self.layout == "tree" else ""

    def directory(self, path: str) -> Entry:
        identity = self.runtime.uuid()
        self.ids[path] = identity
        return Entry(
            path,
            True,
            identity,
            1,
            1_600_000_000,
            1_600_000_000_000,
            operation=self.runtime.uuid(),
            directory=self.parent(path),
        )

    async def file(self, path: str, size: int = 3, *, stored: bool = True) -> Entry:
        identity = self.runtime.uuid()
        physical = self.runtime.physical_key(identity)
        if stored:
            await self.data.put(physical, b"x" * size)
        operation = self.runtime.uuid()
        return Entry(
            path,
            False,
            identity,
            2,
            1,
            1000,
            size,
            physical,
            committed=True,
            operation=operation,
            directory=self.parent(path),
        )

    def change(
        self,
        kind: OperationKind,
        before: Entry | None,
        after: Entry | None,
        trash: Deletion | None = None,
    ) -> Operation:
        state = after or before
        assert state is not None
        version = after.version if after else state.version + 1
        identity = after.operation if after else self.runtime.uuid()
        return Operation(
            identity, kind, state.id, version, self.clock.now_ms(), before, after, trash
        )

    def moved(self, entry: Entry, path: str, directory: str = "") -> Operation:
        directory = directory or self.parent(path)
        after = entry.moved(path, operation=self.runtime.uuid(), directory=directory)
        return self.change("rename", entry, after)

    def trashed(self, entry: Entry, state: TrashState = "") -> Operation:
        """The operation that moves a directory into the trash, or for one that is there another
        state of it."""
        after = moved_to_trash(entry, operation=self.runtime.uuid())
        deletion = Deletion("deleted", ROOT_ENTRY.id, "/was", 77, "user@host", state)
        kind: OperationKind = "update" if entry.directory == TRASH_ID else "rename"
        return self.change(kind, entry, after, deletion)

    async def commit(self, *operations: Operation) -> None:
        assert await (await self.log.begin(operations)).commit()

    async def begin(self, *operations: Operation) -> None:
        await self.log.begin(operations)

    async def made(self, *entries: Entry) -> None:
        for entry in entries:
            await self.commit(self.change("create" if entry.is_dir else "update", None, entry))

    async def restored(
        self,
        path: str = "/",
        existing: Iterable[Entry] | None = None,
        removed: Sequence[str] = (),
    ) -> tuple[dict[str, Entry], RestoreReport]:
        async def pages() -> AsyncIterator[ExistingEntries]:
            yield ExistingEntries(list(existing or ()), removed)

        plan = await plan_restore(
            self.log_blobs,
            self.data,
            self.runtime,
            make_tree=TREE_PLANS[self.layout],
            volume_id="v",
            keys=self.keys,
            path=path,
            existing=None if existing is None else pages(),
        )
        entries = [entry for batch in plan.tree.entries() for entry in batch]
        self.items = {entry.id: plan.tree.item(entry, self.keys) for entry in entries}
        made = [entry for batch in plan.tree.made_parents() for entry in batch]
        assert len(made) == plan.report.counts["parent_made"]
        plan.close()
        files = [entry for entry in entries if entry.committed]
        assert plan.report.files == len(files)
        assert plan.report.bytes == sum(entry.size for entry in files)
        assert plan.report.directories == sum(entry.is_dir for entry in entries)
        assert plan.report.restored == len(entries)
        paths = [entry.path for entry in entries]
        assert len(set(paths)) == len(paths)
        for place, one in enumerate(paths):
            assert not any(other.startswith(one + "/") for other in paths[:place])
        REACHED.update(rule for rule, count in plan.report.counts.items() if count)
        return {entry.path: entry for entry in entries}, plan.report


@contextmanager
def by_the_rules() -> Iterator[None]:
    """Let the rules decide every object, in the body, from decoded records."""

    def undecided(lines: Sequence[SortedLine], *_: object) -> tuple[list[ClaimRow], list[Place]]:
        places: list[Place] = []
        for _, some in groupby(lines, key=lambda line: line[0]):
            start = places[-1][1] if places else 0
            places.append((start, start + len(list(some))))
        return [], places

    with (
        patch.object(_native, "record_facts", lambda *_: None),
        patch.object(_native, "committed_claims", undecided),
    ):
        yield


async def new_ground(layout: LayoutName) -> Ground:
    return Ground(await log_blobs(), await log_blobs(), layout)


def rules(report: RestoreReport) -> list[tuple[str, str]]:
    return sorted((outcome.rule, outcome.path) for outcome in report.outcomes)


async def objects_of(volume: Volume) -> list[Item]:
    """The items of all objects in the table, the trash included, without removal markers. A
    transaction in a directory writes an operation id into its item, which no log contains."""
    check, keys = volume.store.layout.check(), volume.store.keys
    items = [
        item
        async for page in scan_all(volume.items)
        for item in page
        if is_entry_partition(str(item[PARTITION])) and check.is_object(item, from_item(item, keys))
    ]
    return sorted(
        ({**item, OPERATION: ""} if item["isdir"] else item for item in items),
        key=lambda item: (str(item[PARTITION]), str(item[SORT])),
    )


async def restore_at_once(config: VolumeConfig, runtime: Runtime) -> RestoreReport:
    """Restore a volume that no client has open, while no time passes, so that the lock is held
    without being renewed."""

    async def sleep(seconds: float) -> None:
        await (sleep_forever() if seconds == volume_lock.RENEW_SECONDS else checkpoint())

    return await restore_volume(config, dry_run=False, runtime=replace(runtime, sleep=sleep))


async def lose_table(config: VolumeConfig) -> None:
    """Remove the table of a volume."""
    volume = await open_volume(config)
    await volume.table.drop()
    await volume.close()


async def deaths_of_a_restore(config: VolumeConfig, calls: int, when: Moment) -> AsyncIterator[int]:
    """Lose the table, die at one of the calls of its restore, and restore it again, for every
    second call of those to try; the number of each."""
    for number in calls_to_try(calls)[when == "after" :: 2]:
        await lose_table(config)
        faults = FaultPlan()
        faults.die(number, when=when)
        with pytest.raises(Died):
            await under(faults, restore_volume(config, dry_run=False))
        try:
            await restore_volume(config, dry_run=False)
        except DirectoryNotEmptyError:
            assert number >= calls - 2, "only what was finished by then"
        yield number
