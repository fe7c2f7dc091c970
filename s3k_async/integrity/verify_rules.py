"""The rules of fsck: decision tables from facts to findings and repair actions, without I/O.

The table is authoritative, then the log, then the data (S3-FileSystem 1.0's order). In each table
the first row whose conditions all hold decides; a row without a kind is no finding. Entries younger
than the grace period, and those with an intent of a live transaction, may be in progress and are
skipped. `docs/fsck.md` shows these tables, and a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote

from s3k_async import _native
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.errors import CorruptDataError
from s3k_async.integrity.facts import (
    NOTES,
    PROBLEMS,
    Action,
    ChangeFacts,
    CopyFacts,
    CycleFacts,
    Facts,
    Finding,
    FindingKind,
    ItemFacts,
    LogObjectFacts,
    ParentFacts,
    Visibility,
    visibility_of,
)
from s3k_async.integrity.rule_table import Rule, RuleTable
from s3k_async.model import Entry
from s3k_async.oplog.entries import LogRecord, Operation, pending_segment, transaction_of_segment
from s3k_async.storage.extents import has_extents, is_stored, parse_extents, physical_keys
from s3k_async.storage.physical import is_uri
from s3k_async.storage.upload import CHECKSUM_PREFIX
from s3k_async.txn.lease import expired

__all__ = [
    "NOTES",
    "PROBLEMS",
    "TABLES",
    "Facts",
    "Finding",
    "FindingKind",
    "decide",
    "decide_change",
    "decide_cycle",
    "decide_item",
    "decide_log_object",
    "decide_parent",
    "keeper_of",
    "next_version",
    "same_blob",
]

_NOT_COMPARED: Final = frozenset({"physical", "operation", "lease_ms", "pending", "directory"})
COMPARED: Final = tuple(field.name for field in fields(Entry) if field.name not in _NOT_COMPARED)
"""Fields in which log and table must agree, beside the physical object; of the path only the entry
key, since directories above may have been renamed."""
COMPARED_BINARY: Final = ("path", "id", "version", "ctime", "size", "committed")
"""The same for S3-FileSystem 1.0's log, which holds no more."""

DAY_MS: Final = 86_400_000

S = TypeVar("S")


VerifyRule: TypeAlias = Rule[FindingKind | None, Action]
VerifyTable: TypeAlias = RuleTable[S, FindingKind | None, Action]


def same_blob(key: str, physical: str | None) -> bool:
    """Whether an entry's physical path names a blob of the data location, alone or as one of its
    extents; scheme and bucket are not compared."""
    if physical is None:
        return False
    if "://" not in physical:
        return any(name.strip("/") == key for name in physical_keys(physical))
    bare = physical.partition("://")[2].partition("/")[2].strip("/")
    # A URI of a local file has escapes, unlike a key in S3.
    return any(text == key or text.endswith("/" + key) for text in (bare, unquote(bare)))


# One object id


NO_ENTRY: Final = Entry(path="", is_dir=True, id="", version=0, ctime=0, mtime_ms=0)
NO_RECORD: Final = LogRecord(Operation("", "delete", "", 1, 0, NO_ENTRY, None), "pending")
NO_BLOB: Final = BlobInfo("", 0, "")
NO_COPY: Final = CopyFacts("", 0, 0)


