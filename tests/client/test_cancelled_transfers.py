"""Transfers of local files that are cancelled while a worker thread reads or writes: the file stays
open for the thread, so that it never uses the descriptor of another file."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from anyio import to_thread

from s3k_async import S3kClient
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.bulk import local_tree
from s3k_async.bulk.transfer import download, upload
from s3k_async.config import Tuning
from s3k_async.objects import ObjectStore
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config

CONTENT = os.urandom(9 * 1024 * 1024)
"""More than is transferred at once."""

Transfer = Callable[[S3kClient, str], Awaitable[object]]


@pytest.fixture
async def fs() -> AsyncIterator[S3kClient]:
    config = memory_config(Tuning(part_size=1024 * 1024))
    await init_volume(config)
    async with S3kClient(config=config) as client:
        await client.write("/b/k", CONTENT)
        yield client


async def put_file(client: S3kClient, local: str) -> None:
    fs = S3kFileSystem(config=client.config, asynchronous=True, skip_instance_cache=True)
    await fs._put_file(local, "/b/new")


async def get_file(client: S3kClient, local: str) -> None:
    fs = S3kFileSystem(config=client.config, asynchronous=True, skip_instance_cache=True)
    await fs._get_file("/b/k", local)


READS: dict[str, Transfer] = {
    "create_from_file": lambda fs, local: ObjectStore(fs).create_from_file("b", "new", local),
    "put": lambda fs, local: upload(fs, fs._volume(), local, "/b/new"),
    "put_file": put_file,
}
WRITES: dict[str, Transfer] = {
    "read_to_file": lambda fs, local: ObjectStore(fs).read_to_file("b", "k", local),
    "get": lambda fs, local: download(fs, "/b/k", local),
    "get_file": get_file,
}


class HeldCall:
    """A call of a blocking function on a descriptor that is held until `released`, and notes
    whether the descriptor is that of the same file by then."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.began = threading.Event()
        self.released = threading.Event()
        self.ended = threading.Event()
        self.is_same = False
        self._function = function

    def __call__(self, descriptor: int, path: str, *more: object) -> object:
        before = os.fstat(descriptor)
        self.began.set()
        self.released.wait(30)
        try:
            self.is_same = os.path.samestat(before, os.fstat(descriptor))
            return self._function(descriptor, path, *more)
        finally:
            self.ended.set()

    async def cancel(self, task: asyncio.Task[object]) -> None:
        """Cancel a task while the function runs, and wait for both."""
        await to_thread.run_sync(self.began.wait, 30)
        task.cancel()
        for _ in range(100):
            await asyncio.sleep(0)
        self.released.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await to_thread.run_sync(self.ended.wait, 30)


def on_disk(place: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in place.iterdir()}


async def run(transfer: Transfer, fs: S3kClient, local: Path) -> None:
    await transfer(fs, str(local))


@pytest.mark.parametrize("name", sorted((READS | WRITES).keys() - {"put"}))
async def test_a_file_that_was_opened_meanwhile_is_closed(
    name: str, fs: S3kClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "f"
    local.write_bytes(b"before")
    opened: list[int] = []
    began, released = threading.Event(), threading.Event()
    really_open = os.open

    def held(path: str, *more: int) -> int:
        if os.path.dirname(str(path)) != str(tmp_path):
            return really_open(path, *more)
        began.set()
        released.wait(30)
        opened.append(really_open(path, *more))
        return opened[-1]

    monkeypatch.setattr(os, "open", held)
    transfer = (READS | WRITES)[name]
    task = asyncio.ensure_future(run(transfer, fs, local))
    await to_thread.run_sync(began.wait, 30)
    task.cancel()
    for _ in range(100):
        await asyncio.sleep(0)
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    (descriptor,) = opened
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert on_disk(tmp_path) == {"f": b"before"}


@pytest.mark.parametrize("name", READS)
async def test_a_file_is_open_while_it_is_read(
    name: str, fs: S3kClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "f"
    local.write_bytes(CONTENT)
    held = HeldCall(local_tree.read)
    monkeypatch.setattr(local_tree, "read", held)
    await held.cancel(asyncio.ensure_future(run(READS[name], fs, local)))
    assert held.is_same
    assert not await fs.exists("/b/new")


@pytest.mark.parametrize("name", WRITES)
async def test_a_file_is_open_while_it_is_written(
    name: str, fs: S3kClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldCall(local_tree.write)
    monkeypatch.setattr(local_tree, "write", held)
    await held.cancel(asyncio.ensure_future(run(WRITES[name], fs, tmp_path / "f")))
    assert held.is_same
    assert on_disk(tmp_path) == {}
