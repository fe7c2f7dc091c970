"""Attributes and user metadata of objects: the rows of H3's interface, and its tests of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from io import BytesIO

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    MetadataNotFoundError,
    NameTooLongError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
)
from s3k_async.objects import NOW, UNCHANGED, Attributes, ObjectInfo, ObjectStore
from tests.engines.volumes import volume_backends

pytestmark = [
    pytest.mark.layouts("path", "tree"),
    volume_backends("memory", "embedded", "dynoxide+seaweedfs"),
]

VALUE = bytes(range(256))


async def having(objects: ObjectStore, name: str, bucket: str = "b", limit: int = 2) -> set[str]:
    """The keys with a metadata name, each found once."""
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = await objects.list_with_metadata(bucket, name, after=token, limit=limit)
        assert len(page.objects) <= limit
        found += [each.key for each in page.objects]
        token = page.token
    assert len(found) == len(set(found))
    return set(found)


async def test_set_and_replace_and_remove(objects: ObjectStore) -> None:
    await objects.create("b", "k", b"data")
    for value in (VALUE, b"", b"other"):
        await objects.set_metadata("b", "k", "name", value)
        assert await objects.get_metadata("b", "k", "name") == value
    await objects.set_metadata("b", "k", "second", memoryview(b"2"))
    assert await objects.list_metadata("b", "k") == {"name": b"other", "second": b"2"}
    info = await objects.info("b", "k")
    assert info.attributes == Attributes(metadata={"name": b"other", "second": b"2"})
    await objects.delete_metadata("b", "k", "name")
    assert await objects.list_metadata("b", "k") == {"second": b"2"}
    for call in (objects.get_metadata, objects.delete_metadata):
        with pytest.raises(MetadataNotFoundError):
            await call("b", "k", "name")
    assert await objects.read("b", "k") == b"data"


async def test_one_of_many_removes_a_name(objects: ObjectStore) -> None:
    await objects.create("b", "k", b"", attributes=Attributes(metadata={"name": b"1"}))
    results = await asyncio.gather(
        *(objects.delete_metadata("b", "k", "name") for _ in range(5)), return_exceptions=True
    )
    lost = [each for each in results if each is not None]
    assert (len(lost), {type(each) for each in lost}) == (4, {MetadataNotFoundError})


async def test_metadata_errors(objects: ObjectStore) -> None:
    await objects.create("b", "k", b"")
    for name, error in (
        ("", InvalidArgumentError),
        ("#name", InvalidArgumentError),
        ("x" * 67, NameTooLongError),
        (None, ArgumentTypeError),
    ):
        for call in (
            objects.set_metadata("b", "k", name, b""),  # type: ignore[arg-type]
            objects.get_metadata("b", "k", name),  # type: ignore[arg-type]
            objects.delete_metadata("b", "k", name),  # type: ignore[arg-type]
            objects.list_with_metadata("b", name),  # type: ignore[arg-type]
        ):
            with pytest.raises(error):
                await call
    with pytest.raises(InvalidArgumentError):
        await objects.set_metadata("b", "k", "large", bytes(9000))
    with pytest.raises(ArgumentTypeError):
        await objects.set_metadata("b", "k", "text", "text")  # type: ignore[arg-type]
    for bucket, key in (("none", "k"), ("b", "none")):
        for missing in (
            objects.set_metadata(bucket, key, "n", b""),
            objects.get_metadata(bucket, key, "n"),
            objects.delete_metadata(bucket, key, "n"),
            objects.list_metadata(bucket, key),
            objects.copy_metadata("b", "k", key, target_bucket=bucket),
            objects.copy_metadata(bucket, key, "k", target_bucket="b"),
            objects.move_metadata("b", "k", key, target_bucket=bucket),
            objects.move_metadata(bucket, key, "k", target_bucket="b"),
            objects.set_attributes(bucket, key, mode=0o600),
        ):
            with pytest.raises(PathNotFoundError):
                await missing
    with pytest.raises(PathNotFoundError):
        await objects.list_with_metadata("none", "n")
    assert await objects.list_metadata("b", "k") == {}


async def test_copy_and_move_metadata(objects: ObjectStore) -> None:
    await objects.create("b", "one", b"1", attributes=Attributes(metadata={"a": b"1", "b": b"1"}))
    await objects.create("b", "two", b"2", attributes=Attributes(metadata={"b": b"2", "c": b"2"}))
    await objects.copy_metadata("b", "one", "two")
    assert await objects.list_metadata("b", "two") == {"a": b"1", "b": b"1", "c": b"2"}
    assert await objects.list_metadata("b", "one") == {"a": b"1", "b": b"1"}
    await objects.create("b", "three", b"3", attributes=Attributes(metadata={"d": b"3"}))
    await objects.move_metadata("b", "one", "three")
    assert await objects.list_metadata("b", "one") == {}
    assert await objects.list_metadata("b", "three") == {"a": b"1", "b": b"1", "d": b"3"}
    await objects.move_metadata("b", "three", "three")
    assert len(await objects.list_metadata("b", "three")) == 3
    assert await having(objects, "a") == {"two", "three"}
    assert await having(objects, "d") == {"three"}
    assert await objects.read("b", "one") == b"1"


async def test_metadata_moves_once(objects: ObjectStore) -> None:
    """Concurrent moves of the same values lose none, and leave them in one place each."""
    await objects.create("b", "s", b"", attributes=Attributes(metadata={"n": b"1"}))
    for key in ("x", "y", "z"):
        await objects.create("b", key, b"")
    await asyncio.gather(*(objects.move_metadata("b", "s", key) for key in ("x", "y", "z")))
    assert len(await having(objects, "n")) == 1
    assert "s" not in await having(objects, "n")


async def test_search_by_name(objects: ObjectStore, fs: S3kClient) -> None:
    """As H3's test: the search follows every change of an object."""
    await objects.create_bucket("other")
    for key in ("one", "x/two", "three", "four#hash"):
        await objects.create("b", key, b"")
        await objects.set_metadata("b", key, "n", VALUE)
    await objects.create("other", "one", b"", attributes=Attributes(metadata={"n": b""}))
    await fs.makedirs("/b/directory")
    await fs.set_attributes("/b/directory", metadata={"n": b""})
    assert await having(objects, "n") == {"one", "x/two", "three", "four#hash"}
    assert await having(objects, "n", "other") == {"one"}
    assert await having(objects, "none") == set()
    await objects.delete_metadata("b", "three", "n")
    assert await having(objects, "n") == {"one", "x/two", "four#hash"}
    await objects.copy("b", "one", "copied/one")
    await objects.move("b", "x/two", "moved/two")
    assert await having(objects, "n") == {"one", "copied/one", "moved/two", "four#hash"}
    await objects.truncate("b", "one")
    await objects.write("b", "one", b"abc", offset=1)
    await objects.put("b", "one", b"new")
    assert await objects.get_metadata("b", "one", "n") == VALUE
    await objects.exchange("b", "one", "three")
    assert await having(objects, "n") == {"three", "copied/one", "moved/two", "four#hash"}
    await objects.delete("b", "copied/one")
    assert await having(objects, "n") == {"three", "moved/two", "four#hash"}
    await objects.purge_bucket("b")
    assert await having(objects, "n") == set()
    assert await having(objects, "n", "other") == {"one"}


