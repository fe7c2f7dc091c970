"""The counterparts of S3-FileSystem 1.0's integration tests of its file system, under their old
names."""

from __future__ import annotations

import random

import pytest

from s3k_async._core.concurrency import run_all
from s3k_async.errors import (
    CrossVolumeError,
    DirectoryNotEmptyError,
    PathExistsError,
    PathNotFoundError,
)
from tests.hadoop.ground import Ground

pytestmark = pytest.mark.asyncio(loop_scope="session")

DATA = random.Random(100).randbytes(100)
FOREIGN = ["s3k://another-volume/a/b", "s3://bucket/a/b", "hdfs://s3k/a/b"]


async def test_get_file_status_throws_error_for_inexistent_file(ground: Ground) -> None:
    with pytest.raises(FileNotFoundError):
        await ground.fs.get_file_status(ground.path("file"))


async def test_get_file_status_returns_previously_created_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), DATA)

    status = await ground.fs.get_file_status(ground.path("file"))

    assert (status.is_directory, status.path, status.length) == (False, ground.path("file"), 100)
    await ground.expect_log({"/file": (2, 100)})


async def test_get_file_status_for_directory(ground: Ground) -> None:
    assert await ground.fs.mkdirs(ground.path("dir"))

    status = await ground.fs.get_file_status(ground.path("dir"))

    assert (status.is_directory, status.path, status.length) == (True, ground.path("dir"), 0)


async def test_list_status(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("root/folder"))
    await ground.write(ground.path("root/file"), DATA)

    await ground.expect_tree(ground.path("root"), {"folder": {}, "file": 100})
    await ground.expect_log({"/root/file": (2, 100)}, ["/root", "/root/folder"])


async def test_list_status_throws_error_for_inexistent_directory(ground: Ground) -> None:
    with pytest.raises(FileNotFoundError):
        await ground.fs.list_status(ground.path("dir"))


async def test_list_status_on_file_returns_the_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), DATA)

    [status] = await ground.fs.list_status(ground.path("file"))

    assert (status.is_directory, status.path, status.length) == (False, ground.path("file"), 100)


async def test_open_file_throws_error_file_inexistent_file(ground: Ground) -> None:
    with pytest.raises(FileNotFoundError):
        await ground.fs.open(ground.path("file"))


async def test_open_file_throws_error_for_directory_object(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("dir"))

    with pytest.raises(FileNotFoundError):
        await ground.fs.open(ground.path("dir"))


async def test_create_file_throws_error_if_file_exists(ground: Ground) -> None:
    await ground.write(ground.path("file"), DATA)

    with pytest.raises(PathExistsError) as raised:
        await ground.fs.create(ground.path("file"), overwrite=False)

    assert isinstance(raised.value, OSError)
    assert await ground.read(ground.path("file")) == DATA


async def test_create_file_with_overwrite_throws_error_if_destination_is_existing_directory(
    ground: Ground,
) -> None:
    await ground.fs.mkdirs(ground.path("dir"))

    with pytest.raises(PathExistsError):
        await ground.fs.create(ground.path("dir"), overwrite=True)

    await ground.expect_tree(ground.path(), {"dir": {}})


async def test_create_file_creates_directory_chain(ground: Ground) -> None:
    await ground.write(ground.path("d/f"), DATA)

    await ground.expect_tree(ground.path(), {"d": {"f": 100}})
    await ground.expect_log({"/d/f": (2, 100)}, ["/d"])


async def test_previously_created_file_can_be_read(ground: Ground) -> None:
    await ground.write(ground.path("file"), DATA)

    assert await ground.read(ground.path("file")) == DATA


async def test_append_throws_error(ground: Ground) -> None:
    """S3-FileSystem 1.0 threw an error for every file, here only for one that is not there."""
    with pytest.raises(PathNotFoundError):
        await ground.fs.append(ground.path("file"))
    await ground.write(ground.path("file"), DATA)

    async with await ground.fs.append(ground.path("file")) as stream:
        await stream.write(DATA)

    assert await ground.read(ground.path("file")) == DATA + DATA


