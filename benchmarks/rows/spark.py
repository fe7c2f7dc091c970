"""The jobs and the data source of Spark on two cores, on dynoxide and SeaweedFS; run apart (`--only spark`).

All processes share the machine: the JVM, its Python workers and the engines. A job is timed once for each size, the
session being warm; what it begins from is made before.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.contenders.keys import bounded
from benchmarks.contenders.ours import client
from benchmarks.measuring import Result
from benchmarks.rows.scope import Scope
from benchmarks.servers import config_for, engine_named
from s3k_async.config import VolumeConfig
from s3k_async.fsck.gather import Gatherer
from s3k_async.fsck.parts import Parts
from s3k_async.fsck.repair import ground_of
from s3k_async.fsck.verify import part_findings
from s3k_async.volumes import init_volume, open_volume
from tests.engines.process import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["results"]

DIRECTORIES = 50
SIZES = (1_000,), (10_000, 100_000)
ROWS = (100_000,), (100_000, 1_000_000)
FIRST_ROWS = 1_000


@dataclass
class _Bench:
    spark: SparkSession
    volume: VolumeConfig
    place: str


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Jobs over trees of files, then rows through the data source."""
    with engine_named("dynoxide") as table, engine_named("seaweedfs") as data, tempfile.TemporaryDirectory() as place:
        volume = config_for(table, data, suffixes=10, connections=64)
        await init_volume(volume)
        with _session(data, place) as spark:
            bench = _Bench(spark, volume, place)
            await asyncio.to_thread(_warm, bench)
            for files in scope.pick(*SIZES):
                async for result in _jobs(bench, files):
                    yield result
            # Apart from the rates: Spark starts five kinds of Python processes, each when it is first needed.
            for name, case in _rows(bench, FIRST_ROWS).items():
                yield await _timed(f"spark first {name}", f"{FIRST_ROWS:,} rows", "ours", 1, "starts", case["ours"])
            for rows in scope.pick(*ROWS):
                for name, case in _rows(bench, rows).items():
                    for contender, work in case.items():
                        yield await _timed(f"spark {name}", f"{rows:,} rows", contender, rows, "rows", work)


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
        "delete": lambda: delete_files(spark, volume, moved.selectExpr("target AS path"), dry_run=False).report,
    }
    for name, job in jobs.items():
        if name == "rename":
            await _directories(volume, files)
        if name == "verify":
            yield await _engine(volume, files)
        yield await _timed(f"spark {name}", f"{files:,} files", "ours", files, "files", job)


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


async def _engine(volume: VolumeConfig, files: int) -> Result:
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
        return Result("spark verify", f"{files:,} files", "decisions alone", files, "files", [wall], [busy], "ours")
    finally:
        await opened.close()


def _rows(bench: _Bench, rows: int) -> dict[str, dict[str, Callable[[], object]]]:
    """Reading and writing, by the data source and by Spark's own Parquet on this machine's disk."""
    frame = bench.spark.range(0, rows, 1, 4).selectExpr("id", "id * 0.5 AS value", "concat('row ', id) AS text")
    plain = f"{bench.place}/plain-{rows}"
    return {
        "write": {
            "ours": lambda: frame.write.format("s3k").mode("append").save(f"/rows-{rows}"),
            "parquet on disk": lambda: frame.write.parquet(plain),
        },
        "read": {
            "ours": lambda: _sum(bench.spark.read.format("s3k").load(f"/rows-{rows}"), rows),
            "parquet on disk": lambda: _sum(bench.spark.read.parquet(plain), rows),
        },
    }


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