async def test_a_copy_replaces_the_metadata(objects: ObjectStore) -> None:
    both = Attributes(mode=0o600, uid=7, gid=8, metadata={"a": b"1"})
    await objects.create("b", "one", b"1", attributes=both)
    await objects.create("b", "two", b"2", attributes=Attributes(metadata={"b": b"2"}))
    assert (await objects.copy("b", "one", "two")).attributes == both
    assert (await objects.create_copy("b", "one", "whole")).attributes == Attributes()
    assert (await objects.create_copy("b", "one", "part", size=0)).attributes == Attributes()


async def test_attributes(objects: ObjectStore) -> None:
    made = await objects.create("b", "k", b"")
    assert made.attributes == Attributes()
    changed = await objects.set_attributes("b", "k", mode=0o640, uid=1)
    assert changed.attributes == Attributes(mode=0o640, uid=1)
    assert changed.modified_ms == made.modified_ms
    assert changed.version > made.version
    changed = await objects.set_attributes("b", "k", gid=2)
    assert changed.attributes == Attributes(mode=0o640, uid=1, gid=2)
    assert (await objects.info("b", "k")) == changed
    for wrong in (
        objects.set_attributes("b", "k", mode=-1),
        objects.set_attributes("b", "k", mode=0o10000),
        objects.set_attributes("b", "k", uid=-1),
        objects.set_attributes("b", "k", gid=2**32),
    ):
        with pytest.raises(InvalidArgumentError):
            await wrong
    pseudo = await objects.create_pseudo("b", "p", 5, attributes=Attributes(mode=0o400))
    assert pseudo.attributes == Attributes(mode=0o400)
    put = await objects.put("b", "p", b"", attributes=Attributes(uid=3))
    assert put.attributes == Attributes(uid=3)
    assert (await objects.put("b", "p", b"1")).attributes == Attributes(uid=3)


