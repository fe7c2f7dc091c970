"""What is wrong with one object, decided from facts alone.

The table is the truth, then the log, then the bytes (S3-FileSystem 1.0's order). Nothing here reads or writes, so the
same decisions serve one machine and many. A fact that is younger than the grace period may be an operation under way
and is never held against anybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from s3k_async import _native
from s3k_async.model import UNCOMMITTED, Entry
from s3k_async.oplog.entries import LogRecord, Operation
from s3k_async.oplog.reader import Truth
from s3k_async.stores.blobs import BlobInfo

__all__ = ["PROBLEMS", "Facts", "Finding", "FindingKind", "decide", "same_blob"]

FindingKind = Literal[
    "checksum_mismatch",
    "collectable_data",
    "data_missing",
    "duplicate_id",
    "entry_missing",
    "foreign_blob",
    "foreign_item",
    "item_damaged",
    "log_conflict",
    "log_damaged",
    "log_disagrees",
    "log_missing",
    "log_pending",
    "missing_parent",
    "orphan_data",
    "reservation_expired",
    "size_mismatch",
    "stale_mark",
]

NOTES: Final[frozenset[str]] = frozenset({"collectable_data"})
"""Findings that are the ordinary course of things."""
PROBLEMS: Final[frozenset[str]] = frozenset(FindingKind.__args__) - NOTES  # type: ignore[attr-defined]

COMPARED: Final = ("path", "is_dir", "id", "version", "ctime", "mtime_ms", "size", "committed", "etag", "checksum")
"""What the log and the table must agree on, beside the physical object."""
COMPARED_BINARY: Final = ("path", "id", "version", "ctime", "size", "committed")
"""The same for S3-FileSystem 1.0's log, which holds no more."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that fsck found. `object_id`, `path` and `key` say what it is about, as far as that is known."""

    kind: FindingKind
    detail: str
    object_id: str = ""
    path: str = ""
    key: str = ""
    size: int = 0

    @property
    def is_problem(self) -> bool:
        """Whether this has to be repaired, as opposed to being worth a note."""
        return self.kind in PROBLEMS


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of one object id."""

    object_id: str
    now_ms: int
    grace_ms: int
    entries: Sequence[Entry] = ()
    """Entries of the table with this id: one, unless something went wrong or a directory is being renamed."""
    truth: Truth | None = None
    """What the log says; None if it does not know the id."""
    blobs: Sequence[BlobInfo] = ()
    """Physical objects whose key ends in this id, and the one that an entry names."""
    logged: bool = True
    """Whether objects of this kind are logged at all: not on a volume without log, nor directories of s3k-1.0."""
    binary_log: bool = False

    def is_young(self, time_ms: int) -> bool:
        """Whether something of that time may still be under way."""
        return time_ms > self.now_ms - self.grace_ms


def decide(facts: Facts) -> list[Finding]:
    """Everything that is wrong with, or worth noting of, one object."""
    return [*_entries(facts), *_log(facts), *_data(facts)]


def same_blob(key: str, physical: str | None) -> bool:
    """Whether an entry's physical path names a blob of the data location; scheme and bucket are not compared."""
    if physical is None:
        return False
    bare = physical.partition("://")[2].partition("/")[2] if "://" in physical else physical
    return bare.strip("/") == key or ("://" in physical and bare.endswith("/" + key))


def _entries(facts: Facts) -> Iterator[Finding]:
    if len(facts.entries) > 1:
        paths = sorted(entry.path for entry in facts.entries)
        what = "an interrupted rename left it" if facts.entries[0].is_dir else "more than one entry has this id"
        for path in paths:
            yield Finding("duplicate_id", f"{what}: {', '.join(paths)}", facts.object_id, path)
    for entry in facts.entries:
        if entry.is_reservation and entry.lease_ms <= facts.now_ms and not facts.is_young(entry.mtime_ms):
            yield Finding("reservation_expired", "its writer never committed it", facts.object_id, entry.path)


def _log(facts: Facts) -> Iterator[Finding]:
    if not facts.logged:
        return
    truth = facts.truth
    if truth is None:
        for entry in facts.entries:
            if not facts.is_young(entry.mtime_ms):
                yield Finding("log_missing", "the log does not know this object", facts.object_id, entry.path)
        return
    if truth.conflict:
        ids = ", ".join(record.operation.id for record in truth.conflict)
        yield Finding("log_conflict", f"several operations committed one version: {ids}", facts.object_id)
    yield from _pending(facts, truth.pending)
    if truth.committed is not None:
        yield from _committed(facts, truth.committed, bool(truth.pending))


