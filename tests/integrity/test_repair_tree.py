"""fsck of layout `tree`: what is known by the ids of directories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import (
    ABSENT,
    PARTITION,
    SORT,
    Condition,
    Delete,
    Item,
    Key,
    Put,
    Update,
)
from s3k_async.config import LogMode, MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.errors import BusyError, ServiceError
from s3k_async.integrity import recheck, repair
from s3k_async.integrity.collector import Collector, Tell
from s3k_async.integrity.facts import Action, FindingKind, ParentFacts
from s3k_async.integrity.recheck import parent_facts
from s3k_async.integrity.repair import RepairRound, repair_volume, verify_volume
from s3k_async.integrity.repair_actions import Repairer, Task
from s3k_async.integrity.rule_table import RuleCoverage
from s3k_async.integrity.scope import Scope
from s3k_async.integrity.shuffle import LonelyEntry
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.layouts.tree.tree_check import TreeCheck
from s3k_async.model import Entry
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import NEXT
from s3k_async.table.keys import TRASH_ID
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn.txn_record import TRANSACTION_PARTITION
from s3k_async.txn.write_intent import WriteIntent
from s3k_async.volumes import init_volume, open_volume
from tests.engines.volumes import VolumeMaker, fresh_name, volume_backends
from tests.support import FakeClock, under
from tests.torture.damage import GRACE, Scene
from tests.torture.damage_tree import at, client, lose, pending_move, put, removed_as_empty

DAY = 86_400.0

everywhere = volume_backends("memory", "embedded", slow=["dynoxide+seaweedfs"])


async def new_scene(log_mode: LogMode = "native", place: VolumeConfig | None = None) -> Scene:
    """`place`: where the volume is; in memory unless given."""
    if place is None:
        name = fresh_name("tree")
        place = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name))
    return await Scene.start(
        log_mode,
        place=replace(place, layout="tree"),
        clock=FakeClock(SYSTEM.now_ms() / 1000),  # files and objects have real times
        seed=SYSTEM.uuid(),  # engines know the tokens of all tests
    )


@pytest.fixture
async def scene(new_volume: VolumeMaker) -> AsyncIterator[Scene]:
    world = await new_scene(place=new_volume())
    yield world
    await world.end()


async def kinds(scene: Scene) -> set[str]:
    report = await verify_volume(scene.volume, grace=GRACE)
    return {finding.kind for finding in report.problems}


async def put_again(scene: Scene, entry: Entry) -> None:
    await lose(scene, entry)
    await put(scene, entry)


async def repaired(scene: Scene) -> set[tuple[FindingKind, Action, str]]:
    """Repair, and see that nothing is left to do; what was done."""
    scene.clock.advance(5000)
    report = await repair_volume(scene.volume, dry_run=False, grace=GRACE)
    again = await repair_volume(scene.volume, dry_run=False, grace=GRACE)
    assert again.repairs == []
    assert (await verify_volume(scene.volume, grace=GRACE)).problems == []
    return {(each.finding.kind, each.finding.action, each.outcome) for each in report.repairs}


async def contents(scene: Scene) -> dict[str, bytes]:
    async with client(scene) as fs:
        return {each.path: await fs.read(each.path) async for each in fs.find("/", type="file")}


@everywhere
async def test_a_healthy_tree_with_a_trash_has_no_findings(scene: Scene) -> None:
    layout = scene.volume.store.layout
    await layout.rename_directory(await at(scene, "/a/d0"), "/d", atomic=True)
    await layout.delete_directory(await at(scene, "/a"), atomic=True)
    async with client(scene) as fs:
        await fs.makedirs("/empty")
        await fs.delete("/empty")
    await scene.settled()
    assert (await verify_volume(scene.volume, grace=GRACE)).problems == []
    assert await repaired(scene) == set()


@everywhere
async def test_a_lost_directory_comes_back_with_all_below_it(scene: Scene) -> None:
    before = await contents(scene)
    await lose(scene, await at(scene, "/a/d0"))
    assert await kinds(scene) == {"entry_missing"}
    assert await repaired(scene) == {("entry_missing", "restore_entry", "done")}
    assert await contents(scene) == before


@everywhere
async def test_a_directory_that_the_log_does_not_know_gets_an_item_with_its_id(
    scene: Scene,
) -> None:
    directory = await at(scene, "/a/d1")
    await scene.lose_log(directory.id)
    await lose(scene, directory)
    done = await repaired(scene)
    assert ("missing_parent", "make_parent", "done") in done
    found = await contents(scene)
    assert found[f"/lost+found/{directory.id}/f0"] == b"/a/d1/f0"


@everywhere
async def test_a_directory_whose_path_is_taken_keeps_its_files(scene: Scene) -> None:
    directory = await at(scene, "/a/d1")
    await lose(scene, directory)
    await scene.volume.store.make_directory("/a/d1")
    await scene.settled()
    assert await repaired(scene) == {("entry_missing", "make_parent", "done")}
    assert (await contents(scene))[f"/lost+found/{directory.id}/f0"] == b"/a/d1/f0"


@everywhere
async def test_a_file_in_a_directory_removed_as_empty_is_removed(scene: Scene) -> None:
    """Its creator died between its write and its look at the directory."""
    store = scene.volume.store
    directory = await removed_as_empty(scene, "/gone")
    await scene.settled()
    file = replace(await at(scene, "/top"), id=scene.uuid(), directory=directory.id)
    content = await scene.volume.storage.put(file.id, b"late")
    await put(scene, replace(file, physical=content.physical, mtime_ms=1))
    young = await verify_volume(scene.volume, grace=GRACE)
    assert "unreachable_entry" not in young.kinds
    assert ("unreachable_entry", "remove_entry", "done") in await repaired(scene)
    assert await store.stored(file.entry_key) is None


@everywhere
async def test_a_directory_in_a_removed_directory_is_moved_into_the_trash(scene: Scene) -> None:
    store = scene.volume.store
    directory = await removed_as_empty(scene, "/gone")
    inner = await at(scene, "/a/d0")
    await lose(scene, inner)
    await put(scene, replace(inner, directory=directory.id))
    await scene.settled()
    assert ("unreachable_entry", "remove_entry", "done") in await repaired(scene)
    (item,) = await store.layout.trash().items()
    assert item.id == inner.id


@everywhere
async def test_a_directory_at_two_places_stays_where_the_log_has_it(scene: Scene) -> None:
    before = await contents(scene)
    entry = await at(scene, "/a/d0")
    await put(scene, replace(entry, path="/a/double"))
    assert await repaired(scene) == {("duplicate_id", "remove_item", "done")}
    assert await contents(scene) == before


@everywhere
async def test_a_cycle_of_directories_is_broken(scene: Scene) -> None:
    top, inner = await at(scene, "/a"), await at(scene, "/a/d0")
    await lose(scene, top)
    await put(scene, replace(top, directory=inner.id))
    assert ("directory_cycle", "move_item", "done") in await repaired(scene)
    found = await contents(scene)
    assert found[f"/lost+found/{top.id}/d0/f0"] == b"/a/d0/f0"


@everywhere
async def test_a_damaged_item_in_the_trash_comes_back_from_the_log(scene: Scene) -> None:
    store = scene.volume.store
    directory = await at(scene, "/a/d0")
    await store.layout.delete_directory(directory, atomic=True)
    await scene.settled()
    key = TrashedDirectory.key(directory.id, store.keys)
    await scene.volume.items.write(Update(key, Condition(), remove=("why",)))
    assert await repaired(scene) == {
        ("item_damaged", "quarantine", "done"),
        ("entry_missing", "restore_entry", "done"),
    }
    (item,) = await store.layout.trash().items()
    assert item.was == "/a/d0"


@everywhere
async def test_a_subtree_is_checked_by_a_walk(scene: Scene) -> None:
    await lose(scene, await at(scene, "/top"))
    await scene.settled()
    assert (await verify_volume(scene.volume, path="/a", grace=GRACE)).problems == []
    await lose(scene, await at(scene, "/a/d0/f0"))
    report = await verify_volume(scene.volume, path="/a", grace=GRACE)
    assert [(each.kind, each.path) for each in report.problems] == [("entry_missing", "/a/d0/f0")]


async def test_without_a_log_a_missing_directory_is_only_reported() -> None:
    scene = await new_scene("disabled")
    try:
        await lose(scene, await at(scene, "/a/d0"))
        await scene.settled()
        report = await repair_volume(scene.volume, dry_run=False, grace=GRACE)
        assert report.repairs == []
        assert "missing_parent" in {finding.kind for finding in report.left.problems}
    finally:
        await scene.end()


@everywhere
async def test_a_directory_that_is_being_moved_is_not_judged(scene: Scene) -> None:
    entry = await at(scene, "/a/d0")
    await pending_move(scene, entry)
    await put(scene, replace(entry, path="/a/double"))
    assert await kinds(scene) == set()
    await lose(scene, entry)
    await lose(scene, replace(entry, path="/a/double"))
    assert await kinds(scene) == set()


@everywhere
async def test_a_cycle_that_only_the_scan_has_seen_is_no_finding(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directories were renamed into each other's places during the scan."""
    top, inner = await at(scene, "/a"), await at(scene, "/a/d0")
    scan = Collector._scan_blobs

    async def seen_in_a_cycle(self: Collector, tell: Tell) -> None:
        await scan(self, tell)
        self.scope.check.add_directories([(top.id, f"{inner.id}/a"), (inner.id, inner.entry_key)])

    monkeypatch.setattr(Collector, "_scan_blobs", seen_in_a_cycle)
    with RuleCoverage() as reached:
        assert await kinds(scene) == set()
    assert ("cycles", ()) in {(table, rule.when) for table, rule in reached}


