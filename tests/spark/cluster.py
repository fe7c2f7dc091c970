"""Work on a cluster of two executors on this machine, in a process of its own: `python -m
tests.spark.cluster`.

What it works on comes from standard input, pickled. Nothing listens beyond the loopback interface.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from s3k_async import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.integrity.gc_rules import Ages
from s3k_async.migrate import reshard as moving_reshard
from s3k_async.migrate import reshard_pass
from s3k_async.migrate.load_batch import LoadTarget
from s3k_async.model import Entry
from s3k_async.settings import with_local_secrets
from s3k_async.spark import dump, each_partition, gc, gc_job, load_job, reshard, restore_job
from s3k_async.spark.restore_tasks import writer
from s3k_async.txn import volume_lock
from s3k_async.volumes import Volume
from tests.spark.places import HANGS, on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 240
GARBAGE = 80
"""Of these files, so many were replaced."""
PARTITIONS = 8


@dataclass(frozen=True)
class Orders:
    """What to work on, and where files are that tell attempts apart."""

    volume: VolumeConfig
    lost: VolumeConfig
    """One whose table is lost."""
    place: str
    jobs: tuple[str, ...] = ("move", "bring_back")


def session() -> SparkSession:
    """Two executors of one core, each a process with Python workers of its own.

    Both are on one host, where Spark runs no speculative copy of a task.
    """
    from pyspark.sql import SparkSession

    settings: dict[str, bool | float | int | str | None] = {
        "spark.executor.memory": "500m",
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],  # as the driver's
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        # A slow executor is not a dead one; the end of one is noticed by its process.
        "spark.network.timeout": f"{HANGS:.0f}s",
    }
    return SparkSession.builder.master("local-cluster[2,1,600]").config(map=settings).getOrCreate()


def first(place: str, name: str) -> bool:
    """Whether nobody has asked this before."""
    try:
        os.close(os.open(os.path.join(place, name), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kill_executor() -> None:
    """End the executor that runs this task: the parent of the daemon that forked this worker."""
    with open(f"/proc/{os.getppid()}/stat", encoding="ascii") as file:
        executor = int(file.read().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)
    time.sleep(HANGS)  # this worker ends with its executor


def until(place: str, name: str) -> None:
    """Wait for somebody to ask `first`."""
    end = time.monotonic() + HANGS
    while not os.path.exists(os.path.join(place, name)):
        if time.monotonic() > end:
            raise TimeoutError(name)
        time.sleep(0.01)


def move(orders: Orders, spark: SparkSession) -> None:
    """Files are moved; the executor of the first task dies half-way, and two tasks move the last
    files at the same time, as a task and its speculative copy do."""

    def work(fs: S3kSyncClient, chunks: Iterator[range]) -> Iterator[int]:
        mine = [number for chunk in chunks for number in chunk]
        half = len(mine) // 2
        _move(fs, mine[:half])
        if 0 in mine and first(orders.place, "killed"):
            kill_executor()
        if FILES - 1 in mine:
            if first(orders.place, "slow"):
                until(orders.place, "twin")
            else:
                first(orders.place, "twin")
        _move(fs, mine[half:])
        yield len(mine)

    each = FILES // PARTITIONS
    chunks = [range(start, start + each) for start in range(0, FILES, each)]
    chunks.append(chunks[-1])
    tasks = spark.sparkContext.parallelize(chunks, len(chunks))
    assert tasks.mapPartitions(each_partition(orders.volume, work)).sum() == FILES + each


def _move(fs: S3kSyncClient, numbers: list[int]) -> None:
    """Move files; those that an earlier attempt has moved are there."""
    result = fs.rename_many([(f"/in/{number}", f"/out/{number}") for number in numbers])
    for path, error in result.failures:
        if not fs.exists(path.replace("/in/", "/out/")):
            raise error


def bring_back(orders: Orders, spark: SparkSession) -> None:
    """A lost table is restored; an executor dies when one of its tasks has written half of what it
    is to write."""

    def killing(*arguments: Any) -> Callable[[Any], Any]:
        work = writer(*arguments)

        def write(batches: Any) -> Iterator[Any]:
            some = [batch for batch in batches if batch.num_rows]
            if some and first(orders.place, "killed while writing"):
                list(work(iter([some[0].slice(0, some[0].num_rows // 2)])))
                kill_executor()
            yield from work(iter(some))

        return write

    nobody_else = patch.object(volume_lock, "QUIET_SECONDS", 0.0)
    with nobody_else, patch.object(restore_job, "writer", killing):
        stages = os.path.join(orders.place, "stages")
        _, report = restore_job.restore(spark, orders.lost, dry_run=False, checkpoint=stages)
    assert report.clean
    assert report.written == report.restored == FILES + 2


def clean(orders: Orders, spark: SparkSession) -> None:
    """Garbage is collected; an executor dies when one of its tasks has deleted what it was
    given."""
    sweeping = gc_job._Sweep.counted

    def killing(self: gc_job._Sweep, tick: Any) -> Callable[[Any], Iterator[Any]]:
        work = sweeping(self, tick)

        def sweep(batches: Any) -> Iterator[Any]:
            told = list(work(batches))
            if told and first(orders.place, "killed while sweeping"):
                kill_executor()
            yield from told

        return sweep

    at_once = patch.object(gc_job, "Ages", lambda grace, lease: Ages(grace, lease, late=0.0))
    small = patch.object(gc_job, "OF_A_TASK", GARBAGE // 4)
    with at_once, small, patch.object(gc_job._Sweep, "counted", killing):
        stages = os.path.join(orders.place, "collecting")
        _, report = gc(spark, orders.volume, grace=0.0, lease=0.0, dry_run=False, checkpoint=stages)
    assert report.swept is not None
    assert report.swept.failures == []
    assert {reason: count.objects for reason, count in report.swept.deleted.items()} == {
        "replaced": GARBAGE
    }
    assert report.marked.of("named").objects == FILES


def divide(orders: Orders, spark: SparkSession) -> None:
    """A volume is resharded; an executor dies when one of its tasks has copied a page, and one when
    one has cleared a page away.
    """

    @dataclass(frozen=True)
    class Dying(reshard_pass.ReshardPass):
        async def over(
            self, volume: Volume, segment: int, segments: int, held: Callable[[], object]
        ) -> AsyncGenerator[reshard_pass.PassResult, None]:
            async for passed in reshard_pass.ReshardPass.over(
                self, volume, segment, segments, held
            ):
                if (
                    passed.entries
                    and self.name != "check"
                    and first(orders.place, f"killed in {self.name}")
                ):
                    kill_executor()
                yield passed

    nobody_else = patch.object(volume_lock, "QUIET_SECONDS", 0.0)
    with nobody_else, patch.object(moving_reshard, "ReshardPass", Dying):
        done = reshard(spark, orders.volume, 7, tasks=4)
    assert (done.entries, done.suffix_count) == (FILES + 2, 7)


def carry(orders: Orders, spark: SparkSession) -> None:
    """A dump is loaded when the table is lost; an executor dies when one of its tasks has loaded a
    portion."""

    class Dying(load_job._Delegates):
        def rows(self, parts: Any) -> Iterator[Any]:
            load = LoadTarget.load

            async def loaded(
                landing: LoadTarget, entries: Sequence[Entry], held: Callable[[], object]
            ) -> None:
                await load(landing, entries, held)
                if first(orders.place, "killed while loading"):
                    kill_executor()

            with patch.object(LoadTarget, "load", loaded):
                yield from load_job._Delegates.rows(self, parts)

    dumped = os.path.join(orders.place, "dumped")
    dump(spark, orders.volume, dumped, tasks=4)
    on(orders.volume, lambda volume: volume.table.drop())
    nobody_else = patch.object(volume_lock, "QUIET_SECONDS", 0.0)
    with nobody_else, patch.object(load_job, "_Delegates", Dying):
        done = load_job.load(spark, orders.volume, dumped, tasks=4)
    assert (done.entries, done.skipped) == (FILES + 2, 0)


if __name__ == "__main__":
    found: Orders = pickle.load(sys.stdin.buffer)
    found = replace(
        found, volume=with_local_secrets(found.volume), lost=with_local_secrets(found.lost)
    )
    running = session()
    for job in found.jobs:
        {"move": move, "bring_back": bring_back, "clean": clean, "divide": divide, "carry": carry}[
            job
        ](found, running)
    running.stop()
