"""The local runner of fsck verify: scan, evaluate the rules, recheck each finding. Nothing is
written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from s3k_async._core.concurrency import run_all
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.facts import (
    ChangeFacts,
    CycleFacts,
    Finding,
    ItemFacts,
    LogObjectFacts,
)
from s3k_async.integrity.recheck import (
    READS,
    checked_bytes,
    confirmed_findings,
    cycle_facts,
    item_facts,
    parent_facts,
)
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.shuffle import HELD, Shuffle
from s3k_async.integrity.verify_rules import (
    decide_change,
    decide_cycle,
    decide_item,
    decide_log_object,
    decide_parent,
)
from s3k_async.model import Entry, Progress
from s3k_async.storage.extents import has_extents

__all__ = [
    "GRACE_SECONDS",
    "LISTED",
    "LooseFacts",
    "VerifyReport",
    "loose",
    "part_findings",
    "verify",
]

GRACE_SECONDS = 300.0
"""Younger operations may be in progress and are not reported."""
LISTED: Final = 100_000
"""Findings of each kind that a report lists; the others are only counted."""

Tell = Callable[[Progress], object]
LooseFacts: TypeAlias = ItemFacts | LogObjectFacts | ChangeFacts | CycleFacts
"""Facts that are evaluated for the whole volume."""


@dataclass(slots=True)
class VerifyReport(ScanCounts):
    """The result of a check."""

    findings: list[Finding] = field(default_factory=list)
    """The findings, at most `listed` of each kind."""
    kinds: Counter[str] = field(default_factory=Counter)
    """The number of findings of each kind, including unlisted ones."""
    collectable_bytes: int = 0
    listed: int = LISTED

    def count(self, counts: ScanCounts) -> None:
        """Take over the counts of the scans."""
        for name in ScanCounts.__dataclass_fields__:
            setattr(self, name, getattr(counts, name))

    def add(self, findings: Iterable[Finding]) -> None:
        """Count findings, and list them while there is room."""
        for finding in findings:
            self.kinds[finding.kind] += 1
            self.collectable_bytes += finding.size if finding.kind == "collectable_data" else 0
            if self.kinds[finding.kind] <= self.listed:
                self.findings.append(finding)

    @property
    def problems(self) -> list[Finding]:
        """The findings that need repair."""
        return [finding for finding in self.findings if finding.is_problem]

    @property
    def clean(self) -> bool:
        """Whether nothing needs repair."""
        return not self.problems

    @property
    def is_empty(self) -> bool:
        """Whether there is neither an entry nor a problem: perhaps the path does not exist."""
        return self.clean and not (self.files or self.directories or self.reservations)


async def verify(
    scope: Scope,
    *,
    deep: bool = False,
    directory: str | None = None,
    progress: Tell | None = None,
    held: int = HELD,
) -> VerifyReport:
    """Compare table, log and data. With a path other than the root, entries outside it are skipped,
    and so are unreferenced objects, whose paths are unknown.

    `deep`: read every byte too and compare checksums. `directory`: keeps the parts of a large
    volume, from which an interrupted run resumes. `held`: facts held in memory before any are
    written to files. Raises the stores' errors, InvalidArgumentError (the directory is that of
    another run); damage is a finding, never an error.
    """
    shuffle = Shuffle(directory, held=held)
    collector = Collector(scope, shuffle)
    try:
        report = VerifyReport()
        tell = progress or (lambda _: None)
        await collector.scan(tell)
        report.count(collector.counts)
        report.add(finding for _, finding in await loose(collector))
        for number in range(shuffle.count):
            report.add(await _part(collector, number, deep=deep))
            tell(Progress("fsck", number + 1, shuffle.count, phase="comparing", unit="parts"))
        collector.end()
        return report
    finally:
        collector.close()


async def _part(collector: Collector, number: int, *, deep: bool) -> list[Finding]:
    """The findings of one part, saved by an earlier run or new."""
    shuffle = collector.shuffle
    if number < collector.decided:
        return list(shuffle.read("found", number))
    found = await part_findings(collector, number, deep=deep)
    shuffle.keep("found", number, found)
    collector.decided = number + 1
    collector.save()
    return found


async def part_findings(collector: Collector, number: int, *, deep: bool) -> list[Finding]:
    """The findings of one part. Raises the stores' errors."""
    facts = collector.facts(number)
    found = [
        finding
        async for batch in confirmed_findings(collector.scope, facts, collector.tail)
        for _, some in batch
        for finding in some
    ]
    found += [
        finding
        for lonely in await parent_facts(collector.scope, collector.lonely(number), collector.tail)
        for finding in decide_parent(lonely)
    ]
    return found + (await _deep(collector, number) if deep else [])


async def loose(
    collector: Collector,
) -> list[tuple[LooseFacts, Finding]]:
    """The findings from facts without an object id, with these facts; items are read again."""
    seen = collector.loose
    items = await item_facts(collector.scope, seen.items)
    found: list[tuple[LooseFacts, Finding]] = [
        (item, finding) for item in items for finding in decide_item(item)
    ]
    found += [(log, finding) for log in seen.log_objects for finding in decide_log_object(log)]
    found += [
        (cycle, finding)
        for cycle in await cycle_facts(collector.scope, collector.cycles())
        for finding in decide_cycle(cycle)
    ]
    return found + [
        (change, finding) for change in collector.changes() for finding in decide_change(change)
    ]


def _is_comparable(entry: Entry) -> bool:
    """Whether something is recorded about the bytes of a file, besides their number."""
    return bool(entry.checksum or entry.etag) or has_extents(entry.physical)


async def _deep(collector: Collector, number: int) -> list[Finding]:
    found: list[Finding] = []

    async def read(entry: Entry) -> None:
        finding = await checked_bytes(collector.scope, entry)
        if finding is not None:
            found.append(finding)

    entries: Iterable[Entry] = collector.shuffle.read("entries", number)
    await run_all(read, filter(_is_comparable, entries), limit=READS)
    return found