@everywhere
async def test_a_directory_that_moves_during_the_scan_and_again_after_it_is_no_finding(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan of the table misses it, and it has left the place that the scan of the log tells."""
    layout = scene.volume.store.layout
    directory = await at(scene, "/a/d0")
    scan_table, scan_blobs = Collector._scan_table, Collector._scan_blobs

    async def misses_it(self: Collector, tell: Tell) -> None:
        await lose(scene, directory)
        await scan_table(self, tell)
        await put(scene, directory)
        await layout.rename_directory(directory, "/a/moved", atomic=True)
        await scene.volume.store.changes.log.drained()

    async def moves_again(self: Collector, tell: Tell) -> None:
        await scan_blobs(self, tell)
        await layout.rename_directory(await at(scene, "/a/moved"), "/again", atomic=True)
        await scene.volume.store.changes.log.drained()

    monkeypatch.setattr(Collector, "_scan_table", misses_it)
    monkeypatch.setattr(Collector, "_scan_blobs", moves_again)
    report = await verify_volume(scene.volume, grace=-GRACE)  # nothing is young
    assert report.problems == []
    assert (await at(scene, "/again")).id == directory.id


@everywhere
async def test_an_item_of_two_is_kept_if_the_other_has_gone_since(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another repair has chosen the other one."""
    entry = await at(scene, "/a/d0")
    double = replace(entry, path="/a/double")
    await put(scene, double)
    repair_action, left = Repairer.repair_action, [entry]

    async def gone(self: Repairer, task: Task) -> None:
        if task.finding.action == "remove_item" and left:
            await lose(scene, left.pop())
        await repair_action(self, task)

    monkeypatch.setattr(Repairer, "repair_action", gone)
    done = await repaired(scene)
    assert not left
    assert ("duplicate_id", "remove_item", "left") in done
    assert (await contents(scene))["/a/double/f0"] == b"/a/d0/f0"


@everywhere
async def test_a_cycle_that_was_broken_since_is_left_as_it_is(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, inner = await at(scene, "/a"), await at(scene, "/a/d0")
    await lose(scene, top)
    await put(scene, replace(top, directory=inner.id))
    repair_action, left = Repairer.repair_action, [inner]

    async def broken(self: Repairer, task: Task) -> None:
        if task.finding.kind == "directory_cycle" and left:
            await lose(scene, left[0])
            moved = left.pop().moved("/elsewhere", operation=scene.uuid())
            await put(scene, replace(moved, directory=ROOT_ENTRY.id))
        await repair_action(self, task)

    monkeypatch.setattr(Repairer, "repair_action", broken)
    done = await repaired(scene)
    assert not left
    assert ("directory_cycle", "move_item", "left") in done
    assert (await at(scene, "/elsewhere/a")).id == top.id


async def trashed(scene: Scene, path: str) -> tuple[Key, Item]:
    """Delete a directory; its item in the trash."""
    directory = await at(scene, path)
    await scene.volume.store.layout.delete_directory(directory, atomic=True)
    await scene.settled()
    key = TrashedDirectory.key(directory.id, scene.volume.store.keys)
    item = await scene.volume.items.get(key)
    assert item is not None
    return key, item


def deletion(item: Item | None) -> dict[str, object]:
    """What an item in the trash says about the deletion."""
    assert item is not None
    return {name: item[name] for name in ("why", "from", "was", "when", "by")}


@everywhere
async def test_an_item_in_the_trash_is_logged_again_and_keeps_its_attributes(scene: Scene) -> None:
    key, item = await trashed(scene, "/a/d0")
    await scene.lose_log(str(item["id"]))
    assert {done[1:] for done in await repaired(scene)} == {("log_again", "done")}
    logged_again = await scene.volume.items.get(key)
    assert deletion(logged_again) == deletion(item)
    await scene.settled()
    await scene.volume.items.write(Delete(key, Condition()))
    assert await repaired(scene) == {("entry_missing", "restore_entry", "done")}
    assert await scene.volume.items.get(key) == logged_again
    (found,) = await scene.volume.store.layout.trash().items()
    assert (found.id, found.was) == (item["id"], "/a/d0")


@everywhere
@pytest.mark.parametrize("state", ["", "reclaiming"])
async def test_a_lost_item_in_the_trash_comes_back_with_every_attribute(
    scene: Scene, state: str
) -> None:
    key, _ = await trashed(scene, "/a/d0")
    store = scene.volume.store
    if state:
        await store.layout.trash().empty()
        await scene.settled()
    item = await scene.volume.items.get(key)
    assert item is not None
    assert item.get("state", "") == state
    await scene.volume.items.write(Delete(key, Condition()))
    assert await repaired(scene) == {("entry_missing", "restore_entry", "done")}
    assert await scene.volume.items.get(key) == item
    (found,) = await store.layout.trash().items()
    assert found.state == state


async def notes(scene: Scene) -> set[tuple[FindingKind, str]]:
    """The notes about the trash of a volume without problems."""
    report = await verify_volume(scene.volume, grace=GRACE)
    assert report.clean
    return {(each.kind, each.path) for each in report.findings if each.kind != "collectable_data"}


@everywhere
async def test_a_directory_that_stays_in_the_trash_is_noted_until_gc_has_removed_it(
    scene: Scene,
) -> None:
    async def clock() -> int:
        return scene.now_ms()

    await trashed(scene, "/a/d0")
    scene.clock.advance(1.9 * DAY)
    assert await notes(scene) == set()
    scene.clock.advance(0.2 * DAY)
    assert await notes(scene) == {("trash_due", "/a/d0")}
    trash = scene.volume.store.layout.trash()
    await trash.empty()
    await scene.settled()
    assert await notes(scene) == {("reclamation_unfinished", "/a/d0")}
    for _ in range(2):
        await trash.collect(clock, retention_ms=0)
        await scene.settled()
        scene.clock.advance(DAY)
    assert await notes(scene) == set()


@pytest.mark.parametrize(("retention", "days"), [(0, 1), (10 * 86_400, 20)])
async def test_how_long_a_directory_may_stay_in_the_trash_follows_from_the_retention(
    retention: int, days: int
) -> None:
    name = fresh_name("tree")
    place = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), trash_retention=retention)
    scene = await new_scene(place=place)
    try:
        await trashed(scene, "/a/d0")
        scene.clock.advance((days - 0.1) * DAY)
        assert await notes(scene) == set()
        scene.clock.advance(0.2 * DAY)
        assert await notes(scene) == {("trash_due", "/a/d0")}
        report = await verify_volume(scene.volume, path="/a", grace=GRACE)
        assert report.findings == []
    finally:
        await scene.end()


