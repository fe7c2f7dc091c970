"""The item port: single writes, their conditions, and reads of single items."""

from __future__ import annotations

import random
from collections.abc import MutableMapping
from functools import partial

import pytest

from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Key, Put, Update, Value
from s3k_async.errors import ConditionFailedError
from tests.contracts.subjects import (
    ITEM_STORES,
    PARTITION,
    Items,
    OpenItems,
    key,
    params,
    row,
    token,
    won,
)

EXISTS = Condition()
REQUIRING = (EXISTS, Condition(equals={"ver": 1}), Condition(missing=("next",)))
"""Conditions that an absent item fails, each in its own way."""


async def test_an_absent_item_is_none(items: Items) -> None:
    assert await items.get(key("nothing")) is None


async def test_put_and_get(items: Items) -> None:
    item = row("file", ver=1, isdir=False, id="an id", size=0, physcommitted=True)
    await items.write(Put(item, ABSENT))
    assert await items.get(key("file")) == item


async def test_values_keep_their_type(items: Items) -> None:
    numbers = [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)]
    texts = [
        "",
        "text",
        "1",
        "true",
        "naïve 😀 \U0010ffff \uffff",
        "x\x00y",
        "\ud7ff\ue000",
        " ",
        "null",
        "{}",
    ]
    values: list[Value] = [*numbers, *texts, True, False]
    for number, value in enumerate(values):
        await items.write(Put(row(f"file-{number}", attribute=value), ABSENT))
        item = await items.get(key(f"file-{number}"))
        assert item is not None
        assert type(item["attribute"]) is type(value)
        assert item["attribute"] == value


async def test_any_attribute_name_can_be_written_and_asked_for(items: Items) -> None:
    for name in [
        "next",
        "size",
        "sum",
        "a.b",
        "a-b",
        "#a",
        ":a",
        "a b",
        "Größe",
        "op",
        "0",
        "a[0]",
        "'",
        '"',
    ]:
        await items.write(Put(row("file", **{name: 1}), ABSENT))
        await items.write(Update(key("file"), Condition(equals={name: 1}), set={name: 2}))
        assert await items.get(key("file")) == row("file", **{name: 2})
        await items.write(Update(key("file"), Condition(equals={name: 2}), remove=(name,)))
        await items.write(Delete(key("file"), Condition(missing=(name,))))


async def test_a_large_item(items: Items) -> None:
    item = row("file", next="é" * 150_000)
    await items.write(Put(item, ABSENT))
    assert await items.get(key("file")) == item


async def test_keys_of_the_greatest_size(items: Items, item_store: str) -> None:
    prefix = "team-a/" if item_store == "prefixed" else ""
    partition, name = "p" * (2048 - len(prefix)), "é" * 512
    await items.write(Put(row(name, partition, ver=1), ABSENT))
    assert await items.get(Key(partition, name)) == row(name, partition, ver=1)
    assert await items.get(Key(partition, name[:-1])) is None
    assert await items.get(Key(partition[:-1], name)) is None


async def test_keys_are_compared_as_they_are(items: Items) -> None:
    alike = [
        "name",
        "Name",
        "name ",
        " name",
        "nam\u00e9",
        "name\u0301",
        "name\x00",
        "na%6de",
        "name/",
        "name'",
        'name"',
    ]
    for number, name in enumerate(alike):
        await items.write(Put(row(name, ver=number), ABSENT))
    for number, name in enumerate(alike):
        assert await items.get(key(name)) == row(name, ver=number)


async def test_the_store_keeps_its_own_copy(items: Items) -> None:
    written = row("file", ver=1)
    await items.write(Put(written, ABSENT))
    written["ver"] = 2
    read = await items.get(key("file"))
    assert read == row("file", ver=1)
    if isinstance(read, MutableMapping):
        read["ver"] = 3
    page = await items.query(PARTITION)
    if isinstance(page.items[0], MutableMapping):
        page.items[0]["ver"] = 4
    assert await items.get(key("file")) == row("file", ver=1)


