"""A volume with tiers whose table was lost comes back from its log, with data of both locations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from s3k_async.backends.location import OpenContext
from s3k_async.backends.ports.items import Condition, Delete
from s3k_async.client import S3kClient
from s3k_async.config import MemoryBlobs, VolumeConfig
from s3k_async.errors import NotAVolumeError, VolumeExistsError, VolumeNotFoundError
from s3k_async.integrity.repair import verify_volume
from s3k_async.migrate.dump import dump_volume
from s3k_async.migrate.load import load_volume
from s3k_async.model import LayoutName
from s3k_async.testing import FaultPlan, Moment
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume, open_volume
from s3k_async.volumes.claims import CLAIM
from s3k_async.volumes.restoration import restore_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integrity.restore_ground import deaths_of_a_restore, lose_table
from tests.support import under
from tests.tiers.rig import TUNING, move_all, opened, sizes, tiered_volume

FILES = {"/cold": b"cold", "/both": b"in both", "/d/hot": bytes(range(200))}


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client has these volumes open."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


async def lived(config: VolumeConfig) -> None:
    """Files in the cold location, in both, and in the hot one."""
    async with S3kClient(config=config) as fs, opened(config) as (_, blobs):
        await fs.write("/cold", FILES["/cold"])
        await fs.write("/both", FILES["/both"])
        await move_all(blobs)
        for name in await sizes(blobs.cold):
            if len(await blobs.cold.get(name)) == len(FILES["/both"]):
                await blobs.hot.put(name, FILES["/both"])
        await fs.write("/d/hot", FILES["/d/hot"])


async def is_whole(config: VolumeConfig) -> None:
    async with opened(config) as (volume, blobs):
        assert (await verify_volume(volume, grace=-60.0, deep=True)).problems == []
        assert {7, 200} <= {*(await sizes(blobs.hot)).values()}
    async with S3kClient(config=config) as fs:
        for path, data in FILES.items():
            assert await fs.read(path) == data
        await fs.write("/new", b"new")
        assert await fs.read("/new") == b"new"
        await fs.delete("/new")


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_a_lost_table_comes_back(layout: LayoutName) -> None:
    config = await tiered_volume(layout)
    await lived(config)
    async with opened(config) as (volume, _):
        record = volume.record
    await lose_table(config)
    plan = await restore_volume(config)
    assert (plan.files, plan.written, plan.clean) == (3, 0, True)
    report = await restore_volume(config, dry_run=False)
    assert report.clean
    assert report.written == report.restored
    async with opened(config) as (volume, _):
        assert (volume.record.hot, volume.record.flags) == (record.hot, record.flags)
        assert volume.record.volume_id == record.volume_id
    await is_whole(config)


@volume_backends("embedded", "dynoxide+seaweedfs")
async def test_on_each_backend_with_a_hot_directory(new_volume: VolumeMaker) -> None:
    config = replace(new_volume(), tuning=TUNING)
    with TemporaryDirectory(prefix="t", dir="/tmp") as directory:
        hot = Path(directory) / "hot"
        await init_volume(config, hot=str(hot), hot_on_this_machine=True)
        await lived(config)
        await lose_table(config)
        assert (await restore_volume(config, dry_run=False)).clean
        await is_whole(config)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_restore_may_end_at_every_call(
    when: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_lock, "LOCK_SECONDS", 0.0)
    config = await tiered_volume()
    await lived(config)
    await lose_table(config)
    plan = FaultPlan()
    await under(plan, restore_volume(config, dry_run=False))
    async for number in deaths_of_a_restore(config, len(plan.calls), when):
        async with S3kClient(config=config) as fs:
            assert {path: await fs.read(path) for path in FILES} == FILES, number
    await is_whole(config)


async def test_lost_entries_come_back() -> None:
    config = await tiered_volume()
    await lived(config)
    async with opened(config) as (volume, _):
        keys = volume.store.keys
        key = keys.of(await volume.store.lookup("/d/hot"))
        await volume.items.write(Delete(key, Condition()))
    assert (await restore_volume(config, subtree="/d", dry_run=False)).written == 1
    await is_whole(config)


async def test_without_its_hot_location_nothing_is_restored() -> None:
    """An unmounted disk must not look like lost files."""
    config = await tiered_volume()
    await lived(config)
    await lose_table(config)
    hot = MemoryBlobs(f"{config.name}-hot").open(OpenContext())
    mark = await hot.get(CLAIM)
    for document, error in (
        (None, VolumeNotFoundError),
        (mark.replace(b'"volume_id": "', b'"volume_id": "x'), NotAVolumeError),
    ):
        await (hot.delete(CLAIM) if document is None else hot.put(CLAIM, document))
        for dry_run in (True, False):
            with pytest.raises(error, match="hot location"):
                await restore_volume(config, dry_run=dry_run)
    await hot.put(CLAIM, mark)
    await restore_volume(config, dry_run=False)
    await is_whole(config)
    await lose_table(config)
    await hot.drop()
    with pytest.raises(VolumeNotFoundError, match="hot location"):
        await restore_volume(config, dry_run=False)
    assert not await hot.exists()
    with pytest.raises(VolumeNotFoundError):
        await open_volume(config)


async def test_a_new_volume_does_not_replace_a_lost_one() -> None:
    config = await tiered_volume()
    await lived(config)
    await lose_table(config)
    with pytest.raises(VolumeExistsError, match="s3k fsck restore"):
        await init_volume(config)


async def test_a_dump_is_loaded_into_the_locations_of_the_lost_table(tmp_path: Path) -> None:
    config = await tiered_volume()
    await lived(config)
    dump = str(tmp_path / "dump")
    async with opened(config) as (volume, _):
        await dump_volume(volume, dump)
    await lose_table(config)
    await load_volume(dump, config, check=True)
    async with opened(config) as (volume, _):
        assert volume.record.hot == f"memory://{config.name}-hot/"
    async with S3kClient(config=config) as fs:
        assert {path: await fs.read(path) for path in FILES} == FILES
