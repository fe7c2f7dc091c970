"""A hook for tests: what stands between an opened volume and its stores."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol

from s3k_async.stores.blobs import BlobStore
from s3k_async.stores.items import ItemStore, ItemTable

__all__ = ["INTERCEPTOR", "Interceptor", "TableStore"]


class TableStore(ItemStore, ItemTable, Protocol):
    """Items and the table that holds them: every adapter is both."""


class Interceptor(Protocol):
    """Wraps each adapter as a volume opens it."""

    def items(self, store: TableStore) -> TableStore:
        """What the volume gets in place of this table."""

    def blobs(self, store: BlobStore) -> BlobStore:
        """What the volume gets in place of these blobs."""


INTERCEPTOR: Final[ContextVar[Interceptor | None]] = ContextVar("s3k_interceptor", default=None)
"""That of the volumes that are opened in this context; see `s3k_async.testing`."""
