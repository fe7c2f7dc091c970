"""The port to the bytes: immutable blobs by key.

An adapter sends one request for each call, maps library errors to those of `errors.py` and does not
retry: `retrying_blobs` does. Every write is safe to repeat, because keys are fresh or contents are
compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from s3k_async.storage_space import StorageSpace

__all__ = [
    "MAX_COPIED_PART",
    "MAX_DELETION",
    "BlobInfo",
    "BlobPage",
    "BlobStore",
    "Buffer",
    "DeleteFailure",
    "DirectReads",
    "Unfinished",
    "Upload",
    "get_into",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_DELETION = 1000
"""Keys in one DeleteObjects."""
MAX_COPIED_PART = 5 * 1024**3
"""Bytes in one UploadPartCopy."""


class BlobInfo(NamedTuple):
    """One blob; a tuple, since listings make millions of them. `size` in bytes, `etag` opaque,
    `mtime_ms` by the store's own clock (0 where a call cannot tell), `version` the id of its
    version (empty where the store keeps none, or a call cannot tell)."""

    key: str
    size: int
    etag: str
    mtime_ms: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class BlobPage:
    """A page of blobs in ascending key order (UTF-8 bytes) and the cursor of the next page; only
    `next is None` means the end."""

    blobs: Sequence[BlobInfo]
    next: str | None


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """A key that delete_many could not delete, and the error."""

    key: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An upload neither completed nor aborted, or an unfinished file of a crashed writer."""

    key: str
    """Key of the upload; empty where the store does not know it."""
    id: str
    """The store's opaque id of the upload."""
    started_ms: int
    """Time of its start or of its last part, by the store's own clock; 0 where the store does not
    report it."""


class Upload(Protocol):
    """A multipart upload in progress. Parts may be put concurrently and repeatedly; nothing is
    visible before `complete`."""

    async def put_part(self, number: int, data: Buffer) -> None:
        """Store part `number` (from 1). All parts but the last must have at least
        `BlobStore.min_part` bytes."""

    async def copy_part(
        self,
        number: int,
        source: BlobStore,
        source_key: str,
        start: int,
        end: int,
        *,
        if_match: str | None = None,
    ) -> None:
        """Store the bytes [start, end) of one version of a blob as part `number`, inside the
        service; otherwise as `put_part`. 1 to MAX_COPIED_PART bytes (else ValueError).

        Raises BlobNotFoundError; BlobChangedError (`if_match` is not the source's etag, or it ends
        before `end`); UnsupportedError unless the store `can_copy_from` the source.
        """

    async def complete(self) -> BlobInfo:
        """Publish the parts 1..n as the blob. Repeating it after a lost response succeeds."""

    async def abort(self) -> None:
        """Drop the upload and its parts. Idempotent; harmless after complete."""


class BlobStore(Protocol):
    """Blobs by key. Keys are relative to the store's root: text of 1 to 1,024 UTF-8 bytes, no
    leading `/`, no component `.`, `..` or empty, no NUL (InvalidPathError otherwise, before
    anything is touched). A store may refuse other keys in the same way, but no physical keys and
    log keys.

    Every method may raise ThrottledError, UnreachableError, RequestTimeoutError, ResponseLostError,
    PermissionDeniedError, CredentialsError, VolumeNotFoundError (no such bucket or directory),
    NoSpaceError, ServiceError.
    """

    min_part: int
    """Smallest size of a part that is not the last, bytes."""
    composes: bool
    """Whether `Upload.copy_part` runs without the bytes passing through this process, from stores
    that it `can_copy_from`."""

    def uri(self, key: str) -> str:
        """The blob's URI for other programs: `s3://bucket/key`, `file:///...`, `memory://...`. The
        key is percent-encoded except in S3's."""

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        """Store a blob atomically and durably; visible at once. Replaces an existing one, unless
        `if_absent` (BlobExistsError) or `if_match` with another etag (BlobChangedError)."""

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        """Bytes [start, end) of the blob, truncated at its end; empty if start is at or past the
        end.

        `if_match`, `if_size`: the etag and the size in bytes that the blob must have when it is
        read. Raises BlobNotFoundError, BlobChangedError (another etag or size).
        """

    async def head(self, key: str) -> BlobInfo | None:
        """Size, etag, time and version of the blob, or None."""

    def can_copy_from(self, source: BlobStore) -> bool:
        """Whether `copy` from that store runs without the bytes passing through this process."""

    async def copy(
        self,
        source: BlobStore,
        source_key: str,
        key: str,
        *,
        found: BlobInfo | None = None,
        if_match: str | None = None,
    ) -> BlobInfo:
        """Copy inside the service. Raises BlobNotFoundError; BlobChangedError (`if_match` is not
        the source's etag); UnsupportedError unless `can_copy_from(source)`.

        `found`: the result of `source.head(source_key)`, for adapters that need it.
        """

    async def delete(self, key: str) -> None:
        """Remove the blob; absent is fine."""

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Remove blobs; returns exactly those that remain. Up to MAX_DELETION keys are one request
        of an adapter; `retrying_blobs` splits longer lists."""

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        """One page of the blobs whose key starts with `prefix` and, without a cursor, follows
        `after`."""

    async def start_upload(self, key: str) -> Upload:
        """Begin a multipart upload."""

    def list_uploads(self, prefix: str = "") -> AsyncIterator[Unfinished]:
        """Unfinished uploads of all clients to keys that start with `prefix`, or to unknown
        keys."""

    async def abort_upload(self, upload: Unfinished) -> None:
        """Abort an unfinished upload of any client. Idempotent; harmless after its completion."""

    async def now_ms(self) -> int:
        """The time of the clock of `mtime_ms` and `started_ms`."""

    async def space(self) -> StorageSpace:
        """The storage that holds the root; None for what the service does not report."""

    async def create(self) -> bool:
        """Make the bucket or root directory; False if it existed."""

    async def exists(self) -> bool:
        """Whether the bucket or root directory exists."""

    async def drop(self, *, if_empty: bool = False) -> bool:
        """Remove every blob below the root, unfinished uploads too, and the root directory (a
        bucket is left).

        `if_empty`: only if there is no blob; False, and nothing is removed, if there is one.
        """

    async def close(self) -> None:
        """Release connections and threads. Idempotent."""


@runtime_checkable
class DirectReads(Protocol):
    """Reads into a buffer of the caller: optional for a BlobStore, see `get_into`."""

    async def get_into(
        self,
        key: str,
        start: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> int:
        """Copy the bytes from `start` on into the buffer; returns their number, fewer than it has
        only at the end of the blob. Conditions and errors as for `BlobStore.get`.

        Nothing is written to the buffer after the end of the call, not even after a cancellation.
        """


async def get_into(
    store: BlobStore,
    key: str,
    start: int,
    buffer: memoryview,
    *,
    if_match: str | None = None,
    if_size: int | None = None,
) -> int:
    """As `DirectReads.get_into`, by `get` and a copy from a store without it."""
    if isinstance(store, DirectReads):
        return await store.get_into(key, start, buffer, if_match=if_match, if_size=if_size)
    end = start + len(buffer)
    data = await store.get(key, start, end, if_match=if_match, if_size=if_size)
    buffer[: len(data)] = data
    return len(data)
