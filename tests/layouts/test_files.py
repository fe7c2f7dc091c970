"""Files in layout `tree` beside changes of the directories above them: a change at every request,
and every failed condition and lost answer of what follows a removed directory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.interception import TableStore
from s3k_async.backends.ports.items import ABSENT, Action, Delete, Item, Key, Put, Update
from s3k_async.errors import (
    BusyError,
    ConflictError,
    ItemFormatError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    ResponseLostError,
    S3kError,
    TransactionConflictError,
)
from s3k_async.layouts.tree.tree_parents import CONCLUSIVE_SECONDS
from s3k_async.model import Content, Entry
from s3k_async.namespace.bulk_changes import delete_files
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.directories import CONFIRMED_SECONDS
from s3k_async.namespace.entry_reader import existing
from s3k_async.namespace.file_batches import prepare_many, publish_many
from s3k_async.namespace.pair_renames import PairRenames, RenamePair
from s3k_async.namespace.store import WriteTarget
from s3k_async.table.codec import NEXT, in_columns, to_item, unchanged
from s3k_async.table.keys import TRASH_ID
from s3k_async.testing import Call
from s3k_async.txn.write_intent import WriteIntent
from tests.engines.volumes import fresh_name
from tests.layouts.interleavings import outcome_of
from tests.layouts.trees import KEYS, Client, TreeVolume, everywhere
from tests.races.operations import Outcome

GROWN = ("/a/", "/a/b/", "/a/b/old", "/z/", "/z/g")
EMPTY = ("/a/", "/a/b/", "/z/", "/z/g")
"""Without entries in the directory of the new file."""
PATH = "/a/b/f"

Work = Callable[[Client], Awaitable[object]]


async def volume_of(*paths: str) -> TreeVolume:
    return await TreeVolume(fresh_name("files")).start(*(paths or GROWN))


def content_of(client: Client, target: WriteTarget) -> Content:
    runtime = client.store.runtime
    return Content(runtime.physical_key(target.object_id), 3, "e", "xxh128:" + "0" * 32)


async def write(client: Client, path: str = PATH, *, exclusive: bool = False) -> Entry:
    """As `bulk.publish.publish_new`, without data."""
    race = ConflictBackoff(client.store)
    while True:
        target = await client.store.prepare(path)
        if exclusive and target.current is not None:
            raise PathExistsError("the file exists", path=path)
        try:
            content = content_of(client, target)
            return await client.store.publish(target, content, overwrite=not exclusive)
        except ConflictError as error:
            await race.lost(error)


async def write_exclusively(client: Client) -> Entry:
    return await write(client, exclusive=True)


async def overwrite(client: Client) -> Entry:
    return await write(client, "/a/b/old")


async def open_and_close(client: Client) -> Entry:
    race = ConflictBackoff(client.store)
    while True:
        target = await client.store.prepare(PATH)
        try:
            reserved = await client.store.reserve(target, exclusive=False)
        except ConflictError as error:
            await race.lost(error)
        else:
            return await client.store.commit(reserved, content_of(client, target), target.chain)


async def write_several(client: Client) -> Entry:
    prepared = await prepare_many(client.store, [PATH, "/a/b/g"])
    targets = [each for each in prepared.values() if isinstance(each, WriteTarget)]
    files = [(target, content_of(client, target)) for target in targets]
    published = await publish_many(client.store, files, overwrite=True)
    for outcome in published.values():
        if isinstance(outcome, ConflictError):
            await write(client, "/a/b/g")
            return await write(client)
        assert isinstance(outcome, Entry), outcome
    found = published[PATH]
    assert isinstance(found, Entry)
    return found


async def move_in(client: Client) -> Entry:
    return await client.store.rename_file(await client.need("/z/g"), PATH)


async def move_out(client: Client) -> Entry:
    return await client.store.rename_file(await existing(client.store, "/a/b/old"), "/z/f")


async def delete(client: Client) -> None:
    await client.store.delete_file(await existing(client.store, "/a/b/old"))


async def rename_ancestor(other: Client) -> None:
    await other.rename("/a", "/q")


async def rename_parent(other: Client) -> None:
    await other.rename("/a/b", "/z/q")


async def away_and_back(other: Client) -> None:
    await other.rename("/a", "/q")
    await other.rename("/q", "/a")


async def delete_ancestor(other: Client) -> None:
    await other.delete("/a")


async def delete_parent(other: Client) -> None:
    await other.delete("/a/b")


async def remove_parent(other: Client) -> None:
    await other.store.remove_directory(await other.need("/a/b"))


@dataclass(frozen=True)
class Run:
    """A call, and a change that another client made before one of its requests."""

    volume: TreeVolume
    outcome: Outcome
    changed: Outcome
    """The outcome of the change."""
    request: Call


async def each_request(work: Work, change: Work, *paths: str, warm: bool = True) -> list[Run]:
    """The call with the change before each of its requests, to the table and to the log."""
    runs: list[Run] = []
    while True:
        volume = await volume_of(*paths)
        client, other = volume.client(), volume.client()
        if warm:
            await client.store.get_many([PATH, "/z/g"])
        client.faults.calls.clear()
        changed: list[Outcome] = []
        requests: list[Call] = []
        turn = asyncio.Lock()  # the requests of other tasks come after the change

        async def gate(
            call: Call,
            changed: list[Outcome] = changed,
            requests: list[Call] = requests,
            other: Client = other,
            turn: asyncio.Lock = turn,
        ) -> None:
            async with turn:
                if call.number == len(runs) + 1 and not requests:
                    requests.append(call)
                    changed.append(await outcome_of(change(other)))

        client.faults.gate = gate
        outcome = await outcome_of(work(client))
        async with turn:
            client.faults.gate = None
        if not changed:
            return runs
        truths = await volume.truths()
        assert all(truth.pending == () for truth in truths.values())
        runs.append(Run(volume, outcome, changed[0], requests[0]))


def times(tree: Mapping[str, str], name: str) -> int:
    return sum(path.endswith(f"/{name}") for path in tree)


# Renames of directories above


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("change", [rename_ancestor, rename_parent, away_and_back])
@pytest.mark.parametrize("work", [write, write_exclusively, open_and_close, write_several, move_in])
async def test_a_new_file_beside_a_rename_of_a_directory_above(
    work: Work, change: Work, warm: bool
) -> None:
    """The file exists once: at its path, or in the directory to which the path led, at the new path
    of that directory."""
    places = set()
    for run in await each_request(work, change, warm=warm):
        volume, outcome = run.volume, run.outcome
        tree = await volume.tree()
        if work is move_in and outcome is PathNotFoundError:
            assert "/z/g" in tree
            continue
        assert outcome is None
        (place,) = [path for path in tree if path.endswith("/f")]
        places.add(place)
        client = volume.client()
        entry = await client.need(place)
        assert entry.committed
    assert places <= {PATH, "/q/b/f", "/z/q/f"}
    assert (PATH in places) == (work is not move_in or change is away_and_back)
    assert len(places) == 1 or change is not away_and_back


@pytest.mark.parametrize("change", [rename_ancestor, rename_parent])
async def test_an_overwrite_beside_a_rename_changes_the_file_of_its_path_only(
    change: Work,
) -> None:
    """A stale path must not lead to a file that another path leads to by then."""
    for run in await each_request(overwrite, change):
        assert run.outcome is None
        volume, tree = run.volume, await run.volume.tree()
        versions = {
            path: (await volume.client().need(path)).version
            for path in tree
            if path.endswith("/old")
        }
        # overwritten at its new path, or a new file at the path beside the old one
        assert sorted(versions.values()) in ([3], [2, 2])
        if len(versions) == 2:
            assert versions["/a/b/old"] == 2


@pytest.mark.parametrize("change", [rename_ancestor, rename_parent, delete_ancestor])
async def test_a_file_is_moved_or_deleted_once_beside_changes_above(change: Work) -> None:
    for run in await each_request(move_out, change):
        tree = await run.volume.tree()
        assert times(tree, "old") + times(tree, "f") == 1
        assert (run.outcome is None) == (times(tree, "f") == 1)
        assert run.outcome in (None, PathNotFoundError)
    for run in await each_request(delete, change):
        assert run.outcome in (None, PathNotFoundError)
        assert times(await run.volume.tree(), "old") == (run.outcome is not None)


async def test_a_file_that_was_renamed_with_its_directory_long_before_is_not_touched() -> None:
    """No decision depends on the cache of a client."""
    volume = await volume_of()
    stale, other = volume.client(), volume.client()
    await stale.need("/a/b/old")
    await rename_ancestor(other)
    await volume.put("/a/", "/a/b/")
    await overwrite(stale)
    await write(stale)
    tree = await volume.tree()
    assert set(tree) == {
        *("/a", "/a/b", "/a/b/f", "/a/b/old"),
        *("/q", "/q/b", "/q/b/old"),
        *("/z", "/z/g"),
    }
    assert (await other.need("/q/b/old")).version == 2


# Deletions and removals


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("work", [write, write_exclusively, open_and_close, write_several])
@pytest.mark.parametrize("change", [delete_parent, remove_parent])
async def test_a_new_file_beside_the_removal_of_its_directory(
    work: Work, change: Work, warm: bool
) -> None:
    """After a removal as empty the file is at its path, in a directory that was created again. A
    recursive delete also deletes the file, if its path was resolved before the deletion."""
    at_path = set()
    for run in await each_request(work, change, *EMPTY, warm=warm):
        volume, outcome, tree = run.volume, run.outcome, await run.volume.tree()
        assert times(tree, "f") == 1
        assert run.changed is None or change is remove_parent
        if work is open_and_close and outcome is ConflictError:
            # the directory was deleted with the reservation
            assert change is delete_parent
            assert PATH not in tree
            continue
        assert outcome is None
        at_path.add(PATH in tree)
        if PATH in tree:
            assert (await volume.client().need(PATH)).committed
        if run.request.method in {"write", "transact"} and work is not open_and_close:
            assert (PATH in tree) == (change is remove_parent)
    assert at_path == ({True} if change is remove_parent else {True, False})


@pytest.mark.parametrize("work", [write, write_exclusively])
async def test_a_new_file_beside_the_deletion_of_a_directory_further_up(work: Work) -> None:
    """The file is deleted with the directory, if its path was resolved before the deletion."""
    places = set()
    for run in await each_request(work, delete_ancestor):
        assert run.outcome is None
        tree = await run.volume.tree()
        assert times(tree, "f") == 1
        if run.request.store == "items":
            places.add(PATH in tree)
    assert places == {True, False}


async def test_close_after_a_deletion_above_publishes_nothing() -> None:
    for change in (delete_parent, delete_ancestor):
        volume = await volume_of()
        client, other = volume.client(), volume.client()
        target = await client.store.prepare(PATH)
        reserved = await client.store.reserve(target, exclusive=False)
        await change(other)
        with pytest.raises(ConflictError):
            await client.store.commit(reserved, content_of(client, target), target.chain)


async def test_close_after_a_rename_above_publishes_in_the_directory() -> None:
    for change, place in ((rename_parent, "/z/q/f"), (rename_ancestor, "/q/b/f")):
        volume = await volume_of()
        client, other = volume.client(), volume.client()
        target = await client.store.prepare(PATH)
        reserved = await client.store.reserve(target, exclusive=False)
        await change(other)
        volume.clock.advance(300.0)
        published = await client.store.commit(reserved, content_of(client, target), target.chain)
        assert published.path == PATH
        assert (await other.need(place)).committed


class SlowTrash(MemoryItems):
    """A table whose reads do not show the trash yet, as DynamoDB while it applies a transaction."""

    async def get(self, key: Key) -> Item | None:
        return None if TRASH_ID in key.partition else await super().get(key)

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        found = await super().get_many(keys)
        return {key: item for key, item in found.items() if TRASH_ID not in key.partition}


@pytest.mark.parametrize("work", [write, write_exclusively])
async def test_the_trash_is_not_asked_by_a_read(work: Work) -> None:
    volume = await with_slow_trash(*EMPTY)
    client, other = volume.client(), volume.client()
    await client.need("/a/b")
    client.faults.gate = once("write", lambda: remove_parent(other))
    await work(client)
    assert (await other.need(PATH)).committed


async def with_slow_trash(*paths: str) -> TreeVolume:
    table = SlowTrash(fresh_name("slow-trash"))
    await table.create()
    return await TreeVolume(table._name, table).start(*paths)


async def test_the_trash_is_not_asked_by_a_read_before_a_file_is_published() -> None:
    volume = await with_slow_trash(*GROWN)
    client, other = volume.client(), volume.client()
    target = await client.store.prepare(PATH)
    reserved = await client.store.reserve(target, exclusive=False)
    await delete_parent(other)
    with pytest.raises(ConflictError):
        await client.store.commit(reserved, content_of(client, target), target.chain)


def once(method: str, change: Callable[[], Awaitable[object]]) -> Callable[[Call], Awaitable[None]]:
    """A gate that makes a change before the first call of a method of the table."""
    left = [change]

    async def gate(call: Call) -> None:
        if call.store == "items" and call.method == method and left:
            await left.pop()()

    return gate


@pytest.mark.parametrize("conflicts", [1, 10])
async def test_a_conflict_while_the_trash_is_asked_is_no_answer(conflicts: int) -> None:
    volume = await volume_of(*EMPTY)
    client, other = volume.client(), volume.client()
    await client.need("/a/b")
    client.faults.gate = once("write", lambda: remove_parent(other))
    client.faults.fail_when(
        asks_the_trash, TransactionConflictError("in progress"), times=conflicts
    )
    await write(client)
    assert (await other.need(PATH)).committed


def asks_the_trash(call: Call) -> bool:
    return call.method == "transact" and TRASH_ID in call.key


async def test_a_trash_that_never_answers_is_an_error_about_the_path() -> None:
    """A new file may have been seen, so it is not withdrawn. A file that was open for writing is
    not published."""
    volume = await volume_of(*EMPTY)
    client, other = volume.client(), volume.client()
    await client.need("/a/b")
    conflict = TransactionConflictError("in progress")
    client.faults.gate = once("write", lambda: remove_parent(other))
    client.faults.fail_when(asks_the_trash, conflict, times=1000)
    with pytest.raises(OutcomeUnknownError) as unknown:
        await write(client)
    assert unknown.value.path == PATH
    assert isinstance(unknown.value.__cause__, BusyError)
    assert unknown.value.__cause__.path == PATH
    assert (await created(volume)).committed
    client.faults.gate = None
    target = await client.store.prepare("/a/b/g")
    reserved = await client.store.reserve(target, exclusive=False)
    await delete_parent(other)
    with pytest.raises(BusyError) as raised:
        await client.store.commit(reserved, content_of(client, target), target.chain)
    assert raised.value.path == "/a/b/g"
    assert [entry.committed for entry in await volume.stored() if entry.path.endswith("/g")] == [
        False,
        True,
    ]


# Relocation


async def relocating(
    when: Callable[[TreeVolume, Client], Awaitable[object]] | None = None,
    *,
    exclusive: bool = False,
    created_again: bool = False,
) -> tuple[TreeVolume, Outcome]:
    """A creation whose directory is removed as empty after its confirmation, and with
    `created_again` created by the other client; `when`: a change before the transaction that moves
    the file."""
    volume = await volume_of(*EMPTY)
    client, other = volume.client(), volume.client()
    await client.need("/a/b")
    state = {"removed": False, "moved": False}

    async def gate(call: Call) -> None:
        if call.store != "items":
            return
        if call.method == "write" and not state["removed"]:
            state["removed"] = True
            await remove_parent(other)
            if created_again:
                await other.store.make_directory("/a/b")
        is_move = call.method == "transact" and call.key == relocated_key(volume, client)
        if is_move and not state["moved"] and when is not None:
            state["moved"] = True
            await when(volume, other)

    client.faults.gate = gate
    outcome = await outcome_of(write(client, exclusive=exclusive))
    assert state["removed"]
    assert when is None or state["moved"]
    return volume, outcome


def relocated_key(volume: TreeVolume, client: Client) -> str:
    """The partition that the file is moved out of: the first key of that transaction."""
    created = [call.key for call in client.faults.calls if call.method == "write"]
    return created[0] if created else ""


async def created(volume: TreeVolume) -> Entry:
    (entry,) = [each for each in await volume.stored() if each.path.endswith("/f")]
    return entry


@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_file_in_a_removed_directory_is_moved_and_keeps_its_object(exclusive: bool) -> None:
    volume, outcome = await relocating(exclusive=exclusive)
    assert outcome is None
    entry = await volume.client().need(PATH)
    truth = (await volume.truths())[entry.id]
    assert entry.version == 3
    assert truth.committed is not None
    assert truth.committed.operation.kind == "rename"
    assert truth.committed.operation.after is not None
    assert truth.committed.operation.after.directory == entry.directory


@pytest.mark.parametrize("work", [write, write_exclusively])
@pytest.mark.parametrize("change", [delete_parent, delete_ancestor])
async def test_a_file_in_a_deleted_directory_stays_there(work: Work, change: Work) -> None:
    """The creation counts as before the deletion."""
    volume = await volume_of(*EMPTY)
    client, other = volume.client(), volume.client()
    await client.need("/a/b")
    client.faults.gate = once("write", lambda: change(other))
    assert await outcome_of(work(client)) is None
    assert (await created(volume)).version == 2
    tree = await volume.tree()
    assert times(tree, "f") == 1
    assert not {"/a/b", PATH} & set(tree)


async def test_a_file_at_the_path_by_then_is_replaced() -> None:
    """The creation is withdrawn and begins again."""

    async def take(volume: TreeVolume, other: Client) -> None:
        await write(other)

    volume, outcome = await relocating(take)
    assert outcome is None
    tree = await volume.tree()
    assert times(tree, "f") == 1
    assert (await volume.client().need(PATH)).version == 3


async def test_a_file_at_the_path_by_then_refuses_an_exclusive_creation() -> None:
    async def take(volume: TreeVolume, other: Client) -> None:
        await write(other)

    volume, outcome = await relocating(take, exclusive=True)
    assert outcome is PathExistsError
    assert times(await volume.tree(), "f") == 1


@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_file_that_another_client_has_deleted_meanwhile_is_not_written_again(
    exclusive: bool,
) -> None:
    """Nor is a directory created for it."""

    async def delete_new_file(volume: TreeVolume, other: Client) -> None:
        entry = await created(volume)
        await other.store.items.write(Delete(KEYS.of(entry), unchanged(entry)))

    volume, outcome = await relocating(delete_new_file, exclusive=exclusive)
    assert outcome is None
    assert set(await volume.tree()) == {"/a", "/z", "/z/g"}


async def test_a_file_that_another_client_has_moved_meanwhile_stays_there() -> None:
    async def take_out(volume: TreeVolume, other: Client) -> None:
        entry = replace(await created(volume), path=PATH)
        parent = KEYS.directory(await other.need("/z"))
        _, operations, actions = other.store.plan_move(entry, "/z/f", parent, None)
        await other.store.transact(operations, actions)

    volume, outcome = await relocating(take_out)
    assert outcome is None
    assert [path for path in await volume.tree() if path.endswith("/f")] == ["/z/f"]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("change", [remove_parent, delete_parent, rename_parent, delete_ancestor])
async def test_the_new_directory_is_removed_or_renamed_too(change: Work, exclusive: bool) -> None:
    async def again(volume: TreeVolume, other: Client) -> None:
        await change(other)

    volume, outcome = await relocating(again, exclusive=exclusive, created_again=True)
    assert outcome is None
    tree = await volume.tree()
    assert times(tree, "f") == 1
    assert (PATH in tree) == (change is not delete_ancestor)


@pytest.mark.parametrize("directories", [2, 95])
async def test_all_directories_above_the_file_are_removed(directories: int) -> None:
    """They are created again, by the transaction that moves the file if there are at most 90."""
    path = "/a" * directories + "/f"
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    await client.store.make_directory(parents_of(path)[0])
    await other.store.delete_file(await other.need("/a/b/old"))
    await remove_parent(other)

    async def remove_all() -> None:
        for parent in parents_of(path):
            await other.store.remove_directory(await other.need(parent))

    client.faults.gate = once("write", remove_all)
    assert await outcome_of(write(client, path)) is None
    assert set(await volume.tree()) == {path, *parents_of(path), "/z", "/z/g"}
    moves = [call for call in client.faults.calls if call.method == "transact"]
    assert len(moves) == (3 if directories == 2 else 5)


async def test_the_directory_in_which_one_is_created_for_the_file_is_deleted() -> None:
    async def delete(volume: TreeVolume, other: Client) -> None:
        await delete_ancestor(other)

    volume, outcome = await relocating(delete)
    assert outcome is None
    tree = await volume.tree()
    assert tree.keys() >= {PATH, "/a", "/a/b"}
    assert times(tree, "f") == 1


def parents_of(path: str) -> list[str]:
    """The directories above a path, the lowest first."""
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[:count]) for count in range(len(names), 0, -1)]


@pytest.mark.parametrize("early", [False, True])
async def test_a_directory_that_is_restored_has_the_file(early: bool) -> None:
    """`early`: the directory is restored before the trash is read."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    await client.need("/a/b")

    async def restore() -> None:
        (trashed,) = await volume.trashed()
        await other.changes.restore(trashed, "/a/b")

    deleting, restoring = (
        once("write", lambda: delete_parent(other)),
        once("transact", restore),
    )

    async def gate(call: Call) -> None:
        await deleting(call)
        if early:
            await restoring(call)

    client.faults.gate = gate
    entry = await write(client)
    assert any(map(asks_the_trash, client.faults.calls))
    if not early:
        await restore()
    assert entry.version == 2
    assert (await volume.tree())[PATH] == entry.id


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("exclusive", [False, True])
async def test_every_lost_answer_around_a_relocation(when: str, exclusive: bool) -> None:
    """The requests are repeated, so that the file is at its path in any case."""
    number = 0
    while True:
        number += 1
        volume = await volume_of(*EMPTY)
        client, other = volume.client(), volume.client()
        await client.need("/a/b")
        client.faults.calls.clear()
        client.faults.gate = once("write", lambda other=other: remove_parent(other))  # type: ignore[misc]
        client.faults.fail(number, ResponseLostError("lost"), when=when)  # type: ignore[arg-type]
        await write(client, exclusive=exclusive)
        tree = await volume.tree()
        assert times(tree, "f") == 1
        assert PATH in tree
        if len(client.faults.calls) < number:
            assert number > 8
            return


