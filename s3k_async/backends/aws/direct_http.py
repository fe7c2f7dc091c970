"""Requests to one host by HTTP/1.1, over connections of this package.

Head and body are written at once, and one future is awaited for the whole answer. aiohttp's client
builds a request, a response, a task and two cookie jars for every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from s3k_async import _native
from s3k_async._core.retry import deadline
from s3k_async.backends.aws.bounds import MOST
from s3k_async.backends.aws.connection_pool import Body, ConnectionPool, Limits
from s3k_async.backends.aws.http_answer import AnswerParser

__all__ = ["Bounds", "Exchange"]

_WITH_BODY = ("POST", "PUT")


class Bounds(NamedTuple):
    """Bounds of an answer."""

    most: int = MOST
    """Most bytes of its body."""
    long: bool = False
    """Whether the service may send white space for minutes before its answer."""
    into: memoryview | None = None
    """Where the body of an answer with status 206 may be put, which then has an empty body. Nothing
    is written there after the end of the call."""


class Exchange:
    """Requests to one host, without a proxy."""

    def __init__(self, pool: ConnectionPool, seconds: float, fixed: Mapping[str, str]) -> None:
        """`seconds`: the response timeout; `fixed`: headers of every request."""
        self._pool = pool
        self._seconds = seconds
        self._fixed = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())

    async def ask(
        self, method: str, target: str, headers: list[tuple[str, str]], body: Body, bounds: Bounds
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. `target` is the encoded path and query; the
        headers must include the host and the accepted encoding. The request is sent once.

        Raises InvalidArgumentError (a line break in a header), ClosedClientError, UnreachableError
        (nothing was sent), ResponseLostError (no whole answer, one that is malformed or over the
        limit), TimeoutError.
        """
        length = len(body) if body or method in _WITH_BODY else None
        head = _native.request_head(method, target, self._fixed, headers, length)
        end = deadline()
        pool = self._pool
        connection = pool.take() or await pool.acquire(end)
        parser = AnswerParser(is_bodiless=method == "HEAD", most=bounds.most, into=bounds.into)
        is_usable = False
        try:
            is_usable = await connection.ask(
                head, body, parser, Limits(self._seconds, end, bounds.long)
            )
        finally:
            pool.release(connection, is_usable=is_usable)
        return parser.status, parser.headers, parser.body

    async def close(self) -> None:
        """Close the connections. Requests that wait for one fail with ClosedClientError, those that
        were sent with ResponseLostError."""
        await self._pool.close()
