"""New directories that are filled before one transaction of the table publishes them, with
concurrent clients, deaths and lost responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest

from s3k_async.backends.ports.items import Action, Check, Condition, Delete, Put, Update
from s3k_async.errors import (
    LeaseExpiredError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathNotFoundError,
    ResponseLostError,
    S3kError,
    TransactionConflictError,
    UnsupportedError,
)
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.layouts.tree import staged_commit
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.model import ChangeResult, TrashItem
from s3k_async.namespace import multi_path_commit
from s3k_async.namespace.mutations import MakeDirectory, Move, Mutation, Remove, ReplaceDirectory
from s3k_async.table.keys import TRASH_ID
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.txn_record import LEASE_SECONDS, TRANSACTION_PARTITION, transaction_key
from tests.engines.volumes import fresh_name
from tests.layouts.interleavings import outcome_of
from tests.layouts.test_file_transactions import commit, rewritten
from tests.layouts.test_reclamation import collect, settle
from tests.layouts.test_transactions import (
    Interruption,
    create_file,
    is_publication,
    require_finished,
)
from tests.layouts.trees import Client, TreeVolume
from tests.races.operations import Outcome
from tests.support import after_call, from_call
from tests.torture.crash import Scenario, World, world_of
from tests.torture.crash_scenarios import SCENARIOS

TREE = ("/a/", "/a/b/", "/a/b/old", "/z/", "/z/f")
NEW = ("/a/b/new", "/a/b/new/day=1", "/a/b/new/day=2", "/a/b/new/moved")


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small plans do not fit into one transaction, and content is stored in several."""
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    monkeypatch.setattr(staged_commit, "STORED_AT_ONCE", 3)


async def volume_of(*paths: str) -> TreeVolume:
    return await TreeVolume(fresh_name("staged")).start(*(paths or TREE))


async def job(client: Client, files: int = 5) -> list[Mutation]:
    """Files in a new directory and directories in it, and a file that moves there."""
    return [
        *(rewritten(client, f"/a/b/new/day={1 + number % 2}/{number}") for number in range(files)),
        Move(await client.need("/z/f"), "/a/b/new/moved", overwrite=False),
    ]


async def staged(volume: TreeVolume) -> list[TrashedDirectory]:
    return [each for each in await volume.trashed() if each.why == "staged"]


async def shown(volume: TreeVolume) -> set[bool]:
    """Whether each part of the job is there, by the entries that paths lead to."""
    tree = await volume.tree()
    below = {path.partition("/new/")[2] for path in tree}
    moved = not any(path.endswith("/f") for path in tree)
    return {moved, *(part in below for part in ("moved", "day=1/0", "day=2/3"))}


# Requests


