"""Buckets as directories: statistics, purge, and the removal of directories without objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Final

from s3k_async.client import S3kClient
from s3k_async.errors import DirectoryNotEmptyError, PathNotFoundError, UploadNotFoundError
from s3k_async.files.multipart import abort_upload, list_uploads
from s3k_async.listing.listings import Listing, pages_of
from s3k_async.model import ChangeResult, FileStatus
from s3k_async.objects.object_info import BucketInfo, bucket_info
from s3k_async.volumes.volume import Volume

__all__ = [
    "abort_uploads",
    "has_uploads",
    "listed_statistics",
    "purge",
    "refuse_read_only",
    "remove_empty",
    "with_statistics",
]

PURGED: Final = 1000
"""Objects that are deleted together."""


async def with_statistics(client: S3kClient, volume: Volume, bucket: FileStatus) -> BucketInfo:
    """A bucket with the totals of its objects: from its counter, where the time of the latest
    modification never decreases, or from a listing of all of them. Raises PathNotFoundError,
    BusyError."""
    counters = volume.store.changes.counters
    # A listing evaluates the permissions of each directory.
    if counters is not None and not volume.store.access.is_enforced:
        counted = await counters.total(bucket.name)
        if counted is not None:
            newest = counted.newest_ms if counted.objects else None
            return bucket_info(bucket, objects=counted.objects, size=counted.size, newest_ms=newest)
    return await listed_statistics(client, bucket)


async def listed_statistics(client: S3kClient, bucket: FileStatus) -> BucketInfo:
    """A bucket with the totals of its objects and the time of their latest modification, from a
    listing of all of them. Raises PathNotFoundError, BusyError."""
    count = total = 0
    newest: int | None = None
    async for page in pages_of(client.list(bucket.path, recursive=True)):
        for status in page:
            if status.is_file:
                count += 1
                total += status.size
                newest = status.mtime_ms if newest is None else max(newest, status.mtime_ms)
    return bucket_info(bucket, objects=count, size=total, newest_ms=newest)


async def purge(client: S3kClient, path: str) -> ChangeResult:
    """Delete all files below a directory, and the directories below it that are empty then. The
    result counts the files, and lists those that could not be deleted."""
    done = ChangeResult()
    async for paths in _chunks(client.list(path, recursive=True)):
        more = await client.delete_many(paths, missing_ok=True)
        done = ChangeResult(
            done.files + more.files,
            0,
            done.bytes + more.bytes,
            done.failures + more.failures,
        )
    async for status in client.list(path):
        if status.is_dir:
            await remove_empty(client, status.path)
    return done


async def refuse_read_only(volume: Volume, path: str) -> None:
    """Raise PermissionDeniedError if a bucket, or an entry below it, is read-only: also one in a
    directory that the caller must not list."""
    if not volume.record.attributes:
        return
    store = volume.store.unrestricted()
    store.refuse_read_only(await store.get(path))
    listing = Listing(recursive=True, include_uncommitted=True)
    async with aclosing(listing.pages(store, path)) as pages:
        async for page in pages:
            store.refuse_read_only(*page)


async def has_uploads(volume: Volume, bucket: FileStatus) -> bool:
    """Whether a bucket has a pending upload."""
    return volume.record.uploads and bool(
        await list_uploads(volume, bucket.path, limit=1, include_denied=True, bucket=bucket.id)
    )


async def abort_uploads(volume: Volume, bucket: FileStatus) -> None:
    """Abort the pending uploads of a bucket. Raises PartialFailureError."""
    after = ""
    while volume.record.uploads:
        found = await list_uploads(
            volume,
            bucket.path,
            after=after,
            limit=PURGED,
            include_denied=True,
            bucket=bucket.id,
        )
        for upload in found:
            with suppress(UploadNotFoundError):  # another client has ended it
                await abort_upload(volume, upload.id)
        if len(found) < PURGED:
            return
        after = found[-1].id


async def _chunks(found: AsyncIterator[FileStatus]) -> AsyncIterator[list[str]]:
    paths: list[str] = []
    async for status in found:
        if status.is_file:
            paths.append(status.path)
        if len(paths) == PURGED:
            yield paths
            paths = []
    if paths:
        yield paths


async def remove_empty(client: S3kClient, path: str) -> bool:
    """Remove a directory and those below it, unless there is a file: then, or if a file is at the
    path, nothing is removed and False returned. Each is removed on the condition that it is empty.
    """
    found = [path]
    try:
        async for status in client.list(path, recursive=True, include_uncommitted=True):
            if status.is_file:
                return False
            found.append(status.path)
    except PathNotFoundError:
        return True
    done = await client.delete_many(found, missing_ok=True)
    for _, error in done.failures:
        if not isinstance(error, DirectoryNotEmptyError):
            raise error
    return not done.failures
