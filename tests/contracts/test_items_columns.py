"""The item port: changes that are columns mean on every adapter what their actions say one by
one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from s3k_async import _native
from s3k_async._native import Deletes, Entries, Moves, Resolutions
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.errors import ConditionFailedError
from s3k_async.model import Entry
from s3k_async.table.codec import from_items, to_item
from s3k_async.table.keys import KeyScheme
from s3k_async.txn.write_intent import CREATED, REMOVED, WriteIntent
from tests.contracts.subjects import Items, token

KEYS: Final = KeyScheme("v", 1)
ENTROPY: Final = bytes(range(48))
IDENTITIES: Final = _native.uuid_texts(ENTROPY)
INTENTS: Final = (WriteIntent("job", REMOVED).text(), WriteIntent("job", CREATED).text())
ENTRIES: Final = [
    Entry("/d/a", False, "id-a", 2, 1, 1000, 10, "k.id=id-a", True, "tag", "xxh128:0", "op-a"),
    Entry('/d/b"ü', True, "id-b", 1, 1, 1000, operation="op-b"),
    Entry("/d/c", False, "id-c", 1, 1, 1000, 0, "<uncommitted>", operation="op-c", lease_ms=7),
]
MOVED: Final = [
    entry.moved("/t" + entry.path[2:], operation=identity)
    for entry, identity in zip(ENTRIES, IDENTITIES, strict=True)
]


async def children(items: Items, directory: str) -> Entries:
    return from_items((await items.query(*KEYS.partitions(directory))).items, KEYS)


async def put(items: Items, entries: Sequence[Entry]) -> Entries:
    for entry in entries:
        await items.write(Put(to_item(entry, KEYS), ABSENT))
    return await children(items, "/d")


def with_intent(entries: Sequence[Entry], intent: str) -> list[Entry]:
    """With an intent, directories have the operation of the change."""
    return [
        replace(entry, pending=intent, operation=identity if entry.is_dir else entry.operation)
        for entry, identity in zip(entries, IDENTITIES, strict=True)
    ]


async def refused(items: Items, actions: Moves | Deletes | Resolutions) -> dict[int, Entry | None]:
    """What a transaction is told of the items that refuse it."""
    with pytest.raises(ConditionFailedError) as error:
        await items.transact(actions, token())
    current = error.value.current
    return {
        place: None if item is None else from_items([item], KEYS)[0]
        for place, item in current.items()
    }


async def test_a_rename_is_prepared_and_published(items: Items) -> None:
    found = await put(items, ENTRIES)
    moves = Moves(found, "v", "/t", 1, "xxh3", ENTROPY, INTENTS)
    await items.transact(moves, token())
    sources, targets = await children(items, "/d"), await children(items, "/t")
    assert sources == with_intent(ENTRIES, INTENTS[0])
    assert targets == [replace(entry, pending=INTENTS[1]) for entry in MOVED]
    assert await refused(items, moves) == dict(
        enumerate(each for pair in zip(sources, targets, strict=True) for each in pair)
    )
    await items.transact(Resolutions(sources, True), token())
    await items.transact(Resolutions(targets, False), token())
    assert await children(items, "/d") == []
    assert await children(items, "/t") == MOVED
    assert await refused(items, Resolutions(sources, True)) == {0: None, 1: None, 2: None}
    assert await refused(items, Resolutions(targets, False)) == dict(enumerate(MOVED))


async def test_a_deletion_is_prepared_and_given_up(items: Items) -> None:
    found = await put(items, ENTRIES)
    deletes = Deletes(found, ENTROPY, INTENTS[0])
    await items.transact(deletes, token())
    held = await children(items, "/d")
    assert held == with_intent(ENTRIES, INTENTS[0])
    assert await refused(items, deletes) == dict(enumerate(held))
    await items.transact(Resolutions(held, False), token())
    assert await children(items, "/d") == [replace(entry, pending="") for entry in held]


async def test_a_change_that_one_item_refuses_changes_none(items: Items) -> None:
    found = await put(items, ENTRIES)
    await items.transact(Deletes(found[1:2], ENTROPY[:16], INTENTS[0]), token())
    before = await children(items, "/d")
    changes = (
        Moves(found, "v", "/t", 1, "xxh3", ENTROPY, INTENTS),
        Deletes(found, ENTROPY, INTENTS[0]),
        Resolutions(found, True),
    )
    for actions in changes:
        place = 2 if isinstance(actions, Moves) else 1
        assert await refused(items, actions) == {place: before[1]}
        assert await children(items, "/d") == before
    assert await children(items, "/t") == []
