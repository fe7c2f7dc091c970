"""A driver that is killed in the middle of all that it does at once: `python -m
tests.spark.killed_driver`.

What it works on comes from standard input, pickled. Each job stops somewhere and leaves a file that
tells so, with the process that waits there.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from s3k_async.config import VolumeConfig
from s3k_async.spark import register, rename_delete_jobs, rename_files, source
from s3k_async.spark.source import S3kDataSource
from s3k_async.spark.source_writer import S3kWriter, TaskCommit
from s3k_async.txn import txn_record
from s3k_async.txn.intent_resolver import IntentResolver
from s3k_async.txn.txn_record import TransactionRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES: Final = 60
WRITES: Final = {"uploaded": 4, "prepared": 101, "published": 101}
"""Where overwrites stop, which is also the name that they write below: the tasks have uploaded, the
commit has written all intents, and has published them. And how many rows they write, each in a file
of its own: a hundred are too many for one transaction of the table."""
MOVED: Final = "moved"
"""Where the bulk rename stops: two of its batches are done."""
LEASE_SECONDS: Final = 2.0
"""The lease of a transaction."""


@dataclass(frozen=True)
class Orders:
    """What to work on, and where files are that tell how far it has come."""

    volume: VolumeConfig
    place: str

    def stop(self, where: str) -> None:
        """Tell where this process is, and wait there for its end."""
        waiting = Path(self.place, f"{where}.new")
        waiting.write_text(str(os.getpid()))
        waiting.rename(Path(self.place, where))
        time.sleep(600)


def pairs(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [(f"/in/{number}", f"/out/{number}") for number in range(FILES)],
        "source string, target string",
    )


def write(spark: SparkSession, where: str) -> None:
    """Overwrite with numbers from 0."""
    # Made of rows, a DataFrame makes the session this thread's: without, Spark finds no data source
    # in it.
    frame = spark.createDataFrame(
        [(number,) for number in range(WRITES[where])], "id long"
    ).coalesce(1)
    frame.write.format("s3k").mode("overwrite").option("max_records_per_file", 1).save(f"/{where}")


class StoppingWriter(S3kWriter):
    """Stops where the path that it writes to says."""

    def __init__(self, writer: S3kWriter, orders: Orders) -> None:
        super().__init__(writer._volume, writer._plan)
        self._orders = orders

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        written = super().write(iterator)
        if self._plan.path == "/uploaded":
            self._orders.stop("uploaded")
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        async def stopping(*arguments: Any, **options: Any) -> Any:
            self._orders.stop(self._plan.path[1:])

        txn_record.LEASE_SECONDS = LEASE_SECONDS
        if self._plan.path == "/prepared":
            TransactionRecords.publish = stopping  # type: ignore[method-assign]
        else:
            IntentResolver.end = stopping  # type: ignore[method-assign]
        super().commit(messages)


class StoppingSource(S3kDataSource):
    orders: Orders

    def writer(self, schema: Any, overwrite: bool) -> StoppingWriter:
        writer = super().writer(schema, overwrite)
        assert isinstance(writer, S3kWriter)
        return StoppingWriter(writer, self.orders)


class StoppingRename:
    """What a task does with its batches: it stops when it has renamed two."""

    def __init__(self, orders: Orders, rename: Callable[..., Any]) -> None:
        self._orders = orders
        self._rename = rename
        self._calls = 0

    def __call__(self, *arguments: Any) -> Any:
        done = self._rename(*arguments)
        self._calls += 1
        if self._calls == 2:
            self._orders.stop(MOVED)
        return done


def main() -> None:
    from pyspark.sql import SparkSession

    orders: Orders = pickle.load(sys.stdin.buffer)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": f"{orders.place}/local",
        "spark.sql.execution.arrow.maxRecordsPerBatch": 10,
    }
    spark = SparkSession.builder.master("local[3]").config(map=settings).getOrCreate()
    # What tasks are given is pickled with it.
    rename_delete_jobs._renamed = StoppingRename(orders, rename_delete_jobs._renamed)  # type: ignore[assignment]
    StoppingSource.orders = orders
    source.S3kDataSource = StoppingSource  # type: ignore[misc]
    register(spark, volume=orders.volume)
    work = [Thread(target=write, args=(spark, where)) for where in WRITES]
    for each in work:
        each.start()
    rename_files(
        spark, orders.volume, pairs(spark), state=f"{orders.place}/state", dry_run=False, tasks=1
    )


if __name__ == "__main__":
    main()
