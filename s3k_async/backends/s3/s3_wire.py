"""The blob port over an S3 bucket, with requests signed by this package.

Every payload is signed, and has a checksum for services that do not check the signed digest
(SeaweedFS stores an empty object if a PUT without one breaks off), so that truncated and damaged
payloads are refused. Paths, headers and elements as in the Amazon S3 API Reference.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar
from urllib.parse import quote, urlsplit

import anyio.to_thread

from s3k_async import _native
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.direct_http import Bounds
from s3k_async.backends.aws.encryption import REQUESTER_PAYS, customer_key_headers, storage_headers
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import Codes, service_error
from s3k_async.backends.aws.service_answers import check_s3
from s3k_async.backends.aws.signed_http import Answer, Headers, Wire
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.backends.ports.presigning import PresignedMethod, PresignedUrl
from s3k_async.backends.s3.s3_blobs import (
    BY_COPY,
    BY_HEAD,
    DOCUMENT,
    IF_ABSENT,
    IF_MATCH,
    WHOLE,
    Objects,
    S3Blobs,
    address_of,
    range_text,
    version_of,
)
from s3k_async.errors import BlobNotFoundError, ResponseLostError, S3kError, UnsupportedError

__all__ = ["WireBlobs"]

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_LARGE = 1024 * 1024
"""Bytes above which a body is hashed in a thread and sent with `Expect: 100-continue`."""
_PLAIN_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
_OTHER_PROTOCOLS = ("--x-s3", "--op-s3")
"""Buckets of other kinds, for which the reference has sessions and signatures."""
_HOST_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
"""Bucket names for virtual-hosted addressing. No certificate matches a name with dots."""
_AWS_HOST = re.compile(r"\.amazonaws\.com(\.cn)?$")
_ELSEWHERE = ("AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect")
_ENCODED = re.compile(r"[^A-Za-z0-9_.~/-]+")
"""What `quote` encodes in a key."""
_OTHERS = 64
"""Other buckets whose hosts a store remembers."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class _ElsewhereError(S3kError):
    """The bucket is in another region, or moving to one; nothing was applied."""


class _UnclearError(_ElsewhereError):
    """An answer that only the reference can interpret. An answer to HEAD, without a body, does not
    distinguish another region from expired credentials."""


class _Target(NamedTuple):
    """Host and path prefix of the bucket."""

    wire: Wire
    path: str
    """Before the object keys: `/`, or `/<bucket>/`."""


@dataclass(slots=True)
class _Routing:
    """How the requests of a store and its views are sent, once it is known."""

    by_reference: bool
    """Whether all go through the reference."""
    target: _Target | None = None


def _route_to(bucket: str) -> _Routing:
    return _Routing(
        by_reference=not _PLAIN_BUCKET.fullmatch(bucket) or bucket.endswith(_OTHER_PROTOCOLS)
    )