async def test_the_time_of_the_last_change(objects: ObjectStore) -> None:
    made = await objects.create("b", "k", b"data")
    assert (made.changed_ms, made.changed) == (made.modified_ms, made.modified)
    former = made.changed_ms
    for change in (
        partial(objects.set_attributes, "b", "k", mode=0o640),
        partial(objects.set_metadata, "b", "k", "name", b"1"),
        partial(objects.delete_metadata, "b", "k", "name"),
    ):
        await asyncio.sleep(0.002)
        await change()
        info = await objects.info("b", "k")
        assert (info.created_ms, info.modified_ms) == (made.created_ms, made.modified_ms)
        assert info.changed_ms > former
        former = info.changed_ms
    assert (await objects.set_attributes("b", "k", mode=0o640)) == info
    assert await objects.list_metadata("b", "k") == {}
    touched = await objects.touch("b", "k", modified=1_000_000)
    assert (touched.modified_ms, touched.changed_ms >= former) == (1_000_000, True)
    copied = await objects.copy("b", "k", "other")
    assert copied.changed_ms == copied.modified_ms >= touched.changed_ms
    page = await objects.list("b")
    assert [each.changed_ms for each in page.objects] == [touched.changed_ms, copied.changed_ms]


async def test_the_time_of_moved_metadata(objects: ObjectStore) -> None:
    """Of both objects, and of none to which nothing happens."""
    for key in ("k", "l"):
        await objects.create("b", key, b"")
    await objects.set_metadata("b", "k", "name", b"1")
    before = [await objects.info("b", key) for key in ("k", "l")]
    await asyncio.sleep(0.002)
    await objects.move_metadata("b", "k", "l")
    after = [await objects.info("b", key) for key in ("k", "l")]
    assert after[0].changed_ms > before[0].changed_ms
    assert after[0].changed_ms == after[1].changed_ms
    await objects.move_metadata("b", "k", "l")
    assert [await objects.info("b", key) for key in ("k", "l")] == after


async def test_the_owner_of_a_bucket(objects: ObjectStore) -> None:
    made = await objects.create_bucket("owned", uid=7)
    assert (made.uid, await objects.bucket_info("owned")) == (7, made)
    assert (await objects.bucket_info("b")).uid is None
    with pytest.raises(InvalidArgumentError):
        await objects.create_bucket("wrong", uid=-1)
    assert [each.uid async for each in objects.list_buckets()] == [None, 7]


async def test_attributes_of_a_bucket(objects: ObjectStore, fs: S3kClient) -> None:
    """They are set by the filesystem, and its objects keep their own."""
    made = await objects.create("b", "k", b"data")
    before = await objects.bucket_info("b")
    await fs.set_attributes("/b", uid=9, mode=0o750, metadata={"n": b"1"})
    found = await objects.bucket_info("b")
    assert found == replace(before, uid=9)
    assert [each async for each in objects.list_buckets()] == [found]
    status = await fs.stat("/b")
    assert (status.attributes.mode, status.attributes.metadata) == (0o750, {"n": b"1"})
    assert await objects.info("b", "k") == made
    assert (await objects.list_with_metadata("b", "n")).objects == ()


