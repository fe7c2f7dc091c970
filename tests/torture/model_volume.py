"""A volume whose clients can be killed, lose answers and be refused at any call, on any engine."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from anyio import sleep_forever

from s3k_async import S3kClient
from s3k_async._core.concurrency import interleaved
from s3k_async._core.runtime import Runtime
from s3k_async.client import _Opened
from s3k_async.config import LocalDirectory, MemoryBlobs, MemoryTable, SqliteFile, VolumeConfig
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.repair import repair_volume
from s3k_async.integrity.verify_rules import Finding
from s3k_async.model import Entry, Feature, LayoutName
from s3k_async.oplog.log_reader import LogReader
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.testing.faults import guarded
from s3k_async.txn.txn_record import RENEW_SECONDS
from s3k_async.volumes import Volume, destroy_volume, init_volume, open_volume
from tests.client.rig import TUNING
from tests.engines.volumes import fresh_name
from tests.integrity.garbage import gc_of
from tests.integrity.restore_ground import lose_table, objects_of, restore_at_once
from tests.integrity.verifier import Verifier
from tests.layouts.trees import paths_of
from tests.support import FakeClock, fake_runtime

__all__ = [
    "EVER",
    "LEASE",
    "Member",
    "ModelVolume",
    "calm",
    "dying",
    "embedded_config",
    "failing",
    "memory_config",
    "under_faults",
]

EVER = 10**9
GRACE = 60.0
QUIET = 1000.0
"""Seconds after which nothing that is left is young."""
LEASE = 10.0**7
"""Of reservations: it runs out when it is told to, and not beside something else."""
AHEAD = 86_400.0
"""How far the volume's clock is ahead of the file system's: what was just stored is old enough for
fsck."""

TUNED = replace(TUNING, lease=LEASE)

ITEM_CALLS = ("get", "get_many", "write", "transact", "query", "scan", "load")
BLOB_CALLS = (
    "put",
    "get",
    "get_into",
    "head",
    "copy",
    "delete",
    "delete_many",
    "list",
    "start_upload",
)
UPLOAD_CALLS = ("put_part", "copy_part", "complete", "abort")
CALLS = frozenset((*ITEM_CALLS, *BLOB_CALLS, *UPLOAD_CALLS))


class _Guarded:
    """A store, or an upload, whose calls go through a plan."""

    def __init__(self, store: Any, plan: FaultPlan, part: str) -> None:
        self.store = store
        self._plan = plan
        self._part = part

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.store, name)
        return self._guarded(name, value) if name in CALLS else value

    def can_copy_from(self, source: Any) -> bool:
        return bool(self.store.can_copy_from(_bare(source)))

    def _guarded(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def made(*given: Any, **named: Any) -> Any:
            given = tuple(_bare(each) for each in given)
            key = str(given[0]) if given else ""
            async with guarded(self._plan, self._part, method, key), interleaved:
                answer = await call(*given, **named)
            return _Guarded(answer, self._plan, self._part) if method == "start_upload" else answer

        return made


def _bare(value: Any) -> Any:
    return value.store if isinstance(value, _Guarded) else value


def under_faults(volume: Volume, plan: FaultPlan) -> None:
    """From now on every call of the volume's stores goes through the plan."""
    items: Any = volume.items
    items._store = _Guarded(items._store, plan, "table")
    parts: dict[str, Any] = {"data": volume.blobs, "log": volume.log_blobs}
    for part, blobs in parts.items():
        if blobs is not None:
            blobs.store = _Guarded(blobs.store, plan, part)


def memory_config(layout: LayoutName = "path") -> VolumeConfig:
    """A new volume in memory."""
    name = fresh_name("model")
    return VolumeConfig(
        name, MemoryTable(name), MemoryBlobs(name), suffix_count=2, tuning=TUNED, layout=layout
    )


def embedded_config(directory: str) -> VolumeConfig:
    """A new volume of SQLite and a directory, below `directory`, of layout `path`."""
    name = fresh_name("model")
    place = os.path.join(directory, name)
    os.mkdir(place)
    table, data = (
        SqliteFile(os.path.join(place, "table.db")),
        LocalDirectory(os.path.join(place, "data")),
    )
    return VolumeConfig(name, table, data, suffix_count=2, tuning=TUNED, layout="path")


@dataclass
class Member:
    """One process that uses the volume."""

    fs: S3kClient
    volume: Volume
    faults: FaultPlan

    async def close(self) -> None:
        await self.fs.close()

    async def die(self) -> None:
        """What is left of it once it is dead: nothing of it is written any more."""
        self.faults.fail_when(lambda _: True, Died("is dead"), times=EVER)
        with suppress(Died):
            await self.fs.close()


