"""Sorted keys are those of a sorted set, whatever is added and removed between two pages."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from s3k_async.backends.memory import sorted_keys
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.memory.sorted_keys import SortedKeys
from s3k_async.backends.ports.items import ABSENT, Put

texts = st.text("\0ab\uffff\U0001f600", max_size=3)
changes = st.lists(st.tuples(st.booleans(), texts), max_size=60)


def change(keys: SortedKeys[str], model: set[str], adds: bool, key: str) -> None:
    if adds and key not in model:
        keys.add(key)
        model.add(key)
    elif not adds and key in model:
        keys.remove(key)
        model.remove(key)


@given(changes, texts, st.integers(1, 9))
def test_they_are_a_sorted_set(made: list[tuple[bool, str]], start: str, size: int) -> None:
    keys: SortedKeys[str] = SortedKeys()
    model: set[str] = set()
    with patch.object(sorted_keys, "_BLOCK", 3):
        for adds, key in made:
            change(keys, model, adds, key)
            found = [each for each in sorted(model) if each >= start]
            assert keys.page(start, size) == found[:size]
            assert list(keys.since(start)) == found
            assert bool(keys) == bool(model)


@given(changes, changes, st.integers(1, 5))
def test_pages_continue_while_keys_come_and_go(
    before: list[tuple[bool, str]], between: list[tuple[bool, str]], size: int
) -> None:
    keys: SortedKeys[str] = SortedKeys()
    model: set[str] = set()
    with patch.object(sorted_keys, "_BLOCK", 3):
        for adds, key in before:
            change(keys, model, adds, key)
        kept, ever = set(model), set(model)
        seen: list[str] = []
        while page := keys.page(seen[-1] + "\0" if seen else "", size):
            seen += page
            for adds, key in between[:3]:
                change(keys, model, adds, key)
            kept, ever = kept & model, ever | model
            between = between[3:]
    assert seen == sorted(set(seen))
    assert kept <= set(seen) <= ever


async def test_stores_of_many_blocks_list_all_in_order() -> None:
    blobs, items = MemoryBlobs("many-blocks"), MemoryItems("many-blocks")
    await blobs.create()
    await items.create()
    names = [f"{number * 7919 % 5000:04}" for number in range(5000)]
    for name in names:
        await blobs.put(name, b"")
        await items.write(Put({"path": "p", "children": name}, ABSENT))
    seen: dict[str, list[str]] = {"blobs": [], "items": []}
    cursor: str | None = None
    while True:
        listed = await blobs.list(cursor=cursor)
        seen["blobs"] += [blob.key for blob in listed.blobs]
        cursor = listed.next
        if cursor is None:
            break
    while True:
        found = await items.query("p", cursor=cursor)
        seen["items"] += [str(item["children"]) for item in found.items]
        cursor = found.next
        if cursor is None:
            break
    assert seen == {"blobs": sorted(names), "items": sorted(names)}
