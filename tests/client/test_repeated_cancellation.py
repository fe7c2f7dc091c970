"""Calls that asyncio cancels at one step and again at each later one, as a timeout inside a
cancelled task does. A shielded scope of anyio does not hold that off: they leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from s3k_async import S3kClient
from s3k_async.bulk import local_tree
from s3k_async.bulk.transfer import download
from s3k_async.migrate import dump
from s3k_async.migrate.dump import dump_volume
from s3k_async.settings import resolve
from s3k_async.txn.txn_record import TRANSACTION_PARTITION
from s3k_async.volumes import init_volume, open_volume
from tests.client.rig import memory_config, paths

LARGE = b"x" * 600

Verb = Callable[[S3kClient, Path], Awaitable[object]]


async def write_failing(fs: S3kClient, _: Path) -> None:
    async with fs.open("/new", "wb") as file:
        await file.write(LARGE)
        raise InterruptedError


async def transact(fs: S3kClient, _: Path) -> None:
    async with fs.transaction() as txn:
        await txn.write("/new", LARGE)
        await txn.rename("/a", "/b")


async def read_all(fs: S3kClient, _: Path) -> None:
    async for _status in fs.list("/", recursive=True, sorted=True):
        pass


async def fill(_: S3kClient, local: Path) -> None:
    async with local_tree.appearing(str(local / "listing")) as descriptor:
        await local_tree.write_piece(descriptor, "listing", LARGE)


VERBS: dict[str, Verb] = {
    "write": lambda fs, _: fs.write("/new", LARGE),
    "overwrite": lambda fs, _: fs.write("/a", LARGE),
    "a writer that fails": write_failing,
    "a transaction": transact,
    "a rename": lambda fs, _: fs.rename("/d", "/e"),
    "get": lambda fs, local: download(fs, "/large", str(local / "copy")),
    "a listing": read_all,
    "dump": lambda fs, local: dump_volume(fs._volume(), str(local / "dump")),
    "a local file": fill,
}


@pytest.fixture(autouse=True)
async def unhandled() -> AsyncIterator[None]:
    """Fails for what asyncio reports as lost."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    yield
    assert not reported


@pytest.mark.parametrize("name", VERBS)
async def test_it_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    steps = 0
    while True:
        config = memory_config()
        await init_volume(config)
        others = asyncio.all_tasks()
        async with S3kClient(config=config) as fs:
            await fs.write("/a", b"old")
            await fs.write_many([("/large", LARGE), *((f"/d/{each}/x", b"x") for each in "abc")])
            task = asyncio.ensure_future(run(VERBS[name], fs, tmp_path))
            for _ in range(steps):
                await asyncio.sleep(0)
            completed = task.done()
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            (error,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(error, asyncio.CancelledError | InterruptedError | None), steps
            volume = fs._volume()
            # A record that is left is free for any client to finish.
            records = (await volume.items.query(TRANSACTION_PARTITION)).items
            assert not any(each["lease"] for each in records), steps
            reserved = await paths(fs, include_uncommitted=True) - await paths(fs)
            assert not reserved, steps
            # What it was writing can be written at once.
            await fs.write("/new", b"again")
        assert asyncio.all_tasks() <= others, steps
        assert not parts(tmp_path), steps
        if completed:
            break
        steps += 1 + steps // 10
    assert steps > 10


async def run(verb: Verb, fs: S3kClient, local: Path) -> None:
    await verb(fs, local)


def parts(directory: Path) -> list[Path]:
    """Local files that are being written."""
    return [each for each in directory.iterdir() if each.suffix == ".part"]


async def test_a_dump_closes_the_file_that_was_being_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, allowed = threading.Event(), threading.Event()
    created: list[BinaryIO] = []
    create = dump._create

    def slow(path: str) -> BinaryIO:
        entered.set()
        assert allowed.wait(60)
        created.append(create(path))
        return created[0]

    monkeypatch.setattr(dump, "_create", slow)
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        task = asyncio.create_task(dump_volume(fs._volume(), str(tmp_path / "dump")))
        assert await asyncio.to_thread(entered.wait, 60)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        allowed.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [file.closed for file in created] == [True]
    assert not parts(tmp_path)


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
async def test_a_close_leaves_nothing_open(engine: str, tmp_path: Path) -> None:
    """Neither files, which for RocksDB lock the volume, nor threads."""
    place = f"rocksdb://{tmp_path}/v"
    config = (
        resolve(str(tmp_path / "v"))
        if engine == "sqlite"
        else resolve(table=place, data_location=place)
    )
    await init_volume(config)
    threads = {*threading.enumerate()}
    for steps in range(1, 9):
        volume = await open_volume(config)
        await volume.blobs.put(f"key-{steps}", b"data")
        task = asyncio.create_task(volume.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(task, return_exceptions=True)
        assert not open_files(tmp_path), steps
        left = {*threading.enumerate()} - threads
        assert not [each for each in left if each.name.startswith("s3k-")], steps


def open_files(directory: Path) -> list[str]:
    """The files below a directory that this process has open."""
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [each for each in targets if each.startswith(f"{directory}/")]
