"""Servers that break every rule: each call of both ports ends, in time, in bounded memory, and with
an error of ours.

A row is a server's answer to whatever it is asked, a column a call. No time is measured: without a
bound the calls would not end at all, since the servers go on for as long as somebody listens.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import anyio
import pytest

from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.aws.direct_http import Bounds
from s3k_async.backends.ports.items import Key
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.errors import OutcomeUnknownError, RequestTimeoutError, S3kError, ServiceError
from tests.backends.aws.places import OpenBlobs, OpenItems, settings
from tests.backends.aws.verbs import BLOB_READS, BLOB_WRITES, ITEM_READS, ITEM_WRITES, KEY, PUT
from tests.proxy import Answer, FaultProxy, json_answer, served

HANGS = 120.0
"""Seconds after which a call has hung."""
SMALL = 256 * 1024
"""Bytes that an answer may have here, so that an endless one ends soon."""
IN_FLIGHT = 32 * 1024 * 1024
"""Bytes that sockets and buffers may hold beyond what was read."""


@dataclass
class Exchange:
    """A request that came, and what may be sent to it."""

    writer: asyncio.StreamWriter
    table: bool
    """Whether the request is to the table."""
    sent: int = 0

    async def send(self, data: bytes) -> None:
        self.sent += len(data)
        self.writer.write(data)
        await self.writer.drain()

    def head(self, *more: str, status: str = "200 OK", kind: str = "") -> bytes:
        kind = kind or ("application/x-amz-json-1.0" if self.table else "application/xml")
        return "\r\n".join(
            (f"HTTP/1.1 {status}", f"Content-Type: {kind}", 'ETag: "e"', *more, "", "")
        ).encode()

    async def answer(self, body: bytes, *more: str) -> None:
        await self.send(self.head(f"Content-Length: {len(body)}", *more) + body)


Misbehaviour = Callable[[Exchange], Awaitable[None]]


async def silence(_: Exchange) -> None:
    await asyncio.Event().wait()


async def drip(at: Exchange, byte: bytes) -> None:
    while True:
        await at.send(byte)
        await asyncio.sleep(0.005)


async def slow_head(at: Exchange) -> None:
    await at.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    await drip(at, b"x")


async def slow_line(at: Exchange) -> None:
    await drip(at, b"HTTP/1.1 200 "[:1])


async def slow_body(at: Exchange) -> None:
    await at.send(at.head(f"Content-Length: {SMALL - 1}"))  # more is refused at once
    await drip(at, b" ")


async def slow_chunks(at: Exchange) -> None:
    await at.send(at.head("Transfer-Encoding: chunked"))
    await drip(at, b"1\r\n \r\n")


async def informational(at: Exchange, status: bytes) -> None:
    await drip(at, b"HTTP/1.1 " + status + b"\r\n\r\n")


async def endless_body(at: Exchange, *more: str) -> None:
    await at.send(at.head(*more))
    piece = b" " * 65536
    if more == ("Transfer-Encoding: chunked",):
        piece = b"10000\r\n" + piece + b"\r\n"
    while True:
        await at.send(piece)


async def endless_head(at: Exchange) -> None:
    await at.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await at.send(b"X-More: " + b"x" * 1000 + b"\r\n")


async def half(at: Exchange) -> None:
    await at.send(at.head("Content-Length: 1000") + b"{")
    at.writer.write_eof()
    await asyncio.Event().wait()


async def nothing_more(at: Exchange) -> None:
    at.writer.write_eof()
    await asyncio.Event().wait()


async def reset(at: Exchange) -> None:
    await at.send(at.head("Content-Length: 1000") + b"{")
    at.writer.transport.abort()


async def raw(at: Exchange, data: bytes) -> None:
    await at.send(data)


async def body(at: Exchange, of_table: bytes, of_bucket: bytes, *more: str) -> None:
    await at.answer(of_table if at.table else of_bucket, *more)


def nested(depth: int) -> bytes:
    return b'{"Items":' + b"[" * depth + b"]" * depth + b"}"


DEEP_XML = b"<a>" * 100_000 + b"</a>" * 100_000
BILLION = (
    b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">'.encode() for n in range(12))
    + b"]><ListBucketResult><Contents><Key>&m;</Key></Contents></ListBucketResult>"
)


@cache
def bomb() -> bytes:
    return gzip.compress(b" " * 50_000_000)


ERROR = b"<Error><Code>InternalError</Code></Error>"

STUCK: Mapping[str, Misbehaviour] = {
    "silence": silence,
    "slow head": slow_head,
    "slow status line": slow_line,
    "slow body": slow_body,
    "slow chunks": slow_chunks,
    "100 without end": partial(informational, status=b"100 Continue"),
    "103 without end": partial(informational, status=b"103 Early Hints"),
    "half-closed": half,
    "closed": nothing_more,
    "upgrade": partial(raw, data=b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"),
}
ENDLESS: Mapping[str, Misbehaviour] = {
    "endless body": endless_body,
    "endless chunks": lambda at: endless_body(at, "Transfer-Encoding: chunked"),
    "endless announced": lambda at: endless_body(at, f"Content-Length: {10**15}"),
    "endless head": endless_head,
}
BROKEN: Mapping[str, Misbehaviour] = {
    "reset": reset,
    "no HTTP": partial(raw, data=b"220 mail.example ESMTP\r\n\r\n"),
    "garbage": partial(raw, data=b"\x00\xff\x16\x03\x01" * 100),
    "status of four digits": partial(raw, data=b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"),
    "negative length": partial(raw, data=b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
    "two lengths": partial(
        raw, data=b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}"
    ),
    "length that is none": partial(raw, data=b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
    "bad chunk": partial(raw, data=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "large header": partial(
        raw, data=b"HTTP/1.1 200 OK\r\nX-Large: " + b"x" * 100_000 + b"\r\n\r\n"
    ),
    "many headers": partial(raw, data=b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"\r\n"),
}
CONTENT: Mapping[str, Misbehaviour] = {
    "empty": partial(body, of_table=b"", of_bucket=b""),
    "null": partial(body, of_table=b"null", of_bucket=b"\x00"),
    "cut": partial(body, of_table=b'{"Item": {', of_bucket=b"<ListBucketResult><Contents>"),
    "another type": partial(
        body,
        of_table=b'{"Item":[],"Items":{},"Responses":7,"Table":[],"Tags":{}}',
        of_bucket=b"<ListBucketResult>1</ListBucketResult>",
    ),
    "attribute without a type": partial(
        body,
        of_table=(
            b'{"Item":{"a":{}},"Items":[{"a":{}}],"Responses":{"meta":[{"a":{}}]},"Table":{},'
            b'"Tags":[{}]}'
        ),
        of_bucket=b"<a/>",
    ),
    "another name": partial(body, of_table=b'{"Elephant": 1}', of_bucket=b"<Elephant/>"),
    "not UTF-8": partial(
        body,
        of_table=b'{"Item":{"a":{"S":"\xff\xfe"}}}',
        of_bucket=b"<ListBucketResult>\xff\xfe</ListBucketResult>",
    ),
    "half a surrogate": partial(
        body, of_table=b'{"Item":{"a":{"S":"\\ud800"}}}', of_bucket=b"<a>&#xd800;</a>"
    ),
    "UTF-16": partial(
        body,
        of_table='{"Item":{}}'.encode("utf-16"),
        of_bucket="<ListBucketResult/>".encode("utf-16"),
    ),
    "nested": partial(body, of_table=nested(100_000), of_bucket=DEEP_XML),
    "entities": partial(body, of_table=b"{}{}", of_bucket=BILLION),
    "twice": partial(
        body,
        of_table=b'{"Item":{"a":{"S":"1"}},"Item":{"a":{"S":"2"}}}',
        of_bucket=b"<ListBucketResult/><ListBucketResult/>",
    ),
    "number that is none": partial(
        body,
        of_table=b'{"Item":{"a":{"N":"1e999999999"}},"Count":-1}',
        of_bucket=(
            b"<ListBucketResult><Contents><Key>k</Key><Size>NaN</Size></Contents>"
            b"</ListBucketResult>"
        ),
    ),
    "wrong checksum": lambda at: body(at, b'{"Item":{}}', b"<a/>", "x-amz-crc32: 1"),
    "checksum that is none": lambda at: body(at, b'{"Item":{}}', b"<a/>", "x-amz-crc32: lots"),
    "compressed": lambda at: body(at, bomb(), bomb(), "Content-Encoding: gzip"),
    "error in a success": partial(
        body, of_table=b'{"__type":"InternalServerError"}', of_bucket=ERROR
    ),
    "root alone": partial(body, of_table=b"{}", of_bucket=b"<InitiateMultipartUploadResult/>"),
    "no etag": partial(body, of_table=b"{}", of_bucket=b"<CompleteMultipartUploadResult/>"),
    "copy without an etag": partial(body, of_table=b"{}", of_bucket=b"<CopyObjectResult/>"),
    "part without an etag": partial(body, of_table=b"{}", of_bucket=b"<CopyPartResult/>"),
    "more without a place": partial(
        body,
        of_table=b'{"LastEvaluatedKey":{"a":{"S":"b"}}}',
        of_bucket=(
            b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
            b"</ListMultipartUploadsResult>"
        ),
    ),
    "time that is none": partial(
        body,
        of_table=b"{}",
        of_bucket=b"<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>u</UploadId>"
        b"<Initiated>yesterday</Initiated></Upload></ListMultipartUploadsResult>",
    ),
}
REFUSALS: Mapping[str, bytes] = {
    "text": b"no",
    "nested": nested(100_000),
    "not UTF-8": b'{"__type":"\xff"}',
    "list": b"[]",
    "reasons of another type": b'{"__type":"TransactionCanceledException","CancellationReasons":7}',
    "reasons of another kind": (
        b'{"__type":"TransactionCanceledException","CancellationReasons":["x"]}'
    ),
    "item of another type": b'{"__type":"ConditionalCheckFailedException","Item":"x"}',
    "item without types": b'{"__type":"ConditionalCheckFailedException","Item":{"a":{}}}',
    "XML": DEEP_XML,
    "cut XML": b"<Error><Code>",
}


class Server:
    """Answers every request in the way that is set."""

    def __init__(self) -> None:
        self.how: Misbehaviour = silence
        self.most = 0
        """Bytes that went into a connection for one answer, at most."""

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := (await reader.readuntil(b"\r\n\r\n")).lower():
            if b"expect: 100-continue" in head:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length or 0))
            exchange = Exchange(writer, b"x-amz-target" in head)
            try:
                await self.how(exchange)
            finally:
                self.most = max(self.most, exchange.sent)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are bounded as ever, only that the bounds are lower."""
    monkeypatch.setattr("s3k_async.backends.aws.bounds.MOST", SMALL)
    monkeypatch.setattr("s3k_async.backends.aws.signed_http._TABLE", Bounds(SMALL))
    for module in ("s3_blobs", "s3_wire"):
        monkeypatch.setattr(f"s3k_async.backends.s3.{module}.DOCUMENT", SMALL)
        monkeypatch.setattr(f"s3k_async.backends.s3.{module}.WHOLE", SMALL)


