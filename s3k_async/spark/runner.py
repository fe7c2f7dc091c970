"""The runner of Spark jobs: the part of a job that runs on the driver.

A job is a function that makes a `JobRun` and calls `stage` for each of its stages. A stage is
complete before the next begins. With a checkpoint directory its rows are Parquet in `<stage>`, and
`<stage>.over` is written when they are complete; a repeated run skips such a stage, unless the run
that saved it has ended (`JobRun.end`): then it begins again. Without one, Spark keeps the rows; if
it loses them, the job fails, since a stage must not be repeated after later ones.

Counts come from rows, each of which exists once. Accumulators count repeated tasks again and serve
only for progress and for the requests of tasks.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async._core.metering import Requests
from s3k_async._core.runtime import SYSTEM
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError
from s3k_async.model import Progress
from s3k_async.spark.hadoop_files import exists
from s3k_async.spark.job_report import DONE, FAILED, PLANNED, JobReport, JobResult
from s3k_async.spark.settings import SparkVolume, patient, spark_volume
from s3k_async.spark.task_rows import Batches, error_from, spark_schema
from s3k_async.spark.worker_client import Work, each_partition

if TYPE_CHECKING:
    from pyspark import Accumulator

__all__ = ["TASKS_PER_CORE", "AnyVolume", "JobRun", "MaybeFrame", "ProgressCallback"]

FORMAT: Final = 4
DESCRIPTION: Final = "spark.job.description"
TICK_SECONDS: Final = 1.0
"""Interval of progress reports."""
TASKS_PER_CORE: Final = 4
"""Subtrees differ in size: with several tasks for each core, no core is idle for long at the
end."""
SHOWN: Final = 1000
"""Failures that a report lists; the frame has all of them."""

AnyVolume: TypeAlias = str | VolumeConfig | SparkVolume
ProgressCallback = Callable[[Progress], object]
MaybeFrame = TypeVar("MaybeFrame", DataFrame, DataFrame | None)
Split = TypeVar("Split")


class JobRun:
    """One run of a job, on the driver."""

    def __init__(
        self,
        spark: SparkSession,
        volume: AnyVolume,
        job: str,
        *,
        tasks: int | None = None,
        per_core: int = TASKS_PER_CORE,
        dry_run: bool = False,
        patiently: bool = False,
        progress: ProgressCallback | None = None,
    ) -> None:
        """`tasks`: of each stage, by default `per_core` for each core. `patiently`: wait longer for
        concurrent changes, as `patient` describes."""
        self.spark = spark
        self.volume = spark_volume(spark, volume)
        if patiently:
            self.volume = patient(self.volume)
        self.name = job
        self.tasks = tasks or per_core * spark.sparkContext.defaultParallelism
        self.dry_run = dry_run
        self.requests: Accumulator[Requests] = spark.sparkContext.accumulator(
            Requests(), _RequestSum()
        )
        self.now_ms = 0
        """When the job began, which may have been in an earlier run."""
        self.resumed = False
        """Whether a stage was skipped."""
        self._began = SYSTEM.monotonic()
        self._directory: str | None = None
        self._run = ""
        """Identifies this run and those that resume it."""
        self._progress = progress

    @property
    def attempts(self) -> int:
        """Maximum number of concurrent task attempts of a stage; two for each task with
        speculation."""
        speculation = self.spark.sparkContext.getConf().get("spark.speculation", "false")
        return self.tasks * (2 if str(speculation).lower() == "true" else 1)

    # Stages

    def resume(self, directory: str | None, scope: Sequence[Any], now_ms: int = 0) -> None:
        """Save stages in a directory, a path or URI that Spark can write, and skip those already
        saved there, by an interrupted run; after a run that has ended, all are repeated. `scope`:
        what identifies the job. Raises InvalidArgumentError if the directory belongs to another
        job.
        """
        self._directory, self.now_ms = directory, now_ms
        begun = self._read("job")
        if begun is not None:
            if (begun.get("format"), begun.get("scope")) != (FORMAT, scope):
                raise InvalidArgumentError(
                    "the directory holds another job, or one with other options or other rows",
                    path=directory,
                )
            self._run = begun["run"]
            if self.saved("ended") is None:
                self.now_ms = begun["now_ms"]
                return
        self._run = SYSTEM.uuid()
        job = {"format": FORMAT, "scope": scope, "now_ms": now_ms, "run": self._run}
        self._write("job", job)

    def end(self) -> None:
        """End the run: the next one with its directory begins again, and overwrites its rows."""
        self.save("ended", {})

    def stage(
        self, name: str, text: str, schema: pa.Schema, make: Callable[[], MaybeFrame]
    ) -> DataFrame | MaybeFrame:
        """The rows of a stage, saved or computed now; `make` may return None if there is nothing to
        do. `text` describes its Spark jobs."""
        if self.saved(name) is None:
            with self.described(text):
                frame = make()
                if frame is None:
                    return frame
                if self._directory is None:
                    return self.kept(frame)
                frame.write.mode("overwrite").parquet(f"{self._directory}/{name}")
                self.save(name, {})
        else:
            self.resumed = True
        saved = self.spark.read.schema(spark_schema(schema))
        return saved.parquet(f"{self._directory}/{name}")

    def save(self, name: str, document: dict[str, Any]) -> None:
        """Record that a stage has finished, with some values. Without a directory nothing is
        saved."""
        self._write(name, {"run": self._run, "values": document})

    def saved(self, name: str) -> dict[str, Any] | None:
        """The values of a stage that this run has finished, or one that it resumes; else None."""
        found = self._read(name)
        if found is None or found["run"] != self._run:
            return None
        values: dict[str, Any] = found["values"]
        return values

    def _write(self, name: str, document: dict[str, Any]) -> None:
        if self._directory is not None:
            row = self.spark.createDataFrame([(json.dumps(document),)], "line string")
            row.coalesce(1).write.mode("overwrite").parquet(f"{self._directory}/{name}.over")

    def _read(self, name: str) -> dict[str, Any] | None:
        place = f"{self._directory}/{name}.over"
        # Spark logs a long warning when it reads a missing path.
        if self._directory is None or not exists(self.spark, place):
            return None
        rows = self.spark.read.schema("line string").parquet(place).collect()
        document: dict[str, Any] | None = json.loads(rows[0].line) if rows else None
        return document

    def kept(self, frame: DataFrame) -> DataFrame:
        """The frame, computed once: in the checkpoint directory if the session has one, else on the
        executors."""
        if self.spark.sparkContext.getCheckpointDir() is not None:
            return frame.checkpoint(eager=True)
        return frame.localCheckpoint(eager=True)

    def over_splits(
        self,
        splits: Sequence[Split],
        work: Callable[[Iterator[Split]], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        """The rows that `work` returns for splits, one task for each."""
        if not splits:
            return self.spark.createDataFrame([], spark_schema(schema))
        numbers = self.spark.range(0, len(splits), 1, len(splits))
        return numbers.mapInArrow(_SplitTask(splits, work), spark_schema(schema))

    def over_rows(
        self, frame: DataFrame, work: Work[pa.RecordBatch, pa.RecordBatch], schema: pa.Schema
    ) -> DataFrame:
        """The rows that `work`, with the client of the worker process, returns for batches."""
        return frame.mapInArrow(each_partition(self.volume.executors, work), spark_schema(schema))

    # What the user sees

    @contextmanager
    def described(self, text: str) -> Iterator[None]:
        """Set the description in Spark's user interface of the jobs that the body runs."""
        context = self.spark.sparkContext
        before: Any = context.getLocalProperty(DESCRIPTION)
        context.setJobDescription(f"s3k {self.name} {self.volume.driver.name}: {text}")
        try:
            yield
        finally:
            context.setLocalProperty(DESCRIPTION, before)

    @contextmanager
    def counted(self, phase: str, unit: str = "entries") -> Iterator[Accumulator[int]]:
        """A counter of `unit` that tasks add to, reported while the body runs and at its end.
        Retried tasks are counted twice.
        """
        counter = self.spark.sparkContext.accumulator(0)
        if self._progress is None:
            yield counter
            return
        over = threading.Event()

        def watch() -> None:
            while not over.wait(TICK_SECONDS):
                self.report_progress(counter.value, phase, unit)

        watcher = threading.Thread(target=watch, name="s3k-progress", daemon=True)
        watcher.start()
        try:
            yield counter
        finally:
            over.set()
            watcher.join()
        self.report_progress(counter.value, phase, unit)

    def report_progress(self, done: int, phase: str, unit: str = "entries") -> None:
        """Call the progress callback."""
        if self._progress is not None:
            self._progress(Progress(self.name, done, phase=phase, unit=unit))

    def result(
        self, frame: DataFrame, path_column: str, counts: Mapping[str, Column] | None = None
    ) -> JobResult[JobReport]:
        """The result of a job whose frame has the columns of OUTCOME and `path_column`.

        `counts`: files, directories and bytes of a row, by default from the columns `is_dir` and
        `size`.
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
        with self.described("counting"):
            grouped = frame.groupBy("outcome").agg(sf.count("*").alias("n"), *sums)
            found = {row["outcome"]: row for row in grouped.collect()}
            failed = (
                frame.filter(sf.col("outcome") == FAILED)
                .select("error", "message", path_column)
                .limit(SHOWN)
            )
            rows = failed.collect() if FAILED in found else []
        by_outcome = {outcome: row["n"] for outcome, row in found.items()}
        report = JobReport(
            self.name,
            self.dry_run,
            rows=sum(by_outcome.values()),
            **by_outcome,
            **{name: sum(row[name] for row in found.values()) for name in of_row},
            seconds=SYSTEM.monotonic() - self._began,
            failures=tuple((row[path_column] or "", error_from(*row)) for row in rows),
            requests=self.requests.value,
        )
        return JobResult(frame, report)


class _RequestSum(AccumulatorParam[Requests]):
    def zero(self, value: Requests) -> Requests:
        return Requests()

    def addInPlace(self, value1: Requests, value2: Requests) -> Requests:
        return value1 + value2


@dataclass(frozen=True, slots=True)
class _SplitTask(Generic[Split]):
    splits: Sequence[Split]
    work: Callable[[Iterator[Split]], Batches]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Batches:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        return self.work(self.splits[number] for number in numbers)
