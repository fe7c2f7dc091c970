"""Garbage collection over Spark marks and deletes what one machine does, and no live byte."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import Condition, Delete, Update
from s3k_async.backends.ports.key_ranges import KeyRange
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import Tuning, VolumeConfig
from s3k_async.errors import InvalidArgumentError, LogFormatError, UnreachableError
from s3k_async.files.multipart import create_upload, list_parts, list_uploads, put_part
from s3k_async.integrity.gc_candidates import CandidateReader
from s3k_async.integrity.gc_mark import Marked, ObjectCount
from s3k_async.integrity.gc_rules import Ages, Verdict
from s3k_async.integrity.gc_sweep import Swept
from s3k_async.oplog.compaction import Compactor
from s3k_async.oplog.entries import history_prefix
from s3k_async.oplog.log_reader import LogReader, entry_ranges
from s3k_async.spark import gc, gc_job
from s3k_async.spark.gc_tasks import SHARDS, range_of
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.upload_items import upload_key
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import faulty_client
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integrity.garbage import DAY, gc_of, live_keys, stored_keys
from tests.integrity.test_collect_engines import Crowd
from tests.spark.cluster import first
from tests.spark.places import embedded, on
from tests.support import FakeClock, fake_runtime

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

GRACE = DAY / 2
LEASE = 600.0
FAR = Ages(grace=GRACE, lease=LEASE)
DEAD = ("deleted", "replaced", "unpublished")
KEPT = ("damaged", "foreign", "lost", "named", "uploading", "waiting", "young")


async def litter(directory: Path) -> None:
    """A volume with garbage of every kind, days ago, part of it in a checkpoint of the log; and
    some of today."""
    config, now = embedded(directory), time.time()
    await init_volume(config)
    clock, faults = FakeClock(now - 20 * DAY), FaultPlan()
    runtime = fake_runtime(clock, seed=3)
    async with faulty_client(faults, config, runtime) as fs:
        volume = fs._volume()
        assert volume.log_blobs is not None
        for turn in range(2):
            await fs.write_many(
                [(f"/many{turn}/{number}", b"many" * number) for number in range(30)]
            )
            for number in range(12):
                await fs.write(f"/one{turn}/{number}", b"one" * number)
            await fs.write(f"/one{turn}/0", b"replaced")
            await fs.rename(f"/one{turn}/1", f"/one{turn}/2", overwrite=True)
            await fs.delete_many([f"/many{turn}/{number}" for number in range(10)])
            await fs.delete(f"/one{turn}/3")
            await fs.copy(f"/one{turn}/4", f"/copy{turn}")
            await fs.rename(f"/many{turn}", f"/moved{turn}")
            await fs.write(f"/tree{turn}/a/b", b"deleted with its directory")
            await fs.delete(f"/tree{turn}", recursive=True)
            await volume.log.drained()
            if turn == 0:
                clock.advance(5 * DAY)
                assert (await Compactor(volume.log_blobs, runtime).run(dry_run=False)).checkpoint
        await volume.blobs.put(runtime.physical_key(runtime.uuid()), b"nobody knows it")
        await volume.blobs.put("data/part-0", b"somebody's")
        await volume.store.reserve(await volume.store.prepare("/abandoned"), exclusive=True)
        await (await volume.blobs.start_upload(runtime.physical_key(runtime.uuid()))).put_part(
            1, b"unfinished"
        )
        await uploads(volume)
        await damage(fs, volume)
        await pending(fs, faults)
        clock.seconds = now - GRACE / 2
        await fs.delete("/one0/8")  # that somebody may still read
        await volume.log.drained()
    for where, _, names in os.walk(directory / "data"):
        # What was not published for a day is removed when the volume is opened.
        then = now - (20 * 3600 if where.endswith(".tmp") else 4 * DAY)
        for name in names:
            os.utime(Path(where, name), (then, then))
    async with S3kClient(config=config) as fs:
        await fs._volume().blobs.put(SYSTEM.physical_key(SYSTEM.uuid()), b"just now")


async def uploads(volume: Volume) -> None:
    """Multipart uploads: two that are open, of which one has expired, and one of which a client
    that died has left the items."""
    for lifetime in (100 * DAY, DAY, 100 * DAY):
        upload = await create_upload(volume, "/upload", lifetime=lifetime)
        for number in range(3):
            await put_part(volume, upload.id, number, b"part %d" % number)
    await volume.items.write(Update(upload_key(upload.id), Condition(), {"state": "aborted"}))


async def damage(fs: S3kClient, volume: Volume) -> None:
    """A file that only the log knows, and dead bytes of which something cannot be understood."""
    items, keys = volume.items, volume.store.keys
    await items.write(Delete(keys.key("/one1/5"), Condition()))
    assert volume.log_blobs is not None
    entry = await volume.store.get("/one1/6")
    assert entry is not None
    await fs.delete("/one1/6")
    await volume.log.drained()
    names = [info.key async for info in list_all(volume.log_blobs, history_prefix(entry.id))]
    await volume.log_blobs.put(names[0], b"no log object")
    await fs.write("/one1/7", b"whose item cannot be understood")
    await items.write(Update(keys.key("/one1/7"), Condition(), {"physpath": 7, "next": "nonsense"}))


async def pending(fs: S3kClient, faults: FaultPlan) -> None:
    """Bytes that only pending operations name, one of them alone and some in a segment of the log,
    since their writer died."""
    died = UnreachableError("died here")
    faults.fail_when(lambda call: call.method in ("write", "transact", "delete"), died, times=100)
    with suppress(UnreachableError):
        await fs.write("/one1/9", b"never published")
    faults._faults.clear()
    dead = False

    def is_dead(call: Call) -> bool:
        nonlocal dead
        dead |= call.method == "transact"
        return dead

    faults.fail_when(is_dead, Died("died here"), times=10**6)
    with suppress(Died, BaseExceptionGroup):
        await fs.write_many([(f"/one1/dead{number}", b"nor these") for number in range(3)])
    faults._faults.clear()
    volume = fs._volume()
    assert volume.log_blobs is not None
    assert await LogReader(volume.log_blobs).open_segments("segments/")


async def marked_alone(volume: Volume, path: str) -> tuple[Marked, list[Verdict]]:
    marked = await gc_of(volume, SYSTEM, FAR).mark(path)
    return marked, [verdict for batch in CandidateReader(path).batches(1000) for verdict in batch]


async def collected_alone(volume: Volume, path: str) -> tuple[Swept, set[str]]:
    collector = gc_of(volume, SYSTEM, FAR)
    await collector.clean_up(await collector.mark(path))
    return await collector.sweep(path), await stored_keys(volume)


async def open_parts(volume: Volume) -> int:
    """The parts of all open uploads, which have their data."""
    keys, found = await stored_keys(volume), 0
    for upload in await list_uploads(volume):
        for part in await list_parts(volume, upload.id):
            assert part.content.physical in keys
            found += 1
    return found


def counts(found: dict[str, ObjectCount]) -> dict[str, tuple[int, int]]:
    return {
        reason: (count.objects, count.bytes) for reason, count in found.items() if count.objects
    }


def same(frame: DataFrame, verdicts: Iterable[Verdict]) -> bool:
    found = sorted((*tuple(row)[:-1], tuple(row.paths)) for row in frame.collect())
    return found == sorted(
        (each.blob.key, each.blob.size, each.reason, each.since_ms, each.is_pending, each.paths)
        for each in verdicts
    )


@pytest.fixture(scope="module")
def littered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of such a volume; tests that change it take a copy."""
    directory = tmp_path_factory.mktemp("littered")
    asyncio.run(litter(directory))
    return directory


