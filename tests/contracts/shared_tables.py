"""One of the volumes of a shared table, for the contract suite."""

from __future__ import annotations

from s3k_async.backends.ports.interception import TableStore
from s3k_async.backends.retrying.prefixed_items import PrefixedItems

__all__ = ["PartOfTable"]


class PartOfTable(PrefixedItems):
    """The items below a prefix, whose table is dropped with them: it belongs to one test."""

    def __init__(self, store: TableStore, prefix: str) -> None:
        super().__init__(store, prefix)
        self._whole = store

    async def drop(self) -> None:
        await self._whole.drop()
