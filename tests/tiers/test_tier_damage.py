"""Objects that differ between the locations: what fsck finds, and what repair keeps."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import ResponseLostError, S3kError
from s3k_async.integrity.facts import Finding
from s3k_async.integrity.repair import RepairReport, repair_volume, verify_volume
from s3k_async.integrity.verify import VerifyReport
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.testing import Died, FaultPlan
from s3k_async.testing.faults import Call, FaultyBlobs
from s3k_async.volumes import Volume
from tests.level import FULL
from tests.support import from_call
from tests.tiers.rig import DAMAGED, move_all, opened, sizes, tiered_damage, tiered_volume

NOW = -60.0
"""A grace period in which nothing is young."""
LOOKS = 4
"""Requests for the size of an object by which it is found to differ: two by the recheck, one of its
entry, and the first one of the repair."""
BIG = bytes(range(200))


def differing(report: VerifyReport) -> dict[str, Finding]:
    """The findings about copies, by path."""
    return {each.path: each for each in report.findings if each.kind == "copies_differ"}


async def key_of(volume: Volume, path: str) -> str:
    return str((await volume.store.lookup(path)).physical)


async def repaired(volume: Volume, *, deep: bool = False) -> RepairReport:
    return await repair_volume(volume, dry_run=False, grace=NOW, deep=deep)


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_repair_keeps_what_the_entry_says(layout: str) -> None:
    async with tiered_damage(layout) as (volume, blobs):  # type: ignore[arg-type]
        report = await verify_volume(volume, grace=NOW)
        assert report.kinds["copies_differ"] == 5
        found = differing(report)
        assert {path: each.action for path, each in found.items()} == {
            "/hot": "replace_cold_copy",
            "/cold": "remove_hot_copy",
            "/neither": "report",
            "/unknown": "report",
            "/part": "replace_cold_copy",
        }
        before = await sizes(blobs.hot), await sizes(blobs.cold)
        planned = await repair_volume(volume, grace=NOW)
        assert {each.finding.action for each in planned.repairs} == {
            "replace_cold_copy",
            "remove_hot_copy",
        }
        assert (await sizes(blobs.hot), await sizes(blobs.cold)) == before
        done = await repaired(volume)
        assert set(differing(done.left)) == {"/neither", "/unknown"}
        hot, cold = await key_of(volume, "/hot"), await key_of(volume, "/cold")
        assert await blobs.hot.get(hot) == await blobs.cold.get(hot) == b"right"
        assert cold not in await sizes(blobs.hot)
        assert await blobs.cold.get(cold) == b"right"
        assert await volume.storage.read(cold) == b"right"
        neither = await key_of(volume, "/neither")
        assert (await blobs.hot.get(neither), await blobs.cold.get(neither)) == DAMAGED["/neither"]
        assert (await repaired(volume)).repairs == []


async def test_bytes_are_compared_by_a_deep_run() -> None:
    config = await tiered_volume()
    async with S3kClient(config=config) as fs, opened(config) as (volume, blobs):
        for path in ("/hot", "/cold", "/same"):
            await fs.write(path, BIG)
        await fs.append("/cold", b"more" * 20)
        for name in await sizes(blobs.hot):
            await blobs.cold.put(name, await blobs.hot.get(name))
        extent = (await key_of(volume, "/cold")).split(":")[2].partition("@")[0]
        (cold,) = [name for name in await sizes(blobs.hot) if name.startswith(extent)]
        await blobs.hot.put(cold, b"x" * 200)
        hot = await key_of(volume, "/hot")
        await blobs.cold.put(hot, b"x" * 200)
        assert differing(await verify_volume(volume, grace=NOW)) == {}
        assert (await repaired(volume)).repairs == []
        found = differing(await verify_volume(volume, grace=NOW, deep=True))
        assert {path: (each.key, each.action) for path, each in found.items()} == {
            "/hot": (hot, "replace_cold_copy"),
            "/cold": (cold, "remove_hot_copy"),
        }
        assert sorted((await move_all(blobs)).damaged) == sorted([hot, cold])
        assert len((await repaired(volume, deep=True)).repairs) == 2
        assert (await verify_volume(volume, grace=NOW, deep=True)).findings == []
        assert await fs.read("/hot") == BIG
        assert await fs.read("/cold") == BIG + b"more" * 20
        assert (await move_all(blobs)).damaged == []


async def test_only_the_scope_of_a_path_is_reported() -> None:
    async with tiered_damage() as (volume, _):
        found = differing(await verify_volume(volume, path="/hot", grace=NOW))
        assert set(found) == {"/hot"}


@pytest.mark.parametrize("fault", ["death before", "death after", "lost answer"])
async def test_a_repair_may_end_at_every_call_of_the_data(fault: str) -> None:
    plan = FaultPlan()
    async with tiered_damage() as (volume, blobs):
        await repaired(through(volume, blobs, plan))
    changes = [
        call.number
        for call in plan.calls
        if call.method in ("put", "delete", "start_upload", "put_part", "complete")
    ]
    assert len(changes) >= 2
    when = "before" if fault == "death before" else "after"
    for number in (each + step for each in changes for step in (-1, 0, 1)):
        async with tiered_damage() as (volume, blobs):
            error = ResponseLostError("lost") if fault == "lost answer" else Died("died")
            broken = FaultPlan()
            broken.fail_when(
                from_call(number),
                error,
                when=when,  # type: ignore[arg-type]
                times=1 if fault == "lost answer" else 10**6,
            )
            with suppress(Died, S3kError, BaseExceptionGroup):
                await repaired(through(volume, blobs, broken))
            await repaired(volume)
            for path in ("/hot", "/cold"):
                assert await volume.storage.read(await key_of(volume, path)) == b"right"
                assert await blobs.cold.get(await key_of(volume, path)) == b"right"


async def test_a_repair_does_nothing_after_the_objects_have_changed() -> None:
    async with tiered_damage() as (volume, blobs):
        key, seen = await key_of(volume, "/hot"), 0

        async def swap(call: Call) -> None:
            """Before the last look of the repair, something else puts other bytes there."""
            nonlocal seen
            if call.method == "head" and call.key == key:
                seen += 1
                if seen == LOOKS:
                    await blobs.hot.put(key, b"other")

        done = await repaired(through(volume, blobs, FaultPlan(swap)))
        assert seen >= LOOKS
        outcomes = [each.outcome for each in done.repairs if each.finding.path == "/hot"]
        assert outcomes == ["left"]
        assert await blobs.cold.get(key) == b"cut"


def through(volume: Volume, blobs: TieredBlobs, plan: FaultPlan) -> Volume:
    """The volume, with the calls of its data through a plan."""
    broken = TieredBlobs(FaultyBlobs(blobs.hot, plan), FaultyBlobs(blobs.cold, plan))
    return replace(volume, blobs=broken)


async def test_moves_at_every_call_of_a_repair_lose_nothing() -> None:
    plan = FaultPlan()
    async with tiered_damage() as (volume, blobs):
        await repaired(through(volume, blobs, plan))
    for number in range(1, len(plan.calls) + 1, 1 if FULL else 9):
        async with tiered_damage() as (volume, blobs):

            async def move(call: Call, at: int = number, blobs: TieredBlobs = blobs) -> None:
                if call.number == at:
                    await move_all(blobs)

            await repaired(through(volume, blobs, FaultPlan(move)))
            await move_all(blobs)
            for path in ("/hot", "/cold"):
                key = await key_of(volume, path)
                assert key not in await sizes(blobs.hot)
                assert await blobs.cold.get(key) == b"right"
