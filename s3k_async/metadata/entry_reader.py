"""Reads of the tree: one entry, many, a directory's children, a whole table; as stored, or as
readers see it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Protocol

from s3k_async import _native
from s3k_async._core.concurrency import merge
from s3k_async._native import Entries
from s3k_async.errors import ItemFormatError, PathNotFoundError
from s3k_async.metadata.codec import from_item, from_items
from s3k_async.metadata.intent_view import IntentView, Seeing
from s3k_async.metadata.keys import KeyScheme
from s3k_async.metadata.ordered_walk import in_order
from s3k_async.model import ROOT, Entry
from s3k_async.stores.items import Item, ItemStore
from s3k_async.stores.pagination import query_all, scan_all

__all__ = ["ROOT_ENTRY", "EntryReader", "existing"]

ROOT_ENTRY = Entry(
    path=ROOT,
    is_dir=True,
    id="00000000-0000-4000-8000-000000000000",
    version=1,
    ctime=0,
    mtime_ms=0,
)
"""The root has no item; it is the same everywhere and cannot change."""

SUFFIX_STREAMS = 64
"""Suffix partitions of one directory that are read at the same time."""
ORDERED_ROWS = 50_000
"""Rows that a listing in order asks for at the same time, if there are more suffixes than
`WHOLE_PAGES`."""
WHOLE_PAGES = 16
"""Suffixes of which a listing in order reads pages as large as they come."""


class PathReader(Protocol):
    """Reads of single paths: a store, or a view of it."""

    async def get(self, path: str) -> Entry | None: ...


async def existing(store: PathReader, path: str) -> Entry:
    """The entry at a path. Raises PathNotFoundError."""
    entry = await store.get(path)
    if entry is None:
        raise PathNotFoundError("no such file or directory", path=path)
    return entry


class EntryReader:
    """Strongly consistent reads of entries. All paths are normalised.

    What is called `stored` gives items as they are, for jobs and fsck. Everything else gives what
    readers see: where a job marks an entry, the side that the job's record tells (`IntentView`). An
    entry that is seen and marked keeps its mark in `pending`: nobody may change it before the job
    is settled. `see` is how a caller of several methods sees all that they read.
    """

    def __init__(self, items: ItemStore, keys: KeyScheme) -> None:
        self.items = items
        self.keys = keys

    async def get(self, path: str, see: Seeing | None = None) -> Entry | None:
        """The entry at a path, or None. Raises InvalidPathError, ItemFormatError."""
        if path == ROOT:
            return ROOT_ENTRY
        item = await self.items.get(self.keys.key(path))
        if item is None:
            return None
        seen = await self._viewed(from_items([item], self.keys), see)
        return seen[0] if seen else None

    async def get_many(self, paths: Sequence[str], see: Seeing | None = None) -> list[Entry | None]:
        """The entries at the paths, in their order, in as few requests as possible. Not a
        snapshot."""
        stored = await self._items_at(paths)
        seen = await self._viewed(from_items(list(stored.values()), self.keys), see)
        entries: dict[str, Entry] = {ROOT: ROOT_ENTRY}
        entries.update(zip(seen.paths(), seen, strict=True))
        return [entries.get(path) for path in paths]

    async def get_each(self, paths: Sequence[str]) -> list[Entry | ItemFormatError | None]:
        """As `get_many`, with the error of an item that is no entry in its place."""
        stored = await self._items_at(paths)
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
        seen = await self._viewed(found)
        entries.update(zip(seen.paths(), seen, strict=True))
        return [entries.get(path) for path in paths]

    async def stored(self, path: str) -> Entry | None:
        """The entry at a path as it is stored, or None. Raises InvalidPathError,
        ItemFormatError."""
        if path == ROOT:
            return ROOT_ENTRY
        item = await self.items.get(self.keys.key(path))
        return None if item is None else from_item(item, self.keys)

    async def stored_many(self, paths: Sequence[str]) -> list[Entry | None]:
        """As `get_many`, as they are stored."""
        stored = await self._items_at(paths)
        entries: dict[str, Entry] = {ROOT: ROOT_ENTRY}
        entries.update(zip(stored, from_items(list(stored.values()), self.keys), strict=True))
        return [entries.get(path) for path in paths]

    async def chain(self, path: str) -> list[tuple[str, Entry | None]]:
        """Every ancestor below the root and the path itself, topmost first, read in one batch."""
        paths = [*_native.ancestors(path), path]
        return list(zip(paths, await self.get_many(paths), strict=True))

    async def children(self, path: str, see: Seeing | None = None) -> AsyncGenerator[Entries, None]:
        """A directory's children in pages, all suffixes read in parallel, in arrival order.

        A child that existed for the whole call is returned exactly once. Nothing is checked about
        the directory.
        """
        see = see or self._see()
        async for page in self.stored_children(path):
            yield await see(page)

    async def children_in_order(
        self, path: str, see: Seeing | None = None
    ) -> AsyncGenerator[Entries, None]:
        """As `children`, by name (UTF-8 bytes), with one or two pages of each suffix in memory."""
        see = see or self._see()
        partitions = self.keys.partitions(path)
        limit = None if len(partitions) <= WHOLE_PAGES else max(1, ORDERED_ROWS // len(partitions))
        async with aclosing(
            in_order([self._partition(partition, limit) for partition in partitions])
        ) as pages:
            async for page in pages:
                yield await see(page)

    def stored_children(self, path: str) -> AsyncGenerator[Entries, None]:
        """As `children`, as they are stored."""
        return merge(
            [self._partition(partition) for partition in self.keys.partitions(path)],
            limit=SUFFIX_STREAMS,
        )

    async def has_children(self, path: str) -> bool:
        """Whether the directory has a child that readers see, reservations included."""
        see = self._see()
        # The first child of each suffix mostly tells. Where it is hidden so may be many, which are
        # read by the page.
        streams = [self._partition(partition, first=1) for partition in self.keys.partitions(path)]
        async with aclosing(merge(streams, limit=SUFFIX_STREAMS)) as pages:
            async for page in pages:
                if await see(page):
                    return True
        return False

    async def has_stored_children(self, path: str) -> bool:
        """Whether an item is stored below the directory, and be it one that a job has yet to show
        or to remove."""
        streams = [self._partition(partition, first=1) for partition in self.keys.partitions(path)]
        async with aclosing(merge(streams, limit=SUFFIX_STREAMS)) as pages:
            async for page in pages:
                if page:
                    return True
        return False

    async def scan(
        self, path: str, segment: int = 0, segments: int = 1
    ) -> AsyncGenerator[Entries, None]:
        """What is stored below a path, from one of `segments` parts of the table, entries without
        parents included.

        The path itself is excluded, and matching is by components: `/a` does not reach `/ab`.
        Raises ValueError unless 0 <= segment < segments.
        """
        below = ROOT if path == ROOT else path + "/"
        async for page in scan_all(self.items, segment, segments):
            yield from_items(page, self.keys, records=True).below(below)

    async def _viewed(self, stored: Entries, see: Seeing | None = None) -> Entries:
        return await (see or self._see())(stored) if stored.marked() else stored

    def _see(self) -> Seeing:
        """How one call sees what it reads."""
        return IntentView(self.items, self.keys).seen

    async def _items_at(self, paths: Sequence[str]) -> dict[str, Item]:
        """The items at those of the paths that have one."""
        wanted = list(dict.fromkeys(path for path in paths if path != ROOT))
        keys = dict(zip(wanted, self.keys.keys(wanted), strict=True))
        found = await self.items.get_many(list(keys.values())) if keys else {}
        return {path: found[key] for path, key in keys.items() if key in found}

    def _damage(self, item: Item) -> ItemFormatError | None:
        try:
            from_item(item, self.keys)
        except ItemFormatError as error:
            return error
        return None

    async def _partition(
        self, partition: str, limit: int | None = None, *, first: int | None = None
    ) -> AsyncIterator[Entries]:
        """One partition in pages of `limit` items, the first of them of `first`."""
        async for page in query_all(self.items, partition, limit=limit, first=first):
            yield from_items(page, self.keys)