@pytest.fixture
def place(littered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(littered, tmp_path / "volume"))


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 5])
def test_it_finds_and_deletes_what_one_machine_does(
    spark: SparkSession, littered: Path, place: Path, tmp_path: Path, partitions: int
) -> None:
    marked, verdicts = on(embedded(littered), partial(marked_alone, path=str(tmp_path / "list")))
    assert {*DEAD, *KEPT} <= counts(marked.counts).keys()
    told: list[str] = []
    options: dict[str, Any] = {"grace": GRACE, "lease": LEASE, "tasks": partitions}
    frame, report = gc(
        spark, embedded(place), **options, progress=lambda each: told.append(each.operation)
    )
    assert same(frame, verdicts)
    assert counts(report.marked.counts) == counts(marked.counts)
    assert (report.run, report.swept, set(told)) == ("", None, {"gc"})
    assert report.marked.reservations == marked.reservations
    found = [each.upload.id for each in marked.uploads]
    assert [each.upload.id for each in report.marked.uploads] == found
    assert report.marked.over_multipart == marked.over_multipart
    assert len(marked.over_multipart) == 2
    assert report.marked.entries == marked.entries
    assert on(embedded(place), stored_keys) == on(embedded(littered), stored_keys)

    other = Path(shutil.copytree(littered, tmp_path / "other"))
    swept, left = on(embedded(other), partial(collected_alone, path=str(tmp_path / "other-list")))
    assert (swept.reservations, swept.uploads, swept.multipart) == (1, 1, 2)
    _, report = gc(spark, embedded(place), **options, dry_run=False)
    assert report.swept is not None
    assert counts(report.swept.deleted) == counts(swept.deleted)
    assert counts(report.swept.kept) == counts(swept.kept)
    assert (report.swept.reservations, report.swept.uploads, report.swept.failures) == (1, 1, [])
    assert report.swept.multipart == 2
    assert on(embedded(place), open_parts) == 3
    assert on(embedded(place), stored_keys) == left
    trails = {
        name.name: sum(1 for each in name.iterdir())
        for name in place.glob(f"**/audit/{report.run}/*")
    }
    assert len(trails) >= 2
    assert "driver" in trails


