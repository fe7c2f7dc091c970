"""Options of a new table, and changes of its capacity: moto's DynamoDB, and what it was sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.config import (
    DynamoTable,
    MemoryBlobs,
    MemoryTable,
    TableOptions,
    VolumeConfig,
)
from s3k_async.errors import ConfigError, UnsupportedError, VolumeNotFoundError
from s3k_async.volumes import init_volume
from s3k_async.volumes.table_capacity import set_capacity
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import FaultProxy

UNITS = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 6}


@pytest.fixture
async def proxy(moto_s3: Engine) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(moto_s3.endpoint) as proxy:
        yield proxy


def volume(moto: Engine, proxy: FaultProxy, options: TableOptions | None = None) -> VolumeConfig:
    name = fresh_name("options")
    aws = replace(moto.aws(), endpoint=proxy.url)
    return VolumeConfig(name, DynamoTable(name, aws, options or TableOptions()), MemoryBlobs(name))


def sent(proxy: FaultProxy, operation: str) -> list[dict[str, Any]]:
    """The bodies of the requests of an operation."""
    return [
        json.loads(call.body)
        for call in proxy.calls
        if call.headers.get("x-amz-target", "").endswith(f".{operation}")
    ]


async def test_a_table_is_on_demand_without_options(moto_s3: Engine, proxy: FaultProxy) -> None:
    await init_volume(volume(moto_s3, proxy))
    (request,) = sent(proxy, "CreateTable")
    assert request.keys() == {"TableName", "BillingMode", "KeySchema", "AttributeDefinitions"}
    assert request["BillingMode"] == "PAY_PER_REQUEST"
    assert sent(proxy, "UpdateContinuousBackups") == []


async def test_all_options_of_a_table(moto_s3: Engine, proxy: FaultProxy) -> None:
    options = TableOptions(
        read_units=5,
        write_units=6,
        kms_key="alias/mine",
        point_in_time_recovery=True,
        deletion_protection=True,
        tags=(("team", "data"), ("cost", "")),
        stream="KEYS_ONLY",
    )
    config = volume(moto_s3, proxy, options)
    await init_volume(config)
    (request,) = sent(proxy, "CreateTable")
    assert (request["BillingMode"], request["ProvisionedThroughput"]) == ("PROVISIONED", UNITS)
    assert request["SSESpecification"] == {
        "Enabled": True,
        "SSEType": "KMS",
        "KMSMasterKeyId": "alias/mine",
    }
    assert request["DeletionProtectionEnabled"] is True
    assert request["Tags"] == [{"Key": "team", "Value": "data"}, {"Key": "cost", "Value": ""}]
    assert request["StreamSpecification"] == {
        "StreamEnabled": True,
        "StreamViewType": "KEYS_ONLY",
    }
    (recovery,) = sent(proxy, "UpdateContinuousBackups")
    assert recovery["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert options not in (TableOptions(), replace(options, stream=None))
    # The options are not part of the identity of the table.
    assert isinstance(config.table, DynamoTable)
    assert config.table == replace(config.table, options=TableOptions())


async def test_the_accounts_key_has_no_id(moto_s3: Engine, proxy: FaultProxy) -> None:
    await init_volume(volume(moto_s3, proxy, TableOptions(kms_key="aws")))
    (request,) = sent(proxy, "CreateTable")
    assert request["SSESpecification"] == {"Enabled": True, "SSEType": "KMS"}


async def test_the_capacity_of_a_table_is_set(moto_s3: Engine, proxy: FaultProxy) -> None:
    config = volume(moto_s3, proxy)
    await init_volume(config)
    assert await set_capacity(config, read_units=5, write_units=6)
    assert not await set_capacity(config, read_units=5, write_units=6)
    assert await set_capacity(config, read_units=7, write_units=6)
    assert await set_capacity(config)
    assert not await set_capacity(config)
    modes = [request["BillingMode"] for request in sent(proxy, "UpdateTable")]
    assert modes == ["PROVISIONED", "PROVISIONED", "PAY_PER_REQUEST"]
    assert sent(proxy, "UpdateTable")[0]["ProvisionedThroughput"] == UNITS
    blobs = WireItems(config.name, replace(moto_s3.aws(), endpoint=proxy.url))
    assert not await blobs.set_capacity(None, None)
    await blobs.close()


async def test_there_is_nothing_to_set(moto_s3: Engine, proxy: FaultProxy) -> None:
    with pytest.raises(VolumeNotFoundError):
        await set_capacity(volume(moto_s3, proxy), read_units=5, write_units=5)
    name = fresh_name("options")
    memory = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name))
    with pytest.raises(UnsupportedError, match="no capacity units"):
        await set_capacity(memory)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"read_units": 5}, "both read_units and write_units"),
        ({"read_units": 0, "write_units": 1}, "at least one read unit"),
        ({"tags": (("aws:x", "1"),)}, "is not a tag"),
        ({"tags": (("", "1"),)}, "is not a tag"),
        ({"stream": "ALL"}, "a stream has one of"),
    ],
)
def test_options_that_cannot_be(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        TableOptions(**given)