@dataclass
class ModelVolume:
    """One volume, whoever uses it; time passes only when it is told to, or while somebody waits."""

    config: VolumeConfig
    features: Sequence[Feature] = ()
    """What the volume has beside the features of every new one."""
    seed: int = 7
    clock: FakeClock = field(default_factory=lambda: FakeClock(float(int(time.time() + AHEAD))))

    def __post_init__(self) -> None:
        runtime = fake_runtime(self.clock, seed=self.seed)

        async def sleep(seconds: float) -> None:
            # A lease is not renewed while nothing takes time, or renewals would be most of the
            # calls.
            await (sleep_forever() if seconds == RENEW_SECONDS else runtime.sleep(seconds))

        self.runtime: Runtime = replace(runtime, sleep=sleep)

    async def start(self) -> None:
        await init_volume(self.config, enable=self.features)

    async def join(self) -> Member:
        """One more client."""
        fs = S3kClient(config=self.config)
        volume = await open_volume(self.config, runtime=self.runtime, counter=fs._counter)
        faults = FaultPlan()
        under_faults(volume, faults)
        fs._opened = _Opened(volume, asyncio.get_running_loop(), os.getpid())
        return Member(fs, volume, faults)

    async def drop(self) -> None:
        await destroy_volume(self.config, force=True)

    async def scanned(self, member: Member) -> dict[str, Entry]:
        """Every item of the table that is an entry, whether or not it can be reached from the
        root; in layout `tree` without the trash, and without what an interrupted transaction has
        put there or is to remove: a directory would be at two places."""
        store = member.volume.store
        if self.config.layout != "tree":
            return {entry.path: entry async for page in store.scan("/") for entry in page}
        view = store.view()
        entries = [entry async for page in store.scan("/") for entry in await view(page)]
        by_id = {entry.id: entry for entry in entries}
        return {
            path: by_id[object_id]
            for path, object_id in paths_of(entries).items()
            if not path.startswith("/.trash/")
        }

    async def findings(self, member: Member) -> list[Finding]:
        """What fsck has against the volume once everything in it is old enough."""
        self.clock.advance(QUIET)
        volume = member.volume
        assert volume.log_blobs is not None
        verifier = Verifier(
            volume.store,
            volume.blobs,
            LogReader(volume.log_blobs),
            self.runtime,
            grace=GRACE,
            place=volume.place,
        )
        report = await verifier.verify(deep=True)
        return report.problems

    async def repaired(self, member: Member) -> None:
        """Everything that fsck can mend is mended, once it is old enough."""
        self.clock.advance(QUIET)
        await repair_volume(member.volume, dry_run=False, grace=GRACE)

    async def lose_table(self) -> None:
        """The table is lost after a repair, while no client has the volume open, and comes back
        from the log to the last attribute."""
        member = await self.join()
        await self.repaired(member)
        await member.volume.log.drained()
        before = await objects_of(member.volume)
        await member.close()
        await lose_table(self.config)
        report = await restore_at_once(self.config, self.runtime)
        # A repair leaves what is pending about a file whose writer may still be alive; a restore
        # finishes it, or drops it with the reservation.
        reserved = {item["id"] for item in before if item.get("physcommitted") is False}
        problems = [
            each
            for each in report.problems
            if each.rule != "delete_undone" or each.object_id not in reserved
        ]
        assert problems == []
        member = await self.join()
        after = await objects_of(member.volume)
        assert {item["id"] for item in after} <= {item["id"] for item in before}
        for item in before:
            if item["id"] not in reserved:
                assert item in after
        assert all(
            item in before or (item["id"] in reserved and item["physcommitted"] is True)
            for item in after
        )
        if reserved:  # the log does not say yet what the restore has finished
            await self.repaired(member)
        assert await self.findings(member) == []
        await member.close()

    async def collected(self, member: Member) -> None:
        """Bytes that nobody names are marked, and after another grace period swept."""
        self.clock.advance(QUIET)
        collector = gc_of(member.volume, self.runtime, Ages(grace=GRACE, lease=LEASE, late=GRACE))
        with tempfile.TemporaryDirectory(prefix="s3k-model-gc-") as directory:
            candidates = os.path.join(directory, "candidates")
            marked = await collector.mark(candidates)
            self.clock.advance(QUIET)
            await collector.clean_up(marked)
            await collector.sweep(candidates)


def dying(faults: FaultPlan, number: int, *, after: bool) -> None:
    """The process dies at a call of those to come, and makes no other."""
    number += len(faults.calls)
    faults.die(number, when="after" if after else "before")
    faults.fail_when(lambda call: call.number > number, Died("is dead"), times=EVER)


def failing(faults: FaultPlan, number: int, error: Exception, *, after: bool, times: int) -> None:
    """From a call of those to come on, so many fail with `error`, before or after they are
    applied."""
    number += len(faults.calls)

    def due(call: Call) -> bool:
        return call.number >= number

    faults.fail_when(due, error, when="after" if after else "before", times=times)


def calm(faults: FaultPlan) -> None:
    """No call fails from now on."""
    faults._faults.clear()
