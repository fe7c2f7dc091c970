"""The expected answers of S3 and DynamoDB for each operation, and redirects.

A captive portal, the sign-on page of a gateway or a wrong server may answer any request with a
redirect, or with status 200 and a page of its own. Neither is an acknowledgement or data. Answers
as in the Amazon S3 and Amazon DynamoDB API References.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from s3k_async.errors import ResponseLostError, ServiceError

__all__ = ["check_dynamodb", "check_redirect", "check_s3", "refusal_code"]

REDIRECT: Final = "Redirect"
"""The service code of a redirect's error."""

_JSON = "application/x-amz-json-1.0"
_CODE = re.compile(rb'"__type"\s*:\s*"(?:[^"#]*#)?([^"]+)"|<Code>([^<]+)</Code>')
_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)")
_STRONG_TAG = re.compile(r'"[\x21\x23-\x7e]{1,1024}"|(?!W/)[\x21\x23-\x7e]{1,1024}')
_REGION_REDIRECTS = ("PermanentRedirect", "TemporaryRedirect")


class _Success(NamedTuple):
    """Properties of a successful answer."""

    statuses: tuple[int, ...] = (200,)
    tagged: bool = False
    """Whether it has an entity tag."""
    empty: bool = False
    """Whether it has no body."""
    root: str = ""
    """The root element of its document."""


_S3: Final[Mapping[str, _Success]] = {
    "AbortMultipartUpload": _Success((204,)),
    "CompleteMultipartUpload": _Success(root="CompleteMultipartUploadResult"),
    "CopyObject": _Success(root="CopyObjectResult"),
    "CreateMultipartUpload": _Success(root="InitiateMultipartUploadResult"),
    "DeleteObject": _Success((204,)),
    "DeleteObjects": _Success(root="DeleteResult"),
    "GetObject": _Success((200, 206), tagged=True),
    "HeadObject": _Success(tagged=True),
    "ListMultipartUploads": _Success(root="ListMultipartUploadsResult"),
    "ListObjectsV2": _Success(root="ListBucketResult"),
    "PutObject": _Success(tagged=True, empty=True),
    "UploadPart": _Success(tagged=True, empty=True),
    "UploadPartCopy": _Success(root="CopyPartResult"),
}


def check_redirect(host: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Raise ServiceError for a redirect, unless it is S3's own to another region, for which the
    request is signed again for the same service instead of being followed. `host` is the answering
    host. Names of headers in any case."""
    if not 300 <= status < 400 or status == 304:
        return
    region = _header(headers, "x-amz-bucket-region")
    if status in (301, 307) and (region or refusal_code(body) in _REGION_REDIRECTS):
        return
    target = _host_of(_header(headers, "location"))
    raise ServiceError(
        f"{host} answered with a redirect{f' to {target}' if target else ''} (status {status}), "
        "which is not followed:"
        " is there a captive portal or an expired sign-on in between, or is the endpoint wrong?",
        service_code=REDIRECT,
    )


def check_s3(
    operation: str, status: int, headers: Mapping[str, str], body: bytes, host: str = ""
) -> None:
    """Raise ResponseLostError for an answer with a status of success that is not S3's for the
    operation, and ServiceError for a foreign page with status 404, which does not prove the absence
    of an object."""
    if (
        status == 404
        and _is_page(headers)
        and (body or _header(headers, "content-length") not in ("", "0"))
    ):
        raise ServiceError(
            f"{_who(host)} answered with a page (status 404) that is not S3's: {_CAUSES}",
            service_code="404",
        )
    if status >= 300:
        return
    wanted = _S3.get(operation)
    if wanted is None:
        if status != 200 or (_is_page(headers) and _header(headers, "content-length") != "0"):
            raise _foreign("S3", host, status, headers)
        return
    root = _root(body) if wanted.root else ""
    if root == "Error":
        # S3 may report an error in an answer with status 200.
        return
    if (
        status not in wanted.statuses
        or (wanted.tagged and not _STRONG_TAG.fullmatch(_header(headers, "etag")))
        or (wanted.empty and body)
        or root != wanted.root
    ):
        raise _foreign("S3", host, status, headers)


def check_dynamodb(status: int, headers: Mapping[str, str], body: bytes, host: str = "") -> None:
    """Raise ResponseLostError for an answer with a status of success that is not DynamoDB's."""
    if status < 300:
        stripped = body.strip()
        whole = stripped.startswith(b"{") and stripped.endswith(b"}")
        if status != 200 or not whole or not _header(headers, "content-type").startswith(_JSON):
            raise _foreign("DynamoDB", host, status, headers)


def refusal_code(body: bytes) -> str:
    """The error code of an answer in the form of DynamoDB or S3; empty without one."""
    found = _CODE.search(body)
    return "" if found is None else (found[1] or found[2]).decode(errors="replace")


_CAUSES = "is there a captive portal or an expired sign-on in between, or is the endpoint wrong?"


def _foreign(service: str, host: str, status: int, headers: Mapping[str, str]) -> ResponseLostError:
    kind = _header(headers, "content-type").partition(";")[0].strip()
    described = (
        f"status {status}, {kind}"
        if kind.isprintable() and 0 < len(kind) < 64
        else f"status {status}"
    )
    return ResponseLostError(
        f"the answer of {_who(host)} ({described}) is not one that {service} gives: {_CAUSES}"
    )


def _who(host: str) -> str:
    return host or "the endpoint"


def _header(headers: Mapping[str, str], name: str) -> str:
    return str(headers.get(name) or "")


def _is_page(headers: Mapping[str, str]) -> bool:
    return _header(headers, "content-type").startswith("text/html")


def _root(body: bytes) -> str:
    """The local name of a document's first element; empty without one."""
    found = _ROOT.search(body, 0, 4096)
    return "" if found is None else found[1].decode(errors="replace")


def _host_of(location: str) -> str:
    """Host and port of a URL; the rest may be secret."""
    try:
        parts = urlsplit(location)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    return (f"{host}:{port}" if port else host) if host.isprintable() and len(host) < 256 else ""
