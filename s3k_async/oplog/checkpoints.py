"""Checkpoints: the last committed operation on every object, in a few large log objects that
replace the objects they cover.

A checkpoint is a manifest, `checkpoints/manifests/<id>`, and its parts,
`checkpoints/parts/<id>.<number, 6 digits>`, which are sealed lines of JSON as entries are. Each
part has a header and operations, ordered by object id. The manifest is written last, once, and
makes the checkpoint valid: it names each part with its checksum and its first and last object id,
and the covered segments, which are no longer read. Parts without a manifest are ignored.

Several checkpoints may be valid at once; each has the state of its objects at some time, and the
highest version in checkpoints, entries and segments wins.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from s3k_async import _native
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import BlobNotFoundError, LogFormatError
from s3k_async.oplog.damage import DamagedLog, Finding
from s3k_async.oplog.entries import (
    LogRecord,
    operation_from,
    operation_line,
    parse_line,
    read_field,
    seal,
    unseal,
)
from s3k_async.oplog.log_objects import MANIFEST_BYTES, QUARANTINE, read_object
from s3k_async.oplog.record_lines import RecordLines
from s3k_async.oplog.segment_ids import SegmentIds
from s3k_async.storage.location_marks import is_inside_another

__all__ = [
    "MANIFESTS",
    "PARTS",
    "PART_BYTES",
    "Checkpoint",
    "CheckpointPart",
    "CheckpointReader",
    "CheckpointWriter",
    "owner_of_part",
    "possible",
]

FORMAT: Final = 2
"""The newest format of parts; written for operations on entries with directory keys."""
PATH_FORMAT: Final = 1
"""The format of parts without directory keys, and of manifests without runs of segments."""
RUNS_FORMAT: Final = 3
"""The newest format of manifests; written for runs of segments (`SegmentIds`)."""
PART_BYTES: Final = 4 * 1024 * 1024
"""Size in bytes above which a part ends."""

MANIFESTS: Final = "checkpoints/manifests/"
PARTS: Final = "checkpoints/parts/"

_MANIFEST: Final = "oplog-checkpoint"
_PART: Final = "oplog-checkpoint-part"
_PART_KEY: Final = re.compile(rf"{PARTS}([0-9A-Za-z_-]{{1,64}})\.[0-9]{{6}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """The manifest's description of one part."""

    first: str
    last: str
    """Object ids; the part's operations are ordered by them."""
    count: int
    sha256: str
    """Of the whole object, hexadecimal."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A manifest, which makes a checkpoint valid."""

    id: str
    time_ms: int
    """Start time, epoch milliseconds."""
    parts: tuple[CheckpointPart, ...]
    segments: SegmentIds
    """The completely covered segments."""
    history_ms: int
    """Since when the log has every operation, epoch milliseconds; earlier ones were removed, but
    for the last one on each object."""

    @property
    def key(self) -> str:
        """Key of the manifest."""
        return MANIFESTS + self.id

    @property
    def count(self) -> int:
        """Number of operations."""
        return sum(part.count for part in self.parts)

    def part_key(self, number: int) -> str:
        """Key of a part, from 0."""
        return f"{PARTS}{self.id}.{number:06d}"

    def part_keys(self) -> list[str]:
        """Keys of all parts."""
        return [self.part_key(number) for number in range(len(self.parts))]


def owner_of_part(key: str) -> str | None:
    """The checkpoint id in the key of a part; None for any other key."""
    found = _PART_KEY.fullmatch(key)
    return found[1] if found else None


