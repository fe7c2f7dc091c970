"""Saved plans: the decisions of a job, written once, for the time of the run or to a directory that
outlives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async.errors import InvalidArgumentError
from s3k_async.spark.job_report import JobRun, spark_schema
from s3k_async.spark.stages import exists

__all__ = ["SavedPlan"]

_WHOLE: Final = "_SUCCESS"
"""Written by Spark when all of a directory's files are there."""


class SavedPlan:
    """The plan of one run: `rows`, what the job was given, and what was found out about each of
    them."""

    def __init__(
        self,
        run: JobRun,
        spark: SparkSession,
        directory: str | None,
        columns: pa.Schema,
        rows: DataFrame,
    ) -> None:
        self.schema = spark_schema(columns)
        self._run = run
        self._spark = spark
        self._directory = directory
        self._rows = rows

    def made(self, make: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """The plan that `make` leads to, or the one that an earlier run has kept.

        Raises InvalidArgumentError if that was about other rows.
        """
        with self._run.stage("planning"):
            if self._directory is None:
                return self._run.kept(make(self._rows))
            rows, plan = f"{self._directory}/rows", f"{self._directory}/plan"
            digest = self._digest()
            if not self._is_whole(rows):
                digest.write.mode("overwrite").parquet(rows)
            elif self._spark.read.parquet(rows).collect() != digest.collect():
                raise InvalidArgumentError(
                    "the directory holds the state of a job on other rows", path=self._directory
                )
            if not self._is_whole(plan):
                make(self._rows).write.mode("overwrite").parquet(plan)
            return self._spark.read.schema(self.schema).parquet(plan)

    def _digest(self) -> DataFrame:
        """Number and hash of the rows, whatever their order."""
        digest = sf.xxhash64(*self._rows.columns)
        total = sf.coalesce(sf.sum(digest.cast("decimal(38,0)")), sf.lit(0)).cast("string")
        named = sf.lit(" ".join(self.schema.names))
        return self._rows.agg(
            named.alias("columns"), sf.count("*").alias("rows"), total.alias("digest")
        )

    def _is_whole(self, directory: str) -> bool:
        return exists(self._spark, f"{directory}/{_WHOLE}")
