"""The exclusive lock, and clients that had the volume open when it was taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import Runtime
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Item, Key, Put, Update
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.errors import (
    BusyError,
    ConditionFailedError,
    LeaseExpiredError,
    OutcomeUnknownError,
    PermissionDeniedError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    UnreachableError,
    UnsupportedError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.settings.resolution import resolve
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn.lease import Moment
from s3k_async.txn.volume_lock import (
    HELD_SECONDS,
    LOOK_SECONDS,
    QUIET_SECONDS,
    RENEW_SECONDS,
    LockPurpose,
    RecordFence,
    VolumeLock,
)
from s3k_async.txn.volume_record import LOCK, LOCK_SECONDS, RECORD_KEY, TAG
from s3k_async.volumes import Volume, destroy_volume, init_volume, open_volume
from s3k_async.volumes.exclusive_volume import exclusive_volume
from tests.level import FULL
from tests.support import FakeClock, fake_runtime, under

_names = (f"exclusive-{number}" for number in count())
ITEM: Item = {"path": "ks://v/-sf0", "children": "a", "ver": 1}


@dataclass
class Rig:
    """One volume in memory, and time that passes when it is told to."""

    config: VolumeConfig
    clock: FakeClock
    runtime: Runtime

    def lock(self, purpose: LockPurpose = "load", subject: str = "x") -> VolumeLock:
        return VolumeLock(purpose, subject, self.runtime)

    @asynccontextmanager
    async def held(self, lock: VolumeLock, *, touching: bool = False) -> AsyncIterator[Volume]:
        async with exclusive_volume(self.config, lock, runtime=self.runtime) as volume:
            lock.touched = lock.touched or touching
            yield volume

    async def open(self, faults: FaultPlan | None = None) -> Volume:
        return await under(faults, open_volume(self.config, runtime=self.runtime))

    async def interrupt(self, lock: VolumeLock) -> None:
        """Work that fails half-way."""
        with pytest.raises(RuntimeError, match="half-way"):
            async with self.held(lock, touching=True):
                raise RuntimeError("half-way")


@pytest.fixture
async def rig() -> Rig:
    name = next(_names)
    clock = FakeClock()
    steady = fake_runtime(clock)

    async def sleep(seconds: float) -> None:
        if seconds < RENEW_SECONDS:
            await steady.sleep(seconds)
        else:
            await anyio.sleep_forever()  # the renewal in the background must not make time pass

    runtime = replace(steady, sleep=sleep)
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name))
    await init_volume(config, runtime=steady)
    return Rig(config, clock, runtime)


# The lock


async def test_a_locked_volume_opens_for_nobody_else(rig: Rig) -> None:
    async with rig.held(rig.lock()):
        with pytest.raises(BusyError, match="is locked by a"):
            await rig.open()
        with pytest.raises(BusyError, match="is locked by a"):
            async with rig.held(rig.lock()):
                raise AssertionError
        with pytest.raises(BusyError, match="is locked by a"):
            await init_volume(rig.config, exist_ok=True, runtime=rig.runtime)
        with pytest.raises(BusyError, match="is locked by a"):
            await destroy_volume(rig.config, runtime=rig.runtime)
    await (await rig.open()).close()


async def test_unlocked_the_record_is_what_it_was(rig: Rig) -> None:
    volume = await rig.open()
    before = dict(await volume.items.get(RECORD_KEY) or {})
    async with rig.held(rig.lock()) as locked:
        assert locked.record == volume.record
    after = dict(await volume.items.get(RECORD_KEY) or {})
    assert {name for name in after if before.get(name) != after[name]} == {"op", "epoch"}
    assert before.keys() | {"epoch"} == after.keys()
    assert await volume.table.read_tag(TAG) == volume.record.to_tag()


async def test_of_many_that_want_the_lock_one_gets_it(rig: Rig) -> None:
    got: list[int] = []
    free = anyio.Event()

    async def want(number: int) -> None:
        try:
            async with rig.held(rig.lock()):
                got.append(number)
                await free.wait()
        except BusyError:
            pass

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(want, number)
        with anyio.move_on_after(5):
            while not got:
                await anyio.lowlevel.checkpoint()
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        free.set()
    assert len(got) == 1


async def test_failing_before_anything_was_touched_unlocks(rig: Rig) -> None:
    with pytest.raises(RuntimeError, match="early"):
        async with rig.held(rig.lock()):
            raise RuntimeError("early")
    await (await rig.open()).close()


async def test_a_lock_is_not_left_behind_by_who_was_cancelled_while_taking_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could have opened the volume until the work was begun again, and finished."""
    volume = await open_volume(rig.config, runtime=rig.runtime, locked=True)
    write = MemoryItems.write

    async def cancelled(items: MemoryItems, action: Put | Update | Delete) -> None:
        monkeypatch.undo()
        await write(items, action)
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(MemoryItems, "write", cancelled)
    with anyio.CancelScope() as scope:
        await rig.lock().take(volume.items, volume.record, "t")
    assert scope.cancelled_caught
    await (await rig.open()).close()


