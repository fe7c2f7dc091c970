"""Reclamation of directories in the trash: what it deletes and when, and that it deletes nothing
live, concurrently with undeletes, late creations, transactions and other reclaimers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace

import pytest

from s3k_async.backends.ports.interception import TableStore
from s3k_async.backends.ports.items import ABSENT, Condition, Put, Update
from s3k_async.errors import (
    BusyError,
    ItemFormatError,
    PathNotFoundError,
    ReadOnlyVolumeError,
    ResponseLostError,
    ServiceError,
)
from s3k_async.layouts.tree.trash_items import SETTLE_MS
from s3k_async.layouts.tree.tree_parents import CONCLUSIVE_SECONDS
from s3k_async.model import ChangeResult, Content, Entry, Progress, TrashItem
from s3k_async.namespace.layout import TrashStore
from s3k_async.table.codec import NEXT, to_item
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.txn_record import LEASE_SECONDS
from tests.engines.volumes import fresh_name
from tests.layouts.interleavings import Interleaving, interleavings
from tests.layouts.trees import KEYS, Client, Tree, TreeVolume, everywhere
from tests.level import calls_to_try

GROWN = (
    *("/a/", "/a/b/", "/a/b/c/", "/a/b/c/f", "/a/b/r?", "/a/g", "/a/empty/"),
    *("/z/", "/z/y/", "/z/h"),
)
BELOW = ("/a/b/c/f", "/a/b/r", "/a/g")
DAY = 86_400_000


async def volume_of(*paths: str) -> TreeVolume:
    return await TreeVolume(fresh_name("reclaimed")).start(*(paths or GROWN))


async def deleted(*paths: str) -> tuple[TreeVolume, Client]:
    """A volume, and a client of it that has deleted `/a`."""
    volume = await volume_of(*paths)
    client = volume.client()
    await client.delete("/a")
    return volume, client


async def collect(client: Client, *, retention_ms: int = 0) -> ChangeResult:
    """Collect as garbage collection does; the clock of the data store is that of the volume."""
    return await collect_at(client, client.volume.runtime.now_ms(), retention_ms=retention_ms)


async def collect_at(client: Client, now_ms: int, *, retention_ms: int = 0) -> ChangeResult:
    async def clock() -> int:
        return now_ms

    return await client.layout.trash().collect(clock, retention_ms=retention_ms)


def settle(volume: TreeVolume) -> None:
    volume.clock.advance(SETTLE_MS / 1000)


async def only(trash: TrashStore) -> TrashItem:
    (item,) = await trash.items()
    return item


async def require_logged(volume: TreeVolume, before: Collection[Entry]) -> None:
    """The log has the deletion of every object that no longer exists, committed unless a client
    died."""
    left = {entry.id for entry in await volume.stored()}
    truths = await volume.truths()
    for entry in before:
        if entry.id not in left:
            truth = truths[entry.id]
            last = [record.operation for record in truth.pending]
            last += [truth.committed.operation] if truth.committed is not None else []
            assert "delete" in {operation.kind for operation in last}, entry


async def require_committed(volume: TreeVolume, before: Collection[Entry]) -> None:
    """The log has a committed deletion of every object that no longer exists, and of no other.
    Removal markers are not objects."""
    left = {entry.id for entry in await volume.stored()}
    left -= {entry.id for entry in await volume.markers()}
    truths = await volume.truths()
    assert all(truth.pending == () for truth in truths.values())
    gone = {
        object_id
        for object_id, truth in truths.items()
        if truth.committed is not None and truth.committed.operation.kind == "delete"
    }
    assert gone == {entry.id for entry in before} - left


# The two phases


@everywhere
async def test_files_are_deleted_first_and_directories_after_the_settle_time(
    table: TableStore,
) -> None:
    volume = await TreeVolume(fresh_name("reclaimed"), table, real_time=True).start(*GROWN)
    client, before = volume.client(), await volume.stored()
    top = await client.need("/a")
    await client.delete("/a")
    now = volume.runtime.now_ms()
    assert await collect_at(client, now) == ChangeResult(2 + 1, 4, 6)
    place = f"/.trash/{top.id}"
    assert set(await volume.tree()) == {
        *("/z", "/z/y", "/z/h"),
        *(place, f"{place}/b", f"{place}/b/c", f"{place}/empty"),
    }
    (trashed,) = await volume.trashed()
    assert (trashed.state, trashed.since_ms) == ("reclaiming", now)
    await require_committed(volume, before)
    assert await collect_at(client, now + SETTLE_MS) == ChangeResult(0, 4, 0)
    assert set(await volume.tree()) == {"/z", "/z/y", "/z/h"}
    assert await volume.trashed() == []
    await require_committed(volume, before)
    assert await collect_at(client, now + SETTLE_MS) == ChangeResult()


async def test_the_settle_time_begins_when_collection_first_sees_the_item() -> None:
    """Only the clock of the data store counts: the deletion was long ago, and other clients have
    emptied the trash before."""
    volume, client = await deleted()
    volume.clock.advance(10 * DAY / 1000)
    await client.layout.trash().empty()
    assert [each.since_ms for each in await volume.trashed()] == [0]
    now = volume.runtime.now_ms()
    for time in (now, now + 1, now + SETTLE_MS - 1):
        await collect_at(client, time)
        assert [each.since_ms for each in await volume.trashed()] == [now]
        assert [path for path in await volume.tree() if path.endswith("/b/c")]
    await collect_at(client, now + SETTLE_MS)
    assert await volume.trashed() == []


@pytest.mark.parametrize("way", ["gc", "empty", "wait"])
async def test_a_reclamation_is_in_the_log_before_anything_is_deleted(way: str) -> None:
    """So a restore from the log does not make the directory restorable without its files."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    top = await client.need("/a")
    if way != "wait":
        await client.delete("/a")
        (deleted_item,) = await volume.trashed()
        truth = (await volume.truths())[top.id].committed
        assert truth is not None
        assert truth.operation.trash == deleted_item.deletion
        assert deleted_item.deletion.was == "/a"
    files = {each.id for each in await volume.stored() if not each.is_dir}
    logged: list[bool] = []

    async def look(call: Call) -> None:
        left = {each.id for each in await volume.stored()}
        if not files <= left:
            known = await volume.truths_now()
            assert known[top.id].entry is not None
            states = [known[top.id].committed, *known[top.id].pending]
            trash = [each.operation.trash for each in states if each is not None]
            logged.append(any(each is not None and each.state == "reclaiming" for each in trash))

    client.faults.gate = look
    works = {
        "gc": lambda: collect(client),
        "empty": lambda: client.layout.trash().empty(),
        "wait": lambda: client.layout.delete_directory(top, wait=True),
    }
    await works[way]()
    client.faults.gate = None
    assert logged
    assert all(logged)
    (item,) = await volume.trashed()
    truth = (await volume.truths())[top.id].committed
    assert truth is not None
    assert truth.operation.trash == item.deletion
    assert (truth.operation.after, truth.operation.kind) == (item.entry, "update")
    now = volume.runtime.now_ms()
    assert item.deletion.since_ms == (now if way == "gc" else 0)
    await collect(other)
    (item,) = await volume.trashed()
    truth = (await volume.truths())[top.id].committed
    assert truth is not None
    assert truth.operation.trash == item.deletion
    assert item.since_ms == now


