"""Connections and their pool: who gets one, what ends one, and what is known about a request that
failed."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from s3k_async._core.retry import DEADLINE
from s3k_async.backends.aws.connection_pool import ConnectionPool, PoolSettings
from s3k_async.backends.aws.direct_http import Bounds, Exchange
from s3k_async.errors import (
    ClosedClientError,
    InvalidArgumentError,
    ResponseLostError,
    UnreachableError,
)
from tests.proxy import served

SOON = 0.15
HANGS = 20.0
LARGE = os.urandom(4 * 1024 * 1024)
HUGE = bytes(64 * 1024 * 1024)
"""More than the buffers of both sides hold."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

Converse = Callable[["Visit"], Awaitable[object]]


@dataclass
class Visit:
    """A connection at the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> bytes:
        """The body of the next request."""
        length = (await self.head()).lower().partition(b"content-length: ")[2].partition(b"\r")[0]
        return await self.reader.readexactly(int(length or 0))

    def say(self, data: bytes) -> None:
        self.writer.write(data)


@dataclass
class Rig:
    """Requests to a server that behaves as a test wants."""

    exchange: Exchange
    pool: ConnectionPool
    visits: list[Visit] = field(default_factory=list)

    async def get(self, body: bytes = b"", **headers: str) -> bytes:
        given = [("Host", "x"), *((name.replace("_", "-"), text) for name, text in headers.items())]
        method = "PUT" if body else "GET"
        return (await self.exchange.ask(method, "/", given, body, Bounds(1 << 23)))[2]


async def polite(visit: Visit) -> None:
    while True:
        await visit.request()
        visit.say(OK)


def pool_of(url: str, **more: Any) -> ConnectionPool:
    parts = urlsplit(url)
    settings = {
        "most": 2,
        "keepalive": 60.0,
        "connect_timeout": HANGS,
        "context": None,
        "open_socket": lambda address: socket.socket(*address[:3]),
        **more,
    }
    return ConnectionPool(parts.hostname or "", parts.port or 0, PoolSettings(**settings))


@asynccontextmanager
async def rigged(
    converse: Converse = polite, *, seconds: float = HANGS, **more: Any
) -> AsyncIterator[Rig]:
    visits: list[Visit] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(Visit(reader, writer, len(visits)))
        await converse(visits[-1])

    async with served(accept) as url:
        pool = pool_of(url, **more)
        try:
            with anyio.fail_after(HANGS):
                yield Rig(Exchange(pool, seconds, {"User-Agent": "test"}), pool, visits)
        finally:
            await pool.close()


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0.001)


# The pool


async def test_connections_are_shared_within_the_limit() -> None:
    async with rigged() as rig:
        found = await asyncio.gather(*(rig.get() for _ in range(50)))
        assert set(found) == {b"{}"}
        assert len(rig.visits) == 2
        await rig.get()
        assert len(rig.visits) == 2


async def test_who_waits_gets_a_connection_in_turn() -> None:
    async with rigged(most=1) as rig:
        done: list[int] = []

        async def one(number: int) -> None:
            await rig.get()
            done.append(number)

        await asyncio.gather(*(one(number) for number in range(20)))
        assert done == list(range(20))
        assert len(rig.visits) == 1


async def test_a_newcomer_does_not_overtake_who_waits() -> None:
    async with rigged(most=1) as rig:
        first = await rig.pool.acquire(asyncio.get_running_loop().time() + HANGS)
        waiting = asyncio.create_task(rig.get())
        await turns()
        rig.pool.release(first, is_usable=True)
        assert rig.pool.take() is None
        assert await waiting == b"{}"


async def test_the_right_to_connect_is_passed_on() -> None:
    """Those who wait connect themselves when the connections before them ended."""

    async def once(visit: Visit) -> None:
        await visit.request()
        visit.say(OK)
        visit.writer.close()

    async with rigged(once, most=1) as rig:
        found = await asyncio.gather(*(rig.get() for _ in range(5)), return_exceptions=True)
        assert [each for each in found if each == b"{}"]
        assert all(each == b"{}" or isinstance(each, ResponseLostError) for each in found)


@pytest.mark.parametrize("waited", range(12))
async def test_a_cancellation_at_any_time_leaves_the_pool_whole(waited: int) -> None:
    """While waiting, connecting, sending and reading: afterwards there are as many connections as
    before, and each gives the answer to its own request."""

    async def echo(visit: Visit) -> None:
        while True:
            head = await visit.head()
            text = head.partition(b"X-Number: ")[2].partition(b"\r\n")[0]
            visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))

    async with rigged(echo) as rig:
        for number in range(30):
            tasks = [asyncio.create_task(rig.get(X_Number=f"{number}.{each}")) for each in range(6)]
            await turns(waited)
            for task in tasks[number % 3 :: 3]:
                task.cancel()
            for each, got in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
                assert got == f"{number}.{each}".encode() or isinstance(got, asyncio.CancelledError)
        held = [await rig.pool.acquire(asyncio.get_running_loop().time() + 1) for _ in range(2)]
        with pytest.raises(UnreachableError):
            await rig.pool.acquire(asyncio.get_running_loop().time() + 0.01)
        for connection in held:
            rig.pool.release(connection, is_usable=True)


async def test_a_connection_that_is_assigned_during_a_cancellation_is_given_back() -> None:
    async with rigged(most=1) as rig:
        end = asyncio.get_running_loop().time() + HANGS
        for is_usable in (True, False):
            held = await rig.pool.acquire(end)
            waiting = asyncio.create_task(rig.get())
            await turns()
            rig.pool.release(held, is_usable=is_usable)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await rig.get() == b"{}"


async def test_no_connection_becomes_free_in_time() -> None:
    """Nothing was sent, which the error says."""
    async with rigged(most=1) as rig:
        end = asyncio.get_running_loop().time() + HANGS
        held = await rig.pool.acquire(end)
        token = DEADLINE.set(asyncio.get_running_loop().time() + 0.05)
        with pytest.raises(UnreachableError):
            await rig.get(b"data")
        DEADLINE.reset(token)
        rig.pool.release(held, is_usable=True)
        assert await rig.get() == b"{}"


# The end of connections


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async def brief(visit: Visit) -> None:
        await visit.request()
        visit.say(OK)
        await visit.writer.drain()
        if visit.number == 0:
            visit.writer.close()
        else:
            await polite(visit)

    async with rigged(brief) as rig:
        assert await rig.get() == b"{}"
        await until(lambda: not rig.pool._all)
        assert set(await asyncio.gather(rig.get(), rig.get())) == {b"{}"}
        assert len(rig.visits) == 3


@pytest.mark.parametrize("more", [b"x", OK, b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
@pytest.mark.parametrize("later", [False, True])
async def test_bytes_that_belong_to_no_answer_end_a_connection(more: bytes, later: bool) -> None:
    go = asyncio.Event()

    async def talkative(visit: Visit) -> None:
        await visit.request()
        visit.say(OK if later else OK + more)
        if later:
            await go.wait()
            visit.say(more)
        await visit.request()
        visit.say(b"HTTP/1.1 500 Never\r\nContent-Length: 0\r\n\r\n")

    async with rigged(talkative) as rig:
        assert await rig.get() == b"{}"
        go.set()
        await until(lambda: not rig.pool._all)
        assert await rig.get() == b"{}"
        assert len(rig.visits) == 2


async def test_idle_connections_end_after_a_while() -> None:
    async with rigged(keepalive=SOON) as rig:
        await asyncio.gather(rig.get(), rig.get())
        await until(lambda: not rig.pool._all)
        await until(lambda: all(visit.reader.at_eof() for visit in rig.visits))
        assert await rig.get() == b"{}"
        assert len(rig.visits) == 3


async def test_a_connection_is_not_used_after_its_keepalive() -> None:
    async with rigged(keepalive=SOON) as rig:
        await rig.get()
        (connection,) = rig.pool._all
        connection.idle_since -= 2 * SOON
        await rig.get()
        assert len(rig.visits) == 2


async def test_an_answer_until_the_end_of_the_connection() -> None:
    async def old(visit: Visit) -> None:
        await visit.request()
        visit.say(b"HTTP/1.0 200 OK\r\n\r\n")
        await visit.writer.drain()
        await turns()
        visit.say(LARGE)

    async with rigged(old) as rig:
        for _ in range(3):
            assert await rig.get() == LARGE
        assert len(rig.visits) == 3


async def test_a_large_answer_comes_in_pieces() -> None:
    async def slowly(visit: Visit) -> None:
        while True:
            await visit.request()
            visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE))
            for at in range(0, len(LARGE), 300_001):
                visit.say(LARGE[at : at + 300_001])
                await visit.writer.drain()
                await asyncio.sleep(0)

    async with rigged(slowly) as rig:
        for _ in range(3):
            assert await rig.get() == LARGE
        assert len(rig.visits) == 1


@pytest.mark.parametrize("how", ["cancelled", "too slow", "closed"])
async def test_nothing_gets_into_a_buffer_after_the_end_of_its_request(how: str) -> None:
    """The server goes on sending; the buffer is that of a later request by then."""
    sent = asyncio.Event()

    async def half(visit: Visit) -> None:
        await visit.request()
        visit.say(b"HTTP/1.1 206 Partial\r\nContent-Length: %d\r\n\r\n" % len(LARGE))
        visit.say(LARGE[:1000])
        await sent.wait()
        visit.say(LARGE[1000:])
        with suppress(OSError):
            await visit.writer.drain()

    seconds = 0.05 if how == "too slow" else HANGS
    async with rigged(half, seconds=seconds) as rig:
        buffer = bytearray(len(LARGE))
        bounds = Bounds(1 << 23, into=memoryview(buffer))
        task = asyncio.create_task(rig.exchange.ask("GET", "/", [("Host", "x")], b"", bounds))
        await until(lambda: buffer.startswith(LARGE[:1000]) or task.done())
        if how == "cancelled":
            task.cancel()
        elif how == "closed":
            await rig.exchange.close()
        with pytest.raises((asyncio.CancelledError, TimeoutError, ResponseLostError)):
            await task
        buffer[:] = bytes(len(LARGE))
        sent.set()
        await asyncio.sleep(0.05)
        assert not any(buffer)


async def test_a_large_answer_is_put_into_a_buffer() -> None:
    async def partial(visit: Visit) -> None:
        while True:
            await visit.request()
            visit.say(b"HTTP/1.1 206 Partial\r\nContent-Length: %d\r\n\r\n" % len(LARGE))
            for at in range(0, len(LARGE), 300_001):
                visit.say(LARGE[at : at + 300_001])
                await visit.writer.drain()
                await asyncio.sleep(0)

    async with rigged(partial) as rig:
        for _ in range(3):
            buffer = bytearray(len(LARGE))
            bounds = Bounds(1 << 23, into=memoryview(buffer))
            status, _, body = await rig.exchange.ask("GET", "/", [("Host", "x")], b"", bounds)
            assert (status, body) == (206, b"")
            assert buffer == LARGE
        assert len(rig.visits) == 1


async def test_compressed_answers_are_left_as_they_are() -> None:
    packed = gzip.compress(b"data")
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"

    async def answered(visit: Visit) -> None:
        await visit.request()
        visit.say(answer % (len(packed), packed))

    async with rigged(answered) as rig:
        assert await rig.get() == packed


# What is known of a request that failed


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        pool = pool_of(f"http://127.0.0.1:{free.getsockname()[1]}")
        for _ in range(5):
            with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:\d+ \(ConnectionRefused"):
                await pool.acquire(asyncio.get_running_loop().time() + HANGS)
        await pool.close()


async def test_a_connection_that_ended_before_anything_was_sent() -> None:
    async with rigged() as rig:
        connection = await rig.pool.acquire(asyncio.get_running_loop().time() + HANGS)
        connection.abort()
        rig.pool.release(connection, is_usable=True)
        assert rig.pool.take() is None
        assert await rig.get() == b"{}"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", OK[:-1]])
@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_ends_after_the_request(said: bytes, reset: bool) -> None:
    async def broken(visit: Visit) -> None:
        await visit.request()
        visit.say(said)
        await visit.writer.drain()
        if reset:
            visit.writer.transport.abort()
        else:
            visit.writer.close()

    async with rigged(broken) as rig:
        for body in (b"", b"data"):
            with pytest.raises(ResponseLostError):
                await rig.get(body)
        await until(lambda: not rig.pool._all)


async def test_closing_with_requests_that_wait_and_that_were_sent() -> None:
    received = asyncio.Event()

    async def silent(visit: Visit) -> None:
        await visit.head()
        received.set()
        await visit.reader.read()

    async with rigged(silent, most=1) as rig:
        sent = asyncio.create_task(rig.get())
        waiting = asyncio.create_task(rig.get())
        await received.wait()  # a visit may begin before the client knows that it is connected
        await rig.pool.close()
        with pytest.raises(ResponseLostError):
            await sent
        with pytest.raises(ClosedClientError):
            await waiting
        with pytest.raises(ClosedClientError):
            await rig.get()
        assert not rig.pool._all


async def test_closing_while_connecting() -> None:
    async with rigged(most=2) as rig:
        connecting = asyncio.create_task(rig.get())
        await turns(1)
        await rig.pool.close()
        with pytest.raises(ClosedClientError):
            await connecting
        assert not rig.pool._all


async def test_a_line_break_in_a_header_is_refused() -> None:
    async with rigged() as rig:
        for text in ("a\r\nX-Other: b", "a\nb", "a\rb"):
            with pytest.raises(InvalidArgumentError):
                await rig.get(X_One=text)
        assert not rig.visits


# Time


async def silence(visit: Visit) -> None:
    await visit.request()
    await visit.reader.read()


@pytest.mark.parametrize("body", [b"", LARGE], ids=["no body", "large body"])
async def test_silence_ends_a_request(body: bytes) -> None:
    async with rigged(silence, seconds=SOON) as rig:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await rig.get(body)
        assert len(rig.visits) == 3


async def test_silence_within_a_large_answer_ends_it() -> None:
    """However much of it came before."""

    async def half(visit: Visit) -> None:
        await visit.request()
        visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 22))
        visit.say(bytes(1 << 21))
        await visit.reader.read()

    async with rigged(half, seconds=SOON) as rig:
        with pytest.raises(TimeoutError):
            await rig.get()


async def test_a_timer_of_an_earlier_request_ends_no_later_one() -> None:
    async def after_a_while(visit: Visit) -> None:
        while True:
            await visit.request()
            await asyncio.sleep(0.4)
            visit.say(OK)

    async with rigged(after_a_while, seconds=1.0) as rig:
        for _ in range(4):
            assert await rig.get() == b"{}"
        assert len(rig.visits) == 1


async def test_the_end_of_a_call_may_be_sooner_than_the_timer_that_is_set() -> None:
    async def first_only(visit: Visit) -> None:
        await visit.request()
        visit.say(OK)
        await visit.reader.read()

    async with rigged(first_only) as rig:
        await rig.get()
        token = DEADLINE.set(asyncio.get_running_loop().time() + 0.05)
        with pytest.raises(TimeoutError):
            await rig.get()
        DEADLINE.reset(token)


# Large bodies


async def test_a_large_body_goes_in_pieces_as_it_is_taken() -> None:
    async def slow(visit: Visit) -> None:
        await visit.head()
        got = bytearray()
        while len(got) < len(LARGE):
            got += await visit.reader.read(100_000)
            await asyncio.sleep(0)
        visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        visit.say(b"ok" if got == LARGE else b"no")
        await visit.reader.read()

    async with rigged(slow) as rig:
        assert await rig.get(LARGE) == b"ok"


async def test_a_body_waits_until_it_is_asked_for() -> None:
    went: list[int] = []

    async def asking(visit: Visit) -> None:
        while True:
            await visit.head()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(visit.reader.read(1), 0.05)
            visit.say(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
            went.append(len(await visit.reader.readexactly(len(LARGE))))
            visit.say(OK)

    async with rigged(asking) as rig:
        for _ in range(2):
            assert await rig.get(LARGE, Expect="100-continue") == b"{}"
        assert went == [len(LARGE)] * 2
        assert len(rig.visits) == 1


@pytest.mark.parametrize("expect", [False, True])
async def test_a_refusal_that_comes_before_the_body_ends_it(expect: bool) -> None:
    """It counts, and the connection, which has half a request, is not used again."""

    async def refuse(visit: Visit) -> None:
        await visit.head()
        visit.say(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
        await asyncio.sleep(SOON)
        await visit.reader.read()

    async with rigged(refuse) as rig:
        headers = {"Expect": "100-continue"} if expect else {}
        for _ in range(2):
            assert await rig.get(HUGE, **headers) == b"no"
        assert len(rig.visits) == 2


async def test_a_connection_that_breaks_within_a_body() -> None:
    async def broken(visit: Visit) -> None:
        await visit.head()
        await visit.reader.readexactly(500_000)
        visit.writer.transport.abort()

    async with rigged(broken) as rig:
        with pytest.raises(ResponseLostError):
            await rig.get(LARGE)


async def test_a_cancelled_body_is_not_sent_on() -> None:
    taken = 0

    async def stopped(visit: Visit) -> None:
        nonlocal taken
        await visit.head()
        await asyncio.sleep(SOON)
        while piece := await visit.reader.read(65536):
            taken += len(piece)

    async with rigged(stopped) as rig:
        task = asyncio.create_task(rig.get(HUGE))
        await until(lambda: bool(rig.visits))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not rig.pool._all)
        await asyncio.sleep(2 * SOON)
    assert taken < len(HUGE)


# Addresses


def addresses_of(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked up from now on. The answer takes a while; `none.test` fails."""
    asked: list[str] = []
    loop = asyncio.get_running_loop()

    async def look_up(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        await asyncio.sleep(0.01)
        if host == "none.test":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{each}", port))
            for each in (1, 2, 3)
        ]

    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    return asked


