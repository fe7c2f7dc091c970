"""The local runner of fsck repair: findings are rechecked by strong reads, then repaired.

Safe beside writers: every write is conditional on the state that was read, entries younger than the
grace period are skipped, and so are entries with intents of live transactions. Rounds are repeated
until one finds nothing that it can repair.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from s3k_async import errors
from s3k_async._core.active_calls import note_event
from s3k_async._core.concurrency import gather
from s3k_async.integrity.audit import AuditRecord, AuditTrail
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.facts import NOT_LOGGED, Action, Facts, Finding, ParentFacts
from s3k_async.integrity.recheck import (
    confirmed_findings,
    fresh_facts,
    parent_facts,
    parent_states,
)
from s3k_async.integrity.repair_actions import (
    FsckVolume,
    LeftError,
    MissingDirectoryError,
    Repairer,
    Task,
)
from s3k_async.integrity.scope import Scope
from s3k_async.integrity.shuffle import HELD, LonelyEntry, Shuffle
from s3k_async.integrity.verify import GRACE_SECONDS, LISTED, Tell, VerifyReport, loose, verify
from s3k_async.integrity.verify_rules import decide, decide_parent
from s3k_async.model import ROOT, Progress
from s3k_async.oplog.log_reader import JavaLogReader, LogReader, ObjectState

__all__ = [
    "ROUNDS",
    "Outcome",
    "RepairOutcome",
    "RepairReport",
    "RepairRound",
    "repair_volume",
    "scope_of",
    "verify_volume",
]

Outcome = str
"""`planned` (a dry run), `done`, `left` (the state has changed since the scan), `failed`."""

ORDER: Final[Sequence[Action]] = (
    "resolve_transaction",
    "commit_log",
    "roll_forward",
    "roll_back_log",
    "replace_cold_copy",
    "remove_hot_copy",
    "renumber",
    "remove_entry",
    "remove_item",
    "make_parent",
    "log_again",
    "log_removal",
    "restore_entry",
)
"""The order in which the findings about one object are repaired, each after a recheck."""
ROUNDS: Final = 20
STEPS: Final = 8
"""Actions on one object in one round."""
AT_ONCE: Final = 8
BATCH: Final = 200

_LEFT: Final = (
    errors.BlobNotFoundError,
    errors.BusyError,
    errors.ConditionFailedError,
    errors.ConflictError,
    errors.LeaseExpiredError,
    errors.OutcomeUnknownError,
    errors.PathExistsError,
    errors.PathNotFoundError,
    errors.TransactionConflictError,
    LeftError,
)
"""Errors after which another client has acted first, or the next run can decide."""
_FAILED: Final = (
    errors.CorruptDataError,
    errors.DataMissingError,
    errors.InvalidPathError,
    errors.ItemFormatError,
    errors.LogFormatError,
    errors.NotDirectoryError,
    errors.UnsupportedError,
)
"""Errors that concern one finding. Every other error ends the run, since it would affect all
findings."""


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """A finding, and the outcome of its repair."""

    finding: Finding
    outcome: Outcome
    reason: str = ""


@dataclass(slots=True)
class RepairReport:
    """The result of a repair."""

    run: str
    """Names the audit trail; empty for a dry run, which leaves none."""
    dry_run: bool
    rounds: int = 0
    outcomes: Counter[tuple[Action, Outcome]] = field(default_factory=Counter)
    """Counts by action and outcome."""
    repairs: list[RepairOutcome] = field(default_factory=list)
    """The first of them, at most `listed`."""
    left: VerifyReport = field(default_factory=VerifyReport)
    """The findings of the last scan; for a dry run, all findings."""
    listed: int = LISTED

    def add(self, some: Iterable[RepairOutcome]) -> None:
        """Count the outcomes of repairs."""
        for each in some:
            self.outcomes[each.finding.action, each.outcome] += 1
            if len(self.repairs) < self.listed:
                self.repairs.append(each)

    @property
    def is_empty(self) -> bool:
        """Whether there is neither an entry nor a problem, and nothing was repaired."""
        return self.left.is_empty and not self.outcomes

    @property
    def done(self) -> int:
        """How many actions were carried out."""
        return sum(count for (_, outcome), count in self.outcomes.items() if outcome == "done")


def scope_of(
    volume: FsckVolume,
    *,
    grace: float = GRACE_SECONDS,
    path: str = ROOT,
    deep: bool = False,
) -> Scope:
    """The scope of a check of a volume; `deep` as of Scope."""
    log: LogReader | JavaLogReader | None = None
    if volume.log_blobs is not None:
        binary = volume.record.log_mode == "binary"
        native = LogReader(volume.log_blobs, has_key=volume.store.keys.has)
        log = JavaLogReader(volume.log_blobs, volume=volume.record.name) if binary else native
    return Scope(
        volume.store,
        volume.blobs,
        log,
        volume.log_blobs,
        volume.store.runtime,
        int(grace * 1000),
        path,
        legacy=volume.record.kind == "s3k-1.0",
        place=volume.place if volume.record.scope else None,
        retention_ms=(volume.record.trash_retention or 0) * 1000,
        deep=deep,
        volume_id=volume.record.volume_id or volume.config.where,
    )


async def verify_volume(
    volume: FsckVolume,
    *,
    path: str = ROOT,
    grace: float = GRACE_SECONDS,
    deep: bool = False,
    directory: str | None = None,
    progress: Tell | None = None,
    held: int = HELD,
) -> VerifyReport:
    """Check an open volume, or the tree below a path of it; changes nothing.

    `grace`: seconds; younger entries and operations are not reported. `deep`: read every byte and
    compare checksums. `directory`: keeps the parts of a large volume, so that the same call resumes
    after an interruption; after its end, the next one begins again. Raises InvalidArgumentError
    (the directory is that of another run), PathNotFoundError, the stores' errors.
    """
    scope = scope_of(volume, grace=grace, path=path, deep=deep)
    with volume.calls.running("fsck.verify", path):
        report = await verify(scope, deep=deep, directory=directory, progress=progress, held=held)
        if report.is_empty:
            await scope.need_path()
    return report


async def repair_volume(
    volume: FsckVolume,
    *,
    dry_run: bool = True,
    path: str = ROOT,
    grace: float = GRACE_SECONDS,
    deep: bool = False,
    audit_file: str | None = None,
    directory: str | None = None,
    progress: Tell | None = None,
    held: int = HELD,
) -> RepairReport:
    """Repair an open volume, or the tree below a path of it.

    `dry_run`: change nothing and report what would be done. `grace`: seconds; younger entries and
    operations are skipped. `deep`: compare objects that are in both locations of a volume with
    tiers byte by byte, and not only their sizes. `audit_file`: a local file for a copy of the audit
    trail in the log location. `directory`: keeps the parts of a large volume, so that the same call
    resumes after an interruption; after its end, the next one begins again. Repeating the call
    after an error is always safe.

    Raises ReadOnlyVolumeError (s3k-1.0 volumes, and all that are open for reading
    only), InvalidArgumentError (the directory is that of another run), PathNotFoundError, the
    stores' errors.
    """
    if volume.read_only and not dry_run:
        raise errors.ReadOnlyVolumeError(
            "the volume is open for reading only", path=volume.record.name
        )
    scope = scope_of(volume, grace=grace, path=path, deep=deep)
    audit = None if dry_run else AuditTrail(volume.log_blobs, scope.runtime.uuid(), audit_file)
    report = RepairReport(audit.run if audit else "", dry_run)
    with volume.calls.running("fsck.repair", path):
        await _repair(volume, scope, report, audit, directory, held, progress or (lambda _: None))
        if report.is_empty:
            await scope.need_path()
    return report


async def _repair(
    volume: FsckVolume,
    scope: Scope,
    report: RepairReport,
    audit: AuditTrail | None,
    directory: str | None,
    held: int,
    tell: Tell,
) -> None:
    """Run rounds of repairs until one finds nothing that it can repair."""
    raced = False
    collectors: list[Collector] = []
    while report.rounds < ROUNDS:
        report.rounds += 1
        shuffle = Shuffle(directory and os.path.join(directory, f"{report.rounds:02d}"), held=held)
        collector = Collector(replace(scope), shuffle)
        collectors.append(collector)
        if audit is None:
            collector.decided = 0  # a dry run has repaired nothing
        # What an interrupted run has left of the first parts is not in the report.
        is_partial = collector.decided > 0
        try:
            if collector.decided >= shuffle.count:
                continue  # finished by an interrupted run
            await collector.scan(tell)
            this = RepairRound(
                collector, Repairer(volume, collector.scope, collector.tail), audit, report
            )
            await this.run(tell)
        finally:
            collector.close()
        if not (this.done or is_partial) and (raced or not this.lost):
            break
        raced = not this.done
    for collector in collectors:
        collector.end()


class RepairRound:
    """One scan of the whole volume, and the repairs made during it."""

    def __init__(
        self,
        collector: Collector,
        repairer: Repairer,
        audit: AuditTrail | None,
        report: RepairReport,
    ) -> None:
        """`audit`: None for a dry run."""
        self._collector = collector
        self._scope = collector.scope
        self._repairer = repairer
        self._audit = audit
        self._report = report
        self.done = 0
        self.lost = 0
        """Actions that another client has preceded: they need a new scan."""
        self._written = 0
        """Lines of the audit trail for the planned actions."""
        self.finished = False
        """Whether a change of many entries was finished: the rest needs a new scan."""
        self.waiting: dict[str, Finding] = {}
        """Entries to restore, by the directory that must exist first."""

    async def run(self, tell: Tell = lambda _: None) -> None:
        """Repair the findings of the collector."""
        collector, left = self._collector, VerifyReport()
        left.count(collector.counts)
        self._report.left = left
        await self.loose()
        if self.finished:
            collector.decided = collector.shuffle.count
            collector.save()
            return
        for number in range(collector.decided, collector.shuffle.count):
            await self.objects(number)
            collector.decided = number + 1
            collector.save()
            total = collector.shuffle.count
            tell(Progress("fsck", number + 1, total, phase="repairing", unit="parts"))
        for number in range(collector.shuffle.count):
            await self.parents(collector.lonely(number))
        if not self.done:
            await self.unknown_directories()

    async def loose(self) -> None:
        """Repair the findings without an object id."""
        found = await loose(self._collector)
        self._report.left.add(finding for _, finding in found)
        done = await self._repair_found([Task(finding, facts) for facts, finding in found])
        self.finished = any(task.finding.action == "finish_change" for task in done)

    async def objects(self, number: int) -> None:
        """Repair the objects of one part."""
        async for batch in confirmed_findings(
            self._scope, self._collector.facts(number), self._collector.tail
        ):
            self._report.left.add(finding for _, found in batch for finding in found)
            await self._objects(batch)

    async def parents(self, lonely: Iterable[LonelyEntry], *, later: bool = False) -> None:
        """Create the missing directories, unless logged directories are still to be restored, here
        or elsewhere (`later`)."""
        for facts in await parent_facts(self._scope, lonely, self._collector.tail):
            found = decide_parent(facts)
            self._report.left.add(found)
            if not (later or (self.waiting and self.done)):
                await self._repair_found([Task(finding, facts) for finding in found])

    async def unknown_directories(self) -> None:
        """Create the parents that entries still need. Nothing else could be repaired, so they are
        not in the log; but in layout `tree`, a client may have moved one since the scan."""
        if not self._scope.check.by_id:
            await self._repair_found(
                [_parent_task(parent, child) for parent, child in self.waiting.items()]
            )
            return
        logged = self._collector.log_states(self.waiting.keys())
        states = await parent_states(
            self._scope,
            {parent: logged.get(parent, NOT_LOGGED) for parent in self.waiting},
            self._collector.tail,
        )
        missing = {
            parent: log_state
            for parent, (state, log_state) in states.items()
            if state in ("unknown", "removed")
        }
        self.lost += len(self.waiting) - len(missing)
        await self._repair_found(
            [
                _parent_task(parent, self.waiting[parent], log_state)
                for parent, log_state in missing.items()
            ]
        )

    async def _objects(self, batch: Sequence[tuple[Facts, list[Finding]]]) -> None:
        """Repair the objects of a batch one finding at a time, with a recheck after each."""
        said = list(batch)
        for _ in range(STEPS):
            if self._audit is None:
                await self._repair_found(
                    [Task(finding, facts) for facts, found in said for finding in found]
                )
                return
            tasks = [Task(finding, facts) for facts, found in said for finding in _first(found)]
            if not tasks:
                return
            done = await self._repair_found(sorted(tasks, key=_parents_first))
            again = [task.facts for task in done if isinstance(task.facts, Facts)]
            said = [
                (facts, decide(facts))
                for facts in await fresh_facts(self._scope, again, self._collector.tail)
            ]

    async def _repair_found(self, tasks: Sequence[Task]) -> list[Task]:
        """Repair the repairable findings; returns the tasks that were carried out."""
        wanted = [task for task in tasks if task.finding.is_repairable]
        if self._audit is None:
            self._report.add(RepairOutcome(task.finding, "planned") for task in wanted)
            return []
        done: list[Task] = []
        async for some in _in_turn(wanted):
            numbers = range(self._written, self._written + len(some))
            self._written += len(some)
            await self._tell(
                [
                    {"number": number, **task.line()}
                    for number, task in zip(numbers, some, strict=True)
                ]
            )
            results = await gather(self._one, some, limit=AT_ONCE)
            await self._tell(
                [
                    {"number": number, "outcome": each.outcome, "reason": each.reason}
                    for number, each in zip(numbers, results, strict=True)
                ]
            )
            self._report.add(results)
            done += [
                task for task, each in zip(some, results, strict=True) if each.outcome == "done"
            ]
        await self._scope.store.changes.log.drained()
        self.done += len(done)
        return done

    async def _tell(self, lines: Sequence[AuditRecord]) -> None:
        """Write records to the audit trail: planned actions, or their outcomes."""
        assert self._audit is not None
        head = {
            "run": self._audit.run,
            "round": self._report.rounds,
            "time_ms": self._scope.runtime.now_ms(),
        }
        await self._audit.write([{**head, **line} for line in lines])

    async def _one(self, task: Task) -> RepairOutcome:
        try:
            await self._repairer.repair_action(task)
        except MissingDirectoryError as error:
            self.waiting[error.path or ROOT] = task.finding
            return RepairOutcome(task.finding, "left", error.message)
        except _LEFT as error:
            self.lost += 1
            return RepairOutcome(task.finding, "left", error.message)
        except _FAILED as error:
            if task.finding.action == "finish_change":
                self._collector.unfinished.add(task.finding.key)
            return RepairOutcome(task.finding, "failed", str(error))
        note_event(f"fsck.repaired.{task.finding.kind}")
        return RepairOutcome(task.finding, "done")


def _first(found: Iterable[Finding]) -> list[Finding]:
    """The first finding about an object to repair, if any is repairable."""
    repairable = [finding for finding in found if finding.action in ORDER]
    return [min(repairable, key=lambda finding: ORDER.index(finding.action))] if repairable else []


def _parent_task(parent: str, child: Finding, log_state: ObjectState = NOT_LOGGED) -> Task:
    facts = ParentFacts(
        parent,
        child.path,
        child.object_id,
        child_is_young=False,
        is_file=False,
        log_state=log_state,
    )
    finding = Finding(
        "missing_parent",
        "its parent is not there",
        child.object_id,
        child.path,
        action="make_parent",
    )
    return Task(finding, facts)


def _parents_first(task: Task) -> tuple[int, int]:
    if task.finding.action != "restore_entry":
        return 0, 0
    return 1, task.finding.path.count("/")


async def _in_turn(tasks: Sequence[Task]) -> AsyncIterator[list[Task]]:
    """Groups of tasks that may be carried out concurrently: entries are restored level by level."""
    batch: list[Task] = []
    for task in tasks:
        if batch and (len(batch) >= BATCH or _parents_first(task) != _parents_first(batch[-1])):
            yield batch
            batch = []
        batch.append(task)
    if batch:
        yield batch
