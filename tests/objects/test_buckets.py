"""Buckets: the rows of H3's interface, and what a directory of the root is to the object API."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta

import pytest

from s3k_async import StorageInfo, StorageSpace
from s3k_async.client import S3kClient
from s3k_async.errors import (
    DirectoryNotEmptyError,
    NameTooLongError,
    PathExistsError,
    PathNotFoundError,
)
from s3k_async.objects import AlreadyExists, BucketInfo, ObjectStore
from tests.client.rig import paths
from tests.engines.volumes import volume_backends

pytestmark = [
    pytest.mark.layouts("path", "tree"),
    volume_backends("memory", "embedded", "dynoxide+seaweedfs"),
]


async def names(objects: ObjectStore) -> list[str]:
    return [bucket.name async for bucket in objects.list_buckets()]


async def keys(objects: ObjectStore, bucket: str = "b") -> list[str]:
    return [each.key async for each in objects.iterate(bucket)]


async def test_storage_info(
    objects: ObjectStore, fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of the disk, of which 100 blocks are reserved for the superuser."""
    home = fs.config.table.home
    expected = StorageSpace()
    if home is not None:
        disk = os.statvfs_result((4096, 1024, 1000, 400, 300, *os.statvfs(home)[5:]))
        monkeypatch.setattr(os, "statvfs", lambda _: disk)
        expected = StorageSpace(total=1000 * 1024, used=600 * 1024, free=300 * 1024)
    assert await objects.storage_info() == StorageInfo(expected, expected, expected, None)
    assert await fs.storage_info() == await objects.storage_info()


async def test_create_bucket(objects: ObjectStore, fs: S3kClient) -> None:
    made = await objects.create_bucket("new")
    assert made == BucketInfo("new", (await fs.stat("/new")).ctime_ms)
    assert (await fs.stat("/new")).is_dir
    assert await objects.bucket_info("new") == made
    for _ in range(2):
        with pytest.raises(PathExistsError):
            await objects.create_bucket("new")
    assert AlreadyExists is PathExistsError


async def test_one_of_many_creates_a_bucket(objects: ObjectStore) -> None:
    async def attempt(_: int) -> bool:
        try:
            await objects.create_bucket("raced")
        except PathExistsError:
            return False
        return True

    assert sum(await asyncio.gather(*map(attempt, range(8)))) == 1


async def test_create_bucket_beside_a_file_of_that_name(
    objects: ObjectStore, fs: S3kClient
) -> None:
    await fs.write("/f", b"")
    with pytest.raises(PathExistsError):
        await objects.create_bucket("f")
    for call in (objects.bucket_info("f"), objects.delete_bucket("f"), objects.list("f")):
        with pytest.raises(PathNotFoundError):
            await call
    assert await names(objects) == ["b"]
    assert (await fs.stat("/f")).is_file


async def test_list_buckets(objects: ObjectStore, fs: S3kClient) -> None:
    """H3 tests the growth of its record with a hundred buckets."""
    made = [f"bucket-{number:03}" for number in range(100)]
    for start in range(0, 100, 20):
        await asyncio.gather(*map(objects.create_bucket, made[start : start + 20]))
    await fs.makedirs("/of-the-filesystem/below")
    assert await names(objects) == ["b", *made, "of-the-filesystem"]
    for start in range(0, 100, 20):
        await asyncio.gather(*map(objects.delete_bucket, made[start : start + 20]))
    assert await names(objects) == ["b", "of-the-filesystem"]


async def test_bucket_info(objects: ObjectStore) -> None:
    plain = await objects.bucket_info("b")
    assert (plain.objects, plain.bytes, plain.newest_ms, plain.newest) == (None, None, None, None)
    assert datetime.now(UTC) - plain.created < timedelta(hours=1)
    empty = await objects.bucket_info("b", statistics=True)
    assert (empty.objects, empty.bytes, empty.newest_ms) == (0, 0, None)
    await objects.create("b", "one", bytes(300))
    await objects.create("b", "x/y/two", bytes(700))
    last = await objects.create("b", "x/empty", b"")
    full = await objects.bucket_info("b", statistics=True)
    assert (full.objects, full.bytes, full.newest_ms) == (3, 1000, last.modified_ms)
    assert full.newest == last.modified
    assert await objects.bucket_info("b", newest=True) == full
    for options in ({}, {"statistics": True}, {"newest": True}):
        with pytest.raises(PathNotFoundError):
            await objects.bucket_info("none", **options)


