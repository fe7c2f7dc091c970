"""The jobs and the data source of Spark on two cores, on dynoxide and SeaweedFS; run apart (`--only
spark`).

All processes share the machine: the JVM, its Python workers and the engines. A job is timed once
for each size, the session being warm; what it begins from is made before. Reading and writing of
rows is timed several times, contenders taking turns.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from benchmarks.contenders.keys import bounded
from benchmarks.contenders.ours import client
from benchmarks.contenders.with_s3a import s3a_settings
from benchmarks.measuring import Result
from benchmarks.rows.scope import Scope
from benchmarks.rows.spark_checks import (
    DIRECTORIES,
    checks,
    engine,
    lose_table,
    session,
    timed,
    warm,
)
from benchmarks.servers import config_for, engine_named
from s3k_async.config import DynamoTable, S3Bucket, VolumeConfig
from s3k_async.volumes import init_volume

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["results"]

SIZES = (1_000,), (10_000, 100_000, 1_000_000)
ADOPTED = 100_000
"""So many adopted files are verified and restored, which takes long; above, files that the volume
has written."""
ROWS = (100_000,), (100_000, 1_000_000)
FIRST_ROWS = 1_000
REPEATS = 1, 5


@dataclass
class _Bench:
    spark: SparkSession
    volume: VolumeConfig
    place: str


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Jobs over trees of files, then rows through the data source."""
    with (
        engine_named("dynoxide") as table,
        engine_named("seaweedfs") as data,
        tempfile.TemporaryDirectory() as place,
    ):
        volume = config_for(table, data, suffixes=10, connections=64)
        await init_volume(volume)
        os.environ |= {
            "AWS_ACCESS_KEY_ID": data.access_key,
            "AWS_SECRET_ACCESS_KEY": data.secret_key,
        }
        with session(place, s3a_settings(data)) as spark:
            bench = _Bench(spark, volume, place)
            await asyncio.to_thread(_warm, bench)
            for files in scope.pick(*SIZES):
                async for result in _jobs(bench, files):
                    yield result
                async for result in checks(
                    spark, _own(volume, files), files, f"{files:,} own files"
                ):
                    yield result
            # Apart from the rates: Spark starts five kinds of Python processes, each when it is
            # first needed.
            for name, work in _ours(bench, FIRST_ROWS).items():
                yield await timed(
                    f"spark first {name}", f"{FIRST_ROWS:,} rows", "ours", FIRST_ROWS, "rows", work
                )
            for rows in scope.pick(*ROWS):
                for result in await _rows(bench, rows, scope.pick(*REPEATS)):
                    yield result


def _warm(bench: _Bench) -> None:
    from s3k_async.spark import register

    register(bench.spark, volume=bench.volume)
    warm(bench.spark, bench.volume)


def _own(volume: VolumeConfig, files: int) -> VolumeConfig:
    """One more volume on the same engines."""
    table, data, name = volume.table, volume.data, f"own-{files}"
    assert isinstance(table, DynamoTable)
    assert isinstance(data, S3Bucket)
    return replace(
        volume, name=name, table=replace(table, name=name), data=replace(data, bucket=name)
    )


async def _jobs(bench: _Bench, files: int) -> AsyncIterator[Result]:
    from s3k_async.spark import (
        delete_files,
        du,
        import_objects,
        listing,
        objects_below,
        rename_files,
    )
    from s3k_async.spark.fsck_job import verify
    from s3k_async.spark.restore_job import restore

    spark, volume = bench.spark, bench.volume
    landing = await _landing(volume, files)
    paths = spark.range(0, files, 1, 8).selectExpr(
        f"concat('/tree-{files}/d', id % {DIRECTORIES}, '/f', id) AS path"
    )
    moved = paths.selectExpr("path AS source", "replace(path, '/tree-', '/moved-') AS target")
    jobs: dict[str, Callable[[], object]] = {
        "import": lambda: (
            import_objects(
                spark,
                volume,
                objects_below(spark, volume, landing, f"/tree-{files}"),
                dry_run=False,
            ).report
        ),
        "listing": lambda: _count(listing(spark, volume, f"/tree-{files}"), files + DIRECTORIES),
        "du": lambda: _count(du(spark, volume, f"/tree-{files}"), DIRECTORIES + 1),
        "rename": lambda: rename_files(spark, volume, moved, dry_run=False).report,
        "verify": lambda: verify(spark, volume, grace=0.0)[1],
        "restore": lambda: restore(spark, volume, dry_run=False)[1],
        "delete": lambda: (
            delete_files(spark, volume, moved.selectExpr("target AS path"), dry_run=False).report
        ),
    }
    for name, job in jobs.items():
        if name in {"verify", "restore"} and files > ADOPTED:
            continue
        if name == "rename":
            await _directories(volume, files)
        if name == "verify":
            yield await engine(volume, files, f"{files:,} files")
        if name == "restore":
            await lose_table(volume)
        yield await timed(f"spark {name}", f"{files:,} files", "ours", files, "files", job)


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


def _frame(bench: _Bench, rows: int) -> DataFrame:
    return bench.spark.range(0, rows, 1, 4).selectExpr(
        "id", "id * 0.5 AS value", "concat('row ', id) AS text"
    )


def _ours(bench: _Bench, rows: int) -> dict[str, Callable[[], None]]:
    """Writing and reading by the data source."""
    place = f"/rows-{rows}"
    return {
        "write": lambda: _frame(bench, rows).write.format("s3k").mode("overwrite").save(place),
        "read": lambda: _sum(bench.spark.read.format("s3k").load(place), rows),
    }


async def _rows(bench: _Bench, rows: int, repeats: int) -> list[Result]:
    """Writing and reading, by the data source, by Spark's own Parquet on this machine's disk, and
    by it through S3A: its own files, and those of the volume at their physical paths.
    """
    frame, ours = _frame(bench, rows), _ours(bench, rows)
    bucket = bench.volume.data
    assert isinstance(bucket, S3Bucket)
    plain, s3a, fresh = (
        f"{bench.place}/plain-{rows}",
        f"s3a://{bucket.bucket}/plain-{rows}",
        count(),
    )

    def write(path: str) -> Callable[[], None]:
        return lambda: frame.write.parquet(f"{path}/{next(fresh)}")

    found = await _turns(
        "spark write",
        rows,
        repeats,
        {"ours": ours["write"], "on disk": write(plain), "S3A": write(s3a)},
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


async def _turns(
    row: str, rows: int, repeats: int, contenders: dict[str, Callable[[], None]]
) -> list[Result]:
    """Each contender `repeats` times, one after the other."""
    results: dict[str, Result] = {}
    for _ in range(repeats):
        for contender, work in contenders.items():
            result = await timed(row, f"{rows:,} rows", contender, rows, "rows", work)
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
