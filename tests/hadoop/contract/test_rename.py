"""Hadoop's contract of renaming."""

from __future__ import annotations

import pytest

from s3k_async.errors import NotDirectoryError, PathNotFoundError, RenameIntoSelfError
from tests.hadoop.ground import Ground, Tree, dataset

pytestmark = pytest.mark.asyncio(loop_scope="session")

DATA = dataset(256, ord("a"), ord("z"))


async def test_rename_new_file_same_dir(ground: Ground) -> None:
    await ground.write(ground.path("source"), DATA)

    assert await ground.fs.rename(ground.path("source"), ground.path("target")) is True

    assert await ground.names(ground.path()) == ["target"]
    assert await ground.read(ground.path("target")) == DATA


async def test_rename_nonexistent_file(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("dir"))

    with pytest.raises(PathNotFoundError) as raised:
        await ground.fs.rename(ground.path("dir/absent"), ground.path("dir/target"))

    assert isinstance(raised.value, FileNotFoundError)
    await ground.expect_tree(ground.path(), {"dir": {}})


async def test_rename_file_over_existing_file(ground: Ground) -> None:
    await ground.write(ground.path("source"), DATA)
    await ground.write(ground.path("target"), dataset(512, ord("A")))

    assert await ground.fs.rename(ground.path("source"), ground.path("target")) is False

    assert await ground.read(ground.path("source")) == DATA
    assert await ground.read(ground.path("target")) == dataset(512, ord("A"))


async def test_rename_dir_into_existing_dir(ground: Ground) -> None:
    await ground.write(ground.path("source/source-256.txt"), DATA)
    await ground.fs.mkdirs(ground.path("source/sub"))
    await ground.write(ground.path("dest/dest-512.txt"), dataset(512, ord("A")))

    assert await ground.fs.rename(ground.path("source"), ground.path("dest")) is True

    moved: Tree = {"source-256.txt": 256, "sub": {}}
    await ground.expect_tree(ground.path(), {"dest": {"dest-512.txt": 512, "source": moved}})
    assert await ground.read(ground.path("dest/source/source-256.txt")) == DATA
    assert await ground.read(ground.path("dest/dest-512.txt")) == dataset(512, ord("A"))


async def test_rename_file_nonexistent_dir(ground: Ground) -> None:
    await ground.write(ground.path("source"), DATA)

    with pytest.raises(PathNotFoundError):
        await ground.fs.rename(ground.path("source"), ground.path("absent/target"))

    await ground.expect_tree(ground.path(), {"source": 256})
    assert await ground.read(ground.path("source")) == DATA


async def test_rename_with_non_empty_sub_dir(ground: Ground) -> None:
    await ground.write(ground.path("top/src1/source.txt"), DATA[:3])
    await ground.write(ground.path("top/src1/sub/subfile.txt"), DATA[:4])
    await ground.fs.mkdirs(ground.path("top/dest"))

    assert await ground.fs.rename(ground.path("top/src1"), ground.path("top/dest")) is True

    moved: Tree = {"source.txt": 3, "sub": {"subfile.txt": 4}}
    await ground.expect_tree(ground.path("top"), {"dest": {"src1": moved}})
    assert not await ground.fs.exists(ground.path("top/src1"))


async def test_rename_populates_directory_ancestors(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("src/a/b/c/d"))

    assert await ground.fs.rename(ground.path("src"), ground.path("new")) is True

    await ground.expect_tree(ground.path(), {"new": {"a": {"b": {"c": {"d": {}}}}}})


async def test_rename_populates_file_ancestors(ground: Ground) -> None:
    await ground.write(ground.path("src/a/b/c/file"), DATA)

    assert await ground.fs.rename(ground.path("src"), ground.path("new")) is True

    await ground.expect_tree(ground.path(), {"new": {"a": {"b": {"c": {"file": 256}}}}})
    assert await ground.read(ground.path("new/a/b/c/file")) == DATA


async def test_rename_file_under_file(ground: Ground) -> None:
    await ground.write(ground.path("source"), DATA)
    await ground.write(ground.path("file"), b"x")

    with pytest.raises(NotDirectoryError) as raised:
        await ground.fs.rename(ground.path("source"), ground.path("file/child"))

    assert isinstance(raised.value, OSError)
    await ground.expect_tree(ground.path(), {"source": 256, "file": 1})


async def test_rename_file_under_file_subdir(ground: Ground) -> None:
    await ground.write(ground.path("source"), DATA)
    await ground.write(ground.path("file"), b"x")

    with pytest.raises(PathNotFoundError) as raised:
        await ground.fs.rename(ground.path("source"), ground.path("file/dir/child"))

    assert isinstance(raised.value, OSError)
    await ground.expect_tree(ground.path(), {"source": 256, "file": 1})


async def test_rename_file_into_existing_directory(ground: Ground) -> None:
    await ground.write(ground.path("source"), DATA)
    await ground.fs.mkdirs(ground.path("dir"))

    assert await ground.fs.rename(ground.path("source"), ground.path("dir")) is True

    await ground.expect_tree(ground.path(), {"dir": {"source": 256}})


async def test_rename_returns_false_where_the_place_in_the_directory_is_taken(
    ground: Ground,
) -> None:
    await ground.write(ground.path("source"), DATA)
    await ground.write(ground.path("dir/source"), b"x")

    assert await ground.fs.rename(ground.path("source"), ground.path("dir")) is False
    await ground.fs.mkdirs(ground.path("dir/sub"))
    assert await ground.fs.rename(ground.path("dir/source"), ground.path("dir")) is False
    assert await ground.fs.rename(ground.path("dir/sub"), ground.path("dir")) is False

    await ground.expect_tree(ground.path(), {"source": 256, "dir": {"source": 1, "sub": {}}})


async def test_rename_into_the_root_keeps_the_name(ground: Ground) -> None:
    await ground.write(ground.path("dir/sub/file"), DATA)

    assert await ground.fs.rename(ground.path("dir/sub"), ground.path()) is True

    await ground.expect_tree(ground.path(), {"dir": {}, "sub": {"file": 256}})


async def test_rename_of_the_root_fails(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("dir"))

    with pytest.raises(RenameIntoSelfError) as raised:
        await ground.fs.rename(ground.path(), ground.path("dir"))

    assert isinstance(raised.value, OSError)


async def test_rename_below_itself_fails(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), DATA)

    for target in ("dir/file/child", "dir/new", "dir/a/b"):
        with pytest.raises(RenameIntoSelfError):
            await ground.fs.rename(ground.path("dir"), ground.path(target))

    await ground.expect_tree(ground.path(), {"dir": {"file": 256}})


async def test_rename_of_a_directory_onto_a_file_returns_false(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("dir"))
    await ground.write(ground.path("file"), DATA)

    assert await ground.fs.rename(ground.path("dir"), ground.path("file")) is False

    await ground.expect_tree(ground.path(), {"dir": {}, "file": 256})
