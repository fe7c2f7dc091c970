"""Passes over the whole table of a locked volume, in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from s3k_async._core.concurrency import run_all
from s3k_async.backends.ports.items import (
    MAX_TRANSACTION,
    PARTITION,
    SORT,
    Condition,
    Delete,
    Item,
    Key,
)
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.errors import ConditionFailedError
from s3k_async.table.keys import is_entry_partition
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.volumes import Volume

__all__ = ["PassResult", "TablePass", "entry_pages", "key_of", "remove_items", "walk_table"]

_SEGMENTS: Final = 4


@dataclass(frozen=True, slots=True)
class PassResult:
    """Result of a pass. `entries`: of the current keys; `moved`: copied or removed ones."""

    entries: int = 0
    moved: int = 0

    def __add__(self, other: PassResult) -> PassResult:
        return PassResult(self.entries + other.entries, self.moved + other.moved)


class TablePass(Protocol):
    """One pass, which may be repeated while the volume lock is held."""

    def over(
        self, volume: Volume, segment: int, segments: int, held: Callable[[], object]
    ) -> AsyncGenerator[PassResult, None]:
        """Run the pass over one segment of the table, page by page. `held` raises unless the lock
        certainly is held."""


async def walk_table(
    volume: Volume, work: TablePass, lock: VolumeLock, progress: Callable[[int], object]
) -> PassResult:
    """Run one pass, over a few segments of the table concurrently. `progress` gets the number of
    entries so far."""
    total = PassResult()

    async def segment(number: int) -> None:
        nonlocal total
        async with aclosing(work.over(volume, number, _SEGMENTS, lock.check)) as pages:
            async for passed in pages:
                total += passed
                progress(total.entries)

    await run_all(segment, range(_SEGMENTS), limit=_SEGMENTS)
    return total


async def entry_pages(
    volume: Volume, segment: int, segments: int
) -> AsyncGenerator[list[Item], None]:
    """The items of entries in one segment of the table, of every layout, page by page."""
    async for page in scan_all(volume.items, segment, segments):
        items = [item for item in page if is_entry_partition(str(item[PARTITION]))]
        if items:
            yield items


def key_of(item: Item) -> Key:
    """The key of an item."""
    return Key(str(item[PARTITION]), str(item[SORT]))


async def remove_items(volume: Volume, items: Sequence[Item], held: Callable[[], object]) -> int:
    """Remove entries' items that are unchanged and still there; returns their number."""
    deletes = [
        Delete(key_of(item), Condition(equals={"id": item["id"], "ver": item["ver"]}))
        for item in items
    ]
    removed = 0
    for start in range(0, len(deletes), MAX_TRANSACTION):
        removed += await _remove(volume, deletes[start : start + MAX_TRANSACTION], held)
    return removed


async def _remove(volume: Volume, deletes: Sequence[Delete], held: Callable[[], object]) -> int:
    left = deletes
    while left:
        held()
        try:
            await volume.items.transact(left, volume.store.runtime.uuid())
        except ConditionFailedError:
            # A second attempt of the same task runs concurrently.
            found = await volume.items.get_many([delete.key for delete in left])
            remaining = [delete for delete in left if delete.key in found]
            if len(remaining) == len(left):
                raise
            left = remaining
        else:
            return len(left)
    return 0