@pytest.mark.parametrize("files", [1, 300])
async def test_the_commit_is_one_transaction_however_many_files_there_are(
    files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_commit, "STORED_AT_ONCE", 99)
    volume = await volume_of()
    client = volume.client()
    mutations = await job(client, files)
    client.requests()
    result = await commit(client, *mutations)
    directories = 1 + min(files, 2)
    assert (result.files, result.directories) == (files + 1, directories)
    content = -(-(files + directories - 1) // 99)
    assert client.requests() == [
        *["get"] * 3,  # the chain, which is not known yet
        "get_many",
        "write",  # the record
        *["transact"] * 2,  # its manifest, and the item of the directory
        *["transact"] * content,
        "transact",  # the publication
        "get",
        *["transact"] * 2,  # manifest and record are deleted
    ]
    (published,) = [each for each in client.items.transactions if is_publication(each)]
    kinds = [(type(each), each.key.sort) for each in published[1:]]
    (directory,) = [key for kind, key in kinds if kind is Delete and key != "f"]
    assert kinds == [
        *((Update, "b"), (Update, "z"), (Check, "a")),
        *((Delete, directory), (Put, "new"), (Delete, "f"), (Put, "moved")),
    ]
    assert (await volume.tree())["/a/b/new"] == directory
    assert len(await volume.tree()) == len(TREE) + files + directories
    await require_finished(volume)


async def test_every_write_below_a_staged_directory_requires_the_record() -> None:
    volume = await volume_of()
    client = volume.client()
    await commit(client, *await job(client))
    stored = [each for each in client.items.transactions if _stores_content(each)]
    assert len(stored) == 3
    for actions in stored:
        assert isinstance(actions[-1], Check)
        assert actions[-1].key.partition == TRANSACTION_PARTITION
        assert set(actions[-1].when.equals) == {"owner", "state"}


def _stores_content(actions: Sequence[Action]) -> bool:
    """Whether the actions put entries below staged directories."""
    partition = actions[0].key.partition
    return (
        isinstance(actions[0], Put)
        and isinstance(actions[-1], Check)
        and not partition.startswith((TRANSACTION_PARTITION, f"s3k:tree/{TRASH_ID}-"))
    )


async def test_a_plan_that_also_changes_much_elsewhere_has_intents() -> None:
    volume = await volume_of()
    client = volume.client()
    await commit(
        client,
        *await job(client),
        *(rewritten(client, f"/a/b/more{number}") for number in range(100)),
    )
    assert not any(_stores_content(each) for each in client.items.transactions)
    assert await shown(volume) == {True}
    await require_finished(volume)


# Before and after


async def test_nobody_sees_anything_before_the_commit() -> None:
    """Before every call another client lists everything, looks into the trash and collects it."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    mutations = await job(client)
    seen: list[set[str]] = []
    saw_staged = False

    async def look(_: Call) -> None:
        nonlocal saw_staged
        found: set[str] = set()
        left = [other.store.keys.directory(await other.need(path)) for path in ("/a", "/z")]
        while left:
            async for page in other.store.children(left.pop()):
                for entry in page:
                    found.add(entry.path)
                    if entry.is_dir:
                        left.append(other.store.keys.directory(entry))
        seen.append(found)
        trash = other.layout.trash()
        assert await trash.items() == []
        assert await trash.empty() == ChangeResult()
        for each in await staged(volume):
            saw_staged = True
            item = TrashItem(each.entry.id, each.was, each.when_ms, each.by, each.state)
            with pytest.raises(PathNotFoundError):
                await trash.restore(item, "/a/stolen")
            with pytest.raises(PathNotFoundError):
                assert [page async for page in trash.walk(item)] == []
        assert await collect(other) == ChangeResult()

    client.faults.gate = look
    await commit(client, *mutations)
    client.faults.gate = None
    before = {"/a/b", "/a/b/old", "/z/f"}
    files = {f"/a/b/new/day={1 + number % 2}/{number}" for number in range(5)}
    after = {"/a/b", "/a/b/old", *NEW, *files}
    assert saw_staged
    assert {frozenset(each) for each in seen} == {frozenset(before), frozenset(after)}
    await require_finished(volume)


# Concurrent changes

Meanwhile = Callable[[Client], Awaitable[object]]
CHANGES: dict[str, Meanwhile] = {
    "create the target": lambda client: client.store.make_directory("/a/b/new"),
    "create it with a directory": lambda client: client.store.make_directory("/a/b/new/day=1"),
    "rename the target's parent": lambda client: client.rename("/a/b", "/q"),
    "rename above the target": lambda client: client.rename("/a", "/q"),
    "delete the target's parent": lambda client: client.delete("/a/b"),
    "delete above the target": lambda client: client.delete("/a"),
    "rename the source's parent": lambda client: client.rename("/z", "/q"),
    "delete the source's parent": lambda client: client.delete("/z"),
}


async def attempts() -> AsyncIterator[tuple[int, TreeVolume, Client, list[Mutation]]]:
    """A new volume, a client and its changes, again and again, numbered from 1: until the caller
    has tried each call of the commit."""
    for number in count(1):
        volume = await volume_of()
        client = volume.client()
        yield number, volume, client, await job(client)


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_before_any_call_leaves_all_of_it_or_nothing(name: str) -> None:
    outcomes = set[Outcome]()
    async for number, volume, client, mutations in attempts():
        other = volume.client(busy_timeout=0.0)
        answers: list[Outcome] = []

        async def change(other: Client = other, answers: list[Outcome] = answers) -> None:
            answers.append(await outcome_of(CHANGES[name](other)))

        interruption = Interruption(client, number, change)
        outcome = await interruption.outcome_of(mutations)
        if not interruption.came:
            break
        assert outcome in (None, PathNotFoundError)
        assert set(answers) <= {None, PathNotFoundError}
        seen = await shown(volume)
        if name != "delete the source's parent" or outcome is None:
            assert seen == {outcome is None}
        assert await staged(volume) == []
        await require_finished(volume)
        outcomes.add(outcome)
    assert number > 12
    assert None in outcomes


async def test_a_file_that_is_created_at_the_target_fails_the_commit() -> None:
    volume = await volume_of()
    client = volume.client()
    mutations = await job(client)

    async def create() -> None:
        await volume.put("/a/b/new")

    interruption = Interruption(client, 10, create)
    outcome = await interruption.outcome_of(mutations)
    assert interruption.came
    assert outcome is not None
    assert set(await volume.tree()) == {*(path.rstrip("/") for path in TREE), "/a/b/new"}
    assert await volume.trashed() == []
    await require_finished(volume)


# Failures


async def test_a_failure_at_every_call_leaves_all_of_it_or_nothing() -> None:
    outcomes = set[Outcome]()
    async for number, volume, client, mutations in attempts():
        client.faults.calls.clear()
        client.faults.fail(number, BrokenError("no"))
        outcome = await outcome_of(commit(client, *mutations))
        if len(client.faults.calls) < number:
            break
        client.faults.calls.clear()
        assert await shown(volume) == {outcome is None}
        await finish(volume)
        assert await shown(volume) == {outcome is None}
        outcomes.add(outcome)
    assert number > 12
    assert outcomes == {None, BrokenError}


class BrokenError(S3kError):
    """A definite failure."""


async def finish(volume: TreeVolume) -> None:
    """What garbage collection and repair do about the transactions of dead clients."""
    volume.clock.advance(2 * LEASE_SECONDS)
    client = volume.client()
    result = await collect(client, retention_ms=10**12)
    assert result.failures == ()
    assert await staged(volume) == []
    async for record in client.store.transactions.records():
        await client.store.resolver.complete(record)
    items = await client.store.items.query(TRANSACTION_PARTITION)
    assert list(items.items) == []


@pytest.mark.parametrize("when", ["before", "after"])
async def test_death_at_every_call_leaves_all_of_it_or_nothing(when: str) -> None:
    seen = list[bool]()
    async for number, volume, client, mutations in attempts():
        client.faults.calls.clear()
        client.faults.die(number, when="before" if when == "before" else "after")
        client.faults.fail_when(after_call(number), Died("is dead"), times=10**6)
        try:
            await commit(client, *mutations)
        except Died:
            pass
        else:
            break
        await finish(volume)
        (there,) = await shown(volume)
        assert await volume.trashed() == []
        if not there:
            assert len(await volume.stored()) == len(TREE)
        seen.append(there)
    assert seen == sorted(seen), "once it is published it stays"
    assert seen.count(False) > 8
    assert seen.count(True) > 2


@pytest.mark.parametrize("times", [1, 3, 4])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_lost_responses_of_the_publication(when: str, times: int) -> None:
    volume = await volume_of()
    client = volume.client()
    mutations = await job(client)

    def is_published(call: Call) -> bool:
        made = client.items.transactions
        return call.method == "transact" and bool(made) and is_publication(made[-1])

    client.faults.fail_when(
        is_published,
        ResponseLostError("lost"),
        when="before" if when == "before" else "after",
        times=times,
    )
    outcome = await outcome_of(commit(client, *mutations))
    there = await shown(volume)
    assert len(there) == 1
    assert outcome is None or not isinstance(outcome, OutcomeUnknownError)
    assert there == {outcome is None}
    assert outcome is None or (when, times) == ("before", 4)
    assert await volume.trashed() == []
    await require_finished(volume)


# Takeover


async def test_a_client_that_takes_the_transaction_over_removes_everything() -> None:
    """Before any call the owner stops for longer than its lease, and garbage is collected."""
    outcomes = set[Outcome]()
    async for number, volume, client, mutations in attempts():
        other = volume.client()

        async def take_over(volume: TreeVolume = volume, other: Client = other) -> None:
            volume.clock.advance(2 * LEASE_SECONDS)
            await collect(other, retention_ms=10**12)
            assert await staged(volume) == []

        interruption = Interruption(client, number, take_over)
        outcome = await interruption.outcome_of(mutations)
        if not interruption.came:
            break
        assert outcome in (None, LeaseExpiredError)
        assert await shown(volume) == {outcome is None}
        await finish(volume)
        assert await volume.trashed() == []
        assert len(await volume.stored()) == (len(TREE) + (5 + 3 if outcome is None else 0)), (
            "no write arrives after the takeover"
        )
        truths = await volume.truths()
        assert not any(each.pending for each in truths.values()), "the owner has rolled it back"
        outcomes.add(outcome)
    assert outcomes == {None, LeaseExpiredError}


async def test_a_write_that_arrives_after_the_takeover_is_refused() -> None:
    """The requests of the owner are on their way while its lease expires."""
    refused = 0
    async for number, volume, client, mutations in attempts():
        other = volume.client()
        came = False

        async def gate(
            call: Call, number: int = number, client: Client = client, other: Client = other
        ) -> None:
            nonlocal came
            if call.method == "transact" and len(client.items.transactions) == number and not came:
                came = True
                # The owner's clock stands still: it does not know.
                async for record in other.store.transactions.records():
                    assert await other.store.resolver.complete(record)

        client.faults.gate = gate
        outcome = await outcome_of(commit(client, *mutations))
        client.faults.gate = None
        if not came:
            break
        assert outcome in (None, LeaseExpiredError)
        assert await shown(volume) == {outcome is None}
        refused += outcome is LeaseExpiredError
        assert await volume.trashed() == []
        assert len(await volume.stored()) == len(TREE) + (8 if outcome is None else 0)
    assert refused == 6  # manifest, directory, three times content, publication


async def test_a_staged_directory_whose_record_is_gone_is_reclaimed() -> None:
    """Only damage leads to that: its content counts as deleted, and is logged."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    mutations = await job(client)
    client.faults.fail_when(
        lambda call: (
            call.method == "transact"
            and bool(client.items.transactions)
            and is_publication(client.items.transactions[-1])
        ),
        Died("is dead"),
        times=10**6,
    )
    client.faults.fail_when(
        lambda call: call.method == "write" and len(client.items.transactions) > 5,
        Died("is dead"),
        times=10**6,
    )
    with pytest.raises(Died):
        await commit(client, *mutations)
    (found,) = await staged(volume)
    await other.store.items.write(Delete(transaction_key(found.job), Condition()))
    result = await collect(other, retention_ms=10**12)
    assert (result.files, result.failures) == (5, ())
    assert [(each.why, each.state, each.job) for each in await volume.trashed()] == [
        ("deleted", "reclaiming", "")
    ]
    settle(volume)
    await collect(other, retention_ms=10**12)
    assert await volume.trashed() == []
    assert set(await volume.tree()) == {path.rstrip("/") for path in TREE}


async def test_a_directory_that_is_published_while_garbage_is_collected_is_left_alone() -> None:
    """Garbage collection lists the trash, and reads the record when the transaction is over. It
    does not log that the directory is being reclaimed: a restore would believe it."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    mutations = await job(client)
    listed, ended = asyncio.Event(), asyncio.Event()
    collections: list[asyncio.Task[ChangeResult]] = []

    async def wait(call: Call) -> None:
        if call.method == "get" and not listed.is_set():
            listed.set()
            await ended.wait()

    async def begin(_: Call) -> None:
        made = client.items.transactions
        if not collections and made and is_publication(made[-1]):
            collections.append(asyncio.create_task(collect(other, retention_ms=10**12)))
            await listed.wait()

    other.faults.gate, client.faults.gate = wait, begin
    await commit(client, *mutations)
    client.faults.gate = None
    other.faults.calls.clear()
    ended.set()
    (collection,) = collections
    assert await collection == ChangeResult()
    assert [each.method for each in other.faults.calls] == ["get"]
    await require_finished(volume)


# Replacement


def replacing(client: Client, *files: str) -> list[Mutation]:
    return [ReplaceDirectory("/a/b"), *(rewritten(client, f"/a/b/{name}") for name in files)]


@pytest.mark.parametrize("at_once", [0, 100])
async def test_a_directory_is_replaced_with_everything_below_it(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", at_once)
    volume = await volume_of()
    client = volume.client()
    before = await volume.tree()
    result = await commit(client, *replacing(client, "old", "day=1/f", "day=1/g"))
    assert (result.files, result.directories) == (3, 3)
    tree = await volume.tree()
    assert {path for path in tree if path.startswith("/a/b")} == {
        *("/a/b", "/a/b/old", "/a/b/day=1", "/a/b/day=1/f", "/a/b/day=1/g")
    }
    assert tree["/a/b"] != before["/a/b"]
    (item,) = await client.layout.trash().items()
    assert (item.id, item.was) == (before["/a/b"], "/a/b")
    await client.layout.trash().restore(item, "/z/b")
    assert (await volume.tree())["/z/b/old"] == before["/a/b/old"]
    await require_finished(volume)


async def test_a_missing_directory_is_created_and_a_file_is_not_replaced() -> None:
    volume = await volume_of()
    client = volume.client()
    await commit(client, ReplaceDirectory("/n/m"), rewritten(client, "/n/m/f"))
    assert {"/n", "/n/m", "/n/m/f"} <= (await volume.tree()).keys()
    before = await volume.tree()
    with pytest.raises(NotDirectoryError):
        await commit(client, ReplaceDirectory("/z/f"))
    with pytest.raises(UnsupportedError, match="cannot replace a directory"):
        await commit(
            client,
            *replacing(client, "f"),
            *(rewritten(client, f"/z/{number}") for number in range(100)),
        )
    assert await volume.tree() == before


async def test_a_directory_is_replaced_by_an_empty_one() -> None:
    volume = await volume_of()
    client = volume.client()
    before = await volume.tree()
    await commit(client, ReplaceDirectory("/a/b"))
    tree = await volume.tree()
    assert {path for path in tree if path.startswith("/a")} == {"/a", "/a/b"}
    (trashed,) = await volume.trashed()
    assert trashed.entry.id == before["/a/b"] != tree["/a/b"]
    await require_finished(volume)


async def test_a_repeated_replacement_of_unknown_outcome_replaces_nothing() -> None:
    """The transaction is repeated with the same data, which the first attempt has published."""
    volume = await volume_of()
    client = volume.client()
    mutations = replacing(client, "f", "g")
    await commit(client, *mutations)
    before = await volume.stored()
    await commit(client, *mutations)
    assert await volume.stored() == before
    await commit(client, *replacing(client, "h"))
    assert {path for path in await volume.tree() if path.startswith("/a/b/")} == {"/a/b/h"}
    assert len(await volume.trashed()) == 2


@pytest.mark.parametrize("at_once", [0, 100])
async def test_an_object_that_was_adopted_before_does_not_show_a_replacement(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", at_once)
    volume = await volume_of()
    client = volume.client()
    adopted = replace(rewritten(client, "/a/b/x"), source="adopted", lease_ms=0)
    await commit(client, adopted)
    again = replace(adopted, object_id=client.store.runtime.uuid())
    await commit(client, ReplaceDirectory("/a/b"), again)
    assert {path for path in await volume.tree() if path.startswith("/a/b/")} == {"/a/b/x"}
    await require_finished(volume)


async def test_a_replacement_that_loses_to_other_transactions_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fits into one transaction of the table, but not with a record and further conditions."""
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 100)
    above = [path for number in range(9) for path in (f"/q{number}/", f"/q{number}/d/")]
    volume = await volume_of("/z/", *(f"/z/s{number}/" for number in range(40)), *above)
    client = volume.client()
    before = await volume.tree()
    conflict = TransactionConflictError("other transactions")
    client.faults.fail_when(lambda call: call.method == "transact", conflict, times=5)
    await commit(
        client,
        *(ReplaceDirectory(f"/z/s{number}") for number in range(40)),
        *(MakeDirectory(f"/q{number}/d/x") for number in range(9)),
    )
    after = await volume.tree()
    assert all(after[f"/z/s{number}"] != before[f"/z/s{number}"] for number in range(40))
    await require_finished(volume)


