"""The scans of fsck in splits that any process can read: the facts of a split, as input of the
shuffle.

A split is a scan segment of the table, a part of the log, or ranges of data keys. Facts without an
object id are kept apart.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, Final, TypeAlias

from s3k_async import _native
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import PARTITION, SORT, Item, Key
from s3k_async.backends.ports.key_ranges import KeyRange, list_range
from s3k_async.errors import BlobNotFoundError, ItemFormatError, LogFormatError
from s3k_async.integrity.facts import ItemFacts, LogObjectFacts, OpenSegment, adopted_by, objects_of
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.shuffle import FactKind
from s3k_async.model import Entry
from s3k_async.oplog.checkpoints import FORMAT as CHECKPOINT_FORMAT
from s3k_async.oplog.entries import FORMAT as ENTRY_FORMAT
from s3k_async.oplog.entries import is_id, parse_line, pending_segment
from s3k_async.oplog.log_objects import ENTRY_BYTES
from s3k_async.oplog.log_reader import DamagedLog, Finding, LogReader
from s3k_async.oplog.segments import FORMAT as SEGMENT_FORMAT
from s3k_async.table.codec import from_item, from_items
from s3k_async.table.keys import is_entry_partition
from s3k_async.txn.txn_record import PART_SEPARATOR, TRANSACTION_PARTITION, record_from

__all__ = [
    "FactRecord",
    "blob_facts",
    "checked_entry",
    "is_newer_format",
    "log_facts",
    "table_facts",
]

FactRecord: TypeAlias = tuple[FactKind, str, Any]
"""A kind, the shuffle key of a fact, and the fact."""

BATCH: Final = 500
"""Facts in one list, where they arrive one by one."""
JAVA_LOG_SUFFIX: Final = ".info"
"""S3-FileSystem 1.0 keeps its log among the data."""
OWN_PARTITIONS: Final = frozenset({"s3k:volume", "s3k:root", TRANSACTION_PARTITION})
_NEWEST: Final = {
    "oplog-entry": ENTRY_FORMAT,
    "oplog-segment": SEGMENT_FORMAT,
    "oplog-checkpoint": CHECKPOINT_FORMAT,
    "oplog-checkpoint-part": CHECKPOINT_FORMAT,
}
"""The newest format of each kind of log object that this version reads."""


async def table_facts(
    scope: Scope, segment: int, segments: int, counts: ScanCounts
) -> AsyncIterator[list[FactRecord]]:
    """The facts of one scan segment of the table, page by page, added to the counts. Raises the
    store's errors."""
    async for items in scope.check.pages(scope.path, segment, segments):
        yield _of_items(scope, items, counts)


def _of_items(scope: Scope, items: Iterable[Item], counts: ScanCounts) -> list[FactRecord]:
    facts: list[FactRecord] = []
    ours = [item for item in items if _is_ours(scope, item, facts)]
    entries = _understood(scope, ours, facts)
    keys = scope.store.keys.keys([entry.entry_key for entry in entries])
    for item, entry, key in zip(ours, entries, keys, strict=True):
        found = _place(item)
        if key != found:
            facts.append(("items", "", ItemFacts(*found, is_foreign=False, problem="")))
        elif scope.holds_entry(entry):
            _add(scope, entry, facts, counts)
            if entry.is_dir and entry.directory in scope.check.roots:
                deletion = scope.check.deletion(item)
                if deletion is not None:
                    facts.append(("trash", entry.id, (entry.id, deletion)))
    return facts


def _is_ours(scope: Scope, item: Item, facts: list[FactRecord]) -> bool:
    """Whether the item belongs to this volume by its key."""
    partition, sort = _place(item)
    if scope.store.keys.is_own(partition):
        return True
    if partition == TRANSACTION_PARTITION and PART_SEPARATOR not in sort:
        try:
            facts.append(("jobs", "", record_from(item)))
        except ItemFormatError as error:
            facts.append(
                ("items", "", ItemFacts(partition, sort, is_foreign=False, problem=str(error)))
            )
    elif partition not in OWN_PARTITIONS and not (
        scope.is_legacy and is_entry_partition(partition)
    ):
        facts.append(("items", "", ItemFacts(partition, sort, is_foreign=True, problem="")))
    return False


