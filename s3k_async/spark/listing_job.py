"""Listings and sums over Spark: by subtrees, or by segments of the table."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async._native import Entries
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.errors import InvalidArgumentError, PathNotFoundError
from s3k_async.listing.listings import arrow_schema, record_batches
from s3k_async.model import ROOT, FileStatus
from s3k_async.spark.runner import AnyVolume, JobRun
from s3k_async.spark.scan_splits import opened
from s3k_async.spark.task_rows import Batches, row_batch, spark_schema
from s3k_async.spark.worker_client import each_partition, each_value
from s3k_async.txn.intent_view import IntentView
from s3k_async.volumes import Volume

__all__ = ["Division", "du", "for_spark", "listing", "subtrees"]

LEVELS = 3
"""Levels at most that the driver searches for subtrees."""
UNIT = "directory string not null, whole boolean not null"

By: TypeAlias = Literal["directories", "segments"]
Division: TypeAlias = list[tuple[str, bool]]
"""Directories, each with everything below it (True), or only its children (False)."""
SubtreeWork: TypeAlias = Callable[[S3kSyncClient, Iterable[tuple[str, bool]]], Batches]
"""The work of a task on some subtrees."""


def listing(
    spark: SparkSession,
    volume: AnyVolume,
    path: str = ROOT,
    *,
    by: By = "directories",
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

    In layout `tree` the table is read twice: by the call, for the paths of the directories, and
    when the frame is used. Up to a million paths are in the memory of each task; more are joined by
    Spark, with a job for each level of the tree, and are kept in the checkpoint directory of the
    session, or else by the executors, whose loss then ends the job. Entries in directories that
    were created in between, and those to which no path leads, are left out; directories have the
    paths that they had when the call was made. If parents of directories are missing, since
    directories are renamed or damaged, the first scan is repeated, twice at most.

    Lazy: the tasks run each time that the frame is used. Raises PathNotFoundError,
    InvalidPathError.
    """
    job = JobRun(spark, volume, "listing", tasks=tasks)
    top, division = _divided(job, path, by)
    if division is None:
        return _by_segments(job, top.path)
    return over_subtrees(job, division, _listed_of(top.path), arrow_schema())


def du(
    spark: SparkSession,
    volume: AnyVolume,
    path: str = ROOT,
    *,
    depth: int = 1,
    by: By = "directories",
    tasks: int | None = None,
) -> DataFrame:
    """Columns `path`, `bytes`, `files` and `directories` of each directory from `path` down to
    `depth` levels below it, as `content_summary`: the directory itself included, files being
    written excluded. For a file, its own row.

    Tasks sum up what they list, in the subtrees or segments of `listing`; only sums are shuffled.
    `by="segments"` divides the work evenly if one directory has most of the children, and reads the
    whole table. Lazy, in no order. Raises as `listing`, and InvalidArgumentError for an invalid
    depth.
    """
    if not 0 <= depth <= 1000:
        raise InvalidArgumentError(f"a depth is a number from 0 to 1000, not {depth!r:.50}")
    job = JobRun(spark, volume, "du", tasks=tasks)
    top, division = _divided(job, path, by)
    if division is None:
        listed = _by_segments(job, top.path).select("path", "size", "is_dir")
        summed = partial(_sums_in, top=top.path, depth=depth)
        sums = listed.mapInArrow(summed, spark_schema(_SUMS))
    else:
        sums = over_subtrees(job, division, _sums_of(top.path, depth), _SUMS)
    start = spark.createDataFrame([(top.path, 0, 0, int(top.is_dir))], spark_schema(_SUMS))
    totals = [sf.sum(name).alias(name) for name in _SUMS.names[1:]]
    return start.unionByName(sums).groupBy("path").agg(*totals)


def _divided(job: JobRun, path: str, by: By) -> tuple[FileStatus, Division | None]:
    """What is at a path, and the subtrees below it, or None if the table is divided into segments.
    A file is a subtree, which is listed without a scan."""
    if by not in ("directories", "segments"):
        raise InvalidArgumentError(f"by is 'directories' or 'segments', not {by!r:.50}")
    with S3kSyncClient(config=job.volume.driver) as fs:
        top = fs.stat(path)
        if by == "segments" and top.is_dir:
            return top, None
        return top, subtrees(fs, top.path, job.tasks)


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


@dataclass(frozen=True, slots=True)
class _SegmentScan:
    """A listing by segments, as shipped to tasks."""

    top: str
    count: int
    paths: Broadcast[dict[str, str]] | None = None
    """In layout `tree` those of all directories; without them its entries have their entry keys as
    paths."""

    def listed(self, fs: S3kSyncClient, segments: Iterator[int]) -> Batches:
        """The entries in some segments."""
        for segment in segments:
            yield from map(for_spark, each_value(fs, partial(self._listed, segment)))

    def directories(self, fs: S3kSyncClient, segments: Iterator[int]) -> Batches:
        """The directories in some segments, by id."""
        for segment in segments:
            yield from each_value(fs, partial(self._directories, segment))

    async def _listed(
        self, segment: int, volume: Volume
    ) -> AsyncIterator[Sequence[pa.RecordBatch]]:
        shown = (page.without_reservations() async for page in self._seen(segment, volume))
        async for each in record_batches(shown):
            yield [each]

    async def _directories(
        self, segment: int, volume: Volume
    ) -> AsyncIterator[Sequence[pa.RecordBatch]]:
        async for page in self._seen(segment, volume):
            found = page.directories()
            rows = zip((each.id for each in found), found.entry_keys(), strict=True)
            yield [row_batch(_DIRECTORIES, list(rows))]

    async def _seen(self, segment: int, volume: Volume) -> AsyncGenerator[Entries, None]:
        store = volume.store
        view = IntentView(store.items, store.keys)
        paths = None if self.paths is None else self.paths.value
        async with aclosing(store.scan(self.top, segment, self.count, paths=paths)) as found:
            async for page in found:
                yield await view.seen(page)


