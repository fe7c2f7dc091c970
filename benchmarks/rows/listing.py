"""Listing one directory, over sizes, suffixes and latencies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.contenders.ours import Ours, client, without_log
from benchmarks.contenders.with_aioboto3 import Aioboto3, table_of
from benchmarks.contenders.with_aiobotocore import Aiobotocore, client_of
from benchmarks.contenders.with_aiodynamo import Aiodynamo, aiodynamo_client
from benchmarks.contenders.with_boto3 import Boto3
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from benchmarks.servers import TABLE, VOLUME, Canned, config_for

__all__ = ["results"]

LARGE = 1_000_000


async def results(scope: Scope, server: Canned) -> AsyncIterator[Result]:
    """Every combination; slow peers only where it takes them seconds."""
    for suffixes in scope.pick((1, 16), (1, 4, 16, 64)):
        server.command("forget")
        async with AsyncExitStack() as stack:
            low = Aiobotocore(await stack.enter_async_context(client_of(server.engine, "dynamodb")))
            table = Aioboto3(await stack.enter_async_context(table_of(server.engine)))
            pure = Aiodynamo(await stack.enter_async_context(aiodynamo_client(server.engine)))
            threads = Boto3(server.engine)
            config = without_log(config_for(server.engine, server.engine, suffixes=suffixes))
            fs = await stack.enter_async_context(client(config))
            ours = Ours(fs)
            for entries in scope.pick((30_000,), (10_000, 100_000, LARGE)):
                path = f"/list-{entries}"
                await fs.makedirs(path)
                server.directory(path, entries, suffixes)
                for latency in scope.pick((0,), (0, 10)):
                    server.latency(latency)
                    runs: dict[str, Run] = {
                        "aiobotocore": partial(low.list, path, suffixes),
                        "ours, objects": partial(ours.list, path),
                        "ours, Arrow": partial(ours.list_batches, path),
                    }
                    if entries < LARGE and latency == 0 and suffixes in (1, 64) and not scope.quick:
                        runs["boto3"] = partial(threads.list, path, suffixes)
                        runs["aioboto3"] = partial(table.list, path, suffixes)
                        runs["aiodynamo"] = partial(pure.list, path, suffixes)
                    case = Case(
                        "list",
                        f"{entries:,} entries, {suffixes} suffix{'es' if suffixes > 1 else ''}, "
                        f"{latency} ms",
                        entries,
                        "entries",
                        runs,
                        rounds=1 if entries == LARGE and latency else scope.rounds,
                        expected=entries,
                        warm=entries < LARGE,
                        limit=_limit(server, path, suffixes),
                    )
                    for result in await measure(case):
                        yield result
                server.latency(0)


def _limit(server: Canned, path: str, suffixes: int) -> str:
    """How many entries a second the server answers when nobody decodes them."""
    request = {
        "TableName": TABLE,
        "KeyConditionExpression": "#p = :p",
        "ExpressionAttributeNames": {"#p": "path"},
        "ExpressionAttributeValues": {":p": {"S": f"ks://{VOLUME}{path}-sf0"}},
    }
    rows = min(3_000, int(path.rpartition("-")[2]) // suffixes)
    pages = server.own_rate("Query", request, connections=suffixes, seconds=0.5)
    return f"{rows * pages:,.0f} entries/s"
