"""Operations of concurrent calls in shared log objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.errors import LogFormatError, ServiceError, UnreachableError
from s3k_async.oplog import group_commit
from s3k_async.oplog.entries import Operation, parse_key
from s3k_async.oplog.group_commit import ENOUGH_CALLS, GROUPED_OPERATIONS, WRITES
from s3k_async.oplog.log_reader import LogReader, latest
from s3k_async.oplog.log_writer import NativeLog
from s3k_async.oplog.pending_log import PendingLog
from s3k_async.testing import Call, Died, FaultPlan, Moment
from tests.oplog.operations import keys_of, log_blobs, make_directories, records_only
from tests.support import fake_runtime

ENTRY = "entries/"
SEGMENT = "segments/"


class Gate:
    """Holds the writes of pending objects until they are let go, and then all later ones not."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.open = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        if call.method == "put" and call.key.endswith(".pending"):
            self.writes.append(call.key)
            await self.open.wait()


class World:
    def __init__(self, blobs: BlobStore, gate: Gate, faults: FaultPlan) -> None:
        self.blobs = blobs
        self.gate = gate
        self.faults = faults
        self.log = NativeLog(blobs, fake_runtime())

    async def start(self, *calls: Sequence[Operation]) -> list[asyncio.Task[PendingLog]]:
        """Calls of which the first is alone; the others begin while its object is being written."""
        first = asyncio.create_task(self.log.begin(calls[0]))
        await turns()
        return [first, *(asyncio.create_task(self.log.begin(each)) for each in calls[1:])]

    async def begin_together(self, *calls: Sequence[Operation]) -> list[asyncio.Task[PendingLog]]:
        """As `start`; then the object of the first is let go."""
        tasks = await self.start(*calls)
        await turns()
        assert len(self.gate.writes) == 1
        self.gate.open.set()
        return tasks

    async def states(self) -> dict[str, str]:
        """The state in the log of each operation that it holds, by id."""
        found = records_only([one async for one in LogReader(self.blobs).records()])
        return {record.operation.id: record.state for record in found}


async def world() -> World:
    gate = Gate()
    faults = FaultPlan(gate)
    return World(await log_blobs(faults), gate, faults)


