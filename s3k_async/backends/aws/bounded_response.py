"""Responses of aiohttp with the bounds of `bounds`."""

from __future__ import annotations

import math
from typing import Any

import anyio
from aiohttp import StreamReader
from aiohttp.client_reqrep import ClientResponse

from s3k_async._core.retry import LEAST_RATE
from s3k_async.backends.aws import bounds
from s3k_async.errors import ResponseLostError

__all__ = ["BoundedResponse", "read_body"]

_PIECE = 8 * 1024 * 1024


async def read_body(content: StreamReader, most: int, seconds: float) -> bytes:
    """Read a whole body. `seconds` is the timeout of its first byte. Raises ResponseLostError (more
    than `most` bytes), TimeoutError and errors of aiohttp."""
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
                self.content, bounds.MOST, math.inf if _works_long(self) else self._seconds
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
