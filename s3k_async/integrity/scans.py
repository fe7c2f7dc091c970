"""The scans of fsck in splits that any process can read: the facts of a split, as input of the
shuffle.

A split is a scan segment of the table, a part of the log, or ranges of data keys. Facts without an
object id are kept apart. Ordinary items, committed operations and data objects become lines of the
shuffle in the native core, without a Python object for each; everything else is read one by one.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from s3k_async import _native
from s3k_async._core.concurrency import run_all
from s3k_async._native import FactLines, Rows
from s3k_async.backends.ports.blobs import BlobInfo, BlobPage, BlobStore
from s3k_async.backends.ports.items import PARTITION, SORT, Item, Key
from s3k_async.backends.ports.key_ranges import KeyRange, list_range_pages
from s3k_async.errors import BlobChangedError, BlobNotFoundError, ItemFormatError, LogFormatError
from s3k_async.integrity.facts import (
    CopyFacts,
    ItemFacts,
    LogObjectFacts,
    OpenSegment,
    adopted_by,
    objects_of,
)
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.shuffle import FactKind
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.due_items import check_lifecycle_item, is_rule_partition
from s3k_async.namespace.metadata_index import META_PREFIX
from s3k_async.oplog.checkpoints import FORMAT as CHECKPOINT_FORMAT
from s3k_async.oplog.entries import FORMAT as ENTRY_FORMAT
from s3k_async.oplog.entries import is_id, parse_line, pending_segment
from s3k_async.oplog.log_objects import ENTRY_BYTES
from s3k_async.oplog.log_reader import DamagedLog, Finding, LogReader
from s3k_async.oplog.record_lines import RecordLines
from s3k_async.oplog.segments import FORMAT as SEGMENT_FORMAT
from s3k_async.storage.object_copies import same_bytes
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.table.codec import from_item, from_items
from s3k_async.table.keys import is_entry_partition
from s3k_async.txn.bucket_counters import is_counter_partition
from s3k_async.txn.txn_record import PART_SEPARATOR, TRANSACTION_PARTITION, record_from
from s3k_async.txn.upload_items import check_upload_item, is_upload_partition

__all__ = [
    "FactPage",
    "FactRecord",
    "blob_facts",
    "checked_entry",
    "is_newer_format",
    "log_facts",
    "table_facts",
]

FactRecord: TypeAlias = tuple[FactKind, str, Any]
"""A kind, the shuffle key of a fact, and the fact."""


@dataclass(slots=True)
class FactPage:
    """Some facts of a scan."""

    facts: list[FactRecord] = field(default_factory=list)
    lines: list[tuple[FactKind, FactLines]] = field(default_factory=list)
    """Facts that are lines already."""

    def __len__(self) -> int:
        return len(self.facts) + sum(len(lines) for _, lines in self.lines)


COMPARED_AT_ONCE: Final = 8
"""Objects that are read and compared at the same time,"""
READ_BYTES: Final = 8 * 1024 * 1024
"""and bytes of each that are read at once."""
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
) -> AsyncIterator[FactPage]:
    """The facts of one scan segment of the table, page by page, added to the counts. Raises the
    store's errors."""
    async for items in scope.check.pages(scope.path, segment, segments):
        page = FactPage()
        rest = (
            items
            if scope.is_legacy or scope.path != ROOT
            else _ordinary(scope, items, page, counts)
        )
        page.facts += _of_items(scope, rest, counts)
        yield page


def _ordinary(
    scope: Scope, items: Sequence[Item], page: FactPage, counts: ScanCounts
) -> Sequence[Item]:
    """Add the facts of the ordinary entries among items to a page and to the counts. Returns the
    other items."""
    keys, check = scope.store.keys, scope.check
    try:
        rows = Rows(items)
    except ItemFormatError:
        return items
    found = _native.entry_facts(
        rows, keys.authority, keys.suffix_count, keys.hash, set(check.roots), check.by_id
    )
    files, directories, reservations, size = found.totals
    counts.files += files
    counts.directories += directories
    counts.reservations += reservations
    counts.bytes += size
    page.lines += [
        ("entries", found.entries),
        ("directories", found.directories),
        ("children", found.children),
    ]
    return [items[place] for place in found.others]


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
    is_upload = is_upload_partition(partition) and not scope.is_legacy
    is_rule = is_rule_partition(partition) and not scope.is_legacy
    is_record = partition == TRANSACTION_PARTITION and PART_SEPARATOR not in sort
    if is_upload or is_rule or is_record:
        try:
            if is_upload:
                check_upload_item(item)
            elif is_rule:
                check_lifecycle_item(item)
            else:
                facts.append(("jobs", "", record_from(item)))
        except ItemFormatError as error:
            facts.append(
                ("items", "", ItemFacts(partition, sort, is_foreign=False, problem=str(error)))
            )
    elif not _is_record(partition) and not (scope.is_legacy and is_entry_partition(partition)):
        facts.append(("items", "", ItemFacts(partition, sort, is_foreign=True, problem="")))
    return False


