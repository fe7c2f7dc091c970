"""One round of repair over Spark: each finding is repaired by the task that found it.

Every action is conditional and rechecked immediately before, so that a task that runs twice changes
nothing the second time. Each attempt of a task has an audit trail for each part.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import islice
from sys import maxsize
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from s3k_async._core.observation import Observer
from s3k_async.backends.ports.pagination import list_all
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.repair import RepairReport, RepairRound
from s3k_async.integrity.repair_actions import Repairer
from s3k_async.integrity.scope import Scope
from s3k_async.integrity.shuffle import Shuffle, from_line, to_line
from s3k_async.integrity.verify import LISTED, VerifyReport
from s3k_async.oplog.tail import LogPosition
from s3k_async.spark.finding_rows import (
    RESULTS,
    FindingCounts,
    Findings,
    Result,
    batches_of,
    finding_of,
    frame_of,
    repairs_of,
    result_of,
)
from s3k_async.spark.scan_job import ScanJob, ScanResult
from s3k_async.spark.scan_splits import VolumeTarget
from s3k_async.spark.shuffle_rows import parts_of
from s3k_async.spark.task_rows import Batches, attempt_name, spark_schema
from s3k_async.volumes import Volume

__all__ = ["RepairTask", "repair_round"]

CHILDREN: Final = 500
"""Entries without a parent that are repaired together."""


@dataclass(frozen=True, slots=True)
class RepairTask:
    """A round of repair, as shipped to tasks."""

    target: VolumeTarget
    run: str
    """Names the audit trails; empty for a dry run."""
    number: int
    now_ms: int
    position: LogPosition = field(default_factory=LogPosition)
    """The end of the log when it was scanned."""
    unfinished: frozenset[str] = frozenset()
    """As of `Facts`."""

    def collector(self, scope: Scope, parts: Shuffle) -> Collector:
        """The facts about some parts of an open volume."""
        collector = Collector(scope, parts, now_ms=self.now_ms, position=self.position)
        collector.unfinished.update(self.unfinished)
        return collector

    def round(
        self, volume: Volume, collector: Collector, name: str
    ) -> tuple[RepairRound, RepairReport]:
        """The repairer of a collector's facts, and its report. `name`: that of its audit trail."""
        audit = AuditTrail(volume.log_blobs, self.trail(name)) if self.run else None
        report = self.report()
        return RepairRound(
            collector, Repairer(volume, collector.scope, collector.tail), audit, report
        ), report

    def report(self) -> RepairReport:
        """A report that lists all findings and repairs, as the source of the rows."""
        return RepairReport(
            self.run, not self.run, self.number, left=VerifyReport(listed=maxsize), listed=maxsize
        )

    def trail(self, name: str) -> str:
        """The name of an audit trail of the round."""
        return f"{self.run}/{self.number:02d}-{name}"

    def new_rows(self, report: RepairReport) -> Iterator[Result]:
        """The rows of findings and repairs since the last call."""
        found, report.left.findings = report.left.findings, []
        repairs, report.repairs = report.repairs, []
        yield from (result_of("found", finding) for finding in found)
        yield from (repairs_of(each, self.number) for each in repairs)

    def rows(self, this: RepairRound, report: RepairReport, name: str) -> Iterator[Result]:
        """The remaining rows of a round."""
        yield from self.new_rows(report)
        for parent, child in this.waiting.items():
            yield result_of("waiting", child, line=json.dumps(parent))
        if self.run and report.outcomes:
            yield result_of("trail", line=name)


def repair_round(
    scans: ScanJob, turn: RepairTask, report: RepairReport, observer: Observer
) -> tuple[DataFrame, bool]:
    """Scan the volume and repair it. Returns rows of REPAIRS, and whether another round is needed.
    `observer` receives an event for each repair, when the results of its stage are known."""
    within = f"{turn.number:02d}/"
    scans.job.resumed = False
    with closing(scans.scan(within, turn.now_ms)) as scanned:
        return _repaired(scans, turn, scanned, report, observer)


