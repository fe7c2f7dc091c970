"""The items adapter over the wire: which answers it believes."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Key, Put, Update, Value
from s3k_async.errors import ConditionFailedError, ResponseLostError, S3kError, ThrottledError
from tests.backends.aws.places import settings
from tests.proxy import Answer, FaultProxy, dynamodb_error, json_answer

KEY = Key("ks://v/-sf0", "name")
STORED = {"path": {"S": KEY.partition}, "children": {"S": KEY.sort}, "ver": {"N": "7"}}
DECODED: dict[str, Value] = {"path": KEY.partition, "children": KEY.sort, "ver": 7}
PUT = Put(DECODED, ABSENT)

Call = Callable[[WireItems], Awaitable[Any]]
READS: dict[str, tuple[Call, dict[str, Any]]] = {
    "get": (lambda items: items.get(KEY), {"Item": STORED}),
    "get_many": (
        lambda items: items.get_many([KEY]),
        {"Responses": {"table": [STORED]}, "UnprocessedKeys": {}},
    ),
    "query": (
        lambda items: items.query(KEY.partition),
        {"Items": [STORED], "Count": 1, "ScannedCount": 1},
    ),
    "scan": (lambda items: items.scan(0, 1), {"Items": [STORED], "Count": 1, "ScannedCount": 1}),
}
WRITES: dict[str, tuple[Call, dict[str, Any]]] = {
    "put": (lambda items: items.write(PUT), {}),
    "update": (lambda items: items.write(Update(KEY, Condition(), {"a": 1})), {}),
    "delete": (
        lambda items: items.write(Delete(KEY, Condition())),
        {"ConsumedCapacity": {"CapacityUnits": 1.0}},
    ),
    "load": (lambda items: items.load([DECODED]), {"UnprocessedItems": {}}),
    "transact": (lambda items: items.transact([PUT], "token"), {}),
}
CALLS = READS | WRITES


@pytest.fixture
async def service() -> AsyncIterator[FaultProxy]:
    async with FaultProxy() as proxy:
        yield proxy


@pytest.fixture
async def items(service: FaultProxy) -> AsyncIterator[WireItems]:
    store = WireItems("table", settings(service.url))
    yield store
    await store.close()


def told(answer: Answer, checksum: object) -> Answer:
    """The answer with what the service announces of its body."""
    return Answer(answer.status, answer.body, {**answer.headers, "x-amz-crc32": str(checksum)})


@pytest.mark.parametrize("name", CALLS)
async def test_an_answer_with_its_checksum(
    items: WireItems, service: FaultProxy, name: str
) -> None:
    call, body = CALLS[name]
    good = json_answer(body)
    service.rule(told(good, zlib.crc32(good.body)))
    found = await call(items)
    expected = {
        "get": DECODED,
        "get_many": {KEY: DECODED},
        "query": [DECODED],
        "scan": [DECODED],
    }.get(name)
    assert getattr(found, "items", found) == expected or found == expected


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("checksum", [1, "", "abc", "-1", 2**32, "1.5"])
async def test_an_answer_with_another_checksum(
    items: WireItems, service: FaultProxy, name: str, checksum: object
) -> None:
    call, body = CALLS[name]
    service.rule(told(json_answer(body), checksum))
    with pytest.raises(ResponseLostError) as caught:
        await call(items)
    assert (caught.value.path or "").startswith("table")
    assert len(service.calls) == 1


@pytest.mark.parametrize("name", CALLS)
async def test_a_refusal_with_another_checksum(
    items: WireItems, service: FaultProxy, name: str
) -> None:
    """What it says cannot be believed either; a condition may have held."""
    service.rule(told(dynamodb_error("ConditionalCheckFailedException", Item=STORED), 1))
    with pytest.raises(ResponseLostError):
        await CALLS[name][0](items)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"<html></html>",
        b'{"Item":',
        b'{"Items":[{"path":{"S":"a"}}',
        b"\xff{}",
    ],
)
async def test_an_answer_that_is_no_object(
    items: WireItems, service: FaultProxy, name: str, body: bytes
) -> None:
    service.rule(Answer(200, body))
    with pytest.raises(ResponseLostError) as caught:
        await CALLS[name][0](items)
    assert (caught.value.path or "").startswith("table")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (202, ResponseLostError),
        (500, ResponseLostError),
        (503, ResponseLostError),
        (429, ThrottledError),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"__type":"SomethingNew"}'])
async def test_a_refusal_that_names_no_code(
    items: WireItems, service: FaultProxy, status: int, expected: type[S3kError], body: bytes
) -> None:
    service.rule(Answer(status, body))
    for call, _ in CALLS.values():
        with pytest.raises(S3kError) as caught:
            await call(items)
        assert type(caught.value) is expected


async def test_the_code_may_come_last_and_without_a_space(
    items: WireItems, service: FaultProxy
) -> None:
    body = {"message": "no", "Item": {**STORED, "text": {"S": '"__type":"ThrottlingException"'}}}
    for code in (
        "ConditionalCheckFailedException",
        "x#ConditionalCheckFailedException:http://somewhere/",
    ):
        service.clear()
        service.rule(Answer(400, json.dumps({**body, "__type": code}).encode()))
        with pytest.raises(ConditionFailedError) as caught:
            await items.write(PUT)
        assert caught.value.current == {0: {**DECODED, "text": '"__type":"ThrottlingException"'}}
