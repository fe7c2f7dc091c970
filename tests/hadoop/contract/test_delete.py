"""Hadoop's contract of deleting."""

from __future__ import annotations

import pytest

from s3k_async.errors import DirectoryNotEmptyError
from tests.hadoop.ground import Ground

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_delete_empty_dir_non_recursive(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("dir"))

    assert await ground.fs.delete(ground.path("dir"), recursive=False) is True

    assert not await ground.fs.exists(ground.path("dir"))


async def test_delete_empty_dir_recursive(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("dir"))

    assert await ground.fs.delete(ground.path("dir"), recursive=True) is True

    assert not await ground.fs.exists(ground.path("dir"))


async def test_delete_nonexistent_path_recursive(ground: Ground) -> None:
    assert await ground.fs.delete(ground.path("absent"), recursive=True) is False
    assert not await ground.fs.exists(ground.path("absent"))


async def test_delete_nonexistent_path_non_recursive(ground: Ground) -> None:
    assert await ground.fs.delete(ground.path("absent"), recursive=False) is False
    assert not await ground.fs.exists(ground.path("absent"))


async def test_delete_non_empty_dir_non_recursive(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), b"x")

    with pytest.raises(DirectoryNotEmptyError) as raised:
        await ground.fs.delete(ground.path("dir"), recursive=False)

    assert isinstance(raised.value, OSError)
    assert await ground.fs.is_directory(ground.path("dir"))
    await ground.expect_tree(ground.path(), {"dir": {"file": 1}})


async def test_delete_non_empty_dir_recursive(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), b"x")

    assert await ground.fs.delete(ground.path("dir"), recursive=True) is True

    assert not await ground.fs.exists(ground.path("dir"))
    assert not await ground.fs.exists(ground.path("dir/file"))


async def test_delete_deep_empty_dir(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("d1/d2/d3/d4"))

    assert await ground.fs.delete(ground.path("d1/d2/d3"), recursive=True) is True

    await ground.expect_tree(ground.path(), {"d1": {"d2": {}}})


async def test_delete_single_file(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), b"x")

    assert await ground.fs.delete(ground.path("dir/file"), recursive=False) is True

    await ground.expect_tree(ground.path(), {"dir": {}})
