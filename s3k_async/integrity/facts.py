"""Facts about one item, log object or directory: small plain values that pickle, the only input of
the rules.

Facts come from the local runner's scans, from a strongly consistent recheck before a repair, or
from a Spark job that joins table, log and data by object id. The rules treat all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.errors import ItemFormatError
from s3k_async.model import Deletion, Entry
from s3k_async.oplog.entries import transaction_of_segment
from s3k_async.oplog.log_reader import ObjectState
from s3k_async.storage.physical import is_uri
from s3k_async.table.keys import Directory
from s3k_async.txn.lease import expired
from s3k_async.txn.txn_record import TransactionRecord
from s3k_async.txn.write_intent import WriteIntent, parse_intent

__all__ = [
    "NOTES",
    "NOT_LOGGED",
    "PROBLEMS",
    "Action",
    "ChangeFacts",
    "CopyFacts",
    "CycleFacts",
    "Facts",
    "Finding",
    "FindingKind",
    "ItemFacts",
    "LogObjectFacts",
    "OpenSegment",
    "ParentFacts",
    "ParentState",
    "Visibility",
    "adopted_by",
    "intent_of",
    "objects_of",
    "visibility_of",
]

FindingKind = Literal[
    "checksum_mismatch",
    "collectable_data",
    "copies_differ",
    "data_missing",
    "directory_cycle",
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
    "reclamation_unfinished",
    "rename_unfinished",
    "reservation_expired",
    "reservation_open",
    "size_mismatch",
    "stale_intent",
    "stale_transaction",
    "trash_due",
    "unreachable_entry",
]

Action = Literal[
    "commit_log",
    "roll_back_log",
    "roll_forward",
    "log_again",
    "log_removal",
    "restore_entry",
    "remove_entry",
    "remove_item",
    "resolve_transaction",
    "finish_change",
    "make_parent",
    "move_item",
    "renumber",
    "replace_cold_copy",
    "remove_hot_copy",
    "quarantine",
    "report",
    "none",
]
"""The repair action for a finding. `report`: needs a manual decision. `none`: nothing needs to be
done."""

NOTES: Final[frozenset[str]] = frozenset(
    {
        "collectable_data",
        "foreign_blob",
        "reclamation_unfinished",
        "rename_unfinished",
        "reservation_open",
        "stale_transaction",
        "trash_due",
    }
)
"""Kinds of findings that occur in normal operation."""
PROBLEMS: Final[frozenset[str]] = frozenset(get_args(FindingKind)) - NOTES


ParentState: TypeAlias = Literal[
    "", "no log", "unknown", "there", "undecided", "leaving", "removed"
]
"""What the log says about a directory without an item, in layout `tree`; empty in layout `path`,
where it is not asked. `there`: it exists, and is restored by its own finding. `undecided`: an
operation is pending. `leaving`: removed so recently that a client may still be moving the entry."""

NOT_LOGGED: Final = ObjectState()
"""The version of an object that is not in the log."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of fsck. `object_id`, `path` and `key` identify its subject, as far as they are
    known."""

    kind: FindingKind
    detail: str
    object_id: str = ""
    path: str = ""
    key: str = ""
    size: int = 0
    action: Action = "report"
    """What repairs it."""
    version: int = 0
    """For a pending operation: the version that it results in."""

    @property
    def is_problem(self) -> bool:
        """Whether this needs repair, as opposed to a note."""
        return self.kind in PROBLEMS

    @property
    def is_repairable(self) -> bool:
        """Whether repair acts on it."""
        return self.action not in {"report", "none"}


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """A physical object that is in the hot and in the cold location, with different bytes."""

    key: str
    hot_size: int
    cold_size: int
    hot_checksum: str = ""
    """`xxh128:<32 hex digits>` of the bytes; empty before they were read."""
    cold_checksum: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about one object id."""

    object_id: str
    now_ms: int
    grace_ms: int
    entries: Sequence[Entry] = ()
    """Items of the table with this id, as stored: one, unless an operation is in progress or
    something is damaged. An item that is now another object, and becomes this one when the
    transaction of its write intent is published, is included."""
    log_state: ObjectState = NOT_LOGGED
    """The records of the log."""
    blobs: Sequence[BlobInfo] = ()
    """Physical objects whose key ends in this id, and those that an entry or the log references."""
    logged: bool = True
    """Whether objects of this kind are logged: false for a volume without log, and for directories
    of s3k-1.0."""
    by_id: bool = False
    """Whether directory keys are object ids, so that two items of a directory have the same
    children."""
    legacy: bool = False
    """Whether S3-FileSystem 1.0 wrote the object, and may be writing it: it has no leases, renames
    directories entry by entry, and its log keeps less."""
    transactions: Mapping[str, TransactionRecord] = field(default_factory=dict)
    """The existing records of the transactions with intents on the entries, by id; a transaction
    without a record is over."""
    occupied: Mapping[str, bool] = field(default_factory=dict)
    """Paths of this object in the log that other objects occupy; whether those are directories.
    """
    unreadable_transactions: frozenset[str] = frozenset()
    """Ids of transactions whose record cannot be read, so that their state is unknown."""

    unfinished: frozenset[str] = frozenset()
    """Keys of interrupted changes that could not be finished as a whole: their intents and
    operations are decided per object."""
    trash: Deletion | None = None
    """The attributes of a directory in the trash, in layout `tree`."""
    retention_ms: int = 0
    """How long garbage collection leaves a directory in the trash."""
    copies: Sequence[CopyFacts] = ()
    """Physical objects that both locations of a volume with tiers have, and that differ."""
    uploading: bool = False
    """Whether an open multipart upload has chosen the object id."""

    def is_reported_with_transaction(self, entry: Entry) -> bool:
        """Whether the entry's write intent is reported, and removed, with its transaction."""
        intent = intent_of(entry)
        record = self.transactions.get(intent.txn) if intent is not None else None
        return record is not None and record.kind != "mark" and record.id not in self.unfinished

    def is_young(self, time_ms: int) -> bool:
        """Whether an operation that began at that time may still be in progress."""
        return time_ms > self.now_ms - self.grace_ms


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """An item that is no entry of the volume, or is in the wrong partition."""

    partition: str
    sort: str
    is_foreign: bool
    """Whether its partition belongs neither to the volume nor to one of its records."""
    problem: str
    """Why it cannot be read; empty for an entry in another partition than its own."""
    is_free: bool = True
    """Whether the correct key of the entry is unoccupied."""


