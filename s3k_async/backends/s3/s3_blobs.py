"""The blob port over an S3 bucket, or the part of one below a prefix, through aioboto3."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from urllib.parse import quote, unquote_plus, urlencode

import anyio

from s3k_async._core.concurrency import run_all, to_the_end
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.bounds import in_time
from s3k_async.backends.aws.encryption import storage_parameters
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import Codes, service_error
from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.ports.blob_keys import (
    MAX_KEY,
    check_key,
    check_page,
    check_put,
    check_range,
    check_unchanged,
)
from s3k_async.backends.ports.blobs import (
    BlobInfo,
    BlobPage,
    BlobStore,
    Buffer,
    DeleteFailure,
    Unfinished,
)
from s3k_async.backends.ports.pagination import PageGuard, repeated
from s3k_async.backends.ports.storage_terms import StorageTerms
from s3k_async.backends.s3.s3_upload import S3Upload, request_body
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    ConfigError,
    InvalidPathError,
    PartialFailureError,
    PermissionDeniedError,
    ResponseLostError,
    S3kError,
    ServiceError,
    UnsupportedError,
    VolumeExistsError,
    VolumeNotFoundError,
)
from s3k_async.storage_space import StorageSpace

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

__all__ = [
    "BY_COPY",
    "BY_GET",
    "BY_HEAD",
    "DOCUMENT",
    "IF_ABSENT",
    "IF_MATCH",
    "WHOLE",
    "AbsentError",
    "Objects",
    "PastEndError",
    "S3Blobs",
    "address_of",
    "range_text",
    "version_of",
]

Objects: TypeAlias = list[tuple[str, int, str, int]]
"""Objects of a listing: full key, bytes, entity tag, epoch milliseconds."""

_MIB = 1024 * 1024
DOCUMENT = 16 * _MIB
"""Most bytes of a document in an answer: a page has 1,000 keys of 1,024 bytes, each byte encoded in
three."""
WHOLE = 1024 * _MIB
"""Most bytes of an object that is read whole; content is read by ranges, records and log objects
are smaller."""
_BATCH = 1000
"""Keys in one DeleteObjects, and in one page of a listing."""
_MAX_PARTS = 10_000
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot express; keys with one are not deleted by DeleteObjects."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
"""Names of buckets in URIs. ARNs, which select a host, and relative paths are none."""


class AbsentError(S3kError):
    """HTTP status 404 of an answer without a body."""


class PastEndError(S3kError):
    """The range begins at or past the end."""


BY_HEAD: Codes = dict.fromkeys(("404", "NoSuchKey", "NotFound"), (AbsentError, "not found"))
BY_COPY: Codes = dict.fromkeys(
    ("412", "PreconditionFailed"),
    (BlobChangedError, "the blob is not the expected one: its entity tag is another"),
)
BY_GET: Codes = {
    **dict.fromkeys(("416", "InvalidRange"), (PastEndError, "past the end")),
    **BY_COPY,
}
_KEY_DENIED: Final = (
    "the service denies access: customer_key is another one than that of the object, or the "
    "credentials lack the permission"
)
_WITH_KEY: Codes = dict.fromkeys(("403", "AccessDenied"), (ConfigError, _KEY_DENIED))
_BY_PART: Codes = {
    "404": (BlobNotFoundError, "no blob has this key"),
    **dict.fromkeys(
        ("416", "InvalidRange", "InvalidArgument"),
        (BlobChangedError, "the blob is shorter than the range that is copied"),
    ),
    **BY_COPY,
}
IF_ABSENT: Codes = dict.fromkeys(
    ("412", "PreconditionFailed"), (BlobExistsError, "a blob has this key already")
)
IF_MATCH: Codes = dict.fromkeys(
    ("412", "PreconditionFailed", "NoSuchKey"),
    (BlobChangedError, "the blob is not the expected one"),
)
_OTHERS_BUCKET: Codes = {
    "BucketAlreadyExists": (VolumeExistsError, "the bucket belongs to another account")
}
_OWN_BUCKET: Codes = {"BucketAlreadyOwnedByYou": (AbsentError, "the bucket exists already")}


class S3Blobs:
    """A BlobStore over one bucket. `session`: the user's aioboto3 or aiobotocore session.

    Entity tags are given without their quotes. Pickled, it is its settings without secrets.
    """

    min_part = 5 * _MIB
    composes = True
    copy_limit = 5 * 1024 * _MIB
    """Largest object of one CopyObject, bytes; larger ones are copied in parts."""
    copy_part = 512 * _MIB
    """Bytes of a part of a copy, unless that makes more than 10,000 parts."""
    copy_concurrency = 8

    def __init__(
        self,
        bucket: str,
        prefix: str,
        service: AwsConfig,
        session: object | None = None,
        *,
        conditional_reads: bool = True,
    ) -> None:
        """`conditional_reads`: whether a required etag of a read or of the source of a copy is sent
        as a condition; otherwise the answer is compared, of a copy that to a HeadObject before."""
        self.bucket = bucket
        self.version = ""
        """The version id in read requests; empty: the current version."""
        self.conditional_reads = conditional_reads
        self._prefix = prefix
        self._service = service
        self._tags: str | None = None
        """Tags of stored objects, as the value of `x-amz-tagging`; None: a copy keeps those of its
        source."""
        self.aws = AwsClient("s3", service, session)
        of_key = _WITH_KEY if service.customer_key else {}
        self._by_get: Codes = {**BY_GET, **of_key}
        self._by_head: Codes = {**BY_HEAD, **of_key}
        if service.customer_key:
            self.composes = False  # not every service copies parts that are encrypted so

    def __repr__(self) -> str:
        return f"S3Blobs({self._root!r}, {self.aws!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Blobs, (self.bucket, self._prefix, self._service)

    def stored_by(self, terms: StorageTerms) -> Self:
        """As `StoresByTerms.stored_by`."""
        stored = terms.storage_class or self._service.storage_class
        return self._view(
            _service=replace(self._service, storage_class=stored),
            _tags=urlencode(terms.tags, quote_via=quote),
        )

    def at_version(self, version: str) -> Self:
        """As `KeepsVersions.at_version`."""
        return self._view(version=version)

    def in_bucket(self, bucket: str) -> Self | None:
        """As `ReachesBuckets.in_bucket`."""
        if not _BUCKET.fullmatch(bucket):
            return None
        return self._view(bucket=bucket, version="", _prefix="")

    def _view(self, **changed: Any) -> Self:
        """A copy that shares all but these attributes with the store. (`copy` would use
        `__reduce__`.)"""
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__, **changed)
        return view

    def source_of(self, full: str) -> dict[str, Any]:
        """Request parameters for the object to read or copy: bucket, full key, any version id."""
        version = {"VersionId": self.version} if self.version else {}
        return {"Bucket": self.bucket, "Key": full, **version}

    @property
    def _root(self) -> str:
        return f"s3://{self.bucket}/{self._prefix}"

    async def client(self) -> S3Client:
        """The open client of the service. Raises as `AwsClient.get`."""
        client: S3Client = await self.aws.get()
        return client

    def _stored(self) -> Any:
        """Encryption, storage class and tags of stored objects. Raises ConfigError for an
        unsupported method."""
        tags = {"Tagging": self._tags} if self._tags else {}
        return storage_parameters(self._service, self._root) | tags

    def full_key(self, key: str) -> str:
        """The object key of a key. Raises InvalidPathError."""
        full = self._prefix + check_key(key)
        if len(full.encode()) > MAX_KEY:
            raise InvalidPathError(
                f"the key with the prefix has more than {MAX_KEY} UTF-8 bytes", path=key
            )
        return full

    def uri(self, key: str) -> str:
        return self._root + check_key(key)

    def _uri(self, full: str) -> str:
        return f"s3://{self.bucket}/{full}"

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        full = self.full_key(key)
        check_put(if_absent, if_match)
        size = memoryview(data).nbytes
        etag = await self._put_object(full, data, if_absent, if_match)
        return BlobInfo(key, size, etag)

    async def _put_object(
        self, full: str, data: Buffer, if_absent: bool, if_match: str | None
    ) -> str:
        """Store an object; returns its entity tag."""
        request: dict[str, Any] = {"Bucket": self.bucket, "Key": full, "Body": request_body(data)}
        request |= self._stored()
        codes: Codes = {}
        if if_absent:
            request["IfNoneMatch"] = "*"
            codes = IF_ABSENT
        elif if_match is not None:
            request["IfMatch"] = f'"{if_match}"'
            codes = IF_MATCH
        client = await self.client()
        with map_exceptions(self._uri(full), writing=True, codes=codes):
            return _etag(await client.put_object(**request))

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        full = self.full_key(key)
        check_range(start, end)
        if end is not None and end <= start:
            if await self.head(key) is None:
                raise BlobNotFoundError("no blob has this key", path=self.uri(key))
            return b""
        try:
            return await self._get_object(full, start, end, if_match, if_size)
        except PastEndError:
            self._require_past_end(full, start, if_size)
            return b""

    async def get_into(
        self,
        key: str,
        start: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> int:
        """As `DirectReads.get_into`."""
        full, place = self.full_key(key), buffer.cast("B")
        check_range(start, None)
        if not place:
            return len(await self.get(key, start, start, if_match=if_match, if_size=if_size))
        try:
            return await self._get_object_into(full, start, place, if_match, if_size)
        except PastEndError:
            self._require_past_end(full, start, if_size)
            return 0

    def _require_past_end(self, full: str, start: int, if_size: int | None) -> None:
        """Raise BlobChangedError if a blob of the expected size has bytes from `start` on."""
        if if_size is not None and if_size > start:
            raise BlobChangedError("the blob is shorter than expected", path=self._uri(full))

    async def _get_object_into(
        self,
        full: str,
        start: int,
        buffer: memoryview,
        if_match: str | None,
        if_size: int | None,
    ) -> int:
        """As `_get_object`, into a buffer; returns the number of bytes."""
        data = await self._get_object(full, start, start + len(buffer), if_match, if_size)
        buffer[: len(data)] = data
        return len(data)

    async def _get_object(
        self, full: str, start: int, end: int | None, if_match: str | None, if_size: int | None
    ) -> bytes:
        """Bytes of an object; `end` is above `start`. Raises PastEndError, BlobChangedError."""
        request = self.source_of(full)
        if start or end is not None:
            request["Range"] = range_text(start, end)
        if if_match is not None and self.conditional_reads:
            request["IfMatch"] = f'"{if_match}"'
        client = await self.client()
        with map_exceptions(self._uri(full), codes=self._by_get):
            from s3k_async.backends.aws.bounded_response import read_body

            with in_time():
                answer = await client.get_object(**request)
                async with answer["Body"] as body:
                    most = WHOLE if end is None else max(end - start, DOCUMENT)
                    data = await read_body(body.content, most, self._service.read_timeout)
            if len(data) != answer.get("ContentLength", len(data)):
                raise ResponseLostError(
                    "the connection broke before the whole answer came", path=self._uri(full)
                )
            total = answer.get("ContentRange", "").rpartition("/")[2] or str(len(data))
            self._require_expected(full, _etag(answer), total, if_match, if_size)
        if "Range" in request and "ContentRange" not in answer:
            return data[start:end]
        return data

    def _require_expected(
        self, full: str, etag: str, total: str, if_match: str | None, if_size: int | None
    ) -> None:
        """Check size and entity tag in an answer: not every service supports `If-Match` of a GET.
        `total`: the object's size, or `*` if unknown. Raises BlobChangedError."""
        known = total.isdecimal()
        found = BlobInfo(self._uri(full), int(total) if known else 0, etag)
        check_unchanged(found, if_match if etag else None, if_size if known else None)

    async def head(self, key: str) -> BlobInfo | None:
        try:
            return BlobInfo(key, *await self._head_object(self.full_key(key)))
        except AbsentError:
            return None

    async def _head_object(self, full: str) -> tuple[int, str, int, str]:
        """Bytes, entity tag, time (epoch milliseconds) and version id of an object. Raises
        AbsentError."""
        client = await self.client()
        with map_exceptions(self._uri(full), codes=self._by_head):
            answer = await client.head_object(**self.source_of(full))
            version = version_of(answer.get("VersionId"))
            return answer["ContentLength"], _etag(answer), _ms(answer), version

    def can_copy_from(self, source: BlobStore) -> bool:
        return (
            isinstance(source, S3Blobs)
            and self.aws.shares_account_with(source.aws)
            and self.aws.config.customer_key == source.aws.config.customer_key
        )

    async def copy(
        self,
        source: BlobStore,
        source_key: str,
        key: str,
        *,
        found: BlobInfo | None = None,
        if_match: str | None = None,
    ) -> BlobInfo:
        full = self.full_key(key)
        source = self._copied_from(source, full)
        if not self.conditional_reads and if_match is not None:
            found = None
        found = found or await source.head(source_key)
        if found is None:
            raise BlobNotFoundError("no blob has this key", path=source.uri(source_key))
        check_unchanged(found, if_match)
        if found.size > self.copy_limit:
            return await self._copy_in_parts(source, source_key, found, key)
        origin = source.source_of(source.full_key(source_key))
        return BlobInfo(key, found.size, await self._copy_object(origin, full, if_match))

    def _copied_from(self, source: BlobStore, full: str) -> S3Blobs:
        """The source of a copy inside the service. Raises UnsupportedError."""
        if not isinstance(source, S3Blobs) or not self.can_copy_from(source):
            raise UnsupportedError("the service cannot copy from that store", path=self._uri(full))
        return source

    async def _copy_object(self, origin: dict[str, Any], full: str, if_match: str | None) -> str:
        """Copy an object inside the service; returns the copy's entity tag. `origin`: as of
        `source_of`. Raises BlobChangedError."""
        request: dict[str, Any] = {
            "Bucket": self.bucket,
            "Key": full,
            "CopySource": origin,
            **self._stored(),
        }
        if self._tags is not None:
            request["TaggingDirective"] = "REPLACE"
        if if_match is not None and self.conditional_reads:
            request["CopySourceIfMatch"] = f'"{if_match}"'
        client = await self.client()
        with map_exceptions(address_of(origin), writing=True, codes=BY_COPY):
            answer = await client.copy_object(**request)
            etag = _etag(answer["CopyObjectResult"])
            if not etag:
                raise ResponseLostError("the answer to a copy has no entity tag")
        return etag

    async def _copy_in_parts(
        self, source: S3Blobs, source_key: str, found: BlobInfo, key: str
    ) -> BlobInfo:
        upload = await self.start_upload(key)
        step = max(self.copy_part, -(-found.size // _MAX_PARTS))

        async def copy_part(part: tuple[int, int]) -> None:
            number, start = part
            end = min(start + step, found.size)
            await upload.copy_part(number, source, source_key, start, end, if_match=found.etag)

        try:
            starts = range(0, found.size, step)
            await run_all(copy_part, enumerate(starts, 1), limit=self.copy_concurrency)
            return await upload.complete()
        except BaseException:
            # The first error is raised, not that of the abort; `drop` or a lifecycle rule removes
            # leftover parts.
            await to_the_end(partial(self._abort, upload))
            raise

    async def _abort(self, upload: S3Upload) -> None:
        with anyio.move_on_after(self._service.read_timeout), suppress(S3kError):
            await upload.abort()

    async def delete(self, key: str) -> None:
        await self._delete_object(self.full_key(key))

    async def _delete_object(self, full: str) -> None:
        client = await self.client()
        with suppress(BlobNotFoundError), map_exceptions(self._uri(full), writing=True):
            await client.delete_object(Bucket=self.bucket, Key=full)

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        names = {self.full_key(key): key for key in keys}
        failed = await self._delete_objects(list(names))
        return [DeleteFailure(names[full], error) for full, error in failed.items()]

    async def _delete_objects(self, full_keys: Sequence[str]) -> dict[str, Exception]:
        """Delete objects by their full keys; returns the error of each that remains or may
        remain."""
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
        try:
            reports = await self._refused(full_keys)
        except S3kError as error:
            return dict.fromkeys(full_keys, error)
        failed: dict[str, Exception] = {}
        for named, code, message in reports:
            if code == "NoSuchKey":
                continue
            refusal = service_error(code, message, path=self._uri(named), operation="DeleteObject")
            if named not in full_keys:
                # The service reports a key that is not in the batch: it may stand for any of them.
                return dict.fromkeys(full_keys, refusal)
            failed[named] = refusal
        return failed

    async def _refused(self, full_keys: Sequence[str]) -> list[tuple[str, str, str]]:
        """Delete objects in one request; returns key, code and message of each refusal."""
        client = await self.client()
        with map_exceptions(self._root, writing=True):
            answer = await client.delete_objects(
                Bucket=self.bucket,
                Delete={"Objects": [{"Key": full} for full in full_keys], "Quiet": True},
            )
            return [
                (report.get("Key", ""), report.get("Code", "Unknown"), report.get("Message", ""))
                for report in answer.get("Errors", [])
            ]

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        check_page(limit)
        if after and cursor is None:
            cursor = f"after:{self._prefix}{after}"
        rows, following = await self._list_from(self._prefix + prefix, cursor, limit)
        below = len(self._prefix)
        return BlobPage(
            [BlobInfo(row[0][below:], *row[1:]) for row in rows if len(row[0]) > below], following
        )

    async def _list_from(
        self, prefix: str, cursor: str | None, limit: int | None
    ) -> tuple[Objects, str | None]:
        """One page of objects by their full keys, and the next cursor."""
        kind, _, where = (cursor or "").partition(":")
        token, after = (where, None) if kind == "token" else (None, where or None)
        rows, token, truncated = await self._list_objects(
            prefix, token, after, limit and min(limit, _BATCH)
        )
        if token:
            if f"token:{token}" == cursor:
                raise repeated(self._root)
            return rows, f"token:{token}"
        if truncated and not rows:
            raise ResponseLostError("a truncated page has no continuation token", path=self._root)
        return rows, f"after:{rows[-1][0]}" if truncated else None

    async def _list_objects(
        self, prefix: str, token: str | None, after: str | None, limit: int | None
    ) -> tuple[Objects, str | None, bool]:
        """A page from a token or after a key, the token of the next page, and whether there is
        one."""
        request: dict[str, Any] = {"Bucket": self.bucket, "Prefix": prefix, "EncodingType": "url"}
        given = {"MaxKeys": limit, "ContinuationToken": token, "StartAfter": after}
        request.update({name: value for name, value in given.items() if value is not None})
        client = await self.client()
        with map_exceptions(self._root):
            answer = await client.list_objects_v2(**request)
            encoded = answer.get("EncodingType") == "url"
            rows = [
                (
                    unquote_plus(found["Key"]) if encoded else found["Key"],
                    found["Size"],
                    _etag(found),
                    _ms(found),
                )
                for found in answer.get("Contents", [])
            ]
            return rows, answer.get("NextContinuationToken"), bool(answer.get("IsTruncated"))

    async def start_upload(self, key: str) -> S3Upload:
        full = self.full_key(key)
        stored = self._stored()
        client = await self.client()
        with map_exceptions(self.uri(key), writing=True):
            answer = await client.create_multipart_upload(Bucket=self.bucket, Key=full, **stored)
            upload = answer["UploadId"]
            if not upload:
                raise ResponseLostError("the answer names no upload")
        return S3Upload(
            self, bucket=self.bucket, key=key, full_key=full, upload_id=upload, uri=self.uri(key)
        )

    async def put_part(self, full: str, upload_id: str, number: int, data: Buffer) -> str:
        """Store a part of an upload; returns its entity tag as received."""
        client = await self.client()
        with map_exceptions(self._uri(full), writing=True):
            answer = await client.upload_part(
                Bucket=self.bucket,
                Key=full,
                UploadId=upload_id,
                PartNumber=number,
                Body=request_body(data),
            )
            return answer["ETag"]

    async def copy_part_of(
        self,
        target: dict[str, str],
        number: int,
        source: BlobStore,
        source_key: str,
        extent: tuple[int, int],
        if_match: str | None,
    ) -> str:
        """Store a part of an upload, the bytes [start, end) of an object; returns its entity tag as
        received. `target`: bucket, full key and id of the upload."""
        source = self._copied_from(source, target["Key"])
        origin = source.source_of(source.full_key(source_key))
        request: dict[str, Any] = {**target, "PartNumber": number, "CopySource": origin}
        request["CopySourceRange"] = range_text(*extent)
        if if_match is not None and self.conditional_reads:
            request["CopySourceIfMatch"] = f'"{if_match}"'
        elif if_match is not None:
            found = await source.head(source_key)
            if found is None:
                raise BlobNotFoundError("no blob has this key", path=source.uri(source_key))
            check_unchanged(found, if_match)
        client = await self.client()
        with map_exceptions(source.uri(source_key), writing=True, codes=_BY_PART):
            answer = await client.upload_part_copy(**request)
            etag: str = answer["CopyPartResult"]["ETag"]
            if not etag:
                raise ResponseLostError("the answer to the copy of a part has no entity tag")
        return etag

    async def space(self) -> StorageSpace:
        """Unknown: a bucket has no capacity, and its size only in the daily metrics of the
        service."""
        return StorageSpace()

    async def create(self) -> bool:
        if await self.exists():
            return False
        region = await self.aws.region()
        request: dict[str, Any] = {"Bucket": self.bucket}
        if region not in ("us-east-1", "aws-global"):
            request["CreateBucketConfiguration"] = {"LocationConstraint": region}
        client = await self.client()
        try:
            with map_exceptions(self.bucket, writing=True, codes={**_OTHERS_BUCKET, **_OWN_BUCKET}):
                await client.create_bucket(**request)
        except AbsentError:
            return False
        except VolumeExistsError:
            # Some services answer this for the caller's own bucket, created concurrently.
            try:
                if await self.exists():
                    return False
            except PermissionDeniedError:
                pass
            raise
        return True

    async def exists(self) -> bool:
        try:
            await self._head_bucket()
        except (AbsentError, VolumeNotFoundError):
            return False
        return True

    async def drop(self, *, if_empty: bool = False) -> bool:
        try:
            if if_empty:
                return not (
                    await self.list(limit=1)
                ).blobs  # the bucket and uploads outside the prefix are kept
            await self._abort_uploads()
            await self._delete_all()
        except VolumeNotFoundError:
            pass
        return True

    async def _delete_all(self) -> None:
        failed: dict[str, Exception] = {}
        cursor: str | None = None
        while True:
            rows, cursor = await self._list_from(self._prefix, cursor, None)
            failed.update(await self._delete_objects([row[0] for row in rows]))
            if cursor is None:
                break
        if failed:
            raise PartialFailureError(
                f"{len(failed)} blobs could not be removed",
                path=self._root,
                failures=list(failed.items()),
            )

    async def _abort_uploads(self) -> None:
        async for upload in self.list_uploads():
            await self.abort_upload(upload)

    async def list_uploads(self, prefix: str = "") -> AsyncIterator[Unfinished]:
        # No URL encoding of keys: SeaweedFS declares it here without applying it.
        client = await self.client()
        request: dict[str, Any] = {"Bucket": self.bucket, "Prefix": self._prefix + prefix}
        below = len(self._prefix)
        pages = PageGuard(self._root)
        while True:
            with map_exceptions(self._root):
                answer = await client.list_multipart_uploads(**request)
                uploads = [
                    Unfinished(found["Key"][below:], found["UploadId"], _ms(found, "Initiated"))
                    for found in answer.get("Uploads", [])
                ]
                if answer.get("IsTruncated"):
                    request["KeyMarker"] = answer["NextKeyMarker"]
                    request["UploadIdMarker"] = answer["NextUploadIdMarker"]
                    pages.follow(f"{answer['NextKeyMarker']} {answer['NextUploadIdMarker']}")
            for upload in uploads:
                yield upload
            if not answer.get("IsTruncated"):
                return

    async def abort_upload(self, upload: Unfinished) -> None:
        await self._resumed(self._prefix + upload.key, upload.id).abort()

    async def _head_bucket(self) -> str:
        """The time of the service, as in its header. Raises AbsentError, VolumeNotFoundError."""
        client = await self.client()
        with map_exceptions(self.bucket, codes=BY_HEAD):
            answer = await client.head_bucket(Bucket=self.bucket)
            return answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")

    async def now_ms(self) -> int:
        try:
            date = await self._head_bucket()
        except AbsentError as error:
            raise VolumeNotFoundError("no such bucket", path=self.bucket) from error
        try:
            return round(parsedate_to_datetime(date).timestamp() * 1000)
        except ValueError as error:
            raise ServiceError("the service does not report its time", path=self._root) from error

    def _resumed(self, full: str, upload_id: str) -> S3Upload:
        return S3Upload(
            self,
            bucket=self.bucket,
            key=full,
            full_key=full,
            upload_id=upload_id,
            uri=self._uri(full),
        )

    async def close(self) -> None:
        await self.aws.close()


def range_text(start: int, end: int | None) -> str:
    """Bytes [start, end) as the value of a Range header."""
    return f"bytes={start}-" if end is None else f"bytes={start}-{end - 1}"


def address_of(origin: Mapping[str, str]) -> str:
    """The URI of the source of a copy."""
    return f"s3://{origin['Bucket']}/{origin['Key']}"


def version_of(text: str | None) -> str:
    """A version id in a response. Objects stored without versioning, or while it is suspended, have
    `null`, which identifies no fixed version."""
    return "" if text is None or text == "null" else text


def _etag(answer: Any) -> str:
    return str(answer.get("ETag", "")).strip('"')


def _ms(answer: Any, name: str = "LastModified") -> int:
    when = answer.get(name)
    return 0 if when is None else round(when.timestamp() * 1000)