async def test_a_relocation_without_any_answer_is_unknown_and_not_withdrawn() -> None:
    volume = await volume_of(*EMPTY)
    client, other = volume.client(), volume.client()
    await client.need("/a/b")
    client.faults.gate = once("write", lambda: remove_parent(other))

    def moves(call: Call) -> bool:
        writes = [each.key for each in client.faults.calls if each.method == "write"]
        return bool(writes) and call.method == "transact" and call.key == writes[0]

    def reads_back(call: Call) -> bool:
        return any(map(moves, client.faults.calls)) and call.method in {"get", "get_many"}

    client.faults.fail_when(moves, ResponseLostError("lost"), when="after", times=100)
    client.faults.fail_when(reads_back, ResponseLostError("lost"), times=100)
    assert await outcome_of(write(client)) is OutcomeUnknownError
    assert PATH in await volume.tree()


async def test_after_ten_minutes_the_trash_tells_nothing() -> None:
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    await client.need("/a/b")

    async def change() -> None:
        await rename_parent(other)
        volume.clock.advance(CONCLUSIVE_SECONDS)

    client.faults.gate = once("get", change)
    assert await outcome_of(write(client)) is OutcomeUnknownError
    assert "/z/q/f" in await volume.tree()


class Conflicts:
    """A client's transactions of the table, the first of which conflicts: then a file is renamed
    without the check of its new directory. `changes`: changes before other transactions, by
    number."""

    def __init__(
        self, client: Client, changes: Mapping[int, Callable[[], Awaitable[object]]]
    ) -> None:
        self.seen: list[Sequence[Action]] = []
        self._changes = changes
        self._transact = client.store.items.transact

    async def __call__(self, actions: Sequence[Action], token: str) -> None:
        self.seen.append(actions)
        if len(self.seen) == 1:
            raise TransactionConflictError("busy")
        if change := self._changes.get(len(self.seen)):
            await change()
        await self._transact(actions, token)