async def test_mkdir_creates_directory_chain(ground: Ground) -> None:
    assert await ground.fs.mkdirs(ground.path("d/d1/d2"))

    await ground.expect_tree(ground.path(), {"d": {"d1": {"d2": {}}}})
    await ground.expect_log({}, ["/d", "/d/d1", "/d/d1/d2"])


async def test_mkdir_returns_true_for_existing_directories(ground: Ground) -> None:
    assert await ground.fs.mkdirs(ground.path("dir"))
    assert await ground.fs.mkdirs(ground.path("dir"))

    await ground.expect_tree(ground.path(), {"dir": {}})


async def test_delete_on_inexistent_file_returns_false(ground: Ground) -> None:
    assert not await ground.fs.delete(ground.path("file"), recursive=False)
    assert not await ground.fs.delete(ground.path("file"), recursive=True)


async def test_delete_non_empty_directory_without_recursive_throws_error(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), DATA)

    with pytest.raises(DirectoryNotEmptyError) as raised:
        await ground.fs.delete(ground.path("dir"), recursive=False)

    assert isinstance(raised.value, OSError)
    await ground.expect_tree(ground.path(), {"dir": {"file": 100}})


async def test_delete_empty_directory_without_recursive_succeeds(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("dir"))

    assert await ground.fs.delete(ground.path("dir"), recursive=False)

    assert not await ground.fs.exists(ground.path("dir"))
    await ground.expect_tree(ground.path(), {})
    await ground.expect_log()
    assert await ground.tombstones() == {"/dir"}


async def test_delete_file_is_successful(ground: Ground) -> None:
    await ground.write(ground.path("file"), DATA)

    assert await ground.fs.delete(ground.path("file"), recursive=False)

    assert not await ground.fs.exists(ground.path("file"))
    await ground.expect_log()
    assert await ground.tombstones() == {"/file"}


async def test_delete_directory_is_successful(ground: Ground) -> None:
    await ground.write(ground.path("parent/dir/file"), DATA)
    await ground.fs.mkdirs(ground.path("parent/dir/sub"))

    assert await ground.fs.delete(ground.path("parent/dir"), recursive=True)

    await ground.expect_tree(ground.path(), {"parent": {}})
    await ground.expect_log({}, ["/parent"])
    assert await ground.tombstones() == {"/parent/dir", "/parent/dir/file", "/parent/dir/sub"}


async def test_rename_file_in_same_bucket_is_successful(ground: Ground) -> None:
    await ground.write(ground.path("src/file"), DATA)
    await ground.fs.mkdirs(ground.path("dst"))

    assert await ground.fs.rename(ground.path("src/file"), ground.path("dst/moved"))

    await ground.expect_tree(ground.path(), {"src": {}, "dst": {"moved": 100}})
    assert await ground.read(ground.path("dst/moved")) == DATA
    await ground.expect_log({"/dst/moved": (3, 100)}, ["/src", "/dst"])


async def test_rename_file_throws_error_if_destination_exists(ground: Ground) -> None:
    await ground.write(ground.path("src"), DATA)
    await ground.write(ground.path("dst"), b"other")

    assert await ground.fs.rename(ground.path("src"), ground.path("dst")) is False

    await ground.expect_tree(ground.path(), {"src": 100, "dst": 5})
    await ground.expect_log({"/src": (2, 100), "/dst": (2, 5)})


async def test_rename_directory_in_same_bucket_is_successful(ground: Ground) -> None:
    await ground.write(ground.path("parent/src/f1"), DATA)
    await ground.write(ground.path("parent/src/sub/f2"), DATA[:50])

    assert await ground.fs.rename(ground.path("parent/src"), ground.path("dst"))

    await ground.expect_tree(ground.path(), {"parent": {}, "dst": {"f1": 100, "sub": {"f2": 50}}})
    assert await ground.read(ground.path("dst/f1")) == DATA
    assert await ground.read(ground.path("dst/sub/f2")) == DATA[:50]
    await ground.expect_log(
        {"/dst/f1": (3, 100), "/dst/sub/f2": (3, 50)}, ["/parent", "/dst", "/dst/sub"]
    )