@pytest.mark.parametrize("creating", [False, True])
@pytest.mark.parametrize("embedded", [False, True])
async def test_a_cancelled_task_leaves_no_lock(
    rig: Rig, tmp_path: Path, creating: bool, embedded: bool
) -> None:
    """At whatever step asyncio cancels the task, as a signal does: a shielded scope of anyio does
    not hold that off. The last steps are those of a release that is complete."""
    completed = False
    for steps in count(step=(2 if FULL else 9) if embedded else 1):
        name = next(_names)
        config = (
            resolve(str(tmp_path / name))
            if embedded
            else VolumeConfig(name, MemoryTable(name), MemoryBlobs(name))
        )
        if not creating:
            await init_volume(config, runtime=rig.runtime)

        async def hold(config: VolumeConfig = config) -> None:
            async with exclusive_volume(config, rig.lock(), create=creating, runtime=rig.runtime):
                pass

        task = asyncio.create_task(hold())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        (error,) = await asyncio.gather(task, return_exceptions=True)
        if error is None:
            completed = True
            break
        assert isinstance(error, asyncio.CancelledError)
        try:
            volume = await open_volume(config, runtime=rig.runtime, locked=True)
        except VolumeNotFoundError:
            assert creating
            continue
        assert LOCK not in (await volume.items.get(RECORD_KEY) or {}), steps
        await volume.close()
    assert completed
    assert steps > 10


async def test_a_creation_that_fails_before_the_record_is_written_unlocks_nothing(
    rig: Rig,
) -> None:
    """If the service cannot be reached, a further request would double the wait."""
    name = next(_names)
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name))

    async def gate(call: Call) -> None:
        if call.store == "blobs" and call.method == "put":
            raise PermissionDeniedError("denied")

    async def hold() -> None:
        async with exclusive_volume(config, rig.lock(), create=True, runtime=rig.runtime):
            raise AssertionError

    plan = FaultPlan(gate)
    with pytest.raises(PermissionDeniedError):
        await under(plan, hold())
    assert any(call.method == "put" for call in plan.calls)
    assert not any(call.method == "write" for call in plan.calls)


async def test_interrupted_work_is_finished_by_the_same_work_only(rig: Rig) -> None:
    lock = rig.lock("load", "one")
    lock.done = 17
    await rig.interrupt(lock)
    with pytest.raises(BusyError, match=r"a load of the volume \(one\) was interrupted"):
        await rig.open()
    others: list[tuple[LockPurpose, str]] = [
        ("load", "two"),
        ("reshard", "one"),
        ("restore", "one"),
    ]
    for purpose, subject in others:
        with pytest.raises(BusyError, match=r"a load of the volume \(one\) was interrupted"):
            async with rig.held(rig.lock(purpose, subject)):
                raise AssertionError
    again = rig.lock("load", "one")
    async with rig.held(again):
        assert again.done == 17
        assert again.touched
    await (await rig.open()).close()


