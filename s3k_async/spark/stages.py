"""Stages of a resumable job: each ends before the next begins, and a repeated run skips the
finished ones.

With a directory, what a stage made is Parquet below it, `<stage>`, beside `<stage>.over`, which is
written when it is whole. Without one, Spark keeps it on its executors; what is lost there fails the
job, and is not made out of turn.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession

from s3k_async.errors import InvalidArgumentError
from s3k_async.model import Progress

__all__ = ["MaybeFrame", "Stages", "Tell", "counted", "described", "exists"]

FORMAT: Final = 1
DESCRIPTION: Final = "spark.job.description"
TICK_SECONDS: Final = 1.0
"""How often progress is told."""

Tell = Callable[[Progress], object]
MaybeFrame = TypeVar("MaybeFrame", DataFrame, DataFrame | None)


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Spark's user interface describes the jobs of the body so; afterwards as before."""
    context = spark.sparkContext
    before: Any = context.getLocalProperty(DESCRIPTION)
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)


class Stages:
    """The stages of one job."""

    def __init__(
        self,
        spark: SparkSession,
        directory: str | None,
        scope: list[Any],
        now_ms: int,
        tell: Tell | None,
        operation: str = "fsck",
    ) -> None:
        """`scope`: what the job is; a directory is of one job only. `directory`: a path or URI that
        Spark can write. `operation`: whose progress is told. Raises InvalidArgumentError if it is
        that of another job.
        """
        self.operation = operation
        self.now_ms = now_ms
        """When the job began, which may have been in an earlier run."""
        self.resumed = False
        """Whether a stage was not repeated."""
        self.spark = spark
        self._directory = directory
        self._tell = tell
        begun = self.said("job")
        if begun is None:
            self.say("job", {"format": FORMAT, "scope": scope, "now_ms": now_ms})
        elif begun.get("format") != FORMAT or begun.get("scope") != scope:
            raise InvalidArgumentError(
                "the directory holds another job, or one by other options", path=directory
            )
        else:
            self.now_ms = begun["now_ms"]

    def run(
        self, name: str, what: str, schema: str, make: Callable[[], MaybeFrame]
    ) -> DataFrame | MaybeFrame:
        """What a stage made before, or makes now, which may be nothing. `what`: the description of
        its Spark jobs."""
        if self.said(name) is not None:
            self.resumed = True
            return self.spark.read.schema(schema).parquet(f"{self._directory}/{name}")
        with self.described(what):
            frame = make()
            if frame is None:
                return frame
            if self._directory is None:
                return frame.localCheckpoint(eager=True)
            frame.write.mode("overwrite").parquet(f"{self._directory}/{name}")
            self.say(name, {})
            return self.spark.read.schema(schema).parquet(f"{self._directory}/{name}")

    def say(self, name: str, document: dict[str, Any]) -> None:
        """Keep that a stage is over; nothing without a directory."""
        if self._directory is not None:
            row = self.spark.createDataFrame([(json.dumps(document),)], "line string")
            row.coalesce(1).write.mode("overwrite").parquet(f"{self._directory}/{name}.over")

    def said(self, name: str) -> dict[str, Any] | None:
        """What was kept of a stage that is over; None for one that is not."""
        if self._directory is None:
            return None
        place = f"{self._directory}/{name}.over"
        if not exists(self.spark, place):
            return None
        rows = self.spark.read.schema("line string").parquet(place).collect()
        document: dict[str, Any] | None = json.loads(rows[0].line) if rows else None
        return document

    def described(self, what: str) -> AbstractContextManager[None]:
        """As the function of this name."""
        return described(self.spark, f"s3k: {what}")

    @contextmanager
    def counted(self, path: str) -> Iterator[Accumulator[int]]:
        """As `counted`."""
        with counted(self.spark, self.operation, path, self._tell) as counter:
            yield counter

    def tell(self, done: int, path: str) -> None:
        """Tell whoever wants to know how far the job has come."""
        if self._tell is not None:
            self._tell(Progress(self.operation, done, phase=path))


def exists(spark: SparkSession, place: str) -> bool:
    """Whether there is a file or a directory, by its path or URI. To read what is not there has
    Spark warn of it at length.
    """
    java: Any = spark.sparkContext._jvm
    path = java.org.apache.hadoop.fs.Path(place)
    return bool(
        path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).exists(path)
    )


@contextmanager
def counted(
    spark: SparkSession, operation: str, path: str, tell: Tell | None
) -> Iterator[Accumulator[int]]:
    """A counter for tasks to add to; what it says is told while the body runs, and at its end. What
    tasks did that were repeated is in it twice.
    """
    counter = spark.sparkContext.accumulator(0)
    if tell is None:
        yield counter
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(TICK_SECONDS):
            tell(Progress(operation, counter.value, phase=path))

    watcher = threading.Thread(target=watch, name="s3k-progress", daemon=True)
    watcher.start()
    try:
        yield counter
    finally:
        over.set()
        watcher.join()
    tell(Progress(operation, counter.value, phase=path))
