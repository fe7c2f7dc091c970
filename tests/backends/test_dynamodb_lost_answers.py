"""Writes whose answer is lost on the way, against an engine: applied once, and told truly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count

import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.ports.items import ABSENT, Action, Condition, Delete, Key, Put, Update
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.errors import ConditionFailedError, OutcomeUnknownError, ResponseLostError
from s3k_async.testing import DynamoItems
from tests.backends.aws.places import Adapter, Items
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import CLOSE_AFTER, LOSE_ANSWER, REFUSE, Fault, FaultProxy, dynamodb_error

A, B = Key("p", "a"), Key("p", "b")
_tables = count()


@pytest.fixture
async def proxy(dynamodb: Engine) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(dynamodb.endpoint) as proxy:
        yield proxy


WAYS: dict[str, tuple[Adapter, str]] = {
    "wire+dynamodb_local": (WireItems, "dynamodb_local"),
    "wire+dynoxide": (WireItems, "dynoxide"),
    "reference+dynoxide": (DynamoItems, "dynoxide"),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def dynamodb(way: str, request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.getfixturevalue(WAYS[way][1])
    return engine


@pytest.fixture
async def items(proxy: FaultProxy, dynamodb: Engine, way: str) -> AsyncIterator[Items]:
    aws = replace(dynamodb.aws(), endpoint=proxy.url)
    store = WAYS[way][0](fresh_name("lost"), aws)
    await store.create()
    yield store
    proxy.clear()
    await store.drop()
    await store.close()


@pytest.fixture
def reliable(items: Items) -> RetryingItems:
    return RetryingItems(items, RetryPolicy(attempts=6, base=0.0, cap=0.0), SYSTEM)


def put(key: Key, operation: str, when: Condition = ABSENT, version: int = 1) -> Put:
    return Put({"path": key.partition, "children": key.sort, "op": operation, "ver": version}, when)


FAULTS = pytest.mark.parametrize("fault", [LOSE_ANSWER, CLOSE_AFTER, REFUSE])


async def test_the_bare_adapter_does_not_know(items: Items, proxy: FaultProxy) -> None:
    proxy.rule(LOSE_ANSWER, target="PutItem", times=1)
    with pytest.raises(ResponseLostError):
        await items.write(put(A, "1"))
    assert await items.get(A) == put(A, "1").item


@FAULTS
async def test_put(reliable: RetryingItems, proxy: FaultProxy, fault: Fault) -> None:
    proxy.rule(fault, target="PutItem", times=2)
    await reliable.write(put(A, "1"))
    assert await reliable.get(A) == put(A, "1").item
    assert proxy.count(target="PutItem") == 3


@FAULTS
async def test_update(reliable: RetryingItems, proxy: FaultProxy, fault: Fault) -> None:
    await reliable.write(put(A, "1"))
    proxy.rule(fault, target="UpdateItem", times=1)
    await reliable.write(Update(A, Condition(equals={"ver": 1}), {"ver": 2, "op": "2"}))
    assert await reliable.get(A) == put(A, "2", version=2).item


@FAULTS
async def test_delete(reliable: RetryingItems, proxy: FaultProxy, fault: Fault) -> None:
    await reliable.write(put(A, "1"))
    proxy.rule(fault, target="TransactWriteItems", times=2)
    await reliable.write(Delete(A, Condition(equals={"ver": 1})))
    assert await reliable.get(A) is None


@FAULTS
async def test_transaction(reliable: RetryingItems, proxy: FaultProxy, fault: Fault) -> None:
    await reliable.write(put(A, "1"))
    moved = put(B, "2", version=2)
    rename: list[Action] = [Delete(A, Condition(equals={"ver": 1})), moved]
    proxy.rule(fault, target="TransactWriteItems", times=2)
    await reliable.transact(rename, SYSTEM.uuid())
    assert await reliable.get_many([A, B]) == {B: moved.item}
    sent = {call.body for call in proxy.calls if call.target == "TransactWriteItems"}
    assert len(sent) == 1, "what is sent again is the identical request"


async def test_somebody_elses_item_after_a_lost_answer(
    reliable: RetryingItems, proxy: FaultProxy
) -> None:
    """Ours may have been applied and then replaced, so neither success nor failure may be told."""
    await reliable.write(put(A, "theirs"))
    proxy.rule(REFUSE, target="PutItem", times=1)
    with pytest.raises(OutcomeUnknownError):
        await reliable.write(put(A, "ours"))


async def test_somebody_elses_item_without_one(reliable: RetryingItems, proxy: FaultProxy) -> None:
    await reliable.write(put(A, "theirs"))
    proxy.rule(dynamodb_error("ProvisionedThroughputExceededException"), target="PutItem", times=3)
    with pytest.raises(ConditionFailedError) as caught:
        await reliable.write(put(A, "ours"))
    assert caught.value.current == {0: put(A, "theirs").item}
    assert proxy.count(target="PutItem") == 1 + 4


async def test_reads_are_sent_again(reliable: RetryingItems, proxy: FaultProxy) -> None:
    await reliable.write(put(A, "1"))
    for target in ("GetItem", "Query", "Scan", "BatchGetItem"):
        proxy.rule(REFUSE, target=target, times=1)
        proxy.rule(dynamodb_error("InternalServerError", status=500), target=target, times=1)
        proxy.rule(dynamodb_error("ThrottlingException"), target=target, times=1)
    assert await reliable.get(A) == put(A, "1").item
    assert len((await reliable.query("p")).items) == 1
    assert len((await reliable.scan(0, 1)).items) == 1
    assert set(await reliable.get_many([A, B])) == {A}
