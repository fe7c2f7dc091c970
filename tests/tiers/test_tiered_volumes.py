"""Volumes with a hot location: record, claims, clients, moves beside them, gc, destruction."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel
import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.location import OpenContext
from s3k_async.client import S3kClient
from s3k_async.config import LocalDirectory, MemoryBlobs, VolumeConfig
from s3k_async.errors import (
    BusyError,
    ConfigError,
    NotAVolumeError,
    S3kError,
    UnsupportedError,
    VolumeExistsError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_mark import CollectedData
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.gc_sweep import GarbageCollector
from s3k_async.integrity.repair import verify_volume
from s3k_async.migrate import add_hot_location
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.testing import Died, FaultPlan
from s3k_async.txn import volume_lock
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.txn.volume_record import VolumeRecord
from s3k_async.volumes import destroy_volume, init_volume, open_volume
from s3k_async.volumes.claims import CLAIM, read_claim
from tests.client.rig import memory_config
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.level import calls_to_try
from tests.tiers.rig import TUNING, move_all, opened, sizes, tiered_volume

BIG = bytes(range(200))
NO_AGE = Ages(0.0, 0.0, 0.0)
LATER = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + 3_600_000)
"""A time at which the lease of a client that died has expired."""


async def test_files_are_hot_until_they_are_moved() -> None:
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        await fs.write("/small", b"small")
        await fs.write("/big", BIG)
        async with opened(config) as (_, blobs):
            assert sorted((await sizes(blobs.hot)).values()) == [5, 200]
            assert await sizes(blobs.cold) == {}
            assert (await move_all(blobs)).moved == 2
            assert await sizes(blobs.hot) == {}
            assert sorted((await sizes(blobs.cold)).values()) == [5, 200]
        assert await fs.read("/small") == b"small"
        assert await fs.read("/big") == BIG
        await fs.write("/small", b"new")
        await fs.append("/big", b"more")
        await fs.copy("/big", "/copy")
        assert await fs.read("/small") == b"new"
        assert await fs.read("/big") == await fs.read("/copy") == BIG + b"more"
        async with opened(config) as (volume, blobs):
            assert await sizes(blobs.hot) != {}
            assert (await verify_volume(volume, deep=True)).findings == []
            await move_all(blobs)
            assert (await verify_volume(volume, deep=True)).findings == []


async def test_a_client_that_writes_through() -> None:
    config = await tiered_volume()
    through = replace(config, tuning=replace(TUNING, hot_writes="through"))
    async with S3kClient(config=through) as fs:
        await fs.write("/small", b"small")
        await fs.write("/big", BIG)
        async with opened(config) as (_, blobs):
            assert sorted((await sizes(blobs.hot)).values()) == [5]
            assert sorted((await sizes(blobs.cold)).values()) == [5, 200]
            done = await move_all(blobs)
            assert (done.moved, done.completed) == (1, 1)
        assert await fs.read("/small") == b"small"


async def test_copies_of_a_client_that_writes_through_are_cold_at_once() -> None:
    """Also of files that another client has written to the hot location alone."""
    config = await tiered_volume()
    through = replace(config, tuning=replace(TUNING, hot_writes="through"))
    async with S3kClient(config=config) as fs:
        await fs.write("/hot", b"hot")
    async with S3kClient(config=through) as fs, opened(config) as (volume, blobs):
        await fs.write("/both", b"small")
        await fs.copy("/hot", "/copy")
        await fs.copy("/both", "/again")
        await fs.delete("/both")
        await fs.undelete("/both")
        cold = await sizes(blobs.cold)
        for path in ("/copy", "/again", "/both"):
            assert (await volume.store.lookup(path)).physical in cold


async def test_a_physical_object_has_no_lasting_uri() -> None:
    config = await tiered_volume()
    async with opened(config) as (volume, _):
        with pytest.raises(UnsupportedError, match="no lasting URI"):
            volume.storage.uri("key")


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory whose path fits into the tag of a table beside that of a bucket."""
    with TemporaryDirectory(prefix="t", dir="/tmp") as directory:
        yield Path(directory)


@volume_backends("embedded", "dynoxide+seaweedfs")
async def test_a_hot_directory_beside_each_backend(
    new_volume: VolumeMaker, short_directory: Path
) -> None:
    config = replace(new_volume(), tuning=TUNING)
    hot = short_directory / "hot"
    await init_volume(config, hot=str(hot), hot_on_this_machine=True)
    async with S3kClient(config=config) as fs:
        await fs.write("/f", BIG)
        async with opened(config) as (volume, blobs):
            assert len(await sizes(blobs.hot)) == 1
            await move_all(blobs)
            assert await sizes(blobs.hot) == {}
            assert len(await sizes(blobs.cold)) == 1
            assert (await verify_volume(volume, deep=True)).findings == []
        assert await fs.read("/f") == BIG
    assert await destroy_volume(config, force=True) == 0
    assert not hot.exists()


