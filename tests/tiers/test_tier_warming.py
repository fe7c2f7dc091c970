"""Copies to the hot location on request: crashes, deletions and damage at every call."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio
import pytest

from s3k_async.backends.ports.blobs import BlobInfo, Buffer
from s3k_async.bulk.tier_warming import TierWarming, WarmResult
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    IsDirectoryError,
    NoSpaceError,
    PathNotFoundError,
    PermissionDeniedError,
    ResponseLostError,
    S3kError,
    ServiceError,
    UnsupportedError,
)
from s3k_async.integrity.repair import verify_volume
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.testing import Died, FaultPlan
from s3k_async.testing.faults import Call, FaultyBlobs
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import memory_config
from tests.level import calls_to_try
from tests.support import FakeClock, fake_runtime, from_call
from tests.tiers.rig import TUNING, move_all, opened, sizes, tiered_volume, unfinished
from tests.tiers.test_tiered_volumes import collect

BIG = bytes(range(200))
FILES = {"/d/small": b"small", "/d/e/big": BIG, "/d/empty": b""}


async def cold_volume() -> VolumeConfig:
    """Files, all of them cold."""
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        for path, data in FILES.items():
            await fs.write(path, data)
    async with opened(config) as (_, blobs):
        await move_all(blobs)
    return config


@asynccontextmanager
async def faulty(config: VolumeConfig, plan: FaultPlan) -> AsyncIterator[Volume]:
    """The volume, with the calls of its data through a plan once it is open."""
    volume = await open_volume(config)
    blobs = volume.blobs
    assert isinstance(blobs, TieredBlobs)
    broken = TieredBlobs(FaultyBlobs(blobs.hot, plan), FaultyBlobs(blobs.cold, plan))
    try:
        yield replace(volume, blobs=broken)
    finally:
        await volume.close()


async def warmed(volume: Volume, path: str = "/d", *, dry: bool = False) -> WarmResult:
    warming = TierWarming(volume, dry_run=dry)
    await warming.add(path, recursive=True)
    return warming.result


async def all_readable(config: VolumeConfig) -> None:
    async with S3kClient(config=config) as fs:
        for path, data in FILES.items():
            assert await fs.read(path) == data


async def test_files_are_copied_and_stay_cold() -> None:
    config = await cold_volume()
    async with S3kClient(config=config) as fs, opened(config) as (volume, blobs):
        await fs.append("/d/e/big", BIG[:50])
        await fs.write("/hot", b"hot")
        await move_all(blobs)
        await fs.write("/d/new", b"new")
        cold = await sizes(blobs.cold)
        dry = await warmed(volume, dry=True)
        assert await sizes(blobs.hot) != {}
        assert (dry.files, dry.copied, dry.bytes, dry.hot) == (4, 4, 255, 1)
        done = await warmed(volume)
        assert (done.files, done.copied, done.bytes, done.hot) == (4, 4, 255, 1)
        assert await sizes(blobs.cold) == cold
        assert sorted((await sizes(blobs.hot)).values()) == [0, 3, 5, 50, 200]
        again = await warmed(volume, "/d/e/big")
        assert (again.files, again.copied, again.hot) == (1, 0, 2)
        assert await fs.read("/d/e/big") == BIG + BIG[:50]
        assert (await verify_volume(volume, deep=True)).findings == []
        moved = await move_all(blobs)
        assert (moved.moved, moved.completed) == (5, 4)
        assert await sizes(blobs.hot) == {}
        assert await fs.read("/d/e/big") == BIG + BIG[:50]


async def test_a_warm_file_is_read_from_the_hot_location() -> None:
    config = await cold_volume()
    plan = FaultPlan()
    async with faulty(config, plan) as volume:
        await warmed(volume)
        plan.calls.clear()
        assert isinstance(volume.blobs, TieredBlobs)
        for key in await sizes(volume.blobs.hot):
            plan.calls.clear()
            await volume.blobs.get(key)
            assert Counter(call.method for call in plan.calls) == {"get": 1}


@pytest.mark.parametrize("fault", ["death before", "death after", "failure", "lost answer"])
async def test_it_may_end_at_every_call_and_be_repeated(fault: str) -> None:
    error: BaseException = {
        "death before": Died("died"),
        "death after": Died("died"),
        "failure": ServiceError("failed"),
        "lost answer": ResponseLostError("lost"),
    }[fault]
    when = "after" if fault in ("death after", "lost answer") else "before"
    plan = FaultPlan()
    async with faulty(await cold_volume(), plan) as volume:
        await warmed(volume)
    assert len(plan.calls) > 15
    for number in calls_to_try(len(plan.calls)):
        config = await cold_volume()
        plan = FaultPlan()
        is_dead = isinstance(error, Died)
        at = from_call(number) if is_dead else _is_call(number)
        plan.fail_when(at, error, when=when, times=10**6 if is_dead else 1)  # type: ignore[arg-type]
        async with faulty(config, plan) as volume:
            with suppress(Died, S3kError):
                await warmed(volume)
        await all_readable(config)
        async with opened(config) as (volume, blobs):
            assert (await verify_volume(volume, deep=True)).findings == []
            done = await warmed(volume)
            assert done.copied + done.hot == 3
            assert sorted((await sizes(blobs.hot)).values()) == [0, 5, 200]
            assert (await move_all(blobs)).completed == 3
            assert sorted((await sizes(blobs.cold)).values()) == [0, 5, 200]
        await all_readable(config)


def _is_call(number: int) -> Callable[[Call], bool]:
    return lambda call: call.number == number


async def test_a_file_that_is_deleted_and_collected_meanwhile_leaves_nothing() -> None:
    plan = FaultPlan()
    async with faulty(await cold_volume(), plan) as volume:
        await warmed(volume, "/d/small")
    left = 0
    for number in range(1, len(plan.calls) + 1):
        config = await cold_volume()

        async def delete(call: Call, at: int = number, config: VolumeConfig = config) -> None:
            if call.number == at:
                async with S3kClient(config=config) as fs:
                    await fs.delete("/d/small")
                await collect(config)

        async with faulty(config, FaultPlan(delete)) as volume:
            assert (await warmed(volume, "/d/small")).damaged == []
        async with opened(config) as (_, blobs):
            assert 5 not in (await sizes(blobs.cold)).values()
            left += len(await sizes(blobs.hot))
            await collect(config)
            assert await sizes(blobs.hot) == {}
            assert sorted((await sizes(blobs.cold)).values()) == [0, 200]
    assert left > 0


class Damaging(FaultyBlobs):
    """A store that changes a bit of what is put."""

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        stored = bytes([data[0] ^ 1, *data[1:]]) if data else data
        return await super().put(key, stored, if_absent=if_absent, if_match=if_match)


async def test_a_copy_that_differs_is_deleted() -> None:
    config = await cold_volume()
    async with opened(config) as (volume, blobs):
        broken = TieredBlobs(Damaging(blobs.hot, FaultPlan()), blobs.cold)
        done = await warmed(replace(volume, blobs=broken))
        entry = await volume.store.lookup("/d/small")
        assert done.damaged == [entry.physical]
        assert (done.copied, done.bytes) == (2, 200)
        assert str(entry.physical) not in await sizes(blobs.hot)
    await all_readable(config)


@pytest.mark.parametrize("method", ["put_part", "complete"])
async def test_a_copy_that_is_cancelled_leaves_no_upload(method: str) -> None:
    config = await cold_volume()
    scope = anyio.CancelScope()

    async def cancel(call: Call) -> None:
        if call.method == method:
            scope.cancel()

    async with faulty(config, FaultPlan(cancel)) as volume:
        with scope:
            await warmed(volume, "/d/e/big")
        assert scope.cancelled_caught
    async with opened(config) as (volume, blobs):
        assert await unfinished(blobs) == []
        assert await sizes(blobs.hot) == {}
        assert (await warmed(volume, "/d/e/big")).copied == 1


async def test_an_abort_that_fails_does_not_hide_the_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = await cold_volume()
    plan = FaultPlan()
    plan.fail_when(lambda call: call.method == "put_part", NoSpaceError("full"))
    plan.fail_when(lambda call: call.method == "abort", ServiceError("no answer"))
    async with faulty(config, plan) as volume:
        with pytest.raises(NoSpaceError):
            await warmed(volume, "/d/e/big")
    assert "could not be aborted: no answer" in caplog.text
    async with opened(config) as (_, blobs):
        assert len(await unfinished(blobs)) == 1
        await collect(config)
        assert await unfinished(blobs) == []


async def test_an_unverified_copy_never_replaces_the_cold_object() -> None:
    """The process died between writing a copy and reading it back, and the copy is wrong."""
    config = await cold_volume()
    async with opened(config) as (volume, blobs):
        key = str((await volume.store.lookup("/d/small")).physical)
        await blobs.hot.put(key, b"wrong")
        assert (await move_all(blobs)).damaged == [key]
        assert await blobs.cold.get(key) == b"small"


async def test_a_damaged_cold_object_is_not_copied() -> None:
    config = await cold_volume()
    async with opened(config) as (volume, blobs):
        key = str((await volume.store.lookup("/d/small")).physical)
        await blobs.cold.put(key, b"smalx")
        done = await warmed(volume)
        assert (done.damaged, done.copied) == ([key], 2)
        assert key not in await sizes(blobs.hot)


async def test_the_rate_limits_the_bytes() -> None:
    config = await cold_volume()
    clock = FakeClock()
    volume = await open_volume(config, runtime=fake_runtime(clock))
    warming = TierWarming(volume, rate=10)
    began = clock.seconds
    await warming.add("/d", recursive=True)
    assert clock.seconds - began >= 0.5
    await volume.close()


async def test_what_is_refused() -> None:
    config = await cold_volume()
    async with opened(config) as (volume, _):
        with pytest.raises(IsDirectoryError, match="-r copies"):
            await TierWarming(volume).add("/d")
        with pytest.raises(PathNotFoundError):
            await TierWarming(volume).add("/gone")
    plain = memory_config()
    await init_volume(plain)
    volume = await open_volume(plain)
    with pytest.raises(UnsupportedError, match="no hot location"):
        TierWarming(volume)
    await volume.close()


async def test_who_may_not_read_a_file_may_not_copy_it() -> None:
    config = memory_config(TUNING)
    root = replace(config, tuning=replace(TUNING, uid=0, gids=(0,)))
    await init_volume(root, hot=f"memory://{config.name}-hot", enable=["permissions"])
    async with S3kClient(config=root) as fs:
        await fs.write("/f", b"1")
        await fs.set_attributes("/f", mode=0o600)
    user = replace(config, tuning=replace(TUNING, uid=1000, gids=(1000,)))
    async with opened(user) as (volume, _):
        with pytest.raises(PermissionDeniedError):
            await TierWarming(volume).add("/f")
