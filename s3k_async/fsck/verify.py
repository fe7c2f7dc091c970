"""`fsck verify` on one machine: read everything, decide, and look again at whatever seems wrong.

Table, log and bytes cannot be read at one moment, so they are read in the order in which a change reaches them last:
table, log, bytes. What was changed meanwhile is then young in the log. What still looks wrong is read anew before it
is reported. Nothing is written. Memory grows with the number of objects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from s3k_async import _native
from s3k_async.concurrency import merge, run_all
from s3k_async.errors import BlobNotFoundError, ItemFormatError
from s3k_async.fsck.decide import Facts, Finding, decide
from s3k_async.metadata.codec import from_item
from s3k_async.metadata.keys import ENTRY_PREFIX
from s3k_async.metadata.store import MetadataStore
from s3k_async.model import ROOT, UNCOMMITTED, Entry, Progress
from s3k_async.oplog.reader import DamagedLog, JavaLogReader, LogReader, Truth, latest
from s3k_async.sources import Sources
from s3k_async.stores.blobs import BlobInfo, BlobStore
from s3k_async.stores.items import PARTITION, SORT, Item

__all__ = ["GRACE_SECONDS", "Report", "Verifier"]

GRACE_SECONDS = 300.0
"""What is younger may be under way and is not reported."""
SEGMENTS = 4
READS = 16
CHUNK = 8 * 1024 * 1024
HEX = "0123456789abcdef"
JAVA_LOG_SUFFIX = ".info"
"""S3-FileSystem 1.0 keeps its log among the data."""
OWN_PARTITIONS = frozenset({"s3k:volume", "s3k:job"})


@dataclass(slots=True)
class Report:
    """What verify counted and found."""

    files: int = 0
    directories: int = 0
    reservations: int = 0
    bytes: int = 0
    log_records: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def problems(self) -> list[Finding]:
        """The findings that need repair."""
        return [finding for finding in self.findings if finding.is_problem]

    @property
    def clean(self) -> bool:
        """Whether nothing needs repair."""
        return not self.problems


@dataclass(slots=True)
class _Seen:
    """What the scans have found."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    truths: dict[str, Truth] = field(default_factory=dict)
    blobs: dict[str, list[BlobInfo]] = field(default_factory=dict)


