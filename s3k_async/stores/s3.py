"""The blob port over an S3 bucket, or the part of one below a prefix, through aioboto3."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import anyio

from s3k_async.aws.errors import Codes, map_exceptions, service_error
from s3k_async.aws.session import AwsClient
from s3k_async.concurrency import run_all
from s3k_async.config import S3Bucket
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    InvalidPathError,
    PartialFailureError,
    PermissionDeniedError,
    S3kError,
    UnsupportedError,
    VolumeExistsError,
    VolumeNotFoundError,
)
from s3k_async.stores.blob_keys import MAX_KEY, check_key, check_page, check_put, check_range
from s3k_async.stores.blobs import BlobInfo, BlobPage, BlobStore, Buffer, DeleteFailure
from s3k_async.stores.s3_upload import S3Upload, request_body

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

__all__ = ["S3Blobs"]

_MIB = 1024 * 1024
_BATCH = 1000
"""Keys in one DeleteObjects, and in one page of a listing."""
_MAX_PARTS = 10_000
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot say, so that a key with it is not deleted by DeleteObjects."""


class _NotFoundError(S3kError):
    """HTTP status 404 of an answer without a body."""


class _RangeError(S3kError):
    """The range begins at or past the end."""


_BY_HEAD: Codes = dict.fromkeys(("404", "NoSuchKey", "NotFound"), (_NotFoundError, "not found"))
_BY_GET: Codes = dict.fromkeys(("416", "InvalidRange"), (_RangeError, "past the end"))
_IF_ABSENT: Codes = dict.fromkeys(("412", "PreconditionFailed"), (BlobExistsError, "a blob has this key already"))
_IF_MATCH: Codes = dict.fromkeys(
    ("412", "PreconditionFailed", "NoSuchKey"), (BlobChangedError, "the blob is not the expected one")
)
_OTHERS_BUCKET: Codes = {"BucketAlreadyExists": (VolumeExistsError, "the bucket belongs to somebody else")}
_OWN_BUCKET: Codes = {"BucketAlreadyOwnedByYou": (_NotFoundError, "ours already")}


