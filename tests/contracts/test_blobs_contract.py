"""The blob port: writing, reading, removing and copying whole blobs, and their keys."""

from __future__ import annotations

import time
from array import array
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import anyio
import pytest

from s3k_async.backends.ports.blobs import Buffer, get_into
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    InvalidPathError,
    UnsupportedError,
    VolumeNotFoundError,
)
from tests.contracts.subjects import (
    RACING_BLOB_STORES,
    S3,
    Blobs,
    OpenBlobs,
    all_blobs,
    check_space,
    on_blobs,
)

ODD_KEYS = [
    "a b",
    "a%20b",
    "a+b",
    "a#b",
    "a?b=c&d",
    "a:b",
    "a=b",
    "5f0c1b1e-0000-4000-8000-000000000000.id=5f0c1b1e-0000-4000-8000-000000000001",
    "naïve/Größe",
    "nai\u0308ve/Gro\u0308ße",
    "😀/\U0010ffff",
    "quote'\"",
    "~",
    "-",
    ".hidden",
    "..x",
    "x..",
    "...",
    "x.tmp",
    ".temporary/x",
    "tab\there",
    " leading and trailing ",
    "<&>",
    "case",
    "Case",
    "CON",
    "a;b,c@d!e$f*(g)[h]{i}|j^k`l",
    "dir/dir/dir/file",
]
NO_FILE_AND_DIRECTORY = "no file is a directory, too"
BAD_KEYS = [
    "",
    "/",
    "/x",
    "x/",
    "a//b",
    ".",
    "..",
    "./x",
    "../x",
    "a/./b",
    "a/../b",
    "a/..",
    "../../../../../../tmp/x",
    "x\0y",
    "\0",
    "x" * 1025,
    "é" * 513,
    "\ud800",
]


async def test_put_head_and_get(blobs: Blobs) -> None:
    before_ms = time.time_ns() // 1_000_000
    written = await blobs.put("key", b"content")
    assert (written.key, written.size) == ("key", 7)
    assert written.etag
    found = await blobs.head("key")
    assert found is not None
    assert (found.key, found.size, found.etag) == ("key", 7, written.etag)
    assert abs(found.mtime_ms - before_ms) < 3_600_000
    assert await blobs.get("key") == b"content"
    assert [(each.key, each.size, each.etag) for each in await all_blobs(list_all(blobs))] == [
        ("key", 7, written.etag)
    ]


async def test_what_is_absent(blobs: Blobs) -> None:
    assert await blobs.head("nothing") is None
    assert await blobs.head("no/thing") is None
    for start, end in ((0, None), (0, 0), (3, 3), (10**12, None)):
        with pytest.raises(BlobNotFoundError):
            await blobs.get("nothing", start, end)
    await blobs.put("a", b"1")
    assert await blobs.head("a/b") is None
    with pytest.raises(BlobNotFoundError):
        await blobs.get("a/b")
    await blobs.put("d/e", b"1")
    assert await blobs.head("d") is None
    with pytest.raises(BlobNotFoundError):
        await blobs.get("d")


async def test_ranges(blobs: Blobs) -> None:
    content = bytes(range(100))
    await blobs.put("key", content)
    starts = [0, 1, 50, 99, 100, 101, 5000, 10**12]
    for start, end in [
        (start, end)
        for start in starts
        for end in [None, *starts, 2, 60]
        if end is None or end >= start
    ]:
        assert await blobs.get("key", start, end) == content[start:end], (start, end)


async def test_a_get_with_conditions(blobs: Blobs) -> None:
    first = await blobs.put("key", b"content")
    for start, end, data in (
        (0, None, b"content"),
        (2, 5, b"nte"),
        (5, 100, b"nt"),
        (7, None, b""),
    ):
        assert await blobs.get("key", start, end, if_match=first.etag, if_size=7) == data
    for replacement in (b"another", b"longer than before", b"short", b""):
        second = await blobs.put("key", replacement)
        for start, end in ((0, None), (0, 3), (2, 6), (6, 7), (5, None)):
            with pytest.raises(BlobChangedError):
                await blobs.get("key", start, end, if_match=first.etag)
            with pytest.raises(BlobChangedError):
                await blobs.get("key", start, end, if_match=first.etag, if_size=7)
            if len(replacement) != 7:
                with pytest.raises(BlobChangedError):
                    await blobs.get("key", start, end, if_size=7)
        assert await blobs.get("key", if_match=second.etag, if_size=second.size) == replacement
    await blobs.delete("key")
    with pytest.raises(BlobNotFoundError):
        await blobs.get("key", if_match=first.etag, if_size=7)


