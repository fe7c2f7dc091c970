"""Restore over Spark: tables that one machine cannot rebuild in time.

Tasks decide each object by the rules of the local runner, and write the files that cannot affect
other objects, which are nearly all. The driver resolves the rest in a temporary file: directories,
uncertain states, and competing claims to a place (`integrity.restore_plan`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async._core.paths import normalize
from s3k_async._core.runtime import SYSTEM
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.config import VolumeConfig
from s3k_async.errors import ItemFormatError
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.restore_plan import TreePlan
from s3k_async.integrity.restore_report import (
    LISTED_OUTCOMES,
    UNTOLD,
    RestoreOutcome,
    RestoreReport,
)
from s3k_async.integrity.scope import Scope
from s3k_async.model import ROOT
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.log_writer import DisabledLog
from s3k_async.settings import with_local_secrets
from s3k_async.spark.delegate_tasks import while_held
from s3k_async.spark.job_report import JobResult
from s3k_async.spark.restore_tasks import DECIDED, WRITTEN, Decider, decision_of, writer
from s3k_async.spark.runner import AnyVolume, JobRun, ProgressCallback
from s3k_async.spark.scan_job import CORE_TASKS, ScanPlan, ScanResult
from s3k_async.spark.task_rows import spark_schema
from s3k_async.spark.unit_limits import Run
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.table.keys import KeyScheme
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.volumes import Volume
from s3k_async.volumes.connections import VolumeConnections, log_location
from s3k_async.volumes.restoration import (
    DamagedVolume,
    removed_directories,
    restore_volume,
    write_tree,
)
from s3k_async.volumes.volume import metadata_store

__all__ = ["restore"]

OUTCOMES: Final = "rule string, path string, object_id string, detail string"
"""The columns of outcomes that a report lists."""
FILES: Final = DECIDED.append(pa.field("occupied", pa.bool_()))
ROWS_AT_ONCE: Final = 1000


def restore(
    spark: SparkSession,
    volume: AnyVolume,
    *,
    subtree: str | None = None,
    dry_run: bool = True,
    tasks: int | None = None,
    checkpoint: str | None = None,
    temporary: str | None = None,
    progress: ProgressCallback | None = None,
) -> JobResult[RestoreReport]:
    """Rebuild the lost table of a volume, as `s3k fsck restore` does, or, with `subtree`, the lost
    entries below a path.

    Returns the reported outcomes (`rule`, `path`, `object_id`, `detail`) and the report. `dry_run`:
    write nothing. The volume is locked meanwhile. The same call, or `s3k fsck restore`, finishes an
    interrupted restore: it starts again and writes the missing entries. The driver holds the lock
    and tasks write under it. The driver waits 40 s before the first change and after the last one,
    so that a task that outlives the lock writes nothing.

    `tasks`: of each stage, by default two for each core. `checkpoint`: a directory, or its URI,
    that executors and driver can write, for the results of stages, in a subdirectory for each run;
    without one, the loss of an executor ends the run. `temporary`: a directory on the driver for a
    file of some hundred bytes for each directory of the volume. `progress` is called about once a
    second.

    Raises as `restore_volume` does: VolumeNotFoundError, NotAVolumeError, DirectoryNotEmptyError,
    BusyError, UnsupportedError, ReadOnlyVolumeError, ItemFormatError, the services' errors; those
    of tasks as Spark reports them.
    """
    job = JobRun(spark, volume, "restore", tasks=tasks, per_core=CORE_TASKS, progress=progress)
    both = job.volume
    top = None if subtree is None else normalize(subtree)
    frames: list[DataFrame] = []

    async def planned(lost: DamagedVolume) -> _Planned:
        known = lost.config if lost.table is None else lost.table.config
        here, there = (
            LostPlace(
                replace(
                    config,
                    name=known.name,
                    suffix_count=known.suffix_count,
                    hash=known.hash,
                    layout=lost.keys.layout,
                ),
                lost.scope,
                lost.hot,
            )
            for config in (both.driver, both.executors)
        )
        run = SYSTEM.uuid()
        directory = checkpoint and f"{checkpoint}/{run}"
        job.resume(directory, ["restore", run], lost.runtime.now_ms())
        plan = await while_held(spark, partial(_plan, job, here, there, lost, temporary))
        frames.append(plan.outcomes)
        return plan

    report = current_bridge().run(
        lambda: restore_volume(both.driver, subtree=top, dry_run=dry_run, planner=planned)
    )
    return JobResult(frames[-1], report)


@dataclass(frozen=True, slots=True)
class LostPlace:
    """A volume whose table may be missing, as shipped to tasks. `config`: with name, suffix count,
    hash and layout."""

    config: VolumeConfig
    scope: str
    """As of `DamagedVolume`,"""
    hot: str = ""
    """and so is this."""

    @contextmanager
    def opened_scope(self) -> Iterator[tuple[Scope, Run]]:
        """Its table, log and data, open in the body."""
        run = current_bridge().run
        stack = AsyncExitStack()
        config = with_local_secrets(self.config)

        async def connected() -> Scope:
            connections = VolumeConnections(config, SYSTEM, None, stack)
            items, _ = connections.table()
            log = connections.blobs(log_location(config), "log").below(self.scope)
            place = connections.blobs(config.data, "data")
            keys = KeyScheme(
                config.name,
                config.suffix_count or 1,
                config.hash or "java31",
                config.layout or "path",
            )
            log_of = DisabledLog()
            store = metadata_store(items, keys, log_of, SYSTEM, config.tuning, read_only=True)
            reader = LogReader(log, has_key=keys.has)
            data: BlobStore = place.below(self.scope)
            hot = connections.hot(self.hot)
            if hot is not None:
                data = TieredBlobs(hot.below(self.scope), data)
            return Scope(store, data, reader, log, SYSTEM, 0, place=place if self.scope else None)

        try:
            yield run(connected), run
        finally:
            run(stack.aclose)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The plan of a restore: the entries that the driver writes, and the files that tasks write."""

    tree: TreePlan
    files: DataFrame
    outcomes: DataFrame
    config: VolumeConfig
    job: JobRun
    sorter: ExternalSort

    @property
    def report(self) -> RestoreReport:
        return self.tree.report

    async def write(self, volume: Volume, lock: VolumeLock) -> None:
        """Write directories first, so that no entry is ever without its parent."""
        report = self.report
        trail = AuditTrail(volume.log_blobs, f"{report.run}/tree")
        await write_tree(
            volume,
            self.tree,
            trail,
            lambda progress: self.job.report_progress(progress.done, "tree"),
        )
        await while_held(self.job.spark, partial(self._write_files, lock.id))
        await lock.dismiss(volume.items)

    def _write_files(self, lock: str) -> None:
        report = self.report
        with self.job.counted("files", "files") as counter:
            work = writer(self.config, lock, report.run, counter)
            written = self.job.stage(
                "written",
                "writing files",
                WRITTEN,
                lambda: self.files.select("line", "path").mapInArrow(work, spark_schema(WRITTEN)),
            )
        report.written += sum(row.written for row in written.collect())

    def close(self) -> None:
        self.tree.close()
        self.sorter.close()