class S3Blobs:
    """A BlobStore over one bucket. `session`: an aioboto3 or aiobotocore session of the user's.

    Entity tags are given without their quotes. Pickled, it is its settings without secrets.
    """

    min_part = 5 * _MIB
    copy_limit = 5 * 1024 * _MIB
    """Bytes of the largest object that one CopyObject copies; larger ones are copied in parts."""
    copy_part = 512 * _MIB
    """Bytes in a part of a copy, unless that made more than 10,000 parts."""
    copy_concurrency = 8

    def __init__(self, bucket: S3Bucket, session: object | None = None) -> None:
        self._location = bucket
        self._bucket = bucket.bucket
        self._prefix = bucket.prefix
        self._aws = AwsClient("s3", bucket.aws, session)

    def __repr__(self) -> str:
        return f"S3Blobs({self._root!r}, {self._aws!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Blobs, (self._location,)

    @property
    def _root(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    async def _client(self) -> S3Client:
        client: S3Client = await self._aws.get()
        return client

    def _full(self, key: str) -> str:
        """The object key of a key. Raises InvalidPathError."""
        full = self._prefix + check_key(key)
        if len(full.encode()) > MAX_KEY:
            raise InvalidPathError(f"the key with the prefix has more than {MAX_KEY} UTF-8 bytes", path=key)
        return full

    def uri(self, key: str) -> str:
        return self._root + check_key(key)

    async def put(self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None) -> BlobInfo:
        full = self._full(key)
        check_put(if_absent, if_match)
        size = memoryview(data).nbytes
        request: dict[str, Any] = {"Bucket": self._bucket, "Key": full, "Body": request_body(data)}
        codes: Codes = {}
        if if_absent:
            request["IfNoneMatch"] = "*"
            codes = _IF_ABSENT
        elif if_match is not None:
            request["IfMatch"] = f'"{if_match}"'
            codes = _IF_MATCH
        client = await self._client()
        with map_exceptions(self.uri(key), writing=True, codes=codes):
            answer = await client.put_object(**request)
        return BlobInfo(key, size, _etag(answer))

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        full = self._full(key)
        check_range(start, end)
        if end is not None and end <= start:
            if await self.head(key) is None:
                raise BlobNotFoundError("no blob has this key", path=self.uri(key))
            return b""
        request: dict[str, Any] = {"Bucket": self._bucket, "Key": full}
        if start or end is not None:
            request["Range"] = f"bytes={start}-" if end is None else f"bytes={start}-{end - 1}"
        client = await self._client()
        try:
            with map_exceptions(self.uri(key), codes=_BY_GET):
                answer = await client.get_object(**request)
                async with answer["Body"] as body:
                    data: bytes = await body.read()
        except _RangeError:
            return b""
        if "Range" in request and "ContentRange" not in answer:
            return data[start:end]
        return data

    async def head(self, key: str) -> BlobInfo | None:
        full = self._full(key)
        client = await self._client()
        try:
            with map_exceptions(self.uri(key), codes=_BY_HEAD):
                answer = await client.head_object(Bucket=self._bucket, Key=full)
        except _NotFoundError:
            return None
        return BlobInfo(key, answer["ContentLength"], _etag(answer), _ms(answer))

    def can_copy_from(self, source: BlobStore) -> bool:
        return isinstance(source, S3Blobs) and self._aws.shares_account_with(source._aws)

    async def copy(self, source: BlobStore, source_key: str, key: str) -> BlobInfo:
        full = self._full(key)
        if not isinstance(source, S3Blobs) or not self.can_copy_from(source):
            raise UnsupportedError("the service cannot copy from that store", path=self.uri(key))
        found = await source.head(source_key)
        if found is None:
            raise BlobNotFoundError("no blob has this key", path=source.uri(source_key))
        origin = {"Bucket": source._bucket, "Key": source._full(source_key)}
        if found.size > self.copy_limit:
            return await self._copy_in_parts(origin, found, key)
        client = await self._client()
        with map_exceptions(source.uri(source_key), writing=True):
            answer = await client.copy_object(
                Bucket=self._bucket,
                Key=full,
                CopySource=origin,  # type: ignore[arg-type]
            )
        return BlobInfo(key, found.size, _etag(answer["CopyObjectResult"]))

    async def _copy_in_parts(self, origin: dict[str, str], found: BlobInfo, key: str) -> BlobInfo:
        upload = await self.start_upload(key)
        step = max(self.copy_part, -(-found.size // _MAX_PARTS))

        async def copy_part(part: tuple[int, int]) -> None:
            number, start = part
            end = min(start + step, found.size)
            await upload.copy_part(number, origin, start, end, if_match=f'"{found.etag}"')

        try:
            starts = range(0, found.size, step)
            await run_all(copy_part, enumerate(starts, 1), limit=self.copy_concurrency)
            return await upload.complete()
        except BaseException:
            # What went wrong is the error to see; parts that stay behind are found by `drop` or a lifecycle rule.
            with anyio.move_on_after(self._location.aws.read_timeout, shield=True), suppress(S3kError):
                await upload.abort()
            raise

    async def delete(self, key: str) -> None:
        await self._delete_object(self._full(key))

    async def _delete_object(self, full: str) -> None:
        client = await self._client()
        with suppress(BlobNotFoundError), map_exceptions(f"s3://{self._bucket}/{full}", writing=True):
            await client.delete_object(Bucket=self._bucket, Key=full)

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        names = {self._full(key): key for key in keys}
        failed = await self._delete_objects(list(names))
        return [DeleteFailure(names[full], error) for full, error in failed.items()]

    async def _delete_objects(self, full_keys: Sequence[str]) -> dict[str, Exception]:
        """Delete objects by their full keys; the error of each that remains or may remain."""
        failed: dict[str, Exception] = {}
        batchable = [full for full in full_keys if not _NOT_IN_XML.search(full)]
        for start in range(0, len(batchable), _BATCH):
            failed.update(await self._delete_batch(batchable[start : start + _BATCH]))
        for full in full_keys:
            if _NOT_IN_XML.search(full):
                try:
                    await self._delete_object(full)
                except S3kError as error:
                    failed[full] = error
        return failed

    async def _delete_batch(self, full_keys: Sequence[str]) -> dict[str, Exception]:
        client = await self._client()
        try:
            with map_exceptions(self._root, writing=True):
                answer = await client.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": full} for full in full_keys], "Quiet": True},
                )
        except S3kError as error:
            return dict.fromkeys(full_keys, error)
        failed: dict[str, Exception] = {}
        for report in answer.get("Errors", []):
            named = report.get("Key", "")
            code = report.get("Code", "Unknown")
            if code == "NoSuchKey":
                continue
            path = f"s3://{self._bucket}/{named}"
            refusal = service_error(code, report.get("Message", ""), path=path)
            if named not in full_keys:
                # The service failed a key that we did not name so: any of the batch may be meant.
                return dict.fromkeys(full_keys, refusal)
            failed[named] = refusal
        return failed

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int | None = None) -> BlobPage:
        check_page(limit)
        page = await self._list_objects(self._prefix + prefix, cursor, limit)
        below = len(self._prefix)
        blobs = [
            BlobInfo(info.key[below:], info.size, info.etag, info.mtime_ms)
            for info in page.blobs
            if len(info.key) > below
        ]
        return BlobPage(blobs, page.next)

    async def _list_objects(self, prefix: str, cursor: str | None, limit: int | None) -> BlobPage:
        """One page of objects by their full keys."""
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": prefix, "EncodingType": "url"}
        if limit is not None:
            request["MaxKeys"] = min(limit, _BATCH)
        if cursor is not None:
            kind, _, where = cursor.partition(":")
            request["ContinuationToken" if kind == "token" else "StartAfter"] = where
        client = await self._client()
        with map_exceptions(self._root):
            answer = await client.list_objects_v2(**request)
        encoded = answer.get("EncodingType") == "url"
        blobs = [
            BlobInfo(unquote_plus(found["Key"]) if encoded else found["Key"], found["Size"], _etag(found), _ms(found))
            for found in answer.get("Contents", [])
        ]
        following: str | None = None
        if answer.get("NextContinuationToken"):
            following = f"token:{answer['NextContinuationToken']}"
        elif answer.get("IsTruncated") and blobs:
            following = f"after:{blobs[-1].key}"
        return BlobPage(blobs, following)

    async def list_all(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        cursor: str | None = None
        while True:
            page = await self.list(prefix, cursor=cursor)
            for info in page.blobs:
                yield info
            cursor = page.next
            if cursor is None:
                return

    async def start_upload(self, key: str) -> S3Upload:
        full = self._full(key)
        client = await self._client()
        with map_exceptions(self.uri(key), writing=True):
            answer = await client.create_multipart_upload(Bucket=self._bucket, Key=full)
        return S3Upload(
            self, bucket=self._bucket, key=key, full_key=full, upload_id=answer["UploadId"], uri=self.uri(key)
        )

    async def create(self) -> bool:
        if await self.exists():
            return False
        region = await self._aws.region()
        request: dict[str, Any] = {"Bucket": self._bucket}
        if region not in ("us-east-1", "aws-global"):
            request["CreateBucketConfiguration"] = {"LocationConstraint": region}
        client = await self._client()
        try:
            with map_exceptions(self._bucket, writing=True, codes={**_OTHERS_BUCKET, **_OWN_BUCKET}):
                await client.create_bucket(**request)
        except _NotFoundError:
            return False
        except VolumeExistsError:
            # Some services say this of a bucket of ours that somebody made at the same moment.
            try:
                if await self.exists():
                    return False
            except PermissionDeniedError:
                pass
            raise
        return True

    async def exists(self) -> bool:
        client = await self._client()
        try:
            with map_exceptions(self._bucket, codes=_BY_HEAD):
                await client.head_bucket(Bucket=self._bucket)
        except (_NotFoundError, VolumeNotFoundError):
            return False
        return True

    async def drop(self) -> None:
        try:
            await self._abort_uploads()
            await self._delete_all()
        except VolumeNotFoundError:
            return

    async def _delete_all(self) -> None:
        failed: dict[str, Exception] = {}
        cursor: str | None = None
        while True:
            page = await self._list_objects(self._prefix, cursor, None)
            failed.update(await self._delete_objects([info.key for info in page.blobs]))
            cursor = page.next
            if cursor is None:
                break
        if failed:
            raise PartialFailureError(
                f"{len(failed)} blobs could not be removed", path=self._root, failures=list(failed.items())
            )

    async def _abort_uploads(self) -> None:
        # Keys as they are, not URL-encoded: SeaweedFS says here that they are encoded and does not encode them.
        client = await self._client()
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix}
        while True:
            with map_exceptions(self._root):
                answer = await client.list_multipart_uploads(**request)
            for found in answer.get("Uploads", []):
                await self._resumed(found["Key"], found["UploadId"]).abort()
            if not answer.get("IsTruncated"):
                return
            request["KeyMarker"] = answer["NextKeyMarker"]
            request["UploadIdMarker"] = answer["NextUploadIdMarker"]

    def _resumed(self, full: str, upload_id: str) -> S3Upload:
        uri = f"s3://{self._bucket}/{full}"
        return S3Upload(self, bucket=self._bucket, key=full, full_key=full, upload_id=upload_id, uri=uri)

    async def close(self) -> None:
        await self._aws.close()


def _etag(answer: Any) -> str:
    return str(answer.get("ETag", "")).strip('"')


def _ms(answer: Any) -> int:
    when = answer.get("LastModified")
    return 0 if when is None else round(when.timestamp() * 1000)
