"""Races decided: one client is held at a request until others have done what the race is about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from s3k_async.backends.ports.items import Delete
from s3k_async.errors import (
    DirectoryNotEmptyError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    TransactionConflictError,
    UnreachableError,
)
from s3k_async.layouts.path.recursive import Tree
from s3k_async.model import ChangeResult
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import unchanged
from s3k_async.testing import Call, FaultPlan
from tests.namespace.rig import Rig, nth

PATIENCE = 20.0
"""Seconds after which two that wait for each other are taken to do so for ever."""


class Gate:
    """Holds the first call that matches until it is opened."""

    def __init__(self, matches: Callable[[Call], bool]) -> None:
        self._matches = matches
        self._used = False
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.passed = asyncio.Event()
        """The call that was held has been answered, and the next one is made."""

    async def __call__(self, call: Call) -> None:
        if self._used:
            if self.opened.is_set():
                self.passed.set()
        elif self._matches(call):
            self._used = True
            self.reached.set()
            await self.opened.wait()


def on(method: str, part: str = "") -> Callable[[Call], bool]:
    """Calls of the table by method and a part of their key."""
    return lambda call: call.store == "items" and call.method == method and part in call.key


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> Rig:
    return await Rig(request.node.name, real_time=True).start()


def held(rig: Rig, matches: Callable[[Call], bool]) -> tuple[MetadataStore, Gate]:
    """Another client, and the gate that it will stand at."""
    gate = Gate(matches)
    return rig.client(FaultPlan(gate)), gate


async def check_sound(rig: Rig) -> None:
    """Every entry hangs in the tree, once, without an intent, and as the log says."""
    entries = [entry async for page in rig.store.scan("/") for entry in page]
    assert sorted(entry.path for entry in entries) == sorted(await rig.paths())
    assert len({entry.id for entry in entries}) == len(entries)
    assert [entry.path for entry in entries if entry.pending or entry.is_reservation] == []
    truths = await rig.truths()
    alive = {
        object_id: truth
        for object_id, truth in truths.items()
        if truth.committed and truth.committed.operation.after
    }
    assert alive.keys() == {entry.id for entry in entries}
    assert [truth.pending for truth in truths.values() if truth.pending] == []
    for entry in entries:
        committed = alive[entry.id].committed
        assert committed is not None
        assert committed.operation.after is not None
        assert (committed.operation.after.path, committed.operation.version) == (
            entry.path,
            entry.version,
        )


async def test_of_two_creators_that_saw_nothing_there_the_second_is_refused(rig: Rig) -> None:
    store, gate = held(rig, on("write", "/f"))
    late = asyncio.create_task(rig.write("/f", overwrite=False, store=store))
    await gate.reached.wait()
    first = await rig.write("/f", overwrite=False)
    gate.opened.set()
    with pytest.raises(PathExistsError):
        await late
    assert await rig.need("/f") == first
    await check_sound(rig)


async def test_of_two_renames_that_saw_the_source_the_second_is_told_that_it_is_gone(
    rig: Rig,
) -> None:
    source = await rig.write("/f")
    store, gate = held(rig, on("transact"))
    late = asyncio.create_task(store.rename_file(source, "/late"))
    await gate.reached.wait()
    await rig.store.rename_file(source, "/first")
    gate.opened.set()
    with pytest.raises(PathNotFoundError):
        await late
    assert await rig.paths() == {"/first"}
    await check_sound(rig)


async def test_a_rename_takes_the_bytes_that_were_written_since_it_looked(rig: Rig) -> None:
    source = await rig.write("/s")
    store, gate = held(rig, on("transact"))
    rename = asyncio.create_task(store.rename_file(source, "/t"))
    await gate.reached.wait()
    written = await rig.write("/s")
    gate.opened.set()
    moved = await rename
    assert (moved.id, moved.physical, moved.version) == (
        written.id,
        written.physical,
        written.version + 1,
    )
    assert await rig.paths() == {"/t"}
    await check_sound(rig)


async def test_a_rename_replaces_what_was_written_to_its_target_since_it_looked(rig: Rig) -> None:
    source = await rig.write("/s")
    await rig.write("/t")
    store, gate = held(rig, on("transact"))
    rename = asyncio.create_task(store.rename_file(source, "/t", overwrite=True))
    await gate.reached.wait()
    replaced = await rig.write("/t")
    gate.opened.set()
    moved = await rename
    assert (moved.id, moved.physical) == (source.id, source.physical)
    assert await rig.paths() == {"/t"}
    truth = (await rig.truths())[replaced.id].committed
    assert truth is not None
    assert (truth.operation.kind, truth.operation.before) == ("delete", replaced)
    await check_sound(rig)


async def test_a_file_made_while_its_directory_is_deleted_comes_after_it(rig: Rig) -> None:
    await rig.write("/p/old")
    # The file is written when the directory has been looked at by its writer, and listed by who
    # deletes it.
    writer, at_write = held(rig, on("write", "/new"))
    deleter, at_removal = held(rig, nth("transact", 2))
    late = asyncio.create_task(rig.write("/p/new", store=writer))
    await at_write.reached.wait()
    delete = asyncio.create_task(Tree(deleter).delete(await rig.need("/p")))
    await at_removal.reached.wait()
    at_write.opened.set()
    await at_write.passed.wait()
    at_removal.opened.set()
    assert (await delete).files == 1
    await late
    assert await rig.paths() == {"/p", "/p/new"}
    await check_sound(rig)


async def test_a_file_that_is_taken_back_with_its_directory_is_not_replaced_by_somebody_else(
    rig: Rig,
) -> None:
    await rig.store.make_directory("/p")
    remover, at_removal = held(rig, on("transact", "/-sf"))
    creator, at_look = held(rig, on("get", "/-sf"))
    remove = asyncio.create_task(remover.remove_directory(await rig.need("/p")))
    # Listed, and found empty: what is created now is taken back, by a creator that is slow to look.
    target = await rig.store.prepare("/p/f")
    await at_removal.reached.wait()
    create = asyncio.create_task(creator.publish(target, rig.content(target.object_id)))
    await at_look.reached.wait()
    replacer, at_wait = held(rig, on("get", "s3k:job"))
    replace = asyncio.create_task(rig.write("/p/f", store=replacer))
    await at_wait.reached.wait()
    at_wait.opened.set()
    at_removal.opened.set()
    await remove
    await replace
    at_look.opened.set()
    await create
    assert await rig.paths() == {"/p", "/p/f"}
    await check_sound(rig)


@pytest.mark.parametrize("target", ["/a/d/g2", "/a/e/g"])
async def test_a_file_renamed_inside_a_directory_that_is_renamed_goes_with_it(
    rig: Rig, target: str
) -> None:
    for path in ("/a/d/g", "/a/e/h"):
        await rig.write(path)
    store, gate = held(rig, on("transact"))
    inside = asyncio.create_task(store.rename_file(await rig.need("/a/d/g"), target))
    await gate.reached.wait()
    whole, at_end = held(rig, on("transact", "/a/d-sf"))
    outer = asyncio.create_task(Tree(whole).rename(await rig.need("/a"), "/b"))
    await at_end.reached.wait()
    # Its directory has an intent and is listed; only now does the file move.
    gate.opened.set()
    await gate.passed.wait()
    at_end.opened.set()
    assert (await outer).failures == ()
    with pytest.raises(PathNotFoundError):
        await inside
    assert await rig.paths() == {"/b", "/b/d", "/b/d/g", "/b/e", "/b/e/h"}
    await check_sound(rig)


async def test_a_file_renamed_inside_a_directory_that_is_deleted_does_not_come_back(
    rig: Rig,
) -> None:
    await rig.write("/a/d/g")
    store, gate = held(rig, on("transact"))
    inside = asyncio.create_task(store.rename_file(await rig.need("/a/d/g"), "/a/d/g2"))
    await gate.reached.wait()
    whole, at_end = held(rig, on("transact", "/a/d-sf"))
    delete = asyncio.create_task(Tree(whole).delete(await rig.need("/a")))
    await at_end.reached.wait()
    gate.opened.set()
    await gate.passed.wait()
    at_end.opened.set()
    assert (await delete).files == 1
    with pytest.raises(PathNotFoundError):
        await inside
    assert await rig.scanned() == set()
    await check_sound(rig)


async def test_a_rename_into_a_contended_directory_goes_without_the_check_and_back_if_need_be(
    rig: Rig,
) -> None:
    await rig.write("/s")
    await rig.store.make_directory("/p")
    faults = FaultPlan()
    faults.fail_when(on("transact"), TransactionConflictError("others are at it"), times=4)
    assert (await rig.client(faults).rename_file(await rig.need("/s"), "/p/s")).path == "/p/s"
    await rig.store.rename_file(await rig.need("/p/s"), "/s")

    faults = FaultPlan(gate := Gate(nth("transact", 5)))
    faults.fail_when(on("transact"), TransactionConflictError("others are at it"), times=4)
    rename = asyncio.create_task(rig.client(faults).rename_file(await rig.need("/s"), "/p/s"))
    await gate.reached.wait()
    await rig.store.remove_directory(await rig.need("/p"))
    gate.opened.set()
    with pytest.raises(PathNotFoundError):
        await rename
    assert await rig.paths() == {"/s"}
    await check_sound(rig)


async def test_a_target_that_appears_after_the_intent_on_the_source_leaves_no_intent(
    rig: Rig,
) -> None:
    await rig.write("/a/f")
    store, gate = held(rig, on("transact"))
    rename = asyncio.create_task(Tree(store).rename(await rig.need("/a"), "/b"))
    await gate.reached.wait()
    await rig.write("/b")
    gate.opened.set()
    with pytest.raises(PathExistsError):
        await rename
    assert await rig.paths() == {"/a", "/a/f", "/b"}
    await check_sound(rig)


async def test_a_removal_that_finds_a_child_after_its_intent_leaves_no_intent(rig: Rig) -> None:
    await rig.store.make_directory("/a")
    store, gate = held(rig, on("write", "/-sf"))  # the intent
    remove = asyncio.create_task(store.remove_directory(await rig.need("/a")))
    await gate.reached.wait()
    await rig.write("/a/f")
    gate.opened.set()
    with pytest.raises(DirectoryNotEmptyError):
        await remove
    await check_sound(rig)


async def test_a_rename_whose_target_is_being_deleted_waits_and_says_that_it_is_gone(
    rig: Rig,
) -> None:
    for path in ("/a/f", "/t/g"):
        await rig.write(path)
    # It has looked at the target's parent; then that gets an intent and is deleted.
    store, gate = held(rig, on("transact"))
    rename = asyncio.create_task(Tree(store).rename(await rig.need("/a"), "/t/a"))
    await gate.reached.wait()
    deleter, at_end = held(rig, on("transact"))
    delete = asyncio.create_task(Tree(deleter).delete(await rig.need("/t")))
    await at_end.reached.wait()
    gate.opened.set()
    await gate.passed.wait()
    at_end.opened.set()
    await delete
    with pytest.raises(PathNotFoundError):
        await asyncio.wait_for(rename, PATIENCE)
    assert await rig.paths() == {"/a", "/a/f"}
    await check_sound(rig)


async def test_a_rename_inside_a_tree_and_the_trees_deletion_do_not_wait_for_each_other(
    rig: Rig,
) -> None:
    for path in ("/t/a/f", "/t/b/g"):
        await rig.write(path)
    # The rename has an intent on /t/a and has read /t/b; the deletion adds one to /t and then
    # needs /t/a.
    store, gate = held(rig, on("get", "/t-sf"))
    rename = asyncio.create_task(Tree(store).rename(await rig.need("/t/a"), "/t/b/a"))
    await gate.reached.wait()
    deleter, at_target = held(rig, on("query", "/t/b-sf"))
    delete = asyncio.create_task(Tree(deleter).delete(await rig.need("/t")))
    await at_target.reached.wait()
    at_target.opened.set()
    gate.opened.set()
    renamed, deleted = await asyncio.wait_for(
        asyncio.gather(rename, delete, return_exceptions=True), PATIENCE
    )
    assert isinstance(renamed, PathNotFoundError)
    assert isinstance(deleted, ChangeResult)
    assert deleted.failures == ()
    assert await rig.paths() == set()
    await check_sound(rig)


async def test_crossing_renames_in_step_do_not_retry_forever(rig: Rig) -> None:
    for path in ("/a/x/f", "/b/x/g"):
        await rig.write(path)
    meeting = asyncio.Barrier(2)

    def in_step() -> FaultPlan:
        # Both have an intent on their source when they read the chain of their target, the first
        # three times.
        left = [3]

        async def gate(call: Call) -> None:
            if (
                call.method == "get_many"
                and left[0]
                and any(each.method == "write" for each in plan.calls[:-1])
            ):
                left[0] -= 1
                await meeting.wait()

        plan = FaultPlan(gate)
        return plan

    outcomes = await asyncio.wait_for(
        asyncio.gather(
            Tree(rig.client(in_step())).rename(await rig.need("/a"), "/b/x/a"),
            Tree(rig.client(in_step())).rename(await rig.need("/b"), "/a/x/b"),
            return_exceptions=True,
        ),
        PATIENCE,
    )
    told = sorted(type(outcome).__name__ for outcome in outcomes)
    assert told == ["ChangeResult", "PathNotFoundError"]
    await check_sound(rig)


async def test_a_creation_that_cannot_be_taken_back_is_not_called_a_failure(rig: Rig) -> None:
    await rig.store.make_directory("/p")
    target = await rig.store.prepare("/p/f")
    faults = FaultPlan(gate := Gate(on("get")))
    faults.fail_when(on("transact"), UnreachableError("gone"), times=100)
    create = asyncio.create_task(rig.client(faults).publish(target, rig.content(target.object_id)))
    await gate.reached.wait()
    directory = await rig.need("/p")
    await rig.store.items.write(Delete(rig.store.keys.key("/p"), unchanged(directory)))
    gate.opened.set()
    with pytest.raises(OutcomeUnknownError):
        await create
    # It is there, as the log says, and fsck gives it its parent.
    assert (await rig.need("/p/f")).id == target.object_id
    assert (await rig.truths())[target.object_id].committed