def _plan(
    job: JobRun,
    here: LostPlace,
    there: LostPlace,
    lost: DamagedVolume,
    temporary: str | None,
) -> _Planned:
    """Plan the restore. `here`: the lost volume as the driver opens it; `there`: as tasks do."""
    sorter = ExternalSort(temporary)
    tree = lost.make_tree(sorter, lost.volume_id, lost.path)
    try:
        with here.opened_scope() as (scope, run):
            scans = ScanPlan(job, there, scope, run)
            with closing(scans.scan("", job.now_ms, table=lost.table is not None)) as scanned:
                _need_understood(scanned)
                work = Decider(type(tree), lost.keys, job.now_ms, lost.path, tree.within)
                decided = job.stage(
                    "decided",
                    "deciding objects",
                    DECIDED,
                    lambda: scans.by_part(scanned).mapInArrow(work, spark_schema(DECIDED)),
                )
            if lost.table is not None:
                tree.add_removed(run(partial(removed_directories, scope.store)))
        known = _Decided(decided, tree.names)
        files = job.stage("files", "independent files", FILES, known.files)
        outcomes: list[RestoreOutcome] = []
        tree.report.heard = outcomes.append
        for damaged in scanned.collector.loose.log_objects:
            tree.report.note(RestoreOutcome("log_damaged", damaged.key, detail=damaged.problem))
        with job.described("the tree"):
            _make_a_tree(tree, known, files, job.now_ms)
            kept, frames = _judged(job.spark, tree, files, known.outcomes)
            tree.report.log_records = scanned.collector.counts.log_records
            _count(tree.report, kept, frames)
            reported = _reported([kept, *frames, _frame(job.spark, outcomes)])
        tree.report.heard = None
    except BaseException:
        tree.close()
        sorter.close()
        raise
    return _Planned(tree, kept, reported, there.config, job, sorter)


