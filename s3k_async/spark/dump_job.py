"""Dumps over Spark: tasks write the parts of the dump, the driver its manifest."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from s3k_async._core.metering import Requests
from s3k_async._core.runtime import SYSTEM
from s3k_async._native import Entries
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError, PathNotFoundError
from s3k_async.listing import Listing
from s3k_async.metadata.codec import in_columns
from s3k_async.migrate.dump import DumpResult, dump_top
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
from s3k_async.model import ROOT, Entry
from s3k_async.paths import normalize
from s3k_async.spark.job_report import JobRun
from s3k_async.spark.listing_job import LEVELS, TASKS_PER_CORE, subtrees, unit_rows, units
from s3k_async.spark.settings import SparkVolume, spark_volume
from s3k_async.spark.stages import Tell, counted
from s3k_async.spark.worker_client import each_partition

__all__ = ["Dumper", "dump", "shared_directory"]

_PARTS: Final = pa.schema([pa.field("part", pa.string(), nullable=False)])


def dump(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    target: str,
    *,
    path: str = ROOT,
    partitions: int | None = None,
    include_uncommitted: bool = False,
    progress: Tell | None = None,
) -> DumpResult:
    """Write the entries at and below `path` to the directory `target`, in parts: a dump that
    `open_dump`, `s3k load` and tasks can read.

    `target`: a path or `file:` URI of a directory that driver and executors share; it is made, or
    is empty, or holds what an interrupted dump has left, which is removed. The manifest is written
    when everything else is there: without it, nothing takes the directory for a dump. One dump at a
    time writes to it.

    What is dumped is what `dump_volume` dumps, subtree by subtree, as `listing` divides them into
    `partitions` (4 for each core by default): a path that existed for the whole call is in it once,
    and what is moved from one subtree to another meanwhile may be there twice or not at all. A
    directory's own children are written by one task. Raises PathNotFoundError, InvalidPathError,
    InvalidArgumentError (what `target` cannot be), PermissionDeniedError, NoSpaceError, the
    services' errors; those of tasks as Spark tells them.
    """
    opened = spark_volume(spark, volume)
    directory = shared_directory(target)
    path = normalize(path)
    count = partitions or spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    run = JobRun(spark, "dump", directory, dry_run=False)
    with S3kSyncClient(config=opened.driver) as fs:

        async def top(client: S3kClient) -> tuple[Entry, DumpHeader]:
            return await dump_top(client._volume(), path, include_uncommitted=include_uncommitted)

        _, header = fs._call(top)
        make_room(directory)
        division = subtrees(fs, path, count)
        with run.stage("writing"), counted(spark, "dump", path, progress) as counter:
            work = Dumper(header, directory, run.requests, counter)
            found = units(spark, division, count).mapInArrow(
                each_partition(opened.executors, work), "part string"
            )
            parts = [DumpPart(**json.loads(row.part)) for row in found.collect()]
        manifest = Manifest.of(header, parts)
        write_manifest(directory, manifest)
        sweep_parts(directory, keep=parts)
        end = manifest.end
        requests = fs.requests + run.requests.value
        return DumpResult(end.entries, end.files, end.directories, end.bytes, requests)


def shared_directory(place: str) -> str:
    """The absolute path of a directory that is named by a path or a `file:` URI. Raises
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
    """What a task does: the subtrees that it is given, in parts of its own."""

    header: DumpHeader
    directory: str
    requests: Accumulator[Requests]
    counter: Accumulator[int]
    run: str = field(default_factory=SYSTEM.uuid)
    """Of this dump, and in the names of its parts: each application numbers its attempts from 0,
    and a task that outlives its driver touches nothing of the next dump."""

    def __call__(
        self, fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        if not os.path.isdir(self.directory):
            raise InvalidArgumentError(
                "the executors do not see this directory of the driver", path=self.directory
            )
        before = fs.requests
        with ExitStack() as stack:
            parts = _Parts(self, stack)
            for directory, whole in unit_rows(batches):
                level = LEVELS if whole else _depth(directory) - _depth(self.header.path)
                for page in fs._iterate(self._pages(directory, whole=whole)):
                    parts.add(page, level)
                    self.counter.add(len(page))
            written = parts.finish()
            stack.pop_all()
        self.requests.add(fs.requests - before)
        yield pa.record_batch([[json.dumps(asdict(part)) for part in written]], schema=_PARTS)

    def _pages(self, directory: str, *, whole: bool) -> _PagesOf:
        return _PagesOf(self.header, directory, whole)


@dataclass(frozen=True, slots=True)
class _PagesOf:
    """What is in a directory at or below the one that is dumped; nothing if it is gone by now."""

    header: DumpHeader
    directory: str
    whole: bool

    async def __call__(self, client: S3kClient) -> AsyncIterator[Sequence[Entries]]:
        volume = client._volume()
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
                        return  # a file by now, which the directory above tells of
                    yield [page]
        except PathNotFoundError:
            return


class _Parts:
    """The parts of a task, dropped by the stack unless that is emptied first."""

    def __init__(self, dumper: Dumper, stack: ExitStack) -> None:
        context = TaskContext.get()
        partition, attempt = (
            (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        )
        self._name = f"{dumper.run}-{partition:06d}-{attempt}"
        self._dumper = dumper
        self._stack = stack
        self._writers: dict[tuple[Holds, int], PartWriter] = {}

    def add(self, page: Entries, level: int) -> None:
        """Entries of a directory, or of what is below it."""
        for start in range(0, len(page), CHUNK):
            some = page[start : start + CHUNK]
            self._writer("directories", level).write(some.directories())
            self._writer("files", 0).write(some.files())

    def finish(self) -> list[DumpPart]:
        """What was written."""
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
