"""Small files against the canned server, one a call, at several numbers in flight; then counts of
their requests to S3."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from benchmarks.contenders.ours import ClientFiles, PortFiles, client
from benchmarks.contenders.small_files import VERBS, SmallFiles, Verb, Work, small_tree
from benchmarks.contenders.with_aiobotocore import AiobotocoreFiles, client_of
from benchmarks.contenders.with_obstore import Obstore, ObstoreFiles
from benchmarks.contenders.with_pyarrow import PyarrowFiles, PyarrowS3
from benchmarks.contenders.with_s3fs import S3fs, S3fsFiles
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from benchmarks.servers import BUCKET, Canned, config_for
from s3k_async import S3kClient

__all__ = ["results"]

SIZES = {1: VERBS, 64: VERBS[:2]}
"""KiB of a file, and the verbs for which its size matters."""
IN_FLIGHT = 32
"""Calls at a time whose requests are counted."""
CLIENT = "ours, client"
PORT = "ours, S3 alone"

_Contenders = dict[str, SmallFiles | PyarrowFiles]


async def results(scope: Scope, server: Canned) -> AsyncIterator[Result]:
    """Every contender has objects of its own in one bucket; the client's verbs work on a volume in
    it."""
    server.keep_files()
    async with AsyncExitStack() as stack:
        low = await stack.enter_async_context(client_of(server.engine, "s3"))
        fs3 = S3fs(server.engine, BUCKET)
        stack.push_async_callback(fs3.close)
        fs = await stack.enter_async_context(client(config_for(server.engine, server.engine)))
        them: _Contenders = {
            "aiobotocore": AiobotocoreFiles(low, BUCKET),
            "s3fs": S3fsFiles(fs3.fs, BUCKET),
            "obstore": ObstoreFiles(Obstore(server.engine, BUCKET).store),
            "pyarrow": PyarrowFiles(PyarrowS3(server.engine, BUCKET).fs, BUCKET),
            PORT: PortFiles(fs),
            CLIENT: ClientFiles(fs),
        }
        for kilobytes, verbs in scope.pick({1: VERBS}, SIZES).items():
            for in_flight in scope.pick((32,), (1, 32, 256)):
                server.reset()
                await fs.makedirs("/small")
                async for result in _verbs(scope, server, them, verbs, kilobytes, in_flight):
                    yield result
    async for result in _counted(scope, server):
        yield result


async def _verbs(
    scope: Scope,
    server: Canned,
    them: _Contenders,
    verbs: tuple[Verb, ...],
    kilobytes: int,
    in_flight: int,
) -> AsyncIterator[Result]:
    data = bytes(kilobytes * 1024)
    count = scope.pick(50, 1_000 if kilobytes == 1 else 500)
    for verb in verbs:
        turns = dict.fromkeys(them, 0)

        async def run(name: str, verb: Verb, turns: dict[str, int]) -> int:
            turns[name] += 1
            here = f"/small/{name.replace(', ', '-').replace(' ', '-')}"
            # What is put is new each time; the others find what was put first, and each copy is
            # deleted once.
            source = f"{here}-{turns[name] if verb == 'put' else 1}"
            return await them[name].many(
                Work(verb, source, f"{here}-copy-{turns[name]}", data, count, in_flight)
            )

        runs: dict[str, Run] = {name: partial(run, name, verb, turns) for name in them}
        case = Case(
            f"small {verb}",
            f"{kilobytes} KiB, {in_flight} in flight",
            count,
            "files",
            runs,
            rounds=scope.rounds,
            expected=0 if verb in ("copy", "delete") else count * len(data),
            limit=_limit(server, verb, data, in_flight),
        )
        for result in await measure(case):
            yield result


async def _counted(scope: Scope, server: Canned) -> AsyncIterator[Result]:
    """Requests to S3 for files of 100 bytes, for their data and the log; not timed."""
    files, data = scope.pick(1_000, 5_000), bytes(100)

    async def create(fs: S3kClient) -> None:
        work = Work("put", "/counted/single", "", data, files, IN_FLIGHT)
        await ClientFiles(fs).many(work)

    with tempfile.TemporaryDirectory(prefix="s3k-bench-") as place:
        local = small_tree(Path(place), files)

        async def put(fs: S3kClient) -> None:
            await fs.upload(local, "/counted/tree", overwrite=False)

        works = {f"create, {IN_FLIGHT} in flight": create, "put -r": put}
        for name, work in works.items():
            server.reset()
            # Closing waits for the last committed records of the log.
            async with client(config_for(server.engine, server.engine)) as fs:
                await fs.makedirs("/counted")
                before = _to_s3(server)
                await work(fs)
            requests = _to_s3(server) - before
            case = f"{name}, {files:,} files of 100 bytes, to S3"
            facts = {"requests": requests, "files": files}
            yield Result(
                "requests", case, "ours", requests, "requests", [], [], "ours", facts=facts
            )


def _to_s3(server: Canned) -> int:
    """Requests to S3 so far. Those to the table have the name of an operation."""
    return sum(count for name, count in server.counts().items() if name.isupper())


def _limit(server: Canned, verb: Verb, data: bytes, connections: int) -> str:
    """How many such requests a second the server answers to a client that does nothing else."""
    path, copied = f"/{BUCKET}/limit", {"x-amz-copy-source": f"{BUCKET}/limit"}
    requests = {
        "put": ("PUT", path, {}, data),
        "read": ("GET", path, {}, b""),
        "stat": ("HEAD", path, {}, b""),
        "copy": ("PUT", f"{path}-copy", copied, b""),
        "delete": ("DELETE", f"{path}-copy", {}, b""),
    }
    server.own_rate_of(*requests["put"], connections=1, seconds=0.01)  # so that it is there
    return (
        f"{server.own_rate_of(*requests[verb], connections=connections, seconds=0.5):,.0f} "
        "requests/s"
    )
