"""The result of a job: a DataFrame with a row for each operand, and a report.

Results are materialised when a job ends: looking at them again does nothing to the volume again.
Counts come from the rows, of which each is there once; accumulators, which repeated tasks add to as
well, only tell how far a job has come and what was asked of the services.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async import errors
from s3k_async._core.metering import Requests
from s3k_async._core.runtime import SYSTEM
from s3k_async.errors import PartialFailureError, S3kError
from s3k_async.spark.stages import described

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql.types import StructType

__all__ = [
    "ALREADY",
    "DONE",
    "FAILED",
    "OUTCOME",
    "PLANNED",
    "Failure",
    "JobReport",
    "JobResult",
    "JobRun",
    "error_fields",
    "spark_schema",
]

DONE: Final = "done"
ALREADY: Final = "already"
"""Another attempt, or an earlier run, has done it."""
PLANNED: Final = "planned"
FAILED: Final = "failed"

OUTCOME: Final = (
    pa.field("outcome", pa.string(), nullable=False),
    pa.field("error", pa.string()),
    pa.field("message", pa.string()),
)
"""The last columns of a result: what became of the row, and for one that failed the error's class
and message."""
SHOWN: Final = 1000
"""Failures that a report lists; the frame has all of them."""

Failure = tuple[str, Exception]


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a job did, or would do. Each row counts in one of `done`, `already`, `planned` and
    `failed`."""

    job: str
    dry_run: bool
    rows: int = 0
    done: int = 0
    already: int = 0
    planned: int = 0
    failed: int = 0
    files: int = 0
    """Of the rows that are done or planned; a directory that is renamed or deleted as a whole is
    one, without the files in it."""
    directories: int = 0
    bytes: int = 0
    seconds: float = 0.0
    failures: tuple[Failure, ...] = field(default=(), compare=False)
    """(path, error), the first thousand."""
    requests: Requests = field(default_factory=Requests, compare=False)
    """What the tasks asked of the services, those of repeated tasks included."""

    @property
    def complete(self) -> bool:
        """Whether nothing failed."""
        return self.failed == 0


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job returns."""

    frame: DataFrame
    report: JobReport

    def raise_for_failures(self) -> Self:
        """The result itself, if no row failed. Raises PartialFailureError with the failures of the
        report."""
        if not self.report.complete:
            raise PartialFailureError(
                f"{self.report.failed} of {self.report.rows} rows of the job {self.report.job} "
                "failed; repeat the job to finish",
                failures=self.report.failures,
            )
        return self


class _Sum(AccumulatorParam[Requests]):
    def zero(self, value: Requests) -> Requests:
        return Requests()

    def addInPlace(self, value1: Requests, value2: Requests) -> Requests:
        return value1 + value2


class JobRun:
    """One run of a job on the driver: its stages have a description in the Spark UI, and it
    counts."""

    def __init__(self, spark: SparkSession, job: str, about: str, *, dry_run: bool) -> None:
        self._spark = spark
        self._about = f"s3k {job} {about}"
        self._began = SYSTEM.monotonic()
        self._report = JobReport(job, dry_run)
        self.requests: Accumulator[Requests] = spark.sparkContext.accumulator(Requests(), _Sum())

    def stage(self, text: str) -> AbstractContextManager[None]:
        """Describe what Spark runs in the body."""
        return described(self._spark, f"{self._about}: {text}")

    def kept(self, frame: DataFrame) -> DataFrame:
        """The frame, computed once: in the checkpoint directory if the session has one, else on the
        executors."""
        if self._spark.sparkContext.getCheckpointDir() is not None:
            return frame.checkpoint(eager=True)
        return frame.localCheckpoint(eager=True)

    def result(
        self, frame: DataFrame, path_column: str, counts: Mapping[str, Column] | None = None
    ) -> JobResult:
        """The result of a job whose frame has the columns of OUTCOME and `path_column`.

        `counts`: files, directories and bytes of a row; without, they come from the columns
        `is_dir` and `size`.
        """
        is_dir = sf.col("is_dir")
        of_row = counts or {
            "files": (~is_dir).cast("long"),
            "directories": is_dir.cast("long"),
            "bytes": sf.col("size"),
        }
        acted = sf.col("outcome").isin(DONE, PLANNED)
        sums = [
            sf.coalesce(sf.sum(sf.when(acted, count)), sf.lit(0)).alias(name)
            for name, count in of_row.items()
        ]
        with self.stage("counting"):
            found = {
                row["outcome"]: row
                for row in frame.groupBy("outcome").agg(sf.count("*").alias("n"), *sums).collect()
            }
            failed = (
                frame.filter(sf.col("outcome") == FAILED)
                .select(path_column, "error", "message")
                .limit(SHOWN)
            )
            failures = tuple(_failure(*row) for row in failed.collect()) if FAILED in found else ()
        rows = {outcome: row["n"] for outcome, row in found.items()}
        totals = {name: sum(row[name] for row in found.values()) for name in of_row}
        report = replace(
            self._report,
            rows=sum(rows.values()),
            done=rows.get(DONE, 0),
            already=rows.get(ALREADY, 0),
            planned=rows.get(PLANNED, 0),
            failed=rows.get(FAILED, 0),
            seconds=SYSTEM.monotonic() - self._began,
            failures=failures,
            requests=self.requests.value,
            **totals,
        )
        return JobResult(frame, report)


def error_fields(error: Exception) -> tuple[str, str]:
    """Class and message of an error, as the columns of OUTCOME have them."""
    return type(error).__name__, error.message if isinstance(error, S3kError) else str(error)


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns as Spark has them; its timestamps are of microseconds."""
    from pyspark.sql.pandas.types import from_arrow_schema

    found: StructType = from_arrow_schema(schema)
    return found


def _failure(path: str | None, error: str, message: str) -> Failure:
    kind = getattr(errors, error, S3kError)
    return path or "", kind(message, path=path)
