"""The item port: pages of a partition and of the whole table."""

from __future__ import annotations

from functools import partial

import pytest

from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Item, ItemPage, Put
from tests.contracts.subjects import PARTITION, Items, all_items, key, names, row, token

EXISTS = Condition()

HARD_NAMES = [
    "!",
    "-",
    "0",
    "10",
    "2",
    "A",
    "Z",
    "a",
    "a b",
    "a!",
    "a-b",
    "a.b",
    "a/b",
    "a0",
    "aa",
    "a~",
    "z",
    "~",
    "\x7f",
    "\u00e9",
    "e\u0301",
    "\u00ff",
    "\u0100",
    "\ud7ff",
    "\ue000",
    "\ufffd",
    "\uffff",
    "\U00010000",
    "\U0001f600",
    "\U0010ffff",
    "\x01",
    " ",
    "%",
    "'",
    "_",
]


def in_order(texts: list[str]) -> list[str]:
    return sorted(texts, key=str.encode)


async def fill(items: Items, chosen: list[str], partition: str = PARTITION) -> None:
    for start in range(0, len(chosen), 100):
        puts = [Put(row(name, partition, ver=1), ABSENT) for name in chosen[start : start + 100]]
        await items.transact(puts, token())


async def query_all(
    items: Items, limit: int | None = None, partition: str = PARTITION
) -> list[Item]:
    return await all_items(
        lambda cursor: items.query(partition, cursor=cursor, limit=limit), limit=limit
    )


async def scan_all(
    items: Items, segment: int, segments: int, limit: int | None = None
) -> list[Item]:
    return await all_items(
        lambda cursor: items.scan(segment, segments, cursor=cursor, limit=limit), limit=limit
    )


# Query


async def test_an_empty_partition(items: Items) -> None:
    for limit in (None, 1, 100):
        assert await query_all(items, limit) == []


async def test_names_come_in_the_order_of_their_bytes(items: Items) -> None:
    await fill(items, HARD_NAMES)
    assert names(await query_all(items)) == in_order(HARD_NAMES)
    assert names(await query_all(items, 1)) == in_order(HARD_NAMES)
    assert names(await query_all(items, 4)) == in_order(HARD_NAMES)


async def test_a_partition_holds_its_own_items_only(items: Items) -> None:
    partitions = [
        "ks://v/a-sf1",
        "ks://v/a-sf10",
        "ks://v/a-sf",
        "ks://v/A-sf1",
        "ks://v/a-sf1 ",
        "ks://v/a%sf1",
        "\uffff",
    ]
    for number, partition in enumerate(partitions):
        await fill(items, [f"{number}-{each}" for each in range(3)], partition)
    for number, partition in enumerate(partitions):
        assert names(await query_all(items, partition=partition)) == [
            f"{number}-{each}" for each in range(3)
        ]


async def test_pages_of_every_size_hold_everything_once(items: Items) -> None:
    chosen = [f"{number:03}" for number in range(37)]
    await fill(items, chosen)
    for limit in (1, 2, 3, 7, 36, 37, 38, 1000, None):
        found = await query_all(items, limit)
        assert found == [row(name, ver=1) for name in chosen]


async def test_a_page_without_a_limit_may_end_but_says_so(items: Items) -> None:
    chosen = [f"{number:02}" for number in range(12)]
    for name in chosen:
        await items.write(Put(row(name, next="x" * 300_000), ABSENT))
    found = await query_all(items)
    assert names(found) == chosen
    assert {len(str(item["next"])) for item in found} == {300_000}
    assert names(await query_all(items, 5)) == chosen


async def test_a_cursor_survives_changes_around_it(items: Items) -> None:
    await fill(items, ["b", "d", "f", "h", "j"])
    first = await items.query(PARTITION, limit=3)
    assert names(first.items) == ["b", "d", "f"]
    assert first.next is not None
    await items.write(Put(row("a", ver=1), ABSENT))
    await items.write(Put(row("e", ver=1), ABSENT))
    await items.write(Put(row("g", ver=1), ABSENT))
    await items.write(Put(row("k", ver=1), ABSENT))
    await items.write(Delete(key("f"), EXISTS))
    await items.write(Delete(key("h"), EXISTS))
    rest = await all_items(partial(follow, items, first.next), limit=2)
    assert names(rest) == ["g", "j", "k"]


async def follow(items: Items, start: str, cursor: str | None) -> ItemPage:
    return await items.query(PARTITION, cursor=cursor or start, limit=2)


async def test_a_cursor_survives_the_end_of_its_partition(items: Items) -> None:
    await fill(items, ["a", "b", "c", "d"])
    first = await items.query(PARTITION, limit=2)
    assert first.next is not None
    for name in ("a", "b", "c", "d"):
        await items.write(Delete(key(name), EXISTS))
    assert await all_items(partial(follow, items, first.next), limit=2) == []


async def test_a_cursor_can_be_used_again(items: Items) -> None:
    await fill(items, ["a", "b", "c", "d", "e"])
    first = await items.query(PARTITION, limit=2)
    again = [await items.query(PARTITION, cursor=first.next, limit=2) for _ in range(2)]
    assert [names(page.items) for page in again] == [["c", "d"], ["c", "d"]]


