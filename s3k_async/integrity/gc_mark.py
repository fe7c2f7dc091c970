"""The mark phase of gc: finds unreferenced data objects. Writes nothing but the candidate list, a
local file.

The order of the scans makes the result exact: first the data keys, then the table, then the log. An
old object without a reference in the scanned items is either unreferenced, or was moved by an
operation that is in the log by then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, Literal

from s3k_async import _native
from s3k_async._core.concurrency import merge
from s3k_async._native import FactLines, Rows
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore, Unfinished
from s3k_async.backends.ports.items import PARTITION, Item
from s3k_async.backends.ports.key_ranges import (
    HEX,
    KeyRange,
    hex_ranges,
    key_ranges,
    list_range_pages,
)
from s3k_async.errors import (
    ItemFormatError,
    LogFormatError,
    ReadOnlyVolumeError,
    VolumeMismatchError,
)
from s3k_async.integrity.audit import AuditRecord
from s3k_async.integrity.gc_candidates import CandidateWriter, Header
from s3k_async.integrity.gc_rules import PHYSICAL_KEY, Ages, GcFacts, History, KeyOf, Verdict, judge
from s3k_async.integrity.references import (
    SEGMENTS,
    References,
    digest_of,
    names_in,
    need_unlocked,
    scan_segment,
)
from s3k_async.integrity.repair_actions import FsckVolume
from s3k_async.integrity.shuffle import Shuffle, facts_in, from_line, hash_of
from s3k_async.model import Entry, Progress
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import EntryKey, LogRecord, parse_key
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.oplog.log_reader import DamagedLog, Finding, LogReader
from s3k_async.oplog.record_lines import RecordLines
from s3k_async.table.codec import from_item
from s3k_async.txn.upload_items import (
    is_part_partition,
    is_upload_partition,
    upload_from,
    upload_id_of,
)

__all__ = [
    "MOST",
    "CollectedData",
    "MarkFilter",
    "Marked",
    "Marker",
    "ObjectCount",
    "UnfinishedUpload",
    "held_by",
    "is_over",
    "need_collectable",
    "object_of",
    "table_digest",
]

MOST: Final = 10_000

_SCHEMA: Final = (
    (
        "CREATE TABLE unnamed"
        " (key TEXT NOT NULL, object TEXT NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL)"
    ),
    "CREATE TABLE held (object TEXT NOT NULL PRIMARY KEY)",
    "CREATE TABLE uploading (object TEXT NOT NULL PRIMARY KEY)",
)
_SELECT: Final = ("SELECT object FROM held", "SELECT object FROM uploading")
_INDEX_UNNAMED: Final = "CREATE INDEX unnamed_by_object ON unnamed (object)"
_FILTER_BITS: Final = 24
"""The highest bits of a hash by which records of the log are filtered."""


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload to a location of a volume, of a running writer or of a crashed one."""

    location: Literal["data", "log"]
    blobs: BlobStore
    upload: Unfinished

    @property
    def audit_record(self) -> AuditRecord:
        """What the audit trail says before it is aborted."""
        return {"deed": "abort_upload", "key": self.upload.key, "id": self.upload.id}

    async def abort(self) -> None:
        """Abort it: its writer can no longer complete it. Idempotent."""
        await self.blobs.abort_upload(self.upload)


