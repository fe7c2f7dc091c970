"""Copies of a physical object between the two stores of a volume with tiers, read back and
compared."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final

from s3k_async._core.concurrency import to_the_end
from s3k_async._native import Xxh3_128
from s3k_async.backends.ports.blobs import BlobStore, Upload
from s3k_async.errors import BlobChangedError, CorruptDataError
from s3k_async.storage.change_detection import checksum_of
from s3k_async.storage.upload import CHECKSUM_PREFIX, abort_upload

__all__ = ["copy_object", "copy_to_hot", "digest_of", "same_bytes"]

_MOST_PARTS: Final = 10_000
"""Parts of an upload to S3. Source: Amazon S3 User Guide, multipart upload limits."""


async def copy_object(
    source: BlobStore, target: BlobStore, key: str, size: int, part_size: int, checksum: str = ""
) -> None:
    """Copy an object of this size to another store, replacing what is there, read the copy back and
    compare it. `checksum`: what the bytes must have, if it is known.

    Raises BlobNotFoundError, BlobChangedError (the source has another size), CorruptDataError (the
    source has another checksum, and the target is as it was; or the copy has other bytes)."""
    wanted = await _copied(source, target, key, size, part_size, checksum)
    try:
        found = await digest_of(target, key, size, part_size)
    except BlobChangedError:
        found = ""
    if found != wanted:
        raise CorruptDataError(
            "the copy does not have the bytes of the object: check both locations",
            path=target.uri(key),
        )


async def copy_to_hot(
    cold: BlobStore, hot: BlobStore, key: str, size: int, part_size: int, checksum: str
) -> None:
    """As `copy_object`, of an object that the cold store keeps: a copy that differs is deleted."""
    try:
        await copy_object(cold, hot, key, size, part_size, checksum)
    except CorruptDataError:
        await hot.delete(key)
        raise


async def same_bytes(one: BlobStore, other: BlobStore, key: str, size: int, part_size: int) -> bool:
    """Whether two stores have the same bytes, where both have an object of this size. Raises
    BlobNotFoundError, BlobChangedError."""
    found = await digest_of(one, key, size, part_size)
    return found == await digest_of(other, key, size, part_size)


async def digest_of(store: BlobStore, key: str, size: int, part_size: int) -> str:
    """The checksum of an object, `xxh128:<32 hex digits>`, in reads of `part_size` bytes. Raises
    BlobNotFoundError, BlobChangedError (another size)."""
    digest = Xxh3_128()
    async with aclosing(_parts(store, key, size, part_size)) as parts:
        async for part in parts:
            digest.update(part)
            del part  # before the next one is read
    return CHECKSUM_PREFIX + digest.hexdigest()


async def _copied(
    source: BlobStore, target: BlobStore, key: str, size: int, part_size: int, checksum: str
) -> str:
    """Copy an object; the checksum of what was read. Nothing is visible in the target before it was
    compared with `checksum`."""
    part_size = max(part_size, target.min_part, -(-size // _MOST_PARTS))
    if size <= part_size:
        data = await source.get(key, if_size=size)
        found = checksum_of(data)
        _require(checksum, found, source.uri(key))
        await target.put(key, data)
        return found
    digest = Xxh3_128()
    upload: Upload = await target.start_upload(key)
    try:
        number = 0
        async with aclosing(_parts(source, key, size, part_size)) as parts:
            async for part in parts:
                number += 1
                digest.update(part)
                await upload.put_part(number, part)
                del part  # before the next one is read
        found = CHECKSUM_PREFIX + digest.hexdigest()
        _require(checksum, found, source.uri(key))
        await upload.complete()
    except BaseException:
        await to_the_end(partial(abort_upload, upload, key))
        raise
    return found


def _require(checksum: str, found: str, path: str) -> None:
    """Raise CorruptDataError unless an object has its recorded checksum, if that is known."""
    if checksum and found != checksum:
        raise CorruptDataError("the object does not have its recorded checksum", path=path)


async def _parts(
    store: BlobStore, key: str, size: int, part_size: int
) -> AsyncGenerator[bytes, None]:
    """The bytes of an object of this size. Raises BlobNotFoundError, BlobChangedError."""
    for start in range(0, max(size, 1), part_size):
        yield await store.get(key, start, min(size, start + part_size), if_size=size)