def encode_manifest(checkpoint: Checkpoint) -> bytes:
    """The bytes of a manifest."""
    document = {
        "s3k": _MANIFEST,
        "format": RUNS_FORMAT if checkpoint.segments.has_runs else PATH_FORMAT,
        "checkpoint": checkpoint.id,
        "time_ms": checkpoint.time_ms,
        "history_ms": checkpoint.history_ms,
        "parts": [
            {"first": part.first, "last": part.last, "count": part.count, "sha256": part.sha256}
            for part in checkpoint.parts
        ],
        "segments": list(checkpoint.segments),
    }
    return seal(json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n")


def decode_manifest(data: bytes, key: str) -> Checkpoint:
    """The checkpoint in a manifest's bytes. Raises LogFormatError, with the key, as for entries."""
    lines = unseal(data, _MANIFEST, RUNS_FORMAT, key)
    if len(lines) != 1:
        raise LogFormatError("a manifest holds one line", path=key)
    document = parse_line(lines[0], key)
    parts = tuple(_part(each, key) for each in read_field(document, "parts", (list,), key))
    try:
        segments = SegmentIds(read_field(document, "segments", (list,), key))
    except (TypeError, ValueError) as error:
        raise LogFormatError("the manifest covers an invalid segment id", path=key) from error
    identity = read_field(document, "checkpoint", (str,), key)
    time_ms = read_field(document, "time_ms", (int,), key)
    # Earlier versions did not write it. They removed no operation that is later than the start.
    has_history = "history_ms" in document
    history_ms = read_field(document, "history_ms", (int,), key) if has_history else time_ms
    checkpoint = Checkpoint(identity, time_ms, parts, segments, history_ms)
    if checkpoint.key != key:
        raise LogFormatError("the manifest's content does not belong to its key", path=key)
    return checkpoint


def _part(document: object, key: str) -> CheckpointPart:
    if not isinstance(document, dict):
        raise LogFormatError("a part of the manifest is no JSON object", path=key)
    text = {name: read_field(document, name, (str,), key) for name in ("first", "last", "sha256")}
    return CheckpointPart(
        text["first"], text["last"], read_field(document, "count", (int,), key), text["sha256"]
    )


def part_lines(data: bytes, checkpoint: Checkpoint, number: int) -> list[bytes]:
    """The lines of the operations of a part, not decoded. Raises LogFormatError, with the key, for
    bytes other than those the manifest names."""
    key, part = checkpoint.part_key(number), checkpoint.parts[number]
    lines = unseal(data, _PART, FORMAT, key)
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise LogFormatError("not the part that the checkpoint's manifest names", path=key)
    if len(lines) - 1 != part.count:
        raise LogFormatError(
            "the part does not hold the operations that the manifest counts", path=key
        )
    return lines[1:]


class CheckpointWriter:
    """Writes a checkpoint: operations by object id, then the manifest. Holds one part in memory."""

    def __init__(
        self, blobs: BlobStore, identity: str, time_ms: int, *, part_bytes: int = PART_BYTES
    ) -> None:
        self._blobs = blobs
        self._written = Checkpoint(identity, time_ms, (), SegmentIds(), time_ms)
        self._part_bytes = part_bytes
        self._lines: list[bytes] = []
        self._size = 0
        self._first = self._last = ""
        self._parts: list[CheckpointPart] = []

    async def add(self, record: LogRecord) -> None:
        """Add a committed operation, in the order of object ids. Raises the store's errors."""
        operation = record.operation
        line = operation_line(operation, record.key)
        self._first = self._first if self._lines else operation.object_id
        self._last = operation.object_id
        self._lines.append(line)
        self._size += len(line) + 1
        if self._size >= self._part_bytes:
            await self._end_part()

    def keys(self) -> list[str]:
        """The keys of all objects that it may have written: manifest, parts, and the part whose
        request is under way or has failed."""
        return [self._written.key, *map(self._written.part_key, range(len(self._parts) + 1))]

    async def finish(self, segments: Iterable[str], history_ms: int | None = None) -> Checkpoint:
        """Write the manifest, which makes the checkpoint valid. `segments`: those that it covers,
        as `SegmentIds`; `history_ms`: as in `Checkpoint`, by default its time. Raises the store's
        errors."""
        if self._lines:
            await self._end_part()
        base = self._written
        since_ms = base.time_ms if history_ms is None else history_ms
        covered = SegmentIds(segments)
        checkpoint = Checkpoint(base.id, base.time_ms, tuple(self._parts), covered, since_ms)
        await self._blobs.put(checkpoint.key, encode_manifest(checkpoint), if_absent=True)
        return checkpoint

    async def _end_part(self) -> None:
        number = len(self._parts)
        body = b"\n".join(self._lines) + b"\n"
        head: dict[str, Any] = {
            "s3k": _PART,
            "format": FORMAT if _native.has_directories(body) else PATH_FORMAT,
            "checkpoint": self._written.id,
            "part": number,
        }
        head["count"] = len(self._lines)
        data = seal(json.dumps(head, separators=(",", ":")).encode("ascii") + b"\n", body)
        await self._blobs.put(self._written.part_key(number), data, if_absent=True)
        digest = hashlib.sha256(data).hexdigest()
        self._parts.append(CheckpointPart(self._first, self._last, len(self._lines), digest))
        self._lines, self._size = [], 0


class CheckpointReader:
    """Reads the checkpoints of a log."""

    def __init__(self, blobs: BlobStore, *, has_key: Callable[[str], bool] | None = None) -> None:
        """`has_key`: as of `LogReader`."""
        self._blobs = blobs
        self._possible = possible(has_key)

    async def valid(self) -> list[Checkpoint | DamagedLog]:
        """The valid checkpoints, and damage for unreadable manifests."""
        found: list[Checkpoint | DamagedLog] = []
        async for info in list_all(self._blobs, MANIFESTS):
            try:
                found.append(
                    decode_manifest(
                        await read_object(self._blobs, info.key, MANIFEST_BYTES), info.key
                    )
                )
            except LogFormatError as error:
                if not await is_inside_another(self._blobs, info.key):
                    found.append(DamagedLog(info.key, error))
            except BlobNotFoundError:
                continue  # superseded since it was listed
        return found

    async def history_ms(self) -> int | None:
        """Since when the log has every operation, epoch milliseconds; None if it was not
        compacted. A manifest in quarantine counts with the time at which it was moved there."""
        valid = await self.valid()
        times = [each.history_ms for each in valid if isinstance(each, Checkpoint)]
        moved = list_all(self._blobs, f"{QUARANTINE}{MANIFESTS}")
        times += [info.mtime_ms async for info in moved]
        return max(times, default=None)

    async def keys(self) -> frozenset[str]:
        """The keys of all manifests, without reading them."""
        return frozenset([info.key async for info in list_all(self._blobs, MANIFESTS)])

    async def records(self, *, object_ids: Collection[str] | None = None) -> AsyncIterator[Finding]:
        """Every operation of every valid checkpoint, or those on some objects; a missing, truncated
        or different part is damage. A checkpoint superseded meanwhile is followed by its successor.
        """
        wanted = None if object_ids is None else sorted(set(object_ids))
        async for part in self._parts(wanted):
            for finding in [part] if isinstance(part, DamagedLog) else await part.decode():
                if wanted is None or _is_about(finding, wanted):
                    yield finding

    async def parts(self) -> AsyncIterator[RecordLines | DamagedLog]:
        """As `records`, by part."""
        async for part in self._parts(None):
            yield part

    async def _parts(self, wanted: Sequence[str] | None) -> AsyncIterator[RecordLines | DamagedLog]:
        """The parts that may hold one of the sorted ids."""
        done: set[str] = set()
        again = True
        while again:
            again = False
            for checkpoint in await self.valid():
                if isinstance(checkpoint, DamagedLog):
                    if checkpoint.key not in done:
                        yield checkpoint
                    done.add(checkpoint.key)
                elif checkpoint.key not in done:
                    done.add(checkpoint.key)
                    for number, part in enumerate(checkpoint.parts):
                        if wanted is not None and not _holds(part, wanted):
                            continue
                        found = await self.lines(checkpoint, number)
                        again = again or found is None
                        if found is not None:
                            yield found

    async def of(self, checkpoint: Checkpoint) -> AsyncIterator[Finding]:
        """Every operation of one checkpoint; none of a part removed with its manifest."""
        for number in range(len(checkpoint.parts)):
            for finding in await self.part(checkpoint, number) or ():
                yield finding

    async def part(self, checkpoint: Checkpoint, number: int) -> list[Finding] | None:
        """The records of a part, or its damage; None if the whole checkpoint was superseded."""
        found = await self.lines(checkpoint, number)
        if isinstance(found, RecordLines):
            return await found.decode()
        return None if found is None else [found]

    async def lines(self, checkpoint: Checkpoint, number: int) -> RecordLines | DamagedLog | None:
        """As `part`, with the records as lines that are not decoded."""
        key = checkpoint.part_key(number)
        try:
            lines = part_lines(await read_object(self._blobs, key), checkpoint, number)
        except LogFormatError as error:
            return DamagedLog(key, error)
        except BlobNotFoundError:
            if await self._blobs.head(checkpoint.key) is None:
                return None
            return DamagedLog(key, LogFormatError("a part of the checkpoint is missing", path=key))

        async def decode() -> list[Finding]:
            try:
                return [
                    self._possible(LogRecord(operation_from(line, key), "committed", key))
                    for line in lines
                ]
            except LogFormatError as error:
                return [DamagedLog(key, error)]

        return RecordLines(key, lines, decode)


def possible(has_key: Callable[[str], bool] | None) -> Callable[[LogRecord], LogRecord]:
    """A check of records: returns a record, or raises LogFormatError if an entry of it can have no
    key in the volume."""

    def checked(record: LogRecord) -> LogRecord:
        for entry in (record.operation.before, record.operation.after):
            if entry is not None and has_key is not None and not has_key(entry.entry_key):
                raise LogFormatError(
                    "a path that is too long for an entry of the volume", path=record.key
                )
        return record

    return checked


def _holds(part: CheckpointPart, wanted: Sequence[str]) -> bool:
    """Whether one of the sorted ids may be in a part."""
    place = bisect_left(wanted, part.first)
    return place < len(wanted) and wanted[place] <= part.last


def _is_about(finding: Finding, wanted: Sequence[str]) -> bool:
    if isinstance(finding, DamagedLog):
        return True
    place = bisect_left(wanted, finding.operation.object_id)
    return place < len(wanted) and wanted[place] == finding.operation.object_id
