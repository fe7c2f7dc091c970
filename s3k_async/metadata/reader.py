"""Reading the tree: one entry, many, a directory's children, a whole table."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from s3k_async import _native
from s3k_async.concurrency import merge
from s3k_async.metadata.codec import from_item
from s3k_async.metadata.keys import ENTRY_PREFIX, KeyScheme
from s3k_async.model import ROOT, Entry
from s3k_async.stores.items import PARTITION, ItemStore

__all__ = ["ROOT_ENTRY", "EntryReader"]

ROOT_ENTRY = Entry(path=ROOT, is_dir=True, id="00000000-0000-4000-8000-000000000000", version=1, ctime=0, mtime_ms=0)
"""The root has no item; it is the same everywhere and cannot change."""

SUFFIX_STREAMS = 64
"""Suffix partitions of one directory that are read at the same time."""


class EntryReader:
    """Strongly consistent reads of entries. All paths are normalised."""

    def __init__(self, items: ItemStore, keys: KeyScheme) -> None:
        self.items = items
        self.keys = keys

    async def get(self, path: str) -> Entry | None:
        """The entry at a path, or None. Raises InvalidPathError, ItemFormatError."""
        if path == ROOT:
            return ROOT_ENTRY
        item = await self.items.get(self.keys.key(path))
        return None if item is None else from_item(item, self.keys)

    async def get_many(self, paths: Sequence[str]) -> list[Entry | None]:
        """The entries at the paths, in their order, in as few requests as possible. Not a snapshot."""
        wanted = list(dict.fromkeys(path for path in paths if path != ROOT))
        keys = dict(zip(wanted, self.keys.keys(wanted), strict=True))
        found = await self.items.get_many(list(keys.values())) if keys else {}
        entries: dict[str, Entry | None] = {ROOT: ROOT_ENTRY}
        for path, key in keys.items():
            item = found.get(key)
            entries[path] = None if item is None else from_item(item, self.keys)
        return [entries[path] for path in paths]

    async def chain(self, path: str) -> list[tuple[str, Entry | None]]:
        """Every ancestor below the root and the path itself, topmost first, read in one batch."""
        paths = [*_native.ancestors(path), path]
        return list(zip(paths, await self.get_many(paths), strict=True))

    async def children(self, path: str) -> AsyncGenerator[list[Entry], None]:
        """A directory's children in pages, all suffixes read in parallel, in arrival order.

        A child that existed for the whole call is returned exactly once. Nothing is checked about the directory.
        """
        streams = [self._partition(partition) for partition in self.keys.partitions(path)]
        async for page in merge(streams, limit=SUFFIX_STREAMS):
            yield page

    async def has_children(self, path: str) -> bool:
        """Whether the directory has a child, reservations included."""
        streams = [self._partition(partition, limit=1) for partition in self.keys.partitions(path)]
        async with aclosing(merge(streams, limit=SUFFIX_STREAMS)) as pages:
            async for page in pages:
                if page:
                    return True
        return False

    async def scan(self, path: str, segment: int = 0, segments: int = 1) -> AsyncGenerator[list[Entry], None]:
        """What lies below a path, from one of `segments` parts of the table, entries without parents included.

        The path itself is excluded, and matching is by components: `/a` does not reach `/ab`. Raises ValueError unless
        0 <= segment < segments.
        """
        below = ROOT if path == ROOT else path + "/"
        cursor: str | None = None
        while True:
            page = await self.items.scan(segment, segments, cursor=cursor)
            entries = [
                from_item(item, self.keys) for item in page.items if str(item[PARTITION]).startswith(ENTRY_PREFIX)
            ]
            yield [entry for entry in entries if entry.path.startswith(below)]
            if page.next is None:
                return
            cursor = page.next

    async def _partition(self, partition: str, limit: int | None = None) -> AsyncIterator[list[Entry]]:
        cursor: str | None = None
        while True:
            page = await self.items.query(partition, cursor=cursor, limit=limit)
            yield [from_item(item, self.keys) for item in page.items]
            if page.next is None:
                return
            cursor = page.next