async def test_cursors_at_hard_names(items: Items) -> None:
    await fill(items, HARD_NAMES, "ks://v/ü 😀/%-sf0")
    expected = in_order(HARD_NAMES)
    for at in range(1, len(expected)):
        page = await items.query("ks://v/ü 😀/%-sf0", limit=at)
        assert page.next is not None
        after = await items.query("ks://v/ü 😀/%-sf0", cursor=page.next, limit=1)
        assert names(after.items) == [expected[at]]


async def query_after(
    items: Items, after: str, partition: str = PARTITION, limit: int | None = None
) -> list[Item]:
    return await all_items(
        lambda cursor: items.query(partition, cursor=cursor, after=after, limit=limit), limit=limit
    )


async def test_a_query_begins_after_any_text(items: Items) -> None:
    partition = "ks://v/ü 😀/%-sf0"
    present = HARD_NAMES[::2]
    await fill(items, present, partition)
    await fill(items, ["0", "zz"], partition + "0")
    for after in [*HARD_NAMES, "", "a" * 200, "\U0010ffff\U0010ffff"]:
        wanted = [name for name in in_order(present) if name.encode() > after.encode()]
        for limit in (None, 1, 4):
            assert names(await query_after(items, after, partition, limit)) == wanted


async def test_a_cursor_goes_on_whatever_the_text_before_it_was(items: Items) -> None:
    await fill(items, ["a", "b", "c", "d", "e"])
    first = await items.query(PARTITION, after="a", limit=2)
    assert names(first.items) == ["b", "c"]
    for after in ("", "a", "b"):
        rest = await items.query(PARTITION, cursor=first.next, after=after, limit=1)
        assert names(rest.items) == ["d"]
    assert names(await query_after(items, "e")) == []
    assert names(await query_after(items, "a", "ks://v/none-sf0")) == []


async def test_a_query_shows_what_was_just_written(items: Items) -> None:
    for version in range(10):
        await items.write(Put(row(f"{version}", ver=version), ABSENT))
        assert len((await items.query(PARTITION)).items) == version + 1
    for version in range(10):
        await items.write(Delete(key(f"{version}"), EXISTS))
        assert len((await items.query(PARTITION)).items) == 9 - version


# Scan


async def test_a_scan_of_an_empty_table(items: Items) -> None:
    for segments in (1, 4):
        for segment in range(segments):
            assert await scan_all(items, segment, segments) == []


@pytest.mark.parametrize("segments", [1, 2, 3, 7, 16])
async def test_segments_are_disjoint_and_complete(items: Items, segments: int) -> None:
    expected = set()
    for number in range(12):
        partition = f"ks://volume/{number}-sf{number % 3}"
        chosen = [f"{number}-{each}" for each in range(number)] + (
            [HARD_NAMES[-number]] if number else []
        )
        await fill(items, chosen, partition)
        expected |= {key(name, partition) for name in chosen}
    for limit in (None, 3):
        found = []
        for segment in range(segments):
            found += [
                key(str(each["children"]), str(each["path"]))
                for each in await scan_all(items, segment, segments, limit)
            ]
        assert len(found) == len(set(found))
        assert set(found) == expected


async def test_many_items_of_one_partition_are_scanned_once(items: Items) -> None:
    chosen = [f"{number:03}" for number in range(120)]
    await fill(items, chosen)
    for limit in (1, 50, None):
        found = [each for segment in range(3) for each in await scan_all(items, segment, 3, limit)]
        assert sorted(names(found)) == chosen


async def test_a_scan_gives_whole_items(items: Items) -> None:
    item = row("file", ver=1, isdir=False, id="é😀", size=2**53 + 1)
    await items.write(Put(item, ABSENT))
    assert await scan_all(items, 0, 1) == [item]


async def test_items_that_stay_are_scanned_once_whatever_happens_beside_them(items: Items) -> None:
    stays = [f"stays-{number:02}" for number in range(20)]
    goes = [f"goes-{number:02}" for number in range(20)]
    await fill(items, [*stays, *goes])
    page = await items.scan(0, 1, limit=10)
    found = names(page.items)
    for step in range(200):
        if page.next is None:
            break
        if step < len(goes):
            await items.write(Delete(key(goes[step]), EXISTS))
            await items.write(Put(row(f"comes-{step:02}", ver=1), ABSENT))
        page = await items.scan(0, 1, cursor=page.next, limit=3)
        found += names(page.items)
    assert page.next is None
    assert sorted(name for name in found if name.startswith("stays")) == stays


@pytest.mark.parametrize(
    ("segment", "segments"), [(-1, 1), (1, 1), (0, 0), (5, 4), (0, -1), (-1, -1)]
)
async def test_segments_that_do_not_exist_are_refused(
    items: Items, segment: int, segments: int
) -> None:
    with pytest.raises(ValueError, match=r"."):
        await items.scan(segment, segments)


@pytest.mark.parametrize("limit", [0, -1])
async def test_pages_of_nothing_are_refused(items: Items, limit: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        await items.query(PARTITION, limit=limit)
    with pytest.raises(ValueError, match=r"."):
        await items.scan(0, 1, limit=limit)
