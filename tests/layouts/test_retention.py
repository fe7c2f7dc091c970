"""The retention of the trash: an attribute of the volume record that any client can change."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kClient, S3kSyncClient, VolumeConfig
from s3k_async import init_volume as public_init
from s3k_async.backends.ports.items import Condition, Update
from s3k_async.errors import (
    BusyError,
    ConfigError,
    InvalidArgumentError,
    NotAVolumeError,
    OutcomeUnknownError,
    ResponseLostError,
    UnsupportedError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.integrity.gc_rules import Ages
from s3k_async.model import ChangeResult, LayoutName
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.volume_record import (
    LOCK,
    RECORD_KEY,
    TRASH_RETENTION,
    TREE,
    VolumeRecord,
    same_record,
)
from s3k_async.volumes import destroy_volume, init_volume
from tests.client.rig import faulty_client, memory_config
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integrity.garbage import DAY, Yard, yard

WEEK = 7 * TRASH_RETENTION


def tree_config(**change: Any) -> VolumeConfig:
    return replace(memory_config(), layout="tree", **change)


async def item_of(fs: S3kClient) -> dict[str, Any]:
    return dict(await fs._volume().items.get(RECORD_KEY) or {})


async def put(fs: S3kClient, **values: Any) -> None:
    """Change attributes of the record item; None removes one."""
    items = fs._volume().items
    sets = {name: value for name, value in values.items() if value is not None}
    gone = tuple(name for name, value in values.items() if value is None)
    await items.write(Update(RECORD_KEY, Condition(), sets, gone))


async def test_a_new_volume_has_the_default_or_what_was_asked_for() -> None:
    config = tree_config()
    record = await init_volume(config)
    async with S3kClient(config=config) as fs:
        assert record.trash_retention == TRASH_RETENTION == 86_400
        assert (await item_of(fs))["trash_retention"] == TRASH_RETENTION
        assert await fs.trash().retention() == TRASH_RETENTION
        assert fs.config.trash_retention == TRASH_RETENTION
    made = await public_init(config=tree_config(), trash_retention=WEEK)
    assert made.trash_retention == WEEK
    async with S3kClient(config=made) as fs:
        assert await fs.trash().retention() == WEEK


@volume_backends("memory", "embedded", "dynoxide+moto")
async def test_it_is_stored_and_changed_on_every_kind_of_table(new_volume: VolumeMaker) -> None:
    config = new_volume(layout="tree", trash_retention=WEEK)
    await init_volume(config)
    async with S3kClient(config=config) as fs, S3kClient(config=config) as other:
        assert await fs.trash().set_retention(0) == WEEK
        assert await other.trash().retention() == 0
        assert await other.trash().set_retention(10**10) == 0
        assert await fs.trash().retention() == 10**10


async def test_a_record_without_the_attribute_means_the_default() -> None:
    config = tree_config(trash_retention=5)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await put(fs, trash_retention=None)
        assert await fs.trash().retention() == TRASH_RETENTION
        assert await fs.trash().set_retention(9) == TRASH_RETENTION
        assert await fs.trash().retention() == 9


@pytest.mark.parametrize("value", ["86400", -1, True])
async def test_a_damaged_attribute_is_named(value: Any) -> None:
    config = tree_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await put(fs, trash_retention=value)
        with pytest.raises(NotAVolumeError, match="trash_retention is"):
            await fs.trash().retention()
    with pytest.raises(NotAVolumeError, match="trash_retention is"):
        await S3kClient(config=config).open_volume()


async def test_layout_path_stores_and_takes_none() -> None:
    config = memory_config()
    record = await init_volume(config)
    assert record.trash_retention is None
    async with S3kClient(config=config) as fs:
        before = await item_of(fs)
        assert "trash_retention" not in before
        assert await fs.trash().retention() is None
        assert fs.config.trash_retention is None
        with pytest.raises(UnsupportedError, match="layout path, which has no trash"):
            await fs.trash().set_retention(0)
        assert await item_of(fs) == before
    with pytest.raises(ConfigError, match="layout path, which has no trash"):
        await public_init(config=memory_config(), trash_retention=0)


async def test_an_unfinished_init_decides_about_the_layout() -> None:
    """Its mark in the data location has the flags of the volume."""
    orders: list[tuple[LayoutName, LayoutName]] = [("path", "tree"), ("tree", "path")]
    for began, goes_on in orders:
        config = memory_config()
        plan = FaultPlan()
        plan.fail_when(lambda call: call.method == "write", Died("died"), times=99)
        with plan.injected(), suppress(Died):
            await init_volume(replace(config, layout=began))
        record = await init_volume(replace(config, layout=goes_on))
        assert record.layout == began
        async with S3kClient(config=replace(config, layout=began)) as fs:
            has_trash = began == "tree"
            assert record.trash_retention == (TRASH_RETENTION if has_trash else None)
            assert fs.config.trash_retention == record.trash_retention
            assert (await item_of(fs)).get("trash_retention") == record.trash_retention


@pytest.mark.parametrize("seconds", [-1, 1.5, True, "1", None, 10**11])
async def test_what_is_no_retention_is_refused(seconds: Any) -> None:
    config = tree_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        before = await item_of(fs)
        with pytest.raises(InvalidArgumentError, match="a whole number"):
            await fs.trash().set_retention(seconds)
        assert await item_of(fs) == before
    if seconds is not None:
        with pytest.raises(InvalidArgumentError, match="a whole number"):
            await init_volume(tree_config(trash_retention=seconds))


async def test_it_is_no_part_of_the_identity_of_a_volume() -> None:
    config = tree_config()
    record = await init_volume(config)
    async with S3kClient(config=config) as fs:
        before = await item_of(fs)
        await fs.trash().set_retention(WEEK)
        after = await item_of(fs)
        assert same_record(before, after)
        assert not same_record(before, {**after, "epoch": "x"})
        assert not same_record(before, {**after, "suffix_count": 99})
        changed = VolumeRecord.from_item(after, "t")
        assert (changed, changed.trash_retention) == (record, WEEK)
        assert changed.to_tag() == record.to_tag()
        read = VolumeRecord.from_tag(record.to_tag(), "t")
        assert (read, read.trash_retention) == (record, TRASH_RETENTION)
        assert TREE in record.flags
    async with S3kClient(config=replace(config, trash_retention=3)) as fs:
        assert fs.config.trash_retention == WEEK, "clients are not compared with it"


async def test_an_init_that_accepts_a_volume_compares_what_it_is_asked_for() -> None:
    config = tree_config(trash_retention=WEEK)
    record = await init_volume(config)
    for asked in (None, WEEK):
        assert await init_volume(replace(config, trash_retention=asked), exist_ok=True) == record
    with pytest.raises(VolumeMismatchError, match=r"604800, not 0.*s3k trash retention"):
        await init_volume(replace(config, trash_retention=0), exist_ok=True)


async def test_a_change_waits_for_no_lock_and_for_no_destroyed_volume() -> None:
    config = tree_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await put(fs, **{LOCK: "x", "loading_for": "restore", "loading_lease": 2**50})
        with pytest.raises(BusyError, match="locked by a restore"):
            await fs.trash().set_retention(0)
        await put(fs, **{LOCK: None, "loading_for": None, "loading_lease": None})
        await destroy_volume(config)
        for call in (fs.trash().retention, lambda: fs.trash().set_retention(0)):
            with pytest.raises(VolumeNotFoundError):
                await call()


def test_the_blocking_client_has_it_too() -> None:
    import anyio

    config = tree_config()
    anyio.run(init_volume, config)
    with S3kSyncClient(config=config) as fs:
        assert fs.trash().set_retention(0) == TRASH_RETENTION
        assert fs.trash().retention() == 0


async def _set_at(moment: int, other: S3kClient, befores: list[int], call: Call) -> None:
    """At one of the calls, let another client set the retention."""
    if call.number == moment:
        befores.append(await other.trash().set_retention(2))


async def test_of_two_setters_each_takes_effect_once() -> None:
    """Whatever the moment of the other change, the values before and after form a chain."""
    moment, calls = 1, 100
    while moment <= calls:
        config = tree_config()
        await init_volume(config)
        async with S3kClient(config=config) as other:
            befores: list[int] = []

            plan = FaultPlan()
            async with faulty_client(plan, config) as fs:
                plan.gate = partial(_set_at, moment, other, befores)
                before = await fs.trash().set_retention(1)
                plan.gate = None
                calls = min(calls, len(plan.calls))
                last = await fs.trash().retention()
            assert (befores, before, last) in (
                ([TRASH_RETENTION], 2, 1),
                ([1], TRASH_RETENTION, 2),
            ), moment
        moment += 1
    assert calls >= 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_answer_is_resolved_and_does_not_undo_a_later_change(when: Any) -> None:
    config = tree_config()
    await init_volume(config)
    async with S3kClient(config=config) as other:
        for disturbed in (False, True):
            plan, writes = FaultPlan(), 0

            async def gate(call: Call, disturbed: bool = disturbed) -> None:
                nonlocal writes
                if disturbed and writes == 1:
                    writes = 2
                    await other.trash().set_retention(33)
                writes += call.method == "write"

            async with faulty_client(plan, config) as fs:
                plan.gate = gate
                plan.fail_when(
                    lambda call: call.method == "write", ResponseLostError("lost"), when=when
                )
                if disturbed:
                    with pytest.raises(OutcomeUnknownError):
                        await fs.trash().set_retention(77)
                else:
                    assert await fs.trash().set_retention(77) == TRASH_RETENTION
                plan.gate = None
                assert await fs.trash().retention() == (33 if disturbed else 77)


@pytest.fixture
async def place(tmp_path: Path) -> Any:
    async with yard(tmp_path, change=lambda config: replace(config, layout="tree")) as made:
        await made.client.write("/a/f", b"one")
        await made.client.write("/z", b"two")
        await made.client.write("/z", b"three")
        await made.client.delete("/a", recursive=True)
        await made.settle()
        yield made


async def test_gc_reclaims_by_the_retention_of_the_volume_unless_told_otherwise(
    place: Yard,
) -> None:
    trash = place.client.trash()
    await trash.set_retention(10 * TRASH_RETENTION)
    place.clock.advance(9 * DAY)
    assert await (await place.collector()).reclaim() == ChangeResult()
    dry = await (await place.collector()).reclaim(8.5 * DAY, dry_run=True)
    assert dry == ChangeResult(1, 1, 3)
    collector = await place.collector()
    await trash.set_retention(0)
    assert await collector.reclaim() == ChangeResult(1, 1, 3), "the present one, not of the opening"
    await place.opened[-1].log.drained()
    assert (await trash.list())[0].state == "reclaiming"


async def test_gc_and_a_change_of_the_retention_do_not_disturb_each_other(tmp_path: Path) -> None:
    """The retention is changed before each call of a whole run, which must neither fail nor
    reclaim what neither of the two retentions lets it."""
    moment, calls = 1, 1000
    reclaimed = set()
    while moment <= calls:
        async with yard(
            tmp_path, change=lambda config: replace(config, layout="tree"), seed=moment
        ) as place:
            fs = place.client
            await fs.write("/old/f", b"1")
            await fs.delete("/old", recursive=True)
            place.clock.advance(DAY)
            await fs.write("/new/f", b"2")
            await fs.write("/z", b"2")
            await fs.write("/z", b"3")
            await fs.delete("/new", recursive=True)
            await place.settle()
            place.clock.advance(DAY / 2)

            async def gate(call: Call, moment: int = moment, fs: S3kClient = fs) -> None:
                if call.number == moment:
                    await fs.trash().set_retention(WEEK)

            plan = FaultPlan()
            collector = await place.collector(plan, Ages(grace=0.0, lease=600.0, late=60.0))
            plan.gate = gate
            result = await collector.reclaim()
            marked = await collector.mark(place.candidates)
            await collector.clean_up(marked)
            swept = await collector.sweep(place.candidates)
            assert swept.failures == []
            assert swept.deleted["replaced"].objects == 1
            reclaimed.add(result.files)
            assert {item.was for item in await fs.trash().list() if not item.state} >= {"/new"}
            assert await fs.trash().retention() == WEEK
            calls = min(calls, len(plan.calls))
        moment += 1
    assert reclaimed == {0, 1}
