"""Passes of a reshard over the table, for the local runner and for Spark tasks.

Each may be repeated, also concurrently, while the volume lock is held: no other client changes an
entry meanwhile, so copies are equal, and an old one is removed once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

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
from s3k_async.errors import ConditionFailedError, CorruptDataError, ItemFormatError
from s3k_async.table.codec import from_items
from s3k_async.table.keys import KeyScheme, is_entry_partition
from s3k_async.volumes import Volume

__all__ = ["PassName", "PassResult", "ReshardPass"]

PassName: TypeAlias = Literal["check", "copy", "clean"]
"""`check` refuses items that cannot be moved, `copy` writes each entry with a changed key to that
key, `clean` removes the old copies, each only if the new one exists and is equal."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """Result of a pass. `entries`: of the current layout; `moved`: copied or removed ones."""

    entries: int = 0
    moved: int = 0

    def __add__(self, other: PassResult) -> PassResult:
        return PassResult(self.entries + other.entries, self.moved + other.moved)


@dataclass(frozen=True, slots=True)
class ReshardPass:
    """One pass, from the keys `old` to the keys `new`: a plain value that can be pickled."""

    name: PassName
    old: KeyScheme
    new: KeyScheme

    async def over(
        self, volume: Volume, segment: int, segments: int, held: Callable[[], object]
    ) -> AsyncGenerator[PassResult, None]:
        """Run the pass over one segment of the table, page by page. `held` raises unless the lock
        certainly is held.

        Raises ItemFormatError and InvalidPathError (`check`), CorruptDataError (`clean`), the
        errors of `held`, and the store's.
        """
        async for page in scan_all(volume.items, segment, segments):
            items = [item for item in page if is_entry_partition(str(item[PARTITION]))]
            if items:
                yield await self._do(volume, items, held)

    async def _do(
        self, volume: Volume, items: Sequence[Item], held: Callable[[], object]
    ) -> PassResult:
        if self.name == "check":
            return self._check(items)
        if self.name == "copy":
            return await self._copy(volume, items)
        return await self._clean(volume, items, held)

    def _check(self, items: Sequence[Item]) -> PassResult:
        """Refuse damaged and misplaced items, before the first change."""
        try:
            from_items(items, self.old)
        except ItemFormatError as error:
            raise ItemFormatError(
                f"{error.message}; run s3k fsck repair first", path=error.path
            ) from error
        entry_keys = self.old.entry_keys([_key(item) for item in items])
        self.new.keys(entry_keys)
        for item, key in zip(items, self.old.keys(entry_keys), strict=True):
            if _key(item) != key:
                place = f"{item[PARTITION]}/{item[SORT]}"
                raise ItemFormatError(
                    "the item is in the wrong partition; run s3k fsck repair first", path=place
                )
        return PassResult(len(items))

    async def _copy(self, volume: Volume, items: Sequence[Item]) -> PassResult:
        # Entries with an unchanged key and existing copies are kept.
        copies = [
            {**item, PARTITION: key.partition}
            for item, key in self._places(items)
            if key != _key(item)
        ]
        await volume.items.load(copies)
        return PassResult(len(items), len(copies))

    async def _clean(
        self, volume: Volume, items: Sequence[Item], held: Callable[[], object]
    ) -> PassResult:
        leftover = [(item, key) for item, key in self._places(items) if key != _key(item)]
        copies = await volume.items.get_many([key for _, key in leftover])
        deletes: list[Delete] = []
        for item, key in leftover:
            copy = copies.get(key)
            if copy is None or {**copy, PARTITION: item[PARTITION]} != dict(item):
                raise CorruptDataError(
                    "an entry has no copy at its new place", path=f"{key.partition}/{key.sort}"
                )
            deletes.append(
                Delete(_key(item), Condition(equals={"id": item["id"], "ver": item["ver"]}))
            )
        removed = 0
        for start in range(0, len(deletes), MAX_TRANSACTION):
            removed += await _remove(volume, deletes[start : start + MAX_TRANSACTION], held)
        return PassResult(len(items) - len(leftover), removed)

    def _places(self, items: Sequence[Item]) -> list[tuple[Item, Key]]:
        """The items with their new keys."""
        entry_keys = self.new.entry_keys([_key(item) for item in items])
        return list(zip(items, self.new.keys(entry_keys), strict=True))


async def _remove(volume: Volume, deletes: Sequence[Delete], held: Callable[[], object]) -> int:
    """Remove the existing ones; returns their number."""
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


def _key(item: Item) -> Key:
    return Key(str(item[PARTITION]), str(item[SORT]))