async def _five_directories_of_ten_files(ground: Ground) -> dict[str, bytes]:
    """Made by ten tasks at once; the files by their path below `/parent/root`."""
    generator = random.Random(5)
    contents = {f"d{d}/f{f}": generator.randbytes(20 + f) for d in range(5) for f in range(10)}

    async def write(item: tuple[str, bytes]) -> None:
        await ground.write(ground.path(f"parent/root/{item[0]}"), item[1])

    await run_all(write, contents.items(), limit=10)
    return contents


async def test_parallel_directory_rename(ground: Ground) -> None:
    contents = await _five_directories_of_ten_files(ground)

    assert await ground.fs.rename(ground.path("parent/root"), ground.path("parent/renamed"))

    below = {f"d{d}": {f"f{f}": 20 + f for f in range(10)} for d in range(5)}
    await ground.expect_tree(ground.path(), {"parent": {"renamed": below}})
    for path, data in contents.items():
        assert await ground.read(ground.path(f"parent/renamed/{path}")) == data
    await ground.expect_log(
        {f"/parent/renamed/{path}": (3, len(data)) for path, data in contents.items()},
        ["/parent", "/parent/renamed", *(f"/parent/renamed/d{d}" for d in range(5))],
    )


async def test_parallel_directory_delete(ground: Ground) -> None:
    contents = await _five_directories_of_ten_files(ground)

    assert await ground.fs.delete(ground.path("parent/root"), recursive=True)

    await ground.expect_tree(ground.path(), {"parent": {}})
    await ground.expect_log({}, ["/parent"])
    directories = {"/parent/root", *(f"/parent/root/d{d}" for d in range(5))}
    assert await ground.tombstones() == directories | {f"/parent/root/{path}" for path in contents}


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_rename_source_and_destination_different_bucket_throws_error(
    ground: Ground, foreign: str
) -> None:
    with pytest.raises(CrossVolumeError) as raised:
        await ground.fs.rename(foreign, foreign + "2")
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_rename_from_different_bucket_throws_error(ground: Ground, foreign: str) -> None:
    with pytest.raises(CrossVolumeError):
        await ground.fs.rename(foreign, ground.path("file"))


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_rename_in_different_bucket_throws_error(ground: Ground, foreign: str) -> None:
    await ground.write(ground.path("file"), DATA)

    with pytest.raises(CrossVolumeError):
        await ground.fs.rename(ground.path("file"), foreign)

    await ground.expect_tree(ground.path(), {"file": 100})


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_delete_file_in_different_bucket_throws_error(ground: Ground, foreign: str) -> None:
    with pytest.raises(CrossVolumeError):
        await ground.fs.delete(foreign, recursive=True)


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_mkdirs_in_different_bucket_throws_error(ground: Ground, foreign: str) -> None:
    with pytest.raises(CrossVolumeError):
        await ground.fs.mkdirs(foreign)
    await ground.expect_tree(ground.path(), {})


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_create_file_in_different_bucket_throws_error(ground: Ground, foreign: str) -> None:
    with pytest.raises(CrossVolumeError):
        await ground.fs.create(foreign)
    await ground.expect_tree(ground.path(), {})


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_open_file_in_different_bucket_throws_error(ground: Ground, foreign: str) -> None:
    with pytest.raises(CrossVolumeError):
        await ground.fs.open(foreign)


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_get_file_status_in_different_bucket_throws_error(
    ground: Ground, foreign: str
) -> None:
    with pytest.raises(CrossVolumeError):
        await ground.fs.get_file_status(foreign)
