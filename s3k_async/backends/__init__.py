"""Backends: the engines that hold a volume's table, data and log.

Each is a package with a location class (a subclass of `TableLocation` or `BlobLocation`) and the
adapters that it opens, and one line of `registry`. The names here are those that the author of a
backend needs, beside the ports in `stores.items` and `stores.blobs`.
"""

from __future__ import annotations

from s3k_async.backends.location import (
    BlobCapabilities,
    BlobLocation,
    OpenContext,
    TableCapabilities,
    TableLocation,
    TableStore,
)
from s3k_async.stores.ballast import Ballast
from s3k_async.stores.blobs import BlobStore

__all__ = [
    "Ballast",
    "BlobCapabilities",
    "BlobLocation",
    "BlobStore",
    "OpenContext",
    "TableCapabilities",
    "TableLocation",
    "TableStore",
]
