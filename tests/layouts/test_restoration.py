"""A volume of layout `tree` whose table was lost comes back from its log: every attribute of every
item, the trash included."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import Condition, Delete, Item, Put
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    DirectoryNotEmptyError,
    ItemFormatError,
    PathNotFoundError,
    S3kError,
    ServiceError,
    VolumeMismatchError,
)
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.integrity.restore_report import RestoreReport
from s3k_async.layouts.tree.trash_items import SETTLE_MS
from s3k_async.oplog.compaction import Compactor
from s3k_async.testing import FaultPlan, Moment
from s3k_async.txn import volume_lock
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.volumes import init_volume, open_volume
from s3k_async.volumes.restoration import (
    DamagedVolume,
    PlannedRestore,
    Planner,
    restore_volume,
)
from s3k_async.volumes.volume import Volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integrity.restore_ground import deaths_of_a_restore, lose_table, objects_of
from tests.layouts.trees import paths_of
from tests.support import under


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other client has these volumes open."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


def tree_of(new_volume: VolumeMaker) -> VolumeConfig:
    return replace(new_volume(suffix_count=3), layout="tree")


async def lived(config: VolumeConfig) -> None:
    """Directories that were renamed, deleted, restored and are being reclaimed."""
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write_many(
            [(f"/in/day={number % 3}/part-{number}", b"x" * number) for number in range(12)]
        )
        await fs.makedirs("/empty/one")
        await fs.write("/in/day=1/sub/deep/f", b"deep")
        await fs.rename("/in/day=1", "/moved")
        await fs.rename("/in", "/moved/sub/in")
        await fs.rename("/moved", "/again")
        await fs.delete("/again/sub/in/day=2", recursive=True)
        for name in ("back", "kept", "waited", "emptied"):
            await fs.write(f"/{name}/f", name.encode())
            await fs.write(f"/{name}/below/g", name.encode())
        await fs.delete("/back", recursive=True)
        await fs.trash().restore("/back", "/empty/back")
        await fs.delete("/waited", recursive=True, wait=True)
        await fs.delete("/emptied", recursive=True)
        (emptied,) = [each for each in await fs.trash().list() if each.was == "/emptied"]
        await fs.trash().empty([emptied])
        await fs.delete("/kept", recursive=True)
        await fs.write("/kept/f", b"another")
        await fs.makedirs("/removed")
        await fs.delete("/removed")


async def collect(config: VolumeConfig, later_ms: int = 0) -> None:
    """What gc does with the trash, at a time after the present one."""
    volume = await open_volume(config)

    async def clock() -> int:
        return SYSTEM.now_ms() + later_ms

    result = await volume.store.layout.trash().collect(clock, retention_ms=10**9)
    assert result.failures == ()
    await volume.close()


async def items_of(config: VolumeConfig) -> list[Item]:
    volume = await open_volume(config)
    found = await objects_of(volume)
    assert [each async for each in volume.store.transactions.records()] == []
    await volume.close()
    return found


async def trash_of(config: VolumeConfig) -> dict[str, str]:
    """The states of the directories in the trash, by their former paths."""
    async with S3kClient(config=config) as fs:
        return {item.was: item.state for item in await fs.trash().list()}


async def require_sound(config: VolumeConfig) -> None:
    """fsck has no findings, and a path leads to every entry."""
    volume = await open_volume(config)
    report = await verify_volume(volume, grace=0.0, deep=True)
    assert report.problems == []
    paths_of([entry async for page in volume.store.scan("/") for entry in page])
    await volume.close()


async def restored(config: VolumeConfig) -> RestoreReport:
    await lose_table(config)
    plan = await restore_volume(config)
    report = await restore_volume(config, dry_run=False)
    assert report.counts == plan.counts
    assert report.written == report.restored > 0
    return report


@volume_backends("memory", "embedded")
@pytest.mark.parametrize("compacted", [False, True])
async def test_every_attribute_of_every_item_comes_back(
    new_volume: VolumeMaker, *, compacted: bool
) -> None:
    config = tree_of(new_volume)
    await lived(config)
    await collect(config)
    if compacted:
        volume = await open_volume(config)
        assert volume.log_blobs is not None
        done = await Compactor(volume.log_blobs, SYSTEM, grace=0).run(dry_run=False)
        assert done.removed > 5
        await volume.close()
    before, trash = await items_of(config), await trash_of(config)
    assert trash == {
        "/again/sub/in/day=2": "",
        "/kept": "",
        "/waited": "reclaiming",
        "/emptied": "reclaiming",
    }
    assert {"since", "state"} <= {name for item in before for name in item}
    assert (await restored(config)).clean
    assert await items_of(config) == before
    assert await trash_of(config) == trash
    await require_sound(config)
    async with S3kClient(config=config) as fs:
        assert await fs.read("/again/sub/in/day=0/part-3") == b"xxx"
        await fs.trash().restore("/again/sub/in/day=2", "/two")
        assert await fs.read("/two/part-5") == b"x" * 5
        for was in ("/waited", "/emptied"):
            with pytest.raises(PathNotFoundError):
                await fs.trash().restore(was)
    await collect(config, SETTLE_MS + 1000)
    assert await trash_of(config) == {"/kept": ""}
    await require_sound(config)


@volume_backends("memory")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_death_at_every_call_of_a_restore_is_finished_by_restoring_again(
    new_volume: VolumeMaker, when: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_lock, "LOCK_SECONDS", 0.0)
    config = tree_of(new_volume)
    await lived(config)
    volume = await open_volume(config)
    # The log does not know a directory, which a restore creates.
    assert volume.log_blobs is not None
    lost = await volume.store.make_directory("/unknown")
    async with S3kClient(config=config) as fs:
        await fs.write("/unknown/f", b"f")
    await volume.log.drained()
    for state in ("pending", "committed"):
        key = f"entries/{lost.id[:2]}/{lost.id}.{1:010d}.{lost.operation}.{state}"
        await volume.log_blobs.delete(key)
    await volume.close()
    await lose_table(config)
    probe = FaultPlan()
    report = await under(probe, restore_volume(config, dry_run=False))
    assert report.counts["parent_made"] == 2
    before = await items_of(config)
    async with S3kClient(config=config) as fs:
        assert await fs.read(f"/lost+found/{lost.id}/f") == b"f"
    async for number in deaths_of_a_restore(config, len(probe.calls), when):
        assert await items_of(config) == before, number
    await require_sound(config)


@volume_backends("memory")
async def test_what_the_table_lost_below_a_path_is_put_back(new_volume: VolumeMaker) -> None:
    config = tree_of(new_volume)
    await lived(config)
    before = await items_of(config)
    volume = await open_volume(config)
    lost = [
        entry
        async for page in volume.store.scan("/")
        for entry in page
        if entry.path.rpartition("/")[2] in {"again", "sub", "in", "part-0", "f"}
    ]
    for entry in lost:
        key = volume.store.keys.of(entry)
        await volume.items.write(Delete(key, Condition(equals={"id": entry.id})))
    await volume.close()
    with pytest.raises(DirectoryNotEmptyError, match="--subtree"):
        await restore_volume(config)
    report = await restore_volume(config, subtree="/again/sub/in", dry_run=False)
    assert report.written == 4, "two directories above it"
    async with S3kClient(config=config) as fs:
        assert await fs.read("/again/sub/in/day=0/part-0") == b""
        assert not await fs.exists("/again/sub/deep/f")
    await restore_volume(config, subtree="/", dry_run=False)
    assert await items_of(config) == before


@volume_backends("memory")
async def test_a_damaged_item_that_stops_a_restore_below_a_path_can_be_repaired(
    new_volume: VolumeMaker,
) -> None:
    """The volume is not locked until then."""
    config = tree_of(new_volume)
    await lived(config)
    volume = await open_volume(config)
    pages = [page async for page in volume.store.scan("/")]
    entries = {entry.path.rpartition("/")[2]: entry for page in pages for entry in page}
    damaged, lost = (volume.store.keys.of(entries[name]) for name in ("part-0", "part-3"))
    item = await volume.items.get(damaged)
    assert item is not None
    unchanged = Condition(equals={"id": entries["part-0"].id})
    await volume.items.write(Put({**item, "isdir": "x"}, unchanged))
    await volume.items.write(Delete(lost, Condition(equals={"id": entries["part-3"].id})))
    await volume.close()
    with pytest.raises(ItemFormatError, match="s3k fsck repair"):
        await restore_volume(config, subtree="/", dry_run=False)
    volume = await open_volume(config)
    await repair_volume(volume, dry_run=False, grace=0)
    await volume.close()
    await restore_volume(config, subtree="/", dry_run=False)
    async with S3kClient(config=config) as fs:
        assert await fs.read("/again/sub/in/day=0/part-3") == b"xxx"
    await require_sound(config)


class HalfWritten:
    """A plan whose writing is interrupted."""

    report = RestoreReport()

    async def write(self, volume: Volume, lock: VolumeLock) -> None:
        raise ServiceError("half-way")

    def close(self) -> None:
        """No effect."""


@volume_backends("memory")
async def test_an_interrupted_restore_below_a_path_is_finished_or_repaired(
    new_volume: VolumeMaker,
) -> None:
    config = tree_of(new_volume)
    await lived(config)

    def failing(error: S3kError) -> Planner:
        async def plan(_: DamagedVolume) -> PlannedRestore:
            raise error

        return plan

    async def half_written(_: DamagedVolume) -> PlannedRestore:
        return HalfWritten()

    for planner in (half_written, failing(ServiceError("the log cannot be read"))):
        with pytest.raises(ServiceError):
            await restore_volume(config, subtree="/again", dry_run=False, planner=planner)
        with pytest.raises(BusyError, match="interrupted"):
            await open_volume(config)
    planner = failing(ItemFormatError("damaged (s3k fsck repair)"))
    with pytest.raises(ItemFormatError):
        await restore_volume(config, subtree="/again", dry_run=False, planner=planner)
    await require_sound(config)


@volume_backends("memory")
async def test_the_layout_of_the_lost_table_is_that_of_the_mark(new_volume: VolumeMaker) -> None:
    config = tree_of(new_volume)
    await lived(config)
    await lose_table(config)
    report = await restore_volume(replace(config, layout=None))
    assert report.clean
    assert report.directories > 0
    with pytest.raises(VolumeMismatchError, match="layout tree, not path"):
        await restore_volume(replace(config, layout="path"), dry_run=False)
    assert (await restore_volume(replace(config, layout=None), dry_run=False)).clean


Step = Callable[[S3kClient, random.Random], Awaitable[object]]
NAMES = ("a", "b", "c")


def some_path(chance: random.Random) -> str:
    return "/" + "/".join(chance.choice(NAMES) for _ in range(chance.randint(1, 4)))


async def undelete(fs: S3kClient, chance: random.Random) -> None:
    if items := await fs.trash().list():
        await fs.trash().restore(chance.choice(items), some_path(chance))


async def empty_one(fs: S3kClient, chance: random.Random) -> None:
    if items := await fs.trash().list():
        await fs.trash().empty([chance.choice(items)])


async def together(fs: S3kClient, chance: random.Random) -> None:
    async with fs.transaction() as txn:
        await txn.rename(some_path(chance), some_path(chance))
        await txn.write(some_path(chance), b"together")
        await txn.delete(some_path(chance), recursive=True)


STEPS: tuple[Step, ...] = (
    lambda fs, chance: fs.write(some_path(chance), chance.randbytes(3)),
    lambda fs, chance: fs.write(some_path(chance), chance.randbytes(3)),
    lambda fs, chance: fs.makedirs(some_path(chance)),
    lambda fs, chance: fs.rename(some_path(chance), some_path(chance)),
    lambda fs, chance: fs.rename(some_path(chance), some_path(chance)),
    lambda fs, chance: fs.delete(some_path(chance)),
    lambda fs, chance: fs.delete(some_path(chance), recursive=True),
    lambda fs, chance: fs.delete(some_path(chance), recursive=True, wait=chance.random() < 0.3),
    undelete,
    empty_one,
    together,
)


@volume_backends("memory")
@pytest.mark.parametrize("number", range(6))
async def test_random_histories_come_back(new_volume: VolumeMaker, number: int) -> None:
    """Two clients at once. Each table that was lost is used on."""
    config = tree_of(new_volume)
    await init_volume(config)
    chance = random.Random(number)
    done = 0

    async def step(fs: S3kClient) -> None:
        nonlocal done
        try:
            await chance.choice(STEPS)(fs, chance)
        except S3kError:
            return
        done += 1

    for part in range(4):
        async with S3kClient(config=config) as one, S3kClient(config=config) as two:
            for _ in range(25):
                await asyncio.gather(step(one), step(two))
        if part % 2:
            await collect(config, SETTLE_MS * part)
        before = await items_of(config)
        assert (await restored(config)).clean
        assert await items_of(config) == before
        await require_sound(config)
    assert done > 60
