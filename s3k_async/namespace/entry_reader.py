"""Reads of the tree as clients see it: one entry, many, a directory's children."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import Protocol

from s3k_async import _native
from s3k_async._core.concurrency import merge
from s3k_async._native import Entries
from s3k_async.backends.ports.items import Item
from s3k_async.errors import ItemFormatError, PathNotFoundError
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.ordered_walk import in_order
from s3k_async.table.codec import from_item, from_items
from s3k_async.table.keys import Directory
from s3k_async.table.stored_reader import ROOT_ENTRY, SUFFIX_STREAMS, StoredReader
from s3k_async.txn.intent_view import IntentView, Seeing

__all__ = ["EntryReader", "existing"]

ORDERED_ROWS = 50_000
"""Rows that a sorted listing requests at the same time, if there are more suffixes than
`WHOLE_PAGES`."""
WHOLE_PAGES = 16
"""Up to this many suffixes, a sorted listing reads pages of full size."""


class PathReader(Protocol):
    """Reads of single paths: a store, or a view of it."""

    async def get(self, path: str) -> Entry | None: ...


async def existing(store: PathReader, path: str) -> Entry:
    """The entry at a path. Raises PathNotFoundError."""
    entry = await store.get(path)
    if entry is None:
        raise PathNotFoundError("no such file or directory", path=path)
    return entry


class EntryReader(StoredReader):
    """Strongly consistent reads of entries as clients see them. All paths are normalised.

    Where an entry has a write intent, the record of its transaction decides which state is visible
    (`IntentView`). A visible entry with an intent keeps it in `pending`: it must not be changed
    before the intent is resolved. A caller of several methods passes one `see` to all of them.
    """

    async def get(self, path: str, see: Seeing | None = None) -> Entry | None:
        """The entry at a path, or None. Raises InvalidPathError, ItemFormatError."""
        if path == ROOT:
            return ROOT_ENTRY
        item = await self.items.get(self.keys.key(path))
        if item is None:
            return None
        found = from_items([item], self.keys)
        if found.with_intents():
            found = await self._viewed(found, see)
        return found[0] if found else None

    async def get_many(self, paths: Sequence[str], see: Seeing | None = None) -> list[Entry | None]:
        """The entries at the paths, in their order, in as few requests as possible. Not a
        snapshot."""
        stored = await self.items_at(paths)
        found = from_items(list(stored.values()), self.keys)
        if found.with_intents():
            found = await self._viewed(found, see)
        entries: dict[str, Entry] = {ROOT: ROOT_ENTRY}
        entries.update(zip(found.paths(), found, strict=True))
        return [entries.get(path) for path in paths]

    async def get_each(self, paths: Sequence[str]) -> list[Entry | ItemFormatError | None]:
        """As `get_many`; for an invalid item the error takes the place of the entry."""
        stored = await self.items_at(paths)
        entries: dict[str, Entry | ItemFormatError] = {ROOT: ROOT_ENTRY}
        try:
            found = from_items(list(stored.values()), self.keys)
        except ItemFormatError:
            damaged = {
                path: error
                for path, item in stored.items()
                if (error := self._damage(item)) is not None
            }
            entries.update(damaged)
            found = from_items(
                [item for path, item in stored.items() if path not in damaged], self.keys
            )
        if found.with_intents():
            found = await self._viewed(found, None)
        entries.update(zip(found.paths(), found, strict=True))
        return [entries.get(path) for path in paths]

    async def chain(self, path: str) -> list[tuple[str, Entry | None]]:
        """The root, every other ancestor, and the path itself, topmost first, read in one batch."""
        paths = [ROOT, *_native.ancestors(path), path] if path != ROOT else [ROOT]
        return list(zip(paths, await self.get_many(paths), strict=True))

    async def children(
        self, directory: Directory, see: Seeing | None = None
    ) -> AsyncGenerator[Entries, None]:
        """A directory's children in pages, all suffixes read in parallel, in arrival order.

        A child that existed for the whole call is returned exactly once. The directory itself is
        not checked.
        """
        see = see or self._see()
        async for page in self.stored_children(directory):
            yield await see(page)

    async def children_in_order(
        self, directory: Directory, see: Seeing | None = None
    ) -> AsyncGenerator[Entries, None]:
        """As `children`, by name (UTF-8 bytes), with one or two pages of each suffix in memory."""
        see = see or self._see()
        partitions = self.keys.partitions(directory.key)
        limit = None if len(partitions) <= WHOLE_PAGES else max(1, ORDERED_ROWS // len(partitions))
        async with aclosing(
            in_order([self.partition(directory, partition, limit) for partition in partitions])
        ) as pages:
            async for page in pages:
                yield await see(page)

    async def has_children(self, directory: Directory) -> bool:
        """Whether the directory has a visible child, reservations included."""
        see = self._see()
        # The first child of each suffix usually suffices. If it is hidden, many others may be
        # hidden too, so whole pages are read.
        partitions = self.keys.partitions(directory.key)
        streams = [self.partition(directory, partition, first=1) for partition in partitions]
        async with aclosing(merge(streams, limit=SUFFIX_STREAMS)) as pages:
            async for page in pages:
                if await see(page):
                    return True
        return False

    def _viewed(self, stored: Entries, see: Seeing | None) -> Awaitable[Entries]:
        return (see or self._see())(stored)

    def _see(self) -> Seeing:
        """The intent view of one call."""
        return IntentView(self.items, self.keys).seen

    def _damage(self, item: Item) -> ItemFormatError | None:
        try:
            from_item(item, self.keys)
        except ItemFormatError as error:
            return error
        return None