async def test_reads_into_a_buffer(blobs: Blobs) -> None:
    content = bytes(range(100))
    await blobs.put("key", content)
    for start in (0, 1, 50, 99, 100, 5000):
        for size in (1, 2, 50, 100, 130):
            buffer = bytearray(b"?" * 140)
            with memoryview(buffer) as view:
                count = await get_into(blobs, "key", start, view[5 : 5 + size])
            found = content[start : start + size]
            assert count == len(found)
            assert buffer == b"?" * 5 + found + b"?" * (135 - count), (start, size)


async def test_a_long_read_into_a_buffer(blobs: Blobs) -> None:
    content = array("I", range(300_000)).tobytes()
    await blobs.put("key", content)
    buffer = bytearray(len(content) + 10)
    assert await get_into(blobs, "key", 0, memoryview(buffer)) == len(content)
    assert buffer == content + bytes(10)
    assert await get_into(blobs, "key", 1000, memoryview(buffer)[:500_000]) == 500_000
    assert buffer[:500_000] == content[1000:501_000]


async def test_a_read_into_a_buffer_with_conditions(blobs: Blobs) -> None:
    first = await blobs.put("key", b"content")
    view = memoryview(bytearray(4))
    assert await get_into(blobs, "key", 2, view, if_match=first.etag, if_size=7) == 4
    assert bytes(view) == b"nten"
    second = await blobs.put("key", b"something else")
    with pytest.raises(BlobChangedError):
        await get_into(blobs, "key", 2, view, if_match=first.etag)
    with pytest.raises(BlobChangedError):
        await get_into(blobs, "key", 2, view, if_size=7)
    assert await get_into(blobs, "key", 0, view, if_match=second.etag, if_size=14) == 4
    assert bytes(view) == b"some"
    with pytest.raises(BlobNotFoundError):
        await get_into(blobs, "nothing", 0, view)
    with pytest.raises(ValueError, match=r"."):
        await get_into(blobs, "key", -1, view)
    assert bytes(view) == b"some"


async def test_requests_without_meaning_are_refused(blobs: Blobs) -> None:
    stored = await blobs.put("key", b"content")
    for start, end in ((-1, None), (0, -1), (-3, -1)):
        with pytest.raises(ValueError, match=r"."):
            await blobs.get("key", start, end)
    with pytest.raises(ValueError, match=r"."):
        await blobs.put("key", b"other", if_absent=True, if_match=stored.etag)
    assert await blobs.get("key") == b"content"


async def test_an_empty_blob(blobs: Blobs) -> None:
    written = await blobs.put("empty", b"")
    assert written.size == 0
    found = await blobs.head("empty")
    assert found is not None
    assert (found.size, found.etag) == (0, written.etag)
    for start, end in ((0, None), (0, 0), (0, 10), (1, None), (10**12, None)):
        assert await blobs.get("empty", start, end) == b""
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["empty"]


async def test_a_blob_of_many_megabytes(blobs: Blobs) -> None:
    content = array("I", range(3_000_000)).tobytes()
    assert (await blobs.put("large", content)).size == 12_000_000
    assert await blobs.get("large") == content
    assert await blobs.get("large", 8_388_600, 8_388_620) == content[8_388_600:8_388_620]


async def test_every_kind_of_buffer(blobs: Blobs) -> None:
    kinds: dict[str, Buffer] = {
        "bytes": b"content",
        "bytearray": bytearray(b"content"),
        "memoryview": memoryview(b"content"),
        "slice": memoryview(b"--content--")[2:-2],
        "writable": memoryview(bytearray(b"content")),
        "words": memoryview(array("H", [0x1234] * 3)),
    }
    for name, data in kinds.items():
        assert (await blobs.put(name, data)).size == memoryview(data).nbytes
        got = await blobs.get(name)
        assert type(got) is bytes
        assert got == bytes(data)


async def test_the_store_keeps_its_own_copy(blobs: Blobs) -> None:
    data = bytearray(b"before")
    await blobs.put("key", data)
    data[:] = b"after."
    assert await blobs.get("key") == b"before"


