"""Connections to one host by HTTP/1.1, and a bounded pool of them.

A connection has one request at a time and never sends one again. It is used again after a whole
answer only; after an error, a cancellation, or bytes that belong to no answer, it is closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias, cast

import aiohappyeyeballs
import anyio

from s3k_async._core.retry import LEAST_RATE
from s3k_async.backends.aws.http_answer import AnswerParser, broken_off
from s3k_async.errors import ClosedClientError, ResponseLostError, UnreachableError

__all__ = ["PIECE", "Body", "Connection", "ConnectionPool", "Limits", "PoolSettings"]

Body: TypeAlias = bytes | bytearray | memoryview
_Address: TypeAlias = tuple[Any, ...]

PIECE: Final = 256 * 1024
"""Bytes of a body that are written at once; the others wait until the service takes them."""
_READ: Final = 256 * 1024
"""Bytes that are read at once."""
_ADDRESSES_FOR: Final = 10.0
"""Seconds for which the addresses of a host are used."""
_NEXT_ADDRESS_AFTER: Final = 0.25
"""Seconds after which the next address is tried as well (RFC 8305)."""


class Limits(NamedTuple):
    """Time limits of an exchange."""

    seconds: float
    """Between two signs of life of the service, and for the head and the body of the answer; longer
    by `LEAST_RATE`."""
    end: float
    """The end of the whole exchange, by the clock of the event loop."""
    is_long: bool = False
    """Whether the body of the answer may take until the end."""


class Connection(asyncio.BufferedProtocol):
    """One connection: the protocol of asyncio, and the request under way."""

    __slots__ = (
        "_began",
        "_buffer",
        "_due",
        "_error",
        "_heard",
        "_is_in_place",
        "_is_sending",
        "_is_writable",
        "_limits",
        "_loop",
        "_lost",
        "_parser",
        "_sent",
        "_timer",
        "_transport",
        "_waiter",
        "idle_since",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lost: Callable[[Connection], None],
        buffer: memoryview,
    ) -> None:
        """`lost` is called when the connection is closed; connections of one loop may share
        `buffer`. (`asyncio.Protocol` gets a new one of 256 KiB for each read, which takes twice
        the processor time of the rest where the allocator returns it to the system.)"""
        self._loop = loop
        self._lost = lost
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._parser: AnswerParser | None = None
        """Of the request under way."""
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        """When the timer fires, by the clock of the event loop."""
        self._limits = Limits(0.0, 0.0)
        self._began = self._heard = 0.0
        """The times of the beginning of the request, or of the body of the answer, and of the last
        sign of life."""
        self._sent = 0
        self._is_in_place = False
        self._is_sending = False
        self._is_writable = True
        self.idle_since = 0.0
        """When it was last given back to the pool, by the clock of the event loop."""

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, head: bytes, body: Body, parser: AnswerParser, limits: Limits) -> bool:
        """Send a request, and wait until its answer is whole; whether the connection can be used
        again.

        A body of more than `PIECE` bytes is sent in pieces, as the service takes them; not before
        the service asks for it if the head has `Expect: 100-continue`, and not at all if the answer
        comes before. Raises UnreachableError if nothing was sent, then ResponseLostError and
        TimeoutError.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise UnreachableError("the connection ended before anything was sent")
        self._parser, self._limits, self._sent = parser, limits, len(body)
        self._began = self._heard = self._loop.time()
        self._watch()
        is_sent = True
        if len(body) <= PIECE:
            transport.write(head + body if body else head)
        else:
            is_sent = await self._send(transport, head, body, parser)
        while self._parser is not None:
            await self._wait()
        if self._error is not None:
            raise self._error
        return is_sent and parser.is_persistent

    async def _send(
        self, transport: asyncio.Transport, head: bytes, body: Body, parser: AnswerParser
    ) -> bool:
        """Send a large body; whether all of it was."""
        self._is_sending = True
        try:
            transport.write(head)
            if b"\r\nexpect: 100-continue\r\n" in head.lower():
                while not (parser.may_continue or parser.status or self._parser is None):
                    await self._wait()
                if not parser.may_continue:
                    return False
            view = memoryview(body).cast("B")
            for start in range(0, len(view), PIECE):
                while not (self._is_writable or self._parser is None):
                    await self._wait()
                if self._parser is None:
                    return False
                self._heard = self._loop.time()
                transport.write(view[start : start + PIECE])
            return True
        finally:
            self._is_sending = False

    def abort(self) -> None:
        """Close the connection now; a request under way fails."""
        if self._parser is not None:
            self._fail(broken_off())
        elif self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - of the protocol
        room = None if self._parser is None else self._parser.room()
        self._is_in_place = room is not None
        return self._buffer if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        parser = self._parser
        if parser is None:
            self.abort()
            return
        is_head = not parser.status
        try:
            if self._is_in_place:
                parser.fill(nbytes)
            else:
                parser.feed(bytes(self._buffer[:nbytes]))
        except ResponseLostError as error:
            self._fail(error)
            return
        if parser.is_whole:
            self._parser = None
            self._wake()
            return
        self._heard = self._loop.time()
        if is_head and parser.status:
            self._began = self._heard
        if self._is_sending:
            self._wake()

    def eof_received(self) -> None:
        parser = self._parser
        if parser is None:
            return
        try:
            parser.end()
        except ResponseLostError as error:
            self._fail(error)
            return
        self._parser = None
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._parser is not None:
            if exc is None:
                self.eof_received()
            else:
                error = broken_off()
                error.__cause__ = exc
                self._fail(error)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._lost(self)

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        if self._is_sending:
            self._wake()

    async def _wait(self) -> None:
        """Wait until something happens to the request under way."""
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        """End the request under way, and with it the connection."""
        self._error, self._parser = error, None
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def _watch(self) -> None:
        """Let the timer fire at the limit, or before. Mostly that of an earlier request does: it is
        set again when it fires, not for each request."""
        limit = min(self._limits.end, self._heard + self._limits.seconds)
        if self._timer is not None:
            if self._due <= limit:
                return
            self._timer.cancel()
        self._look_at(limit)

    def _look_at(self, due: float) -> None:
        self._due = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._parser is None:
            return
        limit = self._limit()
        if limit > self._loop.time():
            self._look_at(limit)
        else:
            self._fail(TimeoutError("no answer within the time allowed"))

    def _limit(self) -> float:
        """When the request under way is given up, unless something arrives."""
        parser, limits = self._parser, self._limits
        limit = min(limits.end, self._heard + limits.seconds)
        if parser is None or (limits.is_long and parser.status):
            return limit
        size = parser.size if parser.status else self._sent
        return min(limit, self._began + limits.seconds + size / LEAST_RATE)


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How connections are made and kept."""

    most: int
    """Connections at most."""
    keepalive: float
    """Seconds after which an idle connection is closed."""
    connect_timeout: float
    """Seconds for a connection, TLS included."""
    context: ssl.SSLContext | None
    """None: no TLS."""
    open_socket: Callable[[_Address], socket.socket]
    """Makes a socket with its options for a result of getaddrinfo."""

    def without_tls(self) -> PoolSettings:
        """The same for plain HTTP."""
        return replace(self, context=None)


class ConnectionPool:
    """The connections to one host. Belongs to one process and event loop.

    Who waits for a connection gets one in turn. The newest idle connection is used first, so that
    those beyond the need end.
    """

    def __init__(self, host: str, port: int, settings: PoolSettings) -> None:
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._port = port
        self._settings = settings
        self._free = settings.most
        """Connections that may still be made."""
        self._all: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        """Ordered by last use. Empty while requests are waiting."""
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        """Requests for which no connection is free. Each gets one, or may open one."""
        self._sweep_timer: asyncio.Handle | None = None
        self._lookup: asyncio.Task[list[_Address]] | None = None
        self._looked_up = 0.0
        self._turn = 0
        self._buffer = memoryview(bytearray(_READ))
        self._is_closed = False
        self._all_closed = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"<ConnectionPool {self._host}:{self._port}, {len(self._all)} open, "
            f"{len(self._idle)} idle, {len(self._waiting)} waiting>"
        )

    def take(self) -> Connection | None:
        """An idle connection, if there is one."""
        oldest = self._loop.time() - self._settings.keepalive
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.idle_since >= oldest and connection.is_open:
                return connection
            self.release(connection, is_usable=False)
        return None

    async def acquire(self, end: float) -> Connection:
        """A connection, as soon as one is free, for a request with that end of its time. Raises
        UnreachableError and ClosedClientError."""
        if self._is_closed:
            raise ClosedClientError("the client is closed")
        try:
            with anyio.fail_after(end - self._loop.time()):
                return self.take() or await self._wait() or await self._connect()
        except TimeoutError as error:
            raise self._unreachable(error) from error

    def release(self, connection: Connection, *, is_usable: bool) -> None:
        """Give a connection back."""
        if is_usable and connection.is_open and not self._is_closed:
            self._pass_on(connection)
        else:
            connection.abort()
            self._pass_on(None)

    async def close(self) -> None:
        """Close the connections, and wait until they are. Requests that wait for one fail with
        ClosedClientError, those that were sent with ResponseLostError."""
        self._is_closed = True
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(ClosedClientError("the client was closed during the request"))
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._idle.clear()
        if self._loop.is_closed():
            return
        for connection in list(self._all):
            connection.abort()
        if self._all:
            await self._all_closed.wait()

    async def _wait(self) -> Connection | None:
        """A connection of another request, or None for the right to make one."""
        if self._free > 0:
            self._free -= 1
            return None
        place: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiting.append(place)
        try:
            connection = await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                # It was assigned during the cancellation.
                self._return(place.result())
            raise
        return connection if connection is not None and connection.is_open else None

    async def _connect(self) -> Connection:
        """A new connection, whose place is taken. Raises UnreachableError and ClosedClientError."""
        connection: Connection | None = None
        try:
            connection = await self._open()
            if self._is_closed:
                raise ClosedClientError("the client was closed during the request")
            return connection
        except BaseException:
            self._return(connection)
            raise

    async def _open(self) -> Connection:
        context = self._settings.context
        try:
            addresses = await self._addresses()
            with anyio.fail_after(self._settings.connect_timeout):
                opened = await aiohappyeyeballs.start_connection(
                    addresses,
                    happy_eyeballs_delay=_NEXT_ADDRESS_AFTER,
                    loop=self._loop,
                    socket_factory=self._settings.open_socket,
                )
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self._loop, self._forget, self._buffer),
                    sock=opened,
                    ssl=context,
                    server_hostname=self._host.rstrip(".") if context else None,
                )
                if not connection.is_open:
                    raise ConnectionResetError("the connection ended before anything was sent")
        except (OSError, UnicodeError) as error:
            raise self._unreachable(error) from error
        self._all.add(connection)
        return connection

    async def _addresses(self) -> list[_Address]:
        """The addresses of the host, each time beginning with another one. Requests that wait share
        one look-up."""
        lookup = self._lookup
        if lookup is None or (
            lookup.done() and self._looked_up + _ADDRESSES_FOR < self._loop.time()
        ):
            lookup = self._lookup = self._loop.create_task(self._look_up())
            lookup.add_done_callback(_retrieve)
        try:
            found = await asyncio.shield(lookup)
        except Exception:
            if self._lookup is lookup:
                self._lookup = None
            raise
        self._turn = (self._turn + 1) % len(found)
        return found[self._turn :] + found[: self._turn]

    async def _look_up(self) -> list[_Address]:
        place = (self._host, self._port)
        found: list[Any] = []
        with suppress(socket.gaierror, UnicodeError):
            # An IP address, which takes no time.
            found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        if not found:
            found = await self._loop.getaddrinfo(
                *place, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        self._looked_up = self._loop.time()
        return found

    def _return(self, connection: Connection | None) -> None:
        """Give back a connection, or the right to make one."""
        if connection is None:
            self._pass_on(None)
        else:
            self.release(connection, is_usable=True)

    def _pass_on(self, connection: Connection | None) -> None:
        """Give a connection, or the right to make one, to the first who waits."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(connection)
                return
        if connection is None:
            self._free += 1
            return
        connection.idle_since = self._loop.time()
        self._idle[connection] = None
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(self._settings.keepalive, self._sweep)

    def _forget(self, connection: Connection) -> None:
        """A connection was closed."""
        self._all.discard(connection)
        if connection in self._idle:
            del self._idle[connection]
            self._pass_on(None)
        if self._is_closed and not self._all:
            self._all_closed.set()

    def _sweep(self) -> None:
        """Close the connections that were idle for long."""
        self._sweep_timer = None
        oldest = self._loop.time() - self._settings.keepalive
        for connection in [each for each in self._idle if each.idle_since <= oldest]:
            del self._idle[connection]
            self.release(connection, is_usable=False)
        if self._idle:
            self._sweep_timer = self._loop.call_later(self._settings.keepalive, self._sweep)

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"no connection to {self._host}:{self._port} ({type(error).__name__})"
        )


def _retrieve(lookup: asyncio.Task[list[_Address]]) -> None:
    """Mark an error as retrieved: all requests that waited for it may have been cancelled."""
    if not lookup.cancelled():
        lookup.exception()
