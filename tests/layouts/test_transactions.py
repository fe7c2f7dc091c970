"""Transactions of a caller that change directories of layout `tree`, with concurrent clients."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest

from s3k_async.backends.ports.items import ABSENT, Action, Check, Delete, Put, Update
from s3k_async.errors import (
    BusyError,
    ConflictError,
    DirectoryNotEmptyError,
    PathNotFoundError,
    TransactionConflictError,
    UnsupportedError,
)
from s3k_async.namespace import multi_path_commit
from s3k_async.namespace.mutations import MakeDirectory, Move, Mutation, Remove
from s3k_async.namespace.recorded_change import RecordedChange
from s3k_async.table.codec import NEXT
from s3k_async.table.keys import TRASH_ID
from s3k_async.testing import Call
from s3k_async.txn.txn_record import LEASE_SECONDS, TRANSACTION_PARTITION
from s3k_async.txn.write_intent import CREATED, WriteIntent
from tests.engines.volumes import fresh_name
from tests.layouts import moves
from tests.layouts.interleavings import Interleaving, interleavings, outcome_of
from tests.layouts.moves import Together, require_explained, tree_of
from tests.layouts.test_file_transactions import commit, rewritten
from tests.layouts.trees import Client, TreeVolume
from tests.races.operations import Outcome, Tree
from tests.support import FakeClock

TREE = (
    *("/a/", "/a/b/", "/a/b/s/", "/a/b/s/f", "/a/b/g"),
    *("/z/", "/z/y/", "/z/t/", "/z/t/h", "/z/empty/"),
)
both_ways = pytest.mark.parametrize("way", ["in one", "by a record"], indirect=True)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How transactions are committed."""
    if request.param == "by a record":
        monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    return str(request.param)


async def volume_of(*paths: str) -> TreeVolume:
    return await TreeVolume(fresh_name("transactions")).start(*(paths or TREE))


async def move(client: Client, source: str, target: str) -> Move:
    return Move(await client.need(source), target, overwrite=False)


async def remove(client: Client, path: str, *, recursive: bool = True) -> Remove:
    return Remove(await client.need(path), recursive=recursive, missing_ok=False)


async def everything(client: Client) -> list[Mutation]:
    """A directory and a file are moved, a directory with its content is removed, and others are
    created."""
    return [
        await move(client, "/a/b/s", "/z/y/s"),
        await move(client, "/a/b/g", "/z/y/g"),
        await remove(client, "/z/t"),
        MakeDirectory("/a/b/new"),
    ]


@dataclass
class Interruption:
    """A gate that does something before a call of a client, by the number of the call."""

    client: Client
    number: int
    do: Callable[[], Awaitable[object]]
    came: bool = False

    async def __call__(self, _: Call) -> None:
        if len(self.client.faults.calls) == self.number and not self.came:
            self.came = True
            await self.do()

    async def outcome_of(self, mutations: Sequence[Mutation]) -> Outcome:
        """The outcome of a transaction that is interrupted."""
        self.client.faults.calls.clear()
        self.client.faults.gate = self
        try:
            outcome = await outcome_of(commit(self.client, *mutations))
            await self.client.volume.truths()  # it may be interrupted while it writes its marks
        finally:
            self.client.faults.gate = None
        return outcome


async def effects(volume: TreeVolume, before: Tree) -> set[bool]:
    """Whether each change of `everything` is there, by the ids of the directories."""
    ids = {path: found.split()[-1].decode() for path, found in before.items() if found}
    where = {entry.id: entry.directory for entry in await volume.stored()}
    new = [
        entry
        for entry in await volume.stored()
        if entry.directory == ids["/a/b"] and entry.entry_key.endswith("/new")
    ]
    return {
        where[ids["/a/b/s"]] == ids["/z/y"],
        where[ids["/a/b/g"]] == ids["/z/y"],
        where[ids["/z/t"]] == TRASH_ID,
        len(new) == 1,
    }


