"""The data source `s3k` of PySpark 4: Parquet and the other formats of pyarrow in volumes.

    from s3k_async.spark import register

    register(spark)
    events = spark.read.format("s3k").load("s3k://analytics/warehouse/events")
    copy = events.write.format("s3k").option("partition_columns", "day")
    copy.mode("append").save("s3k://analytics/copy")

Reading: the driver lists the path; tasks get physical keys and send no requests to the table.
Writing: tasks upload, and one transaction publishes: readers see either the previous state or the
complete result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Unpack

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from s3k_async._core.runtime import SYSTEM
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError
from s3k_async.settings import with_local_secrets
from s3k_async.settings.keywords import Settings
from s3k_async.spark.delegated_credentials import delegating_once, need_undelegated
from s3k_async.spark.settings import SparkVolume, spark_settings
from s3k_async.spark.source_commit import volume_to_write
from s3k_async.spark.source_files import write_plan
from s3k_async.spark.source_filters import condition_of
from s3k_async.spark.source_options import SourceOptions, SourceSettings, need_no_secrets
from s3k_async.spark.source_reader import ReadPlan, planned, read_splits
from s3k_async.spark.source_schema import arrow_schema, inferred_schema, named_like
from s3k_async.spark.source_splits import (
    ReadSplit,
    SourceFile,
    found_files,
    partition_names,
    with_names,
)
from s3k_async.spark.source_writer import S3kWriter
from s3k_async.spark.worker_client import client

__all__ = ["S3kDataSource", "register"]

PARTITION_OVERWRITE_MODE = "partition_overwrite_mode"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(
    spark: SparkSession,
    *,
    volume: str | VolumeConfig | SparkVolume | None = None,
    context: str | None = None,
    short_name: str = "s3k",
    options: Mapping[str, object] | None = None,
    **settings: Unpack[Settings],
) -> None:
    """Register the format `s3k` in a session, with the present configuration of the session.

    `volume`, `context` and `settings` are those of `spark_volume`, and apply unless the options or
    the URL of a read or write specify others. Call it again after a change of
    `spark.sql.python.filterPushdown.enabled`.

    `short_name` is another name for the format, and `options` are data source options that it
    always has. With a `path` it is the format of one table: of a table in its catalog, Spark passes
    only the format and the columns to a Python data source, and none of the options.

    With `delegate_credentials`, each read or write obtains temporary credentials for its tasks when
    Spark plans it, at the first action of a DataFrame, with the settings in the driver's
    environment and configuration file.

    Raises ConfigError for an unknown option, for a secret, since all of it is shipped, and for the
    result of `spark_volume` with `delegate_credentials`, which has the credentials of its session.
    """
    need_no_secrets(settings)
    SourceOptions.of(options or {})
    found = SparkVolume(volume, volume) if isinstance(volume, VolumeConfig) else volume
    if isinstance(found, SparkVolume):
        need_undelegated(found.executors)
    shipped = SourceSettings(
        session=spark_settings(spark).without_secrets(),
        volume=found,
        context=context,
        settings=settings,
        short_name=short_name,
        options=dict(options or {}),
        parallelism=spark.sparkContext.defaultParallelism,
        pushes_filters=str(spark.conf.get(PUSHDOWN, "false")).lower() == "true",
    )
    spark.dataSource.register(type("S3kDataSource", (S3kDataSource,), {"session": shipped}))


class S3kDataSource(DataSource):
    """The data source of `format("s3k")`; `register` creates a subclass for the session."""

    session: SourceSettings

    @classmethod
    def name(cls) -> str:
        """`s3k`, or the name that `register` was given."""
        return cls.session.short_name

    def schema(self) -> StructType:
        """The schema of the files, followed by the partition columns; only `columns`, if they are
        given."""
        options, volume = self._asked()
        with _on_the_driver(volume) as fs:
            files = found_files(fs, options.paths)
            return inferred_schema(
                fs, files, options.format, merged=options.merge_schema, columns=options.columns
            )

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader, with support for filters if Spark pushes them."""
        options, volume = self._planned()
        if options.columns is not None and set(schema.names) != set(options.columns):
            raise InvalidArgumentError("give either a schema or columns: a schema selects, too")
        kind = S3kFilteringReader if self.session.pushes_filters else S3kReader
        plan = ReadPlan(schema, options.format)
        return kind(
            options,
            volume,
            plan,
            self.session.parallelism,
            may_be_empty="path" in self.session.options,
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer that appends, or replaces the directory or the written partitions."""
        options, volume = self._planned()
        if not overwrite and PARTITION_OVERWRITE_MODE not in self.options:
            # Of the format, which appends as well.
            options = replace(options, partition_overwrite_mode="static")
        plan = write_plan(options, schema, SYSTEM.uuid(), overwrite=overwrite)
        return S3kWriter(volume_to_write(volume, options.lease), plan)

    def _asked(self) -> tuple[SourceOptions, SparkVolume]:
        options = self.session.asked(self.options)
        return options, self.session.volume_of(options)

    def _planned(self) -> tuple[SourceOptions, SparkVolume]:
        """The options and the volume, with credentials for the tasks of this read or write."""
        options, volume = self._asked()
        return options, replace(volume, executors=delegating_once(volume.executors))


class TaskSplits(InputPartition):
    """The splits of one task."""

    def __init__(self, splits: list[ReadSplit]) -> None:
        super().__init__(splits)


class S3kReader(DataSourceReader):
    """Plans where the driver runs, and reads in tasks."""

    def __init__(
        self,
        options: SourceOptions,
        volume: SparkVolume,
        plan: ReadPlan,
        parallelism: int,
        *,
        may_be_empty: bool,
    ) -> None:
        self._options = options
        self._may_be_empty = may_be_empty
        self._volume = volume
        self._plan = plan
        self._parallelism = parallelism
        self._files: list[SourceFile] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state that tasks need, without the listing."""
        return {**self.__dict__, "_files": None}

    def partitions(self) -> list[InputPartition]:
        """Input partitions: files, combined or split to `max_partition_bytes`."""
        limit = self._options.max_partition_bytes
        with _on_the_driver(self._volume) as fs:
            groups = planned(
                fs, self._plan, self._listed(fs), limit=limit, parallelism=self._parallelism
            )
        return [TaskSplits(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; no rows if there are no files."""
        return read_splits(client(self._volume.executors), self._plan, partition.value or [])

    def _listed(self, fs: S3kSyncClient) -> list[SourceFile]:
        """All files, their partition columns named as the schema names them."""
        if self._files is None:
            files = found_files(fs, self._options.paths, missing_ok=self._may_be_empty)
            self._files = with_names(
                files, named_like(partition_names(files), self._plan.schema.names)
            )
        return self._files


class S3kFilteringReader(S3kReader):
    """A reader that evaluates the filters that it supports.

    Filters on partition columns select files; others skip row groups and rows, and Spark evaluates
    them again.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """The filters that Spark still has to evaluate."""
        with _on_the_driver(self._volume) as fs:
            names = partition_names(self._listed(fs))
        schema = arrow_schema(self._plan.schema)
        left = []
        for pushed in filters:
            condition = condition_of(pushed)
            if condition is not None:
                self._plan = replace(self._plan, conditions=(*self._plan.conditions, condition))
            if condition is None or not (
                condition.column in names and condition.decides(schema.field(condition.column).type)
            ):
                left.append(pushed)
        return left


def _on_the_driver(volume: SparkVolume) -> S3kSyncClient:
    """A client for one use: Spark also uses the Python process of planning for other purposes."""
    return S3kSyncClient(config=with_local_secrets(volume.driver))