RECORD = VolumeRecord("v", 4, "xxh3", "s3://b/", "disabled", "", "id", 1, flags=("scoped",))


def test_the_hot_location_is_in_the_tag_and_only_then() -> None:
    assert "hot" not in RECORD.to_item("")
    assert " o:" not in RECORD.to_tag()
    tiered = replace(RECORD, flags=("scoped", "tiers"), hot="s3://h/")
    for record in (RECORD, tiered):
        assert VolumeRecord.from_tag(record.to_tag(), "t") == record
        item = record.to_item("op")
        assert VolumeRecord.from_item(item, "t") == record
    with pytest.raises(ConfigError, match="do not fit into a table tag"):
        replace(tiered, hot=f"s3://{'h' * 250}/").to_tag()
    for damaged in (replace(tiered, hot=""), replace(RECORD, hot="s3://h/")):
        with pytest.raises(NotAVolumeError, match="do not agree"):
            VolumeRecord.from_tag(damaged.to_tag(), "t")


async def test_hot_locations_that_are_refused(tmp_path: Path) -> None:
    config = memory_config()
    for hot in (f"memory://{config.name}", f"memory://{config.name}/oplog/x", "memory://"):
        with pytest.raises(ConfigError):
            await init_volume(config, hot=hot)
    with pytest.raises(ConfigError, match="--hot-on-this-machine"):
        await init_volume(config, hot=str(tmp_path))
    with pytest.raises(ConfigError, match="do not fit into a table tag"):
        await init_volume(config, hot=f"memory://{'h' * 200}")
    other = await tiered_volume()
    with pytest.raises(VolumeExistsError, match="belongs to the volume"):
        await init_volume(config, hot=f"memory://{other.name}-hot")
    with pytest.raises(VolumeExistsError):
        await init_volume(config, hot=f"memory://{other.name}")
    await init_volume(config, hot=f"memory://{config.name}-hot")


async def test_a_link_to_the_data_is_no_hot_location(short_directory: Path) -> None:
    """Its moves would delete the only copy."""
    (short_directory / "data").mkdir()
    (short_directory / "link").symlink_to(short_directory / "data")
    config = replace(memory_config(TUNING), data=LocalDirectory(str(short_directory / "data")))
    with pytest.raises(ConfigError, match="under another name"):
        await init_volume(config, hot=str(short_directory / "link"))
    await init_volume(config, hot=str(short_directory / "hot"))
    async with S3kClient(config=config) as fs:
        await fs.write("/f", BIG)
    # The fast disk is given up: its content is moved by hand.
    shutil.copytree(short_directory / "hot", short_directory / "data", dirs_exist_ok=True)
    shutil.rmtree(short_directory / "hot")
    (short_directory / "hot").symlink_to(short_directory / "data")
    async with S3kClient(config=config) as fs:
        async with opened(config) as (_, blobs):
            with pytest.raises(ConfigError, match="under another name"):
                await move_all(blobs)
        assert await fs.read("/f") == BIG


async def test_init_again_compares_the_hot_location() -> None:
    config = await tiered_volume()
    record = await init_volume(config, exist_ok=True)
    assert record.hot == f"memory://{config.name}-hot/"
    assert await init_volume(config, exist_ok=True, hot=record.hot) == record
    with pytest.raises(VolumeMismatchError, match="hot"):
        await init_volume(config, exist_ok=True, hot="memory://elsewhere")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_initialisation_may_end_at_every_call(when: str) -> None:
    config = memory_config(TUNING)
    plan = FaultPlan()
    with plan.injected():
        await init_volume(config, hot=f"memory://{config.name}-hot")
    for number in calls_to_try(len(plan.calls)):
        config = memory_config(TUNING)
        plan = FaultPlan()
        plan.die(number, when=when)  # type: ignore[arg-type]
        with plan.injected(), suppress(Died, S3kError, BaseExceptionGroup):
            await init_volume(config, hot=f"memory://{config.name}-hot")
        await init_volume(config, hot=f"memory://{config.name}-hot", exist_ok=True)
        async with S3kClient(config=config) as fs:
            await fs.write("/f", b"1")
            assert await fs.read("/f") == b"1"


