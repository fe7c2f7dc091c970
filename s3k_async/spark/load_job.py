"""Loading of a dump in parts over Spark: the work of `migrate.load` in tasks.

The parts are read three times: to see that they are whole and what they hold together, to judge
them for this volume, and to load them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from os.path import isdir, join, lexists
from typing import Any, Final, Literal, Protocol, TypeAlias

import pyarrow as pa
from anyio.to_thread import run_sync
from pyspark import StorageLevel
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async import _native, errors
from s3k_async._core.metering import Requests
from s3k_async._core.runtime import SYSTEM
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    CorruptDataError,
    InvalidArgumentError,
    InvalidPathError,
    NotDirectoryError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.metadata.volume_lock import VolumeLock
from s3k_async.migrate.dump_format import DumpHeader, file_digest
from s3k_async.migrate.dump_parts import (
    MANIFEST,
    DumpPart,
    Holds,
    Manifest,
    part_chunks,
    read_manifest,
)
from s3k_async.migrate.load import DumpFacts, LoadResult, load_by
from s3k_async.migrate.load_batch import SHOWN, lacking_bytes, off_loop
from s3k_async.migrate.missing_parents import MissingParents
from s3k_async.model import Entry
from s3k_async.paths import normalize
from s3k_async.settings import with_local_secrets
from s3k_async.spark.delegate_tasks import delegated, while_held
from s3k_async.spark.dump_job import shared_directory
from s3k_async.spark.job_report import JobRun
from s3k_async.spark.listing_job import TASKS_PER_CORE
from s3k_async.spark.settings import SparkVolume, spark_volume
from s3k_async.spark.stages import Tell, counted
from s3k_async.stores.os_errors import os_errors
from s3k_async.volumes import Volume

__all__ = ["load"]

Row: TypeAlias = tuple[str, str | None, bool | None, str]
Aim: TypeAlias = Literal["judge", "check", "load"]

_SCHEMA: Final = pa.schema(
    [
        ("pile", pa.string()),
        ("path", pa.string()),
        ("isdir", pa.bool_()),
        ("message", pa.string()),
    ]
)
"""Piles: `entry`, and `above` for what is above entries; `missing`, a file without bytes; and the
class of an error, for what is so however often the task is repeated."""
_COLUMNS: Final = "pile string, path string, isdir boolean, message string"
_REFUSALS: Final = (CorruptDataError, InvalidPathError, NotDirectoryError)
_NAMES: Final = tuple(each.__name__ for each in _REFUSALS)
_REMEMBERED: Final = 100_000
"""Directories that a task does not tell of again."""
_PARENTS: Final = 1000
"""Made at once."""


def load(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    source: str,
    *,
    check: bool = False,
    partitions: int | None = None,
    progress: Tell | None = None,
) -> LoadResult:
    """Load the dump in the directory `source`, which `dump` has written, into an empty volume, as
    `load_volume`, which says what it promises and raises; bytes are not copied along.

    `source`: a path or `file:` URI of a directory that driver and executors share. A part is read
    by one task of at most `partitions` (4 for each core by default). Interrupted, it is finished by
    the same call, or by `s3k load`, from the first directory or the first file on. At the end the
    volume stays locked for 40 seconds, until no task that was taken for dead can be at it.

    Raises PathNotFoundError, InvalidArgumentError (`source` is no directory) besides; a task that
    cannot go on is repeated by Spark, and then tells its error in Spark's way.
    """
    opened = spark_volume(spark, volume)
    directory = shared_directory(source)
    count = partitions or spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    run = JobRun(spark, "load", directory, dry_run=False)
    manifest, facts = _opened(directory)
    parts = _Parts(directory, manifest.header, manifest.parts)
    with _read(spark, parts, count, run) as read:
        tasks = _Tasks(spark, opened.executors, facts, parts, read, count, run, progress)
        config = with_local_secrets(opened.driver)
        done = current_bridge().run(lambda: load_by(tasks, config, check=check))
    return replace(done, requests=done.requests + run.requests.value)


def _opened(directory: str) -> tuple[Manifest, DumpFacts]:
    if not lexists(directory):
        raise PathNotFoundError("no such directory", path=directory)
    if not isdir(directory):
        raise InvalidArgumentError(
            "tasks load a dump in parts, which is a directory; s3k load takes this one",
            path=directory,
        )
    with os_errors(directory):
        manifest = read_manifest(directory)
        digest = file_digest(join(directory, MANIFEST))
    return manifest, DumpFacts(directory, manifest.header, manifest.end, digest)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Some parts of a dump, as they are shipped."""

    directory: str
    header: DumpHeader
    parts: tuple[DumpPart, ...]

    def among(self, count: int) -> list[_Parts]:
        """Divided among so many tasks at most: about as many entries for each."""
        ordered = sorted(self.parts, key=lambda part: part.entries, reverse=True)
        return [
            replace(self, parts=tuple(ordered[start::count]))
            for start in range(min(count, len(ordered)))
        ]

    def of(self, holds: Holds, done: int) -> _Parts:
        """Those of one kind, without those that are behind the first so many entries of the
        dump."""
        found: list[DumpPart] = []
        seen = 0
        for part in self.parts:
            seen += part.entries
            if part.holds == holds and seen > done:
                found.append(part)
        return replace(self, parts=tuple(found))


