"""Garbage collection of a volume of layout `tree`: the bytes of files in the trash are live until
the files are reclaimed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.client import S3kClient
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.repair import repair_volume
from s3k_async.layouts.tree.trash_items import SETTLE_MS
from s3k_async.model import ChangeResult
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.volume_record import TRASH_RETENTION
from tests.client.rig import paths
from tests.integrity.garbage import AGES, DAY, Yard, live_keys, yard

NOW = Ages(grace=0.0, lease=600.0, late=60.0)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Yard]:
    async with yard(tmp_path, change=lambda config: replace(config, layout="tree")) as made:
        await made.client.write("/a/b/f", b"one")
        await made.client.write("/a/g", b"two" * 200)  # in parts
        await made.client.write("/z/h", b"three")
        await made.settle()
        yield made


async def reclaim(place: Yard) -> ChangeResult:
    result = await (await place.collector()).reclaim()
    await place.opened[-1].log.drained()
    return result


async def test_bytes_in_the_trash_are_kept_until_the_files_are_reclaimed(place: Yard) -> None:
    fs, keys = place.client, await place.keys()
    live = {str((await fs.stat("/z/h")).physical)}
    await fs.delete("/a", recursive=True)
    await place.settle()
    assert await reclaim(place) == ChangeResult(), "not before the retention is over"
    place.clock.advance(10 * DAY)
    marked, swept = await place.gc()
    assert (marked.of("named").objects, swept.deleted) == (3, {})
    assert await place.keys() == keys
    assert await reclaim(place) == ChangeResult(2, 2, 603)
    marked, swept = await place.gc()
    assert (marked.of("waiting").objects, swept.deleted) == (2, {}), "the grace period begins now"
    place.clock.advance(AGES.grace + 1)
    _, swept = await place.gc()
    assert swept.deleted["deleted"].objects == 2
    assert await place.keys() == live
    assert await reclaim(place) == ChangeResult(0, 2, 0)
    assert await fs.trash().list() == []
    assert await fs.read("/z/h") == b"three"


async def test_what_is_restored_has_its_bytes(place: Yard) -> None:
    fs = place.client
    await fs.delete("/a", recursive=True)
    await place.settle()
    place.clock.advance(TRASH_RETENTION - 1)
    await reclaim(place)
    await place.gc(ages=NOW)
    await fs.trash().restore("/a", "/z/back")
    place.clock.advance(10 * DAY)
    await reclaim(place)
    await place.gc(ages=NOW)
    assert await fs.read("/z/back/g") == b"two" * 200
    assert await fs.read("/z/back/b/f") == b"one"


async def rename_and_delete(fs: S3kClient) -> None:
    """Of three directories one is renamed, one deleted, and one deleted and restored."""
    await fs.rename("/a/b", "/z/b")
    await fs.delete("/a", recursive=True)
    await fs.trash().restore("/gone", "/back")


@pytest.mark.parametrize("part", range(4))
async def test_changes_of_directories_between_any_two_calls_of_a_run_lose_nothing(
    part: int, tmp_path: Path
) -> None:
    moment, calls = 1 + part * 2, 1000
    while moment <= calls:
        async with yard(
            tmp_path, change=lambda config: replace(config, layout="tree"), seed=moment
        ) as place:
            fs = place.client
            for path in ("/a/b/f", "/a/g", "/z/h", "/gone/k", "/dead"):
                await fs.write(path, path.encode())
            await fs.delete("/gone", recursive=True)
            await fs.delete("/dead")
            await place.settle()
            place.clock.advance(DAY / 2)

            async def gate(call: Call, moment: int = moment, fs: S3kClient = fs) -> None:
                if call.number == moment:
                    await rename_and_delete(fs)

            plan = FaultPlan(gate)
            await place.gc(plan, NOW)
            calls = min(calls, len(plan.calls))
            (item,) = await fs.trash().list()
            await fs.trash().restore(item)
            assert await paths(fs) == {
                *("/a", "/a/g", "/z", "/z/b", "/z/b/f", "/z/h", "/back", "/back/k"),
            }
            assert await fs.read("/z/b/f") == b"/a/b/f"
            assert await fs.read("/a/g") == b"/a/g"
            assert await fs.read("/back/k") == b"/gone/k"
            assert len(await place.keys()) == 4
            moment += 8


async def test_an_abandoned_reservation_is_removed(place: Yard) -> None:
    fs = place.client
    await fs.open("/z/reserved", "wb")
    place.clock.advance(DAY)
    await place.gc(ages=NOW)
    assert not await fs.exists("/z/reserved")
    assert await paths(fs) == {"/a", "/a/b", "/a/b/f", "/a/g", "/z", "/z/h"}
    await place.opened[-1].log.drained()
    marked, _ = await place.gc(ages=NOW)
    assert marked.reservations == []


async def test_removal_markers_go_with_the_second_run(place: Yard) -> None:
    fs = place.client
    await fs.makedirs("/empty")
    await fs.delete("/empty")
    items = place.volume.store.layout.trash()
    for _ in range(2):
        assert await reclaim(place) == ChangeResult()
        place.clock.advance(SETTLE_MS / 1000)
    assert await items.items() == []
    assert [
        entry
        async for page in place.volume.store.scan("/")
        for entry in page.entry_keys()
        if entry.startswith("00000000-0000-4000-8000-000000000001/")
    ] == []


async def begin(place: Yard) -> None:
    """A directory whose retention is over, one that can be restored, and other garbage."""
    fs = place.client
    for path in ("/due/a/f", "/due/g", "/kept/k", "/z/h"):
        await fs.write(path, path.encode())
    await fs.write("/z/h", b"again")
    await fs.makedirs("/empty")
    await fs.delete("/due", recursive=True)
    await fs.delete("/empty")
    await fs.open("/z/reserved", "xb")
    await place.settle()
    place.clock.advance(DAY)
    await fs.delete("/kept", recursive=True)
    await place.settle()


async def run(place: Yard, plan: FaultPlan | None = None) -> None:
    """A whole run, as `s3k gc --yes` makes it."""
    collector = await place.collector(plan, NOW)
    await collector.reclaim()
    marked = await collector.mark(place.candidates)
    await collector.clean_up(marked)
    await collector.sweep(place.candidates)
    await place.opened[-1].log.drained()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_death_at_any_call_of_a_run_loses_nothing_and_later_runs_finish(
    when: str, step: int, tmp_path: Path
) -> None:
    moment = calls = 0
    while moment <= calls:
        async with yard(
            tmp_path, change=lambda config: replace(config, layout="tree"), seed=moment
        ) as place:
            await begin(place)
            fs, plan = place.client, FaultPlan()
            if moment:
                plan.die(moment, when="before" if when == "before" else "after")
            with suppress(Died):
                await run(place, plan)
            calls = calls or len(plan.calls)  # of the first run, which does not die
            assert await fs.read("/z/h") == b"again"
            for _ in range(2):
                place.clock.advance(SETTLE_MS / 1000)
                await run(place)
            # The log does not have the end of a deletion whose record was not written.
            await repair_volume(fs._volume(), dry_run=False)
            await run(place)
            (item,) = await fs.trash().list()
            await fs.trash().restore(item)
            assert await paths(fs) == {"/kept", "/kept/k", "/z", "/z/h"}
            assert await fs.read("/kept/k") == b"/kept/k"
            assert await place.keys() == await live_keys(fs), moment
        moment += step
    assert calls > 40
