"""The index of user metadata: the entries that have a value of a name.

An item for each name of each entry, in the partitions `s3k:meta/<name>-sf<n>`, with the entry key
as sort key. It is written before the entry is, and never in a transaction with it, so the index may
have too much, never too little: a search reads the entries that it names. Before an entry gets a
name, or an entry with names gets another place, the operation is about to be logged; at that one
place the index is brought up to date.

An item that names an entry without the name is removed by the search that finds it, if it is older
than STALE_SECONDS by the clocks of the searching machine and of the data store: the change that it
was written for has long ended by then. A writer that finds its item updates the time. In layout
`tree` an item has the path that the entry had: the path is not in the key, and the directories
above may have been renamed since.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final

from s3k_async._core.concurrency import gather, run_all
from s3k_async._core.runtime import Runtime
from s3k_async._native import Operations as NativeOperations
from s3k_async.attributes import Attributes
from s3k_async.backends.ports.items import (
    ABSENT,
    OPERATION,
    PARTITION,
    SORT,
    Condition,
    Delete,
    Item,
    ItemStore,
    Key,
    Put,
    Update,
)
from s3k_async.errors import ConditionFailedError, PermissionDeniedError, S3kError
from s3k_async.model import Entry
from s3k_async.oplog.segments import Operations

__all__ = ["META_PREFIX", "IndexedEntry", "MetadataIndex"]

META_PREFIX: Final = "s3k:meta/"
"""Prefix of the partitions of the index."""
SUFFIXES: Final = 16
"""Partitions of one name. It does not depend on the suffix count of the volume, which can change.
"""
STALE_SECONDS: Final = 86_400
"""How long an item without its entry is kept: far longer than a change takes."""
WRITES: Final = 32
"""Items that are written at the same time."""
READ: Final = 10_000
"""Items that are read together of a partition, at most."""


@dataclass(frozen=True, slots=True)
class IndexedEntry:
    """An item of the index."""

    entry_key: str
    path: str
    """The path of the entry when the item was written."""
    time_ms: int
    """When it was written, epoch milliseconds."""
    item: Item


class MetadataIndex:
    """The index of one volume."""

    def __init__(self, items: ItemStore, runtime: Runtime) -> None:
        self._items = items
        self._runtime = runtime

    async def add_operations(self, operations: Operations) -> None:
        """Add the entries as they will be after operations that are about to be applied: those that
        get a name, and those with names that get another place."""
        if isinstance(operations, Sequence) and not isinstance(operations, NativeOperations):
            found = [each for each in operations if each.after and each.after.has_metadata]
        else:
            found = [operations[place] for place in operations.with_metadata()]
        if not found:
            return
        wanted = []
        for each in found:
            assert each.after is not None
            known = each.before is not None and each.before.entry_key == each.after.entry_key
            before = _names(each.before) if known else frozenset()
            wanted += [(name, each.after) for name in sorted(_names(each.after) - before)]
        await run_all(self._add, wanted, limit=WRITES)

    async def add_entries(self, entries: Iterable[Entry]) -> None:
        """Add entries that are about to be written without being logged, as by a restore."""
        wanted = [
            (name, entry) for entry in entries if entry.has_metadata for name in _names(entry)
        ]
        await run_all(self._add, wanted, limit=WRITES)

    async def page(self, name: str, after: str, limit: int) -> tuple[list[IndexedEntry], str]:
        """Items of a name in the order of their entry keys, and the entry key after which the next
        ones follow; empty at the end."""

        async def part(number: int) -> tuple[list[IndexedEntry], bool]:
            return await self._part(_partition(name, number), after, min(limit, READ))

        parts = await gather(part, range(SUFFIXES), limit=SUFFIXES)
        ordered = list(merge(*(found for found, _ in parts), key=_order))
        # What follows the last item of a part that goes on is not known yet.
        bounds = [_order(found[-1]) for found, more in parts if more and found]
        if bounds:
            ordered = [each for each in ordered if _order(each) <= min(bounds)]
        page = ordered[:limit]
        has_more = bool(bounds) or len(ordered) > limit
        return page, page[-1].entry_key if page and has_more else ""

    async def remove_stale(
        self, found: Sequence[IndexedEntry], clock: Callable[[], Awaitable[int]]
    ) -> None:
        """Remove items that name entries without the name, if they are old and unchanged. `clock`:
        that of the data store, which is read if any items are old by the clock of this machine:
        one that is ahead would remove the item of a change in progress. If it fails, the next
        search removes them."""
        oldest = self._runtime.now_ms() - STALE_SECONDS * 1000
        if not any(each.time_ms < oldest for each in found):
            return
        try:
            oldest = min(oldest, await clock() - STALE_SECONDS * 1000)
        except PermissionDeniedError:
            pass  # the role may lack the permission for HeadBucket
        except S3kError:
            return

        async def remove(each: IndexedEntry) -> None:
            key = Key(str(each.item[PARTITION]), str(each.item[SORT]))
            try:
                await self._items.write(Delete(key, _is(each.item)))
            except ConditionFailedError:
                return  # written anew

        await run_all(remove, [each for each in found if each.time_ms < oldest], limit=WRITES)

    async def _part(
        self, partition: str, after: str, limit: int
    ) -> tuple[list[IndexedEntry], bool]:
        page = await self._items.query(partition, after=after, limit=limit)
        while not page.items and page.next is not None:  # no end of the partition
            page = await self._items.query(partition, cursor=page.next, after=after, limit=limit)
        return [_indexed(item) for item in page.items], page.next is not None

    async def _add(self, wanted: tuple[str, Entry]) -> None:
        name, entry = wanted
        key = Key(_partition(name, _suffix(entry.entry_key)), entry.entry_key)
        item: Item = {
            PARTITION: key.partition,
            SORT: key.sort,
            "shown": entry.path,
            "time": self._runtime.now_ms(),
            OPERATION: self._runtime.uuid(),
        }
        while True:
            try:
                await self._items.write(Put(item, ABSENT))
            except ConditionFailedError as error:
                there = error.current.get(0)
            else:
                return
            if there is None:
                await asyncio.sleep(0)
                continue
            fresh = {name: item[name] for name in ("shown", "time", OPERATION)}
            try:
                await self._items.write(Update(key, _is(there), fresh))
            except ConditionFailedError:
                await asyncio.sleep(0)
                continue
            return


def _names(entry: Entry | None) -> frozenset[str]:
    if entry is None or not entry.has_metadata:
        return frozenset()
    return frozenset(Attributes.from_json(entry.attributes).metadata)


def _is(item: Item) -> Condition:
    """The condition that an item of the index is unchanged."""
    return Condition(equals={OPERATION: item[OPERATION]})


def _partition(name: str, number: int) -> str:
    return f"{META_PREFIX}{name}-sf{number}"


def _suffix(entry_key: str) -> int:
    return zlib.crc32(entry_key.encode()) % SUFFIXES


def _order(found: IndexedEntry) -> bytes:
    return found.entry_key.encode()


def _indexed(item: Item) -> IndexedEntry:
    return IndexedEntry(str(item[SORT]), str(item["shown"]), int(item["time"]), item)
