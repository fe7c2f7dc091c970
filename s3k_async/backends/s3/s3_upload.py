"""Multipart uploads to S3."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Protocol

from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import Codes
from s3k_async.backends.ports.blob_keys import check_copied_part, part_numbers
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore, Buffer
from s3k_async.errors import S3kError, ServiceError

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

__all__ = ["S3Upload", "request_body"]

_LARGE = 1024 * 1024
"""Size above which aiohttp expects a body as a file object, which it writes piece by piece."""


class _UploadGoneError(S3kError):
    """No such upload: it was completed or aborted."""


_GONE: Codes = {"NoSuchUpload": (_UploadGoneError, "no such upload")}


class _Store(Protocol):
    """The part of the store that an upload uses."""

    min_part: int

    async def client(self) -> S3Client: ...

    async def put_part(self, full: str, upload_id: str, number: int, data: Buffer) -> str: ...

    async def copy_part_of(
        self,
        target: dict[str, str],
        number: int,
        source: BlobStore,
        source_key: str,
        extent: tuple[int, int],
        if_match: str | None,
    ) -> str: ...

    async def head(self, key: str) -> BlobInfo | None: ...


def request_body(data: Buffer) -> Any:
    """The bytes in a form for botocore's signature and aiohttp's body."""
    if len(data) > _LARGE:
        return io.BytesIO(data)
    return data if isinstance(data, bytes | bytearray) else bytes(data)


class S3Upload:
    """A multipart upload in progress. It holds the entity tags of its parts, so another process
    cannot continue it."""

    def __init__(
        self, store: _Store, *, bucket: str, key: str, full_key: str, upload_id: str, uri: str
    ) -> None:
        self._store = store
        self._key = key
        self._uri = uri
        self._target: Any = {"Bucket": bucket, "Key": full_key, "UploadId": upload_id}
        self._etags: dict[int, str] = {}
        self._sizes: dict[int, int] = {}
        self._sent = False
        self._published: BlobInfo | None = None

    async def put_part(self, number: int, data: Buffer) -> None:
        """Store part `number` (from 1)."""
        if number < 1:
            raise ValueError("parts are numbered from 1")
        size = memoryview(data).nbytes
        etag = await self._store.put_part(
            self._target["Key"], self._target["UploadId"], number, data
        )
        self.part_stored(number, size, etag)

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
        """Store bytes [start, end) of another object as part `number`, inside the service."""
        check_copied_part(number, start, end)
        etag = await self._store.copy_part_of(
            self._target, number, source, source_key, (start, end), if_match
        )
        self.part_stored(number, end - start, etag)

    def part_stored(self, number: int, size: int, etag: str) -> None:
        self._sizes[number] = size
        self._etags[number] = etag

    async def complete(self) -> BlobInfo:
        """Publish the parts. If the service does not know the upload after a lost answer, the
        object decides."""
        if self._published is not None:
            return self._published
        numbers = part_numbers(self._sizes, self._store.min_part)
        parts: Any = [{"PartNumber": number, "ETag": self._etags[number]} for number in numbers]
        client = await self._store.client()
        sent_before, self._sent = self._sent, True
        try:
            with map_exceptions(self._uri, writing=True, codes=_GONE):
                answer = await client.complete_multipart_upload(
                    **self._target, MultipartUpload={"Parts": parts}
                )
                self._published = BlobInfo(
                    self._key, sum(self._sizes.values()), answer["ETag"].strip('"')
                )
        except _UploadGoneError as error:
            stored = await self._store.head(self._key) if sent_before else None
            if stored is None or not self._matches_parts(stored):
                raise ServiceError(
                    "the upload is gone: aborted, or removed by a lifecycle rule",
                    path=self._uri,
                    service_code="NoSuchUpload",
                ) from error
            self._published = stored
        return self._published

    def _matches_parts(self, stored: BlobInfo) -> bool:
        """Whether the object matches these parts: same size, and the number of parts in an entity
        tag that has it."""
        _, dash, count = stored.etag.partition("-")
        return stored.size == sum(self._sizes.values()) and (
            not dash or count == str(len(self._sizes))
        )

    async def abort(self) -> None:
        """Abort the upload and remove its parts."""
        client = await self._store.client()
        try:
            with map_exceptions(self._uri, writing=True, codes=_GONE):
                await client.abort_multipart_upload(**self._target)
        except _UploadGoneError:
            pass
