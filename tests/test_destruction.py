"""Destruction of a volume that other clients still use: nothing of it remains, or the error says
so."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_blobs import MemoryBlobs as MemoryBlobStore
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import LocalDirectory, MemoryBlobs, MemoryTable, SqliteFile, VolumeConfig
from s3k_async.errors import (
    BusyError,
    PartialFailureError,
    PermissionDeniedError,
    S3kError,
    VolumeNotFoundError,
)
from s3k_async.oplog.checkpoints import MANIFESTS, PARTS
from s3k_async.oplog.compaction import Compactor
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn.volume_lock import QUIET_SECONDS
from s3k_async.volumes import Volume, destroy_volume, init_volume, open_volume
from tests.engines.volumes import fresh_name
from tests.migrate.rig import HURRIED
from tests.support import FakeClock, fake_runtime, under

FOREIGN = "somebody's"
"""An object of others in each location, which is therefore kept."""


async def made(config: VolumeConfig) -> VolumeConfig:
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        for number in range(3):
            await fs.write(f"/d/{number}", b"%d" % number)
        await fs.delete("/d/1")
    return config


async def in_memory() -> VolumeConfig:
    name = fresh_name("destruction")
    log = MemoryBlobs(f"{name}-log")
    config = await made(VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), log=log))
    for store in stores(config):
        await store.put(FOREIGN, b"x")
    return config


def stores(config: VolumeConfig) -> list[BlobStore]:
    return [MemoryBlobStore(config.name), MemoryBlobStore(f"{config.name}-log")]


async def left(config: VolumeConfig) -> set[str]:
    return {info.key for store in stores(config) async for info in list_all(store)} - {FOREIGN}


async def compact(volume: Volume) -> None:
    assert volume.log_blobs is not None
    compactor = Compactor(
        volume.log_blobs, SYSTEM, grace=-100.0, part_bytes=300, need_volume=volume.need_record
    )
    await compactor.run(dry_run=False)


def once(number: int, work: Callable[[], Awaitable[object]], plan: FaultPlan) -> None:
    """Do the work before the call with this number, from now on; the gate is removed then."""
    number += len(plan.calls)

    async def gate(call: Call) -> None:
        if call.number == number:
            plan.gate = None
            await work()

    plan.gate = gate


async def test_a_compaction_during_which_the_volume_is_destroyed_leaves_nothing() -> None:
    refused = 0
    for number in range(1, 100):
        config, plan = await in_memory(), FaultPlan()
        destroy = partial(destroy_volume, config, force=True, runtime=HURRIED)
        volume = await under(plan, open_volume(config))
        once(number, destroy, plan)
        try:
            await compact(volume)
        except VolumeNotFoundError:
            refused += 1
        await volume.close()
        if plan.gate is not None:  # the compaction has fewer calls
            assert refused > 10
            return
        assert await left(config) == set(), number
    raise AssertionError("it never ended")


async def test_a_compaction_while_the_volume_is_being_destroyed_leaves_nothing() -> None:
    for number in range(1, 100):
        config, plan = await in_memory(), FaultPlan()
        volume = await open_volume(config)

        async def late(volume: Volume = volume) -> None:
            with suppress(VolumeNotFoundError):
                await compact(volume)

        once(number, late, plan)
        await under(plan, destroy_volume(config, force=True, runtime=HURRIED))
        await volume.close()
        if plan.gate is not None:
            return
        assert await left(config) == set(), number
    raise AssertionError("it never ended")


async def test_a_write_while_the_volume_is_being_destroyed_leaves_nothing() -> None:
    for number in range(1, 100):
        config, plan = await in_memory(), FaultPlan()
        async with S3kClient(config=config) as fs:

            async def late(fs: S3kClient = fs) -> None:
                with suppress(S3kError):
                    await fs.write("/d/late", b"late")

            once(number, late, plan)
            await under(plan, destroy_volume(config, force=True, runtime=HURRIED))
        if plan.gate is not None:
            return
        assert await left(config) == set(), number
    raise AssertionError("it never ended")


async def test_a_compaction_without_the_record_of_its_volume_writes_no_manifest() -> None:
    config, plan = await in_memory(), FaultPlan()
    volume = await under(plan, open_volume(config))
    assert volume.log_blobs is not None
    before = await left(config)

    async def lost() -> None:
        raise VolumeNotFoundError("no record", path="/")

    compactor = Compactor(volume.log_blobs, SYSTEM, grace=-100.0, part_bytes=300, need_volume=lost)
    with pytest.raises(VolumeNotFoundError):
        await compactor.run(dry_run=False)
    await volume.close()
    written = [call.key.partition("/")[2] for call in plan.calls if call.method == "put"]
    assert [key for key in written if key.startswith(PARTS)]
    assert not [key for key in written if key.startswith(MANIFESTS)]
    assert await left(config) == before


async def test_a_compaction_does_not_create_a_destroyed_directory_again(tmp_path: Path) -> None:
    directory = str(tmp_path / "vol")
    config = await made(
        VolumeConfig(
            "files",
            SqliteFile(f"{directory}/s3k.sqlite"),
            LocalDirectory(f"{directory}/data"),
        )
    )
    plan = FaultPlan()
    volume = await under(plan, open_volume(config))

    async def gate(call: Call) -> None:
        if call.method == "put" and call.key.partition("/")[2].startswith(PARTS):
            plan.gate = None
            await destroy_volume(config, force=True)

    plan.gate = gate
    with pytest.raises(VolumeNotFoundError):
        await compact(volume)
    await volume.close()
    assert os.listdir(tmp_path) == []


async def test_objects_of_a_destroyed_volume_that_a_compaction_cannot_remove_are_named() -> None:
    config, plan = await in_memory(), FaultPlan()
    volume = await under(plan, open_volume(config))
    kept = []

    async def gate(call: Call) -> None:
        if call.method == "put":
            plan.refuse(call.key, PermissionDeniedError("not permitted"))
            kept.append(call.key)
            if len(kept) == 1:
                await destroy_volume(config, force=True)

    plan.gate = gate
    with pytest.raises(PartialFailureError, match="volume was destroyed") as raised:
        await compact(volume)
    await volume.close()
    assert await left(config) == set(kept)
    assert {key for key, _ in raised.value.failures} <= {
        key.removeprefix(volume.record.scope) for key in kept
    }


async def test_destroy_waits_for_clients_that_still_write() -> None:
    """They stop within that time, and what they have written until then is deleted."""
    config, clock, plan = await in_memory(), FakeClock(), FaultPlan()
    volume = await open_volume(config)

    async def gate(call: Call) -> None:
        if call.method == "list_uploads":  # the log was listed
            plan.gate = None
            assert volume.log_blobs is not None
            await volume.log_blobs.put("audit/run/000000", b"x")

    plan.gate = gate
    await under(plan, destroy_volume(config, force=True, runtime=fake_runtime(clock)))
    await volume.close()
    assert clock.sleeps == [QUIET_SECONDS]
    assert await left(config) == set()


async def test_destroy_says_that_clients_still_write_and_can_be_repeated() -> None:
    config, clock, plan = await in_memory(), FakeClock(), FaultPlan()
    volume = await open_volume(config)

    async def gate(call: Call) -> None:
        if call.method == "list":
            await volume.storage.put(SYSTEM.uuid(), b"x")

    plan.gate = gate
    with pytest.raises(BusyError, match="repeat s3k destroy"):
        await under(plan, destroy_volume(config, force=True, runtime=fake_runtime(clock)))
    await volume.close()
    assert clock.sleeps == [QUIET_SECONDS] * 2
    with pytest.raises(VolumeNotFoundError, match="being destroyed"):
        await open_volume(config)
    assert await destroy_volume(config, force=True) == 0
    assert await left(config) == set()
