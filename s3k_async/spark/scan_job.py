"""The scan of a volume over Spark: table, log and data listing are read one after the other, as on
one machine, since a change reaches them in the opposite order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from s3k_async.integrity.collector import Collector
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.shuffle import HELD, Shuffle
from s3k_async.model import ROOT
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.tail import LogPosition, position_of
from s3k_async.paths import normalize
from s3k_async.spark.scan_splits import (
    CHECKPOINTS,
    COUNTS,
    SUPERSEDED,
    Run,
    ScanSplit,
    ScanTarget,
    VolumeTarget,
    blob_splits,
    checkpoint_splits,
    log_splits,
    opened,
    read_splits,
    table_splits,
)
from s3k_async.spark.settings import SparkVolume
from s3k_async.spark.shuffle_rows import LINES, NOWHERE, divided, things_of
from s3k_async.spark.stages import Stages, Tell
from s3k_async.volumes import Volume

__all__ = ["Batches", "ScanJob", "ScanPlan", "ScanResult", "job_on"]

PARTS_OF_A_PARTITION: Final = 8
"""So many parts at least, so that what a partition is given evens out."""

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of a scan."""

    things: DataFrame
    """Rows of `piles.LINES`."""
    collector: Collector
    """On the driver: the counts, and what has no object id."""


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The scans of a job and their settings."""

    spark: SparkSession
    where: ScanTarget
    """As tasks see it."""
    ground: Scope
    """The same on the driver."""
    run: Run
    stages: Stages
    partitions: int

    def scan(self, within: str, now_ms: int, *, table: bool = True) -> ScanResult:
        """Read the volume, or all but its table. `within`: what the names of the stages begin with.
        `now_ms`: when this was begun.
        """
        position = self._position(within)
        collector = Collector(self.ground, Shuffle(), now_ms=now_ms, position=position)
        frames: list[DataFrame] = []
        done: set[str] = set()

        def read(name: str, what: str, pieces: Callable[[], Sequence[ScanSplit]]) -> bool:
            """Whether something was replaced meanwhile by what nobody has looked for yet."""
            with self.stages.counted(name) as counter:
                about = f"{self.stages.operation}: {what}"
                frame = self.stages.run(
                    within + name, about, LINES, lambda: self._read(pieces(), counter)
                )
            if frame is None:
                return False
            frames.append(frame)
            return _take(frame, collector, done)

        if table:
            read("table", "scan of the table", lambda: table_splits(self.partitions))
        read(
            "log",
            "scan of the log",
            lambda: self.run(lambda: log_splits(self.ground, self.partitions)),
        )
        number = 0
        while read(
            f"checkpoints-{number}",
            "checkpoints of the log",
            lambda: self.run(lambda: checkpoint_splits(self.ground, self.partitions, done)),
        ):
            number += 1
        read("data", "scan of the bytes", lambda: blob_splits(self.ground, self.partitions))
        return ScanResult(reduce(DataFrame.unionAll, frames), collector)

    def _position(self, within: str) -> LogPosition:
        """Where the log ended before any of it was scanned, by this run or an interrupted one."""
        log, name = self.ground.log, f"{within}position"
        if not isinstance(log, LogReader):
            return LogPosition()
        said = self.stages.said(name)
        if said is not None:
            return LogPosition(frozenset(said["segments"]), frozenset(said["checkpoints"]))
        found = self.run(partial(position_of, log))
        self.stages.say(
            name, {"segments": sorted(found.segments), "checkpoints": sorted(found.checkpoints)}
        )
        return found

    def by_part(self, scanned: ScanResult) -> DataFrame:
        """The things of the same part together: as many parts as it takes for one to fit into
        memory."""
        counts = scanned.collector.counts
        things = (
            3 * (counts.files + counts.directories + counts.reservations)
            + counts.log_records
            + counts.blobs
        )
        parts = max(PARTS_OF_A_PARTITION * self.partitions, things // HELD + 1)
        return divided(scanned.things, parts, self.partitions)

    def _read(self, pieces: Sequence[ScanSplit], counter: Accumulator[int]) -> DataFrame | None:
        if not pieces:
            return None
        numbers = self.spark.range(0, len(pieces), 1, len(pieces))
        return numbers.mapInArrow(_reader(self.where, pieces, counter), LINES)


@dataclass(frozen=True, slots=True)
class ScanJob(ScanPlan):
    """A volume that is being looked at."""

    place: VolumeTarget
    volume: Volume


@contextmanager
def job_on(
    spark: SparkSession,
    volume: SparkVolume,
    scope: Sequence[Any],
    *,
    path: str = ROOT,
    grace: float,
    partitions: int | None = None,
    checkpoint: str | None = None,
    progress: Tell | None = None,
) -> Iterator[ScanJob]:
    """A job on a volume, which is open on the driver for as long as the body takes. `scope`: what
    the job does.

    Raises InvalidArgumentError (the directory is that of another job), the services' errors.
    """
    path = normalize(path)
    with opened(volume.driver) as (driver, run):
        keys = driver.store.keys
        whole = [
            *scope,
            driver.record.volume_id,
            keys.volume,
            keys.suffix_count,
            path,
            int(grace * 1000),
        ]
        place = VolumeTarget(volume.executors, grace, path)
        stages = Stages(spark, checkpoint, whole, driver.store.sources.now_ms(), progress)
        count = partitions or 2 * spark.sparkContext.defaultParallelism
        yield ScanJob(spark, place, place.ground(driver), run, stages, count, place, driver)


def _reader(
    where: ScanTarget, pieces: Sequence[ScanSplit], counter: Accumulator[int]
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    def read(batches: Iterable[pa.RecordBatch]) -> Batches:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        yield from read_splits(where, pieces, numbers, counter.add)

    return read


def _take(frame: DataFrame, collector: Collector, done: set[str]) -> bool:
    """Give the driver its rows; whether there is more to be read. `done`: gets the keys of
    checkpoints that were read, perhaps by a run that was interrupted.
    """
    rows = frame.where(F.col("part") == NOWHERE).collect()
    collector.put(things_of(rows))
    for row in rows:
        if row.pile == COUNTS:
            found = json.loads(row.line)
            done.update(found.get(CHECKPOINTS, ()))
            for name in ScanCounts.__dataclass_fields__:
                setattr(collector.counts, name, getattr(collector.counts, name) + found[name])
    return any(row.pile == SUPERSEDED for row in rows)
