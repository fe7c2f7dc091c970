"""Renames, deletions and restorations of directories in layout `tree`: one transaction each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from s3k_async.backends.ports.interception import TableStore
from s3k_async.backends.ports.items import (
    ABSENT,
    OPERATION,
    Check,
    Condition,
    Delete,
    Put,
    Update,
)
from s3k_async.errors import (
    BusyError,
    ConflictError,
    DirectoryNotEmptyError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    ReadOnlyVolumeError,
    RenameIntoSelfError,
    ResponseLostError,
    S3kError,
    UnsupportedError,
)
from s3k_async.model import ChangeResult, Entry, Progress
from s3k_async.table.codec import NEXT, to_item
from s3k_async.table.keys import ROOT_KEY
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.txn_record import LEASE_SECONDS
from tests.engines.volumes import fresh_name
from tests.layouts.trees import KEYS, Client, TreeVolume, everywhere

GROWN = ("/a/", "/a/b/", "/a/b/c/", "/a/b/c/f", "/a/b/r?", "/a/g", "/z/", "/z/y/", "/z/h", "/top/")
Verb = Callable[[Client], Awaitable[object]]


async def volume_of(*paths: str) -> TreeVolume:
    return await TreeVolume(fresh_name("changes")).start(*(paths or GROWN))


def written(client: Client) -> int:
    """The calls that write to the table."""
    return sum(call.method in {"write", "transact"} for call in client.faults.calls)


# Renames


@everywhere
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("/a/b", "/a/q"),
        ("/a/b", "/z/y/q"),
        ("/a/b", "/b"),
        ("/a", "/q"),
        ("/a", "/z/a"),
        ("/top", "/a/b/c/top"),
        ("/a/b/c", "/a/c"),
    ],
)
async def test_a_rename_takes_everything_below_along(
    table: TableStore, source: str, target: str
) -> None:
    volume = await TreeVolume(fresh_name("changes"), table, real_time=True).start(*GROWN)
    client = volume.client()
    before, entry = await volume.tree(), await client.need(source)
    assert await client.rename(source, target) == ChangeResult(directories=1)
    assert await volume.tree() == {
        target + path.removeprefix(source) if (path + "/").startswith(source + "/") else path: each
        for path, each in before.items()
    }
    moved = await client.need(target)
    assert moved == replace(
        entry,
        path=target,
        version=entry.version + 1,
        directory=moved.directory,
        operation=moved.operation,
    )
    truth = (await volume.truths())[entry.id]
    assert truth.pending == ()
    assert truth.committed is not None
    operation = truth.committed.operation
    assert (operation.kind, operation.id) == ("rename", moved.operation)
    assert operation.before is not None
    assert operation.after is not None
    assert (operation.before.path, operation.after.path) == (source, target)


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("/a/b", "/nothing/b", PathNotFoundError),
        ("/a/b", "/z/nothing/b", PathNotFoundError),
        ("/a/b", "/z/h/b", NotDirectoryError),
        ("/a/b", "/z/h/deeper/b", NotDirectoryError),
        ("/a/b", "/z/y", PathExistsError),
        ("/a/b", "/z/h", PathExistsError),
        ("/z/y", "/a/b/r", PathExistsError),
        ("/a/b", "/a", PathExistsError),
        ("/a/b", "/", PathExistsError),
        ("/a/b", "/a/b", RenameIntoSelfError),
        ("/a/b", "/a/b/c/q", RenameIntoSelfError),
        ("/", "/q", RenameIntoSelfError),
        ("/a/x", "/q", PathNotFoundError),
        ("/x/x", "/q", PathNotFoundError),
        ("/z/h/x", "/q", PathNotFoundError),
        ("/z/h", "/q", NotDirectoryError),
    ],
)
async def test_a_refused_rename_writes_nothing(
    source: str, target: str, error: type[S3kError]
) -> None:
    volume = await volume_of()
    client, before = volume.client(), await volume.stored()
    with pytest.raises(error):
        await client.rename(source, target)
    assert written(client) == 0
    assert [call for call in client.faults.calls if call.store == "blobs"] == []
    assert await volume.stored() == before


async def test_a_volume_that_is_open_for_reading_is_not_changed() -> None:
    client = (await volume_of()).client()
    client.store.read_only = True
    for call in (client.rename("/a/b", "/q"), client.delete("/a/b")):
        with pytest.raises(ReadOnlyVolumeError):
            await call
    assert written(client) == 0


async def test_a_damaged_tree_gets_no_cycle() -> None:
    """A directory that has two items is not moved below itself by the other path."""
    volume = await volume_of("/a/", "/a/b/", "/z/")
    client = volume.client()
    double = replace(await client.need("/a"), path="/z/a", directory=(await client.need("/z")).id)
    await client.store.items.write(Put(to_item(double, KEYS), ABSENT))
    before = await volume.stored()
    client.faults.calls.clear()
    with pytest.raises(BusyError):
        await client.rename("/a", "/z/a/b/q")
    assert written(client) == 0
    assert await volume.stored() == before


def deep(levels: int) -> list[str]:
    return ["/d" * level + "/" for level in range(1, levels + 1)]


async def test_a_directory_below_98_others_can_be_moved_and_no_deeper_one() -> None:
    volume = await volume_of(*deep(100))
    client = volume.client()
    assert await client.rename("/d" * 99, "/d" * 98 + "/q") == ChangeResult(directories=1)
    assert [len(actions) for actions in client.items.transactions] == [100]
    client.faults.calls.clear()
    deepest = "/d" * 98 + "/q/d"
    for change in (
        client.rename(deepest, "/d" * 98 + "/q/x"),
        client.rename(deepest, "/x"),
        client.delete(deepest),
    ):
        with pytest.raises(UnsupportedError, match="move one of them first"):
            await change
        assert written(client) == 0
    assert [call for call in client.faults.calls if call.store == "blobs"] == []


@pytest.mark.parametrize(
    ("source", "target", "updated", "checked"),
    [
        ("/a/b", "/a/q", ["a"], []),
        ("/a/b", "/z/y/q", ["a", "y"], ["z"]),
        ("/a/b/c", "/a/b/q", ["b"], ["a"]),
        ("/a/b/c", "/a/q", ["b", "a"], []),
        ("/a/b/c", "/z/y/q", ["b", "y"], ["a", "z"]),
        ("/a/b", "/q", ["a", "root"], []),
        ("/a", "/q", ["root"], []),
        ("/top", "/z/y/q", ["root", "y"], ["z"]),
    ],
)
async def test_the_actions_of_a_rename(
    source: str, target: str, updated: list[str], checked: list[str]
) -> None:
    """Two of the directory, an Update of each parent, a Check of each other ancestor."""
    volume = await volume_of()
    client = volume.client()
    entry = await client.need(source)
    await client.rename(source, target)
    (actions,) = client.items.transactions
    assert [type(action) for action in actions] == [
        Delete,
        Put,
        *(Update for _ in updated),
        *(Check for _ in checked),
    ]
    assert [action.key.sort for action in actions[2:]] == updated + checked
    deleted, put = actions[:2]
    assert deleted == Delete(
        KEYS.of(entry),
        Condition(equals={"id": entry.id, "ver": entry.version}, missing=(NEXT,)),
    )
    assert isinstance(put, Put)
    assert put.when == ABSENT
    assert put.item["ver"] == entry.version + 1
    stamps = set()
    for action in actions[2:]:
        if action.key != ROOT_KEY:
            assert action.when.equals.keys() == {"isdir", "id"}
            assert action.when.missing == (NEXT,)
        if isinstance(action, Update):
            stamps.add(action.set[OPERATION])
    assert len(stamps) == 1


@pytest.mark.parametrize("files", [1, 1000])
async def test_the_requests_of_a_rename_depend_on_the_chains_and_not_on_what_is_below(
    files: int,
) -> None:
    below = [f"/a/b/c/f{number}" for number in range(files)]
    volume = await volume_of("/a/", "/a/b/", "/a/b/c/", *below, "/z/", "/z/y/")
    client = volume.client()
    await client.rename("/a/b/c", "/z/y/c")
    # cold: level by level, then both chains in one batch
    assert client.requests() == ["get_many", "get_many", "get_many", "transact"]
    await client.rename("/z/y/c", "/a/b/c")
    assert client.requests() == ["get_many", "transact"]
    await client.rename("/a/b/c", "/a/b/d")
    assert client.requests() == ["get_many", "transact"]
    await client.delete("/a/b/d")
    assert client.requests() == ["get_many", "transact"]
    (trashed,) = await volume.trashed()
    await client.changes.restore(trashed, "/z/y/e")
    assert client.requests() == ["get_many", "transact"]
    assert [4 + 2 * (len(each) - 2) for each in client.items.transactions] == [12, 12, 8, 8, 8]


async def test_the_first_change_in_the_root_creates_its_record() -> None:
    volume = await volume_of()
    client = volume.client()
    await client.rename("/top", "/q")
    made = client.requests()
    assert made == ["get_many", "write", "write", "transact"]
    await client.rename("/q", "/top")
    assert client.requests() == ["get_many", "transact"]
    other = volume.client()
    await other.rename("/top", "/q")
    assert other.requests() == ["get_many", "write", "transact"]


async def test_a_lost_record_of_the_root_is_created_again() -> None:
    volume = await volume_of()
    client = volume.client()
    await client.rename("/top", "/q")
    await client.store.items.write(Delete(ROOT_KEY, Condition()))
    assert await client.rename("/q", "/top") == ChangeResult(directories=1)


async def test_a_rename_reports_one_directory() -> None:
    client = (await volume_of()).client()
    seen: list[Progress] = []
    await client.layout.rename_directory(await client.need("/a/b"), "/q", progress=seen.append)
    await client.layout.delete_directory(await client.need("/q"), progress=seen.append)
    assert seen == [Progress("rename", 1, path="/a/b"), Progress("delete", 1, path="/q")]


async def test_a_stale_cache_costs_a_read_and_decides_nothing() -> None:
    volume = await volume_of()
    stale, other = volume.client(), volume.client()
    assert (await stale.need("/a/b/c")).is_dir
    await other.rename("/a", "/moved")
    await volume.put("/a/", "/a/b/", "/a/b/c/")
    new = await other.need("/a/b/c")
    await stale.rename("/a/b/c", "/z/c")
    assert (await other.need("/z/c")).id == new.id
    assert (await other.need("/moved/b/c")).id != new.id


@pytest.mark.parametrize("held", ["/a", "/a/b", "/z", "/z/y"])
async def test_an_intent_of_a_dead_client_is_removed(held: str) -> None:
    volume = await volume_of()
    await volume.hold(held)
    volume.clock.advance(3600.0)
    client = volume.client()
    assert await client.rename("/a/b", "/z/y/b") == ChangeResult(directories=1)
    assert [entry.path for entry in await volume.stored() if entry.pending] == []


@pytest.mark.parametrize("held", ["/a", "/a/b", "/z", "/z/y"])
@pytest.mark.parametrize("known", [True, False])
async def test_a_change_waits_for_the_transaction_of_another_client(
    held: str, *, known: bool
) -> None:
    """Until its lease has run out. `known`: the intent is there before the chains are read, or else
    the transaction finds it."""
    volume = await volume_of()
    client = volume.client(busy_timeout=60.0)
    is_held = False

    async def hold_first(call: Call) -> None:
        nonlocal is_held
        if call.method == "transact" and not is_held:
            is_held = True
            await volume.hold(held)

    if known:
        await volume.hold(held)
    else:
        client.faults.gate = hold_first
    began = volume.clock.seconds
    assert await client.rename("/a/b", "/z/y/b") == ChangeResult(directories=1)
    assert volume.clock.seconds - began >= LEASE_SECONDS
    assert [entry.path for entry in await volume.stored() if entry.pending] == []


async def test_an_entry_with_an_intent_at_the_target_may_be_about_to_go() -> None:
    volume = await volume_of()
    txn = await volume.hold("/top")
    remover = volume.client()

    async def remove(call: Call) -> None:
        held = await remover.store.get("/top")
        if call.key == f"s3k:job/{txn}" and held is not None:
            when = Condition(equals={NEXT: held.pending})
            await remover.store.items.write(Delete(KEYS.of(held), when))

    client = volume.client(FaultPlan(remove))
    assert await client.rename("/a/b", "/top") == ChangeResult(directories=1)


async def test_an_entry_with_an_intent_at_the_target_that_stays_is_there() -> None:
    volume = await volume_of()
    await volume.hold("/top")
    with pytest.raises(PathExistsError):
        await volume.client(busy_timeout=60.0).rename("/a/b", "/top")


@pytest.mark.parametrize("verb", ["rename", "delete"])
async def test_a_directory_that_is_moved_away_and_back_meanwhile_has_the_next_version(
    verb: str,
) -> None:
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    entry = await client.need("/a/b")
    moved = False

    async def move_away_and_back(call: Call) -> None:
        nonlocal moved
        if call.method == "transact" and not moved:
            moved = True
            await other.rename("/a/b", "/q")
            await other.rename("/q", "/a/b")

    client.faults.gate = move_away_and_back
    await (client.rename("/a/b", "/z/b") if verb == "rename" else client.delete("/a/b"))
    (stored,) = [each for each in await volume.stored() if each.id == entry.id]
    assert stored.version == entry.version + 3
    assert all(not truth.conflict for truth in (await volume.truths()).values())


# Deletions


@everywhere
@pytest.mark.parametrize("path", ["/a", "/a/b", "/a/b/c", "/top"])
async def test_a_deleted_directory_is_in_the_trash_with_everything_below(
    table: TableStore, path: str
) -> None:
    volume = await TreeVolume(fresh_name("changes"), table, real_time=True).start(*GROWN)
    client = volume.client()
    before, entry, began = await volume.tree(), await client.need(path), volume.runtime.now_ms()
    assert await client.delete(path) == ChangeResult(directories=1)
    place = f"/.trash/{entry.id}"
    assert await volume.tree() == {
        place + each.removeprefix(path) if (each + "/").startswith(path + "/") else each: object_id
        for each, object_id in before.items()
    }
    (trashed,) = await volume.trashed()
    assert (trashed.why, trashed.was, trashed.origin) == ("deleted", path, entry.directory)
    assert (trashed.state, trashed.since_ms) == ("", 0)
    assert began <= trashed.when_ms <= volume.runtime.now_ms()
    assert trashed.entry.version == entry.version + 1
    truth = (await volume.truths())[entry.id]
    assert truth.committed is not None
    operation = truth.committed.operation
    assert (operation.kind, operation.id) == ("rename", trashed.entry.operation)
    assert operation.after is not None
    assert operation.after.path == place
    with pytest.raises(PathNotFoundError):
        await client.layout.delete_directory(entry)


async def test_only_the_expected_directory_is_deleted() -> None:
    volume = await volume_of()
    client = volume.client()
    old = await client.need("/a/b")
    await client.rename("/a/b", "/q")
    with pytest.raises(PathNotFoundError):
        await client.layout.delete_directory(old)
    await volume.put("/a/b/")
    for each in (client, volume.client()):
        with pytest.raises(ConflictError):
            await each.layout.delete_directory(old)
    assert await volume.trashed() == []


async def test_a_directory_that_was_moved_away_and_back_is_deleted() -> None:
    volume = await volume_of()
    client = volume.client()
    old = await client.need("/a/b")
    await client.rename("/a/b", "/q")
    await client.rename("/q", "/a/b")
    await client.layout.delete_directory(old)
    (trashed,) = await volume.trashed()
    assert trashed.entry.version == old.version + 3


async def test_a_file_is_not_moved_into_the_trash() -> None:
    volume = await volume_of()
    client = volume.client()
    with pytest.raises(NotDirectoryError):
        await client.layout.delete_directory(await client.need("/a/g"))
    assert written(client) == 0


async def test_a_deletion_by_a_stale_cache_is_refused_and_decided_again() -> None:
    volume = await volume_of()
    stale, other = volume.client(), volume.client()
    entry = await stale.need("/a/b")
    await other.rename("/a", "/moved")
    with pytest.raises(PathNotFoundError):
        await stale.layout.delete_directory(entry)
    assert await volume.trashed() == []


# Restorations


@everywhere
@pytest.mark.parametrize("target", ["/a/b", "/z/y/new", "/new"])
async def test_a_restored_directory_has_everything_below(table: TableStore, target: str) -> None:
    volume = await TreeVolume(fresh_name("changes"), table, real_time=True).start(*GROWN)
    client = volume.client()
    before, entry = await volume.tree(), await client.need("/a/b")
    await client.delete("/a/b")
    (trashed,) = await volume.trashed()
    restored = await client.changes.restore(trashed, target)
    assert (restored.path, restored.id) == (target, entry.id)
    assert restored.version == entry.version + 2
    assert await client.need(target) == restored
    assert await volume.trashed() == []
    assert await volume.tree() == {
        target + path.removeprefix("/a/b") if (path + "/").startswith("/a/b/") else path: object_id
        for path, object_id in before.items()
    }
    stored = {entry.id: entry for entry in await volume.stored()}
    assert stored[entry.id].operation == restored.operation
    item = await client.store.items.get(KEYS.of(restored))
    assert item == to_item(restored, KEYS)
    with pytest.raises(PathNotFoundError):
        await client.changes.restore(trashed, "/other")


async def test_a_restoration_creates_the_missing_parents() -> None:
    volume = await volume_of()
    client = volume.client()
    entry = await client.need("/a/b")
    await client.delete("/a/b")
    await client.delete("/a")
    trashed = next(each for each in await volume.trashed() if each.was == "/a/b")
    restored = await client.changes.restore(trashed, trashed.was)
    assert await client.need("/a/b") == restored
    assert restored.id == entry.id
    assert (await client.need("/a/b/c/f")).committed


@pytest.mark.parametrize(
    ("target", "error"),
    [("/z/y", PathExistsError), ("/z/h", PathExistsError), ("/z/h/x", NotDirectoryError)],
)
async def test_a_refused_restoration_writes_nothing(target: str, error: type[S3kError]) -> None:
    volume = await volume_of()
    client = volume.client()
    await client.delete("/a/b")
    before, (trashed,) = await volume.stored(), await volume.trashed()
    client.faults.calls.clear()
    with pytest.raises(error):
        await client.changes.restore(trashed, target)
    assert written(client) == 0
    assert await volume.stored() == before


async def test_what_is_being_reclaimed_or_was_removed_as_empty_is_not_restored() -> None:
    volume = await volume_of()
    client = volume.client()
    await client.delete("/a")
    (listed,) = await volume.trashed()
    key = listed.key(listed.entry.id, KEYS)
    await client.store.items.write(Update(key, Condition(), set={"state": "reclaiming"}))
    with pytest.raises(PathNotFoundError):
        await client.changes.restore(listed, "/a")
    await client.store.remove_directory(await client.need("/top"))
    marker = next(each for each in await volume.trashed() if each.why == "empty")
    with pytest.raises(PathNotFoundError):
        await client.changes.restore(marker, "/top")
    assert await client.store.get("/a") is None
    assert await client.store.get("/top") is None


# Removals of empty directories


@everywhere
async def test_the_removal_of_an_empty_directory_leaves_a_marker(table: TableStore) -> None:
    volume = await TreeVolume(fresh_name("changes"), table, real_time=True).start(*GROWN)
    client = volume.client()
    entry, before = await client.need("/z/y"), await volume.tree()
    client.requests()
    await client.store.remove_directory(entry)
    assert client.requests() == [
        *("query", "query", "write", "write"),
        *("query", "query", "transact", "transact"),
    ]
    assert await volume.tree() == {path: each for path, each in before.items() if path != "/z/y"}
    (marker,) = await volume.trashed()
    assert (marker.why, marker.was, marker.entry.id) == ("empty", "/z/y", entry.id)
    assert marker.entry.pending == ""
    truth = (await volume.truths())[entry.id]
    assert truth.pending == ()
    assert truth.committed is not None
    assert truth.committed.operation.kind == "delete"
    assert truth.committed.operation.id == marker.entry.operation
    actions = client.items.transactions[0]
    assert [type(action) for action in actions] == [Delete, Put, Update]


async def test_the_removal_of_an_empty_directory_requires_the_directories_above() -> None:
    volume = await volume_of("/a/", "/a/b/", "/a/b/c/", "/a/b/c/d/")
    client = volume.client()
    await client.store.remove_directory(await client.need("/a/b/c/d"))
    actions = client.items.transactions[0]
    assert [(type(action), action.key.sort) for action in actions[2:]] == [
        (Update, "c"),
        (Check, "a"),
        (Check, "b"),
    ]


@pytest.mark.parametrize("path", ["/z", "/a/b"])
async def test_a_directory_with_entries_is_not_removed_as_empty(path: str) -> None:
    volume = await volume_of()
    client = volume.client()
    with pytest.raises(DirectoryNotEmptyError):
        await client.store.remove_directory(await client.need(path))
    assert written(client) == 0


async def test_an_entry_created_during_the_removal_keeps_the_directory() -> None:
    """At each request of the removal a file is put into the directory: it is refused, or the file
    came after the last look and the marker tells its creator."""
    outcomes = set()
    for number in range(1, 9):
        volume = await volume_of("/z/", "/z/y/")
        client = volume.client()
        entry = await client.need("/z/y")
        client.faults.calls.clear()
        placed = volume.entry("/z/y/f", await volume.tree())

        def made(plan: FaultPlan = client.faults) -> int:
            return sum(each.store == "items" for each in plan.calls)

        async def create(
            call: Call, number: int = number, placed: Entry = placed, volume: TreeVolume = volume
        ) -> None:
            if call.store == "items" and made() == number:
                await volume.client().store.items.write(Put(to_item(placed, KEYS), ABSENT))

        client.faults.gate = create
        try:
            await client.store.remove_directory(entry)
        except DirectoryNotEmptyError:
            outcomes.add("refused")
            found = await client.need("/z/y/f")
            assert found.id == placed.id
            assert await volume.trashed() == []
            assert not (await client.need("/z/y")).pending
        else:
            outcomes.add("removed")
            (marker,) = await volume.trashed()
            assert (marker.why, marker.entry.id) == ("empty", entry.id)
    assert outcomes == {"refused", "removed"}


@pytest.mark.parametrize("moved", ["/a", "/a/b", "/a/b/c"])
async def test_a_rename_of_a_directory_during_its_removal_makes_it_a_conflict(moved: str) -> None:
    volume = await volume_of("/a/", "/a/b/", "/a/b/c/")
    client, other = volume.client(), volume.client()
    entry = await client.need("/a/b/c")
    renamed = False

    async def rename(call: Call) -> None:
        nonlocal renamed
        if call.method == "query" and not renamed:
            renamed = True
            await other.rename(moved, "/moved")

    client.faults.gate = rename
    with pytest.raises((ConflictError, PathNotFoundError)):
        await client.store.remove_directory(entry)
    assert renamed
    tree = await volume.tree()
    assert entry.id in tree.values()
    assert [each.path for each in await volume.stored() if each.pending] == []


# Lost answers and deaths


async def _delete(client: Client) -> object:
    return await client.delete("/a/b")


async def _restore(client: Client) -> object:
    (trashed,) = await client.volume.trashed()
    return await client.changes.restore(trashed, "/z/new")


async def _remove(client: Client) -> object:
    await client.store.remove_directory(await client.need("/z/y"))
    return None


VERBS: dict[str, tuple[Sequence[Verb], Verb, str]] = {
    "rename": ((), lambda client: client.rename("/a/b", "/z/b"), "/a/b"),
    "rename into the root": ((), lambda client: client.rename("/a/b", "/b"), "/a/b"),
    "delete": ((), _delete, "/a/b"),
    "delete in the root": ((), lambda client: client.delete("/a"), "/a"),
    "restore": ((_delete,), _restore, "/a/b"),
    "remove": ((), _remove, "/z/y"),
}
"""What happens before, the change itself, and the directory that it changes."""
verbs = pytest.mark.parametrize("name", VERBS)


async def prepared(name: str, plan: FaultPlan) -> tuple[TreeVolume, Client]:
    """A volume and a client that is about to call the verb."""
    volume = await volume_of()
    for each in VERBS[name][0]:
        await each(volume.client())
    return volume, volume.client(plan)


async def calls_of(name: str) -> int:
    volume, client = await prepared(name, FaultPlan())
    await VERBS[name][1](client)
    await volume.truths()
    return len(client.faults.calls)


async def states_of(name: str) -> tuple[object, object]:
    """The tree before and after the verb."""
    volume, client = await prepared(name, FaultPlan())
    before = await volume.tree()
    await VERBS[name][1](client)
    return before, await volume.tree()


@verbs
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_answer_is_resolved(name: str, when: str) -> None:
    old, new = await states_of(name)
    for number in range(1, await calls_of(name) + 1):
        plan = FaultPlan()
        plan.fail(number, ResponseLostError("lost"), when="after" if when == "after" else "before")
        volume, client = await prepared(name, plan)
        await VERBS[name][1](client)
        assert await volume.tree() == new != old
        assert all(truth.pending == () for truth in (await volume.truths()).values())


@verbs
async def test_no_answer_to_a_transaction_leaves_it_pending_in_the_log(name: str) -> None:
    """All responses are lost, and the items cannot be read back."""
    states = await states_of(name)
    outcomes = set()
    for applied in (False, True):
        plan = FaultPlan()
        volume, client = await prepared(name, plan)
        armed = False

        async def arm(call: Call, plan: FaultPlan = plan, *, applied: bool = applied) -> None:
            nonlocal armed
            if call.method == "transact" and not armed:
                armed = True
                plan.fail_when(
                    lambda each: each.store == "items",
                    ResponseLostError("lost"),
                    when="after" if applied else "before",
                    times=1000,
                )

        plan.gate = arm
        with pytest.raises(OutcomeUnknownError):
            await VERBS[name][1](client)
        tree = await volume.tree()
        assert tree in states
        outcomes.add(states.index(tree))
        truths = await volume.truths()
        assert [len(truth.pending) for truth in truths.values() if truth.pending] == [1]
    assert outcomes == {0, 1}


def after(number: int) -> Callable[[Call], bool]:
    return lambda call: call.number > number


async def require_logged(volume: TreeVolume, was: str) -> None:
    """The last change of the directory that was at a path in the beginning is in the log."""
    object_id = (await (await volume_of()).tree())[was]  # every volume has the same ids
    (subject,) = [each for each in await volume.stored() if each.id == object_id]
    truth = (await volume.truths())[subject.id]
    logged = [record.operation.id for record in truth.pending]
    if truth.committed is not None:
        logged.append(truth.committed.operation.id)
    assert subject.operation in logged


@verbs
async def test_after_a_death_the_tree_is_old_or_new(name: str) -> None:
    """And another client makes the change, if it is not made."""
    states = await states_of(name)
    seen = set()
    for number in range(1, await calls_of(name) + 1):
        for when in ("before", "after"):
            plan = FaultPlan()
            plan.die(number, when="before" if when == "before" else "after")
            plan.fail_when(after(number), Died("is dead"), times=1000)
            volume, client = await prepared(name, plan)
            died = False
            try:
                await VERBS[name][1](client)
            except Died:
                died = True
            tree = await volume.tree()
            assert tree in states
            assert died or tree == states[1]
            seen.add(states.index(tree))
            if tree == states[0]:
                volume.clock.advance(3600.0)
                await VERBS[name][1](volume.client())
                assert await volume.tree() == states[1]
            else:
                await require_logged(volume, VERBS[name][2])
    assert seen == {0, 1}