async def test_put_replaces(blobs: Blobs) -> None:
    first = await blobs.put("key", b"a longer first content")
    second = await blobs.put("key", b"second")
    assert first.etag != second.etag
    assert await blobs.get("key") == b"second"
    found = await blobs.head("key")
    assert found is not None
    assert (found.size, found.etag) == (6, second.etag)
    assert len(await all_blobs(list_all(blobs))) == 1


async def test_put_if_absent(blobs: Blobs) -> None:
    await blobs.put("key", b"first", if_absent=True)
    for content in (b"second", b"first", b""):
        with pytest.raises(BlobExistsError):
            await blobs.put("key", content, if_absent=True)
    assert await blobs.get("key") == b"first"
    await blobs.delete("key")
    await blobs.put("key", b"third", if_absent=True)
    assert await blobs.get("key") == b"third"


async def test_put_if_match(blobs: Blobs) -> None:
    first = await blobs.put("key", b"first")
    second = await blobs.put("key", b"second", if_match=first.etag)
    assert await blobs.get("key") == b"second"
    with pytest.raises(BlobChangedError):
        await blobs.put("key", b"third", if_match=first.etag)
    assert await blobs.get("key") == b"second"
    found = await blobs.head("key")
    assert found is not None
    assert found.etag == second.etag
    listed = await all_blobs(list_all(blobs))
    await blobs.put("key", b"third", if_match=listed[0].etag)
    assert await blobs.get("key") == b"third"


async def test_put_if_match_creates_nothing(blobs: Blobs) -> None:
    gone = await blobs.put("key", b"content")
    await blobs.delete("key")
    with pytest.raises((BlobChangedError, BlobNotFoundError)):
        await blobs.put("key", b"content", if_match=gone.etag)
    assert await blobs.head("key") is None
    assert await all_blobs(list_all(blobs)) == []


# Keys


async def test_odd_keys(blobs: Blobs) -> None:
    for number, key in enumerate(ODD_KEYS):
        assert (await blobs.put(key, b"%d" % number, if_absent=True)).key == key
    for number, key in enumerate(ODD_KEYS):
        assert await blobs.get(key) == b"%d" % number, key
        found = await blobs.head(key)
        assert found is not None
        assert found.key == key
    assert {each.key for each in await all_blobs(list_all(blobs))} == set(ODD_KEYS)
    assert len({blobs.uri(key) for key in ODD_KEYS}) == len(ODD_KEYS)
    assert await blobs.delete_many(ODD_KEYS[::2]) == []
    for key in ODD_KEYS[1::2]:
        await blobs.delete(key)
    assert await all_blobs(list_all(blobs)) == []


@on_blobs(seaweedfs="SeaweedFS takes a backslash for a slash")
async def test_a_backslash_is_no_slash(blobs: Blobs) -> None:
    await blobs.put("back\\slash", b"1")
    await blobs.put("back/slash", b"2")
    assert await blobs.get("back\\slash") == b"1"
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["back/slash", "back\\slash"]


@on_blobs(local="the directory's own files are there")
async def test_no_key_is_the_store_s_own(blobs: Blobs) -> None:
    for key in (".tmp/x", ".tmp"):
        await blobs.put(key, b"1")
        assert [each.key for each in await all_blobs(list_all(blobs))] == [key]
        await blobs.delete(key)