@dataclass
class Hostile:
    """A server, and everything that can be asked of it."""

    server: Server
    calls: Mapping[str, Callable[[], Awaitable[Any]]]

    async def succeeded(self, how: Misbehaviour, but: tuple[str, ...] = ()) -> list[str]:
        """Those calls, all made at once, that ended without an error of ours; another error is
        raised. `but`: calls that may end so."""
        self.server.how = how
        found: list[str] = []

        async def one(name: str) -> None:
            try:
                await self.calls[name]()
            except S3kError:
                return
            found.append(name)

        with anyio.fail_after(HANGS):
            async with asyncio.TaskGroup() as tasks:
                for name in self.calls:
                    tasks.create_task(one(name))
        return [name for name in found if name not in but]


@asynccontextmanager
async def opened(
    dynamo_items: OpenItems, s3_blobs: OpenBlobs, read_timeout: float
) -> AsyncIterator[Hostile]:
    server = Server()
    async with served(server.converse) as place:
        aws = settings(place, read_timeout=read_timeout, max_connections=64)
        async with s3_blobs(aws) as blobs, dynamo_items(aws) as items:
            calls: dict[str, Callable[[], Awaitable[Any]]] = {}
            for name, of_blobs in {**BLOB_WRITES, **BLOB_READS}.items():
                calls[f"data: {name}"] = partial(of_blobs, blobs)
            for name, of_items in {**ITEM_WRITES, **ITEM_READS}.items():
                calls[f"table: {name}"] = partial(of_items, items)
            yield Hostile(server, calls)


