"""Bounded reads of whole log objects: at most the largest size of a writer.

A larger object is not part of the log and is not read to its end, so that memory is bounded.
"""

from __future__ import annotations

from typing import Final

from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.errors import LogFormatError

__all__ = ["ENTRY_BYTES", "MANIFEST_BYTES", "OBJECT_BYTES", "QUARANTINE", "read_object"]

QUARANTINE: Final = "quarantine/"
"""Prefix of unreadable objects of the log, and items of the table, that fsck has removed; a dot and
a checksum follow the key of a log object."""
ENTRY_BYTES: Final = 1024 * 1024
"""Above the largest entry: its two states have at most paths of 3,073 bytes and a mark each,
escaped."""
OBJECT_BYTES: Final = 16 * 1024 * 1024
"""Above the largest segment (8 MiB) and checkpoint part (4 MiB), each with one operation more."""
MANIFEST_BYTES: Final = 64 * 1024 * 1024
"""Above the largest manifest: 50,000 segments, and a part for every 4 MiB of checkpoint."""


async def read_object(blobs: BlobStore, key: str, most: int = OBJECT_BYTES) -> bytes:
    """The bytes of an object. Raises LogFormatError for one of more than `most`, BlobNotFoundError,
    and the store's errors.
    """
    data = await blobs.get(key, 0, most + 1)
    if len(data) > most:
        raise LogFormatError(f"more than {most:,} bytes, the limit of its kind of object", path=key)
    return data
