"""Splits of fsck's scans: the input and the output of each task.

A split is a value that is shipped to a task, which opens the volume.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from heapq import heappop, heappush
from json import dumps
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark import SparkFiles

from s3k_async._core.concurrency import merge
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.backends.ports.key_ranges import KeyRange, hex_ranges
from s3k_async.config import VolumeConfig
from s3k_async.integrity.facts import LogObjectFacts
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.scans import (
    FactPage,
    blob_facts,
    is_newer_format,
    log_facts,
    table_facts,
)
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.oplog.checkpoints import Checkpoint
from s3k_async.oplog.log_reader import DamagedLog, Finding, JavaLogReader, LogReader, entry_ranges
from s3k_async.oplog.record_lines import RecordLines
from s3k_async.oplog.segment_ids import SegmentIds
from s3k_async.settings import with_local_secrets
from s3k_async.spark.shuffle_rows import batches_of, line_of
from s3k_async.spark.unit_limits import UNLIMITED, Run, UnitLimits
from s3k_async.volumes import Volume, open_volume

__all__ = [
    "CHECKPOINTS",
    "COUNTS",
    "SUPERSEDED",
    "CheckpointReplacedError",
    "ScanSplit",
    "ScanTarget",
    "Segments",
    "VolumeTarget",
    "blob_splits",
    "checkpoint_splits",
    "each_page",
    "log_splits",
    "opened",
    "read_splits",
    "segment_splits",
    "table_splits",
]

T = TypeVar("T")

COUNTS = "counts"
"""Tag of a line: the counts of a split, as JSON."""
CHECKPOINTS = "checkpoints"
"""In such a line: the keys of the checkpoints of the split."""
SUPERSEDED = "superseded"
"""Tag of a line: checkpoints that were replaced before they were read."""
AT_ONCE = 2
"""Segments and parts of checkpoints that a task reads at the same time."""


@dataclass(frozen=True, slots=True)
class VolumeTarget:
    """The volume and path of a check, as shipped to tasks."""

    config: VolumeConfig
    grace: float
    path: str
    deep: bool = False
    """As of Scope."""
    directories: str | None = None
    """In layout `tree`, once the scan of the table is over: the name among Spark's files of the
    DirectoryFile of what it has found."""
    units: UnitLimits = UNLIMITED
    """The limits of each task."""

    @contextmanager
    def scoped(self, volume: Volume, run: Run) -> Iterator[Scope]:
        """Its scope in an open volume."""
        scope = scope_of(volume, grace=self.grace, path=self.path, deep=self.deep)
        try:
            run(partial(scope.check.begin, self.path))
            if self.directories is not None:
                scope.check.open_directories(SparkFiles.get(self.directories))
            yield scope
        finally:
            scope.check.close()

    @contextmanager
    def opened_volume(self) -> Iterator[tuple[Volume, Scope, Run]]:
        """The volume and its scope, open in the body, and the function that runs coroutines."""
        with opened(self.config, self.units) as (volume, run), self.scoped(volume, run) as scope:
            yield volume, scope, run

    @contextmanager
    def opened_scope(self) -> Iterator[tuple[Scope, Run]]:
        """As ScanTarget."""
        with self.opened_volume() as (_, scope, run):
            yield scope, run


class ScanTarget(Protocol):
    """The target of a scan, as shipped to tasks."""

    def opened_scope(self) -> AbstractContextManager[tuple[Scope, Run]]:
        """The scope, open in the body, and the function that runs coroutines on it."""


@contextmanager
def opened(config: VolumeConfig, units: UnitLimits = UNLIMITED) -> Iterator[tuple[Volume, Run]]:
    """A volume, open in the body, and the function that runs coroutines on it, within the limits.
    Raises UnsupportedError for limits in a table that does not report consumed units."""
    run = units.limited(current_bridge().run)
    volume = run(lambda: open_volume(with_local_secrets(config)))
    try:
        run.check(volume)
        yield volume, run
    finally:
        run(volume.close)


class ScanSplit(Protocol):
    """A split of a scan."""

    def scan(self, scope: Scope, counts: ScanCounts) -> AsyncIterator[FactPage]:
        """The facts of the split, which are added to the counts."""


@dataclass(frozen=True, slots=True)
class _TableSegment:
    segment: int
    segments: int

    def scan(self, scope: Scope, counts: ScanCounts) -> AsyncIterator[FactPage]:
        return table_facts(scope, self.segment, self.segments, counts)


@dataclass(frozen=True, slots=True)
class _Bytes:
    ranges: tuple[KeyRange, ...]

    def scan(self, scope: Scope, counts: ScanCounts) -> AsyncIterator[FactPage]:
        return merge(
            [blob_facts(scope, keys, counts) for keys in self.ranges], limit=len(self.ranges)
        )


@dataclass(frozen=True, slots=True)
class _Entries:
    keys: KeyRange

    def scan(self, scope: Scope, counts: ScanCounts) -> AsyncIterator[FactPage]:
        return log_facts(scope, self._findings(_native_log(scope)), counts)

    async def _findings(self, log: LogReader) -> AsyncIterator[Finding]:
        async for part in log.entries(keys=self.keys):
            for finding in part.findings:
                yield finding


@dataclass(frozen=True, slots=True)
class _JavaEntries:
    ranges: tuple[KeyRange, ...]

    def scan(self, scope: Scope, counts: ScanCounts) -> AsyncIterator[FactPage]:
        log = scope.log
        assert isinstance(log, JavaLogReader)
        return log_facts(
            scope,
            merge([log.records(keys) for keys in self.ranges], limit=len(self.ranges)),
            counts,
        )


@dataclass(frozen=True, slots=True)
class Segments:
    """Some segments of the log, by their ids."""

    ids: tuple[str, ...]

    def scan(self, scope: Scope, counts: ScanCounts) -> AsyncIterator[FactPage]:
        log = _native_log(scope)

        async def one(segment: str) -> AsyncGenerator[Finding | RecordLines, None]:
            for each in await log.segment_batch(segment):
                yield each

        return log_facts(
            scope, merge([one(segment) for segment in self.ids], limit=AT_ONCE), counts
        )


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    checkpoint: Checkpoint
    numbers: tuple[int, ...]

    async def scan(self, scope: Scope, counts: ScanCounts) -> AsyncIterator[FactPage]:
        reader = _native_log(scope).checkpoints
        superseded = False

        async def one(number: int) -> AsyncGenerator[Finding | RecordLines, None]:
            nonlocal superseded
            found = await reader.lines(self.checkpoint, number)
            superseded |= found is None
            if found is not None:
                yield found

        parts = merge([one(number) for number in self.numbers], limit=AT_ONCE)
        async for page in log_facts(scope, parts, counts):
            yield page
        if superseded:
            raise CheckpointReplacedError(self.checkpoint.key)


@dataclass(frozen=True, slots=True)
class _Damage:
    """Damage that the driver has found."""

    facts: tuple[LogObjectFacts, ...]

    async def scan(self, scope: Scope, counts: ScanCounts) -> AsyncIterator[FactPage]:
        yield FactPage([("log_objects", "", each) for each in self.facts])


class CheckpointReplacedError(Exception):
    """A newer checkpoint replaced this one, and must be read as well."""


def _native_log(scope: Scope) -> LogReader:
    assert isinstance(scope.log, LogReader)
    return scope.log


def table_splits(count: int) -> list[ScanSplit]:
    """`count` splits of the table."""
    return [_TableSegment(segment, count) for segment in range(count)]


def blob_splits(scope: Scope, count: int) -> list[ScanSplit]:
    """`count` splits of the data."""
    return [_Bytes(tuple(ranges)) for ranges in scope.ranges(count)]


async def log_splits(scope: Scope, count: int) -> list[ScanSplit]:
    """Entries and segments of the log, in about twice `count` splits; segments are listed here and
    divided by size. Checkpoints must be read after all of these, because they hold the records that
    are compacted meanwhile.
    """
    log = scope.log
    if log is None:
        return []
    if isinstance(log, JavaLogReader):
        return [_JavaEntries(tuple(ranges)) for ranges in hex_ranges(count)]
    splits: list[ScanSplit] = [_Entries(keys) for keys in entry_ranges(count)]
    return splits + await segment_splits(scope, count)


async def segment_splits(scope: Scope, count: int) -> list[ScanSplit]:
    """Segments of a native log, by size, in at most `count` splits, and damaged ones."""
    sizes, damage = await _native_log(scope).segment_sizes()
    splits: list[ScanSplit] = [Segments(ids) for ids in _by_size(sizes, count)]
    return splits + await _damage(scope, damage)


async def checkpoint_splits(scope: Scope, count: int, done: set[str]) -> list[ScanSplit]:
    """The valid checkpoints that were not read yet, in about `count` splits each. `done`: the keys
    of those already read; the keys of the returned ones are added.
    """
    if not isinstance(scope.log, LogReader):
        return []
    splits: list[ScanSplit] = []
    for found in await scope.log.checkpoints.valid():
        if found.key in done:
            continue
        done.add(found.key)
        if isinstance(found, DamagedLog):
            splits += await _damage(scope, [found])
            continue
        bare, numbers = replace(found, segments=SegmentIds()), range(len(found.parts))
        splits += [
            _Checkpoint(bare, tuple(numbers[start::count]))
            for start in range(min(count, len(numbers)))
        ]
    return splits


async def _damage(scope: Scope, damage: Sequence[DamagedLog]) -> list[ScanSplit]:
    facts = [
        LogObjectFacts(each.key, str(each.error), await is_newer_format(scope.log_blobs, each.key))
        for each in damage
    ]
    return [_Damage(tuple(facts))] if facts else []


def _by_size(sizes: dict[str, int], count: int) -> list[tuple[str, ...]]:
    """The names in groups of about the same total size: largest first, each into the smallest
    group."""
    groups: list[list[str]] = [[] for _ in range(min(count, len(sizes)))]
    least = [(0, number) for number in range(len(groups))]
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        size, number = heappop(least)
        groups[number].append(name)
        heappush(least, (size + sizes[name], number))
    return [tuple(names) for names in groups]


def each_page(stream: AsyncIterator[T], run: Run) -> Iterator[T]:
    """The pages of an asynchronous stream, as a blocking iterator."""
    try:
        while (page := run(lambda: anext(stream, None))) is not None:
            yield page
    finally:
        if isinstance(stream, AsyncGenerator):
            run(stream.aclose)


def read_splits(
    target: ScanTarget, seen: Callable[[int], object], splits: Iterable[ScanSplit]
) -> Iterator[pa.RecordBatch]:
    """The rows of splits, in a task; `seen` is called with the number of facts in each batch."""
    with target.opened_scope() as (scope, run):
        for split in splits:
            yield from _rows(split, scope, run, seen)


def _rows(
    split: ScanSplit, scope: Scope, run: Run, seen: Callable[[int], object]
) -> Iterator[pa.RecordBatch]:
    counts = ScanCounts()
    try:
        for page in each_page(split.scan(scope, counts), run):
            yield from batches_of(page, every_child=scope.check.by_id)
            seen(len(page))
    except CheckpointReplacedError as error:
        yield line_of(SUPERSEDED, str(error))
    yield line_of(COUNTS, dumps(asdict(counts) | {CHECKPOINTS: _checkpoints(split)}))


def _checkpoints(split: ScanSplit) -> list[str]:
    if isinstance(split, _Checkpoint):
        return [split.checkpoint.key]
    return [each.key for each in split.facts] if isinstance(split, _Damage) else []
