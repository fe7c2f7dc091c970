"""Objects: the rows of H3's interface for enumeration, creation, reading and reorganisation."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from typing import Any

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import (
    ArgumentTypeError,
    EndOfFileError,
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    UnsupportedError,
)
from s3k_async.objects import Attributes, ObjectInfo, ObjectStore, byte_ranges, local_bytes
from tests.client.rig import paths
from tests.client.transacting import contents
from tests.engines.volumes import volume_backends

pytestmark = [
    pytest.mark.layouts("path", "tree"),
    volume_backends("memory", "embedded", "dynoxide+seaweedfs"),
]

DATA = bytes(index % 251 for index in range(3000))
"""Several parts of an upload."""


LOCAL_PARTS = list(itertools.product((0, 1000, 3000, 4000), (None, 0, 700, 9999)))


def part(offset: int, size: int | None) -> bytes:
    """The bytes of DATA in a range."""
    return DATA[offset:] if size is None else DATA[offset : offset + size]


@contextmanager
def pipe() -> Iterator[tuple[BufferedReader, FileIO]]:
    """Both ends of a pipe."""
    source, sink = os.pipe()
    with open(source, "rb") as reader, open(sink, "wb", buffering=0) as writer:
        yield reader, writer


async def keys(objects: ObjectStore, bucket: str = "b") -> list[str]:
    return [each.key async for each in objects.iterate(bucket)]


CREATIONS: dict[str, Callable[[ObjectStore, str], Awaitable[ObjectInfo]]] = {
    "create": lambda objects, key: objects.create("b", key, DATA),
    "create_from_file": lambda objects, key: objects.create_from_file("b", key, BytesIO(DATA)),
    "create_copy": lambda objects, key: objects.create_copy("b", "source", key),
    "create_copy of a range": lambda objects, key: objects.create_copy("b", "source", key, size=9),
    "create_pseudo": lambda objects, key: objects.create_pseudo("b", key, 100),
    "create_dummy": lambda objects, key: objects.create_dummy("b", key, b"ab", 100),
    "copy": lambda objects, key: objects.copy("b", "source", key, overwrite=False),
    "move": lambda objects, key: objects.move("b", "source", key, overwrite=False),
}
"""What needs a key without an object."""
WRITES: dict[str, Callable[[ObjectStore, str], Awaitable[ObjectInfo]]] = {
    "put": lambda objects, key: objects.put("b", key, DATA),
    "write": lambda objects, key: objects.write("b", key, DATA, offset=5),
    "write_copy": lambda objects, key: objects.write_copy("b", "source", key, offset=5),
    "write_from_file": lambda objects, key: objects.write_from_file("b", key, BytesIO(DATA)),
    "copy with overwrite": lambda objects, key: objects.copy("b", "source", key),
    "move with overwrite": lambda objects, key: objects.move("b", "source", key),
}
"""What creates an object or changes the one that is there."""
every_creation = pytest.mark.parametrize("verb", [*CREATIONS])
every_write = pytest.mark.parametrize("verb", [*CREATIONS, *WRITES])


# Creation


@every_creation
async def test_creation_is_refused_where_an_object_is(objects: ObjectStore, verb: str) -> None:
    await objects.create("b", "source", DATA)
    before = await objects.create("b", "x/taken", b"kept")
    with pytest.raises(PathExistsError):
        await CREATIONS[verb](objects, "x/taken")
    assert await objects.info("b", "x/taken") == before
    assert await objects.read("b", "x/taken") == b"kept"
    assert await objects.read("b", "source") == DATA
    made = await CREATIONS[verb](objects, "x/free")
    assert await objects.info("b", "x/free") == made


@every_creation
async def test_one_of_many_creates_an_object(objects: ObjectStore, verb: str) -> None:
    sources = {"move": 4}.get(verb, 1)
    for number in range(sources):
        await objects.create("b", f"source{number or ''}", DATA)

    async def attempt(number: int) -> bool:
        try:
            if verb == "move":
                source = f"source{number or ''}"
                await objects.move("b", source, "x/raced", overwrite=False)
            else:
                await CREATIONS[verb](objects, "x/raced")
        except PathExistsError:
            return False
        return True

    assert sum(await asyncio.gather(*map(attempt, range(4)))) == 1
    assert await objects.exists("b", "x/raced")


@every_write
async def test_nothing_is_created_in_a_missing_bucket(
    objects: ObjectStore, fs: S3kClient, verb: str
) -> None:
    await objects.create("b", "source", DATA)
    await objects.create_bucket("c")
    await objects.create("c", "source", DATA)
    await objects.delete_bucket("b", force=True)
    with pytest.raises(PathNotFoundError):
        await (CREATIONS | WRITES)[verb](objects, "k")
    assert await paths(fs) == {"/c", "/c/source"}


@pytest.mark.parametrize("verb", ["copy", "move", "create_copy", "write_copy"])
async def test_nothing_goes_to_a_missing_bucket(
    objects: ObjectStore, fs: S3kClient, verb: str
) -> None:
    await objects.create("b", "source", DATA)
    with pytest.raises(PathNotFoundError, match="bucket"):
        await getattr(objects, verb)("b", "source", "k", target_bucket="missing")
    assert await paths(fs) == {"/b", "/b/source"}


@every_write
async def test_a_key_does_not_lead_through_another_one(objects: ObjectStore, verb: str) -> None:
    await objects.create("b", "source", DATA)
    await objects.create("b", "x/file", b"")
    write = (CREATIONS | WRITES)[verb]
    with pytest.raises(NotDirectoryError):
        await write(objects, "x/file/below")
    with pytest.raises(IsDirectoryError):
        await write(objects, "x")
    assert await keys(objects) == ["source", "x/file"]
    assert await objects.read("b", "source") == DATA


@every_write
async def test_an_empty_directory_is_not_in_the_way(
    objects: ObjectStore, fs: S3kClient, verb: str
) -> None:
    await objects.create("b", "source", DATA)
    await objects.create("b", "x/y/z", b"")
    await objects.delete("b", "x/y/z")
    assert await fs.is_dir("/b/x/y")
    made = await (CREATIONS | WRITES)[verb](objects, "x")
    assert await objects.info("b", "x") == made
    assert await fs.is_file("/b/x")


async def test_create(objects: ObjectStore, fs: S3kClient) -> None:
    for key, data in (("k", DATA), ("x/y/z", b"1"), ("empty", b"")):
        made = await objects.create("b", key, data)
        assert (made.bucket, made.key, made.size) == ("b", key, len(data))
        assert await fs.read(f"/b/{key}") == data
        assert await objects.read("b", key) == data
    with pytest.raises(ArgumentTypeError):
        await objects.create("b", "text", "text")  # type: ignore[arg-type]
    assert not await objects.exists("b", "text")


async def test_put(objects: ObjectStore) -> None:
    first = await objects.put("b", "k", b"one")
    second = await objects.put("b", "k", DATA)
    assert second.version > first.version
    assert second.created_ms == first.created_ms
    assert await objects.read("b", "k") == DATA
    await objects.put("b", "k", b"")
    assert await objects.read("b", "k") == b""


async def test_create_pseudo(objects: ObjectStore) -> None:
    made = await objects.create_pseudo("b", "k", 2**40, mtime_ms=1_500_000_000_000)
    assert (made.size, made.modified_ms) == (2**40, 1_500_000_000_000)
    assert await objects.info("b", "k") == made
    assert await objects.read("b", "k", offset=2**39, size=5) == bytes(5)
    await objects.write("b", "k", b"data", offset=2**39)
    assert await objects.read("b", "k", offset=2**39 - 1, size=6) == b"\0data\0"
    assert (await objects.create_pseudo("b", "empty", 0)).size == 0
    assert await objects.read("b", "empty") == b""
    for size, error in ((-1, InvalidArgumentError), (2**63, InvalidArgumentError)):
        with pytest.raises(error):
            await objects.create_pseudo("b", "wrong", size)


async def test_create_copy(objects: ObjectStore) -> None:
    await objects.create("b", "source", DATA)
    for offset, size in itertools.product((0, 1, 2999, 3000, 5000), (None, 0, 1, 1500, 9999)):
        wanted = part(offset, size)
        key = f"{offset}/{size}"
        made = await objects.create_copy("b", "source", key, offset=offset, size=size)
        assert made.size == len(wanted)
        assert await objects.read("b", key) == wanted
    assert await objects.read("b", "source") == DATA
    await objects.create_bucket("other")
    await objects.create_copy("b", "source", "copy", offset=9, target_bucket="other")
    assert await objects.read("other", "copy") == DATA[9:]


async def test_create_copy_of_an_object_in_pieces(objects: ObjectStore) -> None:
    await objects.create("b", "source", DATA)
    await objects.write("b", "source", b"new", offset=100)
    await objects.truncate("b", "source", 5000)
    wanted = DATA[:100] + b"new" + DATA[103:] + bytes(2000)
    await objects.create_copy("b", "source", "whole")
    await objects.create_copy("b", "source", "part", offset=99, size=4000)
    assert await objects.read("b", "whole") == wanted
    assert await objects.read("b", "part") == wanted[99:4099]


async def test_create_dummy(objects: ObjectStore) -> None:
    for size in (0, 1, 6, 7, 8, 5000):
        made = await objects.create_dummy("b", f"{size}", b"pattern", size)
        assert made.size == size
        assert await objects.read("b", f"{size}") == (b"pattern" * 1000)[:size]
        assert await objects.read_dummy("b", f"{size}") == size
    with pytest.raises(InvalidArgumentError):
        await objects.create_dummy("b", "wrong", b"", 1)
    assert not await objects.exists("b", "wrong")


# Local files


async def test_create_from_file(objects: ObjectStore, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(DATA)
    for offset, size in LOCAL_PARTS:
        key = f"{offset}/{size}"
        span: Any = {"offset": offset, "size": size}
        await objects.create_from_file("b", f"path/{key}", local, **span)
        await objects.create_from_file("b", f"text/{key}", str(local), **span)
        with local.open("rb", buffering=0) as file:
            await objects.create_from_file("b", f"file/{key}", file, **span)
        for kind in ("path", "text", "file"):
            assert await objects.read("b", f"{kind}/{key}") == part(offset, size)


async def test_a_long_local_file(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of several pieces, whose path is reserved."""
    for module in (byte_ranges, local_bytes):
        monkeypatch.setattr(module, "CHUNK", 700)
    local = tmp_path / "local"
    local.write_bytes(DATA)
    await objects.create_from_file("b", "path", local, offset=1, size=2900)
    with local.open("rb", buffering=0) as file:
        await objects.create_from_file("b", "file", file, offset=1, size=2900)
        with pytest.raises(PathExistsError):
            await objects.create_from_file("b", "file", file)
    for key in ("path", "file"):
        assert await objects.read("b", key) == DATA[1:2901]
        assert await objects.read_to_file("b", key, tmp_path / key) == 2900
        assert (tmp_path / key).read_bytes() == DATA[1:2901]
    await objects.write_copy("b", "path", "file", source_offset=100, offset=2000)
    assert await objects.read("b", "file") == DATA[1:2001] + DATA[101:2901]


