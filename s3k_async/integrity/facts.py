"""Facts about one item, log object or directory: small plain values that pickle, the only input of
the rules.

Facts come from the local runner's scans, from a strongly consistent recheck before a repair, or
from a Spark job that joins table, log and data by object id. The rules treat all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.errors import ItemFormatError
from s3k_async.model import Entry
from s3k_async.oplog.entries import job_of_segment
from s3k_async.oplog.log_reader import ObjectState
from s3k_async.storage.physical import is_uri
from s3k_async.txn.lease import expired
from s3k_async.txn.txn_record import TransactionRecord
from s3k_async.txn.write_intent import WriteIntent, parse_intent

__all__ = [
    "NOTES",
    "NOT_LOGGED",
    "PROBLEMS",
    "Action",
    "ChangeFacts",
    "Facts",
    "Finding",
    "FindingKind",
    "ItemFacts",
    "LogObjectFacts",
    "OpenSegment",
    "ParentFacts",
    "Visibility",
    "adopted_by",
    "intent_of",
    "objects_of",
    "visibility_of",
]

FindingKind = Literal[
    "checksum_mismatch",
    "collectable_data",
    "data_missing",
    "duplicate_id",
    "entry_missing",
    "etag_mismatch",
    "foreign_blob",
    "foreign_item",
    "interrupted_change",
    "item_damaged",
    "item_misplaced",
    "log_conflict",
    "log_damaged",
    "log_disagrees",
    "log_missing",
    "log_newer",
    "log_pending",
    "missing_parent",
    "orphan_data",
    "rename_unfinished",
    "reservation_expired",
    "reservation_open",
    "size_mismatch",
    "stale_job",
    "stale_mark",
]

Action = Literal[
    "commit_log",
    "roll_back_log",
    "roll_forward",
    "log_again",
    "log_removal",
    "restore_entry",
    "remove_entry",
    "settle_job",
    "finish_change",
    "make_parent",
    "move_item",
    "renumber",
    "quarantine",
    "report",
    "none",
]
"""What repairs a finding. `report`: nothing that a program may do by itself. `none`: nothing needs
to be done."""

NOTES: Final[frozenset[str]] = frozenset(
    {"collectable_data", "foreign_blob", "rename_unfinished", "reservation_open", "stale_job"}
)
"""Findings that are the ordinary course of things."""
PROBLEMS: Final[frozenset[str]] = frozenset(FindingKind.__args__) - NOTES  # type: ignore[attr-defined]


NOT_LOGGED: Final = ObjectState()
"""Of an object that the log does not know."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that fsck found. `object_id`, `path` and `key` say what it is about, as far as that
    is known."""

    kind: FindingKind
    detail: str
    object_id: str = ""
    path: str = ""
    key: str = ""
    size: int = 0
    action: Action = "report"
    """What repairs it."""
    version: int = 0
    """Of a pending operation: the version that it leads to."""

    @property
    def is_problem(self) -> bool:
        """Whether this has to be repaired, as opposed to being worth a note."""
        return self.kind in PROBLEMS

    @property
    def is_repairable(self) -> bool:
        """Whether repair does something about it."""
        return self.action not in {"report", "none"}


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of one object id."""

    object_id: str
    now_ms: int
    grace_ms: int
    entries: Sequence[Entry] = ()
    """Items of the table with this id, as they are stored: one, unless something went wrong or is
    under way. An item that is another object now, and this one once the job that marks it is
    published, is among them."""
    log_state: ObjectState = NOT_LOGGED
    """What the log says."""
    blobs: Sequence[BlobInfo] = ()
    """Physical objects whose key ends in this id, and those that an entry or the log names."""
    logged: bool = True
    """Whether objects of this kind are logged at all: not on a volume without log, nor directories
    of s3k-1.0."""
    legacy: bool = False
    """Whether S3-FileSystem 1.0 wrote the object, and may be writing it: it has no leases, renames
    directories entry by entry, and its log keeps less."""
    jobs: Mapping[str, TransactionRecord] = field(default_factory=dict)
    """The records that there are of the jobs that mark the entries, by id; one that is missing is
    over."""
    occupied: Mapping[str, bool] = field(default_factory=dict)
    """Paths that the log gives this object and at which others stand; whether they are directories.
    """
    unreadable_jobs: frozenset[str] = frozenset()
    """Ids of jobs whose record cannot be read, so that their state is unknown."""

    unfinished: frozenset[str] = frozenset()
    """Keys of interrupted changes that could not be finished as a whole: their marks and operations
    are decided per object."""

    def is_reported_with_job(self, entry: Entry) -> bool:
        """Whether the entry's mark is reported, and removed, with the job that set it."""
        mark = intent_of(entry)
        job = self.jobs.get(mark.job) if mark is not None else None
        return job is not None and job.kind != "mark" and job.id not in self.unfinished

    def is_young(self, time_ms: int) -> bool:
        """Whether something of that time may still be under way."""
        return time_ms > self.now_ms - self.grace_ms


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """An item that is no entry of the volume, or not where it belongs."""

    partition: str
    sort: str
    is_foreign: bool
    """Whether its partition is neither the volume's nor that of a record of ours."""
    problem: str
    """Why it cannot be read; empty for an entry in another partition than its own."""
    is_free: bool = True
    """Whether nothing is at the place where the entry belongs."""


