"""The reader of a task: record batches of the schema that Spark expects, from physical objects."""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.spark.source_filters import ColumnFilter
from s3k_async.spark.source_schema import arrow_schema, as_expected, file_format, named_like
from s3k_async.spark.source_splits import (
    ReadSplit,
    SourceFile,
    decoding,
    joined,
    opened,
    pruned,
    splits_of,
    typed,
)

__all__ = ["ReadPlan", "planned", "read_splits"]

BATCH_ROWS = 65_536
WHOLE = 4 * 1024 * 1024
"""Files up to this size are fetched by one request, instead of one for the footer and one for each
row group."""
AHEAD = 4
"""Files that are fetched at the same time."""


@dataclass(frozen=True)
class ReadPlan:
    """The settings shared by all tasks of one read."""

    schema: StructType
    """The schema of the result, partition columns included."""
    format: str
    conditions: tuple[ColumnFilter, ...] = ()
    """The conditions on rows; the result may include rows that do not meet them."""


def planned(
    fs: S3kSyncClient, plan: ReadPlan, files: Sequence[SourceFile], *, limit: int, parallelism: int
) -> list[list[ReadSplit]]:
    """The splits of each task. Raises InvalidArgumentError (a partition value of another type than
    in the schema)."""
    wanted = pruned(files, plan.conditions, arrow_schema(plan.schema))
    return joined(
        splits_of(fs, wanted, limit, parquet=plan.format == "parquet"), limit, parallelism
    )


def read_splits(
    fs: S3kSyncClient, plan: ReadPlan, splits: Sequence[ReadSplit]
) -> Iterator[pa.RecordBatch]:
    """The rows of the splits. No requests are sent to the table. Raises DataMissingError (the file
    was replaced, and its data was collected), CorruptDataError, InvalidArgumentError (a file of
    another format, a value that the type cannot hold).
    """
    expected = arrow_schema(plan.schema)
    with ThreadPoolExecutor(AHEAD) as pool:
        waiting: deque[tuple[ReadSplit, Future[pa.Buffer | None]]] = deque()
        left = iter(splits)
        try:
            while True:
                while len(waiting) < AHEAD and (split := next(left, None)) is not None:
                    waiting.append((split, pool.submit(_fetched, fs, split)))
                if not waiting:
                    return
                split, data = waiting.popleft()
                with decoding(split.file), ExitStack() as stack:
                    source = _Source(fs, split, data.result(), stack)
                    yield from _rows_of(source, plan, expected)
        finally:
            for _, data in waiting:
                data.cancel()


def _fetched(fs: S3kSyncClient, split: ReadSplit) -> pa.Buffer | None:
    """The content of a small file."""
    if split.file.size > WHOLE:
        return None
    with opened(fs, split.file) as reader:
        return pa.py_buffer(reader.read())


@dataclass(frozen=True)
class _Source:
    fs: S3kSyncClient
    split: ReadSplit
    data: pa.Buffer | None
    stack: ExitStack

    def open(self) -> pa.Buffer | pa.PythonFile:
        """The source for one read by pyarrow: reading the schema of a text file consumes it."""
        if self.data is not None:
            return self.data
        return pa.PythonFile(self.stack.enter_context(opened(self.fs, self.split.file)), mode="r")


def _rows_of(source: _Source, plan: ReadPlan, expected: pa.Schema) -> Iterator[pa.RecordBatch]:
    split = source.split
    values = dict(split.file.values)
    constants = {
        name: typed(values[name], expected.field(name).type)
        for name in expected.names
        if name in values
    }
    of_format = file_format(plan.format, expected)
    groups = {} if split.row_groups is None else {"row_groups": split.row_groups}
    fragment = of_format.make_fragment(source.open(), **groups)
    present = fragment.physical_schema
    if plan.format != "parquet":
        fragment = of_format.make_fragment(source.open())
    names = named_like(present.names, [name for name in expected.names if name not in constants])
    batches = fragment.to_batches(
        schema=present,
        columns=list(names.values()),
        filter=_filter(plan.conditions, names, present, expected),
        batch_size=BATCH_ROWS,
    )
    for batch in batches:
        if batch.num_rows:
            yield as_expected(batch, expected, constants)


def _filter(
    conditions: Sequence[ColumnFilter],
    names: dict[str, str],
    present: pa.Schema,
    expected: pa.Schema,
) -> pc.Expression | None:
    """The conditions on columns that the file has, with the same types."""
    found = []
    for condition in conditions:
        name = names.get(condition.column)
        if name is not None and present.field(name).type.equals(
            expected.field(condition.column).type
        ):
            expression = condition.expression(name, present.field(name).type)
            if expression is not None:
                found.append(expression)
    return functools.reduce(operator.and_, found) if found else None