@dataclass(frozen=True, slots=True)
class CollectedData:
    """The data location of a collection, and its owner."""

    store: MetadataStore
    data: BlobStore
    log: BlobStore | None
    """None for a volume without a log."""
    key_of: KeyOf
    volume_id: str
    scoped: bool
    """Whether `data` holds only objects of the volume. If not, objects that its log does not
    reference may belong to another volume."""

    @classmethod
    def of(cls, volume: FsckVolume) -> CollectedData:
        """The data location of an open volume."""
        record = volume.record
        key_of = volume.storage.own_key
        return cls(
            volume.store,
            volume.blobs,
            volume.log_blobs,
            key_of,
            record.volume_id,
            bool(record.scope),
        )

    def ranges(self, count: int) -> list[list[KeyRange]]:
        """The data keys in `count` groups of ranges: all keys of the volume, or all with the form
        of its keys."""
        return key_ranges(count) if self.scoped else hex_ranges(count)

    async def uploads(self, *, shared: bool = False) -> AsyncIterator[UnfinishedUpload]:
        """The unfinished uploads of the volume; those elsewhere in the bucket are foreign.
        `shared`: also those in the data location of a volume without a scope that have the form of
        its keys, and may be another volume's."""
        places: list[tuple[Literal["data", "log"], BlobStore | None]]
        places = [("data", self.data), ("log", self.log)]
        for location, blobs in places:
            if blobs is None:
                continue
            async for upload in blobs.list_uploads():
                is_own = self.scoped or (shared and location == "data")
                if not upload.key or (is_own and PHYSICAL_KEY.fullmatch(upload.key)):
                    yield UnfinishedUpload(location, blobs, upload)


@dataclass(slots=True)
class ObjectCount:
    """A number of objects, and their size in bytes."""

    objects: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.objects += 1
        self.bytes += size


@dataclass(slots=True)
class Marked:
    """The result of the mark phase. `counts` is by reason. Candidates: `deleted`, `replaced`,
    `unpublished`, `unnamed`. Objects that are kept: `named`, `young`, `waiting` (unreferenced for
    less than a grace period), `lost` (live according to the log, without an entry in the table),
    `damaged` (a record or item about them is unreadable), `uploading` (of an open multipart
    upload), `foreign` (not a key of a volume),
    `unowned` (the location may be shared, and the log does not reference them).
    """

    counts: dict[str, ObjectCount] = field(default_factory=dict)
    reservations: list[Entry] = field(default_factory=list)
    """Files whose writers' leases have expired. Of these and of the uploads at most MOST each are
    listed; the next run finds the others."""
    uploads: list[UnfinishedUpload] = field(default_factory=list)
    multipart: set[str] = field(default_factory=set)
    """Ids of multipart uploads of which the table has an item."""
    kept_multipart: set[str] = field(default_factory=set)
    """Those that are open and have not expired, or have an unreadable record."""
    entries: int = 0

    def count(self, reason: str, size: int) -> None:
        self.counts.setdefault(reason, ObjectCount()).add(size)

    def of(self, reason: str) -> ObjectCount:
        """The count for a reason."""
        return self.counts.get(reason, ObjectCount())

    @property
    def over_multipart(self) -> list[str]:
        """Ids of multipart uploads that have expired, or ended and left items; at most MOST."""
        return sorted(self.multipart - self.kept_multipart)[:MOST]


