"""*Mark*: which bytes nobody names. Nothing is changed but for the list of candidates, a local file.

The order is what makes it exact: first the data keys, then the table, then the log. What is old enough, and was named
by no item that was scanned, has either been moved by an operation that is in the log by now, or is not named.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from s3k_async.concurrency import merge
from s3k_async.errors import ItemFormatError, LogFormatError, ReadOnlyVolumeError, VolumeMismatchError
from s3k_async.fsck.candidates import CandidateWriter, Header
from s3k_async.fsck.naming import SEGMENTS, digest_of, names_in, need_settled, scan_segment
from s3k_async.fsck.verdicts import PHYSICAL_KEY, Ages, Case, KeyOf, Verdict, judge
from s3k_async.metadata.codec import from_item
from s3k_async.metadata.store import MetadataStore
from s3k_async.model import Entry, Progress
from s3k_async.oplog.entries import EntryKey, LogRecord, parse_key
from s3k_async.oplog.reader import DamagedLog, LogReader
from s3k_async.oplog.spill import Spill
from s3k_async.stores.blobs import BlobInfo, BlobStore, Unfinished
from s3k_async.stores.items import Item

__all__ = ["Count", "Marked", "Marker", "Place", "is_over", "table_digest"]

HEX: Final = "0123456789abcdef"
"""What physical keys begin with: each prefix is listed by itself, at the same time as the others."""

MOST: Final = 10_000

_SCHEMA: Final = (
    "CREATE TABLE listed (key TEXT NOT NULL, object TEXT NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL)",
    "CREATE TABLE named (key TEXT NOT NULL)",
    "CREATE TABLE held (object TEXT NOT NULL PRIMARY KEY)",
)
_INDEX_NAMED: Final = "CREATE INDEX by_key ON named (key)"
_UNNAMED: Final = (
    "CREATE TABLE unnamed AS SELECT key, object, size, mtime FROM listed WHERE key NOT IN (SELECT key FROM named)"
)
_INDEX_UNNAMED: Final = "CREATE INDEX unnamed_by_object ON unnamed (object)"


@dataclass(frozen=True, slots=True)
class Place:
    """What is collected from, and whom it belongs to."""

    store: MetadataStore
    data: BlobStore
    log: BlobStore | None
    """None for a volume without a log."""
    key_of: KeyOf
    volume_id: str


@dataclass(slots=True)
class Count:
    """How many things, and their size."""

    objects: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.objects += 1
        self.bytes += size


@dataclass(slots=True)
class Marked:
    """What mark found. `counts` is by reason: of the bytes that can go `deleted`, `replaced`, `unpublished`, `unnamed`;
    of those that stay `named`, `young`, `waiting` (nobody names them, but not for a grace period yet), `lost` (the log
    says that they are live, the table has no entry), `damaged` (something about them cannot be understood), `foreign`.
    """

    counts: dict[str, Count] = field(default_factory=dict)
    reservations: list[Entry] = field(default_factory=list)
    """Files whose writers have had their time; of these and of the uploads MOST, the next run finds the others."""
    uploads: list[tuple[BlobStore, Unfinished]] = field(default_factory=list)
    entries: int = 0

    def count(self, reason: str, size: int) -> None:
        self.counts.setdefault(reason, Count()).add(size)

    def of(self, reason: str) -> Count:
        """The count for a reason."""
        return self.counts.get(reason, Count())


class Marker:
    """Marks one volume. `directory`: where the temporary file is made, about 200 bytes for each object of data."""

    def __init__(
        self,
        place: Place,
        ages: Ages,
        *,
        directory: str | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> None:
        self._place = place
        self._ages = ages
        self._directory = directory
        self._tell = progress or (lambda _: None)
        self._now_ms = 0
        self._done = Marked()

    async def mark(self, path: str) -> Marked:
        """Write the list of candidates to a local file.

        Raises ReadOnlyVolumeError (a volume of S3-FileSystem 1.0, whose writers keep none of our rules), BusyError (the
        volume is being loaded or moved), LogFormatError (something in the log cannot be understood, and nobody knows
        what it is about), VolumeMismatchError (the table is empty, the log is not), and the stores' errors.
        """
        place, done = self._place, self._done
        if place.store.read_only:
            raise ReadOnlyVolumeError("a volume of S3-FileSystem 1.0 is not collected")
        record = await need_settled(place.store.items)
        self._now_ms = await place.data.now_ms()
        header = Header(place.volume_id, self._now_ms, self._ages, place.log is not None)
        with Spill(self._directory) as spill, CandidateWriter(path, header) as writer:
            for statement in _SCHEMA:
                spill.database.execute(statement)
            await self._list(spill)
            digest = await self._scan(spill)
            for statement in (_INDEX_NAMED, _UNNAMED, _INDEX_UNNAMED):
                spill.database.execute(statement)
            if place.log is not None:
                await self._read_log(LogReader(place.log), spill, writer)
            else:
                writer.end.digest = str(digest)
            self._judge(spill, writer)
            writer.end.lost = done.of("lost").objects
            if done.of("lost").objects and not done.entries:
                raise VolumeMismatchError(
                    f"the table is empty, and the log knows of {done.of('lost').objects} files with bytes that exist:"
                    " restore the table first"
                )
            await self._find_uploads()
            await need_settled(place.store.items, record)
        return done

    async def _list(self, spill: Spill) -> None:
        """The data keys that are old enough; what is young may be an upload under way, or have been one just now."""
        oldest = self._now_ms - self._ages.unpublishable_ms - self._ages.grace_ms
        seen = 0
        async with aclosing(merge([_pages(self._place.data, digit) for digit in HEX], limit=len(HEX))) as pages:
            async for page in pages:
                rows: list[Any] = []
                for blob in page:
                    found = PHYSICAL_KEY.fullmatch(blob.key)
                    if found is None:
                        self._done.count("foreign", blob.size)
                    elif blob.mtime_ms >= oldest:
                        self._done.count("young", blob.size)
                    else:
                        rows.append((blob.key, found[1], blob.size, blob.mtime_ms))
                spill.many("INSERT INTO listed VALUES (?, ?, ?, ?)", rows)
                seen += len(page)
                self._tell(Progress("gc", seen, path="data"))

    async def _scan(self, spill: Spill) -> int:
        """What the table names, and reservations whose writers have had their time."""
        items = self._place.store.items
        digest = 0
        streams = [scan_segment(items, segment) for segment in range(SEGMENTS)]
        async with aclosing(merge(streams, limit=SEGMENTS)) as pages:
            async for page in pages:
                named = names_in(page, self._place.key_of)
                spill.many("INSERT INTO named VALUES (?)", [(key,) for key in named.keys])
                spill.many("INSERT OR IGNORE INTO held VALUES (?)", [(each,) for each in named.unclear])
                if len(self._done.reservations) < MOST:
                    self._done.reservations += [entry for item in page if (entry := self._expired(item)) is not None]
                self._done.entries += len(page)
                if self._place.log is None:
                    digest = (digest + digest_of(page)) % 2**64
                self._tell(Progress("gc", self._done.entries, path="table"))
        return digest

    def _expired(self, item: Item) -> Entry | None:
        if item.get("isdir") or item.get("physcommitted") is not False:
            return None
        try:
            entry = from_item(item, self._place.store.keys)
        except ItemFormatError:
            return None
        return entry if is_over(entry, self._now_ms, self._ages) else None

    async def _read_log(self, log: LogReader, spill: Spill, writer: CandidateWriter) -> None:
        """What the log says of the objects whose bytes were not named. Other entries are listed and not read."""
        for checkpoint in await log.checkpoints.valid():
            writer.checkpoint(checkpoint.key)

        def is_wanted(object_id: str) -> bool:
            query = "SELECT 1 FROM unnamed WHERE object = ? LIMIT 1"
            return spill.database.execute(query, (object_id,)).fetchone() is not None

        read = 0
        for stream in (log.entries(is_wanted), log.segments()):
            async for part in stream:
                self._keep(part.findings, spill, is_wanted)
                if part.segment:
                    writer.segment(part.segment)
                read += 1
                self._tell(Progress("gc", read, path="log"))
        async for finding in log.checkpoints.records():
            self._keep([finding], spill, is_wanted)

    def _keep(self, findings: Sequence[LogRecord | DamagedLog], spill: Spill, is_wanted: Callable[[str], bool]) -> None:
        records = [each for each in findings if isinstance(each, LogRecord) and is_wanted(each.operation.object_id)]
        spill.add(records)
        for damage in findings:
            if isinstance(damage, DamagedLog):
                spill.many("INSERT OR IGNORE INTO held VALUES (?)", [(_object_of(damage),)])

    def _judge(self, spill: Spill, writer: CandidateWriter) -> None:
        """Decide each object's bytes, one object after the other."""
        done = self._done
        held = {object_id for (object_id,) in spill.database.execute("SELECT object FROM held")}
        done.counts["named"] = Count(
            *spill.database.execute(
                "SELECT count(*), coalesce(sum(size), 0) FROM listed WHERE key IN (SELECT key FROM named)"
            ).fetchone()
        )
        rows: Iterator[tuple[str, str, int, int]]
        rows = spill.database.execute("SELECT key, object, size, mtime FROM unnamed ORDER BY object, key")
        for key, object_id, size, mtime in rows:
            blob = BlobInfo(key, size, "", mtime)
            verdict = self._verdict(blob, spill.of(object_id), damaged=object_id in held)
            if not verdict.is_dead:
                done.count(verdict.reason, size)
                continue
            # One that waits is a candidate too: a sweep that comes later may take it.
            waits = verdict.since_ms + self._ages.grace_ms > self._now_ms
            done.count("waiting" if waits else verdict.reason, size)
            writer.candidate(verdict)

    def _verdict(self, blob: BlobInfo, records: list[LogRecord], *, damaged: bool) -> Verdict:
        if self._place.log is None and not damaged:
            return Verdict(blob, "unnamed", self._now_ms, False, (), ())
        return judge(Case(blob, records, damaged, self._place.key_of))

    async def _find_uploads(self) -> None:
        """Unfinished uploads that are too old to be published; elsewhere in a bucket they are others'."""
        oldest = self._now_ms - self._ages.unpublishable_ms - self._ages.grace_ms
        for blobs in (self._place.data, self._place.log):
            if blobs is None:
                continue
            async for upload in blobs.list_uploads():
                ours = not upload.key or PHYSICAL_KEY.fullmatch(upload.key) is not None
                if ours and 0 < upload.started_ms < oldest and len(self._done.uploads) < MOST:
                    self._done.uploads.append((blobs, upload))


