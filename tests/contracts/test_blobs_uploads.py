"""The blob port: multipart uploads, and many clients at once."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import BlobChangedError, BlobExistsError, S3kError
from tests.contracts.subjects import (
    RACING_BLOB_STORES,
    Blobs,
    OpenBlobs,
    all_blobs,
    on_blobs,
    settled,
)


def part(blobs: Blobs, number: int, size: int | None = None) -> bytes:
    """A part's content, of the smallest size that any part may have unless told otherwise."""
    return bytes([64 + number]) * (max(blobs.min_part, 1000) if size is None else size)


async def test_an_upload_of_two_parts(blobs: Blobs) -> None:
    upload = await blobs.start_upload("dir/key")
    await upload.put_part(1, part(blobs, 1))
    await upload.put_part(2, part(blobs, 2, 10))
    assert await blobs.head("dir/key") is None
    assert await all_blobs(list_all(blobs)) == []
    published = await upload.complete()
    content = part(blobs, 1) + part(blobs, 2, 10)
    assert (published.key, published.size) == ("dir/key", len(content))
    assert await blobs.get("dir/key") == content
    assert await blobs.get("dir/key", len(content) - 12, len(content) - 5) == content[-12:-5]
    found = await blobs.head("dir/key")
    assert found is not None
    assert (found.size, found.etag) == (published.size, published.etag)
    assert [(each.key, each.etag) for each in await all_blobs(list_all(blobs))] == [
        ("dir/key", published.etag)
    ]