# Put


async def test_put_absent_over_an_item_fails_and_shows_it(items: Items) -> None:
    first = row("file", ver=1, id="first", isdir=False)
    await items.write(Put(first, ABSENT))
    with pytest.raises(ConditionFailedError) as failed:
        await items.write(Put(row("file", ver=1, id="second", isdir=False), ABSENT))
    assert failed.value.current == {0: first}
    assert await items.get(key("file")) == first


async def test_put_replaces_the_whole_item(items: Items) -> None:
    await items.write(Put(row("file", ver=1, lease=7, isdir=False), ABSENT))
    await items.write(Put(row("file", ver=2), Condition(equals={"ver": 1})))
    assert await items.get(key("file")) == row("file", ver=2)


async def test_put_that_requires_an_item_does_not_create_one(items: Items) -> None:
    with pytest.raises(ConditionFailedError) as failed:
        await items.write(Put(row("file", ver=2), Condition(equals={"ver": 1})))
    assert failed.value.current == {0: None}
    with pytest.raises(ConditionFailedError):
        await items.write(Put(row("file", ver=2), EXISTS))
    assert await items.get(key("file")) is None


# Update


async def test_update_sets_and_removes(items: Items) -> None:
    await items.write(Put(row("file", ver=1, lease=7, next="job", id="same"), ABSENT))
    await items.write(
        Update(
            key("file"),
            Condition(equals={"ver": 1}),
            set={"ver": 2, "isdir": False},
            remove=("lease", "next"),
        )
    )
    assert await items.get(key("file")) == row("file", ver=2, id="same", isdir=False)


async def test_update_removes_what_is_not_there(items: Items) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    await items.write(Update(key("file"), EXISTS, remove=("lease", "next")))
    assert await items.get(key("file")) == row("file", ver=1)


async def test_update_changes_the_type_of_an_attribute(items: Items) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    await items.write(Update(key("file"), EXISTS, set={"ver": "1"}))
    await items.write(Update(key("file"), Condition(equals={"ver": "1"}), set={"ver": True}))
    assert await items.get(key("file")) == row("file", ver=True)


async def test_a_failed_update_changes_nothing_and_shows_the_item(items: Items) -> None:
    stored = row("file", ver=3, id="an id")
    await items.write(Put(stored, ABSENT))
    with pytest.raises(ConditionFailedError) as failed:
        await items.write(
            Update(key("file"), Condition(equals={"ver": 2}), set={"ver": 3, "id": "x"})
        )
    assert failed.value.current == {0: stored}
    assert await items.get(key("file")) == stored


async def test_update_of_an_absent_item_fails_and_creates_nothing(items: Items) -> None:
    for when in REQUIRING:
        with pytest.raises(ConditionFailedError) as failed:
            await items.write(Update(key("file"), when, set={"ver": 2}))
        assert failed.value.current == {0: None}
        assert await items.get(key("file")) is None


async def test_actions_without_meaning_are_refused(items: Items) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    refused: list[Put | Update | Delete] = [
        Put({"path": PARTITION, "ver": 1}, ABSENT),
        Put({"children": "name", "ver": 1}, ABSENT),
        Put(row("", ver=1), ABSENT),
        Put(row("name", "", ver=1), ABSENT),
        Update(key("file"), ABSENT, set={"ver": 2}),
        Update(key("file"), EXISTS),
        Update(key("file"), EXISTS, set={"ver": 2}, remove=("ver",)),
        Update(key("file"), EXISTS, set={"children": "other"}),
        Update(key("file"), EXISTS, remove=("path",)),
        Delete(key("file"), ABSENT),
    ]
    for action in refused:
        with pytest.raises(ValueError, match=r"."):
            await items.write(action)
        with pytest.raises(ValueError, match=r"."):
            await items.transact([action, Put(row("beside", ver=1), ABSENT)], token())
    assert (await items.query(PARTITION)).items == [row("file", ver=1)]


