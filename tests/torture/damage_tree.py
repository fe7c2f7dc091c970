"""Damages of directories in layout `tree`, each of a tree of its own: `d0/f0`, `d0/f1`, `d1/f0`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from s3k_async import S3kClient
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Put, Update
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.model import Entry
from s3k_async.table.codec import to_item
from s3k_async.testing import FaultPlan
from tests.client.rig import faulty_client
from tests.torture.damage import Scene

__all__ = ["DAMAGED_TREES", "at", "client", "lose", "plant", "put", "removed_as_empty"]

FILES = ("d0/f0", "d0/f1", "d1/f0")


def client(scene: Scene) -> AbstractAsyncContextManager[S3kClient]:
    """A client with the clock of the scene."""
    return faulty_client(FaultPlan(), scene.volume.config, scene.volume.store.runtime)


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


async def plant(scene: Scene, top: str) -> None:
    """The tree that is to be damaged."""
    for name in FILES:
        await scene.write(f"{top}/{name}", f"{top}/{name}".encode())


async def _lost_directory(scene: Scene, top: str) -> None:
    await lose(scene, await at(scene, f"{top}/d0"))


async def _lost_directories_and_files(scene: Scene, top: str) -> None:
    for name in ("d0/f0", "d0", "d1"):
        await lose(scene, await at(scene, f"{top}/{name}"))
    await lose(scene, await at(scene, top))


async def _unknown_directory(scene: Scene, top: str) -> None:
    directory = await at(scene, f"{top}/d1")
    await scene.lose_log(directory.id)
    await lose(scene, directory)


async def _taken_path(scene: Scene, top: str) -> None:
    await lose(scene, await at(scene, f"{top}/d1"))
    await scene.volume.store.make_directory(f"{top}/d1")


async def _files_in_a_removed_directory(scene: Scene, top: str) -> None:
    directory = await removed_as_empty(scene, f"{top}/gone")
    for name in FILES[:2]:
        file = await at(scene, f"{top}/{name}")
        copy = replace(file, id=scene.uuid(), directory=directory.id, mtime_ms=1)
        content = await scene.volume.storage.put(copy.id, b"late")
        await put(scene, replace(copy, physical=content.physical))


async def _directory_in_a_removed_directory(scene: Scene, top: str) -> None:
    directory = await removed_as_empty(scene, f"{top}/gone")
    inner = await at(scene, f"{top}/d0")
    await lose(scene, inner)
    await put(scene, replace(inner, directory=directory.id))


async def _two_places(scene: Scene, top: str) -> None:
    entry = await at(scene, f"{top}/d0")
    await put(scene, replace(entry, path=f"{top}/double"))


async def _cycle(scene: Scene, top: str) -> None:
    upper, inner = await at(scene, top), await at(scene, f"{top}/d0")
    await lose(scene, upper)
    await put(scene, replace(upper, directory=inner.id))


async def _unreadable_in_the_trash(scene: Scene, top: str) -> None:
    store = scene.volume.store
    directory = await at(scene, f"{top}/d0")
    await store.layout.delete_directory(directory, atomic=True)
    await scene.volume.store.changes.log.drained()
    key = TrashedDirectory.key(directory.id, store.keys)
    await scene.volume.items.write(Update(key, Condition(), remove=("why",)))


async def _healthy(scene: Scene, top: str) -> None:
    """Directories that were moved, deleted, and removed as empty."""
    layout = scene.volume.store.layout
    await layout.rename_directory(await at(scene, f"{top}/d0"), f"{top}/moved", atomic=True)
    await layout.delete_directory(await at(scene, f"{top}/d1"), atomic=True)
    await removed_as_empty(scene, f"{top}/empty")


DAMAGED_TREES: dict[str, Callable[[Scene, str], Awaitable[None]]] = {
    "healthy": _healthy,
    "lost_directory": _lost_directory,
    "lost_directories_and_files": _lost_directories_and_files,
    "unknown_directory": _unknown_directory,
    "taken_path": _taken_path,
    "files_in_a_removed_directory": _files_in_a_removed_directory,
    "directory_in_a_removed_directory": _directory_in_a_removed_directory,
    "two_places": _two_places,
    "cycle": _cycle,
    "unreadable_in_the_trash": _unreadable_in_the_trash,
}
"""Given the scene and the path of such a tree."""