@dataclass(frozen=True)
class _Case:
    """An object's facts, and the entry, record or blob in question."""

    facts: Facts
    visible: Visibility
    entry: Entry = NO_ENTRY
    record: LogRecord = NO_RECORD
    blob: BlobInfo = NO_BLOB
    copy: CopyFacts = NO_COPY

    @property
    def pending(self) -> Sequence[LogRecord]:
        return self.facts.log_state.pending

    @property
    def logged_state(self) -> Entry | None:
        return self.facts.log_state.entry

    @property
    def operation(self) -> Operation | None:
        committed = self.facts.log_state.committed
        return committed.operation if committed else None

    @cached_property
    def keeper(self) -> Entry:
        """Of several entries with the id, the one that keeps it: that of the log, else the
        newest."""
        return _keeper(self.facts, self.visible)

    def has_bytes(self, entry: Entry | None, *, whole: bool = False) -> bool:
        """Whether the physical object of the entry exists; `whole`: and has the size in the entry.
        Of extents, whether all of their objects exist; `whole`: and have their bytes."""
        if entry is None or entry.is_dir:
            return entry is not None
        if has_extents(entry.physical):
            return self._has_extents(entry, whole=whole)
        return any(not whole or blob.size == entry.size for blob in _stored(self.facts, entry))

    def _has_extents(self, entry: Entry, *, whole: bool) -> bool:
        physical, sizes = str(entry.physical), {blob.key: blob.size for blob in self.facts.blobs}
        if whole:
            return is_stored(physical, entry.size, sizes)
        return all(key in sizes for key in physical_keys(physical))

    def moved_entry_by_entry(self) -> bool:
        """Whether the directory is at several paths in different versions, as during a rename by
        S3-FileSystem 1.0: at the target its version is one higher."""
        versions = [entry.version for entry in self.visible.entries]
        return self.entry.is_dir and len(set(versions)) == len(versions)

    def was_replaced(self) -> bool:
        """Whether the adopted object of the entry has another etag than when it was adopted. The
        volume's own objects are not compared: they keep their content, but not their etags, when
        they are copied or restored to another location."""
        entry = self.entry
        return bool(entry.etag and entry.physical and is_uri(entry.physical)) and any(
            blob.etag not in ("", entry.etag) for blob in _stored(self.facts, entry)
        )

    def lease_runs(self, entry: Entry) -> bool:
        return entry.is_reservation and not expired(entry.lease_ms, self.facts.now_ms)

    def shown(self) -> bool:
        """Whether the table shows the new state of the operation. Write intents change a
        directory's operation id, but not its state."""
        operation = self.record.operation
        if operation.after is None:
            return not self.visible.entries
        return any(_shows(entry, operation) for entry in self.visible.entries)

    def built_upon(self) -> bool:
        """Whether a later operation began from the state that this one wrote. The operation id
        alone does not show it: a directory has the id of the transaction whose intent it had
        last, even if that was aborted; then the version is lower.
        """
        identity, version = self.record.operation.id, self.record.operation.version
        befores = [other.operation.before for other in self.pending if other is not self.record]
        return bool(identity) and any(
            before is not None and (before.operation, before.version) == (identity, version)
            for before in befores
        )

    def unfinished(self) -> bool:
        """Whether the operation would commit exactly the existing reservation."""
        after, before = self.record.operation.after, self.record.operation.before
        return (
            after is not None
            and after.committed
            and len(self.visible.entries) == 1
            and self.entry.is_reservation
            and self.entry.entry_key == after.entry_key
            and self.entry.version < after.version
            and (before is None or before.version == self.entry.version)
            and self.record is self.pending[-1]
        )

    def upload_complete(self) -> bool:
        """Whether a pending operation would commit the reservation, and its data is complete."""
        return any(
            case.unfinished() and case.has_bytes(case.record.operation.after, whole=True)
            for case in (replace(self, record=record) for record in self.pending)
        )

    def differences(self) -> list[str]:
        after = self.logged_state
        if after is None or self.entry is NO_ENTRY:
            return []
        compared = COMPARED_BINARY if self.facts.legacy else COMPARED
        different = [name for name in compared if _field(self.entry, name) != _field(after, name)]
        if not _same_physical(self.entry.physical, after.physical):
            different.append("physical")
        return different

    def named(self) -> bool:
        return any(
            not entry.is_dir and same_blob(self.blob.key, entry.physical)
            for entry in (*self.visible.entries, *self.facts.entries)
        )

    def copy_is_named(self) -> bool:
        return any(same_blob(self.copy.key, entry.physical) for entry in self.visible.entries)

    def is_as_recorded(self, size: int, checksum: str) -> bool:
        """Whether an object of that size and checksum, which may not be known yet, is the one that
        the entry names."""
        return any(
            _is_recorded(entry, self.copy.key, size, checksum)
            for entry in self.visible.entries
            if same_blob(self.copy.key, entry.physical)
        )

    def named_by_log(self) -> bool:
        states = [self.logged_state]
        for record in self.pending:
            states += [record.operation.before, record.operation.after]
        return any(
            state is not None and same_blob(self.blob.key, state.physical) for state in states
        )

    def is_due(self) -> bool:
        """Whether the directory was deleted so long ago that garbage collection should have
        reclaimed it."""
        trash = self.facts.trash
        waits_ms = max(2 * self.facts.retention_ms, DAY_MS)
        return (
            trash is not None
            and trash.why == "deleted"
            and trash.when_ms + waits_ms < self.facts.now_ms
        )

    def known(self) -> bool:
        return bool(self.facts.entries) or self.operation is not None or bool(self.pending)


