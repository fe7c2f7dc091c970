"""The mapping of errors of botocore, aiobotocore and aiohttp, and of HTTP error responses, to those
of this package.

The main distinction is whether a write may have been applied:

* not sent, or answered with a refusal: UnreachableError, ThrottledError, TransactionConflictError,
  ConditionFailedError and every other definite error;
* possibly applied: ResponseLostError (no answer, a broken answer, or an internal error of the
  service, which DynamoDB and S3 may report for a write that went through).

Codes as in the error tables of the Amazon DynamoDB Developer Guide ("Error handling with DynamoDB")
and the Amazon S3 API Reference ("Error responses").
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import botocore.exceptions as boto
from aiohttp import http_exceptions
from botocore.parsers import ResponseParserError
from multidict import CIMultiDict, CIMultiDictProxy

from s3k_async.errors import (
    BlobNotFoundError,
    ConditionFailedError,
    ConfigError,
    CredentialsError,
    NoSpaceError,
    PermissionDeniedError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ServiceError,
    ThrottledError,
    TransactionConflictError,
    UnreachableError,
    UnsupportedError,
    VolumeNotFoundError,
)

__all__ = [
    "EXPIRED",
    "Codes",
    "Decoder",
    "dynamodb_refusal",
    "map_exceptions",
    "service_error",
    "translate",
]

Codes: TypeAlias = Mapping[str, tuple[type[S3kError], str]]
"""Errors of a call's own service codes: code to (class, message)."""
Decoder: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Decodes the service's form of an item."""

_BY_CODE: Mapping[type[S3kError], frozenset[str]] = {
    ThrottledError: frozenset(
        {
            "BandwidthLimitExceeded",
            "LimitExceededException",
            "ProvisionedThroughputExceeded",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "ThrottledException",
            "Throttling",
            "ThrottlingError",
            "ThrottlingException",
            "TooManyRequests",
            "TooManyRequestsException",
            "429",
        }
    ),
    TransactionConflictError: frozenset(
        {
            "ConditionalRequestConflict",
            "OperationAborted",
            "ReplicatedWriteConflictException",
            "TransactionConflict",
            "TransactionConflictException",
        }
    ),
    ResponseLostError: frozenset(
        {
            "InternalError",
            "InternalFailure",
            "InternalServerError",
            "InternalServerErrorException",
            "ServiceUnavailable",
            "ServiceUnavailableException",
            "TransactionInProgressException",
        }
    ),
    RequestTimeoutError: frozenset({"RequestTimeout", "RequestTimeoutException"}),
    CredentialsError: frozenset(
        {
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "IncompleteSignatureException",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "InvalidSignature",
            "InvalidSignatureException",
            "InvalidToken",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
            "NotSignedUp",
            "RequestExpired",
            "RequestTimeTooSkewed",
            "SignatureDoesNotMatch",
            "TokenRefreshRequired",
            "UnrecognizedClientException",
        }
    ),
    PermissionDeniedError: frozenset(
        {
            "AccessDenied",
            "AccessDeniedException",
            "AccountProblem",
            "AllAccessDisabled",
            "Forbidden",
        }
    ),
    VolumeNotFoundError: frozenset(
        {"NoSuchBucket", "ResourceNotFoundException", "TableNotFoundException"}
    ),
    BlobNotFoundError: frozenset({"NoSuchKey"}),
    UnsupportedError: frozenset({"NotImplemented", "UnknownOperationException"}),
    NoSpaceError: frozenset({"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}),
    ConfigError: frozenset(
        {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
    ),
}
EXPIRED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    }
)
"""Codes of refusals that renewed credentials may avoid."""
_CLASS_OF: Mapping[str, type[S3kError]] = {
    code: cls for cls, codes in _BY_CODE.items() for code in codes
}

_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.MetadataRetrievalError,
    boto.NoAuthTokenError,
    boto.RefreshWithMFAUnsupportedError,
    boto.SSOError,
    boto.TokenRetrievalError,
)
_CONFIG = (
    boto.ConfigNotFound,
    boto.ConfigParseError,
    boto.DataNotFoundError,
    boto.EndpointProviderError,
    boto.InvalidConfigError,
    boto.InvalidEndpointConfigurationError,
    boto.InvalidProxiesConfigError,
    boto.InvalidRegionError,
    boto.NoRegionError,
    boto.ParamValidationError,
    boto.ProfileNotFound,
    boto.UnknownEndpointError,
    boto.UnknownRegionError,
)
_NOT_CONNECTED = (
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
    boto.SSLError,
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
)
_FOREIGN = (boto.BotoCoreError, boto.ClientError, ResponseParserError, aiohttp.ClientError)
_NOT_UNDERSTOOD = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    http_exceptions.HttpProcessingError,
)
"""Errors of the parsers of botocore, aiohttp and this package for malformed answers: undocumented,
and without information whether a write was applied."""
_USER = re.compile(r"//[^/?#@\s\"']*@")
_CERTIFICATES = (ssl.SSLError, FileNotFoundError)


