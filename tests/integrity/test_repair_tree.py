"""fsck of layout `tree`: what is known by the ids of directories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest

from s3k_async import S3kClient
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Put, Update
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.integrity.facts import Action, FindingKind
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.model import Entry
from s3k_async.table.codec import to_item
from s3k_async.testing import FaultPlan
from tests.client.rig import faulty_client
from tests.engines.volumes import fresh_name
from tests.torture.damage import GRACE, Scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    name = fresh_name("tree")
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), layout="tree")
    world = await Scene.start(place=config)
    yield world
    await world.end()


def client(scene: Scene) -> AbstractAsyncContextManager[S3kClient]:
    """A client with the clock of the scene."""
    return faulty_client(FaultPlan(), scene.volume.config, scene.volume.store.runtime)


async def at(scene: Scene, path: str) -> Entry:
    entry = await scene.volume.store.get(path)
    assert entry is not None, path
    return entry


async def lose(scene: Scene, entry: Entry) -> None:
    await scene.volume.items.write(Delete(scene.volume.store.keys.of(entry), Condition()))


async def put(scene: Scene, entry: Entry) -> None:
    await scene.volume.items.write(Put(to_item(entry, scene.volume.store.keys), ABSENT))


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


async def test_a_lost_directory_comes_back_with_all_below_it(scene: Scene) -> None:
    before = await contents(scene)
    await lose(scene, await at(scene, "/a/d0"))
    assert await repaired(scene) == {("entry_missing", "restore_entry", "done")}
    assert await contents(scene) == before


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


async def test_a_directory_whose_path_is_taken_keeps_its_files(scene: Scene) -> None:
    directory = await at(scene, "/a/d1")
    await lose(scene, directory)
    await scene.volume.store.make_directory("/a/d1")
    await scene.settled()
    assert await repaired(scene) == {("entry_missing", "make_parent", "done")}
    assert (await contents(scene))[f"/lost+found/{directory.id}/f0"] == b"/a/d1/f0"


async def test_a_file_in_a_directory_removed_as_empty_is_removed(scene: Scene) -> None:
    """Its creator died between its write and its look at the directory."""
    store = scene.volume.store
    await store.make_directory("/gone")
    directory = await at(scene, "/gone")
    async with client(scene) as fs:
        await fs.delete("/gone")
    await scene.settled()
    file = replace(await at(scene, "/top"), id=scene.uuid(), directory=directory.id)
    content = await scene.volume.storage.put(file.id, b"late")
    await put(scene, replace(file, physical=content.physical, mtime_ms=1))
    young = await verify_volume(scene.volume, grace=GRACE)
    assert "unreachable_entry" not in young.kinds
    assert ("unreachable_entry", "remove_entry", "done") in await repaired(scene)
    assert await store.stored(file.entry_key) is None


async def test_a_directory_in_a_removed_directory_is_moved_into_the_trash(scene: Scene) -> None:
    store = scene.volume.store
    await store.make_directory("/gone")
    directory = await at(scene, "/gone")
    async with client(scene) as fs:
        await fs.delete("/gone")
    inner = await at(scene, "/a/d0")
    await lose(scene, inner)
    await put(scene, replace(inner, directory=directory.id))
    await scene.settled()
    assert ("unreachable_entry", "remove_entry", "done") in await repaired(scene)
    (item,) = await store.layout.trash().items()
    assert item.id == inner.id


async def test_a_directory_at_two_places_stays_where_the_log_has_it(scene: Scene) -> None:
    before = await contents(scene)
    entry = await at(scene, "/a/d0")
    await put(scene, replace(entry, path="/a/double"))
    assert await repaired(scene) == {("duplicate_id", "remove_item", "done")}
    assert await contents(scene) == before


async def test_a_cycle_of_directories_is_broken(scene: Scene) -> None:
    top, inner = await at(scene, "/a"), await at(scene, "/a/d0")
    await lose(scene, top)
    await put(scene, replace(top, directory=inner.id))
    assert ("directory_cycle", "move_item", "done") in await repaired(scene)
    found = await contents(scene)
    assert found[f"/lost+found/{top.id}/d0/f0"] == b"/a/d0/f0"


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


async def test_a_subtree_is_checked_by_a_walk(scene: Scene) -> None:
    await lose(scene, await at(scene, "/top"))
    await scene.settled()
    assert (await verify_volume(scene.volume, path="/a", grace=GRACE)).problems == []
    await lose(scene, await at(scene, "/a/d0/f0"))
    report = await verify_volume(scene.volume, path="/a", grace=GRACE)
    assert [(each.kind, each.path) for each in report.problems] == [("entry_missing", "/a/d0/f0")]
