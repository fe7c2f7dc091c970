"""Listing one directory of a table on real engines, which answer slower than any client reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from benchmarks.contenders.ours import Ours, client, fill, without_log
from benchmarks.contenders.with_aiobotocore import Aiobotocore, client_of
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from benchmarks.servers import config_for, engine_named

__all__ = ["results"]

SUFFIXES = 10
LARGE = 1_000_000
SIZES = {"dynamodb_local": (10_000, 100_000), "dynoxide": (10_000, 100_000, LARGE)}


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Not in a quick run: what these rows measure is the engine."""
    for name, sizes in {} if scope.quick else SIZES.items():
        with engine_named(name) as table, engine_named("seaweedfs") as data:
            config = without_log(config_for(table, data, suffixes=SUFFIXES))
            async with client_of(table, "dynamodb") as low, client(config) as fs:
                for entries in sizes:
                    path = f"/list-{entries}"
                    await fill(fs, path, entries)
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
