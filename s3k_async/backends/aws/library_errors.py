"""Errors of botocore, aiobotocore and aiohttp as those of this package."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import botocore.exceptions as boto
from botocore.parsers import ResponseParserError
from multidict import CIMultiDict, CIMultiDictProxy

from s3k_async.backends.aws.error_responses import Codes, Decoder, answer_error, lost, no_answer
from s3k_async.errors import ConfigError, CredentialsError, S3kError, ServiceError, UnreachableError

__all__ = ["translate"]

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
_KNOWN = (boto.BotoCoreError, boto.ClientError, ResponseParserError, aiohttp.ClientError)

_USER = re.compile(r"//[^/?#@\s\"']*@")
_CERTIFICATES = (ssl.SSLError, FileNotFoundError)


def translate(
    error: BaseException,
    *,
    path: str | None,
    writing: bool = False,
    codes: Codes | None = None,
    decode: Decoder = dict,
) -> S3kError | None:
    """The error for a library's error; see `map_exceptions`. None for errors of its parsers, which
    are not documented. Secrets are removed from the library's error."""
    if not isinstance(error, _KNOWN):
        return None
    _redact_request(error)
    return _definite(error, path, codes, decode) or _without_answer(error, path, writing)


def _definite(
    error: BaseException, path: str | None, codes: Codes | None, decode: Decoder
) -> S3kError | None:
    """The error for a rejected request, and for a request that was not sent."""
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
    return _not_connected(error, path) if isinstance(error, _NOT_CONNECTED) else None


def _without_answer(error: BaseException, path: str | None, writing: bool) -> S3kError:
    """The error for a request without a complete answer."""
    if isinstance(error, boto.EndpointConnectionError):
        # aiobotocore raises this for every aiohttp ClientConnectionError; only ClientConnectorError
        # is from connecting.
        if isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorError):
            return _not_connected(error, path)
        return lost(path, "the connection broke")
    if isinstance(error, boto.ReadTimeoutError | aiohttp.ServerTimeoutError):
        return no_answer(path, writing)
    if isinstance(error, boto.ChecksumError | boto.FlexibleChecksumError | ResponseParserError):
        return lost(path, "the answer was damaged")
    if isinstance(error, boto.HTTPClientError) and isinstance(
        error.kwargs.get("error"), _CERTIFICATES
    ):
        return ConfigError(f"the certificates cannot be read: {error.kwargs['error']}", path=path)
    if isinstance(error, boto.HTTPClientError | boto.IncompleteReadError | aiohttp.ClientError):
        return lost(path, "the connection broke")
    return ServiceError(
        f"{type(error).__name__}: {error}", path=path, service_code=type(error).__name__
    )


def _of_answer(
    error: boto.ClientError, path: str | None, codes: Codes | None, decode: Decoder
) -> S3kError:
    answer: Mapping[str, Any] = error.response
    detail = answer.get("Error", {})
    code = str(detail.get("Code", "Unknown"))
    message = str(detail.get("Message") or answer.get("message") or "")
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    mapped = answer_error(
        answer,
        code,
        message,
        path=path,
        status=status,
        codes=codes,
        decode=decode,
        operation=error.operation_name,
    )
    if isinstance(mapped, CredentialsError):
        _redact(error, code, status)
    return mapped


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