class MarkFilter:
    """The filter of the mark phase: selects and counts the facts that later steps need, which are
    kept in a file or as Spark rows."""

    def __init__(self, place: CollectedData, ages: Ages, now_ms: int) -> None:
        """`now_ms`: the start of the mark phase, by the clock of the data store."""
        self.done = Marked()
        self._place = place
        self._ages = ages
        self._now_ms = now_ms
        self._oldest = now_ms - ages.unpublishable_ms - ages.grace_ms

    def blobs(self, page: Sequence[BlobInfo]) -> FactLines:
        """The data objects that are old enough, without etags; younger ones may belong to an upload
        that is in progress or has just finished."""
        old, others = _native.old_blob_facts(page, self._oldest)
        for place in others:
            blob = page[place]
            is_foreign = PHYSICAL_KEY.fullmatch(blob.key) is None
            self.done.count("foreign" if is_foreign else "young", blob.size)
        return old

    def items(self, page: Sequence[Item]) -> tuple[FactLines, References]:
        """The data keys that ordinary items reference, and what the other items do. Expired
        reservations are noted."""
        keys = self._place.store.keys
        others: Sequence[Item] = ()
        try:
            rows = Rows(page)
        except ItemFormatError:
            rows, others = Rows(()), page
        named, left = _native.named_facts(rows, keys.authority, keys.suffix_count, keys.hash)
        others = others or [page[place] for place in left]
        uploads = [item for item in others if is_upload_partition(str(item[PARTITION]))]
        if uploads:
            others = [item for item in others if not is_upload_partition(str(item[PARTITION]))]
        self.done.entries += len(page) - len(uploads)
        if len(self.done.reservations) < MOST:
            self.done.reservations += [
                entry for item in others if (entry := self._expired(item)) is not None
            ]
        references = names_in(others, self._place.key_of)
        references.uploading = self._uploading(uploads)
        return named, references

    def _uploading(self, items: Iterable[Item]) -> set[str]:
        """The object ids of the open multipart uploads among some of their items, which are
        noted."""
        found = set()
        for item in items:
            identity = upload_id_of(item)
            self.done.multipart.add(identity)
            if is_part_partition(str(item[PARTITION])):
                continue
            try:
                upload = upload_from(item)
            except ItemFormatError:
                found.add(identity)
                self.done.kept_multipart.add(identity)
                continue
            if upload.is_open:
                found.add(identity)
                if upload.expires_ms > self._now_ms:
                    self.done.kept_multipart.add(identity)
        return found

    def history(self, records: Sequence[LogRecord]) -> History:
        """The history of an object id, from all of its log records."""
        return History(records, self._place.key_of)

    def verdict(
        self, blob: BlobInfo, history: History, *, damaged: bool, uploading: bool
    ) -> Verdict | None:
        """The verdict on an unreferenced data object, if it is a candidate; else None. `history`:
        of its object id; `damaged`: whether a record or item of it is unreadable; `uploading`:
        whether it is that of an open multipart upload.
        """
        place = self._place
        logged = place.log is not None
        verdict = judge(GcFacts(blob, history, damaged, self._now_ms, logged, uploading))
        if not verdict.is_deletable:
            self.done.count(verdict.reason, blob.size)
            return None
        if not self._place.scoped and not verdict.operations:
            self.done.count("unowned", blob.size)
            return None
        # A waiting object is a candidate too: a later sweep may delete it.
        waits = verdict.since_ms + self._ages.grace_ms > self._now_ms
        self.done.count("waiting" if waits else verdict.reason, blob.size)
        return verdict

    async def finish(self) -> Marked:
        """The result, with the unfinished uploads that are too old to be published. Raises
        VolumeMismatchError if all entries are missing."""
        lost = self.done.of("lost").objects
        if lost and not self.done.entries:
            raise VolumeMismatchError(
                f"the table is empty, and the log knows of {lost} files with bytes that exist: "
                "restore the table first"
            )
        async for each in self._place.uploads():
            if 0 < each.upload.started_ms < self._oldest and len(self.done.uploads) < MOST:
                self.done.uploads.append(each)
        return self.done

    def _expired(self, item: Item) -> Entry | None:
        if item.get("isdir") or item.get("physcommitted") is not False:
            return None
        try:
            entry = from_item(item, self._place.store.keys)
        except ItemFormatError:
            return None
        return entry if is_over(entry, self._now_ms, self._ages) else None