def _keeper(facts: Facts, visible: Visibility) -> Entry:
    state = facts.log_state.entry
    logged = state.entry_key if state else None
    return min(
        visible.entries,
        key=lambda entry: (entry.entry_key != logged, -entry.version, entry.path),
    )


def keeper_of(facts: Facts) -> Entry | None:
    """Of several entries with one id, the one that keeps it; None if there are not several."""
    visible = visibility_of(facts)
    return _keeper(facts, visible) if len(visible.entries) > 1 else None


CONDITIONS: Final[Mapping[str, Callable[[_Case], bool]]] = {
    "only entry": lambda case: len(case.visible.entries) <= 1,
    "several entries": lambda case: len(case.visible.entries) > 1,
    "no entry": lambda case: not case.visible.entries,
    "keeps the id": lambda case: case.entry is case.keeper,
    "entry young": lambda case: case.facts.is_young(case.entry.mtime_ms),
    "directory": lambda case: case.entry.is_dir,
    "directories by id": lambda case: case.facts.by_id,
    "S3-FileSystem 1.0": lambda case: case.facts.legacy,
    "of several versions": lambda case: case.moved_entry_by_entry(),
    "reservation": lambda case: case.entry.is_reservation,
    "no reservation": lambda case: not case.entry.is_reservation,
    "lease runs": lambda case: case.lease_runs(case.entry),
    "upload complete": lambda case: case.upload_complete(),
    "bytes missing": lambda case: not case.has_bytes(case.entry),
    "size differs": lambda case: not case.has_bytes(case.entry, whole=True),
    "adopted, etag differs": lambda case: case.was_replaced(),
    "of an open segment": lambda case: _is_open(case.record, case.facts.unfinished),
    "operation young": lambda case: case.facts.is_young(case.record.operation.time_ms),
    "table shows it": lambda case: case.shown(),
    "a later one began from it": lambda case: case.built_upon(),
    "commits the reservation": lambda case: case.unfinished(),
    "its bytes are whole": lambda case: case.has_bytes(case.record.operation.after, whole=True),
    "not logged": lambda case: not case.facts.logged,
    "something pending": lambda case: bool(case.pending),
    "log young": lambda case: (
        case.operation is not None and case.facts.is_young(case.operation.time_ms)
    ),
    "log: nothing": lambda case: case.operation is None,
    "log: removed": lambda case: case.operation is not None and case.operation.after is None,
    "log: reservation": lambda case: (
        case.logged_state is not None and case.logged_state.is_reservation
    ),
    "log: conflict": lambda case: _contradict(case.facts.log_state.conflict),
    "log: directory": lambda case: case.logged_state is not None and case.logged_state.is_dir,
    "log: bytes missing": lambda case: not case.has_bytes(case.logged_state),
    "log: bytes whole": lambda case: case.has_bytes(case.logged_state, whole=True),
    "log: newer, same path": lambda case: (
        case.logged_state is not None
        and case.logged_state.version > case.entry.version
        and case.logged_state.entry_key == case.entry.entry_key
    ),
    "log: differs": lambda case: bool(case.differences()),
    "path is taken": lambda case: (
        case.logged_state is not None and case.logged_state.entry_key in case.facts.occupied
    ),
    "path is taken by a directory": lambda case: (
        case.logged_state is not None
        and case.facts.occupied.get(case.logged_state.entry_key) is True
    ),
    "named by an entry": lambda case: case.named(),
    "named by the log": lambda case: case.named_by_log(),
    "object named by an entry": lambda case: case.copy_is_named(),
    "hot one as recorded": lambda case: case.is_as_recorded(
        case.copy.hot_size, case.copy.hot_checksum
    ),
    "cold one as recorded": lambda case: case.is_as_recorded(
        case.copy.cold_size, case.copy.cold_checksum
    ),
    "blob young": lambda case: case.facts.is_young(case.blob.mtime_ms),
    "of an open multipart upload": lambda case: case.facts.uploading,
    "foreign key": lambda case: _native.object_id_of(case.blob.key) is None,
    "object known": lambda case: case.known(),
    "logged": lambda case: case.facts.logged,
    "deleted long ago": lambda case: case.is_due(),
    "reclamation begun": lambda case: case.facts.trash is not None and bool(case.facts.trash.state),
}

