"""Tasks of a garbage collection: read splits and keep the input of the next stage, by object.

A line is of a pile, and has the hash of the object id that it is about: `blob` (bytes that are old
enough), `named` (a key that an item names), `held` (an object of which something cannot be
understood), `record` (of the log), `wanted` (an object of which bytes are not named; by the range
of the log that its entries are in), `candidate` (a verdict). Lines for the driver: `marked`
(counts), `reservation`, `segment` (one that was read), `damage`, `superseded`, `swept`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from s3k_async._core.concurrency import merge
from s3k_async.config import VolumeConfig
from s3k_async.errors import LogFormatError
from s3k_async.integrity.gc_mark import (
    CollectedData,
    Marked,
    MarkFilter,
    ObjectCount,
    held_by,
    object_of,
)
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.references import scan_segment
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.scope import ScanCounts
from s3k_async.integrity.shuffle import from_line, hash_of, to_line
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.log_reader import LogReader, entry_ranges
from s3k_async.spark import scan_splits
from s3k_async.spark.scan_splits import SUPERSEDED, CheckpointReplacedError, Run, Segments, opened
from s3k_async.spark.shuffle_rows import NOWHERE
from s3k_async.stores.blobs import BlobInfo
from s3k_async.stores.key_ranges import KeyRange, list_range
from s3k_async.volumes import Volume

__all__ = [
    "DataSplit",
    "GcSettings",
    "GcSplit",
    "Line",
    "LogSplit",
    "ObjectFacts",
    "TableSplit",
    "add_counts",
    "batch_of_lines",
    "counts_of",
    "data_splits",
    "judge_objects",
    "objects_in",
    "range_of",
    "read_entries",
    "read_lines",
    "take_unnamed",
]

ROWS: Final = 500
"""Lines that are handed on at once, where they come one by one."""
SHARDS: Final = 256
"""What the first two digits of object ids divide the entries of the log into."""
_SCHEMA: Final = pa.schema([("part", pa.int64()), ("pile", pa.string()), ("line", pa.binary())])

Line: TypeAlias = tuple[int, str, str]
"""What it is divided by, pile, text."""
Lines: TypeAlias = AsyncGenerator[list[Line], None]
Batches: TypeAlias = Iterator[pa.RecordBatch]
Seen: TypeAlias = Callable[[int], object]
"""Is told how many lines there were."""


@dataclass(frozen=True, slots=True)
class GcSettings:
    """Settings of a collection, as shipped to tasks."""

    config: VolumeConfig
    ages: Ages
    now_ms: int
    """When it was begun, by the clock of the data."""

    def mark_filter(self, volume: Volume) -> MarkFilter:
        """What tells what may go, where the volume is open."""
        return MarkFilter(CollectedData.of(volume), self.ages, self.now_ms)


class GcSplit(Protocol):
    """A piece of a scan."""

    def lines(self, volume: Volume, mark_filter: MarkFilter) -> Lines:
        """What is kept of it."""


@dataclass(frozen=True, slots=True)
class DataSplit:
    """Data objects in ranges of keys."""

    ranges: tuple[KeyRange, ...]

    async def lines(self, volume: Volume, mark_filter: MarkFilter) -> Lines:
        """As Piece."""
        streams = [_in_lists(list_range(volume.blobs, keys)) for keys in self.ranges]
        async with aclosing(merge(streams, limit=len(streams))) as pages:
            async for page in pages:
                yield [_blob(replace(blob, etag="")) for blob in mark_filter.blobs(page)]


@dataclass(frozen=True, slots=True)
class TableSplit:
    """A scan segment of the table."""

    segment: int
    segments: int

    async def lines(self, volume: Volume, mark_filter: MarkFilter) -> Lines:
        """As Piece."""
        async for page in scan_segment(volume.store.items, self.segment, self.segments):
            named = mark_filter.items(page)
            lines = [(hash_of(key[-36:]), "named", key) for key in named.keys]
            lines += [_held(each) for each in named.unclear]
            yield lines + [(NOWHERE, "nameless", place) for place in named.nameless]


@dataclass(frozen=True, slots=True)
class LogSplit:
    """Log segments or checkpoint parts, as fsck reads them."""

    piece: scan_splits.ScanSplit

    async def lines(self, volume: Volume, mark_filter: MarkFilter) -> Lines:
        """As Piece."""
        if isinstance(self.piece, Segments):
            yield [(NOWHERE, "segment", each) for each in self.piece.ids]
        try:
            async for things in self.piece.things(scope_of(volume, grace=0), ScanCounts()):
                yield [
                    _record(thing) if pile == "records" else _damage(thing.key, thing.problem)
                    for pile, _, thing in things
                ]
        except CheckpointReplacedError as error:
            yield [(NOWHERE, SUPERSEDED, str(error))]


def data_splits(place: CollectedData, count: int) -> list[GcSplit]:
    """The bytes, in `count` pieces."""
    return [DataSplit(tuple(ranges)) for ranges in place.ranges(count)]


def range_of(shard: int, count: int) -> int:
    """In which of `entry_ranges(count)` the entries of the objects are whose ids begin with these
    two digits."""
    return ((shard + 1) * min(count, SHARDS) - 1) // SHARDS


# What tasks do


def read_lines(
    terms: GcSettings, scan: list[GcSplit], numbers: Iterable[int], seen: Seen
) -> Batches:
    """What is kept of some pieces, and what was counted."""
    with opened(terms.config) as (volume, run):
        mark_filter = terms.mark_filter(volume)
        for number in numbers:
            yield from _drained(scan[number].lines(volume, mark_filter), run, seen)
        yield batch_of_lines(counts_of(mark_filter.done))


def take_unnamed(batches: Iterable[pa.RecordBatch]) -> Batches:
    """Of the bytes and of what items name: the bytes that no item names, and their objects."""
    marked = Marked()

    def found() -> Iterator[Line]:
        for object_id, known in objects_in(batches):
            dead = [blob for blob in known.blobs if blob.key not in known.named]
            for blob in known.blobs:
                if blob.key in known.named:
                    marked.count("named", blob.size)
            if dead:
                yield from map(_blob, dead)
                yield int(object_id[:2], 16), "wanted", object_id
                if known.is_held:
                    yield _held(object_id)
        yield from counts_of(marked)

    return _batches(found())


def read_entries(
    terms: GcSettings, count: int, batches: Iterable[pa.RecordBatch], seen: Seen
) -> Batches:
    """What the log's entries in some of `entry_ranges(count)` say of the objects that are wanted of
    each."""
    ranges = entry_ranges(count)
    with opened(terms.config) as (volume, run):
        assert volume.log_blobs is not None
        log = LogReader(volume.log_blobs, has_key=volume.store.keys.has)
        for number, lines in _runs(batches):
            wanted = {text for pile, text in lines if pile == "wanted"}
            yield from _drained(_entries(log, ranges[number], wanted), run, seen)


def judge_objects(terms: GcSettings, batches: Iterable[pa.RecordBatch]) -> Batches:
    """The candidates among the bytes that no item names, by what the log says of their objects."""

    def found(mark_filter: MarkFilter) -> Iterator[Line]:
        for object_id, known in objects_in(batches):
            for blob in known.blobs:
                verdict = mark_filter.verdict(blob, known.records, damaged=known.is_held)
                if verdict is not None:
                    yield (
                        hash_of(object_id),
                        "candidate",
                        json.dumps(asdict(verdict), separators=(",", ":")),
                    )
        yield from counts_of(mark_filter.done)

    with opened(terms.config) as (volume, _):
        yield from _batches(found(terms.mark_filter(volume)))


# Lines


@dataclass(slots=True)
class ObjectFacts:
    """Everything known about one object."""

    blobs: list[BlobInfo] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    records: list[LogRecord] = field(default_factory=list)
    is_held: bool = False


def objects_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, ObjectFacts]]:
    """Object by object, from lines that are sorted by their hash. In memory are those of one
    hash."""
    for _, lines in _runs(batches):
        found: defaultdict[str, ObjectFacts] = defaultdict(ObjectFacts)
        for pile, text in lines:
            if pile == "blob":
                blob: BlobInfo = from_line("blobs", text)
                found[object_of(blob)].blobs.append(blob)
            elif pile == "named":
                found[text[-36:]].named.add(text)
            elif pile == "held":
                found[text].is_held = True
            elif pile == "record":
                record: LogRecord = from_line("records", text)
                found[record.operation.object_id].records.append(record)
        yield from found.items()


def counts_of(marked: Marked) -> Iterator[Line]:
    """What a task has counted, for the driver."""
    counts = {reason: [count.objects, count.bytes] for reason, count in marked.counts.items()}
    yield NOWHERE, "marked", json.dumps({"counts": counts, "entries": marked.entries})
    for entry in marked.reservations:
        yield NOWHERE, "reservation", to_line("entries", entry)


def add_counts(counts: dict[str, ObjectCount], more: Mapping[str, list[int]]) -> None:
    """Add what a task has counted by reason."""
    for reason, (objects, size) in more.items():
        count = counts.setdefault(reason, ObjectCount())
        count.objects += objects
        count.bytes += size


def batch_of_lines(lines: Iterable[Line]) -> pa.RecordBatch:
    """The rows of some lines."""
    columns: tuple[list[int], list[str], list[bytes]] = [], [], []
    for part, pile, text in lines:
        columns[0].append(part)
        columns[1].append(pile)
        columns[2].append(_encoded(text))
    return pa.record_batch(list(columns), schema=_SCHEMA)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    current: int | None = None
    lines: list[tuple[str, str]] = []
    for batch in batches:
        parts, piles, texts = (batch.column(name).to_pylist() for name in _SCHEMA.names)
        for part, pile, text in zip(parts, piles, texts, strict=True):
            if part != current and current is not None:
                yield current, lines
                lines = []
            current = part
            lines.append((pile, bytes(text).decode("utf-8", "surrogatepass")))
    if current is not None:
        yield current, lines


def _batches(lines: Iterable[Line]) -> Batches:
    some: list[Line] = []
    for line in lines:
        some.append(line)
        if len(some) == ROWS:
            yield batch_of_lines(some)
            some = []
    yield batch_of_lines(some)


def _drained(stream: Lines, run: Run, seen: Seen) -> Batches:
    try:
        while (lines := run(lambda: anext(stream, None))) is not None:
            yield batch_of_lines(lines)
            seen(len(lines))
    finally:
        run(stream.aclose)


async def _entries(log: LogReader, keys: KeyRange, wanted: set[str]) -> Lines:
    lines: list[Line] = []
    async for part in log.entries(wanted.__contains__, keys=keys):
        lines += [
            _record(each) if isinstance(each, LogRecord) else _damage(each.key, each.error)
            for each in part.findings
        ]
        if len(lines) >= ROWS:
            yield lines
            lines = []
    yield lines


async def _in_lists(blobs: AsyncIterator[BlobInfo]) -> AsyncGenerator[list[BlobInfo], None]:
    some: list[BlobInfo] = []
    async for blob in blobs:
        some.append(blob)
        if len(some) == ROWS:
            yield some
            some = []
    yield some


def _blob(blob: BlobInfo) -> Line:
    return hash_of(object_of(blob)), "blob", to_line("blobs", blob)


def _record(record: LogRecord) -> Line:
    return hash_of(record.operation.object_id), "record", to_line("records", record)


def _held(object_id: str) -> Line:
    return hash_of(object_id), "held", object_id


def _damage(key: str, problem: object) -> Line:
    """An object that is held, or damage that is the driver's to tell."""
    try:
        return _held(held_by(key, problem))
    except LogFormatError:
        return NOWHERE, "damage", json.dumps([key, str(problem)])


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
