"""Schemas of files as Spark types, and conversion of record batches to the schema that Spark
expects.

Nothing here loads `pyarrow.dataset` before a task reads, since that loads pandas, and Spark starts
a new process for each plan and commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.errors import InvalidArgumentError
from s3k_async.spark.source_splits import (
    SourceFile,
    decoding,
    inferred_type,
    opened,
    partition_names,
)

if TYPE_CHECKING:
    import pyarrow.dataset as ds

__all__ = ["arrow_schema", "as_expected", "file_format", "inferred_schema", "named_like"]

FILES_AT_ONCE = 8
"""Footers that are read at the same time."""

_INT96 = "us"
"""INT96 is Spark's former format of times; read in microseconds, like Spark's own."""


def file_format(name: str, schema: pa.Schema | None = None) -> ds.FileFormat:
    """The pyarrow format for files; `schema`: the types of columns of text files, if they are
    known."""
    import pyarrow.dataset as ds

    match name:
        case "parquet":
            return ds.ParquetFileFormat(
                read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit=_INT96),
                default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True),
            )
        case "csv" if schema is not None:
            from pyarrow.csv import ConvertOptions

            types = {
                field.name: field.type for field in schema if not pa.types.is_nested(field.type)
            }
            return ds.CsvFileFormat(
                default_fragment_scan_options=ds.CsvFragmentScanOptions(
                    ConvertOptions(column_types=types)
                )
            )
        case "csv":
            return ds.CsvFileFormat()
        case "json":
            return ds.JsonFileFormat()
        case "orc":
            return ds.OrcFileFormat()
        case _:
            return ds.IpcFileFormat()


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of Spark's batches, times in UTC."""
    zone: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    )  # PySpark 4
    return to_arrow_schema(schema, **zone)


def inferred_schema(
    fs: S3kSyncClient,
    files: Sequence[SourceFile],
    format: str,
    *,
    merged: bool,
    columns: Sequence[str] | None = None,
) -> StructType:
    """The schema of the newest file, or of all files merged, followed by the partition columns.

    `columns`: only these, in their order. Raises InvalidArgumentError (no files, a file of
    another format, types that contradict each other, a column that is not there).
    """
    if not any(file.size for file in files):
        raise InvalidArgumentError("there is no file whose schema could be read: give a schema")
    newest = max((file for file in files if file.size), key=lambda file: (file.mtime_ms, file.path))
    looked_at = [file for file in files if file.size] if merged else [newest]
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        schemas = list(pool.map(lambda file: _schema_of(fs, file, format), looked_at))
    try:
        found = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"the files have schemas that contradict each other: {error}"
        ) from error
    names = partition_names(files)
    fields = [field for field in found if field.name not in names]
    fields += [
        pa.field(name, inferred_type(dict(file.values)[name] for file in files)) for name in names
    ]
    by_name = {field.name: field for field in fields}
    if columns is not None:
        missing = [name for name in columns if name not in by_name]
        if missing:
            raise InvalidArgumentError(
                f"there is no column {missing[0]!r} among {', '.join(by_name)}"
            )
        fields = [by_name[name] for name in columns]
    # Other files may not guarantee non-null values: every column is nullable, as in Spark's own
    # sources.
    spark: StructType = from_arrow_schema(
        pa.schema([pa.field(field.name, field.type) for field in fields])
    )
    return spark


def as_expected(
    batch: pa.RecordBatch, expected: pa.Schema, constants: Mapping[str, pa.Scalar]
) -> pa.RecordBatch:
    """A batch of a file as Spark expects it: with partition values, with nulls for missing columns,
    and with types cast.

    Raises InvalidArgumentError (a value that the type cannot hold).
    """
    names = named_like(batch.schema.names, expected.names)
    columns = []
    for field in expected:
        if field.name in constants:
            column = pa.repeat(constants[field.name], batch.num_rows)
        elif field.name in names:
            column = _cast(batch.column(names[field.name]), field)
        else:
            column = pa.nulls(batch.num_rows, field.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=expected)


def named_like(names: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """The wanted names that exist, with their spelling in the file, which may differ in case if
    that is unambiguous."""
    present = set(names)
    found = {name: name for name in wanted if name in present}
    for name in wanted:
        others = [other for other in present if other.lower() == name.lower()]
        if name not in found and len(others) == 1:
            found[name] = others[0]
    return found


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type.equals(field.type):
        return column
    try:
        return pc.cast(column, options=pc.CastOptions(field.type, allow_time_truncate=True))
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"column {field.name}: {column.type} cannot be read as {field.type}: {error}"
        ) from error


def _schema_of(fs: S3kSyncClient, file: SourceFile, format: str) -> pa.Schema:
    with decoding(file), opened(fs, file) as reader:
        zoned: set[str] = set()
        if format == "parquet":
            parquet = pq.ParquetFile(reader, coerce_int96_timestamp_unit=_INT96)
            schema, zoned = parquet.schema_arrow, _int96_columns(parquet.schema)
        else:
            schema = (
                file_format(format).make_fragment(pa.PythonFile(reader, mode="r")).physical_schema
            )
    return pa.schema(
        [pa.field(field.name, _plain(field.type, zoned=field.name in zoned)) for field in schema]
    )


def _int96_columns(schema: pq.ParquetSchema) -> set[str]:
    """Columns with instants: Spark writes them as INT96, which does not specify a time zone."""
    columns = map(schema.column, range(len(schema)))
    return {column.path.split(".")[0] for column in columns if column.physical_type == "INT96"}


def _plain(type: pa.DataType, *, zoned: bool) -> pa.DataType:
    """A type that Spark supports, with the same values as the given one."""
    types = pa.types

    def inner(field: pa.Field) -> pa.Field:
        return pa.field(field.name, _plain(field.type, zoned=zoned))

    if types.is_dictionary(type):
        return _plain(type.value_type, zoned=zoned)
    if types.is_struct(type):
        return pa.struct([inner(field) for field in type])
    if types.is_map(type):
        return pa.map_(_plain(type.key_type, zoned=zoned), _plain(type.item_type, zoned=zoned))
    if types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        return pa.list_(_plain(type.value_type, zoned=zoned))
    if types.is_timestamp(type):
        return pa.timestamp("us", "UTC" if zoned or type.tz is not None else None)
    return _WIDER.get(type, type)


_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
}