async def test_connections_share_a_look_up_and_spread_over_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = pool_of("http://some.test:80")
    asked = addresses_of(pool, monkeypatch)
    found = await asyncio.gather(*(pool._addresses() for _ in range(6)))
    assert asked == ["some.test"]
    assert {len(each) for each in found} == {3}
    assert sorted(each[0][4][0] for each in found) == sorted(
        ["127.0.0.1", "127.0.0.2"] * 2 + ["127.0.0.3"] * 2
    )
    pool._looked_up -= 11.0
    await pool._addresses()
    assert asked == ["some.test"] * 2
    await pool.close()


async def test_a_cancelled_look_up_goes_on_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = pool_of("http://some.test:80")
    asked = addresses_of(pool, monkeypatch)
    first = asyncio.create_task(pool._addresses())
    second = asyncio.create_task(pool._addresses())
    await turns(2)
    first.cancel()
    assert len(await second) == 3
    assert first.cancelled()
    assert len(asked) == 1
    await pool.close()


async def test_a_look_up_that_failed_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of("http://none.test:80")
    asked = addresses_of(pool, monkeypatch)
    for times in (1, 2):
        found = await asyncio.gather(
            *(pool.acquire(asyncio.get_running_loop().time() + HANGS) for _ in range(2)),
            return_exceptions=True,
        )
        assert [type(each) for each in found] == [UnreachableError] * 2
        assert len(asked) == times
    await pool.close()


async def test_an_address_needs_no_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of("http://[::1]:80")
    asked = addresses_of(pool, monkeypatch)
    assert [each[4][:2] for each in await pool._addresses()] == [("::1", 80)]
    assert not asked
    await pool.close()


async def test_a_host_that_is_none() -> None:
    pool = pool_of("http://a..b:80")
    with pytest.raises(UnreachableError):
        await pool.acquire(asyncio.get_running_loop().time() + HANGS)
    await pool.close()
