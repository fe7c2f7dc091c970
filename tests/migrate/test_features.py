"""Features of a volume that was made without them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import BusyError, S3kError, UnsupportedError
from s3k_async.migrate import enable_features
from s3k_async.model import LayoutName
from s3k_async.testing import Died, FaultPlan
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume
from s3k_async.volumes.claims import read_claim
from tests.client.rig import memory_config
from tests.level import calls_to_try

pytestmark = pytest.mark.layouts("path", "tree")


@pytest.fixture(autouse=True)
def no_open_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client has the volume open, so that the lock need not wait."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


async def old_volume(layout: LayoutName) -> VolumeConfig:
    config = memory_config(layout=layout)
    await init_volume(config, without=["extents"])
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"one")
        with pytest.raises(UnsupportedError, match="s3k migrate --enable extents"):
            await fs.append("/f", b"two")
    return config


async def has_extents(config: VolumeConfig) -> None:
    """Record, tag and mark have the flag, and files grow."""
    async with S3kClient(config=replace(config)) as fs:
        volume = fs._volume()
        assert "extents" in volume.record.flags
        mark = await read_claim(volume.place)
        assert mark is not None
        assert mark.flags == volume.record.flags
        await fs.append("/f", b"two")
        assert await fs.read("/f") == b"onetwo"


async def test_files_of_an_old_volume_can_grow(layout: LayoutName) -> None:
    config = await old_volume(layout)
    assert await enable_features(config, ["extents"])
    await has_extents(config)
    assert not await enable_features(config, ["extents"])


async def test_uploads_come_with_extents(layout: LayoutName) -> None:
    config = await old_volume(layout)
    assert await enable_features(config, ["uploads"])
    assert not await enable_features(config, ["uploads"])
    assert not await enable_features(config, ["extents"])
    async with S3kClient(config=replace(config)) as fs:
        assert fs._volume().record.flags[-2:] == ("extents", "uploads")
        await fs.append("/f", b"two")


async def test_uploads_of_a_volume_with_extents(layout: LayoutName) -> None:
    config = await old_volume(layout)
    assert await enable_features(config, ["extents"])
    assert await enable_features(config, ["uploads"])
    async with S3kClient(config=replace(config)) as fs:
        volume = fs._volume()
        assert sorted(set(volume.record.flags)) == sorted(volume.record.flags)
        mark = await read_claim(volume.place)
        assert mark is not None
        assert mark.flags == volume.record.flags


async def test_a_volume_in_use_by_other_work_is_left(layout: LayoutName) -> None:
    config = await old_volume(layout)
    async with S3kClient(config=config) as fs:
        items = fs._volume().items
        lock = volume_lock.VolumeLock("reshard", "5", fs._volume().store.runtime)
        await lock.take(items, fs._volume().record, "here")
        with pytest.raises(BusyError):
            await enable_features(config, ["extents"])


async def test_an_interrupted_change_is_finished_by_the_same_call(layout: LayoutName) -> None:
    faults = FaultPlan()
    with faults.injected():
        await enable_features(await old_volume(layout), ["extents"])
    for number in calls_to_try(len(faults.calls)):
        for when in ("before", "after"):
            config, faults = await old_volume(layout), FaultPlan()
            faults.calls.clear()
            faults.die(number, when=when)
            with faults.injected(), suppress(Died, S3kError, BaseExceptionGroup):
                await enable_features(config, ["extents"])
            await finished(config)
            await has_extents(config)


async def finished(config: VolumeConfig) -> None:
    for _ in range(3):
        try:
            await enable_features(config, ["extents"])
        except BusyError:
            continue
        return
    raise AssertionError("it cannot be finished")
