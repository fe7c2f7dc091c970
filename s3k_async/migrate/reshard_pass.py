"""Passes of a reshard over the table, for the local runner and for Spark tasks.

Each may be repeated, also concurrently, while the volume lock is held: no other client changes an
entry meanwhile, so copies are equal, and an old one is removed once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from s3k_async.backends.ports.items import PARTITION, SORT, Item, Key
from s3k_async.errors import CorruptDataError, ItemFormatError
from s3k_async.migrate.table_walk import PassResult, entry_pages, key_of, remove_items
from s3k_async.table.codec import from_items
from s3k_async.table.keys import KeyScheme
from s3k_async.volumes import Volume

__all__ = ["PassName", "PassResult", "ReshardPass"]

PassName: TypeAlias = Literal["check", "copy", "clean"]
"""`check` refuses items that cannot be moved, `copy` writes each entry with a changed key to that
key, `clean` removes the old copies, each only if the new one exists and is equal."""


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
        async for items in entry_pages(volume, segment, segments):
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
        entry_keys = self.old.entry_keys([key_of(item) for item in items])
        self.new.keys(entry_keys)
        for item, key in zip(items, self.old.keys(entry_keys), strict=True):
            if key_of(item) != key:
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
            if key != key_of(item)
        ]
        await volume.items.load(copies)
        return PassResult(len(items), len(copies))

    async def _clean(
        self, volume: Volume, items: Sequence[Item], held: Callable[[], object]
    ) -> PassResult:
        leftover = [(item, key) for item, key in self._places(items) if key != key_of(item)]
        copies = await volume.items.get_many([key for _, key in leftover])
        for item, key in leftover:
            copy = copies.get(key)
            if copy is None or {**copy, PARTITION: item[PARTITION]} != dict(item):
                raise CorruptDataError(
                    "an entry has no copy at its new place", path=f"{key.partition}/{key.sort}"
                )
        removed = await remove_items(volume, [item for item, _ in leftover], held)
        return PassResult(len(items) - len(leftover), removed)

    def _places(self, items: Sequence[Item]) -> list[tuple[Item, Key]]:
        """The items with their new keys."""
        entry_keys = self.new.entry_keys([key_of(item) for item in items])
        return list(zip(items, self.new.keys(entry_keys), strict=True))