CHANGES: dict[str, Callable[[ObjectStore], Awaitable[object]]] = {
    "put": lambda objects: objects.put("b", "k", b"new"),
    "write": lambda objects: objects.write("b", "k", b"new"),
    "write_copy": lambda objects: objects.write_copy("b", "other", "k"),
    "write_from_file": lambda objects: objects.write_from_file("b", "k", BytesIO(b"new")),
    "truncate": lambda objects: objects.truncate("b", "k"),
    "delete": lambda objects: objects.delete("b", "k"),
    "move": lambda objects: objects.move("b", "k", "new"),
    "move onto it": lambda objects: objects.move("b", "other", "k"),
    "copy onto it": lambda objects: objects.copy("b", "other", "k"),
    "exchange": lambda objects: objects.exchange("b", "other", "k"),
    "touch": lambda objects: objects.touch("b", "k", modified=0),
    "exchange with it": lambda objects: objects.exchange("b", "k", "other"),
    "complete_upload": lambda objects: completed(objects, "k"),
}


CREATIONS: dict[str, Callable[[ObjectStore], Awaitable[object]]] = {
    "create": lambda objects: objects.create("b", "k", b"new"),
    "create_from_file": lambda objects: objects.create_from_file("b", "k", BytesIO(b"new")),
    "create_copy": lambda objects: objects.create_copy("b", "other", "k"),
    "create_pseudo": lambda objects: objects.create_pseudo("b", "k", 3),
    "create_dummy": lambda objects: objects.create_dummy("b", "k", b"x", 3),
    "copy without overwrite": lambda objects: objects.copy("b", "other", "k", overwrite=False),
    "move without overwrite": lambda objects: objects.move("b", "other", "k", overwrite=False),
}


"""What is refused for any object that exists."""


async def completed(objects: ObjectStore, key: str) -> ObjectInfo:
    """An object by an upload with one part."""
    upload = await objects.create_upload("b", key)
    await objects.put_part(upload.id, 0, b"new")
    return await objects.complete_upload(upload.id)


@pytest.mark.parametrize("change", [*CHANGES, *CREATIONS])
async def test_a_read_only_object_is_not_changed(objects: ObjectStore, change: str) -> None:
    await objects.create("b", "k", b"data")
    await objects.create("b", "other", b"other")
    before = await objects.set_attributes("b", "k", read_only=True)
    assert before.attributes.read_only
    if change in CHANGES:
        with pytest.raises(PermissionDeniedError):
            await CHANGES[change](objects)
    else:
        with pytest.raises(PathExistsError):
            await CREATIONS[change](objects)
    assert await objects.info("b", "k") == before
    assert [each.key async for each in objects.iterate("b")] == ["k", "other"]
    assert await objects.read("b", "k") == b"data"
    assert await objects.read("b", "other") == b"other"


async def test_attributes_of_a_read_only_object_can_be_changed(objects: ObjectStore) -> None:
    """Mode, owner and user metadata, and nothing of the data."""
    await objects.create("b", "k", b"data", attributes=Attributes(metadata={"n": b"1"}))
    await objects.create("b", "other", b"", attributes=Attributes(metadata={"copied": b"1"}))
    before = await objects.set_attributes("b", "k", read_only=True)
    changed = await objects.set_attributes("b", "k", mode=0o600, uid=1, gid=2)
    await objects.set_metadata("b", "k", "more", b"2")
    await objects.delete_metadata("b", "k", "n")
    await objects.copy_metadata("b", "other", "k")
    assert await objects.list_metadata("b", "k") == {"more": b"2", "copied": b"1"}
    await objects.move_metadata("b", "k", "other")
    after = await objects.info("b", "k")
    assert after.attributes == Attributes(mode=0o600, uid=1, gid=2, read_only=True)
    assert (after.modified_ms, after.checksum, after.size) == (
        before.modified_ms,
        before.checksum,
        before.size,
    )
    assert after.version > changed.version > before.version
    assert await objects.read("b", "k") == b"data"