@pytest.mark.parametrize("change", [remove_parent, delete_parent])
async def test_a_rename_without_the_check_of_its_parent(
    change: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is relocated out of a directory that was removed as empty, and deleted with a
    directory that was deleted."""
    volume = await volume_of(*EMPTY)
    client, other = volume.client(), volume.client()
    source = await client.need("/z/g")
    conflicts = Conflicts(client, {2: lambda: change(other)})
    monkeypatch.setattr(client.store.items, "transact", conflicts)
    moved = await client.store.rename_file(source, PATH)
    assert len(conflicts.seen[1]) == 2
    tree = await volume.tree()
    assert times(tree, "f") == 1
    assert tree.get(PATH) == (moved.id if change is remove_parent else None)
    assert "/z/g" not in tree


@pytest.mark.parametrize("again", [False, True])
async def test_a_rename_is_undone_into_the_current_directory_of_its_source(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target directory was removed as empty, and the path is taken; the source directory is
    removed as well. `again`: it is removed a second time, before the file is moved back."""
    volume = await volume_of(*EMPTY)
    client, other = volume.client(), volume.client()
    source = await client.need("/z/g")

    async def remove_source() -> None:
        await other.store.remove_directory(await other.need("/z"))

    async def take() -> None:
        await write(other)
        await remove_source()
        if again:
            await other.store.make_directory("/z")

    changes = {2: lambda: remove_parent(other), 3: take}
    if again:
        changes[4] = remove_source
    conflicts = Conflicts(client, changes)
    monkeypatch.setattr(client.store.items, "transact", conflicts)
    assert await outcome_of(client.store.rename_file(source, PATH)) is PathExistsError
    tree = await volume.tree()
    assert tree["/z/g"] == source.id
    assert tree[PATH] != source.id
    assert len(await volume.markers()) == (3 if again else 2)
    assert all(truth.pending == () for truth in (await volume.truths()).values())


async def test_a_file_is_moved_into_the_directory_that_is_at_the_path() -> None:
    """Not into one that was there before, and has another one in its place."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()

    async def replace_directory() -> None:
        await rename_parent(other)
        await volume.put("/a/b/")

    client.faults.gate = once("transact", replace_directory)
    await move_in(client)
    tree = await volume.tree()
    assert PATH in tree
    assert "/z/q/f" not in tree


@pytest.mark.parametrize("several", [False, True])
async def test_a_source_and_a_target_that_are_one_file_after_a_rename_are_read_again(
    several: bool,
) -> None:
    """The directory is renamed between the reads of the two paths."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    source = await client.need("/a/b/old")
    if not several:
        client.faults.gate = once("get_many", lambda: rename_parent(other))
        renaming = client.store.rename_file(source, "/z/q/old", overwrite=True)
        assert await outcome_of(renaming) is PathNotFoundError
    else:
        await rename_parent(other)
        get_each = client.store.get_each

        async def of_two_moments(paths: Sequence[str]) -> Sequence[Entry | S3kError | None]:
            found = await get_each(paths)
            return [source if path == "/a/b/old" else found[n] for n, path in enumerate(paths)]

        client.store.get_each = of_two_moments  # type: ignore[assignment, method-assign]
        renames = PairRenames(client.store, overwrite=True, missing_ok=False)
        await renames.rename([RenamePair("/a/b/old", "/z/q/old")])
        assert [type(error) for _, error in renames.done.failures] == [PathNotFoundError]
    assert (await volume.tree())["/z/q/old"] == source.id


# Errors name paths


@pytest.mark.parametrize(
    "work",
    [write, overwrite, delete, move_in, move_out, write_several],
)
async def test_a_transaction_that_does_not_end_is_an_error_about_a_path(work: Work) -> None:
    """Only the key of the obstructing entry is known."""
    volume = await volume_of()
    client, other = volume.client(busy_timeout=1.0), volume.client()
    await client.store.get_many([PATH, "/z/g"])
    async with other.store.transactions.hold("transaction", "") as txn:

        async def put_intents() -> None:
            old, hidden = await other.need("/a/b/old"), volume.entry(PATH, await volume.tree())
            held = WriteIntent(txn.id, replace(old, version=3)).text()
            await other.store.items.write(Update(KEYS.of(old), unchanged(old), set={NEXT: held}))
            hidden = replace(hidden, pending=txn.creation_intent)
            await other.store.items.write(Put(to_item(hidden, KEYS), ABSENT))

        async def gate(call: Call) -> None:
            if call.store == "blobs" and client.faults.gate is not None:
                client.faults.gate = None
                await put_intents()

        client.faults.gate = gate
        with pytest.raises(BusyError) as raised:
            await work(client)
        txn.over = True
    assert raised.value.path in {PATH, "/a/b/old", "/z/g"}


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("damaged", ["/a/b", "/a/b/old"])
async def test_a_damaged_item_is_an_error_about_its_path(damaged: str, warm: bool) -> None:
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    entry = await other.need(damaged)
    if warm:
        await client.need("/a/b/old")
    damage = Update(KEYS.of(entry), unchanged(entry), set={"ver": "none"})
    await other.store.items.write(damage)
    with pytest.raises(ItemFormatError) as raised:
        await client.store.get("/a/b/old")
    assert raised.value.path == damaged


# Confirmation before a late write


LATE = CONFIRMED_SECONDS + 1


@pytest.mark.parametrize("work", [write, write_exclusively, overwrite, write_several, move_in])
async def test_a_late_write_is_not_made_in_a_directory_that_was_renamed_before(work: Work) -> None:
    """The log answers late, and the path leads elsewhere by then: the call begins again."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    await client.store.get_many([PATH, "/z/g"])
    changed = False

    async def gate(call: Call) -> None:
        nonlocal changed
        if call.store == "blobs" and not changed:
            changed = True
            await other.rename("/a", "/q")
            await volume.put("/a/", "/a/b/")
            volume.clock.advance(LATE)

    client.faults.gate = gate
    assert await outcome_of(work(client)) is None
    assert changed
    tree = await volume.tree()
    assert set(tree) >= {"/a/b", "/q/b"}
    assert "/q/b/f" not in tree
    assert (await other.need("/q/b/old")).version == 2


async def test_files_of_lists_are_not_changed_late_in_directories_that_were_renamed() -> None:
    for verb in ("delete", "rename"):
        volume = await volume_of()
        client, other = volume.client(), volume.client()
        since = client.store.runtime.monotonic()
        entry = await client.need("/a/b/old")

        async def gate(call: Call, other: Client = other, volume: TreeVolume = volume) -> None:
            if call.store == "blobs" and await other.store.get("/q") is None:
                await other.rename("/a", "/q")
                volume.clock.advance(LATE)

        client.faults.gate = gate
        if verb == "delete":
            done = await delete_files(client.store, in_columns([entry], KEYS), since=since)
            assert [type(error) for _, error in done.failures] == [ConflictError]
        else:
            renames = PairRenames(client.store, overwrite=False, missing_ok=False)
            await renames.rename([RenamePair("/a/b/old", "/z/f")])
            assert [type(error) for _, error in renames.done.failures] == [PathNotFoundError]
        assert "/q/b/old" in await volume.tree()


async def test_a_directory_is_not_made_late_below_one_that_was_renamed() -> None:
    volume = await volume_of()
    client, other = volume.client(busy_timeout=60.0), volume.client()
    await client.need("/a/b")

    async def gate(call: Call) -> None:
        if call.store == "blobs" and await other.store.get("/q") is None:
            await other.rename("/a", "/q")
            volume.clock.advance(LATE)

    client.faults.gate = gate
    await client.store.make_directory("/a/b/new")
    tree = await volume.tree()
    assert "/a/b/new" in tree
    assert "/q/b/new" not in tree


# Requests


async def test_concurrent_creations_share_the_look_at_their_directory() -> None:
    volume = await volume_of()
    client = volume.client()
    await client.need("/a/b")
    client.requests()
    await asyncio.gather(*(write(client, f"/a/b/{number}") for number in range(20)))
    assert client.requests().count("get") < 20


READ, WRITE, LOOK, COMMIT = "get_many", "write", "get", "transact"


async def write_100(client: Client) -> None:
    prepared = await prepare_many(client.store, [f"/a/b/{number}" for number in range(100)])
    files = [
        (target, content_of(client, target))
        for target in prepared.values()
        if isinstance(target, WriteTarget)
    ]
    assert len(files) == 100
    await publish_many(client.store, files, overwrite=True)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(
    ("work", "requests"),
    [
        (lambda client: client.store.get(PATH), [READ]),
        (write, [READ, WRITE, LOOK]),
        (write_exclusively, [READ, WRITE, LOOK]),
        (overwrite, [READ, WRITE]),
        (open_and_close, [READ, WRITE, LOOK, READ, WRITE]),
        (write_100, [READ, READ, COMMIT, LOOK]),
        (delete, [READ, COMMIT]),
        (move_out, [READ, READ, COMMIT]),
        (lambda client: client.store.make_directory("/a/b/c/d"), [LOOK, READ, COMMIT]),
    ],
    ids=[
        "stat",
        "write a new file",
        "write exclusively",
        "write over a file",
        "open and close",
        "write 100 files",
        "delete",
        "rename",
        "makedirs",
    ],
)
async def test_requests(work: Work, requests: list[str], cold: bool) -> None:
    """A cold client reads each directory once, level by level."""
    volume = await volume_of()
    client = volume.client()
    if not cold:
        await client.store.get_many([PATH, "/z/g"])
    client.requests()
    await work(client)
    made = client.requests()
    if not cold:
        assert made == requests
        return
    levels = 3 if work is move_out else 2
    missing = made.count(LOOK) - requests.count(LOOK)
    assert missing <= levels + (work is not write)
    assert [method for method in made if method != LOOK] == [
        method for method in requests if method != LOOK
    ]


@everywhere
async def test_files_on_every_engine(table: TableStore) -> None:
    volume = await TreeVolume(fresh_name("files"), table, real_time=True).start(*EMPTY)
    client, other = volume.client(), volume.client()
    await client.need("/a/b")
    client.faults.gate = once("write", lambda: remove_parent(other))
    relocated = await write(client)
    client.faults.gate = once("write", lambda: rename_parent(other))
    await write(client, "/a/b/went-along")
    client.faults.gate = once("write", lambda: delete_parent(other))
    await write(client, "/a/b/deleted")
    client.faults.gate = None
    assert (await other.need("/z/q/f")).id == relocated.id
    await other.need("/z/q/went-along")
    tree = await volume.tree()
    assert times(tree, "deleted") == 1
    assert "/a/b" not in tree
    for work in (write_several, write, open_and_close, overwrite, move_out, overwrite, delete):
        await work(client)
    assert {"/a/b/f", "/a/b/g", "/z/f"} <= set(await volume.tree())
    assert all(truth.pending == () for truth in (await volume.truths()).values())