class map_exceptions:  # noqa: N801 - used as a function
    """Map errors of botocore, aiobotocore and aiohttp in a block to those of `errors.py`.

    `path` is the table, bucket or key of the call. `writing`: the call is a write, so a missing
    answer is a lost one. `codes` precedes the general table. `decode` decodes the items of a failed
    condition. (A class, since a generator costs three times as much, for every request.)
    """

    __slots__ = ("_codes", "_decode", "_path", "_writing")

    def __init__(
        self,
        path: str | None,
        *,
        writing: bool = False,
        codes: Codes | None = None,
        decode: Decoder = dict,
    ) -> None:
        self._path = path
        self._writing = writing
        self._codes = codes
        self._decode = decode

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        path = self._path
        if isinstance(error, _FOREIGN):
            try:
                mapped = translate(
                    error,
                    path=path,
                    writing=self._writing,
                    codes=self._codes,
                    decode=self._decode,
                )
            except _NOT_UNDERSTOOD:
                mapped = _not_understood(path, error)
            raise mapped from error
        if isinstance(error, S3kError):
            if error.path is None and path is not None:
                error.name(path)
        elif isinstance(error, TimeoutError):
            raise _no_answer(path, self._writing) from error
        elif isinstance(error, _NOT_UNDERSTOOD):
            raise _not_understood(path, error) from error


def translate(
    error: Exception,
    *,
    path: str | None,
    writing: bool = False,
    codes: Codes | None = None,
    decode: Decoder = dict,
) -> S3kError:
    """The error for one of a library; see `map_exceptions`. Secrets are removed from the library's
    error."""
    _redact_request(error)
    inner = getattr(error, "kwargs", {}).get("error")
    if isinstance(inner, S3kError):
        # Raised by aiohttp; botocore has no class for it.
        return type(inner)(inner.message, path=path)
    if isinstance(error, boto.ClientError):
        return _of_answer(error, path, codes, decode)
    if isinstance(error, _CREDENTIALS):
        return CredentialsError(
            f"no usable credentials ({type(error).__name__}): {error}", path=path
        )
    if isinstance(error, _CONFIG):
        return ConfigError(
            f"the AWS settings cannot be used ({type(error).__name__}): {error}", path=path
        )
    if isinstance(error, _NOT_CONNECTED):
        return _not_connected(error, path)
    if isinstance(error, boto.EndpointConnectionError):
        # aiobotocore raises this for every aiohttp ClientConnectionError; only ClientConnectorError
        # is from connecting.
        if isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorError):
            return _not_connected(error, path)
        return _lost(path, "the connection broke")
    if isinstance(error, boto.ReadTimeoutError | aiohttp.ServerTimeoutError):
        return _no_answer(path, writing)
    if isinstance(error, boto.ChecksumError | boto.FlexibleChecksumError | ResponseParserError):
        return _lost(path, "the answer was damaged")
    if isinstance(error, boto.HTTPClientError) and isinstance(
        error.kwargs.get("error"), _CERTIFICATES
    ):
        return ConfigError(f"the certificates cannot be read: {error.kwargs['error']}", path=path)
    if isinstance(error, boto.HTTPClientError | boto.IncompleteReadError | aiohttp.ClientError):
        return _lost(path, "the connection broke")
    return ServiceError(
        f"{type(error).__name__}: {error}", path=path, service_code=type(error).__name__
    )


