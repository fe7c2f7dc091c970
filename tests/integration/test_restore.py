"""A volume whose table was lost comes back from its log, on real stores."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import PARTITION, SORT, Condition, Delete, Key
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    DirectoryNotEmptyError,
    UnsupportedError,
    VolumeNotFoundError,
)
from s3k_async.integrity.local_restore import RestorePlan
from s3k_async.integrity.restore_report import RestoreReport
from s3k_async.model import Entry, Progress
from s3k_async.oplog.compaction import Compactor
from s3k_async.testing import Died, FaultPlan, Moment
from s3k_async.txn import volume_lock
from s3k_async.volumes import Volume, init_volume, open_volume
from s3k_async.volumes.restoration import restore_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integrity.restore_ground import deaths_of_a_restore, lose_table
from tests.support import under

Tree = dict[str, tuple[Entry, bytes | None]]


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else has these volumes open."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


async def entries_of(volume: Volume) -> AsyncIterator[Entry]:
    async for page in volume.store.scan("/"):
        for entry in page:
            yield entry


async def tree_of(config: VolumeConfig, *, read: bool = True) -> Tree:
    """Every entry, without write intents, and every byte."""
    volume = await open_volume(config)
    found: Tree = {}
    async for entry in entries_of(volume):
        data = await volume.storage.read(str(entry.physical)) if read and not entry.is_dir else None
        found[entry.path] = (
            replace(entry, pending="", operation="" if entry.is_dir else entry.operation),
            data,
        )
    await volume.close()
    return found


async def lived(config: VolumeConfig, number: int) -> None:
    """Files, some overwritten, moved or deleted, empty ones and empty directories."""
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        names = [f"/in/day={number % 7}/part-{number:06d}" for number in range(number)]
        for start in range(0, number, 5000):
            some = names[start : start + 5000]
            await fs.write_many(
                [(name, b"" if place % 3 else name.encode()) for place, name in enumerate(some)]
            )
        await fs.makedirs("/empty/one")
        await fs.makedirs("/empty/two")
        await fs.write_many([(name, b"again " + name.encode()) for name in names[::10]])
        await fs.rename("/in/day=1", "/moved")
        await fs.rename("/in/day=2/part-000002", "/empty/one/two")
        await fs.delete("/in/day=3", recursive=True)
        for name in names[4::70]:
            await fs.delete(name)
        await fs.delete("/empty/two")


async def interrupt_a_rename(config: VolumeConfig) -> None:
    """As an owner does that died while it was preparing: some of a directory's operations are
    pending."""
    volume = await open_volume(config)
    found = [entry async for entry in entries_of(volume) if entry.path.startswith("/in/day=0")]
    directory = next(entry for entry in found if entry.path == "/in/day=0")
    children = [entry for entry in found if entry.path != directory.path][:-1]
    for some in ([directory], children):
        moves = [
            volume.store.changes.operation(
                "rename",
                entry,
                entry.moved(entry.path.replace("day=0", "day=x"), operation=SYSTEM.uuid()),
            )
            for entry in some
        ]
        await volume.log.begin(moves)
    await volume.close()


async def restored(
    config: VolumeConfig, progress: Callable[[Progress], object] | None = None
) -> RestoreReport:
    plan = await restore_volume(config, progress=progress)
    assert plan.written == 0
    report = await restore_volume(config, dry_run=False, progress=progress)
    assert (report.files, report.directories, report.counts) == (
        plan.files,
        plan.directories,
        plan.counts,
    )
    assert report.written == report.restored
    return report


@volume_backends(
    "memory", "embedded", "dynoxide+seaweedfs", "dynamodb_local+seaweedfs", "redis", "rocksdb"
)
async def test_every_path_version_time_and_byte_comes_back(new_volume: VolumeMaker) -> None:
    config = new_volume(suffix_count=7)
    await lived(config, 140 if new_volume.backend == "memory" else 56)
    before = await tree_of(config)
    await interrupt_a_rename(config)
    await lose_table(config)
    with pytest.raises(VolumeNotFoundError):
        await open_volume(config)
    report = await restored(replace(config, suffix_count=None))
    assert report.clean
    assert report.counts["rename_undone"] > 4
    after = await tree_of(config)
    assert after == before
    assert len(before) > 40
    async with S3kClient(config=config) as fs:
        await fs.write("/in/day=0/more", b"more")
        assert await fs.read("/empty/one/two") == before["/empty/one/two"][1]


@volume_backends("memory", "embedded")
async def test_a_compacted_log_restores_the_same(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await lived(config, 84)
    before = await tree_of(config)
    volume = await open_volume(config)
    assert volume.log_blobs is not None
    done = await Compactor(volume.log_blobs, SYSTEM, grace=0).run(dry_run=False)
    assert done.removed > 5
    await volume.close()
    await lose_table(config)
    assert (await restored(config)).clean
    assert await tree_of(config) == before


@volume_backends("memory")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_death_at_every_call_of_a_restore_is_finished_by_restoring_again(
    new_volume: VolumeMaker, when: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_lock, "LOCK_SECONDS", 0.0)
    config = new_volume()
    await lived(config, 30)
    before = await tree_of(config)
    probe = FaultPlan()
    await lose_table(config)
    await under(probe, restore_volume(config, dry_run=False))
    assert await tree_of(config) == before
    async for number in deaths_of_a_restore(config, len(probe.calls), when):
        assert await tree_of(config) == before, number


@volume_backends("embedded")
async def test_the_lock_is_renewed_while_a_large_log_is_decided(
    new_volume: VolumeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop was busy deciding until the lease was over, and the restore was refused at its
    first write."""
    monkeypatch.setattr(volume_lock, "RENEW_SECONDS", 0.05)
    config = new_volume()
    await lived(config, 14)
    await lose_table(config)
    renewed: list[float] = []
    decide, renew = RestorePlan.decide, volume_lock.VolumeLock._renew

    def slowly(self: RestorePlan, now_ms: int) -> None:
        before = len(renewed)
        while len(renewed) < before + 3:
            time.sleep(0.01)
        decide(self, now_ms)

    async def noted(self: volume_lock.VolumeLock, *arguments: Any) -> None:
        await renew(self, *arguments)
        renewed.append(SYSTEM.monotonic())

    monkeypatch.setattr(RestorePlan, "decide", slowly)
    monkeypatch.setattr(volume_lock.VolumeLock, "_renew", noted)
    assert (await restore_volume(config, dry_run=False)).clean


