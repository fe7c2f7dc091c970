"""The jobs and the data source of Spark on two cores, on dynoxide and SeaweedFS; run apart (`--only spark`).

All processes share the machine: the JVM, its Python workers and the engines. A job is timed once for each size, the
session being warm; what it begins from is made before. Reading and writing of rows is timed several times, contenders
taking turns. S3A is fetched from Maven Central, once, into `.engines/ivy` (1.3 GB).
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.contenders.keys import bounded
from benchmarks.contenders.ours import client
from benchmarks.measuring import Result
from benchmarks.rows.scope import Scope
from benchmarks.servers import config_for, engine_named
from s3k_async.config import DynamoTable, LocalDirectory, S3Bucket, SqliteFile, VolumeConfig
from s3k_async.fsck.gather import Gatherer
from s3k_async.fsck.parts import Parts
from s3k_async.fsck.repair import ground_of, verify_volume
from s3k_async.fsck.verify import part_findings
from s3k_async.metadata import exclusive
from s3k_async.volumes import init_volume, open_volume
from s3k_async.volumes.restoring import restore_volume
from tests.engines.process import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["results"]

DIRECTORIES = 50
SIZES = (1_000,), (10_000, 100_000, 1_000_000)
ADOPTED = 100_000
"""So many adopted files are verified and restored, which takes long; above, files that the volume has written."""
ROWS = (100_000,), (100_000, 1_000_000)
FIRST_ROWS = 1_000
REPEATS = 1, 5
S3A = "org.apache.hadoop:hadoop-aws:3.5.0"
"""Of the Hadoop that PySpark 4.3 has."""


@dataclass
class _Bench:
    spark: SparkSession
    volume: VolumeConfig
    place: str


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Jobs over trees of files, then rows through the data source."""
    # A session finds its data sources in the thread that registered them, so that all of Spark's work has one.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    with engine_named("dynoxide") as table, engine_named("seaweedfs") as data, tempfile.TemporaryDirectory() as place:
        volume = config_for(table, data, suffixes=10, connections=64)
        await init_volume(volume)
        # Nobody has the volume open while a restore waits for everybody to notice.
        with _session(data, place) as spark, patch.object(exclusive, "QUIET_SECONDS", 0.0):
            bench = _Bench(spark, volume, place)
            await asyncio.to_thread(_warm, bench)
            for files in scope.pick(*SIZES):
                async for result in _jobs(bench, files):
                    yield result
                for case, own in _places(bench, files).items():
                    async for result in _checks(bench, own, files, case):
                        yield result
            # Apart from the rates: Spark starts five kinds of Python processes, each when it is first needed.
            for name, work in _ours(bench, FIRST_ROWS).items():
                yield await _timed(f"spark first {name}", f"{FIRST_ROWS:,} rows", "ours", FIRST_ROWS, "rows", work)
            for rows in scope.pick(*ROWS):
                for result in await _rows(bench, rows, scope.pick(*REPEATS)):
                    yield result


@contextmanager
def _session(data: Engine, place: str) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "AWS_ACCESS_KEY_ID": data.access_key,
        "AWS_SECRET_ACCESS_KEY": data.secret_key,
    }
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        "spark.local.dir": f"{place}/local",
        "spark.log.level": "ERROR",
        "spark.jars.packages": S3A,
        "spark.jars.ivy": str(Path(".engines/ivy").absolute()),
        "spark.hadoop.fs.s3a.endpoint": data.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _warm(bench: _Bench) -> None:
    """So that workers are forked, and the JVM has compiled what is used first."""
    from s3k_async.spark import listing, register

    register(bench.spark, volume=bench.volume)
    for _ in range(2):
        listing(bench.spark, bench.volume).count()


