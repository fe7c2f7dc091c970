"""Reading and writing by the functions, for Sparks without data sources: `python -m
tests.spark.functions_only PLACE`.

Runs in an environment of its own, where nothing but the package and Spark is installed. PLACE is a
directory, which gets a volume.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PythonException

from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig
from s3k_async.spark import read_parquet, write_parquet
from s3k_async.volumes import init_volume

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = 40
SCHEMA: Final = "id long, day string"
Partitions = dict[str, list[int]]


class Dying:
    """What is done to rows on the way: at the first attempt at all, one worker is killed, and one
    task fails."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 5 in batch.column(0).to_pylist() and self._first("killed"):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch
            if 35 in batch.column(0).to_pylist() and self._first("failed"):
                raise RuntimeError("a task that fails once")

    def _first(self, what: str) -> bool:
        try:
            os.close(os.open(f"{self._place}-{what}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        if ROWS - 1 in batch.column(0).to_pylist():
            raise RuntimeError("a task that always fails")


def config_of(place: str) -> VolumeConfig:
    return VolumeConfig(
        "functions", SqliteFile(f"{place}/table.db"), LocalDirectory(f"{place}/data")
    )


def seen(spark: SparkSession, volume: VolumeConfig, **options: Any) -> Partitions:
    found: Partitions = {}
    for row in read_parquet(spark, "/out", volume=volume, schema=SCHEMA, **options).collect():
        found.setdefault(row.day, []).append(row.id)
    return {day: sorted(ids) for day, ids in found.items()}


def wrote(spark: SparkSession, volume: VolumeConfig, place: str) -> dict[str, Partitions]:
    """What is read after each write."""
    found: dict[str, Partitions] = {}

    def save(name: str, frame: DataFrame, mode: Any, **options: Any) -> None:
        dying = frame.mapInArrow(Dying(f"{place}/{name}"), SCHEMA)
        write_parquet(dying, "/out", mode=mode, partition_columns=["day"], volume=volume, **options)
        for what in ("killed", "failed"):
            assert Path(f"{place}/{name}-{what}").exists(), what
        found[name] = seen(spark, volume)

    rows = spark.range(0, ROWS, 1, 4)
    save("append", rows.selectExpr("id", "cast(id % 2 as string) day"), "append")
    save(
        "dynamic",
        rows.selectExpr("id", "cast(id % 2 + 1 as string) day"),
        "overwrite",
        partition_overwrite_mode="dynamic",
    )
    bad = rows.selectExpr("id", "'3' day").mapInArrow(failing, SCHEMA)
    message = ""
    try:
        write_parquet(bad, "/out", mode="overwrite", partition_columns=["day"], volume=volume)
    except PythonException as error:
        message = str(error)
    assert "a task that always fails" in message, message
    found["failed"] = seen(spark, volume)
    found["filtered"] = seen(spark, volume, filters=[("day", "=", "2"), ("id", "<", 6)])
    save("overwrite", rows.selectExpr("id", "'4' day"), "overwrite")
    return found


def main() -> None:
    from pyspark import __version__
    from pyspark.sql import SparkSession

    place = sys.argv[1]
    volume = config_of(place)
    asyncio.run(init_volume(volume))
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.local.dir": f"{place}/local",
    }
    # Tasks are repeated on this machine as they are on a cluster.
    spark = SparkSession.builder.master("local[2,4]").config(map=settings).getOrCreate()
    try:
        json.dump({"version": __version__, "found": wrote(spark, volume, place)}, sys.stdout)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
