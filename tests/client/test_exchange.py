"""Two entries that change places."""

from __future__ import annotations

import asyncio

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import (
    InvalidArgumentError,
    PathNotFoundError,
    RenameIntoSelfError,
    S3kError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.model import ChangeResult, LayoutName
from tests.client.transacting import both_ways, contents, problems, two_clients
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded", "dynoxide+seaweedfs", "dynoxide+moto")

TREE = {
    "/d": None,
    "/d/f": b"one",
    "/d/x": None,
    "/d/x/y": None,
    "/d/x/y/g": b"two",
    "/e": None,
    "/e/h": b"three",
    "/k": None,
}


async def plant(fs: S3kClient) -> None:
    for path, data in TREE.items():
        await (fs.makedirs(path) if data is None else fs.write(path, data))


@backends
@both_ways
async def test_files_change_places(fs: S3kClient) -> None:
    await plant(fs)
    one, other = await fs.stat("/d/f"), await fs.stat("/e/h")
    assert await fs.exchange("/d/f", "/e/h") == ChangeResult(files=2, bytes=8)
    assert await contents(fs) == {**TREE, "/d/f": b"three", "/e/h": b"one"}
    for path, was in (("/e/h", one), ("/d/f", other)):
        now = await fs.stat(path)
        assert (now.id, now.version) == (was.id, was.version + 1)
        assert (now.size, now.modified, now.etag) == (was.size, was.modified, was.etag)
        assert await fs.checksum(path) == was.checksum
    await fs.exchange("/e/h", "/d/f")
    assert await contents(fs) == TREE
    assert await problems(fs) == []


@backends
async def test_directories_change_places_with_all_below_them(
    fs: S3kClient, layout: LayoutName
) -> None:
    await plant(fs)
    if layout == "path":
        for pair in (("/d/x", "/e"), ("/d/f", "/e")):
            with pytest.raises(UnsupportedError, match="layout `tree`"):
                await fs.exchange(*pair)
        assert await contents(fs) == TREE
        return
    assert [each.path async for each in fs.list("/d/x/y")] == ["/d/x/y/g"]
    assert await fs.exchange("/d/x", "/e") == ChangeResult(directories=2)
    moved = {
        "/d": None,
        "/d/f": b"one",
        "/d/x": None,
        "/d/x/h": b"three",
        "/e": None,
        "/e/y": None,
        "/e/y/g": b"two",
        "/k": None,
    }
    assert await contents(fs) == moved
    await fs.write("/e/y/new", b"four")
    await fs.write("/d/x/new", b"five")
    assert await fs.exchange("/d/x", "/e") == ChangeResult(directories=2)
    assert await contents(fs) == {**TREE, "/d/x/y/new": b"four", "/e/new": b"five"}
    assert await problems(fs) == []


@pytest.mark.layouts("tree")
@backends
async def test_a_file_and_a_directory_change_places(fs: S3kClient) -> None:
    await plant(fs)
    assert await fs.read("/d/x/y/g") == b"two"
    assert await fs.exchange("/d/x", "/e/h") == ChangeResult(1, 1, 5)
    assert await fs.read("/d/x") == b"three"
    assert await fs.read("/e/h/y/g") == b"two"
    with pytest.raises(S3kError):
        await fs.read("/d/x/y/g")
    await fs.write("/e/h/y/new", b"four")
    await fs.exchange("/d/x", "/e/h")
    assert await contents(fs) == {**TREE, "/d/x/y/new": b"four"}
    assert await problems(fs) == []


@backends
async def test_what_is_refused_changes_nothing(fs: S3kClient) -> None:
    await plant(fs)
    writer = await fs.open("/new", "xb")
    refused: dict[tuple[str, str], type[S3kError]] = {
        ("/d/f", "/none"): PathNotFoundError,
        ("/none", "/d/f"): PathNotFoundError,
        ("/none", "/none"): PathNotFoundError,
        ("/d", "/d/x"): RenameIntoSelfError,
        ("/d/x/y", "/d/x"): RenameIntoSelfError,
        ("/", "/d"): RenameIntoSelfError,
        ("/new", "/d/f"): UncommittedFileError,
    }
    for pair, error in refused.items():
        with pytest.raises(error):
            await fs.exchange(*pair)
    for path in ("/d/f", "/d", "/"):
        assert await fs.exchange(path, path) == ChangeResult()
    await writer.discard()
    assert await contents(fs) == TREE
    assert await problems(fs) == []


@both_ways
async def test_with_other_changes_of_a_transaction(layout: LayoutName) -> None:
    async with two_clients(layout) as (fs, other):
        await plant(fs)
        async with fs.transaction() as tx:
            await tx.exchange("/d/f", "/e/h")
            await tx.rename("/d/x/y/g", "/k/g")
            await tx.write("/n/new", b"four")
            for pair in (("/d/f", "/k"), ("/d/x", "/k/g"), ("/d", "/k")):
                with pytest.raises(InvalidArgumentError):
                    await tx.exchange(*pair)
            await tx.exchange("/none", "/none")
            with pytest.raises(RenameIntoSelfError):
                await tx.exchange("/d/x", "/d")
            # What is there at the commit changes places.
            await other.write("/d/f", b"newer")
            assert await contents(fs) == {**TREE, "/d/f": b"newer"}
        expected = {**TREE, "/d/f": b"three", "/e/h": b"newer", "/k/g": b"two"}
        del expected["/d/x/y/g"]
        assert await contents(other) == {**expected, "/n": None, "/n/new": b"four"}
        assert await problems(fs) == []


async def test_a_transaction_that_exchanges_what_is_gone_changes_nothing(
    layout: LayoutName,
) -> None:
    async with two_clients(layout) as (fs, other):
        await plant(fs)
        tx = fs.transaction()
        await tx.write("/d/new", b"new")
        await tx.exchange("/d/f", "/e/h")
        await other.delete("/e/h")
        with pytest.raises(PathNotFoundError):
            await tx.commit()
        expected = {path: data for path, data in TREE.items() if path != "/e/h"}
        assert await contents(fs) == expected
        assert await problems(fs) == []


@backends
async def test_at_any_time_one_of_the_two_is_at_each_path(
    fs: S3kClient, layout: LayoutName
) -> None:
    await plant(fs)
    pair = ("/d/f", "/e/h") if layout == "path" else ("/d/x", "/e")
    ids = {(await fs.stat(path)).id for path in pair}
    over = asyncio.Event()

    async def look() -> int:
        looks = 0
        while not over.is_set():
            first, second = await fs.stat_many(pair)
            assert first is not None
            assert second is not None
            assert {first.id, second.id} <= ids
            looks += 1
            await asyncio.sleep(0)
        return looks

    looking = [asyncio.create_task(look()) for _ in range(2)]
    for _ in range(20):
        await fs.exchange(*pair)
    over.set()
    assert min([await each for each in looking]) > 0
    assert await contents(fs) == TREE


async def test_of_many_exchanges_at_once_each_happens_once(layout: LayoutName) -> None:
    async with two_clients(layout) as both:
        fs, _ = both
        await plant(fs)
        paths = ["/d/f", "/d/x/y/g", "/e/h"]
        pairs = [(paths[n % 3], paths[(n + 1) % 3]) for n in range(12)]
        await asyncio.gather(
            *(both[number % 2].exchange(*pair) for number, pair in enumerate(pairs))
        )
        found = await contents(fs)
        assert sorted(found[path] or b"" for path in paths) == [b"one", b"three", b"two"]
        versions = [(await fs.stat(path)).version for path in paths]
        assert sum(versions) == 3 * 2 + 2 * len(pairs)
        assert await problems(fs) == []
