"""`python -m benchmarks [--quick] [--only ROW ...] [--resume] [--large] [--write]`: measure, keep
the raw results, print the goals."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

from benchmarks.environment import ROOT, environment, load, speed
from benchmarks.goals import layout_verdicts, verdicts
from benchmarks.layout_report import is_of_layouts, write_layouts
from benchmarks.measuring import Result
from benchmarks.plots import draw, draw_renames
from benchmarks.record import Record
from benchmarks.report import goals_table, record_name, write
from benchmarks.rows import (
    backends,
    checks,
    codec,
    embedded,
    engines,
    keys,
    latency,
    layouts,
    libraries,
    listing,
    objects,
    single,
    small,
    spark,
    spark_embedded,
    startup,
    sync,
    tables,
    trees,
)
from benchmarks.rows.scope import CANNED_PROCESSOR, CLIENT_PROCESSOR, Scope
from benchmarks.servers import Canned, canned

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
LAYOUTS = ROOT / "docs" / "layouts.md"
PLOTS = ROOT / "docs" / "performance"
ALONE = {
    "codec": codec,
    "keys": keys,
    "tables": tables,
    "embedded": embedded,
    "checks": checks,
    "engines": engines,
    "libraries": libraries,
    "layouts": layouts,
    "backends": backends,
    "objects": objects,
    "sync": sync,
    "spark": spark,
    "spark_embedded": spark_embedded,
}
CANNED = {
    "startup": startup,
    "single": single,
    "small": small,
    "listing": listing,
    "trees": trees,
    "latency": latency,
}
ENGINES = (
    "tables",
    "embedded",
    "engines",
    "libraries",
    "layouts",
    "backends",
    "objects",
    "sync",
    "spark",
    "spark_embedded",
)
"""Rows whose other side needs a processor as well."""
ROWS = (
    "codec",
    "keys",
    "startup",
    "single",
    "small",
    "listing",
    "trees",
    "latency",
    "tables",
    "embedded",
    "checks",
    "engines",
    "libraries",
)
APART = ("layouts", "backends", "objects", "sync", "spark", "spark_embedded")
"""Rows that are measured only when they are asked for."""


async def _measured(name: str, scope: Scope, server: Canned | None) -> AsyncIterator[Result]:
    everywhere = os.sched_getaffinity(0)
    if CLIENT_PROCESSOR is not None and name not in ENGINES:
        os.sched_setaffinity(0, {CLIENT_PROCESSOR})
    try:
        if server is not None:
            server.command("forget")
            server.latency(0)
        rows = ALONE[name].results(scope) if name in ALONE else CANNED[name].results(scope, server)
        async for result in rows:
            yield result
    finally:
        os.sched_setaffinity(0, everywhere)


async def _run(names: list[str], scope: Scope, record: Record, path: Path) -> None:
    is_needed = not set(names).isdisjoint(CANNED)
    with canned(CANNED_PROCESSOR) if is_needed else nullcontext() as server:
        for name in names:
            began = time.perf_counter()
            async for result in _measured(name, scope, server):
                record.results.append(result)
                _tell(result)
                record.save(path)
            record.environment["load at the end"] = load()
            record.environment["speed at the end"] = speed()
            record.ended(name)
            record.save(path)
            print(f"-- {name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


def _tell(result: Result) -> None:
    if result.seconds:
        told = f"{result.rate:>14,.0f} {result.unit}/s"
    else:
        told = ", ".join(f"{name} {value}" for name, value in result.facts.items())
    print(f"{result.row:18}  {result.case:46}  {result.contender:32}  {told}", flush=True)


def main() -> None:
    """Measure, or with --report only write anew what was measured."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; under three minutes")
    parser.add_argument(
        "--only", nargs="+", choices=(*ROWS, *APART), default=list(ROWS), metavar="ROW"
    )
    parser.add_argument("--rounds", type=int, help="repetitions that count, of each contender")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue an interrupted run of the same rows after the last one that it finished",
    )
    parser.add_argument(
        "--large", action="store_true", help="layouts: directories of 1,000,000 files too"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the tables and plots into docs/"
    )
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="measure nothing; report these results"
    )
    options = parser.parse_args()
    if options.report is not None:
        record = Record.load(options.report)
    else:
        rounds = options.rounds or (2 if options.quick else 3)
        scope = Scope(options.quick, rounds, options.large)
        record = Record({**environment(), "repetitions": str(scope.rounds)})
        path = RESULTS / record_name(options.only, ROWS, quick=options.quick)
        if options.resume:
            try:
                record = Record.load(path).resumed(record.environment)
            except (OSError, ValueError) as error:
                parser.error(f"--resume: {path.name}: {error}")
        missing = record.missing(options.only)
        if not missing:
            parser.error(f"--resume: {path.name}: all rows are finished")
        asyncio.run(_run(missing, scope, record, path))
    results, machine = record.results, record.environment
    print("\n" + ", ".join(f"{name} {value}" for name, value in machine.items()) + "\n")
    layout_results = [each for each in results if is_of_layouts(each)]
    others = [each for each in results if not is_of_layouts(each)]
    if others:
        print(goals_table(verdicts(others)))
        if options.write:
            command = "make bench-quick" if options.quick else "make bench"
            write(PAGE, others, machine, command, draw(PLOTS, others))
    if layout_results:
        print(goals_table(layout_verdicts(layout_results)))
        if options.write:
            command = "python -m benchmarks --only layouts"
            command += " --quick" * options.quick + " --large" * options.large
            write_layouts(
                LAYOUTS, layout_results, machine, command, draw_renames(PLOTS, layout_results)
            )


if __name__ == "__main__":
    main()