class Verifier:
    """Compares table, log and bytes of one volume, or of a subtree of it.

    `log` is None for a volume without one. With a `path` other than the root, entries outside it are passed over, and
    so are bytes that nobody names (whose they are cannot be told).
    """

    def __init__(
        self,
        store: MetadataStore,
        blobs: BlobStore,
        log: LogReader | JavaLogReader | None,
        sources: Sources,
        *,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._log = log
        self._sources = sources
        self._grace_ms = int(grace * 1000)
        self._now_ms = 0

    async def verify(
        self, path: str = ROOT, *, deep: bool = False, progress: Callable[[Progress], object] | None = None
    ) -> Report:
        """Read all three and report; `deep` reads every byte too and compares checksums.

        Raises the stores' errors; damage is a finding, never an error.
        """
        self._now_ms = self._sources.now_ms()
        report, seen = Report(), _Seen()
        tell = progress or (lambda _: None)
        await self._scan_table(seen, report, path)
        tell(Progress("fsck", report.files + report.directories, path="table"))
        await self._scan_log(seen, report)
        tell(Progress("fsck", report.log_records, path="log"))
        await self._scan_blobs(seen, report)
        tell(Progress("fsck", report.blobs, path="data"))
        await self._decide(seen, self._ids(seen, path), report)
        report.findings += await self._parents(seen)
        report.findings += await self._marks(seen)
        if deep:
            files = [entry for entries in seen.entries.values() for entry in entries if entry.checksum]
            await run_all(lambda entry: self._read_bytes(entry, report), files, limit=READS)
        return report

    async def _decide(self, seen: _Seen, ids: list[str], report: Report) -> None:
        first = {object_id: decide(self._facts(object_id, seen)) for object_id in ids}
        suspects = [object_id for object_id, found in first.items() if any(finding.is_problem for finding in found)]
        again = await self._look_again(suspects, seen)
        for object_id in suspects:
            first[object_id] = decide(self._facts(object_id, again))
        report.findings += [finding for found in first.values() for finding in found]

    def _ids(self, seen: _Seen, path: str) -> list[str]:
        if path == ROOT:
            return sorted(seen.entries.keys() | seen.truths.keys() | seen.blobs.keys())

        def is_below(truth: Truth) -> bool:
            state = truth.committed.operation.after if truth.committed else None
            return state is not None and (state.path == path or state.path.startswith(path + "/"))

        return sorted(seen.entries.keys() | {object_id for object_id, truth in seen.truths.items() if is_below(truth)})

    async def _scan_table(self, seen: _Seen, report: Report, path: str) -> None:
        below = ROOT if path == ROOT else path + "/"
        async for items in merge([self._segment(segment) for segment in range(SEGMENTS)], limit=SEGMENTS):
            for item in items:
                partition = str(item[PARTITION])
                if partition in OWN_PARTITIONS:
                    continue
                where = f"{partition} / {item[SORT]}"
                if not partition.startswith(ENTRY_PREFIX):
                    report.findings.append(Finding("foreign_item", "not an item of this volume", key=where))
                    continue
                try:
                    entry = from_item(item, self._store.keys)
                except ItemFormatError as error:
                    report.findings.append(Finding("item_damaged", str(error), key=where))
                    continue
                if self._store.keys.key(entry.path) != (partition, item[SORT]):
                    report.findings.append(
                        Finding("item_damaged", "the name does not belong to this suffix", key=where)
                    )
                elif entry.path == path or entry.path.startswith(below):
                    self._count(entry, seen, report)

    def _count(self, entry: Entry, seen: _Seen, report: Report) -> None:
        seen.entries.setdefault(entry.id, []).append(entry)
        if entry.is_dir:
            seen.directories.add(entry.path)
            report.directories += 1
        elif entry.committed:
            report.files += 1
            report.bytes += entry.size
        else:
            report.reservations += 1

    async def _segment(self, segment: int) -> AsyncIterator[list[Item]]:
        cursor: str | None = None
        while True:
            page = await self._store.items.scan(segment, SEGMENTS, cursor=cursor)
            yield list(page.items)
            if page.next is None:
                return
            cursor = page.next

    async def _scan_log(self, seen: _Seen, report: Report) -> None:
        if self._log is None:
            return
        records = []
        async for record in self._log.records():
            if isinstance(record, DamagedLog):
                report.findings.append(Finding("log_damaged", str(record.error), key=record.key))
            else:
                records.append(record)
        report.log_records = len(records)
        seen.truths = latest(records)

    async def _scan_blobs(self, seen: _Seen, report: Report) -> None:
        async for blob in merge([self._blobs.list_all(digit) for digit in HEX], limit=len(HEX)):
            object_id = _native.object_id_of(blob.key)
            if object_id is None and isinstance(self._log, JavaLogReader) and blob.key.endswith(JAVA_LOG_SUFFIX):
                continue
            report.blobs += 1
            report.blob_bytes += blob.size
            seen.blobs.setdefault(object_id or blob.key, []).append(blob)

    def _facts(self, object_id: str, seen: _Seen) -> Facts:
        entries = seen.entries.get(object_id, [])
        binary = isinstance(self._log, JavaLogReader)
        is_dir = bool(entries) and entries[0].is_dir
        return Facts(
            object_id=object_id,
            now_ms=self._now_ms,
            grace_ms=self._grace_ms,
            entries=entries,
            truth=seen.truths.get(object_id),
            blobs=seen.blobs.get(object_id, []),
            logged=self._log is not None and not (binary and is_dir),
            binary_log=binary,
        )

    async def _look_again(self, suspects: list[str], seen: _Seen) -> _Seen:
        """Read anew, in the same order, everything about the objects that looked wrong."""
        fresh = _Seen()
        if not suspects:
            return fresh
        paths = {object_id: sorted(self._paths(object_id, seen)) for object_id in suspects}
        for entry in await self._entries({path for some in paths.values() for path in some} - {ROOT}):
            fresh.entries.setdefault(entry.id, []).append(entry)
        if self._log is not None:
            wanted = set(suspects)
            fresh.truths = latest(
                [
                    record
                    async for record in self._log.records()
                    if not isinstance(record, DamagedLog) and record.operation.object_id in wanted
                ]
            )
        await run_all(lambda object_id: self._heads(object_id, seen, fresh), suspects, limit=READS)
        return fresh

    async def _entries(self, paths: set[str]) -> list[Entry]:
        """The entries at the paths, passing over items that cannot be understood: the scan has reported those."""
        entries = []
        for item in (await self._store.items.get_many(self._store.keys.keys(sorted(paths)))).values():
            with suppress(ItemFormatError):
                entries.append(from_item(item, self._store.keys))
        return entries

    @staticmethod
    def _paths(object_id: str, seen: _Seen) -> set[str]:
        paths = {entry.path for entry in seen.entries.get(object_id, [])}
        truth = seen.truths.get(object_id)
        if truth is not None:
            records = [*truth.pending, *truth.conflict, *([truth.committed] if truth.committed else [])]
            for record in records:
                paths |= {state.path for state in (record.operation.before, record.operation.after) if state}
        return paths

    async def _heads(self, object_id: str, seen: _Seen, fresh: _Seen) -> None:
        keys = {blob.key for blob in seen.blobs.get(object_id, [])}
        for entry in fresh.entries.get(object_id, []):
            if entry.physical and entry.physical != UNCOMMITTED:
                keys.add(self._key(entry.physical))
        for key in sorted(keys):
            blob = await self._blobs.head(key)
            if blob is not None:
                fresh.blobs.setdefault(object_id, []).append(blob)

    async def _read_bytes(self, entry: Entry, report: Report) -> None:
        digest = _native.Xxh3_128()
        try:
            for start in range(0, entry.size, CHUNK):
                digest.update(await self._blobs.get(self._key(str(entry.physical)), start, start + CHUNK))
        except BlobNotFoundError:
            return
        found = f"xxh128:{digest.hexdigest()}"
        if found != entry.checksum:
            detail = f"the bytes are {found}, the entry says {entry.checksum}"
            report.findings.append(Finding("checksum_mismatch", detail, entry.id, entry.path, str(entry.physical)))

    @staticmethod
    def _key(physical: str) -> str:
        return physical.partition("://")[2].partition("/")[2] if "://" in physical else physical

    async def _parents(self, seen: _Seen) -> list[Finding]:
        """Entries whose parent is no directory, read anew before they are reported."""
        lonely = [
            entry
            for entries in seen.entries.values()
            for entry in entries
            if (parent := _native.split(entry.path)[0]) != ROOT and parent not in seen.directories
        ]
        again = {entry.path for entry in await self._entries({entry.path for entry in lonely})}
        parents = await self._entries({_native.split(entry.path)[0] for entry in lonely})
        standing = {parent.path for parent in parents if parent.is_dir}
        return [
            Finding("missing_parent", "its parent is not a directory", entry.id, entry.path)
            for entry in lonely
            if entry.path in again and _native.split(entry.path)[0] not in standing
        ]

    async def _marks(self, seen: _Seen) -> list[Finding]:
        """Marks of jobs that are over."""
        marked = [entry for entries in seen.entries.values() for entry in entries if entry.pending]
        found = []
        for entry in marked:
            if not await self._store.jobs.is_live(entry.pending):
                current = await self._store.get(entry.path)
                if current is not None and current.pending == entry.pending:
                    found.append(Finding("stale_mark", "the job that marked it is over", entry.id, entry.path))
        return found
