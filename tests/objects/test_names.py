"""The rule for names of buckets and objects."""

from __future__ import annotations

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import ArgumentTypeError, InvalidArgumentError, NameTooLongError, S3kError
from s3k_async.objects import ObjectStore
from tests.client.rig import paths
from tests.engines.volumes import volume_backends

pytestmark = [
    pytest.mark.layouts("path", "tree"),
    volume_backends("memory", "embedded", "dynoxide+seaweedfs"),
]

BUCKETS = ["a", "A.b-c_d", "#", "a#b", "...", " ", "\x7f", "é" * 64, "😀" * 64, "a$b", "%2F", "\\"]
WRONG_BUCKETS: list[tuple[object, type[S3kError]]] = [
    ("", InvalidArgumentError),
    (".", InvalidArgumentError),
    ("..", InvalidArgumentError),
    ("/a", InvalidArgumentError),
    ("a/b", InvalidArgumentError),
    ("a/", InvalidArgumentError),
    ("a\0", InvalidArgumentError),
    ("\ud800", InvalidArgumentError),
    ("x" * 65, NameTooLongError),
    ("x" * 1025, NameTooLongError),
    (None, ArgumentTypeError),
    (b"a", ArgumentTypeError),
]
KEYS = [
    "a",
    "a/b/c/d",
    "a#b",
    "a#b#c",
    "#",
    "a$b",
    ".hidden",
    "...",
    "a..b",
    " ",
    "%",
    "a*?[",
    "\x7f/x",
    "\x01",
    "é/\u00e9",
    "e\u0301",
    "😀" * 256,
    "x" * 1024,
    "/".join(["x" * 60] * 8),
    "@USER",
    "a\\b",
]
WRONG_KEYS: list[tuple[object, type[S3kError]]] = [
    ("", InvalidArgumentError),
    (".", InvalidArgumentError),
    ("..", InvalidArgumentError),
    ("/", InvalidArgumentError),
    ("/a", InvalidArgumentError),
    ("a/", InvalidArgumentError),
    ("a//b", InvalidArgumentError),
    ("a/./b", InvalidArgumentError),
    ("a/../b", InvalidArgumentError),
    ("../b/a", InvalidArgumentError),
    ("a\0b", InvalidArgumentError),
    ("\ud800", InvalidArgumentError),
    ("x" * 1025, NameTooLongError),
    ("é" * 513, NameTooLongError),
    (None, ArgumentTypeError),
    (b"a", ArgumentTypeError),
]


async def test_names_of_buckets(objects: ObjectStore) -> None:
    for name in BUCKETS:
        assert (await objects.create_bucket(name)).name == name
        await objects.put(name, "k", name.encode())
        assert await objects.read(name, "k") == name.encode()
    wanted = sorted(["b", *BUCKETS], key=str.encode)
    assert [bucket.name async for bucket in objects.list_buckets()] == wanted


async def test_wrong_names_of_buckets(objects: ObjectStore, fs: S3kClient) -> None:
    for name, error in WRONG_BUCKETS:
        with pytest.raises(error):
            await objects.create_bucket(name)  # type: ignore[arg-type]
    for name, error in WRONG_BUCKETS[:8]:
        assert isinstance(name, str)
        for call in (
            objects.bucket_info(name),
            objects.delete_bucket(name),
            objects.purge_bucket(name),
            objects.list(name),
            objects.exists(name, "k"),
            objects.put(name, "k", b""),
            objects.read(name, "k"),
            objects.copy("b", "k", "k", target_bucket=name),
        ):
            with pytest.raises(error):
                await call
    assert await paths(fs) == {"/b"}


async def test_keys(objects: ObjectStore) -> None:
    for number, key in enumerate(KEYS):
        bucket = f"bucket-{number}"
        await objects.create_bucket(bucket)
        made = await objects.create(bucket, key, key.encode())
        assert (made.key, await objects.info(bucket, key)) == (key, made)
        assert [each.key async for each in objects.iterate(bucket)] == [key]
        assert await objects.list(bucket, key) == await objects.list(bucket)
        assert (await objects.list(bucket, after=key)).objects == ()
        await objects.move(bucket, key, "moved")
        await objects.copy(bucket, "moved", key)
        assert await objects.read(bucket, key) == key.encode()


async def test_wrong_keys(objects: ObjectStore, fs: S3kClient) -> None:
    await objects.create("b", "k", b"")
    for key, error in WRONG_KEYS:
        for call in (
            objects.create("b", key, b""),  # type: ignore[arg-type]
            objects.put("b", key, b""),  # type: ignore[arg-type]
            objects.write("b", key, b""),  # type: ignore[arg-type]
            objects.read("b", key),  # type: ignore[arg-type]
            objects.info("b", key),  # type: ignore[arg-type]
            objects.exists("b", key),  # type: ignore[arg-type]
            objects.delete("b", key),  # type: ignore[arg-type]
            objects.copy("b", "k", key),  # type: ignore[arg-type]
            objects.move("b", "k", key),  # type: ignore[arg-type]
            objects.exchange("b", "k", key),  # type: ignore[arg-type]
            objects.truncate("b", key),  # type: ignore[arg-type]
        ):
            with pytest.raises(error):
                await call
    assert await paths(fs) == {"/b", "/b/k"}


async def test_the_whole_path_is_limited(objects: ObjectStore, fs: S3kClient) -> None:
    """The directories above an object have to fit into a partition key of 2,048 bytes."""
    fits, long = ("/".join(["x" * 200] * depth) for depth in (10, 12))
    await objects.create("b", fits, b"1")
    assert await objects.read("b", fits) == b"1"
    before = await paths(fs)
    for call in (
        objects.create("b", long, b"1"),
        objects.info("b", long),
        objects.move("b", fits, long),
        objects.list("b", after=long),
    ):
        with pytest.raises(NameTooLongError, match=r"the key is too long: .* 2,000 bytes of UTF-8"):
            await call
    assert await paths(fs) == before
