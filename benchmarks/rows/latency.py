"""Directories of small files at the latency of the services, on the canned server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from benchmarks.contenders.ours import client
from benchmarks.contenders.with_obstore import Obstore
from benchmarks.contenders.with_pyarrow import PyarrowS3
from benchmarks.contenders.with_s3fs import S3fs
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.engines import PEERS, Contenders
from benchmarks.rows.scope import CANNED_PROCESSOR, Scope
from benchmarks.servers import Canned, canned, config_for
from s3k_async.config import VolumeConfig

__all__ = ["results"]

MILLISECONDS = {"table": 4, "write": 25, "read": 15, "list": 50}
"""Of a request to DynamoDB, of one that writes an object, of one that reads one, and of a listing
of a thousand keys."""
IN_FLIGHT = 64
FILES = 1_000
DATA = b"x" * 4096
PATH, TREE, TOGETHER = "ours", "ours, layout tree", "ours, write_many"


async def results(scope: Scope, server: Canned) -> AsyncIterator[Result]:
    """Writing, listing and renaming."""
    async with AsyncExitStack() as stack:
        # A server has one table, and a table one volume.
        second = stack.enter_context(canned(CANNED_PROCESSOR))
        for each in (server, second):
            each.keep_files()
        fs3 = S3fs(server.engine, "bench-s3fs")
        stack.push_async_callback(fs3.close)
        them = Contenders(
            await stack.enter_async_context(client(_config(server))),
            fs3,
            PyarrowS3(server.engine, "bench-pyarrow"),
            Obstore(server.engine, "bench-obstore"),
        )
        config = replace(_config(second), layout="tree")
        in_tree = replace(them, fs=await stack.enter_async_context(client(config)))
        ours = {PATH: them, TREE: in_tree}
        servers = (server, second)
        try:
            _delay(servers)
            async for result in _written(scope, them):
                yield result
            for files in scope.pick((FILES,), (FILES, 10 * FILES)):
                async for result in _directories(scope, servers, ours, files):
                    yield result
        finally:
            server.latency(0)


def _config(server: Canned) -> VolumeConfig:
    return config_for(server.engine, server.engine, connections=IN_FLIGHT)


def _delay(servers: Sequence[Canned]) -> None:
    for server in servers:
        server.latency_of(**MILLISECONDS)


async def _written(scope: Scope, them: Contenders) -> AsyncIterator[Result]:
    turns: dict[str, int] = {}

    def write(name: str) -> Run:
        async def run() -> None:
            turns[name] = turns.get(name, 0) + 1
            path = f"/written-{turns[name]}"
            if name == TOGETHER:
                files = ((f"{path}-many/part-{number:08}", DATA) for number in range(FILES))
                (await them.fs.write_many(files)).raise_for_failures()
            else:
                await them.put(name, path, FILES, data=DATA, in_flight=IN_FLIGHT)

        return run

    case = Case(
        "write at latency",
        f"{FILES:,} files of 4 KiB, {IN_FLIGHT} in flight",
        FILES,
        "files",
        {name: write(name) for name in (*PEERS, PATH, TOGETHER)},
        "s3fs",
        scope.rounds,
    )
    for result in await measure(case):
        yield result


async def _directories(
    scope: Scope, servers: Sequence[Canned], ours: dict[str, Contenders], files: int
) -> AsyncIterator[Result]:
    """List a directory; rename one of 1,000 files."""
    them, top = ours[PATH], f"/directory-{files}"
    for server in servers:
        server.latency(0)
    await _fill(ours, f"{top}-0", files)
    _delay(servers)

    def each(of: Callable[[Contenders, str], Callable[[], Awaitable[object]]]) -> dict[str, Run]:
        return {name: of(them, name) for name in PEERS} | {
            name: of(mine, "ours") for name, mine in ours.items()
        }

    listed = Case(
        "list at latency",
        f"{files:,} files",
        files,
        "files",
        each(lambda who, name: partial(who.list, name, f"{top}-0")),
        "s3fs",
        scope.rounds,
        expected=files,
    )
    for result in await measure(listed):
        yield result
    if files > FILES:
        return
    turns: dict[tuple[Contenders, str], int] = {}

    def rename(who: Contenders, name: str) -> Run:
        async def run() -> None:
            turn = turns[who, name] = turns.get((who, name), 0) + 1
            await who.rename(name, f"{top}-{turn - 1}", f"{top}-{turn}", files, in_flight=IN_FLIGHT)

        return run

    renamed = Case(
        "rename at latency",
        f"{files:,} files, {IN_FLIGHT} in flight",
        files,
        "files",
        each(rename),
        "s3fs",
        scope.rounds,
        warm=False,
    )
    for result in await measure(renamed):
        yield result
    for (who, name), turn in turns.items():
        found = await who.list(name, f"{top}-{turn}")
        if found != files:
            raise AssertionError(f"{name} renamed {found} of {files} files")


async def _fill(ours: dict[str, Contenders], path: str, files: int) -> None:
    """Write a directory of empty files for each contender."""
    for name in PEERS:
        await ours[PATH].put(name, path, files, data=b"", in_flight=IN_FLIGHT)
    for mine in ours.values():
        empty = ((f"{path}/part-{number:08}", b"") for number in range(files))
        (await mine.fs.write_many(empty)).raise_for_failures()