async def turns() -> None:
    """Let every other task run as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def grouped(count: int) -> tuple[World, list[Operation], list[PendingLog]]:
    """A world in which `count` operations are pending in one segment, and one was alone."""
    here = await world()
    first, *others = make_directories(count + 1)
    tasks = await here.begin_together([first], *([one] for one in others))
    alone, *handles = [await task for task in tasks]
    await alone.commit_later()
    return here, others, handles


def kinds(keys: list[str]) -> list[tuple[str, str]]:
    """The kind and the state of log objects."""
    return [(key.partition("/")[0] + "/", key.rpartition(".")[2]) for key in keys]


async def test_an_operation_that_is_alone_is_written_at_once_in_an_entry() -> None:
    here = await world()
    here.gate.open.set()
    for operation in make_directories(3):
        await (await here.log.begin([operation])).commit_later()
    await here.log.drained()
    assert {kind for kind, _ in kinds(await keys_of(here.blobs))} == {ENTRY}
    assert len(here.gate.writes) == 3


@pytest.mark.parametrize("apart", [0, 1, 10])
async def test_operations_that_begin_at_about_the_same_time_share_one_object(apart: int) -> None:
    """`apart`: iterations of the event loop between two of them."""
    here = await world()
    here.gate.open.set()

    async def change(operation: Operation, turn: int) -> None:
        for _ in range(turn):
            await asyncio.sleep(0)
        await (await here.log.begin([operation])).commit_later()

    for count, distance in ((2, 0), (8, apart)):
        operations = make_directories(count)
        await asyncio.gather(*(change(one, distance * n) for n, one in enumerate(operations)))
    await here.log.drained()
    assert kinds(here.gate.writes) == [(SEGMENT, "pending")] * 2
    assert set((await here.states()).values()) == {"committed"}


async def test_a_call_that_is_cancelled_before_its_write_does_not_hold_up_others() -> None:
    here = await world()
    here.gate.open.set()
    tasks = [asyncio.create_task(here.log.begin([one])) for one in make_directories(3)]
    await asyncio.sleep(0)
    assert not here.gate.writes
    tasks[0].cancel()
    for task in tasks[1:]:
        await (await asyncio.wait_for(task, 5)).commit_later()
    await here.log.drained()
    assert tasks[0].cancelled()
    assert kinds(here.gate.writes) == [(SEGMENT, "pending")]
    assert len(await here.states()) == 2


async def test_operations_that_begin_during_a_write_share_one_object_and_one_mark() -> None:
    here, operations, handles = await grouped(5)
    for handle in handles:
        await handle.commit_later()
    await here.log.drained()
    assert kinds(await keys_of(here.blobs)) == [
        (ENTRY, "committed"),
        (ENTRY, "pending"),
        (SEGMENT, "committed"),
        (SEGMENT, "pending"),
    ]
    states = await here.states()
    assert {states[operation.id] for operation in operations} == {"committed"}
    assert len(states) == 6


async def test_no_mark_is_written_before_the_last_outcome() -> None:
    here, operations, handles = await grouped(3)
    for handle in handles[:2]:
        await handle.commit_later()
    await turns()
    assert (SEGMENT, "committed") not in kinds(await keys_of(here.blobs))
    draining = asyncio.create_task(here.log.drained())
    await turns()
    assert not draining.done()
    await handles[2].commit_later()
    await draining
    states = await here.states()
    assert [states[one.id] for one in operations] == ["committed"] * 3


async def test_the_mark_tells_apart_applied_failed_and_unknown_operations() -> None:
    here, (applied, failed, unknown, open_one), handles = await grouped(4)
    await handles[0].commit_later()
    assert await handles[1].rollback()
    handles[2].abandon()
    await handles[3].commit_later((), unknown=[open_one.id])
    await here.log.drained()
    states = await here.states()
    assert states[applied.id] == "committed"
    assert failed.id not in states
    assert states[unknown.id] == states[open_one.id] == "pending"


async def test_nothing_is_left_of_a_group_in_which_all_failed() -> None:
    here, _, handles = await grouped(3)
    for handle in handles:
        assert await handle.rollback()
    await here.log.drained()
    assert {kind for kind, _ in kinds(await keys_of(here.blobs))} == {ENTRY}


async def test_the_operations_of_one_call_stay_together() -> None:
    here = await world()
    first, *others = make_directories(5)
    tasks = await here.begin_together([first], others[:2], others[2:])
    _, pair, second = [await task for task in tasks]
    await pair.commit_later([others[0].id], unknown=[others[1].id])
    await second.commit_later()
    await here.log.drained()
    states = await here.states()
    assert [states[one.id] for one in others] == ["committed", "pending", "committed", "committed"]


async def test_waiting_for_the_mark_of_one_call_waits_for_the_others() -> None:
    _, _, handles = await grouped(2)
    waiting = asyncio.create_task(handles[0].commit())
    await turns()
    assert not waiting.done()
    await handles[1].commit_later()
    assert await waiting


async def test_a_mark_that_cannot_be_written_is_reported() -> None:
    here, operations, handles = await grouped(2)
    await turns()
    here.faults.fail_when(
        lambda call: call.key.startswith(SEGMENT) and call.method == "put",
        UnreachableError("no route"),
    )
    waiting = asyncio.create_task(handles[0].commit())
    await handles[1].commit_later()
    await turns()
    assert not await waiting
    assert here.log.failed_commits == 1
    states = await here.states()
    assert [states[one.id] for one in operations] == ["pending", "pending"]


async def test_a_handle_refuses_foreign_ids_and_a_rollback_after_the_commit() -> None:
    here, (first, _), handles = await grouped(2)
    with pytest.raises(ValueError, match="must have been begun"):
        await handles[0].commit_later(["another"])
    with pytest.raises(ValueError, match="must be apart"):
        await handles[0].commit_later([first.id], unknown=[first.id])
    with pytest.raises(ValueError, match="must have been begun"):
        handles[0].hold(["another"])
    await handles[0].hold().commit_later()
    assert not await handles[0].rollback()
    assert await handles[1].hold().rollback()
    await here.log.drained()
    states = await here.states()
    assert states[first.id] == "committed"


async def test_a_group_that_cannot_be_written_fails_each_of_its_calls() -> None:
    here = await world()
    first, *others = make_directories(4)
    here.faults.fail_when(
        lambda call: call.key.startswith(SEGMENT) and call.method == "put",
        ServiceError("internal error"),
    )
    tasks = await here.begin_together([first], *([one] for one in others))
    await (await tasks[0]).commit_later()
    errors = await asyncio.gather(*tasks[1:], return_exceptions=True)
    assert [type(error) for error in errors] == [ServiceError] * 3
    assert len({id(error) for error in errors}) == 3
    assert {kind for kind, _ in kinds(await keys_of(here.blobs))} == {ENTRY}
    assert await (await here.log.begin([others[0]])).commit()


async def test_a_call_that_is_cancelled_while_it_waits_is_not_written() -> None:
    here = await world()
    first, *others = make_directories(4)
    tasks = await here.start([first], *([one] for one in others))
    await turns()
    tasks[2].cancel()
    await turns()
    here.gate.open.set()
    handles = [await task for task in (tasks[1], tasks[3])]
    for handle in handles:
        await handle.commit_later()
    await here.log.drained()
    assert others[1].id not in await here.states()
    assert (await here.states())[others[0].id] == "committed"


async def test_a_call_that_is_cancelled_while_its_group_is_written_counts_as_failed() -> None:
    here = await world()
    first, *others = make_directories(4)
    tasks = await here.start([first], *([one] for one in others))
    await turns()
    here.gate.open.set()
    here.gate.open = asyncio.Event()
    await turns()
    assert [key.partition("/")[0] for key in here.gate.writes] == ["entries", "segments"]
    tasks[2].cancel()
    await turns()
    here.gate.open.set()
    for task in (tasks[1], tasks[3]):
        await (await task).commit_later()
    await here.log.drained()
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]
    states = await here.states()
    assert others[1].id not in states
    assert states[others[0].id] == states[others[2].id] == "committed"


async def eventually(here: World, wanted: Callable[[list[str]], bool]) -> None:
    while not wanted(await keys_of(here.blobs)):  # noqa: ASYNC110 - a store tells nobody
        await asyncio.sleep(0.001)


def is_marked(keys: list[str]) -> bool:
    return (SEGMENT, "committed") in kinds(keys)


@pytest.mark.parametrize("succeeds", [True, False])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_slow_call_gets_entries_of_its_own(
    monkeypatch: pytest.MonkeyPatch, number: int, succeeds: bool
) -> None:
    monkeypatch.setattr(group_commit, "GROUP_SECONDS", 0.0)
    here = await world()
    first, quick, *slow_ones = make_directories(2 + number)
    tasks = await here.begin_together([first], [quick], slow_ones)
    _, handle, slow_handle = [await task for task in tasks]
    await handle.commit_later()
    await eventually(here, is_marked)
    states = await here.states()
    assert states[quick.id] == "committed"
    assert {states[each.id] for each in slow_ones} == {"pending"}
    if succeeds:
        assert await slow_handle.commit()
        states = await here.states()
        assert {states[each.id] for each in slow_ones} == {"committed"}
    else:
        assert await slow_handle.rollback()
        assert not {each.id for each in slow_ones} & set(await here.states())
    found = [one async for one in LogReader(here.blobs).records()]
    assert len(records_only(found)) == len(found)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_slow_call_whose_entries_cannot_be_written_stays_open_in_the_mark(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(group_commit, "GROUP_SECONDS", 0.0)
    here = await world()
    first, quick, *slow_ones = make_directories(2 + number)
    tasks = await here.begin_together([first], [quick], slow_ones)
    _, handle, slow_handle = [await task for task in tasks]
    here.faults.fail_when(
        lambda call: call.method == "put" and call.key.startswith(ENTRY),
        UnreachableError("no route"),
        times=number,
    )
    await handle.commit_later()
    await eventually(here, is_marked)
    states = await here.states()
    assert states[quick.id] == "committed"
    assert {states[each.id] for each in slow_ones} == {"pending"}
    await slow_handle.commit_later()
    await here.log.drained()
    found = [one async for one in LogReader(here.blobs).records()]
    assert len(records_only(found)) == len(found)
    for each in slow_ones:
        truth = latest(found)[each.object_id]
        assert truth.committed is not None
        assert truth.pending == ()


@pytest.mark.parametrize("ending", ["commit", "rollback", "abandon"])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_slow_call_that_is_alone_in_its_group_stays_pending(
    monkeypatch: pytest.MonkeyPatch, number: int, ending: str
) -> None:
    """The group of one operation is an entry: the one that a slow operation gets."""
    monkeypatch.setattr(group_commit, "GROUP_SECONDS", 0.0)
    here = await world()
    first, *slow_ones = make_directories(1 + number)
    tasks = await here.begin_together([first], slow_ones)
    alone, handle = [await task for task in tasks]
    await alone.commit_later()
    await here.log.drained()
    ids = {each.id for each in slow_ones}
    states = await here.states()
    assert {states.get(each) for each in ids} == {"pending"}
    if ending == "commit":
        assert await handle.commit()
        states = await here.states()
        assert {states[each] for each in ids} == {"committed"}
    elif ending == "rollback":
        assert await handle.rollback()
        assert not ids & set(await here.states())
    else:
        handle.abandon()
        await here.log.drained()
        assert ids < set(await here.states())


async def test_an_operation_that_contradicts_itself_fails_alone() -> None:
    here = await world()
    first, good, bad = make_directories(3)
    tasks = await here.begin_together([first], [good], [replace(bad, after=None)])
    assert await (await tasks[1]).commit()
    with pytest.raises(LogFormatError):
        await tasks[2]


async def test_an_operation_that_begins_twice_is_once_in_a_segment() -> None:
    here = await world()
    first, same, other = make_directories(3)
    tasks = await here.begin_together([first], [same], [other], [same])
    for task in tasks:
        await (await task).commit_later()
    await here.log.drained()
    assert set((await here.states()).values()) == {"committed"}
    damage = [part async for part in LogReader(here.blobs).objects() if not part.is_decided]
    assert damage == []


async def test_many_operations_of_one_call_are_not_grouped() -> None:
    here = await world()
    first, *others = make_directories(GROUPED_OPERATIONS + 2)
    tasks = [asyncio.create_task(here.log.begin(each)) for each in ([first], others)]
    await turns()
    assert len(here.gate.writes) == 2
    here.gate.open.set()
    for task in tasks:
        assert await (await task).commit()


@pytest.mark.parametrize(("waiting", "writes"), [(ENOUGH_CALLS - 1, 1), (ENOUGH_CALLS, 2)])
async def test_enough_calls_do_not_wait_for_the_write_of_another_group(
    waiting: int, writes: int
) -> None:
    here = await world()
    operations = make_directories(1 + waiting)
    tasks = await here.start(*([one] for one in operations))
    await turns()
    assert len(here.gate.writes) == writes
    here.gate.open.set()
    for task in tasks:
        await (await task).commit_later()
    await here.log.drained()
    assert len(here.gate.writes) == 2
    assert set((await here.states()).values()) == {"committed"}


async def test_a_write_that_hangs_does_not_hold_up_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "MOST_WAIT_SECONDS", 0.0)
    here = await world()
    operations = make_directories(4)
    tasks = await here.start(*([one] for one in operations))
    await eventually(here, lambda _: len(here.gate.writes) == 2)
    assert kinds(here.gate.writes) == [(ENTRY, "pending"), (SEGMENT, "pending")]
    here.gate.open.set()
    for task in tasks:
        await (await task).commit_later()
    await here.log.drained()
    assert set((await here.states()).values()) == {"committed"}


async def test_few_groups_are_written_at_once() -> None:
    here = await world()
    operations = make_directories(1 + ENOUGH_CALLS * (WRITES + 2))
    tasks = await here.start(*([one] for one in operations))
    await turns()
    assert len(here.gate.writes) == WRITES
    here.gate.open.set()
    for task in tasks:
        await (await task).commit_later()
    await here.log.drained()
    assert len(here.gate.writes) == WRITES + 1
    states = await here.states()
    assert [states[one.id] for one in operations] == ["committed"] * len(operations)


async def test_a_group_is_no_larger_than_what_readers_accept() -> None:
    """Renames of long paths, whose letters JSON escapes: 25 megabytes in 255 calls."""
    here = await world()
    first, *others = make_directories(1 + 255 * GROUPED_OPERATIONS)
    long = "/" + "/".join(["\u0436" * 250] * 4)
    renames = []
    for each in others:
        assert each.after is not None
        before = replace(each.after, path=long + each.after.path)
        after = replace(before, path=before.path + "x", version=2)
        renames.append(replace(each, kind="rename", version=2, before=before, after=after))
    starts = range(0, len(renames), GROUPED_OPERATIONS)
    calls = [renames[start : start + GROUPED_OPERATIONS] for start in starts]
    tasks = await here.start([first], *calls)
    await turns()
    here.gate.open.set()
    for task in tasks:
        await (await task).commit_later()
    await here.log.drained()
    states = await here.states()
    assert [states.get(each.id) for each in renames] == ["committed"] * len(renames)


async def test_segments_of_groups_are_numbered_without_gaps() -> None:
    here = await world()
    operations = make_directories(12)
    ids = []
    for start in range(0, 12, 4):
        here.gate.open.clear()
        here.gate.writes.clear()
        tasks = await here.begin_together(*([one] for one in operations[start : start + 4]))
        for task in tasks:
            await (await task).commit_later()
        await here.log.drained()
        ids += [parse_key(key).segment_id for key in here.gate.writes if key.startswith(SEGMENT)]  # type: ignore[union-attr]
    assert [number.rpartition("-")[2] for number in ids] == [f"{n:012d}" for n in (1, 2, 3)]
    assert len({number.rpartition("-")[0] for number in ids}) == 1


async def test_closing_that_is_cancelled_does_not_wait_for_open_outcomes() -> None:
    here, operations, handles = await grouped(2)
    await handles[0].commit_later()
    closing = asyncio.create_task(here.log.close())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await eventually(here, is_marked)
    states = await here.states()
    assert [states[one.id] for one in operations] == ["committed", "pending"]


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_mark_that_the_end_of_the_event_loop_interrupts_is_written(succeeds: bool) -> None:
    here: World | None = None

    async def main() -> list[Operation]:
        nonlocal here
        here, operations, handles = await grouped(2)
        begun = asyncio.Event()

        async def slow(call: Call) -> None:
            if call.key.startswith(SEGMENT):
                begun.set()
                await asyncio.sleep(0.01)

        here.faults.gate = slow
        for handle in handles:
            await (handle.commit_later() if succeeds else handle.rollback())
        await begun.wait()
        return operations

    operations = asyncio.run(main())
    assert here is not None
    states = asyncio.run(here.states())
    assert [states.get(each.id) for each in operations] == ["committed" if succeeds else None] * 2


async def test_calls_end_whose_group_is_cancelled_before_its_first_step() -> None:
    """As by the end of the event loop: the calls may log the clean-up of their changes then."""
    here = await world()
    first, other, later = make_directories(3)
    known = asyncio.all_tasks()
    tasks = await here.begin_together([first], [other])
    known.update(tasks)
    while not (groups := asyncio.all_tasks() - known):  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    for group in groups:
        group.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(tasks[1], 5)
    await (await asyncio.wait_for(here.log.begin([later]), 5)).commit_later()
    await here.log.drained()
    assert (await here.states())[later.id] == "committed"


async def died_at(number: int, when: Moment) -> tuple[World, list[str], bool]:
    """A call, then three concurrent ones in a group, with a death at one call of the store: the
    world, the operations that were applied, and whether the death came."""
    faults = FaultPlan()
    store = await log_blobs()
    here = World(faults.blobs(store), Gate(), faults)
    faults.die(number, when=when)
    applied: list[str] = []

    async def change(operation: Operation) -> None:
        handle = await here.log.begin([operation])
        applied.append(operation.id)  # the table is changed here
        await handle.commit_later()

    alone, *others = make_directories(4)
    first = await asyncio.gather(change(alone), return_exceptions=True)
    found = await asyncio.gather(*(change(one) for one in others), return_exceptions=True)
    came = any(isinstance(each, Died) for each in (*first, *found))
    try:
        await here.log.drained()
    except Died:
        came = True
    here.blobs = store
    return here, applied, came


@pytest.mark.parametrize("when", ["before", "after"])
async def test_death_at_any_call_leaves_every_applied_operation_in_the_log(
    when: Moment,
) -> None:
    for number in range(1, 5):
        here, applied, came = await died_at(number, when)
        assert came
        assert set(applied) <= set(await here.states()), f"call {number}"
    here, applied, came = await died_at(5, when)
    assert not came
    assert await here.states() == dict.fromkeys(applied, "committed")
    assert len(applied) == 4
