"""Real engines: dynoxide for the table and SeaweedFS for the bytes, against filesystems that keep
everything in S3."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.contenders.keys import bounded, total_of
from benchmarks.contenders.ours import Ours, client
from benchmarks.contenders.with_aiobotocore import client_of
from benchmarks.contenders.with_obstore import Obstore
from benchmarks.contenders.with_pyarrow import PyarrowS3
from benchmarks.contenders.with_s3fs import S3fs
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.relay import Relay
from benchmarks.rows import gigabyte
from benchmarks.rows.scope import Scope
from benchmarks.servers import config_for, engine_named
from s3k_async import S3kClient
from tests.engines.process import Engine

__all__ = ["PEERS", "Contenders", "results"]

PEERS = ("s3fs", "pyarrow", "obstore")
"""Each in a bucket of its own."""
IN_FLIGHT = 32
DATA = b"x" * 4096


@dataclass(frozen=True, eq=False)
class Contenders:
    """Everybody, on the same servers."""

    fs: S3kClient
    s3fs: S3fs
    arrow: PyarrowS3
    objects: Obstore

    async def put(
        self,
        name: str,
        path: str,
        files: int,
        *,
        data: bytes = DATA,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        """Write small files."""
        if name == "ours":

            async def write(number: int) -> None:
                await self.fs.write(f"{path}/part-{number:08}", data)

            await self.fs.makedirs(path)
            await bounded(write, range(files), in_flight)
        else:
            await self._peer(name).put(path, files, data, in_flight)

    async def read(self, name: str, path: str, files: int) -> int:
        """Read small files; the bytes that came."""
        if name == "ours":

            async def size(number: int) -> int:
                return len(await self.fs.read(f"{path}/part-{number:08}"))

            return await total_of(size, files, IN_FLIGHT)
        return int(await self._peer(name).read(path, files, IN_FLIGHT))

    async def list(self, name: str, path: str) -> int:
        """How many entries a directory has."""
        if name == "ours":
            return await Ours(self.fs).list(path)
        return int(await self._peer(name).list(path))

    async def rename(
        self, name: str, path: str, target: str, files: int, *, in_flight: int = IN_FLIGHT
    ) -> None:
        """Move a directory."""
        if name == "ours":
            await self.fs.rename(path, target)
        elif name == "s3fs":
            await self.s3fs.rename(path, target)
        else:
            await self._peer(name).rename(path, target, files, in_flight)

    async def delete(self, name: str, path: str) -> None:
        """Remove a directory and what is in it."""
        if name == "ours":
            await self.fs.delete(path, recursive=True)
        else:
            await self._peer(name).delete(path)

    def _peer(self, name: str) -> Any:
        return {"s3fs": self.s3fs, "pyarrow": self.arrow, "obstore": self.objects}[name]


NAMES = (*PEERS, "ours")


@asynccontextmanager
async def contenders(table: Engine, data: Engine) -> AsyncIterator[Contenders]:
    """Clients of two engines."""
    fs3 = S3fs(data, "bench-s3fs")
    try:
        async with client(config_for(table, data, suffixes=10, connections=64)) as fs:
            yield Contenders(
                fs, fs3, PyarrowS3(data, "bench-pyarrow"), Obstore(data, "bench-obstore")
            )
    finally:
        await fs3.close()


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Small files, a large one, then a directory's listing, renaming and removal; last their
    requests, counted."""
    with engine_named("dynoxide") as table, engine_named("seaweedfs") as data:
        async with client_of(data, "s3") as low, contenders(table, data) as all_of_them:
            for peer in PEERS:
                await low.create_bucket(Bucket=f"bench-{peer}")
            async for result in _files(scope, all_of_them):
                yield result
            if not scope.quick:
                async for result in gigabyte.results(
                    all_of_them.fs, all_of_them.objects.store, low, "bench-obstore"
                ):
                    yield result
            async for result in _trees(scope, all_of_them):
                yield result
        async for result in _counted(scope, table, data):
            yield result


async def _files(scope: Scope, them: Contenders) -> AsyncIterator[Result]:
    files = scope.pick(150, 10_000)
    turns: dict[str, int] = dict.fromkeys(NAMES, 0)

    def put(name: str) -> Run:
        async def run() -> None:
            turns[name] += 1
            await them.put(name, f"/small-{turns[name]}", files)

        return run

    case = Case(
        "put",
        f"{files:,} files of 4 KiB",
        files,
        "files",
        {name: put(name) for name in NAMES},
        "s3fs",
        2,
        warm=False,
    )
    for result in await measure(case):
        yield result
    runs: dict[str, Run] = {name: partial(them.read, name, "/small-1", files) for name in NAMES}
    expected = files * len(DATA)
    case = Case(
        "read",
        f"{files:,} files of 4 KiB",
        files,
        "files",
        runs,
        "s3fs",
        2,
        expected=expected,
        warm=False,
    )
    for result in await measure(case):
        yield result


async def _trees(scope: Scope, them: Contenders) -> AsyncIterator[Result]:
    files = scope.pick(300, 10_000)
    rounds = scope.pick(1, 2)
    for name in NAMES:
        await them.put(name, "/tree-0", files)
    runs: dict[str, Run] = {name: partial(them.list, name, "/tree-0") for name in NAMES}
    listed = Case(
        "list on engines",
        f"{files:,} files",
        files,
        "files",
        runs,
        "s3fs",
        3,
        expected=files,
        warm=True,
    )
    for result in await measure(listed):
        yield result
    turns: dict[str, int] = dict.fromkeys(NAMES, 0)

    def rename(name: str) -> Run:
        async def run() -> None:
            turns[name] += 1
            await them.rename(name, f"/tree-{turns[name] - 1}", f"/tree-{turns[name]}", files)

        return run

    renamed = Case(
        "rename on engines",
        f"{files:,} files",
        files,
        "files",
        {name: rename(name) for name in NAMES},
        "s3fs",
        rounds,
        warm=False,
    )
    for result in await measure(renamed):
        yield result
    for name in NAMES:
        found = await them.list(name, f"/tree-{turns[name]}")
        if found != files:
            raise AssertionError(f"{name} renamed {found} of {files} files")
    deletes: dict[str, Run] = {
        name: partial(them.delete, name, f"/tree-{turns[name]}") for name in NAMES
    }
    deleted = Case(
        "delete on engines", f"{files:,} files", files, "files", deletes, "s3fs", 1, warm=False
    )
    for result in await measure(deleted):
        yield result


async def _counted(scope: Scope, table: Engine, data: Engine) -> AsyncIterator[Result]:
    """Requests of each verb for each contender, seen by a relay between it and the servers; not
    timed."""
    files = scope.pick(300, 10_000)
    async with (
        Relay(table.endpoint) as table_relay,
        Relay(data.endpoint) as data_relay,
        contenders(table_relay.instead_of(table), data_relay.instead_of(data)) as them,
    ):
        for name in ("s3fs", "pyarrow", "ours"):
            await them.put(name, "/counted", files)
            verbs: dict[str, Callable[[], Awaitable[object]]] = {
                "list": partial(them.list, name, "/counted"),
                "rename": partial(them.rename, name, "/counted", "/recounted", files),
                "delete": partial(them.delete, name, "/recounted"),
            }
            for verb, work in verbs.items():
                before = table_relay.requests + data_relay.requests
                await work()
                requests = table_relay.requests + data_relay.requests - before
                case = f"{verb} of {files:,} files"
                yield Result(
                    "requests",
                    case,
                    name,
                    requests,
                    "requests",
                    [],
                    [],
                    "s3fs",
                    facts={"requests": requests},
                )
