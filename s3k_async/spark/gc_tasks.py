"""Tasks of a garbage collection: read splits and keep the input of the next stage, by object.

A line has a tag and the hash of an object id: `blob` (data older than the grace period), `named`
(a key that an item references), `held` (an object with unreadable records), `record` (of the log),
`wanted` (an object with unreferenced data; by the range of the log that has its entries),
`candidate` (a verdict). Lines for the driver: `marked` (counts), `reservation`, `segment` (one that
was read), `damage`, `superseded`, `swept`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from s3k_async._core.concurrency import merge
from s3k_async._native import FactLines
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.key_ranges import KeyRange, list_range_pages
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
from s3k_async.spark.scan_splits import (
    SUPERSEDED,
    CheckpointReplacedError,
    Run,
    Segments,
    each_page,
    opened,
)
from s3k_async.spark.shuffle_rows import LINES, NOWHERE
from s3k_async.spark.task_rows import Batches, row_batch
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
"""Lines of a batch."""
SHARDS: Final = 256
"""Number of values of the first two digits of an object id, by which log entries are divided."""

Line: TypeAlias = tuple[int, str, str]
"""Hash, tag, text."""
Lines: TypeAlias = AsyncGenerator[list[Line], None]
Seen: TypeAlias = Callable[[int], object]
"""A callback that gets the number of lines of each batch."""


@dataclass(frozen=True, slots=True)
class GcSettings:
    """Settings of a collection, as shipped to tasks."""

    config: VolumeConfig
    ages: Ages
    now_ms: int
    """The start of the collection, by the clock of the data store."""

    def mark_filter(self, volume: Volume) -> MarkFilter:
        """The filter of the mark phase, for an open volume."""
        return MarkFilter(CollectedData.of(volume), self.ages, self.now_ms)


class GcSplit(Protocol):
    """A split of a scan."""

    def lines(self, volume: Volume, mark_filter: MarkFilter) -> Lines:
        """Its lines."""


@dataclass(frozen=True, slots=True)
class DataSplit:
    """Data objects in ranges of keys."""

    ranges: tuple[KeyRange, ...]

    async def lines(self, volume: Volume, mark_filter: MarkFilter) -> Lines:
        """As GcSplit."""
        streams = [list_range_pages(volume.blobs, keys) for keys in self.ranges]
        async with aclosing(merge(streams, limit=len(streams))) as pages:
            async for page in pages:
                yield _lines("blob", mark_filter.blobs(page))


@dataclass(frozen=True, slots=True)
class TableSplit:
    """A scan segment of the table."""

    segment: int
    segments: int

    async def lines(self, volume: Volume, mark_filter: MarkFilter) -> Lines:
        """As GcSplit."""
        async for page in scan_segment(volume.store.items, self.segment, self.segments):
            facts, named = mark_filter.items(page)
            lines = _lines("named", facts)
            lines += [(hash_of(key[-36:]), "named", to_line("named", key)) for key in named.keys]
            lines += [_held(each) for each in named.unclear]
            yield lines + [(NOWHERE, "nameless", place) for place in named.nameless]


@dataclass(frozen=True, slots=True)
class LogSplit:
    """Log segments or checkpoint parts, as fsck reads them."""

    split: scan_splits.ScanSplit

    async def lines(self, volume: Volume, mark_filter: MarkFilter) -> Lines:
        """As GcSplit."""
        if isinstance(self.split, Segments):
            yield [(NOWHERE, "segment", each) for each in self.split.ids]
        try:
            async for page in self.split.scan(scope_of(volume, grace=0), ScanCounts()):
                lines = [_record(fact) for kind, _, fact in page.facts if kind == "records"]
                lines += [
                    _damage(fact.key, fact.problem)
                    for kind, _, fact in page.facts
                    if kind == "log_objects"
                ]
                for _, records in page.lines:
                    lines += _lines("record", records)
                yield lines
        except CheckpointReplacedError as error:
            yield [(NOWHERE, SUPERSEDED, str(error))]


def data_splits(place: CollectedData, count: int) -> list[GcSplit]:
    """`count` splits of the data."""
    return [DataSplit(tuple(ranges)) for ranges in place.ranges(count)]


def range_of(shard: int, count: int) -> int:
    """The number in `entry_ranges(count)` of the range of objects whose ids begin with these two
    digits."""
    return ((shard + 1) * min(count, SHARDS) - 1) // SHARDS


# What tasks do


def read_lines(terms: GcSettings, seen: Seen, splits: Iterable[GcSplit]) -> Batches:
    """Read splits: their lines, followed by the counts."""
    with opened(terms.config) as (volume, run):
        mark_filter = terms.mark_filter(volume)
        for split in splits:
            yield from _drained(split.lines(volume, mark_filter), run, seen)
        yield batch_of_lines(counts_of(mark_filter.done))


def take_unnamed(batches: Iterable[pa.RecordBatch]) -> Batches:
    """The unreferenced data, and the objects it belongs to."""
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
    terms: GcSettings, count: int, seen: Seen, batches: Iterable[pa.RecordBatch]
) -> Batches:
    """The log entries of the wanted objects, in some of `entry_ranges(count)`."""
    ranges = entry_ranges(count)
    with opened(terms.config) as (volume, run):
        assert volume.log_blobs is not None
        log = LogReader(volume.log_blobs, has_key=volume.store.keys.has)
        for number, lines in _runs(batches):
            wanted = {text for tag, text in lines if tag == "wanted"}
            yield from _drained(_entries(log, ranges[number], wanted), run, seen)


def judge_objects(terms: GcSettings, batches: Iterable[pa.RecordBatch]) -> Batches:
    """The candidates among unreferenced objects, by their log records."""

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
    """Group lines that are sorted by hash into objects. Only the lines of one hash are in
    memory."""
    for _, lines in _runs(batches):
        found: defaultdict[str, ObjectFacts] = defaultdict(ObjectFacts)
        for tag, text in lines:
            if tag == "blob":
                blob: BlobInfo = from_line("blobs", text)
                found[object_of(blob)].blobs.append(blob)
            elif tag == "named":
                key = from_line("named", text)
                found[key[-36:]].named.add(key)
            elif tag == "held":
                found[text].is_held = True
            elif tag == "record":
                record: LogRecord = from_line("records", text)
                found[record.operation.object_id].records.append(record)
        yield from found.items()


def counts_of(marked: Marked) -> Iterator[Line]:
    """The counts of a task, for the driver."""
    counts = {reason: [count.objects, count.bytes] for reason, count in marked.counts.items()}
    yield NOWHERE, "marked", json.dumps({"counts": counts, "entries": marked.entries})
    for entry in marked.reservations:
        yield NOWHERE, "reservation", to_line("entries", entry)


def add_counts(counts: dict[str, ObjectCount], more: Mapping[str, list[int]]) -> None:
    """Add the counts of a task, by reason."""
    for reason, (objects, size) in more.items():
        count = counts.setdefault(reason, ObjectCount())
        count.objects += objects
        count.bytes += size


def batch_of_lines(lines: Iterable[Line]) -> pa.RecordBatch:
    """The rows of some lines."""
    rows = [(part, tag, text.encode("utf-8", "surrogatepass")) for part, tag, text in lines]
    return row_batch(LINES, rows)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    current: int | None = None
    lines: list[tuple[str, str]] = []
    for batch in batches:
        parts, tags, texts = (batch.column(name).to_pylist() for name in LINES.names)
        for part, tag, text in zip(parts, tags, texts, strict=True):
            if part != current and current is not None:
                yield current, lines
                lines = []
            current = part
            lines.append((tag, bytes(text).decode("utf-8", "surrogatepass")))
    if current is not None:
        yield current, lines


def _batches(lines: Iterable[Line]) -> Batches:
    rest = iter(lines)
    while some := list(islice(rest, ROWS)):
        yield batch_of_lines(some)


def _drained(stream: Lines, run: Run, seen: Seen) -> Batches:
    for lines in each_page(stream, run):
        yield batch_of_lines(lines)
        seen(len(lines))


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


def _lines(tag: str, facts: FactLines) -> list[Line]:
    return [(part, tag, line.decode("ascii")) for part, line in facts.rows()]


def _blob(blob: BlobInfo) -> Line:
    return hash_of(object_of(blob)), "blob", to_line("blobs", blob)


def _record(record: LogRecord) -> Line:
    return hash_of(record.operation.object_id), "record", to_line("records", record)


def _held(object_id: str) -> Line:
    return hash_of(object_id), "held", object_id


def _damage(key: str, problem: object) -> Line:
    """A `held` line for the object, or damage for the driver to report."""
    try:
        return _held(held_by(key, problem))
    except LogFormatError:
        return NOWHERE, "damage", json.dumps([key, str(problem)])
