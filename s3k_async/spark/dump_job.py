"""Dumps over Spark: tasks write the parts of the dump, the driver its manifest."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from s3k_async._core.metering import Requests
from s3k_async._core.paths import normalize
from s3k_async._core.runtime import SYSTEM
from s3k_async._native import Entries
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.errors import InvalidArgumentError, PathNotFoundError
from s3k_async.listing.listings import Listing
from s3k_async.migrate.dump import DumpResult, count_unreachable, dump_top, require_valid
from s3k_async.migrate.dump_format import CHUNK, DumpHeader
from s3k_async.migrate.dump_parts import (
    DumpPart,
    Holds,
    Manifest,
    PartWriter,
    make_room,
    sweep_parts,
    write_manifest,
)
from s3k_async.model import ROOT
from s3k_async.spark.listing_job import LEVELS, over_subtrees, subtrees
from s3k_async.spark.runner import AnyVolume, JobRun, ProgressCallback
from s3k_async.spark.task_rows import Batches, attempt_name, row_batch
from s3k_async.spark.worker_client import each_value, on_volume
from s3k_async.table.codec import in_columns
from s3k_async.volumes import Volume

__all__ = ["Dumper", "dump", "shared_directory"]

_PARTS: Final = pa.schema([pa.field("part", pa.string(), nullable=False)])


def dump(
    spark: SparkSession,
    volume: AnyVolume,
    target: str,
    *,
    path: str = ROOT,
    tasks: int | None = None,
    include_uncommitted: bool = False,
    progress: ProgressCallback | None = None,
) -> DumpResult:
    """Write the entries at and below `path` to the directory `target`, in parts: a dump that
    `open_dump`, `s3k load` and tasks can read.

    `target`: a path or `file:` URI of a directory that driver and executors share. It is created if
    it is missing; otherwise it must be empty or hold the remains of an interrupted dump, which are
    removed. The manifest is written last: a directory without one is not accepted as a dump. Only
    one dump may write to it at a time.

    The content is that of `dump_volume`. `listing` divides the tree into subtrees for `tasks` (4
    for each core by default): a path that existed for the whole call is in the dump once; an entry
    that is moved from one subtree to another meanwhile may be in it twice or not at all. A
    directory's own children are written by one task. Raises PathNotFoundError, InvalidPathError,
    InvalidArgumentError (an unsuitable `target`), PermissionDeniedError, NoSpaceError, the
    services' errors; those of tasks as Spark reports them.
    """
    job = JobRun(spark, volume, "dump", tasks=tasks, progress=progress)
    directory = shared_directory(target)
    path = normalize(path)
    with S3kSyncClient(config=job.volume.driver) as fs:
        top = partial(dump_top, path=path, include_uncommitted=include_uncommitted)
        _, header = on_volume(fs, top)
        make_room(directory)
        division = subtrees(fs, path, job.tasks)
        with job.described(f"writing to {directory}"), job.counted(path) as counter:
            work = Dumper(header, directory, job.requests, counter)
            rows = over_subtrees(job, division, work, _PARTS).collect()
            parts = [DumpPart(**json.loads(row.part)) for row in rows]
        manifest = Manifest.of(header, parts)
        write_manifest(directory, manifest)
        sweep_parts(directory, keep=parts)
        end = manifest.end
        lost = partial(count_unreachable, path=path, include_uncommitted=include_uncommitted)
        unreachable = on_volume(fs, lost)
        requests = fs.requests + job.requests.value
        return DumpResult(end.entries, end.files, end.directories, end.bytes, requests, unreachable)


def shared_directory(place: str) -> str:
    """The absolute path of a directory that is given as a path or a `file:` URI. Raises
    InvalidArgumentError."""
    found = urlsplit(place)
    if found.scheme == "file" and found.netloc in ("", "localhost"):
        return os.path.abspath(unquote(found.path))
    if "://" in place:
        raise InvalidArgumentError(
            "a dump in parts is in a directory that driver and executors share: a path or a file: "
            "URI",
            path=place,
        )
    return os.path.abspath(place)


@dataclass(frozen=True, slots=True)
class Dumper:
    """The work of a task: writes its subtrees to parts of its own."""

    header: DumpHeader
    directory: str
    requests: Accumulator[Requests]
    counter: Accumulator[int]
    run: str = field(default_factory=SYSTEM.uuid)
    """The id of this dump, which is in the names of its parts. Each application numbers its
    attempts from 0; the id keeps a task that outlives its driver from overwriting parts of the next
    dump."""

    def __call__(self, fs: S3kSyncClient, subtrees: Iterable[tuple[str, bool]]) -> Batches:
        if not os.path.isdir(self.directory):
            raise InvalidArgumentError(
                "the executors do not see this directory of the driver", path=self.directory
            )
        before = fs.requests
        with ExitStack() as stack:
            parts = _TaskParts(self, stack)
            for directory, whole in subtrees:
                level = LEVELS if whole else _depth(directory) - _depth(self.header.path)
                for page in each_value(fs, _PagesOf(self.header, directory, whole)):
                    parts.add(page, level)
                    self.counter.add(len(page))
            written = parts.finish()
            stack.pop_all()
        self.requests.add(fs.requests - before)
        yield row_batch(_PARTS, [(json.dumps(asdict(part)),) for part in written])


@dataclass(frozen=True, slots=True)
class _PagesOf:
    """The pages of a directory at or below the dumped one; none if it no longer exists. Raises
    InvalidPathError as `require_valid`."""

    header: DumpHeader
    directory: str
    whole: bool

    async def __call__(self, volume: Volume) -> AsyncIterator[Sequence[Entries]]:
        is_top = self.directory == self.header.path
        if is_top and self.directory != ROOT:
            top = await volume.store.get(self.directory)
            if top is not None and top.is_dir:
                yield [in_columns([top], volume.store.keys)]
        listing = Listing(recursive=self.whole, include_uncommitted=self.header.uncommitted)
        try:
            async with aclosing(listing.pages(volume.store, self.directory)) as pages:
                async for page in pages:
                    if not is_top and page[0].path == self.directory:
                        return  # it is a file now, and listed among the children of its directory
                    require_valid(page, volume)
                    yield [page]
        except PathNotFoundError:
            return


class _TaskParts:
    """The parts of a task. The exit stack removes them unless it is emptied first."""

    def __init__(self, dumper: Dumper, stack: ExitStack) -> None:
        self._name = f"{dumper.run}-{attempt_name()}"
        self._dumper = dumper
        self._stack = stack
        self._writers: dict[tuple[Holds, int], PartWriter] = {}

    def add(self, page: Entries, level: int) -> None:
        """Add entries of a directory, or of the tree below it."""
        for start in range(0, len(page), CHUNK):
            some = page[start : start + CHUNK]
            self._writer("directories", level).write(some.directories())
            self._writer("files", 0).write(some.files())

    def finish(self) -> list[DumpPart]:
        """Finish the parts and return what was written."""
        return [part for writer in self._writers.values() for part in writer.finish()]

    def _writer(self, holds: Holds, level: int) -> PartWriter:
        found = self._writers.get((holds, level))
        if found is None:
            name = f"{self._name}-{holds}-{level}"
            found = PartWriter(self._dumper.directory, self._dumper.header, name, holds, level)
            self._stack.callback(found.drop)
            self._writers[holds, level] = found
        return found


def _depth(path: str) -> int:
    return 0 if path == ROOT else path.count("/")
