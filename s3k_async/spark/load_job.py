"""Loading of a dump in parts over Spark: the work of `migrate.load` in tasks.

The parts are read three times: to verify that they are complete and consistent, to check them
against this volume, and to load them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
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

from s3k_async import _native
from s3k_async._core.metering import Requests
from s3k_async._core.os_errors import os_errors
from s3k_async._core.paths import normalize
from s3k_async._core.runtime import SYSTEM
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    CorruptDataError,
    InvalidArgumentError,
    InvalidPathError,
    NotDirectoryError,
    PathNotFoundError,
)
from s3k_async.migrate.dump_directories import DumpDirectories
from s3k_async.migrate.dump_format import DumpHeader, file_digest
from s3k_async.migrate.dump_parts import (
    MANIFEST,
    DumpPart,
    Holds,
    Manifest,
    part_chunks,
    read_manifest,
)
from s3k_async.migrate.load import DumpFacts, LoadResult, NewDirectories, load_by
from s3k_async.migrate.load_batch import SHOWN, lacking_bytes, off_loop
from s3k_async.model import Entry
from s3k_async.namespace.layout import require_supported
from s3k_async.settings import with_local_secrets
from s3k_async.spark.delegate_tasks import delegated, while_held
from s3k_async.spark.dump_job import shared_directory
from s3k_async.spark.runner import AnyVolume, JobRun, ProgressCallback
from s3k_async.spark.task_rows import Batches, error_from, row_batch
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.volumes import Volume

__all__ = ["load"]

Row: TypeAlias = tuple[str, str | None, bool | None, str]
Aim: TypeAlias = Literal["judge", "check", "load"]

_SCHEMA: Final = pa.schema(
    [
        ("tag", pa.string()),
        ("path", pa.string()),
        ("isdir", pa.bool_()),
        ("message", pa.string()),
    ]
)
"""Tags of rows: `entry`; `above` for a directory above an entry; `missing` for a file without
bytes; and the class of an error that repeating the task does not change."""
_REFUSALS: Final = (CorruptDataError, InvalidPathError, NotDirectoryError)
_NAMES: Final = tuple(each.__name__ for each in _REFUSALS)
_REMEMBERED: Final = 100_000
"""Directories that a task remembers, so as not to return them again."""
_PARENTS: Final = 1000
"""Directories created at the same time."""


def load(
    spark: SparkSession,
    volume: AnyVolume,
    source: str,
    *,
    check: bool = False,
    tasks: int | None = None,
    progress: ProgressCallback | None = None,
) -> LoadResult:
    """Load the dump in the directory `source`, written by `dump`, into an empty volume, with the
    guarantees and errors of `load_volume`. Data is not copied.

    `source`: a path or `file:` URI of a directory that driver and executors share. One task reads a
    part; there are at most `tasks` (4 for each core by default). The same call, or `s3k load`,
    finishes an interrupted load, starting again with the first directory or the first file. At the
    end the volume remains locked for 40 seconds, until no task that was considered dead can still
    write.

    Also raises PathNotFoundError, InvalidArgumentError (`source` is no directory), and the errors
    of tasks as Spark reports them.
    """
    job = JobRun(spark, volume, "load", tasks=tasks, progress=progress)
    require_supported(job.volume.driver.layout or "path", "a Spark job of load")
    directory = shared_directory(source)
    manifest, facts = _opened(directory)
    parts = _PartsOfDump(directory, manifest.header, manifest.parts)
    with _read(job, parts) as lacking:
        loader = _TaskLoader(job, facts, parts, lacking)
        config = with_local_secrets(job.volume.driver)
        done = current_bridge().run(lambda: load_by(loader, config, check=check))
    return replace(done, requests=done.requests + job.requests.value)


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
class _PartsOfDump:
    """Some parts of a dump, as shipped to tasks."""

    directory: str
    header: DumpHeader
    parts: tuple[DumpPart, ...]

    def among(self, count: int) -> list[_PartsOfDump]:
        """Divided among at most this many tasks, with about as many entries for each."""
        ordered = sorted(self.parts, key=lambda part: part.entries, reverse=True)
        return [
            replace(self, parts=tuple(ordered[start::count]))
            for start in range(min(count, len(ordered)))
        ]

    def of(self, holds: Holds, done: int) -> _PartsOfDump:
        """The parts of one kind that hold entries after the first `done` of the dump."""
        found: list[DumpPart] = []
        seen = 0
        for part in self.parts:
            seen += part.entries
            if part.holds == holds and seen > done:
                found.append(part)
        return replace(self, parts=tuple(found))


def _rows_of(job: JobRun, parts: _PartsOfDump, work: _Work) -> DataFrame:
    return job.over_splits(parts.among(job.tasks), _Task(work), _SCHEMA)


def _refuse(rows: Sequence[Any]) -> None:
    """Raise the error that a task has found in the dump, if any."""
    for row in rows:
        if row.tag in _NAMES:
            raise error_from(row.tag, row.message, row.path)


@contextmanager
def _read(job: JobRun, parts: _PartsOfDump) -> Iterator[DataFrame]:
    """The directories that the dump lacks: the column `path`. Raises for a damaged dump and for
    entries that no volume can hold."""
    found = _rows_of(job, parts, _Reading()).persist(StorageLevel.DISK_ONLY)
    try:
        with job.described("reading"):
            _refuse(found.where(sf.col("tag").isin(*_NAMES)).limit(1).collect())
            entries, place = found.where("tag = 'entry'"), parts.directory
            if entries.groupBy("path").count().where("count > 1").limit(1).collect():
                raise CorruptDataError("the dump holds a path twice", path=place)
            above = found.where("tag = 'above'").select("path").distinct()
            through = above.join(entries.where("not isdir"), "path", "left_semi").limit(1).collect()
            if through:
                raise NotDirectoryError(
                    "the path of an entry of the dump leads through a file", path=through[0].path
                )
        yield above.join(entries, "path", "left_anti")
    finally:
        found.unpersist()


@dataclass(frozen=True, slots=True)
class _TaskLoader:
    """The loader whose work is done by tasks."""

    job: JobRun
    dump: DumpFacts
    parts: _PartsOfDump
    lacking: DataFrame
    """Directories that occur in the dump only as parents."""

    async def judge(self, volume: Volume, lock: VolumeLock, *, check: bool) -> None:
        aim: Aim = "check" if check else "judge"
        rows = await while_held(
            self.job.spark, partial(self._stage, aim, self.parts, lock.id, "judging")
        )
        missing = [row.path for row in rows if row.tag == "missing"]
        if missing:
            raise lacking_bytes(missing, self.dump.path)

    async def run(self, volume: Volume, lock: VolumeLock) -> NewDirectories:
        """Load directories first, so that no entry is ever without its parent."""
        made = await self._make_parents(volume, lock)
        end = self.dump.end
        kinds: tuple[tuple[Holds, int], ...] = (
            ("directories", end.directories),
            ("files", end.entries),
        )
        for holds, done in kinds:
            left = self.parts.of(holds, lock.done)
            await while_held(self.job.spark, partial(self._stage, "load", left, lock.id, holds))
            lock.done = max(lock.done, done)
        await lock.dismiss(volume.items)
        return NewDirectories(made)

    async def _make_parents(self, volume: Volume, lock: VolumeLock) -> int:
        landing = self.dump.landing(volume)
        parents = DumpDirectories(landing, SYSTEM)
        rows = await run_sync(lambda: iter(self.lacking.orderBy("path").toLocalIterator()))
        while some := await run_sync(lambda: [row.path for row in islice(rows, _PARENTS)]):
            await landing.load(await parents.absent(some), lock.check)
        return parents.made

    def _stage(self, aim: Aim, parts: _PartsOfDump, lock: str, what: str) -> list[Any]:
        """The rows of the tasks. Raises the error with which they refuse the dump."""
        job = self.job
        with job.described(what), job.counted(what) as counter:
            work = _Delegates(job.volume.executors, lock, aim, self.dump, job.requests, counter)
            rows = _rows_of(job, parts, work).collect()
        _refuse(rows)
        return rows


# In tasks


class _Work(Protocol):
    """The work on some parts."""

    def rows(self, parts: _PartsOfDump) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class _Task:
    """Returns errors that repeating the task does not change as rows."""

    work: _Work

    def __call__(self, shares: Iterator[_PartsOfDump]) -> Batches:
        for share in shares:
            try:
                yield from self.work.rows(share)
            except _REFUSALS as error:
                yield _batch([(type(error).__name__, error.path, None, error.message)])


@dataclass(frozen=True, slots=True)
class _Reading:
    """Returns the paths of entries and of the directories above them."""

    def rows(self, parts: _PartsOfDump) -> Iterator[pa.RecordBatch]:
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
    """Checks or loads parts, under the lock that the driver holds."""

    config: VolumeConfig
    lock: str
    aim: Aim
    dump: DumpFacts
    requests: Accumulator[Requests]
    seen: Accumulator[int]

    def rows(self, parts: _PartsOfDump) -> Iterator[pa.RecordBatch]:
        missing = current_bridge().run(partial(self._over, parts))
        yield _batch([("missing", path, None, "") for path in missing])

    async def _over(self, parts: _PartsOfDump) -> list[str]:
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


async def _chunks(parts: _PartsOfDump) -> AsyncGenerator[list[Entry], None]:
    for part in parts.parts:
        async with aclosing(off_loop(part_chunks(parts.directory, parts.header, part))) as chunks:
            async for chunk in chunks:
                yield chunk


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return row_batch(_SCHEMA, rows)
