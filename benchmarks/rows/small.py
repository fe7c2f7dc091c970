"""Small files against the canned server, one a call, at several numbers in flight."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.contenders.ours import ClientFiles, PortFiles, client
from benchmarks.contenders.small_files import VERBS, SmallFiles, Verb, Work
from benchmarks.contenders.with_aiobotocore import AiobotocoreFiles, client_of
from benchmarks.contenders.with_obstore import Obstore, ObstoreFiles
from benchmarks.contenders.with_pyarrow import PyarrowFiles, PyarrowS3
from benchmarks.contenders.with_s3fs import S3fs, S3fsFiles
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from benchmarks.servers import BUCKET, Canned, config_for

__all__ = ["results"]

SIZES = {1: VERBS, 64: VERBS[:2]}
"""KiB of a file, and the verbs for which its size matters."""
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
