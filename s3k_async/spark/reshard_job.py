"""Resharding over Spark, in place. Design: docs/design/005 and 007.

The lock, the changes of the record and the order of the passes are those of `migrate.reshard`, on
the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from s3k_async._core.metering import Requests
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.config import VolumeConfig
from s3k_async.errors import CorruptDataError, InvalidPathError, ItemFormatError, S3kError
from s3k_async.migrate.reshard import ReshardResult, reshard_volume
from s3k_async.migrate.reshard_pass import PassResult, ReshardPass
from s3k_async.model import HashName
from s3k_async.settings import with_local_secrets
from s3k_async.spark.delegate_tasks import delegated, while_held
from s3k_async.spark.runner import AnyVolume, JobRun, ProgressCallback
from s3k_async.spark.task_rows import ERROR, Batches, error_fields, error_from, row_batch
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.volumes import Volume

__all__ = ["reshard"]

_SCHEMA: Final = pa.schema(
    [
        ("entries", pa.int64()),
        ("moved", pa.int64()),
        *ERROR,
        ("path", pa.string()),
    ]
)
_REFUSALS: Final = (ItemFormatError, InvalidPathError, CorruptDataError)
"""Errors that repeating the task does not change."""


def reshard(
    spark: SparkSession,
    volume: AnyVolume,
    suffix_count: int,
    *,
    hash: HashName | None = None,
    tasks: int | None = None,
    progress: ProgressCallback | None = None,
) -> ReshardResult:
    """Give a volume another suffix count, and optionally another hash, with the guarantees and
    errors of `reshard_volume`. The passes over the table are stages of `tasks` (4 for each core by
    default).

    The same call, here or on one machine, finishes an interrupted run. After the last pass the
    volume remains locked for 40 seconds, until no task that was considered dead can still write.
    Also raises the errors of tasks as Spark reports them.
    """
    job = JobRun(spark, volume, "reshard", tasks=tasks, progress=progress)
    config = with_local_secrets(job.volume.driver)
    done = current_bridge().run(
        lambda: reshard_volume(config, suffix_count, hash=hash, walker=_TaskWalker(job))
    )
    return replace(done, requests=done.requests + job.requests.value)


@dataclass(frozen=True, slots=True)
class _TaskWalker:
    """Runs a pass as tasks, one for each segment of the table."""

    job: JobRun

    async def walk(self, volume: Volume, work: ReshardPass, lock: VolumeLock) -> PassResult:
        return await while_held(self.job.spark, lambda: self._stage(work, lock.id))

    async def finish(self, volume: Volume, lock: VolumeLock) -> None:
        await lock.dismiss(volume.items)

    def _stage(self, work: ReshardPass, lock: str) -> PassResult:
        job = self.job
        with job.described(work.name), job.counted(work.name) as counter:
            task = _Segments(job.volume.executors, work, lock, job.tasks, job.requests, counter)
            rows = job.over_splits(range(job.tasks), task, _SCHEMA).collect()
        for row in rows:
            if row.error is not None:
                raise error_from(row.error, row.message, row.path)
        return reduce(add, (PassResult(row.entries, row.moved) for row in rows), PassResult())


@dataclass(frozen=True, slots=True)
class _Segments:
    """The work of a task."""

    config: VolumeConfig
    work: ReshardPass
    lock: str
    count: int
    requests: Accumulator[Requests]
    seen: Accumulator[int]

    def __call__(self, segments: Iterator[int]) -> Batches:
        for segment in segments:
            passed, error = current_bridge().run(partial(self._over, segment))
            fields = (None,) * 3 if error is None else (*error_fields(error), error.path)
            yield row_batch(_SCHEMA, [(passed.entries, passed.moved, *fields)])

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