class Marker:
    """Marks one volume. `directory`: where the temporary file is made, about 200 bytes for each
    object of data."""

    def __init__(
        self,
        place: CollectedData,
        ages: Ages,
        *,
        directory: str | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> None:
        self._place = place
        self._ages = ages
        self._directory = directory
        self._tell = progress or (lambda _: None)

    async def mark(self, path: str) -> Marked:
        """Write the list of candidates to a local file.

        Raises ReadOnlyVolumeError (a volume of S3-FileSystem 1.0, whose writers do not follow these
        rules), BusyError (the volume is being loaded or moved), LogFormatError and ItemFormatError
        (a log object or an item is unreadable, and so is the object that it concerns),
        VolumeMismatchError (the table is empty, the log is not), and the stores' errors.
        """
        place = self._place
        record = await need_collectable(place)
        now_ms = await place.data.now_ms()
        mark_filter = MarkFilter(place, self._ages, now_ms)
        header = Header(place.volume_id, now_ms, self._ages, place.log is not None)
        with (
            closing(Shuffle(parent=self._directory)) as shuffle,
            ExternalSort(self._directory) as sorter,
            CandidateWriter(path, header) as writer,
        ):
            for statement in _SCHEMA:
                sorter.database.execute(statement)
            await self._list(mark_filter, shuffle)
            digest = await self._scan(mark_filter, shuffle, sorter)
            wanted = _take_unnamed(mark_filter, shuffle, sorter)
            if place.log is not None:
                log = LogReader(place.log, has_key=place.store.keys.has)
                await self._read_log(log, wanted, sorter, writer)
            else:
                writer.end.digest = str(digest)
            _judge(mark_filter, sorter, writer)
            writer.end.lost = mark_filter.done.of("lost").objects
            done = await mark_filter.finish()
            await need_unlocked(place.store.items, record)
        return done

    async def _list(self, mark_filter: MarkFilter, shuffle: Shuffle) -> None:
        seen = 0
        ranges = [keys for group in self._place.ranges(len(HEX)) for keys in group]
        async with aclosing(
            merge([list_range_pages(self._place.data, keys) for keys in ranges], limit=len(HEX))
        ) as pages:
            async for page in pages:
                shuffle.add_lines("blobs", mark_filter.blobs(page))
                seen += len(page)
                self._tell(Progress("gc", seen, phase="data", unit="objects"))

    async def _scan(self, mark_filter: MarkFilter, shuffle: Shuffle, sorter: ExternalSort) -> int:
        items = self._place.store.items
        digest = 0
        streams = [scan_segment(items, segment) for segment in range(SEGMENTS)]
        async with aclosing(merge(streams, limit=SEGMENTS)) as pages:
            async for page in pages:
                lines, named = mark_filter.items(page)
                named.need_names()
                shuffle.add_lines("named", lines)
                for key in named.keys:
                    shuffle.add("named", key[-36:], key)
                sorter.many(
                    "INSERT OR IGNORE INTO held VALUES (?)", [(each,) for each in named.unclear]
                )
                sorter.many(
                    "INSERT OR IGNORE INTO uploading VALUES (?)",
                    [(each,) for each in named.uploading],
                )
                if self._place.log is None:
                    digest = (digest + digest_of(page)) % 2**64
                self._tell(Progress("gc", mark_filter.done.entries, phase="table", unit="entries"))
        return digest

    async def _read_log(
        self, log: LogReader, wanted: bytes, sorter: ExternalSort, writer: CandidateWriter
    ) -> None:
        """Read the log records of objects with unreferenced data. Other entries are listed and not
        read. `wanted`: the filter of `_take_unnamed`."""
        for checkpoint in await log.checkpoints.valid():
            writer.checkpoint(checkpoint.key)

        def is_wanted(object_id: str) -> bool:
            query = "SELECT 1 FROM unnamed WHERE object = ? LIMIT 1"
            return sorter.database.execute(query, (object_id,)).fetchone() is not None

        read = 0
        async for part in log.entries(is_wanted):
            self._keep(part.findings, sorter, is_wanted)
            read += 1
            self._tell(Progress("gc", read, phase="log", unit="log objects"))
        async for segment, batch in log.segment_batches():
            for found in batch:
                self._keep(await self._findings(found, wanted), sorter, is_wanted)
            if segment:
                writer.segment(segment)
            read += 1
            self._tell(Progress("gc", read, phase="log", unit="log objects"))
        async for found in log.checkpoints.parts():
            self._keep(await self._findings(found, wanted), sorter, is_wanted)

    async def _findings(
        self, found: Finding | RecordLines, wanted: bytes
    ) -> Sequence[LogRecord | DamagedLog]:
        """What was read, without committed records that the filter excludes."""
        if not isinstance(found, RecordLines):
            return [found]
        keys = self._place.store.keys
        lines = _native.record_facts(found.lines, found.key, keys.authority, keys.suffix_count)
        if lines is None:
            return await found.decode()
        return [from_line("records", line) for line in lines.among(wanted)]

    def _keep(
        self,
        findings: Sequence[LogRecord | DamagedLog],
        sorter: ExternalSort,
        is_wanted: Callable[[str], bool],
    ) -> None:
        records = [
            each
            for each in findings
            if isinstance(each, LogRecord) and is_wanted(each.operation.object_id)
        ]
        sorter.add(records)
        for damage in findings:
            if isinstance(damage, DamagedLog):
                held = held_by(damage.key, damage.error)
                sorter.many("INSERT OR IGNORE INTO held VALUES (?)", [(held,)])


def _take_unnamed(mark_filter: MarkFilter, shuffle: Shuffle, sorter: ExternalSort) -> bytes:
    """Fill the table of the unreferenced data, and count the rest. Returns a filter of their object
    ids, for `FactLines.among`."""
    wanted = bytearray(2**_FILTER_BITS // 8)
    named = ObjectCount()
    for number in range(shuffle.count):
        left, objects, size = _native.unnamed_blobs(
            shuffle.lines("named", number), shuffle.lines("blobs", number)
        )
        named.objects += objects
        named.bytes += size
        rows = [
            (blob.key, object_of(blob), blob.size, blob.mtime_ms)
            for blob in facts_in("blobs", left)
        ]
        sorter.many("INSERT INTO unnamed VALUES (?, ?, ?, ?)", rows)
        for _, object_id, _, _ in rows:
            bit = hash_of(object_id) >> (32 - _FILTER_BITS)
            wanted[bit // 8] |= 1 << bit % 8
    sorter.database.execute(_INDEX_UNNAMED)
    mark_filter.done.counts["named"] = named
    return bytes(wanted)


def _judge(mark_filter: MarkFilter, sorter: ExternalSort, writer: CandidateWriter) -> None:
    """Decide the data of each object, one object after the other."""
    held, uploading = (
        {object_id for (object_id,) in sorter.database.execute(query)} for query in _SELECT
    )
    rows: Iterator[tuple[str, str, int, int]]
    rows = sorter.database.execute(
        "SELECT key, object, size, mtime FROM unnamed ORDER BY object, key"
    )
    for object_id, blobs in groupby(rows, key=itemgetter(1)):
        history = mark_filter.history(sorter.of(object_id))
        for key, _, size, mtime in blobs:
            blob = BlobInfo(key, size, "", mtime)
            verdict = mark_filter.verdict(
                blob, history, damaged=object_id in held, uploading=object_id in uploading
            )
            if verdict is not None:
                writer.candidate(verdict)


async def need_collectable(place: CollectedData) -> Item:
    """The volume's record. Raises ReadOnlyVolumeError for a volume of S3-FileSystem 1.0, whose
    writers do not follow these rules; BusyError.
    """
    if place.store.read_only:
        raise ReadOnlyVolumeError("a volume of S3-FileSystem 1.0 cannot be garbage collected")
    return await need_unlocked(place.store.items)


def object_of(blob: BlobInfo) -> str:
    """The object id in a key of the form that this package uses."""
    return blob.key[-36:]


def is_over(entry: Entry, now_ms: int, ages: Ages) -> bool:
    """Whether an entry is a reservation that its writer can no longer publish."""
    over = 0 < entry.lease_ms < now_ms - int(ages.late * 1000)
    return entry.is_reservation and over and not entry.pending


async def table_digest(place: CollectedData) -> str:
    """The digest of the table as it is now."""
    digest = 0
    streams = [scan_segment(place.store.items, segment) for segment in range(SEGMENTS)]
    async with aclosing(merge(streams, limit=SEGMENTS)) as pages:
        async for page in pages:
            digest = (digest + digest_of(page)) % 2**64
    return str(digest)


def held_by(key: str, problem: object) -> str:
    """The object id of a damaged log entry. Raises LogFormatError for any other damage."""
    try:
        parsed = parse_key(key)
    except LogFormatError:
        parsed = None
    if isinstance(parsed, EntryKey):
        return parsed.object_id
    raise LogFormatError(
        "something in the log cannot be understood, and it may be about any file: repair it first "
        f"({problem})",
        path=key,
    )
