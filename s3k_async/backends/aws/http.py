"""The HTTP session under a client: aiobotocore's over aiohttp, with one attempt a request and TCP
keepalive."""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.client_reqrep import ClientRequest, ClientResponse
from botocore.httpsession import HTTPClientError, get_cert_path

from s3k_async.backends.aws.bounded_response import BoundedResponse
from s3k_async.backends.aws.bounds import in_time
from s3k_async.backends.aws.connection_pool import PoolSettings
from s3k_async.backends.aws.direct_http import Exchange
from s3k_async.backends.aws.pooled_http import (
    AGENT,
    pooled_exchange,
    socket_factory,
    verified_by,
)
from s3k_async.backends.aws.proxied_http import ProxiedExchange
from s3k_async.backends.aws.service_answers import check_redirect

__all__ = ["DirectSession", "SingleAttemptSession"]

_HEADERS = {"Accept-Encoding": "identity", **AGENT}
_NOT_BY_ITSELF = ("Accept", "Content-Type")


class SingleAttemptSession(AIOHTTPSession):
    """Sends every request once.

    aiohttp by itself sends PUT and DELETE again after a broken connection. A conditional PUT that
    was applied and then silently repeated is answered with a failed condition, which is
    indistinguishable from another client's write; so repetition is off, and the broken connection
    is reported. aiobotocore lets aiohttp follow redirects, to any host and with the body. Here a
    redirect is an error, except S3's to another region, for which botocore signs the request again.

    The socket options that botocore computes (keepalive among them) are applied, which aiobotocore
    leaves out. CA certificates are read in a thread, and only for HTTPS; aiobotocore reads them on
    the event loop, and for plain HTTP as well, which takes 50 ms.
    """

    # Of the base class, and absent from its stubs.
    _verify: Any
    _proxy_config: Any
    _timeout: ClientTimeout
    _connector_args: dict[str, Any]
    _max_pool_connections: int
    _cert_file: str | None
    _key_file: str | None
    _get_ssl_context: Callable[[], ssl.SSLContext]

    def __init__(self, **options: Any) -> None:
        opened = socket_factory(tuple(options.get("socket_options") or ()))
        options["connector_args"] = {
            **(options.get("connector_args") or {}),
            "socket_factory": opened,
        }
        super().__init__(**options)
        self._context: ssl.SSLContext | None = None
        """The TLS context of connections; None before the first by HTTPS."""

    def _create_connector(self, proxy_url: str | None) -> TCPConnector:
        if proxy_url is None:
            return self._connector()
        # Absent from the stubs of the base class.
        connector: TCPConnector = super()._create_connector(proxy_url)  # type: ignore[misc]
        return connector

    def _connector(self) -> TCPConnector:
        # Without a context that of the system, so that no connection is unverified.
        context = True if self._context is None else self._context
        return TCPConnector(limit=self._max_pool_connections, ssl=context, **self._connector_args)

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)  # type: ignore[misc]
        return _Direct(_sent_once(session))

    async def send(self, request: Any) -> Any:
        """The answer to a request of botocore. Raises ServiceError for a redirect, and botocore's
        errors."""
        if self.proxy_of(request.url) is None:
            await self.need_context(request.url)
        with in_time():
            response: Any = await super().send(request)
        if 300 <= response.status_code < 400:
            place = urlsplit(request.url).netloc.rpartition("@")[2]
            check_redirect(place, response.status_code, response.headers, await response.content)
        return response

    def proxy_of(self, url: str) -> str | None:
        """The proxy of requests to a URL."""
        found: str | None = self._proxy_config.proxy_url_for(url)
        return found

    def exchange(self, place: str) -> Exchange | ProxiedExchange:
        """Requests signed by this package to a host, given as a URL without a path, under the same
        settings: no cookies, no decompression, no repeated requests. `need_context` comes first."""
        proxy = self.proxy_of(place)
        if proxy is not None:
            return ProxiedExchange(self._plain(proxy), place)
        settings = PoolSettings(
            most=self._max_pool_connections,
            keepalive=self._connector_args["keepalive_timeout"],
            connect_timeout=self._timeout.sock_connect or math.inf,
            context=self._context,
            open_socket=self._connector_args["socket_factory"],
        )
        return pooled_exchange(place, settings, self._timeout.sock_read or math.inf)

    def _plain(self, proxy: str) -> ClientSession:
        session = ClientSession(
            connector=self._connector(),
            timeout=self._timeout,
            headers=_HEADERS,
            skip_auto_headers=_NOT_BY_ITSELF,
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            proxy=proxy,
        )
        return _sent_once(session)

    async def need_context(self, url: str) -> None:
        """Make the TLS context before the first connection by HTTPS. Raises HTTPClientError for
        certificates that cannot be read."""
        if self._context is None and url.lower().startswith("https:"):
            self._context = await anyio.to_thread.run_sync(self._tls)

    def _tls(self) -> ssl.SSLContext:
        """The context that verifies the service's certificate, unless nothing is to be verified.
        Reads files."""
        if not self._verify:
            unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            unverified.check_hostname = False
            unverified.verify_mode = ssl.CERT_NONE
            return unverified
        context: ssl.SSLContext = self._get_ssl_context()
        try:
            if self._cert_file:
                context.load_cert_chain(self._cert_file, self._key_file)
            verified_by(context, get_cert_path(self._verify))
        except OSError as error:
            raise HTTPClientError(error=error) from error
        return context


class DirectSession(AioSession):
    """A session whose clients follow no redirect, including those that fetch its credentials (STS,
    IAM Identity Center): some of their requests have a token in the body."""

    def create_client(self, *names: Any, config: Any = None, **options: Any) -> Any:
        direct: Any = AioConfig() if config is None else config
        direct.http_session_cls = SingleAttemptSession
        create: Any = super().create_client
        return create(*names, config=direct, **options)


@dataclass(eq=False, slots=True)
class _Direct:
    """A session that follows no redirect."""

    session: ClientSession

    def request(self, method: str, **options: Any) -> Any:
        return self.session.request(method, allow_redirects=False, **options)


class _AskingRequest(ClientRequest):
    """A request that waits for 100 Continue no longer than the response timeout."""

    async def send(self, conn: Any) -> ClientResponse:
        response = await super().send(conn)
        if self._continue is not None and conn.protocol is not None:
            conn.protocol.start_timeout()
        return response


def _sent_once(session: ClientSession) -> ClientSession:
    """The session, which sends a request once and bounds its answer. aiohttp discourages
    subclasses, and aiobotocore passes none of this."""
    session._retry_connection = False  # noqa: SLF001 - no option for it
    session._request_class = _AskingRequest  # noqa: SLF001 - aiobotocore passes none
    session._response_class = BoundedResponse  # noqa: SLF001 - aiobotocore passes none
    return session
