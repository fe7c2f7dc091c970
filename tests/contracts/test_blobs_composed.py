"""The blob port: uploads whose parts are ranges of blobs."""

from __future__ import annotations

from random import Random

import pytest

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.blobs import MAX_COPIED_PART, BlobInfo, Upload
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import (
    BlobChangedError,
    BlobNotFoundError,
    S3kError,
    UnsupportedError,
)
from tests.contracts.subjects import Blobs, OpenBlobs, all_blobs, on_blobs


def content_of(blobs: Blobs, parts: int = 1, more: int = 0) -> bytes:
    """So many parts of the smallest size that any part may have, and some bytes more."""
    return Random(parts).randbytes(parts * max(blobs.min_part, 1000) + more)


async def put_source(blobs: Blobs, key: str, data: bytes) -> BlobInfo:
    """A blob as it is found afterwards."""
    await blobs.put(key, data)
    found = await blobs.head(key)
    assert found is not None
    return found


async def completed(blobs: Blobs, upload: Upload) -> bytes:
    """The blob of an upload, whose size is the one that completion tells."""
    published = await upload.complete()
    found = await blobs.head(published.key)
    assert found is not None
    assert found._replace(mtime_ms=0) == published._replace(mtime_ms=0)
    return await blobs.get(published.key)


async def test_ranges_of_blobs_and_new_bytes_are_one_blob(blobs: Blobs) -> None:
    size = len(content_of(blobs))
    first, second = content_of(blobs, 1, 700), content_of(blobs, 2, 300)
    await blobs.put("a", first)
    await blobs.put("dir/b", second)
    upload = await blobs.start_upload("composed")
    await upload.copy_part(3, blobs, "dir/b", 17, 17 + size)
    await upload.copy_part(1, blobs, "a", 0, len(first))
    await upload.put_part(2, bytes(size))
    await upload.copy_part(4, blobs, "dir/b", len(second) - 9, len(second))
    assert await blobs.head("composed") is None
    expected = first + bytes(size) + second[17 : 17 + size] + second[-9:]
    assert await completed(blobs, upload) == expected
    assert await blobs.get("a") == first
    assert await blobs.get("dir/b") == second


async def test_a_range_of_the_blob_that_the_upload_replaces(blobs: Blobs) -> None:
    before = content_of(blobs, 2)
    await blobs.put("key", before)
    upload = await blobs.start_upload("key")
    half = len(before) // 2
    await upload.copy_part(1, blobs, "key", half, len(before))
    await upload.copy_part(2, blobs, "key", 0, 5)
    assert await completed(blobs, upload) == before[half:] + before[:5]


@on_blobs(moto_s3="moto does not compare the etag of the source of a part")
async def test_a_part_is_what_the_source_was_then(blobs: Blobs) -> None:
    data = content_of(blobs)
    found = await put_source(blobs, "a", data)
    upload = await blobs.start_upload("key")
    await upload.copy_part(1, blobs, "a", 0, len(data), if_match=found.etag)
    await blobs.put("a", b"other bytes")
    with pytest.raises(BlobChangedError):
        await upload.copy_part(2, blobs, "a", 0, 3, if_match=found.etag)
    await upload.copy_part(2, blobs, "a", 0, 5)
    await blobs.delete("a")
    assert await completed(blobs, upload) == data + b"other"


async def test_a_copied_part_replaces_a_former_one(blobs: Blobs) -> None:
    data = content_of(blobs)
    await blobs.put("a", data)
    upload = await blobs.start_upload("key")
    await upload.put_part(1, b"small")
    await upload.copy_part(1, blobs, "a", 0, len(data))
    await upload.copy_part(2, blobs, "a", 0, len(data))
    await upload.put_part(2, b"end")
    assert await completed(blobs, upload) == data + b"end"


async def test_a_source_that_does_not_exist(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    with pytest.raises(BlobNotFoundError):
        await upload.copy_part(1, blobs, "nothing", 0, 5)
    await upload.put_part(1, b"x")
    assert await completed(blobs, upload) == b"x"


@on_blobs(moto_s3="moto cuts a range at the end of the source of a part")
@pytest.mark.parametrize(("start", "end"), [(0, 101), (90, 101), (100, 101), (200, 300)])
async def test_a_range_past_the_end_of_the_source(blobs: Blobs, start: int, end: int) -> None:
    await blobs.put("a", bytes(100))
    upload = await blobs.start_upload("key")
    with pytest.raises(BlobChangedError):
        await upload.copy_part(1, blobs, "a", start, end)
    await upload.abort()


@pytest.mark.parametrize(
    ("number", "start", "end"),
    [(0, 0, 5), (1, 5, 5), (1, 5, 4), (1, -1, 4), (1, 0, MAX_COPIED_PART + 1)],
)
async def test_ranges_that_no_part_has(blobs: Blobs, number: int, start: int, end: int) -> None:
    await blobs.put("a", bytes(100))
    upload = await blobs.start_upload("key")
    with pytest.raises(ValueError, match=r"."):
        await upload.copy_part(number, blobs, "a", start, end)
    await upload.abort()


async def test_a_copied_part_that_is_too_small_for_its_place(blobs: Blobs) -> None:
    await blobs.put("a", bytes(blobs.min_part))
    upload = await blobs.start_upload("key")
    await upload.put_part(2, b"x")
    if blobs.min_part > 1:
        await upload.copy_part(1, blobs, "a", 0, blobs.min_part - 1)
        with pytest.raises(ValueError, match=r"."):
            await upload.complete()
    await upload.copy_part(1, blobs, "a", 0, blobs.min_part)
    assert await completed(blobs, upload) == bytes(blobs.min_part) + b"x"


async def test_abort_leaves_only_the_source(blobs: Blobs) -> None:
    await blobs.put("a", content_of(blobs))
    upload = await blobs.start_upload("key")
    await upload.copy_part(1, blobs, "a", 0, 1000)
    await upload.abort()
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["a"]
    assert [each async for each in blobs.list_uploads()] == []
    with pytest.raises(S3kError):
        await upload.copy_part(1, blobs, "a", 0, 1000)


async def test_a_part_from_another_place_of_the_service(open_blobs: OpenBlobs) -> None:
    source, target = await open_blobs("one"), await open_blobs("two")
    await source.create()
    await target.create()
    await source.put("a", b"0123456789")
    if not target.can_copy_from(source):
        pytest.fail("two places of one service")
    upload = await target.start_upload("key")
    await upload.copy_part(1, source, "a", 2, 6)
    assert await completed(target, upload) == b"2345"


async def test_another_kind_of_store_is_no_source(blobs: Blobs) -> None:
    if isinstance(blobs, MemoryBlobs):
        other: Blobs = _Other()  # type: ignore[abstract]
    else:
        other = MemoryBlobs("composed-elsewhere")
    upload = await blobs.start_upload("key")
    with pytest.raises(UnsupportedError):
        await upload.copy_part(1, other, "a", 0, 5)
    await upload.abort()


class _Other(Blobs):
    """A store of a kind that no backend has."""
