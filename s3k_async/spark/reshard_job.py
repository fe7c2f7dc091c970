"""Resharding over Spark, in place. Design: docs/design/005 and 007.

The lock, the changes of the record and the order of the passes are those of `migrate.reshard`, on
the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from s3k_async import errors
from s3k_async._core.metering import Requests
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.config import VolumeConfig
from s3k_async.errors import CorruptDataError, InvalidPathError, ItemFormatError, S3kError
from s3k_async.metadata.volume_lock import VolumeLock
from s3k_async.migrate.reshard import ReshardResult, reshard_volume
from s3k_async.migrate.reshard_pass import PassResult, ReshardPass
from s3k_async.model import HashName
from s3k_async.settings import with_local_secrets
from s3k_async.spark.delegate_tasks import delegated, while_held
from s3k_async.spark.job_report import JobRun
from s3k_async.spark.listing_job import TASKS_PER_CORE
from s3k_async.spark.settings import SparkVolume, spark_volume
from s3k_async.spark.stages import Tell, counted
from s3k_async.volumes import Volume

__all__ = ["reshard"]

_SCHEMA: Final = pa.schema(
    [
        ("entries", pa.int64()),
        ("moved", pa.int64()),
        ("error", pa.string()),
        ("message", pa.string()),
        ("path", pa.string()),
    ]
)
_COLUMNS: Final = "entries long, moved long, error string, message string, path string"
_REFUSALS: Final = (ItemFormatError, InvalidPathError, CorruptDataError)
"""What is so however often the task is repeated."""


def reshard(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    suffix_count: int,
    *,
    hash: HashName | None = None,
    partitions: int | None = None,
    progress: Tell | None = None,
) -> ReshardResult:
    """Give a volume another suffix count, and hash if one is named, as `reshard_volume`, which says
    what it promises and raises; the passes over the table are stages of `partitions` tasks (4 for
    each core by default).

    Interrupted, it is finished by the same call, here or on one machine. After the last pass the
    volume stays locked for 40 seconds more, until no task that was taken for dead can be at it. A
    task that cannot go on is repeated by Spark, and then tells its error in Spark's way.
    """
    opened = spark_volume(spark, volume)
    count = partitions or spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    run = JobRun(spark, "reshard", f"{opened.driver.name} to {suffix_count}", dry_run=False)
    walker = _Tasks(spark, opened.executors, count, run, progress)
    config = with_local_secrets(opened.driver)
    done = current_bridge().run(
        lambda: reshard_volume(config, suffix_count, hash=hash, walker=walker)
    )
    return replace(done, requests=done.requests + run.requests.value)


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Tasks, each of which goes over a segment of the table."""

    spark: SparkSession
    config: VolumeConfig
    count: int
    run: JobRun
    progress: Tell | None

    async def walk(self, volume: Volume, work: ReshardPass, lock: VolumeLock) -> PassResult:
        return await while_held(self.spark, lambda: self._stage(work, lock.id))

    async def finish(self, volume: Volume, lock: VolumeLock) -> None:
        await lock.dismiss(volume.items)

    def _stage(self, work: ReshardPass, lock: str) -> PassResult:
        segments = self.spark.range(0, self.count, 1, self.count)
        with (
            self.run.stage(work.name),
            counted(self.spark, "reshard", work.name, self.progress) as counter,
        ):
            task = _Segments(self.config, work, lock, self.count, self.run.requests, counter)
            rows = segments.mapInArrow(task, _COLUMNS).collect()
        for row in rows:
            if row.error is not None:
                kind: type[S3kError] = getattr(errors, row.error)
                raise kind(row.message, path=row.path)
        return reduce(add, (PassResult(row.entries, row.moved) for row in rows), PassResult())


@dataclass(frozen=True, slots=True)
class _Segments:
    """What a task does."""

    config: VolumeConfig
    work: ReshardPass
    lock: str
    count: int
    requests: Accumulator[Requests]
    seen: Accumulator[int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for segment in batch.column(0).to_pylist():
                yield _row(*current_bridge().run(partial(self._over, segment)))

    async def _over(self, segment: int) -> tuple[PassResult, S3kError | None]:
        total = PassResult()
        async with delegated(self.config, self.lock) as (volume, delegate):
            try:
                async with aclosing(
                    self.work.over(volume, segment, self.count, delegate.check)
                ) as pages:
                    async for passed in pages:
                        total += passed
                        self.seen.add(passed.entries)
            except _REFUSALS as error:
                return total, error
            finally:
                self.requests.add(volume.counter.requests)
        return total, None


def _row(passed: PassResult, error: S3kError | None) -> pa.RecordBatch:
    told = (
        (None, None, None) if error is None else (type(error).__name__, error.message, error.path)
    )
    values: list[Any] = [passed.entries, passed.moved, *told]
    arrays = [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
