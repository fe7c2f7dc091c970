"""Runs of the lifecycle rules on machines with wrong clocks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from s3k_async.attributes import Attributes
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.bulk.rule_changes import rule_index
from s3k_async.client import S3kClient
from s3k_async.errors import PermissionDeniedError
from s3k_async.model import LayoutName
from s3k_async.namespace.due_items import HOUR_MS
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.lifecycle.ruled import DAY, HOUR, TUNING, Ruled
from tests.support import FakeClock, fake_runtime

pytestmark = pytest.mark.layouts("path", "tree")


@pytest.fixture
def store_clock(place: Ruled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data store has the correct clock, that of `place`."""

    async def now_ms(_: MemoryBlobs) -> int:
        return place.clock.now_ms()

    monkeypatch.setattr(MemoryBlobs, "now_ms", now_ms)


@asynccontextmanager
async def ahead(place: Ruled, seconds: float) -> AsyncIterator[S3kClient]:
    """A client on a machine whose clock is ahead by `seconds`."""
    runtime = fake_runtime(FakeClock(place.clock.seconds + seconds), seed=77)
    async with faulty_client(FaultPlan(), place.config, runtime) as client:
        yield client


@pytest.mark.usefixtures("store_clock")
@pytest.mark.parametrize("skew", [3 * HOUR, 3 * DAY])
async def test_a_runner_whose_clock_is_ahead_does_nothing_too_early(
    place: Ruled, fs: S3kClient, skew: float
) -> None:
    await fs.set_rule("/d", expire_after=7200)
    await fs.write("/d/f", b"1")
    async with ahead(place, skew) as other:
        assert (await other.run_rules()).expired == 0
    assert await place.paths() == {"/d/f"}
    await place.after("/d/f", 7200)
    async with ahead(place, skew) as other:
        assert (await other.run_rules()).expired == 1


@pytest.mark.usefixtures("store_clock")
@pytest.mark.parametrize("skew", [5 * HOUR, 3 * DAY])
async def test_a_run_by_a_clock_ahead_has_no_other_run_skip_an_hour(
    place: Ruled, fs: S3kClient, skew: float
) -> None:
    await fs.set_rule("/d", expire_after=600)
    await fs.run_rules()
    place.clock.advance(2 * HOUR)
    await fs.run_rules()  # the last listing of the directory
    async with ahead(place, skew) as other:
        await other.run_rules()
    await fs.write("/d/f", b"1")
    place.clock.advance(2 * skew)
    assert (await fs.run_rules()).expired == 1
    assert await place.paths() == set()


@pytest.mark.usefixtures("store_clock")
async def test_a_runner_whose_clock_is_ahead_keeps_the_item_of_a_pending_change(
    place: Ruled, fs: S3kClient
) -> None:
    """Its item is like that of a deleted file: a restore writes the items of its files first."""
    await fs.set_rule("/d", expire_after=600)
    await fs.run_rules()
    place.clock.advance(2 * HOUR)
    await fs.run_rules()  # the last listing of the directory
    await fs.write("/d/f", b"1")
    (former,) = await place.due_items()
    await fs.delete("/d/f")
    place.clock.advance(HOUR)
    async with ahead(place, 3 * DAY) as other:
        result = await other.run_rules()
    assert (result.expired, result.stale) == (0, 0)
    (item,) = await place.due_items()
    assert [item[name] for name in ("entry", "id", "ver")] == [
        former[name] for name in ("entry", "id", "ver")
    ]


@pytest.mark.parametrize("known", [True, False])
async def test_an_hour_that_is_still_to_come_makes_the_next_run_list_the_volume(
    place: Ruled, fs: S3kClient, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The machine of an embedded volume, and so its data store, had a wrong clock."""
    if not known:  # a role without the permission for HeadBucket

        async def denied(_: MemoryBlobs) -> int:
            raise PermissionDeniedError("denied")

        monkeypatch.setattr(MemoryBlobs, "now_ms", denied)
    await fs.set_rule("/d", expire_after=600)
    await fs.run_rules()
    place.clock.advance(2 * HOUR)
    await fs.run_rules()
    async with ahead(place, 100 * DAY) as other:
        await other.run_rules()
    await fs.write("/d/f", b"1")
    place.clock.advance(DAY)
    await fs.run_rules()
    assert await place.paths() == set()
    present = place.clock.now_ms() // HOUR_MS
    assert await rule_index(fs._volume(), "/").first_hour() == present - 2


async def test_the_first_run_in_a_volume_that_was_created_by_a_clock_ahead(
    layout: LayoutName,
) -> None:
    clock = FakeClock()
    ahead = fake_runtime(FakeClock(clock.seconds + DAY), seed=77)
    config = memory_config(TUNING, layout)
    await init_volume(config, runtime=ahead, enable=["rules"])
    metadata = {"ExpiresAt": str(int(clock.seconds) + 5).encode()}
    async with faulty_client(FaultPlan(), config, fake_runtime(clock, seed=78)) as fs:
        await fs.write("/f", b"1", attributes=Attributes(metadata=metadata))
        clock.advance(2 * DAY)  # past the time of the creation
        assert (await fs.run_rules()).expired == 1


async def test_a_clock_that_jumps_ahead_during_a_run(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=7200)
    await fs.write("/d/f", b"1")
    wall = FakeClock(place.clock.seconds)
    runtime = replace(place.runtime, now_ms=wall.now_ms)
    faults = FaultPlan()

    async def gate(call: Call) -> None:
        if call.method == "query":
            wall.seconds = place.clock.seconds + 3 * DAY

    faults.gate = gate
    async with faulty_client(faults, place.config, runtime) as other:
        assert (await other.run_rules()).expired == 0
    assert await place.paths() == {"/d/f"}
