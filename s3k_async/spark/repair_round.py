"""One round of repair over Spark: each finding is repaired by the task that found it.

Every action is conditional and decided once more right before, so that a task that runs twice
changes nothing the second time. Each part has an audit trail of its own for each attempt of its
task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import islice
from sys import maxsize
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.repair import RepairReport, RepairRound
from s3k_async.integrity.repair_actions import Repairer
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
from s3k_async.spark.scan_job import Batches, ScanJob
from s3k_async.spark.scan_splits import VolumeTarget, opened
from s3k_async.spark.shuffle_rows import parts_of
from s3k_async.stores.pagination import list_all
from s3k_async.volumes import Volume

__all__ = ["RepairTask", "repair_round"]

CHILDREN: Final = 500
"""Entries without a parent that are looked at together."""


@dataclass(frozen=True, slots=True)
class RepairTask:
    """A round of repair, as shipped to tasks."""

    place: VolumeTarget
    run: str
    """Names the audit trails; empty for a dry run."""
    number: int
    now_ms: int
    position: LogPosition = field(default_factory=LogPosition)
    """Where the log ended when it was scanned."""
    unfinished: frozenset[str] = frozenset()
    """As of `Facts`."""

    def collector(self, volume: Volume, parts: Shuffle) -> Collector:
        """The facts about some parts of an open volume."""
        ground = self.place.ground(volume)
        collector = Collector(ground, parts, now_ms=self.now_ms, position=self.position)
        collector.unfinished.update(self.unfinished)
        return collector

    def round(
        self, volume: Volume, collector: Collector, name: str
    ) -> tuple[RepairRound, RepairReport]:
        """What repairs what a gatherer knows, and its report. `name`: of its audit trail."""
        audit = AuditTrail(volume.log_blobs, self.trail(name)) if self.run else None
        report = self.report()
        return RepairRound(
            collector, Repairer(volume, collector.ground, collector.tail), audit, report
        ), report

    def report(self) -> RepairReport:
        """A report that lists everything: it is told, and counted by what is told."""
        return RepairReport(
            self.run, not self.run, self.number, left=VerifyReport(listed=maxsize), listed=maxsize
        )

    def trail(self, name: str) -> str:
        """The name of an audit trail of the round."""
        return f"{self.run}/{self.number:02d}-{name}"

    def told(self, report: RepairReport) -> Iterator[Result]:
        """What was found and done since this was called last."""
        found, report.left.findings = report.left.findings, []
        repairs, report.repairs = report.repairs, []
        yield from (result_of("found", finding) for finding in found)
        yield from (repairs_of(each, self.number) for each in repairs)

    def rows(self, this: RepairRound, report: RepairReport, name: str) -> Iterator[Result]:
        """What was found and done, and what else the driver is to know of a round that is over."""
        yield from self.told(report)
        for parent, child in this.waiting.items():
            yield result_of("waiting", child, line=json.dumps(parent))
        if self.run and report.outcomes:
            yield result_of("trail", line=name)


def repair_round(job: ScanJob, turn: RepairTask, report: RepairReport) -> tuple[DataFrame, bool]:
    """Look at the volume and repair what can be; rows of `REPAIRS`, and whether there may be more
    to be repaired."""
    within = f"{turn.number:02d}/"
    job.stages.resumed = False
    scanned = job.scan(within, turn.now_ms)
    turn = replace(turn, position=scanned.collector.position)
    report.left = VerifyReport()
    report.left.count(scanned.collector.counts)
    before = report.done
    this, own = turn.round(job.volume, scanned.collector, "driver")
    job.run(this.loose)
    if this.finished:
        report.left.add(own.left.findings)
        report.add(own.repairs)
        return _own(job, turn, own), True
    turn = replace(turn, unfinished=frozenset(scanned.collector.unfinished))
    frame = job.stages.run(
        f"{within}objects",
        f"fsck: mending objects, round {turn.number}",
        RESULTS,
        lambda: job.by_part(scanned).mapInArrow(_objects(turn), RESULTS),
    )
    told = [objects := Findings(frame)]
    _take(objects, report)
    if objects.sum.piles["lonely"]:
        children = frame.where(F.col("pile") == "lonely").select("line").repartition(job.partitions)
        later = objects.sum.piles["waiting"] > 0 and this.done + report.done > before
        parents = job.stages.run(
            f"{within}parents",
            f"fsck: making directories, round {turn.number}",
            RESULTS,
            lambda: children.mapInArrow(_parents(turn, later=later), RESULTS),
        )
        told.append(Findings(parents))
        _take(told[-1], report)
    if this.done + report.done == before:
        this.waiting.update(
            {json.loads(row.line): finding_of(row) for row in objects.rows("waiting")}
        )
        job.run(this.unknown_directories)
    report.left.add(own.left.findings)
    report.add(own.repairs)
    frames = [each.frame for each in told]
    repairs = (
        reduce(DataFrame.unionAll, frames).where(F.col("pile") == "mended").drop("pile", "line")
    )
    repairs = repairs.unionAll(_own(job, turn, own))
    again = bool(turn.run) and (job.stages.resumed or _was_repeated(job, turn, told))
    return repairs, again or report.done > before


def _own(job: ScanJob, turn: RepairTask, report: RepairReport) -> DataFrame:
    """What the driver has repaired itself, as rows of `REPAIRS`."""
    frame = frame_of(job.spark, [repairs_of(repairs, turn.number) for repairs in report.repairs])
    return frame.drop("pile", "line")


def _take(told: Findings, report: RepairReport) -> None:
    told.add_to(report.left)
    report.repairs += told.repairs()[: max(0, LISTED - len(report.repairs))]
    report.outcomes.update(told.sum.outcomes)  # type: ignore[arg-type]


def _was_repeated(job: ScanJob, turn: RepairTask, told: Sequence[Findings]) -> bool:
    """Whether there are audit trails of attempts that did not tell what they have done."""
    blobs = job.volume.log_blobs
    if blobs is None:
        return False
    known = {row.line.decode() for each in told for row in each.rows("trail")}

    async def all_trails() -> set[str]:
        return {info.key.split("/")[2] async for info in list_all(blobs, f"audit/{turn.trail('')}")}

    written = {name.partition("-")[2] for name in job.run(all_trails)}
    return bool(written - known - {"driver"})


def _attempt(stage: str, number: int) -> str:
    """The name of what this attempt of a task does."""
    context = TaskContext.get()
    assert context is not None
    return f"{stage}-{number:06d}-{context.taskAttemptId()}"


def _objects(turn: RepairTask) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Result]:
        with opened(turn.place.config) as (volume, run):
            for number, parts in parts_of(batches):
                collector, name = turn.collector(volume, parts), _attempt("objects", number)
                this, report = turn.round(volume, collector, name)
                try:
                    run(partial(this.objects, 0))
                finally:
                    collector.close_tail()
                yield from turn.rows(this, report, name)
                for child in collector.lonely(0):
                    yield result_of("lonely", line=to_line("children", child))

    return lambda batches: batches_of(FindingCounts().counted(rows(batches)))


def _parents(turn: RepairTask, *, later: bool) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Result]:
        with opened(turn.place.config) as (volume, run):
            context = TaskContext.get()
            name = _attempt("parents", context.partitionId() if context else 0)
            this, report = turn.round(volume, turn.collector(volume, Shuffle()), name)
            lines = (line for batch in batches for line in batch.column(0).to_pylist())
            while children := [from_line("children", line) for line in islice(lines, CHILDREN)]:
                run(partial(this.parents, children, later=later))
                yield from turn.told(report)
            yield from turn.rows(this, report, name)

    return lambda batches: batches_of(FindingCounts().counted(rows(batches)))