async def test_an_unfinished_volume_keeps_its_hot_location() -> None:
    config = await tiered_volume()
    table = config.table.open(OpenContext())
    await table.drop()
    for hot in ("", "memory://elsewhere"):
        with pytest.raises(VolumeMismatchError, match="names the hot location memory://"):
            await init_volume(config, hot=hot)
    await init_volume(config, hot=f"memory://{config.name}-hot")


async def test_a_volume_whose_hot_location_is_not_there_is_not_opened() -> None:
    config = await tiered_volume()
    hot = MemoryBlobs(f"{config.name}-hot").open(OpenContext())
    await hot.delete(CLAIM)
    with pytest.raises(VolumeNotFoundError, match="no mark of the volume"):
        await open_volume(config)
    await init_volume(config, take_over=True)
    await (await open_volume(config)).close()
    await hot.drop()
    with pytest.raises(VolumeNotFoundError):
        await open_volume(config)


async def test_destruction_empties_both() -> None:
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"1")
        async with opened(config) as (_, blobs):
            await move_all(blobs)
            await fs.write("/g", b"2")
            await blobs.hot.start_upload("0" * 8)
    assert await destroy_volume(config, force=True) == 0
    for name in (config.name, f"{config.name}-hot"):
        store = MemoryBlobs(name).open(OpenContext())
        if await store.exists():
            assert await sizes(store) == {}


@pytest.fixture
def no_open_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client has the volume open, so that the lock need not wait."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


async def old_volume() -> VolumeConfig:
    config = memory_config(TUNING)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/old", b"old")
    return config


async def has_tiers(config: VolumeConfig) -> None:
    """Record, tag and marks know the hot location, and the volume works."""
    async with opened(config) as (volume, blobs):
        assert volume.record.hot == f"memory://{config.name}-hot/"
        mark = await read_claim(volume.place)
        assert mark is not None
        assert mark.flags == volume.record.flags
        assert mark.document["hot"] == volume.record.hot
        assert isinstance(blobs, TieredBlobs)
    async with S3kClient(config=config) as fs:
        await fs.write("/new", b"new")
        assert await fs.read("/old") == b"old"
        async with opened(config) as (_, blobs):
            assert len(await sizes(blobs.hot)) == 1


@pytest.mark.usefixtures("no_open_clients")
async def test_a_volume_gets_a_hot_location() -> None:
    config = await old_volume()
    hot = f"memory://{config.name}-hot"
    assert await add_hot_location(config, hot)
    await has_tiers(config)
    assert not await add_hot_location(config, hot)
    with pytest.raises(VolumeMismatchError, match="has the hot location"):
        await add_hot_location(config, "memory://elsewhere")


@pytest.mark.usefixtures("no_open_clients")
async def test_a_hot_location_that_is_refused_leaves_the_volume_as_it_was(tmp_path: Path) -> None:
    config, other = await old_volume(), await tiered_volume()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    local = replace(memory_config(TUNING), data=LocalDirectory(str(tmp_path / "data")))
    await init_volume(local)
    for place, hot, error in (
        (config, f"memory://{other.name}-hot", VolumeExistsError),
        (local, str(tmp_path / "link"), ConfigError),
    ):
        with pytest.raises(error):
            await add_hot_location(place, hot)
        async with S3kClient(config=place) as fs:
            await fs.write("/f", b"1")
            assert await fs.read("/f") == b"1"
    await add_hot_location(config, f"memory://{config.name}-hot")
    await has_tiers(config)


