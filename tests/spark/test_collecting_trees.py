"""Garbage collection over Spark in layout `tree`: the trash, and no live byte."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from s3k_async import S3kSyncClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.config import VolumeConfig
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.repair import verify_volume
from s3k_async.model import ChangeResult
from s3k_async.spark import gc
from s3k_async.testing import FaultPlan
from s3k_async.volumes import Volume, init_volume
from tests.client.rig import faulty_client
from tests.integrity.garbage import DAY, gc_of, stored_keys
from tests.spark.places import embedded, on
from tests.spark.test_collecting import collected_alone, counts, marked_alone, same
from tests.support import FakeClock, fake_runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GRACE = DAY / 2
LEASE = 600.0


def place_at(directory: Path) -> VolumeConfig:
    return replace(embedded(directory), layout="tree")


async def litter(directory: Path) -> None:
    """A volume with directories that were deleted, restored, moved, and removed as empty, days
    ago; with one that was deleted today, and with other garbage."""
    config, now = place_at(directory), time.time()
    await init_volume(config)
    clock = FakeClock(now - 20 * DAY)
    async with faulty_client(FaultPlan(), config, fake_runtime(clock, seed=3)) as fs:
        for top in ("deleted", "restored", "moved", "today"):
            paths = [f"/{top}/{number % 3}/{number}" for number in range(12)]
            await fs.write_many([(path, path.encode()) for path in paths])
        await fs.delete("/moved/0/0")
        await fs.rename("/moved/1", "/moved/0/1")
        await fs.delete("/restored", recursive=True)
        await fs.trash().restore("/restored")
        await fs.delete("/moved/2", recursive=True)
        await fs.delete("/deleted", recursive=True)
        await fs.makedirs("/empty")
        await fs.delete("/empty")
        clock.seconds = now - DAY / 4
        await fs.delete("/today", recursive=True)
        await fs._volume().log.drained()
    for where, _, names in os.walk(directory / "data"):
        for name in names:
            os.utime(Path(where, name), (now - 4 * DAY, now - 4 * DAY))


async def reclaimed_alone(volume: Volume) -> ChangeResult:
    return await gc_of(volume, SYSTEM, Ages(grace=GRACE, lease=LEASE)).reclaim()


async def in_trash(volume: Volume) -> list[tuple[str, str]]:
    items = await volume.store.layout.trash().items()
    return sorted((each.was, each.state) for each in items)


@pytest.mark.slow
def test_it_reclaims_and_deletes_what_one_machine_does(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(litter(tmp_path / "one"))
    shutil.copytree(tmp_path / "one", tmp_path / "spark", symlinks=True)
    one, other = place_at(tmp_path / "one"), place_at(tmp_path / "spark")

    frame, report = gc(spark, other, grace=GRACE, lease=LEASE, tasks=3)
    marked, verdicts = on(one, partial(marked_alone, path=str(tmp_path / "list")))
    assert same(frame, verdicts)
    assert counts(report.marked.counts) == counts(marked.counts)
    assert report.reclaimed is not None
    assert (report.reclaimed.files, report.reclaimed.failures) == (16, ())
    assert on(other, in_trash) == [("/deleted", ""), ("/moved/2", ""), ("/today", "")]

    _, left_alone = gc(spark, other, grace=GRACE, lease=LEASE, tasks=3, trash=False)
    assert left_alone.reclaimed is None

    checkpoint = str(tmp_path / "checkpoint")
    gc(spark, other, grace=GRACE, lease=LEASE, tasks=3, checkpoint=checkpoint)
    for place in (one, other):
        with S3kSyncClient(config=place) as fs:
            fs.trash().set_retention(int(2 * DAY))

    reclaimed = on(one, reclaimed_alone)
    swept, left = on(one, partial(collected_alone, path=str(tmp_path / "again")))
    _, report = gc(
        spark, other, grace=GRACE, lease=LEASE, tasks=3, checkpoint=checkpoint, dry_run=False
    )
    assert report.swept is not None
    assert report.reclaimed == reclaimed
    assert reclaimed.files == 16
    assert counts(report.swept.deleted) == counts(swept.deleted) != {}
    assert on(other, in_trash) == on(one, in_trash)
    assert [state for _, state in on(other, in_trash)] == ["reclaiming", "reclaiming", ""]
    assert on(other, stored_keys) == left
    whole = on(other, lambda volume: verify_volume(volume, grace=GRACE, deep=True))
    assert (whole.files, whole.problems) == (31, [])
