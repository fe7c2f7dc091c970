"""storage_info: the storage of each location, as the services report it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from s3k_async import S3kClient, S3kSyncClient, StorageInfo, StorageSpace, init_volume
from s3k_async.errors import PermissionDeniedError, UnreachableError
from s3k_async.testing import FaultPlan
from s3k_async.testing.faults import Call
from tests.client.rig import faulty_client, memory_config


def of_disk(space: StorageSpace | None, path: Path) -> bool:
    """Whether the space is that of the file system of a path. Others use it meanwhile."""
    assert space is not None
    assert space.used is not None
    assert space.free is not None
    found = shutil.disk_usage(path)
    return space.total == found.total and 0 < space.used < found.total > space.free


async def test_an_embedded_volume_is_on_a_disk(tmp_path: Path) -> None:
    await init_volume(tmp_path / "volume")
    async with S3kClient(tmp_path / "volume") as fs:
        found = await fs.storage_info()
    assert of_disk(found.table, tmp_path)
    assert of_disk(found.data, tmp_path)
    assert of_disk(found.log, tmp_path)
    assert found.hot is None
    with S3kSyncClient(tmp_path / "volume") as blocking:
        assert of_disk(blocking.storage_info().data, tmp_path)


async def test_what_the_service_does_not_report_is_none() -> None:
    config = replace(memory_config(), log_mode="disabled")
    await init_volume(config=config)
    async with S3kClient(config=config) as fs:
        nothing = StorageSpace()
        assert await fs.storage_info() == StorageInfo(nothing, nothing, None, None)


async def test_the_hot_location_is_shown_beside_the_cold_one() -> None:
    config = memory_config()
    # The path has to fit into the tag of the table.
    with TemporaryDirectory(prefix="t", dir="/tmp") as hot:
        await init_volume(config=config, hot=hot, hot_on_this_machine=True)
        async with S3kClient(config=config) as fs:
            found = await fs.storage_info()
    assert found.data == found.log == StorageSpace()
    assert of_disk(found.hot, Path("/tmp"))


@pytest.mark.parametrize("store", ["items", "blobs"])
async def test_a_failure_is_retried_and_another_one_reported(store: str) -> None:
    config = memory_config()
    await init_volume(config=config)
    plan = FaultPlan()
    async with faulty_client(plan, config) as fs:

        def asks(call: Call) -> bool:
            return (call.store, call.method) == (store, "space")

        plan.fail_when(asks, UnreachableError("x"))
        assert (await fs.storage_info()).data == StorageSpace()
        plan.fail_when(asks, PermissionDeniedError("x"))
        with pytest.raises(PermissionDeniedError):
            await fs.storage_info()


def test_a_sum_is_unknown_where_a_part_is() -> None:
    known = StorageSpace(10, 4, 5)
    assert known + StorageSpace(1, None, 2) == StorageSpace(11, None, 7)