def _need_understood(scanned: ScanResult) -> None:
    for item in scanned.collector.loose.items:
        if not item.is_foreign:
            place = f"{item.partition}/{item.sort}"
            raise ItemFormatError(
                f"{item.problem or 'not at its place'}; run s3k fsck repair first", path=place
            )


class _Decided:
    """The decisions of the tasks, and the selection that the driver needs."""

    def __init__(self, frame: DataFrame, names: Sequence[str]) -> None:
        """`names`: as of the plan."""
        self._frame = frame
        self._names = names
        claims = self._tag("claim")
        certain = claims.where("plain").groupBy("place").count().where(sf.col("count") > 1)
        wanted = [certain.select("place"), self._tag("wanted").select("place")]
        self._wanted = reduce(DataFrame.unionAll, wanted).distinct()
        self.claims, self._left = self._divided(claims)
        self.removed, _ = self._divided(self._tag("removed"))
        self.existing, others = self._divided(self._tag("standing"))
        if "object_id" in names:  # the place of a claim that is found by its id is not looked for
            places = self.claims.select("place").distinct()
            at_claims = others.join(places, "place", "left_semi").select(others.columns)
            self.existing = self.existing.unionAll(at_claims)
        self.lost = self._tag("outcome").where("not plain")
        """Objects that are not restored, for the plan."""
        self.outcomes = self._tag("outcome").where("plain")
        """Other objects that are not restored."""

    def _tag(self, name: str) -> DataFrame:
        """The rows of a tag."""
        return self._frame.where(sf.col("tag") == name)

    def _divided(self, rows: DataFrame) -> tuple[DataFrame, DataFrame]:
        """The rows that the plan needs or looks for, and the others."""
        needed, left = rows.where("not plain"), rows.where("plain")
        for name in self._names:
            wanted = self._wanted.withColumnRenamed("place", name)
            found = left.join(wanted, name, "left_semi").select(rows.columns)
            needed = needed.unionAll(found)
            left = left.join(wanted, name, "left_anti").select(rows.columns)
        return needed, left

    def files(self) -> DataFrame:
        """Files that affect no other claim; `occupied`: whether the table has another object at the
        place."""
        existing = self._tag("standing").select("place").distinct()
        existing = existing.withColumn("taken", sf.lit(True))
        occupied = sf.coalesce(sf.col("taken"), sf.lit(False)).alias("occupied")
        return self._left.join(existing, "place", "left").select(*self._left.columns, occupied)


def _make_a_tree(tree: TreePlan, known: _Decided, files: DataFrame, now_ms: int) -> None:
    """Build the tree from the decisions that the driver needs, a partition at a time."""
    for rows in _rows(known.claims):
        tree.claim((row.object_id, decision_of(row)) for row in rows)
    for rows in _rows(known.lost):
        for row in rows:
            tree.note(decision_of(row), row.object_id)
    for rows in _rows(known.removed):
        tree.remove((row.object_id, row.path) for row in rows)
    for rows in _rows(known.existing):
        tree.add_existing((row.place, row.object_id, row.isdir) for row in rows)
    earliest = sf.min(sf.when(~sf.col("occupied"), sf.col("ctime"))).alias("earliest")
    for rows in _rows(files.groupBy("parent").agg(earliest)):
        tree.summarise((row.parent, row.earliest) for row in rows)
    tree.make_a_tree(now_ms)


