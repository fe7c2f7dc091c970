"""An optional port of blob stores: reads of one version of a blob."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from s3k_async.backends.ports.blobs import BlobStore

__all__ = ["KeepsVersions", "at_version"]


@runtime_checkable
class KeepsVersions(Protocol):
    """Optional for a BlobStore: views that read one version of a blob."""

    def at_version(self, version: str) -> BlobStore:
        """A view of the store whose requests name this version id: GetObject, HeadObject, the
        sources of CopyObject and UploadPartCopy, and presigned URLs. Valid only for the blob that
        has this version. A deleted version is a missing blob. The view shares the connections of
        the store, and is not closed."""


def at_version(store: BlobStore, version: str) -> BlobStore:
    """As `KeepsVersions.at_version`; the store itself for an empty version id, and if it keeps no
    versions."""
    if version and isinstance(store, KeepsVersions):
        return store.at_version(version)
    return store