@everywhere
async def test_a_misplaced_item_in_the_trash_is_moved_with_its_attributes(scene: Scene) -> None:
    key, item = await trashed(scene, "/a/d0")
    partitions = scene.volume.store.keys.partitions(TRASH_ID)
    elsewhere = next(each for each in partitions if each != key.partition)
    await scene.volume.items.write(Put({**item, PARTITION: elsewhere}, ABSENT))
    await scene.volume.items.write(Delete(key, Condition()))
    assert await repaired(scene) == {("item_misplaced", "move_item", "done")}
    assert await scene.volume.items.get(key) == item
    assert await scene.volume.items.get(Key(elsewhere, key.sort)) is None


@everywhere
@pytest.mark.parametrize("recorded", [False, True])
async def test_what_a_dead_transaction_left_in_the_trash_is_removed(
    scene: Scene, *, recorded: bool
) -> None:
    """An intent, and the record of the transaction, or no record."""
    key, item = await trashed(scene, "/a/d0")
    txn = scene.uuid()
    intent = WriteIntent(txn).text()
    await scene.volume.items.write(Update(key, Condition(), set={NEXT: intent}))
    expected = {("stale_intent", "resolve_transaction", "done")}
    if recorded:
        record: Item = {
            PARTITION: TRANSACTION_PARTITION,
            SORT: txn,
            "kind": "mark",
            "source": f"/.trash/{item['id']}",
            "lease": scene.now_ms() - 10**6,
            "op": scene.uuid(),
        }
        await scene.volume.items.write(Put(record, ABSENT))
        expected.add(("stale_transaction", "resolve_transaction", "done"))
    assert await repaired(scene) == expected
    left = await scene.volume.items.get(key)
    assert left is not None
    assert NEXT not in left
    assert deletion(left) == deletion(item)


