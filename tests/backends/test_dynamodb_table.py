"""The table as a thing: made, waited for, recognised, tagged, dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count

import pytest

from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import (
    CredentialsError,
    NotAVolumeError,
    PermissionDeniedError,
    RequestTimeoutError,
    S3kError,
    UnsupportedError,
    VolumeNotFoundError,
)
from s3k_async.testing import DynamoItems
from tests.engines.process import PATIENCE, Engine
from tests.engines.volumes import fresh_name
from tests.proxy import Answer, FaultProxy, Rewrite, dynamodb_error, json_answer
from tests.support import FakeClock, fake_runtime

_tables = count()
ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/meta"
HASH = {"AttributeName": "path", "KeyType": "HASH"}
RANGE = {"AttributeName": "children", "KeyType": "RANGE"}


def table(
    status: str = "ACTIVE",
    keys: list[dict[str, str]] | None = None,
    kind: str = "S",
    identity: str | None = None,
) -> Answer:
    keys = keys or [HASH, RANGE]
    kinds = [{"AttributeName": key["AttributeName"], "AttributeType": kind} for key in keys]
    described: dict[str, object] = {
        "TableStatus": status,
        "TableArn": ARN,
        "KeySchema": keys,
        "AttributeDefinitions": kinds,
    }
    if identity is not None:
        described["TableId"] = identity
    return json_answer({"Table": described})


NO_TABLE = dynamodb_error(
    "ResourceNotFoundException", "Requested resource not found: Table: meta not found"
)
IN_USE = dynamodb_error("ResourceInUseException", "Table already exists: meta")


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with FaultProxy() as proxy:
        yield proxy


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def items(proxy: FaultProxy, clock: FakeClock) -> AsyncIterator[DynamoItems]:
    aws = AwsConfig(
        endpoint=proxy.url,
        access_key_id=Secret("a"),
        secret_access_key=Secret("b"),
        connect_timeout=PATIENCE,
        read_timeout=PATIENCE,
    )
    store = DynamoItems("meta", aws, runtime=fake_runtime(clock))
    yield store
    await store.close()


async def test_create_waits_until_the_table_can_be_used(
    items: DynamoItems, proxy: FaultProxy, clock: FakeClock
) -> None:
    proxy.rule(NO_TABLE, target="DescribeTable", times=1)
    proxy.rule(json_answer({"TableDescription": {}}), target="CreateTable")
    proxy.rule(table("CREATING"), target="DescribeTable", times=5)
    proxy.rule(table(), target="DescribeTable")
    assert await items.create() is True
    assert proxy.count(target="CreateTable") == 1
    assert len(clock.sleeps) == 5
    (request,) = (call.body for call in proxy.calls if call.target == "CreateTable")
    assert b'"BillingMode": "PAY_PER_REQUEST"' in request


async def test_a_table_that_somebody_else_is_making(items: DynamoItems, proxy: FaultProxy) -> None:
    proxy.rule(NO_TABLE, target="DescribeTable", times=1)
    proxy.rule(IN_USE, target="CreateTable")
    proxy.rule(table("CREATING"), target="DescribeTable", times=2)
    proxy.rule(table(), target="DescribeTable")
    assert await items.create() is False


async def test_a_table_that_is_going_away_is_made_anew(
    items: DynamoItems, proxy: FaultProxy
) -> None:
    proxy.rule(table("DELETING"), target="DescribeTable", times=2)
    proxy.rule(NO_TABLE, target="DescribeTable", times=1)
    proxy.rule(json_answer({"TableDescription": {}}), target="CreateTable")
    proxy.rule(table(), target="DescribeTable")
    assert await items.create() is True


async def test_waiting_ends(items: DynamoItems, proxy: FaultProxy, clock: FakeClock) -> None:
    proxy.rule(table("CREATING"))
    for call in (items.create, items.drop):
        with pytest.raises(RequestTimeoutError):
            await call()
    assert sum(clock.sleeps) < 600


@pytest.mark.parametrize(
    "foreign",
    [
        table(keys=[HASH]),
        table(keys=[{**HASH, "AttributeName": "parent"}, {**RANGE, "AttributeName": "child"}]),
        table(keys=[{**HASH, "AttributeName": "children"}, {**RANGE, "AttributeName": "path"}]),
        table(kind="B"),
    ],
)
async def test_a_table_with_other_keys(
    items: DynamoItems, proxy: FaultProxy, foreign: Answer
) -> None:
    proxy.rule(foreign, target="DescribeTable")
    for call in (items.create, items.exists):
        with pytest.raises(NotAVolumeError) as caught:
            await call()
        assert caught.value.path == "meta"
    assert proxy.count(target="CreateTable") == 0


async def test_existence(items: DynamoItems, proxy: FaultProxy) -> None:
    proxy.rule(NO_TABLE, times=1)
    proxy.rule(table("DELETING"), times=1)
    proxy.rule(table("UPDATING"), times=1)
    assert [await items.exists() for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("status", ["CREATING", "ACTIVE"])
async def test_the_next_table_of_the_name_is_not_dropped(
    items: DynamoItems, proxy: FaultProxy, status: str, fails: bool
) -> None:
    """The first one goes between two looks, and another client creates the next volume there."""
    proxy.rule(table(identity="first"), target="DescribeTable", times=1)
    proxy.rule(json_answer({"TableDescription": {}}), target="DeleteTable")
    proxy.rule(table("DELETING"), target="DescribeTable", times=1)
    if fails:
        denied = dynamodb_error("AccessDeniedException", "not authorized")
        proxy.rule(denied, target="DescribeTable", times=1)
    proxy.rule(table(status, identity="next"), target="DescribeTable")
    if fails:
        with pytest.raises(PermissionDeniedError):
            await items.drop()
    await items.drop()
    assert proxy.count(target="DeleteTable") == 1


async def test_drop_waits_until_the_table_is_gone(items: DynamoItems, proxy: FaultProxy) -> None:
    proxy.rule(table(), target="DescribeTable", times=1)
    proxy.rule(IN_USE, target="DeleteTable", times=1)
    proxy.rule(table(), target="DescribeTable", times=1)
    proxy.rule(json_answer({"TableDescription": {}}), target="DeleteTable")
    proxy.rule(table("DELETING"), target="DescribeTable", times=2)
    proxy.rule(NO_TABLE, target="DescribeTable")
    await items.drop()
    assert proxy.count(target="DeleteTable") == 2
    await items.drop()
    assert proxy.count(target="DeleteTable") == 2


async def test_a_tag_on_a_later_page(items: DynamoItems, proxy: FaultProxy) -> None:
    proxy.rule(table(), target="DescribeTable")
    first = {"Tags": [{"Key": "team", "Value": "data"}], "NextToken": "more"}
    proxy.rule(
        json_answer(first),
        target="ListTagsOfResource",
        when=lambda call: b"NextToken" not in call.body,
    )
    proxy.rule(json_answer({"Tags": [{"Key": "s3k", "Value": "v1"}]}), target="ListTagsOfResource")
    assert await items.read_tag("s3k") == "v1"
    assert await items.read_tag("other") is None
    assert proxy.count(target="DescribeTable") == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (dynamodb_error("UnknownOperationException"), UnsupportedError),
        (
            dynamodb_error("AccessDeniedException", "User: x is not authorized"),
            PermissionDeniedError,
        ),
        (dynamodb_error("ExpiredTokenException"), CredentialsError),
        (NO_TABLE, VolumeNotFoundError),
    ],
)
async def test_tags_that_cannot_be_had(
    items: DynamoItems, proxy: FaultProxy, answer: Answer, expected: type[S3kError]
) -> None:
    proxy.rule(table(), target="DescribeTable")
    proxy.rule(answer)
    for call in (items.read_tag("s3k"), items.write_tag("s3k", "v")):
        with pytest.raises(S3kError) as caught:
            await call
        assert type(caught.value) is expected
        assert caught.value.path == "meta"


async def test_tags_of_no_table(items: DynamoItems, proxy: FaultProxy) -> None:
    proxy.rule(NO_TABLE)
    for call in (items.read_tag("s3k"), items.write_tag("s3k", "v")):
        with pytest.raises(VolumeNotFoundError):
            await call


async def test_dynamodb_local_has_no_tags(dynamodb_local: Engine) -> None:
    items = DynamoItems(fresh_name("tags"), dynamodb_local.aws())
    await items.create()
    for call in (items.read_tag("s3k"), items.write_tag("s3k", "v")):
        with pytest.raises(UnsupportedError):
            await call
    await items.drop()
    await items.close()


async def test_tags_on_an_engine_that_has_them(dynoxide: Engine) -> None:
    items = DynamoItems(fresh_name("tags"), dynoxide.aws())
    await items.create()
    assert await items.read_tag("s3k:volume") is None
    await items.write_tag("s3k:volume", "v=1 n=10 h=xxh3 /+-=._:@")
    await items.write_tag("s3k:volume", "v=2")
    assert await items.read_tag("s3k:volume") == "v=2"
    await items.drop()
    with pytest.raises(VolumeNotFoundError):
        await items.read_tag("s3k:volume")
    await items.close()


@pytest.mark.parametrize("engine", ["dynamodb_local", "dynoxide"])
async def test_a_foreign_table_is_left_alone(engine: str, request: pytest.FixtureRequest) -> None:
    server: Engine = request.getfixturevalue(engine)
    name = fresh_name("foreign")
    maker = DynamoItems(name, server.aws())
    client = await maker._client()
    await client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    for call in (maker.create, maker.exists):
        with pytest.raises(NotAVolumeError):
            await call()
    await client.delete_table(TableName=name)
    await maker.close()


async def test_a_table_that_vanishes_between_the_description_and_the_call(dynoxide: Engine) -> None:
    async with FaultProxy(dynoxide.endpoint) as proxy:
        aws = replace(dynoxide.aws(), endpoint=proxy.url)
        items = DynamoItems(fresh_name("gone"), aws)
        await items.create()
        proxy.rule(NO_TABLE, target="DeleteTable", times=1)
        proxy.rule(Rewrite(lambda answer: NO_TABLE), target="DescribeTable", skip=1)
        await items.drop()
        proxy.clear()
        await items.drop()
        await items.close()
