"""Where the exposition of a service is read from: an http(s) URL, a file, or standard input."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk import local_tree
from s3k_async.cli.standard_input import pieces_of, standard_input
from s3k_async.config import AwsConfig
from s3k_async.errors import (
    CredentialsError,
    InvalidArgumentError,
    PathNotFoundError,
    PermissionDeniedError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ServiceError,
    ThrottledError,
    UnreachableError,
)

__all__ = ["LONGEST", "STANDARD_INPUT", "MetricSource"]

STANDARD_INPUT: Final = "-"
LONGEST: Final = 16 * 1024 * 1024
"""Most bytes of an exposition: some ten thousand histograms."""

_ACCEPTED: Final = "application/openmetrics-text;version=1.0.0, text/plain;version=0.0.4;q=0.5"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:\d+(?:/.*)?", re.ASCII)
_SAFE: Final = "%/:@!$&'()*+,;=~-._?"
_OTHERWISE: Final = "fetch the metrics with another program, and give them as a file or as -"


class MetricSource:
    """An address of metrics. Raises InvalidArgumentError for one that cannot be meant. `settings`:
    timeouts, certificates and proxy of a URL."""

    def __init__(self, address: str, settings: AwsConfig) -> None:
        self.address = address
        self._url = _url_of(address) if _SCHEME.match(address) else None
        self._settings = settings

    async def read(self) -> str:
        """The exposition now. Raises UnreachableError, RequestTimeoutError, ThrottledError,
        PermissionDeniedError, ServiceError, ConfigError; PathNotFoundError for a missing file or
        page; InvalidArgumentError for one that is too long, or not UTF-8."""
        data = await (self._local() if self._url is None else self._fetched(self._url))
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(
                "it is not text in UTF-8, so it has no metrics", path=self.address
            ) from error

    async def _fetched(self, url: str) -> bytes:
        # Imported here: files need no HTTP client, which loads slowly.
        from s3k_async.backends.aws.direct_http import Bounds
        from s3k_async.backends.aws.unsigned_http import UnsignedHttp

        settings = await in_thread(_through_proxy, url, self._settings)
        try:
            async with UnsignedHttp(url, settings, self.address) as http:
                status, headers, body = await http.ask(
                    "GET", {"Accept": _ACCEPTED}, b"", Bounds(most=LONGEST)
                )
        except (ResponseLostError, UnreachableError) as error:
            raise UnreachableError(
                f"{error.message}; does the service run, and is this the address of its metrics?",
                path=self.address,
            ) from error
        except RequestTimeoutError as error:
            raise RequestTimeoutError(
                f"{error.message}; --read-timeout is {settings.read_timeout:g} seconds",
                path=self.address,
            ) from error
        if status != 200:
            raise _refusal(status, headers, self.address)
        return body

    async def _local(self) -> bytes:
        if self.address == STANDARD_INPUT:
            return await self._joined(standard_input())
        with local_tree.local_errors(self.address):
            descriptor = await in_thread(_opened, self.address)
            try:
                return await self._joined(pieces_of(descriptor))
            finally:
                os.close(descriptor)

    async def _joined(self, pieces: AsyncGenerator[bytes, None]) -> bytes:
        found = bytearray()
        async with aclosing(pieces):
            async for piece in pieces:
                found += piece
                if len(found) > LONGEST:
                    raise InvalidArgumentError(
                        f"there are more than {LONGEST:,} bytes: are these the metrics of a "
                        "service?",
                        path=self.address,
                    )
        return bytes(found)


def _opened(path: str) -> int:
    """A descriptor of a file. Does not block for a pipe without a writer. Raises OSError, and
    InvalidArgumentError for a directory and for the address of a service without its scheme."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if not _HOST_AND_PORT.fullmatch(path):
            raise
        raise InvalidArgumentError(
            f"no such local file; for the address of a service, write http://{path}", path=path
        ) from None
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidArgumentError("it is a directory: give a file with metrics", path=path)
    return descriptor


def _url_of(address: str) -> str:
    """The URL as it is requested. Raises InvalidArgumentError."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidArgumentError(f"the URL is malformed: {error}", path=address) from error
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https"):
        raise InvalidArgumentError(
            "the address of metrics is an http or https URL of a service, a file, or -",
            path=address,
        )
    if "@" in parts.netloc:
        raise InvalidArgumentError(
            f"the URL has a user, which other users of this machine can see: {_OTHERWISE}"
        )
    if not host or not re.fullmatch(r"[!-~]+", parts.netloc):
        raise InvalidArgumentError("the URL has no valid host", path=address)
    path, query = quote(parts.path, safe=_SAFE), quote(parts.query, safe=_SAFE)
    return urlunsplit((scheme, parts.netloc, path or "/", query, ""))


def _through_proxy(url: str, settings: AwsConfig) -> AwsConfig:
    """The settings with the proxy for a URL: none to this machine, else that of the settings, else
    that of the environment, as for services of AWS."""
    # Imported here: files need no proxy.
    from botocore.utils import get_environ_proxies

    host = urlsplit(url).hostname or ""
    if _is_loopback(host):
        return replace(settings, proxy=None)
    found: Mapping[str, str] = get_environ_proxies(url)
    scheme = url.partition(":")[0]
    return replace(settings, proxy=settings.proxy or found.get(scheme) or found.get("all"))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _refusal(status: int, headers: Mapping[str, str], address: str) -> S3kError:
    """The error for an answer without metrics."""
    what = f"the service answered {status}"
    if status in (404, 410):
        text = f"{what}: give the address of its metrics, which often ends with /metrics"
        return PathNotFoundError(text, path=address)
    if status in (401, 407):
        return CredentialsError(f"{what}: {_OTHERWISE}", path=address)
    if status == 403:
        return PermissionDeniedError(f"{what}: {_OTHERWISE}", path=address)
    if status == 429:
        return ThrottledError(f"{what}: try again later, or at a longer interval", path=address)
    if status >= 500:
        return UnreachableError(f"{what}: try again when it is ready", path=address)
    if 300 <= status < 400:
        target = str(headers.get("location") or "").partition("?")[0]
        where = f" to {target}" if target and "@" not in target else ""
        text = f"{what}, a redirect{where}, which is not followed: give the address of its metrics"
        return ServiceError(text, path=address, service_code=str(status))
    return ServiceError(f"{what} instead of metrics", path=address, service_code=str(status))
