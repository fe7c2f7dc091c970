"""The data source as functions over `mapInArrow`, for PySpark 3.5, which has no data sources in
Python.

    from s3k_async.spark import read_parquet, write_parquet

    recent = [("day", ">=", date(2026, 1, 1))]
    events = read_parquet(spark, "s3k://analytics/warehouse/events", filters=recent)
    write_parquet(
        events, "s3k://analytics/copy", mode="overwrite", partition_columns=["day"]
    )

Planning and commit are done in the driver's own process.
"""

from __future__ import annotations

import functools
import json
import operator
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import BinaryType, StructField, StructType

from s3k_async._core.runtime import SYSTEM
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError
from s3k_async.settings import with_local_secrets
from s3k_async.spark.settings import SparkVolume, spark_settings, with_credentials
from s3k_async.spark.source_commit import publish, volume_to_write
from s3k_async.spark.source_files import WritePlan, task_number, write_plan, written_files
from s3k_async.spark.source_filters import ColumnFilter
from s3k_async.spark.source_options import SourceOptions, SourceSettings
from s3k_async.spark.source_reader import ReadPlan, planned, read_splits
from s3k_async.spark.source_schema import inferred_schema, named_like
from s3k_async.spark.source_splits import found_files, partition_names, with_names
from s3k_async.spark.worker_client import client

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["read_parquet", "write_parquet"]

_SHIPPED: Final = StructType([StructField("value", BinaryType())])

_OPERATORS: Final[Mapping[str, tuple[str, bool, Callable[[Any, Any], Any]]]] = {
    "=": ("=", False, operator.eq),
    "==": ("=", False, operator.eq),
    "!=": ("=", True, operator.ne),
    "<": ("<", False, operator.lt),
    "<=": ("<=", False, operator.le),
    ">": (">", False, operator.gt),
    ">=": (">=", False, operator.ge),
    "in": ("in", False, lambda column, values: column.isin(list(values))),
    "not in": ("in", True, lambda column, values: ~column.isin(list(values))),
}


def read_parquet(
    spark: SparkSession,
    *paths: str,
    volume: str | VolumeConfig | SparkVolume | None = None,
    context: str | None = None,
    schema: StructType | str | None = None,
    filters: Sequence[tuple[str, str, Any]] = (),
    **options: Any,
) -> DataFrame:
    """The files below the paths, listed now, as `spark.read.format("s3k")` reads them.

    `filters`: all of these (column, operator, value) hold; operators are `=`, `!=`, `<`, `<=`, `>`,
    `>=`, `in` and `not in`. `options` are those of the data source. With `delegate_credentials` the
    DataFrame keeps the credentials with which it is created: create it again after they expire.
    Raises ConfigError, PathNotFoundError, InvalidArgumentError, and the errors of `spark_volume`.
    """
    asked = SourceOptions.of({**options, "paths": json.dumps(paths)})
    chosen = _volume(spark, asked, volume, context)
    conditions = tuple(_condition(*each) for each in filters)
    with S3kSyncClient(config=with_local_secrets(chosen.driver)) as fs:
        files = found_files(fs, asked.paths)
        if schema is None:
            wanted = inferred_schema(
                fs, files, asked.format, merged=asked.merge_schema, columns=asked.columns
            )
        else:
            wanted = (
                schema
                if isinstance(schema, StructType)
                else spark.createDataFrame([], schema).schema
            )
        files = with_names(files, named_like(partition_names(files), wanted.names))
        plan = ReadPlan(wanted, asked.format, conditions)
        parallelism = spark.sparkContext.defaultParallelism
        groups = planned(fs, plan, files, limit=asked.max_partition_bytes, parallelism=parallelism)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fs = client(chosen.executors)
        for batch in batches:
            for splits in batch.column(0).to_pylist():
                own = pickle.loads(splits)  # noqa: S301 - from the driver
                yield from read_splits(fs, plan, own)

    shipped = [(bytearray(pickle.dumps(group)),) for group in groups]
    tasks = spark.sparkContext.parallelize(shipped, max(1, len(shipped)))
    frame = spark.createDataFrame(tasks, _SHIPPED).mapInArrow(read, wanted)
    return frame.where(functools.reduce(operator.and_, map(_column, filters))) if filters else frame


def write_parquet(
    frame: DataFrame,
    path: str,
    *,
    mode: Literal["append", "overwrite"] = "append",
    partition_columns: Sequence[str] = (),
    volume: str | VolumeConfig | SparkVolume | None = None,
    context: str | None = None,
    **options: Any,
) -> None:
    """Write a DataFrame as `format("s3k")` does: all of it becomes visible when this returns, and
    nothing before.

    `options` are those of the data source. If a task fails, the uploads of other tasks are left to
    garbage collection. Raises ConfigError, InvalidArgumentError, and as `Transaction.commit`.
    """
    if mode not in ("append", "overwrite"):
        raise InvalidArgumentError(f"the mode is append or overwrite, not {mode!r}")
    spark = frame.sparkSession
    given = {"partition_columns": ",".join(partition_columns)} if partition_columns else {}
    asked = SourceOptions.of(options | given | {"path": path})
    chosen = volume_to_write(_volume(spark, asked, volume, context), asked.lease)
    plan = write_plan(asked, frame.schema, SYSTEM.uuid(), overwrite=mode == "overwrite")
    messages = frame.mapInArrow(_writing(chosen, plan), _SHIPPED).collect()
    files = [
        file
        for message in messages
        for file in pickle.loads(message[0])  # noqa: S301 - from our tasks
    ]
    with S3kSyncClient(config=with_local_secrets(chosen.driver)) as fs:
        publish(fs, plan, files)


def _writing(
    volume: SparkVolume, plan: WritePlan
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = written_files(client(volume.executors), plan, task_number(), batches)
        yield pa.record_batch([pa.array([pickle.dumps(files)], pa.binary())], names=_SHIPPED.names)

    return write


def _volume(
    spark: SparkSession,
    options: SourceOptions,
    volume: str | VolumeConfig | SparkVolume | None,
    context: str | None,
) -> SparkVolume:
    found = SparkVolume(volume, volume) if isinstance(volume, VolumeConfig) else volume
    chosen = SourceSettings(spark_settings(spark), found, context).volume_of(options)
    return with_credentials(spark, chosen)


def _condition(column: str, name: str, value: Any) -> ColumnFilter:
    if name not in _OPERATORS:
        raise InvalidArgumentError(f"{name!r} is none of the operators {', '.join(_OPERATORS)}")
    operator, negated, _ = _OPERATORS[name]
    return ColumnFilter(column, operator, tuple(value) if operator == "in" else value, negated)


def _column(condition: tuple[str, str, Any]) -> Column:
    column, name, value = condition
    found: Column = _OPERATORS[name][2](sql.col(f"`{column}`"), value)
    return found