async def test_read_only_goes_one_way(objects: ObjectStore, fs: S3kClient) -> None:
    await objects.create("b", "k", b"data")
    await objects.set_attributes("b", "k", read_only=True)
    with pytest.raises(InvalidArgumentError):
        await objects.set_attributes("b", "k", read_only=False)
    copied = await objects.copy("b", "k", "copy")
    assert not copied.attributes.read_only
    purged = await objects.purge_bucket("b")
    assert (purged.files, [path for path, _ in purged.failures]) == (1, ["/b/k"])
    assert await objects.read("b", "k") == b"data"
    await fs.set_attributes("/b/k", read_only=False)
    await objects.delete("b", "k")


async def test_a_bucket_with_a_read_only_object_is_not_deleted(
    objects: ObjectStore, fs: S3kClient
) -> None:
    """By `force` either: nothing is deleted, no object beside it and no pending upload."""
    upload = await objects.create_upload("b", "big")
    await objects.create("b", "a", b"other")
    await objects.create("b", "x/k", b"data", attributes=Attributes(read_only=True))
    for path in ("/b/x/k", "/b/x", "/b"):
        await fs.set_attributes(path, read_only=True)
        with pytest.raises(PermissionDeniedError, match="--writable") as caught:
            await objects.delete_bucket("b", force=True)
        assert caught.value.path == path
        await fs.set_attributes(path, read_only=False)
        assert [each.key async for each in objects.iterate("b")] == ["a", "x/k"]
        assert await objects.list_uploads("b") == [upload]
    await objects.delete_bucket("b", force=True)
    assert not await fs.exists("/b")


async def test_touch(objects: ObjectStore) -> None:
    made = await objects.create("b", "k", b"data")
    old = await objects.touch("b", "k", modified=1_000_000)
    assert (old.modified_ms, old.size, old.checksum) == (1_000_000, 4, made.checksum)
    time = datetime(2020, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert (await objects.touch("b", "k", modified=time)).modified == time
    assert await objects.touch("b", "k", modified=UNCHANGED) == await objects.info("b", "k")
    for now in (objects.touch("b", "k"), objects.touch("b", "k", modified=NOW)):
        await objects.touch("b", "k", modified=5)
        touched = await now
        assert touched.modified_ms >= made.modified_ms
    with pytest.raises(InvalidArgumentError):
        await objects.touch("b", "k", modified=datetime(2020, 1, 1))  # noqa: DTZ001
    for wrong in (None, "now", 1.5, True):
        with pytest.raises(ArgumentTypeError):
            await objects.touch("b", "k", modified=wrong)  # type: ignore[arg-type]
    before = await objects.info("b", "k")
    for far in (10**17, 10**30, -(10**17)):
        with pytest.raises(InvalidArgumentError, match="years 1 to 9999"):
            await objects.touch("b", "k", modified=far)
        with pytest.raises(InvalidArgumentError, match="years 1 to 9999"):
            await objects.create_pseudo("b", "new", 1, mtime_ms=far)
    with pytest.raises(ArgumentTypeError):
        await objects.create_pseudo("b", "new", 1, mtime_ms="now")  # type: ignore[arg-type]
    assert await objects.info("b", "k") == before
    assert not await objects.exists("b", "new")
    for limit in (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    ):
        assert (await objects.touch("b", "k", modified=limit)).modified == limit
    assert await objects.read("b", "k") == b"data"


async def test_many_objects_are_found(objects: ObjectStore, fs: S3kClient) -> None:
    """H3 pages through 1,499 of them."""
    keys = [f"{number % 7}/{number:03}" for number in range(150)]
    await fs.write_many([(f"/b/{key}", b"") for key in keys])
    for start in range(0, len(keys), 25):
        await asyncio.gather(
            *(objects.set_metadata("b", key, "n", b"") for key in keys[start : start + 25])
        )
    assert await having(objects, "n", limit=40) == set(keys)
    assert await having(objects, "n", limit=1000) == set(keys)
