"""Hadoop's contract of the root directory."""

from __future__ import annotations

import logging

import pytest

from s3k_async.errors import DirectoryNotEmptyError, IsDirectoryError
from tests.hadoop.contract.test_get_file_status import tree_walk
from tests.hadoop.ground import Ground, collect

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_mk_dir_depth1(ground: Ground) -> None:
    assert await ground.fs.mkdirs("/testmkdirdepth1")
    assert await ground.fs.is_directory("/testmkdirdepth1")

    assert await ground.fs.delete("/testmkdirdepth1", recursive=True)

    assert not await ground.fs.exists("/testmkdirdepth1")


async def test_rm_empty_root_dir_recursive(ground: Ground) -> None:
    assert await ground.fs.delete("/", recursive=True) is False

    assert await ground.fs.is_directory("/")


async def test_rm_empty_root_dir_non_recursive(ground: Ground) -> None:
    assert await ground.fs.delete("/", recursive=False) is False

    assert await ground.fs.is_directory("/")


async def test_rm_non_empty_root_dir_non_recursive(ground: Ground) -> None:
    await ground.write("/testRmNonEmptyRootDirNonRecursive", b"x")

    with pytest.raises(DirectoryNotEmptyError) as raised:
        await ground.fs.delete("/", recursive=False)

    assert isinstance(raised.value, OSError)
    assert await ground.fs.is_directory("/")
    await ground.expect_tree(ground.path(), {"testRmNonEmptyRootDirNonRecursive": 1})


async def test_rm_root_recursive(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    await ground.write("/testRmRootRecursive", b"x")

    with caplog.at_level(logging.WARNING, "s3k_async.adapters.hadoop"):
        deleted = await ground.fs.delete("/", recursive=True)

    assert deleted is False
    assert "delete of the root" in caplog.text
    assert await ground.is_file("/testRmRootRecursive", 1)


async def test_create_file_over_root(ground: Ground) -> None:
    with pytest.raises(IsDirectoryError) as raised:
        await ground.fs.create("/", overwrite=True)

    assert isinstance(raised.value, OSError)
    assert await ground.fs.is_directory("/")


async def test_list_empty_root_directory(ground: Ground) -> None:
    await ground.write("/dir/file", b"x")
    for status in await ground.fs.list_status("/"):
        assert await ground.fs.delete(status.path, recursive=True)

    assert await ground.fs.list_status("/") == []
    assert await collect(ground.fs.list_located_status("/")) == []
    for recursive in (False, True):
        assert await collect(ground.fs.list_files("/", recursive=recursive)) == []


async def test_simple_root_listing(ground: Ground) -> None:
    await ground.write("/file", b"x")
    await ground.write("/dir/below", b"x")

    statuses = await ground.fs.list_status("/")
    located = await collect(ground.fs.list_located_status("/"))
    files = await collect(ground.fs.list_files("/", recursive=False))

    assert (len(statuses), len(located), len(files)) == (2, 2, 1)
    assert {status.path for status in statuses} == {status.path for status in located}


async def test_recursive_root_listing(ground: Ground) -> None:
    for path in ("/file", "/dir/below", "/dir/sub/sub/deep", "/other/below"):
        await ground.write(path, b"x")
    await ground.fs.mkdirs("/empty")

    listed = await collect(ground.fs.list_files("/", recursive=True))

    assert len(listed) == 4
    assert {status.path for status in listed} == (await tree_walk(ground, ground.path()))[1]
