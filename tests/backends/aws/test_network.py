"""Connections that fail, break and hang: what can have been applied, and that it takes bounded
time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import anyio
import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.ports.items import ABSENT, Key, Put
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.errors import (
    BlobExistsError,
    ConditionFailedError,
    ConfigError,
    OutcomeUnknownError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    UnreachableError,
)
from tests.backends.aws.places import Items, OpenBlobs, OpenItems, settings
from tests.proxy import (
    CLOSE_AFTER,
    CLOSE_BEFORE,
    LOSE_ANSWER,
    REFUSE,
    Answer,
    Delay,
    Fault,
    FaultProxy,
    Truncate,
    dynamodb_error,
    json_answer,
    s3_error,
    served,
    xml_answer,
)

KEY = Key("ks://v/-sf0", "name")
PUT = Put({"path": KEY.partition, "children": KEY.sort, "op": "ours"}, ABSENT)
OURS = {"path": {"S": KEY.partition}, "children": {"S": KEY.sort}, "op": {"S": "ours"}}
FAST = RetryPolicy(attempts=5, base=0.0, cap=0.0)
BOUND = 20.0
"""Seconds after which a call that should have failed has hung."""


async def outcome(call: Awaitable[Any]) -> type[S3kError]:
    with anyio.fail_after(BOUND), pytest.raises(S3kError) as caught:
        await call
    return type(caught.value)


class Stores(Protocol):
    def __call__(
        self, endpoint: str, **more: object
    ) -> AbstractAsyncContextManager[tuple[Items, S3Blobs]]: ...


@pytest.fixture
def stores(dynamo_items: OpenItems, s3_blobs: OpenBlobs) -> Stores:
    @asynccontextmanager
    async def both(endpoint: str, **more: object) -> AsyncIterator[tuple[Items, S3Blobs]]:
        aws = settings(endpoint, **more)
        async with dynamo_items(aws) as items, s3_blobs(aws) as blobs:
            yield items, blobs

    return both


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A listener whose queue is full, so that nobody is let in: connecting takes for ever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        try:
            for _ in range(4):
                guest = socket.socket()
                guest.setblocking(False)
                guest.connect_ex(listener.getsockname())
                waiting.append(guest)
            yield int(listener.getsockname()[1])
        finally:
            for guest in waiting:
                guest.close()


async def test_nobody_listens(closed_port: int, stores: Stores) -> None:
    async with stores(f"http://127.0.0.1:{closed_port}") as (items, blobs):
        for call in (
            items.get(KEY),
            items.write(PUT),
            items.exists(),
            blobs.get("k"),
            blobs.put("k", b"1"),
        ):
            assert await outcome(call) is UnreachableError


async def test_a_host_that_does_not_exist(stores: Stores) -> None:
    async with stores("http://nowhere.invalid:80") as (items, blobs):
        assert await outcome(items.write(PUT)) is UnreachableError
        assert await outcome(blobs.put("k", b"1")) is UnreachableError


async def test_connecting_that_takes_for_ever(deaf_port: int, stores: Stores) -> None:
    async with stores(f"http://127.0.0.1:{deaf_port}", connect_timeout=0.3) as (items, blobs):
        assert await outcome(items.write(PUT)) is UnreachableError
        assert await outcome(blobs.get("k")) is UnreachableError


async def test_the_message_names_the_address(closed_port: int, stores: Stores) -> None:
    async with stores(f"http://127.0.0.1:{closed_port}") as (items, _):
        with pytest.raises(UnreachableError, match=f"no connection to 127.0.0.1:{closed_port}"):
            await items.get(KEY)


async def test_tls_with_one_who_speaks_none(stores: Stores) -> None:
    async def answer_in_clear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with (
        served(answer_in_clear) as place,
        stores(place.replace("http:", "https:")) as (items, blobs),
    ):
        assert await outcome(items.write(PUT)) is UnreachableError
        assert await outcome(blobs.put("k", b"1")) is UnreachableError


async def test_a_certificate_bundle_that_is_missing(closed_port: int, stores: Stores) -> None:
    async with stores(f"https://127.0.0.1:{closed_port}", ca_bundle="/nowhere/ca.pem") as (
        items,
        _,
    ):
        assert await outcome(items.get(KEY)) is ConfigError


async def test_an_answer_that_does_not_come(stores: Stores) -> None:
    async with FaultProxy() as proxy, stores(proxy.url, read_timeout=0.3) as (items, blobs):
        proxy.rule(Delay(60.0))
        assert await outcome(items.get(KEY)) is RequestTimeoutError
        assert await outcome(items.query("p")) is RequestTimeoutError
        assert await outcome(blobs.get("k")) is RequestTimeoutError
        assert await outcome(items.write(PUT)) is ResponseLostError
        assert await outcome(items.transact([PUT], "t")) is ResponseLostError
        assert await outcome(blobs.put("k", b"1")) is ResponseLostError


@pytest.mark.parametrize("fault", [REFUSE, CLOSE_BEFORE, LOSE_ANSWER, CLOSE_AFTER])
async def test_a_connection_that_ends_without_an_answer(fault: Fault, stores: Stores) -> None:
    async with FaultProxy() as proxy, stores(proxy.url) as (items, blobs):
        proxy.rule(json_answer({}), target="GetItem", times=1)
        await items.get(KEY)
        proxy.rule(fault)
        calls: list[Awaitable[Any]] = [items.get(KEY), items.write(PUT), items.transact([PUT], "t")]
        calls += [blobs.get("k"), blobs.head("k"), blobs.put("k", b"1"), blobs.delete("k")]
        for call in calls:
            assert await outcome(call) is ResponseLostError


@pytest.mark.parametrize("fault", [REFUSE, CLOSE_AFTER])
@pytest.mark.parametrize("warm", [False, True])
async def test_nothing_below_sends_a_put_again(fault: Fault, warm: bool, stores: Stores) -> None:
    """aiohttp would; its second attempt could then meet what its first one stored."""
    async with FaultProxy() as proxy, stores(proxy.url) as (_, blobs):
        proxy.rule(Answer(200, headers={"ETag": '"e"'}), times=int(warm))
        if warm:
            await blobs.put("before", b"1")
        proxy.rule(fault)
        before = len(proxy.calls)
        assert await outcome(blobs.put("k", b"1", if_absent=True)) is ResponseLostError
        assert len(proxy.calls) == before + 1


@pytest.mark.parametrize("announce", [False, True])
async def test_half_an_answer(announce: bool, stores: Stores) -> None:
    item = json_answer({"Item": OURS})
    listing = xml_answer(
        "<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>"
    )
    async with (
        FaultProxy() as behind,
        FaultProxy(behind.url) as proxy,
        stores(proxy.url) as (items, blobs),
    ):
        behind.rule(item, target="GetItem")
        behind.rule(listing, query="list-type")
        proxy.rule(Truncate(20, announce=announce))
        assert await outcome(items.get(KEY)) is ResponseLostError
        assert await outcome(blobs.list()) is ResponseLostError


async def test_half_a_blob(stores: Stores) -> None:
    async with (
        FaultProxy() as behind,
        FaultProxy(behind.url) as proxy,
        stores(proxy.url) as (_, blobs),
    ):
        behind.rule(Answer(200, b"x" * 100_000, {"ETag": '"e"'}))
        proxy.rule(Truncate(50_000), times=1)
        assert await outcome(blobs.get("k")) is ResponseLostError
        assert await blobs.get("k") == b"x" * 100_000


async def test_an_answer_whose_checksum_is_wrong(stores: Stores) -> None:
    good = json_answer({"Item": OURS})
    async with FaultProxy() as proxy, stores(proxy.url) as (items, _):
        proxy.rule(Answer(200, good.body, {**good.headers, "x-amz-crc32": "1"}))
        assert await outcome(items.get(KEY)) is ResponseLostError
        assert len(proxy.calls) == 1


async def test_a_put_whose_answer_was_lost_is_resolved_by_its_operation(stores: Stores) -> None:
    async with FaultProxy() as proxy, stores(proxy.url) as (items, _):
        proxy.rule(LOSE_ANSWER, target="PutItem", times=1)
        proxy.rule(dynamodb_error("ConditionalCheckFailedException", Item=OURS), target="PutItem")
        await RetryingItems(items, FAST, SYSTEM).write(PUT)
        assert proxy.count(target="PutItem") == 2


@pytest.mark.parametrize("adapter", [WireItems])
async def test_a_service_that_keeps_answering_with_an_internal_error_is_named(
    stores: Stores,
) -> None:
    policy = RetryPolicy(attempts=4, base=0.0, cap=0.0)
    async with FaultProxy() as proxy, stores(proxy.url) as (items, blobs):
        proxy.rule(
            dynamodb_error("InternalServerError", "race", status=500),
            when=lambda call: bool(call.target),
        )
        proxy.rule(s3_error("InternalError", "race", status=500))
        table, data = RetryingItems(items, policy, SYSTEM), RetryingBlobs(blobs, policy, SYSTEM)
        host = proxy.url.removeprefix("http://")
        for call, kind, code in (
            (table.transact([PUT], "token"), OutcomeUnknownError, "500 InternalServerError"),
            (table.write(PUT), OutcomeUnknownError, "500 InternalServerError"),
            (table.get(KEY), RequestTimeoutError, "500 InternalServerError"),
            (data.get("k"), RequestTimeoutError, "500 InternalError"),
            (data.put("k", b"1"), RequestTimeoutError, "500 InternalError"),
        ):
            with pytest.raises(kind, match=rf"4 attempts over [0-9.]+ s.*{host} answered {code}"):
                await call


async def test_a_condition_that_failed_without_a_lost_answer_is_a_failure(stores: Stores) -> None:
    async with FaultProxy() as proxy, stores(proxy.url) as (items, _):
        proxy.rule(dynamodb_error("ThrottlingException"), target="PutItem", times=3)
        proxy.rule(dynamodb_error("ConditionalCheckFailedException", Item=OURS), target="PutItem")
        assert await outcome(RetryingItems(items, FAST, SYSTEM).write(PUT)) is ConditionFailedError
        assert proxy.count(target="PutItem") == 4


async def test_a_blob_that_a_lost_request_had_stored_is_ours(stores: Stores) -> None:
    async with FaultProxy() as proxy, stores(proxy.url) as (_, blobs):
        stored = Answer(200, b"1", {"ETag": '"e"'})
        proxy.rule(LOSE_ANSWER, method="PUT", times=1)
        proxy.rule(Answer(412), method="PUT")
        proxy.rule(stored, method="HEAD")
        proxy.rule(stored, method="GET")
        reliable = RetryingBlobs(blobs, FAST, SYSTEM)
        assert (await reliable.put("k", b"1", if_absent=True)).etag == "e"
        assert await outcome(reliable.put("k", b"1", if_absent=True)) is BlobExistsError


async def test_a_large_put_that_is_refused_before_it_is_sent(stores: Stores) -> None:
    """A service may refuse on the head of the request alone, without asking for the body (100
    Continue)."""
    bodies = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal bodies
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")
        bodies += len(await reader.read(1))

    async with served(refuse) as place, stores(place) as (_, blobs):
        for _ in range(2):
            assert (
                await outcome(blobs.put("k", bytes(3 * 1024 * 1024), if_absent=True))
                is BlobExistsError
            )
    assert bodies == 0


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@asynccontextmanager
async def standing_still(after: bytes) -> AsyncIterator[str]:
    """A service that reads the head of a request, says `after` and neither reads nor says any
    more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(after)
        await asyncio.Event().wait()

    async with served(serve) as place:
        yield place


async def test_nobody_says_whether_a_large_body_is_wanted(stores: Stores) -> None:
    async with standing_still(b"") as place, stores(place, read_timeout=0.3) as (_, blobs):
        assert await outcome(blobs.put("k", bytes(3 * 1024 * 1024))) is ResponseLostError


@pytest.mark.parametrize("adapter", [WireItems])
async def test_a_large_body_that_is_wanted_and_not_taken(stores: Stores) -> None:
    async with standing_still(CONTINUE) as place, stores(place, read_timeout=0.3) as (_, blobs):
        assert await outcome(blobs.put("k", bytes(32 * 1024 * 1024))) is ResponseLostError


@pytest.mark.parametrize("adapter", [WireItems])
async def test_an_informational_answer_and_nothing_more(stores: Stores) -> None:
    async with standing_still(CONTINUE) as place, stores(place, read_timeout=0.3) as (items, _):
        assert await outcome(items.get(KEY)) is RequestTimeoutError
        assert await outcome(items.write(PUT)) is ResponseLostError
