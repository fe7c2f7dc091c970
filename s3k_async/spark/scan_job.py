"""The scan of a volume over Spark: table, log and data listing are read one after the other, as on
one machine, since a change reaches them in the opposite order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Final

from pyspark import SparkFiles
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from s3k_async._core.paths import normalize
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.shuffle import HELD, Shuffle, from_line, hash_of
from s3k_async.model import ROOT
from s3k_async.namespace.layout import LayoutCheck
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.tail import LogPosition, position_of
from s3k_async.spark.runner import JobRun
from s3k_async.spark.scan_splits import (
    CHECKPOINTS,
    COUNTS,
    SUPERSEDED,
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
from s3k_async.spark.shuffle_rows import LINES, NOWHERE, divided, facts_of, without_children
from s3k_async.spark.unit_limits import UNLIMITED, Run, UnitLimits
from s3k_async.volumes import Volume

__all__ = ["CORE_TASKS", "ScanJob", "ScanPlan", "ScanResult", "job_on"]

_UNITS: Final = {"table": "entries", "data": "objects"}
"""Units of the progress counts by stage; in other stages, operations of the log."""

PARTS_OF_A_PARTITION: Final = 8
"""Minimum number of parts in a partition, so that partitions are of similar size."""
CORE_TASKS: Final = 2
"""Tasks for each core."""
DIRECTORIES_AT_ONCE: Final = 100_000
"""Directories that Spark sends to the driver at once, about."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of a scan."""

    facts: DataFrame
    """Rows of LINES."""
    collector: Collector
    """On the driver: the counts, the facts without an object id, and in layout `tree` the
    directories."""
    directories: str | None = None
    """As of VolumeTarget."""

    def know_log_of(self, object_ids: Collection[str]) -> None:
        """Add the log records of some objects to the collector, for `Collector.log_states`."""
        wanted = [hash_of(each) for each in object_ids]
        if not wanted:
            return
        rows = self.facts.where((sf.col("tag") == "records") & sf.col("part").isin(wanted))
        for row in rows.select("line").collect():
            record = from_line("records", bytes(row.line))
            if record.operation.object_id in object_ids:
                self.collector.put([("records", record.operation.object_id, record)])

    def close(self) -> None:
        """Remove the temporary files of the driver, and empty the file of the directories. Of that
        one, executors keep their copies until the application ends."""
        self.collector.close()
        if self.directories is not None:
            # Not removed: executors that start later fetch every file that was ever added.
            os.truncate(SparkFiles.get(self.directories), 0)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The scans of a job and their settings."""

    job: JobRun
    target: ScanTarget
    """For tasks."""
    scope: Scope
    """On the driver."""
    run: Run

    def scan(self, within: str, now_ms: int, *, table: bool = True) -> ScanResult:
        """Scan the volume, optionally without its table. `within`: the prefix of the names of the
        stages. `now_ms`: the start of the scan. The result has to be closed.
        """
        position = self._position(within)
        collector = Collector(replace(self.scope), Shuffle(), now_ms=now_ms, position=position)
        try:
            return self._scanned(within, collector, table=table)
        except BaseException:
            collector.close()
            raise

    def _scanned(self, within: str, collector: Collector, *, table: bool) -> ScanResult:
        scope = collector.scope
        frames: list[DataFrame] = []
        done: set[str] = set()

        def read(name: str, what: str, splits: Callable[[], Sequence[ScanSplit]]) -> bool:
            """Whether a checkpoint was replaced meanwhile by another one, not yet read."""
            with self.job.counted(name, _UNITS.get(name, "operations")) as counter:
                frame = self.job.stage(
                    within + name, what, LINES, lambda: self._read(splits(), counter)
                )
            if frame is None:
                return False
            frames.append(frame)
            return _take(frame, collector, done)

        if table:
            self.run(partial(scope.check.begin, scope.path))
            read("table", "scan of the table", lambda: table_splits(self.job.tasks))
            if scope.check.by_id:
                self._know_directories(frames[-1], collector)
        read(
            "log",
            "scan of the log",
            lambda: self.run(lambda: log_splits(self.scope, self.job.tasks)),
        )
        number = 0
        while read(
            f"checkpoints-{number}",
            "checkpoints of the log",
            lambda: self.run(lambda: checkpoint_splits(self.scope, self.job.tasks, done)),
        ):
            number += 1
        read("data", "scan of the data", lambda: blob_splits(self.scope, self.job.tasks))
        scanned = ScanResult(reduce(DataFrame.unionAll, frames), collector)
        scanned.know_log_of({each.key for cycle in scope.check.cycles() for each in cycle})
        if table:
            scanned = replace(scanned, directories=self._shared(scope.check))
        return scanned

    def _know_directories(self, table: DataFrame, collector: Collector) -> None:
        """Add the directories of the table to the collector, some at a time: all rows of one
        directory in the order of the scan, since the last one is kept."""
        parts = collector.counts.directories // DIRECTORIES_AT_ONCE + 1
        rows = table.where(sf.col("tag") == "directories")
        rows = rows.withColumn("number", sf.monotonically_increasing_id())
        rows = rows.repartition(parts, "part").sortWithinPartitions("number").select("line")
        collector.scope.check.add_directories(
            from_line("directories", bytes(row.line)) for row in rows.toLocalIterator()
        )

    def _shared(self, check: LayoutCheck) -> str | None:
        """The name of a file for tasks of the directories that the driver knows, if they need
        it."""
        name = f"s3k-directories-{self.scope.runtime.uuid()}"
        # Spark removes the folder when the application ends, and copies no file that is in it.
        file = os.path.join(SparkFiles.getRootDirectory(), name)
        if not check.save_directories(file):
            return None
        self.job.spark.sparkContext.addFile(file)
        return name

    def _position(self, within: str) -> LogPosition:
        """The end of the log before any of it was scanned, by this run or an interrupted one."""
        log, name = self.scope.log, f"{within}position"
        if not isinstance(log, LogReader):
            return LogPosition()
        saved = self.job.saved(name)
        if saved is not None:
            return LogPosition.from_document(saved)
        found = self.run(partial(position_of, log))
        self.job.save(name, found.document())
        return found

    def by_part(self, scanned: ScanResult) -> DataFrame:
        """The facts partitioned into parts, as many as needed for one to fit into memory."""
        counts = scanned.collector.counts
        facts = (
            3 * (counts.files + counts.directories + counts.reservations)
            + counts.log_records
            + counts.blobs
        )
        parts = max(PARTS_OF_A_PARTITION * self.job.tasks, facts // HELD + 1)
        rows = scanned.facts
        if scanned.directories is not None:
            rows = without_children(rows, scanned.directories)
        return divided(rows, parts, self.job.tasks)

    def _read(self, splits: Sequence[ScanSplit], counter: Accumulator[int]) -> DataFrame | None:
        if not splits:
            return None
        return self.job.over_splits(splits, partial(read_splits, self.target, counter.add), LINES)


@dataclass(frozen=True, slots=True)
class ScanJob(ScanPlan):
    """The scans of an open volume."""

    target: VolumeTarget
    volume: Volume


@contextmanager
def job_on(
    job: JobRun,
    scope: Sequence[Any],
    *,
    path: str = ROOT,
    grace: float,
    deep: bool = False,
    checkpoint: str | None = None,
    units: UnitLimits = UNLIMITED,
) -> Iterator[ScanJob]:
    """The scans of a job, with the volume open on the driver. `scope`: what identifies the job.
    `units`: the limits of the whole job.

    Raises InvalidArgumentError (the directory is that of another job; a limit below a unit for each
    task), UnsupportedError (limits in a table without capacity units), the services' errors.
    """
    path = normalize(path)
    share = units.share(job.attempts)
    with opened(job.volume.driver, units) as (driver, run):
        keys = driver.store.keys
        whole = [
            *scope,
            driver.record.volume_id,
            keys.volume,
            keys.suffix_count,
            path,
            int(grace * 1000),
            *([keys.layout] if keys.by_id else []),
        ]
        job.resume(checkpoint, whole, driver.store.runtime.now_ms())
        target = VolumeTarget(job.volume.executors, grace, path, deep, units=share)
        with target.scoped(driver, run) as found:
            yield ScanJob(job, target, found, run, driver)


def _take(frame: DataFrame, collector: Collector, done: set[str]) -> bool:
    """Collect the rows for the driver. Returns whether there is more to read. `done` is extended by
    the keys of checkpoints that were read, perhaps by an interrupted run.
    """
    rows = frame.where(sf.col("part") == NOWHERE).collect()
    collector.put(facts_of(rows))
    for row in rows:
        if row.tag == COUNTS:
            found = json.loads(row.line)
            done.update(found.get(CHECKPOINTS, ()))
            for name in ScanCounts.__dataclass_fields__:
                setattr(collector.counts, name, getattr(collector.counts, name) + found[name])
    return any(row.tag == SUPERSEDED for row in rows)
