"""Empty files have no object, whatever writes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import UnsupportedError
from s3k_async.objects import ObjectStore
from s3k_async.storage.change_detection import checksum_of
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.client.test_write_many import sound

PATH: Final = "/bucket/empty"


async def by_write(fs: S3kClient) -> None:
    await fs.write(PATH, b"")


async def by_touch(fs: S3kClient) -> None:
    await fs.touch(PATH)


async def by_writer(fs: S3kClient) -> None:
    async with fs.open(PATH, "wb") as file:
        await file.write(b"")


async def by_write_many(fs: S3kClient) -> None:
    assert (await fs.write_many([(PATH, b"")])).files == 1


async def by_transaction(fs: S3kClient) -> None:
    async with fs.transaction() as transaction:
        await transaction.write(PATH, b"")


async def by_writer_of_transaction(fs: S3kClient) -> None:
    async with fs.transaction() as transaction, transaction.open(PATH) as file:
        await file.write(b"")


async def by_staging(fs: S3kClient) -> None:
    async with fs.stage(PATH) as file:
        await file.write(b"")
    async with fs.transaction() as transaction:
        await transaction.publish(PATH, file.staged)


async def by_append(fs: S3kClient) -> None:
    await fs.append(PATH, b"")


async def by_copy(fs: S3kClient) -> None:
    await fs.write("/other", b"")
    await fs.copy("/other", PATH)


async def by_object(fs: S3kClient) -> None:
    await ObjectStore(fs).create("bucket", "empty", b"")


WAYS: Final[Sequence[Callable[[S3kClient], Awaitable[None]]]] = (
    by_write,
    by_touch,
    by_writer,
    by_write_many,
    by_transaction,
    by_writer_of_transaction,
    by_staging,
    by_append,
    by_copy,
    by_object,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_an_empty_file_has_no_object(way: Callable[[S3kClient], Awaitable[None]]) -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await ObjectStore(fs).create_bucket("bucket")
        before = fs.requests.of("data", "PutObject")
        await way(fs)
        assert fs.requests.of("data", "PutObject") == before
        assert await fs.read(PATH) == b""
        assert (await fs.stat(PATH)).size == 0
        assert await fs.checksum(PATH) == checksum_of(b"")
        with pytest.raises(UnsupportedError, match="empty, and has no physical object"):
            await fs.physical_path(PATH)
        assert [file.path async for file in fs.physical_paths("/")] == []
        await sound(fs)
        await fs.append(PATH, b"more")
        assert await fs.read(PATH) == b"more"
        await fs.write(PATH, b"")
        assert await fs.read(PATH) == b""


async def test_an_empty_file_has_an_object_in_a_volume_without_extents() -> None:
    config = memory_config()
    await init_volume(config, without=["extents"])
    async with S3kClient(config=config) as fs:
        for number, way in enumerate((by_write, by_touch, by_writer, by_transaction), 1):
            await way(fs)
            assert fs.requests.of("data", "PutObject") == number
            assert (await fs.physical_path(PATH)).startswith("memory://")
            assert await fs.read(PATH) == b""
            await fs.delete(PATH)


async def test_an_empty_part_of_a_multipart_upload_needs_no_object() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        store = ObjectStore(fs)
        await store.create_bucket("bucket")
        upload = await store.create_upload("bucket", "empty")
        for number in range(2):
            await store.put_part(upload.id, number, b"")
        await store.complete_upload(upload.id)
        assert fs.requests.of("data", "PutObject") == 0
        assert await fs.read(PATH) == b""
        await sound(fs)
