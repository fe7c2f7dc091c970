"""The embedded volume beside JuiceFS, where it is installed, and a plain directory; its syncs are
counted where strace is installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.contenders.ours import ClientFiles, client
from benchmarks.contenders.small_files import Verb, Work, small_tree
from benchmarks.contenders.with_mount import MountedFiles, juicefs, juicefs_missing
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from benchmarks.rows.verb_table import DATA, Files, VerbTable, disk_syncs
from s3k_async import S3kClient
from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig

__all__ = ["results"]

IN_FLIGHT = 8
OURS, PLAIN, JUICEFS = "ours", "plain directory", "JuiceFS, SQLite"


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Small files, one a call; then a tree of them."""
    with tempfile.TemporaryDirectory(prefix="s3k-bench-") as directory:
        place = Path(directory)
        async with AsyncExitStack() as stack:
            fs = await stack.enter_async_context(client(_config(place)))
            plain = MountedFiles(place / "plain")
            them: dict[str, Files] = {OURS: ClientFiles(fs), PLAIN: plain}
            missing = juicefs_missing()
            if missing is None:
                (place / "juicefs").mkdir()
                mounted = MountedFiles(stack.enter_context(juicefs(place / "juicefs")))
                them[JUICEFS] = mounted
                await mounted.makedirs("/small")
            await fs.makedirs("/small")
            await plain.makedirs("/small")
            note = f", {missing}" if missing else ""
            table = VerbTable(
                "embedded",
                scope.pick(500, 2_000),
                JUICEFS if missing is None else PLAIN,
                scope.rounds,
                note,
            )
            async for result in table.results(them, IN_FLIGHT):
                yield result
            async for result in _tree(scope, fs, place):
                yield result
            if shutil.which("strace") is not None:
                async for result in _counted(scope, fs, place):
                    yield result


def _config(place: Path) -> VolumeConfig:
    volume = place / "volume"
    volume.mkdir()
    return VolumeConfig(
        "bench",
        SqliteFile(str(volume / "table.db")),
        LocalDirectory(str(volume / "data")),
        layout="tree",
    )


async def _tree(scope: Scope, fs: S3kClient, place: Path) -> AsyncIterator[Result]:
    """`put -r`, beside the number of small files that a thread writes and syncs on this disk."""
    files, turn = scope.pick(1_000, 5_000), 0
    local = small_tree(place, files)

    async def put() -> int:
        nonlocal turn
        turn += 1
        result = await fs.upload(local, f"/tree-{turn}", overwrite=False)
        return result.files

    case = Case(
        "embedded put -r",
        f"{files:,} files of 100 bytes",
        files,
        "files",
        {OURS: put},
        OURS,
        rounds=scope.rounds,
        expected=files,
        limit=f"{disk_syncs(place):,.0f} syncs/s",
    )
    for result in await measure(case):
        yield result


async def _counted(scope: Scope, fs: S3kClient, place: Path) -> AsyncIterator[Result]:
    """Calls of fsync and fdatasync by this process, for files, directories and the table; not
    timed."""
    files = scope.pick(1_000, 5_000)
    local, mine = small_tree(place, files), ClientFiles(fs)
    await fs.makedirs("/syncs")

    async def put() -> None:
        await fs.upload(local, "/syncs/tree", overwrite=False)

    def single(verb: Verb) -> Run:
        work = Work(verb, "/syncs/f", "/syncs/g", DATA, files, IN_FLIGHT)
        return partial(mine.many, work)

    works: dict[str, Run] = {
        "put -r": put,
        f"write, {IN_FLIGHT} in flight": single("put"),
        f"rename, {IN_FLIGHT} in flight": single("rename"),
        f"delete, {IN_FLIGHT} in flight": single("delete"),
    }
    for name, work in works.items():
        with _syncs(place / "strace.txt") as counted:
            await work()
            await asyncio.sleep(1)  # the last committed records of the log
        syncs = counted["syncs"]
        facts = {"syncs": syncs, "files": files}
        case = f"embedded {name}, {files:,} files"
        yield Result("syncs", case, OURS, syncs, "syncs", [], [], OURS, facts=facts)


@contextmanager
def _syncs(output: Path) -> Iterator[dict[str, int]]:
    """Counts the syncs of this process meanwhile; the number is there afterwards."""
    words = ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(output)]
    tracer = subprocess.Popen([*words, "-p", str(os.getpid())], stderr=subprocess.PIPE, text=True)
    counted: dict[str, int] = {}
    try:
        assert tracer.stderr is not None
        tracer.stderr.readline()  # it is attached
        yield counted
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
    # Columns: share of the time, seconds, microseconds of a call, calls, errors, name.
    lines = [line.split() for line in output.read_text().splitlines()]
    counted["syncs"] = sum(int(line[3]) for line in lines if line and line[-1].endswith("sync"))
