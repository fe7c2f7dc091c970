"""Directories that move and go in transactions, with all that they hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import (
    BusyError,
    ConflictError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    UncommittedFileError,
)
from s3k_async.model import ChangeResult, LayoutName
from s3k_async.transaction import Transaction
from tests.client.transacting import (
    both_ways,
    contents,
    delete,
    makedirs,
    move_from,
    problems,
    refused_at_the_end,
    transaction_items,
    two_clients,
    write,
)
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded", "dynoxide+seaweedfs", "dynoxide+moto")

TREE = {
    "/d": None,
    "/d/f": b"one",
    "/d/x": None,
    "/d/x/g": b"two",
    "/d/x/y": None,
    "/e": None,
    "/e/h": b"three",
    "/e/z": None,
    "/k": None,
}


async def plant(fs: S3kClient) -> None:
    for path, data in TREE.items():
        await (fs.makedirs(path) if data is None else fs.write(path, data))


@backends
@both_ways
async def test_directories_move_and_go_with_the_files(fs: S3kClient, layout: LayoutName) -> None:
    await plant(fs)
    old, above = await fs.stat("/d/x/g"), await fs.stat("/d/x")
    async with fs.transaction() as tx:
        await tx.rename("/d/x", "/n/m/x")
        await tx.makedirs("/n/m")
        await tx.delete("/e", recursive=True)
        await tx.delete("/k")
        await tx.write("/d/f", b"new")
        assert await contents(fs) == TREE
    assert await contents(fs) == {
        "/d": None,
        "/d/f": b"new",
        "/n": None,
        "/n/m": None,
        "/n/m/x": None,
        "/n/m/x/g": b"two",
        "/n/m/x/y": None,
    }
    moved, directory = await fs.stat("/n/m/x/g"), await fs.stat("/n/m/x")
    assert (directory.id, directory.version) == (above.id, above.version + 1)
    if layout == "path":
        assert tx.result == ChangeResult(3, 7, 3 + 3 + 5)
        assert (moved.id, moved.version) == (old.id, old.version + 1)
    else:
        # Entries below a directory are neither counted nor changed.
        assert tx.result == ChangeResult(1, 5, 3)
        assert (moved.id, moved.version) == (old.id, old.version)
    assert await fs.transactions() == []
    assert [item async for item in transaction_items(fs)] == []
    assert await problems(fs) == []


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((move_from, "/d"), (write, "/d/n")),
        ((move_from, "/d"), (makedirs, "/d/n")),
        ((move_from, "/d"), (delete, "/d/x")),
        ((move_from, "/d"), (write, "/e/zz/n")),
        ((write, "/d/n"), (move_from, "/d")),
        ((makedirs, "/d/n"), (delete, "/d")),
        ((delete, "/d/x"), (move_from, "/d")),
    ],
)
async def test_nothing_else_is_on_what_a_directory_holds(
    first: tuple[Callable[[Transaction, str], Awaitable[None]], str],
    then: tuple[Callable[[Transaction, str], Awaitable[None]], str],
    layout: LayoutName,
) -> None:
    async with two_clients(layout) as (fs, _):
        await plant(fs)
        tx = fs.transaction()
        await first[0](tx, first[1])
        with pytest.raises(InvalidArgumentError):
            await then[0](tx, then[1])
        await tx.discard()
        assert await contents(fs) == TREE


async def filled(fs: S3kClient) -> None:
    await fs.write("/k/n", b"")


async def being_written(fs: S3kClient) -> None:
    await fs.open("/d/x/new", "wb")


async def removed(fs: S3kClient) -> None:
    await fs.delete("/d", recursive=True)


@pytest.mark.parametrize(
    ("verb", "meanwhile", "error"),
    [
        (lambda tx: tx.delete("/k"), filled, DirectoryNotEmptyError),
        (lambda tx: tx.delete("/d"), filled, DirectoryNotEmptyError),
        (lambda tx: tx.rename("/d", "/e/d"), removed, PathNotFoundError),
        (lambda tx: tx.rename("/k", "/n"), lambda fs: fs.makedirs("/n"), PathExistsError),
        (lambda tx: tx.rename("/k", "/e/h", overwrite=True), filled, PathExistsError),
        (lambda tx: tx.rename("/k", "/nowhere/k"), filled, PathNotFoundError),
        (lambda tx: tx.delete("/d", recursive=True), removed, PathNotFoundError),
    ],
)
async def test_a_directory_that_cannot_move_or_go_refuses_all_of_it(
    verb: Callable[[Transaction], Awaitable[None]],
    meanwhile: Callable[[S3kClient], Awaitable[object]],
    error: type[S3kError],
    layout: LayoutName,
) -> None:
    await refused_at_the_end(verb, meanwhile, error, layout, plant)


@pytest.mark.layouts("path")
async def test_a_directory_with_a_file_that_is_being_written_cannot_move(
    layout: LayoutName,
) -> None:
    """In layout `tree` the file moves with it."""
    await refused_at_the_end(
        lambda tx: tx.rename("/d", "/e/d"), being_written, UncommittedFileError, layout, plant
    )


async def test_two_transactions_that_move_directories_into_each_other_never_detach_anything(
    layout: LayoutName,
) -> None:
    async with two_clients(layout) as (fs, other):
        for path in ("/a/x", "/b/x"):
            await fs.write(f"{path}/f", path.encode())

        async def move(client: S3kClient, source: str, target: str) -> None:
            try:
                async with client.transaction() as tx:
                    await tx.rename(source, target)
                    await tx.write(f"/by{source.replace('/', '-')}", b"")
            except (PathNotFoundError, BusyError, ConflictError):
                return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(move, fs, "/a", "/b/x/a")
            tasks.start_soon(move, other, "/b", "/a/x/b")
        found = await contents(fs)
        assert sorted(data for data in found.values() if data) == [b"/a/x", b"/b/x"]
        assert len([path for path in found if path.startswith("/by")]) == 1
        assert await fs.transactions() == []
        assert await problems(fs) == []