def is_over(entry: Entry, now_ms: int, ages: Ages) -> bool:
    """Whether an entry is a reservation that its writer can make nothing of any more."""
    over = 0 < entry.lease_ms < now_ms - int(ages.late * 1000)
    return entry.is_reservation and over and not entry.pending


async def table_digest(place: Place) -> str:
    """The digest of the table as it is now."""
    digest = 0
    streams = [scan_segment(place.store.items, segment) for segment in range(SEGMENTS)]
    async with aclosing(merge(streams, limit=SEGMENTS)) as pages:
        async for page in pages:
            digest = (digest + digest_of(page)) % 2**64
    return str(digest)


async def _pages(blobs: BlobStore, prefix: str) -> AsyncIterator[list[BlobInfo]]:
    cursor: str | None = None
    while True:
        page = await blobs.list(prefix, cursor=cursor)
        yield list(page.blobs)
        cursor = page.next
        if cursor is None:
            return


def _object_of(damage: DamagedLog) -> str:
    """The object that a damaged entry is about. Raises LogFormatError for anything else that is damaged."""
    try:
        key = parse_key(damage.key)
    except LogFormatError:
        key = None
    if isinstance(key, EntryKey):
        return key.object_id
    raise LogFormatError(
        f"something in the log cannot be understood, and it may be about any file: mend it first ({damage.error})",
        path=damage.key,
    )
