"""A proxy between an adapter and an engine that makes things go wrong: `FaultProxy`.

    async with FaultProxy(engine_url) as proxy:
        proxy.rule(LOSE_ANSWER, target="PutItem", times=1)
        proxy.rule(dynamodb_error("ThrottlingException"), target="Query", times=3)
        store = DynamoItems("t", AwsConfig(endpoint=proxy.url, ...))
        ...
        assert proxy.count(target="PutItem") == 2

The first rule that fits a request and is not used up decides; without one the request is passed on.
Without an upstream every request needs a rule. Plain HTTP on 127.0.0.1 only.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = [
    "CLOSE_AFTER",
    "CLOSE_BEFORE",
    "LOSE_ANSWER",
    "REFUSE",
    "Answer",
    "Call",
    "Delay",
    "Drop",
    "Duplicate",
    "Fault",
    "FaultProxy",
    "Rewrite",
    "Rule",
    "Truncate",
    "dynamodb_error",
    "json_answer",
    "s3_error",
    "xml_answer",
]


@dataclass(frozen=True)
class Call:
    """One request, as it came."""

    method: str
    path: str
    """Percent-decoded."""
    query: str
    """As sent."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    raw_path: str

    @property
    def target(self) -> str:
        """The DynamoDB operation, such as `PutItem`; empty for S3."""
        return self.headers.get("x-amz-target", "").rpartition(".")[2]


@dataclass(frozen=True)
class Answer:
    """A whole response. As a fault: given instead of asking upstream."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drop:
    """No answer: the connection ends, before or after the request was passed on, by a reset or in
    an orderly way."""

    forward: bool
    reset: bool = True


@dataclass(frozen=True)
class Delay:
    """Wait, then pass the request on."""

    seconds: float


@dataclass(frozen=True)
class Duplicate:
    """Pass the request on twice, and send the first answer."""


@dataclass(frozen=True)
class Truncate:
    """Pass the request on; of the answer's body send only so many bytes, though all are announced,
    and close. `announce`: announce only what is sent, so that nothing but the content can tell."""

    size: int
    announce: bool = False


@dataclass(frozen=True)
class Rewrite:
    """Pass the request on and send another answer than came."""

    change: Callable[[Answer], Answer]


Fault: TypeAlias = Answer | Drop | Delay | Duplicate | Truncate | Rewrite

REFUSE = Drop(forward=False)
"""Reset before anything was passed on."""
LOSE_ANSWER = Drop(forward=True)
"""Passed on, applied, and the answer lost by a reset."""
CLOSE_BEFORE = Drop(forward=False, reset=False)
CLOSE_AFTER = Drop(forward=True, reset=False)


@dataclass
class Rule:
    """A fault and the requests that it befalls."""

    fault: Fault
    fits: Callable[[Call], bool]
    skip: int = 0
    """How many fitting requests go through first."""
    times: int | None = None
    """How many it befalls; None: all that follow."""
    hits: int = 0
    """How many it has befallen."""

    def take(self, call: Call) -> bool:
        """Whether this request is one of them."""
        if (self.times is not None and self.hits >= self.times) or not self.fits(call):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.hits += 1
        return True


class FaultProxy:
    """See the module. `calls` are all requests so far, in the order in which they came."""

    def __init__(self, upstream: str | None = None) -> None:
        self._upstream = urlsplit(upstream) if upstream else None
        self._rules: list[Rule] = []
        self._open = AsyncExitStack()
        self.connections = 0
        """Those that are open now."""
        self.calls: list[Call] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self.url = await self._open.enter_async_context(served(self._converse))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._open.aclose()

    def rule(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str | None = None,
        query: str | None = None,
        target: str | None = None,
        when: Callable[[Call], bool] | None = None,
        skip: int = 0,
        times: int | None = None,
    ) -> Rule:
        """Add a rule. `path` and `query` are regular expressions that are searched for; `target`
        and `method` are equal; all that are given must fit."""
        made = Rule(fault, _fitting(method, path, query, target, when), skip, times)
        self._rules.append(made)
        return made

    def clear(self) -> None:
        """Forget the rules and the calls."""
        self._rules.clear()
        self.calls.clear()

    def count(
        self,
        *,
        method: str | None = None,
        path: str | None = None,
        query: str | None = None,
        target: str | None = None,
        when: Callable[[Call], bool] | None = None,
    ) -> int:
        """How many requests so far fit, those that a fault befell included."""
        fits = _fitting(method, path, query, target, when)
        return sum(fits(call) for call in self.calls)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._serve(reader, writer):
                pass
        finally:
            self.connections -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Handle one request; whether the connection goes on."""
        call = await _read_call(reader, writer)
        if call is None:
            return False
        self.calls.append(call)
        rule = next((rule for rule in self._rules if rule.take(call)), None)
        fault = rule.fault if rule else None
        if isinstance(fault, Drop):
            if fault.forward:
                await self._forward(call)
            if fault.reset:
                opened: socket.socket = writer.get_extra_info("socket")
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            return False
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        answer = fault if isinstance(fault, Answer) else await self._forward(call)
        if isinstance(fault, Duplicate):
            await self._forward(call)
        if isinstance(fault, Rewrite):
            answer = fault.change(answer)
        if isinstance(fault, Truncate) and fault.announce:
            answer = replace(answer, body=answer.body[: fault.size])
        head = _head(answer, call.method)
        cut = fault.size if isinstance(fault, Truncate) else len(answer.body)
        writer.write(head + (b"" if call.method == "HEAD" else answer.body[:cut]))
        await writer.drain()
        return cut >= len(answer.body)

    async def _forward(self, call: Call) -> Answer:
        """The answer of upstream, over a connection of its own."""
        if self._upstream is None:
            return Answer(501, f"no rule for {call.method} {call.path} {call.target}".encode())
        reader, writer = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        try:
            kept = {name: value for name, value in call.headers.items() if name not in _HOP_BY_HOP}
            kept |= {"connection": "close", "content-length": str(len(call.body))}
            writer.write(_lines(f"{call.method} {call.raw_path} HTTP/1.1", kept) + call.body)
            await writer.drain()
            line, headers = await _read_head(reader)
            status = int(line.split(" ")[1])
            empty = call.method == "HEAD" or status in (204, 304)
            body = b"" if empty else await _read_body(reader, headers, to_end=True)
            return Answer(status, body, headers)
        finally:
            writer.close()


