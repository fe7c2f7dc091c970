"""Recursive rename and delete of one directory against the canned server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.contenders.ours import Ours, client
from benchmarks.contenders.with_aiobotocore import Aiobotocore, client_of
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from benchmarks.servers import Canned, config_for
from s3k_async import S3kClient

__all__ = ["results"]

SUFFIXES = 16


async def results(scope: Scope, server: Canned) -> AsyncIterator[Result]:
    """The verb with and without its log, visible at once (`atomic`) or file by file, which is what
    the transactions by hand do, the same number of files in each."""
    async with AsyncExitStack() as stack:
        low = Aiobotocore(await stack.enter_async_context(client_of(server.engine, "dynamodb")))
        for log in (False, True):
            server.command("forget")
            config = config_for(server.engine, server.engine, suffixes=SUFFIXES, log=log)
            fs = await stack.enter_async_context(client(config))
            for files in scope.pick((5_000,), (1_000, 10_000, 100_000)):
                for case in _cases(
                    scope, server, fs, low, files, "ours, with log" if log else "ours"
                ):
                    for result in await measure(case):
                        yield result


def _cases(
    scope: Scope, server: Canned, fs: S3kClient, low: Aiobotocore, files: int, name: str
) -> list[Case]:
    ours = Ours(fs)

    async def ready(_: str) -> None:
        server.reset()
        await fs.makedirs("/tree")
        server.directory("/tree", files, SUFFIXES)

    verbs: dict[str, dict[str, Run]] = {
        "rename": {
            "aiobotocore": partial(low.rename, "/tree", "/moved", SUFFIXES),
            name: partial(ours.rename, "/tree", "/moved", atomic=False),
            f"{name}, atomic": partial(ours.rename, "/tree", "/moved", atomic=True),
        },
        "delete": {
            "aiobotocore": partial(low.delete, "/tree", SUFFIXES),
            name: partial(ours.delete, "/tree", atomic=False),
            f"{name}, atomic": partial(ours.delete, "/tree", atomic=True),
        },
    }
    return [
        Case(
            verb,
            f"{files:,} files, {SUFFIXES} suffixes",
            files,
            "files",
            runs,
            rounds=min(scope.rounds, 3) if files > 10_000 else scope.rounds,
            before=ready,
            expected=files,
            warm=files <= 10_000,
        )
        for verb, runs in verbs.items()
    ]
