"""The files of a write task: uploaded, unpublished Parquet files, one for each partition among its
rows."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.types import StructType

from s3k_async._core.paths import join, normalize
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_files import SyncStagedWriter
from s3k_async.errors import ConfigError, InvalidArgumentError, S3kError
from s3k_async.listing.hive_partitions import partition_directory
from s3k_async.model import StagedFile
from s3k_async.namespace.addresses import inside
from s3k_async.spark.source_options import SourceOptions
from s3k_async.spark.source_schema import arrow_schema, as_expected

__all__ = ["WritePlan", "WrittenFile", "discard", "task_number", "write_plan", "written_files"]

_LOG = logging.getLogger(__name__)

ROW_GROUP = 64 * 1024 * 1024
"""Bytes of rows, before they are encoded, that make a row group."""
HELD = 128 * 1024 * 1024
"""Bytes of rows that a task holds for all of its partitions together."""
OPEN_FILES = 16
"""Files that a task keeps open. With more partitions than that, some get several files."""

Directory = str
"""`a=1/b=x`, or empty."""


@dataclass(frozen=True)
class WritePlan:
    """What all tasks of one write have in common."""

    schema: StructType
    path: str
    overwrite: bool
    """Whether existing files are removed."""
    job: str
    """A UUID that makes the names of the files unique."""
    dynamic: bool = False
    """Whether only the written partitions are overwritten."""
    partition_columns: tuple[str, ...] = ()
    max_records: int = 0
    compression: str = "snappy"

    def name(self, task: int, number: int) -> str:
        """The name of the file `number` of a task."""
        codec = "" if self.compression == "none" else f".{self.compression}"
        return f"part-{task:05d}-{self.job}-{number:03d}{codec}.parquet"

    def directory(self, volume: str, partition: Directory) -> str:
        """The path of the files of a partition, in the volume with this name. Raises
        InvalidPathError, CrossVolumeError."""
        return normalize(f"{normalize(inside(self.path, volume))}/{partition}")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete, unpublished file."""

    directory: Directory
    name: str
    staged: StagedFile


def write_plan(
    options: SourceOptions, schema: StructType, job: str, *, overwrite: bool
) -> WritePlan:
    """The plan of a write. Raises ConfigError (options that contradict each other),
    InvalidArgumentError (partition columns that the schema does not have, or that cannot be names
    of directories).
    """
    dynamic = options.partition_overwrite_mode == "dynamic"
    if dynamic and not overwrite:
        raise ConfigError("partition_overwrite_mode is for the mode overwrite")
    if options.format != "parquet":
        raise ConfigError(f"option format: {options.format} is read, but not written; Parquet is")
    types = {field.name: field.type for field in arrow_schema(schema)}
    for name in options.partition_columns:
        if name not in types:
            raise InvalidArgumentError(
                f"there is no column {name!r} to make directories of among {', '.join(types)}"
            )
        if pa.types.is_nested(types[name]) or pa.types.is_binary(types[name]):
            raise InvalidArgumentError(
                f"column {name!r}: a {types[name]} cannot be the name of a directory"
            )
    if len(options.partition_columns) == len(types):
        raise InvalidArgumentError("there has to be a column that is no partition column")
    return WritePlan(
        schema,
        options.one_path(),
        overwrite,
        job,
        dynamic=dynamic and bool(options.partition_columns),
        partition_columns=options.partition_columns,
        max_records=options.max_records_per_file,
        compression=options.compression,
    )


def written_files(
    fs: S3kSyncClient, plan: WritePlan, task: int, batches: Iterable[pa.RecordBatch]
) -> list[WrittenFile]:
    """Upload the rows of a task. If an error is raised, the uploads were dropped."""
    files = _Files(fs, plan, task)
    expected = arrow_schema(plan.schema)
    try:
        for batch in batches:
            for directory, rows in _by_partition(
                as_expected(batch, expected, {}), plan.partition_columns
            ):
                files.add(directory, rows)
        return files.finish()
    except BaseException:
        files.discard()
        raise


