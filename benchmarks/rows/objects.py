"""Small objects through the object API beside files of the same volume through the client, on each
kind of backend."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.contenders.ours import ClientFiles, ObjectFiles, client
from benchmarks.measuring import Result
from benchmarks.rows.backends import volume_places
from benchmarks.rows.scope import Scope
from benchmarks.rows.verb_table import VerbTable, disk_syncs
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.objects import ObjectStore

__all__ = ["results"]

IN_FLIGHT = (1, 8, 32)
BUCKET = "objects"
FILES, OBJECTS = "ours, files", "ours, objects"


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Every verb with one, eight and 32 calls in flight, one volume after the other."""
    with (
        tempfile.TemporaryDirectory(prefix="s3k-bench-") as directory,
        volume_places(Path(directory)) as places,
    ):
        in_memory = VolumeConfig("memory", MemoryTable("bench"), MemoryBlobs("bench"))
        limit = f"{disk_syncs(Path(directory)):,.0f} syncs/s"
        for name, config in {"memory": in_memory, **places.volumes}.items():
            async with client(config) as fs:
                table = VerbTable(
                    "objects",
                    scope.pick(100, 1_000),
                    FILES,
                    scope.rounds,
                    f", {name}{''.join(f', {reason}' for reason in places.missing)}",
                    limit,
                )
                await fs.makedirs("/small")
                await ObjectStore(fs).create_bucket(BUCKET)
                them = {FILES: ClientFiles(fs), OBJECTS: ObjectFiles(fs, BUCKET)}
                for in_flight in IN_FLIGHT:
                    async for result in table.results(them, in_flight):
                        yield result