@volume_backends("memory")
async def test_a_half_restored_volume_opens_for_nobody(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await lived(config, 30)
    before = await tree_of(config)
    await lose_table(config)
    faults = FaultPlan()
    faults.fail_when(lambda call: call.method == "load", Died("died"), when="after")
    with pytest.raises(Died):
        await under(faults, restore_volume(config, dry_run=False))
    with pytest.raises(
        BusyError,
        match=r"restore of the volume .*was interrupted; repeat the restore to finish it",
    ):
        await open_volume(config)
    await restore_volume(config, dry_run=False)
    assert await tree_of(config) == before


@volume_backends("memory")
async def test_what_the_table_lost_below_a_path_is_put_back(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await lived(config, 70)
    before = await tree_of(config)
    volume = await open_volume(config)
    keys = volume.store.keys
    lost = [
        path
        for path in before
        if path.startswith("/moved/") or path == "/moved" or path.endswith("part-000000")
    ]
    assert len(lost) > 5
    for path in lost:
        await volume.items.write(
            Delete(keys.key(path), Condition(equals={"id": before[path][0].id}))
        )
    await volume.close()
    with pytest.raises(DirectoryNotEmptyError, match="--subtree"):
        await restore_volume(config)
    plan = await restore_volume(config, subtree="/moved")
    report = await restore_volume(config, subtree="/moved", dry_run=False)
    assert plan.restored == report.written == len(lost) - 1
    assert (await tree_of(config)).keys() == before.keys() - {"/in/day=0/part-000000"}
    await restore_volume(config, subtree="/", dry_run=False)
    assert await tree_of(config) == before


@volume_backends("memory")
async def test_a_subtree_of_a_table_that_is_lost_is_no_restore(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await lived(config, 7)
    await lose_table(config)
    with pytest.raises(VolumeNotFoundError):
        await restore_volume(config, subtree="/in", dry_run=False)


@volume_backends("memory")
async def test_there_is_nothing_to_restore_where_no_volume_was(new_volume: VolumeMaker) -> None:
    with pytest.raises(VolumeNotFoundError, match="no volume at this location"):
        await restore_volume(new_volume())
    config = new_volume(log_mode="disabled")
    await init_volume(config)
    with pytest.raises(UnsupportedError, match="without operation log"):
        await restore_volume(config)


@volume_backends("memory")
async def test_what_a_restore_writes_is_in_its_audit_trail_before(
    new_volume: VolumeMaker,
) -> None:
    config = new_volume()
    await lived(config, 30)
    await lose_table(config)
    faults = FaultPlan()
    report = await under(faults, restore_volume(config, dry_run=False))
    volume = await open_volume(config)
    assert volume.log_blobs is not None
    named = [
        json.loads(line)
        for info in [info async for info in list_all(volume.log_blobs, f"audit/{report.run}/")]
        for line in (await volume.log_blobs.get(info.key)).splitlines()
    ]
    assert {line["path"] for line in named} == {entry.path async for entry in entries_of(volume)}
    await volume.close()
    asked = [call for call in faults.calls if call.method == "load" or "/audit/" in call.key]
    assert "/audit/" in asked[0].key


@volume_backends("memory")
async def test_a_table_that_was_emptied_is_lost_too(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await lived(config, 30)
    before = await tree_of(config)
    volume = await open_volume(config)
    page = await volume.items.scan(0, 1)
    for item in page.items:
        await volume.items.write(Delete(Key(str(item[PARTITION]), str(item[SORT])), Condition()))
    await volume.close()
    await restored(config)
    assert await tree_of(config) == before


def restored_alone(config: VolumeConfig) -> tuple[RestoreReport, float, int]:
    """Restore, as a process that does nothing else; the report, seconds, and the most memory it
    had, in MiB."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
        began = SYSTEM.monotonic()
        report = asyncio.run(restore_volume(config, dry_run=False))
        seconds = SYSTEM.monotonic() - began
    return report, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.mark.slow
@volume_backends("embedded")
async def test_a_hundred_thousand_files_come_back(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await lived(config, 120_000)  # of which a seventh and a little more are deleted again
    before = await tree_of(config, read=False)
    await interrupt_a_rename(config)
    await lose_table(config)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        report, seconds, peak = process.submit(restored_alone, config).result()
    sys.stdout.write(
        f"{report.log_records} records of the log read, {report.written} entries written, "
        f"{report.files} of them files,"
        f" in {seconds:.1f} s; at most {peak} MiB\n"
    )
    assert report.clean
    assert await tree_of(config, read=False) == before
    assert report.files > 100_000
