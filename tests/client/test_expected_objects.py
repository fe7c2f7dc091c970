"""What a plan means, and nothing that came to its path meanwhile, is renamed or deleted: whenever
that happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async.bulk.expected_objects import Errors, ExpectedObject, delete_expected, rename_expected
from s3k_async.errors import (
    ConflictError,
    DirectoryNotEmptyError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.transaction import Transaction
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

everywhere = volume_backends("embedded", "dynoxide+seaweedfs")

FILES = [f"/in/{number}" for number in range(5)]
EMPTY, FULL = "/empty", "/full"

Change = Callable[[], Awaitable[object]]


@pytest.fixture
async def fs(new_volume: VolumeMaker) -> AsyncIterator[S3kClient]:
    config = new_volume()
    await init_volume(config)
    async with S3kClient(config=config) as client:
        await client.write_many([(path, path.encode()) for path in [*FILES, f"{FULL}/a"]])
        await client.makedirs(EMPTY)
        await client.makedirs("/out")
        yield client


async def meant(
    fs: S3kClient, paths: Iterable[str], *, version: bool = True
) -> list[ExpectedObject]:
    found = [await fs.stat(path) for path in paths]
    return [
        ExpectedObject(each.path, each.id, each.version if version and each.is_file else None)
        for each in found
    ]


def kinds(errors: Errors) -> dict[str, type[S3kError]]:
    return {path: type(error) for path, error in errors.items()}


def once_after(monkeypatch: pytest.MonkeyPatch, holder: Any, name: str, change: Change) -> None:
    """Make a change right after the first call of a method."""
    original = getattr(holder, name)
    left = [change]

    async def patched(*arguments: Any, **options: Any) -> Any:
        found = await original(*arguments, **options)
        if left:
            await left.pop()()
        return found

    monkeypatch.setattr(holder, name, patched)


async def replace(fs: S3kClient, path: str) -> None:
    """Put another object at a path."""
    await fs.delete(path, recursive=True)
    await fs.write(path, b"another")


async def replace_directory(fs: S3kClient, path: str) -> None:
    await fs.delete(path, recursive=True)
    await fs.write(f"{path}/another", b"another")


@everywhere
async def test_what_is_meant_is_deleted(fs: S3kClient) -> None:
    wanted = await meant(fs, [*FILES, EMPTY])
    await replace(fs, FILES[0])
    await fs.write(FILES[1], b"the next version")
    await fs.delete(FILES[2])
    assert kinds(await delete_expected(fs, wanted, recursive=False)) == {
        FILES[0]: ConflictError,
        FILES[1]: ConflictError,
        FILES[2]: PathNotFoundError,
    }
    assert [await fs.exists(path) for path in (*FILES, EMPTY)] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    [full] = await meant(fs, [FULL])
    assert kinds(await delete_expected(fs, [full], recursive=False)) == {
        FULL: DirectoryNotEmptyError
    }
    assert await delete_expected(fs, [full], recursive=True) == {}
    assert not await fs.exists(FULL)


@everywhere
async def test_what_comes_after_the_look_is_not_deleted(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = await meant(fs, FILES)

    async def meanwhile() -> None:
        await replace(fs, FILES[0])
        await fs.write(FILES[1], b"the next version")
        await fs.delete(FILES[2])

    once_after(monkeypatch, fs._volume().store, "get_each", meanwhile)
    assert kinds(await delete_expected(fs, wanted, recursive=False)) == {
        FILES[0]: ConflictError,
        FILES[1]: ConflictError,
        FILES[2]: PathNotFoundError,
    }
    assert [await fs.exists(path) for path in FILES] == [True, True, False, False, False]


@everywhere
@pytest.mark.parametrize("verb", ["look", "delete"])
async def test_what_comes_in_the_place_of_a_directory_is_not_deleted(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    wanted = await meant(fs, [FULL])
    holder, name = (fs._volume().store, "get_each") if verb == "look" else (Transaction, verb)
    once_after(monkeypatch, holder, name, lambda: replace_directory(fs, FULL))
    assert kinds(await delete_expected(fs, wanted, recursive=True)) == {FULL: ConflictError}
    assert await fs.read(f"{FULL}/another") == b"another"


@everywhere
async def test_what_is_meant_is_moved_whatever_its_version(fs: S3kClient) -> None:
    wanted = await meant(fs, [*FILES, FULL], version=False)
    await replace(fs, FILES[0])
    await fs.write(FILES[1], b"the next version")
    await fs.delete(FILES[2])
    await fs.write("/out/3", b"taken")
    pairs = [(each, f"/out/{each.path.rpartition('/')[2]}") for each in wanted]
    assert kinds(await rename_expected(fs, pairs, overwrite=False)) == {
        FILES[0]: ConflictError,
        FILES[2]: PathNotFoundError,
        FILES[3]: PathExistsError,
    }
    assert await fs.read("/out/1") == b"the next version"
    assert await fs.read("/out/3") == b"taken"
    assert await fs.read("/out/full/a") == b"/full/a"
    assert await rename_expected(fs, pairs[3:4], overwrite=True) == {}
    assert await fs.read("/out/3") == b"/in/3"
    assert [await fs.exists(path) for path in (*FILES, FULL)] == [
        True,
        False,
        False,
        False,
        False,
        False,
    ]


@everywhere
async def test_what_comes_after_the_look_is_not_moved(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = await meant(fs, FILES, version=False)

    async def meanwhile() -> None:
        await replace(fs, FILES[0])
        await fs.write(FILES[1], b"the next version")
        await fs.delete(FILES[2])

    once_after(monkeypatch, fs._volume().store, "get_each", meanwhile)
    pairs = [(each, f"/out/{each.path.rpartition('/')[2]}") for each in wanted]
    assert kinds(await rename_expected(fs, pairs, overwrite=False)) == {
        FILES[0]: ConflictError,
        FILES[2]: PathNotFoundError,
    }
    assert await fs.read(FILES[0]) == b"another"
    assert sorted([each.path async for each in fs.list("/out")]) == ["/out/1", "/out/3", "/out/4"]
    assert await fs.read("/out/1") == b"the next version"


@everywhere
@pytest.mark.parametrize("verb", ["look", "rename"])
async def test_what_comes_in_the_place_of_a_directory_is_not_moved(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    wanted = await meant(fs, [FULL])
    holder, name = (fs._volume().store, "get_each") if verb == "look" else (Transaction, verb)
    once_after(monkeypatch, holder, name, lambda: replace_directory(fs, FULL))
    assert kinds(await rename_expected(fs, [(wanted[0], "/out/x")], overwrite=False)) == {
        FULL: ConflictError
    }
    assert await fs.read(f"{FULL}/another") == b"another"
    assert not await fs.exists("/out/x")
