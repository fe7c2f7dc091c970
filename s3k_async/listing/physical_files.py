"""Physical locations of files' data, for programs that read them directly, such as the JVM's
readers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import get_args
from urllib.parse import unquote

from s3k_async.backends.ports.presigning import (
    LONGEST_PRESIGNED,
    PresignedMethod,
    PresignedUrl,
    Presigner,
)
from s3k_async.errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from s3k_async.files.file_ranges import require_readable
from s3k_async.listing.hive_partitions import partition_values
from s3k_async.listing.listings import Listing
from s3k_async.model import FileStatus, utc
from s3k_async.namespace.entry_reader import existing
from s3k_async.permissions import READ
from s3k_async.storage.extents import has_extents
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.volumes.volume import Volume

__all__ = ["PhysicalFile", "physical_pages", "physical_path", "presigned_url"]


@dataclass(frozen=True, slots=True)
class PhysicalFile:
    """A committed file and the location of its data."""

    path: str
    """Logical path."""
    uri: str
    """In the form of Hadoop's file systems: `s3a://bucket/key` or `file:///...`, without escapes.
    """
    size: int
    """Bytes."""
    mtime_ms: int
    """Modification time, epoch milliseconds."""
    partitions: dict[str, str | None] = field(default_factory=dict)
    """Partition values (`s3k_async.listing.hive_partitions`), from the directories between the
    requested path and the file."""

    @property
    def modified(self) -> datetime:
        """`mtime_ms` as a time in UTC."""
        return utc(self.mtime_ms)


async def physical_path(volume: Volume, path: str) -> str:
    """The URI of a file's bytes."""
    entry = await existing(volume.store, path)
    require_readable(volume.store, entry)
    return _uri(volume.storage, path, entry.physical)


async def presigned_url(
    volume: Volume, path: str, expires: int | timedelta, method: PresignedMethod
) -> PresignedUrl:
    """A URL that reads the bytes of a file without credentials, as `S3kClient.presign`."""
    seconds = _valid_seconds(expires, path)
    if method not in get_args(PresignedMethod):
        raise InvalidArgumentError(
            f"presign: a URL can be signed for GET and HEAD, not for {method!r}; data is written "
            "through this package alone",
            path=path,
        )
    entry = await existing(volume.store, path)
    require_readable(volume.store, entry)
    _uri(volume.storage, path, entry.physical)
    with _naming(path):
        source = volume.storage.recorded(entry.content)
        if not isinstance(source.blobs, Presigner):
            raise UnsupportedError("only data in S3 has URLs that can be signed", path=path)
        return await source.blobs.presign(source.key, seconds, method)


def _valid_seconds(expires: int | timedelta, path: str) -> int:
    """Seconds of a validity. Raises ArgumentTypeError, InvalidArgumentError."""
    seconds = expires.total_seconds() if isinstance(expires, timedelta) else expires
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ArgumentTypeError("presign: expires is a number of seconds or a timedelta", path=path)
    if not 1 <= seconds <= LONGEST_PRESIGNED or seconds != int(seconds):
        raise InvalidArgumentError(
            f"presign: a URL is valid for 1 to {LONGEST_PRESIGNED} whole seconds (seven days), not "
            f"for {seconds}",
            path=path,
        )
    return int(seconds)


async def physical_pages(
    volume: Volume, top: str, listing: Listing
) -> AsyncGenerator[list[PhysicalFile], None]:
    """The committed files of a listing, with the partition values from the directories between
    `top` and each; without empty files that have no object."""
    async with aclosing(listing.pages(volume.store, top)) as pages:
        async for page in pages:
            known: dict[str, dict[str, str | None]] = {}
            if volume.store.access.is_enforced:
                for entry in page.files():
                    volume.store.access.require(entry, READ)
            files = [
                _file(volume.storage, status, top, known)
                for status in page.files().statuses()
                if status.size or not has_extents(status.physical)
            ]
            if files:
                yield files


def _file(
    storage: PhysicalStorage, status: FileStatus, top: str, known: dict[str, dict[str, str | None]]
) -> PhysicalFile:
    """`known`: the values of directories seen before."""
    directory = status.path.rpartition("/")[0]
    if directory not in known:
        known[directory] = partition_values(f"{directory}/"[len(top.rstrip("/")) + 1 :])
    uri = _for_hadoop(_uri(storage, status.path, status.physical))
    return PhysicalFile(status.path, uri, status.size, status.mtime_ms, dict(known[directory]))


def _uri(storage: PhysicalStorage, path: str, physical: str | None) -> str:
    with _naming(path):
        return storage.uri(physical or "")


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Gives an UnsupportedError the logical path."""
    try:
        yield
    except UnsupportedError as error:
        raise UnsupportedError(error.message, path=path) from error


def _for_hadoop(uri: str) -> str:
    """The URI for Hadoop, which does not unescape paths, and reads S3 by the scheme `s3a`."""
    scheme, _, rest = uri.partition("://")
    return f"s3a://{rest}" if scheme in ("s3", "s3a", "s3n") else f"{scheme}://{unquote(rest)}"
