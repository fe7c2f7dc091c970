"""Listings and sums over Spark: by subtrees, or by segments of the table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.errors import InvalidArgumentError, PathNotFoundError
from s3k_async.listing.listings import arrow_schema, record_batches
from s3k_async.model import ROOT
from s3k_async.spark.runner import AnyVolume, JobRun
from s3k_async.spark.task_rows import Batches, spark_schema
from s3k_async.spark.worker_client import each_partition, each_value
from s3k_async.txn.intent_view import IntentView
from s3k_async.volumes import Volume

__all__ = ["Division", "du", "for_spark", "listing", "subtrees"]

LEVELS = 3
"""Levels at most that the driver searches for subtrees."""
UNIT = "directory string not null, whole boolean not null"

Division: TypeAlias = list[tuple[str, bool]]
"""Directories, each with everything below it (True), or only its children (False)."""
SubtreeWork: TypeAlias = Callable[[S3kSyncClient, Iterable[tuple[str, bool]]], Batches]
"""The work of a task on some subtrees."""


def listing(
    spark: SparkSession,
    volume: AnyVolume,
    path: str = ROOT,
    *,
    by: Literal["directories", "segments"] = "directories",
    tasks: int | None = None,
) -> DataFrame:
    """Everything below a directory, as a recursive `S3kSyncClient.list_batches`, in no order.

    `by="directories"`: the driver searches for enough subtrees to occupy the `tasks` (4 for each
    core by default), and each task lists some of them. A path that existed for the whole call is in
    it once. Each subtree is listed as by `list`; an entry that is moved from one subtree to another
    meanwhile may be in it twice or not at all. The children of one directory are listed by one
    task.

    `by="segments"`: each task scans a part of the table, regardless of the shape of the tree. The
    whole table is read, which is preferable if `path` is most of it. Entries that do not change
    meanwhile are in it once; a concurrent change, even an atomic one, may be seen in part. Entries
    without parents (`s3k fsck` reports them) are included. Raises ItemFormatError in a task if
    other volumes share the table.

    Lazy: the tasks run each time that the frame is used. Raises PathNotFoundError,
    InvalidPathError.
    """
    if by not in ("directories", "segments"):
        raise InvalidArgumentError(f"by is 'directories' or 'segments', not {by!r:.50}")
    job = JobRun(spark, volume, "listing", tasks=tasks)
    with S3kSyncClient(config=job.volume.driver) as fs:
        top = fs.stat(path).path
        division = subtrees(fs, top, job.tasks) if by == "directories" else []
    if by == "segments":
        scan = each_partition(job.volume.executors, _segments_of(top, job.tasks))
        return job.over_splits(range(job.tasks), scan, arrow_schema())
    return over_subtrees(job, division, _listed_of(top), arrow_schema())


def du(
    spark: SparkSession,
    volume: AnyVolume,
    path: str = ROOT,
    *,
    depth: int = 1,
    tasks: int | None = None,
) -> DataFrame:
    """Columns `path`, `bytes`, `files` and `directories` of each directory from `path` down to
    `depth` levels below it, as `content_summary`: the directory itself included, files being
    written excluded. For a file, its own row.

    Tasks sum up the subtrees that they list, divided as by `listing`; only sums are shuffled. Lazy,
    in no order. Raises as `listing`, and InvalidArgumentError for an invalid depth.
    """
    if not 0 <= depth <= 1000:
        raise InvalidArgumentError(f"a depth is a number from 0 to 1000, not {depth!r:.50}")
    job = JobRun(spark, volume, "du", tasks=tasks)
    with S3kSyncClient(config=job.volume.driver) as fs:
        top = fs.stat(path)
        division = subtrees(fs, top.path, job.tasks)
    sums = over_subtrees(job, division, _sums_of(top.path, depth), _SUMS)
    start = spark.createDataFrame([(top.path, 0, 0, int(top.is_dir))], spark_schema(_SUMS))
    totals = [sf.sum(name).alias(name) for name in _SUMS.names[1:]]
    return start.unionByName(sums).groupBy("path").agg(*totals)


def subtrees(fs: S3kSyncClient, top: str, count: int) -> Division:
    """The tree below `top` in at least `count` parts, if its first three levels have that many
    directories."""
    whole = [top]
    opened: list[str] = []
    for _ in range(LEVELS):
        if len(whole) >= count or not whole:
            break
        opened += whole
        whole = [path for directory in whole for path in _directories(fs, directory, top)]
    return [(path, False) for path in opened] + [(path, True) for path in whole]


def over_subtrees(
    job: JobRun, division: Division, work: SubtreeWork, schema: pa.Schema
) -> DataFrame:
    """The rows that `work` returns for the parts of a division, spread over the tasks."""

    def of_batches(fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]) -> Batches:
        rows = (row for batch in batches for row in batch.to_pylist())
        return work(fs, ((row["directory"], row["whole"]) for row in rows))

    parts = job.spark.createDataFrame(division, UNIT)
    return job.over_rows(
        parts.repartition(max(1, min(job.tasks, len(division)))), of_batches, schema
    )


def in_directory(fs: S3kSyncClient, directory: str, top: str, *, recursive: bool) -> Batches:
    """The pages of a directory at or below `top`; none if it no longer exists. For a file as the
    top, the file itself."""
    try:
        for batch in fs.list_batches(directory, recursive=recursive):
            if (
                directory != top
                and batch.num_rows == 1
                and batch.column("path")[0].as_py() == directory
            ):
                return
            yield batch
    except PathNotFoundError:
        return


def _directories(fs: S3kSyncClient, directory: str, top: str) -> list[str]:
    return [
        path
        for batch in in_directory(fs, directory, top, recursive=False)
        for path in batch.filter(batch.column("is_dir")).column("path").to_pylist()
    ]


def _listed_of(top: str) -> SubtreeWork:
    def listed(fs: S3kSyncClient, parts: Iterable[tuple[str, bool]]) -> Batches:
        for directory, whole in parts:
            for batch in in_directory(fs, directory, top, recursive=whole):
                yield for_spark(batch)

    return listed


def _segments_of(top: str, count: int) -> Callable[[S3kSyncClient, Iterator[int]], Batches]:
    def scanned(fs: S3kSyncClient, segments: Iterator[int]) -> Batches:
        for segment in segments:
            yield from map(for_spark, each_value(fs, partial(_scanned, top, segment, count)))

    return scanned


async def _scanned(
    top: str, segment: int, count: int, volume: Volume
) -> AsyncIterator[Sequence[pa.RecordBatch]]:
    store = volume.store
    view = IntentView(store.items, store.keys)
    async with aclosing(store.scan(top, segment, count)) as found:
        shown = ((await view.seen(page)).without_reservations() async for page in found)
        async for each in record_batches(shown):
            yield [each]


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of a listing in the schema `spark_schema(arrow_schema())`: Spark's times have
    microseconds."""
    return batch.cast(_SPARK_LISTING)


