"""The item port: loading, its one unconditional write."""

from __future__ import annotations

import pytest

from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.items import ABSENT, MAX_LOAD, Condition, Item, Put, Update, Value
from tests.contracts.subjects import PARTITION, Items, OpenItems, all_items, key, names, row

VALUES: list[Value] = ["", "text", "1", "naïve 😀 \x00", 0, -1, 2**63, True, False]


async def test_what_is_loaded_can_be_read(items: Items) -> None:
    loaded = [row(f"file-{number:02}", value=value) for number, value in enumerate(VALUES)]
    await items.load(loaded)
    page = await items.query(PARTITION)
    assert page.items == loaded
    assert [type(item["value"]) for item in page.items] == [type(value) for value in VALUES]
    assert await all_items(lambda cursor: items.scan(0, 1, cursor=cursor)) == loaded


async def test_a_load_replaces_whole_items_whatever_they_are(items: Items) -> None:
    await items.write(Put(row("a", ver=9, next="job", lease=1), ABSENT))
    await items.load([row("b", ver=1), row("a", ver=2)])
    assert (await items.query(PARTITION)).items == [row("a", ver=2), row("b", ver=1)]
    await items.load([row("a", ver=2)])
    assert await items.get(key("a")) == row("a", ver=2)


async def test_a_loaded_item_is_as_any_other(items: Items) -> None:
    await items.load([row("a", ver=1, id="x")])
    await items.write(Update(key("a"), Condition(equals={"ver": 1, "id": "x"}), {"ver": 2}))
    assert await items.get(key("a")) == row("a", ver=2, id="x")


async def test_the_largest_load(items: Items) -> None:
    loaded = [
        row(f"{number:02}", f"partition-{number % 3}", ver=number) for number in range(MAX_LOAD)
    ]
    await items.load(loaded)
    found = await all_items(lambda cursor: items.scan(0, 1, cursor=cursor))
    assert sorted(names(found)) == names(loaded)


async def test_loads_at_the_same_time(items: Items, open_items: OpenItems) -> None:
    other = await open_items()

    async def load(number: int) -> None:
        await (items, other)[number % 2].load(
            [row(f"{number:02}-{each}", ver=number) for each in range(5)]
        )

    await gather(load, range(12), limit=12)
    found = await all_items(lambda cursor: items.query(PARTITION, cursor=cursor))
    assert names(found) == [f"{number:02}-{each}" for number in range(12) for each in range(5)]


async def test_a_load_without_meaning_is_refused(items: Items) -> None:
    good = row("good", ver=1)
    too_many: list[Item] = [row(f"{number}", ver=1) for number in range(MAX_LOAD + 1)]
    refused: list[list[Item]] = [
        [],
        too_many,
        [good, row("", ver=1)],
        [good, row("name", "", ver=1)],
        [good, {"path": PARTITION, "ver": 1}],
        [good, row("same", ver=1), row("same", ver=2)],
    ]
    for load in refused:
        with pytest.raises(ValueError, match=r"."):
            await items.load(load)
    assert (await items.query(PARTITION)).items == []
