"""The item port: the table as a thing that is made, marked and dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.items import ABSENT, Check, Condition, Delete, Put, Update
from s3k_async.config import DynamoTable
from s3k_async.errors import NotAVolumeError, UnsupportedError, VolumeNotFoundError
from tests.contracts.subjects import (
    DYNAMO,
    PARTITION,
    Items,
    OpenItems,
    check_space,
    key,
    params,
    row,
    token,
)
from tests.engines.process import Engine
from tests.engines.volumes import closing_client, fresh_table

NO_TAGS = {"dynamodb_local": "DynamoDB Local has no TagResource"}


async def test_create_and_exists(open_items: OpenItems) -> None:
    table = await open_items()
    assert await table.exists() is False
    assert await table.create() is True
    assert await table.exists() is True
    assert await table.create() is False
    other = await open_items()
    assert await other.exists() is True
    assert await other.create() is False


async def test_the_space_of_the_storage(items: Items, item_store: str) -> None:
    check_space(await items.space(), item_store)


async def test_creating_again_keeps_what_is_there(items: Items, open_items: OpenItems) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    other = await open_items()
    assert await other.create() is False
    assert await other.get(key("file")) == row("file", ver=1)


async def test_of_many_creations_one_makes_the_table(open_items: OpenItems) -> None:
    tables = [await open_items() for _ in range(6)]

    async def create(number: int) -> bool:
        made = await tables[number].create()
        await tables[number].write(
            Put(row(f"{number}", ver=1), ABSENT)
        )  # usable as soon as create returns
        return made

    made = await gather(create, range(6), limit=6)
    assert sorted(made) == [False] * 5 + [True]
    assert len((await tables[0].query(PARTITION)).items) == 6


async def test_drop(items: Items, open_items: OpenItems) -> None:
    other = await open_items()
    await items.write(Put(row("file", ver=1), ABSENT))
    assert await other.get(key("file")) == row("file", ver=1)
    await items.drop()
    assert await items.exists() is False
    assert await other.exists() is False
    await items.drop()
    await other.drop()


async def test_a_table_made_again_is_empty(items: Items) -> None:
    await items.write(Put(row("file", ver=1), ABSENT))
    await items.drop()
    assert await items.create() is True
    assert await items.get(key("file")) is None
    assert (await items.query(PARTITION)).items == []


REQUESTS: dict[str, Callable[[Items], Awaitable[object]]] = {
    "get": lambda items: items.get(key("file")),
    "get_many": lambda items: items.get_many([key("file"), key("other")]),
    "put": lambda items: items.write(Put(row("file", ver=1), ABSENT)),
    "update": lambda items: items.write(Update(key("file"), Condition(), set={"ver": 1})),
    "delete": lambda items: items.write(Delete(key("file"), Condition())),
    "load": lambda items: items.load([row("file", ver=1)]),
    "transact": lambda items: items.transact(
        [Put(row("file", ver=1), ABSENT), Check(key("b"), ABSENT)], token()
    ),
    "query": lambda items: items.query(PARTITION),
    "scan": lambda items: items.scan(0, 1),
}


@pytest.mark.parametrize("request_name", REQUESTS)
async def test_without_a_table_every_request_says_so(
    open_items: OpenItems, request_name: str
) -> None:
    table = await open_items()
    with pytest.raises(VolumeNotFoundError):
        await REQUESTS[request_name](table)
    assert await table.exists() is False


async def test_after_a_drop_every_request_says_so(items: Items, open_items: OpenItems) -> None:
    other = await open_items()
    await other.write(Put(row("file", ver=1), ABSENT))
    await items.drop()
    for request in REQUESTS.values():
        with pytest.raises(VolumeNotFoundError):
            await request(other)
    assert await other.exists() is False


# Tags


async def test_tags(items: Items, open_items: OpenItems, item_store: str) -> None:
    if item_store in NO_TAGS:
        with pytest.raises(UnsupportedError):
            await items.write_tag("s3k:volume", "value")
        with pytest.raises(UnsupportedError):
            await items.read_tag("s3k:volume")
        return
    assert await items.read_tag("s3k:volume") is None
    await items.write_tag("s3k:volume", "v=1 n=10 h=xxh3")
    await items.write_tag("another", "one")
    assert await items.read_tag("s3k:volume") == "v=1 n=10 h=xxh3"
    other = await open_items()
    assert await other.read_tag("s3k:volume") == "v=1 n=10 h=xxh3"
    await other.write_tag("s3k:volume", "x" * 256)
    assert await items.read_tag("s3k:volume") == "x" * 256
    assert await items.read_tag("another") == "one"
    assert await items.read_tag("nothing") is None


async def test_tags_are_no_items_and_go_with_the_table(items: Items, item_store: str) -> None:
    if item_store in NO_TAGS:
        with pytest.raises(UnsupportedError):
            await items.write_tag("s3k:volume", "value")
        return
    await items.write_tag("s3k:volume", "value")
    assert (await items.scan(0, 1)).items == []
    await items.drop()
    assert await items.create() is True
    assert await items.read_tag("s3k:volume") is None


# DynamoDB only: tables and items that others made


@pytest.fixture(params=params(DYNAMO))
async def foreign(
    request: pytest.FixtureRequest,
) -> AsyncIterator[tuple[Items, DynamoTable, Engine]]:
    from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
    from s3k_async.testing import DynamoItems

    engine: Engine = request.getfixturevalue(DYNAMO[request.param])
    with fresh_table(engine) as table:
        store = (
            DynamoItems(table.name, table.aws)
            if request.param == "reference"
            else WireItems(table.name, table.aws)
        )
        yield store, table, engine
        await store.close()


SCHEMAS = {
    "other names": [("path", "S", "HASH"), ("name", "S", "RANGE")],
    "no sort key": [("path", "S", "HASH")],
    "swapped": [("children", "S", "HASH"), ("path", "S", "RANGE")],
    "numbers": [("path", "S", "HASH"), ("children", "N", "RANGE")],
}


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_a_table_with_another_key_schema(
    foreign: tuple[Items, DynamoTable, Engine], schema: str
) -> None:
    store, table, engine = foreign
    with closing_client(engine, "dynamodb") as client:
        client.create_table(
            TableName=table.name,
            KeySchema=[
                {"AttributeName": name, "KeyType": role} for name, _, role in SCHEMAS[schema]
            ],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": kind} for name, kind, _ in SCHEMAS[schema]
            ],
            BillingMode="PAY_PER_REQUEST",
        )
    with pytest.raises(NotAVolumeError):
        await store.create()
    with pytest.raises(NotAVolumeError):
        await store.exists()


async def test_attributes_of_foreign_types_read_as_text(
    foreign: tuple[Items, DynamoTable, Engine],
) -> None:
    store, table, engine = foreign
    await store.create()
    odd = {
        "fraction": {"N": "1.5"},
        "bytes": {"B": b"\x00\xff"},
        "texts": {"SS": ["a", "b"]},
        "list": {"L": [{"S": "a"}, {"N": "1"}]},
        "map": {"M": {"k": {"BOOL": True}}},
        "null": {"NULL": True},
    }
    plain = {
        "path": {"S": PARTITION},
        "children": {"S": "file"},
        "ver": {"N": "3"},
        "isdir": {"BOOL": False},
    }
    with closing_client(engine, "dynamodb") as client:
        client.put_item(TableName=table.name, Item={**plain, **odd})
    item = await store.get(key("file"))
    assert item is not None
    assert {name: item[name] for name in plain} == row("file", ver=3, isdir=False)
    assert set(item) == {*plain, *odd}
    assert all(isinstance(item[name], str) for name in odd)
    assert "1.5" in str(item["fraction"])
    assert (await store.query(PARTITION)).items == [item]
    assert await store.get_many([key("file")]) == {key("file"): item}
    await store.write(Update(key("file"), Condition(equals={"ver": 3}), set={"ver": 4}))
    with closing_client(engine, "dynamodb") as client:
        kept = client.get_item(
            TableName=table.name, Key={name: plain[name] for name in ("path", "children")}
        )["Item"]
    assert {name: kept[name] for name in odd} == odd
