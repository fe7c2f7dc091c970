"""gc over Spark: mark in stages, sweep in tasks, with the rules of the local runner.

Data, table and log are read in this order, each to its end before the next: the exactness of the
result depends on it. docs/design/004-nothing-lost.md shows why no live byte can be deleted, and
007-spark.md shows it for tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, count, islice
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async.backends.ports.items import Item
from s3k_async.errors import BusyError, InvalidArgumentError
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_candidates import verdict_from
from s3k_async.integrity.gc_mark import (
    MOST,
    CollectedData,
    Marked,
    MarkFilter,
    ObjectCount,
    held_by,
    need_collectable,
)
from s3k_async.integrity.gc_rules import GRACE_SECONDS, Ages
from s3k_async.integrity.gc_sweep import BATCH, GarbageCollector, MarkedState, Sweeper, Swept
from s3k_async.integrity.references import nameless_item, need_unlocked
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.shuffle import from_line
from s3k_async.model import ChangeResult
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.segment_ids import SegmentIds
from s3k_async.spark.gc_tasks import (
    SHARDS,
    GcSettings,
    GcSplit,
    LogSplit,
    TableSplit,
    add_counts,
    batch_of_lines,
    data_splits,
    judge_objects,
    read_entries,
    read_lines,
    take_unnamed,
)
from s3k_async.spark.job_report import JobResult
from s3k_async.spark.runner import AnyVolume, JobRun, MaybeFrame, ProgressCallback
from s3k_async.spark.scan_job import CORE_TASKS
from s3k_async.spark.scan_splits import SUPERSEDED, checkpoint_splits, opened, segment_splits
from s3k_async.spark.shuffle_rows import LINES, NOWHERE
from s3k_async.spark.task_rows import (
    Batches,
    attempt_name,
    error_fields,
    error_from,
    spark_schema,
)
from s3k_async.spark.unit_limits import Run, UnitLimits
from s3k_async.txn.volume_record import same_record
from s3k_async.volumes import Volume

__all__ = ["GcReport", "gc"]

_UNITS: Final = {"data": "objects", "table": "entries", "swept": "objects"}
"""Units of the progress counts by stage; in other stages, operations of the log."""

CANDIDATE: Final = (
    "blob struct<key: string, size: long>, reason string, since_ms long, is_pending boolean, paths "
    "array<string>"
)
"""The columns shown for a candidate."""
OF_A_TASK: Final = 1000
"""The minimum number of candidates for a task."""


@dataclass(frozen=True, slots=True)
class GcReport:
    """The results of the mark and the sweep phase."""

    run: str
    """Names the audit trails, `audit/<run>/` in the log location; empty for a dry run."""
    marked: Marked
    swept: Swept | None
    """None for a dry run."""
    reclaimed: ChangeResult | None = None
    """What was reclaimed from the trash, or would be; None for a volume without a trash, or if the
    trash was left alone."""


def gc(
    spark: SparkSession,
    volume: AnyVolume,
    *,
    dry_run: bool = True,
    grace: float = GRACE_SECONDS,
    lease: float | None = None,
    rate: float | None = None,
    read_units: float | None = None,
    write_units: float | None = None,
    trash: bool = True,
    tasks: int | None = None,
    checkpoint: str | None = None,
    progress: ProgressCallback | None = None,
) -> JobResult[GcReport]:
    """Delete unreferenced physical objects, abandoned reservations and unfinished uploads, as
    `s3k gc`.

    Returns the candidates (`key`, `bytes`, `reason`, `since_ms`, `is_pending`, `paths`) and the
    report. `dry_run`: delete nothing. `grace`, `lease`: seconds, as for `s3k gc`; `lease` is the
    volume's setting unless it is given. `rate`: keys a second at most. `read_units`, `write_units`:
    maximum units of the table per second for the whole job, divided equally among its tasks.
    `trash`: first reclaim directories in the trash whose retention is over, which the driver does
    alone. `tasks`: of each stage, by default two for each core. `checkpoint`: a directory, or its
    URI, that executors and driver can write, for one collection: finished stages are not repeated,
    so that the same call with `dry_run=False` can sweep the candidates of a dry run later.
    `progress` is called about once a second.

    Safe beside writers, with repeated tasks, and with speculation. Objects that could not be
    deleted are in the report, and the next run finds them again. Raises InvalidArgumentError (a
    volume without a log; the directory is that of another run; a limit below one unit for each
    task), UnsupportedError (limits in a table without units), ReadOnlyVolumeError, BusyError,
    VolumeMismatchError, LogFormatError, the stores' errors; those of tasks as Spark reports them.
    After LogFormatError (something in the log has to be repaired), and after ConflictError in a
    task (the log was compacted since the mark), the next run needs another directory.
    """
    job = JobRun(spark, volume, "gc", tasks=tasks, per_core=CORE_TASKS, progress=progress)
    units = UnitLimits(read_units, write_units)
    share = units.share(job.attempts)
    with opened(job.volume.driver, units) as (driver, run):
        if driver.log_blobs is None and not driver.read_only:
            raise InvalidArgumentError(
                "a volume without a log is collected by one machine, alone: s3k gc --exclusive"
            )
        ages = Ages(grace, driver.config.tuning.lease if lease is None else lease)
        keys = driver.store.keys
        scope = [
            "gc",
            driver.record.volume_id,
            keys.volume,
            keys.suffix_count,
            ages.grace_ms,
            ages.unpublishable_ms,
        ]
        record = run(partial(need_collectable, CollectedData.of(driver)))
        job.resume(checkpoint, scope, driver.store.runtime.now_ms())
        began = _began(job, record, run(driver.blobs.now_ms))
        terms = GcSettings(job.volume.executors, ages, began, share)
        found = _Found(terms.mark_filter(driver))
        name = "" if dry_run else driver.store.runtime.uuid()
        collection = _Collection(job, driver, run, terms, record, found, name)
        reclaimed = None
        if trash and driver.store.layout.has_trash:
            with job.described("the trash"):
                reclaimed = run(partial(collection.local.reclaim, dry_run=dry_run))
        judged, marked, seen = collection.mark()
        frame = judged.where(sf.col("tag") == "candidate")
        swept = None if dry_run else collection.sweep(frame, marked, seen, rate)
        return JobResult(_shown(frame), GcReport(name, marked, swept, reclaimed))


def _began(job: JobRun, record: Item, now_ms: int) -> int:
    """The time at which the collection began. Raises BusyError if the volume was locked since
    then."""
    text = json.dumps(sorted(record.items()), default=str)
    begun = job.saved("begun")
    if begun is None:
        job.save("begun", {"now_ms": now_ms, "record": text})
        return now_ms
    if not same_record(record, dict(json.loads(begun["record"]))):
        raise BusyError(
            "the volume was loaded, moved or restored since the run began: begin it in another "
            "directory"
        )
    return int(begun["now_ms"])


@dataclass(frozen=True, slots=True)
class _Collection:
    """One collection, on the driver."""

    job: JobRun
    volume: Volume
    run: Run
    terms: GcSettings
    record: Item
    found: _Found
    name: str
    """As `GcReport.run`."""

    @property
    def local(self) -> GarbageCollector:
        """The collector of the work that the driver does alone."""
        trail = AuditTrail(self.volume.log_blobs, f"{self.name}/driver")
        place, runtime = CollectedData.of(self.volume), self.volume.store.runtime
        return GarbageCollector(place, runtime, self.terms.ages, trail)

    def mark(self) -> tuple[DataFrame, Marked, MarkedState]:
        """The lines of the last stage, which include the candidates; the counts; and the state of
        the log."""
        tasks, place = self.job.tasks, CollectedData.of(self.volume)
        data = self._stage(
            "data", "listing of the data", lambda tick: self._lines(data_splits(place, tasks), tick)
        )
        segments = [TableSplit(number, tasks) for number in range(tasks)]
        table = self._stage("table", "scan of the table", lambda tick: self._lines(segments, tick))
        unnamed = self._stage(
            "unnamed",
            "unreferenced objects",
            lambda _: self._of_objects([data, table], take_unnamed),
        )
        checkpoints = self._checkpoints()
        log = self._stage("log", "reading the log", lambda tick: self._log(unnamed, tick))
        frames = [unnamed, log, *self._compacted(unnamed)]
        judged = self._stage(
            "judged",
            "judging",
            lambda _: self._of_objects(frames, partial(judge_objects, self.terms)),
        )
        marked = self.run(self.found.mark_filter.finish)
        self.run(partial(need_unlocked, self.volume.store.items, self.record))
        lost = marked.of("lost").objects
        state = MarkedState(self.found.segments, frozenset(checkpoints), lost)
        return judged, marked, state

    def sweep(
        self, frame: DataFrame, marked: Marked, seen: MarkedState, rate: float | None
    ) -> Swept:
        """Delete the candidates that are still unreferenced, and what else mark found."""
        swept = self.run(partial(self.local.clean_up, marked))
        candidates = frame.count()
        if candidates:
            tasks = min(self.job.tasks, -(-candidates // OF_A_TASK))
            share = None if rate is None else rate / tasks
            work = _Sweep(self.terms, seen, dict(self.record), self.name, share)
            done = self._stage(
                "swept",
                "deleting",
                lambda tick: _spread(frame, tasks).mapInArrow(
                    work.counted(tick), spark_schema(LINES)
                ),
            )
            for row in done.collect():
                _add_swept(swept, json.loads(row.line))
        return swept

    def _stage(
        self, name: str, what: str, make: Callable[[Accumulator[int]], MaybeFrame]
    ) -> DataFrame | MaybeFrame:
        with self.job.counted(name, _UNITS.get(name, "operations")) as tick:
            frame = self.job.stage(name, what, LINES, lambda: make(tick))
        if frame is not None:
            self.found.take(frame)
        return frame

    def _lines(self, splits: Sequence[GcSplit], tick: Accumulator[int]) -> DataFrame:
        return self.job.over_splits(splits, partial(read_lines, self.terms, tick.add), LINES)

    def _of_objects(
        self, frames: Iterable[DataFrame], work: Callable[[Iterable[pa.RecordBatch]], Batches]
    ) -> DataFrame:
        """The rows that `work` returns for lines grouped by hash, without the lines for the driver
        and for ranges."""
        lines = reduce(DataFrame.unionAll, frames).where(
            (sf.col("part") != NOWHERE) & (sf.col("tag") != "wanted")
        )
        together = lines.repartition(self.job.tasks, "part").sortWithinPartitions("part")
        return together.mapInArrow(work, spark_schema(LINES))

    def _checkpoints(self) -> list[str]:
        """The keys of the checkpoints that exist before the log is read."""
        saved = self.job.saved("checkpoints")
        if saved is None or self.job.saved("log") is None:
            assert self.volume.log_blobs is not None
            valid = self.run(LogReader(self.volume.log_blobs).checkpoints.valid)
            saved = {"keys": [each.key for each in valid]}
            self.job.save("checkpoints", saved)
        return list(saved["keys"])

    def _log(self, unnamed: DataFrame, tick: Accumulator[int]) -> DataFrame:
        """The lines of entries and segments about unreferenced objects."""
        tasks = min(self.job.tasks, SHARDS)
        ranges = self.job.spark.range(0, tasks, 1, tasks)
        ranges = ranges.selectExpr("id as part", "'range' as tag", "cast('' as binary) as line")
        # As `range_of`.
        number = sf.expr(f"((part + 1) * {tasks} - 1) div {SHARDS}")
        wanted = unnamed.where(sf.col("tag") == "wanted").withColumn("part", number)
        given = ranges.unionAll(wanted).repartition(tasks, "part").sortWithinPartitions("part")
        work = partial(read_entries, self.terms, tasks, tick.add)
        entries = given.mapInArrow(work, spark_schema(LINES))
        segments = self.run(partial(segment_splits, scope_of(self.volume, grace=0), self.job.tasks))
        read = self._lines([LogSplit(each) for each in segments], tick)
        return entries.unionAll(_of_wanted(read, unnamed))

    def _compacted(self, unnamed: DataFrame) -> Iterator[DataFrame]:
        """The lines of checkpoints, which are read after the rest of the log. If one is superseded
        meanwhile, the one that replaced it is read as well.
        """
        done: set[str] = set()

        def make(tick: Accumulator[int]) -> DataFrame | None:
            scope = scope_of(self.volume, grace=0)
            found = self.run(partial(checkpoint_splits, scope, self.job.tasks, done))
            return (
                _of_wanted(self._lines([LogSplit(each) for each in found], tick), unnamed)
                if found
                else None
            )

        for number in count(0):
            frame = self._stage(f"compacted-{number}", "checkpoints of the log", make)
            if frame is None:
                return
            yield frame
            if not frame.where(sf.col("tag") == SUPERSEDED).count():
                return


@dataclass(frozen=True, slots=True)
class _Sweep:
    """The sweep of candidates by tasks."""

    terms: GcSettings
    seen: MarkedState
    record: dict[str, Any]
    run: str
    rate: float | None

    def counted(self, tick: Accumulator[int]) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
        """The function of a task."""
        return lambda batches: self._swept(batches, tick)

    def _swept(self, batches: Iterable[pa.RecordBatch], tick: Accumulator[int]) -> Batches:
        lines = (line for batch in batches for line in batch.column("line").to_pylist())
        first = next(lines, None)
        if first is None:
            return
        verdicts = (verdict_from(json.loads(line)) for line in chain([first], lines))
        with opened(self.terms.config, self.terms.units) as (volume, run):
            sweeper = Sweeper(
                CollectedData.of(volume),
                volume.store.runtime,
                self.terms.ages,
                AuditTrail(volume.log_blobs, f"{self.run}/{attempt_name()}"),
                self.seen,
                self.record,
                run(volume.blobs.now_ms),
                rate=self.rate,
            )
            with closing(sweeper):
                while batch := list(islice(verdicts, BATCH)):
                    run(partial(sweeper.sweep, batch))
                    tick.add(len(batch))
        yield batch_of_lines([(NOWHERE, "swept", json.dumps(_document(sweeper.swept)))])


class _Found:
    """The results of tasks on the driver."""

    def __init__(self, mark_filter: MarkFilter) -> None:
        self.segments = SegmentIds()
        self.mark_filter = mark_filter
        mark_filter.done.counts["named"] = ObjectCount()

    def take(self, frame: DataFrame) -> None:
        """Collect the lines for the driver. Raises LogFormatError, ItemFormatError."""
        done = self.mark_filter.done
        for row in frame.where(sf.col("part") == NOWHERE).collect():
            text = bytes(row.line).decode()
            if row.tag == "marked":
                found = json.loads(text)
                add_counts(done.counts, found["counts"])
                done.entries += found["entries"]
            elif row.tag == "reservation" and len(done.reservations) < MOST:
                done.reservations.append(from_line("entries", text))
            elif row.tag == "multipart":
                done.multipart.add(text)
            elif row.tag == "kept_multipart":
                done.kept_multipart.add(text)
            elif row.tag == "segment":
                self.segments.add(text)
            elif row.tag == "damage":
                held_by(*json.loads(text))
            elif row.tag == "nameless":
                raise nameless_item(text)


def _of_wanted(lines: DataFrame, unnamed: DataFrame) -> DataFrame:
    """The lines about objects with unreferenced data, about others of the same hash, and for the
    driver."""
    wanted = unnamed.where(sf.col("tag").isin("blob", "marked")).select("part").distinct()
    return lines.join(wanted, "part", "left_semi").select("part", "tag", "line")


def _spread(candidates: DataFrame, tasks: int) -> DataFrame:
    return candidates.repartition(tasks)


def _shown(frame: DataFrame) -> DataFrame:
    found = frame.select(sf.from_json(sf.col("line").cast("string"), CANDIDATE).alias("it"))
    return found.selectExpr(
        "it.blob.key as key",
        "it.blob.size as bytes",
        "it.reason",
        "it.since_ms",
        "it.is_pending",
        "it.paths",
    )


def _document(swept: Swept) -> dict[str, Any]:
    return {
        "deleted": {
            reason: [count.objects, count.bytes] for reason, count in swept.deleted.items()
        },
        "kept": {reason: [count.objects, count.bytes] for reason, count in swept.kept.items()},
        "failures": [[key, *error_fields(error)] for key, error in swept.failures],
    }


def _add_swept(swept: Swept, found: dict[str, Any]) -> None:
    add_counts(swept.deleted, found["deleted"])
    add_counts(swept.kept, found["kept"])
    swept.failures += [
        (key, error_from(name, message, key)) for key, name, message in found["failures"]
    ]
