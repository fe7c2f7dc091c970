"""The embedded volume beside JuiceFS, where it is installed, and a plain directory; its syncs are
counted where strace is installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.contenders.ours import ClientFiles, client
from benchmarks.contenders.small_files import (
    BlockingFiles,
    SmallFiles,
    Verb,
    Work,
    small_tree,
)
from benchmarks.contenders.with_mount import MountedFiles, juicefs, juicefs_missing
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from s3k_async import S3kClient
from s3k_async.bulk.transfer import upload
from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig

__all__ = ["results"]

DATA = b"x" * 4096
IN_FLIGHT = 8
VERBS: tuple[Verb, ...] = ("put", "stat", "read", "rename", "delete")
OURS, PLAIN, JUICEFS = "ours", "plain directory", "JuiceFS, SQLite"
SYNCS = 200

_Files = SmallFiles | BlockingFiles


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Small files, one a call; then a tree of them."""
    with tempfile.TemporaryDirectory(prefix="s3k-bench-") as directory:
        place = Path(directory)
        async with AsyncExitStack() as stack:
            fs = await stack.enter_async_context(client(_config(place)))
            plain = MountedFiles(place / "plain")
            them: dict[str, _Files] = {OURS: ClientFiles(fs), PLAIN: plain}
            missing = juicefs_missing()
            if missing is None:
                (place / "juicefs").mkdir()
                mounted = MountedFiles(stack.enter_context(juicefs(place / "juicefs")))
                them[JUICEFS] = mounted
                await mounted.makedirs("/small")
            await fs.makedirs("/small")
            await plain.makedirs("/small")
            note = f", {missing}" if missing else ""
            async for result in _verbs(scope, them, note):
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


async def _verbs(scope: Scope, them: dict[str, _Files], note: str) -> AsyncIterator[Result]:
    files = scope.pick(500, 2_000)
    for verb in VERBS:
        turns = dict.fromkeys(them, 0)

        async def run(name: str, verb: Verb, turns: dict[str, int]) -> int:
            turn = turns[name] = turns[name] + 1
            # Each repetition puts new files, moves those that the one before it has moved, and
            # deletes those that an earlier repetition has put.
            source = f"/small/f-{turn if verb in ('put', 'delete') else 1}"
            target = source
            if verb == "rename":
                source, target = f"/small/f-1{'x' * (turn - 1)}", f"/small/f-1{'x' * turn}"
            elif verb == "delete":
                target = f"/small/f-{turn + 1}"
            return await them[name].many(Work(verb, source, target, DATA, files, IN_FLIGHT))

        runs: dict[str, Run] = {name: partial(run, name, verb, turns) for name in them}
        case = Case(
            f"embedded {'write' if verb == 'put' else verb}",
            f"{files:,} files of 4 KiB, {IN_FLIGHT} in flight{note}",
            files,
            "files",
            runs,
            JUICEFS if JUICEFS in them else PLAIN,
            # One more is put than is deleted.
            rounds=scope.rounds + (verb == "put"),
            expected=files * len(DATA) if verb in ("put", "read", "stat") else 0,
            warm=verb in ("stat", "read"),
        )
        for result in await measure(case):
            yield result


async def _tree(scope: Scope, fs: S3kClient, place: Path) -> AsyncIterator[Result]:
    """`put -r`, beside the number of small files that a thread writes and syncs on this disk."""
    files, turn = scope.pick(1_000, 5_000), 0
    local = small_tree(place, files)

    async def put() -> int:
        nonlocal turn
        turn += 1
        result = await upload(fs, local, f"/tree-{turn}", overwrite=False)
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
        limit=f"{_synced(place):,.0f} syncs/s",
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
        await upload(fs, local, "/syncs/tree", overwrite=False)

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


def _synced(place: Path) -> float:
    """Files that a thread writes and syncs a second, each by itself."""
    began = time.perf_counter()
    for number in range(SYNCS):
        descriptor = os.open(place / f"synced-{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(descriptor, DATA)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return SYNCS / (time.perf_counter() - began)
