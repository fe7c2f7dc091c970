"""The result of a job: a DataFrame and a report.

Frames are materialised at the end of a job: reading them repeats no work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from s3k_async._core.metering import Requests
from s3k_async.errors import PartialFailureError
from s3k_async.spark.task_rows import ERROR

__all__ = [
    "ALREADY",
    "DONE",
    "FAILED",
    "OUTCOME",
    "PLANNED",
    "Failure",
    "JobReport",
    "JobResult",
]

DONE: Final = "done"
ALREADY: Final = "already"
"""The outcome of a row that another attempt, or an earlier run, has completed."""
PLANNED: Final = "planned"
FAILED: Final = "failed"

OUTCOME: Final = (pa.field("outcome", pa.string(), nullable=False), *ERROR)
"""The last columns of the result of a bulk job."""

Failure: TypeAlias = tuple[str, Exception]
Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class JobReport:
    """The report of a bulk job, or of a dry run. Each row counts in one of `done`, `already`,
    `planned` and `failed`."""

    job: str
    dry_run: bool
    rows: int = 0
    done: int = 0
    already: int = 0
    planned: int = 0
    failed: int = 0
    files: int = 0
    """Files among the rows that are done or planned; a directory that is renamed or deleted as a
    whole counts as one directory, without its files."""
    directories: int = 0
    bytes: int = 0
    seconds: float = 0.0
    failures: tuple[Failure, ...] = field(default=(), compare=False)
    """(path, error), the first thousand."""
    requests: Requests = field(default_factory=Requests, compare=False)
    """Requests of the tasks, those of repeated tasks included."""

    @property
    def complete(self) -> bool:
        """Whether no row failed."""
        return self.failed == 0


class JobResult(NamedTuple, Generic[Report]):
    """The result of a job. `report` is a JobReport, or the report of the same command on one
    machine."""

    frame: DataFrame
    report: Report

    def raise_for_failures(  # type: ignore[misc]
        self: JobResult[JobReport],
    ) -> JobResult[JobReport]:
        """Return the result if no row failed; otherwise raise PartialFailureError with the failures
        of the report."""
        if not self.report.complete:
            raise PartialFailureError(
                f"{self.report.failed} of {self.report.rows} rows of the job {self.report.job} "
                "failed; repeat the job to finish",
                failures=self.report.failures,
            )
        return self
