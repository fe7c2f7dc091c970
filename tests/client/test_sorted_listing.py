"""Listings in order, against the same listings sorted afterwards."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.backends.memory import memory_items
from s3k_async.backends.sqlite import sqlite_items
from s3k_async.client import S3kClient
from s3k_async.errors import PathNotFoundError
from s3k_async.model import FileStatus
from s3k_async.namespace import entry_reader
from tests.engines.volumes import volume_backends

NAMES = [
    "a",
    "a-",
    "a.b",
    "a!",
    "b",
    "B",
    "é",
    "z\u0301",
    "\uffff",
    "😀",
    "10",
    "9",
    *(f"n{n:02}" for n in range(40)),
]
DIRECTORIES = ["/a/b", "/a/b!", "/a/é", "/a.b/c", "/empty"]

pytestmark = volume_backends("memory", "embedded", "dynoxide+seaweedfs", "dynoxide+moto")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (memory_items, sqlite_items):
        monkeypatch.setattr(module, "_PAGE", 3)
    monkeypatch.setattr(entry_reader, "WHOLE_PAGES", 1)
    monkeypatch.setattr(entry_reader, "ORDERED_ROWS", 20)


async def plant(fs: S3kClient) -> None:
    for path in DIRECTORIES:
        await fs.makedirs(path)
    for directory in ("/a/b", "/a/b!", "/a.b"):
        written = await fs.write_many([(f"{directory}/{name}", b"x") for name in NAMES])
        assert not written.failures


def _key(status: FileStatus) -> list[bytes]:
    return [name.encode() for name in status.path.split("/")]


async def test_sorted_is_the_same_in_order(fs: S3kClient) -> None:
    await plant(fs)
    options: list[dict[str, Any]] = [
        {},
        {"recursive": True},
        {"recursive": True, "include_uncommitted": True},
    ]
    async with fs.open("/a/b/coming", "xb"):
        for path, option in itertools.product(("/", "/a", "/a/b", "/empty", "/a/b/n07"), options):
            wanted = sorted([status async for status in fs.list(path, **option)], key=_key)
            assert [status async for status in fs.list(path, sorted=True, **option)] == wanted
            batches = [batch async for batch in fs.list_batches(path, sorted=True, **option)]
            paths = [row for batch in batches for row in batch.column("path").to_pylist()]
            assert paths == [status.path for status in wanted]
    with pytest.raises(PathNotFoundError):
        await anext(fs.list("/none", sorted=True))


async def test_a_sorted_listing_may_be_left(fs: S3kClient) -> None:
    await plant(fs)
    listing: Any = fs.list("/", recursive=True, sorted=True)
    first = [await anext(listing) for _ in range(5)]
    await listing.aclose()
    assert [status.path for status in first] == ["/a", "/a/b", "/a/b/10", "/a/b/9", "/a/b/B"]


def test_the_blocking_client_sorts_too(sync_fs: S3kSyncClient) -> None:
    for name in reversed(NAMES):
        sync_fs.write(f"/d/{name}", b"")
    wanted = sorted(NAMES, key=str.encode)
    assert [status.name for status in sync_fs.list("/d", sorted=True)] == wanted
    table = pa.Table.from_batches(sync_fs.list_batches("/d", sorted=True))
    assert table.column("path").to_pylist() == [f"/d/{name}" for name in wanted]