def _understood(scope: Scope, items: list[Item], facts: list[FactRecord]) -> list[Entry]:
    """The entries of the items; unreadable items are removed from the list and noted."""
    try:
        entries = list(from_items(items, scope.store.keys))
        for item, entry in zip(items, entries, strict=True):
            _need_logged_id(scope, entry)
            if entry.directory:
                scope.check.is_object(item, entry)
    except ItemFormatError:
        entries = []
        good: list[Item] = []
        for item in items:
            try:
                entries.append(checked_entry(scope, item))
            except ItemFormatError as error:
                facts.append(
                    ("items", "", ItemFacts(*_place(item), is_foreign=False, problem=str(error)))
                )
            else:
                good.append(item)
        items[:] = good
    if any(entry.directory for entry in entries):
        objects = [
            (item, entry)
            for item, entry in zip(items, entries, strict=True)
            if scope.check.is_object(item, entry)
        ]
        for item, entry in zip(items, entries, strict=True):
            if scope.check.is_staged(item, entry):
                # Nothing about it is compared, but the entries in it have a directory.
                facts.append(_directory_fact(scope, entry))
        items[:] = [item for item, _ in objects]
        return [entry for _, entry in objects]
    return entries


def checked_entry(scope: Scope, item: Item) -> Entry:
    """The entry of an item. Raises ItemFormatError for an invalid entry, for an id that no log can
    hold, and for an item in the trash that cannot be read as one."""
    entry = from_item(item, scope.store.keys)
    _need_logged_id(scope, entry)
    scope.check.is_object(item, entry)
    return entry


def _need_logged_id(scope: Scope, entry: Entry) -> None:
    """Raise ItemFormatError for an id that no key of the log can hold: no change of such an entry
    can be logged."""
    if isinstance(scope.log, LogReader) and not is_id(entry.id):
        raise ItemFormatError("an id that no key of the operation log can hold", path=entry.path)


def _place(item: Item) -> Key:
    return Key(str(item[PARTITION]), str(item[SORT]))


def _add(scope: Scope, entry: Entry, facts: list[FactRecord], counts: ScanCounts) -> None:
    facts += [("entries", object_id, entry) for object_id in objects_of(entry)]
    if not scope.is_legacy and scope.place is None:
        keys = [scope.key_of(uri) for uri in adopted_by(entry)]
        facts += [("adopted", key, key) for key in keys]
    if entry.is_dir:
        counts.directories += 1
        facts.append(_directory_fact(scope, entry))
    elif entry.committed:
        counts.files += 1
        counts.bytes += entry.size
    else:
        counts.reservations += 1
    parent = scope.store.keys.parent_key(entry.entry_key)
    if parent not in scope.check.roots and entry.path != scope.path:
        facts.append(("children", parent, (parent, entry.path, entry.id, entry.mtime_ms)))


def _directory_fact(scope: Scope, entry: Entry) -> FactRecord:
    directory = scope.store.keys.directory(entry)
    return "directories", directory.key, (directory.key, directory.entry_key)


async def log_facts(
    scope: Scope, findings: AsyncIterable[Finding], counts: ScanCounts
) -> AsyncIterator[list[FactRecord]]:
    """The facts of some records of the log, added to the counts. Raises the store's errors."""
    facts: list[FactRecord] = []
    open_segments: dict[str, OpenSegment] = {}
    async for finding in findings:
        if isinstance(finding, DamagedLog):
            newer = await is_newer_format(scope.log_blobs, finding.key)
            facts.append(
                ("log_objects", "", LogObjectFacts(finding.key, str(finding.error), newer))
            )
        else:
            counts.log_records += 1
            facts.append(("records", finding.operation.object_id, finding))
            segment = pending_segment(finding.key) if finding.state == "pending" else ""
            if segment:
                known = open_segments.get(segment, OpenSegment(segment, 0, 0))
                newest_ms = max(known.newest_ms, finding.operation.time_ms)
                open_segments[segment] = OpenSegment(segment, known.operations + 1, newest_ms)
        if len(facts) >= BATCH:
            yield facts
            facts = []
    yield [*facts, *(("segments", "", segment) for segment in open_segments.values())]


async def blob_facts(
    scope: Scope, keys: KeyRange, counts: ScanCounts
) -> AsyncIterator[list[FactRecord]]:
    """The facts of the data objects in a range of keys, added to the counts. Raises the store's
    errors."""
    facts: list[FactRecord] = []
    async for blob in list_range(scope.blobs, keys):
        object_id = _native.object_id_of(blob.key)
        if object_id is None and scope.is_legacy and blob.key.endswith(JAVA_LOG_SUFFIX):
            continue
        counts.blobs += 1
        counts.blob_bytes += blob.size
        facts.append(("blobs", object_id or blob.key, blob))
        if len(facts) >= BATCH:
            yield facts
            facts = []
    yield facts


async def is_newer_format(log_blobs: BlobStore | None, key: str) -> bool:
    """Whether a log object declares a format or kind that this version does not know."""
    if log_blobs is None:
        return False
    try:
        head = (await log_blobs.get(key, 0, ENTRY_BYTES)).partition(b"\n")[0]
        document = parse_line(head, key)
    except (BlobNotFoundError, LogFormatError):
        return False
    kind, found = document.get("s3k"), document.get("format")
    return isinstance(kind, str) and type(found) is int and found > _NEWEST.get(kind, 0)