ROW_OK: Final[VerifyRule] = Rule((), None, "none")

IDS: Final[VerifyTable[_Case]] = RuleTable(
    "ids",
    "each of several entries with one object id",
    CONDITIONS,
    (
        Rule(("only entry",), None, "none"),
        Rule(("keeps the id",), None, "none"),
        Rule(("entry young",), None, "none"),
        Rule(
            ("S3-FileSystem 1.0", "directory", "of several versions"),
            "rename_unfinished",
            "none",
            "a rename of the directory is under way, or was interrupted: {paths}",
        ),
        Rule(("directories by id", "directory", "something pending"), None, "none"),
        Rule(
            ("directories by id", "directory"),
            "duplicate_id",
            "remove_item",
            "the directory is at more than one place: {paths}",
        ),
        Rule(
            ("directory",),
            "duplicate_id",
            "renumber",
            "more than one directory has this id: {paths}",
        ),
        Rule(
            ("size differs",),
            "duplicate_id",
            "report",
            "several entries have this id, and no whole bytes: {paths}",
        ),
        Rule((), "duplicate_id", "renumber", "more than one entry has this id: {paths}"),
    ),
)
RESERVATIONS: Final[VerifyTable[_Case]] = RuleTable(
    "reservations",
    "each entry",
    CONDITIONS,
    (
        Rule(("no reservation",), None, "none"),
        Rule(("lease runs",), None, "none"),
        Rule(("entry young",), None, "none"),
        Rule(("upload complete",), None, "none"),
        Rule(
            ("S3-FileSystem 1.0",),
            "reservation_open",
            "none",
            "uncommitted for {age:,} s; there are no leases, so its writer may still be at work",
        ),
        Rule((), "reservation_expired", "remove_entry", "its writer never committed it"),
    ),
)
OPERATIONS: Final[VerifyTable[_Case]] = RuleTable(
    "operations",
    "each operation that is pending in the log",
    CONDITIONS,
    (
        Rule(("of an open segment",), None, "none"),
        Rule(("operation young",), None, "none"),
        Rule(
            ("table shows it",),
            "log_pending",
            "commit_log",
            "{operation} is pending: it happened; commit it",
        ),
        Rule(
            ("a later one began from it",),
            "log_pending",
            "commit_log",
            "{operation} is pending: a later one began from it, so it happened; commit it",
        ),
        Rule(("lease runs",), None, "none"),
        Rule(
            ("commits the reservation", "its bytes are whole"),
            "log_pending",
            "roll_forward",
            "{operation} is pending: all its bytes are there; publish it",
        ),
        Rule(
            (),
            "log_pending",
            "roll_back_log",
            "{operation} is pending: the table does not show it; roll it back",
        ),
    ),
)
LOG: Final[VerifyTable[_Case]] = RuleTable(
    "log",
    "each object id, against the newest state that the log has committed",
    CONDITIONS,
    (
        Rule(("not logged",), None, "none"),
        Rule(("something pending",), None, "none"),
        Rule(("several entries",), None, "none"),
        Rule(("log young",), None, "none"),
        Rule(("no entry", "log: nothing"), None, "none"),
        Rule(("no entry", "log: removed"), None, "none"),
        Rule(
            ("no entry", "log: reservation"),
            "entry_missing",
            "log_removal",
            "the log says it is reserved",
        ),
        Rule(
            ("no entry", "log: bytes missing"),
            "entry_missing",
            "log_removal",
            "the log says it exists; no bytes",
        ),
        Rule(
            ("no entry", "directories by id", "log: directory", "path is taken"),
            "entry_missing",
            "make_parent",
            "the log says it exists; its path is taken",
        ),
        Rule(
            ("no entry", "log: directory", "path is taken by a directory"),
            "entry_missing",
            "log_removal",
            "the log says it exists; another directory is at its path",
        ),
        Rule(
            ("no entry", "path is taken"),
            "entry_missing",
            "report",
            "the log says it exists; its path is taken",
        ),
        Rule(("no entry",), "entry_missing", "restore_entry", "the log says it exists"),
        Rule(("lease runs",), None, "none"),
        Rule(("entry young",), None, "none"),
        Rule(("log: nothing",), "log_missing", "log_again", "the log does not know this object"),
        Rule(
            ("log: conflict",),
            "log_conflict",
            "log_again",
            "several operations committed one version: {conflict}",
        ),
        Rule(("log: removed",), "log_disagrees", "log_again", "the log says it was deleted"),
        Rule(
            ("log: newer, same path", "bytes missing", "log: bytes whole"),
            "log_disagrees",
            "restore_entry",
            "the log knows a newer version, whose bytes are there",
        ),
        Rule(
            ("log: differs",),
            "log_disagrees",
            "log_again",
            "differs from the table in {differences}",
        ),
        ROW_OK,
    ),
)
DATA: Final[VerifyTable[_Case]] = RuleTable(
    "data",
    "each entry, against its bytes",
    CONDITIONS,
    (
        Rule(("directory",), None, "none"),
        Rule(("reservation",), None, "none"),
        Rule(("bytes missing",), "data_missing", "report", "{missing}"),
        Rule(
            ("size differs",),
            "size_mismatch",
            "report",
            "the entry says {entry.size} bytes, the physical object has {stored}",
        ),
        Rule(
            ("adopted, etag differs",),
            "etag_mismatch",
            "report",
            "the adopted object was replaced since: its entity tag is not {entry.etag} any more",
        ),
        ROW_OK,
    ),
)
BLOBS: Final[VerifyTable[_Case]] = RuleTable(
    "blobs",
    "each physical object",
    CONDITIONS,
    (
        Rule(("named by an entry",), None, "none"),
        Rule(("blob young",), None, "none"),
        Rule(("named by the log",), None, "none"),
        Rule(("of an open multipart upload",), None, "none"),
        Rule(("foreign key",), "foreign_blob", "none", "not a physical key of the volume; skipped"),
        Rule(("object known",), "collectable_data", "none", "left by an overwrite or delete"),
        Rule(("logged",), "collectable_data", "none", "never published"),
        Rule((), "orphan_data", "report", "no entry names it, and there is no log"),
    ),
)
"""An object is in the log before it is in the table. So data that a log does not reference was
never published: its writer died, or was cancelled, after the upload. Without a log its owner is
unknown."""
COPIES: Final[VerifyTable[_Case]] = RuleTable(
    "copies",
    "each physical object that the hot and the cold location have with different bytes",
    CONDITIONS,
    (
        Rule(
            ("object named by an entry", "hot one as recorded", "cold one as recorded"),
            "copies_differ",
            "report",
            "the hot and the cold object differ, and no checksum tells which of them is right",
        ),
        Rule(
            ("object named by an entry", "hot one as recorded"),
            "copies_differ",
            "replace_cold_copy",
            "the cold object, of {copy.cold_size} bytes, differs from the hot one, of "
            "{copy.hot_size}, which is right",
        ),
        Rule(
            ("object named by an entry", "cold one as recorded"),
            "copies_differ",
            "remove_hot_copy",
            "the hot object, of {copy.hot_size} bytes, differs from the cold one, of "
            "{copy.cold_size}, which is right",
        ),
        Rule(
            ("object named by an entry",),
            "copies_differ",
            "report",
            "neither the hot object, of {copy.hot_size} bytes, nor the cold one, of "
            "{copy.cold_size}, is the one that the entry names",
        ),
        ROW_OK,
    ),
)
"""Garbage collection deletes an object that no entry names in both locations."""
TRASH: Final[VerifyTable[_Case]] = RuleTable(
    "trash",
    "each directory in the trash",
    CONDITIONS,
    (
        Rule(
            ("deleted long ago", "reclamation begun"),
            "reclamation_unfinished",
            "none",
            "deleted {waits} ago, and partly reclaimed: s3k gc goes on",
        ),
        Rule(
            ("deleted long ago",),
            "trash_due",
            "none",
            "deleted {waits} ago, and not reclaimed: run s3k gc",
        ),
        ROW_OK,
    ),
)
"""Long ago: twice the retention of the trash, and a day."""


