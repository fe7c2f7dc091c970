"""Operations that the log has with one version, since a former item was in use meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.backends.ports.items import Condition, Delete
from s3k_async.client import S3kClient
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.model import LayoutName
from s3k_async.table.codec import to_item
from s3k_async.volumes import init_volume, open_volume
from tests.integrity.out_of_band import SECOND, Ground, findings
from tests.test_ownership import load, settings

pytestmark = pytest.mark.layouts("path", "tree")

THIRD = b"written last"


async def put_back(ground: Ground) -> None:
    """Replace the item of `/d/f` by its former version, as a restored backup would."""
    await ground.put(to_item(ground.first, ground.volume.store.keys))
    await asyncio.sleep(0.005)  # the next operation has a later time


async def repair(ground: Ground) -> None:
    await repair_volume(ground.volume, dry_run=False, grace=-60.0)


async def test_fsck_takes_the_last_one_for_a_missing_entry(layout: LayoutName) -> None:
    async with Ground.start(layout) as ground, S3kClient(config=ground.config) as fs:
        await put_back(ground)
        await fs.write("/d/f", THIRD)
        await ground.volume.items.write(Delete(ground.item_key, Condition()))
        assert "entry_missing" in await findings(ground, deep=False)
        await repair(ground)
        assert await fs.read("/d/f") == THIRD


async def test_fsck_does_not_restore_what_was_deleted_last(layout: LayoutName) -> None:
    async with Ground.start(layout) as ground, S3kClient(config=ground.config) as fs:
        await put_back(ground)
        await fs.delete("/d/f")
        assert "entry_missing" not in await findings(ground, deep=False)
        await repair(ground)
        assert not await fs.exists("/d/f")


async def test_of_an_entry_that_is_there_the_table_decides(layout: LayoutName) -> None:
    """It is logged again with a version that both do not have, which ends the conflict."""
    async with Ground.start(layout) as ground, S3kClient(config=ground.config) as fs:
        await put_back(ground)
        await fs.write("/d/f", THIRD)
        assert "log_conflict" in await findings(ground, deep=False)
        await repair(ground)
        assert await fs.read("/d/f") == THIRD
        assert "log_conflict" not in await findings(ground, deep=False)


async def test_versions_have_the_last_one(layout: LayoutName) -> None:
    async with Ground.start(layout) as ground, S3kClient(config=ground.config) as fs:
        await put_back(ground)
        await fs.write("/d/f", THIRD)
        await fs.delete("/d/f")
        sizes = [each.size for each in await fs.versions("/d/f")]
        assert len(THIRD) in sizes
        assert len(SECOND) not in sizes
        await fs.undelete("/d/f")
        assert await fs.read("/d/f") == THIRD


async def test_a_file_whose_entry_was_not_restored_is_undeleted_as_the_last_one_left_it(
    layout: LayoutName,
) -> None:
    async with Ground.start(layout) as ground, S3kClient(config=ground.config) as fs:
        await put_back(ground)
        await fs.write("/d/f", THIRD)
        await ground.volume.items.write(Delete(ground.item_key, Condition()))
        (version,) = (each for each in await fs.versions("/d/f") if each.size == len(THIRD))
        await fs.undelete("/d/f", version=version.id)
        assert await fs.read("/d/f") == THIRD


async def test_the_load_of_a_dump_contradicts_nothing(layout: LayoutName, tmp_path: Path) -> None:
    """It logs the same operations again, as of the time of the dump."""
    config = replace(settings(), layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/f", SECOND)
    await load(config, tmp_path)
    volume = await open_volume(replace(config, suffix_count=None))
    try:
        assert (await verify_volume(volume, grace=-60.0)).problems == []
    finally:
        await volume.close()
