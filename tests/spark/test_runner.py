"""The runner of jobs: stages and their checkpoint directory, division into tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from s3k_async.errors import InvalidArgumentError, PathNotFoundError, S3kError
from s3k_async.model import Progress
from s3k_async.spark.runner import JobRun
from s3k_async.spark.task_rows import ERROR, error_fields, error_from, row_batch
from tests.spark.places import embedded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NUMBERS = pa.schema([("number", pa.int64())])


def doubled(numbers: Iterator[int]) -> Iterator[pa.RecordBatch]:
    for number in numbers:
        yield row_batch(NUMBERS, [(2 * number,)])


def run(
    spark: SparkSession, directory: Path | None, made: list[str], scope: str = "one"
) -> tuple[JobRun, list[int]]:
    """A job of one stage; `made` gets its name if it is not skipped."""
    job = JobRun(spark, embedded(Path("unused")), "double")
    job.resume(None if directory is None else str(directory), [scope], now_ms=7 + len(made))

    def make() -> DataFrame:
        made.append("doubled")
        return job.over_splits([1, 2, 3], doubled, NUMBERS)

    frame = job.stage("doubled", "doubling", NUMBERS, make)
    return job, sorted(row.number for row in frame.collect())


def test_a_finished_stage_is_skipped_by_the_same_job_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    made: list[str] = []
    for resumed in (False, True):
        job, numbers = run(spark, tmp_path / "state", made)
        assert (numbers, job.resumed, job.now_ms, made) == ([2, 4, 6], resumed, 7, ["doubled"])
    with pytest.raises(InvalidArgumentError, match="another job"):
        run(spark, tmp_path / "state", made, scope="two")
    assert made == ["doubled"]


def test_after_the_end_of_a_run_the_next_one_begins_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    made: list[str] = []
    run(spark, tmp_path / "state", made)[0].end()
    for number in range(2):  # the second resumes the one that begins again
        job, numbers = run(spark, tmp_path / "state", made)
        assert (numbers, job.resumed, job.now_ms) == ([2, 4, 6], number == 1, 8)
        assert made == ["doubled"] * 2


def test_without_a_directory_nothing_is_saved(spark: SparkSession) -> None:
    made: list[str] = []
    for _ in range(2):
        job, numbers = run(spark, None, made)
        assert (numbers, job.resumed, job.saved("doubled")) == ([2, 4, 6], False, None)
    assert made == ["doubled"] * 2


def test_nothing_to_do(spark: SparkSession, tmp_path: Path) -> None:
    job = JobRun(spark, embedded(tmp_path), "nothing")
    job.resume(str(tmp_path / "state"), [])
    assert job.over_splits([], doubled, NUMBERS).schema.names == ["number"]
    nothing: DataFrame | None = None
    assert job.stage("nothing", "doing nothing", NUMBERS, lambda: nothing) is None
    assert job.saved("nothing") is None


def test_progress_and_descriptions_are_of_the_body(spark: SparkSession, tmp_path: Path) -> None:
    reported: list[Progress] = []
    job = JobRun(spark, embedded(tmp_path), "count", progress=reported.append)
    context = spark.sparkContext
    with job.described("adding"), job.counted("sum") as counter:
        described = context.getLocalProperty("spark.job.description")
        context.parallelize(range(5), 2).foreach(counter.add)
    assert described == f"s3k count {job.volume.driver.name}: adding"
    assert context.getLocalProperty("spark.job.description") is None
    assert (reported[-1].operation, reported[-1].phase, reported[-1].done) == ("count", "sum", 10)


def test_errors_are_columns() -> None:
    error = PathNotFoundError("no such file", path="/a")
    batch = row_batch(pa.schema(ERROR), [error_fields(error), (None, None)])
    (row, none) = batch.to_pylist()
    found = error_from(row["error"], row["message"], "/a")
    assert (type(found), found.message, found.path) == (PathNotFoundError, "no such file", "/a")
    assert none == {"error": None, "message": None}
    assert type(error_from("ZeroDivisionError", "division by zero")) is S3kError
