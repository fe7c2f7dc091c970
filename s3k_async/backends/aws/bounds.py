"""Bounds on the time and size of a response, independent of the server.

The whole head of an answer has the response timeout, its body the same again and more for each byte
(`LEAST_RATE`), as the head has for each byte of a large request, and a body at most the bytes that
the request can ask for. Between two signs of life is the response timeout at most. The time of the
call bounds all of it, connecting and sending included.

This module bounds what goes through aiohttp: requests that botocore signs, and those through a
proxy. `connection_pool` has the same bounds.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any, Final

import anyio
from aiohttp import StreamReader
from aiohttp.client_reqrep import ClientResponse

from s3k_async._core.retry import LEAST_RATE, seconds_left
from s3k_async.errors import ResponseLostError

__all__ = ["MOST", "BoundedResponse", "in_time", "read_body"]

MOST: Final = 128 * 1024 * 1024
"""Default limit of an answer in bytes: a BatchGetItem has 16 MB of items, each byte of which may
take six in JSON."""
_PIECE = 8 * 1024 * 1024


def in_time() -> AbstractContextManager[object]:
    """Bounds the body by the time of the call. Raises TimeoutError."""
    return anyio.fail_after(seconds_left())


async def read_body(content: StreamReader, most: int, seconds: float) -> bytes:
    """A whole body. `seconds` are for its first byte. Raises ResponseLostError (more than `most`
    bytes), TimeoutError and errors of aiohttp."""
    pieces: list[bytes] = []
    size = 0
    if content.is_eof():
        pieces.append(await content.readany())
        size = len(pieces[0])
    else:
        content.set_read_chunk_size(min(most, _PIECE))
        began = anyio.current_time()
        with anyio.fail_after(seconds) as scope:
            while size <= most and (piece := await content.readany()):
                pieces.append(piece)
                size += len(piece)
                scope.deadline = began + seconds + size / LEAST_RATE
    if size > most:
        raise ResponseLostError(
            f"the answer has more than the {most} bytes that the request can ask for"
        )
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class BoundedResponse(ClientResponse):
    """A response of aiohttp with these bounds."""

    _seconds = math.inf

    async def start(self, connection: Any) -> ClientResponse:
        """Read the head."""
        session: Any = self._session
        self._seconds = float(session.timeout.sock_read or math.inf)
        sent = int(self.request_info.headers.get("Content-Length", 0))
        with anyio.fail_after(self._seconds + sent / LEAST_RATE):
            return await super().start(connection)

    async def read(self) -> bytes:
        """Read the body."""
        if self._body is not None:
            return await super().read()
        try:
            self._body = await read_body(
                self.content, MOST, math.inf if _works_long(self) else self._seconds
            )
        except BaseException:
            self.close()
            raise
        return self._body


def _works_long(response: ClientResponse) -> bool:
    """Whether S3 may send white space for minutes before its answer: for copies and completions of
    uploads."""
    request = response.request_info
    return "x-amz-copy-source" in request.headers or (
        request.method == "POST" and "uploadId" in request.url.query
    )
