"""fsck over Spark: volumes too large for one machine, with the rules and actions of the local
runner.

Each scan is a stage. Spark shuffles the facts by object id, and tasks evaluate the rules part by
part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from s3k_async._core.observation import Metrics, Observer, inherited_observer
from s3k_async.errors import ReadOnlyVolumeError
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.repair import ROUNDS, RepairReport
from s3k_async.integrity.verify import GRACE_SECONDS, VerifyReport, loose, part_findings
from s3k_async.model import ROOT
from s3k_async.spark.finding_rows import (
    REPAIRS,
    RESULTS,
    FindingCounts,
    Findings,
    Result,
    batches_of,
    frame_of,
    result_of,
)
from s3k_async.spark.job_report import JobResult
from s3k_async.spark.repair_round import RepairTask, repair_round
from s3k_async.spark.runner import AnyVolume, JobRun, ProgressCallback
from s3k_async.spark.scan_job import CORE_TASKS, ScanJob, job_on
from s3k_async.spark.scan_splits import VolumeTarget
from s3k_async.spark.shuffle_rows import parts_of
from s3k_async.spark.task_rows import Batches, spark_schema
from s3k_async.spark.unit_limits import UnitLimits

__all__ = ["repair", "verify"]


def verify(
    spark: SparkSession,
    volume: AnyVolume,
    *,
    path: str = ROOT,
    grace: float = GRACE_SECONDS,
    deep: bool = False,
    read_units: float | None = None,
    tasks: int | None = None,
    checkpoint: str | None = None,
    progress: ProgressCallback | None = None,
) -> JobResult[VerifyReport]:
    """Check a volume, or the tree below a path of it, as `s3k fsck verify` does; read-only.

    Returns all findings (columns as those of `Finding`) and the report. `grace`: seconds; younger
    objects and operations are not reported. `deep`: read every byte and compare checksums.
    `read_units`: maximum read units of the table per second for the whole job, divided equally
    among its tasks. `tasks`: of each stage, by default two for each core. `checkpoint`: a
    directory, or its URI, that executors and driver can write. A run resumes there after the last
    finished stage of an interrupted one; once a run has ended, the next one begins again, and
    replaces its findings. It may be removed when they are no longer needed.
    `progress` is called about once a second.

    Raises InvalidArgumentError (the directory is that of another run; a limit below one unit for
    each task), UnsupportedError (limits in a table without units), PathNotFoundError, the stores'
    errors; those of tasks as Spark reports them.
    """
    job = JobRun(spark, volume, "fsck", tasks=tasks, per_core=CORE_TASKS, progress=progress)
    units = UnitLimits(read_units)
    with job_on(
        job, ["verify", deep], path=path, grace=grace, deep=deep, checkpoint=checkpoint, units=units
    ) as scans:
        scanned = scans.scan("", job.now_ms)
        with closing(scanned):
            report = VerifyReport()
            report.count(scanned.collector.counts)
            without_id = [finding for _, finding in scans.run(partial(loose, scanned.collector))]
            report.add(without_id)
            target = replace(scans.target, directories=scanned.directories)
            decided = job.stage(
                "found",
                "comparing",
                RESULTS,
                lambda: scans.by_part(scanned).mapInArrow(
                    _finder(target, scanned.collector, deep=deep), spark_schema(RESULTS)
                ),
            )
        Findings(decided).add_to(report)
        if report.is_empty:
            scans.run(scans.scope.need_path)
        own = frame_of(spark, [result_of("found", finding) for finding in without_id])
        findings = decided.unionAll(own).where(sf.col("tag") == "found")
        job.end()
        return JobResult(findings.drop("tag", "line", "round", "outcome", "reason"), report)


def repair(
    spark: SparkSession,
    volume: AnyVolume,
    *,
    dry_run: bool = True,
    path: str = ROOT,
    grace: float = GRACE_SECONDS,
    deep: bool = False,
    read_units: float | None = None,
    write_units: float | None = None,
    tasks: int | None = None,
    checkpoint: str | None = None,
    progress: ProgressCallback | None = None,
    metrics: Sequence[Metrics] = (),
) -> JobResult[RepairReport]:
    """Repair what `verify` finds in a volume, or below a path of it, as `s3k fsck repair` does.

    Returns one row for each repair, and the report (rows: round, outcome, reason, and the columns
    of `Finding`). `dry_run`: change nothing and report what would be done. `deep`: as of
    `s3k_async.integrity.repair.repair_volume`. `read_units`, `write_units`: maximum units of the
    table per second for the whole job. Rounds are repeated until a scan of the volume finds nothing
    to repair. Safe beside writers, with repeated tasks, and with speculation: every action is
    conditional and rechecked immediately before. The audit trail, `audit/<report.run>/` in the log
    location, has a separate name for each attempt at each part. Repeating it after an error is
    always safe; with the same `checkpoint` it resumes, unless the run had ended. `metrics` receive
    an event for each repair, on the driver, at the end of its stage; of a stage that an interrupted
    run has finished, again.

    Raises ReadOnlyVolumeError, and as `verify` does.
    """
    job = JobRun(spark, volume, "fsck", tasks=tasks, per_core=CORE_TASKS, progress=progress)
    scope = ["repair", dry_run, *(["deep"] if deep else [])]
    units = UnitLimits(read_units, write_units)
    with job_on(
        job, scope, path=path, grace=grace, deep=deep, checkpoint=checkpoint, units=units
    ) as scans:
        if scans.volume.read_only and not dry_run:
            raise ReadOnlyVolumeError(
                "the volume is open for reading only", path=scans.volume.record.name
            )
        report = RepairReport("" if dry_run else scans.scope.runtime.uuid(), dry_run)
        observer = _observer(metrics, scans.volume.record.name)
        repairs = spark.createDataFrame([], spark_schema(REPAIRS))
        while report.rounds < ROUNDS:
            report.rounds += 1
            over = f"{report.rounds:02d}/round"
            if job.saved(over) is not None:
                continue  # finished by an interrupted run
            of_round, more = repair_round(scans, _turn(scans, report), report, observer)
            job.save(over, {})
            repairs = repairs.unionAll(of_round)
            if not more:
                break
        if report.is_empty:
            scans.run(scans.scope.need_path)
        job.end()
        return JobResult(repairs, report)


def _observer(metrics: Sequence[Metrics], volume: str) -> Observer:
    """The observer of a job on a volume: `metrics`, and the receivers of the command that runs
    it."""
    own, inherited = Observer(metrics, volume), inherited_observer()
    return own if inherited is None else own.joined(inherited)


def _turn(scans: ScanJob, report: RepairReport) -> RepairTask:
    """Run the next round, which an interrupted run may have begun."""
    name = f"{report.rounds:02d}/begun"
    begun = scans.job.saved(name)
    if begun is None:
        begun = {"now_ms": scans.scope.runtime.now_ms()}
        scans.job.save(name, begun)
    return RepairTask(scans.target, report.run, report.rounds, begun["now_ms"])


def _finder(
    target: VolumeTarget, scanned: Collector, *, deep: bool
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    now_ms, position = scanned.now_ms, scanned.position

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Result]:
        with target.opened_scope() as (scope, run):
            for _, parts in parts_of(batches):
                collector = Collector(scope, parts, now_ms=now_ms, position=position)
                try:
                    found = run(partial(part_findings, collector, 0, deep=deep))
                finally:
                    collector.close_tail()
                for finding in found:
                    yield result_of("found", finding)

    return lambda batches: batches_of(FindingCounts().counted(rows(batches)))
