"""Races and interruptions that a gate decides, each once a way to lose something."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import NoReturn

import anyio
import pytest

from s3k_async._core.concurrency import merge, to_the_end
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.errors import (
    BusyError,
    ConflictError,
    IsDirectoryError,
    LeaseExpiredError,
    NotDirectoryError,
    OutcomeUnknownError,
    ResponseLostError,
    ServiceError,
)
from s3k_async.integrity.verify_rules import Facts, decide
from s3k_async.layouts.path.atomic_changes import AtomicTree
from s3k_async.layouts.path.recursive import Tree, forget
from s3k_async.model import Entry, LayoutName
from s3k_async.namespace.file_batches import FileBatch, publish_many
from s3k_async.namespace.store import MetadataStore
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.intent_resolver import IntentResolver
from s3k_async.txn.lease import Lease, Moment
from s3k_async.txn.txn_record import OwnedTransaction, TransactionRecords
from s3k_async.txn.write_intent import REMOVED
from tests.namespace.manual_transactions import Hand
from tests.namespace.rig import Rig


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> Rig:
    return await Rig(request.node.name).start()


async def test_a_directory_made_where_a_reservation_ran_out_is_not_written_over(rig: Rig) -> None:
    await rig.store.make_directory("/d")
    await rig.store.reserve(await rig.store.prepare("/d/f"), exclusive=True)
    rig.clock.advance(1000)
    other = rig.client()
    reaped = False

    async def gate(call: Call) -> None:
        # The reservation is reaped; before the path is read again, somebody makes a directory
        # there.
        nonlocal reaped
        if reaped and call.method.startswith("get"):
            faults.gate = None
            await other.make_directory("/d/f")
        reaped = reaped or call.method == "transact"

    faults = FaultPlan(gate)
    late = rig.client(faults)
    with pytest.raises(IsDirectoryError):
        await rig.write("/d/f", store=late)
    assert faults.gate is None
    entry = await rig.need("/d/f")
    assert (entry.is_dir, entry.version) == (True, 1)


async def test_a_cancellation_is_not_lost_when_the_work_it_waits_for_fails() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go.wait()
        raise ConflictError("lost the race")

    task = asyncio.create_task(to_the_end(work))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert isinstance(caught.value.__cause__, ConflictError)


@pytest.mark.parametrize("what", ["files", "directories"])
async def test_what_is_moved_after_the_lease_was_lost_keeps_its_parents(
    rig: Rig, what: str
) -> None:
    rig.stop_renewing()
    await rig.store.make_directory("/a")
    if what == "files":
        await rig.write("/a/d")
    else:
        await rig.store.make_directory("/a/d")
    other = Tree(rig.client())
    stalled = False

    async def gate(call: Call) -> None:
        # The owner stalls with its move under way; the next client takes the transaction over
        # and deletes the target.
        nonlocal stalled
        moving = call.store == "items" and call.method == "transact" and ("/d" in call.key)
        if moving and not stalled:
            stalled = True
            rig.clock.advance(60)
            await other.delete(await rig.need("/z"))

    with pytest.raises(LeaseExpiredError):
        await Tree(rig.client(FaultPlan(gate))).rename(await rig.need("/a"), "/z")
    assert stalled
    assert await rig.paths() == await rig.scanned()
    rig.clock.advance(60)
    await rig.tree.rename(await rig.need("/a"), "/y")
    assert await rig.paths() == await rig.scanned()
    assert {path.rpartition("/")[2] for path in await rig.paths()} >= {"d"}


async def test_a_file_moved_into_a_directory_that_was_listed_for_deletion_keeps_its_parents(
    rig: Rig,
) -> None:
    rig.stop_renewing()
    await rig.write("/a/f")
    listed, moved = asyncio.Event(), asyncio.Event()
    deletion: list[asyncio.Task[object]] = []

    async def hold_deletion(call: Call) -> None:
        # The target was listed and found empty; before it is removed, the file arrives.
        if call.method == "transact" and call.key.endswith("/z"):
            listed.set()
            await moved.wait()

    async def stall(call: Call) -> None:
        if deletion and call.method == "get":
            moved.set()
        if call.method == "transact" and call.key.endswith("/f"):
            rig.clock.advance(60)
            other = Tree(rig.client(FaultPlan(hold_deletion)))
            deletion.append(asyncio.create_task(other.delete(await rig.need("/z"))))
            await listed.wait()

    with pytest.raises(LeaseExpiredError):
        await Tree(rig.client(FaultPlan(stall))).rename(await rig.need("/a"), "/z")
    await deletion[0]
    assert await rig.paths() == await rig.scanned() == {"/a", "/z", "/z/f"}


async def test_a_transaction_with_an_expired_lease_does_not_get_it_back(rig: Rig) -> None:
    rig.stop_renewing()
    async with rig.store.transactions.hold("mark", "/a") as txn:
        txn.check()
        rig.clock.advance(31)
        txn.extend(Lease.granted(txn.owner, Moment.now(rig.runtime), 30.0))
        with pytest.raises(LeaseExpiredError):
            txn.check()


class Meanwhile:
    """Something that happens between the moment at which a client writes a new file and its second
    look at the parent; what readers are told at that moment is in `seen`.
    """

    def __init__(self, rig: Rig, happens: Callable[[], Awaitable[object]]) -> None:
        self.seen: Entry | None = None
        self._rig, self._happens = rig, happens

    async def gate(self, call: Call) -> None:
        if call.method == "get" and self.seen is None:
            self.seen = await self._rig.need("/a/f")
            await self._happens()

    def client(self) -> MetadataStore:
        return self._rig.client(FaultPlan(self.gate))


async def test_a_visible_creation_stays_while_its_directory_has_an_intent(rig: Rig) -> None:
    rig.stop_renewing()
    await rig.store.make_directory("/a")
    async with rig.store.transactions.hold("mark", "/a") as txn:

        async def add_intent() -> None:
            await rig.store.hold(await rig.need("/a"), txn)

        rig.clock.advance(28)
        meanwhile = Meanwhile(rig, add_intent)
        entry = await rig.write("/a/f", store=meanwhile.client())
    assert meanwhile.seen == entry == await rig.need("/a/f")


async def test_a_creation_that_was_seen_gets_its_directory_back(rig: Rig) -> None:
    await rig.store.make_directory("/a")

    async def remove() -> None:
        await forget(rig.store, await rig.need("/a"))

    meanwhile = Meanwhile(rig, remove)
    entry = await rig.write("/a/f", store=meanwhile.client())
    assert meanwhile.seen == entry == await rig.need("/a/f")
    assert await rig.paths() == await rig.scanned() == {"/a", "/a/f"}


async def test_many_creations_that_were_seen_get_their_directory_back(rig: Rig) -> None:
    await rig.store.make_directory("/a")

    async def remove() -> None:
        await forget(rig.store, await rig.need("/a"))

    meanwhile = Meanwhile(rig, remove)
    targets = [await rig.store.prepare(path) for path in ("/a/f", "/a/g")]
    files = [(target, rig.content(target.object_id)) for target in targets]
    published = await publish_many(meanwhile.client(), files, overwrite=True)
    assert meanwhile.seen == published["/a/f"]
    assert {path: await rig.need(path) for path in published} == published
    assert await rig.paths() == await rig.scanned() == {"/a", "/a/f", "/a/g"}


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_a_creation_beside_that_of_a_common_ancestor_whose_answer_is_lost(
    layout: LayoutName,
) -> None:
    """What is stored cannot tell whether the ancestor was created by the one or the other."""
    rig = await Rig(f"common-ancestor-{layout}", layout=layout).start()
    lost = ResponseLostError("lost")
    rig.faults.fail_when(lambda call: call.method == "transact", lost, times=2)
    assert await rig.store.need_directories(["/b/a", "/b/ab"]) == {}
    for path in ("/b", "/b/a", "/b/ab"):
        assert (await rig.need(path)).is_dir


async def test_of_many_files_those_are_refused_whose_leases_expire_during_the_uploads(
    rig: Rig,
) -> None:
    early = await rig.store.prepare("/early")
    batch = FileBatch(rig.store, overwrite=True)
    batch.add(early, rig.content(early.object_id))
    rig.clock.advance(rig.store.tuning.lease + 1)
    late = await rig.store.prepare("/late")
    batch.add(late, rig.content(late.object_id))
    published = await batch.publish()
    assert isinstance(published["/early"], LeaseExpiredError)
    assert published["/late"] == await rig.need("/late")
    assert await rig.paths() == await rig.scanned() == {"/late"}


async def test_a_creation_that_somebody_moved_on_does_not_bring_its_directory_back(
    rig: Rig,
) -> None:
    await rig.store.make_directory("/a")
    await rig.store.make_directory("/b")

    async def move() -> None:
        await rig.store.rename_file(await rig.need("/a/f"), "/b/f")
        await rig.store.remove_directory(await rig.need("/a"))

    await rig.write("/a/f", store=Meanwhile(rig, move).client())
    assert await rig.paths() == await rig.scanned() == {"/b", "/b/f"}


async def test_a_creation_whose_directory_became_a_file_is_withdrawn(rig: Rig) -> None:
    await rig.store.make_directory("/a")

    async def replace_by_file() -> None:
        await forget(rig.store, await rig.need("/a"))
        await rig.write("/a")

    with pytest.raises(NotDirectoryError):
        await rig.write("/a/f", store=Meanwhile(rig, replace_by_file).client())
    assert await rig.paths() == await rig.scanned() == {"/a"}


async def test_a_creation_that_is_cancelled_while_it_is_withdrawn_leaves_no_file(rig: Rig) -> None:
    await rig.store.make_directory("/a")
    meanwhile = Meanwhile(rig, lambda: forget(rig.store, directory))
    directory = await rig.need("/a")

    async def gate(call: Call) -> None:
        # The file cannot be kept, because its directory cannot be made again; as it is withdrawn,
        # the caller goes.
        await meanwhile.gate(call)
        if meanwhile.seen is not None and call.method == "put" and call.key.endswith(".pending"):
            writing.cancel()

    faults = FaultPlan(gate)
    faults.fail_when(
        lambda call: meanwhile.seen is not None and call.method == "get_many",
        ServiceError("no", service_code="X"),
    )
    writing = asyncio.create_task(rig.write("/a/f", store=rig.client(faults)))
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await rig.paths() == await rig.scanned() == set()


async def test_a_creation_with_an_intent_of_an_aborted_transaction_gets_its_directory_back(
    rig: Rig,
) -> None:
    rig.stop_renewing()
    await rig.store.make_directory("/a")
    hand = Hand(MemoryItems(rig.name), rig.store.keys)

    async def remove_and_add_intent() -> None:
        await forget(rig.store, await rig.need("/a"))
        await hand.record("undone", "preparing", "transaction")
        await hand.add_intent("/a/f", "undone", REMOVED)

    meanwhile = Meanwhile(rig, remove_and_add_intent)
    await rig.write("/a/f", store=meanwhile.client())
    assert (await rig.need("/a/f")).pending == ""
    assert await rig.paths() == await rig.scanned() == {"/a", "/a/f"}


async def test_a_creation_with_an_intent_of_an_active_transaction_is_neither_done_nor_undone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(_: IntentResolver, entry: Entry) -> None:
        raise BusyError("its transaction goes on", path=entry.path)

    await rig.store.make_directory("/a")
    async with rig.store.transactions.hold("mark", "/a") as txn:

        async def remove_and_add_intent() -> None:
            await forget(rig.store, await rig.need("/a"))
            await rig.store.hold(await rig.need("/a/f"), txn)
            monkeypatch.setattr(IntentResolver, "resolve", busy)

        with pytest.raises(OutcomeUnknownError):
            await rig.write("/a/f", store=Meanwhile(rig, remove_and_add_intent).client())
        left = await rig.need("/a/f")
        assert left.pending
        await rig.store.drop_intent(left, txn)


async def test_a_creation_that_is_cancelled_below_a_directory_with_an_intent_is_withdrawn(
    rig: Rig,
) -> None:
    rig = await Rig("cancelled-below", real_time=True).start()
    await rig.store.make_directory("/a")
    intent_added = asyncio.Event()
    async with rig.store.transactions.hold("mark", "/a") as txn:

        async def add_intent() -> None:
            await rig.store.hold(await rig.need("/a"), txn)
            intent_added.set()

        writing = asyncio.create_task(rig.write("/a/f", store=Meanwhile(rig, add_intent).client()))
        await intent_added.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert await rig.store.get("/a/f") is None
        await rig.store.drop_intent(await rig.need("/a"), txn)
    assert await rig.paths() == await rig.scanned() == {"/a"}


async def test_a_cancelled_list_of_creations_below_a_directory_with_an_intent_is_withdrawn(
    rig: Rig,
) -> None:
    rig = await Rig("cancelled-list", real_time=True).start()
    await rig.store.make_directory("/a")
    targets = [await rig.store.prepare(path) for path in ("/a/f", "/a/g")]
    files = [(target, rig.content(target.object_id)) for target in targets]
    async with rig.store.transactions.hold("mark", "/a") as txn:
        with anyio.CancelScope() as scope:

            async def add_intent_and_cancel() -> None:
                await rig.store.hold(await rig.need("/a"), txn)
                scope.cancel()

            await publish_many(
                Meanwhile(rig, add_intent_and_cancel).client(), files, overwrite=True
            )
        assert scope.cancelled_caught
        assert [await rig.store.get(target.path) for target in targets] == [None, None]
        await rig.store.drop_intent(await rig.need("/a"), txn)
    assert await rig.paths() == await rig.scanned() == {"/a"}


async def test_a_recursive_change_has_a_bounded_number_of_parts_under_way() -> None:
    rig = await Rig("bounded", real_time=True).start()
    for path in (
        f"/t/{one}/{two}/{three}" for one in range(6) for two in range(6) for three in range(6)
    ):
        await rig.store.make_directory(path)
    most = 0

    async def watch(_: Call) -> None:
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))

    tree = Tree(rig.client(FaultPlan(watch)))
    assert (await tree.rename(await rig.need("/t"), "/u")).directories == 259
    assert (await tree.delete(await rig.need("/u"))).directories == 259
    # Each part is a task, and lists a directory or waits for one or two tasks of its own.
    assert most < 600
    assert await rig.scanned() == set()


async def test_an_abandoned_reservation_does_not_block_a_rename_forever(rig: Rig) -> None:
    await rig.write("/a/f")
    await rig.store.reserve(await rig.store.prepare("/a/dead"), exclusive=True)
    rig.clock.advance(1000)
    result = await rig.tree.rename(await rig.need("/a"), "/z")
    assert (result.files, result.failures) == (1, ())
    assert await rig.paths() == await rig.scanned() == {"/z", "/z/f"}


async def test_an_interrupted_rename_that_is_taken_back_agrees_with_the_log(rig: Rig) -> None:
    rig.stop_renewing()
    await rig.write("/a/f")
    for number in range(1, 40):
        faults = FaultPlan()
        faults.die(number, when="after")
        faults.fail_when(lambda call, last=number: call.number > last, Died("is dead"), times=10**9)  # type: ignore[misc]
        with contextlib.suppress(Died):
            await Tree(rig.client(faults)).rename(await rig.need("/a"), "/z")
        rig.clock.advance(60)
        if await rig.store.get("/z") is not None:
            await rig.tree.rename(await rig.need("/z"), "/a")
        assert await rig.paths() == await rig.scanned() == {"/a", "/a/f"}, number
        entry = await rig.need("/a")
        committed = (await rig.truths())[entry.id].committed
        if committed is not None and committed.operation.after is not None:
            # Behind the table at most, where the last answer of the log was not waited for.
            assert committed.operation.version <= entry.version, number
            assert committed.operation.after.path == "/a", number


async def test_a_pending_directory_that_later_had_an_intent_has_happened(rig: Rig) -> None:
    faults = FaultPlan()
    error = ServiceError("no", service_code="X")
    faults.fail_when(lambda call: call.key.endswith(".committed"), error, times=9)
    await rig.client(faults).make_directory("/a")
    async with rig.store.transactions.hold("mark", "/a") as txn:
        await rig.store.drop_intent(await rig.store.hold(await rig.need("/a"), txn), txn)
    entry = await rig.need("/a")
    found = decide(
        Facts(entry.id, rig.clock.now_ms() + 10**6, 0, [entry], (await rig.truths())[entry.id])
    )
    assert [(one.kind, "it happened" in one.detail) for one in found] == [("log_pending", True)]


async def test_the_intent_of_an_aborted_transaction_is_not_the_previous_state_of_a_later_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intent gives a directory the id of the operation that is being prepared, and the abortion
    leaves it."""
    rig.stop_renewing()
    await rig.store.make_directory("/a/s")
    entry = await rig.need("/a/s")

    async def dead(_transactions: TransactionRecords, _txn: OwnedTransaction) -> NoReturn:
        raise Died("is dead")

    with monkeypatch.context() as patched:
        patched.setattr(TransactionRecords, "publish", dead)
        patched.setattr(TransactionRecords, "abort", dead)
        with pytest.raises(Died):
            await AtomicTree(rig.store, rig.tree).rename(await rig.need("/a"), "/b")
    rig.clock.advance(1000)
    faults = FaultPlan()
    error = ServiceError("no", service_code="X")
    faults.fail_when(lambda call: call.key.endswith(".committed"), error, times=99)
    later = rig.client(faults)
    await AtomicTree(later, Tree(later)).rename(await rig.need("/a"), "/c")
    moved, truth = await rig.need("/c/s"), (await rig.truths())[entry.id]
    assert decide(Facts(entry.id, rig.clock.now_ms() + 10**6, 0, [moved], truth)) == [], (
        "reported with the two transactions"
    )
    # As if the committed objects said that it is unknown.
    pending = tuple(
        replace(one, key=one.key.replace(".pending", ".committed")) for one in truth.pending
    )
    found = decide(
        Facts(entry.id, rig.clock.now_ms() + 10**6, 0, [moved], replace(truth, pending=pending))
    )
    assert {(one.path, one.action) for one in found} == {
        ("/b/s", "roll_back_log"),
        ("/c/s", "commit_log"),
    }


async def test_a_wide_tree_is_not_held_at_once_while_it_is_walked() -> None:
    opened = closed = most = 0

    async def values(depth: int) -> AsyncIterator[int]:
        nonlocal opened, closed, most
        opened += 1
        most = max(most, opened - closed)
        try:
            for _ in range(200 if depth == 0 else 1):
                yield depth
        finally:
            closed += 1

    made = 0

    def expand(depth: int) -> list[AsyncIterator[int]]:
        nonlocal made
        made += 10 * (depth == 0)
        return [values(1) for _ in range(10)] if depth == 0 else []

    seen = 0
    async with aclosing(merge([values(0)], limit=4, expand=expand)) as stream:
        async for _ in stream:
            seen += 1
            assert made - opened < 20
    assert (seen, opened, closed) == (2200, 2001, 2001)
    # Left early, nothing stays open.
    async with aclosing(merge([values(0)], limit=4, expand=expand)) as stream:
        await anext(stream)
    assert opened == closed
    assert len(asyncio.all_tasks()) == 1