async def test_a_volume_with_interrupted_work_can_be_destroyed(rig: Rig) -> None:
    await rig.interrupt(rig.lock())
    await destroy_volume(rig.config, force=True, runtime=rig.runtime)
    with pytest.raises(VolumeNotFoundError):
        await rig.open()


async def test_the_lock_of_the_dead_is_taken_over_when_its_lease_is_over(rig: Rig) -> None:
    dead = rig.lock()
    volume = await open_volume(rig.config, runtime=rig.runtime, locked=True)
    await dead.take(volume.items, volume.record, "t")
    with pytest.raises(BusyError, match="is locked by a"):
        async with rig.held(rig.lock()):
            raise AssertionError
    rig.clock.advance(LOCK_SECONDS + 1)
    async with rig.held(rig.lock()):
        with pytest.raises(LeaseExpiredError):
            dead.check()
        with pytest.raises(LeaseExpiredError):
            await dead.change(volume.items, {"suffix_count": 1})
    assert (await rig.open()).record.suffix_count == volume.record.suffix_count


@pytest.mark.parametrize("verb", ["load", "destroy"])
async def test_the_lock_of_the_dead_whose_clock_was_ahead_is_taken_over(
    rig: Rig, verb: str
) -> None:
    ahead = replace(rig.runtime, now_ms=lambda: rig.clock.now_ms() + 86_400_000)
    steady = fake_runtime(rig.clock, seed=9)
    volume = await open_volume(rig.config, runtime=ahead, locked=True)
    await VolumeLock("load", "x", ahead).take(volume.items, volume.record, "t")
    began = rig.clock.seconds
    if verb == "load":
        again = VolumeLock("load", "x", steady)
        await again.take(volume.items, volume.record, "t")
        again.check()
    else:
        await destroy_volume(rig.config, force=True, runtime=steady)
    assert rig.clock.seconds - began == LOCK_SECONDS


@pytest.mark.parametrize("verb", ["load", "other", "destroy"])
async def test_the_lock_of_the_living_whose_clock_is_ahead_is_not_taken_over(
    rig: Rig, verb: str
) -> None:
    ahead = replace(rig.runtime, now_ms=lambda: rig.clock.now_ms() + 86_400_000)
    volume = await open_volume(rig.config, runtime=ahead, locked=True)
    lock = VolumeLock("load", "x", ahead)
    await lock.take(volume.items, volume.record, "t")
    steady = fake_runtime(rig.clock, seed=9)

    async def sleep(seconds: float) -> None:
        for _ in range(int(seconds / RENEW_SECONDS)):
            await steady.sleep(RENEW_SECONDS)
            await lock._renew(volume.items)

    living = replace(steady, sleep=sleep)
    purpose: LockPurpose = "load" if verb == "load" else "reshard"
    work = (
        destroy_volume(rig.config, force=True, runtime=living)
        if verb == "destroy"
        else VolumeLock(purpose, "x", living).take(volume.items, volume.record, "t")
    )
    with pytest.raises(BusyError, match="is locked by a load"):
        await work
    lock.check()


async def test_who_holds_the_lock_stops_long_before_somebody_takes_it_over(rig: Rig) -> None:
    async with rig.held(rig.lock()) as volume:
        await volume.items.load([ITEM])
        rig.clock.advance(HELD_SECONDS)
        with pytest.raises(LeaseExpiredError):
            await volume.items.load([ITEM])
    assert HELD_SECONDS <= LOCK_SECONDS / 2


async def test_the_lock_is_renewed_while_it_is_held(rig: Rig) -> None:
    rounds = 0

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        await anyio.lowlevel.checkpoint()
        rounds += 1
        rig.clock.advance(seconds)

    lock = VolumeLock("load", "x", replace(rig.runtime, sleep=sleep))
    async with rig.held(lock) as volume:
        while rounds < 20:
            lock.check()
            lock.done = rounds
            await volume.items.load([ITEM])
        item = await volume.items.get(RECORD_KEY)
        assert item is not None
        assert int(item["loading_done"]) > 0
    await (await rig.open()).close()


