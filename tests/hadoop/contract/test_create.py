"""Hadoop's contract of creating files."""

from __future__ import annotations

import pytest

from s3k_async.adapters.hadoop.status import BLOCK_SIZE
from s3k_async.errors import IsDirectoryError, NotDirectoryError, PathExistsError
from tests.hadoop.ground import Ground, dataset

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("builder", [False, True])
async def test_create_new_file(ground: Ground, builder: bool) -> None:
    path = ground.path("file")
    data = dataset(256, ord("a"))

    stream = await (
        ground.fs.create_file(path).overwrite(False).build()
        if builder
        else ground.fs.create(path, False)
    )
    async with stream:
        await stream.write(data)

    assert await ground.read(path) == data


@pytest.mark.parametrize("builder", [False, True])
async def test_create_file_over_existing_file_no_overwrite(ground: Ground, builder: bool) -> None:
    path = ground.path("file")
    await ground.write(path, dataset(256, ord("a")))

    with pytest.raises(PathExistsError) as raised:
        await (
            ground.fs.create_file(path).overwrite(False).build()
            if builder
            else ground.fs.create(path, False)
        )

    assert isinstance(raised.value, FileExistsError)
    assert await ground.read(path) == dataset(256, ord("a"))


@pytest.mark.parametrize("builder", [False, True])
async def test_overwrite_existing_file(ground: Ground, builder: bool) -> None:
    path = ground.path("file")
    await ground.write(path, dataset(256, ord("a")))
    data = dataset(10 * 1024, ord("A"), 255)

    stream = await (
        ground.fs.create_file(path).build() if builder else ground.fs.create(path, overwrite=True)
    )
    async with stream:
        await stream.write(data)
        assert await ground.read(path) == dataset(256, ord("a")), (
            "the old bytes stay until the new ones are published"
        )

    assert await ground.read(path) == data


@pytest.mark.parametrize("builder", [False, True])
async def test_overwrite_empty_directory(ground: Ground, builder: bool) -> None:
    path = ground.path("dir")
    await ground.fs.mkdirs(path)

    with pytest.raises(PathExistsError):
        await (
            ground.fs.create_file(path).build()
            if builder
            else ground.fs.create(path, overwrite=True)
        )

    await ground.expect_tree(ground.path(), {"dir": {}})


@pytest.mark.parametrize("builder", [False, True])
async def test_overwrite_non_empty_directory(ground: Ground, builder: bool) -> None:
    path = ground.path("dir")
    await ground.write(f"{path}/child", dataset(256))

    with pytest.raises(PathExistsError):
        await (
            ground.fs.create_file(path).build()
            if builder
            else ground.fs.create(path, overwrite=True)
        )

    await ground.expect_tree(ground.path(), {"dir": {"child": 256}})
    assert await ground.read(f"{path}/child") == dataset(256)


async def test_created_file_is_immediately_visible(ground: Ground) -> None:
    path = ground.path("file")

    async with await ground.fs.create(path, overwrite=False):
        assert await ground.fs.exists(path)
        assert await ground.is_file(path, 0)
        assert await ground.names(ground.path()) == ["file"]


async def test_created_file_is_visible_on_flush(ground: Ground) -> None:
    path = ground.path("file")

    async with await ground.fs.create(path, overwrite=False) as stream:
        await stream.write(b"x")
        await stream.flush()
        assert await ground.fs.exists(path)
        assert await stream.get_pos() == 1


async def test_created_file_is_eventually_visible(ground: Ground) -> None:
    path = ground.path("file")

    stream = await ground.fs.create(path, overwrite=False)
    await stream.write(b"x")
    await stream.close()

    assert await ground.is_file(path, 1)
    await stream.close()
    assert await ground.read(path) == b"x"


async def test_file_status_blocksize_non_empty_file(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path, dataset(256))

    status = await ground.fs.get_file_status(path)

    assert status.block_size == ground.fs.get_default_block_size(path) == BLOCK_SIZE
    assert [status.block_size] == [
        listed.block_size for listed in await ground.fs.list_status(path)
    ]


async def test_file_status_blocksize_empty_file(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path)

    assert (await ground.fs.get_file_status(path)).block_size >= 0


async def test_create_makes_parent_dirs(ground: Ground) -> None:
    await ground.write(ground.path("grandparent/parent/child"))

    for parent in ("grandparent", "grandparent/parent"):
        assert await ground.fs.is_directory(ground.path(parent))
        assert len(await ground.fs.list_status(ground.path(parent))) == 1
    await ground.expect_tree(ground.path(), {"grandparent": {"parent": {"child": 0}}})


async def test_create_file_under_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    with pytest.raises(NotDirectoryError) as raised:
        await ground.fs.create(ground.path("file/child"))

    assert isinstance(raised.value, OSError)
    await ground.expect_tree(ground.path(), {"file": 1})


async def test_create_under_file_subdir(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    with pytest.raises(NotDirectoryError):
        await ground.fs.create(ground.path("file/dir/child"))

    await ground.expect_tree(ground.path(), {"file": 1})


async def test_mkdir_under_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    with pytest.raises(NotDirectoryError) as raised:
        await ground.fs.mkdirs(ground.path("file/dir"))

    assert isinstance(raised.value, OSError)
    await ground.expect_tree(ground.path(), {"file": 1})


async def test_mkdir_under_file_subdir(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    with pytest.raises(NotDirectoryError):
        await ground.fs.mkdirs(ground.path("file/dir/dir"))

    await ground.expect_tree(ground.path(), {"file": 1})


async def test_create_over_root_with_any_flag(ground: Ground) -> None:
    for overwrite in (True, False):
        with pytest.raises(IsDirectoryError):
            await ground.fs.create(ground.path(), overwrite)
