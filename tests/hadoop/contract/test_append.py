"""Hadoop's contract of appending to files and of truncating them."""

from __future__ import annotations

import pytest

from s3k_async.adapters.hadoop import CreateFlag
from s3k_async.errors import (
    ConflictError,
    InvalidArgumentError,
    IsDirectoryError,
    PathNotFoundError,
)
from tests.hadoop.ground import Ground, dataset

pytestmark = pytest.mark.asyncio(loop_scope="session")

DATA = dataset(256, ord("a"))


async def append(ground: Ground, path: str, data: bytes) -> None:
    async with await ground.fs.append(path) as stream:
        await stream.write(data)


async def test_append_to_empty_file(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path)

    await append(ground, path, DATA)

    assert await ground.read(path) == DATA


async def test_append_to_existing_file(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path, DATA)

    stream = await ground.fs.append(path)
    assert await stream.get_pos() == 256
    await stream.write(DATA[:100])
    await stream.write(DATA[100:])
    assert await stream.get_pos() == 512
    await stream.close()

    assert await ground.read(path) == DATA + DATA
    assert await ground.is_file(path, 512)


async def test_append_missing_target(ground: Ground) -> None:
    with pytest.raises(PathNotFoundError) as raised:
        await ground.fs.append(ground.path("missing"))

    assert isinstance(raised.value, FileNotFoundError)


async def test_append_to_directory(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("dir"))

    with pytest.raises(IsDirectoryError):
        await ground.fs.append(ground.path("dir"))


async def test_append_that_is_aborted(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path, DATA)

    stream = await ground.fs.append(path)
    await stream.write(DATA)
    await stream.abort()

    assert await ground.read(path) == DATA


async def test_rename_file_being_appended(ground: Ground) -> None:
    path, renamed = ground.path("file"), ground.path("renamed")
    await ground.write(path, DATA)

    stream = await ground.fs.append(path)
    await stream.write(DATA)
    assert await ground.fs.rename(path, renamed)
    with pytest.raises(ConflictError):
        await stream.close()

    assert await ground.read(renamed) == DATA
    assert not await ground.fs.exists(path)


async def test_two_streams_append(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path, b"0")

    one, other = await ground.fs.append(path), await ground.fs.append(path)
    await one.write(b"1")
    await other.write(b"2")
    assert await ground.read(path) == b"0"
    await other.close()
    await one.close()

    assert await ground.read(path) == b"021"


async def test_create_with_the_flag_to_append(ground: Ground) -> None:
    path = ground.path("file")
    with pytest.raises(PathNotFoundError):
        await ground.fs.create_non_recursive(path, CreateFlag.APPEND)
    with pytest.raises(InvalidArgumentError):
        await ground.fs.create_non_recursive(path, CreateFlag.APPEND | CreateFlag.OVERWRITE)

    for _ in range(2):
        flags = CreateFlag.CREATE | CreateFlag.APPEND
        async with await ground.fs.create_non_recursive(path, flags) as stream:
            await stream.write(DATA)

    assert await ground.read(path) == DATA + DATA


async def test_truncate(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path, DATA)

    assert await ground.fs.truncate(path, 100)
    assert await ground.read(path) == DATA[:100]
    assert await ground.fs.truncate(path, 100)
    assert await ground.fs.truncate(path, 0)
    assert await ground.is_file(path, 0)


async def test_truncate_refusals(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path, DATA)
    await ground.fs.mkdirs(ground.path("dir"))

    for length in (-1, 257):
        with pytest.raises(InvalidArgumentError):
            await ground.fs.truncate(path, length)
    with pytest.raises(PathNotFoundError):
        await ground.fs.truncate(ground.path("missing"), 0)
    with pytest.raises(IsDirectoryError):
        await ground.fs.truncate(ground.path("dir"), 0)

    assert await ground.read(path) == DATA