def _stage(spark: SparkSession, parts: _Parts, count: int, work: _Work) -> DataFrame:
    shares = parts.among(count)
    if not shares:
        return spark.createDataFrame([], _COLUMNS)
    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(_Task(shares, work), _COLUMNS)


def _refuse(rows: Sequence[Any]) -> None:
    """Raise the error that a task has found the dump to be, if any has."""
    for row in rows:
        if row.pile in _NAMES:
            kind: type[S3kError] = getattr(errors, row.pile)
            raise kind(row.message, path=row.path)


@contextmanager
def _read(spark: SparkSession, parts: _Parts, count: int, run: JobRun) -> Iterator[DataFrame]:
    """The directories that the dump lacks: the column `path`. Raises for a dump that is damaged,
    and for what no volume can hold."""
    found = _stage(spark, parts, count, _Reading()).persist(StorageLevel.DISK_ONLY)
    try:
        with run.stage("reading"):
            _refuse(found.where(sf.col("pile").isin(*_NAMES)).limit(1).collect())
            entries, place = found.where("pile = 'entry'"), parts.directory
            if entries.groupBy("path").count().where("count > 1").limit(1).collect():
                raise CorruptDataError("the dump holds a path twice", path=place)
            above = found.where("pile = 'above'").select("path").distinct()
            through = above.join(entries.where("not isdir"), "path", "left_semi").limit(1).collect()
            if through:
                raise NotDirectoryError(
                    "the path of an entry of the dump leads through a file", path=through[0].path
                )
        yield above.join(entries, "path", "left_anti")
    finally:
        found.unpersist()


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The loader that has tasks do it."""

    spark: SparkSession
    config: VolumeConfig
    dump: DumpFacts
    parts: _Parts
    lacking: DataFrame
    """Directories that the dump names only as parents."""
    count: int
    job: JobRun
    progress: Tell | None

    async def judge(self, volume: Volume, lock: VolumeLock, *, check: bool) -> None:
        aim: Aim = "check" if check else "judge"
        rows = await while_held(
            self.spark, partial(self._stage, aim, self.parts, lock.id, "judging")
        )
        missing = [row.path for row in rows if row.pile == "missing"]
        if missing:
            raise lacking_bytes(missing, self.dump.path)

    async def run(self, volume: Volume, lock: VolumeLock) -> int:
        """Directories first, so that nothing is ever without its directory."""
        made = await self._make_parents(volume, lock)
        end = self.dump.end
        kinds: tuple[tuple[Holds, int], ...] = (
            ("directories", end.directories),
            ("files", end.entries),
        )
        for holds, done in kinds:
            left = self.parts.of(holds, lock.done)
            await while_held(self.spark, partial(self._stage, "load", left, lock.id, holds))
            lock.done = max(lock.done, done)
        await lock.dismiss(volume.items)
        return made

    async def _make_parents(self, volume: Volume, lock: VolumeLock) -> int:
        parents, landing = MissingParents(volume.store, SYSTEM), self.dump.landing(volume)
        rows = await run_sync(lambda: iter(self.lacking.orderBy("path").toLocalIterator()))
        while some := await run_sync(lambda: [row.path for row in islice(rows, _PARENTS)]):
            await landing.load(await parents.absent(some), lock.check)
        return parents.made

    def _stage(self, aim: Aim, parts: _Parts, lock: str, what: str) -> list[Any]:
        """What the tasks tell; raises what they refuse the dump for."""
        with self.job.stage(what), counted(self.spark, "load", what, self.progress) as counter:
            work = _Delegates(self.config, lock, aim, self.dump, self.job.requests, counter)
            rows = _stage(self.spark, parts, self.count, work).collect()
        _refuse(rows)
        return rows


# In tasks


class _Work(Protocol):
    """What is done with some parts."""

    def rows(self, parts: _Parts) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class _Task:
    """Does its work with the shares of a task."""

    shares: Sequence[_Parts]
    work: _Work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from self.work.rows(self.shares[number])
                except _REFUSALS as error:
                    yield _batch([(type(error).__name__, error.path, None, error.message)])


@dataclass(frozen=True, slots=True)
class _Reading:
    """Tells the paths of entries, and what is above them."""

    def rows(self, parts: _Parts) -> Iterator[pa.RecordBatch]:
        known: set[str] = set()
        for part in parts.parts:
            for chunk in part_chunks(parts.directory, parts.header, part):
                rows: list[Row] = []
                for entry in chunk:
                    if normalize(entry.path) != entry.path:
                        raise CorruptDataError(
                            f"a path of the dump is no normal one: {entry.path!r}", path=part.name
                        )
                    rows.append(("entry", entry.path, entry.is_dir, ""))
                above = {up for entry in chunk for up in _native.ancestors(entry.path)} - known
                if len(known) + len(above) > _REMEMBERED:
                    known.clear()
                known |= above
                yield _batch([*rows, *(("above", path, True, "") for path in above)])


@dataclass(frozen=True, slots=True)
class _Delegates:
    """Judges or loads, under the lock that the driver holds."""

    config: VolumeConfig
    lock: str
    aim: Aim
    dump: DumpFacts
    requests: Accumulator[Requests]
    seen: Accumulator[int]

    def rows(self, parts: _Parts) -> Iterator[pa.RecordBatch]:
        missing = current_bridge().run(partial(self._over, parts))
        yield _batch([("missing", path, None, "") for path in missing])

    async def _over(self, parts: _Parts) -> list[str]:
        """The first files without bytes."""
        missing: list[str] = []
        async with delegated(self.config, self.lock) as (volume, delegate):
            landing = self.dump.landing(volume)
            try:
                async with aclosing(_chunks(parts)) as chunks:
                    async for chunk in chunks:
                        if self.aim == "load":
                            await landing.load(chunk, delegate.check)
                        else:
                            await run_sync(landing.judge, chunk)
                        if self.aim == "check":
                            missing += await landing.lacking(chunk)
                        if len(missing) > SHOWN:
                            break
                        self.seen.add(len(chunk))
            finally:
                self.requests.add(volume.counter.requests)
        return missing[: SHOWN + 1]


async def _chunks(parts: _Parts) -> AsyncGenerator[list[Entry], None]:
    for part in parts.parts:
        async with aclosing(off_loop(part_chunks(parts.directory, parts.header, part))) as chunks:
            async for chunk in chunks:
                yield chunk


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
