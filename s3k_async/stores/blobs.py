"""The port to the bytes: immutable blobs by key.

An adapter sends one request for each call, maps foreign errors to ours and does not retry:
`retrying_blobs` does. Every write of it is safe to send again, because keys are fresh or contents
are compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

__all__ = [
    "MAX_DELETION",
    "BlobInfo",
    "BlobPage",
    "BlobStore",
    "Buffer",
    "DeleteFailure",
    "Unfinished",
    "Upload",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_DELETION = 1000
"""Keys in one DeleteObjects."""


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One blob. `size` in bytes, `etag` opaque, `mtime_ms` by the store's own clock (0 where a call
    cannot tell)."""

    key: str
    size: int
    etag: str
    mtime_ms: int = 0


@dataclass(frozen=True, slots=True)
class BlobPage:
    """Some blobs in ascending key order (UTF-8 bytes) and where to go on; only `next is None` is
    the end."""

    blobs: Sequence[BlobInfo]
    next: str | None


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """A key that delete_many could not delete, and why."""

    key: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An upload that was begun and neither completed nor aborted, or what a writer that died has
    left behind."""

    key: str
    """What it would have become; empty where the store does not know."""
    id: str
    """The store's name for it, opaque."""
    started_ms: int
    """When it began, or was last added to, by the store's own clock; 0 where the store does not
    tell."""


class Upload(Protocol):
    """A multipart upload under way. Parts may be put concurrently and again; nothing is visible
    before `complete`."""

    async def put_part(self, number: int, data: Buffer) -> None:
        """Store part `number` (from 1). All parts but the last must have at least
        `BlobStore.min_part` bytes."""

    async def complete(self) -> BlobInfo:
        """Publish the parts 1..n as the blob. Sending it again after a lost response succeeds."""

    async def abort(self) -> None:
        """Drop the upload and its parts. Idempotent; harmless after complete."""


class BlobStore(Protocol):
    """Blobs by key. Keys are relative to the store's root: text of 1 to 1,024 UTF-8 bytes, no
    leading `/`, no component `.`, `..` or empty, no NUL (InvalidPathError otherwise, before
    anything is touched). A store may refuse more of them in the same way; physical keys and log
    keys are never refused.

    Every method may raise ThrottledError, UnreachableError, RequestTimeoutError, ResponseLostError,
    PermissionDeniedError, CredentialsError, VolumeNotFoundError (no such bucket or directory),
    NoSpaceError, ServiceError.
    """

    min_part: int
    """Smallest size of a part that is not the last, bytes."""

    def uri(self, key: str) -> str:
        """Where the blob is, for other programs: `s3://bucket/key`, `file:///...`,
        `memory://...`. S3's has the key as it is; in any other the key is percent-encoded."""

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        """Store a blob whole, durably, visible at once and never in part; replaces an existing one,
        unless `if_absent` (BlobExistsError) or `if_match` with an etag that differs
        (BlobChangedError)."""

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        """Bytes [start, end) of the blob, cut at its end; empty when start is at or past the end.

        `if_match`, `if_size`: the etag and the size in bytes that the blob must have when it is
        read. Raises BlobNotFoundError, BlobChangedError (another etag or size).
        """

    async def head(self, key: str) -> BlobInfo | None:
        """The blob's facts, or None."""

    def can_copy_from(self, source: BlobStore) -> bool:
        """Whether `copy` can read from that store without the bytes passing through this
        process."""

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

        `found`: what `source.head(source_key)` says, for an adapter that would have to ask.
        """

    async def delete(self, key: str) -> None:
        """Remove the blob; absent is fine."""

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Remove blobs; names exactly those that remain. Up to MAX_DELETION keys are one request of
        an adapter; `retrying_blobs` divides more of them."""

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
        """Every unfinished upload of anybody to a key that starts with `prefix`, or to an unknown
        one."""

    async def abort_upload(self, upload: Unfinished) -> None:
        """Drop an unfinished upload, whoever began it. Idempotent; harmless after its
        completion."""

    async def now_ms(self) -> int:
        """The time by the clock that `mtime_ms` and `started_ms` are of."""

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
        """Release what the store holds. Idempotent."""