def _rows(frame: DataFrame) -> Iterator[list[Any]]:
    rows = iter(frame.toLocalIterator())
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield some


def _judged(
    spark: SparkSession, tree: TreePlan, files: DataFrame, outcomes: DataFrame
) -> tuple[DataFrame, list[DataFrame]]:
    """The files to write; and the other outcomes as separate frames, `outcomes` among them."""
    free = files.where(~sf.col("occupied"))
    others = [
        files.where("occupied").withColumns({"rule": sf.lit("occupied"), "detail": sf.lit("")}),
        outcomes,
    ]
    refused = [row for rows in tree.refused() for row in rows]
    if refused:
        directories = spark.createDataFrame(refused, "parent string, flaw string")
        below = free.join(directories, "parent")
        others.append(
            below.withColumns({"rule": sf.lit("parent_is_file"), "detail": sf.col("flaw")})
        )
        free = free.join(directories, "parent", "left_anti").select(files.columns)
    located = tree.directories()
    if located is not None:
        directories = spark.createDataFrame(list(located), "parent string, directory string")
        directories = directories.withColumn("inside", sf.lit(True))
        free = _at_paths(free, directories, tree.path)
        others = [_at_paths(each, directories, tree.path) for each in others]
    return free, others


def _at_paths(rows: DataFrame, directories: DataFrame, path: str) -> DataFrame:
    """The rows in the scope of the restore, with their paths in the restored tree, or those in the
    log if their directories are not in the tree."""
    joined = rows.join(directories, "parent", "left")
    at, known = sf.col("path"), sf.col("directory").isNotNull()
    if path != ROOT:
        below = (at == path) | at.startswith(f"{path}/")
        inside = sf.col("inside").isNotNull()
        joined = joined.where(inside | ((sf.col("rule") == "other_layout") & below))
    above = sf.when(sf.col("directory") == ROOT, "").otherwise(sf.col("directory"))
    shown = sf.when(known, sf.concat(above, sf.lit("/"), sf.col("name"))).otherwise(at)
    return joined.withColumn("path", shown).select(rows.columns)


def _frame(spark: SparkSession, outcomes: Sequence[RestoreOutcome]) -> DataFrame:
    rows = [(each.rule, each.path, each.object_id, each.detail) for each in outcomes]
    return spark.createDataFrame(rows, OUTCOMES)


def _reported(frames: Sequence[DataFrame]) -> DataFrame:
    """The outcomes that a report lists."""
    columns = [frame.select("rule", "path", "object_id", "detail") for frame in frames]
    together: DataFrame = reduce(DataFrame.unionAll, columns)
    return together.where(~sf.col("rule").isin(*UNTOLD))


def _count(report: RestoreReport, kept: DataFrame, others: Sequence[DataFrame]) -> None:
    """Add the outcomes that the driver has not seen to the report: `kept`, the files to write, and
    the objects that are not restored."""
    published = sf.col("published")
    sums = [
        sf.sum(sf.when(published, 1).otherwise(0)).alias("files"),
        sf.sum("size").alias("bytes"),
    ]
    for row in kept.groupBy("rule").agg(sf.count("*").alias("n"), *sums).collect():
        report.counts[row.rule] += row.n
        report.files += row.files
        report.reservations += row.n - row.files
        report.bytes += row.bytes
    for frame in others:
        for row in frame.groupBy("rule").count().collect():
            report.counts[row.rule] += row["count"]
    room = LISTED_OUTCOMES - len(report.outcomes)
    if room > 0:
        report.outcomes += [
            RestoreOutcome(*row) for row in _reported([kept, *others]).limit(room).collect()
        ]
