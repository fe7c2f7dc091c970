"""Faults of S3-FileSystem's file system semantics that must not come back, on the Hadoop-shaped
surface."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from anyio.lowlevel import checkpoint

from s3k_async._core.runtime import SYSTEM
from s3k_async.adapters.hadoop import HadoopFileSystem
from s3k_async.adapters.hadoop.builders import CreateFlag
from s3k_async.client import S3kClient
from s3k_async.errors import (
    InvalidPathError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    RenameIntoSelfError,
    UncommittedFileError,
)
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends

pytestmark = volume_backends("memory", "embedded")


@pytest.fixture
async def fs(new_volume: VolumeMaker) -> AsyncIterator[HadoopFileSystem]:
    config = new_volume("volume")
    await init_volume(config)
    async with S3kClient(config=config) as client:
        yield HadoopFileSystem(client)


async def write(fs: HadoopFileSystem, path: str, data: bytes = b"x") -> None:
    async with await fs.create(path, overwrite=False) as stream:
        await stream.write(data)


async def names(fs: HadoopFileSystem, path: str) -> list[str]:
    return [status.path.rpartition("/")[2] for status in await fs.list_status(path)]


async def test_rename_to_a_name_that_begins_with_the_source(fs: HadoopFileSystem) -> None:
    await write(fs, "/a/file")
    await write(fs, "/x")

    assert await fs.rename("/a", "/ab") is True
    assert await fs.rename("/x", "/x.bak") is True
    assert await fs.rename("/ab/file", "/ab/file2") is True

    assert await names(fs, "/") == ["ab", "x.bak"]
    assert await names(fs, "/ab") == ["file2"]
    with pytest.raises(RenameIntoSelfError):
        await fs.rename("/ab", "/ab/a")


async def test_the_volume_without_a_slash_is_its_root(fs: HadoopFileSystem) -> None:
    await write(fs, "s3k://volume/file")

    assert await names(fs, "s3k://volume") == await names(fs, "s3k://volume/") == ["file"]
    assert fs.get_working_directory() == "s3k://volume/"
    assert await fs.is_file("file")
    with pytest.raises(InvalidPathError):
        await fs.exists("/a/../../b")


async def test_create_non_recursive_refuses_a_file_as_parent(fs: HadoopFileSystem) -> None:
    await write(fs, "/file")

    for flags in (
        CreateFlag.CREATE,
        CreateFlag.CREATE | CreateFlag.OVERWRITE,
        CreateFlag.OVERWRITE,
    ):
        with pytest.raises(NotDirectoryError):
            await fs.create_non_recursive("/file/below", flags)

    assert await names(fs, "/") == ["file"]


@pytest.mark.parametrize(
    "flags",
    [
        CreateFlag.CREATE | CreateFlag.OVERWRITE | CreateFlag.LAZY_PERSIST,
        CreateFlag.OVERWRITE | CreateFlag.SYNC_BLOCK,
        CreateFlag.CREATE | CreateFlag.OVERWRITE | CreateFlag.NEW_BLOCK | CreateFlag.NO_LOCAL_WRITE,
    ],
)
async def test_overwrite_counts_among_any_flags(fs: HadoopFileSystem, flags: CreateFlag) -> None:
    await write(fs, "/file")

    async with await fs.create_non_recursive("/file", flags) as stream:
        await stream.write(b"longer")

    assert (await fs.get_file_status("/file")).length == 6


async def test_rename_of_an_absent_path_to_itself_is_an_error(fs: HadoopFileSystem) -> None:
    with pytest.raises(PathNotFoundError):
        await fs.rename("/absent", "/absent")

    await write(fs, "/dir/file")
    assert await fs.rename("/dir/file", "s3k://volume/dir/file") is True
    assert await fs.rename("/dir", "/dir/") is True
    assert await names(fs, "/dir") == ["file"]


async def test_a_failed_rename_is_an_os_error_that_names_what_failed(
    fs: HadoopFileSystem,
) -> None:
    await write(fs, "/dir/done")
    async with await fs.create("/dir/open"):
        with pytest.raises(UncommittedFileError) as raised:
            await fs.rename("/dir", "/new")

    assert isinstance(raised.value, OSError)
    assert "/dir/open" in str(raised.value)


async def test_a_refused_delete_of_the_root_is_not_silent(
    fs: HadoopFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    await write(fs, "/file")

    with pytest.raises(OSError, match="not empty"):
        await fs.delete("/", recursive=False)
    with caplog.at_level(logging.WARNING, "s3k_async.adapters.hadoop"):
        assert await fs.delete("/", recursive=True) is False

    assert "refused" in caplog.text
    assert await names(fs, "/") == ["file"]


async def test_block_size_and_replication_let_jobs_compute_splits(fs: HadoopFileSystem) -> None:
    await write(fs, "/file")
    status = await fs.get_file_status("/file")

    smallest, goal = 1, 1024**3
    split = max(smallest, min(goal, status.block_size))

    assert split == status.block_size == fs.get_default_block_size() == 128 * 1024 * 1024
    assert status.replication == fs.get_default_replication() == 1


async def test_the_space_consumed_is_the_length_everywhere(fs: HadoopFileSystem) -> None:
    await write(fs, "/dir/a", bytes(10))
    await write(fs, "/dir/sub/b", bytes(5))

    file = await fs.get_content_summary("/dir/a")
    directory = await fs.get_content_summary("/dir")

    assert (file.length, file.file_count, file.directory_count, file.space_consumed) == (
        10,
        1,
        0,
        10,
    )
    assert (directory.length, directory.file_count, directory.directory_count) == (15, 2, 2)
    assert directory.space_consumed == 15
    assert (await fs.get_content_summary("/")).directory_count == 3
    with pytest.raises(PathNotFoundError):
        await fs.get_content_summary("/absent")


async def test_the_modification_time_is_that_of_publication_in_milliseconds(
    fs: HadoopFileSystem,
) -> None:
    for overwrite in (False, True):
        stream = await fs.create("/file", overwrite)
        opened = SYSTEM.now_ms()
        while SYSTEM.now_ms() <= opened:
            await checkpoint()
        before = SYSTEM.now_ms()
        await stream.write(b"x")
        await stream.close()
        after = SYSTEM.now_ms()

        assert opened < before <= (await fs.get_file_status("/file")).modification_time <= after


async def test_a_rename_keeps_the_modification_time(fs: HadoopFileSystem) -> None:
    await write(fs, "/dir/file")
    before = (await fs.get_file_status("/dir/file")).modification_time

    await fs.rename("/dir/file", "/moved")
    await fs.rename("/moved", "/dir")
    await fs.rename("/dir", "/new")

    assert (await fs.get_file_status("/new/moved")).modification_time == before


async def test_a_listing_is_sorted_by_name(fs: HadoopFileSystem) -> None:
    wanted = ["B", "a", "b-1", "b-10", "b-2", "é", "\U0001f600"]
    for name in reversed(wanted):
        await write(fs, f"/dir/{name}")

    assert await names(fs, "/dir") == wanted
    assert sorted([status.path async for status in fs.list_status_iterator("/dir")]) == [
        f"s3k://volume/dir/{name}" for name in wanted
    ]


async def test_create_without_overwrite_never_replaces(fs: HadoopFileSystem) -> None:
    first = await fs.create("/file", overwrite=False)
    with pytest.raises(PathExistsError):
        await fs.create("/file", overwrite=False)
    await first.write(b"first")
    await first.close()

    with pytest.raises(PathExistsError):
        await fs.create("/file", overwrite=False)
    assert (await fs.get_file_status("/file")).length == 5
