"""fsck and restore over Spark on an embedded volume: no engine is asked, so that it is our own part
that takes time. And the decisions alone, for which a volume in memory can be as large as one likes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.measuring import Result
from benchmarks.rows.scope import Scope
from benchmarks.rows.spark_checks import checks, engine, fill, session, warm
from s3k_async.config import LocalDirectory, MemoryBlobs, MemoryTable, SqliteFile, VolumeConfig
from s3k_async.volumes import init_volume

__all__ = ["results"]

SIZES = (1_000,), (10_000, 100_000)
DECIDED = (1_000,), (10_000, 100_000, 1_000_000)


async def results(scope: Scope) -> AsyncIterator[Result]:
    """A volume of each size is verified, lost and restored."""
    with tempfile.TemporaryDirectory() as place, session(place, {}) as spark:
        first = _embedded(place, "first")
        await init_volume(first)
        await asyncio.to_thread(warm, spark, first)
        for files in scope.pick(*SIZES):
            own = _embedded(place, f"own-{files}")
            async for result in checks(spark, own, files, f"{files:,} own files, embedded"):
                yield result
    for files in scope.pick(*DECIDED):
        name = f"decided-{files}"
        own = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name))
        await fill(own, files)
        yield await engine(own, files, f"{files:,} own files, in memory")


def _embedded(place: str, name: str) -> VolumeConfig:
    top = Path(place, name)
    top.mkdir()
    table, data = SqliteFile(str(top / "table.db")), LocalDirectory(str(top / "data"))
    return VolumeConfig(name, table, data, layout="path")
