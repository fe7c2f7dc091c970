"""Counters of a volume that is resharded, gets another layout, or is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.backends.ports.items import PARTITION, SORT, Item, Put
from s3k_async.config import VolumeConfig
from s3k_async.errors import ItemFormatError
from s3k_async.integrity.repair import repair_volume
from s3k_async.migrate import (
    change_layout,
    dump_volume,
    enable_features,
    load_volume,
    reshard_volume,
)
from s3k_async.model import Feature, LayoutName
from s3k_async.table.codec import unchanged
from s3k_async.testing import FaultPlan
from s3k_async.txn.bucket_totals import BucketTotal
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.counters.counted import check_counters, counted

pytestmark = pytest.mark.layouts("path", "tree")
EXPECTED = {"b": BucketTotal(9, 36), "c": BucketTotal(1, 7)}


async def filled(layout: LayoutName) -> VolumeConfig:
    """A volume with counters."""
    config = memory_config(layout=layout)
    await init_volume(config, enable=["counters"])
    async with faulty_client(FaultPlan(), config) as fs:
        await fs.write_many([(f"/b/d/{number}", bytes(number)) for number in range(10)])
        await fs.delete("/b/d/9")
        await fs.write("/c/f", bytes(7))
    return config


async def check(config: VolumeConfig, *, is_stale: bool = False) -> None:
    async with faulty_client(FaultPlan(), config) as fs:
        found = await check_counters(fs._volume(), lambda found: found.is_stale == is_stale)
        assert found == EXPECTED


async def test_reshard_changes_no_sum(layout: LayoutName) -> None:
    config = await filled(layout)
    await reshard_volume(config, 3)
    await check(replace(config, suffix_count=None))


async def test_a_change_of_the_layout_is_counted_again(layout: LayoutName) -> None:
    config = await filled(layout)
    await change_layout(config, "path" if layout == "tree" else "tree")
    changed = replace(config, layout=None)
    await check(changed, is_stale=True)
    assert await enable_features(changed, ["counters"]) == ()
    await check(changed)


async def test_what_is_loaded_is_counted_again(layout: LayoutName, tmp_path: Path) -> None:
    source = await filled(layout)
    dump = str(tmp_path / "dump.jsonl")
    async with faulty_client(FaultPlan(), source) as fs:
        await dump_volume(fs._volume(), dump)
        volume = fs._volume()
        target = memory_config(layout=layout)
        await init_volume(target, enable=["counters"])
        await load_volume(dump, target, bytes_from=volume)
    await check(target, is_stale=True)
    await enable_features(target, ["counters"])
    await check(target)


async def test_a_damaged_item_leaves_the_volume_open_to_fsck(layout: LayoutName) -> None:
    """A count cannot be made before the repair, which needs the volume unlocked."""
    cases: list[list[Feature]] = [[], ["counters"]]
    for features in cases:
        config = memory_config(layout=layout)
        await init_volume(config, enable=features)
        async with faulty_client(FaultPlan(), config) as fs:
            await fs.write("/b/damaged", bytes(3))
            await fs.write("/b/f", bytes(5))
            volume = fs._volume()
            entry = await volume.store.lookup("/b/damaged")
            key = volume.store.keys.of(entry)
            item: Item = {PARTITION: key.partition, SORT: key.sort, "isdir": False}
            await volume.items.write(Put(item, unchanged(entry)))
        for _ in range(2):
            with pytest.raises(ItemFormatError, match="s3k fsck repair"):
                await enable_features(config, ["counters"])
        async with faulty_client(FaultPlan(), config) as fs:
            assert (await counted(fs._volume())).is_stale
            await repair_volume(fs._volume(), dry_run=False, grace=-60.0)
        await enable_features(config, ["counters"])
        async with faulty_client(FaultPlan(), config) as fs:
            found = await check_counters(fs._volume())
            assert found == {"b": BucketTotal(2, 8)}