async def test_an_upload_of_one_small_part(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    await upload.put_part(1, b"small")
    assert (await upload.complete()).size == 5
    assert await blobs.get("key") == b"small"


async def test_parts_at_once_and_in_any_order(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")

    async def put(number: int) -> None:
        await upload.put_part(number, part(blobs, number, 77 if number == 5 else None))

    await gather(put, [5, 3, 1, 4, 2], limit=5)
    await upload.complete()
    assert await blobs.get("key") == b"".join(
        [*(part(blobs, n) for n in range(1, 5)), part(blobs, 5, 77)]
    )


async def test_more_than_nine_parts_are_put_together_by_number(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    for number in range(12, 0, -1):
        await upload.put_part(number, part(blobs, number))
    await upload.complete()
    content = await blobs.get("key")
    size = len(part(blobs, 1))
    assert [content[at] - 64 for at in range(0, len(content), size)] == list(range(1, 13))
    assert len(content) == 12 * size


async def test_a_part_put_again_replaces_the_first(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    await upload.put_part(1, part(blobs, 9))
    await upload.put_part(2, b"a long last part")
    await upload.put_part(2, b"last")
    await upload.put_part(1, part(blobs, 1))
    await upload.complete()
    assert await blobs.get("key") == part(blobs, 1) + b"last"


async def test_the_upload_keeps_its_own_copy(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    data = bytearray(b"before")
    await upload.put_part(1, data)
    data[:] = b"after."
    await upload.complete()
    assert await blobs.get("key") == b"before"


async def test_parts_that_cannot_be_put_together(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    with pytest.raises(ValueError, match=r"."):
        await upload.put_part(0, b"x")
    with pytest.raises(ValueError, match=r"."):
        await upload.complete()
    await upload.put_part(1, part(blobs, 1))
    await upload.put_part(3, b"x")
    with pytest.raises(ValueError, match=r"."):
        await upload.complete()
    if blobs.min_part > 1:
        await upload.put_part(2, part(blobs, 2, blobs.min_part - 1))
        with pytest.raises(ValueError, match=r"."):
            await upload.complete()
    assert await blobs.head("key") is None
    await upload.put_part(2, part(blobs, 2))
    await upload.complete()
    assert await blobs.get("key") == part(blobs, 1) + part(blobs, 2) + b"x"


async def test_abort_leaves_nothing(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    await upload.put_part(1, part(blobs, 1))
    await upload.abort()
    await upload.abort()
    assert await blobs.head("key") is None
    assert await all_blobs(list_all(blobs)) == []
    with pytest.raises(S3kError):
        await upload.complete()
    assert await blobs.head("key") is None


async def test_abort_without_parts(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    await upload.abort()
    assert await all_blobs(list_all(blobs)) == []


async def test_complete_can_be_sent_again(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    await upload.put_part(1, part(blobs, 1))
    await upload.put_part(2, b"end")
    first = await upload.complete()
    second = await upload.complete()
    assert (second.key, second.size, second.etag) == (first.key, first.size, first.etag)
    assert await blobs.get("key") == part(blobs, 1) + b"end"


async def test_abort_after_complete_is_harmless(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    await upload.put_part(1, b"content")
    await upload.complete()
    await upload.abort()
    assert await blobs.get("key") == b"content"


async def test_an_upload_replaces_only_when_complete(blobs: Blobs) -> None:
    old = await blobs.put("key", b"old")
    upload = await blobs.start_upload("key")
    await upload.put_part(1, b"new and longer")
    assert await blobs.get("key") == b"old"
    found = await blobs.head("key")
    assert found is not None
    assert found.etag == old.etag
    published = await upload.complete()
    assert published.etag != old.etag
    assert await blobs.get("key") == b"new and longer"


async def test_an_aborted_upload_leaves_the_old_blob(blobs: Blobs) -> None:
    await blobs.put("key", b"old")
    upload = await blobs.start_upload("key")
    await upload.put_part(1, b"new")
    await upload.abort()
    assert await blobs.get("key") == b"old"


async def test_two_uploads_of_one_key_do_not_mix(blobs: Blobs, open_blobs: OpenBlobs) -> None:
    other = await open_blobs()
    first, second = await blobs.start_upload("key"), await other.start_upload("key")
    await first.put_part(1, part(blobs, 1))
    await second.put_part(1, part(blobs, 2))
    await first.put_part(2, b"first")
    await second.put_part(2, b"second")
    await first.complete()
    assert await blobs.get("key") == part(blobs, 1) + b"first"
    await second.complete()
    assert await blobs.get("key") == part(blobs, 2) + b"second"


async def test_uploads_to_odd_keys(blobs: Blobs) -> None:
    for key in ["a b%25+#?é😀='", ".temporary/x", "x" * 255]:
        upload = await blobs.start_upload(key)
        await upload.put_part(1, key.encode())
        assert (await upload.complete()).key == key
        assert await blobs.get(key) == key.encode()


async def test_what_was_uploaded_can_be_copied_and_matched(blobs: Blobs) -> None:
    upload = await blobs.start_upload("key")
    await upload.put_part(1, part(blobs, 1))
    await upload.put_part(2, b"end")
    published = await upload.complete()
    await blobs.copy(blobs, "key", "copy")
    assert await blobs.get("copy") == part(blobs, 1) + b"end"
    await blobs.put("key", b"replaced", if_match=published.etag)
    assert await blobs.get("key") == b"replaced"


# Many at once


async def applied(
    blobs: Blobs, content: bytes, *, if_absent: bool = False, if_match: str | None = None
) -> bool:
    try:
        await settled(partial(blobs.put, "key", content, if_absent=if_absent, if_match=if_match))
    except (BlobExistsError, BlobChangedError):
        return False
    return True


@on_blobs(RACING_BLOB_STORES)
async def test_of_64_creations_one_wins(blobs: Blobs, open_blobs: OpenBlobs) -> None:
    stores = [blobs, await open_blobs()]

    async def create(number: int) -> bool:
        return await applied(stores[number % 2], b"%d" % number * 1000, if_absent=True)

    results = await gather(create, range(64), limit=64)
    assert sum(results) == 1
    assert await blobs.get("key") == b"%d" % results.index(True) * 1000


@on_blobs(RACING_BLOB_STORES)
async def test_of_many_replacements_of_one_version_one_wins(
    blobs: Blobs, open_blobs: OpenBlobs
) -> None:
    stores = [blobs, await open_blobs()]
    for attempt in range(3):
        now = await blobs.put("key", b"version %d" % attempt)

        async def replace(number: int, now: BlobInfo = now) -> bool:
            return await applied(stores[number % 2], b"%d" % number * 100, if_match=now.etag)

        results = await gather(replace, range(32), limit=32)
        assert sum(results) == 1
        assert await blobs.get("key") == b"%d" % results.index(True) * 100


@on_blobs(RACING_BLOB_STORES)
async def test_concurrent_writers_leave_one_whole_blob(blobs: Blobs, open_blobs: OpenBlobs) -> None:
    stores = [blobs, await open_blobs()]

    async def write(number: int) -> BlobInfo:
        return await stores[number % 2].put("key", bytes([number]) * (50_000 + number))

    results = await gather(write, range(24), limit=24)
    content = await blobs.get("key")
    assert content == bytes([content[0]]) * (50_000 + content[0])
    found = await blobs.head("key")
    assert found is not None
    assert found.etag == results[content[0]].etag


@on_blobs(RACING_BLOB_STORES)
async def test_a_reader_sees_the_old_or_the_new_content(
    blobs: Blobs, open_blobs: OpenBlobs
) -> None:
    reading, size = await open_blobs(), 300_000
    contents = [bytes([number]) * (size + number) for number in range(12)]
    await blobs.put("key", contents[0])
    done = anyio.Event()

    async def write() -> None:
        for content in contents:
            await blobs.put("key", content)
        done.set()

    async def read(seen: list[bytes]) -> None:
        while not done.is_set():
            seen.append(await reading.get("key"))
            middle = await reading.get("key", 1000, 200_000)
            assert len(middle) == 199_000
            assert len(set(middle)) == 1, "a mix of two contents"
            found = await reading.head("key")
            assert found is not None

    seen: list[bytes] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for _ in range(3):
            tasks.start_soon(read, seen)
    assert seen
    assert all(content in contents for content in seen)


async def test_writers_and_deleters_side_by_side(blobs: Blobs, open_blobs: OpenBlobs) -> None:
    other = await open_blobs()

    async def turn(number: int) -> None:
        for attempt in range(5):
            key = f"dir/{number % 4}/{number}"
            await blobs.put(key, b"%d" % attempt, if_absent=True)
            assert await other.get(key) == b"%d" % attempt
            await other.delete(key)

    await gather(turn, range(16), limit=16)
    assert await all_blobs(list_all(blobs)) == []


async def test_parts_are_put_while_others_finish(blobs: Blobs) -> None:
    async def whole(number: int) -> None:
        upload = await blobs.start_upload(f"dir/{number}")
        for each in (1, 2):
            await upload.put_part(each, part(blobs, number) if each == 1 else b"%d" % number)
        if number % 2:
            await upload.abort()
        else:
            await upload.complete()

    await gather(whole, range(6), limit=6)
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["dir/0", "dir/2", "dir/4"]
    for number in (0, 2, 4):
        assert await blobs.get(f"dir/{number}") == part(blobs, number) + b"%d" % number


@on_blobs(moto_s3="says of every upload that it began in 2010")
async def test_unfinished_uploads_tell_when_they_began(blobs: Blobs) -> None:
    upload, now = await blobs.start_upload("key"), await blobs.now_ms()
    (found,) = [each async for each in blobs.list_uploads()]
    assert abs(found.started_ms - now) < 60_000
    await upload.abort()


async def test_unfinished_uploads_of_others_are_listed_and_aborted(
    blobs: Blobs, open_blobs: OpenBlobs
) -> None:
    other = await open_blobs()
    finished, begun = await other.start_upload("done"), await other.start_upload("dir/begun")
    await finished.put_part(1, b"done")
    await finished.complete()
    await begun.put_part(1, part(blobs, 1))
    (found,) = [each async for each in blobs.list_uploads()]
    assert found.key in (
        "dir/begun",
        "",
    )  # a directory does not know what its files would have become
    for _ in range(2):
        await blobs.abort_upload(found)
    assert [each async for each in blobs.list_uploads()] == []
    assert [each.key for each in await all_blobs(list_all(blobs))] == ["done"]
    with pytest.raises(S3kError):
        await begun.complete()


async def test_uploads_are_listed_below_a_prefix(open_blobs: OpenBlobs) -> None:
    whole, below = await open_blobs(), await open_blobs("main", "team/volume/")
    await whole.create()
    await below.create()
    ours = await below.start_upload("key")
    await ours.put_part(1, b"part")
    await whole.start_upload("elsewhere")
    listed = [each async for each in below.list_uploads()]
    assert [each.key for each in listed] in (["key"], [""])
    await below.abort_upload(listed[0])
    with pytest.raises(S3kError):
        await ours.complete()
    for each in [each async for each in whole.list_uploads()]:
        await whole.abort_upload(each)


async def test_a_store_tells_the_time_that_it_writes_into_its_blobs(blobs: Blobs) -> None:
    await blobs.put("key", b"data")
    (found,) = await all_blobs(list_all(blobs))
    assert abs(found.mtime_ms - await blobs.now_ms()) < 60_000
