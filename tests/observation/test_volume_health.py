"""Health checks: one request to each service, and no error but that of a client that is closed."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.errors import (
    ClosedClientError,
    RequestTimeoutError,
    ThrottledError,
    UnreachableError,
    VolumeNotFoundError,
)
from s3k_async.settings import resolve
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config


async def test_every_service_answers_one_request() -> None:
    async with faulty_client(FaultPlan()) as client:
        with client.count() as counter:
            health = await client.health()
        assert counter.requests.as_dict() == {
            "table": {"GetItem": 1},
            "data": {"HeadObject": 1},
            "log": {"HeadObject": 1},
        }
    assert health.healthy
    assert [each.component for each in health.components] == ["table", "data", "log"]
    assert all(each.seconds >= 0 and each.error is None for each in health.components)
    with pytest.raises(FrozenInstanceError):
        health.components = ()  # type: ignore[misc]


@pytest.mark.parametrize("error", [UnreachableError("down"), ThrottledError("slow down")])
async def test_a_service_that_fails_is_reported_after_one_attempt(error: Exception) -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as client:
        faults.fail_when(lambda call: call.method == "get", error, times=2)
        health = await client.health()
        assert not health.healthy
        table, data = health.of("table"), health.of("data")
        assert table is not None
        assert data is not None
        assert table.error is error
        assert data.healthy
        assert len(faults.calls) == 3
        assert health.of("hot") is None


async def test_a_service_that_does_not_answer_is_reported_in_time() -> None:
    """The others are asked at the same time."""

    async def gate(call: Call) -> None:
        if call.store == "blobs":
            await asyncio.Event().wait()

    faults = FaultPlan()
    async with faulty_client(faults) as client:
        faults.gate = gate
        health = await client.health(timeout=0.05)
        faults.gate = None
        assert [each.healthy for each in health.components] == [True, False, False]
        for each in health.components[1:]:
            assert isinstance(each.error, RequestTimeoutError)
            assert each.component in str(each.error)
        assert (await client.health()).healthy


def test_data_that_is_gone_is_reported(tmp_path: Path) -> None:
    place = tmp_path / "vol"
    asyncio.run(init_volume(resolve(str(place))))
    with S3kSyncClient(str(place)) as fs:
        assert fs.health().healthy
        shutil.move(place / "data", tmp_path / "elsewhere")
        data = fs.health().of("data")
        assert data is not None
        assert isinstance(data.error, VolumeNotFoundError)


async def test_a_closed_client_has_no_health() -> None:
    client = S3kClient(config=memory_config())
    with pytest.raises(ClosedClientError):
        await client.health()