_SCANS = 3
"""Scans for directories at most, while the parents of some are missing."""
_IN_MEMORY = 1_000_000
"""Directories whose paths are sent to all worker processes, some 300 bytes each; those of more are
joined by Spark."""
_DIRECTORIES = pa.schema([("id", pa.string()), ("entry_key", pa.string())])


def _by_segments(job: JobRun, top: str) -> DataFrame:
    with opened(job.volume.driver) as (volume, _):
        volume.store.access.require_superuser("scan the table; list it by directories", top)
        layout = volume.store.layout
        top_paths = layout.scanned_paths(())
        if top_paths is None:  # the keys contain the paths
            return _entries(job, _SegmentScan(top, job.tasks))
        roots = layout.check().roots
        directories = job.kept(_directories_of(job))
        if directories.count() > _IN_MEMORY:
            return _joined(job, top, top_paths, _all_directories(job, directories, roots))
        paths = layout.scanned_paths(_collected(job, directories, roots))
    shared = job.spark.sparkContext.broadcast(paths or {})
    return _entries(job, _SegmentScan(top, job.tasks, shared))


def _entries(job: JobRun, segments: _SegmentScan) -> DataFrame:
    scan = each_partition(job.volume.executors, segments.listed)
    return job.over_splits(range(job.tasks), scan, arrow_schema())


def _directories_of(job: JobRun) -> DataFrame:
    """The ids and entry keys of directories, from a scan of the table by tasks. One that moves
    during the scan may be missed, with everything below it."""
    scan = each_partition(job.volume.executors, _SegmentScan(ROOT, job.tasks).directories)
    return job.over_splits(range(job.tasks), scan, _DIRECTORIES)


def _collected(
    job: JobRun, directories: DataFrame, roots: Collection[str]
) -> Iterable[tuple[str, str]]:
    """The rows of all directories: of this scan, and of further ones while parents are missing."""
    found: dict[str, str] = {}
    for number in range(_SCANS):
        rows = (_directories_of(job) if number else directories).collect()
        found.update((row.id, row.entry_key) for row in rows)
        parents = {entry_key.partition("/")[0] for entry_key in found.values()}
        if not parents - found.keys() - set(roots):
            break
    return found.items()


def _all_directories(job: JobRun, directories: DataFrame, roots: Collection[str]) -> DataFrame:
    """As `_collected`, in Spark: of several places of a directory, the one of the last scan."""
    rows = directories.withColumn("scan", sf.lit(0))
    last = sf.max_by("entry_key", "scan").alias("entry_key")
    for number in range(_SCANS):
        if number:
            rows = rows.unionAll(_directories_of(job).withColumn("scan", sf.lit(number)))
        found = rows.groupBy("id").agg(last, sf.max("scan").alias("scan"))
        rows = job.kept(found.where(~sf.col("id").isin(*roots)))
        parents = rows.select(_parent().alias("id")).where(~sf.col("id").isin(*roots))
        if parents.join(rows, "id", "left_anti").isEmpty():
            break
    return rows


def _joined(
    job: JobRun, top: str, top_paths: Mapping[str, str], directories: DataFrame
) -> DataFrame:
    """The entries in all segments, joined with the paths of their directories."""
    start = [(key, "" if path == ROOT else path) for key, path in top_paths.items()]
    level = job.spark.createDataFrame(start, "parent string, above string")
    paths = level
    children = directories.select("id", _parent().alias("parent"), _name().alias("name"))
    # Each directory is at one place here, and no root is at any, so that none of a cycle is below
    # the root.
    while not level.isEmpty():
        below = children.join(level, "parent").select(
            sf.col("id").alias("parent"), sf.concat_ws("/", "above", "name").alias("above")
        )
        level = job.kept(below)
        paths = paths.unionAll(level)
    entries = _entries(job, _SegmentScan(ROOT, job.tasks))
    listed = entries.withColumn("parent", _parent("path")).join(paths, "parent")
    found = listed.withColumn("path", sf.concat_ws("/", "above", _name("path")))
    below_top = sf.col("path").startswith("/" if top == ROOT else f"{top}/")
    return found.where(below_top).select(*arrow_schema().names)


def _parent(column: str = "entry_key") -> Column:
    """The directory of an entry key."""
    return sf.substring_index(column, "/", 1)


def _name(column: str = "entry_key") -> Column:
    return sf.substring_index(column, "/", -1)


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


def _sums_in(batches: Iterable[pa.RecordBatch], *, top: str, depth: int) -> Batches:
    for batch in batches:
        yield from _sums(batch, top, depth)


def _sums(batch: pa.RecordBatch, top: str, depth: int) -> Batches:
    """The sums of a batch for each directory down to the depth, counted from the top."""
    if not batch.num_rows:
        return
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
