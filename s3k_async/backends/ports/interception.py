"""A hook for tests: wrappers around the stores of an opened volume."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol

from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import ItemStore, ItemTable

__all__ = ["INTERCEPTOR", "Interceptor", "TableStore"]


class TableStore(ItemStore, ItemTable, Protocol):
    """An item store and its table: every adapter is both."""


class Interceptor(Protocol):
    """Wraps each adapter as a volume opens it."""

    def items(self, store: TableStore) -> TableStore:
        """The volume's table in place of this one."""

    def blobs(self, store: BlobStore) -> BlobStore:
        """The volume's blobs in place of these."""


INTERCEPTOR: Final[ContextVar[Interceptor | None]] = ContextVar("s3k_interceptor", default=None)
"""The interceptor of volumes opened in this context; see `s3k_async.testing`."""
