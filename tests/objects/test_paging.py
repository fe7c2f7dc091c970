"""Pages of objects: their order, their tokens, and what they cost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async._native import Entries
from s3k_async.backends.memory import memory_items
from s3k_async.backends.sqlite import sqlite_items
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    NameTooLongError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.model import LayoutName
from s3k_async.namespace.consistent_listing import SnapshotView
from s3k_async.objects import ObjectPage, ObjectStore
from s3k_async.table.keys import Directory
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

everywhere = volume_backends("memory", "embedded", "dynoxide+seaweedfs")

KEYS = [
    "a",
    "a!/b",
    "a-",
    "a.b/c",
    "ab",
    "b/a",
    "b/a!",
    "b/b/c/d",
    "b/b/c/e",
    "b/bb",
    "b/é",
    "c",
    "c0/x",
    "z\u0301",
    "é/😀",
    "\uffff",
    "😀",
    *(f"many/{number:02}" for number in range(23)),
    *(f"n/{number}/x" for number in range(12)),
]
PLACES = [*KEYS, "0", "a!", "b", "b/a!/x", "b/b", "b/b/c", "b/b/c/da", "b/c/zz", "many/05a", "zz/z"]
"""Where a page may begin: at objects, at directories, and where nothing is."""
PREFIXES = ["", "a", "a.", "a.b", "a.b/", "b", "b/", "b/b", "b/b/", "b/b/c/", "b/b/c/d", "many/1"]
PREFIXES += ["n", "n/1", "z", "é", "é/", "none", "none/", "b/none/x", "c/", "a/b", ".", "..", "n/."]


def in_order(keys: Sequence[str]) -> list[str]:
    return sorted(keys, key=parts)


def parts(key: str) -> list[bytes]:
    return [each.encode() for each in key.split("/")]


def expected(prefix: str, after: str) -> list[str]:
    return [
        key
        for key in in_order(KEYS)
        if key.startswith(prefix) and (not after or parts(key) > parts(after))
    ]


def keys_of(page: ObjectPage) -> list[str]:
    return [each.key for each in page.objects]


async def all_pages(objects: ObjectStore, prefix: str, limit: int, after: str = "") -> list[str]:
    found: list[str] = []
    token: str | None = after
    while token is not None:
        page = await objects.list("b", prefix, after=token, limit=limit)
        assert len(page.objects) <= limit
        found += keys_of(page)
        if page.token is not None:
            assert (len(page.objects), page.token) == (limit, page.objects[-1].key)
        token = page.token
    return found


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (memory_items, sqlite_items):
        monkeypatch.setattr(module, "_PAGE", 3)


async def plant(fs: S3kClient) -> None:
    written = await fs.write_many([(f"/b/{key}", key.encode()) for key in KEYS])
    assert not written.failures
    await fs.makedirs("/b/b/c/empty/er")
    await fs.makedirs("/b/d")


@everywhere
@pytest.mark.usefixtures("small_pages")
async def test_pages_hold_everything_once_in_order(objects: ObjectStore, fs: S3kClient) -> None:
    await plant(fs)
    async with fs.open("/b/many/05a", "xb"):
        for prefix in PREFIXES:
            wanted = expected(prefix, "")
            assert [each.key async for each in objects.iterate("b", prefix)] == wanted
            for limit in (1, 4, 1000):
                if limit > 1 or len(wanted) < 10:
                    assert await all_pages(objects, prefix, limit) == wanted
        assert await all_pages(objects, "", 7) == in_order(KEYS)


@everywhere
@pytest.mark.usefixtures("small_pages")
async def test_a_page_begins_after_any_key(objects: ObjectStore, fs: S3kClient) -> None:
    await plant(fs)
    for after in PLACES:
        assert keys_of(await objects.list("b", after=after)) == expected("", after)
    for after, prefix in itertools.product(PLACES[::3], PREFIXES[::2]):
        assert keys_of(await objects.list("b", prefix, after=after)) == expected(prefix, after)
        page = await objects.list("b", prefix, after=after, limit=2)
        assert keys_of(page) == expected(prefix, after)[:2]


NAMES = st.text("a!b", min_size=1, max_size=2)
A_KEY = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@pytest.mark.parametrize("kind", ["path", "tree"])
@given(
    st.sets(A_KEY, max_size=12),
    st.lists(st.tuples(st.text("ab!/", max_size=4), A_KEY | st.just("")), max_size=8),
    st.integers(1, 4),
)
def test_any_page_of_any_tree(
    kind: LayoutName, keys: set[str], asked: list[tuple[str, str]], limit: int
) -> None:
    keys = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}

    async def run() -> None:
        config = memory_config(layout=kind)
        await init_volume(config=config)
        async with S3kClient(config=config) as fs:
            await fs.makedirs("/b")
            await fs.write_many([(f"/b/{key}", b"") for key in keys])
            objects = ObjectStore(fs)
            for prefix, after in asked:
                if prefix.startswith("/") or "//" in prefix:
                    continue
                wanted = [
                    key
                    for key in in_order([*keys])
                    if key.startswith(prefix) and (not after or parts(key) > parts(after))
                ]
                page = await objects.list("b", prefix, after=after, limit=limit)
                assert keys_of(page) == wanted[:limit]
                assert (page.token is None) == (len(wanted) <= limit)

    asyncio.run(run())


@everywhere
async def test_a_token_survives_changes_around_it(objects: ObjectStore, fs: S3kClient) -> None:
    for key in ("b", "d/x", "f", "h/x", "j"):
        await objects.create("b", key, b"")
    page = await objects.list("b", limit=3)
    assert keys_of(page) == ["b", "d/x", "f"]
    assert page.token == "f"
    for key in ("a", "d/y", "e", "g", "k"):
        await objects.create("b", key, b"")
    await objects.delete("b", "f")
    await objects.delete("b", "h/x")
    await objects.create("b", "f/below", b"")
    assert await all_pages(objects, "", 1, page.token) == ["f/below", "g", "j", "k"]
    await objects.purge_bucket("b")
    assert await all_pages(objects, "", 2, page.token) == []


@everywhere
async def test_objects_that_stay_are_listed_once(objects: ObjectStore, fs: S3kClient) -> None:
    stay = [f"{number % 4}/stays-{number:02}" for number in range(16)]
    goes = [f"{number % 4}/goes-{number:02}" for number in range(16)]
    await fs.write_many([(f"/b/{key}", b"") for key in (*stay, *goes)])
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = await objects.list("b", after=token, limit=3)
        found += keys_of(page)
        token = page.token
        if goes:
            await objects.delete("b", goes.pop())
            await objects.create("b", f"{len(goes) % 4}/comes-{len(goes):02}", b"")
    assert [key for key in found if "stays" in key] == in_order(stay)
    assert len(found) == len(set(found))


@everywhere
async def test_an_empty_bucket_has_an_empty_page(objects: ObjectStore) -> None:
    for prefix in ("", "a", "a/b"):
        assert await objects.list("b", prefix) == ObjectPage((), None)
    assert [each async for each in objects.iterate("b")] == []


@everywhere
async def test_what_cannot_be_listed(objects: ObjectStore, fs: S3kClient) -> None:
    await fs.write("/file", b"")
    for bucket in ("none", "file"):
        with pytest.raises(PathNotFoundError):
            await objects.list(bucket)
        with pytest.raises(PathNotFoundError):
            await anext(objects.iterate(bucket))
    for prefix in ("/", "/a", "a//b", "../a", "a/./b", "\0"):
        with pytest.raises(InvalidArgumentError):
            await objects.list("b", prefix)
    limits: list[tuple[Any, type[S3kError]]] = [
        (0, InvalidArgumentError),
        (-1, InvalidArgumentError),
        (True, ArgumentTypeError),
        (1.0, ArgumentTypeError),
        (None, ArgumentTypeError),
    ]
    for limit, error in limits:
        with pytest.raises(error):
            await objects.list("b", limit=limit)
    with pytest.raises(InvalidArgumentError):
        await objects.list("b", after="a//b")
    with pytest.raises(NameTooLongError):
        await objects.list("b", "x" * 1025)


async def queries(faults: FaultPlan, objects: ObjectStore, prefix: str, after: str) -> list[str]:
    """The partitions that one page asks for."""
    faults.calls.clear()
    assert len((await objects.list("b", prefix, after=after, limit=5)).objects) == 5
    return [call.key for call in faults.calls if call.method == "query"]


@pytest.fixture
def one_suffix(layout: LayoutName) -> VolumeConfig:
    config = memory_config(layout=layout)
    return VolumeConfig(
        config.name,
        config.table,
        config.data,
        tuning=config.tuning,
        layout=layout,
        suffix_count=1,
    )


async def test_a_page_costs_what_it_shows(
    one_suffix: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page, one far behind it in a long directory, and one far behind it in a long row of
    directories: none costs a listing of what precedes it."""
    monkeypatch.setattr(memory_items, "_PAGE", 3)
    await init_volume(one_suffix)
    faults = FaultPlan()
    async with faulty_client(faults, one_suffix) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        await fs.write_many([(f"/b/{number:03}", b"") for number in range(300)])
        await fs.write_many([(f"/b/d{number:02}/x", b"") for number in range(60)])
        long = len(await queries(faults, objects, "", ""))
        assert 1 <= long <= 6
        assert len(await queries(faults, objects, "", "250")) <= long
        assert len(await queries(faults, objects, "2", "")) <= long
        assert len(await queries(faults, objects, "2", "270")) <= long
        # One directory is read for each object, and none of those before.
        first = await queries(faults, objects, "", "299")
        for after, prefix in (("d50/x", ""), ("d50", ""), ("d50/x", "d5")):
            assert len(await queries(faults, objects, prefix, after)) <= len(first) + 2