async def _jobs(bench: _Bench, files: int) -> AsyncIterator[Result]:
    from s3k_async.spark import delete_files, du, import_objects, listing, objects_below, rename_files
    from s3k_async.spark.checking import verify
    from s3k_async.spark.restoring import restore

    spark, volume = bench.spark, bench.volume
    landing = await _landing(volume, files)
    paths = spark.range(0, files, 1, 8).selectExpr(f"concat('/tree-{files}/d', id % {DIRECTORIES}, '/f', id) AS path")
    moved = paths.selectExpr("path AS source", "replace(path, '/tree-', '/moved-') AS target")
    jobs: dict[str, Callable[[], object]] = {
        "import": lambda: (
            import_objects(spark, volume, objects_below(spark, volume, landing, f"/tree-{files}"), dry_run=False).report
        ),
        "listing": lambda: _count(listing(spark, volume, f"/tree-{files}"), files + DIRECTORIES),
        "du": lambda: _count(du(spark, volume, f"/tree-{files}"), DIRECTORIES + 1),
        "rename": lambda: rename_files(spark, volume, moved, dry_run=False).report,
        "verify": lambda: verify(spark, volume, grace=0.0)[1],
        "restore": lambda: restore(spark, volume, dry_run=False)[1],
        "delete": lambda: delete_files(spark, volume, moved.selectExpr("target AS path"), dry_run=False).report,
    }
    for name, job in jobs.items():
        if name in {"verify", "restore"} and files > ADOPTED:
            continue
        if name == "rename":
            await _directories(volume, files)
        if name == "verify":
            yield await _engine(volume, files, f"{files:,} files")
        if name == "restore":
            await _lose_table(volume)
        yield await _timed(f"spark {name}", f"{files:,} files", "ours", files, "files", job)


async def _checks(bench: _Bench, own: VolumeConfig, files: int, case: str) -> AsyncIterator[Result]:
    """A volume that has written its files itself is verified, and its table is lost and restored."""
    from s3k_async.spark.checking import verify
    from s3k_async.spark.restoring import restore

    await _fill(own, files)
    memory = _Memory()
    opened = await open_volume(own)
    began, busy = time.perf_counter(), time.process_time()
    report = await verify_volume(opened, grace=0.0)
    seconds, processor = time.perf_counter() - began, time.process_time() - busy
    await opened.close()
    if report.findings:
        raise AssertionError(report.findings[0])
    yield Result("spark verify", case, "one machine", files, "files", [seconds], [processor], "ours")
    checks: dict[str, Callable[[], object]] = {
        "verify": lambda: verify(bench.spark, own, grace=0.0)[1],
        "restore": lambda: restore(bench.spark, own, dry_run=False)[1],
    }
    for name, job in checks.items():
        if name == "restore":
            await _lose_table(own)
        memory.anew()
        yield await _timed(f"spark {name}", case, "ours", files, "files", job)
        yield memory.result(f"{name}, {case}", files)
    await _lose_table(own)
    alone = partial(asyncio.run, restore_volume(own, dry_run=False))
    yield await _timed("spark restore", case, "one machine", files, "files", alone)
    yield await _engine(own, files, case)  # last, since it holds everything in memory


class _Memory:
    """The most memory that this process, which is the driver's Python, and any Python worker have had for a job."""

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
                    names[int(place.name)] = (place / "cmdline").read_text(encoding="utf-8", errors="replace")
                    parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])

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


def _places(bench: _Bench, files: int) -> dict[str, VolumeConfig]:
    """Two more volumes, by the case: on the same engines, and on this machine's disk."""
    table, data = bench.volume.table, bench.volume.data
    assert isinstance(table, DynamoTable)
    assert isinstance(data, S3Bucket)
    name = f"own-{files}"
    place = Path(bench.place, name)
    place.mkdir()
    return {
        f"{files:,} own files": replace(
            bench.volume, name=name, table=replace(table, name=name), data=replace(data, bucket=name)
        ),
        f"{files:,} own files, embedded": VolumeConfig(
            name, SqliteFile(str(place / "table.db")), LocalDirectory(str(place / "data"))
        ),
    }


async def _fill(own: VolumeConfig, files: int) -> None:
    await init_volume(own)
    async with client(own) as fs:
        for start in range(0, files, 5_000):
            numbers = range(start, min(start + 5_000, files))
            await fs.write_many([(f"/tree/d{number % DIRECTORIES}/f{number}", b"x" * 16) for number in numbers])


async def _landing(volume: VolumeConfig, files: int) -> str:
    """Objects that somebody has put into the volume's bucket; where they are."""
    async with client(volume) as fs:
        blobs = fs._volume().blobs

        async def put(number: int) -> None:
            await blobs.put(f"landing-{files}/d{number % DIRECTORIES}/f{number}", b"x" * 16)

        await bounded(put, range(files), 64)
        return fs._volume().blobs.uri(f"landing-{files}")


async def _directories(volume: VolumeConfig, files: int) -> None:
    async with client(volume) as fs:
        for number in range(DIRECTORIES):
            await fs.makedirs(f"/moved-{files}/d{number}")