# Delete


async def test_delete(items: Items) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    await items.write(Put(row("other", ver=1), ABSENT))
    await items.write(Delete(key("file"), Condition(equals={"ver": 1})))
    assert await items.get(key("file")) is None
    assert await items.get(key("other")) == row("other", ver=1)


async def test_a_failed_delete_changes_nothing_and_shows_the_item(items: Items) -> None:
    await items.write(Put(row("file", ver=2), ABSENT))
    with pytest.raises(ConditionFailedError) as failed:
        await items.write(Delete(key("file"), Condition(equals={"ver": 1})))
    assert failed.value.current == {0: row("file", ver=2)}
    assert await items.get(key("file")) == row("file", ver=2)


async def test_delete_of_an_absent_item_fails(items: Items) -> None:
    for when in REQUIRING:
        with pytest.raises(ConditionFailedError) as failed:
            await items.write(Delete(key("file"), when))
        assert failed.value.current == {0: None}


async def test_a_deleted_item_can_be_put_again(items: Items) -> None:
    for round_ in range(3):
        await items.write(Put(row("file", ver=round_), ABSENT))
        await items.write(Delete(key("file"), Condition(equals={"ver": round_})))
    assert await items.get(key("file")) is None


# Conditions

VALUES: tuple[Value, ...] = (0, 1, True, False, "", "0", "1", "true", "True")
ATTRIBUTES = ("ver", "next", "isdir")


async def test_equals_compares_type_and_value(items: Items) -> None:
    for stored in VALUES:
        name = f"{type(stored).__name__} {stored!r}"
        await items.write(Put(row(name, attribute=stored), ABSENT))
        for asked in VALUES:
            same = type(asked) is type(stored) and asked == stored
            update = Update(
                key(name), Condition(equals={"attribute": asked}), set={"seen": repr(asked)}
            )
            assert await won(partial(items.write, update)) == same, f"{asked!r} of {stored!r}"
        assert await items.get(key(name)) == row(name, attribute=stored, seen=repr(stored))


async def test_all_parts_of_a_condition_must_hold(items: Items) -> None:
    await items.write(Put(row("file", ver=1, id="an id"), ABSENT))
    refused = [
        Condition(equals={"ver": 1, "id": "another"}),
        Condition(equals={"ver": 2, "id": "an id"}),
        Condition(equals={"ver": 1, "nothing": 1}),
        Condition(equals={"ver": 1}, missing=("id",)),
        Condition(equals={"ver": 2}, missing=("next",)),
        Condition(missing=("next", "id")),
        Condition(missing=("ver",)),
        ABSENT,
    ]
    for when in refused:
        with pytest.raises(ConditionFailedError):
            await items.write(Put(row("file", ver=9), when))
    assert await items.get(key("file")) == row("file", ver=1, id="an id")
    await items.write(
        Put(
            row("file", ver=2),
            Condition(equals={"ver": 1, "id": "an id"}, missing=("next", "lease")),
        )
    )
    assert await items.get(key("file")) == row("file", ver=2)


async def test_conditions_can_ask_for_the_key_attributes(items: Items) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    await items.write(Update(key("file"), Condition(equals={"children": "file"}), set={"ver": 2}))
    with pytest.raises(ConditionFailedError):
        await items.write(
            Update(key("file"), Condition(equals={"children": "other"}), set={"ver": 3})
        )
    assert await items.get(key("file")) == row("file", ver=2)