async def test_a_reclamation_that_cannot_be_logged_deletes_nothing() -> None:
    volume, client = await deleted()
    before = await volume.stored()
    error = ServiceError("no", service_code="X")
    client.faults.fail_when(lambda call: call.store == "blobs", error, times=1000)
    result = await client.layout.trash().empty()
    assert [path for path, _ in result.failures] == ["/a"]
    assert await volume.stored() == before
    assert [each.state for each in await volume.trashed()] == [""]


def test_a_creator_relies_on_markers_for_half_of_the_settle_time() -> None:
    assert 2000 * CONCLUSIVE_SECONDS <= SETTLE_MS


async def test_a_directory_stays_for_the_retention() -> None:
    volume, client = await deleted()
    before = await volume.stored()
    volume.clock.advance(DAY / 1000 - 1)
    assert await collect(client, retention_ms=DAY) == ChangeResult()
    assert await volume.stored() == before
    assert [each.since_ms for each in await volume.trashed()] == [0]
    volume.clock.advance(1)
    assert (await collect(client, retention_ms=DAY)).files == 3
    assert [each.state for each in await volume.trashed()] == ["reclaiming"]


async def test_what_was_emptied_is_collected_before_its_retention_is_over() -> None:
    volume, client = await deleted()
    await client.layout.trash().empty()
    await collect(client, retention_ms=DAY)
    settle(volume)
    await collect(client, retention_ms=DAY)
    assert await volume.trashed() == []


