"""Copies to the hot location in the background of reads: crashes, deletions and damage at every
call, and what bounds them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest

from s3k_async.client import S3kClient
from s3k_async.config import Tuning, VolumeConfig
from s3k_async.errors import (
    CorruptDataError,
    NoSpaceError,
    ResponseLostError,
    S3kError,
    ServiceError,
)
from s3k_async.integrity.repair import verify_volume
from s3k_async.model import FillStatistics
from s3k_async.storage.hot_fills import FILLS_AT_ONCE, PAUSE_SECONDS, WAITING, HotFills
from s3k_async.storage.object_copies import copy_to_hot
from s3k_async.storage.physical import PhysicalStorage, checksum_of
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.storage_space import StorageSpace
from s3k_async.testing import Died, FaultPlan
from s3k_async.testing.faults import Call, FaultyBlobs
from s3k_async.volumes import Volume
from tests.level import calls_to_try
from tests.support import FakeClock, fake_runtime, from_call
from tests.tiers.rig import TUNING, move_all, opened, sizes, tiered_volume, unfinished
from tests.tiers.test_tier_warming import Damaging
from tests.tiers.test_tiered_volumes import collect

BIG = bytes(range(200))
FILLING = replace(TUNING, hot_reads="fill", multipart_threshold=200)
LARGE = replace(FILLING, multipart_threshold=199)
"""`BIG` is a large object."""
FILES = {"/small": b"small", "/big": BIG}


async def cold_volume(files: dict[str, bytes] | None = None) -> VolumeConfig:
    """Files, all of them cold, and clients that fill."""
    config = await tiered_volume()
    async with S3kClient(config=config) as fs:
        for path, data in (files or FILES).items():
            await fs.write(path, data)
    async with opened(config) as (_, blobs):
        await move_all(blobs)
    return replace(config, tuning=FILLING)


@dataclass
class Reader:
    """Reads of files of a volume that fill its hot location."""

    volume: Volume
    fills: HotFills
    storage: PhysicalStorage

    async def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        entry = await self.volume.store.lookup(path)
        return await self.storage.read(
            str(entry.physical),
            start,
            end,
            size=entry.size,
            etag=entry.etag,
            checksum=entry.checksum,
        )

    async def key(self, path: str) -> str:
        return str((await self.volume.store.lookup(path)).physical)


@asynccontextmanager
async def reading(
    config: VolumeConfig,
    plan: FaultPlan | None = None,
    *,
    clock: FakeClock | None = None,
    store: type[FaultyBlobs] = FaultyBlobs,
    tuning: Tuning = FILLING,
) -> AsyncIterator[Reader]:
    """A reader with its calls of the data through a plan; at the end the fills are closed."""
    plan = plan or FaultPlan()
    async with opened(config) as (volume, blobs):
        broken = TieredBlobs(store(blobs.hot, plan), FaultyBlobs(blobs.cold, plan))
        runtime = fake_runtime(clock)
        fills = HotFills(broken, runtime, tuning)
        storage = PhysicalStorage(broken, runtime, tuning, extents=True, fills=fills)
        try:
            yield Reader(volume, fills, storage)
        finally:
            await fills.close()


class Gate:
    """Holds the calls of one method until it is opened."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.held = 0
        self.open = anyio.Event()
        self.reached = anyio.Event()

    async def __call__(self, call: Call) -> None:
        if call.method == self.method:
            self.held += 1
            self.reached.set()
            await self.open.wait()


async def all_readable(config: VolumeConfig) -> None:
    async with S3kClient(config=replace(config, tuning=TUNING)) as fs:
        for path, data in FILES.items():
            assert await fs.read(path) == data