async def require_finished(volume: TreeVolume) -> None:
    """A walk reaches all entries, no entry has an intent, and the log contains all outcomes."""
    await volume.tree()
    assert [entry.path for entry in await volume.stored() if entry.pending] == []
    assert all(truth.pending == () for truth in (await volume.truths()).values())
    client = volume.client()
    assert [record async for record in client.store.transactions.records()] == []
    records = await client.store.items.query(TRANSACTION_PARTITION)
    assert list(records.items) == []


def is_publication(actions: Sequence[Action]) -> bool:
    first = actions[0]
    return isinstance(first, Update) and first.key.partition == TRANSACTION_PARTITION


# Requests and actions


async def test_directories_are_changed_in_one_transaction_of_the_table() -> None:
    volume = await volume_of()
    client = volume.client()
    mutations = await everything(client)
    await client.need("/z/y")
    client.requests()
    result = await commit(client, *mutations)
    assert (result.files, result.directories) == (1, 3)
    assert client.requests() == ["get_many", "transact"]
    (actions,) = client.items.transactions
    kinds = [(type(action), action.key.sort) for action in actions]
    assert kinds[:5] == [
        *((Update, "b"), (Update, "y"), (Update, "z")),
        *((Check, "a"),),
        (Put, "new"),
    ]
    assert sorted(each[0].__name__ for each in kinds[4:]) == ["Delete"] * 3 + ["Put"] * 4
    await require_finished(volume)


async def test_several_files_require_the_directories_above_without_another_request() -> None:
    volume = await volume_of()
    client = volume.client()
    mutations: list[Mutation] = [
        await move(client, "/a/b/s/f", "/z/y/f"),
        await remove(client, "/z/t/h"),
    ]
    await client.need("/z/y")
    client.requests()
    await commit(client, *mutations)
    assert client.requests() == ["get_many", "transact"]
    (actions,) = client.items.transactions
    required = [(type(each), each.key.sort) for each in actions if isinstance(each, Update | Check)]
    assert required == [
        *((Update, "s"), (Update, "y"), (Update, "t")),
        *((Check, "a"), (Check, "b"), (Check, "z")),
    ]


async def test_directories_above_files_are_not_required_if_not_all_fit() -> None:
    deep = [f"/{'/'.join('d' * depth)}/" for depth in range(1, 60)]
    volume = await volume_of(*deep)
    client = volume.client()
    await commit(client, *(rewritten(client, f"{deep[-1]}f{number}") for number in range(60)))
    (actions,) = client.items.transactions
    assert [type(each) for each in actions] == [Update, *[Put] * 60]


async def test_a_record_is_published_with_the_directories_above() -> None:
    volume = await volume_of()
    client = volume.client()
    await commit(
        client, *await everything(client), await remove(client, "/z/empty", recursive=False)
    )
    (published,) = [each for each in client.items.transactions if is_publication(each)]
    assert [(type(each), each.key.sort) for each in published[1:]][:1] == [(Delete, "empty")]
    assert isinstance(published[2], Put)
    assert [(type(each), each.key.sort) for each in published[3:]] == [
        *((Check, "a"), (Check, "b"), (Check, "z"), (Check, "y")),
    ]
    (marker,) = [each for each in await volume.trashed() if each.why == "empty"]
    assert marker.was == "/z/empty"
    await require_finished(volume)


async def test_more_empty_directories_than_one_publication_can_remove_are_refused() -> None:
    volume = await volume_of("/d/", *(f"/d/{number}/" for number in range(50)))
    client = volume.client()
    removals = [await remove(client, f"/d/{number}", recursive=False) for number in range(50)]
    client.requests()
    with pytest.raises(UnsupportedError, match="more than 49 directories as empty"):
        await commit(client, *removals)
    assert client.requests() == ["get_many"]
    await commit(client, *removals[:49])
    assert set(await volume.tree()) == {"/d", "/d/49"}
    assert len(await volume.markers()) == 49


# Concurrent changes