def decide(facts: Facts) -> list[Finding]:
    """All findings about one object."""
    visible = visibility_of(facts)
    if visible.in_flux:
        return []
    case = _Case(facts, visible, visible.entries[0] if visible.entries else NO_ENTRY)
    entries = [replace(case, entry=entry) for entry in visible.entries]
    found = [
        Finding(
            "stale_intent",
            "the transaction of its write intent is over",
            facts.object_id,
            entry.path,
            action="resolve_transaction",
        )
        for entry in visible.stale
        if not facts.is_reported_with_transaction(entry)
    ]
    for each in entries:
        found += _found(IDS, each, path=each.entry.path)
        found += _found(RESERVATIONS, each, path=each.entry.path)
    for record in case.pending if facts.logged else ():
        state = record.operation.after or record.operation.before
        said = _found(
            OPERATIONS,
            replace(case, record=record),
            path=state.path if state else "",
            key=record.key,
        )
        found += [replace(finding, version=record.operation.version) for finding in said]
    logged = case.logged_state
    path = visible.entries[0].path if visible.entries else logged.path if logged else ""
    committed = facts.log_state.committed
    found += _found(LOG, case, path=path, key=committed.key if committed else "")
    for each in entries:
        found += _found(DATA, each, path=each.entry.path, key=str(each.entry.physical))
    for blob in facts.blobs:
        found += _found(BLOBS, replace(case, blob=blob), key=blob.key, size=blob.size)
    for copy in facts.copies:
        found += _found(COPIES, replace(case, copy=copy), path=path, key=copy.key)
    if facts.trash is not None:
        found += _found(TRASH, case, path=facts.trash.was)
    return found


