"""The alerts about the results of fsck and gc: one for each kind of finding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from s3k_async.alerts.alert import Alert, AlertKind, AlertSource
from s3k_async.errors import RequestTimeoutError, S3kError, ThrottledError
from s3k_async.integrity.facts import PROBLEMS, Finding
from s3k_async.integrity.gc_mark import Marked, ObjectCount
from s3k_async.integrity.gc_sweep import Swept
from s3k_async.integrity.repair import RepairReport
from s3k_async.integrity.restore_report import RestoreOutcome, RestoreReport
from s3k_async.integrity.restore_rules import PROBLEMS as RESTORE_PROBLEMS
from s3k_async.integrity.verify import VerifyReport

__all__ = [
    "collection_alerts",
    "error_alerts",
    "repair_alerts",
    "restore_alerts",
    "verify_alerts",
]

_MISSING: Final = frozenset(
    {"data_missing", "entry_missing", "log_missing", "missing_parent", "unreachable_entry"}
)
_ORPHAN: Final = frozenset({"foreign_item", "orphan_data"})
_COLLECTED: Final[Mapping[str, AlertKind]] = {
    "damaged": "conflict",
    "lost": "missing",
    "unpublished": "orphan",
}
"""Reasons of gc that do not occur in normal operation."""
_FAILURES: Final[Sequence[tuple[type[Exception], AlertKind]]] = (
    (ThrottledError, "throttled"),
    (RequestTimeoutError, "timeout"),
    (TimeoutError, "timeout"),
)


def verify_alerts(source: AlertSource, report: VerifyReport) -> list[Alert]:
    """An alert for each kind of problem: missing, orphan or else conflict. Notes give none."""
    listed = _by_kind(report.problems)
    return [
        source.alert(_kind_of(kind), kind, count, _places(listed[kind]), _detail(listed[kind]))
        for kind, count in sorted(report.kinds.items())
        if kind in PROBLEMS and count
    ]


def repair_alerts(source: AlertSource, report: RepairReport) -> list[Alert]:
    """An alert for each kind of problem that is left, and for each kind of finding that was
    repaired, or that had recovered, by another client, before its repair."""
    alerts = verify_alerts(source, report.left)
    left = {_identity(finding) for finding in report.left.problems}
    done = [each.finding for each in report.repairs if each.outcome == "done"]
    gone = [
        each.finding
        for each in report.repairs
        if each.outcome == "left" and _identity(each.finding) not in left
    ]
    results: tuple[tuple[AlertKind, list[Finding]], ...] = (("repaired", done), ("recovered", gone))
    for kind, findings in results:
        alerts += [
            source.alert(kind, name, len(some), _places(some), _detail(some))
            for name, some in sorted(_by_kind(findings).items())
        ]
    return alerts


def collection_alerts(
    source: AlertSource, marked: Marked | None, swept: Swept | None
) -> list[Alert]:
    """Alerts about a garbage collection: data of lost entries, data with unreadable records, and
    data that was never published, as of a killed writer: `orphan`, or `repaired` if it was deleted.
    Data of deleted and replaced files causes none. Keys that could not be deleted cause alerts only
    for timeouts and throttling."""
    counts: dict[str, ObjectCount] = {} if marked is None else dict(marked.counts)
    deleted = {} if swept is None else swept.deleted
    alerts = [
        source.alert(kind, reason, counts[reason].objects)
        for reason, kind in _COLLECTED.items()
        if reason in counts and counts[reason].objects and reason not in deleted
    ]
    alerts += [
        source.alert("repaired", reason, deleted[reason].objects)
        for reason in _COLLECTED
        if reason in deleted and deleted[reason].objects
    ]
    return alerts + ([] if swept is None else list(_failed(source, swept.failures)))


def restore_alerts(source: AlertSource, report: RestoreReport) -> list[Alert]:
    """Alerts about a restore: `missing` for entries that the table lacks, `repaired` if they were
    restored, and one for each rule whose outcomes need a manual decision."""
    alerts = []
    if report.written:
        alerts.append(source.alert("repaired", "entry_missing", report.written))
    elif report.restored and not report.run:
        alerts.append(source.alert("missing", "entry_missing", report.restored))
    listed: dict[str, list[RestoreOutcome]] = defaultdict(list)
    for outcome in report.problems:
        listed[outcome.rule].append(outcome)
    for rule in sorted(RESTORE_PROBLEMS):
        if count := report.counts[rule]:
            some = listed[rule]
            kind: AlertKind = "missing" if rule == "bytes_missing" else "conflict"
            paths = (each.path or each.object_id for each in some)
            alerts.append(source.alert(kind, rule, count, paths, some[0].detail if some else ""))
    return alerts


def _failed(source: AlertSource, failures: Iterable[tuple[str, Exception]]) -> Iterator[Alert]:
    found: dict[tuple[AlertKind, str], list[str]] = defaultdict(list)
    for key, error in failures:
        kind = _failure_kind(error)
        if kind is not None:
            found[kind, type(error).__name__].append(key)
    for (kind, name), keys in sorted(found.items()):
        yield source.alert(kind, name, len(keys), keys)


def error_alerts(source: AlertSource, error: BaseException) -> list[Alert]:
    """The alert about an error that ended a run, if it is a timeout or throttling."""
    kind = _failure_kind(error)
    if kind is None or not isinstance(error, Exception):
        return []
    return [source.failure(kind, error, error.path if isinstance(error, S3kError) else None)]


def _failure_kind(error: BaseException) -> AlertKind | None:
    return next((kind for cls, kind in _FAILURES if isinstance(error, cls)), None)


def _kind_of(finding: str) -> AlertKind:
    if finding in _MISSING:
        return "missing"
    return "orphan" if finding in _ORPHAN else "conflict"


def _by_kind(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.kind].append(finding)
    return found


def _places(findings: Iterable[Finding]) -> Iterator[str]:
    return (finding.path or finding.key or finding.object_id for finding in findings)


def _detail(findings: Sequence[Finding]) -> str:
    return findings[0].detail if findings else ""


def _identity(finding: Finding) -> tuple[str, str, str, str]:
    return finding.kind, finding.object_id, finding.path, finding.key
