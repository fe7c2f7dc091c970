"""The user metadata Tier: files that stay hot, and files that become cold at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.attributes import Attributes
from s3k_async.backends.ports.items import Condition, Put
from s3k_async.bulk.tier_overrides import tier_overrides
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError, PermissionDeniedError
from s3k_async.model import LayoutName
from s3k_async.objects import ObjectStore
from s3k_async.storage.tier_moves import TierMoves, TierRun
from s3k_async.storage.tier_policy import MovePolicy
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.table.codec import to_item
from s3k_async.testing import FaultPlan
from s3k_async.testing.faults import Call, FaultyBlobs
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.support import fake_runtime
from tests.tiers.rig import ALL, TUNING, opened, sizes, tiered_volume

BIG = bytes(range(200))
NEVER = MovePolicy(older_than=10**9)


async def moved(
    config: VolumeConfig, policy: MovePolicy = ALL, *, dry: bool = False, days: int = 0
) -> TierRun:
    """A run as `s3k tier run` makes it, some days from now."""
    later = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + days * 86_400_000)
    async with opened(config, later) as (volume, blobs):
        overrides = partial(tier_overrides, volume)
        moves = TierMoves(blobs, fake_runtime(), TUNING, overrides=overrides)
        return await moves.run(policy, dry_run=dry)


async def hot_bytes(config: VolumeConfig) -> list[int]:
    async with opened(config) as (_, blobs):
        return sorted((await sizes(blobs.hot)).values())


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_hot_files_stay_and_cold_ones_are_moved_at_once(layout: LayoutName) -> None:
    config = await tiered_volume(layout)
    async with S3kClient(config=config) as fs:
        for size, tier in zip((100, 2, 3), (b"hot", b"cold", None), strict=True):
            metadata = {} if tier is None else {"Tier": tier}
            await fs.write(f"/d/{size}", BIG[:size], attributes=Attributes(metadata=metadata))
        await fs.makedirs("/e")
        await fs.rename("/d/100", "/e/1")
        await fs.append("/e/1", b"more")  # of two objects
        assert (await moved(config, NEVER, dry=True)).moved == 1
        assert (await moved(config, NEVER)).moved == 1
        assert await hot_bytes(config) == [3, 4, 100]
        done = await moved(config)
        assert (done.moved, done.left, done.left_bytes, done.pinned) == (1, 2, 104, 2)
        assert await hot_bytes(config) == [4, 100]
        await fs.rename("/e", "/f")
        assert (await moved(config)).pinned == 2
        await fs.set_attributes("/f/1", metadata={"Tier": None})
        assert (await moved(config)).moved == 2
        assert await hot_bytes(config) == []
        assert await fs.read("/f/1") == BIG[:100] + b"more"


async def test_a_file_that_is_overwritten_stays_hot() -> None:
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        await ObjectStore(fs).create_bucket("b")
        pinned = Attributes(metadata={"Tier": b"hot"})
        await ObjectStore(fs).create("b", "k", b"1", attributes=pinned)
        await ObjectStore(fs).put("b", "k", b"22")
        done = await moved(config)
        assert (done.moved, done.pinned) == (1, 1)  # the former content is garbage
        assert await hot_bytes(config) == [2]


async def test_a_file_that_is_overwritten_during_the_run_stays_hot() -> None:
    config = await tiered_volume()
    pinned = Attributes(metadata={"Tier": b"hot"})
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"1", attributes=pinned)

        async def replace_file(call: Call) -> None:
            if call.method == "list":
                await fs.write("/f", b"22", attributes=pinned)

        plan = FaultPlan(replace_file)
        async with opened(config) as (volume, blobs):
            faulty = TieredBlobs(FaultyBlobs(blobs.hot, plan), blobs.cold)
            overrides = partial(tier_overrides, volume)
            await TierMoves(faulty, fake_runtime(), TUNING, overrides=overrides).run(ALL)
        assert await hot_bytes(config) == [2]


async def test_a_run_reads_the_index_and_no_more() -> None:
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        for number in range(30):
            await fs.write(f"/d/{number}", b"1")

    async def calls() -> Counter[str]:
        plan = FaultPlan()
        with plan.injected():
            async with opened(config) as (volume, _):
                plan.calls.clear()
                await tier_overrides(volume)
        return Counter(call.method for call in plan.calls)

    assert await calls() == {"query": 16}
    async with S3kClient(config=config) as fs:
        for number in range(20):
            await fs.set_attributes(f"/d/{number}", metadata={"Tier": b"hot"})
    found = await calls()
    assert found["query"] == 16
    assert found.total() <= 20


async def test_without_attributes_nothing_is_read() -> None:
    config = memory_config(TUNING)
    await init_volume(
        config, hot=f"memory://{config.name}-hot", without=["attributes", "uploads", "extents"]
    )
    plan = FaultPlan()
    with plan.injected():
        async with opened(config) as (volume, _):
            plan.calls.clear()
            assert await tier_overrides(volume) == {}
    assert plan.calls == []


async def test_a_file_with_an_age_stays_hot_until_then() -> None:
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        for path, tier in (("/week", b"hot:7d"), ("/hour", b"hot:3600"), ("/other", None)):
            metadata = {} if tier is None else {"Tier": tier}
            await fs.write(path, path.encode(), attributes=Attributes(metadata=metadata))
        done = await moved(config)
        assert (done.moved, done.left, done.pinned) == (1, 2, 2)
        done = await moved(config, NEVER, days=1)
        assert (done.moved, done.left, done.pinned) == (1, 1, 1)
        assert (await moved(config, days=6)).pinned == 1
        assert (await moved(config, NEVER, days=8)).moved == 1
        assert await hot_bytes(config) == []
        assert await fs.read("/week") == b"/week"


AGES = [b"hot:", b"hot:week", b"hot:-1", b"hot:0.5", b"hot: 7d", b"cold:7d", b"hot:7D", b"hot:1e3"]


@pytest.mark.parametrize("value", [b"", b"warm", b"HOT", b"\xff", b"hot ", *AGES])
async def test_other_values_are_refused(value: bytes) -> None:
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"1")
        with pytest.raises(InvalidArgumentError, match="hot or cold") as error:
            await fs.set_attributes("/f", metadata={"Tier": value})
        assert error.value.path == "/f"
        with pytest.raises(InvalidArgumentError):
            await fs.write("/g", b"", attributes=Attributes(metadata={"Tier": value}))
        assert not await fs.exists("/g")
    plain = memory_config()
    await init_volume(plain)
    async with S3kClient(config=plain) as fs:  # an ordinary name there
        await fs.write("/f", b"1", attributes=Attributes(metadata={"Tier": value}))


async def test_a_malformed_value_of_an_earlier_version_is_ignored() -> None:
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"1", attributes=Attributes(metadata={"Tier": b"hot"}))
        await fs.makedirs("/d")
        await fs.set_attributes("/d", metadata={"Tier": b"cold"})
        async with opened(config) as (volume, _):
            entry = await volume.store.lookup("/f")
            assert await tier_overrides(volume) == {str(entry.physical): "hot"}
            text = entry.attributes.replace("aG90", "d2FybQ==")
            assert text != entry.attributes
            item = to_item(replace(entry, attributes=text), volume.store.keys)
            await volume.store.items.write(Put(item, Condition()))
            assert await tier_overrides(volume) == {}


async def test_only_the_superuser_reads_the_tiers_of_all() -> None:
    config = memory_config(TUNING)
    await init_volume(config, hot=f"memory://{config.name}-hot", enable=["permissions"])
    user = replace(config, tuning=replace(TUNING, uid=1000, gids=(1000,)))
    async with opened(user) as (volume, _):
        with pytest.raises(PermissionDeniedError, match="only the superuser"):
            await tier_overrides(volume)