@everywhere
async def test_repair_of_a_subtree_restores_what_is_below_its_path_only(scene: Scene) -> None:
    before = await contents(scene)
    await lose(scene, await at(scene, "/top"))
    await lose(scene, await at(scene, "/a/d0/f0"))
    await lose(scene, await at(scene, "/a/d0"))
    await lose(scene, await at(scene, "/a/d1/f0"))
    await scene.settled()
    await repair_volume(scene.volume, dry_run=False, grace=GRACE, path="/a/d1")
    assert await contents(scene) == {
        path: data
        for path, data in before.items()
        if path != "/top" and not path.startswith("/a/d0/")
    }
    await repair_volume(scene.volume, dry_run=False, grace=GRACE, path="/a")
    del before["/top"]
    assert await contents(scene) == before
    assert (await verify_volume(scene.volume, path="/a", grace=GRACE)).problems == []
    assert await kinds(scene) == {"entry_missing"}


def interrupt(monkeypatch: pytest.MonkeyPatch, place: type, method: str) -> None:
    """Make the next call of a method fail."""
    real, left = getattr(place, method), [ServiceError("down", service_code="X")]

    async def fails_once(*arguments: object, **named: object) -> object:
        if left:
            raise left.pop()
        return await real(*arguments, **named)

    monkeypatch.setattr(place, method, fails_once)


