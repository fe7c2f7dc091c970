"""The indexes of a volume: what must have an entry before the table does, or together with it.

Callers that write entries need not know which there are: that of user metadata in every volume, and
that of lifecycle rules in volumes with the feature `rules`. Entries that are written without being
logged are not counted: counters of buckets get their mark before.
"""

from __future__ import annotations

from collections.abc import Sequence

from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import ItemStore
from s3k_async.model import Entry
from s3k_async.namespace.due_index import DueIndex, DueItems
from s3k_async.namespace.metadata_index import MetadataIndex
from s3k_async.oplog.segments import Operations
from s3k_async.txn.bucket_counters import BucketCounters

__all__ = ["EntryIndexes"]


class EntryIndexes:
    """The indexes of one volume. `rules`: whether it has the feature; `counters`: those of its
    buckets, if it has them."""

    def __init__(
        self,
        items: ItemStore,
        runtime: Runtime,
        *,
        rules: bool,
        counters: BucketCounters | None = None,
    ) -> None:
        self.metadata = MetadataIndex(items, runtime)
        self.due = DueIndex(items, runtime) if rules else None
        """That of lifecycle rules; None in a volume without the feature."""
        self._counters = counters

    async def items_of(self, operations: Operations) -> DueItems | None:
        """Add the states of entries after operations that are about to be applied. Items that
        belong in the transactions of the table that apply the operations are returned instead, as
        by `DueIndex.items_of`. Raises the errors of the table."""
        await self.metadata.add_operations(operations)
        return None if self.due is None else await self.due.items_of(operations)

    async def size_of(self, operations: Operations) -> int:
        """The number of items that `items_of` would return. Raises the errors of the table."""
        return 0 if self.due is None else await self.due.size_of(operations)

    async def add_entries(self, entries: Sequence[Entry]) -> None:
        """Add entries that are about to be written without being logged, as by a restore."""
        await self.stop_counting()
        await self.metadata.add_entries(entries)
        if self.due is not None:
            await self.due.add_entries(entries)

    async def add_subtree(self, top: Entry) -> None:
        """As `add_entries`, for an entry that is put back together with what is below it."""
        await self.stop_counting()
        await self.metadata.add_entries([top])
        if self.due is not None:
            await self.due.add_subtree(top)

    async def stop_counting(self) -> None:
        """Called before entries change in a way that the counters of buckets do not include: they
        are not read until everything is counted again."""
        if self._counters is not None:
            await self._counters.mark_stale()
