"""Tasks of a garbage collection: read splits and keep the input of the next stage, by object.

Data objects, ordinary items and committed records are lines of the native core from the scan
through the shuffle to the join, without a Python object for each. Only unreferenced objects, and
what the core does not read, become objects.

A line has a tag and the hash of an object id: `blob` (data older than the grace period), `named`
(a key that an item references), `held` (an object with unreadable records), `record` (of the log),
`wanted` (an object with unreferenced data; by the range of the log that has its entries),
`candidate` (a verdict). Lines for the driver: `marked` (counts), `reservation`, `segment` (one that
was read), `damage`, `superseded`, `swept`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from s3k_async import _native
from s3k_async._core.concurrency import merge
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.key_ranges import KeyRange, list_range_pages
from s3k_async.config import VolumeConfig
from s3k_async.errors import LogFormatError
from s3k_async.integrity.gc_candidates import document_of
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
from s3k_async.integrity.shuffle import facts_in, from_line, hash_of, to_line
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.log_reader import LogReader, entry_ranges
from s3k_async.spark import scan_splits
from s3k_async.spark.scan_splits import (
    SUPERSEDED,
    CheckpointReplacedError,
    Segments,
    each_page,
    opened,
)
from s3k_async.spark.shuffle_rows import LINES, NOWHERE, native_batch
from s3k_async.spark.task_rows import Batches, row_batch
from s3k_async.spark.unit_limits import UNLIMITED, Run, UnitLimits
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
Rows: TypeAlias = AsyncGenerator[pa.RecordBatch, None]
"""Rows of LINES."""
Seen: TypeAlias = Callable[[int], object]
"""A callback that gets the number of rows of each batch."""


@dataclass(frozen=True, slots=True)
class GcSettings:
    """Settings of a collection, as shipped to tasks."""

    config: VolumeConfig
    ages: Ages
    now_ms: int
    """The start of the collection, by the clock of the data store."""
    units: UnitLimits = UNLIMITED
    """The limits of each task."""

    def mark_filter(self, volume: Volume) -> MarkFilter:
        """The filter of the mark phase, for an open volume."""
        return MarkFilter(CollectedData.of(volume), self.ages, self.now_ms)


class GcSplit(Protocol):
    """A split of a scan."""

    def rows(self, volume: Volume, mark_filter: MarkFilter) -> Rows:
        """Its lines."""


@dataclass(frozen=True, slots=True)
class DataSplit:
    """Data objects in ranges of keys."""

    ranges: tuple[KeyRange, ...]

    async def rows(self, volume: Volume, mark_filter: MarkFilter) -> Rows:
        """As GcSplit."""
        streams = [list_range_pages(volume.blobs, keys) for keys in self.ranges]
        async with aclosing(merge(streams, limit=len(streams))) as pages:
            async for page in pages:
                yield native_batch("blob", mark_filter.blobs(page))


@dataclass(frozen=True, slots=True)
class TableSplit:
    """A scan segment of the table."""

    segment: int
    segments: int

    async def rows(self, volume: Volume, mark_filter: MarkFilter) -> Rows:
        """As GcSplit."""
        async for page in scan_segment(volume.store.items, self.segment, self.segments):
            facts, named = mark_filter.items(page)
            yield native_batch("named", facts)
            lines = [(hash_of(key[-36:]), "named", to_line("named", key)) for key in named.keys]
            lines += [_held(each) for each in named.unclear]
            lines += [(hash_of(each), "uploading", each) for each in named.uploading]
            lines += [(NOWHERE, "nameless", place) for place in named.nameless]
            if lines:
                yield batch_of_lines(lines)


@dataclass(frozen=True, slots=True)
class LogSplit:
    """Log segments or checkpoint parts, as fsck reads them."""

    split: scan_splits.ScanSplit

    async def rows(self, volume: Volume, mark_filter: MarkFilter) -> Rows:
        """As GcSplit."""
        if isinstance(self.split, Segments):
            yield batch_of_lines([(NOWHERE, "segment", each) for each in self.split.ids])
        try:
            async for page in self.split.scan(scope_of(volume, grace=0), ScanCounts()):
                lines = [_record(fact) for kind, _, fact in page.facts if kind == "records"]
                lines += [
                    _damage(fact.key, fact.problem)
                    for kind, _, fact in page.facts
                    if kind == "log_objects"
                ]
                if lines:
                    yield batch_of_lines(lines)
                for _, records in page.lines:
                    yield native_batch("record", records)
        except CheckpointReplacedError as error:
            yield batch_of_lines([(NOWHERE, SUPERSEDED, str(error))])


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
    with opened(terms.config, terms.units) as (volume, run):
        mark_filter = terms.mark_filter(volume)
        for split in splits:
            yield from _drained(split.rows(volume, mark_filter), run, seen)
        yield batch_of_lines(counts_of(mark_filter.done))


def take_unnamed(batches: Iterable[pa.RecordBatch]) -> Batches:
    """The unreferenced data, and the objects it belongs to. The lines are sorted by hash."""
    marked = Marked()
    named = marked.counts["named"] = ObjectCount()
    for rows in _whole_hashes(batches):
        left, objects, size = _native.unnamed_blobs([_text(rows, "named")], [_text(rows, "blob")])
        named.objects += objects
        named.bytes += size
        yield from _batches(_unnamed(list(facts_in("blobs", left)), rows))
    yield batch_of_lines(counts_of(marked))


def read_entries(
    terms: GcSettings, count: int, seen: Seen, batches: Iterable[pa.RecordBatch]
) -> Batches:
    """The log entries of the wanted objects, in some of `entry_ranges(count)`."""
    ranges = entry_ranges(count)
    with opened(terms.config, terms.units) as (volume, run):
        assert volume.log_blobs is not None
        log = LogReader(volume.log_blobs, has_key=volume.store.keys.has)
        for number, lines in _runs(batches):
            wanted = {text for tag, text in lines if tag == "wanted"}
            yield from _drained(_entries(log, ranges[number], wanted), run, seen)


def judge_objects(terms: GcSettings, batches: Iterable[pa.RecordBatch]) -> Batches:
    """The candidates among unreferenced objects, by their log records."""

    def found(mark_filter: MarkFilter) -> Iterator[Line]:
        for object_id, known in objects_in(batches):
            history = mark_filter.history(known.records)
            for blob in known.blobs:
                verdict = mark_filter.verdict(
                    blob, history, damaged=known.is_held, uploading=known.is_uploading
                )
                if verdict is not None:
                    yield (
                        hash_of(object_id),
                        "candidate",
                        json.dumps(document_of(verdict), separators=(",", ":")),
                    )
        yield from counts_of(mark_filter.done)

    with opened(terms.config, terms.units) as (volume, _):
        yield from _batches(found(terms.mark_filter(volume)))


# Lines


def _whole_hashes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Lines sorted by hash, in tables of about a batch that divide no hash."""
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        parts = batch.column("part")
        if kept and kept[-1].column("part")[-1] != parts[0]:
            yield pa.Table.from_batches(kept)
            kept = []
        last = pc.index(parts, parts[-1]).as_py()
        if last:
            yield pa.Table.from_batches([*kept, batch.slice(0, last)])
            kept = []
        kept.append(batch.slice(last))
    if kept:
        yield pa.Table.from_batches(kept)