async def test_a_removal_as_empty_beside_a_replacement_is_refused() -> None:
    volume = await volume_of(*TREE, "/z/empty/")
    client = volume.client()
    empty = Remove(await client.need("/z/empty"), recursive=False, missing_ok=False)
    with pytest.raises(UnsupportedError, match="without `recursive`"):
        await commit(client, *replacing(client, "f"), empty)


@pytest.mark.parametrize("at_once", [0, 100])
async def test_a_replacement_beside_a_creation_a_rename_and_a_deletion(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any call another client changes the directory that is being replaced."""
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", at_once)
    changes: dict[str, Meanwhile] = {
        "create": lambda client: create_file(client, "/a/b/late"),
        "rename": lambda client: client.rename("/a/b", "/z/b"),
        "delete": lambda client: client.delete("/a/b"),
        "rename above": lambda client: client.rename("/a", "/q"),
    }
    for name, do in changes.items():
        number = 0
        while True:
            number += 1
            volume = await volume_of()
            client, other = volume.client(), volume.client(busy_timeout=0.0)
            mutations = replacing(client, "f", "g")

            async def change(
                other: Client = other, do: Callable[[Client], Awaitable[object]] = do
            ) -> None:
                await outcome_of(do(other))

            interruption = Interruption(client, number, change)
            outcome = await interruption.outcome_of(mutations)
            if not interruption.came:
                break
            assert outcome is None, name
            tree = await volume.tree()
            top = next(path for path in tree if path.endswith("/g"))[: -len("/g")]
            found = {path[len(top) :] for path in tree if path.startswith(f"{top}/")}
            # What was created before the replacement is in the trash, what came later is there.
            assert found - {"/late"} == {"/f", "/g"}
            assert await staged(volume) == []
            await require_finished(volume)
        assert number > 2


# fsck, and restore of a lost table


def in_new_directories() -> Scenario:
    return replace(SCENARIOS["transaction:new directories"], layout="tree")


async def test_fsck_finds_nothing_wrong_with_a_live_staged_directory() -> None:
    """Nor with its content, however long it takes to fill the directory."""
    scenario = in_new_directories()
    looked = 0
    async with world_of(scenario) as world:

        async def gate(call: Call) -> None:
            nonlocal looked
            if call.store != "items" or call.method != "transact":
                return
            async with world.volume() as other:
                trash = other.store.keys.partitions(TRASH_ID)
                stored = [item for each in trash for item in (await other.items.query(each)).items]
                looked += bool(stored)
                report = await verify_volume(other, grace=0.0)
                assert [each for each in report.findings if each.is_problem] == []
                repaired = await repair_volume(other, dry_run=False, grace=0.0)
                assert repaired.done == 0

        def arm(faults: FaultPlan) -> None:
            faults.gate = gate

        await world.run(scenario, arm)
        assert looked >= 3
        assert await world.tree() == scenario.after
        world.clock.advance(1000)
        assert await world.problems() == set()


async def test_a_directory_that_is_staged_during_a_check_is_not_made_again() -> None:
    """Before every call of fsck a transaction is begun, of which fsck may see the content only."""
    scenario = in_new_directories()
    number = 0
    while True:
        number += 1
        async with world_of(scenario) as world:
            filled, go_on = asyncio.Event(), asyncio.Event()
            transactions = 0

            async def stop(
                call: Call, filled: asyncio.Event = filled, go_on: asyncio.Event = go_on
            ) -> None:
                nonlocal transactions
                transactions += (call.store, call.method) == ("items", "transact")
                if transactions == 4:
                    filled.set()
                    await go_on.wait()

            def arm(faults: FaultPlan, stop: Callable[[Call], Awaitable[None]] = stop) -> None:
                faults.gate = stop

            owners: list[asyncio.Task[None]] = []

            async def begin(
                call: Call,
                number: int = number,
                world: World = world,
                filled: asyncio.Event = filled,
                owners: list[asyncio.Task[None]] = owners,
                arm: Callable[[FaultPlan], None] = arm,
            ) -> None:
                if call.number == number and not owners:
                    owners.append(asyncio.create_task(world.run(scenario, arm)))
                    await filled.wait()

            faults = FaultPlan()
            async with world.volume(faults=faults) as volume:
                faults.calls.clear()
                faults.gate = begin
                repaired = await repair_volume(volume, dry_run=False, grace=0.0)
                faults.gate = None
            if not owners:
                break
            assert repaired.done == 0
            go_on.set()
            await owners[0]
            assert await world.tree() == scenario.after
            world.clock.advance(1000)
            assert await world.problems() == set()
    assert number > 20


async def test_a_table_that_is_lost_after_a_takeover_is_restored_without_the_transaction() -> None:
    """The owner stopped for longer than its lease at any call, and raised LeaseExpiredError."""
    scenario = replace(SCENARIOS["transaction:replacing"], layout="tree")
    number, outcomes = 0, set[Outcome]()
    while True:
        number += 1
        async with world_of(scenario) as world:
            came = False

            async def take_over(call: Call, number: int = number, world: World = world) -> None:
                nonlocal came
                if call.number == number and not came:
                    came = True
                    world.clock.advance(3 * LEASE_SECONDS)
                    async with world.volume() as other:
                        async for record in other.store.transactions.records():
                            await other.store.resolver.complete(record)

            def arm(
                faults: FaultPlan, take_over: Callable[[Call], Awaitable[None]] = take_over
            ) -> None:
                faults.gate = take_over

            outcome = await outcome_of(world.run(scenario, arm))
            if not came:
                break
            expected = scenario.after if outcome is None else scenario.before
            assert await world.tree() == expected
            await world.lose_table()
            assert await world.tree() == expected
            outcomes.add(outcome)
    assert outcomes == {None, LeaseExpiredError}


async def test_a_table_that_is_lost_after_garbage_collection_is_restored_as_it_was() -> None:
    """A client dies at every call, garbage is collected, and the directory is changed again: its
    replacement did not happen, whatever the client had logged."""
    scenario = replace(SCENARIOS["transaction:replacing"], layout="tree")
    number, published = 0, set[bool]()
    while True:
        number += 1
        async with world_of(scenario) as world:

            def arm(faults: FaultPlan, number: int = number) -> None:
                faults.fail_when(from_call(number), Died("is dead"), times=10**9)

            try:
                await world.run(scenario, arm)
            except Died:
                pass
            else:
                break

            async def clock(world: World = world) -> int:
                return world.runtime.now_ms()

            world.clock.advance(1000)
            async with world.volume() as volume:
                trash = volume.store.layout.trash()
                assert (await trash.collect(clock, retention_ms=10**12)).failures == ()
            async with world.client() as (fs, _):
                await fs.write("/d/later", b"later")
            tree = await world.tree()
            await world.lose_table()
            assert await world.tree() == tree
            published.add(tree["/d/f"] == scenario.after["/d/f"])
    assert published == {False, True}


async def test_a_lost_table_is_restored_without_what_was_not_published() -> None:
    """A client dies at every call, and the table is lost. While content is stored, nothing of it is
    restored; from the publication on, all of it is."""
    scenario = in_new_directories()
    seen: list[bool] = []
    number = 0
    while True:
        number += 1
        plans: list[FaultPlan] = []
        async with world_of(scenario) as world:

            def arm(
                faults: FaultPlan, number: int = number, plans: list[FaultPlan] = plans
            ) -> None:
                faults.fail_when(from_call(number), Died("is dead"), times=10**9)
                plans.append(faults)

            try:
                await world.run(scenario, arm)
            except Died:
                pass
            else:
                break
            stored = [
                call
                for call in plans[0].calls
                if call.number < number and call.method == "transact"
            ]
            published = await world.tree() == scenario.after
            world.clock.advance(1000)
            await world.lose_table()
            restored = await world.tree()
            assert restored in (scenario.before, scenario.after)
            if published:
                assert restored == scenario.after
            elif restored == scenario.after:
                # Manifest, directory and content: its publication was pending in the log.
                assert len(stored) == 4
            seen.append(restored == scenario.after)
            await world.repair()
            assert await world.problems() == set()
            assert await world.tree() == restored
    assert seen == sorted(seen)
    assert seen.count(False) > 15
    assert seen.count(True) > 4