async def test_the_latest_modification_before_1970(objects: ObjectStore) -> None:
    for key, time in (("a", 0), ("b", -5)):
        await objects.create("b", key, b"1")
        await objects.touch("b", key, modified=time)
    assert (await objects.bucket_info("b", newest=True)).newest_ms == 0


async def test_objects_that_are_being_written_do_not_count(
    objects: ObjectStore, fs: S3kClient
) -> None:
    async with fs.open("/b/coming", "xb") as file:
        await file.write(b"x")
        found = await objects.bucket_info("b", statistics=True)
        assert (found.objects, found.bytes) == (0, 0)
        with pytest.raises(DirectoryNotEmptyError):
            await objects.delete_bucket("b")
    assert (await objects.bucket_info("b", statistics=True)).objects == 1


async def test_delete_bucket(objects: ObjectStore) -> None:
    await objects.create("b", "x/y", b"1")
    with pytest.raises(DirectoryNotEmptyError):
        await objects.delete_bucket("b")
    assert await objects.read("b", "x/y") == b"1"
    await objects.delete("b", "x/y")
    await objects.delete_bucket("b")
    for _ in range(2):
        with pytest.raises(PathNotFoundError):
            await objects.delete_bucket("b")
    with pytest.raises(PathNotFoundError):
        await objects.bucket_info("b")
    assert await names(objects) == []


async def test_delete_bucket_with_its_objects(objects: ObjectStore, fs: S3kClient) -> None:
    for key in ("a", "x/y", "x/z/w"):
        await objects.create("b", key, b"1")
    await objects.delete_bucket("b", force=True)
    assert await paths(fs) == set()
    with pytest.raises(PathNotFoundError):
        await objects.delete_bucket("b", force=True)


async def test_no_object_is_lost_with_its_bucket(objects: ObjectStore) -> None:
    """Without `force`, an object that is created meanwhile keeps the bucket, or creates it."""
    for round_ in range(5):
        results = await asyncio.gather(
            objects.create("b", f"x/{round_}", b"1"),
            objects.delete_bucket("b"),
            return_exceptions=True,
        )
        created = not isinstance(results[0], BaseException)
        if created:
            assert await objects.read("b", f"x/{round_}") == b"1"
            await objects.delete("b", f"x/{round_}")
        else:
            assert isinstance(results[0], PathNotFoundError)
        if not created or "b" not in await names(objects):
            await objects.create_bucket("b")


async def test_purge_bucket(objects: ObjectStore, fs: S3kClient) -> None:
    await objects.create_bucket("other")
    await objects.create("other", "stays", b"1")
    for number in range(25):
        await objects.create("b", f"{number % 3}/{number % 5}/{number}", bytes(number))
    result = await objects.purge_bucket("b")
    assert (result.files, result.bytes, result.failures) == (25, sum(range(25)), ())
    assert await keys(objects) == []
    assert await paths(fs) == {"/b", "/other", "/other/stays"}
    assert (await objects.purge_bucket("b")).files == 0
    with pytest.raises(PathNotFoundError):
        await objects.purge_bucket("none")


async def test_the_name_of_a_new_bucket_is_limited(objects: ObjectStore, fs: S3kClient) -> None:
    await objects.create_bucket("é" * 64)
    with pytest.raises(NameTooLongError):
        await objects.create_bucket("x" * 65)
    # A longer one that the filesystem has is a bucket all the same.
    await fs.makedirs("/" + "x" * 65)
    await objects.put("x" * 65, "k", b"1")
    assert await names(objects) == ["b", "x" * 65, "é" * 64]
