"""Listing one directory of a table on real engines, which answer slower than any client reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from benchmarks.contenders.keys import ITEM
from benchmarks.contenders.ours import Ours, client, without_log
from benchmarks.contenders.with_aiobotocore import Aiobotocore, client_of
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from benchmarks.servers import config_for, engine_named
from s3k_async import S3kClient
from s3k_async.backends.dynamodb.dynamodb_codec import decode_item

__all__ = ["results"]

SUFFIXES = 10
LARGE = 1_000_000
LOADED_AT_ONCE = 10_000
SIZES = {"dynamodb_local": (10_000, 100_000), "dynoxide": (10_000, 100_000, LARGE)}


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Not in a quick run: what these rows measure is the engine."""
    for name, sizes in {} if scope.quick else SIZES.items():
        with engine_named(name) as table, engine_named("seaweedfs") as data:
            config = without_log(config_for(table, data, suffixes=SUFFIXES))
            async with client_of(table, "dynamodb") as low, client(config) as fs:
                for entries in sizes:
                    path = f"/list-{entries}"
                    await _fill(fs, path, entries)
                    runs: dict[str, Run] = {
                        "aiobotocore": partial(Aiobotocore(low).list, path, SUFFIXES),
                        "ours, objects": partial(Ours(fs).list, path),
                        "ours, Arrow": partial(Ours(fs).list_batches, path),
                    }
                    case = Case(
                        f"list on {name}",
                        f"{entries:,} entries, {SUFFIXES} suffixes",
                        entries,
                        "entries",
                        runs,
                        rounds=1 if entries == LARGE else scope.rounds,
                        expected=entries,
                        warm=entries < LARGE,
                    )
                    for result in await measure(case):
                        yield result


async def _fill(fs: S3kClient, path: str, entries: int) -> None:
    """Put a directory of files into a table that nobody else uses."""
    await fs.makedirs(path)
    volume = fs._volume()
    item = decode_item({**ITEM, "path": {"S": ""}, "children": {"S": ""}})
    with volume.items.loading(lambda: None):
        for start in range(0, entries, LOADED_AT_ONCE):
            names = range(start, min(entries, start + LOADED_AT_ONCE))
            keys = volume.store.keys.keys([f"{path}/part-{number:08}" for number in names])
            await volume.items.load(
                [{**item, "path": key.partition, "children": key.sort} for key in keys]
            )