Meanwhile = Callable[[Client], Awaitable[object]]
CHANGES: dict[str, Meanwhile] = {
    "rename the source's parent": lambda client: client.rename("/a/b", "/q"),
    "rename above the source": lambda client: client.rename("/a", "/q"),
    "rename the target's parent": lambda client: client.rename("/z/y", "/q"),
    "rename above the target": lambda client: client.rename("/z", "/q"),
    "delete the source's parent": lambda client: client.delete("/a/b"),
    "delete above the source": lambda client: client.delete("/a"),
    "delete the target's parent": lambda client: client.delete("/z/y"),
    "delete above the target": lambda client: client.delete("/z"),
    "rename the source": lambda client: client.rename("/a/b/s", "/a/other"),
    "rename above the target below the source": lambda client: client.rename("/z", "/a/b/s/z"),
    "rename what is removed": lambda client: client.rename("/z/t", "/z/y/t"),
    "rename into what is removed": lambda client: client.rename("/a/b", "/z/t/b"),
}


@both_ways
@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_before_any_call_leaves_all_of_it_or_nothing(way: str, name: str) -> None:
    number, outcomes = 0, set[Outcome]()
    while True:
        number += 1
        volume = await volume_of()
        # While there are intents, the other client waits for the transaction, which waits for it.
        client, other = volume.client(busy_timeout=60.0), volume.client(busy_timeout=0.0)
        before = await tree_of(volume)
        mutations = await everything(client)
        answers: list[Outcome] = []

        async def change(other: Client = other, answers: list[Outcome] = answers) -> None:
            answers.append(await outcome_of(CHANGES[name](other)))

        interruption = Interruption(client, number, change)
        outcome = await interruption.outcome_of(mutations)
        if not interruption.came:
            break
        assert outcome in (None, PathNotFoundError, ConflictError)
        assert set(answers) <= {None, BusyError, PathNotFoundError}
        assert await effects(volume, before) == {outcome is None}
        await require_finished(volume)
        outcomes.add(outcome)
    assert number > (3 if way == "in one" else 15)
    assert None in outcomes


@pytest.mark.usefixtures("way")
@both_ways
async def test_several_files_are_not_split_by_the_deletion_of_a_directory_above() -> None:
    """If the transaction succeeds, the deletion is visible only with all of its changes."""
    number, outcomes = 0, set[Outcome]()
    while True:
        number += 1
        volume = await volume_of("/a/", "/a/f", "/p/", "/p/q/", "/p/q/r/", "/p/q/r/g")
        client, other = volume.client(), volume.client()
        mutations: list[Mutation] = [
            await move(client, "/a/f", "/a/moved"),
            await remove(client, "/p/q/r/g"),
        ]
        moved_before: list[bool] = []

        async def delete(other: Client = other, moved: list[bool] = moved_before) -> None:
            await other.delete("/p")
            moved.append(await other.store.get("/a/moved") is not None)

        interruption = Interruption(client, number, delete)
        outcome = await interruption.outcome_of(mutations)
        if not interruption.came:
            break
        assert (outcome is None) == moved_before[0]
        assert ("/a/moved" in await volume.tree()) == moved_before[0]
        await require_finished(volume)
        outcomes.add(outcome)
    assert outcomes == {None, PathNotFoundError}


@pytest.mark.usefixtures("way")
@both_ways
async def test_a_removed_directory_is_restored_from_the_trash() -> None:
    volume = await volume_of()
    client, before = volume.client(), await volume.tree()
    await commit(client, *await everything(client))
    (trashed,) = await volume.trashed()
    assert (trashed.why, trashed.was, trashed.state) == ("deleted", "/z/t", "")
    assert trashed.origin == before["/z"]
    assert trashed.entry.id == before["/z/t"]
    assert trashed.entry.pending == ""
    truth = (await volume.truths())[trashed.entry.id]
    assert truth.committed is not None
    assert truth.committed.operation.kind == "rename"
    assert truth.entry is not None
    assert truth.entry.entry_key == trashed.entry.entry_key
    await client.changes.restore(trashed, "/back")
    after = await volume.tree()
    assert (after["/back"], after["/back/h"]) == (before["/z/t"], before["/z/t/h"])
    await require_finished(volume)


