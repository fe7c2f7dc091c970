"""What is measured of Spark on whatever volume: a session, one job, and checks of a volume beside
one machine's."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.contenders.ours import client
from benchmarks.measuring import Result
from s3k_async.config import VolumeConfig
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.repair import scope_of, verify_volume
from s3k_async.integrity.shuffle import Shuffle
from s3k_async.integrity.verify import part_findings
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume, open_volume
from s3k_async.volumes.restoration import restore_volume

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DIRECTORIES", "checks", "engine", "fill", "lose_table", "session", "timed", "warm"]

DIRECTORIES = 50
Setting = bool | float | int | str | None


@contextmanager
def session(place: str, settings: Mapping[str, Setting]) -> Iterator[SparkSession]:
    """A session on two cores, with `settings` besides. Nobody has a volume open while a restore
    waits for everybody to notice, so it does not wait."""
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    everything: dict[str, Setting] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        "spark.local.dir": f"{place}/local",
        "spark.log.level": "ERROR",
        **settings,
    }
    # A session finds its data sources in the thread that registered them, so that all of Spark's
    # work has one.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    spark = SparkSession.builder.master("local[2]").config(map=everything).getOrCreate()
    try:
        with patch.object(volume_lock, "QUIET_SECONDS", 0.0):
            yield spark
    finally:
        spark.stop()


def warm(spark: SparkSession, volume: VolumeConfig) -> None:
    """So that workers are forked, and the JVM has compiled what is used first."""
    from s3k_async.spark import listing

    for _ in range(2):
        listing(spark, volume).count()


async def checks(
    spark: SparkSession, own: VolumeConfig, files: int, case: str
) -> AsyncIterator[Result]:
    """A volume that has written its files itself is verified, and its table is lost and
    restored."""
    from s3k_async.spark.fsck_job import verify
    from s3k_async.spark.restore_job import restore

    await fill(own, files)
    memory = _Memory()
    opened = await open_volume(own)
    began, busy = time.perf_counter(), time.process_time()
    report = await verify_volume(opened, grace=0.0)
    seconds, processor = time.perf_counter() - began, time.process_time() - busy
    await opened.close()
    if report.findings:
        raise AssertionError(report.findings[0])
    yield Result(
        "spark verify", case, "one machine", files, "files", [seconds], [processor], "ours"
    )
    checks: dict[str, Callable[[], object]] = {
        "verify": lambda: verify(spark, own, grace=0.0)[1],
        "restore": lambda: restore(spark, own, dry_run=False)[1],
    }
    for name, job in checks.items():
        if name == "restore":
            await lose_table(own)
        memory.anew()
        yield await timed(f"spark {name}", case, "ours", files, "files", job)
        yield memory.result(f"{name}, {case}", files)
    await lose_table(own)
    alone = partial(asyncio.run, restore_volume(own, dry_run=False))
    yield await timed("spark restore", case, "one machine", files, "files", alone)
    yield await engine(own, files, case)  # last, since it holds everything in memory


async def timed(
    row: str, case: str, contender: str, amount: int, unit: str, work: Callable[[], Any]
) -> Result:
    """One job, once; what it returns may be a report."""
    began, busy = time.perf_counter(), time.process_time()
    report = await asyncio.to_thread(work)
    wall, busy = time.perf_counter() - began, time.process_time() - busy
    if getattr(report, "failed", 0) or getattr(report, "problems", ()):
        raise AssertionError(f"{row}: {report}")
    return Result(row, case, contender, amount, unit, [wall], [busy], "ours")


async def lose_table(volume: VolumeConfig) -> None:
    """So that it has to be restored."""
    opened = await open_volume(volume)
    await opened.table.drop()
    await opened.close()


async def engine(volume: VolumeConfig, files: int, case: str) -> Result:
    """The decisions alone, of facts that are in memory."""
    opened = await open_volume(volume)
    try:
        parts = Shuffle(held=sys.maxsize)
        collector = Collector(scope_of(opened, grace=0.0), parts)
        await collector.scan(lambda _: None)
        work = partial(part_findings, collector, 0, deep=False)
        began, busy = time.perf_counter(), time.process_time()
        await work()
        wall, busy = time.perf_counter() - began, time.process_time() - busy
        return Result(
            "spark verify", case, "decisions alone", files, "files", [wall], [busy], "ours"
        )
    finally:
        await opened.close()


async def fill(own: VolumeConfig, files: int) -> None:
    """A new volume with so many small files."""
    await init_volume(own)
    async with client(own) as fs:
        for start in range(0, files, 5_000):
            numbers = range(start, min(start + 5_000, files))
            await fs.write_many(
                [(f"/tree/d{number % DIRECTORIES}/f{number}", b"x" * 16) for number in numbers]
            )


class _Memory:
    """The most memory that this process, which is the driver's Python, and any Python worker have
    had for a job."""

    def anew(self) -> None:
        """Count from here (`proc(5)`, `clear_refs`)."""
        for process in self._processes():
            Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")

    def result(self, case: str, files: int) -> Result:
        """What it was, in MiB."""
        driver, *workers = (self._peak(process) for process in self._processes())
        facts = {"driver": driver, "worker": max(workers, default=0), "workers": len(workers)}
        return Result("spark memory", case, "ours", files, "files", [], [], "ours", facts=facts)

    def _processes(self) -> list[int]:
        """This one, and the Python workers below it, which Spark's daemon forks."""
        parents: dict[int, int] = {}
        names: dict[int, str] = {}
        for place in Path("/proc").iterdir():
            with suppress(OSError):
                if place.name.isdigit():
                    names[int(place.name)] = (place / "cmdline").read_text(
                        encoding="utf-8", errors="replace"
                    )
                    parents[int(place.name)] = int(
                        (place / "stat").read_text().rpartition(")")[2].split()[1]
                    )

        def is_below(process: int) -> bool:
            while process in parents and process != os.getpid():
                process = parents[process]
            return process == os.getpid()

        workers = [process for process, name in names.items() if "\0-m\0pyspark." in name]
        return [os.getpid(), *(process for process in workers if is_below(process))]

    def _peak(self, process: int) -> int:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return round(int(peak.split()[1]) / 1024)
