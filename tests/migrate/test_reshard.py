"""Another suffix count in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async._core.concurrency import gather
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    ConfigError,
    InvalidPathError,
    ItemFormatError,
    PermissionDeniedError,
    VolumeMismatchError,
)
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.repair import verify_volume
from s3k_async.migrate import reshard, reshard_volume
from s3k_async.migrate.reshard_pass import PassResult, ReshardPass
from s3k_async.model import HashName, LayoutName
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.volume_lock import LOOK_SECONDS
from s3k_async.txn.volume_record import TAG
from s3k_async.volumes import Volume, init_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integrity.garbage import gc_of
from tests.level import calls_to_try
from tests.migrate.rig import FILES, HURRIED, config, entries, keys, made, opened, stored
from tests.support import FakeClock, after_call, from_call, under

pytestmark = pytest.mark.layouts("path", "tree")
LATER = replace(HURRIED, now_ms=lambda: HURRIED.now_ms() + 100_000)


async def plain_items(settings: VolumeConfig) -> list[dict[str, object]]:
    """Everything that is stored of the entries but for the number of their partition: in layout
    `tree` the trash and removal markers too."""
    found = [
        {**item, "path": str(item["path"]).rpartition("-")[0]} for item in await stored(settings)
    ]
    return sorted(found, key=lambda item: (str(item["path"]), str(item["children"])))


async def check_readable(settings: VolumeConfig) -> None:
    async with S3kClient(config=replace(settings, suffix_count=None, hash=None)) as fs:
        for path, data in FILES.items():
            assert await fs.read(path) == (b"one, again" if path == "/a/1" else data)
        await fs.write("/a/after", b"after")
        await fs.delete("/a/after")
        assert {status.name async for status in fs.list("/a")} == {"1", "2", "deep"}


@volume_backends(
    "memory", "embedded", "dynoxide+seaweedfs", "dynamodb_local+seaweedfs", "redis", "rocksdb"
)
async def test_the_suffix_count_of_a_volume_can_be_changed(
    new_volume: VolumeMaker, layout: LayoutName
) -> None:
    settings = await made(new_volume(suffix_count=3, layout=layout))
    wanted, before = await entries(settings), await plain_items(settings)
    targets: list[tuple[int, HashName | None]] = [(10, None), (10, "java31"), (1, "xxh3")]
    for count, hash_name in targets:
        done = await reshard_volume(settings, count, hash=hash_name, runtime=HURRIED)
        assert done.suffix_count == count
        assert done.entries == len(before)
        assert await entries(settings) == wanted
        assert await plain_items(settings) == before
        await keys(settings)
        async with opened(settings) as volume:
            assert volume.record.suffix_count == count
            assert volume.record.hash == done.hash
    await check_readable(settings)


async def test_fsck_finds_nothing_and_gc_deletes_nothing_that_lives(
    layout: LayoutName, tmp_path: Path
) -> None:
    settings = await made(config(4))
    await reshard_volume(settings, 9, hash="java31", runtime=HURRIED)
    async with opened(settings) as volume:
        assert (await verify_volume(volume, grace=-100.0, deep=True)).problems == []
        collector = gc_of(volume, SYSTEM, Ages(grace=-100.0, lease=0.0, late=-100.0))
        candidates = str(tmp_path / "candidates")
        await collector.clean_up(await collector.mark(candidates))
        swept = await collector.sweep(candidates)
        # the bytes that were written over, and those of the deleted file
        deleted = {reason: count.objects for reason, count in swept.deleted.items()}
        assert deleted == {"deleted": 1, "replaced": 1}
        assert (await verify_volume(volume, grace=-100.0, deep=True)).problems == []
    await check_readable(settings)
    if layout == "tree":
        async with S3kClient(config=replace(settings, suffix_count=None, hash=None)) as fs:
            await fs.trash().restore("/trashed", "/restored")
            assert await fs.read("/restored/with/f") == b"in the trash"
            assert await fs.trash().list() == []


async def test_names_that_fall_into_one_partition_are_spread() -> None:
    settings = config(31, hash="java31")
    await init_volume(settings)
    async with S3kClient(config=settings) as fs:
        await fs.write_many([(f"/d/part-r-{number:05}.gz", b"") for number in range(300)])

    async def hottest() -> int:
        found = Counter(
            item["path"] for item in await stored(settings) if str(item["children"]).endswith(".gz")
        )
        return max(found.values())

    before = await hottest()
    await reshard_volume(settings, 30, hash="xxh3", runtime=HURRIED)
    assert await hottest() < 40 <= before


async def test_what_is_so_already_changes_nothing() -> None:
    settings = await made(config(4))
    before = await stored(settings)
    done = await reshard_volume(settings, 4, runtime=HURRIED)
    assert done.moved == 0
    assert await stored(settings) == before


async def test_the_tag_follows_the_record() -> None:
    settings = await made(config(4))
    await reshard_volume(settings, 6, runtime=HURRIED)
    async with opened(settings) as volume:
        assert await volume.table.read_tag(TAG) == volume.record.to_tag()
        assert " s:6 " in volume.record.to_tag()


async def test_only_what_gets_another_key_is_moved() -> None:
    settings = await made(config(4))
    before = {(item["path"], item["children"]) for item in await stored(settings)}
    done = await reshard_volume(settings, 8, runtime=HURRIED)
    after = {(item["path"], item["children"]) for item in await stored(settings)}
    assert 0 < done.moved == len(after - before) < done.entries


async def test_refusals_change_nothing() -> None:
    settings = await made(config(4))
    before = await stored(settings)
    for count in (0, 1001):
        with pytest.raises(ConfigError):
            await reshard_volume(settings, count, runtime=HURRIED)
    items = MemoryItems(settings.name)
    stray = {
        **before[0],
        "path": f"{str(before[0]['path'])[:-1]}{(int(str(before[0]['path'])[-1]) + 1) % 4}",
    }
    odd = {"path": "ks://another/-sf0", "children": "x", "ver": 1}
    for bad in (stray, odd):
        put = Put(bad, ABSENT)  # type: ignore[arg-type]
        await items.write(put)
        with pytest.raises(ItemFormatError, match="fsck"):
            await reshard_volume(settings, 7, runtime=HURRIED)
        assert len(await stored(settings)) == len(before) + 1
        from s3k_async.backends.ports.items import Condition, Delete

        await items.write(Delete(put.key, Condition()))
    await check_readable(settings)


@volume_backends("memory", "embedded")
async def test_each_pass_may_be_done_twice_at_the_same_time(
    new_volume: VolumeMaker, layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when Spark runs a task twice: an old copy that is gone was removed by the other one."""
    settings = await made(new_volume(suffix_count=4, layout=layout))
    wanted, before = await entries(settings), await plain_items(settings)
    monkeypatch.setattr(reshard, "ReshardPass", Twice)
    done = await reshard_volume(settings, 9, runtime=HURRIED)
    assert done.entries == len(before)
    assert await entries(settings) == wanted
    assert await plain_items(settings) == before
    await keys(settings)
    await check_readable(settings)


