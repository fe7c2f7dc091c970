"""An optional port of blob stores: storage class and tags of single blobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from s3k_async.backends.aws.access import StorageClass
from s3k_async.backends.ports.blobs import BlobStore

__all__ = ["StorageTerms", "StoresByTerms", "stored_by"]


@dataclass(frozen=True, slots=True)
class StorageTerms:
    """How a blob is stored."""

    storage_class: StorageClass | None = None
    """None: that of the store's settings."""
    tags: tuple[tuple[str, str], ...] = ()
    """Names and values."""


@runtime_checkable
class StoresByTerms(Protocol):
    """Optional for a BlobStore: views that store blobs by given terms."""

    def stored_by(self, terms: StorageTerms) -> BlobStore:
        """A view of the store that applies these terms to the blobs that it stores, copies
        included. It shares the connections, and is not closed."""


def stored_by(store: BlobStore, terms: StorageTerms) -> BlobStore:
    """As `StoresByTerms.stored_by`; the store itself if it does not support terms."""
    return store.stored_by(terms) if isinstance(store, StoresByTerms) else store