async def test_a_read_of_a_cold_file_fills_the_hot_location() -> None:
    config = await cold_volume()
    async with opened(config) as (volume, blobs):
        cold = await sizes(blobs.cold)
        async with S3kClient(config=config) as fs:
            assert await fs.read("/small") == b"small"
            assert await fs.read_ranges("/big", [(10, 30)]) == [BIG[10:30]]
        assert sorted((await sizes(blobs.hot)).values()) == [5, 200]
        assert fs.fill_statistics == FillStatistics(filled=2, filled_bytes=205)
        assert await sizes(blobs.cold) == cold
        assert (await verify_volume(volume, deep=True)).findings == []
        async with S3kClient(config=config) as fs:
            assert await fs.read("/small") == b"small"
            assert fs.requests.deferred == 0
        moved = await move_all(blobs)
        assert (moved.moved, moved.completed) == (2, 2)
        assert await sizes(blobs.hot) == {}
    await all_readable(config)


async def test_without_the_setting_a_read_leaves_the_hot_location_as_it_is() -> None:
    config = await cold_volume()
    async with S3kClient(config=replace(config, tuning=TUNING)) as fs:
        assert await fs.read("/small") == b"small"
    async with opened(config) as (_, blobs):
        assert await sizes(blobs.hot) == {}
    assert fs.fill_statistics == FillStatistics()


async def test_the_requests_of_a_fill_are_deferred() -> None:
    config = await cold_volume()
    async with S3kClient(config=config) as fs:
        with fs.count() as counted:
            await fs.read("/small")
    assert fs.requests.deferred > 0
    assert counted.requests.total - counted.requests.deferred == 3  # entry, hot, cold


async def test_objects_of_a_file_that_was_appended_to_are_filled_and_verified() -> None:
    config = await cold_volume()
    async with S3kClient(config=replace(config, tuning=TUNING)) as fs:
        await fs.append("/big", b"more")
    async with opened(config) as (_, blobs):
        await move_all(blobs)
        async with S3kClient(config=config) as fs:
            assert await fs.read_ranges("/big", [(1, 3)]) == [BIG[1:3]]  # a part of an extent
        assert sorted((await sizes(blobs.hot)).values()) == [200]
        async with S3kClient(config=config) as fs:
            assert await fs.read("/big") == BIG + b"more"
        assert sorted((await sizes(blobs.hot)).values()) == [4, 200]
        await move_all(blobs)
        first = next(key for key, size in (await sizes(blobs.cold)).items() if size == 200)
        await blobs.cold.put(first, BIG[1:] + b"x")
        async with reading(config) as reader:
            with pytest.raises(CorruptDataError):
                await reader.read("/big", 0, 3)
        assert await sizes(blobs.hot) == {}
        assert reader.fills.statistics == FillStatistics(damaged=1)


async def test_a_read_does_not_wait_for_the_fill() -> None:
    config = await cold_volume()
    gate = Gate("put")
    async with reading(config, FaultPlan(gate)) as reader:
        assert await reader.read("/small") == b"small"
        await gate.reached.wait()
        assert await reader.read("/small", 1, 3) == b"ma"
        assert reader.fills.statistics == FillStatistics()
        gate.open.set()
    assert reader.fills.statistics.filled == 1


async def test_reads_at_once_fill_once() -> None:
    config = await cold_volume()
    plan = FaultPlan()
    async with reading(config, plan) as reader, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(reader.read, "/small")
    assert Counter(call.method for call in plan.calls)["put"] == 1
    assert reader.fills.statistics == FillStatistics(filled=1, filled_bytes=5)


@pytest.mark.parametrize("error", [NoSpaceError("full"), RuntimeError("of a library")], ids=repr)
async def test_a_fill_that_fails_is_not_repeated_at_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    config = await cold_volume()
    plan, clock = FaultPlan(), FakeClock()
    plan.fail_when(lambda call: call.method == "put", error)

    async def read_all(reader: Reader) -> int:
        """The calls of the reads, and those of the fills that they begin."""
        plan.calls.clear()
        for path, data in FILES.items():
            assert await reader.read(path) == data
            await anyio.wait_all_tasks_blocked()
        return len(plan.calls)

    async with reading(config, plan, clock=clock) as reader:
        await read_all(reader)
        assert reader.fills.statistics == FillStatistics(failures=1)
        clock.advance(PAUSE_SECONDS / 2)
        assert await read_all(reader) == 4  # of each file hot and cold
        clock.advance(PAUSE_SECONDS)
        await read_all(reader)
    assert reader.fills.statistics == FillStatistics(filled=2, filled_bytes=205, failures=1)
    (record,) = caplog.records
    assert record.name == "s3k_async.storage.hot_fills"
    assert str(error) in record.getMessage()
    assert bool(record.exc_info) == isinstance(error, RuntimeError)


