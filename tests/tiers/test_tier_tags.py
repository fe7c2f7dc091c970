"""Entity tags of objects in two locations: where they are compared, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from s3k_async.bulk.tier_warming import TierWarming
from s3k_async.client import S3kClient
from s3k_async.config import LocalDirectory, MemoryTable, VolumeConfig
from s3k_async.errors import CorruptDataError
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.engines.volumes import fresh_name
from tests.tiers.rig import TUNING, move_all, opened, sizes

DATA = b"what was written " * 3
OTHER = b"what replaced it " * 3
"""Short enough to be stored by one request."""
RANGE = [(5, 9)]


@pytest.fixture(params=["memory", "directory"])
def hot(request: pytest.FixtureRequest) -> Iterator[str]:
    """A hot location beside a cold one in memory: of the same kind, or of another one."""
    if request.param == "memory":
        yield "memory://"
    else:
        with TemporaryDirectory(prefix="t", dir="/tmp") as directory:
            yield str(Path(directory) / "hot")


async def volume(hot: str) -> VolumeConfig:
    config = memory_config(TUNING)
    if hot == "memory://":
        await init_volume(config, hot=f"memory://{config.name}-hot")
    else:
        await init_volume(config, hot=hot, hot_on_this_machine=True)
    return config


async def test_ranges_of_a_replaced_hot_object_are_never_returned(hot: str) -> None:
    config = await volume(hot)
    async with S3kClient(config=config) as fs, opened(config) as (_, blobs):
        await fs.write("/f", DATA)
        assert await fs.read_ranges("/f", RANGE) == [DATA[5:9]]
        (key,) = await sizes(blobs.hot)
        await blobs.hot.put(key, OTHER)
        for attempt in range(2):
            with pytest.raises(CorruptDataError):
                await fs.read_ranges("/f", RANGE)
            with pytest.raises(CorruptDataError):
                await fs.copy("/f", f"/copy-{attempt}")
        assert [each.path async for each in fs.list("/")] == ["/f"]


async def test_ranges_of_a_replaced_cold_object_are_not_returned_where_tags_are_digests() -> None:
    config = await volume("memory://")
    async with S3kClient(config=config) as fs, opened(config) as (_, blobs):
        await fs.write("/f", DATA)
        await move_all(blobs)
        (key,) = await sizes(blobs.cold)
        await blobs.cold.put(key, OTHER)
        with pytest.raises(CorruptDataError):
            await fs.read_ranges("/f", RANGE)


async def test_what_was_moved_is_read_by_one_request(hot: str) -> None:
    """One for each location: no bytes are compared because a move has changed the tag."""
    config = await volume(hot)
    files = {"/f": DATA, "/long": DATA * 9}
    async with S3kClient(config=config) as fs, opened(config) as (_, blobs):
        for path, data in files.items():
            await fs.write(path, data)
        await move_all(blobs)
    plan = FaultPlan()
    async with faulty_client(plan, config) as fs:
        for path in files:
            key = str((await fs._volume().store.lookup(path)).physical)
            assert await fs.read_ranges(path, RANGE) == [DATA[5:9]]
            assert [call.method for call in plan.calls if call.key.endswith(key)] == ["get"] * 2


async def test_a_copy_in_advance_is_compared_by_its_bytes(hot: str) -> None:
    """It may have another tag: its bytes are read once for each client."""
    config = await volume(hot)
    async with S3kClient(config=config) as fs, opened(config) as (opened_volume, blobs):
        await fs.write("/f", DATA)
        await move_all(blobs)
        await TierWarming(opened_volume).add("/f")
        (key,) = await sizes(blobs.hot)
        assert await fs.read_ranges("/f", RANGE) == [DATA[5:9]]
        await blobs.hot.put(key, OTHER)
    async with S3kClient(config=config) as fs:
        with pytest.raises(CorruptDataError):
            await fs.read_ranges("/f", RANGE)


async def test_without_a_checksum_a_copy_with_another_tag_is_not_damage(hot: str) -> None:
    """As an object that was composed in the service, before the volume had a hot location."""
    config = await volume(hot)
    async with S3kClient(config=config) as fs, opened(config) as (opened_volume, blobs):
        store, storage = opened_volume.store, opened_volume.storage
        target = await store.prepare("/f")
        content = await storage.put(target.object_id, DATA)
        composed = replace(content, etag="0" * 32 + "-2", checksum="")
        await store.publish(target, composed)
        await move_all(blobs)
        await TierWarming(opened_volume).add("/f")
        assert await fs.read_ranges("/f", RANGE) == [DATA[5:9]]
        assert await fs.read("/f") == DATA


async def test_a_client_that_writes_through_finds_no_replaced_object(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two directories: the recorded tag is that of the cold file."""
    name = fresh_name("v")
    tuning = replace(TUNING, hot_writes="through", change_detection="warn")
    with TemporaryDirectory(prefix="t", dir="/tmp") as directory:
        cold, hot = Path(directory) / "cold", Path(directory) / "hot"
        config = VolumeConfig(name, MemoryTable(name), LocalDirectory(str(cold)), tuning=tuning)
        await init_volume(config, hot=str(hot))
        async with S3kClient(config=config) as fs:
            await fs.write("/f", DATA)
            assert await fs.read_ranges("/f", RANGE) == [DATA[5:9]]
            assert await fs.read("/f") == DATA
    assert "replaced" not in caplog.text


async def test_an_adopted_file_is_copied() -> None:
    config = await volume("memory://")
    async with S3kClient(config=config) as fs, opened(config) as (opened_volume, _):
        place = opened_volume.storage.place
        await place.put("elsewhere/object", DATA)
        uri = place.uri("elsewhere/object")
        (await fs.adopt_many([("/adopted", uri)])).raise_for_failures()
        await fs.copy("/adopted", "/copy")
        assert await fs.read("/copy") == DATA