_SPARK_LISTING = pa.schema(
    [
        field.with_type(pa.timestamp("us", tz="UTC"))
        if pa.types.is_timestamp(field.type)
        else field
        for field in arrow_schema()
    ]
)

_SUMS = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("files", pa.int64(), nullable=False),
        pa.field("directories", pa.int64(), nullable=False),
    ]
)


def _sums_of(top: str, depth: int) -> SubtreeWork:
    def summed(fs: S3kSyncClient, parts: Iterable[tuple[str, bool]]) -> Batches:
        for directory, whole in parts:
            for batch in in_directory(fs, directory, top, recursive=whole):
                yield from _sums(batch, top, depth)

    return summed


def _sums(batch: pa.RecordBatch, top: str, depth: int) -> Batches:
    """The sums of a batch for each directory down to the depth, counted from the top."""
    below = "" if top == ROOT else top
    names = pc.utf8_slice_codeunits(batch.column("path"), len(below))
    levels = pc.count_substring(names, "/")
    is_dir = batch.column("is_dir")
    columns = {
        "bytes": batch.column("size"),
        "files": pc.cast(pc.invert(is_dir), pa.int64()),
        "directories": pc.cast(is_dir, pa.int64()),
    }
    for level in range(min(depth, pc.max(levels).as_py()) + 1):
        start = pc.replace_substring_regex(names, f"(?s)^((?:/[^/]*){{{level}}}).*$", r"\1")
        keys = (
            pc.binary_join_element_wise(below, start, "")
            if level or below
            else pc.if_else(True, ROOT, start)
        )
        # Each directory counts in its own sum, and so does a file as the top.
        within = pc.or_(
            pc.greater(levels, level), pc.and_(pc.equal(levels, level), pc.or_(is_dir, level == 0))
        )
        sums = pa.table({"path": keys, **columns}).filter(within).group_by("path")
        found = sums.aggregate([(name, "sum") for name in columns])
        yield from (
            found.select(["path", *(f"{name}_sum" for name in columns)])
            .rename_columns(_SUMS.names)
            .cast(_SUMS)
            .to_batches()
        )
