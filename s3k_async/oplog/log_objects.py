"""Bounded reads of whole log objects: at most the size that a writer can have produced.

Nothing that is larger is an object of the log, whatever its beginning says, and it is not read to
its end: an object of any size takes no more memory than the largest that there can be.
"""

from __future__ import annotations

from typing import Final

from s3k_async.errors import LogFormatError
from s3k_async.stores.blobs import BlobStore

__all__ = ["ENTRY_BYTES", "MANIFEST_BYTES", "OBJECT_BYTES", "read_object"]

ENTRY_BYTES: Final = 1024 * 1024
"""More than an entry takes: its two states have paths of 3,073 bytes and a mark at most, each
escaped."""
OBJECT_BYTES: Final = 16 * 1024 * 1024
"""More than a segment (8 MiB) or a part of a checkpoint (4 MiB) takes, each with one operation too
many."""
MANIFEST_BYTES: Final = 64 * 1024 * 1024
"""More than a manifest takes: 50,000 segments, and a part for every 4 MiB of checkpoint."""


async def read_object(blobs: BlobStore, key: str, most: int = OBJECT_BYTES) -> bytes:
    """The bytes of an object. Raises LogFormatError for one of more than `most`, BlobNotFoundError,
    and the store's errors.
    """
    data = await blobs.get(key, 0, most + 1)
    if len(data) > most:
        raise LogFormatError(f"more than {most:,} bytes, which no object of its kind has", path=key)
    return data
