"""Atomic renames and deletions: at every moment all of it or nothing, whoever dies, and whoever
comes next."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
import pytest

from s3k_async._core.concurrency import to_the_end
from s3k_async.backends.ports.items import Condition, Update
from s3k_async.errors import (
    BusyError,
    ConflictError,
    ItemFormatError,
    LeaseExpiredError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    ResponseLostError,
    S3kError,
    ServiceError,
    UncommittedFileError,
)
from s3k_async.model import Entry
from s3k_async.namespace.ordered_walk import walk
from s3k_async.table.keys import Directory
from s3k_async.testing import Call, Died, FaultPlan, Moment
from s3k_async.txn.write_intent import parse_intent
from tests.level import FULL, calls_to_try
from tests.namespace.world import GROWN, Client, Paths, World

EVER: Final = 10**9
MOMENTS: Final[tuple[Moment, ...]] = ("before", "after")
MOVED: Final[Paths] = {
    "/e/z" + path[2:] if path.startswith("/d") else path: data for path, data in GROWN.items()
}
REMOVED: Final[Paths] = {path: data for path, data in GROWN.items() if not path.startswith("/d")}
LEFT_FOR_FSCK: Final = {"interrupted_change", "orphan_data"}


async def rename(client: Client) -> None:
    await client.atomic.rename(await client.need("/d"), "/e/z")


async def delete(client: Client) -> None:
    await client.atomic.delete(await client.need("/d"))


CHANGES: Final[dict[str, tuple[Callable[[Client], Awaitable[None]], Paths]]] = {
    "rename": (rename, MOVED),
    "delete": (delete, REMOVED),
}


@asynccontextmanager
async def grown(name: str) -> AsyncIterator[World]:
    world = await World(name).start()
    client = world.client()
    for path, data in GROWN.items():
        if data is None:
            await client.store.make_directory(path)
        else:
            await client.write(path, data)
    await client.store.changes.log.drained()
    world.clock.advance(100)
    try:
        yield world
    finally:
        await world.drop()


async def seen(world: World) -> dict[str, bytes | None]:
    """What a reader sees that takes every item as it is stored, and then reads each record once."""
    client = world.client()
    found: dict[str, bytes | None] = {}
    records = {record.id: record async for record in client.store.transactions.records()}
    for path, entry in (await world.scanned()).items():
        shown: Entry | None = entry
        if entry.pending:
            intent = parse_intent(entry.pending)
            shown = intent.resolve(
                entry, published=intent.txn in records and records[intent.txn].is_published
            )
        if shown is not None:
            found[path] = None if shown.is_dir else await client.storage.read(str(shown.physical))
    return found


async def assert_resolved(world: World) -> None:
    """Nothing is left of any transaction."""
    assert [entry for entry in (await world.scanned()).values() if entry.pending] == []
    assert [record async for record in world.client().store.transactions.records()] == []


async def check_log(world: World) -> None:
    world.clock.advance(1000)
    assert {
        finding.kind for finding in await world.findings() if finding.is_problem
    } <= LEFT_FOR_FSCK


async def again(world: World, name: str) -> None:
    """The same call, by another client."""
    change, after = CHANGES[name]
    try:
        await world.client().run_change(change)
    except PathNotFoundError:
        assert await seen(world) == after
    assert await seen(world) == after


async def a_write(world: World, name: str) -> None:
    """Another client writes into the old place and into the new one, and then everything else comes
    to its end."""
    before = await seen(world)
    client = world.client()
    await client.write("/d/x/new", b"new")
    assert await seen(world) == {"/d": None, "/d/x": None, **before, "/d/x/new": b"new"}
    await client.write("/e/z/new", b"newer")
    await client.write("/e/k", b"newest")
    expected = {"/d": None, "/d/x": None, "/e/z": None, **before}
    assert await seen(world) == expected | {
        "/d/x/new": b"new",
        "/e/z/new": b"newer",
        "/e/k": b"newest",
    }
    await everything(world, name)


async def everything(world: World, name: str) -> None:
    """A client resolves what is left when it is asked to."""
    before = await seen(world)
    store = world.client().store
    for record in [record async for record in store.transactions.records()]:
        assert await store.resolver.complete(record)
    assert await seen(world) == before


RECOVERIES: Final[dict[str, Callable[[World, str], Awaitable[None]]]] = {
    "the same call": again,
    "a write": a_write,
    "resolving": everything,
}


async def die_at(world: World, name: str, number: int, when: Moment) -> Paths:
    change, after = CHANGES[name]
    faults = FaultPlan()
    faults.die(number, when=when)
    faults.fail_when(lambda call: call.number > number, Died("is dead"), times=EVER)
    with pytest.raises(Died):
        await world.client(faults).run_change(change)
    found = await seen(world)
    assert found in (GROWN, after)
    world.clock.advance(1000)
    assert await seen(world) == found, "time does not decide"
    return found


async def calls_of(name: str) -> int:
    async with grown(f"atomic-{name}-probe") as world:
        faults = FaultPlan()
        await world.client(faults).run_change(CHANGES[name][0])
        assert await seen(world) == CHANGES[name][1]
        await assert_resolved(world)
        world.clock.advance(1000)
        assert [finding for finding in await world.findings() if finding.is_problem] == []
        return len(faults.calls)


async def die_and_recover(name: str, number: int, when: Moment, recovery: str) -> None:
    async with grown(f"atomic-{name}-{recovery}-{number}-{when}") as world:
        try:
            await die_at(world, name, number, when)
            await RECOVERIES[recovery](world, name)
            if recovery != "the same call":
                await assert_resolved(world)
            await check_log(world)
        except BaseException as error:
            error.add_note(f"{name}: death {when} call {number}, then {recovery}")
            raise


@pytest.mark.parametrize("name", CHANGES)
async def test_death_at_every_call_leaves_all_or_nothing(name: str) -> None:
    tried = 0
    for number in calls_to_try(await calls_of(name)):
        for when in MOMENTS:
            # Every point is died at; who comes next takes turns.
            await die_and_recover(name, number, when, [*RECOVERIES][tried % len(RECOVERIES)])
            tried += 1
    sys.stdout.write(f"{name}: {tried} points\n")
    assert tried > (40 if FULL else 12)


@pytest.mark.slow
@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("name", CHANGES)
async def test_death_at_every_call_and_every_recovery_leaves_all_or_nothing(
    name: str, recovery: str
) -> None:
    for number in calls_to_try(await calls_of(name)):
        for when in MOMENTS:
            await die_and_recover(name, number, when, recovery)


def is_from(number: int, call: Call) -> bool:
    return call.number >= number


@pytest.mark.parametrize("times", [1, EVER], ids=["once", "for ever"])
@pytest.mark.parametrize("name", CHANGES)
async def test_a_failure_at_every_call_changes_nothing_or_is_none(name: str, times: int) -> None:
    change, after = CHANGES[name]
    for number in calls_to_try(await calls_of(name)):
        async with grown(f"atomic-{name}-failing-{times}-{number}") as world:
            faults = FaultPlan()
            faults.fail_when(partial(is_from, number), ServiceError("refused"), times=times)
            try:
                await world.client(faults).run_change(change)
            except S3kError:
                assert await seen(world) == GROWN, number
            else:
                assert await seen(world) == after, number
            if times == 1:
                world.clock.advance(1000)
                await everything(world, name)
                await assert_resolved(world)
                await check_log(world)


@pytest.mark.parametrize("name", CHANGES)
async def test_a_lost_answer_is_not_taken_for_a_failure_when_the_service_is_down_then(
    name: str,
) -> None:
    change, after = CHANGES[name]
    unknown = 0
    for number in range(1, await calls_of(name) + 1):
        async with grown(f"atomic-{name}-lost-{number}") as world:
            faults = FaultPlan()
            faults.fail(number, ResponseLostError("lost"), when="after")
            faults.fail_when(partial(is_from, number + 1), ServiceError("refused"), times=EVER)
            raised: S3kError | None = None
            try:
                await world.client(faults).run_change(change)
            except S3kError as error:
                raised = error
            found = await seen(world)
            if isinstance(raised, OutcomeUnknownError):
                assert found in (GROWN, after), number
                unknown += found == after
            else:
                assert found == (after if raised is None else GROWN), (number, raised)
    assert unknown == 1, "the publish itself"


async def test_a_live_reservation_below_refuses_the_whole_rename() -> None:
    async with grown("atomic-reserved") as world:
        client = world.client()
        reserved = await client.store.reserve(
            await client.store.prepare("/d/x/new"), exclusive=True
        )
        with pytest.raises(UncommittedFileError):
            await client.run_change(rename)
        assert {path for path, entry in (await world.scanned()).items() if entry.pending} == set()
        world.clock.advance(601)
        await client.run_change(rename)
        assert await seen(world) == MOVED, "one that ran out is reaped"
        with pytest.raises(LeaseExpiredError):
            await client.store.commit(reserved, await client.storage.put(reserved.id, b"late"))
        await assert_resolved(world)


async def test_a_delete_takes_reservations_along() -> None:
    async with grown("atomic-reserved-delete") as world:
        client = world.client()
        reserved = await client.store.reserve(
            await client.store.prepare("/d/x/new"), exclusive=True
        )
        await client.run_change(delete)
        assert await seen(world) == REMOVED
        with pytest.raises(ConflictError):
            await client.store.commit(reserved, await client.storage.put(reserved.id, b"late"))
        assert await seen(world) == REMOVED


@pytest.mark.parametrize("name", CHANGES)
async def test_an_owner_that_wakes_up_late_publishes_nothing(name: str) -> None:
    """It stalls before each of its calls in turn; meanwhile another client writes below, and so
    aborts it."""
    change, after = CHANGES[name]
    for number in range(3, await calls_of(name) + 1):
        async with grown(f"atomic-{name}-stalled-{number}") as world:
            faults = FaultPlan()

            async def gate(call: Call, number: int = number, world: World = world) -> None:
                if call.number != number:
                    return
                world.clock.advance(60)
                other = world.client()
                # To its end, though the owner's other parts find out meanwhile that their time is
                # over.
                await to_the_end(lambda: other.write("/d/x/other", b"other"))

            faults.gate = gate
            raised = None
            try:
                await world.client(faults).run_change(change)
            except S3kError as error:
                raised = error
            found = await seen(world)
            published = {**after, "/d": None, "/d/x": None, "/d/x/other": b"other"}
            if raised is None and found.get("/e/z/x/other") == b"other":
                # The write came before the transaction record: it was moved along.
                assert found == {**after, "/e/z/x/other": b"other"}
            elif raised is None and "/d/x/other" not in found:
                assert name == "delete"
                assert found == after
            else:
                assert found == (
                    published if raised is None else {**GROWN, "/d/x/other": b"other"}
                ), (number, raised)


async def test_two_crossing_renames_never_detach_anything() -> None:
    async with grown("atomic-crossing") as world:
        one, two = world.client(), world.client()
        results: list[BaseException | None] = []

        async def move(client: Client, source: str, target: str) -> None:
            try:
                await client.atomic.rename(await client.need(source), target)
            except S3kError as error:
                results.append(error)
            else:
                results.append(None)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(move, one, "/d", "/e/d")
            tasks.start_soon(move, two, "/e", "/d/e")
        assert results.count(None) <= 1
        found = await seen(world)
        assert sorted(data for data in found.values() if data) == sorted(
            data for data in GROWN.values() if data
        )
        assert all(path.rpartition("/")[0] in {*found, ""} for path in found)
        await assert_resolved(world)


@pytest.mark.parametrize("name", CHANGES)
async def test_readers_see_one_side_at_every_step(name: str) -> None:
    change, after = CHANGES[name]
    async with grown(f"atomic-{name}-watched") as world:
        faults = FaultPlan()
        sides: list[bool] = []

        async def gate(_: Call) -> None:
            found = await seen(world)
            assert found in (GROWN, after)
            sides.append(found == after)
            listed = {
                entry.path
                async for page in walk(world.client().store, Directory.at("/"))
                for entry in page
            }
            assert listed == found.keys()

        faults.gate = gate
        await world.client(faults).run_change(change)
        assert sides == sorted(sides)
        assert set(sides) == {False, True}


async def test_a_creation_that_a_rename_did_not_see_is_not_acknowledged() -> None:
    """Another client creates a file before each call of the rename: whoever was told so finds it,
    on one side."""
    for number in range(1, await calls_of("rename") + 1):
        async with grown(f"atomic-creating-{number}") as world:
            faults = FaultPlan()
            told: list[str] = []

            async def gate(
                call: Call, number: int = number, world: World = world, told: list[str] = told
            ) -> None:
                if call.number == number:
                    try:
                        await world.client().write("/d/x/created", b"created")
                    except BusyError:
                        return
                    told.append("/d/x/created")

            faults.gate = gate
            await world.client(faults).run_change(rename)
            found = await seen(world)
            assert list(found.values()).count(b"created") == len(told), number
            assert all(path.rpartition("/")[0] in {*found, ""} for path in found)


async def test_an_existing_target_is_refused_before_any_intent() -> None:
    async with grown("atomic-taken") as world:
        client = world.client()
        for target in ("/e", "/e/k", "/e/k/below", "/nowhere/z"):
            with pytest.raises((PathExistsError, PathNotFoundError, NotDirectoryError)):
                await client.atomic.rename(await client.need("/d"), target)
        assert await seen(world) == GROWN
        await assert_resolved(world)


async def test_an_empty_directory_with_something_hidden_in_it_stays() -> None:
    """A rename that died has prepared entries below a directory that looks empty."""
    async with grown("atomic-hidden") as world:
        client = world.client()
        await client.store.delete_file(await client.need("/e/k"))
        for number in range(8, 12):
            plan = FaultPlan()
            plan.die(number, when="after")
            plan.fail_when(partial(is_from, number + 1), Died("is dead"), times=EVER)
            with pytest.raises(Died):
                await world.client(plan).run_change(rename)
            if "/e/z" in await world.scanned():
                break
            world.clock.advance(1000)
        assert "/e/z" in await world.scanned()
        with pytest.raises(BusyError):
            await world.client().store.remove_directory(await client.need("/e"))
        world.clock.advance(1000)
        await world.client().store.remove_directory(await client.need("/e"))
        assert {path for path in await world.scanned() if path.startswith("/e")} == set()
        found = await seen(world)
        assert found == {path: data for path, data in GROWN.items() if not path.startswith("/e")}


async def test_a_damaged_item_refuses_a_rename_and_does_not_close_its_directory_for_ever() -> None:
    """Neither owner nor successor can list the rest of such a rename; a client that needs a
    directory removes its intent."""
    async with grown("atomic-damaged") as world:
        client = world.client()
        key = client.store.keys.key("/d/x/h")
        await client.store.items.write(Update(key, Condition(), set={"ver": "no number"}))
        with pytest.raises(ItemFormatError):
            await client.run_change(rename)
        for path in ("/d/new", "/d/x/new", "/d/y/new", "/e/z/new"):
            await world.client().write(path, b"new")
            assert (await world.client().need(path)).size == 3
        await client.store.items.write(Update(key, Condition(), set={"ver": 1}))
        await world.client().run_change(delete)
        assert await seen(world) == {**REMOVED, "/e/z": None, "/e/z/new": b"new"}


async def test_hidden_entries_of_an_interrupted_rename_do_not_take_the_path_from_a_plain_one() -> (
    None
):
    async with grown("atomic-hidden-plain") as world:
        for number in range(5, 14):
            plan = FaultPlan()
            plan.die(number, when="after")
            plan.fail_when(partial(is_from, number + 1), Died("is dead"), times=EVER)
            with pytest.raises(Died):
                await world.client(plan).run_change(rename)
            world.clock.advance(1000)
            if "/e/z" in await world.scanned():
                break
        assert "/e/z" in await world.scanned()
        client = world.client()
        await client.store.make_directory("/p")
        await client.tree.rename(await client.need("/p"), "/e/z")
        assert await seen(world) == {**GROWN, "/e/z": None}
        assert [entry for entry in (await world.scanned()).values() if entry.pending] == []


async def test_a_directory_that_others_move_to_the_target_and_back_is_renamed_atomically() -> None:
    """For a moment the target has the id of the source that was read before: that alone is no
    interrupted rename, which would be finished step by step."""
    async with grown("atomic-to-and-fro") as world:
        other = world.client()
        states: list[Paths] = []
        turns = [(other, "/d", "/e/z"), (other, "/e/z", "/d")]

        async def gate(call: Call) -> None:
            reads = call.method.startswith(("get", "query"))
            if turns and reads == (len(turns) == 2):
                by, source, target = turns.pop(0)
                await by.atomic.rename(await by.need(source), target)
            elif not turns:
                states.append(await seen(world))

        client = world.client(FaultPlan())
        source = await client.need("/d")
        client = world.client(FaultPlan(gate))
        await client.atomic.rename(source, "/e/z")
        assert turns == []
        assert [state for state in states if state not in (GROWN, MOVED)] == []
        assert await seen(world) == MOVED
        await assert_resolved(world)