async def test_a_removal_marker_goes_after_the_settle_time_by_the_clock_of_the_store() -> None:
    """The deleter's clock may be slow: the time at which collection first saw the marker counts."""
    volume = await volume_of()
    client = volume.client()
    await client.store.remove_directory(await client.need("/z/y"))
    volume.clock.advance(DAY / 1000)
    now = volume.runtime.now_ms()
    for time in (now, now + SETTLE_MS - 1):
        assert await collect_at(client, time, retention_ms=DAY) == ChangeResult()
        (marker,) = await volume.trashed()
        assert (marker.why, marker.since_ms, marker.state) == ("empty", now, "")
    truths = await volume.truths()
    assert await collect_at(client, now + SETTLE_MS, retention_ms=DAY) == ChangeResult()
    assert await volume.trashed() == []
    assert await volume.truths() == truths, "it is no object"


async def test_the_settle_time_does_not_begin_before_the_deletion() -> None:
    """A directory is deleted, and another removed, while a long collection is in progress."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()

    async def delete(call: Call) -> None:
        if call.method == "query":
            client.faults.gate = None
            volume.clock.advance(DAY / 1000)
            await other.delete("/a")
            await other.store.remove_directory(await other.need("/z/y"))

    async def clock() -> int:
        return volume.runtime.now_ms()

    client.faults.gate = delete
    await client.layout.trash().collect(clock, retention_ms=0)
    found = await volume.trashed()
    assert len(found) == 2
    assert [each for each in found if 0 < each.since_ms < each.when_ms] == []
    assert [each for each in found if each.since_ms]


async def test_the_settle_time_does_not_begin_before_a_second_deletion() -> None:
    """A directory is restored, deleted again and its reclamation begun, after a collection read
    its item and the time. The next collection finishes it."""
    volume = await volume_of()
    client, other = volume.client(), volume.client()
    await other.delete("/a")

    async def clock() -> int:
        now_ms = volume.runtime.now_ms()
        trash = other.layout.trash()
        await trash.restore(await only(trash), "/a")
        volume.clock.advance(DAY / 1000)
        again = await other.need("/a")
        await other.layout.delete_directory(again, atomic=True, wait=True)
        return now_ms

    await client.layout.trash().collect(clock, retention_ms=0)
    (found,) = await volume.trashed()
    assert (found.state, found.since_ms) == ("reclaiming", 0)
    await collect(client)
    (found,) = await volume.trashed()
    assert found.since_ms >= found.when_ms
    settle(volume)
    await collect(client)
    assert await volume.trashed() == []


async def test_emptying_keeps_removal_markers() -> None:
    volume = await volume_of()
    client = volume.client()
    await client.store.remove_directory(await client.need("/z/y"))
    before = await volume.stored()
    assert await client.layout.trash().items() == []
    assert await client.layout.trash().empty() == ChangeResult()
    assert await volume.stored() == before


async def test_a_reclamation_reports_its_progress() -> None:
    client = (await deleted())[1]
    seen: list[Progress] = []
    result = await client.layout.trash().empty(progress=seen.append)
    assert {each.operation for each in seen} == {"reclaim"}
    assert seen[-1].done == result.files + result.directories == 7
    assert {each.path for each in seen} <= {"/a", "/a/b", "/a/b/c", "/a/empty"}
    assert max(each.bytes for each in seen) == 6


async def test_a_volume_that_is_open_for_reading_is_not_changed() -> None:
    volume, client = await deleted()
    item, before = await only(client.layout.trash()), await volume.stored()
    client.store.read_only = True
    trash = client.layout.trash()
    for call in (trash.empty(), trash.restore(item, "/a"), collect_at(client, 1)):
        with pytest.raises(ReadOnlyVolumeError):
            await call
    assert await volume.stored() == before


async def test_paths_in_the_log_are_short_however_deep_the_tree_is() -> None:
    """Paths below the former path may be too long, after a rename of a directory above."""
    name = "n" * 250
    deep = ["/a/", *("/a" + f"/{name}" * depth + "/" for depth in range(1, 13))]
    volume = await volume_of(*deep, deep[-1] + "f")
    client = volume.client()
    await client.rename("/a", "/" + "long" * 25)
    before = await volume.stored()
    await client.delete("/" + "long" * 25)
    item = await only(client.layout.trash())
    pages = [page async for page in client.layout.trash().walk(item)]
    assert max(len(path) for page in pages for path in page.paths()) > 3073
    assert await client.layout.trash().empty() == ChangeResult(1, 13, 3)
    await collect(client)
    settle(volume)
    assert (await collect(client)).failures == ()
    assert await volume.stored() == []
    await require_committed(volume, before)


# What is kept


@pytest.mark.parametrize("held", ["/a/b", "/a/b/c", "/a/g", "/a/b/c/f"])
async def test_an_entry_with_the_intent_of_a_live_transaction_is_kept_with_all_above_it(
    held: str,
) -> None:
    """The reclaimer neither descends into it nor waits for it."""
    volume = await volume_of()
    await volume.hold(held)
    client, old = volume.client(), dict(await volume.tree())
    await client.delete("/a")
    began = volume.clock.seconds
    await collect(client)
    now = volume.runtime.now_ms() + SETTLE_MS
    result = await collect_at(client, now)
    assert volume.clock.seconds == began
    assert {(path, type(error)) for path, error in result.failures} == {(held, BusyError)}
    below = {path for path in old if (path + "/").startswith(held + "/")}
    above = {path for path in old if (held + "/").startswith(path + "/") and path != "/"}
    left = set((await volume.tree()).values())
    kept = {path for path in old if path.startswith("/a") and old[path] in left}
    assert kept == above | below
    assert [each.state for each in await volume.trashed()] == ["reclaiming"]

    volume.clock.advance(LEASE_SECONDS + SETTLE_MS / 1000)
    assert (await collect(volume.client())).failures == ()
    assert set(await volume.tree()) == {"/z", "/z/y", "/z/h"}


async def test_an_intent_that_comes_after_the_look_keeps_the_directory() -> None:
    volume, client = await deleted("/a/", "/a/b/")
    await collect(client)
    settle(volume)
    directory = next(each for each in await volume.stored() if each.path.endswith("/b"))

    async def hold_first(call: Call) -> None:
        if call.method == "transact":
            client.faults.gate = None
            other = volume.client().store
            when = Condition(equals={"id": directory.id})
            await other.items.write(Update(KEYS.of(directory), when, set={NEXT: "intent"}))

    client.faults.gate = hold_first
    result = await collect(client)
    assert [(path, type(error)) for path, error in result.failures] == [("/a/b", BusyError)]
    assert directory.id in (await volume.tree()).values()
    assert (await collect(client)).failures == ()
    assert await volume.stored() == []


@pytest.mark.parametrize("damaged", ["/a/b/c/f", "/a/b/c"])
async def test_an_entry_that_cannot_be_read_is_kept_with_all_above_it(damaged: str) -> None:
    volume = await volume_of()
    client = volume.client()
    entry = await client.need(damaged)
    await client.delete("/a")
    write = client.store.items.write
    await write(Update(KEYS.of(entry), Condition(), set={"ver": "none"}))
    await collect(client)
    settle(volume)
    result = await collect(client)
    parent = damaged.rpartition("/")[0]
    assert [(path, type(error)) for path, error in result.failures] == [(parent, ItemFormatError)]
    await write(Update(KEYS.of(entry), Condition(), set={"ver": entry.version}))
    kept = {path.rpartition("/")[2] for path in await volume.tree() if "trash" in path}
    assert {"b", damaged.rpartition("/")[2]} <= kept
    assert not kept & {"g", "empty"}


async def test_a_damaged_item_in_the_trash_does_not_keep_the_others() -> None:
    volume, client = await deleted()
    await client.delete("/z")
    damaged, other = sorted(await volume.trashed(), key=lambda each: each.was)
    key = damaged.key(damaged.entry.id, KEYS)
    await client.store.items.write(Update(key, Condition(), set={"why": "unknown"}))
    for work in (collect(client), client.layout.trash().empty()):
        result = await work
        assert [type(error) for _, error in result.failures] == [ItemFormatError]
        assert damaged.entry.id in result.failures[0][0]
    with pytest.raises(ItemFormatError):
        await client.layout.trash().items()
    await client.store.items.write(Update(key, Condition(), set={"why": "deleted"}))
    states = {each.was: each.state for each in await volume.trashed()}
    assert states == {"/a": "", other.was: "reclaiming"}


async def test_a_directory_below_itself_is_not_walked_for_ever() -> None:
    """Damage: a directory that has a second item below itself."""
    volume, client = await deleted("/a/", "/a/b/", "/a/b/c/")
    entries = {KEYS.of(each).sort: each for each in await volume.stored()}
    loop = KEYS.child(entries["c"].id, "b")
    double = replace(entries["b"], path="/b", directory=entries["c"].id)
    assert double.entry_key == loop
    await client.store.items.write(Put(to_item(double, KEYS), ABSENT))
    result = await collect(client)
    assert [(path, type(error)) for path, error in result.failures] == [
        ("/a/b/c/b", ItemFormatError)
    ]


# Deaths and lost responses


async def reclaim_whole(client: Client) -> None:
    """Both phases."""
    assert (await collect(client)).failures == ()
    settle(client.volume)
    assert (await collect(client)).failures == ()


async def empty(client: Client) -> None:
    assert (await client.layout.trash().empty()).failures == ()


async def delete_and_wait(client: Client) -> None:
    await client.layout.delete_directory(await client.need("/z"), wait=True)


WORKS = {"reclaim": reclaim_whole, "empty": empty, "wait": delete_and_wait}
works = pytest.mark.parametrize("name", WORKS)


async def begun(plan: FaultPlan) -> tuple[TreeVolume, Client]:
    """A volume with a deleted directory and a removal marker, and a client that is about to reclaim
    them; the ids are the same in each run."""
    volume = await volume_of()
    other = volume.client()
    await other.delete("/a")
    await other.store.remove_directory(await other.need("/z/y"))
    return volume, volume.client(plan)


async def calls_of(name: str) -> int:
    volume, client = await begun(FaultPlan())
    await WORKS[name](client)
    await volume.truths()
    return len(client.faults.calls)


def after(number: int) -> Callable[[Call], bool]:
    return lambda call: call.number > number


@works
@pytest.mark.parametrize("when", ["before", "after"])
async def test_after_a_death_at_any_call_another_client_finishes(name: str, when: str) -> None:
    for number in calls_to_try(await calls_of(name)):
        plan = FaultPlan()
        plan.die(number, when="before" if when == "before" else "after")
        plan.fail_when(after(number), Died("is dead"), times=999)
        volume, client = await begun(plan)
        before = await volume.stored()
        with suppress(Died):
            await WORKS[name](client)
        tree = await volume.tree()  # every entry is reachable
        assert "/z" in tree or name == "wait"
        await require_logged(volume, before)
        volume.clock.advance(LEASE_SECONDS)
        other = volume.client()
        await reclaim_whole(other)
        assert {path for path in await volume.tree() if "trash" in path} == set()
        assert await volume.trashed() == []
        await require_logged(volume, before)


@works
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_answer_at_any_call_changes_nothing(name: str, when: str) -> None:
    volume, client = await begun(FaultPlan())
    await WORKS[name](client)
    end = await volume.tree()
    for number in calls_to_try(await calls_of(name)):
        plan = FaultPlan()
        plan.fail(number, ResponseLostError("lost"), when="after" if when == "after" else "before")
        volume, client = await begun(plan)
        before = await volume.stored()
        await WORKS[name](client)
        assert await volume.tree() == end
        if name != "wait":
            await require_committed(volume, before)


# Concurrent calls


def table_call(call: Call) -> bool:
    return call.method in {"get", "get_many", "query", "write", "transact"}


def changing(call: Call) -> bool:
    return call.method in {"write", "transact"}


async def test_an_undelete_beside_a_reclamation_in_every_order_of_their_requests() -> None:
    """One of them succeeds: everything is restored, or no file is left."""
    seen = set()
    async for run in interleavings("/a/", "/a/f", "/d/", ordered=table_call, limit=4000):
        one, other, item, old = await two_clients(run)
        await one.need("/d")
        restoring = one.layout.trash().restore(item, "/d/a")
        outcomes = await run.outcomes((one, restoring), (other, other.layout.trash().empty([item])))
        tree, items = await run.volume.tree(), await one.layout.trash().items()
        seen.add(outcomes[0])
        if outcomes[0] is None:
            assert sorted(tree.values()) == sorted(old.values())
            assert ("/d/a/f" in tree, items) == (True, [])
        else:
            assert outcomes[0] is PathNotFoundError
            assert set(tree) == {"/d", f"/.trash/{item.id}"}
            assert [each.state for each in items] == ["reclaiming"]
        assert outcomes[1] is None
        assert all(truth.pending == () for truth in (await run.volume.truths()).values())
    assert seen == {None, PathNotFoundError}


async def two_clients(run: Interleaving) -> tuple[Client, Client, TrashItem, Tree]:
    """Two clients of a volume in which `/a` was deleted, and the tree before the deletion."""
    one, other = run.client(), run.client()
    old = await run.volume.tree()
    await one.delete("/a")
    return one, other, await only(one.layout.trash()), old


async def test_two_reclaimers_in_every_order_of_their_changes() -> None:
    paths = ("/a/", "/a/b/", "/a/b/f")
    async for run in interleavings(*paths, ordered=changing, limit=4000):
        before = await run.volume.stored()
        one, other, _, _ = await two_clients(run)
        now = run.volume.runtime.now_ms()
        for time in (now, now + SETTLE_MS):
            works = [(client, collect_at(client, time)) for client in (one, other)]
            assert await run.outcomes(*works) == [None, None]
        assert await run.volume.stored() == []
        await require_committed(run.volume, before)


async def test_what_is_restored_and_deleted_again_is_another_item() -> None:
    volume, client = await deleted()
    old = await only(client.layout.trash())
    await client.layout.trash().restore(old, "/a")
    volume.clock.advance(1)
    await client.delete("/a")
    before = await volume.stored()
    assert await client.layout.trash().empty([old]) == ChangeResult()
    with pytest.raises(PathNotFoundError):
        await client.layout.trash().restore(old, "/q")
    assert await volume.stored() == before


async def create_during(path: str, number: int) -> tuple[TreeVolume, list[Entry]]:
    """A volume after the first phase, and a file that a client created at one call of that phase,
    having confirmed its directories before the deletion."""
    volume = await volume_of("/a/", "/a/b/", "/a/b/f", "/z/")
    client, writer = volume.client(), volume.client()
    target = await writer.store.prepare(path)
    await client.delete("/a")
    created: list[Entry] = []
    calls = 0

    async def create(call: Call) -> None:
        nonlocal calls
        calls += call.store == "items"
        if calls == number and not created:
            physical = volume.runtime.physical_key(target.object_id)
            created.append(await writer.store.publish(target, Content(physical, 3, "e", "")))

    client.faults.gate = create
    await collect(client)
    return volume, created


@pytest.mark.parametrize("path", ["/a/new", "/a/b/new"])
async def test_a_late_creation_is_reclaimed_and_nothing_is_left_without_a_directory(
    path: str,
) -> None:
    number = 1
    while True:
        volume, created = await create_during(path, number)
        if not created:
            break
        number += 1
        truth = (await volume.truths())[created[0].id].committed
        assert truth is not None
        assert truth.operation.kind in {"update", "delete"}
        assert await volume.tree()  # every entry is reachable
        settle(volume)
        assert (await collect(volume.client())).failures == ()
        assert set(await volume.tree()) == {"/z"}
        truth = (await volume.truths())[created[0].id].committed
        assert truth is not None
        assert truth.operation.kind == "delete"
    assert number > 6


async def test_clients_that_create_in_a_loop_end_and_nothing_is_left() -> None:
    volume, client = await deleted("/a/", "/a/b/", "/a/b/f")
    parent = next(each for each in await volume.stored() if each.path.endswith("/b"))
    created = 0

    async def create(call: Call) -> None:
        nonlocal created
        if call.method in {"query", "transact"} and created < 20:
            created += 1
            late = replace(volume.entry(f"/late{created}", {}), directory=parent.id)
            await volume.client().store.items.write(Put(to_item(late, KEYS), ABSENT))

    client.faults.gate = create
    while created < 20:
        await collect(client)
    settle(volume)
    assert (await collect(client)).failures == ()
    assert await volume.stored() == []


async def test_a_file_that_changes_meanwhile_is_deleted_as_well() -> None:
    """The client that changes it confirmed its directories before the deletion."""
    volume = await volume_of()
    client, writer = volume.client(), volume.client()
    target = await writer.store.prepare("/a/g")
    await client.delete("/a")

    async def overwrite(call: Call) -> None:
        if call.method == "transact":
            client.faults.gate = None
            physical = volume.runtime.physical_key(target.object_id)
            await writer.store.publish(target, Content(physical, 5, "e", ""))

    client.faults.gate = overwrite
    assert await collect(client) == ChangeResult(3, 4, 8)


async def test_a_rename_out_of_a_deleted_tree_moves_the_file_or_fails() -> None:
    seen = set()
    paths = ("/a/", "/a/b/", "/a/b/f", "/z/")
    async for run in interleavings(*paths, ordered=changing, limit=4000):
        one, other = run.client(), run.client()
        source = await one.need("/a/b/f")
        await one.need("/z")
        await other.need("/a")

        async def delete_and_collect(client: Client = other) -> None:
            await client.delete("/a")
            await client.layout.trash().empty()

        outcomes = await run.outcomes(
            (one, one.store.rename_file(source, "/z/f")), (other, delete_and_collect())
        )
        left = {entry.id for entry in await run.volume.stored()}
        assert (source.id in left) == (outcomes[0] is None)
        assert ("/z/f" in await run.volume.tree()) == (outcomes[0] is None)
        seen.add(outcomes[0])
    assert seen == {None, PathNotFoundError}
