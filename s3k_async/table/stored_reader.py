"""Reads of items as they are stored: one, many, a directory's children, a part of the table."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from s3k_async._core.concurrency import merge
from s3k_async._native import Entries
from s3k_async.backends.ports.items import Item, ItemStore
from s3k_async.backends.ports.pagination import query_all, scan_all
from s3k_async.model import ROOT, Entry
from s3k_async.table.codec import from_item, from_items
from s3k_async.table.keys import Directory, KeyScheme

__all__ = ["ROOT_ENTRY", "SUFFIX_STREAMS", "StoredReader"]

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


class StoredReader:
    """Strongly consistent reads of stored entries, write intents unresolved. All entry keys are
    normalised."""

    def __init__(self, items: ItemStore, keys: KeyScheme) -> None:
        self.items = items
        self.keys = keys

    async def stored(self, entry_key: str) -> Entry | None:
        """The entry with a key as it is stored, or None. Raises InvalidPathError,
        ItemFormatError."""
        if entry_key == ROOT:
            return ROOT_ENTRY
        item = await self.items.get(self.keys.key(entry_key))
        return None if item is None else from_item(item, self.keys)

    async def stored_again(self, entry: Entry) -> Entry | None:
        """What is stored now in the place of an entry. Raises ItemFormatError."""
        current = await self.stored(entry.entry_key)
        if current is None or current.path == entry.path:
            return current
        return replace(current, path=entry.path)

    async def stored_many(self, entry_keys: Sequence[str]) -> list[Entry | None]:
        """The stored entries with the keys, in their order, in as few requests as possible. Not a
        snapshot."""
        stored = await self.items_at(entry_keys)
        entries: dict[str, Entry] = {ROOT: ROOT_ENTRY}
        entries.update(zip(stored, from_items(list(stored.values()), self.keys), strict=True))
        return [entries.get(entry_key) for entry_key in entry_keys]

    def stored_children(self, directory: Directory) -> AsyncGenerator[Entries, None]:
        """A directory's stored children in pages, all suffixes read in parallel, in arrival
        order. The directory itself is not checked."""
        return merge(
            [
                self.partition(directory, partition)
                for partition in self.keys.partitions(directory.key)
            ],
            limit=SUFFIX_STREAMS,
        )

    async def has_stored_children(self, directory: Directory) -> bool:
        """Whether an item is stored below the directory, even one that a transaction has yet to
        create or remove."""
        partitions = self.keys.partitions(directory.key)
        streams = [self.partition(directory, partition, first=1) for partition in partitions]
        async with aclosing(merge(streams, limit=SUFFIX_STREAMS)) as pages:
            async for page in pages:
                if page:
                    return True
        return False

    async def scan(
        self,
        path: str,
        segment: int = 0,
        segments: int = 1,
        *,
        paths: dict[str, str] | None = None,
    ) -> AsyncGenerator[Entries, None]:
        """The entries below a path in one of `segments` parts of the table, those without
        parents included.

        The path itself is excluded, and matching is by components: `/a` does not reach `/ab`.
        Raises ValueError unless 0 <= segment < segments.

        `paths`: in layout `tree`, whose keys contain no paths, those of all directories, by
        directory key. Entries of others are left out. Without them only a scan of the root returns
        entries: all of them, those in the trash included, with their entry keys as paths.
        """
        async for page in scan_all(self.items, segment, segments):
            entries = from_items(page, self.keys, records=True, paths=paths)
            if path == ROOT and paths is None:
                yield entries
            else:
                yield entries.below("/" if path == ROOT else path + "/")

    async def items_at(self, entry_keys: Sequence[str]) -> dict[str, Item]:
        """The items with those of the entry keys that exist."""
        wanted = list(dict.fromkeys(each for each in entry_keys if each != ROOT))
        keys = dict(zip(wanted, self.keys.keys(wanted), strict=True))
        found = await self.items.get_many(list(keys.values())) if keys else {}
        return {each: found[key] for each, key in keys.items() if key in found}

    async def partition(
        self,
        directory: Directory,
        partition: str,
        limit: int | None = None,
        *,
        first: int | None = None,
        after: str = "",
    ) -> AsyncIterator[Entries]:
        """One partition of a directory in pages of `limit` items, the first of them of `first`.
        `after`: only the names that follow it."""
        paths = {directory.key: directory.path}
        pages = query_all(self.items, partition, after=after, limit=limit, first=first)
        async for page in pages:
            yield from_items(page, self.keys, paths=paths)
