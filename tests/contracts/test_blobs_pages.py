"""The blob port: listings."""

from __future__ import annotations

import pytest

from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.key_ranges import HEX, hex_ranges, list_range
from s3k_async.backends.ports.pagination import list_all
from tests.contracts.subjects import RACING_BLOB_STORES, Blobs, OpenBlobs, all_blobs, on_blobs

KEYS = [
    "-",
    "A",
    "a b",
    "a!",
    "a-b",
    "a.b",
    "a/-",
    "a/b",
    "a/b-c",
    "a/c/d",
    "a/b0",
    "a0",
    "aa",
    "a~",
    "z",
    "~",
    "\u00e9/a",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "\U0001f600",
    "\U0010ffff",
]
BY_DIRECTORY = "SeaweedFS lists directory by directory"
NESTED = ["a", "a/b", "a/b/c", "b", "b/c", "\u00e9", "\u00e9/a"]
PLAIN = [f"{number % 3}/{number:03}" for number in range(31)]


def in_order(keys: list[str]) -> list[str]:
    return sorted(keys, key=str.encode)


def keys_of(found: list[BlobInfo]) -> list[str]:
    return [each.key for each in found]


async def fill(blobs: Blobs, keys: list[str]) -> None:
    for key in keys:
        await blobs.put(key, key.encode())


async def listed(blobs: Blobs, prefix: str = "", limit: int | None = None) -> list[str]:
    """Follow the cursors to the end."""
    found: list[str] = []
    cursor = None
    for _ in range(500):
        page = await blobs.list(prefix, cursor=cursor, limit=limit)
        assert limit is None or len(page.blobs) <= limit
        found += keys_of(list(page.blobs))
        cursor = page.next
        if cursor is None:
            return found
    raise AssertionError("the pages never end")


async def test_an_empty_place(blobs: Blobs) -> None:
    assert await listed(blobs) == []
    assert await listed(blobs, "a/", 1) == []
    assert await all_blobs(list_all(blobs)) == []


@on_blobs(seaweedfs=BY_DIRECTORY)
async def test_keys_come_in_the_order_of_their_bytes(blobs: Blobs) -> None:
    await fill(blobs, KEYS)
    assert await listed(blobs) == in_order(KEYS)
    assert keys_of(await all_blobs(list_all(blobs))) == in_order(KEYS)


@on_blobs(seaweedfs=BY_DIRECTORY)
async def test_pages_of_every_size_hold_hard_keys_once(blobs: Blobs) -> None:
    await fill(blobs, KEYS)
    for limit in (1, 2, 5, 24):
        assert await listed(blobs, limit=limit) == in_order(KEYS)


async def test_every_hard_key_is_listed_once(blobs: Blobs) -> None:
    await fill(blobs, KEYS)
    assert sorted(await listed(blobs)) == sorted(KEYS)
    assert sorted(await listed(blobs, limit=3)) == sorted(KEYS)


@on_blobs(
    local="no file is a directory, too",
    seaweedfs="SeaweedFS pages in circles where a key is the beginning of another",
)
async def test_pages_of_every_size_hold_keys_below_keys_once(blobs: Blobs) -> None:
    await fill(blobs, NESTED)
    for limit in (1, 2, 3, 6, 7, None):
        assert await listed(blobs, limit=limit) == NESTED


async def test_pages_of_every_size_hold_everything_once(blobs: Blobs) -> None:
    await fill(blobs, PLAIN)
    for limit in (1, 2, 3, 7, 30, 31, 32, 1000, 5000, None):
        assert await listed(blobs, limit=limit) == sorted(PLAIN)


async def test_prefixes(blobs: Blobs) -> None:
    keys = ["a/b", "a/c/d", "ab", "b%/x", "b%25/x", "b_/x", "é/x", "é/y", "😀x", "a*", "a[b]"]
    await fill(blobs, keys)
    for prefix in [
        "",
        "a",
        "a/",
        "a/c",
        "a/c/",
        "ab",
        "b",
        "b%",
        "b%/",
        "b_",
        "é",
        "é/",
        "😀",
        "a*",
        "a[",
        "c",
        "A",
        "a/b/",
        "/",
    ]:
        expected = sorted(key for key in keys if key.startswith(prefix))
        assert sorted(await listed(blobs, prefix)) == expected, prefix
        assert sorted(await listed(blobs, prefix, 1)) == expected, prefix
        assert sorted(keys_of(await all_blobs(list_all(blobs, prefix)))) == expected, prefix