def _of_tag(rows: pa.Table, tag: str) -> pa.Array:
    """The lines with a tag."""
    return rows.filter(pc.equal(rows.column("tag"), tag)).column("line").combine_chunks()


def _text(rows: pa.Table, tag: str) -> bytes:
    """The lines with a tag, separated by newlines whether or not they end with one."""
    lines = _of_tag(rows, tag)
    (text,) = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), b"\n")
    return bytes(text.as_buffer())


def _unnamed(dead: Sequence[BlobInfo], rows: pa.Table) -> Iterator[Line]:
    """The lines about unreferenced data among the rows."""
    yield from map(_blob, dead)
    object_ids = {object_of(blob) for blob in dead}
    if object_ids:
        for object_id in sorted(object_ids):
            yield int(object_id[:2], 16), "wanted", object_id
        for tag in ("held", "uploading"):
            found = {line.decode() for line in _of_tag(rows, tag).to_pylist()}
            for object_id in sorted(object_ids & found):
                yield hash_of(object_id), tag, object_id


@dataclass(slots=True)
class ObjectFacts:
    """What is known about one object with unreferenced data."""

    blobs: list[BlobInfo] = field(default_factory=list)
    records: list[LogRecord] = field(default_factory=list)
    is_held: bool = False
    is_uploading: bool = False


def objects_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, ObjectFacts]]:
    """Group lines that are sorted by hash into objects. Only the lines of one hash are in
    memory."""
    for _, lines in _runs(batches):
        found: defaultdict[str, ObjectFacts] = defaultdict(ObjectFacts)
        for tag, text in lines:
            if tag == "blob":
                blob: BlobInfo = from_line("blobs", text)
                found[object_of(blob)].blobs.append(blob)
            elif tag == "held":
                found[text].is_held = True
            elif tag == "uploading":
                found[text].is_uploading = True
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
    for tag, ids in (("multipart", marked.multipart), ("kept_multipart", marked.kept_multipart)):
        for upload_id in sorted(ids):
            yield NOWHERE, tag, upload_id


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


def _drained(stream: Rows, run: Run, seen: Seen) -> Batches:
    for batch in each_page(stream, run):
        yield batch
        seen(batch.num_rows)


async def _entries(log: LogReader, keys: KeyRange, wanted: set[str]) -> Rows:
    lines: list[Line] = []
    async for part in log.entries(wanted.__contains__, keys=keys):
        lines += [
            _record(each) if isinstance(each, LogRecord) else _damage(each.key, each.error)
            for each in part.findings
        ]
        if len(lines) >= ROWS:
            yield batch_of_lines(lines)
            lines = []
    if lines:
        yield batch_of_lines(lines)


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