@pytest.mark.parametrize("seed", range(2))
async def test_random_conditions_agree_with_their_definition(items: Items, seed: int) -> None:
    choose = random.Random(seed)
    for number in range(50):
        name = f"file-{number}"
        stored = None
        if choose.random() < 0.8:
            chosen = choose.sample(ATTRIBUTES, choose.randint(0, 3))
            stored = row(name, **{each: choose.choice(VALUES) for each in chosen})
            await items.write(Put(stored, ABSENT))
        when = _random_condition(choose, stored)
        written = row(name, written=number)
        choices: list[Put | Update | Delete] = [Put(written, when)]
        if when.exists:
            choices += [Delete(key(name), when), Update(key(name), when, set={"u": 1})]
        action = choose.choice(choices)
        if when.holds(stored):
            await items.write(action)
            changed = {"Put": written, "Delete": None, "Update": {**(stored or {}), "u": 1}}[
                type(action).__name__
            ]
            assert await items.get(key(name)) == changed
        else:
            with pytest.raises(ConditionFailedError) as failed:
                await items.write(action)
            assert failed.value.current == {0: stored}
            assert await items.get(key(name)) == stored


def _random_condition(choose: random.Random, stored: dict[str, Value] | None) -> Condition:
    if choose.random() < 0.15:
        return ABSENT
    equals: dict[str, Value] = {}
    for name in choose.sample(ATTRIBUTES, choose.randint(0, 2)):
        truth = (stored or {}).get(name)
        equals[name] = (
            truth if truth is not None and choose.random() < 0.8 else choose.choice(VALUES)
        )
    rest = [name for name in ATTRIBUTES if name not in equals]
    return Condition(
        equals=equals, missing=tuple(choose.sample(rest, choose.randint(0, len(rest))))
    )


# get_many


async def test_get_many_of_nothing(items: Items) -> None:
    assert await items.get_many([]) == {}


async def test_get_many_of_one(items: Items) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    assert await items.get_many([key("file")]) == {key("file"): row("file", ver=1)}
    assert await items.get_many([key("nothing")]) == {}


async def test_get_many_of_more_than_two_batches(items: Items) -> None:
    wanted = [key(f"file-{number}", f"partition-{number % 3}") for number in range(250)]
    for start in range(0, 250, 100):
        part = wanted[start : start + 100]
        puts = [
            Put(row(each.sort, each.partition, ver=1), ABSENT)
            for each in part
            if not each.sort.endswith("7")
        ]
        await items.transact(puts, token())
    found = await items.get_many(wanted)
    assert found == {
        each: row(each.sort, each.partition, ver=1)
        for each in wanted
        if not each.sort.endswith("7")
    }


@pytest.mark.parametrize(
    "item_store",
    params(each for each in ITEM_STORES if each != "extenddb"),  # it limits bytes a second
    indirect=True,
)
async def test_get_many_of_more_bytes_than_one_answer_holds(items: Items) -> None:
    wanted = [key(f"file-{number}") for number in range(60)]
    for each in wanted:
        await items.write(Put(row(each.sort, next=each.sort * 40_000), ABSENT))
    found = await items.get_many(wanted)
    assert set(found) == set(wanted)
    assert all(found[each]["next"] == each.sort * 40_000 for each in wanted)


# Handles


async def test_handles_of_one_table_see_each_others_writes(
    items: Items, open_items: OpenItems
) -> None:
    other = await open_items()
    for version in range(1, 6):
        writer, reader = (items, other) if version % 2 else (other, items)
        when = Condition(equals={"ver": version - 1}) if version > 1 else ABSENT
        await writer.write(Put(row("file", ver=version), when))
        assert await reader.get(key("file")) == row("file", ver=version)
        assert (await reader.query(PARTITION)).items == [row("file", ver=version)]
        assert await reader.get_many([key("file")]) == {key("file"): row("file", ver=version)}


async def test_close_can_be_repeated(items: Items, open_items: OpenItems) -> None:
    other = await open_items()
    await other.write(Put(row("file", ver=1), ABSENT))
    await other.close()
    await other.close()
    assert await items.get(key("file")) == row("file", ver=1)


async def test_a_store_that_was_never_used_can_be_closed(
    items: Items, open_items: OpenItems
) -> None:
    store = await open_items()
    await store.close()
    await store.close()