async def test_nothing_is_loaded_into_a_volume_that_is_not_locked(rig: Rig) -> None:
    volume = await rig.open()
    with pytest.raises(UnsupportedError, match="exclusive lock"):
        await volume.items.load([ITEM])
    async with rig.held(rig.lock()) as locked:
        with pytest.raises(UnsupportedError, match="exclusive lock"):
            await volume.items.load([ITEM])
        await locked.items.load([ITEM])
    with pytest.raises(UnsupportedError, match="exclusive lock"):
        await locked.items.load([ITEM])


# Clients that were open before


async def locked_meanwhile(rig: Rig) -> None:
    async with rig.held(rig.lock()):
        pass


async def test_an_open_client_notices_the_lock_before_the_quiet_is_over(rig: Rig) -> None:
    volume = await rig.open()
    await volume.store.make_directory("/a")
    async with rig.held(rig.lock()):
        rig.clock.advance(LOOK_SECONDS - 1)
        await volume.store.make_directory(
            "/b"
        )  # it has looked a moment ago; the holder still waits
        rig.clock.advance(1)
        for _ in range(2):
            with pytest.raises(BusyError, match="is locked by a"):
                await volume.store.get("/a")
            with pytest.raises(BusyError, match="is locked by a"):
                await volume.store.make_directory("/c")
    assert LOOK_SECONDS < QUIET_SECONDS


async def test_an_open_client_has_to_open_a_volume_again_that_was_locked(rig: Rig) -> None:
    volume = await rig.open()
    await locked_meanwhile(rig)
    rig.clock.advance(LOOK_SECONDS)
    with pytest.raises(VolumeMismatchError, match="open it again"):
        await volume.store.make_directory("/a")
    await (await rig.open()).store.make_directory("/a")


async def test_an_open_client_notices_that_the_volume_is_gone(rig: Rig) -> None:
    volume = await rig.open()
    item = await volume.items.get(RECORD_KEY)
    assert item is not None
    await volume.items.write(Update(RECORD_KEY, Condition(), {"state": "destroying"}))
    rig.clock.advance(LOOK_SECONDS)
    with pytest.raises(VolumeNotFoundError):
        await volume.store.get("/a")
    await open_volume_items_delete(rig)
    with pytest.raises(VolumeNotFoundError):
        await volume.store.get("/a")


async def open_volume_items_delete(rig: Rig) -> None:
    await MemoryItems(rig.config.name).write(Delete(RECORD_KEY, Condition()))


async def test_looks_are_rare_and_not_counted(rig: Rig) -> None:
    faults = FaultPlan()
    volume = await rig.open(faults)
    faults.calls.clear()
    for _ in range(10):
        await volume.store.get("/a")
    assert [call.key for call in faults.calls if "record" in call.key] == []
    before = volume.counter.requests
    rig.clock.advance(LOOK_SECONDS)
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(volume.store.get, "/a")
    assert [call.key for call in faults.calls if "record" in call.key] == ["s3k:volume/record"]
    assert (volume.counter.requests - before).total == 10


async def test_many_calls_share_one_look_at_a_table_that_does_not_answer(rig: Rig) -> None:
    """One after the other they would each have waited for it."""
    record = (await rig.open()).record
    reads = 0
    failures: list[S3kError] = []

    async def read() -> Item | None:
        nonlocal reads
        reads += 1
        await anyio.wait_all_tasks_blocked()
        raise UnreachableError("no answer", path="t")

    fence = RecordFence(read, record, Moment.now(rig.runtime), rig.runtime, "t")
    rig.clock.advance(3600)

    async def look() -> None:
        try:
            await fence.look()
        except UnreachableError as error:
            failures.append(error)

    for rounds in (1, 2):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(look)
        assert (reads, len(failures)) == (rounds, 20 * rounds)