class Twice(ReshardPass):
    """Two of them go over each segment."""

    async def over(
        self, volume: Volume, segment: int, segments: int, held: Callable[[], object]
    ) -> AsyncGenerator[PassResult, None]:
        async def one(_: int) -> list[PassResult]:
            return [
                passed async for passed in ReshardPass.over(self, volume, segment, segments, held)
            ]

        for passed in (await gather(one, range(2), limit=2))[0]:
            yield passed


@pytest.mark.layouts("path")
async def test_a_key_that_would_be_too_long_is_refused() -> None:
    settings = config(4)
    await init_volume(settings)
    room = 2048 - len(f"ks://{settings.name}/-sf3")
    path = "".join("/" + "x" * 100 for _ in range(room // 101))
    path += "/" + "y" * (room - len(path))
    async with S3kClient(config=settings) as fs:
        await fs.makedirs(path)
        await fs.write(f"{path}/f", b"deep")
    with pytest.raises(InvalidPathError):
        await reshard_volume(settings, 11, runtime=HURRIED)
    async with S3kClient(config=settings) as fs:
        assert await fs.read(f"{path}/f") == b"deep"


async def test_a_tag_that_cannot_be_written_stops_it_before_anything_is_changed() -> None:
    settings = await made(config(4))
    before = await stored(settings)
    plan = FaultPlan()
    plan.fail_when(lambda call: call.method == "write_tag", PermissionDeniedError("no"), times=100)
    with pytest.raises(PermissionDeniedError):
        await under(plan, reshard_volume(settings, 6, runtime=HURRIED))
    assert await stored(settings) == before
    await check_readable(settings)


# Others meanwhile


async def test_readers_and_writers_meanwhile_are_turned_away() -> None:
    """What docs/design/005-resharding.md says of them."""
    settings = await made(config(4))
    clock = FakeClock()
    runtime = replace(HURRIED, monotonic=clock.monotonic, now_ms=clock.now_ms)
    plan = FaultPlan()
    seen: list[str] = []
    from s3k_async.volumes import open_volume

    old = await open_volume(settings, runtime=runtime)

    async def gate(call: Call) -> None:
        if call.method not in ("load", "transact"):
            return
        clock.advance(LOOK_SECONDS)
        for work in (old.store.get("/a"), old.store.make_directory("/new/here")):
            with pytest.raises(BusyError, match="is locked by a"):
                await work
        with pytest.raises(BusyError, match="is locked by a"):
            await open_volume(settings)
        seen.append(call.method)

    plan.gate = gate
    await under(plan, reshard_volume(settings, 9, runtime=HURRIED))
    assert {"load", "transact"} <= set(seen)
    clock.advance(LOOK_SECONDS)
    for again in (old.store.get("/a"), old.store.make_directory("/new/here")):
        with pytest.raises(VolumeMismatchError, match="open it again"):
            await again
    await old.close()
    await check_readable(settings)
    await keys(settings)


# Interrupted


async def calls_of_a_reshard() -> int:
    settings, plan = await made(config(2)), FaultPlan()
    await under(plan, reshard_volume(settings, 5, runtime=HURRIED))
    return len(plan.calls)


@pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.slow), "after"])
async def test_a_reshard_that_dies_at_any_call_is_finished_by_the_same_call(moment: Any) -> None:
    for number in calls_to_try(await calls_of_a_reshard()):
        settings, plan = await made(config(2)), FaultPlan()
        wanted, before = await entries(settings), await plain_items(settings)
        plan.fail_when(
            from_call(number),
            Died("died"),
            when=moment,
        )
        plan.fail_when(after_call(number), Died("dead"), times=10**9)
        with suppress(Died, BaseExceptionGroup):  # no two make exactly as many calls
            await under(plan, reshard_volume(settings, 5, runtime=HURRIED))
        await reshard_volume(settings, 5, runtime=LATER)
        assert await entries(settings) == wanted
        assert await plain_items(settings) == before
        await keys(settings)
        async with opened(settings) as volume:
            assert (await verify_volume(volume, grace=-100.0)).problems == []
            assert volume.record.suffix_count == 5
            assert await volume.table.read_tag(TAG) == volume.record.to_tag()


async def test_an_interrupted_reshard_is_finished_to_the_same_count_only() -> None:
    settings, plan = await made(config(4)), FaultPlan()
    plan.fail_when(lambda call: call.method == "load", PermissionDeniedError("no more"))
    with pytest.raises(PermissionDeniedError):
        await under(plan, reshard_volume(settings, 7, hash="java31", runtime=HURRIED))
    with pytest.raises(BusyError, match=r"a reshard of the volume \(7 java31\) was interrupted"):
        await entries(settings)
    for count, hash_name in ((8, "java31"), (7, None)):
        with pytest.raises(BusyError, match=r"7 java31"):
            await reshard_volume(settings, count, hash=hash_name, runtime=HURRIED)  # type: ignore[arg-type]
    await reshard_volume(settings, 7, hash="java31", runtime=HURRIED)
    await keys(settings)
    await check_readable(settings)