_OF_KEYS = ("InvalidArgument", "InvalidRequest")


def service_error(
    code: str,
    message: str,
    *,
    path: str | None,
    status: int = 0,
    codes: Codes | None = None,
    host: str = "",
) -> S3kError:
    """The error for an answer with `code`; `status` is the HTTP status, which decides for unknown
    codes, and `host` the answering host."""
    if codes and code in codes:
        cls, text = codes[code]
        return cls(text, path=path)
    if code in _OF_KEYS and "server side encryption" in message.lower():
        return ConfigError(
            f"the encryption of the object does not fit the setting customer_key, its key or none "
            f"(SSE-C): the service answered {code}: {message}",
            path=path,
        )
    known = _CLASS_OF.get(code) or _class_of_status(status, code)
    if known is None:
        return ServiceError(f"the service answered {code}: {message}", path=path, service_code=code)
    if issubclass(known, CredentialsError):
        return known(_credentials_text(code), path=path)
    if known is ResponseLostError:
        who = f"the service at {host}" if host else "the service"
        what = f"{status} {code}" if status and code != str(status) else code
        return known(f"{who} answered {what}, the outcome is unknown: {message}", path=path)
    return known(f"the service answered {code}: {message}", path=path)


def dynamodb_refusal(
    body: bytes,
    status: int,
    *,
    path: str | None,
    codes: Codes | None = None,
    decode: Decoder = dict,
    host: str = "",
) -> S3kError:
    """The error for an answer of DynamoDB with a status other than 200; see `map_exceptions`."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return service_error(
            str(status), "(no JSON object)", path=path, status=status, codes=codes, host=host
        )
    code = (
        str(answer.get("__type") or answer.get("code") or status)
        .rpartition("#")[2]
        .partition(":")[0]
    )
    message = str(answer.get("message") or answer.get("Message") or "")
    return _refusal(
        answer, code, message, path=path, status=status, codes=codes, decode=decode, host=host
    )


def _of_answer(
    error: boto.ClientError, path: str | None, codes: Codes | None, decode: Decoder
) -> S3kError:
    answer: Mapping[str, Any] = error.response
    detail = answer.get("Error", {})
    code = str(detail.get("Code", "Unknown"))
    message = str(detail.get("Message") or answer.get("message") or "")
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    mapped = _refusal(answer, code, message, path=path, status=status, codes=codes, decode=decode)
    if isinstance(mapped, CredentialsError):
        _redact(error, code, status)
    return mapped


def _refusal(
    answer: Mapping[str, Any],
    code: str,
    message: str,
    *,
    path: str | None,
    status: int,
    codes: Codes | None,
    decode: Decoder,
    host: str = "",
) -> S3kError:
    """The error for an answer with `code`, with the further members of DynamoDB's answer."""
    if code == "ConditionalCheckFailedException":
        item = answer.get("Item")
        return ConditionFailedError(
            "a condition on the stored item did not hold",
            path=path,
            current={0: decode(item) if item else None},
        )
    if code == "TransactionCanceledException":
        return _cancelled(
            answer.get("CancellationReasons") or _reasons_in(message), message, path, decode
        )
    return service_error(code, message, path=path, status=status, codes=codes, host=host)


def _cancelled(
    reasons: Sequence[Mapping[str, Any]], message: str, path: str | None, decode: Decoder
) -> S3kError:
    """The error for a cancelled transaction, by its most specific reason."""
    found = {position: str(reason.get("Code") or "None") for position, reason in enumerate(reasons)}
    failed = {
        position: decode(reasons[position]["Item"]) if reasons[position].get("Item") else None
        for position, code in found.items()
        if code == "ConditionalCheckFailed"
    }
    if failed:
        return ConditionFailedError(
            "a condition of the transaction did not hold", path=path, current=failed
        )
    for position, code in found.items():
        if (
            code not in ("None", "TransactionConflict")
            and _CLASS_OF.get(code) is not ThrottledError
        ):
            text = str(reasons[position].get("Message") or "")
            return ServiceError(
                f"action {position} of the transaction: {code}: {text}",
                path=path,
                service_code=code,
            )
    throttled = [at for at, code in found.items() if _CLASS_OF.get(code) is ThrottledError]
    if throttled:
        error = ThrottledError("requests exceed the table's throughput", path=path)
        error.positions = throttled
        return error
    if any(code == "TransactionConflict" for code in found.values()):
        return TransactionConflictError("another request was changing the same item", path=path)
    return ServiceError(
        f"the transaction was cancelled: {message}",
        path=path,
        service_code="TransactionCanceledException",
    )