async def test_a_look_that_fails_is_tried_again_no_more_often_than_the_request(rig: Rig) -> None:
    faults = FaultPlan()
    volume = await rig.open(faults)
    rig.clock.advance(LOOK_SECONDS)
    faults.calls.clear()

    async def gate(call: Call) -> None:
        raise ThrottledError("slow down", path=call.key)

    faults.gate = gate
    with pytest.raises(ThrottledError):
        await volume.store.get("/a")
    assert len(faults.calls) == RetryPolicy().attempts


async def test_a_look_whose_answer_was_lost_leaves_the_outcome_of_the_write_known(rig: Rig) -> None:
    """The write itself was not sent then, so a condition that fails is somebody else's doing for
    certain."""
    faults = FaultPlan()
    volume = await rig.open(faults)
    await volume.items.write(Put({**ITEM, "op": "theirs"}, ABSENT))
    rig.clock.advance(LOOK_SECONDS)

    async def gate(call: Call) -> None:
        faults.gate = None
        assert "record" in call.key
        raise ResponseLostError("lost", path=call.key)

    faults.gate = gate
    with pytest.raises(ConditionFailedError):
        await volume.items.write(Put({**ITEM, "op": "ours"}, ABSENT))


@pytest.mark.parametrize("over", [False, True], ids=["locked", "was locked"])
async def test_a_write_that_was_held_up_is_not_acknowledged_once_the_volume_was_locked(
    rig: Rig, over: bool
) -> None:
    """The request arrives after the holder of the lock has waited: what it wrote may be overwritten
    or never seen."""
    faults = FaultPlan()
    volume = await rig.open(faults)
    held = rig.held(rig.lock())

    async def gate(call: Call) -> None:
        if call.method in ("write", "transact"):
            faults.gate = None
            await held.__aenter__()
            rig.clock.advance(QUIET_SECONDS)
            if over:
                await held.__aexit__(None, None, None)

    faults.gate = gate
    with pytest.raises(OutcomeUnknownError):
        await volume.items.write(Put({**ITEM, "op": "ours"}, ABSENT))
    assert await volume.items.peek(Key(str(ITEM["path"]), "a")) is not None
    if not over:
        await held.__aexit__(None, None, None)


async def test_an_answer_that_was_held_up_is_not_believed_once_the_volume_was_locked(
    rig: Rig,
) -> None:
    faults = FaultPlan()
    volume = await rig.open(faults)

    async def gate(call: Call) -> None:
        if call.method == "query":
            faults.gate = None
            await locked_meanwhile(rig)
            rig.clock.advance(QUIET_SECONDS)

    faults.gate = gate
    with pytest.raises(VolumeMismatchError):
        await volume.items.query("ks://v/-sf0")


@pytest.mark.parametrize("over", [False, True], ids=["locked", "was locked"])
async def test_a_condition_that_fails_late_is_not_believed_once_the_volume_was_locked(
    rig: Rig, over: bool
) -> None:
    """A reshard had taken the item away, and the caller was told that there is none."""
    faults = FaultPlan()
    volume = await rig.open(faults)
    await volume.items.write(Put({**ITEM, "op": "first"}, ABSENT))
    held = rig.held(rig.lock())

    async def gate(call: Call) -> None:
        if call.method == "write":
            faults.gate = None
            await held.__aenter__()
            rig.clock.advance(QUIET_SECONDS)
            if over:
                await held.__aexit__(None, None, None)

    faults.gate = gate
    with pytest.raises(VolumeMismatchError if over else BusyError):
        await volume.items.write(Put({**ITEM, "op": "ours"}, ABSENT))
    if not over:
        await held.__aexit__(None, None, None)


async def test_an_answer_that_was_held_up_is_believed_if_nothing_happened(rig: Rig) -> None:
    faults = FaultPlan()
    volume = await rig.open(faults)

    async def gate(call: Call) -> None:
        if call.method == "write":
            rig.clock.advance(10 * QUIET_SECONDS)

    faults.gate = gate
    await volume.items.write(Put({**ITEM, "op": "ours"}, ABSENT))
