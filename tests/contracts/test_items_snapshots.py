"""The item port: reads of several items at one moment, where a backend has them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from anyio.to_thread import run_sync

from s3k_async.backends.ports.items import ABSENT, MAX_BATCH, Action, Condition, Delete, Key, Put
from s3k_async.backends.registry import TABLES
from tests.contracts.subjects import (
    ITEM_SUBJECTS,
    Items,
    OpenItems,
    key,
    params,
    row,
    settled,
    token,
)

SNAPSHOT_STORES = [
    name
    for name, subject in ITEM_SUBJECTS.items()
    if TABLES.backend(subject.scheme).capabilities.snapshot_reads
]
READS = {"memory": 20_000}
"""Reads of memory are so short that a thread seldom changes anything meanwhile."""
PLACES = (key("first", "one partition"), key("last", "another partition"))
BETWEEN = [key(f"between-{number:02}") for number in range(MAX_BATCH - len(PLACES))]
"""Keys that a request reads between the two."""


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads of Python take turns after a few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("item_store", params(SNAPSHOT_STORES), indirect=True)
@pytest.mark.usefixtures("hasty_threads")
async def test_get_many_sees_an_item_that_moves_at_one_place(
    item_store: str, items: Items, open_items: OpenItems
) -> None:
    first, last = PLACES
    await items.write(Put(row(first.sort, first.partition, ver=0), ABSENT))
    await items.transact([Put(row(each.sort, each.partition), ABSENT) for each in BETWEEN], token())
    other, over = await open_items(), threading.Event()

    async def move_to_and_fro() -> None:
        version = 0
        while not over.is_set():
            source, target = PLACES if version % 2 == 0 else PLACES[::-1]
            actions: list[Action] = [
                Delete(source, Condition(equals={"ver": version})),
                Put(row(target.sort, target.partition, ver=version + 1), ABSENT),
            ]
            await settled(partial(other.transact, actions, token()))
            version += 1
        await other.close()

    async def read() -> None:
        seen: set[Key] = set()
        reads = 0
        try:
            while reads < READS.get(item_store, 300) or len(seen) < len(PLACES):
                found = await items.get_many([first, *BETWEEN, last])
                reads += 1
                there = found.keys() & set(PLACES)
                assert len(there) == 1, f"read {reads} found it at {there}"
                assert found.keys() - there == set(BETWEEN)
                seen |= there
        finally:
            over.set()

    moving = asyncio.ensure_future(run_sync(lambda: asyncio.run(move_to_and_fro())))
    await read()
    await moving
