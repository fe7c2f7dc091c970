"""What S3-FileSystem 1.0 leaves in a table and a bucket: items without conditions, bytes and log in
one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_blobs import MemoryBlobs as MemoryBlobStore
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Item, ItemStore, Key, Put
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.oplog.binary_entries import JavaEntryV2, JavaKind, JavaState, write_java

__all__ = ["CTIME", "UNCOMMITTED", "OldFiles", "memory_volume", "suffix"]

CTIME = 1_600_000_000
UNCOMMITTED = "<uncommitted>"


def suffix(name: str, count: int) -> int:
    """`Math.abs(String.hashCode()) % count`."""
    value = 0
    for unit in memoryview(name.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >= 1 << 31 else value) % count


@dataclass
class OldFiles:
    """Writes as the old system does, a step at a time if need be."""

    name: str
    items: ItemStore
    blobs: BlobStore
    count: int = 10

    def key(self, path: str) -> Key:
        """Where the item of a path is."""
        parent, _, name = path.rpartition("/")
        return Key(f"ks://{self.name}{parent or '/'}-sf{suffix(name, self.count)}", name)

    async def put_item(self, item: Item) -> None:
        """Unconditionally."""
        key = Key(str(item["path"]), str(item["children"]))
        if await self.items.get(key) is not None:
            await self.items.write(Delete(key, Condition()))
        await self.items.write(Put(item, ABSENT))

    async def delete_item(self, path: str) -> None:
        await self.items.write(Delete(self.key(path), Condition()))

    def item(self, path: str, identity: str, version: int, **more: Any) -> Item:
        partition, name = self.key(path)
        fixed = {
            "path": partition,
            "children": name,
            "isdir": False,
            "ctime": CTIME,
            "ver": version,
            "id": identity,
        }
        return {**fixed, **more}

    async def directory(self, path: str, *, identity: str | None = None, version: int = 1) -> str:
        """Make a directory; its id."""
        identity = identity or SYSTEM.uuid()
        await self.put_item(self.item(path, identity, version, isdir=True))
        return identity

    async def log(
        self,
        path: str,
        identity: str,
        version: int,
        *,
        physical: str,
        size: int,
        state: JavaState = "COMMITTED",
        kind: JavaKind = "UPDATE",
    ) -> None:
        """Write the log object of a file."""
        entry = JavaEntryV2(
            ctime=CTIME,
            size=size,
            physical=physical,
            logical=f"ks://{self.name}{path}",
            committed=physical != UNCOMMITTED,
            version=version,
            id=identity,
            state=state,
            kind=kind,
        )
        await self.blobs.put(f"{identity}.info", write_java(entry))

    async def reserve(self, path: str, *, logged: bool = True) -> str:
        """Begin to write a file; its id."""
        identity = SYSTEM.uuid()
        await self.put_item(
            self.item(path, identity, 1, size=0, physpath=UNCOMMITTED, physcommitted=False)
        )
        if logged:
            await self.log(path, identity, 1, physical=UNCOMMITTED, size=0, kind="CREATE")
        return identity

    async def file(self, path: str, data: bytes, *, version: int = 2, logged: bool = True) -> str:
        """Write a file; its id."""
        identity = SYSTEM.uuid()
        key = f"{SYSTEM.uuid()}.id={identity}"
        await self.blobs.put(key, data)
        physical = self.blobs.uri(key).replace("s3://", "s3a://", 1)
        await self.put_item(
            self.item(
                path, identity, version, size=len(data), physpath=physical, physcommitted=True
            )
        )
        if logged:
            await self.log(path, identity, version, physical=physical, size=len(data))
        return identity


async def memory_volume(name: str, count: int = 10) -> tuple[OldFiles, VolumeConfig]:
    """An empty volume in memory, whose log is among its data, and how it is opened."""
    items, blobs = MemoryItems(name), MemoryBlobStore(name)
    await items.create()
    await blobs.create()
    place = MemoryBlobs(name)
    config = VolumeConfig(name, MemoryTable(name), place, place, kind="s3k-1.0", suffix_count=count)
    return OldFiles(name, items, blobs, count), config
