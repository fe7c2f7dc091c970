"""Splits of fsck's scans: the input and the output of each task.

A piece is a plain value that is shipped; the volume is opened where it is read.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from heapq import heappop, heappush
from json import dumps
from typing import Protocol, TypeVar

import pyarrow as pa

from s3k_async._core.concurrency import merge
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.config import VolumeConfig
from s3k_async.integrity.facts import LogObjectFacts
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.scans import Thing, blob_things, is_newer_format, log_things, table_things
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.oplog.checkpoints import Checkpoint
from s3k_async.oplog.log_reader import DamagedLog, Finding, JavaLogReader, LogReader, entry_ranges
from s3k_async.settings import with_local_secrets
from s3k_async.spark.shuffle_rows import batch_of, line_of
from s3k_async.stores.key_ranges import KeyRange, hex_ranges
from s3k_async.volumes import Volume, open_volume

__all__ = [
    "CHECKPOINTS",
    "COUNTS",
    "SUPERSEDED",
    "CheckpointReplacedError",
    "Run",
    "ScanSplit",
    "ScanTarget",
    "Segments",
    "VolumeTarget",
    "blob_splits",
    "checkpoint_splits",
    "log_splits",
    "opened",
    "read_splits",
    "segment_splits",
    "table_splits",
]

T = TypeVar("T")

COUNTS = "counts"
"""A pile: what a piece has counted, as JSON."""
CHECKPOINTS = "checkpoints"
"""In such a line: the keys of checkpoints that the piece is about."""
SUPERSEDED = "superseded"
"""A pile: the checkpoints that were gone when they were read."""
AT_ONCE = 2
"""Segments and parts of checkpoints that a task reads at the same time."""


class Run(Protocol):
    """Awaits a call on the loop of this process."""

    def __call__(self, call: Callable[[], Awaitable[T]], /) -> T: ...


@dataclass(frozen=True, slots=True)
class VolumeTarget:
    """What is compared, as it is shipped."""

    config: VolumeConfig
    grace: float
    path: str

    def ground(self, volume: Volume) -> Scope:
        """The same where the volume is open."""
        return scope_of(volume, grace=self.grace, path=self.path)

    @contextmanager
    def grounded(self) -> Iterator[tuple[Scope, Run]]:
        """The same where the volume is not open yet, which it is for as long as the body takes."""
        with opened(self.config) as (volume, run):
            yield self.ground(volume), run


class ScanTarget(Protocol):
    """The target of a scan, as shipped to tasks."""

    def grounded(self) -> AbstractContextManager[tuple[Scope, Run]]:
        """What is scanned, for as long as the body takes, and what runs calls to it."""


@contextmanager
def opened(config: VolumeConfig) -> Iterator[tuple[Volume, Run]]:
    """A volume that is open for as long as the body takes, with what runs calls to it."""
    run = current_bridge().run
    volume = run(lambda: open_volume(with_local_secrets(config)))
    try:
        yield volume, run
    finally:
        run(volume.close)


class ScanSplit(Protocol):
    """A piece of a scan."""

    def things(self, ground: Scope, counts: ScanCounts) -> AsyncIterator[list[Thing]]:
        """What it holds, added to the counts."""


@dataclass(frozen=True, slots=True)
class _Table:
    segment: int
    segments: int

    def things(self, ground: Scope, counts: ScanCounts) -> AsyncIterator[list[Thing]]:
        return table_things(ground, self.segment, self.segments, counts)


@dataclass(frozen=True, slots=True)
class _Bytes:
    ranges: tuple[KeyRange, ...]

    def things(self, ground: Scope, counts: ScanCounts) -> AsyncIterator[list[Thing]]:
        return merge(
            [blob_things(ground, keys, counts) for keys in self.ranges], limit=len(self.ranges)
        )


@dataclass(frozen=True, slots=True)
class _Entries:
    keys: KeyRange

    def things(self, ground: Scope, counts: ScanCounts) -> AsyncIterator[list[Thing]]:
        return log_things(ground, self._findings(_native_log(ground)), counts)

    async def _findings(self, log: LogReader) -> AsyncIterator[Finding]:
        async for part in log.entries(keys=self.keys):
            for finding in part.findings:
                yield finding


@dataclass(frozen=True, slots=True)
class _JavaEntries:
    ranges: tuple[KeyRange, ...]

    def things(self, ground: Scope, counts: ScanCounts) -> AsyncIterator[list[Thing]]:
        log = ground.log
        assert isinstance(log, JavaLogReader)
        return log_things(
            ground,
            merge([log.records(keys) for keys in self.ranges], limit=len(self.ranges)),
            counts,
        )


@dataclass(frozen=True, slots=True)
class Segments:
    """Some segments of the log, by their ids."""

    ids: tuple[str, ...]

    def things(self, ground: Scope, counts: ScanCounts) -> AsyncIterator[list[Thing]]:
        log = _native_log(ground)

        async def one(segment: str) -> AsyncGenerator[Finding, None]:
            for finding in await log.segment(segment):
                yield finding

        return log_things(
            ground, merge([one(segment) for segment in self.ids], limit=AT_ONCE), counts
        )


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    checkpoint: Checkpoint
    numbers: tuple[int, ...]

    async def things(self, ground: Scope, counts: ScanCounts) -> AsyncIterator[list[Thing]]:
        reader = _native_log(ground).checkpoints
        superseded = False

        async def one(number: int) -> AsyncGenerator[Finding, None]:
            nonlocal superseded
            findings = await reader.part(self.checkpoint, number)
            superseded |= findings is None
            for finding in findings or ():
                yield finding

        parts = merge([one(number) for number in self.numbers], limit=AT_ONCE)
        async for things in log_things(ground, parts, counts):
            yield things
        if superseded:
            raise CheckpointReplacedError(self.checkpoint.key)


@dataclass(frozen=True, slots=True)
class _Damage:
    """What was seen on the driver."""

    facts: tuple[LogObjectFacts, ...]

    async def things(self, ground: Scope, counts: ScanCounts) -> AsyncIterator[list[Thing]]:
        yield [("log_objects", "", each) for each in self.facts]


class CheckpointReplacedError(Exception):
    """A newer checkpoint replaced this one, and must be read as well."""


def _native_log(ground: Scope) -> LogReader:
    assert isinstance(ground.log, LogReader)
    return ground.log


def table_splits(count: int) -> list[ScanSplit]:
    """The table, in `count` pieces."""
    return [_Table(segment, count) for segment in range(count)]


def blob_splits(ground: Scope, count: int) -> list[ScanSplit]:
    """The bytes, in `count` pieces."""
    return [_Bytes(tuple(ranges)) for ranges in ground.ranges(count)]


async def log_splits(ground: Scope, count: int) -> list[ScanSplit]:
    """Entries and segments of the log, in about twice `count` pieces; segments are listed here and
    given out by size. Checkpoints have to be read when all of these are, because what is compacted
    meanwhile is in them.
    """
    log = ground.log
    if log is None:
        return []
    if isinstance(log, JavaLogReader):
        return [_JavaEntries(tuple(ranges)) for ranges in hex_ranges(count)]
    pieces: list[ScanSplit] = [_Entries(keys) for keys in entry_ranges(count)]
    return pieces + await segment_splits(ground, count)


async def segment_splits(ground: Scope, count: int) -> list[ScanSplit]:
    """Segments of a native log, by size, in at most `count` pieces, and what is none."""
    sizes, damage = await _native_log(ground).segment_sizes()
    pieces: list[ScanSplit] = [Segments(ids) for ids in _by_size(sizes, count)]
    return pieces + await _damage(ground, damage)


async def checkpoint_splits(ground: Scope, count: int, done: set[str]) -> list[ScanSplit]:
    """The checkpoints that are valid and were not read yet, in about `count` pieces each; `done`:
    their keys, to which those that are given out are added.
    """
    if not isinstance(ground.log, LogReader):
        return []
    pieces: list[ScanSplit] = []
    for found in await ground.log.checkpoints.valid():
        if found.key in done:
            continue
        done.add(found.key)
        if isinstance(found, DamagedLog):
            pieces += await _damage(ground, [found])
            continue
        bare, numbers = replace(found, segments=frozenset()), range(len(found.parts))
        pieces += [
            _Checkpoint(bare, tuple(numbers[start::count]))
            for start in range(min(count, len(numbers)))
        ]
    return pieces


async def _damage(ground: Scope, damage: Sequence[DamagedLog]) -> list[ScanSplit]:
    facts = [
        LogObjectFacts(each.key, str(each.error), await is_newer_format(ground.log_blobs, each.key))
        for each in damage
    ]
    return [_Damage(tuple(facts))] if facts else []


def _by_size(sizes: dict[str, int], count: int) -> list[tuple[str, ...]]:
    """The names in groups of about the same size together: the largest first, each to the group
    that has least."""
    groups: list[list[str]] = [[] for _ in range(min(count, len(sizes)))]
    least = [(0, number) for number in range(len(groups))]
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        size, number = heappop(least)
        groups[number].append(name)
        heappush(least, (size + sizes[name], number))
    return [tuple(names) for names in groups]


def read_splits(
    where: ScanTarget,
    pieces: Sequence[ScanSplit],
    numbers: Iterable[int],
    seen: Callable[[int], object],
) -> Iterator[pa.RecordBatch]:
    """The rows of some pieces, in a task; `seen` is told how many things there were."""
    with where.grounded() as (ground, run):
        for number in numbers:
            yield from _rows(pieces[number], ground, run, seen)


def _rows(
    piece: ScanSplit, ground: Scope, run: Run, seen: Callable[[int], object]
) -> Iterator[pa.RecordBatch]:
    counts = ScanCounts()
    stream = piece.things(ground, counts)
    try:
        while (things := run(lambda: anext(stream, None))) is not None:
            yield batch_of(things)
            seen(len(things))
    except CheckpointReplacedError as error:
        yield line_of(SUPERSEDED, str(error))
    finally:
        if isinstance(stream, AsyncGenerator):
            run(stream.aclose)
    yield line_of(COUNTS, dumps(asdict(counts) | {CHECKPOINTS: _checkpoints(piece)}))


def _checkpoints(piece: ScanSplit) -> list[str]:
    if isinstance(piece, _Checkpoint):
        return [piece.checkpoint.key]
    return [each.key for each in piece.facts] if isinstance(piece, _Damage) else []
