"""Requests through a proxy, by aiohttp's client, which opens tunnels and authenticates there."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from aiohttp import ClientSession
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload, Payload
from yarl import URL

from s3k_async.backends.aws.bounded_response import read_body
from s3k_async.backends.aws.bounds import in_time
from s3k_async.backends.aws.connection_pool import PIECE, Body
from s3k_async.backends.aws.direct_http import Bounds
from s3k_async.errors import ClosedClientError

__all__ = ["ProxiedExchange"]


class ProxiedExchange:
    """Requests to the host of `url` through the proxy of a session of aiohttp."""

    def __init__(self, session: ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def ask(
        self, method: str, target: str, headers: list[tuple[str, str]], body: Body, bounds: Bounds
    ) -> tuple[int, Mapping[str, str], bytes]:
        """As `Exchange.ask`, with aiohttp's errors."""
        try:
            with in_time():
                return await self._ask(method, target, headers, body, bounds)
        except (RuntimeError, asyncio.CancelledError) as error:
            # aiohttp cancels waiters for a connection when the session is closed.
            task = asyncio.current_task()
            if not self._session.closed or (
                isinstance(error, asyncio.CancelledError) and task and task.cancelling()
            ):
                raise
            raise ClosedClientError("the client was closed during the request") from error

    async def close(self) -> None:
        """Close the connections; requests under way fail."""
        await self._session.close()

    async def _ask(
        self, method: str, target: str, headers: list[tuple[str, str]], body: Body, bounds: Bounds
    ) -> tuple[int, Mapping[str, str], bytes]:
        seconds = math.inf if bounds.long else self._session.timeout.sock_read or math.inf
        response = await self._session.request(
            method,
            URL(self._url + target, encoded=True),
            data=_Payload(body) if len(body) else None,
            headers=headers,
            allow_redirects=False,
        )
        async with response:
            content = await read_body(response.content, bounds.most, seconds)
            return response.status, response.headers, content


class _Payload(BytesPayload):
    """Bytes written in pieces, so that other requests run in between; a service that accepts none
    within the response timeout is given up."""

    def __init__(self, value: Body) -> None:
        Payload.__init__(self, value, content_type="application/octet-stream")
        self._size = memoryview(value).nbytes

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        view = memoryview(self._value).cast("B")[:content_length]
        protocol: Any = writer.protocol  # type: ignore[attr-defined]
        for start in range(0, len(view), PIECE):
            protocol.start_timeout()
            await writer.write(view[start : start + PIECE])
