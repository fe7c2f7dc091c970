"""A lease at its boundaries, and its renewal in the background."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.errors import LeaseExpiredError, UnreachableError
from s3k_async.txn.lease import (
    CHECK_SECONDS,
    Lease,
    LeaseWatch,
    Moment,
    ends_late,
    expired,
    expiry_ms,
    keep_renewed,
    require_unexpired,
)
from s3k_async.txn.txn_record import TransactionRecords
from s3k_async.txn.volume_lock import HELD_SECONDS, RENEW_SECONDS, VolumeLock
from s3k_async.txn.volume_record import LOCK, LOCK_LEASE, LOCK_SECONDS, RECORD_KEY
from tests.engines.volumes import fresh_name
from tests.support import FakeClock, fake_runtime, fork_and_run

START = Moment(100.0, 1_700_000_000_000)


def at(monotonic: float, wall_ms: int) -> Runtime:
    return replace(SYSTEM, monotonic=lambda: monotonic, now_ms=lambda: wall_ms)


def after(seconds: float, wall_seconds: float | None = None) -> Runtime:
    """The clocks so long after START: both, or the monotonic and the wall clock."""
    wall = seconds if wall_seconds is None else wall_seconds
    return at(START.monotonic + seconds, START.wall_ms + round(wall * 1000))


# The value


def test_a_lease_is_valid_until_just_before_its_expiry() -> None:
    lease = Lease.granted("me", START, 30.0)
    assert lease.expiry_ms == START.wall_ms + 30_000 == expiry_ms(START.wall_ms, 30.0)
    assert lease.valid(after(0.0))
    assert lease.valid(after(29.999))
    assert not lease.valid(after(30.0))


def test_others_take_over_at_the_expiry_and_not_before() -> None:
    assert not expired(START.wall_ms + 1, START.wall_ms)
    assert expired(START.wall_ms, START.wall_ms)
    assert expired(0, START.wall_ms)


def test_the_margin_ends_the_lease_earlier_for_the_holder_alone() -> None:
    lease = Lease.granted("me", START, 90.0, margin=45.0)
    assert lease.valid(after(44.999))
    assert not lease.valid(after(45.0))
    assert not expired(lease.expiry_ms, after(89.999).now_ms())
    assert expired(lease.expiry_ms, after(90.0).now_ms())


def test_a_lease_that_was_read_needs_a_recent_read_and_its_margin() -> None:
    lease = Lease("other", START.wall_ms + 55_000, START, duration=15.0, margin=45.0)
    assert lease.valid(after(10.0))
    assert not lease.valid(after(10.001))
    fresh = replace(lease, expiry_ms=START.wall_ms + 90_000)
    assert fresh.valid(after(14.999))
    assert not fresh.valid(after(15.0))


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(after(0.0, wall_seconds=30.0), id="monotonic-stood-still"),
        pytest.param(after(30.0, wall_seconds=0.0), id="wall-stood-still"),
        pytest.param(after(30.0, wall_seconds=-3600.0), id="wall-was-set-back"),
    ],
)
def test_either_clock_ends_a_lease(now: Runtime) -> None:
    assert not Lease.granted("me", START, 30.0).valid(now)


def test_a_lease_that_is_not_renewed_for_its_duration_is_over_whatever_its_clock_says() -> None:
    clock = FakeClock()
    watch = LeaseWatch(30.0, fake_runtime(clock))
    ahead = clock.now_ms() + 86_400_000
    assert ends_late(ahead, clock.now_ms(), 30.0)
    assert watch.runs("a", ahead)
    clock.advance(20)
    assert watch.runs("a", ahead)
    assert watch.runs("b", ahead)
    clock.advance(10)
    assert not watch.runs("a", ahead)
    assert watch.runs("b", ahead)
    assert watch.runs("a", ahead + 10_000)  # renewed after all
    assert not watch.runs("b", clock.now_ms())
    assert not ends_late(clock.now_ms() + 30_000, clock.now_ms(), 30.0)


def test_a_lease_that_was_not_granted_is_never_valid() -> None:
    none = Lease.none("me")
    assert none.owner == "me"
    assert not none.valid(after(0.0))
    assert not none.valid(at(-1e9, -(10**15)))
    assert expired(none.expiry_ms, START.wall_ms)


def test_bytes_may_be_published_until_the_expiry_and_not_later() -> None:
    require_unexpired(START.wall_ms, START.wall_ms, "/f")
    with pytest.raises(LeaseExpiredError) as refused:
        require_unexpired(START.wall_ms, START.wall_ms + 1, "/f")
    assert refused.value.path == "/f"


# Renewal


class Ticks:
    """Sources whose sleeps end when they are told to, by their length."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.sleeping: list[tuple[float, asyncio.Event]] = []
        self.runtime: Runtime = replace(fake_runtime(self.clock), sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self.sleeping.append((seconds, over))
        try:
            await over.wait()
        finally:
            self.sleeping.remove((seconds, over))

    async def pass_by(self, seconds: float, passed: float | None = None) -> None:
        """End the sleeps of `seconds`, after which `passed` seconds have gone by."""
        await settle()
        self.clock.advance(seconds if passed is None else passed)
        for length, over in list(self.sleeping):
            if length == seconds:
                over.set()
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
async def items(ticks: Ticks) -> RetryingItems:
    memory = MemoryItems(fresh_name("lease"))
    await memory.create()
    return RetryingItems(memory, RetryPolicy(), ticks.runtime)


async def test_a_failed_renewal_is_followed_by_the_next_one(ticks: Ticks) -> None:
    answers = [UnreachableError("no answer"), None, UnreachableError("no answer"), None]
    renewals = 0

    async def renew() -> None:
        nonlocal renewals
        renewals += 1
        if (answer := answers[renewals - 1]) is not None:
            raise answer

    async with keep_renewed(renew, 10.0, ticks.runtime):
        for _ in answers:
            await ticks.pass_by(10.0)
    assert renewals == len(answers)
    assert not ticks.sleeping


async def test_a_lost_lease_ends_the_renewals_and_not_the_body(ticks: Ticks) -> None:
    renewals = 0

    async def renew() -> None:
        nonlocal renewals
        renewals += 1
        raise LeaseExpiredError("lost")

    async with keep_renewed(renew, 10.0, ticks.runtime):
        await ticks.pass_by(10.0)
        await ticks.pass_by(10.0)
        assert not ticks.sleeping
    assert renewals == 1


async def test_a_check_that_fails_cancels_the_body(ticks: Ticks) -> None:
    lease = Lease.granted("me", Moment.now(ticks.runtime), 3.0)
    cancelled = False

    def check() -> None:
        if not lease.valid(ticks.runtime):
            raise LeaseExpiredError("over")

    async def renew() -> None:
        raise UnreachableError("no answer")

    async def work() -> None:
        nonlocal cancelled
        async with keep_renewed(renew, 10.0, ticks.runtime, check=check):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled = True
                raise

    working = asyncio.create_task(work())
    await ticks.pass_by(CHECK_SECONDS)
    await ticks.pass_by(CHECK_SECONDS)
    assert not working.done()
    await ticks.pass_by(CHECK_SECONDS)
    with pytest.raises(LeaseExpiredError):
        await working
    assert cancelled
    assert not ticks.sleeping


async def test_what_is_no_error_of_ours_is_raised_as_itself(ticks: Ticks) -> None:
    async def renew() -> None:
        raise ZeroDivisionError

    async def work() -> None:
        async with keep_renewed(renew, 10.0, ticks.runtime):
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await ticks.pass_by(10.0)
    with pytest.raises(ZeroDivisionError):
        await working


async def test_a_cancelled_body_ends_a_renewal_that_is_under_way(ticks: Ticks) -> None:
    under_way, ended = asyncio.Event(), asyncio.Event()

    async def renew() -> None:
        under_way.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def work() -> None:
        async with keep_renewed(renew, 10.0, ticks.runtime):
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await ticks.pass_by(10.0)
    assert under_way.is_set()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert ended.is_set()


async def test_a_loop_that_stopped_longer_than_the_lease_renews_no_transaction(
    ticks: Ticks, items: RetryingItems
) -> None:
    """Another client may have begun to take it over: a late renewal would only hold it back."""
    transactions = TransactionRecords(items, ticks.runtime)
    async with transactions.hold("mark", "/a") as txn:
        await ticks.pass_by(10.0)
        renewed = await transactions.record(txn.id)
        assert renewed is not None
        assert renewed.lease_ms == ticks.clock.now_ms() + 30_000
        await ticks.pass_by(10.0, passed=31.0)
        with pytest.raises(LeaseExpiredError):
            txn.check()
        stored = await transactions.record(txn.id)
        assert stored == renewed
        assert not transactions.lease_runs(stored)
        assert not ticks.sleeping


async def test_a_loop_that_stopped_longer_than_it_counts_on_the_lock_renews_no_lock(
    ticks: Ticks, items: RetryingItems
) -> None:
    lock = VolumeLock("load", "x", ticks.runtime)
    record = {"path": RECORD_KEY.partition, "children": RECORD_KEY.sort}
    await items.write(Put({**record, **lock.fields()}, ABSENT))
    granted = ticks.clock.now_ms() + int(LOCK_SECONDS * 1000)
    async with lock.held(items):
        await ticks.pass_by(RENEW_SECONDS, passed=HELD_SECONDS)
        with pytest.raises(LeaseExpiredError):
            lock.check()
        stored = await items.get(RECORD_KEY) or {}
        assert (stored[LOCK], stored[LOCK_LEASE]) == (lock.id, granted)
        assert not ticks.sleeping


async def test_a_forked_child_renews_nothing_and_its_copy_expires() -> None:
    seconds, renewals = 0.4, 0
    lease = Lease.granted("me", Moment.now(SYSTEM), seconds)
    begun = lease.since

    async def renew() -> None:
        nonlocal lease, renewals
        renewals += 1
        lease = Lease.granted("me", Moment.now(SYSTEM), seconds)

    def in_child() -> None:
        before = renewals
        while begun.age(SYSTEM) < 2 * seconds:
            pass
        assert renewals == before
        assert not lease.valid(SYSTEM)

    async with keep_renewed(renew, 0.01, SYSTEM):
        await asyncio.sleep(0.05)
        assert fork_and_run(in_child) == 0
        await asyncio.sleep(0.1)
        assert renewals > 0
        assert lease.since.age(SYSTEM) < seconds