def dynamodb_error(code: str, message: str = "", *, status: int = 400, **more: object) -> Answer:
    """An error as DynamoDB answers it. `more`: members beside the message, such as
    CancellationReasons or Item."""
    space = "com.amazon.coral.service" if code in _CORAL else "com.amazonaws.dynamodb.v20120810"
    body = {"__type": f"{space}#{code}", "message": message, **more}
    return json_answer(body, status=status)


def json_answer(body: object, *, status: int = 200) -> Answer:
    """An answer of DynamoDB."""
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/x-amz-json-1.0"})


def s3_error(code: str, message: str = "", *, status: int, **more: str) -> Answer:
    """An error as S3 answers it. `more`: elements beside the message, such as StringToSign."""
    elements = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in more.items())
    return xml_answer(
        f"<Error><Code>{code}</Code><Message>{escape(message)}</Message>{elements}"
        "<RequestId>4442587FB7D0A2F9</RequestId></Error>",
        status=status,
    )


def xml_answer(body: str, *, status: int = 200) -> Answer:
    """An answer of S3."""
    return Answer(
        status,
        f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'.encode(),
        {"Content-Type": "application/xml"},
    )


_CORAL = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "InternalServerError",
    "UnrecognizedClientException",
}
_HOP_BY_HOP = {"connection", "content-length", "expect", "keep-alive", "transfer-encoding"}


def _fitting(
    method: str | None,
    path: str | None,
    query: str | None,
    target: str | None,
    when: Callable[[Call], bool] | None,
) -> Callable[[Call], bool]:
    return lambda call: (
        (method is None or call.method == method)
        and (path is None or re.search(path, call.path) is not None)
        and (query is None or re.search(query, call.query) is not None)
        and (target is None or call.target == target)
        and (when is None or when(call))
    )


@asynccontextmanager
async def served(
    converse: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]],
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """The URL of a server that does `converse` with each connection; none is open afterwards."""
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                await converse(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await _turns()  # what was accepted at the last moment is a connection by then
        for connection in list(connections):
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await _turns()  # a transport closes its socket later than it is told to


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def _read_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call | None:
    """The next request of a connection; None when there is none."""
    if reader.at_eof():
        return None
    line, headers = await _read_head(reader)
    method, raw_path, _ = line.split(" ")
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await _read_body(reader, headers)
    path, _, query = raw_path.partition("?")
    return Call(method, unquote(path), query, headers, body, raw_path)


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text.rstrip("\r\n").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return first, headers


async def _read_body(
    reader: asyncio.StreamReader, headers: Mapping[str, str], *, to_end: bool = False
) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        chunks = []
        while size := int((await reader.readline()).partition(b";")[0], 16):
            chunks.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(chunks)
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read() if to_end else b""


def _head(answer: Answer, method: str) -> bytes:
    kept = {
        name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP
    }
    announced = next(
        (value for name, value in answer.headers.items() if name.lower() == "content-length"), None
    )
    if method == "HEAD" and announced is not None:
        kept["Content-Length"] = announced
    elif answer.status != 204:
        kept["Content-Length"] = str(len(answer.body))
    return _lines(f"HTTP/1.1 {answer.status} Answer", kept)


def _lines(first: str, headers: Mapping[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