async def test_a_directory_that_a_file_is_created_in_is_not_removed_as_empty() -> None:
    """Before any call of the transaction a file is created in the directory. The creator waits for
    the transaction while the directory has its intent."""
    number, outcomes = 0, set[tuple[Outcome, Outcome]]()
    while True:
        number += 1
        volume = await volume_of()
        client, other = volume.client(), volume.client(busy_timeout=1.0)
        mutations: list[Mutation] = [
            await remove(client, "/z/empty", recursive=False),
            await move(client, "/a/b/g", "/z/g"),
        ]
        answers: list[Outcome] = []

        async def create(other: Client = other, answers: list[Outcome] = answers) -> None:
            answers.append(await outcome_of(create_file(other, "/z/empty/f")))

        interruption = Interruption(client, number, create)
        outcome = await interruption.outcome_of(mutations)
        if not interruption.came:
            break
        tree = await volume.tree()
        assert ("/z/empty/f" in tree) == (answers == [None])
        assert ("/z/g" in tree) == (outcome is None)
        await require_finished(volume)
        outcomes.add((outcome, answers[0]))
    assert outcomes == {(DirectoryNotEmptyError, None), (None, BusyError), (None, None)}


async def create_file(client: Client, path: str) -> None:
    target = await client.store.prepare(path)
    await client.store.publish(target, rewritten(client, path).content)


async def test_directories_beyond_one_publication_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    monkeypatch.setattr(multi_path_commit, "PUBLISHED_AT_ONCE", 1)
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    before = await tree_of(volume)
    mutations = await everything(client)
    came = False

    async def gate(call: Call) -> None:
        nonlocal came
        held = [entry.pending for entry in await volume.stored() if entry.pending]
        if call.method == "write" and any(CREATED in intent for intent in held) and not came:
            came = True  # before the first parent is touched
            await other.delete("/a")

    client.faults.gate = gate
    with pytest.raises(PathNotFoundError):
        await commit(client, *mutations)
    assert came
    assert await effects(volume, before) == {False}
    await require_finished(volume)