@pytest.fixture
async def hostile(dynamo_items: OpenItems, s3_blobs: OpenBlobs) -> AsyncIterator[Hostile]:
    """With time for every answer that ends, so that something else than time ends the calls."""
    async with opened(dynamo_items, s3_blobs, read_timeout=2 * HANGS) as made:
        yield made


@pytest.fixture
async def stuck(dynamo_items: OpenItems, s3_blobs: OpenBlobs) -> AsyncIterator[Hostile]:
    """With little time, since nothing else ends the calls."""
    async with opened(dynamo_items, s3_blobs, read_timeout=0.1) as made:
        yield made


HEADS = ("data: head", "data: now", "data: exists")
"""Requests whose answers have no body."""


async def test_a_server_that_does_not_come_to_an_end(
    stuck: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S3 sends white space while it copies, so what ends those calls is the longest time of any.
    monkeypatch.setattr("s3k_async._core.retry._LONGEST", 0.3)
    for name, how in STUCK.items():
        but = HEADS if name in ("slow body", "slow chunks", "half-closed") else ()
        assert await stuck.succeeded(how, but) == [], name


async def test_an_answer_without_end(hostile: Hostile) -> None:
    for name, how in ENDLESS.items():
        assert await hostile.succeeded(how, () if name == "endless head" else HEADS) == [], name
        assert hostile.server.most < SMALL + IN_FLIGHT, name


async def test_an_answer_that_is_not_http(hostile: Hostile) -> None:
    for name, how in BROKEN.items():
        but = HEADS if name in ("reset", "bad chunk") else ()
        assert await hostile.succeeded(how, but) == [], name


async def test_content_that_no_service_sends(hostile: Hostile) -> None:
    """A value is as good as an error here, as long as it is no acknowledgement."""
    for name, how in CONTENT.items():
        found = await hostile.succeeded(how)
        put = ("data: put", "data: put-large", "data: put-if-absent", "data: put-if-match")
        kept = ("data: put-part", "data: put-part-large") if name == "empty" else ()
        writes = {f"data: {each}" for each in BLOB_WRITES} - {
            *(put if name == "empty" else ()),
            *kept,
        }
        assert writes.isdisjoint(found), (name, found)


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "500 Error", "999 What"])
async def test_refusals_that_no_service_sends(status: str, hostile: Hostile) -> None:
    but = ("data: head", "data: exists") if status.startswith("404") else ()
    for name, content in REFUSALS.items():

        async def refuse(at: Exchange, content: bytes = content) -> None:
            await at.send(at.head(f"Content-Length: {len(content)}", status=status) + content)

        assert await hostile.succeeded(refuse, but) == [], name


