"""Listings and sums over Spark: by subtrees, or by segments of the table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError, PathNotFoundError
from s3k_async.listing import arrow_schema, record_batches
from s3k_async.metadata.intent_view import IntentView
from s3k_async.model import ROOT
from s3k_async.spark.job_report import spark_schema
from s3k_async.spark.settings import SparkVolume, spark_volume
from s3k_async.spark.worker_client import each_partition

__all__ = ["Division", "du", "for_spark", "listing", "subtrees"]

LEVELS = 3
"""The driver looks at so many levels at most to find subtrees."""
TASKS_PER_CORE = 4
"""Subtrees differ in size: with several tasks for each core none waits long for the last one."""
UNIT = "directory string not null, whole boolean not null"

Division: TypeAlias = list[tuple[str, bool]]
"""Directories with whether all below them is meant (True), or what is in them without what is below
that (False)."""
Batches: TypeAlias = Iterator[pa.RecordBatch]
Work: TypeAlias = Callable[[S3kSyncClient, Iterable[pa.RecordBatch]], Batches]


def listing(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    path: str = ROOT,
    *,
    by: Literal["directories", "segments"] = "directories",
    tasks: int | None = None,
) -> DataFrame:
    """What is below a directory, as a recursive `S3kSyncClient.list_batches` gives it, in no order.

    `by="directories"`: the driver looks for subtrees, as many as give each of the `tasks` (4 for
    each core by default) something to do, and each task lists some of them. A path that was there
    for the whole time is in it once. Each subtree is listed as `list` does it; what is moved from
    one subtree into another meanwhile may be there twice or not at all. A directory's own children
    are listed by one task.

    `by="segments"`: each task scans a part of the table, however the tree looks. Everything in the
    table is read, to be preferred when `path` is most of it. What nobody changes meanwhile is in it
    once; of what is changed, a part may be seen before and another part after the change, even of a
    change that is made at once for all others. Entries without parents (`s3k fsck` reports them)
    are in it too. Raises ItemFormatError in a task where other volumes share the table.

    Lazy: the tasks run when the frame is used, each time. Raises PathNotFoundError,
    InvalidPathError.
    """
    if by not in ("directories", "segments"):
        raise InvalidArgumentError(f"by is 'directories' or 'segments', not {by!r:.50}")
    opened = spark_volume(spark, volume)
    count = tasks or spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    with S3kSyncClient(config=opened.driver) as fs:
        top = fs.stat(path).path
        division = subtrees(fs, top, count) if by == "directories" else []
    schema = spark_schema(arrow_schema())
    if by == "segments":
        numbers = spark.range(0, count, 1, count)
        return numbers.mapInArrow(
            each_partition(opened.executors, _segments_of(top, count)), schema
        )
    return units(spark, division, count).mapInArrow(
        each_partition(opened.executors, _listed_of(top)), schema
    )


def du(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    path: str = ROOT,
    *,
    depth: int = 1,
    tasks: int | None = None,
) -> DataFrame:
    """Columns `path`, `bytes`, `files` and `directories` of each directory from `path` down to
    `depth` levels below it, as `content_summary` tells them: itself counted, files being written
    not. Of a file, the file.

    Tasks add up what they list, by subtrees as `listing` does; only sums are shuffled. Lazy, in no
    order. Raises as `listing`, and InvalidArgumentError for a depth that is none.
    """
    if not 0 <= depth <= 1000:
        raise InvalidArgumentError(f"a depth is a number from 0 to 1000, not {depth!r:.50}")
    opened = spark_volume(spark, volume)
    count = tasks or spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    with S3kSyncClient(config=opened.driver) as fs:
        top = fs.stat(path)
        division = subtrees(fs, top.path, count)
    work = _sums_of(top.path, depth)
    sums = units(spark, division, count).mapInArrow(
        each_partition(opened.executors, work), spark_schema(_SUMS)
    )
    start = spark.createDataFrame([(top.path, 0, 0, int(top.is_dir))], spark_schema(_SUMS))
    totals = [sf.sum(name).alias(name) for name in _SUMS.names[1:]]
    return start.unionByName(sums).groupBy("path").agg(*totals)


def subtrees(fs: S3kSyncClient, top: str, count: int) -> Division:
    """The tree below `top` in at least `count` parts, if three levels of it have so many
    directories."""
    whole = [top]
    opened: list[str] = []
    for _ in range(LEVELS):
        if len(whole) >= count or not whole:
            break
        opened += whole
        whole = [path for directory in whole for path in _directories(fs, directory, top)]
    return [(path, False) for path in opened] + [(path, True) for path in whole]


def units(spark: SparkSession, division: Division, count: int) -> DataFrame:
    """The parts of a division, spread over at most `count` tasks."""
    return spark.createDataFrame(division, UNIT).repartition(max(1, min(count, len(division))))


def unit_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bool]]:
    """The parts that a task was given."""
    for batch in batches:
        yield from zip(
            batch.column("directory").to_pylist(), batch.column("whole").to_pylist(), strict=True
        )


def in_directory(fs: S3kSyncClient, directory: str, top: str, *, recursive: bool) -> Batches:
    """What is in a directory at or below `top`; nothing if it is gone by now. A file is in itself
    if it is the top."""
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


def _listed_of(top: str) -> Work:
    def listed(fs: S3kSyncClient, rows: Iterable[pa.RecordBatch]) -> Batches:
        for directory, whole in unit_rows(rows):
            for batch in in_directory(fs, directory, top, recursive=whole):
                yield for_spark(batch)

    return listed


def _segments_of(top: str, count: int) -> Work:
    def scanned(fs: S3kSyncClient, rows: Iterable[pa.RecordBatch]) -> Batches:
        for batch in rows:
            for segment in batch.column("id").to_pylist():

                async def pages(
                    client: S3kClient, segment: int = segment
                ) -> AsyncIterator[Sequence[pa.RecordBatch]]:
                    store = client._volume().store
                    sight = IntentView(store.items, store.keys)
                    async with aclosing(store.scan(top, segment, count)) as found:
                        shown = (
                            (await sight.seen(page)).without_reservations() async for page in found
                        )
                        async for each in record_batches(shown):
                            yield [each]

                for each in fs._iterate(pages):
                    yield for_spark(each)

    return scanned


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of a listing as `spark_schema(arrow_schema())` has it: Spark's times are of
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


def _sums_of(top: str, depth: int) -> Work:
    def summed(fs: S3kSyncClient, rows: Iterable[pa.RecordBatch]) -> Batches:
        for directory, whole in unit_rows(rows):
            for batch in in_directory(fs, directory, top, recursive=whole):
                yield from _sums(batch, top, depth)

    return summed


def _sums(batch: pa.RecordBatch, top: str, depth: int) -> Batches:
    """What a batch adds to each directory down to the depth, counted from the top."""
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
        # Each directory counts in itself, too; a file that is the top, in itself.
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
