"""fsck and gc of one process: a healthy volume in memory, so that only our own part takes time."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from benchmarks.measuring import Case, Result, measure
from benchmarks.rows.scope import Scope
from benchmarks.rows.spark_checks import fill
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.integrity.gc_mark import CollectedData, Marker
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.repair import verify_volume
from s3k_async.volumes import Volume, open_volume

__all__ = ["results"]

SIZES = (1_000,), (100_000, 1_000_000)
NO_AGES = Ages(grace=0.0, lease=0.0, late=0.0)


async def results(scope: Scope) -> AsyncIterator[Result]:
    """A volume of each size is verified, and the mark phase of garbage collection finds nothing."""
    for files in scope.pick(*SIZES):
        name = f"checks-{files}"
        config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), layout="path")
        await fill(config, files)
        volume = await open_volume(config)
        try:
            case = Case(
                "fsck and gc",
                f"{files:,} clean files, in memory",
                files,
                "files",
                {"fsck verify": partial(_verify, volume), "gc mark": partial(_mark, volume)},
                baseline="fsck verify",
                rounds=min(scope.rounds, 3),
                expected=files,
                warm=False,
            )
            for result in await measure(case):
                yield result
        finally:
            await volume.close()


async def _verify(volume: Volume) -> int:
    """The number of files, if nothing is found."""
    report = await verify_volume(volume, grace=0.0)
    return -1 if report.kinds else report.files


async def _mark(volume: Volume) -> int:
    """The number of data objects that entries reference, if there are no others."""
    with tempfile.TemporaryDirectory() as directory:
        marker = Marker(CollectedData.of(volume), NO_AGES, directory=directory)
        marked = await marker.mark(str(Path(directory, "candidates")))
    others = sum(count.objects for reason, count in marked.counts.items() if reason != "named")
    return -1 if others else marked.of("named").objects