def _reasons_in(message: str) -> list[dict[str, str]]:
    """Cancellation reasons in the message alone, as in `... [None, TransactionConflict]` of some
    engines."""
    found = re.search(r"\[([A-Za-z, ]+)\]", message)
    return [{"Code": code.strip()} for code in found[1].split(",")] if found else []


def _class_of_status(status: int, code: str) -> type[S3kError] | None:
    """The class for an unknown code; HEAD requests have only the status as their code."""
    if code.isdigit():
        status = int(code)
    if status == 403:
        return PermissionDeniedError
    if status == 429:
        return ThrottledError
    if status == 507:
        return NoSpaceError
    # A success status with a foreign body is no refusal.
    return ResponseLostError if (status >= 500 and status != 501) or 200 <= status < 300 else None


def _not_connected(error: Exception, path: str | None) -> UnreachableError:
    kwargs = getattr(error, "kwargs", {})
    cause = kwargs.get("error")
    address = urlsplit(str(kwargs.get("endpoint_url", "")))
    host, port = address.hostname, address.port
    if isinstance(error, aiohttp.ClientConnectorError):
        host, port = error.host, error.port
    where = f" to {host}{f':{port}' if port else ''}" if host else ""
    why = type(error).__name__ if cause is None else type(cause).__name__
    return UnreachableError(f"no connection{where} ({why})", path=path)


def _no_answer(path: str | None, writing: bool) -> S3kError:
    if writing:
        return ResponseLostError(
            "no answer within the time allowed, the outcome is unknown", path=path
        )
    return RequestTimeoutError("no answer within the time allowed", path=path)


def _lost(path: str | None, what: str) -> ResponseLostError:
    return ResponseLostError(f"{what} before the whole answer came", path=path)


def _not_understood(path: str | None, error: BaseException) -> ResponseLostError:
    return ResponseLostError(f"the answer cannot be understood ({type(error).__name__})", path=path)


def _credentials_text(code: str) -> str:
    if code == "RequestTimeTooSkewed":
        return f"the service answered {code}: this machine's clock is wrong"
    if "Expired" in code or code == "TokenRefreshRequired":
        return f"the service answered {code}: the credentials have expired"
    return f"the service answered {code}: the credentials are not accepted"


def _redact(error: boto.ClientError, code: str, status: int) -> None:
    """Remove signatures and tokens that refusals quote (the canonical request holds the session
    token) from the error kept as the cause."""
    text = (
        f"An error occurred ({code}) when calling the {error.operation_name} operation: (text "
        "withheld)"
    )
    error.response = {
        "Error": {"Code": code, "Message": "(text withheld)"},
        "ResponseMetadata": {"HTTPStatusCode": status},  # type: ignore[typeddict-item]
    }
    error.args = (text,)


def _redact_request(error: Exception) -> None:
    """Remove the session token, the signature and a proxy's password from the request in aiohttp's
    errors and from URLs in botocore's."""
    kept = getattr(error, "kwargs", None)
    if isinstance(kept, dict):
        for name, value in kept.items():
            if isinstance(value, str):
                kept[name] = _USER.sub("//", value)
        error.args = tuple(
            _USER.sub("//", each) if isinstance(each, str) else each for each in error.args
        )
    for each in (error, getattr(error, "kwargs", {}).get("error")):
        if isinstance(each, aiohttp.ClientResponseError):
            request = each.request_info
            bare: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
            urls = request.url.with_user(None), request.real_url.with_user(None)
            each.request_info = aiohttp.RequestInfo(urls[0], request.method, bare, urls[1])
            each.args = (each.request_info, each.history)
        elif isinstance(each, aiohttp.ClientConnectorError):
            key = each.args[0]._replace(proxy=None, proxy_auth=None)
            each._conn_key = key  # noqa: SLF001 - aiohttp's errors show it
            each.args = (key, *each.args[1:])
