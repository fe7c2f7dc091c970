"""Rows that tasks return: one Arrow schema for each kind, batches, and errors as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark import TaskContext

from s3k_async import errors
from s3k_async.errors import S3kError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "ERROR",
    "Batches",
    "attempt_name",
    "column_batch",
    "dict_batches",
    "error_fields",
    "error_from",
    "row_batch",
    "spark_schema",
]

Batches: TypeAlias = Iterator[pa.RecordBatch]

ERROR: Final = (pa.field("error", pa.string()), pa.field("message", pa.string()))
"""Class and message of an error, null where there is none."""


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema in Spark's types; timestamps have microseconds."""
    from pyspark.sql.pandas.types import from_arrow_schema

    found: StructType = from_arrow_schema(schema)
    return found


def column_batch(schema: pa.Schema, columns: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """A batch of columns of Python values."""
    return pa.record_batch([list(column) for column in columns], schema=schema)


def row_batch(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """A batch of rows of Python values."""
    return column_batch(schema, zip(*rows, strict=True) if rows else [()] * len(schema))


def dict_batches(schema: pa.Schema, rows: Iterable[Mapping[str, Any]], size: int) -> Batches:
    """Batches of `size` rows, as dictionaries in which null columns may be missing."""
    rest = iter(rows)
    while some := list(islice(rest, size)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def error_fields(error: Exception) -> tuple[str, str]:
    """The columns of ERROR."""
    return type(error).__name__, error.message if isinstance(error, S3kError) else str(error)


def error_from(name: str, message: str, path: str | None = None) -> S3kError:
    """The error in the columns of a row."""
    kind: type[S3kError] = getattr(errors, name, S3kError)
    return kind(message, path=path)


def attempt_name(number: int | None = None) -> str:
    """A unique name for the output of this attempt of the running task. `number`: of its part, by
    default its partition."""
    context = TaskContext.get()
    partition, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    return f"{partition if number is None else number:06d}-{attempt}"