async def test_a_broken_chain_is_found_before_new_items_are_put(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The directories above are read again as soon as the departing directories have intents."""
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    mutations = await everything(client)
    came = False

    async def gate(call: Call) -> None:
        nonlocal came
        held = [entry.pending for entry in await volume.stored() if entry.pending]
        if call.method == "get_many" and held and not came:
            came = True
            await other.delete("/a")
        assert not any(CREATED in intent for intent in held)

    client.faults.gate = gate
    with pytest.raises(PathNotFoundError):
        await commit(client, *mutations)
    client.faults.gate = None
    assert came
    await require_finished(volume)


@pytest.mark.parametrize("directories", [False, True])
async def test_others_that_keep_requiring_the_same_directories(
    monkeypatch: pytest.MonkeyPatch, directories: bool
) -> None:
    """Changes of files are published by a write of the record alone, not those of directories."""
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    volume = await volume_of()
    client, before = volume.client(), await volume.tree()
    mutations: list[Mutation] = [
        await move(client, "/a/b/s/f", "/z/y/f"),
        rewritten(client, "/z/t/n"),
    ]
    if directories:
        mutations.append(await remove(client, "/z/empty"))

    def publishes(call: Call) -> bool:
        return call.method == "transact" and is_publication(client.items.transactions[-1])

    conflict = TransactionConflictError("in the way")
    client.faults.fail_when(publishes, conflict, times=10**6)
    outcome = await outcome_of(commit(client, *mutations))
    assert outcome is (BusyError if directories else None)
    assert ("/z/t/n" in await volume.tree()) != directories
    assert (await volume.tree() == before) == directories
    await require_finished(volume)


def die_after_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions have records, and their owners die before they resolve the intents."""

    async def died(_: RecordedChange) -> None:
        pass

    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    monkeypatch.setattr(RecordedChange, "_fold", died)


async def test_intents_are_resolved_after_the_directories_above_were_renamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The owner died after the publication. The intents are found by entry key."""

    die_after_publication(monkeypatch)
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    before, ids = await tree_of(volume), await volume.tree()
    await commit(client, *await everything(client))
    await other.rename("/a", "/q")
    await other.rename("/z", "/w")
    seen = await other.store.get_many(
        ["/w/y/s", "/w/y/s/f", "/w/y/g", "/q/b/new", "/q/b/s", "/w/t"]
    )
    assert [entry is not None for entry in seen] == [True] * 4 + [False] * 2
    assert any(entry.pending for entry in await volume.stored())
    volume.clock.advance(1000)
    (record,) = [record async for record in other.store.transactions.records()]
    assert await other.store.resolver.complete(record)
    assert await effects(volume, before) == {True}
    tree = await volume.tree()
    assert (tree["/w/y/s"], tree["/q/b"]) == (ids["/a/b/s"], ids["/a/b"])
    await require_finished(volume)


async def test_an_intent_in_the_trash_is_resolved_before_a_creator_relies_on_it() -> None:
    """A late write of an aborted transaction left a removal marker of a directory that was moved
    later. A file that was created in the directory stays in it."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    target = await client.store.prepare("/a/b/new")
    directory = await other.need("/a/b")
    await other.rename("/a/b", "/q")
    marker = other.layout.trashed(directory, volume.runtime.uuid(), empty=True)
    assert marker is not None
    late = {**marker.item, NEXT: WriteIntent(volume.runtime.uuid(), CREATED).text()}
    await other.store.items.write(Put(late, ABSENT))
    await client.store.publish(target, rewritten(client, "/a/b/new").content)
    tree = await volume.tree()
    assert "/q/new" in tree
    assert "/a/b" not in tree
    assert await volume.trashed() == []


async def test_a_directory_whose_owner_died_after_the_publication_is_in_the_trash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    die_after_publication(monkeypatch)
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    before = await volume.tree()
    await commit(client, await remove(client, "/z/t"))
    volume.clock.advance(LEASE_SECONDS)
    trash = other.layout.trash()
    assert [item.was for item in await trash.items()] == ["/z/t"]
    await trash.restore(await trash.newest("/z/t"), "/z/t")
    assert await volume.tree() == before
    assert await trash.items() == []
    await require_finished(volume)


async def test_the_trash_shows_a_directory_from_its_publication_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    shown: dict[str, list[str]] = {}

    def look_before(method: str) -> None:
        original = getattr(RecordedChange, method)

        async def looked(change: RecordedChange, *arguments: object) -> None:
            shown[method] = [item.was for item in await other.layout.trash().items()]
            await original(change, *arguments)

        monkeypatch.setattr(RecordedChange, method, looked)

    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    look_before("_publish")
    look_before("_fold")
    await commit(client, await remove(client, "/z/t"))
    assert shown == {"_publish": [], "_fold": ["/z/t"]}
    await require_finished(volume)


async def test_a_late_write_of_an_aborted_transaction_is_removed_from_the_trash() -> None:
    volume = await volume_of()
    client = volume.client()
    trashed = client.layout.trashed(await client.need("/z/t"), volume.runtime.uuid(), empty=False)
    assert trashed is not None
    late = {**trashed.item, NEXT: WriteIntent(volume.runtime.uuid(), CREATED).text()}
    await client.store.items.write(Put(late, ABSENT))
    assert await client.layout.trash().items() == []
    assert await volume.trashed() == []
    assert (await client.need("/z/t")).id == trashed.entry.id


async def test_a_late_write_in_the_trash_does_not_obstruct_a_removal_for_good() -> None:
    volume = await volume_of()
    client = volume.client()
    await client.store.make_directory("/z/t/empty")
    directory = await client.need("/z/t/empty")
    trashed = client.layout.trashed(directory, volume.runtime.uuid(), empty=False)
    assert trashed is not None
    late = {**trashed.item, NEXT: WriteIntent(volume.runtime.uuid(), CREATED).text()}
    await client.store.items.write(Put(late, ABSENT))
    with pytest.raises(ConflictError):  # the verb tries again
        await client.store.remove_directory(directory)
    await client.store.remove_directory(await client.need("/z/t/empty"))
    assert await client.store.get("/z/t/empty") is None
    (marker,) = await volume.trashed()
    assert (marker.why, marker.entry.pending) == ("empty", "")


async def test_a_directory_that_is_not_empty_is_not_held_before_it_is_refused() -> None:
    """Readers of the files in it would wait for the end of the transaction."""
    volume = await volume_of()
    client = volume.client()
    removal = await remove(client, "/z/t", recursive=False)
    client.faults.calls.clear()
    with pytest.raises(DirectoryNotEmptyError):
        await commit(client, MakeDirectory("/new"), removal)
    changed = [call for call in client.faults.calls if call.method in ("write", "transact")]
    assert all(TRANSACTION_PARTITION in call.key for call in changed)


# Transactions and renames into each other


async def begin(client: Client, *pairs: tuple[str, str]) -> tuple[Together, Awaitable[object]]:
    """A transaction of renames, not awaited yet."""
    mutations = [await move(client, source, target) for source, target in pairs]
    return Together([moves.Move(*pair) for pair in pairs]), commit(client, *mutations)


PLACES = ("/a/", "/a/x/", "/a/f", "/b/", "/b/y/", "/b/g", "/c/")
FIRST = (("/a", "/b/y/a"), ("/c", "/d"))
SECOND = (("/b", "/a/x/b"), ("/c", "/e"))
"""Each moves a directory below the directory of the other, and both move a third one."""


def outside_of_records(call: Call) -> bool:
    return call.method in ("get_many", "transact") and not call.key.startswith("s3k:job")


async def play(run: Interleaving, *, first: bool = True) -> set[object]:
    volume = run.volume
    start = await tree_of(volume)
    one, other = run.client(), run.client()
    mine, commit_mine = await begin(one, *FIRST)
    if first:
        theirs, commit_theirs = await begin(other, *SECOND)
    else:
        await other.store.get("/a/x/b")
        theirs, commit_theirs = Together([moves.Move("/b", "/a/x/b")]), other.rename("/b", "/a/x/b")
    outcomes = await run.outcomes((one, commit_mine), (other, commit_theirs))
    await require_explained(volume, start, [mine, theirs], outcomes)
    await require_finished(volume)
    assert outcomes.count(None) == 1
    return {outcomes.index(None)}


async def test_two_transactions_into_each_other_in_every_order_of_their_requests() -> None:
    won: set[object] = set()
    async for run in interleavings(*PLACES, ordered=outside_of_records):
        won |= await play(run)
    assert won == {0, 1}


async def test_a_transaction_and_a_rename_into_each_other_in_every_order() -> None:
    won: set[object] = set()
    async for run in interleavings(*PLACES, ordered=outside_of_records):
        won |= await play(run, first=False)
    assert won == {0, 1}


async def test_a_recorded_transaction_and_a_rename_into_each_other_in_every_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    won: set[object] = set()
    async for run in interleavings(*PLACES, ordered=outside_of_records):
        won |= await play(run, first=False)
    assert won == {0, 1}


async def test_recorded_transactions_into_each_other_in_many_orders(
    monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    won: set[object] = set()
    for number in range(max(40, rounds)):
        run = Interleaving(
            seed="", clock=FakeClock(), choice=random.Random(number), ordered=lambda _: True
        )
        await run.volume.start(*PLACES)
        won |= await play(run)
    assert won == {0, 1}