def _else_by_reference(
    request: Callable[Concatenate[WireBlobs, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[WireBlobs, P], Coroutine[Any, Any, T]]:
    """Fall back to the reference for redirects to other regions and buckets of other kinds."""
    name = request.__name__

    async def sent(self: WireBlobs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._route.by_reference:
            try:
                with map_exceptions(self._root):
                    return await request(self, *args, **kwargs)
            except _UnclearError:
                pass
            except _ElsewhereError:
                _LOG.warning(
                    "the bucket %s is in another region than its client, which makes it slow",
                    self.bucket,
                )
                self._route.by_reference = True
        answer: T = await getattr(S3Blobs, name)(self, *args, **kwargs)
        return answer

    return sent


class WireBlobs(S3Blobs):
    """A BlobStore over one bucket, with fast requests. `session`: the user's aioboto3 or
    aiobotocore session.

    Start and end of multipart uploads, and operations on the bucket, go through the reference,
    `S3Blobs`, over the same client.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        service: AwsConfig,
        session: object | None = None,
        *,
        runtime: Runtime = SYSTEM,
        conditional_reads: bool = True,
    ) -> None:
        super().__init__(bucket, prefix, service, session, conditional_reads=conditional_reads)
        self._runtime = runtime
        self._route = _route_to(bucket)
        self._others: dict[str, _Routing] = {}
        """Those of other buckets, the latest last; shared by the views of a store."""

    def __repr__(self) -> str:
        return f"WireBlobs({self._root!r}, {self.aws!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return WireBlobs, (self.bucket, self._prefix, self._service)

    def in_bucket(self, bucket: str) -> Self | None:
        """As `ReachesBuckets.in_bucket`."""
        view = super().in_bucket(bucket)
        if view is None:
            return None
        if bucket not in self._others:
            while len(self._others) >= _OTHERS:
                del self._others[next(iter(self._others))]
            self._others[bucket] = _route_to(bucket)
        view._route = self._others[bucket]  # noqa: SLF001 - of a view
        return view

    def _storage_headers(self) -> list[tuple[str, str]]:
        """As `_stored`."""
        tags = [("x-amz-tagging", self._tags)] if self._tags else []
        return storage_headers(self._service, self._root) + tags

    @_else_by_reference
    async def _put_object(
        self, full: str, data: Buffer, if_absent: bool, if_match: str | None
    ) -> str:
        body = _plain(data)
        headers = [
            ("x-amz-checksum-crc32", _base64(_native.crc32(body).to_bytes(4))),
            *_asking(body),
        ]
        headers += self._storage_headers()
        codes: Codes = {}
        if if_absent:
            headers.append(("If-None-Match", "*"))
            codes = IF_ABSENT
        elif if_match is not None:
            headers.append(("If-Match", f'"{if_match}"'))
            codes = IF_MATCH
        answer = await self._send(
            "PutObject", "PUT", full, headers=headers, body=body, writing=True, codes=codes
        )
        return _etag(answer)

    @_else_by_reference
    async def put_part(self, full: str, upload_id: str, number: int, data: Buffer) -> str:
        query = f"partNumber={number}&uploadId={quote(upload_id, safe='')}"
        body = _plain(data)
        # No checksum: S3 accepts them only for uploads started with one. An empty part would be put
        # again.
        answer = await self._send(
            "UploadPart", "PUT", full, query=query, headers=_asking(body), body=body, writing=True
        )
        return answer.headers["ETag"]

    @_else_by_reference
    async def _get_object(
        self, full: str, start: int, end: int | None, if_match: str | None, if_size: int | None
    ) -> bytes:
        bounds = Bounds(WHOLE if end is None else max(end - start, DOCUMENT))
        answer = await self._get(full, start, end, if_match, bounds)
        size = len(answer.body)
        announced = answer.headers.get("Content-Length")
        if announced is not None and size != int(announced):
            raise self._cut(full)
        if answer.status == 206:
            self._require_range(full, answer, start, size, if_match, if_size)
            return answer.body
        self._require_expected(full, _etag(answer), str(size), if_match, if_size)
        return answer.body[start:end] if start > 0 or end is not None else answer.body

    @_else_by_reference
    async def _get_object_into(
        self,
        full: str,
        start: int,
        buffer: memoryview,
        if_match: str | None,
        if_size: int | None,
    ) -> int:
        end = start + len(buffer)
        bounds = Bounds(max(len(buffer), DOCUMENT), into=buffer)
        answer = await self._get(full, start, end, if_match, bounds)
        announced, data = answer.headers.get("Content-Length"), answer.body
        if answer.status == 206:
            # An empty body was put into the buffer, complete.
            size = len(data) or int(announced or 0)
            if announced is not None and size != int(announced):
                raise self._cut(full)
            self._require_range(full, answer, start, size, if_match, if_size)
        else:
            size = len(data)
            self._require_expected(full, _etag(answer), str(size), if_match, if_size)
            data = data[start:end]
            size = len(data)
        if size > len(buffer):
            raise self._cut(full)
        if data:
            buffer[:size] = data
        return size

    async def _get(
        self, full: str, start: int, end: int | None, if_match: str | None, bounds: Bounds
    ) -> Answer:
        ranged = start > 0 or end is not None
        headers = [("Range", range_text(start, end))] if ranged else []
        if if_match is not None and self.conditional_reads:
            headers.append(("If-Match", f'"{if_match}"'))
        return await self._send(
            "GetObject",
            "GET",
            full,
            query=self._version_query(),
            headers=headers,
            codes=self._by_get,
            bounds=bounds,
        )

    def _require_range(
        self,
        full: str,
        answer: Answer,
        start: int,
        size: int,
        if_match: str | None,
        if_size: int | None,
    ) -> None:
        """Check that an answer with `size` bytes is the range from `start` on of the expected
        object. Raises ResponseLostError, BlobChangedError."""
        covered = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if covered is None or int(covered[1]) != start or int(covered[2]) + 1 - start != size:
            raise self._cut(full)
        self._require_expected(full, _etag(answer), covered[3], if_match, if_size)

    @_else_by_reference
    async def _head_object(self, full: str) -> tuple[int, str, int, str]:
        query = self._version_query()
        answer = await self._send("HeadObject", "HEAD", full, query=query, codes=self._by_head)
        size = answer.headers.get("Content-Length")
        if size is None:
            raise self._cut(full)
        version = version_of(answer.headers.get("x-amz-version-id"))
        return int(size), _etag(answer), _modified_ms(answer), version

    def _version_query(self) -> str:
        """The query of a request that reads an object."""
        return f"versionId={quote(self.version, safe='')}" if self.version else ""

    @_else_by_reference
    async def _head_bucket(self) -> str:
        answer = await self._send("HeadBucket", "HEAD", "", path=self.bucket, codes=BY_HEAD)
        return answer.headers.get("Date", "")

    @_else_by_reference
    async def _copy_object(self, origin: dict[str, Any], full: str, if_match: str | None) -> str:
        path = address_of(origin)
        headers = [("x-amz-copy-source", _copied_object(origin))]
        if if_match is not None and self.conditional_reads:
            headers.append(("x-amz-copy-source-if-match", f'"{if_match}"'))
        if self._tags is not None:
            headers.append(("x-amz-tagging-directive", "REPLACE"))
        headers += self._storage_headers()
        answer = await self._send(
            "CopyObject",
            "PUT",
            full,
            headers=headers,
            path=path,
            writing=True,
            document=True,
            codes=BY_COPY,
        )
        return _native.decode_copied(answer.body, path)

    @_else_by_reference
    async def _delete_object(self, full: str) -> None:
        with suppress(BlobNotFoundError):
            await self._send("DeleteObject", "DELETE", full, writing=True)

    @_else_by_reference
    async def _refused(self, full_keys: Sequence[str]) -> list[tuple[str, str, str]]:
        body = _native.encode_deletions(full_keys)
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        headers = [("Content-MD5", _base64(digest)), ("Content-Type", "application/xml")]
        answer = await self._send(
            "DeleteObjects",
            "POST",
            "",
            query="delete=",
            headers=headers,
            body=body,
            path=self._root,
            writing=True,
            document=True,
        )
        return _native.decode_refused(answer.body, self._root)

    @_else_by_reference
    async def _list_objects(
        self, prefix: str, token: str | None, after: str | None, limit: int | None
    ) -> tuple[Objects, str | None, bool]:
        given = {
            "continuation-token": token,
            "encoding-type": "url",
            "list-type": "2",
            "max-keys": limit,
            "prefix": prefix,
            "start-after": after,
        }  # in the order of their names, as signed
        query = "&".join(
            f"{name}={quote(str(value), safe='')}"
            for name, value in given.items()
            if value is not None
        )
        answer = await self._send(
            "ListObjectsV2", "GET", "", query=query, path=self._root, document=True
        )
        return _native.decode_listing(answer.body, self._root)

    async def _send(
        self,
        operation: str,
        method: str,
        full: str,
        *,
        query: str = "",
        headers: Headers | None = None,
        body: bytes | memoryview = b"",
        path: str | None = None,
        writing: bool = False,
        document: bool = False,
        codes: Codes | None = None,
        bounds: Bounds | None = None,
    ) -> Answer:
        """The answer to a request for an object, or with an empty key for the bucket. Raises
        refusals and answers that are not S3's for the operation.

        `path` is the path in errors, by default the object. `document`: the answer is XML, and may
        report an error with status 200.
        """
        about = self._uri(full) if path is None else path
        given = list(headers or [])
        if self._service.requester_pays:
            given.append(REQUESTER_PAYS)
        target = self._route.target or await self._find()
        given += customer_key_headers(self._service, operation)  # checked with the client
        # Larger bodies are hashed in a thread, without the interpreter lock, while the loop sends
        # others.
        digest = (
            await anyio.to_thread.run_sync(_native.sha256_hex, body) if len(body) > _LARGE else None
        )
        with map_exceptions(about, writing=writing):
            answer = await target.wire.send(
                method,
                target.path + _quoted(full),
                query,
                given,
                body,
                sha256=digest,
                bounds=bounds or Bounds(DOCUMENT, long=operation == "CopyObject"),
            )
            check_s3(operation, answer.status, answer.headers, answer.body, answer.host)
        if answer.status >= 300:
            raise _refusal(answer, answer.status, operation, about, codes)
        if document and _native.decode_refusal(answer.body) is not None:
            raise _refusal(answer, 500, operation, about, codes)
        return answer

    async def presign(self, key: str, seconds: int, method: PresignedMethod) -> PresignedUrl:
        """As `Presigner.presign`."""
        full = self.full_key(key)
        # S3 refuses a request with a header of its own that is not signed.
        headers = dict(customer_key_headers(self._service, "GetObject"))
        with map_exceptions(self._uri(full)), suppress(_ElsewhereError):
            if not self._route.by_reference:
                target = self._route.target or await self._find()
                query = dict([REQUESTER_PAYS] if self._service.requester_pays else ())
                query |= {"versionId": self.version} if self.version else {}
                place = target.path + _quoted(full)
                url = await target.wire.presign(method, place, query, seconds, headers)
                return PresignedUrl(url, headers)
        raise UnsupportedError(
            "no URLs are signed for a bucket that is in another region than its client, is reached "
            "by transfer acceleration, or is no general purpose bucket",
            path=self._uri(full),
        )

    async def _find(self) -> _Target:
        """The target of requests: the bucket's own host at AWS if there is one, else its path."""
        with map_exceptions(self._root):
            channel = await self.aws.channel(self._runtime)
        host = urlsplit(channel.endpoint).hostname or ""
        style = channel.bucket_options
        if style.get("use_accelerate_endpoint"):
            self._route.by_reference = True
            raise _UnclearError("the bucket is reached by another host", path=self._root)
        at_aws = self._service.endpoint is None and _AWS_HOST.search(host) is not None
        own_host = (
            at_aws and _HOST_NAME.fullmatch(self.bucket) and style.get("addressing_style") != "path"
        )
        prefix, path = (f"{self.bucket}.", "/") if own_host else ("", f"/{self.bucket}/")
        target = _Target(Wire(self.aws, self._runtime, host_prefix=prefix), path)
        self._route.target = target
        return target

    def _cut(self, full: str) -> ResponseLostError:
        return ResponseLostError(
            "the connection broke before the whole answer came", path=self._uri(full)
        )


def _plain(data: Buffer) -> bytes | memoryview:
    """The data as bytes, without a copy."""
    return data if isinstance(data, bytes) else memoryview(data).cast("B")


def _asking(body: bytes | memoryview) -> Headers:
    """The `Expect` header of a large body."""
    return [("Expect", "100-continue")] if len(body) > _LARGE else []


def _refusal(
    answer: Answer, status: int, operation: str, path: str, codes: Codes | None
) -> S3kError:
    code, message = _native.decode_refusal(answer.body) or (str(status), "(no error document)")
    if status in (301, 307) or code in _ELSEWHERE:
        return _ElsewhereError("the bucket is in another region", path=path)
    if operation in ("HeadBucket", "HeadObject") and status == 400:
        return _UnclearError("the service refused the request without a reason", path=path)
    return service_error(
        code,
        message,
        path=path,
        status=status,
        codes=codes,
        host=answer.host,
        operation=operation,
    )


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _etag(answer: Answer) -> str:
    return answer.headers.get("ETag", "").strip('"')


def _quoted(key: str) -> str:
    """As `quote(key)`, which is slow for keys with any character to encode, as in physical keys."""
    return _ENCODED.sub(_escaped, key)


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _copied_object(origin: Mapping[str, str]) -> str:
    """The value of the header `x-amz-copy-source`."""
    version = origin.get("VersionId")
    named = f"?versionId={quote(version, safe='')}" if version else ""
    return quote(f"/{origin['Bucket']}/{origin['Key']}") + named


def _modified_ms(answer: Answer) -> int:
    """Epoch milliseconds of an answer's Last-Modified; 0 without one."""
    text = answer.headers.get("Last-Modified")
    try:
        return 0 if text is None else round(parsedate_to_datetime(text).timestamp() * 1000)
    except ValueError:
        return 0
