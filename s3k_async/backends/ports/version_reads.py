"""Reads of a range of one version of a blob, piece by piece: for copies through this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from s3k_async.backends.ports.blob_keys import check_source
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.errors import BlobNotFoundError

__all__ = ["range_of_version"]


async def range_of_version(
    blobs: BlobStore, key: str, start: int, end: int, *, if_match: str | None, step: int
) -> AsyncGenerator[bytes, None]:
    """The bytes [start, end) of a blob, in pieces of `step` bytes. Raises BlobNotFoundError;
    BlobChangedError if it has another etag than `if_match`, ends before `end`, or is replaced
    meanwhile."""
    found = await blobs.head(key)
    if found is None:
        raise BlobNotFoundError("no blob has this key", path=key)
    check_source(found, if_match, end)
    for place in range(start, end, step):
        stop = min(end, place + step)
        yield await blobs.get(key, place, stop, if_match=found.etag, if_size=found.size)