@on_blobs(["local"])
async def test_keys_that_a_directory_cannot_hold_are_refused(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.put("a/b", b"content")
    before = _tree(tmp_path)
    for key in ("a", "a/b/c", "a/b/c/d", ".tmp", ".tmp/x", "x" * 256, "dir/" + "é" * 128):
        for if_absent in (True, False):
            with pytest.raises(InvalidPathError):
                await blobs.put(key, b"x", if_absent=if_absent)
        with pytest.raises(InvalidPathError):
            await blobs.copy(blobs, "a/b", key)
        with pytest.raises(InvalidPathError):
            await _upload(blobs, key)
    assert _tree(tmp_path) == before
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["a/b"]


async def _upload(blobs: Blobs, key: str) -> None:
    upload = await blobs.start_upload(key)
    try:
        await upload.put_part(1, b"x")
        await upload.complete()
    finally:
        await upload.abort()


@on_blobs(moto_s3="moto finds no key that has a line break")
async def test_a_line_break_is_a_character(blobs: Blobs) -> None:
    await blobs.put("line\nbreak", b"1")
    assert await blobs.get("line\nbreak") == b"1"
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["line\nbreak"]


@on_blobs()
async def test_a_key_of_the_greatest_length(blobs: Blobs) -> None:
    await _long_key(blobs, "/".join(["a"] * 511) + "/bc")


@on_blobs(
    local="a file's name has at most 255 bytes",
    seaweedfs="SeaweedFS refuses components of more than 255 bytes",
)
@pytest.mark.parametrize(
    "key", ["x" * 1024, "é" * 512, "x" * 256 + "/" + "y" * 767], ids=["ascii", "é", "two"]
)
async def test_a_component_of_the_greatest_length(blobs: Blobs, key: str) -> None:
    await _long_key(blobs, key)


async def _long_key(blobs: Blobs, key: str) -> None:
    assert len(key.encode()) == 1024
    await blobs.put(key, b"content", if_absent=True)
    assert await blobs.get(key) == b"content"
    with pytest.raises(BlobExistsError):
        await blobs.put(key, b"other", if_absent=True)
    assert [each.key for each in await all_blobs(list_all(blobs))] == [key]
    assert [each.key for each in await all_blobs(list_all(blobs, key[:-1]))] == [key]
    await blobs.copy(blobs, key, "copy")
    assert await blobs.get("copy") == b"content"
    assert await blobs.delete_many([key]) == []
    assert await blobs.head(key) is None


@on_blobs(local=NO_FILE_AND_DIRECTORY)
async def test_a_key_and_keys_below_it(blobs: Blobs) -> None:
    for key in ("a/b/c", "a", "a/b"):
        await blobs.put(key, key.encode())
    for key in ("a", "a/b", "a/b/c"):
        assert await blobs.get(key) == key.encode()
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["a", "a/b", "a/b/c"]
    assert [each.key for each in await all_blobs(list_all(blobs, "a/"))] == ["a/b", "a/b/c"]
    await blobs.delete("a/b")
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["a", "a/b/c"]
    assert await blobs.get("a/b/c") == b"a/b/c"


async def test_a_key_where_deleted_ones_were_below(blobs: Blobs) -> None:
    await blobs.put("a/b/c", b"1")
    await blobs.delete("a/b/c")
    await blobs.put("a", b"2")
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["a"]
    await blobs.delete("a")
    await blobs.put("a/b/c", b"3")
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["a/b/c"]


KEYED: Mapping[str, Callable[[Blobs, str], Awaitable[object]]] = {
    "put": lambda blobs, key: blobs.put(key, b"x"),
    "put if absent": lambda blobs, key: blobs.put(key, b"x", if_absent=True),
    "get": lambda blobs, key: blobs.get(key),
    "head": lambda blobs, key: blobs.head(key),
    "delete": lambda blobs, key: blobs.delete(key),
    "delete_many": lambda blobs, key: blobs.delete_many(["good", key]),
    "copy from": lambda blobs, key: blobs.copy(blobs, key, "new"),
    "copy to": lambda blobs, key: blobs.copy(blobs, "good", key),
    "start_upload": lambda blobs, key: blobs.start_upload(key),
}


@pytest.mark.parametrize("method", KEYED)
async def test_bad_keys_are_refused_and_nothing_is_touched(
    blobs: Blobs, method: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"outside")
    await blobs.put("good", b"content")
    before = _tree(tmp_path)
    for key in BAD_KEYS:
        with pytest.raises(InvalidPathError):
            await KEYED[method](blobs, key)
    assert _tree(tmp_path) == before
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["good"]
    assert await blobs.get("good") == b"content"


def _tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


async def test_bad_keys_have_no_uri(blobs: Blobs) -> None:
    for key in BAD_KEYS:
        with pytest.raises(InvalidPathError):
            blobs.uri(key)


async def test_uris(blobs: Blobs, blob_store: str) -> None:
    for key in ["plain", "dir/a b%#?é😀", "x" * 255]:
        await blobs.put(key, key.encode())
        uri = blobs.uri(key)
        if blob_store == "local":
            parts = urlsplit(uri)
            assert (parts.scheme, parts.netloc) == ("file", "")
            assert await anyio.Path(url2pathname(parts.path)).read_bytes() == key.encode()
        elif blob_store in ("memory", "tiered", "tiered_moved"):
            assert uri.startswith("memory://")
        elif blob_store == "redis":
            assert uri.startswith("redis://127.0.0.1:")
            assert unquote(uri).endswith(f"-main/{key}")
        elif blob_store == "rocksdb":
            assert uri.startswith("rocksdb:///")
            assert unquote(uri).endswith(f"-main/{key}")
        else:
            bucket, _, rest = uri.removeprefix("s3://").partition("/")
            assert uri.startswith("s3://")
            assert bucket.endswith("-main")
            assert rest == key


# Delete


async def test_delete(blobs: Blobs) -> None:
    await blobs.put("key", b"content")
    await blobs.put("other", b"content")
    await blobs.delete("key")
    assert await blobs.head("key") is None
    with pytest.raises(BlobNotFoundError):
        await blobs.get("key")
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["other"]


async def test_deleting_what_is_absent_is_fine(blobs: Blobs) -> None:
    await blobs.delete("nothing")
    await blobs.delete("no/thing/at/all")
    await blobs.put("a", b"1")
    await blobs.delete("a/b")
    await blobs.put("c/d", b"1")
    await blobs.delete("c")
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["a", "c/d"]


async def test_delete_many_of_none_and_one(blobs: Blobs) -> None:
    await blobs.put("key", b"content")
    assert await blobs.delete_many([]) == []
    assert await blobs.delete_many(["nothing"]) == []
    assert await blobs.delete_many(["key"]) == []
    assert await all_blobs(list_all(blobs)) == []


async def test_delete_many_of_more_than_two_batches(blobs: Blobs) -> None:
    there = [f"d{number % 7}/{number:04}" for number in range(0, 2500, 10)]
    for key in [*there, "stays", "d0/stays"]:
        await blobs.put(key, b"x")
    keys = [f"d{number % 7}/{number:04}" for number in range(2500)]
    assert await blobs.delete_many(keys) == []
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["d0/stays", "stays"]


# Copy


async def test_copy_within_a_store(blobs: Blobs) -> None:
    for source in ("plain", "dir/a b%25+#?é😀='", "..."):
        await blobs.put(source, source.encode() * 100)
        assert blobs.can_copy_from(blobs)
        copied = await blobs.copy(blobs, source, f"copies/{source}")
        assert (copied.key, copied.size) == (f"copies/{source}", len(source.encode()) * 100)
        assert await blobs.get(f"copies/{source}") == source.encode() * 100
        found = await blobs.head(f"copies/{source}")
        assert found is not None
        assert found.etag == copied.etag
        await blobs.delete(source)
        assert await blobs.get(f"copies/{source}") == source.encode() * 100


async def test_copy_of_an_empty_blob(blobs: Blobs) -> None:
    await blobs.put("empty", b"")
    assert (await blobs.copy(blobs, "empty", "copy")).size == 0
    assert await blobs.get("copy") == b""


async def test_copy_replaces(blobs: Blobs) -> None:
    await blobs.put("source", b"new")
    await blobs.put("target", b"old and longer")
    await blobs.copy(blobs, "source", "target")
    assert await blobs.get("target") == b"new"


async def test_copy_of_a_blob_that_was_replaced(blobs: Blobs) -> None:
    first = await blobs.put("source", b"adopted")
    second = await blobs.put("source", b"another")
    with pytest.raises(BlobChangedError):
        await blobs.copy(blobs, "source", "target", if_match=first.etag)
    assert await blobs.head("target") is None
    await blobs.copy(blobs, "source", "target", if_match=second.etag)
    assert await blobs.get("target") == b"another"


async def test_copy_of_an_absent_blob(blobs: Blobs) -> None:
    await blobs.put("target", b"old")
    for target in ("target", "new"):
        with pytest.raises(BlobNotFoundError):
            await blobs.copy(blobs, "nothing", target)
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["target"]
    assert await blobs.get("target") == b"old"


async def test_copy_between_places_of_one_service(blobs: Blobs, open_blobs: OpenBlobs) -> None:
    other = await open_blobs("other")
    await other.create()
    await other.put("dir/é +%", b"content")
    assert blobs.can_copy_from(other)
    assert (await blobs.copy(other, "dir/é +%", "copy")).size == 7
    assert await blobs.get("copy") == b"content"
    assert await other.head("copy") is None
    with pytest.raises(BlobNotFoundError):
        await blobs.copy(other, "copy", "again")


async def test_copy_from_another_service_is_refused(
    blobs: Blobs, blob_store: str, tmp_path: Path
) -> None:
    other = _another_service(blob_store, tmp_path)
    await other.create()
    await other.put("key", b"content")
    assert not blobs.can_copy_from(other)
    with pytest.raises(UnsupportedError):
        await blobs.copy(other, "key", "copy")
    assert await blobs.head("copy") is None
    await other.drop()
    await other.close()


def _another_service(blob_store: str, directory: Path) -> Blobs:
    if blob_store == "memory":
        from s3k_async.backends.local.local_blobs import LocalBlobs

        return LocalBlobs(str(directory / "other"))
    from s3k_async.backends.memory.memory_blobs import MemoryBlobs

    return MemoryBlobs("another service")


# The place


async def test_create_and_exists(open_blobs: OpenBlobs) -> None:
    store = await open_blobs()
    assert await store.exists() is False
    assert await store.create() is True
    assert await store.exists() is True
    await store.put("key", b"content")
    assert await store.create() is False
    other = await open_blobs()
    assert await other.exists() is True
    assert await other.create() is False
    assert await other.get("key") == b"content"


async def test_the_space_of_the_storage(blobs: Blobs, blob_store: str) -> None:
    check_space(await blobs.space(), blob_store)


async def test_drop(blobs: Blobs, open_blobs: OpenBlobs, blob_store: str) -> None:
    for key in ("a", "b/c", "b/d/e", *ODD_KEYS):
        await blobs.put(key, b"content")
    upload = await blobs.start_upload("unfinished")
    await upload.put_part(1, b"x" * blobs.min_part)
    await blobs.drop()
    assert await blobs.exists() is (blob_store in S3)
    await blobs.create()
    assert await all_blobs(list_all(blobs)) == []
    assert await blobs.head("a") is None
    other = await open_blobs()
    assert await all_blobs(list_all(other)) == []


@on_blobs(RACING_BLOB_STORES)
async def test_drop_removes_more_than_a_page(blobs: Blobs) -> None:
    for number in range(1010):
        await blobs.put(f"{number % 10}/{number}", b"")
    await blobs.drop()
    await blobs.create()
    assert await all_blobs(list_all(blobs)) == []


MISSING: Mapping[str, Callable[[Blobs], Awaitable[object]]] = {
    "put": lambda blobs: blobs.put("key", b"x"),
    "put if absent": lambda blobs: blobs.put("dir/key", b"x", if_absent=True),
    "get": lambda blobs: blobs.get("key"),
    "list": lambda blobs: blobs.list(),
    "start_upload": lambda blobs: blobs.start_upload("key"),
}


async def test_without_a_place_nothing_is_reported_deleted(open_blobs: OpenBlobs) -> None:
    store = await open_blobs()
    try:
        failures = await store.delete_many(["key", "other"])
    except VolumeNotFoundError:
        return
    assert [each.key for each in failures] == ["key", "other"]
    assert {type(each.error) for each in failures} == {VolumeNotFoundError}


@pytest.mark.parametrize("method", MISSING)
async def test_without_a_place_every_request_says_so(open_blobs: OpenBlobs, method: str) -> None:
    store = await open_blobs()
    with pytest.raises(VolumeNotFoundError):
        await MISSING[method](store)
    assert await store.exists() is False


async def test_close_can_be_repeated(blobs: Blobs, open_blobs: OpenBlobs) -> None:
    never_used = await open_blobs()
    used = await open_blobs()
    await used.put("key", b"content")
    for store in (never_used, used):
        await store.close()
        await store.close()
    assert await blobs.get("key") == b"content"


@on_blobs(S3)
async def test_a_prefix_is_a_place_of_its_own(open_blobs: OpenBlobs) -> None:
    whole, one, two = [
        await open_blobs("shared", prefix) for prefix in ("", "team/one/", "team/one-more/")
    ]
    assert await whole.create() is True
    assert await one.create() is False
    await one.put("dir/key", b"one")
    await two.put("dir/key", b"two")
    await whole.put("key", b"whole")
    assert await one.get("dir/key") == b"one"
    assert [each.key for each in await all_blobs(list_all(one))] == ["dir/key"]
    assert [each.key for each in await all_blobs(list_all(one, "dir/"))] == ["dir/key"]
    assert one.uri("dir/key").endswith("-shared/team/one/dir/key")
    assert await whole.get("team/one/dir/key") == b"one"
    await one.copy(two, "dir/key", "copied")
    assert await whole.get("team/one/copied") == b"two"
    assert await two.delete_many(["dir/nothing"]) == []
    await one.drop()
    assert [each.key for each in await all_blobs(list_all(whole))] == [
        "key",
        "team/one-more/dir/key",
    ]
    for key in BAD_KEYS:
        with pytest.raises(InvalidPathError):
            await one.get(key)