def task_number() -> int:
    """The number of this task in its stage; the same in repeated attempts."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def discard(fs: S3kSyncClient, files: Iterable[WrittenFile]) -> None:
    """Drop files that certainly are unpublished; on an error they are left to garbage
    collection."""
    try:
        fs.discard_staged([file.staged for file in files])
    except S3kError as error:
        _LOG.warning("files that were not published are left to garbage collection: %s", error)


@dataclass
class _RowBuffer:
    """Buffered rows of one partition, not yet written to a file."""

    tables: list[pa.Table] = field(default_factory=list)
    size: int = 0


@dataclass
class _Open:
    """A file that is being written."""

    name: str
    file: SyncStagedWriter
    parquet: pq.ParquetWriter
    rows: int = 0


class _Files:
    """The files of a task. Rows are buffered until there are enough for a row group, so that a
    partition has one file if all of its rows fit, in whatever order they arrive."""

    def __init__(self, fs: S3kSyncClient, plan: WritePlan, task: int) -> None:
        self._fs = fs
        self._plan = plan
        self._task = task
        self._held: dict[Directory, _RowBuffer] = {}
        self._size = 0
        self._open: OrderedDict[Directory, _Open] = OrderedDict()
        self._done: list[WrittenFile] = []
        self._begun = 0

    def add(self, directory: Directory, rows: pa.Table) -> None:
        """Take in rows of a partition."""
        held = self._held.setdefault(directory, _RowBuffer())
        held.tables.append(rows)
        held.size += rows.nbytes
        self._size += rows.nbytes
        if held.size >= ROW_GROUP:
            self._write(directory)
        while self._size > HELD:
            self._write(max(self._held, key=lambda each: self._held[each].size))

    def finish(self) -> list[WrittenFile]:
        """Write the buffered rows and complete all files."""
        for directory in list(self._held):
            self._write(directory)
            self._close(directory)
        for directory in list(self._open):
            self._close(directory)
        return self._done

    def discard(self) -> None:
        """Drop everything."""
        for each in self._open.values():
            each.file.discard()
            with suppress(Exception):  # the footer cannot be written any more
                each.parquet.close()
        self._open.clear()
        discard(self._fs, self._done)

    def _write(self, directory: Directory) -> None:
        """Write the buffered rows of a partition as a row group; into several files if the rows of
        a file are limited."""
        held = self._held.pop(directory)
        self._size -= held.size
        rows = pa.concat_tables(held.tables)
        most = self._plan.max_records
        while rows.num_rows:
            file = self._opened(directory, rows.schema)
            part = rows.slice(0, most - file.rows) if most else rows
            file.parquet.write_table(part, row_group_size=max(1, part.num_rows))
            file.rows += part.num_rows
            rows = rows.slice(part.num_rows)
            if file.rows == most:
                self._close(directory)

    def _opened(self, directory: Directory, schema: pa.Schema) -> _Open:
        found = self._open.get(directory)
        if found is None:
            while len(self._open) >= OPEN_FILES:
                self._close(next(iter(self._open)))
            name = self._plan.name(self._task, self._begun)
            file = self._fs.stage(join(self._plan.directory(self._fs.name, directory), name))
            try:
                writer = pq.ParquetWriter(file, schema, compression=self._plan.compression)
                found = _Open(name, file, writer)
            except BaseException:
                file.discard()
                raise
            self._begun += 1
            self._open[directory] = found
        self._open.move_to_end(directory)
        return found

    def _close(self, directory: Directory) -> None:
        found = self._open.get(directory)
        if found is not None:
            found.parquet.close()
            found.file.close()
            del self._open[directory]
            self._done.append(WrittenFile(directory, found.name, found.file.staged))


def _by_partition(
    batch: pa.RecordBatch, columns: tuple[str, ...]
) -> Iterator[tuple[Directory, pa.Table]]:
    """The rows of each partition, without the partition columns, in their order."""
    table = pa.Table.from_batches([batch])
    rows = table.drop_columns(list(columns))
    # Every column may be null, as in Spark's own files.
    rows = rows.cast(pa.schema([each.with_nullable(True) for each in rows.schema]))
    if not columns or not table.num_rows:
        yield from [("", rows)] if table.num_rows else []
        return
    texts = {str(place): _texts(table.column(name)) for place, name in enumerate(columns)}
    numbers = pa.array(range(table.num_rows), pa.int64())
    groups = (
        pa.table({**texts, "row": numbers})
        .group_by(list(texts), use_threads=False)
        .aggregate([("row", "list")])
    )
    for group in groups.to_pylist():
        values = {name: group[str(place)] for place, name in enumerate(columns)}
        yield partition_directory(values), rows.take(pa.array(group["row_list"], pa.int64()))


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Partition values as in directory names; times are in UTC."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = pc.cast(column, pa.timestamp(column.type.unit))
    return pc.cast(column, pa.string())
