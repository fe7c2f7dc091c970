"""Pages and batches that the service cuts short."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.ports.items import (
    ABSENT,
    Item,
    ItemPage,
    Key,
    Put,
    UnloadedItemsError,
    UnprocessedKeysError,
)
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.config import AwsConfig
from s3k_async.errors import ThrottledError
from s3k_async.testing import DynamoItems
from s3k_async.testing.reference_items import encode_item
from tests.backends.aws.places import Adapter, Items
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import Answer, Call, FaultProxy, Rewrite, json_answer

_tables = count()


@pytest.fixture
async def proxy(dynoxide: Engine) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(dynoxide.endpoint) as proxy:
        yield proxy


@pytest.fixture(params=[DynamoItems, WireItems], ids=["reference", "wire"])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    made: Adapter = request.param
    return made


@pytest.fixture
async def items(proxy: FaultProxy, dynoxide: Engine, adapter: Adapter) -> AsyncIterator[Items]:
    store = adapter(fresh_name("pages"), through(proxy, dynoxide))
    await store.create()
    yield store
    await store.drop()
    await store.close()


def through(proxy: FaultProxy, engine: Engine) -> AwsConfig:
    return replace(engine.aws(), endpoint=proxy.url)


def item(partition: str, sort: str) -> dict[str, str]:
    return {"path": partition, "children": sort}


async def fill(store: Items, partition: str, number: int) -> list[str]:
    names = [f"n{at:03}" for at in range(number)]
    for name in names:
        await store.write(Put(item(partition, name), ABSENT))
    return names


def emptied(answer: Answer) -> Answer:
    """A page whose items were all filtered away by the service."""
    page = json.loads(answer.body)
    last = page["Items"][-1]
    page.update(
        Items=[], Count=0, LastEvaluatedKey={name: last[name] for name in ("path", "children")}
    )
    return json_answer(page)


async def names(store: Items, scan: bool, limit: int | None) -> tuple[list[str], int]:
    cursor: str | None = None
    found: list[Item] = []
    for pages in count(1):
        page: ItemPage
        if scan:
            page = await store.scan(0, 1, cursor=cursor, limit=limit)
        else:
            page = await store.query("p", cursor=cursor, limit=limit)
        found += page.items
        cursor = page.next
        if cursor is None:
            return [str(one["children"]) for one in found], pages
    raise AssertionError("unreachable")


@pytest.mark.parametrize("scan", [False, True])
async def test_p11_an_empty_page_is_not_the_end(
    items: Items, proxy: FaultProxy, scan: bool
) -> None:
    wanted = await fill(items, "p", 12)
    target = "Scan" if scan else "Query"
    proxy.rule(Rewrite(emptied), target=target, skip=1, times=2)
    found, pages = await names(items, scan, 3)
    assert found == wanted[:3] + wanted[9:]
    assert pages >= 4


@pytest.mark.parametrize("scan", [False, True])
async def test_a_page_that_is_empty_at_once_keeps_its_cursor(
    items: Items, proxy: FaultProxy, scan: bool
) -> None:
    wanted = await fill(items, "p", 4)
    proxy.rule(Rewrite(emptied), target="Scan" if scan else "Query", times=1)
    page = await (items.scan(0, 1, limit=1) if scan else items.query("p", limit=1))
    assert list(page.items) == []
    assert page.next is not None
    rest = await (
        items.scan(0, 1, cursor=page.next) if scan else items.query("p", cursor=page.next)
    )
    assert [one["children"] for one in rest.items] == wanted[1:]


async def test_every_read_is_strongly_consistent(items: Items, proxy: FaultProxy) -> None:
    await items.get(Key("p", "s"))
    await items.query("p")
    await items.scan(0, 1)
    await items.get_many([Key("p", "s")])
    reads = [
        call for call in proxy.calls if call.target in ("GetItem", "Query", "Scan", "BatchGetItem")
    ]
    assert len(reads) == 4
    assert all(b'"ConsistentRead":true' in call.body.replace(b" ", b"") for call in reads)


def _keys(call: Call) -> list[dict[str, dict[str, str]]]:
    ((_, asked),) = json.loads(call.body)["RequestItems"].items()
    return list(asked["Keys"])


def leave_out(number: int) -> Rewrite:
    """The service answers all but the last `number` keys of a batch."""

    def change(answer: Answer) -> Answer:
        batch = json.loads(answer.body)
        ((table, found),) = batch["Responses"].items()
        left, batch["Responses"][table] = found[-number:], found[:-number]
        keys = [{name: one[name] for name in ("path", "children")} for one in left]
        batch["UnprocessedKeys"] = {table: {"Keys": keys, "ConsistentRead": True}}
        return json_answer(batch)

    return Rewrite(change)


async def test_batches_hold_a_hundred_keys(items: Items, proxy: FaultProxy) -> None:
    wanted = [Key("p", name) for name in await fill(items, "p", 30)]
    missing = [Key("q", str(at)) for at in range(200)]
    found = await items.get_many([*missing[:150], *wanted, *wanted, *missing[150:]])
    assert found == {key: item(*key) for key in wanted}
    sizes = [len(_keys(call)) for call in proxy.calls if call.target == "BatchGetItem"]
    assert sizes == [100, 100, 30]


async def test_no_keys_are_no_request(items: Items, proxy: FaultProxy) -> None:
    assert await items.get_many([]) == {}
    assert proxy.count(target="BatchGetItem") == 0


async def test_what_a_batch_leaves_out_is_asked_for_again(items: Items, proxy: FaultProxy) -> None:
    wanted = [Key("p", name) for name in await fill(items, "p", 20)]
    proxy.rule(leave_out(8), target="BatchGetItem", times=1)
    proxy.rule(leave_out(3), target="BatchGetItem", times=1)
    reliable = RetryingItems(items, RetryPolicy(attempts=2, base=0.0), SYSTEM)
    assert set(await reliable.get_many(wanted)) == set(wanted)
    sizes = [len(_keys(call)) for call in proxy.calls if call.target == "BatchGetItem"]
    assert sizes == [20, 8, 3]


async def test_a_batch_tells_what_came_and_what_was_left_out(
    items: Items, proxy: FaultProxy
) -> None:
    wanted = [Key("p", name) for name in await fill(items, "p", 20)]
    proxy.rule(leave_out(8), target="BatchGetItem", times=1)
    with pytest.raises(UnprocessedKeysError) as caught:
        await items.get_many(wanted)
    assert len(caught.value.found) == 12
    assert {*caught.value.found, *caught.value.left} == set(wanted)
    assert proxy.count(target="BatchGetItem") == 1


async def test_a_batch_without_progress_is_throttling(items: Items, proxy: FaultProxy) -> None:
    wanted = [Key("p", name) for name in await fill(items, "p", 3)]
    proxy.rule(leave_out(3), target="BatchGetItem")
    with pytest.raises(ThrottledError):
        await items.get_many(wanted)
    assert proxy.count(target="BatchGetItem") == 1


async def test_what_a_load_leaves_out_is_sent_again(items: Items, proxy: FaultProxy) -> None:
    wanted = [item("p", f"{number:02}") for number in range(20)]
    table = items._name
    puts = [{"PutRequest": {"Item": encode_item(one)}} for one in wanted]
    for left in (8, 3):
        proxy.rule(
            Rewrite(lambda _, left=left: _unprocessed(table, puts[-left:])),  # type: ignore[misc]
            target="BatchWriteItem",
            times=1,
        )
    reliable = RetryingItems(items, RetryPolicy(attempts=2, base=0.0), SYSTEM)
    with reliable.loading(lambda: None):
        await reliable.load(wanted)
    assert [len(_puts(call)) for call in proxy.calls if call.target == "BatchWriteItem"] == [
        20,
        8,
        3,
    ]
    assert (await items.query("p")).items == wanted


async def test_a_load_tells_what_was_left_out(items: Items, proxy: FaultProxy) -> None:
    wanted = [item("p", f"{number:02}") for number in range(5)]
    puts = [{"PutRequest": {"Item": encode_item(one)}} for one in wanted]
    proxy.rule(
        Rewrite(lambda _: _unprocessed(items._name, puts[:2])), target="BatchWriteItem", times=1
    )
    with pytest.raises(UnloadedItemsError) as caught:
        await items.load(wanted)
    assert caught.value.left == wanted[:2]


async def test_a_load_without_progress_is_throttling(items: Items, proxy: FaultProxy) -> None:
    wanted = [item("p", f"{number:02}") for number in range(3)]
    puts = [{"PutRequest": {"Item": encode_item(one)}} for one in wanted]
    proxy.rule(Rewrite(lambda _: _unprocessed(items._name, puts)), target="BatchWriteItem")
    reliable = RetryingItems(items, RetryPolicy(attempts=3, base=0.0), SYSTEM)
    with reliable.loading(lambda: None), pytest.raises(ThrottledError) as caught:
        await reliable.load(wanted)
    assert type(caught.value) is ThrottledError
    assert proxy.count(target="BatchWriteItem") == 3


def _unprocessed(table: str, puts: list[dict[str, Any]]) -> Answer:
    return json_answer({"UnprocessedItems": {table: puts}})


def _puts(call: Call) -> list[Any]:
    ((_, puts),) = json.loads(call.body)["RequestItems"].items()
    return list(puts)


async def test_a_cursor_serves_another_client(
    items: Items, proxy: FaultProxy, dynoxide: Engine
) -> None:
    wanted = await fill(items, "p", 5)
    page = await items.query("p", limit=2)
    other = DynamoItems(items._name, through(proxy, dynoxide))
    rest = await other.query("p", cursor=page.next)
    await other.close()
    assert [one["children"] for one in rest.items] == wanted[2:]