async def test_a_few_ranges_of_a_large_object_do_not_fill() -> None:
    config = await cold_volume()
    plan = FaultPlan()
    async with reading(config, plan, tuning=LARGE) as reader:
        for _ in range(3):
            assert await reader.read("/big", 5, 7) == BIG[5:7]
            await anyio.wait_all_tasks_blocked()
    assert Counter(call.method for call in plan.calls) == {"get": 6, "head": 1}
    assert reader.fills.statistics == FillStatistics()


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 200)],
        [(0, 70), (70, 140), (140, 300)],
        [(10, 50)] * 5,
    ],
    ids=["whole", "parts", "one range"],
)
async def test_a_large_object_is_filled_once_as_much_was_read(
    ranges: list[tuple[int, int]],
) -> None:
    config = await cold_volume()
    async with opened(config) as (_, blobs):
        async with reading(config, tuning=LARGE) as reader:
            for start, end in ranges:
                assert await sizes(blobs.hot) == {}
                assert await reader.read("/big", start, end) == BIG[start:end]
                await anyio.wait_all_tasks_blocked()
            assert list((await sizes(blobs.hot)).values()) == [200]
            await move_all(blobs)
            assert await reader.read("/big", 0, 199) == BIG[:199]  # it is counted from zero again
            await anyio.wait_all_tasks_blocked()
            assert await sizes(blobs.hot) == {}
        assert reader.fills.statistics == FillStatistics(filled=1, filled_bytes=200)
        assert await unfinished(blobs) == []


