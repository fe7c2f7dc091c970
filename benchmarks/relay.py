"""A relay of bytes between a client and a server that counts the requests passing through."""

from __future__ import annotations

import asyncio
import re
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.engines.process import Engine, engine

__all__ = ["Relay"]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_BLOCK = 1 << 16


class Relay:
    """Passes everything on as it is: the client's signature names the relay, which the servers
    accept."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = 0
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def instead_of(self, server: Engine) -> Engine:
        """The server as it is reached through the relay."""
        return engine(
            self.port, server.pid, access_key=server.access_key, secret_key=server.secret_key
        )

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection(
                self._upstream.hostname, self._upstream.port
            )
            answers = asyncio.create_task(_pass_on(far_reader, writer))
            try:
                while await self._request(reader, far_writer):
                    pass
            finally:
                far_writer.close()
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client or the benchmark is done
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> bool:
        """Pass one request on; False at the end of the connection."""
        try:
            return await self._forward(reader, upstream)
        except asyncio.IncompleteReadError:
            return False

    async def _forward(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> bool:
        """As `_request`. Raises IncompleteReadError."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        upstream.write(head)
        if _CHUNKED.search(head):
            while True:
                line = await reader.readuntil(b"\r\n")
                size = int(line.split(b";")[0], 16)
                upstream.write(line + await reader.readexactly(size + 2))
                if size == 0:
                    break
        length = _LENGTH.search(head)
        left = int(length[1]) if length else 0
        while left:
            block = await reader.read(min(left, _BLOCK))
            if not block:
                return False
            upstream.write(block)
            left -= len(block)
            await upstream.drain()
        await upstream.drain()
        return True


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