def test_entries_of_an_object_are_in_the_range_that_it_is_wanted_in() -> None:
    for count in (1, 2, 3, 5, 7, 64, 100, 255, 256, 1000):
        ranges = entry_ranges(count)
        for shard in range(SHARDS):
            key = f"{shard:02x}345678-1234-1234-1234-123456789abc"
            name = f"{history_prefix(key)}1"
            holding = [number for number, keys in enumerate(ranges) if holds(keys, name)]
            assert holding == [range_of(shard, count)]


def holds(keys: KeyRange, key: str) -> bool:
    return (not keys.after or key > keys.after) and (not keys.until or key <= keys.until)


@pytest.mark.slow
def test_an_interrupted_sweep_is_finished_with_the_candidates_that_were_marked(
    spark: SparkSession, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task fails after it has deleted; and what is found by then is not looked for again."""
    work, flags = gc_job._Sweep.counted, str(tmp_path)

    def failing(self: Any, tick: Any) -> Any:
        really = work(self, tick)

        def once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            told = list(really(batches))
            if told and first(flags, "failed"):
                raise RuntimeError("the task fails after it has deleted")
            yield from told

        return once

    other = Path(shutil.copytree(place, tmp_path / "other"))
    swept, left = on(embedded(other), partial(collected_alone, path=str(tmp_path / "list")))
    options: dict[str, Any] = {
        "grace": GRACE,
        "lease": LEASE,
        "tasks": 3,
        "checkpoint": str(tmp_path / "c"),
    }
    gc(spark, embedded(place), **options)
    before = on(embedded(place), stored_keys)
    monkeypatch.setattr(gc_job, "OF_A_TASK", 10)
    monkeypatch.setattr(gc_job._Sweep, "counted", failing)
    with pytest.raises(Exception, match="fails after it has deleted"):
        gc(spark, embedded(place), **options, dry_run=False)
    assert left <= on(embedded(place), stored_keys) < before
    for _ in range(2):  # the second finds that all is done
        _, report = gc(spark, embedded(place), **options, dry_run=False)
        assert report.swept is not None
        assert report.swept.failures == []
        assert counts(report.swept.deleted) == counts(swept.deleted)
        assert on(embedded(place), stored_keys) == left
    with pytest.raises(InvalidArgumentError, match="another job"):
        gc(spark, embedded(place), **{**options, "grace": 1.0})


@pytest.mark.slow
def test_tasks_that_sweep_the_same_at_the_same_time_do_no_harm(
    spark: SparkSession,
    littered: Path,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Path(shutil.copytree(littered, tmp_path / "other"))
    swept, left = on(embedded(other), partial(collected_alone, path=str(tmp_path / "list")))
    monkeypatch.setattr(gc_job, "_spread", lambda frame, _: frame.unionAll(frame).repartition(2))
    _, report = gc(spark, embedded(place), grace=GRACE, lease=LEASE, dry_run=False)
    assert report.swept is not None
    assert report.swept.failures == []
    twice = {
        reason: (2 * objects, 2 * size) for reason, (objects, size) in counts(swept.deleted).items()
    }
    assert counts(report.swept.deleted) == twice
    assert on(embedded(place), stored_keys) == left


def test_what_is_refused(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"grace": GRACE, "lease": LEASE, "tasks": 2}
    config = embedded(place)
    unlogged = replace(embedded(tmp_path / "unlogged"), log_mode="disabled")
    asyncio.run(init_volume(unlogged))
    with pytest.raises(InvalidArgumentError, match="without a log"):
        gc(spark, unlogged)

    async def strange(volume: Volume) -> None:
        assert volume.log_blobs is not None
        await volume.log_blobs.put("segments/0.pending", b"no segment")

    on(config, strange)
    with pytest.raises(LogFormatError, match="repair it first"):
        gc(spark, config, **options, dry_run=False)


@pytest.fixture
async def busy(new_volume: VolumeMaker) -> VolumeConfig:
    config = replace(new_volume(), tuning=Tuning(lease=1.0, busy_timeout=2.0))
    await init_volume(config)
    return config


@pytest.mark.slow
@volume_backends("dynoxide+seaweedfs", "embedded")
async def test_no_live_byte_goes_beside_a_crowd_of_writers(
    spark: SparkSession, busy: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any grace, and with hardly any lease: what is deleted is gone seconds later."""
    monkeypatch.setattr(gc_job, "Ages", lambda grace, lease: Ages(grace, lease, late=3.0))
    deleted = 0

    def collect() -> None:
        nonlocal deleted
        _, report = gc(spark, busy, grace=0.0, tasks=2, dry_run=False)
        assert report.swept is not None
        assert report.swept.failures == []
        deleted += sum(count.objects for count in report.swept.deleted.values())

    async with S3kClient(config=busy) as one, S3kClient(config=busy) as two:
        crowd = [Crowd(one, 1), Crowd(two, 2)]
        async with anyio.create_task_group() as tasks:
            for each in crowd:
                tasks.start_soon(each.run)
            await anyio.sleep(5.0)
            await anyio.to_thread.run_sync(collect)
            tasks.cancel_scope.cancel()
        assert all(each.done for each in crowd)
        await anyio.sleep(1.0 + 3.0 + 1.5)
        await anyio.to_thread.run_sync(collect)
        files = [status async for status in one.list("/", recursive=True) if status.is_file]
        for status in files:
            assert len(await one.read(status.path)) == status.size
        volume = await open_volume(busy)
        try:
            assert await stored_keys(volume) == await live_keys(one)
        finally:
            await volume.close()
        assert files
        assert deleted
