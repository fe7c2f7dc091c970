"""Requests that a client made, and their capacity units, beside those that the model says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from s3k_async._core.metering import RequestCounter
from s3k_async.backends.memory import memory_items
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import Action, Delete, Item, ItemPage, Key, Put, Update
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.client import S3kClient
from s3k_async.config import Tuning
from s3k_async.cost_model import LaidTree, Service, Workload, measure
from s3k_async.cost_model.item_size import item_size, read_units, write_units
from s3k_async.model import Entry, LayoutName
from s3k_async.namespace.ordered_walk import walk
from s3k_async.table.codec import to_item
from s3k_async.table.keys import Directory
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config

__all__ = [
    "LAYOUTS",
    "MEMORY",
    "ONE_AT_A_TIME",
    "Counts",
    "Scales",
    "client_of",
    "laid",
    "made",
    "plant",
    "predicted",
]

LAYOUTS: Sequence[LayoutName] = ("path", "tree")

ONE_AT_A_TIME = Tuning(max_concurrency=1)
"""So that what calls at the same time would share is not shared."""

MEMORY = Service(page_items=memory_items._PAGE)
"""The engine in memory counts the items of a page."""

Counts = dict[str, dict[str, int]]


async def made(client: S3kClient, counter: RequestCounter) -> Counts:
    """What was counted; the marks in the log, which nobody waited for, included."""
    await client._volume().log.drained()
    assert counter.requests.retries == 0
    return counter.requests.as_dict()


def predicted(work: Workload) -> Counts:
    """What the model says; every count is certain."""
    counts: Counts = {}
    for (part, name), number in work.requests.items():
        assert number.exact
        counts.setdefault(part, {})[name] = number.likely
    return counts


async def laid(client: S3kClient, path: str, service: Service) -> LaidTree:
    """The layout of a tree as it is stored."""
    store = client._volume().store
    top = await store.get(path)
    assert top is not None
    entries: list[Entry] = [
        entry async for page in walk(store, store.keys.directory(top)) for entry in page
    ]
    return measure(entries, top, store.keys, service)


@asynccontextmanager
async def client_of(suffix_count: int, layout: LayoutName = "path") -> AsyncIterator[S3kClient]:
    """A client of a new volume in memory."""
    config = replace(memory_config(ONE_AT_A_TIME, layout), suffix_count=suffix_count)
    await init_volume(config)
    async with S3kClient(config=config) as client:
        # Or the first change of a directory in the root would make a record.
        await client._volume().store.touch(Directory.at("/"))
        yield client


async def plant(client: S3kClient, top: str, files: list[str]) -> None:
    """Make a tree of empty files, past the parts that the tests count. The client knows every
    directory."""
    store = client._volume().store
    made = {"": await _directory(client, top)}
    for directory in sorted({file.rpartition("/")[0] for file in files} - {""}):
        made[directory] = await _directory(client, f"{top}/{directory}")
    seed = await client.write("/seed", b"")
    entry = await store.get(seed.path)
    assert entry is not None

    items: list[Item] = []
    for number, file in enumerate(files):
        parent = made[file.rpartition("/")[0]]
        directory = store.keys.directory(parent).key if entry.directory else ""
        copy = replace(entry, path=f"{top}/{file}", id=f"{number:036}", directory=directory)
        items.append(to_item(copy, store.keys))
    assert isinstance(store.items, RetryingItems)
    with store.items.loading(lambda: None):
        await store.items.load(items)


async def _directory(client: S3kClient, path: str) -> Entry:
    await client.makedirs(path)
    made = await client._volume().store.get(path)
    assert made is not None
    return made


class Scales:
    """Counts the units of the requests to the engine in memory: of reads by their items, of writes
    by the larger of the item before and after them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.read = 0
        self.written = 0
        get, get_many, query = MemoryItems.get, MemoryItems.get_many, MemoryItems.query
        write, transact = MemoryItems.write, MemoryItems.transact

        async def weighed_get(items: MemoryItems, key: Key) -> Item | None:
            item = await get(items, key)
            self.read += read_units(item_size(item or {}))
            return item

        async def weighed_get_many(items: MemoryItems, keys: Sequence[Key]) -> dict[Key, Item]:
            found = await get_many(items, keys)
            self.read += sum(read_units(item_size(found.get(key, {}))) for key in keys)
            return found

        async def weighed_query(
            items: MemoryItems,
            partition: str,
            *,
            cursor: str | None = None,
            after: str = "",
            limit: int | None = None,
        ) -> ItemPage:
            page = await query(items, partition, cursor=cursor, after=after, limit=limit)
            self.read += read_units(sum(map(item_size, page.items)))
            return page

        async def weighed_write(items: MemoryItems, action: Put | Update | Delete) -> None:
            units = await weigh(items, [action])
            await write(items, action)
            self.written += units

        async def weighed_transact(
            items: MemoryItems, actions: Sequence[Action], token: str
        ) -> None:
            units = await weigh(items, actions)
            await transact(items, actions, token)
            self.written += 2 * units

        async def weigh(items: MemoryItems, actions: Sequence[Action]) -> int:
            units = 0
            for action in actions:
                before = await get(items, action.key)
                after = action.item if isinstance(action, Put) else {}
                units += write_units(max(item_size(before or {}), item_size(after)))
            return units

        patch.setattr(MemoryItems, "get", weighed_get)
        patch.setattr(MemoryItems, "get_many", weighed_get_many)
        patch.setattr(MemoryItems, "query", weighed_query)
        patch.setattr(MemoryItems, "write", weighed_write)
        patch.setattr(MemoryItems, "transact", weighed_transact)