@dataclass(frozen=True, slots=True)
class LogObjectFacts:
    """An object of the log that cannot be understood."""

    key: str
    problem: str
    is_newer: bool
    """Whether it says of itself that it is of a newer format."""


@dataclass(frozen=True, slots=True)
class ParentFacts:
    """An entry below something that is not a directory of the table."""

    parent: str
    child: str
    child_id: str
    child_is_young: bool
    is_file: bool
    """Whether a file is in the parent's place."""


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A log segment without a committed mark: the outcome of its operations is not recorded."""

    id: str
    operations: int
    newest_ms: int
    """When the last of its operations began."""

    @property
    def job(self) -> str:
        """The id of the job whose operations these are; empty for a change that is no job's."""
        return job_of_segment(self.id)


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """A change of many entries that is not over: a job's record, open segments of the log, or
    both."""

    key: str
    """The job's id, or the key of the segment."""
    job: TransactionRecord | None
    """None: the job is over, or there never was one."""
    segments: tuple[OpenSegment, ...]
    now_ms: int
    grace_ms: int

    @property
    def operations(self) -> int:
        """Number of operations of unrecorded outcome."""
        return sum(segment.operations for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Visibility:
    """The visible state of the entries of one object id."""

    entries: tuple[Entry, ...]
    """The sides of the entries that hold, marks resolved."""
    stale: tuple[Entry, ...] = ()
    """Stored entries whose mark is that of a job that is over."""
    in_flux: bool = False
    """Whether a job that lives is changing one of them."""


def visibility_of(facts: Facts) -> Visibility:
    """Resolve the marks of an object's entries: those of dead jobs by what the job had reached."""
    sides: list[Entry] = []
    stale: list[Entry] = []
    in_flux = False
    for entry in facts.entries:
        if not entry.pending:
            sides.append(entry)
            continue
        mark = intent_of(entry)
        job = facts.jobs.get(mark.job) if mark else None
        in_flux |= (job is not None and not expired(job.lease_ms, facts.now_ms)) or (
            mark is not None and mark.job in facts.unreadable_jobs
        )
        stale.append(entry)
        side = (
            mark.resolve(entry, published=job is not None and job.is_published) if mark else entry
        )
        if side is not None and side.id == facts.object_id:
            sides.append(side)
    return Visibility(tuple(sides), () if in_flux else tuple(stale), in_flux)


def objects_of(entry: Entry) -> set[str]:
    """The ids of the objects that a stored item is, or will be when the job that marks it is
    published."""
    return {side.id for side in _sides(entry)}


def adopted_by(entry: Entry) -> list[str]:
    """The URIs of adopted bytes that a stored item names, or will when the job that marks it is
    published."""
    return [side.physical for side in _sides(entry) if side.physical and is_uri(side.physical)]


def _sides(entry: Entry) -> list[Entry]:
    intent = intent_of(entry) if entry.pending else None
    return [entry, intent.new_state] if intent and isinstance(intent.new_state, Entry) else [entry]


def intent_of(entry: Entry) -> WriteIntent | None:
    """The write intent of an entry; None for an unreadable one, which counts as that of no job."""
    try:
        return parse_intent(entry.pending)
    except ItemFormatError:
        return None