def _is_record(partition: str) -> bool:
    """Whether a partition holds records of the volume: they are no entries, and not foreign."""
    is_index = partition.startswith(META_PREFIX) or is_counter_partition(partition)
    return partition in OWN_PARTITIONS or is_index


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
        adopted = [uri for uri, _ in adopted_by(entry) if not scope.is_elsewhere(uri)]
        keys = [scope.key_of(uri) for uri in adopted]
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
    scope: Scope, found: AsyncIterable[Finding | RecordLines], counts: ScanCounts
) -> AsyncIterator[FactPage]:
    """The facts of some records of the log, added to the counts. Raises the store's errors."""
    page = FactPage()
    open_segments: dict[str, OpenSegment] = {}
    keys = scope.store.keys
    async for each in found:
        findings: Iterable[Finding]
        if isinstance(each, RecordLines):
            lines = _native.record_facts(each.lines, each.key, keys.authority, keys.suffix_count)
            if lines is not None:
                counts.log_records += len(lines)
                page.lines.append(("records", lines))
            findings = await each.decode() if lines is None else ()
        else:
            findings = (each,)
        for finding in findings:
            page.facts.append(await _of_finding(scope, finding, open_segments, counts))
        if len(page) >= BATCH:
            yield page
            page = FactPage()
    page.facts += [("segments", "", segment) for segment in open_segments.values()]
    yield page


async def _of_finding(
    scope: Scope, finding: Finding, open_segments: dict[str, OpenSegment], counts: ScanCounts
) -> FactRecord:
    """The fact of a record or of damage; an operation of an open segment is counted there."""
    if isinstance(finding, DamagedLog):
        newer = await is_newer_format(scope.log_blobs, finding.key)
        return "log_objects", "", LogObjectFacts(finding.key, str(finding.error), newer)
    counts.log_records += 1
    segment = pending_segment(finding.key) if finding.state == "pending" else ""
    if segment:
        known = open_segments.get(segment, OpenSegment(segment, 0, 0))
        newest_ms = max(known.newest_ms, finding.operation.time_ms)
        open_segments[segment] = OpenSegment(segment, known.operations + 1, newest_ms)
    return "records", finding.operation.object_id, finding


async def blob_facts(scope: Scope, keys: KeyRange, counts: ScanCounts) -> AsyncIterator[FactPage]:
    """The facts of the data objects in a range of keys, page by page, added to the counts. Raises
    the store's errors."""
    tiers = _DoubledBlobs(scope.blobs) if isinstance(scope.blobs, TieredBlobs) else None
    async for listed in list_range_pages(tiers or scope.blobs, keys):
        blobs = listed
        if scope.is_legacy:
            blobs = [blob for blob in listed if not _is_java_log(blob)]
        counts.blobs += len(blobs)
        counts.blob_bytes += sum(blob.size for blob in blobs)
        lines, others = _native.blob_facts(blobs)
        facts: list[FactRecord] = [
            ("blobs", _native.object_id_of(blob.key) or blob.key, blob)
            for blob in map(blobs.__getitem__, others)
        ]
        if tiers is not None:
            facts += await _copy_facts(scope, tiers.taken(listed))
        yield FactPage(facts, [("blobs", lines)])


class _DoubledBlobs(TieredBlobs):
    """The blobs of both locations, whose listing records those that are in both."""

    def __init__(self, blobs: TieredBlobs) -> None:
        super().__init__(blobs.hot, blobs.cold)
        self._doubled: dict[str, tuple[BlobInfo, BlobInfo]] = {}

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        found = await self.list_both(prefix, cursor=cursor, limit=limit, after=after)
        self._doubled |= {hot.key: (hot, cold) for hot, cold in found.doubled}
        return found.page

    def taken(self, listed: Sequence[BlobInfo]) -> Sequence[tuple[BlobInfo, BlobInfo]]:
        """Those among the blobs that a listing has yielded, hot and cold. It may have read more
        than is in its range."""
        found = (self._doubled.pop(blob.key, None) for blob in listed)
        return [each for each in found if each is not None]


async def _copy_facts(
    scope: Scope, doubled: Sequence[tuple[BlobInfo, BlobInfo]]
) -> list[FactRecord]:
    """The facts about objects in both locations whose sizes, or in a deep scan bytes, differ."""
    found: list[FactRecord] = []

    async def compare(both: tuple[BlobInfo, BlobInfo]) -> None:
        hot, cold = both
        object_id = _native.object_id_of(hot.key)
        is_same = hot.size == cold.size and not (
            scope.deep and await _have_other_bytes(scope.blobs, hot)
        )
        if object_id is not None and not is_same:
            found.append(("copies", object_id, CopyFacts(hot.key, hot.size, cold.size)))

    await run_all(compare, doubled, limit=COMPARED_AT_ONCE)
    return found


async def _have_other_bytes(blobs: BlobStore, info: BlobInfo) -> bool:
    """Whether the bytes in the two locations differ. False also if one has lost the object in the
    meantime."""
    assert isinstance(blobs, TieredBlobs)
    try:
        return not await same_bytes(blobs.hot, blobs.cold, info.key, info.size, READ_BYTES)
    except (BlobNotFoundError, BlobChangedError):
        return False


def _is_java_log(blob: BlobInfo) -> bool:
    return blob.key.endswith(JAVA_LOG_SUFFIX) and _native.object_id_of(blob.key) is None


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
