"""Hadoop's contract of making directories."""

from __future__ import annotations

import pytest

from s3k_async.errors import NotDirectoryError, PathExistsError
from tests.hadoop.ground import Ground, dataset

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_mk_dir_rm_dir(ground: Ground) -> None:
    assert await ground.fs.mkdirs(ground.path("dir"))
    assert await ground.fs.is_directory(ground.path("dir"))

    assert await ground.fs.delete(ground.path("dir"), recursive=False)

    assert not await ground.fs.exists(ground.path("dir"))


async def test_mk_dir_rm_rf_dir(ground: Ground) -> None:
    assert await ground.fs.mkdirs(ground.path("dir"))

    assert await ground.fs.delete(ground.path("dir"), recursive=True)

    assert not await ground.fs.exists(ground.path("dir"))


async def test_no_mkdir_over_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), dataset(1024, ord("a")))

    with pytest.raises(PathExistsError) as raised:
        await ground.fs.mkdirs(ground.path("file"))

    assert isinstance(raised.value, OSError)
    assert await ground.read(ground.path("file")) == dataset(1024, ord("a"))


async def test_mkdir_over_parent_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), dataset(1024, ord("a")))

    with pytest.raises(NotDirectoryError):
        await ground.fs.mkdirs(ground.path("file/child"))

    assert await ground.read(ground.path("file")) == dataset(1024, ord("a"))


async def test_mkdir_slash_handling(ground: Ground) -> None:
    for path in (
        ground.path("top/a"),
        ground.path("top/b/"),
        "/top/c",
        "/top/d/",
        "/top/e///",
        "/top//f",
    ):
        assert await ground.fs.mkdirs(path)
        assert await ground.fs.is_directory(path)
        assert await ground.fs.is_directory(path.rstrip("/"))
    await ground.expect_tree(ground.path(), {"top": {name: {} for name in "abcdef"}})