def _contradict(records: Sequence[LogRecord]) -> bool:
    """Whether operations of one version lead to different states. A load of a dump logs its entries
    again, with the time and the paths of the dump, and directories with the operation of the last
    write intent."""
    states = [(record.operation.after, record.operation.trash) for record in records]
    return any(
        trash != states[0][1] or not _same_state(state, states[0][0]) for state, trash in states
    )


def _same_state(one: Entry | None, other: Entry | None) -> bool:
    """Whether two logged states of a version agree in what table and log have to agree in."""
    if one is None or other is None:
        return one is other
    return (
        _same_physical(one.physical, other.physical)
        and (one.is_dir or one.operation == other.operation)
        and all(_field(one, name) == _field(other, name) for name in COMPARED)
    )


def _is_open(record: LogRecord, unfinished: Collection[str]) -> bool:
    """Whether the segment of a pending operation has no committed object: then the operation is
    reported, and finished, with its change. `unfinished`: as in `Facts`."""
    segment = pending_segment(record.key)
    return bool(segment) and (transaction_of_segment(segment) or record.key) not in unfinished


def next_version(facts: Facts) -> int:
    """A version that neither the table nor the log has used for this object."""
    records = (*facts.log_state.last, *facts.log_state.pending)
    used = [entry.version for entry in facts.entries]
    return max([*used, *(record.operation.version for record in records)], default=0) + 1


def _found(
    table: VerifyTable[_Case], case: _Case, *, path: str = "", key: str = "", size: int = 0
) -> list[Finding]:
    row = table.first(case)
    if row.outcome is None:
        return []
    object_id = "" if row.outcome == "foreign_blob" else case.facts.object_id
    return [Finding(row.outcome, _detail(row, case), object_id, path, key, size, row.action)]


def _detail(row: VerifyRule, case: _Case) -> str:
    if "{" not in row.detail:
        return row.detail
    operation = case.record.operation
    sizes = [blob.size for blob in _stored(case.facts, case.entry)]
    stored = sum(sizes) if has_extents(case.entry.physical) else sizes[0] if sizes else 0
    return row.detail.format(
        paths=", ".join(sorted(entry.path for entry in case.visible.entries)),
        operation=f"{operation.kind} to version {operation.version}",
        conflict=", ".join(record.operation.id for record in case.facts.log_state.conflict),
        differences=", ".join(case.differences()),
        entry=case.entry,
        age=(case.facts.now_ms - case.entry.mtime_ms) // 1000,
        stored=stored,
        missing=_missing(case.entry),
        copy=case.copy,
        waits=_duration(case.facts.now_ms - case.facts.trash.when_ms) if case.facts.trash else "",
    )


def _missing(entry: Entry) -> str:
    """The detail of a finding about missing data."""
    if entry.object_version:
        return f"the version {entry.object_version} of the adopted object was deleted"
    if entry.physical and is_uri(entry.physical):
        return f"the adopted object is missing, or outside of the data location: {entry.physical}"
    return "a physical object of it does not exist"