@everywhere
@pytest.mark.parametrize("path", ["/", "/a/d0"])
async def test_a_verify_that_was_interrupted_goes_on_with_the_directories_of_its_scan(
    scene: Scene, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lose(scene, await at(scene, "/a/d0/f0"))
    await put_again(scene, replace(await at(scene, "/a/d0/f1"), etag="another"))
    await scene.settled()
    expected = await verify_volume(scene.volume, path=path, grace=GRACE)
    assert {each.path for each in expected.problems} == {"/a/d0/f0", "/a/d0/f1"}
    room = str(tmp_path / "parts")
    interrupt(monkeypatch, Collector, "_scan_log")
    with pytest.raises(ServiceError):
        await verify_volume(scene.volume, path=path, grace=GRACE, directory=room)
    report = await verify_volume(scene.volume, path=path, grace=GRACE, directory=room)
    assert set(report.findings) == set(expected.findings)
    assert (report.files, report.directories) == (expected.files, expected.directories)


async def test_a_subtree_without_a_log_has_no_findings_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await new_scene("disabled")
    try:
        room = str(tmp_path / "parts")
        interrupt(monkeypatch, Collector, "_scan_log")
        with pytest.raises(ServiceError):
            await verify_volume(scene.volume, path="/a/d0", grace=GRACE, directory=room)
        report = await verify_volume(scene.volume, path="/a/d0", grace=GRACE, directory=room)
        assert report.problems == []
    finally:
        await scene.end()


@everywhere
@pytest.mark.parametrize(
    ("place", "method"),
    [(Collector, "_scan_log"), (RepairRound, "parents")],
)
async def test_a_repair_that_was_interrupted_goes_on(
    scene: Scene, place: type, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await contents(scene)
    await lose(scene, await at(scene, "/a/d0"))
    directory = await at(scene, "/a/d1")
    await scene.lose_log(directory.id)
    await lose(scene, directory)
    await scene.settled()
    room = str(tmp_path / "parts")
    interrupt(monkeypatch, place, method)
    with pytest.raises(ServiceError):
        await repair_volume(scene.volume, dry_run=False, grace=GRACE, directory=room)
    await repair_volume(scene.volume, dry_run=False, grace=GRACE, directory=room)
    assert await kinds(scene) == set()
    assert await contents(scene) == {
        path.replace("/a/d1/", f"/lost+found/{directory.id}/"): data
        for path, data in before.items()
    }


@everywhere
async def test_repair_beside_renames_of_directories_touches_nothing_that_lives(
    new_volume: VolumeMaker,
) -> None:
    """Whether a scan misses the directory is left to chance here: the next test leaves nothing to
    chance."""
    config = new_volume(layout="tree", suffix_count=3)
    await init_volume(config)
    over, renames = anyio.Event(), 0

    async def rename() -> None:
        nonlocal renames
        async with S3kClient(config=config) as fs:
            while not over.is_set():
                for source, target in (("/a", "/b/x"), ("/b/x", "/c"), ("/c", "/a")):
                    await fs.rename(source, target)
                    renames += 1
                    await anyio.lowlevel.checkpoint()

    async with S3kClient(config=config) as fs:
        await fs.makedirs("/b")
        for number in range(20):
            await fs.write(f"/a/d{number % 4}/f{number}", b"live")
    volume = await open_volume(config)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rename)
            for _ in range(10):
                report = await repair_volume(volume, dry_run=False, grace=0.0)
                found = {each.finding.kind for each in report.repairs} | set(report.left.kinds)
                assert not found & {
                    "unreachable_entry",
                    "missing_parent",
                    "directory_cycle",
                    "entry_missing",
                    "duplicate_id",
                }
            over.set()
        assert renames > 0
        async with S3kClient(config=config) as fs:
            assert len([each async for each in fs.find("/a", type="file")]) == 20
    finally:
        await volume.close()


PLACES = ("/b/y", "/c", "/d")


async def repair_beside_renames(
    first: int, then: int, target: str, missed: list[str]
) -> tuple[int, int]:
    """Repair a healthy volume whose directory `/a` is renamed before the call `first` of the
    repair, and again before the call `then`. Returns the number of calls that scan the table, and
    of all calls. `missed`: gets the directories without an item in the scan."""
    scene = await new_scene()
    layout = scene.volume.store.layout
    await scene.volume.store.make_directory("/b")
    await scene.settled()
    before = await contents(scene)
    moves = {first: ("/a", target), then: (target, "/z")}
    faults, scans, turn = FaultPlan(), 0, anyio.Lock()

    async def gate(call: Call) -> None:
        nonlocal scans
        scans += call.method == "scan"
        async with turn:  # calls may be concurrent, the renames are not
            if call.number in moves:
                source, place = moves.pop(call.number)
                await layout.rename_directory(await at(scene, source), place, atomic=True)
                await scene.volume.store.changes.log.drained()

    async def noted(scope: Scope, lonely: Iterable[LonelyEntry], *rest: Any) -> list[ParentFacts]:
        everything = list(lonely)
        missed.extend(each.child[0] for each in everything)
        return await parent_facts(scope, everything, *rest)

    runtime = scene.volume.store.runtime
    volume = await under(faults, open_volume(scene.volume.config, runtime=runtime))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(repair, "parent_facts", noted)
            faults.calls.clear()
            faults.gate = gate
            report = await repair_volume(volume, dry_run=False, grace=-GRACE)  # nothing is young
            calls, faults.gate = len(faults.calls), None
        where = f"renamed to {target} at call {first}, and again at call {then}"
        assert report.repairs == [], where
        assert report.left.problems == [], where
        found = await contents(scene)
        top = target if moves else "/z"
        assert found == {path.replace("/a/", f"{top}/", 1): data for path, data in before.items()}
        return scans, calls
    finally:
        await volume.close()
        await scene.end()


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_directory_that_moves_at_any_two_calls_of_a_repair_is_left(step: int) -> None:
    """Some scans miss the directory, and the recheck reads it while it moves on."""
    missed: list[str] = []
    scans, _ = await repair_beside_renames(1, 10**9, PLACES[0], missed)
    for first in range(1, scans + 1):
        for number, target in enumerate(PLACES):
            then, calls = first + 1 + (first + number) % step, 10**9
            while then <= calls:
                _, calls = await repair_beside_renames(first, then, target, missed)
                then += step
    assert missed


@everywhere
async def test_an_entry_is_restored_beside_a_rename_of_its_directory(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan has found the directory at a place that it has left since: it is not missing."""
    directory = await at(scene, "/a/d0")
    await lose(scene, await at(scene, "/a/d0/f0"))
    scan, scans = Collector._scan_blobs, 0

    async def then_renamed(self: Collector, tell: Tell) -> None:
        nonlocal scans
        await scan(self, tell)
        scans += 1
        if scans == 1:
            await scene.volume.store.layout.rename_directory(directory, "/moved", atomic=True)

    monkeypatch.setattr(Collector, "_scan_blobs", then_renamed)
    assert await repaired(scene) == {
        ("entry_missing", "restore_entry", "left"),
        ("entry_missing", "restore_entry", "done"),
    }
    found = await contents(scene)
    assert found["/moved/f0"] == b"/a/d0/f0"
    assert not any(path.startswith("/lost+found/") for path in found)


@everywhere
async def test_an_entry_is_restored_whose_directory_the_log_does_not_know(scene: Scene) -> None:
    directory = await at(scene, "/a/d1")
    await scene.lose_log(directory.id)
    for path in ("/a/d1/f0", "/a/d1/f1", "/a/d1/f2", "/a/d1/moved", "/a/d1"):
        await lose(scene, await at(scene, path))
    assert ("missing_parent", "make_parent", "done") in await repaired(scene)
    assert (await contents(scene))[f"/lost+found/{directory.id}/f0"] == b"/a/d1/f0"


@everywhere
async def test_a_misplaced_directory_that_the_log_does_not_know_keeps_its_path(
    scene: Scene,
) -> None:
    before = await contents(scene)
    directory = await at(scene, "/a/d1")
    await scene.lose_log(directory.id)
    keys, items = scene.volume.store.keys, scene.volume.items
    item = await items.get(keys.of(directory))
    assert item is not None
    await lose(scene, directory)
    others = [each for each in keys.partitions(directory.directory) if each != item[PARTITION]]
    await items.write(Put({**item, PARTITION: others[0]}, ABSENT))
    assert ("item_misplaced", "move_item", "done") in await repaired(scene)
    assert await contents(scene) == before


@everywhere
async def test_repair_leaves_a_reclamation_that_has_begun(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would allow the directory to be restored while its content is deleted."""
    store = scene.volume.store
    directory = await at(scene, "/a/d0")
    await store.layout.delete_directory(directory, atomic=True)
    await scene.settled()
    await scene.lose_log(directory.id)
    put_for = TreeCheck.put_for

    async def then_emptied(self: TreeCheck, before: Entry, after: Entry) -> Put:
        put = await put_for(self, before, after)
        await store.layout.trash().empty()
        return put

    monkeypatch.setattr(TreeCheck, "put_for", then_emptied)
    await repair_volume(scene.volume, dry_run=False, grace=GRACE)
    item = await store.items.get(TrashedDirectory.key(directory.id, store.keys))
    assert item is not None
    assert TrashedDirectory.from_item(item, store.keys).state == "reclaiming"


@everywhere
async def test_an_unreachable_directory_with_the_intent_of_a_live_transaction_is_left(
    scene: Scene,
) -> None:
    store = scene.volume.store
    await store.make_directory("/gone")
    directory = await at(scene, "/gone")
    async with client(scene) as fs:
        await fs.delete("/gone")
    await scene.settled()
    inner = await at(scene, "/a/d0")
    await lose(scene, inner)
    scene.clock.advance(5000)
    async with store.transactions.hold("mark", "/a/d0") as txn:
        held = replace(inner, directory=directory.id, pending=WriteIntent(txn.id).text())
        await put(scene, held)
        with pytest.raises(BusyError):
            await store.layout.check().remove_unreachable(held)
    assert await store.stored(held.entry_key) is not None


@everywhere
async def test_a_check_of_a_subtree_goes_on_after_an_interruption(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the directories above the subtree again."""
    await lose(scene, await at(scene, "/a/d0/f0"))
    await scene.settled()

    async def check() -> list[tuple[FindingKind, str]]:
        directory = str(tmp_path / "state")
        report = await verify_volume(scene.volume, path="/a/d0", grace=GRACE, directory=directory)
        return [(each.kind, each.path) for each in report.problems]

    async def dies(self: Collector, tell: Tell) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(Collector, "_scan_log", dies)
        with pytest.raises(ConnectionError):
            await check()
    assert await check() == [("entry_missing", "/a/d0/f0")]


@everywhere
@pytest.mark.parametrize("name", ["again", *(f"again{number}" for number in range(5))])
async def test_a_second_item_of_a_directory_below_itself_is_removed(
    scene: Scene, name: str
) -> None:
    """Whichever of the items the scan reads last: there is no cycle without the second one."""
    before = await contents(scene)
    top, inner = await at(scene, "/a"), await at(scene, "/a/d0")
    await put(scene, replace(top, path=f"/{name}", directory=inner.id))
    assert await repaired(scene) == {("duplicate_id", "remove_item", "done")}
    assert await contents(scene) == before


@everywhere
async def test_of_a_lost_directory_one_entry_is_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await scene.write(f"/a/d1/more{number}", b"")
    directory = await at(scene, "/a/d1")
    await lose(scene, directory)
    reads: list[str] = []
    read = recheck.read_item

    async def read_item(store: MetadataStore, entry_key: str) -> Entry | None:
        reads.append(entry_key)
        return await read(store, entry_key)

    monkeypatch.setattr(recheck, "read_item", read_item)
    await scene.settled()
    assert await kinds(scene) == {"entry_missing"}
    assert {each for each in reads if each.startswith(directory.id)} == {f"{directory.id}/f0"}


@everywhere
async def test_a_check_of_a_subtree_writes_nothing(scene: Scene) -> None:
    directory = await at(scene, "/a/d0")
    held = replace(directory, pending=WriteIntent(scene.uuid()).text())
    await lose(scene, directory)
    await put(scene, held)
    await scene.settled()
    report = await verify_volume(scene.volume, path="/a/d0/f0", grace=GRACE)
    assert (report.files, report.problems) == (1, [])
    stored = await scene.volume.store.stored(directory.entry_key)
    assert stored is not None
    assert stored.pending == held.pending


@everywhere
async def test_an_entry_whose_path_has_become_too_long_is_repaired(scene: Scene) -> None:
    deep, below = "/n" + 9 * f"/{'n' * 200}", "/m" + 9 * f"/{'m' * 200}"
    async with client(scene) as fs:
        await fs.write(f"{deep}/f", b"deep")
        await fs.makedirs(below)
        entry = await at(scene, f"{deep}/f")
        await fs.rename("/n", f"{below}/n")
        await scene.lose_log(entry.id)
        assert await repaired(scene) == {("log_missing", "log_again", "done")}
        await fs.rename(f"{below}/n", "/n")
        assert await fs.read(f"{deep}/f") == b"deep"


@everywhere
async def test_a_directory_with_the_id_of_a_file_keeps_its_item(scene: Scene) -> None:
    """What is in it has no other way."""
    directory, file = await at(scene, "/a/d1"), await at(scene, "/top")
    before = await contents(scene)
    await put(scene, replace(directory, path="/a/twin", id=file.id))
    await put(scene, replace(file, path="/a/twin/f", id=scene.uuid(), directory=file.id))
    await scene.settled()
    report = await repair_volume(scene.volume, dry_run=False, grace=GRACE)
    outcomes = {(each.finding.kind, each.outcome) for each in report.repairs}
    assert ("duplicate_id", "left") in outcomes
    assert await contents(scene) == before | {"/a/twin/f": b"/top"}
