"""Damages of directories that only layout `tree` knows, and trees of their own to be damaged:
`d0/f0`, `d0/f1`, `d1/f0`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from s3k_async import S3kClient
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Put, Update
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.model import Entry, LayoutName, TrashItem
from s3k_async.oplog.entries import Operation
from s3k_async.table.codec import to_item
from tests.torture.damage import DAMAGES, Damage, Scene

__all__ = [
    "TREE_DAMAGES",
    "at",
    "client",
    "damage",
    "damages_of",
    "lose",
    "pending_move",
    "plant",
    "put",
    "removed_as_empty",
]

DAY_MS = 86_400_000
FILES = ("d0/f0", "d0/f1", "d1/f0")


def client(scene: Scene) -> AbstractAsyncContextManager[S3kClient]:
    """A client with the clock of the scene."""
    return scene.client()


async def at(scene: Scene, path: str) -> Entry:
    entry = await scene.volume.store.get(path)
    assert entry is not None, path
    return entry


async def removed_as_empty(scene: Scene, path: str) -> Entry:
    """A directory that was created and removed."""
    await scene.volume.store.make_directory(path)
    directory = await at(scene, path)
    async with client(scene) as fs:
        await fs.delete(path)
    return directory


async def lose(scene: Scene, entry: Entry) -> None:
    await scene.volume.items.write(Delete(scene.volume.store.keys.of(entry), Condition()))


async def put(scene: Scene, entry: Entry) -> None:
    await scene.volume.items.write(Put(to_item(entry, scene.volume.store.keys), ABSENT))


async def pending_move(scene: Scene, entry: Entry) -> None:
    """A rename of a directory that is in the log, and young."""
    after = entry.moved("/elsewhere", operation=scene.uuid())
    after = replace(after, directory=entry.directory)
    time_ms = scene.now_ms() + scene.young_ms
    await scene.log(
        Operation(after.operation, "rename", entry.id, after.version, time_ms, entry, after),
        "pending",
    )


async def plant(scene: Scene, top: str) -> None:
    """A tree that is to be damaged."""
    for name in FILES:
        await scene.write(f"{top}/{name}", f"{top}/{name}".encode())


async def damage(scene: Scene, name: str, path: str) -> None:
    """Carry out a damage of the layout at a file that is there; those of `TREE_DAMAGES` once, to a
    tree of their own."""
    if name in DAMAGES:
        await DAMAGES[name](scene, path)
        return
    top = f"/{name}"
    if await scene.find(top) is None:
        await plant(scene, top)
        await scene.settled()
        scene.top, before = top, scene.top
        await TREE_DAMAGES[name](scene, path)
        scene.top = before


async def file_in_a_removed_directory(scene: Scene, path: str) -> None:
    """Creators died between their write and their look at the directory."""
    directory = await removed_as_empty(scene, f"{scene.top}/gone")
    for name in FILES[:2]:
        file = await at(scene, f"{scene.top}/{name}")
        copy = replace(file, id=scene.uuid(), directory=directory.id, mtime_ms=1)
        content = await scene.volume.storage.put(copy.id, b"late")
        await put(scene, replace(copy, physical=content.physical))


async def directory_in_a_removed_directory(scene: Scene, path: str) -> None:
    """It goes into the trash."""
    directory = await removed_as_empty(scene, f"{scene.top}/gone")
    inner = await at(scene, f"{scene.top}/d0")
    await lose(scene, inner)
    await put(scene, replace(inner, directory=directory.id))
    scene.harmed |= scene.below(f"{scene.top}/d0")


async def directory_being_moved(scene: Scene, path: str) -> None:
    """It is at two places, as if a rename of it were under way."""
    entry = await at(scene, f"{scene.top}/d0")
    await pending_move(scene, entry)
    await put(scene, replace(entry, path=f"{scene.top}/double"))
    scene.cast_adrift(f"{scene.top}/d0")


async def lost_directory_being_moved(scene: Scene, path: str) -> None:
    entry = await at(scene, f"{scene.top}/d0")
    await pending_move(scene, entry)
    await lose(scene, entry)


async def cycle(scene: Scene, path: str) -> None:
    upper, inner = await at(scene, scene.top), await at(scene, f"{scene.top}/d0")
    await lose(scene, upper)
    await put(scene, replace(upper, directory=inner.id))
    scene.cast_adrift(scene.top)


async def unreadable_in_the_trash(scene: Scene, path: str) -> None:
    store = scene.volume.store
    directory = await at(scene, f"{scene.top}/d0")
    await store.layout.delete_directory(directory, atomic=True)
    await scene.volume.store.changes.log.drained()
    key = TrashedDirectory.key(directory.id, store.keys)
    await scene.volume.items.write(Update(key, Condition(), remove=("why",)))
    for each in scene.below(f"{scene.top}/d0"):
        del scene.files[each]


async def deleted_long_ago(scene: Scene, path: str) -> None:
    """Garbage collection has not run since, as is noted; of one of two directories the reclamation
    has begun."""
    store, top = scene.volume.store, scene.top
    for name in ("d0", "d1"):
        directory = await at(scene, f"{top}/{name}")
        await store.layout.delete_directory(directory, atomic=True)
        key = TrashedDirectory.key(directory.id, store.keys)
        if name == "d0":
            stored = await scene.volume.items.get(key)
            assert stored is not None
            when_ms = TrashedDirectory.from_item(stored, store.keys).when_ms
            await store.layout.trash().empty([TrashItem(directory.id, f"{top}/{name}", when_ms)])
        long_ago = {"when": scene.now_ms() - 3 * DAY_MS}
        await scene.volume.items.write(Update(key, Condition(), set=long_ago))
    for each in scene.below(f"{top}/d0") | scene.below(f"{top}/d1"):
        del scene.files[each]


async def removed_directories(scene: Scene, path: str) -> None:
    """Nothing is wrong with directories that were moved, deleted, and removed as empty."""
    layout, top = scene.volume.store.layout, scene.top
    await layout.rename_directory(await at(scene, f"{top}/d0"), f"{top}/moved", atomic=True)
    await layout.delete_directory(await at(scene, f"{top}/d1"), atomic=True)
    await removed_as_empty(scene, f"{top}/empty")
    for each in scene.below(f"{top}/d0"):
        scene.files[each.replace("/d0/", "/moved/")] = scene.files.pop(each)
    for each in scene.below(f"{top}/d1"):
        del scene.files[each]


TREE_DAMAGES: Mapping[str, Damage] = {
    each.__name__: each
    for each in (
        # In layout `path` an entry is at the path of its directory, which others may create again.
        file_in_a_removed_directory,
        directory_in_a_removed_directory,
        # In layout `path` an item at another path is not the same directory.
        directory_being_moved,
        lost_directory_being_moved,
        # In layout `path` no directory can be below itself.
        cycle,
        # Layout `path` has no trash.
        unreadable_in_the_trash,
        deleted_long_ago,
        removed_directories,
    )
}
"""Damages, and changes that look like some, that layout `path` does not have, with the reasons."""


def damages_of(layout: LayoutName) -> Mapping[str, Damage]:
    """All damages of a layout."""
    return DAMAGES if layout == "path" else {**DAMAGES, **TREE_DAMAGES}
