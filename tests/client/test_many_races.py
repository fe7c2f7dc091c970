"""read_many beside clients that replace what it reads, and with reads that fail on the way."""

from __future__ import annotations

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import (
    PartialFailureError,
    PermissionDeniedError,
    ThrottledError,
    UnreachableError,
)
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config


async def test_a_file_that_is_replaced_and_collected_meanwhile_is_read_anew() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as other:
        await other.write("/f", b"old")
        await other.write("/g", b"other")
        replaced: list[str] = []

        async def replace(call: Call) -> None:
            if call.method == "get" and call.store == "blobs" and not replaced:
                replaced.append(str((await other.stat("/f")).physical))
                await other.write("/f", b"newer")
                await other._volume().storage.delete(replaced[0])

        async with faulty_client(FaultPlan(replace), config) as fs:
            assert await fs.read_many(["/f", "/g"]) == [b"newer", b"other"]
    assert replaced


async def test_a_service_that_is_busy_is_asked_again() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        paths = [f"/f{number}" for number in range(20)]
        for path in paths:
            await fs.write(path, path.encode())
        faults.fail_when(lambda call: call.method == "get", ThrottledError("slower"), times=5)
        assert await fs.read_many(paths) == [path.encode() for path in paths]


async def test_what_fails_for_good_fails_for_its_path_only() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        paths = [f"/f{number}" for number in range(5)]
        for path in paths:
            await fs.write(path, path.encode())
        key = fs._volume().record.scope + ((await fs.stat("/f3")).physical or "")
        faults.fail_when(
            lambda call: call.method == "get" and call.key == key, PermissionDeniedError("no")
        )
        outcomes = await fs.read_each(paths)
        assert isinstance(outcomes.pop(3), PermissionDeniedError)
        assert outcomes == [b"/f0", b"/f1", b"/f2", b"/f4"]


async def test_a_table_that_cannot_be_reached_fails_the_call() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fs.write("/f", b"1")
        faults.fail_when(
            lambda call: call.method == "get_many", UnreachableError("no way"), times=100
        )
        for verb in (fs.stat_many, fs.exists_many, fs.read_many):
            with pytest.raises(UnreachableError):
                await verb(["/f"])
        assert not issubclass(UnreachableError, PartialFailureError)
