"""Undeletion beside garbage collection: whatever comes between which calls of either, a file that
was brought back has its data, and what was collected is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import DataMissingError
from s3k_async.integrity.gc_rules import Ages
from s3k_async.model import LayoutName
from s3k_async.testing import Call, FaultPlan
from tests.client.rig import faulty_client
from tests.integrity.garbage import DAY, Yard, live_keys, yard

pytestmark = pytest.mark.layouts("path", "tree")

NOW: Final = Ages(grace=0.0, lease=600.0, late=60.0)
"""No grace at all: gc deletes the former data as soon as it can."""
DATA: Final = b"former content" * 50


async def deleted_long_ago(place: Yard) -> None:
    """A file whose data gc would delete, and one that stays."""
    await place.client.write("/a/f", DATA)
    await place.client.write("/a/live", b"live")
    await place.client.delete("/a/f")
    await place.settle()
    place.clock.advance(DAY)


async def undeleted(fs: S3kClient) -> bool:
    """Whether the file came back; if not, its data was collected before."""
    try:
        await fs.undelete("/a/f")
    except DataMissingError:
        return False
    return True


async def check(place: Yard, *, back: bool) -> None:
    """The file is there as it was, or not at all, now and after the next runs."""
    for _ in range(2):
        assert await place.client.exists("/a/f") == back
        if back:
            assert await place.client.read("/a/f") == DATA
        assert await live_keys(place.client) <= await place.keys()
        await place.settle()
        place.clock.advance(DAY)
        await place.gc(ages=NOW)
    assert await place.keys() == await live_keys(place.client)


async def calls_of_gc(layout: LayoutName, tmp_path: Path) -> int:
    async with yard(tmp_path, layout=layout) as place:
        await deleted_long_ago(place)
        plan = FaultPlan()
        await place.gc(plan, NOW)
        return len(plan.calls)


async def test_an_undeletion_between_any_two_calls_of_gc(
    layout: LayoutName, tmp_path: Path
) -> None:
    outcomes = set()
    calls = await calls_of_gc(layout, tmp_path)
    last = range(calls - 7, calls + 2)  # the last looks of the sweep, and the deletion
    for moment in sorted({*range(1, calls, 8), *last}):
        async with yard(tmp_path, layout=layout) as place:
            await deleted_long_ago(place)
            done: list[bool] = []

            async def gate(
                call: Call, moment: int = moment, place: Yard = place, done: list[bool] = done
            ) -> None:
                if call.number == moment:
                    done.append(await undeleted(place.client))

            await place.gc(FaultPlan(gate), NOW)
            back = done[0] if done else await undeleted(place.client)
            outcomes.add(back)
            await check(place, back=back)
    assert outcomes == {True, False}


async def test_a_run_of_gc_between_any_two_calls_of_an_undeletion(
    layout: LayoutName, tmp_path: Path
) -> None:
    outcomes = set()
    moment = calls = 0
    while moment <= calls:
        moment += 1
        async with yard(tmp_path, layout=layout) as place:
            await deleted_long_ago(place)
            plan = FaultPlan()

            async def gate(call: Call, moment: int = moment, place: Yard = place) -> None:
                if call.number == moment:
                    await place.gc(ages=NOW)

            async with faulty_client(plan, place.config, place.runtime) as fs:
                plan.gate = gate
                back = await undeleted(fs)
                plan.gate = None
            calls = max(calls, len(plan.calls))
            outcomes.add(back)
            await check(place, back=back)
    assert outcomes == {True, False}
    assert calls > 5


async def test_permanent_removal_between_any_two_calls_of_an_undeletion(
    layout: LayoutName, tmp_path: Path
) -> None:
    """Its rules are those of gc, without a minimum age of the data."""
    outcomes = set()
    moment = calls = 0
    while moment <= calls:
        moment += 1
        async with yard(tmp_path, layout=layout) as place:
            await deleted_long_ago(place)
            plan = FaultPlan()
            removed: list[bool] = []

            async def gate(
                call: Call, moment: int = moment, place: Yard = place, removed: list[bool] = removed
            ) -> None:
                if call.number == moment and not await place.client.exists("/a/f"):
                    await place.client.delete("/a/f", permanently=True)
                    removed.append(True)

            async with faulty_client(plan, place.config, place.runtime) as fs:
                plan.gate = gate
                back = await undeleted(fs)
                plan.gate = None
            calls = max(calls, len(plan.calls))
            outcomes.add(back)
            await check(place, back=back)
    assert outcomes == {True, False}