async def _lose_table(volume: VolumeConfig) -> None:
    opened = await open_volume(volume)
    await opened.table.drop()
    await opened.close()


async def _engine(volume: VolumeConfig, files: int, case: str) -> Result:
    """The decisions alone, of facts that are in memory."""
    opened = await open_volume(volume)
    try:
        parts = Parts(held=sys.maxsize)
        gatherer = Gatherer(ground_of(opened, grace=0.0), parts)
        await gatherer.scan(lambda _: None)
        work = partial(part_findings, gatherer, 0, deep=False)
        began, busy = time.perf_counter(), time.process_time()
        await work()
        wall, busy = time.perf_counter() - began, time.process_time() - busy
        return Result("spark verify", case, "decisions alone", files, "files", [wall], [busy], "ours")
    finally:
        await opened.close()


def _frame(bench: _Bench, rows: int) -> DataFrame:
    return bench.spark.range(0, rows, 1, 4).selectExpr("id", "id * 0.5 AS value", "concat('row ', id) AS text")


def _ours(bench: _Bench, rows: int) -> dict[str, Callable[[], None]]:
    """Writing and reading by the data source."""
    place = f"/rows-{rows}"
    return {
        "write": lambda: _frame(bench, rows).write.format("s3k").mode("overwrite").save(place),
        "read": lambda: _sum(bench.spark.read.format("s3k").load(place), rows),
    }


async def _rows(bench: _Bench, rows: int, repeats: int) -> list[Result]:
    """Writing and reading, by the data source, by Spark's own Parquet on this machine's disk, and by it through S3A:
    its own files, and those of the volume at their physical paths.
    """
    frame, ours = _frame(bench, rows), _ours(bench, rows)
    bucket = bench.volume.data
    assert isinstance(bucket, S3Bucket)
    plain, s3a, fresh = f"{bench.place}/plain-{rows}", f"s3a://{bucket.bucket}/plain-{rows}", count()

    def write(path: str) -> Callable[[], None]:
        return lambda: frame.write.parquet(f"{path}/{next(fresh)}")

    found = await _turns(
        "spark write", rows, repeats, {"ours": ours["write"], "on disk": write(plain), "S3A": write(s3a)}
    )
    frame.write.mode("overwrite").parquet(f"{plain}/last")
    frame.write.mode("overwrite").parquet(f"{s3a}/last")
    async with client(bench.volume) as fs:
        places = [file.uri async for file in fs.physical_paths(f"/rows-{rows}")]
    parquet = bench.spark.read.parquet
    contenders: dict[str, Callable[[], None]] = {
        "ours": ours["read"],
        "on disk": lambda: _sum(parquet(f"{plain}/last"), rows),
        "S3A": lambda: _sum(parquet(f"{s3a}/last"), rows),
        "physical paths, S3A": lambda: _sum(parquet(*places), rows),
    }
    return found + await _turns("spark read", rows, repeats, contenders)


async def _turns(row: str, rows: int, repeats: int, contenders: dict[str, Callable[[], None]]) -> list[Result]:
    """Each contender `repeats` times, one after the other."""
    results: dict[str, Result] = {}
    for _ in range(repeats):
        for contender, work in contenders.items():
            result = await _timed(row, f"{rows:,} rows", contender, rows, "rows", work)
            kept = results.setdefault(contender, result)
            if kept is not result:
                kept.seconds.extend(result.seconds)
                kept.processor.extend(result.processor)
    return list(results.values())


def _count(frame: DataFrame, expected: int) -> None:
    found = frame.count()
    if found != expected:
        raise AssertionError(f"{found} rows instead of {expected}")


def _sum(frame: DataFrame, rows: int) -> None:
    """Every column is read."""
    found = frame.selectExpr("sum(id)", "sum(value)", "sum(length(text))").collect()[0]
    if found[0] != rows * (rows - 1) // 2:
        raise AssertionError(f"the rows that came add up to {found[0]}")


async def _timed(row: str, case: str, contender: str, amount: int, unit: str, work: Callable[[], Any]) -> Result:
    began, busy = time.perf_counter(), time.process_time()
    report = await asyncio.to_thread(work)
    wall, busy = time.perf_counter() - began, time.process_time() - busy
    if getattr(report, "failed", 0) or getattr(report, "problems", ()):
        raise AssertionError(f"{row}: {report}")
    return Result(row, case, contender, amount, unit, [wall], [busy], "ours")
