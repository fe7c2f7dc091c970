"""The reader of the operation log, and the state of each object according to it.

Damage is reported and never repaired or removed here. Only objects that were read whole count as
damaged: an error of the store ends the read.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Sequence,
)
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Generic, TypeVar, get_args

from s3k_async import _native
from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore
from s3k_async.backends.ports.key_ranges import KeyRange, list_range
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import BlobNotFoundError, InvalidPathError, LogFormatError
from s3k_async.model import UNCOMMITTED, Entry
from s3k_async.oplog.binary_entries import JavaEntry, JavaEntryV1, read_java
from s3k_async.oplog.checkpoints import CheckpointReader, possible
from s3k_async.oplog.damage import DamagedLog, Finding
from s3k_async.oplog.entries import (
    EntryKey,
    LogRecord,
    LogState,
    Operation,
    OperationKind,
    SegmentKey,
    decode,
    history_prefix,
    parse_key,
    segment_key,
)
from s3k_async.oplog.log_objects import ENTRY_BYTES, OBJECT_BYTES, read_object
from s3k_async.oplog.record_lines import RecordLines
from s3k_async.oplog.segment_ids import SegmentIds
from s3k_async.oplog.segments import Segment, SegmentCommit, decode_segment, pending_lines
from s3k_async.storage.location_marks import is_inside_another

__all__ = [
    "GUARD",
    "RETIRED",
    "DamagedLog",
    "Finding",
    "JavaLogReader",
    "LogObject",
    "LogReader",
    "ObjectState",
    "entry_ranges",
    "latest",
    "order_of_effect",
]

R = TypeVar("R")

RETIRED: Final = "retired-1.0-log/"
"""Key prefix of the entries of S3-FileSystem 1.0 that `migrate.retirement` has moved."""
GUARD: Final = "0000d1ed-0000-4000-8000-000000000000"
"""The object id of the entry that it has left for S3-FileSystem 1.0, and that is none of a file."""
_ENTRIES: Final = "entries/"
_SEGMENTS: Final = "segments/"
_EVERY_KEY: Final = KeyRange()
_EVERY_ENTRY: Final = KeyRange(_ENTRIES)
_EVERY_SEGMENT: Final = KeyRange(_SEGMENTS)
_SHARDS: Final = 256
"""Shards of the entries' keys: the first two digits of the object id."""
_ENTRY_BATCH: Final = 512
_SEGMENTS_AT_ONCE: Final = 2
_PASSED: Final = 100
"""Keys of known segments, one after the other, after which a listing passes over the rest of their
run."""
_JAVA_KEY: Final = re.compile(
    rf"({re.escape(RETIRED)})?([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})\.info"
    r"(?(1)(?:\.[0-9a-f]{16})?)",
    re.ASCII,
)
"""The key of an entry, or of a retired one: a checksum follows that of a second state."""
_JAVA_PATH: Final = re.compile(r"ks://([^/]+)(/.*[^/])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LogObject:
    """An entry or a segment: one or two objects of the log, with their content."""

    keys: tuple[str, ...]
    """Pending before committed."""
    findings: tuple[Finding, ...]
    segment: str = ""
    """The id of the segment; empty for an entry."""

    @property
    def records(self) -> list[LogRecord]:
        """The readable records."""
        return [finding for finding in self.findings if isinstance(finding, LogRecord)]

    @property
    def is_decided(self) -> bool:
        """Whether it is complete and undamaged, and the outcome of each operation is known."""
        return len(self.records) == len(self.findings) > 0 and all(
            one.state == "committed" for one in self.records
        )


@dataclass(frozen=True, slots=True)
class _Read(Generic[R]):
    """The keys of an entry or a segment, as in `LogObject`, and what was read of it."""

    keys: tuple[str, ...]
    segment: str
    found: Sequence[R | DamagedLog]


@dataclass(frozen=True, slots=True)
class ObjectState:
    """The state of one object according to the log."""

    committed: LogRecord | None = None
    """The committed operation of the highest version, or None; a `delete` means that the object was
    removed."""
    pending: tuple[LogRecord, ...] = ()
    """Operations of higher versions with unknown outcome, by version and id."""
    conflict: tuple[LogRecord, ...] = ()
    """Different committed operations for that one highest version, in `order_of_effect`, so that
    `committed` is the last one."""

    @property
    def last(self) -> tuple[LogRecord, ...]:
        """All committed operations of the highest version."""
        return self.conflict or (() if self.committed is None else (self.committed,))

    @property
    def entry(self) -> Entry | None:
        """The entry after the committed operation."""
        return None if self.committed is None else self.committed.operation.after


def order_of_effect(operation: Operation) -> tuple[int, int, str]:
    """Sort key of committed operations on one object.

    Conditional writes give each version to one operation. The next one has a version that the log
    has already if the item was replaced by a former one meanwhile, by another program or from a
    backup of the table. So of several with one version, the last one by its time was in the table
    last, and counts.
    """
    return operation.version, operation.time_ms, operation.id


def latest(records: Iterable[Finding]) -> dict[str, ObjectState]:
    """The state of each object id, from records in any order; damage is skipped.

    The highest committed version wins. Operations pending at or below it are decided: their own
    committed record exists, or they lost. An operation found twice counts once.
    """
    committed: dict[str, list[LogRecord]] = {}
    pending: dict[str, dict[tuple[int, str], LogRecord]] = {}
    for record in records:
        if isinstance(record, DamagedLog):
            continue
        operation = record.operation
        if record.state == "pending":
            pending.setdefault(operation.object_id, {})[operation.version, operation.id] = record
            continue
        best = committed.setdefault(operation.object_id, [record])
        if operation.version > best[0].operation.version:
            best[:] = [record]
        elif operation.version == best[0].operation.version and all(
            operation != seen.operation for seen in best
        ):
            best.append(record)
    return {
        object_id: _truth(committed.get(object_id, []), pending.get(object_id, {}))
        for object_id in committed.keys() | pending.keys()
    }


def _truth(committed: list[LogRecord], pending: dict[tuple[int, str], LogRecord]) -> ObjectState:
    ranked = sorted(committed, key=lambda record: order_of_effect(record.operation))
    version = ranked[-1].operation.version if ranked else -1
    return ObjectState(
        committed=ranked[-1] if ranked else None,
        pending=tuple(
            record
            for at, record in sorted(pending.items(), key=lambda pair: pair[0])
            if at[0] > version
        ),
        conflict=tuple(ranked) if len(ranked) > 1 else (),
    )


class LogReader:
    """Reads the entries and segments of a native log."""

    def __init__(
        self,
        blobs: BlobStore,
        *,
        concurrency: int = 32,
        has_key: Callable[[str], bool] | None = None,
    ) -> None:
        """`blobs`: rooted at the log, with retries. `concurrency`: entries read at once. `has_key`:
        whether an entry of the volume can have a path; an object with another one is damaged."""
        self._blobs = blobs
        self._concurrency = concurrency
        self._possible = possible(has_key)
        self.checkpoints = CheckpointReader(blobs, has_key=has_key)

    async def records(self) -> AsyncIterator[Finding]:
        """Every operation in the log, in its highest recorded state, and damage for every
        unreadable object. An operation in an entry or segment and in a checkpoint is returned once
        from each.

        The pending twin of a readable committed entry is not read; of a segment, the operations are
        read from the pending object; if that is missing, a mark with a success is damage. Bounded
        memory. Not a snapshot: an operation committed meanwhile may still be found pending.
        Operations compacted meanwhile are found in the checkpoint, because checkpoints are read
        last. Raises the store's errors.
        """
        async for part in self.objects():
            for finding in part.findings:
                yield finding
        async for finding in self.checkpoints.records():
            yield finding

    async def batches(self) -> AsyncIterator[Finding | RecordLines]:
        """As `records`, with the operations of a segment that all succeeded, and of a part of a
        checkpoint, together and not decoded."""
        # A slow operation moves from the segment of its group to an entry, and compaction moves
        # both to a checkpoint.
        async for _, batch in self.segment_batches():
            for each in batch:
                yield each
        async for part in self.entries():
            for finding in part.findings:
                yield finding
        async for each in self.checkpoints.parts():
            yield each

    async def objects(self) -> AsyncIterator[LogObject]:
        """Every entry and every segment not covered by a checkpoint. Raises the store's errors."""
        async for part in self.segments():
            yield part
        async for part in self.entries():
            yield part

    async def newest(self, number: int) -> AsyncGenerator[LogObject, None]:
        """The last `number` entries and segments by the store's clock, newest first; each holds
        at least one operation. All are listed, and only these are read. Raises the store's errors.
        """
        stored: dict[str, int] = {}
        for prefix in (_ENTRIES, _SEGMENTS):
            async for info in list_all(self._blobs, prefix):
                stem = info.key.rpartition(".")[0]
                stored[stem] = max(info.mtime_ms, stored.get(stem, 0))

        async def read(stem: str) -> list[LogObject]:
            kind = self._segment if stem.startswith(_SEGMENTS) else self._entry
            return [part async for part in self._read(KeyRange(f"{stem}."), kind, 1, 1)]

        stems = heapq.nlargest(number, stored, key=lambda stem: (stored[stem], stem))
        for of_segments, some in groupby(stems, lambda stem: stem.startswith(_SEGMENTS)):
            run = list(some)
            at_once = _SEGMENTS_AT_ONCE if of_segments else self._concurrency
            for start in range(0, len(run), at_once):
                for parts in await gather(read, run[start : start + at_once], limit=at_once):
                    for part in parts:
                        yield part

    async def entries(
        self, wanted: Callable[[str], bool] | None = None, *, keys: KeyRange = _EVERY_ENTRY
    ) -> AsyncIterator[LogObject]:
        """Every entry, or those on the wanted object ids; the others are listed and not read.
        `keys`: one of `entry_ranges`. Raises the store's errors."""

        def is_other(key: str) -> bool:
            parsed = parse_key(key)
            return (
                wanted is not None and isinstance(parsed, EntryKey) and not wanted(parsed.object_id)
            )

        async for part in self._read(keys, self._entry, self._concurrency, _ENTRY_BATCH, is_other):
            yield part

    async def segments(
        self, without: Iterable[str] = (), *, without_covered: bool = True
    ) -> AsyncIterator[LogObject]:
        """Every segment except those in `without` (as `SegmentIds`) and, with `without_covered`,
        those covered by a checkpoint. Of long runs of them, the keys are not even listed. Raises
        the store's errors."""
        async for read in self._segments(self._segment, without, without_covered=without_covered):
            yield LogObject(read.keys, tuple(read.found), read.segment)

    async def _segments(
        self,
        read: Callable[[dict[LogState, str]], Awaitable[list[R]]],
        without: Iterable[str] = (),
        *,
        without_covered: bool = True,
    ) -> AsyncIterator[_Read[R]]:
        """As `segments`, read in another way."""
        known = await self._covered() if without_covered else SegmentIds()
        known.update(without)
        async for part in self._each(
            _EVERY_SEGMENT, read, _SEGMENTS_AT_ONCE, _SEGMENTS_AT_ONCE, without=known
        ):
            yield part

    async def segment_ids(self) -> AsyncIterator[str]:
        """The ids of all segments, those covered by a checkpoint included. Raises the store's
        errors."""
        async for twins in self._twins(_EVERY_SEGMENT):
            if not isinstance(twins, DamagedLog):
                yield _segment_id(next(iter(twins.values())))

    async def left_of(self, segments: SegmentIds) -> list[str]:
        """The existing keys of some segments. Raises the store's errors."""
        return [
            key
            async for twins in self._twins(_EVERY_SEGMENT)
            if not isinstance(twins, DamagedLog)
            for key in twins.values()
            if _segment_id(key) in segments
        ]

    async def segment_sizes(self) -> tuple[dict[str, int], list[DamagedLog]]:
        """The ids of all segments not covered by a checkpoint, with the bytes of their objects, and
        foreign keys among theirs. Raises the store's errors."""
        covered = await self._covered()
        sizes: dict[str, int] = {}
        damage: list[DamagedLog] = []
        async for info in list_all(self._blobs, _SEGMENTS):
            try:
                segment = _segment_id(info.key)
            except LogFormatError as error:
                if not await is_inside_another(self._blobs, info.key):
                    damage.append(DamagedLog(info.key, error))
                continue
            if segment not in covered:
                sizes[segment] = sizes.get(segment, 0) + info.size
        return sizes, damage

    async def history(self, object_id: str) -> list[Finding]:
        """The records of one object, by version.

        Unreadable segments come last, since they may concern the object. Reads every segment, and
        one part of each checkpoint. Raises the store's errors.
        """
        prefix = history_prefix(object_id)
        found: dict[object, Finding] = {}
        async for part in self._read(
            KeyRange(prefix), self._entry, self._concurrency, _ENTRY_BATCH
        ):
            found.update({_identity(finding): finding for finding in part.findings})
        async for part in self.segments():
            for finding in part.findings:
                if isinstance(finding, DamagedLog) or finding.operation.object_id == object_id:
                    found[_identity(finding)] = finding
        async for finding in self.checkpoints.records(object_ids=[object_id]):
            found.setdefault(_identity(finding), finding)
        return sorted(found.values(), key=_by_version)

    async def entries_of(self, object_id: str) -> list[Finding]:
        """The records in the entries of one object, without segments and checkpoints. Raises the
        store's errors."""
        parts = self._read(
            KeyRange(history_prefix(object_id)), self._entry, self._concurrency, _ENTRY_BATCH
        )
        return [finding async for part in parts for finding in part.findings]

    async def segment(self, segment_id: str) -> list[Finding]:
        """The records of one segment; none if it does not exist. Raises the store's errors."""
        return await self._segment(
            {state: segment_key(segment_id, state) for state in get_args(LogState)}
        )

    async def segment_batches(
        self,
    ) -> AsyncIterator[tuple[str, Sequence[Finding | RecordLines]]]:
        """The id of every segment not covered by a checkpoint, and its records as `batches`; no id
        for a foreign key. Raises the store's errors."""
        async for read in self._segments(self._batch):
            yield read.segment, read.found

    async def segment_batch(self, segment_id: str) -> list[Finding | RecordLines]:
        """As `segment`, with operations that all succeeded together and not decoded."""
        return await self._batch(
            {state: segment_key(segment_id, state) for state in get_args(LogState)}
        )

    async def open_segments(self, prefix: str) -> list[str]:
        """The ids of segments below a key prefix without a mark, which decides the outcome of their
        operations. Raises the store's errors."""
        return [
            _segment_id(twins["pending"])
            async for twins in self._twins(KeyRange(prefix))
            if not isinstance(twins, DamagedLog) and "committed" not in twins
        ]

    async def begun(self, segment_id: str) -> Segment | None:
        """A segment's pending object; None if it is missing or unreadable. Raises the store's
        errors."""
        segment = await self._decoded(segment_key(segment_id, "pending"), [])
        return segment if isinstance(segment, Segment) else None

    async def _covered(self) -> SegmentIds:
        """The segments covered by checkpoints."""
        valid = await self.checkpoints.valid()
        return SegmentIds(
            text for each in valid if not isinstance(each, DamagedLog) for text in each.segments
        )

    async def _read(
        self,
        listed: KeyRange,
        read: Callable[[dict[LogState, str]], Awaitable[list[Finding]]],
        at_once: int,
        batch: int,
        skipped: Callable[[str], bool] = lambda _: False,
    ) -> AsyncIterator[LogObject]:
        async for each in self._each(listed, read, at_once, batch, skipped):
            yield LogObject(each.keys, tuple(each.found), each.segment)

    async def _each(
        self,
        listed: KeyRange,
        read: Callable[[dict[LogState, str]], Awaitable[list[R]]],
        at_once: int,
        batch: int,
        skipped: Callable[[str], bool] = lambda _: False,
        *,
        without: SegmentIds | None = None,
    ) -> AsyncIterator[_Read[R]]:
        async def one(keys: dict[LogState, str]) -> _Read[R]:
            both: tuple[LogState, LogState] = ("pending", "committed")
            found = tuple(keys[state] for state in both if state in keys)
            return _Read(found, _segment_id(found[0]), await read(keys))

        twins: list[dict[LogState, str]] = []
        async for found in self._twins(listed, without):
            if isinstance(found, DamagedLog):
                yield _Read((found.key,), "", [found])
                continue
            if skipped(next(iter(found.values()))):
                continue
            twins.append(found)
            if len(twins) == batch:
                for part in await gather(one, twins, limit=at_once):
                    yield part
                twins.clear()
        for part in await gather(one, twins, limit=at_once):
            yield part

    async def _twins(
        self, listed: KeyRange, without: SegmentIds | None = None
    ) -> AsyncIterator[dict[LogState, str] | DamagedLog]:
        """The keys of one entry or segment by state; they are adjacent in the listing. `without`:
        as in `_listed`."""
        current: dict[LogState, str] = {}
        stem = ""
        async for info in self._listed(listed, without):
            try:
                key = parse_key(info.key)
            except LogFormatError as error:
                if not await is_inside_another(self._blobs, info.key):
                    yield DamagedLog(info.key, error)
                continue
            if without is not None and _segment_id(info.key) in without:
                continue
            if current and info.key.rpartition(".")[0] != stem:
                yield current
                current = {}
            stem = info.key.rpartition(".")[0]
            current[key.state] = info.key
        if current:
            yield current

    async def _listed(self, keys: KeyRange, without: SegmentIds | None) -> AsyncIterator[BlobInfo]:
        """The objects in a range of keys, but few of those in long runs of the segments `without`:
        at such a run, the listing begins anew at its end."""
        while True:
            passed = 0
            async for info in list_range(self._blobs, keys):
                segment = info.key.removeprefix(_SEGMENTS).partition(".")[0]
                last = None if without is None else without.last_of_run(segment)
                passed = 0 if last is None else passed + 1
                if last is not None and last != segment and passed >= _PASSED:
                    keys = replace(keys, after=segment_key(last, "pending"))
                    break
                yield info
            else:
                return

    async def _entry(self, keys: dict[LogState, str]) -> list[Finding]:
        findings: list[Finding] = []
        for state in ("committed", "pending"):
            try:
                data = await _get(self._blobs, keys.get(state), ENTRY_BYTES)
                if data is not None:
                    return [*findings, self._possible(decode(data, keys[state]))]
            except LogFormatError as error:
                findings.append(DamagedLog(keys[state], error))
        return findings

    async def _batch(self, keys: dict[LogState, str]) -> list[Finding | RecordLines]:
        lines = await self._lines(keys)
        return [*await self._segment(keys)] if lines is None else [lines]

    async def _lines(self, keys: dict[LogState, str]) -> RecordLines | None:
        """The operations of a segment; None unless its mark says that all of them succeeded."""
        pending, committed = keys.get("pending"), keys.get("committed")
        mark = await self._decoded(committed, [])
        if (
            pending is None
            or committed is None
            or not isinstance(mark, SegmentCommit)
            or mark.succeeded is not None
            or mark.unknown
        ):
            return None
        try:
            data = await _get(self._blobs, pending, OBJECT_BYTES)
            lines = [] if data is None else pending_lines(data, pending)
        except LogFormatError:
            return None
        if len(lines) != mark.count:
            return None
        return RecordLines(committed, lines, lambda: self._segment(keys))

    async def _segment(self, keys: dict[LogState, str]) -> list[Finding]:
        damage: list[Finding] = []
        committed = await self._decoded(keys.get("committed"), damage)
        unreadable = bool(damage)
        if isinstance(committed, Segment) and not committed.unknown:
            return list(committed.records(keys["committed"]))
        pending = await self._decoded(keys.get("pending"), damage)
        begun = pending if isinstance(pending, Segment) else None
        if isinstance(committed, Segment):
            open_records = begun.records(keys["committed"]) if begun is not None else []
            happened = committed.records(keys["committed"])
            return [
                *damage,
                *happened,
                *(one for one in open_records if one.operation.id in committed.unknown),
            ]
        if isinstance(committed, SegmentCommit):
            return damage + await self._marked(committed, begun, keys, damaged=bool(damage))
        if begun is None:
            return damage
        # With an unreadable mark the segment is not open: it cannot be ended as a whole.
        return damage + list(begun.records(keys["committed" if unreadable else "pending"]))

    async def _marked(
        self,
        mark: SegmentCommit,
        begun: Segment | None,
        keys: dict[LogState, str],
        *,
        damaged: bool,
    ) -> list[Finding]:
        """The records decided by a mark. A damaged pending object was reported before; a missing
        one is reported here, unless no operation succeeded: a writer whose operations all failed
        removes it, even if repair, which took the writer for dead, has marked the segment."""
        key = keys["committed"]
        if begun is not None:
            try:
                return list(mark.records(begun, key))
            except LogFormatError as error:
                return [DamagedLog(key, error), *begun.records(key)]
        if damaged or mark.succeeded == () or await self._blobs.head(key) is None:
            return []
        if mark.id in await self._covered():
            return []
        return [
            DamagedLog(
                key, LogFormatError("the pending object with the operations is missing", path=key)
            )
        ]

    async def _decoded(
        self, key: str | None, damage: list[Finding]
    ) -> Segment | SegmentCommit | None:
        """The content of a segment's object; None if it is missing, or unreadable, which is added
        to the damage."""
        if key is None:
            return None
        try:
            data = await _get(self._blobs, key, OBJECT_BYTES)
            if data is None:
                return None
            found = decode_segment(data, key)
            for record in found.records(key) if isinstance(found, Segment) else ():
                self._possible(record)
            return found
        except LogFormatError as error:
            damage.append(DamagedLog(key, error))
            return None


class JavaLogReader:
    """Reader of the `<object id>.info` objects of an s3k-1.0 volume, retired ones included: the
    last operation on each file, no history."""

    def __init__(
        self, blobs: BlobStore, *, volume: str | None = None, concurrency: int = 32
    ) -> None:
        """`blobs`: rooted at the log's bucket, which may hold the data too; other keys are skipped.

        `volume`: the authority of the volume's logical paths; entries of others are skipped. None:
        all volumes.
        """
        self._blobs = blobs
        self._volume = volume
        self._concurrency = concurrency

    async def records(self, keys: KeyRange = _EVERY_KEY) -> AsyncIterator[Finding]:
        """Every entry, or those in a range of keys, and damage for unreadable objects with the key
        of an entry. Raises the store's errors.

        An entry becomes a record without an operation id or earlier state, with the time at which
        its object was stored, and the file's ctime as its mtime. A delete has the entry's version
        plus one, as in the native log. A V1 entry, which has only path, size, ctime and durability
        of the bytes, gets version 0 and counts as committed; its id is that of its key, its
        physical path is None.
        """
        batch: list[BlobInfo] = []
        # Entries are retired while they are listed.
        for listed in (keys, _below_retired(keys)):
            async for info in list_range(self._blobs, listed):
                if _object_of(info.key) is None or (listed is keys and _is_retired(info.key)):
                    continue
                batch.append(info)
                if len(batch) == _ENTRY_BATCH:
                    for finding in _flat(await gather(self._one, batch, limit=self._concurrency)):
                        yield finding
                    batch.clear()
        for finding in _flat(await gather(self._one, batch, limit=self._concurrency)):
            yield finding

    async def history(self, object_id: str) -> list[Finding]:
        """The entry of one file, if there is one. Raises the store's errors."""
        key = f"{object_id}.info"
        if _object_of(key) is None:
            return []
        info = await self._blobs.head(key)
        if info is not None:
            return await self._one(info)
        retired = [
            each
            async for each in list_all(self._blobs, RETIRED + key)
            if _object_of(each.key) is not None
        ]
        return _flat([await self._one(each) for each in retired])

    async def _one(self, info: BlobInfo) -> list[Finding]:
        """The record in an object; none in a retired one of a file with an entry."""
        try:
            if _is_retired(info.key):
                entry = await self._blobs.head(f"{_object_of(info.key)}.info")
                if entry is not None:
                    return []
            data = await _get(self._blobs, info.key, ENTRY_BYTES)
            return [] if data is None else self._record(read_java(data, info.key), info)
        except LogFormatError as error:
            return [DamagedLog(info.key, error)]

    def _record(self, entry: JavaEntry, info: BlobInfo) -> list[Finding]:
        logical = _JAVA_PATH.fullmatch(entry.logical)
        if logical is None or entry.size < 0 or not _is_normal(logical[2]):
            raise LogFormatError("a Java log entry without a file's path and size", path=info.key)
        if self._volume not in (None, logical[1]):
            return []
        object_id = _object_of(info.key)
        assert object_id is not None
        if isinstance(entry, JavaEntryV1):
            operation = _java_v1(entry, object_id, logical[2], info.mtime_ms)
            return [LogRecord(operation, "committed", info.key)]
        if entry.id != object_id or entry.version < 1:
            raise LogFormatError(
                "the Java log entry's content does not belong to its key", path=info.key
            )
        state: LogState = "pending" if entry.state == "PENDING" else "committed"
        file = Entry(
            path=logical[2],
            is_dir=False,
            id=object_id,
            version=entry.version,
            ctime=entry.ctime,
            mtime_ms=entry.ctime * 1000,
            size=entry.size,
            physical=entry.physical,
            committed=entry.committed,
        )
        if entry.kind == "DELETE":
            operation = Operation(
                "", "delete", object_id, entry.version + 1, info.mtime_ms, file, None
            )
        else:
            kind: OperationKind = "create" if entry.kind == "CREATE" else "update"
            operation = Operation("", kind, object_id, entry.version, info.mtime_ms, None, file)
        return [LogRecord(operation, state, info.key)]


def _object_of(key: str) -> str | None:
    """The object id in the key of an entry of S3-FileSystem 1.0; None for every other key."""
    found = _JAVA_KEY.fullmatch(key)
    return None if found is None or found[2] == GUARD else found[2]


def _is_retired(key: str) -> bool:
    return key.startswith(RETIRED)


def _below_retired(keys: KeyRange) -> KeyRange:
    """The range of the retired entries for one of entries."""
    return KeyRange(
        RETIRED + keys.prefix,
        keys.after and RETIRED + keys.after,
        keys.until and RETIRED + keys.until,
    )


def _java_v1(entry: JavaEntryV1, object_id: str, path: str, time_ms: int) -> Operation:
    file = Entry(
        path=path,
        is_dir=False,
        id=object_id,
        version=0,
        ctime=entry.ctime,
        mtime_ms=entry.ctime * 1000,
        size=entry.size,
        physical=None if entry.committed else UNCOMMITTED,
        committed=entry.committed,
    )
    return Operation(
        "", "update" if entry.committed else "create", object_id, 0, time_ms, None, file
    )


def _is_normal(path: str) -> bool:
    try:
        return _native.normalize(path) == path
    except InvalidPathError:
        return False


def entry_ranges(count: int) -> list[KeyRange]:
    """`count` key ranges of about equal size that together cover every entry, but no more than
    there are shards. Both objects of an entry are in one range."""
    count = min(count, _SHARDS)
    # No key of an entry equals a boundary or begins with one: `~` sorts after every slash.
    cuts = [f"{_ENTRIES}{number * _SHARDS // count - 1:02x}~" for number in range(1, count)]
    return [
        KeyRange(_ENTRIES, low, high) for low, high in zip(["", *cuts], [*cuts, ""], strict=True)
    ]


def _identity(finding: Finding) -> object:
    """Identity of an operation in a state, equal in all of its log objects."""
    if isinstance(finding, DamagedLog):
        return finding.key
    return finding.operation, finding.state


def _segment_id(key: str) -> str:
    parsed = parse_key(key)
    return parsed.segment_id if isinstance(parsed, SegmentKey) else ""


async def _get(blobs: BlobStore, key: str | None, most: int) -> bytes | None:
    """The object's bytes, or None for one rolled back or compacted since it was listed. Raises
    LogFormatError for more than `most`."""
    if key is None:
        return None
    try:
        return await read_object(blobs, key, most)
    except BlobNotFoundError:
        return None


def _flat(findings: Iterable[list[Finding]]) -> list[Finding]:
    return [finding for some in findings for finding in some]


def _by_version(finding: Finding) -> tuple[bool, int, str, str]:
    if isinstance(finding, DamagedLog):
        try:
            key = parse_key(finding.key)
        except LogFormatError:
            return True, 0, "", finding.key
        return (
            (False, key.version, key.operation_id, "")
            if isinstance(key, EntryKey)
            else (True, 0, "", finding.key)
        )
    return False, finding.operation.version, finding.operation.id, finding.state