async def test_a_prefix_narrows_the_directory(one_suffix: VolumeConfig) -> None:
    await init_volume(one_suffix)
    faults = FaultPlan()
    async with faulty_client(faults, one_suffix) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        await fs.write_many(
            [(f"/b/{number:03}/{inner}", b"") for number in range(40) for inner in "abcdef"]
        )
        faults.calls.clear()
        page = await objects.list("b", "021/")
        assert keys_of(page) == [f"021/{inner}" for inner in "abcdef"]
        assert sum(call.method == "query" for call in faults.calls) == 1


async def test_a_page_shows_a_transaction_as_a_whole(
    one_suffix: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that is committed between two reads of a page."""
    await init_volume(one_suffix)
    async with S3kClient(config=one_suffix) as fs, S3kClient(config=one_suffix) as other:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        await objects.create("b", "x/one", b"1")
        await objects.create("b", "y/two", b"22")
        committed = asyncio.Event()
        read = SnapshotView.children_in_order

        async def children(
            view: SnapshotView, directory: Directory, *, after: str = "", rows: int | None = None
        ) -> AsyncGenerator[Entries, None]:
            async for page in read(view, directory, after=after, rows=rows):
                yield page
            if directory.path == "/b/x" and not committed.is_set():
                committed.set()
                async with other.transaction() as tx:
                    await tx.delete("/b/x/one")
                    await tx.write("/b/y/three", b"")

        monkeypatch.setattr(SnapshotView, "children_in_order", children)
        page = await objects.list("b")
        assert committed.is_set()
        assert keys_of(page) == ["y/three", "y/two"]
