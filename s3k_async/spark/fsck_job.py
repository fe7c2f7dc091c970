"""fsck over Spark: volumes too large for one machine, with the rules and actions of the local
runner.

Each scan is a stage of its own. What belongs together is brought together by Spark, and decided in
tasks, part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from s3k_async.config import VolumeConfig
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
from s3k_async.spark.repair_round import RepairTask, repair_round
from s3k_async.spark.scan_job import Batches, ScanJob, job_on
from s3k_async.spark.scan_splits import VolumeTarget, opened
from s3k_async.spark.settings import SparkVolume, spark_volume
from s3k_async.spark.shuffle_rows import parts_of
from s3k_async.spark.stages import Tell

__all__ = ["repair", "verify"]


def verify(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    *,
    path: str = ROOT,
    grace: float = GRACE_SECONDS,
    deep: bool = False,
    partitions: int | None = None,
    checkpoint: str | None = None,
    progress: Tell | None = None,
) -> tuple[DataFrame, VerifyReport]:
    """Tell what is wrong in a volume, or below a path of it, as `s3k fsck verify` does; changes
    nothing.

    Returns all findings (columns as those of `Finding`) and the report. `grace`: seconds; what is
    younger is not reported. `deep`: read every byte and compare checksums. `partitions`: tasks of
    each stage, by default two for each core. `checkpoint`: a directory, or its URI, that executors
    and driver can write: a run with the same one goes on behind the last stage that was finished.
    It may be removed afterwards, when the findings are not needed any more. `progress` is told
    about once a second.

    Raises InvalidArgumentError (the directory is that of another run), the stores' errors; those of
    tasks as Spark tells them.
    """
    with job_on(
        spark,
        spark_volume(spark, volume),
        ["verify", deep],
        path=path,
        grace=grace,
        partitions=partitions,
        checkpoint=checkpoint,
        progress=progress,
    ) as job:
        now_ms = job.stages.now_ms
        scanned = job.scan("", now_ms)
        report = VerifyReport()
        report.count(scanned.collector.counts)
        without_id = [finding for _, finding in job.run(partial(loose, scanned.collector))]
        report.add(without_id)
        decided = job.stages.run(
            "found",
            "fsck: comparing",
            RESULTS,
            lambda: job.by_part(scanned).mapInArrow(
                _finder(job.place, scanned.collector, deep=deep), RESULTS
            ),
        )
        Findings(decided).add_to(report)
        told = decided.unionAll(
            frame_of(spark, [result_of("found", finding) for finding in without_id])
        )
        findings = told.where(F.col("pile") == "found").drop(
            "pile", "line", "round", "outcome", "reason"
        )
        return findings, report


def repair(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    *,
    dry_run: bool = True,
    path: str = ROOT,
    grace: float = GRACE_SECONDS,
    partitions: int | None = None,
    checkpoint: str | None = None,
    progress: Tell | None = None,
) -> tuple[DataFrame, RepairReport]:
    """Repair what `verify` finds in a volume, or below a path of it, as `s3k fsck repair` does.

    Returns what became of each finding (round, outcome, reason, and the columns of `Finding`) and
    the report. `dry_run`: change nothing and tell what would be done. Goes round until a whole look
    at the volume finds nothing to repair. Safe beside writers, with tasks that are repeated, and
    with speculation: every action is conditional and re-evaluated right before. The audit trail,
    below `audit/<report.run>/` of the log's place, has a name for each attempt at each part.
    Running it again after an error is always right; with the same `checkpoint` it goes on.

    Raises ReadOnlyVolumeError, and as `verify` does.
    """
    with job_on(
        spark,
        spark_volume(spark, volume),
        ["repair", dry_run],
        path=path,
        grace=grace,
        partitions=partitions,
        checkpoint=checkpoint,
        progress=progress,
    ) as job:
        if job.volume.read_only and not dry_run:
            raise ReadOnlyVolumeError(
                "the volume is open for reading only", path=job.volume.record.name
            )
        report = RepairReport("" if dry_run else job.ground.sources.uuid(), dry_run)
        told = spark.createDataFrame([], REPAIRS)
        while report.rounds < ROUNDS:
            report.rounds += 1
            over = f"{report.rounds:02d}/round"
            if job.stages.said(over) is not None:
                continue  # an interrupted run was through with it
            repairs, more = repair_round(job, _turn(job, report), report)
            job.stages.say(over, {})
            told = told.unionAll(repairs)
            if not more:
                break
        return told, report


def _turn(job: ScanJob, report: RepairReport) -> RepairTask:
    """The next round, which an interrupted run may have begun."""
    name = f"{report.rounds:02d}/begun"
    begun = job.stages.said(name)
    if begun is None:
        begun = {"now_ms": job.ground.sources.now_ms()}
        job.stages.say(name, begun)
    return RepairTask(job.place, report.run, report.rounds, begun["now_ms"])


def _finder(
    place: VolumeTarget, scanned: Collector, *, deep: bool
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    now_ms, position = scanned.now_ms, scanned.position

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Result]:
        with opened(place.config) as (volume, run):
            ground = place.ground(volume)
            for _, parts in parts_of(batches):
                collector = Collector(ground, parts, now_ms=now_ms, position=position)
                try:
                    found = run(partial(part_findings, collector, 0, deep=deep))
                finally:
                    collector.close_tail()
                for finding in found:
                    yield result_of("found", finding)

    return lambda batches: batches_of(FindingCounts().counted(rows(batches)))
