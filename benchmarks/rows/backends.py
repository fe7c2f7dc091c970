"""Small files of volumes on each kind of backend, and small objects in the stores alone: key-value
stores beside S3 over HTTP.

All contenders take turns, so that ratios are within one run. What they promise differs: RocksDB,
Redis and SQLite sync every write to the disk; dynoxide has its table in memory, and SeaweedFS does
not sync.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from benchmarks.contenders.ours import ClientFiles, PortFiles, client
from benchmarks.measuring import Result
from benchmarks.rows.scope import Scope
from benchmarks.rows.verb_table import Files, VerbTable, disk_syncs
from benchmarks.servers import config_for, engine_named
from s3k_async.backends.redis import RedisBlobs, RedisServer, RedisTable
from s3k_async.backends.rocksdb import RocksdbBlobs, RocksdbTable
from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig
from tests.engines import dynoxide, redis_server, seaweedfs

__all__ = ["S3", "Places", "results", "volume_places"]

IN_FLIGHT = (1, 8, 32)
ROCKSDB, REDIS = "RocksDB", "Redis"
EMBEDDED, SERVICES = "SQLite and directory", "dynoxide and SeaweedFS"
STORES = {ROCKSDB: "RocksDB alone", REDIS: "Redis alone", SERVICES: "S3 over HTTP"}
"""Volumes whose blobs are measured by themselves as well, with the name of that contender."""
S3 = STORES[SERVICES]
"""SeaweedFS by the HTTP client of the package, one request for each verb, two for a rename."""


@dataclass(frozen=True)
class Places:
    """Where volumes on each kind of backend are."""

    volumes: Mapping[str, VolumeConfig]
    missing: list[str] = field(default_factory=list)
    """What is not installed here."""


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Every verb with one, eight and 32 calls in flight."""
    with tempfile.TemporaryDirectory(prefix="s3k-bench-") as directory:
        place = Path(directory)
        with volume_places(place) as places:
            async with AsyncExitStack() as stack:
                them: dict[str, Files] = {}
                for name, config in places.volumes.items():
                    fs = await stack.enter_async_context(client(config))
                    await fs.makedirs("/small")
                    them[f"ours, {name}"] = ClientFiles(fs)
                    if name in STORES:
                        them[STORES[name]] = PortFiles(fs)
                table = VerbTable(
                    "backends",
                    scope.pick(100, 1_000),
                    S3 if S3 in them else next(iter(them)),
                    scope.rounds,
                    "".join(f", {reason}" for reason in places.missing),
                    f"{disk_syncs(place):,.0f} syncs/s",
                )
                for in_flight in IN_FLIGHT:
                    async for result in table.results(them, in_flight):
                        yield result


@contextmanager
def volume_places(place: Path) -> Iterator[Places]:
    """Volumes in a local directory, and in engines that end with this."""
    missing: list[str] = []
    volumes: dict[str, VolumeConfig] = {}
    with ExitStack() as stack:
        if find_spec("rocksdict") is None:
            missing.append("rocksdict is not installed")
        else:
            top = str(place / "rocksdb")
            volumes[ROCKSDB] = VolumeConfig("rocksdb", RocksdbTable(top), RocksdbBlobs(top))
        if reason := redis_server.missing():
            missing.append(reason)
        else:
            engine = stack.enter_context(engine_named("redis_server"))
            host, _, port = engine.endpoint.rpartition("/")[2].partition(":")
            server = RedisServer(host, int(port), user=engine.access_key)
            volumes[REDIS] = VolumeConfig(
                "redis",
                RedisTable(server, "bench", engine.aws()),
                RedisBlobs(server, "bench", engine.aws()),
            )
        volumes[EMBEDDED] = VolumeConfig(
            "embedded",
            SqliteFile(str(place / "table.db")),
            LocalDirectory(str(place / "data")),
        )
        if reasons := [reason for each in (dynoxide, seaweedfs) if (reason := each.missing())]:
            missing.extend(reasons)
        else:
            volumes[SERVICES] = config_for(
                stack.enter_context(engine_named("dynoxide")),
                stack.enter_context(engine_named("seaweedfs")),
            )
        yield Places(volumes, missing)