async def test_a_source_that_fails_leaves_nothing(
    objects: ObjectStore, fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def __init__(self) -> None:
            self.left = 3

        def read(self, size: int, /) -> bytes:
            self.left -= 1
            if not self.left:
                raise OSError(errno.EIO, "the disk fails")
            return bytes(size)

    for module in (byte_ranges, local_bytes):
        monkeypatch.setattr(module, "CHUNK", 700)
    await objects.create("b", "old", DATA)
    with pytest.raises(S3kError):
        await objects.create_from_file("b", "new", Failing())
    for key in ("new", "old"):
        with pytest.raises(S3kError):
            await objects.write_from_file("b", key, Failing())
    assert await paths(fs, include_uncommitted=True) == {"/b", "/b/old"}
    assert await objects.read("b", "old") == DATA


async def test_an_open_file_is_read_from_its_position(objects: ObjectStore) -> None:
    file = BytesIO(DATA)
    file.seek(100)
    await objects.create_from_file("b", "k", file, offset=10, size=20)
    assert await objects.read("b", "k") == DATA[110:130]


async def test_no_more_of_an_open_file_is_read_than_asked_for(objects: ObjectStore) -> None:
    """What follows belongs to others; the end of a pipe never comes while its writer is open."""
    file = BytesIO(DATA)
    await objects.create_from_file("b", "file", file, offset=10, size=20)
    assert file.tell() == 30
    with pipe() as (source, sink):
        sink.write(DATA[:100])
        await objects.create_from_file("b", "pipe", source, offset=10, size=20)
        await objects.write_from_file("b", "pipe", source, offset=20, size=0)
        await objects.write_from_file("b", "pipe", source, offset=20, size=70)
    assert await objects.read("b", "file") == DATA[10:30]
    assert await objects.read("b", "pipe") == DATA[10:100]


async def test_a_file_that_returns_more_than_asked_for(objects: ObjectStore) -> None:
    class Generous(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(64)

    await objects.create_from_file("b", "k", Generous(DATA), offset=10, size=20)
    await objects.create_from_file("b", "rest", Generous(DATA), offset=100)
    assert await objects.read("b", "k") == DATA[10:30]
    assert await objects.read("b", "rest") == DATA[100:]


async def test_a_target_that_would_block_loses_nothing_silently(objects: ObjectStore) -> None:
    await objects.create("b", "k", DATA * 30)  # a pipe holds 64 KiB
    with pipe() as (_, sink):
        os.set_blocking(sink.fileno(), False)
        with pytest.raises(EndOfFileError):
            await objects.read_to_file("b", "k", sink)


async def test_local_files_that_are_none(objects: ObjectStore, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("text")
    with pytest.raises(PathNotFoundError):
        await objects.create_from_file("b", "k", tmp_path / "none")
    with pytest.raises(UnsupportedError):
        await objects.create_from_file("b", "k", tmp_path)
    with text.open() as file, pytest.raises(ArgumentTypeError):
        await objects.create_from_file("b", "k", file)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError):
        await objects.create_from_file("b", "k", 3)  # type: ignore[arg-type]
    assert await keys(objects) == []


async def test_write_from_file(objects: ObjectStore, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(DATA)
    made = await objects.write_from_file("b", "x/k", local, offset=10, source_offset=5, size=2000)
    wanted = bytearray(10) + DATA[5:2005]
    assert made.size == 2010
    assert await objects.read("b", "x/k") == wanted
    await objects.write_from_file("b", "x/k", BytesIO(b"abc"), offset=4)
    wanted[4:7] = b"abc"
    await objects.write_from_file("b", "x/k", local, offset=1000)
    wanted[1000:] = DATA
    await objects.write_from_file("b", "x/k", BytesIO(b""), offset=9000)
    assert await objects.read("b", "x/k") == wanted


async def test_read_to_file(objects: ObjectStore, tmp_path: Path) -> None:
    await objects.create("b", "k", DATA)
    local = tmp_path / "local"
    local.write_bytes(b"replaced")
    for offset, size in LOCAL_PARTS:
        wanted = part(offset, size)
        read = await objects.read_to_file("b", "k", local, offset=offset, size=size)
        assert (read, local.read_bytes()) == (len(wanted), wanted)
        with local.open("wb", buffering=0) as file:
            file.write(b"before")
            assert await objects.read_to_file("b", "k", file, offset=offset, size=size) == read
        assert local.read_bytes() == b"before" + wanted


async def test_a_local_file_stays_where_reading_fails(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    local = tmp_path / "folder" / "local"
    local.write_bytes(b"kept")
    with pytest.raises(PathNotFoundError):
        await objects.read_to_file("b", "none", local)
    assert (local.read_bytes(), os.listdir(local.parent)) == (b"kept", ["local"])
    await objects.create("b", "k", DATA)
    with pytest.raises(PathNotFoundError):
        await objects.read_to_file("b", "k", tmp_path / "none" / "local")
    with pytest.raises(ArgumentTypeError):
        await objects.read_to_file("b", "k", 3)  # type: ignore[arg-type]


async def test_errors_of_a_local_target_are_not_those_of_the_object(
    objects: ObjectStore, tmp_path: Path
) -> None:
    await objects.create("b", "k", DATA)
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(IsDirectoryError) as directory:
        await objects.read_to_file("b", "k", tmp_path)
    assert directory.value.path == str(tmp_path)
    with pytest.raises(NotDirectoryError, match="a local file is in the way"):
        await objects.read_to_file("b", "k", tmp_path / "file" / "x")
    error = IsDirectoryError("the sink refuses", path="sink")

    class Refusing(BytesIO):
        def write(self, _data: object, /) -> int:
            raise error

    with pytest.raises(IsDirectoryError) as refused:
        await objects.read_to_file("b", "k", Refusing())
    assert refused.value is error


# Reading


async def test_read(objects: ObjectStore) -> None:
    await objects.create("b", "k", DATA)
    await objects.write("b", "pieces", DATA[:1000])
    await objects.write("b", "pieces", DATA[1000:], offset=1000)
    offsets, sizes = (0, 1, 2999, 3000, 3001, 2**42), (None, 0, 1, 1500, 3000, 2**40)
    for key, offset, size in itertools.product(("k", "pieces"), offsets, sizes):
        assert await objects.read("b", key, offset=offset, size=size) == part(offset, size)


async def test_ranges_that_are_none(objects: ObjectStore, fs: S3kClient) -> None:
    await objects.create("b", "k", DATA)
    ranges: list[tuple[object, object, type[S3kError]]] = [
        (-1, None, InvalidArgumentError),
        (0, -1, InvalidArgumentError),
        ("0", None, ArgumentTypeError),
        (True, None, ArgumentTypeError),
        (0, 1.5, ArgumentTypeError),
    ]
    for offset, size, error in ranges:
        span: dict[str, object] = {"offset": offset, "size": size}
        calls: list[Awaitable[object]] = [
            objects.read("b", "k", **span),  # type: ignore[arg-type]
            objects.read_to_file("b", "k", BytesIO(), **span),  # type: ignore[arg-type]
            objects.create_copy("b", "k", "new", **span),  # type: ignore[arg-type]
            objects.create_from_file("b", "new", BytesIO(DATA), **span),  # type: ignore[arg-type]
        ]
        for each in calls:
            with pytest.raises(error):
                await each
    sizes: list[Awaitable[object]] = [
        objects.read("b", "k", size=-1),
        objects.create_copy("b", "k", "new", size=-1),
        objects.create_pseudo("b", "new", -1),
        objects.create_dummy("b", "new", b"x", -1),
    ]
    for each in sizes:
        with pytest.raises(InvalidArgumentError, match=r"a size of a file is 0 to .*, not -1"):
            await each
    for offset in (-1, 5 * 2**40 + 1):
        with pytest.raises(InvalidArgumentError):
            await objects.write("b", "k", b"x", offset=offset)
        with pytest.raises(InvalidArgumentError):
            await objects.write_from_file("b", "k", BytesIO(b"x"), offset=offset)
        with pytest.raises(InvalidArgumentError):
            await objects.truncate("b", "k", offset)
    assert await contents(fs) == {"/b": None, "/b/k": DATA}


MISSING: dict[str, Callable[[ObjectStore, str, str], Awaitable[object]]] = {
    "info": lambda objects, bucket, key: objects.info(bucket, key),
    "read": lambda objects, bucket, key: objects.read(bucket, key),
    "read_to_file": lambda objects, bucket, key: objects.read_to_file(bucket, key, BytesIO()),
    "read_dummy": lambda objects, bucket, key: objects.read_dummy(bucket, key),
    "touch": lambda objects, bucket, key: objects.touch(bucket, key),
    "truncate": lambda objects, bucket, key: objects.truncate(bucket, key),
    "delete": lambda objects, bucket, key: objects.delete(bucket, key),
    "copy": lambda objects, bucket, key: objects.copy(bucket, key, "t", target_bucket="b"),
    "move": lambda objects, bucket, key: objects.move(bucket, key, "t", target_bucket="b"),
    "exchange": lambda objects, bucket, key: objects.exchange(
        bucket, key, "other", second_bucket="b"
    ),
    "exchange, second": lambda objects, bucket, key: objects.exchange(
        "b", "other", key, second_bucket=bucket
    ),
    "create_copy": lambda objects, bucket, key: objects.create_copy(
        bucket, key, "t", target_bucket="b"
    ),
    "write_copy": lambda objects, bucket, key: objects.write_copy(
        bucket, key, "t", target_bucket="b"
    ),
}
"""What needs an object."""


@pytest.mark.parametrize("verb", [*MISSING])
async def test_what_is_no_object_is_not_found(
    objects: ObjectStore, fs: S3kClient, verb: str
) -> None:
    """No bucket, no object, a directory, a key through an object, an object that is being
    written."""
    await objects.create("b", "other", b"1")
    await fs.makedirs("/b/directory")
    async with fs.open("/b/coming", "xb"):
        for bucket, key in (
            ("none", "k"),
            ("b", "none"),
            ("b", "x/y"),
            ("b", "directory"),
            ("b", "other/below"),
            ("b", "coming"),
        ):
            with pytest.raises(PathNotFoundError):
                await MISSING[verb](objects, bucket, key)
    assert await paths(fs) == {"/b", "/b/other", "/b/directory", "/b/coming"}


async def test_info(objects: ObjectStore, fs: S3kClient) -> None:
    made = await objects.create("b", "x/k", DATA)
    assert await objects.info("b", "x/k") == made
    status = await fs.stat("/b/x/k")
    assert made == ObjectInfo(
        "b",
        "x/k",
        3000,
        status.ctime_ms,
        status.mtime_ms,
        status.version,
        status.etag,
        status.checksum,
    )
    assert made.checksum.startswith("xxh128:")
    for time in (made.created, made.modified):
        assert datetime.now(UTC) - time < timedelta(hours=1)


async def test_exists(objects: ObjectStore, fs: S3kClient) -> None:
    await objects.create("b", "x/k", b"")
    assert await objects.exists("b", "x/k")
    async with fs.open("/b/coming", "xb"):
        for key in ("x", "none", "x/none", "x/k/below", "coming"):
            assert not await objects.exists("b", key)
    for bucket in ("none", "x"):
        with pytest.raises(PathNotFoundError):
            await objects.exists(bucket, "k")


# Writing in place


async def test_write(objects: ObjectStore) -> None:
    """H3's test: created, overwritten as a whole, and in the middle."""
    made = await objects.write("b", "x/k", DATA)
    assert (made.size, await objects.read("b", "x/k")) == (3000, DATA)
    again = await objects.write("b", "x/k", DATA[::-1])
    assert again.version > made.version
    middle = await objects.write("b", "x/k", b"#" * 1000, offset=1000)
    assert middle.size == 3000
    wanted = DATA[::-1][:1000] + b"#" * 1000 + DATA[::-1][2000:]
    assert await objects.read("b", "x/k") == wanted
    assert (await objects.write("b", "new", b"x", offset=7)).size == 8
    assert await objects.read("b", "new") == bytes(7) + b"x"
    assert (await objects.write("b", "empty", b"")).size == 0
    with pytest.raises(ArgumentTypeError):
        await objects.write("b", "new", "text")  # type: ignore[arg-type]


async def test_write_copy(objects: ObjectStore) -> None:
    spans = [
        (0, None, 0),
        (100, 50, 7),
        (0, 2000, 1000),
        (1000, None, 0),
        (3000, None, 5),
        (10, 9999, 4000),
    ]
    for target, (source_offset, size, offset) in itertools.product(("new", "old", "s"), spans):
        await objects.put("b", "s", DATA)
        await objects.put("b", "old", b"#" * 2500)
        piece = part(source_offset, size)
        wanted = bytearray({"new": b"", "old": b"#" * 2500, "s": DATA}[target])
        if piece:
            wanted += bytes(max(0, offset - len(wanted)))
            wanted[offset : offset + len(piece)] = piece
        written = await objects.write_copy(
            "b", "s", target, source_offset=source_offset, size=size, offset=offset
        )
        assert written.size == len(wanted)
        assert await objects.read("b", target) == wanted
        assert target == "s" or await objects.read("b", "s") == DATA
        if target == "new":
            await objects.delete("b", "new")


async def test_write_copy_between_buckets(objects: ObjectStore) -> None:
    await objects.create_bucket("other")
    await objects.create("b", "source", DATA)
    await objects.write_copy("b", "source", "x/k", size=10, offset=2, target_bucket="other")
    assert await objects.read("other", "x/k") == bytes(2) + DATA[:10]


# Reorganisation


async def test_copy(objects: ObjectStore) -> None:
    """H3's test copies one object a hundred times."""
    await objects.create("b", "k", DATA)
    for start in range(0, 100, 10):
        numbers = range(start, start + 10)
        await asyncio.gather(*(objects.copy("b", "k", f"copies/{each}") for each in numbers))
    found = [each async for each in objects.iterate("b", "copies/")]
    assert (len(found), {each.size for each in found}) == (100, {3000})
    assert await objects.read("b", "copies/99") == DATA
    await objects.put("b", "k", b"other")
    copied = await objects.copy("b", "k", "copies/99")
    assert copied == await objects.info("b", "copies/99")
    assert await objects.read("b", "copies/99") == b"other"
    with pytest.raises(PathExistsError):
        await objects.copy("b", "k", "copies/0", overwrite=False)
    assert await objects.read("b", "copies/0") == DATA


@pytest.mark.parametrize("verb", ["copy", "move"])
@pytest.mark.parametrize("target", ["new", "x/taken"])
async def test_user_metadata_is_copied_and_moved(
    objects: ObjectStore, verb: str, target: str
) -> None:
    """In place of that of an object at the target, also to another bucket."""
    await objects.create_bucket("other")
    given = Attributes(mode=0o640, uid=7, metadata={"a": b"1", "b": bytes(range(256))})
    for bucket in ("b", "other"):
        await objects.put("b", "k", DATA, attributes=given)
        await objects.create(
            bucket, "x/taken", b"old", attributes=Attributes(metadata={"old": b"1"})
        )
        made = await getattr(objects, verb)("b", "k", target, target_bucket=bucket)
        assert made.attributes == given
        assert await objects.list_metadata(bucket, target) == given.metadata
        assert await objects.exists("b", "k") == (verb == "copy")
        found = await objects.list_with_metadata(bucket, "a")
        assert {each.key for each in found.objects} - {"k"} == {target}
        if verb == "copy":
            assert await objects.list_metadata("b", "k") == given.metadata
        left = await objects.list_with_metadata(bucket, "old")
        assert {each.key for each in left.objects} == ({"x/taken"} if target == "new" else set())


async def test_move(objects: ObjectStore) -> None:
    made = await objects.create("b", "k", DATA)
    moved = await objects.move("b", "k", "new/place")
    assert (moved.key, moved.checksum, moved.created_ms) == (
        "new/place",
        made.checksum,
        made.created_ms,
    )
    assert await keys(objects) == ["new/place"]
    await objects.create("b", "target", b"old")
    with pytest.raises(PathExistsError):
        await objects.move("b", "new/place", "target", overwrite=False)
    assert await objects.read("b", "target") == b"old"
    await objects.move("b", "new/place", "target")
    assert await keys(objects) == ["target"]
    assert await objects.read("b", "target") == DATA


async def test_copy_and_move_between_buckets(objects: ObjectStore) -> None:
    await objects.create_bucket("other")
    await objects.create("b", "k", DATA)
    copied = await objects.copy("b", "k", "x/copy", target_bucket="other")
    assert (copied.bucket, copied.key) == ("other", "x/copy")
    moved = await objects.move("b", "k", "x/moved", target_bucket="other")
    assert (moved.bucket, moved.key) == ("other", "x/moved")
    assert await keys(objects) == []
    assert await keys(objects, "other") == ["x/copy", "x/moved"]
    for call in (objects.copy, objects.move):
        with pytest.raises(PathNotFoundError):
            await call("other", "x/copy", "k", target_bucket="none")
    assert await objects.read("other", "x/copy") == DATA


async def test_exchange(objects: ObjectStore) -> None:
    await objects.create_bucket("other")
    await objects.create("b", "x/one", b"one")
    await objects.create("b", "two", DATA)
    for there in (DATA, b"one"):
        await objects.exchange("b", "x/one", "two")
        assert await objects.read("b", "x/one") == there
    await objects.exchange("b", "two", "two")
    await objects.create("other", "three", b"three")
    await objects.exchange("b", "two", "three", second_bucket="other")
    assert await objects.read("b", "two") == b"three"
    assert await objects.read("other", "three") == DATA


async def test_truncate(objects: ObjectStore) -> None:
    await objects.create("b", "k", DATA)
    wanted = DATA
    for size in (2500, 1000, 4000, 999, 1001, 0, 7):
        await objects.truncate("b", "k", size)
        assert (await objects.info("b", "k")).size == size
        wanted = wanted[:size] + bytes(max(0, size - len(wanted)))
        assert await objects.read("b", "k") == wanted
    await objects.truncate("b", "k")
    assert await objects.read("b", "k") == b""


async def test_delete(objects: ObjectStore, fs: S3kClient) -> None:
    await objects.create("b", "k", DATA)
    async with fs.open("/b/k") as reader:
        await objects.delete("b", "k")
        assert not await objects.exists("b", "k")
        assert await reader.read() == DATA
    with pytest.raises(PathNotFoundError):
        await objects.delete("b", "k")
    assert (await objects.create("b", "k", b"again")).version == 2


async def test_an_overwrite_does_not_stop_a_deletion(objects: ObjectStore) -> None:
    await objects.create("b", "k", b"1")
    for _ in range(5):
        await objects.put("b", "k", b"2")
        await asyncio.gather(objects.put("b", "k", b"3"), objects.delete("b", "k"))
