"""The sweep phase of gc: rechecks each candidate and deletes those that are still unreferenced.

docs/design/004-nothing-lost.md shows why no live byte can be deleted; the argument depends on the
order of the reads below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from s3k_async._core.concurrency import gather, run_all
from s3k_async._core.pace import Pace
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.blobs import MAX_DELETION
from s3k_async.backends.ports.items import Item
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import (
    BlobNotFoundError,
    BusyError,
    ConflictError,
    InvalidArgumentError,
    ItemFormatError,
    LogFormatError,
    UploadNotFoundError,
)
from s3k_async.integrity.audit import AuditRecord, AuditTrail
from s3k_async.integrity.gc_candidates import CandidateReader
from s3k_async.integrity.gc_mark import (
    CollectedData,
    Marked,
    Marker,
    ObjectCount,
    UnfinishedUpload,
    is_over,
    need_collectable,
    object_of,
    table_digest,
)
from s3k_async.integrity.gc_rules import Ages, Verdict, named_by
from s3k_async.integrity.references import names_in, need_unlocked, open_transactions
from s3k_async.model import ChangeResult, Entry, Failure, Progress
from s3k_async.oplog.entries import EntryKey, decode, history_prefix, parse_key
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.oplog.log_objects import ENTRY_BYTES, read_object
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.segment_ids import SegmentIds
from s3k_async.txn.upload_records import UploadRecords, open_uploads
from s3k_async.txn.volume_record import RECORD_KEY, UPLOADS, VolumeRecord

__all__ = [
    "BATCH",
    "GarbageCollector",
    "MarkedState",
    "Sweeper",
    "Swept",
]

BATCH = 10_000
"""Candidates that are rechecked and deleted together."""
READS = 32


@dataclass(slots=True)
class Swept:
    """The result of the sweep phase. `deleted` counts by reason; `kept` counts the skipped
    candidates by reason: `waiting`, `named` (referenced by the table after all), `changed`
    (referenced by the log since the mark), `undecided` (may yet be published), `damaged` (the
    verdict does not allow deletion), `uploading` and `unowned` as in `Marked`.
    """

    deleted: dict[str, ObjectCount] = field(default_factory=dict)
    kept: dict[str, ObjectCount] = field(default_factory=dict)
    failures: list[tuple[str, Exception]] = field(default_factory=list)
    """Keys that could not be deleted. The next run finds them again."""
    reservations: int = 0
    uploads: int = 0
    multipart: int = 0
    """Multipart uploads that had expired, or had left items."""

    def keep(self, reason: str, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self.kept.setdefault(reason, ObjectCount()).add(verdict.blob.size)


class GarbageCollector:
    """Collects the garbage of one volume. `exclusive`: the caller guarantees that no other client
    changes the volume meanwhile, which is required for a volume without a log. `rate`: keys a
    second at most.
    """

    def __init__(
        self,
        place: CollectedData,
        runtime: Runtime,
        ages: Ages,
        audit: AuditTrail,
        *,
        exclusive: bool = False,
        rate: float | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> None:
        if place.log is None and not exclusive:
            raise InvalidArgumentError(
                "without a log only the table can tell what is live, and it cannot be read at one "
                "moment: no other client may change the volume meanwhile (exclusive)"
            )
        self._place = place
        self._runtime = runtime
        self._ages = ages
        self._audit = audit
        self._rate = rate
        self._progress = progress
        self._swept = Swept()

    async def mark(self, path: str) -> Marked:
        """As `Marker.mark`."""
        return await Marker(self._place, self._ages, progress=self._progress).mark(path)

    async def sweep(self, path: str) -> Swept:
        """Delete the candidates of a list that are still unreferenced. Repeated after an
        interruption, it resumes.

        Raises InvalidArgumentError (another volume's list), ConflictError (the log was compacted
        since the list was made; without a log, the table changed: mark again), LogFormatError,
        ReadOnlyVolumeError and BusyError as `mark`, BusyError if another sweep of the list is
        running, and the stores' errors. Objects that could not be deleted are in the result.
        """
        place = self._place
        candidates = CandidateReader(path)
        if candidates.header.volume != place.volume_id or candidates.header.logged != (
            place.log is not None
        ):
            raise InvalidArgumentError(
                "the list of candidates belongs to another volume", path=path
            )
        record = await need_collectable(place)
        now_ms = await place.data.now_ms()
        if place.log is None and await table_digest(place) != candidates.end.digest:
            raise ConflictError(
                "the volume was changed since the mark phase; mark again", path=path
            )
        seen = MarkedState(candidates.segments, candidates.checkpoints, candidates.end.lost)
        sweeper = Sweeper(
            place,
            self._runtime,
            self._ages,
            self._audit,
            seen,
            record,
            now_ms,
            rate=self._rate,
            swept=self._swept,
        )
        handled = 0
        with closing(sweeper), candidates.alone():
            for batch in candidates.batches(BATCH):
                await sweeper.sweep(batch)
                candidates.done(len(batch))
                handled += len(batch)
                if self._progress is not None:
                    total = candidates.end.candidates
                    self._progress(Progress("gc", handled, total, phase="sweep", unit="objects"))
        return self._swept

    async def reclaim(
        self, retention: float | None = None, *, dry_run: bool = False
    ) -> ChangeResult:
        """Reclaim the directories in the trash that were deleted more than `retention` seconds ago,
        and delete removal markers. In layout `path` there are none of either. The result lists the
        entries that were kept. `retention`: by default that of the volume when the call begins.
        `dry_run`: change nothing, and count what would be reclaimed. Raises the same errors as
        `mark`.

        The bytes of reclaimed files become garbage: they are deleted after the grace period.
        """
        place = self._place
        item = await need_collectable(place)
        if retention is None:
            record = VolumeRecord.from_item(item, RECORD_KEY.partition)
            retention = record.trash_retention or 0
        return await place.store.layout.trash().collect(
            place.data.now_ms,
            retention_ms=int(retention * 1000),
            dry_run=dry_run,
            progress=self._progress,
        )

    async def clean_up(self, marked: Marked) -> Swept:
        """Remove the reservations that the mark phase found, if they are unchanged, abort the
        uploads, and end multipart uploads that have expired. Their data, of which nothing is known
        here but what the table says, is left to the next run, whose rules read the log."""
        now_ms = await self._place.data.now_ms()
        await self._audit.write(
            [
                {"deed": "remove_reservation", "path": each.path, "id": each.id}
                for each in marked.reservations
            ]
        )
        await run_all(lambda entry: self._reap(entry, now_ms), marked.reservations, limit=READS)
        await self._audit.write([each.audit_record for each in marked.uploads])
        await run_all(self._abort, marked.uploads, limit=READS)
        over = marked.over_multipart
        await self._audit.write([{"deed": "end_upload", "id": each} for each in over])
        await run_all(self._end, over, limit=READS)
        return self._swept

    async def _reap(self, seen: Entry, now_ms: int) -> None:
        store = self._place.store
        current = await store.stored(seen.entry_key)
        if current is None or (current.id, current.version) != (seen.id, seen.version):
            return
        if is_over(current, now_ms, self._ages):
            await store.abandon(store.keys.with_path(current))
            self._swept.reservations += 1

    async def _end(self, upload_id: str) -> None:
        place = self._place
        records = UploadRecords(place.store.items, self._runtime)
        with suppress(ItemFormatError, UploadNotFoundError):
            was_over = await records.end_if_over(upload_id)
            self._swept.multipart += was_over

    async def _abort(self, upload: UnfinishedUpload) -> None:
        await upload.abort()
        self._swept.uploads += 1


@dataclass(frozen=True, slots=True)
class MarkedState:
    """The state of the volume when the candidates were marked."""

    segments: SegmentIds
    """The segments of the log."""
    checkpoints: Collection[str]
    """Keys of the checkpoints of the log."""
    lost: int
    """Files that are in the log and missing from the table."""


class Sweeper:
    """Sweeps candidates batch by batch. Each batch is rechecked independently, so that other
    batches, or the same one, may be swept concurrently.
    """

    def __init__(
        self,
        place: CollectedData,
        runtime: Runtime,
        ages: Ages,
        audit: AuditTrail,
        seen: MarkedState,
        record: Item,
        now_ms: int,
        *,
        rate: float | None = None,
        swept: Swept | None = None,
    ) -> None:
        """`record`: the volume record at the start of the sweep; `now_ms`: the time of that, by the
        clock of the data store. `rate`: keys a second at most. `swept`: the counts to add to.
        """
        self.swept = swept or Swept()
        self._place = place
        self._ages = ages
        self._audit = audit
        self._seen = seen
        self._record = record
        self._now_ms = now_ms
        self._rate = rate
        self._pace = Pace(rate, runtime)
        self._news = None if place.log is None else _News(place, seen)

    def close(self) -> None:
        """Remove temporary files. Idempotent."""
        if self._news is not None:
            self._news.close()

    async def sweep(self, batch: list[Verdict]) -> None:
        """Delete the candidates that are still unreferenced. Raises as `GarbageCollector.sweep`."""
        await need_unlocked(self._place.store.items, self._record)
        grace_ms = self._ages.grace_ms
        # A list by another version of the package may hold unknown verdicts.
        left = self._leave("damaged", batch, lambda verdict: not verdict.is_deletable)
        left = self._leave(
            "waiting", left, lambda verdict: verdict.since_ms + grace_ms > self._now_ms
        )
        if not self._place.scoped:  # a list by an older version may contain them
            left = self._leave("unowned", left, lambda verdict: not verdict.operations)
        # Before the entries and the log are read: an upload that is not open was completed by then,
        # or never will be.
        uploading = await self._uploading(left)
        left = self._leave("uploading", left, lambda verdict: object_of(verdict.blob) in uploading)
        at_work = await open_transactions(self._place.store.items)
        # A table that lacks entries may lack those of pending operations too, and a
        # transaction may yet publish them.
        if self._seen.lost or at_work:
            left = self._leave("undecided", left, lambda verdict: verdict.is_pending)
        # A transaction checks its leases once, and logs its files after all directories are
        # prepared, which may be hours later. Until then nothing references their data.
        if at_work:
            left = self._leave("undecided", left, lambda verdict: not verdict.operations)
        if self._news is not None and left:
            # Twice: to be missed by both readings an entry must move twice, and the second move is
            # news to the log.
            named = await self._named(left) | await self._named(left)
            left = self._leave("named", left, lambda verdict: verdict.blob.key in named)
            changed = await self._news.of(left)
            left = self._leave("changed", left, lambda verdict: verdict.blob.key in changed)
        await self._delete(left)

    def _leave(
        self, reason: str, verdicts: list[Verdict], leaves: Callable[[Verdict], bool]
    ) -> list[Verdict]:
        """The verdicts without the skipped ones, which are counted."""
        kept = [verdict for verdict in verdicts if leaves(verdict)]
        self.swept.keep(reason, kept)
        return [verdict for verdict in verdicts if not leaves(verdict)] if kept else verdicts

    async def _uploading(self, verdicts: list[Verdict]) -> set[str]:
        """The object ids of open multipart uploads among those of the candidates."""
        if UPLOADS not in str(self._record.get("flags", "")).split():
            return set()
        return await open_uploads(
            self._place.store.items, {object_of(verdict.blob) for verdict in verdicts}
        )

    async def _named(self, verdicts: list[Verdict]) -> set[str]:
        """The data keys referenced now by any entry that, according to the log, ever referenced a
        candidate, and those that fsck may yet publish because the reservation still exists.
        """
        store = self._place.store
        paths = {each for verdict in verdicts for each in verdict.paths}
        entry_keys = sorted(filter(store.keys.is_current, paths))
        if not entry_keys:
            return set()
        found = await store.items.get_many(store.keys.keys(entry_keys))
        named = names_in(found.values(), self._place.key_of)
        named.need_names()
        held = named.unclear | {
            str(item.get("id")) for item in found.values() if item.get("physcommitted") is False
        }
        return named.keys | {
            verdict.blob.key for verdict in verdicts if verdict.blob.key[-36:] in held
        }

    async def _delete(self, verdicts: list[Verdict]) -> None:
        await self._audit.write([_audit_record(verdict) for verdict in verdicts])
        step = MAX_DELETION if self._rate is not None else BATCH
        for start in range(0, len(verdicts), step):
            some = verdicts[start : start + step]
            await self._pace.turn(len(some))
            if start or self._rate is not None:
                # A slow deletion must stop when another client locks the volume meanwhile, perhaps
                # to restore it.
                await need_unlocked(self._place.store.items, self._record)
            failures = await self._place.data.delete_many([verdict.blob.key for verdict in some])
            left = {failure.key: failure.error for failure in failures}
            self.swept.failures += left.items()
            for verdict in some:
                if verdict.blob.key not in left:
                    self.swept.deleted.setdefault(verdict.reason, ObjectCount()).add(
                        verdict.blob.size
                    )


def failed_reclamations(reclaimed: ChangeResult | None) -> list[Failure]:
    """The entries of the trash that were kept for another reason than a live transaction; none
    without a trash."""
    kept = () if reclaimed is None else reclaimed.failures
    return [(path, error) for path, error in kept if not isinstance(error, BusyError)]


def _audit_record(verdict: Verdict) -> AuditRecord:
    blob = verdict.blob
    return {
        "deed": "delete",
        "key": blob.key,
        "bytes": blob.size,
        "reason": verdict.reason,
        "paths": verdict.paths,
    }


class _News:
    """The log records that were added since the candidates were marked."""

    def __init__(self, place: CollectedData, seen: MarkedState) -> None:
        assert place.log is not None
        self._log = place.log
        self._reader = LogReader(place.log, has_key=place.store.keys.has)
        self._key_of = place.key_of
        self._segments = SegmentIds(seen.segments)
        self._checkpoints = set(seen.checkpoints)
        self._new = ExternalSort()
        self._new.database.execute("CREATE TABLE named (key TEXT PRIMARY KEY) WITHOUT ROWID")

    def close(self) -> None:
        """Remove the temporary file, which holds the keys that new segments reference.
        Idempotent."""
        self._new.close()

    async def of(self, verdicts: list[Verdict]) -> set[str]:
        """The candidates that new operations reference. Segments are read before entries, since a
        slow operation moves from the segment of its group to an entry; and both before checkpoints,
        so that a concurrent compaction is detected."""
        async for part in self._reader.segments(without=self._segments):
            if len(part.records) != len(part.findings):
                raise LogFormatError(
                    "a segment of the log cannot be understood; repair it first", path=part.keys[0]
                )
            self._segments.add(part.segment)
            named = named_by([record.operation for record in part.records], self._key_of)
            self._new.many("INSERT OR IGNORE INTO named VALUES (?)", [(key,) for key in named])
        found = await gather(self._by_entries, verdicts, limit=READS)
        changed = {
            verdict.blob.key for verdict, is_new in zip(verdicts, found, strict=True) if is_new
        }
        manifests: Collection[str] = [each.key for each in await self._reader.checkpoints.valid()]
        if not set(manifests) <= self._checkpoints:
            raise ConflictError("the log was compacted since the mark phase; mark again")
        return changed | {
            verdict.blob.key for verdict in verdicts if self._is_named(verdict.blob.key)
        }

    def _is_named(self, key: str) -> bool:
        found = self._new.database.execute("SELECT 1 FROM named WHERE key = ?", (key,))
        return found.fetchone() is not None

    async def _by_entries(self, verdict: Verdict) -> bool:
        """Whether a new log entry references a candidate, or is unreadable. Each change increments
        the version by one, so later versions cannot appear first."""
        known = set(verdict.operations)
        last = max((version for version, _ in known), default=None)
        async for info in list_all(self._log, history_prefix(verdict.blob.key[-36:])):
            try:
                key = parse_key(info.key)
            except LogFormatError:
                return True
            assert isinstance(key, EntryKey)
            if (key.version, key.operation_id) in known or (
                last is not None and key.version > last + 1
            ):
                continue
            try:
                operation = decode(
                    await read_object(self._log, info.key, ENTRY_BYTES), info.key
                ).operation
            except BlobNotFoundError:
                continue
            except LogFormatError:
                return True
            if verdict.blob.key in named_by([operation], self._key_of):
                return True
        return False
