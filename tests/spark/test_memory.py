"""What memory Python workers need hardly depends on the size of the volume."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.spark.fsck_job import verify
from s3k_async.volumes import init_volume
from tests.spark.places import embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FEW, MANY = 10_000, 100_000
GROWTH = 100 * 1024 * 1024
"""Bytes. A task has a part of at most 20,000 facts in memory, and a page of a scan, however large
the volume is."""


def peaks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The process, and the most memory that it ever had."""
    for _ in batches:
        time.sleep(0.2)  # so that no worker takes what is another's
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "peak": [peak]})


def peak_of_workers(spark: SparkSession) -> int:
    found = spark.range(0, 8, 1, 8).mapInArrow(peaks, "pid long, peak long").collect()
    return int(max(row.peak for row in found))


def made(place: Path) -> Path:
    place.mkdir()
    return place


async def volume_of(place: Path, files: int) -> VolumeConfig:
    config = embedded(place)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        for start in range(0, files, 5000):
            await fs.write_many(
                [(f"/d{number % 50}/{number}", b"x") for number in range(start, start + 5000)]
            )
    return config


async def test_verify_takes_as_much_memory_for_ten_times_as_many_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = {}
    for files in (FEW, MANY):
        volume = await volume_of(await asyncio.to_thread(made, tmp_path / str(files)), files)
        _, report = await asyncio.to_thread(verify, spark, volume, grace=0.0)
        assert (report.files, report.problems) == (files, [])
        found[files] = await asyncio.to_thread(peak_of_workers, spark)
    assert found[MANY] - found[FEW] < GROWTH, found
