"""The rules of gc: a decision table from the log records of an unreferenced data object to a
verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias

from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.integrity.facts import NOT_LOGGED
from s3k_async.integrity.rule_table import Rule, RuleTable
from s3k_async.model import Entry
from s3k_async.oplog.entries import LogRecord, Operation
from s3k_async.oplog.log_reader import ObjectState, latest
from s3k_async.storage.extents import physical_keys

__all__ = [
    "DELETABLE",
    "GRACE_SECONDS",
    "KEPT",
    "LATE_SECONDS",
    "PHYSICAL_KEY",
    "RULES",
    "Ages",
    "GcFacts",
    "History",
    "KeyOf",
    "Reason",
    "Verdict",
    "judge",
    "named_by",
]

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
PHYSICAL_KEY: Final = re.compile(rf"{_UUID}\.id=({_UUID})", re.ASCII)
"""A key of this package. Objects with other keys, adopted or foreign, are skipped."""

GRACE_SECONDS: Final = 3 * 86_400.0
"""Far longer than a lease, the longest read and the longest Spark job."""
LATE_SECONDS: Final = 900.0
"""How long after its lease a writer's last request may still arrive: it checks the lease before it
writes to log and table, and repeats each of these writes for a minute at most. Services refuse
requests with signatures that old."""

Reason: TypeAlias = Literal[
    "deleted", "replaced", "unpublished", "unnamed", "damaged", "lost", "uploading"
]
"""Why a data object is unreferenced. `unnamed`: in a volume without a log, where no more is
known."""
GcAction: TypeAlias = Literal["delete", "keep"]
KeyOf: TypeAlias = Callable[[str], str | None]
"""The key, below the volume's data location, of the physical object of an entry; None if it is
elsewhere."""


@dataclass(frozen=True, slots=True)
class Ages:
    """Minimum ages in seconds. `lease`: the longest lease that any client of the volume is
    configured with."""

    grace: float = GRACE_SECONDS
    lease: float = 3600.0
    late: float = LATE_SECONDS

    @property
    def unpublishable_ms(self) -> int:
        """The age from which an upload can no longer be published, ms."""
        return int((self.lease + self.late) * 1000)

    @property
    def grace_ms(self) -> int:
        return int(self.grace * 1000)


@dataclass(frozen=True)
class History:
    """All log records of one object id. A file that was changed in place often has as many data
    objects as records, so what all of them ask for is computed once."""

    records: Sequence[LogRecord]
    key_of: KeyOf

    @cached_property
    def state(self) -> ObjectState:
        """The state of the object according to the log."""
        object_id = self.records[0].operation.object_id if self.records else ""
        return latest(self.records).get(object_id, NOT_LOGGED)

    @cached_property
    def touching(self) -> Mapping[str, Sequence[Operation]]:
        """By data key, the operations on entries that reference it before or after."""
        found: dict[str, list[Operation]] = {}
        for record in self.records:
            for key in named_by([record.operation], self.key_of):
                found.setdefault(key, []).append(record.operation)
        return found

    @cached_property
    def since_ms(self) -> int:
        """The time of the first operation; 0 without one."""
        return min((record.operation.time_ms for record in self.records), default=0)


@dataclass(frozen=True, slots=True)
class GcFacts:
    """One data object and the history of its object id. The table was read before the log, and did
    not reference it."""

    blob: BlobInfo
    history: History
    damaged: bool
    """Whether the log or the table holds an unreadable record or item of the object."""
    now_ms: int
    """The start of the mark phase, by the clock of the data store."""
    logged: bool
    """Whether the volume has a log."""
    uploading: bool = False
    """Whether a multipart upload that was open during the scan has chosen the object id."""

    def names(self, entry: Entry | None) -> bool:
        """Whether the entry references this blob."""
        return entry is not None and any(
            self.history.key_of(name) == self.blob.key for name in physical_keys(entry.physical)
        )

    @property
    def last(self) -> list[Operation]:
        """The committed operations of the highest version: one, unless the log is inconsistent."""
        return [record.operation for record in self.history.state.last]

    @property
    def pending(self) -> list[Operation]:
        """The pending operations that may follow it."""
        return [record.operation for record in self.history.state.pending]


def _is_live_in_the_log(case: GcFacts) -> bool:
    return any(case.names(operation.after) for operation in case.last)


def _is_pending(case: GcFacts) -> bool:
    return any(case.names(operation.after) for operation in case.pending)


def _is_deleted(case: GcFacts) -> bool:
    return any(operation.after is None for operation in case.last)


RULES: Final[RuleTable[GcFacts, Reason, GcAction]] = RuleTable(
    "data objects",
    "each old data object that no item of the table references",
    {
        "an open multipart upload has its object id": lambda case: case.uploading,
        "a record or item of its object is unreadable": lambda case: case.damaged,
        "the volume has no log": lambda case: not case.logged,
        "the last committed operation references it": _is_live_in_the_log,
        "a pending operation references it": _is_pending,
        "nothing is committed for its object": lambda case: not case.last,
        "the last committed operation removes its object": _is_deleted,
    },
    (
        Rule(("an open multipart upload has its object id",), "uploading", "keep"),
        Rule(("a record or item of its object is unreadable",), "damaged", "keep"),
        Rule(("the volume has no log",), "unnamed", "delete"),
        Rule(("the last committed operation references it",), "lost", "keep"),
        Rule(("a pending operation references it",), "unpublished", "delete"),
        Rule(("nothing is committed for its object",), "unpublished", "delete"),
        Rule(("the last committed operation removes its object",), "deleted", "delete"),
        Rule((), "replaced", "delete"),
    ),
)
KEPT: Final = frozenset(rule.outcome for rule in RULES.rules if rule.action != "delete")
DELETABLE: Final = frozenset(rule.outcome for rule in RULES.rules) - KEPT
"""The only reasons for which a data object may be deleted: the outcomes of the deleting rules."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a blob."""

    blob: BlobInfo
    reason: Reason
    since_ms: int
    """The latest time at which it can have become unreferenced."""
    is_pending: bool
    """Whether, as far as the log shows, an operation that references it may have been applied."""
    paths: tuple[str, ...]
    """The paths in the log of entries that reference it."""
    operations: tuple[tuple[int, str], ...]
    """Version and id of the operations on entries that reference it."""

    @property
    def is_deletable(self) -> bool:
        return self.reason in DELETABLE


def judge(case: GcFacts) -> Verdict:
    """The verdict on a blob that can no longer be published."""
    touching = case.history.touching.get(case.blob.key, ())
    if not case.logged:
        since = case.now_ms
    elif touching:
        since = max(operation.time_ms for operation in touching)
    else:
        # Compaction has dropped the operations that referenced it; those that remain are later.
        since = case.history.since_ms
    return Verdict(
        blob=case.blob,
        reason=RULES.first(case).outcome,
        since_ms=max(case.blob.mtime_ms, since),
        is_pending=_is_pending(case),
        paths=tuple(sorted(_paths(touching))),
        operations=tuple(sorted({(operation.version, operation.id) for operation in touching})),
    )


def named_by(operations: Iterable[Operation], key_of: KeyOf) -> set[str]:
    """The keys of the data that the entries of the operations reference."""
    entries = [entry for each in operations for entry in (each.before, each.after)]
    keys = {
        key_of(name)
        for entry in entries
        if entry is not None
        for name in physical_keys(entry.physical)
    }
    return {key for key in keys if key is not None}


def _paths(operations: Iterable[Operation]) -> set[str]:
    return {
        entry.entry_key
        for each in operations
        for entry in (each.before, each.after)
        if entry is not None
    }
