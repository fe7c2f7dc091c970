"""A limit on the capacity units that a run consumes in DynamoDB, with a fake clock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from s3k_async._core.capacity_limit import CapacityLimit
from s3k_async._core.concurrency import run_all
from s3k_async.backends.ports.items import ABSENT, Key, Put
from s3k_async.backends.retrying.request_pipeline import at_once
from s3k_async.config import DynamoTable, MemoryBlobs, VolumeConfig
from s3k_async.errors import InvalidArgumentError, UnsupportedError
from s3k_async.txn.volume_record import RECORD_KEY
from s3k_async.volumes import Volume, init_volume, open_volume
from s3k_async.volumes.table_capacity import limited_capacity
from tests.client.rig import memory_config
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import FaultProxy
from tests.support import FakeClock, fake_runtime

NOTHING = Key("nothing", "here")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def proxy(dynoxide: Engine) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(dynoxide.endpoint) as proxy:
        yield proxy


@pytest.fixture
async def volume(dynoxide: Engine, proxy: FaultProxy, clock: FakeClock) -> AsyncIterator[Volume]:
    name = fresh_name("units")
    aws = replace(dynoxide.aws(), endpoint=proxy.url)
    config = VolumeConfig(name, DynamoTable(name, aws), MemoryBlobs(name))
    await init_volume(config)
    opened = await open_volume(config, runtime=fake_runtime(clock))
    yield opened
    await opened.close()


def asked(proxy: FaultProxy) -> list[Any]:
    return [
        json.loads(call.body).get("ReturnConsumedCapacity")
        for call in proxy.calls
        if "DynamoDB" in call.headers.get("x-amz-target", "")
    ]


async def test_requests_wait_for_the_units_that_others_consumed(
    volume: Volume, proxy: FaultProxy, clock: FakeClock
) -> None:
    """Read units do not count as write units, nor the other way round."""
    proxy.calls.clear()
    async with limited_capacity(volume, read_units=2, write_units=0.5) as limit:
        began = clock.seconds
        await run_all(volume.items.get, [NOTHING] * 20, limit=1)
        reads = limit.read_units
        assert reads >= 10
        assert clock.seconds - began == pytest.approx(reads / 2, abs=1.5)
        began = clock.seconds
        for number in range(3):
            put = Put({"path": "x", "children": str(number)}, ABSENT)
            await volume.items.transact([put], f"{number:032}")
        # Two units each, of which one is waited for, and the other deducted.
        assert limit.write_units == 6
        assert clock.seconds - began == pytest.approx((limit.write_units - 2) / 0.5, abs=0.1)
        assert set(asked(proxy)) == {"TOTAL"}
    proxy.calls.clear()
    began = clock.seconds
    await run_all(volume.items.get, [NOTHING] * 20, limit=1)
    assert clock.seconds == began
    assert set(asked(proxy)) == {None}


async def test_every_kind_of_request_is_understood_with_its_units(
    volume: Volume, proxy: FaultProxy
) -> None:
    items, key = volume.items, RECORD_KEY
    proxy.calls.clear()
    async with limited_capacity(volume, read_units=1e6, write_units=1e6) as limit:
        assert (await items.scan(0, 1)).items
        assert (await items.query(key.partition)).items
        before = limit.read_units
        await items.get_many([key, NOTHING])
        assert limit.read_units > before
        await items.transact([Put({"path": "x", "children": "y"}, ABSENT)], "t" * 32)
        assert limit.write_units >= 1
    assert set(asked(proxy)) == {"TOTAL"}


async def test_a_renewal_of_a_lease_does_not_wait(volume: Volume, clock: FakeClock) -> None:
    async with limited_capacity(volume, read_units=0.001):
        began = clock.seconds
        with anyio.fail_after(10), at_once():
            await volume.items.get(NOTHING)
        assert clock.seconds == began


async def test_a_table_without_units_is_refused_by_name() -> None:
    config = memory_config()
    await init_volume(config)
    volume = await open_volume(config)
    with pytest.raises(UnsupportedError, match="does not report consumed capacity"):
        async with limited_capacity(volume, write_units=5):
            raise AssertionError
    with pytest.raises(InvalidArgumentError, match="above 0"):
        async with limited_capacity(volume, write_units=0):
            raise AssertionError
    async with limited_capacity(volume) as limit:
        assert isinstance(limit, CapacityLimit)
        await volume.items.get(NOTHING)
    await volume.close()