@dataclass(frozen=True, slots=True)
class LogObjectFacts:
    """An unreadable object of the log."""

    key: str
    problem: str
    is_newer: bool
    """Whether it declares a newer format."""


@dataclass(frozen=True, slots=True)
class ParentFacts:
    """An entry whose parent is not a directory of the table."""

    parent: str
    """The directory key of the parent."""
    child: str
    """The path of the entry."""
    child_id: str
    child_is_young: bool
    is_file: bool
    """Whether a file is at the parent's path."""
    entry: Entry | None = None
    """The entry, in layout `tree`."""
    logged: ParentState = ""
    log_state: ObjectState = NOT_LOGGED
    """The records of the parent in the log, where it was asked."""


@dataclass(frozen=True, slots=True)
class CycleFacts:
    """Directories each of which is in the next one, and the last one in the first."""

    members: tuple[Directory, ...]
    displaced: Mapping[str, str]
    """The entry keys, by id, of those that are elsewhere according to the log."""
    entries: tuple[Entry, ...] = ()
    """Their items, read again: at one moment all of them were there. Empty before."""

    @property
    def moved(self) -> Entry:
        """The one to move: one that is elsewhere according to the log, else that of the least
        id."""
        return min(self.entries, key=lambda entry: (entry.id not in self.displaced, entry.id))


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A log segment without a committed object: the outcome of its operations is not recorded."""

    id: str
    operations: int
    newest_ms: int
    """The start of the last of its operations."""

    @property
    def txn(self) -> str:
        """The id of the transaction that logged the operations; empty for none."""
        return transaction_of_segment(self.id)


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """An unfinished change of many entries: a transaction record, open segments of the log, or
    both."""

    key: str
    """The id of the transaction, or the key of the segment."""
    record: TransactionRecord | None
    """None: the transaction is over, or there never was one."""
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
    """The visible states of the entries, with write intents resolved."""
    stale: tuple[Entry, ...] = ()
    """Stored entries with the write intent of a transaction that is over."""
    in_flux: bool = False
    """Whether an active transaction is changing one of them."""


def visibility_of(facts: Facts) -> Visibility:
    """Resolve the write intents of an object's entries: those of expired transactions by the state
    that the transaction had reached."""
    sides: list[Entry] = []
    stale: list[Entry] = []
    in_flux = False
    for entry in facts.entries:
        if not entry.pending:
            sides.append(entry)
            continue
        intent = intent_of(entry)
        record = facts.transactions.get(intent.txn) if intent else None
        in_flux |= (record is not None and not expired(record.lease_ms, facts.now_ms)) or (
            intent is not None and intent.txn in facts.unreadable_transactions
        )
        stale.append(entry)
        side = (
            intent.resolve(entry, published=record is not None and record.is_published)
            if intent
            else entry
        )
        if side is not None and side.id == facts.object_id:
            sides.append(side)
    return Visibility(tuple(sides), () if in_flux else tuple(stale), in_flux)


def objects_of(entry: Entry) -> set[str]:
    """The object ids of a stored item: the present one, and the one after publication of the
    transaction of its write intent."""
    return {side.id for side in _sides(entry)}


def adopted_by(entry: Entry) -> list[tuple[str, str]]:
    """The adopted objects that a stored item references, now or after publication of the
    transaction of its write intent: URI and recorded version id."""
    return [
        (side.physical, side.object_version)
        for side in _sides(entry)
        if side.physical and is_uri(side.physical)
    ]


def _sides(entry: Entry) -> list[Entry]:
    intent = intent_of(entry) if entry.pending else None
    return [entry, intent.new_state] if intent and isinstance(intent.new_state, Entry) else [entry]


def intent_of(entry: Entry) -> WriteIntent | None:
    """The write intent of an entry; None for an unreadable one, which belongs to no
    transaction."""
    try:
        return parse_intent(entry.pending)
    except ItemFormatError:
        return None
