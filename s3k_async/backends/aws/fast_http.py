"""Small requests over a pooled connection of an aiohttp session.

aiohttp's own client builds a request, a response, a task and two cookie jars for every call. This
module takes a connection from the same pool, writes head and body at once and lets aiohttp's parser
read the answer, in half the time. Limits, timeouts, TLS, keepalive and errors are aiohttp's. A
request is sent once.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from inspect import signature
from typing import Any, Final, NamedTuple, TypeAlias

import anyio
from aiohttp import (
    ClientConnectionResetError,
    ClientError,
    ClientOSError,
    ClientResponseError,
    ClientSession,
    ConnectionTimeoutError,
)
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from s3k_async.backends.aws.bounds import MOST, read_body
from s3k_async.errors import ClosedClientError, InvalidArgumentError

__all__ = ["Body", "Bounds", "Exchange"]

Body: TypeAlias = bytes | bytearray | memoryview

_WITH_BODY = ("POST", "PUT")

_LOG = logging.getLogger(__name__)

_READING: Final[dict[str, Any]] = {
    "read_until_eof": True,
    "auto_decompress": False,
    "read_bufsize": 2**18,
}


class Bounds(NamedTuple):
    """Bounds of an answer."""

    most: int = MOST
    """Most bytes of its body."""
    long: bool = False
    """Whether the service may send white space for minutes before its answer."""


class Exchange:
    """Requests to one host, without a proxy."""

    def __init__(self, session: ClientSession, url: URL) -> None:
        assert session.connector is not None
        self._connector = session.connector
        self._timeout = session.timeout
        self._place = ClientRequest(
            "POST", url, loop=asyncio.get_running_loop(), headers={"Host": url.authority}
        )
        self._fixed = [
            (name, value) for name, value in session.headers.items() if name != "Accept-Encoding"
        ]
        self._check_aiohttp()

    @classmethod
    def over(cls, session: ClientSession, url: URL) -> Exchange | None:
        """An exchange, or None if the connections of the installed aiohttp are of an unknown
        kind."""
        try:
            return cls(session, url)
        except (AttributeError, TypeError) as error:
            _LOG.warning(
                "small requests go through aiohttp's own client, which is slower: %s", error
            )
            return None

    def _check_aiohttp(self) -> None:
        """Raise AttributeError or TypeError if the connections are of an unknown kind."""
        signature(self._connector.connect).bind(self._place, traces=[], timeout=self._timeout)
        signature(ResponseHandler.set_response_params).bind(
            None, skip_payload=False, read_timeout=None, **_READING
        )
        for name in ("read", "start_timeout", "force_close"):
            getattr(ResponseHandler, name)

    async def ask(
        self, method: str, target: str, headers: list[tuple[str, str]], body: Body, bounds: Bounds
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. `target` is the encoded path and query; the
        headers must include the host and the accepted encoding. Raises ClosedClientError,
        InvalidArgumentError (a line break in a header), ResponseLostError (an answer over the
        limit), TimeoutError and aiohttp's errors."""
        lines = [f"{name}: {value}" for name, value in (*self._fixed, *headers)]
        if body or method in _WITH_BODY:
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join((f"{method} {target} HTTP/1.1", *lines, "", ""))
        if head.count("\n") != len(lines) + 2 or head.count("\r") != len(lines) + 2:
            raise InvalidArgumentError("a header of a request has a line break")
        connection = await self._connect()
        try:
            status, received, content = await self._ask(
                connection.protocol, method, head.encode() + body, bounds
            )
        except BaseException:
            connection.close()
            raise
        connection.release()
        return status, received, content

    async def _connect(self) -> Any:
        if self._connector.closed:
            raise ClosedClientError("the client is closed")
        try:
            return await self._connector.connect(self._place, traces=[], timeout=self._timeout)
        except ClientError:
            raise
        except TimeoutError as error:
            raise ConnectionTimeoutError(f"no connection to {self._place.url} in time") from error
        except OSError as error:
            raise ClientOSError(*error.args) from error

    async def _ask(
        self, protocol: Any, method: str, request: bytes, bounds: Bounds
    ) -> tuple[int, Mapping[str, str], bytes]:
        no_body = method == "HEAD"
        protocol.set_response_params(
            skip_payload=no_body, read_timeout=self._timeout.sock_read, **_READING
        )
        if protocol.transport is None:
            raise ClientConnectionResetError("the connection ended before anything was sent")
        protocol.transport.write(request)
        protocol.start_timeout()
        seconds = self._timeout.sock_read or math.inf
        try:
            with anyio.fail_after(seconds):
                message, payload = await protocol.read()
                while message.code < 200:
                    # It ended aiohttp's timer. The connection is not reused: it might keep a timer
                    # for good.
                    protocol.force_close()
                    protocol.start_timeout()
                    message, payload = await protocol.read()
            content = await read_body(payload, bounds.most, math.inf if bounds.long else seconds)
            return message.code, message.headers, content
        except HttpProcessingError as error:
            raise ClientResponseError(
                self._place.request_info,
                (),
                status=error.code,
                message=error.message,
                headers=error.headers,
            ) from error
