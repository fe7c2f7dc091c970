"""Reads of the tree as clients see it: one entry, many, a directory's children."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Protocol, TypeAlias, TypeVar

from s3k_async._core.concurrency import merge
from s3k_async._native import Entries
from s3k_async.errors import PathNotFoundError, S3kError
from s3k_async.model import Entry
from s3k_async.namespace.layout import Layout
from s3k_async.namespace.ordered_walk import in_order
from s3k_async.table.keys import Directory
from s3k_async.table.stored_reader import SUFFIX_STREAMS, StoredReader
from s3k_async.txn.intent_view import IntentView, Seeing

__all__ = ["EntryReader", "existing", "missing"]

T = TypeVar("T")

ORDERED_ROWS = 50_000
"""Rows that a sorted listing requests at the same time, if there are more suffixes than
`WHOLE_PAGES`."""
WHOLE_PAGES = 16
"""Up to this many suffixes, a sorted listing reads pages of full size."""

_Read: TypeAlias = Coroutine[Any, Any, T]


class PathReader(Protocol):
    """Reads of single paths: a store, or a view of it."""

    async def get(self, path: str) -> Entry | None: ...


async def existing(store: PathReader, path: str) -> Entry:
    """The entry at a path. Raises PathNotFoundError."""
    return _found(await store.get(path), path)


def missing(path: str) -> PathNotFoundError:
    """The error for a path without an entry."""
    return PathNotFoundError("no such file or directory", path=path)


def _found(entry: Entry | None, path: str) -> Entry:
    if entry is None:
        raise missing(path)
    return entry


class EntryReader(StoredReader):
    """Strongly consistent reads of entries as clients see them. All paths are normalised.

    Where an entry has a write intent, the record of its transaction decides which state is visible
    (`IntentView`). A visible entry with an intent keeps it in `pending`: it must not be changed
    before the intent is resolved. A caller of several methods passes one `see` to all of them.
    """

    layout: Layout
    """Reads by path depend on it; set by the store."""

    def get(
        self, path: str, see: Seeing | None = None, *, trusting: bool = False
    ) -> _Read[Entry | None]:
        """`Layout.get`."""
        return self.layout.get(path, see, trusting=trusting)

    def get_many(
        self, paths: Sequence[str], see: Seeing | None = None, *, trusting: bool = False
    ) -> _Read[list[Entry | None]]:
        """`Layout.get_many`."""
        return self.layout.get_many(paths, see, trusting=trusting)

    def get_each(
        self, paths: Sequence[str], *, trusting: bool = False
    ) -> _Read[list[Entry | S3kError | None]]:
        """`Layout.get_each`."""
        return self.layout.get_each(paths, trusting=trusting)

    async def lookup(self, path: str) -> Entry:
        """As `existing`, for verbs that change nothing: directories may be trusted."""
        return _found(await self.get(path, trusting=True), path)

    async def children(
        self, directory: Directory, see: Seeing | None = None
    ) -> AsyncGenerator[Entries, None]:
        """A directory's children in pages, all suffixes read in parallel, in arrival order.

        A child that existed for the whole call is returned exactly once. The directory itself is
        not checked.
        """
        see = see or self.view()
        async for page in self.stored_children(directory):
            yield await see(page)

    async def children_in_order(
        self,
        directory: Directory,
        see: Seeing | None = None,
        *,
        after: str = "",
        rows: int | None = None,
    ) -> AsyncGenerator[Entries, None]:
        """As `children`, by name (UTF-8 bytes), with one or two pages of each suffix in memory.

        `after`: only the names that follow it. `rows`: about as many are needed; None: all.
        """
        see = see or self.view()
        partitions = self.keys.partitions(directory.key)
        limit = None if len(partitions) <= WHOLE_PAGES else max(1, ORDERED_ROWS // len(partitions))
        if rows is not None:
            # Services refuse a limit that does not fit into their numbers.
            share = min(rows, ORDERED_ROWS) // max(1, len(partitions)) + 1
            limit = share if limit is None else min(share, limit)
        streams = [
            self.partition(directory, partition, limit, after=after) for partition in partitions
        ]
        async with aclosing(in_order(streams)) as pages:
            async for page in pages:
                yield await see(page)

    async def has_children(self, directory: Directory) -> bool:
        """Whether the directory has a visible child, reservations included."""
        see = self.view()
        # The first child of each suffix usually suffices. If it is hidden, many others may be
        # hidden too, so whole pages are read.
        partitions = self.keys.partitions(directory.key)
        streams = [self.partition(directory, partition, first=1) for partition in partitions]
        async with aclosing(merge(streams, limit=SUFFIX_STREAMS)) as pages:
            async for page in pages:
                if await see(page):
                    return True
        return False

    def view(self) -> Seeing:
        """The intent view of one call."""
        return IntentView(self.items, self.keys).seen