async def test_a_fill_reads_the_object_once_in_each_location() -> None:
    config = await cold_volume()
    plan = FaultPlan()
    async with reading(config, plan, tuning=LARGE) as reader:
        assert await reader.read("/big") == BIG
    parts = -(-len(BIG) // LARGE.part_size)
    calls = Counter(call.method for call in plan.calls)
    assert (calls["get"], calls["put_part"]) == (2 + 2 * parts, parts)  # two of the read


async def test_a_stream_and_the_extents_of_a_file_fill_large_objects() -> None:
    config = await cold_volume()
    async with S3kClient(config=replace(config, tuning=TUNING)) as fs:
        await fs.append("/big", BIG[:50])
    large = replace(LARGE, multipart_threshold=49)
    async with opened(config) as (volume, blobs):
        await move_all(blobs)
        async with S3kClient(config=replace(config, tuning=large)) as fs:
            assert await fs.read_ranges("/big", [(0, 240)]) == [BIG + BIG[:40]]
            await anyio.wait_all_tasks_blocked()
            assert list((await sizes(blobs.hot)).values()) == [200]
        fs = S3kClient(config=replace(config, tuning=large))
        async with fs, await fs.open("/big") as file:
            while await file.read(30):
                pass
        assert sorted((await sizes(blobs.hot)).values()) == [50, 200]
        assert fs.fill_statistics == FillStatistics(filled=1, filled_bytes=50)
        assert (await verify_volume(volume, deep=True)).findings == []


async def test_reads_during_a_pause_count() -> None:
    config = await cold_volume()
    plan, clock = FaultPlan(), FakeClock()
    plan.fail_when(lambda call: call.method == "put", NoSpaceError("full"))
    async with reading(config, plan, clock=clock, tuning=LARGE) as reader:
        await reader.read("/small")
        await anyio.wait_all_tasks_blocked()
        await reader.read("/big", 0, 150)
        clock.advance(PAUSE_SECONDS + 1)
        await reader.read("/big", 150, 200)
    assert reader.fills.statistics == FillStatistics(filled=1, filled_bytes=200, failures=1)


async def test_the_objects_that_were_read_last_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("s3k_async.storage.hot_fills.COUNTED", 2)
    config = await cold_volume({"/a": BIG, "/b": BIG, "/c": BIG})
    async with reading(config, tuning=LARGE) as reader:
        for path in ("/a", "/b", "/c", "/b", "/a"):  # a is forgotten for c
            await reader.read(path, 0, 100)
            await anyio.wait_all_tasks_blocked()
        assert reader.fills.statistics == FillStatistics(filled=1, filled_bytes=200)
        await reader.read("/c", 0, 100)
    assert reader.fills.statistics == FillStatistics(filled=2, filled_bytes=400)


async def test_a_large_object_that_has_no_room_is_not_copied() -> None:
    class Full(FaultyBlobs):
        free = 199

        async def space(self) -> StorageSpace:
            await super().space()
            return StorageSpace(total=1000, used=1000 - self.free, free=self.free)

    config = await cold_volume()
    plan = FaultPlan()
    async with reading(config, plan, store=Full, tuning=LARGE) as reader:
        for _ in range(2):
            assert await reader.read("/big") == BIG
            await anyio.wait_all_tasks_blocked()
        assert reader.fills.statistics == FillStatistics(dropped=2)
        assert "start_upload" not in {call.method for call in plan.calls}
        assert await reader.read("/small") == b"small"
        await anyio.wait_all_tasks_blocked()
        Full.free = 200
        assert await reader.read("/big") == BIG
    assert reader.fills.statistics == FillStatistics(filled=2, filled_bytes=205, dropped=2)


async def test_a_copy_has_one_part_in_memory() -> None:
    class Part(bytes):
        alive = most = 0

        def __init__(self, _: bytes) -> None:
            Part.alive += 1
            Part.most = max(Part.most, Part.alive)

        def __del__(self) -> None:
            Part.alive -= 1

    class Parts(FaultyBlobs):
        async def get(self, *args: Any, **conditions: Any) -> bytes:
            return Part(await super().get(*args, **conditions))

    config = await cold_volume()
    async with reading(config) as reader, opened(config) as (_, blobs):
        key = await reader.key("/big")
        cold, hot = (Parts(store, FaultPlan()) for store in (blobs.cold, blobs.hot))
        await copy_to_hot(cold, hot, key, len(BIG), 32, checksum_of(BIG))
        assert list((await sizes(blobs.hot)).values()) == [200]
    assert (Part.most, Part.alive) == (1, 0)


async def test_few_are_under_way_and_not_many_wait() -> None:
    files = {f"/{number}": b"%d" % number for number in range(WAITING + 9)}
    config = await cold_volume(files)
    gate = Gate("put")
    async with reading(config, FaultPlan(gate)) as reader:
        for path, data in files.items():
            assert await reader.read(path) == data
        await anyio.wait_all_tasks_blocked()
        assert gate.held == FILLS_AT_ONCE
        gate.open.set()
        await anyio.wait_all_tasks_blocked()
        found = reader.fills.statistics
        assert (found.filled, found.dropped) == (WAITING + FILLS_AT_ONCE, 9 - FILLS_AT_ONCE)


async def test_closing_drops_what_waits_and_completes_what_is_under_way() -> None:
    files = {f"/{number}": b"%d" % number for number in range(FILLS_AT_ONCE + 3)}
    config = await cold_volume(files)
    gate = Gate("put")
    async with reading(config, FaultPlan(gate)) as reader, anyio.create_task_group() as tasks:
        for path in files:
            await reader.read(path)
        await gate.reached.wait()
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(reader.fills.close)
        await anyio.wait_all_tasks_blocked()
        await reader.read("/6")
        gate.open.set()
    found = reader.fills.statistics
    assert (found.filled, found.dropped) == (FILLS_AT_ONCE, 3)
    async with opened(config) as (_, blobs):
        assert len(await sizes(blobs.hot)) == FILLS_AT_ONCE


async def test_closing_cancels_what_takes_too_long() -> None:
    config = await cold_volume()
    gate = Gate("put")
    hurried = replace(FILLING, close_timeout=0.0)
    async with reading(config, FaultPlan(gate), tuning=hurried) as reader:
        await reader.read("/small")
        await gate.reached.wait()
        began = len(asyncio.all_tasks())
    assert len(asyncio.all_tasks()) == began - 1
    assert reader.fills.statistics.filled == 0
    await all_readable(config)


async def test_closing_cancels_a_copy_in_parts_and_leaves_nothing_of_it() -> None:
    config = await cold_volume()
    gate = Gate("put_part")
    hurried = replace(LARGE, close_timeout=0.0)
    async with reading(config, FaultPlan(gate), tuning=hurried) as reader:
        await reader.read("/big")
        await gate.reached.wait()
    async with opened(config) as (_, blobs):
        assert await unfinished(blobs) == []
        assert await sizes(blobs.hot) == {}
        async with reading(config, tuning=LARGE) as reader:
            assert await reader.read("/big") == BIG
        assert list((await sizes(blobs.hot)).values()) == [200]


async def test_nothing_begins_while_the_event_loop_ends() -> None:
    """It cancels all tasks, of a client that was not closed."""
    files = {f"/{number}": b"%d" % number for number in range(FILLS_AT_ONCE + 3)}
    config = await cold_volume(files)
    gate = Gate("put")
    async with reading(config, FaultPlan(gate)) as reader:
        before = asyncio.all_tasks()
        for path in files:
            await reader.read(path)
        await anyio.wait_all_tasks_blocked()
        tasks = asyncio.all_tasks() - before
        assert len(tasks) == FILLS_AT_ONCE
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await anyio.wait_all_tasks_blocked()
        assert asyncio.all_tasks() == before
        assert reader.fills.statistics == FillStatistics(dropped=3)


async def test_closing_that_is_cancelled_ends_the_fills() -> None:
    config = await cold_volume()
    gate = Gate("put")
    async with reading(config, FaultPlan(gate)) as reader:
        await reader.read("/small")
        await gate.reached.wait()
        began = len(asyncio.all_tasks())
        with anyio.move_on_after(0.0):
            await reader.fills.close()
        assert len(asyncio.all_tasks()) == began - 1


@pytest.mark.parametrize("fault", ["death before", "death after", "failure", "lost answer"])
async def test_it_may_end_at_every_call(fault: str) -> None:
    error: BaseException = {
        "death before": Died("died"),
        "death after": Died("died"),
        "failure": ServiceError("failed"),
        "lost answer": ResponseLostError("lost"),
    }[fault]
    plan = FaultPlan()
    async with reading(await cold_volume(), plan, tuning=LARGE) as reader:
        await reader.read("/big")
    count = len(plan.calls)
    assert count > 15
    for number in calls_to_try(count):
        config = await cold_volume()
        plan = FaultPlan()
        is_dead = isinstance(error, Died)
        plan.fail_when(
            from_call(number) if is_dead else is_call(number),
            error,
            when="after" if fault in ("death after", "lost answer") else "before",
            times=10**6 if is_dead else 1,
        )
        async with reading(config, plan, tuning=LARGE) as reader:
            with suppress(Died, S3kError):
                assert await reader.read("/big") == BIG
        await all_readable(config)
        async with opened(config) as (volume, blobs):
            assert (await verify_volume(volume, deep=True)).findings == []
            assert list((await sizes(blobs.hot)).values()) in ([], [200])
            await collect(config)
            assert await unfinished(blobs) == []
            async with reading(config, tuning=LARGE) as reader:
                assert await reader.read("/big") == BIG
            assert sorted((await sizes(blobs.hot)).values()) == [200]
            assert (await move_all(blobs)).completed == 1
            assert sorted((await sizes(blobs.cold)).values()) == [5, 200]
        await all_readable(config)


def is_call(number: int) -> Callable[[Call], bool]:
    return lambda call: call.number == number


async def test_a_file_that_is_deleted_and_collected_meanwhile_leaves_nothing() -> None:
    plan = FaultPlan()
    async with reading(await cold_volume(), plan) as reader:
        await reader.read("/small")
    left = 0
    for number in range(1, len(plan.calls) + 1):
        config = await cold_volume()

        async def delete(call: Call, at: int = number, config: VolumeConfig = config) -> None:
            if call.number == at:
                async with S3kClient(config=config) as fs:
                    await fs.delete("/small")
                await collect(config)

        async with reading(config, FaultPlan(delete)) as reader:
            with suppress(S3kError):
                assert await reader.read("/small") == b"small"
        assert (reader.fills.statistics.failures, reader.fills.statistics.damaged) == (0, 0)
        async with opened(config) as (_, blobs):
            assert sorted((await sizes(blobs.cold)).values()) == [200]
            left += len(await sizes(blobs.hot))
            await collect(config)
            assert await sizes(blobs.hot) == {}
    assert left > 0


async def test_a_file_that_is_moved_meanwhile_stays_readable() -> None:
    """A run of moves at every call of a fill: it may delete the copy before that is complete."""
    plan = FaultPlan()
    async with reading(await cold_volume(), plan) as reader:
        await reader.read("/big")
    for number in calls_to_try(len(plan.calls)):
        config = await cold_volume()

        async def move(call: Call, at: int = number, config: VolumeConfig = config) -> None:
            if call.number == at:
                async with opened(config) as (_, blobs):
                    assert (await move_all(blobs)).damaged == []

        async with reading(config, FaultPlan(move)) as reader:
            assert await reader.read("/big") == BIG
        assert reader.fills.statistics.damaged == 0
        await all_readable(config)


async def test_a_copy_that_differs_is_deleted_and_not_made_again() -> None:
    config = await cold_volume()
    plan = FaultPlan()
    async with reading(config, plan, store=Damaging) as reader:
        for _ in range(2):
            assert await reader.read("/small") == b"small"
            await anyio.wait_all_tasks_blocked()
    assert reader.fills.statistics == FillStatistics(damaged=1)
    assert Counter(call.method for call in plan.calls)["put"] == 1
    async with opened(config) as (_, blobs):
        assert await sizes(blobs.hot) == {}
    await all_readable(config)


async def test_a_large_cold_object_that_is_damaged_is_not_copied() -> None:
    config = await cold_volume()
    plan = FaultPlan()
    careless = replace(LARGE, change_detection="none")
    async with opened(config) as (_, blobs), reading(config, plan, tuning=careless) as reader:
        await blobs.cold.put(await reader.key("/big"), BIG[:-1] + b"x")
        for _ in range(3):
            await reader.read("/big", 0, 150)
            await anyio.wait_all_tasks_blocked()
        assert await sizes(blobs.hot) == {}
        assert await unfinished(blobs) == []
    calls = Counter(call.method for call in plan.calls)
    assert (calls["head"], calls["start_upload"], calls["complete"]) == (3, 1, 0)
    assert reader.fills.statistics == FillStatistics(damaged=1)


async def test_a_damaged_cold_object_is_not_copied() -> None:
    config = await cold_volume()
    async with opened(config) as (_, blobs), reading(config) as reader:
        await blobs.cold.put(await reader.key("/small"), b"smalx")
        with pytest.raises(CorruptDataError):
            await reader.read("/small")
        await anyio.wait_all_tasks_blocked()
        assert await sizes(blobs.hot) == {}
    assert reader.fills.statistics == FillStatistics(damaged=1)