def _stored(facts: Facts, entry: Entry) -> list[BlobInfo]:
    """The stored objects that a file references, at the recorded version if there is one."""
    return [
        blob
        for blob in facts.blobs
        if same_blob(blob.key, entry.physical)
        and _version_matches(blob.version, entry.object_version)
    ]


def _version_matches(version: str, recorded: str) -> bool:
    """Whether a version id is the recorded one, as far as both are known."""
    return version == recorded or not version or not recorded


def _is_recorded(entry: Entry, key: str, size: int, checksum: str) -> bool:
    """Whether a physical object of an entry has its recorded size and checksum, as far as these are
    known. Of an object that an extent does not cover, only a least size is."""
    if not has_extents(entry.physical):
        known = entry.checksum.startswith(CHECKSUM_PREFIX) and bool(checksum)
        return size == entry.size and (not known or checksum == entry.checksum)
    try:
        extents = [each for each in parse_extents(str(entry.physical)) if each.key == key]
    except CorruptDataError:
        return False
    if any(each.digest and checksum not in ("", each.digest) for each in extents):
        return False
    whole = next((each for each in extents if each.covers), None)
    if whole is not None:
        return size == whole.length
    return all(size >= each.end for each in extents)


def _duration(time_ms: int) -> str:
    """In days and hours."""
    days, hours = divmod(time_ms // 3_600_000, 24)
    return f"{days:,} d {hours} h"


def _shows(entry: Entry, operation: Operation) -> bool:
    if entry.version != operation.version:
        return False
    after = operation.after
    same_directory = entry.is_dir and after is not None and entry.entry_key == after.entry_key
    return entry.operation == operation.id or same_directory


def _field(entry: Entry, name: str) -> object:
    return entry.entry_key if name == "path" else getattr(entry, name)


def _same_physical(one: str | None, other: str | None) -> bool:
    def bare(physical: str | None) -> str | None:
        if physical is None or "://" not in physical:
            return physical
        return physical.partition("://")[2].partition("/")[2].strip("/")

    return bare(one) == bare(other)


# Facts without an object id

_CHANGES: Final = {
    "rename": "the rename of {record.source} to {record.target}",
    "delete": "the deletion of {record.source}",
    "transaction": "a transaction",
    "mark": "a change of {record.source}",
}
"""The description of a transaction in details, by its kind."""

ITEMS: Final[VerifyTable[ItemFacts]] = RuleTable(
    "items",
    "each item that is no entry of the volume, or not where it belongs",
    {
        "foreign": lambda item: item.is_foreign,
        "unreadable": lambda item: bool(item.problem),
        "its place is free": lambda item: item.is_free,
    },
    (
        Rule(("foreign",), "foreign_item", "report", "not an item of this volume"),
        Rule(("unreadable",), "item_damaged", "quarantine", "{problem}"),
        Rule(
            ("its place is free",),
            "item_misplaced",
            "move_item",
            "the name does not belong to this suffix",
        ),
        Rule(
            (),
            "item_misplaced",
            "quarantine",
            "the name does not belong to this suffix; its place is taken",
        ),
    ),
)
LOG_OBJECTS: Final[VerifyTable[LogObjectFacts]] = RuleTable(
    "log objects",
    "each object of the log that cannot be understood",
    {"newer format": lambda found: found.is_newer},
    (
        Rule(("newer format",), "log_newer", "report", "{problem}"),
        Rule((), "log_damaged", "quarantine", "{problem}"),
    ),
)
PARENTS: Final[VerifyTable[ParentFacts]] = RuleTable(
    "parents",
    "each directory that entries are in and that is not in the table",
    {
        "child young": lambda found: found.child_is_young,
        "a file is there": lambda found: found.is_file,
        "no log to ask": lambda found: found.logged == "no log",
        "log: directory exists": lambda found: found.logged == "there",
        "log: operation pending": lambda found: found.logged == "undecided",
        "log: removed just now": lambda found: found.logged == "leaving",
        "log: directory removed": lambda found: found.logged == "removed",
    },
    (
        Rule(("child young",), None, "none"),
        Rule(("a file is there",), "missing_parent", "report", "its parent is not a directory"),
        Rule(
            ("no log to ask",),
            "missing_parent",
            "report",
            "its directory was not found, and there is no log that tells whether it was moved",
        ),
        Rule(("log: directory exists",), None, "none"),
        Rule(("log: operation pending",), None, "none"),
        Rule(("log: removed just now",), None, "none"),
        Rule(
            ("log: directory removed",),
            "unreachable_entry",
            "remove_entry",
            "its directory was removed",
        ),
        Rule((), "missing_parent", "make_parent", "its parent is not there"),
    ),
)
CYCLES: Final[VerifyTable[CycleFacts]] = RuleTable(
    "cycles",
    "directories that are below themselves",
    {"it exists": lambda found: bool(found.entries)},
    (
        Rule(
            ("it exists",),
            "directory_cycle",
            "move_item",
            "the directory is below itself, with {others}",
        ),
        Rule((), None, "none"),
    ),
)
CHANGES: Final[VerifyTable[ChangeFacts]] = RuleTable(
    "changes",
    "each transaction record with the segments of its operations, and each other segment whose "
    "end is not in the log",
    {
        "lease runs": lambda found: (
            found.record is not None and not expired(found.record.lease_ms, found.now_ms)
        ),
        "entries one by one": lambda found: (
            found.record is not None and found.record.kind == "mark"
        ),
        "published": lambda found: found.record is not None and found.record.is_published,
        "not published": lambda found: found.record is not None and not found.record.is_published,
        "segment young": lambda found: any(
            each.newest_ms > found.now_ms - found.grace_ms for each in found.segments
        ),
    },
    (
        Rule(("lease runs",), None, "none"),
        Rule(
            ("entries one by one",),
            "stale_transaction",
            "resolve_transaction",
            "its owner's lease ran out",
        ),
        Rule(
            ("published",),
            "interrupted_change",
            "finish_change",
            "{change} was interrupted after it took effect: nothing is lost, and repair finishes "
            "it{left}",
        ),
        Rule(
            ("not published",),
            "interrupted_change",
            "finish_change",
            "{change} was interrupted before it took effect: nothing was changed, and repair "
            "removes what it prepared{left}",
        ),
        Rule(("segment young",), None, "none"),
        Rule(
            (),
            "interrupted_change",
            "finish_change",
            "a change of many entries was interrupted: repair determines which of its operations "
            "took effect{left}",
        ),
    ),
)

TABLES: Final[tuple[VerifyTable[Any], ...]] = (
    IDS,
    RESERVATIONS,
    OPERATIONS,
    LOG,
    DATA,
    BLOBS,
    COPIES,
    TRASH,
    ITEMS,
    LOG_OBJECTS,
    PARENTS,
    CYCLES,
    CHANGES,
)
"""All decisions of fsck about a volume that has its table."""


def decide_item(facts: ItemFacts) -> list[Finding]:
    """The finding about an item that is no entry, or in the wrong partition."""
    return _loose(ITEMS, facts, key=f"{facts.partition} / {facts.sort}", problem=facts.problem)


def decide_log_object(facts: LogObjectFacts) -> list[Finding]:
    """The finding about an unreadable log object."""
    return _loose(LOG_OBJECTS, facts, key=facts.key, problem=facts.problem)


def decide_parent(facts: ParentFacts) -> list[Finding]:
    """The finding about an entry whose parent is no directory of the table."""
    return _loose(PARENTS, facts, object_id=facts.child_id, path=facts.child)


def decide_cycle(facts: CycleFacts) -> list[Finding]:
    """The finding about directories that are below themselves."""
    if not facts.entries:
        return _loose(CYCLES, facts)
    moved = facts.moved
    others = ", ".join(each.id for each in facts.entries if each.id != moved.id) or "nothing else"
    return _loose(CYCLES, facts, object_id=moved.id, path=moved.path, others=others)


def decide_change(facts: ChangeFacts) -> list[Finding]:
    """The finding about an interrupted change of many entries: one, regardless of their number."""
    record, count = facts.record, len(facts.segments)
    left = f" ({facts.operations:,} operations in {count:,} log segments)" if count else ""
    change = _CHANGES[record.kind].format(record=record) if record else ""
    path = record.source if record else ""
    return _loose(CHANGES, facts, path=path, key=facts.key, change=change, left=left)


def _loose(
    table: VerifyTable[S],
    facts: S,
    *,
    object_id: str = "",
    path: str = "",
    key: str = "",
    **words: str,
) -> list[Finding]:
    """The finding by one table; `words` fill its detail."""
    row = table.first(facts)
    if row.outcome is None:
        return []
    detail = row.detail.format(**words)
    return [Finding(row.outcome, detail, object_id, path, key, action=row.action)]
