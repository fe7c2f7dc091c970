"""Who works under another's exclusive lock: never a request after the lock may be somebody
else's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count

import anyio
import anyio.lowlevel
import pytest

from s3k_async._core.runtime import Runtime
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import Condition, Item, Key, Update
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.errors import BusyError, LeaseExpiredError, UnreachableError, UnsupportedError
from s3k_async.txn.lock_delegate import LockDelegate
from s3k_async.txn.volume_lock import (
    HELD_SECONDS,
    LOOK_SECONDS,
    QUIET_SECONDS,
    VolumeLock,
)
from s3k_async.txn.volume_record import DESTROYING, LOCK, LOCK_SECONDS, RECORD_KEY, STATE
from s3k_async.volumes import Volume, init_volume, open_volume
from s3k_async.volumes.exclusive_volume import exclusive_volume
from tests.support import FakeClock, fake_runtime

_names = (f"delegates-{number}" for number in count())
ITEM: Item = {"path": "ks://v/-sf0", "children": "a", "ver": 1}


@dataclass
class Rig:
    """One volume in memory; time passes second by second, and who sleeps wakes up in it."""

    config: VolumeConfig
    clock: FakeClock
    runtime: Runtime

    @asynccontextmanager
    async def volume(self) -> AsyncIterator[Volume]:
        volume = await open_volume(self.config, runtime=self.runtime, locked=True)
        try:
            yield volume
        finally:
            await volume.close()

    async def pass_by(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1)
            for _ in range(40):
                await anyio.lowlevel.checkpoint()


@pytest.fixture
async def rig() -> Rig:
    name = next(_names)
    clock = FakeClock()
    steady = fake_runtime(clock)

    async def sleep(seconds: float) -> None:
        end = clock.seconds + seconds
        while clock.seconds < end:
            await anyio.lowlevel.checkpoint()

    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name))
    await init_volume(config, runtime=steady)
    return Rig(config, clock, replace(steady, sleep=sleep))


def lock_of(rig: Rig) -> VolumeLock:
    return VolumeLock("restore", "/", rig.runtime)


async def test_a_delegate_writes_for_as_long_as_the_lock_is_held(rig: Rig) -> None:
    lock = lock_of(rig)
    async with exclusive_volume(rig.config, lock, runtime=rig.runtime), rig.volume() as volume:
        async with LockDelegate(lock.id, rig.runtime).at_work(volume.items):
            for number in range(20):
                await rig.pass_by(13)
                await volume.items.load([{**ITEM, "ver": number}])
        with pytest.raises(UnsupportedError):
            await volume.items.load([ITEM])
        assert (await volume.items.get(Key("ks://v/-sf0", "a")) or {})["ver"] == 19


async def test_nobody_is_delegate_of_a_lock_that_is_not_held(rig: Rig) -> None:
    lock = lock_of(rig)
    async with rig.volume() as volume:
        with pytest.raises(LeaseExpiredError):
            async with LockDelegate(lock.id, rig.runtime).at_work(volume.items):
                raise AssertionError
        async with exclusive_volume(rig.config, lock, runtime=rig.runtime):
            with pytest.raises(LeaseExpiredError):
                async with LockDelegate("another", rig.runtime).at_work(volume.items):
                    raise AssertionError


async def test_before_the_lock_is_given_up_no_delegate_writes_any_more(rig: Rig) -> None:
    """Dismissed, each stops in time for what it has sent to arrive while the volume is still
    locked."""
    lock = lock_of(rig)
    ended: list[float] = []

    async def work(volume: Volume, held: str) -> None:
        async with LockDelegate(held, rig.runtime).at_work(volume.items):
            while True:
                ended[:] = [rig.clock.seconds]
                await volume.items.load([ITEM])
                await anyio.lowlevel.checkpoint()

    async def works(volume: Volume, held: str) -> None:
        with pytest.raises(LeaseExpiredError):
            await work(volume, held)

    async with (
        rig.volume() as volume,
        anyio.create_task_group() as tasks,
        exclusive_volume(rig.config, lock, runtime=rig.runtime) as held,
    ):
        tasks.start_soon(works, volume, lock.id)
        await rig.pass_by(60)
        dismissed = rig.clock.seconds
        tasks.start_soon(rig.pass_by, QUIET_SECONDS + 1)
        await lock.dismiss(held.items)
        given_up = rig.clock.seconds
    assert given_up - dismissed >= QUIET_SECONDS
    assert ended[0] - dismissed < LOOK_SECONDS
    await (await open_volume(rig.config, runtime=rig.runtime)).close()


async def test_a_lock_goes_on_under_its_new_id(rig: Rig) -> None:
    lock = lock_of(rig)
    async with exclusive_volume(rig.config, lock, runtime=rig.runtime) as held:
        before = lock.id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.pass_by, QUIET_SECONDS + 1)
            await lock.dismiss(held.items)
        assert lock.id != before
        assert (await held.items.get(RECORD_KEY) or {})[LOCK] == lock.id
        await rig.pass_by(2 * LOCK_SECONDS)
        lock.check()
        with pytest.raises(BusyError):
            await open_volume(rig.config, runtime=rig.runtime)


async def test_a_delegate_that_cannot_look_stops(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = lock_of(rig)
    async with exclusive_volume(rig.config, lock, runtime=rig.runtime), rig.volume() as volume:

        async def silent(*_: object, **__: object) -> None:
            raise UnreachableError("no answer")

        async def work() -> None:
            delegate = LockDelegate(lock.id, rig.runtime)
            async with delegate.at_work(volume.items):
                with monkeypatch.context() as cut:
                    cut.setattr(MemoryItems, "get", silent)
                    await rig.pass_by(LOOK_SECONDS - 6)
                    delegate.check()
                    await rig.pass_by(7)
                    await volume.items.load([ITEM])

        with pytest.raises(LeaseExpiredError):
            await work()
        assert await volume.items.get(Key("ks://v/-sf0", "a")) is None


async def test_what_waits_to_be_sent_is_not_sent_when_the_lock_is_given_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may wait for credentials, or for a connection, when the lock was looked after
    already."""
    lock, load = lock_of(rig), MemoryItems.load
    sent: list[float] = []

    async def waiting(self: MemoryItems, items: Sequence[Item]) -> None:
        await rig.runtime.sleep(60)
        sent.append(rig.clock.seconds)
        await load(self, items)

    async def work(volume: Volume, held: str) -> None:
        with pytest.raises(LeaseExpiredError):
            async with LockDelegate(held, rig.runtime).at_work(volume.items):
                await volume.items.load([ITEM])

    monkeypatch.setattr(MemoryItems, "load", waiting)
    async with rig.volume() as volume, anyio.create_task_group() as tasks:
        async with exclusive_volume(rig.config, lock, runtime=rig.runtime) as held:
            tasks.start_soon(work, volume, lock.id)
            await rig.pass_by(1)
            tasks.start_soon(rig.pass_by, QUIET_SECONDS + 1)
            await lock.dismiss(held.items)
        await rig.pass_by(60)
    assert not sent


async def test_a_lease_that_runs_out_ends_the_work_before_anybody_can_take_it_over(
    rig: Rig,
) -> None:
    lock = lock_of(rig)
    at_work: list[bool] = []
    async with rig.volume() as volume:
        await lock.take(volume.items, volume.record, "here")  # and it is never renewed

        async def work() -> None:
            delegate = LockDelegate(lock.id, rig.runtime)
            async with delegate.at_work(volume.items):
                await rig.pass_by(HELD_SECONDS)
                delegate.check()
                at_work.append(True)
                await rig.pass_by(2)
                at_work.append(True)

        with pytest.raises(LeaseExpiredError):
            await work()
    assert at_work == [True]


async def test_nobody_writes_into_a_volume_that_is_being_destroyed(rig: Rig) -> None:
    lock = lock_of(rig)
    async with exclusive_volume(rig.config, lock, runtime=rig.runtime), rig.volume() as volume:
        await volume.items.write(Update(RECORD_KEY, Condition(), {STATE: DESTROYING}))
        with pytest.raises(LeaseExpiredError):
            async with LockDelegate(lock.id, rig.runtime).at_work(volume.items):
                raise AssertionError
        await volume.items.write(Update(RECORD_KEY, Condition(), {}, (STATE,)))