def _pending(facts: Facts, pending: Sequence[LogRecord]) -> Iterator[Finding]:
    for record in pending:
        operation = record.operation
        if facts.is_young(operation.time_ms):
            continue
        state = operation.after or operation.before
        happened = (
            not facts.entries if operation.after is None else any(_shows(entry, operation) for entry in facts.entries)
        )
        outcome = "it happened; commit it" if happened else "the table does not show it; roll it back"
        yield Finding(
            "log_pending",
            f"{operation.kind} to version {operation.version} is pending: {outcome}",
            facts.object_id,
            state.path if state else "",
            record.key,
        )


def _shows(entry: Entry, operation: Operation) -> bool:
    """Whether an entry is what the operation wrote. Marks change a directory's operation id, but not what it is."""
    if entry.version != operation.version:
        return False
    after = operation.after
    return entry.operation == operation.id or (entry.is_dir and after is not None and entry.path == after.path)


def _committed(facts: Facts, record: LogRecord, has_pending: bool) -> Iterator[Finding]:
    operation = record.operation
    if facts.is_young(operation.time_ms):
        return
    if operation.after is None:
        for entry in facts.entries:
            if entry.version < operation.version:
                yield Finding("log_disagrees", "the log says it was deleted", facts.object_id, entry.path, record.key)
        return
    if not facts.entries:
        if not has_pending:
            yield Finding("entry_missing", "the log says it exists", facts.object_id, operation.after.path, record.key)
        return
    if has_pending or len(facts.entries) > 1 or facts.is_young(facts.entries[0].mtime_ms):
        return
    entry = facts.entries[0]
    compared = COMPARED_BINARY if facts.binary_log else COMPARED
    different = [name for name in compared if getattr(entry, name) != getattr(operation.after, name)]
    if not _same_physical(entry.physical, operation.after.physical):
        different.append("physical")
    if different:
        yield Finding(
            "log_disagrees",
            "differs from the table in " + ", ".join(different),
            facts.object_id,
            entry.path,
            record.key,
        )


def _same_physical(one: str | None, other: str | None) -> bool:
    def bare(physical: str | None) -> str | None:
        if physical is None or "://" not in physical:
            return physical
        return physical.partition("://")[2].partition("/")[2].strip("/")

    return bare(one) == bare(other)


def _data(facts: Facts) -> Iterator[Finding]:
    named: set[str] = set()
    for entry in facts.entries:
        if entry.is_dir or not entry.committed or entry.physical in {None, UNCOMMITTED}:
            continue
        active = [blob for blob in facts.blobs if same_blob(blob.key, entry.physical)]
        named.update(blob.key for blob in active)
        if not active:
            yield Finding(
                "data_missing", "its physical object does not exist", facts.object_id, entry.path, str(entry.physical)
            )
        elif active[0].size != entry.size:
            yield Finding(
                "size_mismatch",
                f"the entry says {entry.size} bytes, the physical object has {active[0].size}",
                facts.object_id,
                entry.path,
                active[0].key,
            )
    for blob in facts.blobs:
        if blob.key not in named and not facts.is_young(blob.mtime_ms):
            yield _unnamed(facts, blob)


def _unnamed(facts: Facts, blob: BlobInfo) -> Finding:
    """Bytes that no entry names.

    The log names an object before the table does. So where there is a log and it does not know them, they were never
    published: a writer died, or was cancelled, after its upload. Without a log nobody knows whose they are.
    """
    known = facts.truth is not None and (facts.truth.committed is not None or bool(facts.truth.pending))
    if _native.object_id_of(blob.key) is None:
        return Finding("foreign_blob", "not a physical key of ours", key=blob.key, size=blob.size)
    if known or facts.entries:
        return Finding(
            "collectable_data", "left by an overwrite or delete", facts.object_id, key=blob.key, size=blob.size
        )
    if facts.logged:
        return Finding("collectable_data", "never published", facts.object_id, key=blob.key, size=blob.size)
    return Finding(
        "orphan_data", "no entry names it, and there is no log", facts.object_id, key=blob.key, size=blob.size
    )