@pytest.mark.usefixtures("no_open_clients")
async def test_an_interrupted_addition_of_a_hot_location_may_be_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its location cannot be used by the time when the call is repeated."""
    config, other = await old_volume(), memory_config(TUNING)
    hot = f"memory://{other.name}-hot"
    with monkeypatch.context() as patch:
        patch.setattr(VolumeLock, "_give_up", _nothing)  # the client died
        patch.setattr("s3k_async.migrate.hot_location.claim_hot", _death)
        with pytest.raises(Died):
            await add_hot_location(config, hot)
    await init_volume(other, hot=hot)
    with pytest.raises(BusyError):
        await add_hot_location(config, f"memory://{config.name}-hot", runtime=LATER)
    with pytest.raises(VolumeExistsError):
        await add_hot_location(config, hot, runtime=LATER)
    await add_hot_location(config, f"memory://{config.name}-hot")
    await has_tiers(config)


async def _nothing(*_: object, **__: object) -> None:
    pass


async def _death(*_: object) -> None:
    raise Died("died")


@pytest.mark.usefixtures("no_open_clients")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_adding_a_hot_location_may_end_at_every_call(when: str) -> None:
    config = await old_volume()
    plan = FaultPlan()
    with plan.injected():
        await add_hot_location(config, f"memory://{config.name}-hot")
    for number in calls_to_try(len(plan.calls)):
        config = await old_volume()
        plan = FaultPlan()
        plan.die(number, when=when)  # type: ignore[arg-type]
        with plan.injected(), suppress(Died, S3kError, BaseExceptionGroup):
            await add_hot_location(config, f"memory://{config.name}-hot")
        await add_hot_location(config, f"memory://{config.name}-hot", runtime=LATER)
        await has_tiers(config)


async def collect(config: VolumeConfig, ages: Ages = NO_AGE) -> int:
    """Garbage collection of everything that is unreferenced; the number of deleted objects."""
    async with opened(config) as (volume, _):
        trail = AuditTrail(volume.log_blobs, SYSTEM.uuid())
        collector = GarbageCollector(CollectedData.of(volume), SYSTEM, ages, trail)
        with TemporaryDirectory() as directory:
            path = f"{directory}/candidates"
            marked = await collector.mark(path)
            await collector.clean_up(marked)
            swept = await collector.sweep(path)
        assert swept.failures == []
        return sum(count.objects for count in swept.deleted.values())


async def test_garbage_collection_deletes_in_both() -> None:
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        await fs.write("/cold", b"1")
        await fs.write("/both", b"2")
        async with opened(config) as (_, blobs):
            await move_all(blobs)
            await fs.write("/hot", b"3")
            for name in await sizes(blobs.cold):
                await blobs.hot.put(name, await blobs.cold.get(name))
            await fs.write("/kept", b"4")
            for path in ("/cold", "/both", "/hot"):
                await fs.delete(path)
            await anyio.sleep(0.01)
            assert await collect(config) == 3
            assert await sizes(blobs.cold) == {}
            assert list((await sizes(blobs.hot)).values()) == [1]
        assert await fs.read("/kept") == b"4"


class Writers:
    """Clients that write, delete and read, and what they were told is there."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.written: dict[str, bytes] = {}
        self.done = anyio.Event()

    async def write(self, fs: S3kClient, number: int) -> None:
        """Write and delete a few paths of its own."""
        for _ in range(25):
            path = f"/{number}-{self.random.randrange(6)}"
            was = self.written.pop(path, None)
            if was is not None and self.random.random() < 0.4:
                await fs.delete(path)
                continue
            data = self.random.randbytes(self.random.choice([0, 5, 90, 200]))
            await fs.write(path, data)
            self.written[path] = data
            await anyio.lowlevel.checkpoint()

    async def read(self, fs: S3kClient) -> None:
        """Read all that is known to be there, until the others have ended."""
        while not self.done.is_set():
            for path, data in list(self.written.items()):
                try:
                    found: bytes | None = await fs.read(path)
                except S3kError:
                    found = None
                if self.written.get(path) is data:
                    assert found == data
            await anyio.lowlevel.checkpoint()

    async def move(self, config: VolumeConfig) -> None:
        """Move all that is hot, again and again."""
        async with opened(config) as (_, blobs):
            while not self.done.is_set():
                assert not (await move_all(blobs)).damaged
                await anyio.lowlevel.checkpoint()

    async def collect(self, config: VolumeConfig) -> None:
        """Collect garbage again and again. What a reader holds open is older than any file here, so
        the ages are those of uploads that can still be published."""
        while not self.done.is_set():
            await collect(config, Ages(grace=0.0))
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("seed", range(5))
async def test_acknowledged_files_are_readable_beside_moves_and_collections(seed: int) -> None:
    config = await tiered_volume()
    writers = Writers(seed)
    async with S3kClient(config=config) as fs, S3kClient(config=config) as reader:
        async with anyio.create_task_group() as others:
            others.start_soon(writers.read, reader)
            others.start_soon(writers.move, config)
            others.start_soon(writers.move, config)
            others.start_soon(writers.collect, config)
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(writers.write, fs, number)
            writers.done.set()
        for path, data in writers.written.items():
            assert await reader.read(path) == data
    await anyio.sleep(0.01)
    async with opened(config) as (volume, blobs):
        await move_all(blobs)
        assert await sizes(blobs.hot) == {}
        await collect(config)
        assert len(await sizes(blobs.cold)) == len(writers.written)
        assert (await verify_volume(volume, deep=True)).findings == []