@pytest.mark.parametrize("name", ["slow head", "slow body"])
async def test_the_time_of_a_call_covers_all_of_its_attempts(
    name: str, dynamo_items: OpenItems, s3_blobs: OpenBlobs
) -> None:
    """`read_timeout` is far away here, so only the time of the call can end it."""
    policy = RetryPolicy(attempts=100, base=0.0, cap=0.0, deadline=0.5)
    server, all_connected = Server(), asyncio.Barrier(6)

    async def once_all_are_connected(at: Exchange) -> None:
        await all_connected.wait()
        await at.answer(b"{}")

    async with served(server.converse) as place:
        aws = settings(place, read_timeout=10_000.0)
        async with dynamo_items(aws) as items, s3_blobs(aws) as blobs:
            # A call whose time ends before it has a connection raises UnreachableError.
            server.how = once_all_are_connected
            await asyncio.gather(
                *(items.get(KEY) for _ in range(3)), *(blobs.get("key") for _ in range(3))
            )
            server.how = STUCK[name]
            table, data = RetryingItems(items, policy, SYSTEM), RetryingBlobs(blobs, policy, SYSTEM)
            calls: list[tuple[Awaitable[object], type[S3kError]]] = [
                (table.get(KEY), RequestTimeoutError),
                (table.query(KEY.partition), RequestTimeoutError),
                (table.write(PUT), OutcomeUnknownError),
                (data.get("key", 0, 10), RequestTimeoutError),
                (data.list(), RequestTimeoutError),
                (data.put("key", b"x", if_absent=True), OutcomeUnknownError),
            ]
            with anyio.fail_after(HANGS):
                found = await asyncio.gather(*(call for call, _ in calls), return_exceptions=True)
    assert [type(error) for error in found] == [kind for _, kind in calls]


async def test_waiting_for_a_turn_is_not_counted(dynamo_items: OpenItems) -> None:
    """A call that waits for others under the limit has all of its time when its turn comes."""
    policy = RetryPolicy(attempts=1, deadline=30.0)
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(json_answer({}))
        store = RetryingItems(items, policy, SYSTEM, AdaptiveLimit(1))
        assert (
            await asyncio.gather(*(store.get(Key("p", str(each))) for each in range(20)))
            == [None] * 20
        )


@pytest.mark.parametrize("cycle", [1, 2, 3])
async def test_pages_of_a_partition_that_repeat_themselves(
    cycle: int, dynamo_items: OpenItems
) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        for number in range(10):
            last = {"path": {"S": "p"}, "children": {"S": f"k{number % cycle}"}}
            proxy.rule(json_answer({"Items": [], "Count": 0, "LastEvaluatedKey": last}), times=1)

        async def follow() -> None:
            cursor = None
            for _ in range(10):
                cursor = (await items.query("p", cursor=cursor)).next

        with pytest.raises(ServiceError, match="does not end"):
            await follow()


async def test_the_checksum_of_an_answer_that_is_right(dynamo_items: OpenItems) -> None:
    content = json.dumps({"Item": {"path": {"S": "p"}}}).encode()
    answer = json_answer({})
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(
            Answer(200, content, {**answer.headers, "x-amz-crc32": str(zlib.crc32(content))})
        )
        assert await items.get(KEY) == {"path": "p"}