def _repaired(
    scans: ScanJob,
    turn: RepairTask,
    scanned: ScanResult,
    report: RepairReport,
    observer: Observer,
) -> tuple[DataFrame, bool]:
    within, job = f"{turn.number:02d}/", scans.job
    target = replace(turn.target, directories=scanned.directories)
    turn = replace(turn, target=target, position=scanned.collector.position)
    report.left = VerifyReport()
    report.left.count(scanned.collector.counts)
    before = report.done
    this, own = turn.round(scans.volume, scanned.collector, "driver")
    scans.run(this.loose)
    if this.finished:
        _take_own(own, report, observer)
        return _own(scans, turn, own), True
    turn = replace(turn, unfinished=frozenset(scanned.collector.unfinished))
    frame = job.stage(
        f"{within}objects",
        f"repairing objects, round {turn.number}",
        RESULTS,
        lambda: scans.by_part(scanned).mapInArrow(_objects(turn), spark_schema(RESULTS)),
    )
    results = [objects := Findings(frame)]
    _take(objects, report, observer)
    if objects.sum.tags["lonely"]:
        children = frame.where(sf.col("tag") == "lonely").select("line").repartition(job.tasks)
        later = objects.sum.tags["waiting"] > 0 and this.done + report.done > before
        parents = job.stage(
            f"{within}parents",
            f"making directories, round {turn.number}",
            RESULTS,
            lambda: children.mapInArrow(_parents(turn, later=later), spark_schema(RESULTS)),
        )
        results.append(Findings(parents))
        _take(results[-1], report, observer)
    if this.done + report.done == before:
        this.waiting.update(
            {json.loads(row.line): finding_of(row) for row in objects.rows("waiting")}
        )
        scanned.know_log_of(this.waiting.keys())
        scans.run(this.unknown_directories)
    _take_own(own, report, observer)
    frames = [each.frame for each in results]
    repairs = (
        reduce(DataFrame.unionAll, frames).where(sf.col("tag") == "repaired").drop("tag", "line")
    )
    repairs = repairs.unionAll(_own(scans, turn, own))
    again = bool(turn.run) and (job.resumed or _was_repeated(scans, turn, results))
    return repairs, again or report.done > before


def _own(scans: ScanJob, turn: RepairTask, report: RepairReport) -> DataFrame:
    """The driver's own repairs, as rows of REPAIRS."""
    frame = frame_of(
        scans.job.spark, [repairs_of(repairs, turn.number) for repairs in report.repairs]
    )
    return frame.drop("tag", "line")


def _take_own(own: RepairReport, report: RepairReport, observer: Observer) -> None:
    """Count the driver's own findings and repairs."""
    report.left.add(own.left.findings)
    report.add(own.repairs)
    _observe(observer, Counter(each.finding.kind for each in own.repairs if each.outcome == "done"))


def _take(found: Findings, report: RepairReport, observer: Observer) -> None:
    found.add_to(report.left)
    report.repairs += found.repairs()[: max(0, LISTED - len(report.repairs))]
    report.outcomes.update(found.sum.outcomes)  # type: ignore[arg-type]
    _observe(observer, found.sum.repaired)


def _observe(observer: Observer, repaired: Counter[str]) -> None:
    """Report the events of repairs, which tasks cannot."""
    for kind in repaired.elements():
        observer.event(f"fsck.repaired.{kind}")


def _was_repeated(scans: ScanJob, turn: RepairTask, results: Sequence[Findings]) -> bool:
    """Whether audit trails exist of attempts whose rows are not among the results."""
    blobs = scans.volume.log_blobs
    if blobs is None:
        return False
    known = {row.line.decode() for each in results for row in each.rows("trail")}

    async def all_trails() -> set[str]:
        return {info.key.split("/")[2] async for info in list_all(blobs, f"audit/{turn.trail('')}")}

    written = {name.partition("-")[2] for name in scans.run(all_trails)}
    return bool(written - known - {"driver"})


def _objects(turn: RepairTask) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Result]:
        with turn.target.opened_volume() as (volume, scope, run):
            for number, parts in parts_of(batches):
                collector = turn.collector(scope, parts)
                name = f"objects-{attempt_name(number)}"
                this, report = turn.round(volume, collector, name)
                try:
                    run(partial(this.objects, 0))
                finally:
                    collector.close_tail()
                yield from turn.rows(this, report, name)
                for lonely in collector.lonely(0):
                    yield result_of("lonely", line=to_line("lonely", lonely))

    return lambda batches: batches_of(FindingCounts().counted(rows(batches)))


def _parents(turn: RepairTask, *, later: bool) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Result]:
        with turn.target.opened_volume() as (volume, scope, run):
            name = f"parents-{attempt_name()}"
            this, report = turn.round(volume, turn.collector(scope, Shuffle()), name)
            lines = (line for batch in batches for line in batch.column(0).to_pylist())
            while children := [from_line("lonely", line) for line in islice(lines, CHILDREN)]:
                run(partial(this.parents, children, later=later))
                yield from turn.new_rows(report)
            yield from turn.rows(this, report, name)

    return lambda batches: batches_of(FindingCounts().counted(rows(batches)))
