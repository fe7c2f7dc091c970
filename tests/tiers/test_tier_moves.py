"""Moves: which objects, crashes at every call, damage, and several runs at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import anyio
import pytest

from s3k_async.backends.ports.blobs import BlobInfo, BlobStore, Buffer
from s3k_async.errors import (
    ConfigError,
    InvalidArgumentError,
    ResponseLostError,
    S3kError,
    ServiceError,
)
from s3k_async.storage.tier_moves import TierMoves, TierUsage, tier_usage
from s3k_async.storage.tier_policy import MovePolicy, Overrides
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.testing import Died, FaultPlan
from s3k_async.testing.faults import Call, FaultyBlobs
from tests.support import FakeClock, fake_runtime, from_call
from tests.tiers.rig import ALL, TUNING, key, move_all, sizes, stores

DATA = {key(1): b"", key(2): b"short", key(3): bytes(range(200))}


def info(name: str, size: int, mtime_ms: int) -> BlobInfo:
    return BlobInfo(name, size, "", mtime_ms)


def chosen(policy: MovePolicy, overrides: Overrides | None = None) -> str:
    objects = [info("d", 10, 400), info("b", 30, 200), info("a", 20, 100), info("c", 5, 200)]
    return "".join(each.key for each in policy.chosen(objects, 1300, overrides))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MovePolicy(), "acbd"),
        (MovePolicy(older_than=1.0), "acb"),
        (MovePolicy(older_than=1.1), "a"),
        (MovePolicy(older_than=2.0), ""),
        (MovePolicy(high=65, low=0), ""),
        (MovePolicy(high=64, low=45), "a"),
        (MovePolicy(high=64, low=44), "ac"),
        (MovePolicy(high=64, low=10), "acb"),
        (MovePolicy(high=0, low=0), "acbd"),
        (MovePolicy(older_than=1.1, high=65, low=0), "a"),
        (MovePolicy(older_than=1.1, high=60, low=40), "ac"),
    ],
)
def test_the_oldest_are_moved_and_of_one_time_the_smaller(
    policy: MovePolicy, expected: str
) -> None:
    assert chosen(policy) == expected


@pytest.mark.parametrize(
    ("policy", "overrides", "expected"),
    [
        (MovePolicy(), {"c": "hot"}, "abd"),
        (MovePolicy(), {"c": "hot", "d": "cold", "other": "cold"}, "dab"),
        (MovePolicy(older_than=1.1), {"a": "hot"}, ""),
        (MovePolicy(older_than=2.0), {"d": "cold", "b": "cold"}, "bd"),
        # Of 65 bytes 10 are moved in any case, and 20 stay.
        (MovePolicy(high=54, low=50), {"d": "cold", "a": "hot"}, "dc"),
        (MovePolicy(high=55, low=50), {"d": "cold", "a": "hot"}, "d"),
        (MovePolicy(high=64, low=0), {"a": "hot", "b": "hot"}, "cd"),
        # At 1300 ms a is older than 1 s, and d is not; no option of the run counts for either.
        (MovePolicy(older_than=2.0), {"a": 1}, "a"),
        (MovePolicy(), {"a": 2, "b": 0}, "bcd"),
        (MovePolicy(high=0, low=0), {"a": 2, "d": 1}, "cb"),
        (MovePolicy(high=44, low=44), {"a": 1}, "ac"),
    ],
)
def test_overrides_of_single_files(policy: MovePolicy, overrides: Overrides, expected: str) -> None:
    assert chosen(policy, overrides) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: MovePolicy(older_than=-1),
        lambda: MovePolicy(high=1),
        lambda: MovePolicy(low=1),
        lambda: MovePolicy(high=1, low=2),
        lambda: MovePolicy(high=1, low=-1),
    ],
)
def test_policies_that_contradict_themselves(make: Callable[[], MovePolicy]) -> None:
    with pytest.raises(InvalidArgumentError):
        make()


async def filled() -> tuple[BlobStore, BlobStore]:
    hot, cold = await stores()
    for name, data in DATA.items():
        await hot.put(name, data)
    return hot, cold


async def all_is_cold(hot: BlobStore, cold: BlobStore) -> None:
    assert await sizes(hot) == {}
    assert {name: await cold.get(name) for name in await sizes(cold)} == DATA
    assert [each async for each in cold.list_uploads()] == []


async def test_a_run_moves_all_and_tells_how_much() -> None:
    hot, cold = await filled()
    await hot.put("foreign", b"kept")
    done = await move_all(TieredBlobs(hot, cold))
    assert (done.moved, done.bytes, done.completed, done.left) == (3, 205, 0, 0)
    assert await sizes(hot) == {"foreign": 4}
    await hot.delete("foreign")
    await all_is_cold(hot, cold)


async def test_a_dry_run_changes_nothing() -> None:
    hot, cold = await filled()
    done = await TierMoves(TieredBlobs(hot, cold), fake_runtime(), TUNING).run(ALL, dry_run=True)
    assert (done.moved, done.bytes) == (3, 205)
    assert await sizes(cold) == {}


async def test_the_rate_limits_the_bytes() -> None:
    hot, cold = await filled()
    clock = FakeClock()
    began = clock.seconds
    moves = TierMoves(TieredBlobs(hot, cold), fake_runtime(clock), TUNING, rate=10)
    assert (await moves.run(ALL)).moved == 3
    first = min(len(each) for each in DATA.values() if each)
    assert clock.seconds - began >= first / 10


def is_call(number: int) -> Callable[[Call], bool]:
    """Whether a call is that of a number."""
    return lambda call: call.number == number


async def calls_of_a_run() -> int:
    hot, cold = await filled()
    plan = FaultPlan()
    await move_all(TieredBlobs(FaultyBlobs(hot, plan), FaultyBlobs(cold, plan)))
    return len(plan.calls)


@pytest.mark.parametrize("fault", ["death before", "death after", "failure", "lost answer"])
async def test_a_run_may_end_at_every_call_and_the_next_one_finishes_it(fault: str) -> None:
    error: BaseException = {
        "death before": Died("died"),
        "death after": Died("died"),
        "failure": ServiceError("failed"),
        "lost answer": ResponseLostError("lost"),
    }[fault]
    when = "after" if fault in ("death after", "lost answer") else "before"
    calls = await calls_of_a_run()
    assert calls > 15
    for number in range(1, calls + 1):
        hot, cold = await filled()
        plain = TieredBlobs(hot, cold)

        async def look(_: Call, plain: TieredBlobs = plain) -> None:
            for name, data in DATA.items():
                assert await plain.get(name) == data

        plan = FaultPlan(look)
        # A process that is dead makes no further calls, not even those that clean up.
        times = 10**6 if isinstance(error, Died) else 1
        at = from_call(number) if isinstance(error, Died) else is_call(number)
        plan.fail_when(at, error, when=when, times=times)  # type: ignore[arg-type]
        with suppress(Died, S3kError):
            await move_all(TieredBlobs(FaultyBlobs(hot, plan), FaultyBlobs(cold, plan)))
        for name, data in DATA.items():
            assert await plain.get(name) == data, (number, name)
        assert {each.key for each in (await plain.list()).blobs} == set(DATA)
        await move_all(plain)
        async for upload in cold.list_uploads():
            await cold.abort_upload(upload)  # as garbage collection does
        await all_is_cold(hot, cold)


async def test_a_copy_that_is_there_is_not_made_again() -> None:
    hot, cold = await filled()
    for name, data in DATA.items():
        await cold.put(name, data)
    plan = FaultPlan()
    done = await move_all(TieredBlobs(hot, FaultyBlobs(cold, plan)))
    assert (done.moved, done.completed) == (3, 3)
    assert not {"put", "start_upload"} & {call.method for call in plan.calls}
    await all_is_cold(hot, cold)


async def test_one_place_under_two_names_loses_nothing() -> None:
    _, cold = await stores()
    for name, data in DATA.items():
        await cold.put(name, data)
    for _ in range(2):
        with pytest.raises(ConfigError, match="under another name"):
            await move_all(TieredBlobs(cold, cold))
        assert {name: await cold.get(name) for name in await sizes(cold)} == DATA


async def test_two_places_are_told_apart_once_in_a_run() -> None:
    hot, cold = await filled()
    for name, data in DATA.items():
        await cold.put(name, data)
    plan = FaultPlan()
    await move_all(TieredBlobs(FaultyBlobs(hot, plan), cold))
    assert [call.method for call in plan.calls].count("put") == 1
    await all_is_cold(hot, cold)


@pytest.mark.parametrize("other", [b"wrong", b"another length"])
async def test_objects_that_differ_are_kept_in_both(other: bytes) -> None:
    hot, cold = await filled()
    await cold.put(key(2), other)
    done = await move_all(TieredBlobs(hot, cold))
    assert (done.moved, done.damaged, done.left_bytes) == (2, [key(2)], 5)
    assert await hot.get(key(2)) == DATA[key(2)]
    assert await cold.get(key(2)) == other


class Damaging(FaultyBlobs):
    """A store that loses a bit, or the end, of what is put."""

    short = False

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        stored = data[:-1] if self.short else bytes([data[0] ^ 1, *data[1:]]) if data else data
        return await super().put(key, stored, if_absent=if_absent, if_match=if_match)


@pytest.mark.parametrize("short", [False, True])
async def test_the_hot_object_is_kept_while_its_copy_has_other_bytes(short: bool) -> None:
    hot, cold = await filled()
    damaging = Damaging(cold, FaultPlan())
    damaging.short = short
    done = await move_all(TieredBlobs(hot, damaging))
    assert done.damaged == [key(2)]
    assert done.moved == 2
    assert done.left_bytes == 5
    assert await TieredBlobs(hot, cold).get(key(2)) == DATA[key(2)]
    assert (await move_all(TieredBlobs(hot, cold))).damaged == [key(2)]  # until fsck repairs it
    await cold.delete(key(2))
    await move_all(TieredBlobs(hot, cold))
    await all_is_cold(hot, cold)


@pytest.mark.parametrize("seed", range(20))
async def test_runs_at_once_are_harmless(seed: int) -> None:
    hot, cold = await filled()
    random = Random(seed)

    async def pause(_: Call) -> None:
        for _turn in range(random.randrange(4)):
            await anyio.lowlevel.checkpoint()

    plain = TieredBlobs(hot, cold)
    moved = []

    async def run() -> None:
        plan = FaultPlan(pause)
        moved.append(await move_all(TieredBlobs(FaultyBlobs(hot, plan), FaultyBlobs(cold, plan))))

    async def read() -> None:
        for _ in range(50):
            for name, data in DATA.items():
                assert await plain.get(name) == data
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run)
        tasks.start_soon(read)
    assert all(not each.damaged for each in moved)
    await all_is_cold(hot, cold)


async def test_an_object_that_is_deleted_during_its_move_leaves_at_most_its_copy() -> None:
    for number in range(1, await calls_of_a_run() + 1):
        hot, cold = await filled()
        plain = TieredBlobs(hot, cold)

        async def collect(call: Call, at: int = number, plain: TieredBlobs = plain) -> None:
            if call.number == at:
                await plain.delete_many([key(2), key(3)])

        plan = FaultPlan(collect)
        done = await move_all(TieredBlobs(FaultyBlobs(hot, plan), FaultyBlobs(cold, plan)))
        assert not done.damaged
        assert await sizes(hot) == {}
        # What is left is in the listing, so that the next garbage collection deletes it.
        assert {each.key for each in (await plain.list()).blobs} == set(await sizes(cold))
        await plain.delete_many([key(2), key(3)])
        assert await sizes(cold) == {key(1): 0}


async def test_usage_counts_what_is_in_both() -> None:
    hot, cold = await filled()
    await cold.put(key(2), b"short")
    await cold.put(key(3), b"cut")
    await cold.put(key(4), b"cold")
    expected = TierUsage(3, 205, 3, 12, 2, 205, (key(3),))
    assert await tier_usage(TieredBlobs(hot, cold)) == expected
