"""An optional port of blob stores: other buckets of the same service."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from s3k_async.backends.ports.blobs import BlobStore

__all__ = ["ReachesBuckets", "in_bucket"]


@runtime_checkable
class ReachesBuckets(Protocol):
    """Optional for a BlobStore: views of other buckets."""

    def in_bucket(self, bucket: str) -> BlobStore | None:
        """A view of a whole bucket, by the endpoint, region and credentials of the store; None if
        the name is invalid. It shares the connections of the store, and is not closed. Nothing in
        `bucket` can select another host than that of a bucket of the service."""


def in_bucket(store: BlobStore, bucket: str) -> BlobStore | None:
    """As `ReachesBuckets.in_bucket`; None if the store reaches no other buckets."""
    return store.in_bucket(bucket) if isinstance(store, ReachesBuckets) else None
