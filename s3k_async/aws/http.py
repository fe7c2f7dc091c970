"""The HTTP session under a client: aiobotocore's over aiohttp, with one attempt a request and TCP keepalive."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any, Literal

import anyio.to_thread
from aiobotocore.httpsession import AIOHTTPSession
from aiohttp import ClientSession, DummyCookieJar, TCPConnector
from aiohttp.client_reqrep import ClientRequest, ClientResponse
from botocore.httpsession import HTTPClientError, get_cert_path

__all__ = ["SingleAttemptSession"]

_Option = tuple[int, int, int]

_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "s3k-async"}
_NOT_BY_ITSELF = ("Accept", "Content-Type")


class SingleAttemptSession(AIOHTTPSession):
    """Sends every request once.

    aiohttp by itself sends PUT and DELETE again after a broken connection. A conditional PUT that was applied and then
    sent again behind our back is answered with a failed condition, which nobody could tell from somebody else's
    write; so that is off, and the broken connection is reported.

    The socket options that botocore computes (keepalive among them) are applied, which aiobotocore leaves out.
    """

    def __init__(self, **options: Any) -> None:
        opened = _socket_factory(tuple(options.get("socket_options") or ()))
        options["connector_args"] = {**(options.get("connector_args") or {}), "socket_factory": opened}
        super().__init__(**options)

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)  # type: ignore[misc]
        session._retry_connection = False
        session._request_class = _AskingRequest
        return session

    def proxy_of(self, url: str) -> str | None:
        """The proxy that requests to a URL go through."""
        ours: Any = self  # the stubs leave out what the class keeps
        found: str | None = ours._proxy_config.proxy_url_for(url)
        return found

    async def plain(self, url: str) -> ClientSession:
        """A session for requests that we sign ourselves to the host of `url`, under the same settings.

        What comes is what was sent: no cookies, nothing unpacked, nothing sent twice. Raises HTTPClientError for
        certificates that cannot be read.
        """
        ours: Any = self
        secure = url.lower().startswith("https:")
        context = await anyio.to_thread.run_sync(_tls, ours) if secure else False
        session = ClientSession(
            connector=TCPConnector(limit=ours._max_pool_connections, ssl=context, **ours._connector_args),
            timeout=ours._timeout,
            headers=_HEADERS,
            skip_auto_headers=_NOT_BY_ITSELF,
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            proxy=self.proxy_of(url),
            request_class=_AskingRequest,
        )
        session._retry_connection = False
        return session


class _AskingRequest(ClientRequest):
    """A request that waits no longer than for any answer to hear whether its body is wanted (100 Continue)."""

    async def send(self, conn: Any) -> ClientResponse:
        response = await super().send(conn)
        if self._continue is not None and conn.protocol is not None:
            conn.protocol.start_timeout()
        return response


def _socket_factory(options: tuple[_Option, ...]) -> Callable[[tuple[Any, ...]], socket.socket]:
    def open_socket(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol = address[:3]
        opened = socket.socket(family, kind, protocol)
        for level, name, value in options:
            opened.setsockopt(level, name, value)
        return opened

    return open_socket


def _tls(session: Any) -> ssl.SSLContext | Literal[False]:
    """The context that verifies the service's certificate, False to verify nothing. Reads files."""
    if not session._verify:
        return False
    context: ssl.SSLContext = session._get_ssl_context()
    context.check_hostname = True
    context.verify_mode = ssl.CERT_REQUIRED
    authorities = get_cert_path(session._verify)
    try:
        if session._cert_file:
            context.load_cert_chain(session._cert_file, session._key_file)
        if authorities:
            context.load_verify_locations(authorities)
    except OSError as error:
        raise HTTPClientError(error=error) from error
    return context