async def test_a_prefix_that_is_no_path_touches_nothing_outside(
    blobs: Blobs, open_blobs: OpenBlobs
) -> None:
    other = await open_blobs("other")
    await other.create()
    await other.put("secret", b"x")
    await blobs.put("key", b"x")
    for prefix in ("..", "../", "../other/", "/", ".", "./", "a/../", "key/../"):
        assert await listed(blobs, prefix) == []


async def test_facts_of_listed_blobs(blobs: Blobs) -> None:
    await fill(blobs, PLAIN[:5])
    for each in await all_blobs(list_all(blobs)):
        found = await blobs.head(each.key)
        assert found is not None
        assert (each.size, each.etag) == (found.size, found.etag)
        assert (
            abs(each.mtime_ms - found.mtime_ms) < 2000
        )  # some services tell seconds in one of the two


async def test_a_cursor_survives_changes_around_it(blobs: Blobs) -> None:
    await fill(blobs, ["b", "d", "f", "h", "j"])
    first = await blobs.list(limit=3)
    assert keys_of(list(first.blobs)) == ["b", "d", "f"]
    assert first.next is not None
    await fill(blobs, ["a", "e", "g", "k"])
    assert await blobs.delete_many(["f", "h"]) == []
    found: list[str] = []
    cursor: str | None = first.next
    while cursor is not None:
        page = await blobs.list(cursor=cursor, limit=2)
        found += keys_of(list(page.blobs))
        cursor = page.next
    assert found == ["g", "j", "k"]


async def test_a_cursor_within_a_prefix(blobs: Blobs) -> None:
    await fill(blobs, ["a/1", "a/2", "a/3", "b/1"])
    first = await blobs.list("a/", limit=2)
    assert first.next is not None
    rest = await blobs.list("a/", cursor=first.next, limit=2)
    assert keys_of([*first.blobs, *rest.blobs]) == ["a/1", "a/2", "a/3"]


async def test_what_follows_a_key(blobs: Blobs) -> None:
    keys = ["a/3", "a/4", "a/40", "a/5/x", "b/1", "b/2"]
    await fill(blobs, keys)
    for prefix in ("", "a/", "b/", "c/"):
        for after in ("", "A", "a/3", "a/3~", "a/38", "a/4", "a/4~", "a/9", "b/0", "b/2", "z"):
            wanted = [key for key in keys if key.startswith(prefix) and key > after]
            assert keys_of(await all_blobs(list_all(blobs, prefix, after=after))) == wanted, (
                prefix,
                after,
            )
            first = await blobs.list(prefix, after=after, limit=2)
            assert keys_of(list(first.blobs)) == wanted[:2]
            if first.next is not None:
                rest = await blobs.list(prefix, after=after, cursor=first.next)
                assert keys_of(list(rest.blobs)) == wanted[2:]


async def test_ranges_of_keys_hold_every_key_that_begins_with_a_digit_once(blobs: Blobs) -> None:
    keys = [
        f"{digit}{rest}"
        for digit in HEX[::3]
        for rest in ("0000000", "8000000-x.id=y", "0~", "ffffffff", "z")
    ]
    await fill(blobs, [*keys, "9:", "A", "Z/far", "g", "x", ".hidden", "feed.txt"])
    for count in (1, 2, 3, 16, 37):
        groups = hex_ranges(count)
        assert len(groups) == count
        found = [
            each.key for group in groups for part in group async for each in list_range(blobs, part)
        ]
        assert sorted(found) == sorted([*keys, "9:", "feed.txt"]), count


@on_blobs(RACING_BLOB_STORES)
async def test_more_keys_than_one_answer_holds(blobs: Blobs) -> None:
    keys = [f"{number:04}" for number in range(1010)]
    await fill(blobs, keys)
    assert await listed(blobs) == keys
    assert keys_of(await all_blobs(list_all(blobs))) == keys


async def test_a_listing_can_be_left_early(blobs: Blobs) -> None:
    await fill(blobs, PLAIN)
    seen = []
    async for each in list_all(blobs):
        seen.append(each.key)
        if len(seen) == 3:
            break
    assert seen == sorted(PLAIN)[:3]
    assert len(await listed(blobs)) == len(PLAIN)


async def test_a_listing_shows_what_was_just_written_and_deleted(blobs: Blobs) -> None:
    for number in range(5):
        await blobs.put(f"d/{number}", b"x")
        assert await listed(blobs) == [f"d/{each}" for each in range(number + 1)]
    for number in range(5):
        await blobs.delete(f"d/{number}")
        assert await listed(blobs) == [f"d/{each}" for each in range(number + 1, 5)]


@pytest.mark.parametrize("limit", [0, -1])
async def test_pages_of_nothing_are_refused(blobs: Blobs, limit: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        await blobs.list(limit=limit)
