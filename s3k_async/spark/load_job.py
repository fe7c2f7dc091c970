"""Loading of a dump in parts over Spark: the work of `migrate.load` in tasks.

The parts are read three times: to verify that they are complete and consistent, to check them
against this volume, and to load them. In layout `tree` a join gives each directory the id of its
parent, before any is loaded; the tasks that load files find the ids of their directories in the
table.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, count, islice
from os.path import isdir, join, lexists
from typing import Any, Final, Literal, Protocol, TypeAlias

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from s3k_async import _native
from s3k_async._core.metering import Requests
from s3k_async._core.os_errors import os_errors
from s3k_async._core.paths import normalize
from s3k_async._core.runtime import SYSTEM
from s3k_async._core.worker_threads import in_thread
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    CorruptDataError,
    InvalidArgumentError,
    InvalidPathError,
    NotDirectoryError,
    PathNotFoundError,
)
from s3k_async.integrity.restore_plan import entry_line, entry_of
from s3k_async.migrate.dump_directories import DumpDirectories
from s3k_async.migrate.dump_format import CHUNK, DumpHeader, file_digest
from s3k_async.migrate.dump_parts import (
    MANIFEST,
    DumpPart,
    Holds,
    Manifest,
    part_chunks,
    read_manifest,
)
from s3k_async.migrate.load import DumpFacts, LoadResult, NewDirectories, load_by
from s3k_async.migrate.load_batch import SHOWN, LoadTarget, lacking_bytes, off_loop
from s3k_async.model import Entry
from s3k_async.settings import with_local_secrets
from s3k_async.spark.delegate_tasks import delegated, while_held
from s3k_async.spark.dump_job import shared_directory
from s3k_async.spark.runner import AnyVolume, JobRun, ProgressCallback
from s3k_async.spark.task_rows import Batches, error_from, row_batch, spark_schema
from s3k_async.table.stored_reader import ROOT_ENTRY
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
DIRECTORIES: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("path", pa.string()),
        ("object_id", pa.string()),
        ("line", pa.string()),
    ]
)
"""Directories of the dump. `number`: of the entries of the dump before it; `line`: the entry."""
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
    directory = shared_directory(source)
    manifest, facts = _opened(directory)
    parts = _PartsOfDump.of_dump(directory, manifest)
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
    parts: tuple[tuple[int, DumpPart], ...]
    """Each with the number of entries of the dump before it."""

    @classmethod
    def of_dump(cls, directory: str, manifest: Manifest) -> _PartsOfDump:
        """All parts."""
        sizes = [part.entries for part in manifest.parts]
        before = accumulate(sizes, initial=0)
        return cls(directory, manifest.header, tuple(zip(before, manifest.parts, strict=False)))

    def among(self, count: int) -> list[_PartsOfDump]:
        """Divided among at most this many tasks, with about as many entries for each."""
        ordered = sorted(self.parts, key=lambda part: part[1].entries, reverse=True)
        return [
            replace(self, parts=tuple(ordered[start::count]))
            for start in range(min(count, len(ordered)))
        ]

    def of(self, holds: Holds, done: int = 0) -> _PartsOfDump:
        """The parts of one kind that hold entries after the first `done` of the dump."""
        found = tuple(
            (before, part)
            for before, part in self.parts
            if part.holds == holds and before + part.entries > done
        )
        return replace(self, parts=found)

    def entries_of(self, part: DumpPart) -> Generator[list[Entry], None, None]:
        """The entries of a part, in chunks."""
        return part_chunks(self.directory, self.header, part)

    async def entries(
        self, landing: LoadTarget, *, located: bool
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """As of _DumpEntries."""
        with closing(DumpDirectories(landing, SYSTEM)) as directories:
            for _, part in self.parts:
                async with aclosing(off_loop(self.entries_of(part))) as chunks:
                    async for chunk in chunks:
                        yield await directories.located(chunk) if located else chunk


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
        """Load directories first, so that no file is ever without its parent."""
        by_id = volume.store.keys.by_id
        made, new_ids = await self._make_parents(volume, lock, counted=by_id), 0
        if by_id:
            new_ids = await while_held(self.job.spark, partial(self._load_by_id, lock))
        else:
            await self._load(lock, "directories")
        lock.done = max(lock.done, self.dump.end.directories)
        await self._load(lock, "files")
        lock.done = self.dump.end.entries
        await lock.dismiss(volume.items)
        return NewDirectories(made, new_ids)

    async def _load(self, lock: VolumeLock, holds: Holds) -> None:
        left = self.parts.of(holds, lock.done)
        await while_held(self.job.spark, partial(self._stage, "load", left, lock.id, holds))

    async def _make_parents(self, volume: Volume, lock: VolumeLock, *, counted: bool) -> int:
        """Create the directories that the dump and the table lack; `counted`: only count them."""
        landing = self.dump.landing(volume)
        parents = DumpDirectories(landing, SYSTEM)
        rows = await in_thread(lambda: iter(self.lacking.orderBy("path").toLocalIterator()))
        while some := await in_thread(lambda: [row.path for row in islice(rows, _PARENTS)]):
            absent = await parents.absent(some)
            if not counted:
                await landing.load(absent, lock.check)
        return parents.made

    def _load_by_id(self, lock: VolumeLock) -> int:
        """Load the directories into layout `tree`, those that the dump lacks included, in no order:
        their ids are the same in every load of the dump. Returns the number of those with the id of
        an earlier one."""
        listed = _listed(self.job, self.parts).persist(StorageLevel.DISK_ONLY)
        try:
            left = _with_parents(listed, self.lacking)
            if lock.done >= self.dump.end.directories:
                left = left.where("line is null")
            self._stage("load", left, lock.id, "directories")
            return listed.where("is_new").count()
        finally:
            listed.unpersist()

    def _stage(self, aim: Aim, source: _PartsOfDump | DataFrame, lock: str, what: str) -> list[Any]:
        """The rows of the tasks. Raises the error with which they refuse the dump."""
        job = self.job
        with job.described(what), job.counted(what) as counter:
            work = _Delegates(job.volume.executors, lock, aim, self.dump, job.requests, counter)
            if isinstance(source, DataFrame):
                found = source.mapInArrow(_OfRows(_Task(work)), spark_schema(_SCHEMA))
            else:
                found = _rows_of(job, source, work)
            rows = found.collect()
        _refuse(rows)
        return rows


def _listed(job: JobRun, parts: _PartsOfDump) -> DataFrame:
    """The directories of the dump: the columns of DIRECTORIES, and `is_new`, whether one has the id
    of an earlier directory of the dump, and needs another one."""
    shares = parts.of("directories").among(job.tasks)
    earlier = Window.partitionBy("object_id").orderBy("number")
    rows = job.over_splits(shares, _lines_of, DIRECTORIES)
    return rows.withColumn("is_new", sf.row_number().over(earlier) > 1)


def _with_parents(listed: DataFrame, lacking: DataFrame) -> DataFrame:
    """The directories to load into layout `tree`: `path`; `line` of those of the dump; `is_new`;
    `parent`, the path of the parent, empty for the root; and `parent_id`, null if that is derived
    from its path."""
    made = lacking.select(
        "path",
        sf.lit(None).cast("string").alias("object_id"),
        sf.lit(None).cast("string").alias("line"),
        sf.lit(True).alias("is_new"),
    )
    whole = listed.select(*made.columns).unionAll(made)
    own_id = sf.when(~sf.col("is_new"), sf.col("object_id")).alias("parent_id")
    parents = whole.select(sf.col("path").alias("parent"), own_id)
    above = sf.expr("left(path, length(path) - length(substring_index(path, '/', -1)) - 1)")
    return whole.withColumn("parent", above).join(parents, "parent", "left")


# In tasks


class _DumpEntries(Protocol):
    """Entries of the dump."""

    def entries(
        self, landing: LoadTarget, *, located: bool
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """The entries in chunks; `located`: in their directories, which the table has, or will have
        when the stage is over."""


class _Work(Protocol):
    """The work on some entries: parts, or rows of directories."""

    def rows(self, share: Any, /) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class _Task:
    """Returns errors that repeating the task does not change as rows."""

    work: _Work

    def __call__(self, shares: Iterable[Any]) -> Batches:
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
        for _, part in parts.parts:
            for chunk in parts.entries_of(part):
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

    def rows(self, share: _DumpEntries) -> Iterator[pa.RecordBatch]:
        missing = current_bridge().run(partial(self._over, share))
        yield _batch([("missing", path, None, "") for path in missing])

    async def _over(self, share: _DumpEntries) -> list[str]:
        """The first files without bytes."""
        missing: list[str] = []
        async with delegated(self.config, self.lock) as (volume, delegate):
            landing = self.dump.landing(volume)
            try:
                async with aclosing(share.entries(landing, located=self.aim == "load")) as chunks:
                    async for chunk in chunks:
                        if self.aim == "load":
                            await landing.load(chunk, delegate.check)
                        else:
                            await in_thread(landing.judge, chunk)
                            landing.require_features(chunk)
                        if self.aim == "check":
                            missing += await landing.lacking(chunk)
                        if len(missing) > SHOWN:
                            break
                        self.seen.add(len(chunk))
            finally:
                self.requests.add(volume.counter.requests)
        return missing[: SHOWN + 1]


def _lines_of(shares: Iterable[_PartsOfDump]) -> Batches:
    """The rows of DIRECTORIES in some parts."""
    for share in shares:
        for before, part in share.parts:
            numbers = count(before)
            for chunk in share.entries_of(part):
                rows = [(next(numbers), each.path, each.id, entry_line(each)) for each in chunk]
                yield row_batch(DIRECTORIES, rows)


@dataclass(frozen=True, slots=True)
class _DirectoryRows:
    """Some rows of `_with_parents`."""

    batch: pa.RecordBatch

    async def entries(
        self, landing: LoadTarget, *, located: bool
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """As of _DumpEntries."""
        assert located
        for start in range(0, len(self.batch), CHUNK):
            rows = self.batch.slice(start, CHUNK).to_pylist()
            yield [self._entry(landing, **row) for row in rows]

    @staticmethod
    def _entry(
        landing: LoadTarget,
        *,
        path: str,
        line: str | None,
        is_new: bool,
        parent: str,
        parent_id: str | None,
        **_: object,
    ) -> Entry:
        key = (parent_id or landing.new_id(parent)) if parent else ROOT_ENTRY.id
        if line is None:
            return replace(landing.new_directory(path), directory=key)
        entry = entry_of(line)
        return replace(landing.with_new_id(entry) if is_new else entry, directory=key)


@dataclass(frozen=True, slots=True)
class _OfRows:
    """A task with rows of `_with_parents`."""

    task: _Task

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        return self.task(map(_DirectoryRows, batches))


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return row_batch(_SCHEMA, rows)
