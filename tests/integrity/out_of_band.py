"""A volume in memory that another program changes behind its back, and what its verbs do then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.blobs import BlobStore
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
    Value,
)
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import S3kError
from s3k_async.integrity.repair import verify_volume
from s3k_async.model import Entry, LayoutName
from s3k_async.oplog.entries import LogRecord, Operation, encode, entry_key, history_prefix
from s3k_async.table.codec import to_item
from s3k_async.txn.volume_record import RECORD_KEY
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import memory_config

__all__ = ["CHANGES", "VERBS", "Change", "Ground", "findings", "outcome", "stream"]

FIRST: Final = b"first"
SECOND: Final = b"second version"
"""The content of `/d/f`."""
OTHER: Final = b"another file"


@dataclass
class Ground:
    """The volume: `/d/f` in its second version, and `/d/g`."""

    config: VolumeConfig
    volume: Volume
    entry: Entry
    first: Entry
    other: Entry

    @staticmethod
    @asynccontextmanager
    async def start(layout: LayoutName) -> AsyncIterator[Ground]:
        """A new volume, removed at the end."""
        config = memory_config(layout=layout)
        await init_volume(config)
        volume = await open_volume(config)
        try:
            async with S3kClient(config=config) as fs:
                await fs.write("/d/f", FIRST)
                first = await _entry(volume, "/d/f")
                await fs.write("/d/f", SECOND)
                await fs.write("/d/g", OTHER)
            entry, other = await _entry(volume, "/d/f"), await _entry(volume, "/d/g")
            yield Ground(config, volume, entry, first, other)
        finally:
            await volume.close()
            await MemoryItems(config.name).drop()
            await MemoryBlobs(config.name).drop()
            await MemoryBlobs(f"{config.name}/oplog").drop()

    @property
    def data(self) -> BlobStore:
        return self.volume.blobs

    @property
    def key(self) -> str:
        """The physical key of `/d/f`."""
        return str(self.entry.physical)

    @property
    def log(self) -> BlobStore:
        assert self.volume.log_blobs is not None
        return self.volume.log_blobs

    async def logged(self) -> str:
        """The key of the log entry of the last change of `/d/f`."""
        keys = [info.key async for info in list_all(self.log, history_prefix(self.entry.id))]
        return max(key for key in keys if key.endswith("committed"))

    async def put(self, item: Mapping[str, Value]) -> None:
        """Put an item, whatever is there."""
        key = Key(str(item[PARTITION]), str(item[SORT]))
        if await self.volume.items.get(key) is not None:
            await self.volume.items.write(Delete(key, Condition()))
        await self.volume.items.write(Put(item, ABSENT))

    async def cut(self, key: Key, kept: int) -> None:
        """Take all but the first attributes from an item."""
        item = await self.item(key)
        names = [name for name in item if name not in (PARTITION, SORT)][kept:]
        await self.volume.items.write(Update(key, Condition(), remove=tuple(names)))

    async def item(self, key: Key) -> Item:
        item = await self.volume.items.get(key)
        assert item is not None
        return item

    @property
    def item_key(self) -> Key:
        return self.volume.store.keys.of(self.entry)


async def _entry(volume: Volume, path: str) -> Entry:
    entry = await volume.store.get(path)
    assert entry is not None
    return entry


async def _overwrite_data(ground: Ground) -> None:
    await ground.data.put(ground.key, b"x" * len(SECOND))


async def _delete_data(ground: Ground) -> None:
    await ground.data.delete(ground.key)


async def _create_data(ground: Ground) -> None:
    runtime = ground.volume.store.runtime
    await ground.data.put(runtime.physical_key(runtime.uuid()), b"whose?")


async def _truncate_data(ground: Ground) -> None:
    await ground.data.put(ground.key, SECOND[:-4])


async def _replace_data(ground: Ground) -> None:
    """Other bytes, longer than the file, as a new object."""
    await ground.data.delete(ground.key)
    await ground.data.put(ground.key, SECOND + b" and more")


async def _overwrite_item(ground: Ground) -> None:
    """With its former version, as a restored backup would."""
    await ground.put(to_item(ground.first, ground.volume.store.keys))


async def _delete_item(ground: Ground) -> None:
    await ground.volume.items.write(Delete(ground.item_key, Condition()))


async def _create_item(ground: Ground) -> None:
    """An additional one, of a file that was never written."""
    store = ground.volume.store
    uuid, name = store.runtime.uuid(), "/d/h"
    entry_key = ground.entry.entry_key.removesuffix("f") + "h"
    made = replace(ground.entry, id=uuid, path=name, operation="")
    item = dict(to_item(made, store.keys))
    key = store.keys.key(entry_key)
    await ground.put({**item, PARTITION: key.partition, SORT: key.sort})


async def _truncate_item(ground: Ground) -> None:
    await ground.cut(ground.item_key, 3)


async def _replace_item(ground: Ground) -> None:
    """With that of the other file."""
    item = dict(to_item(ground.other, ground.volume.store.keys))
    key = ground.item_key
    await ground.put({**item, PARTITION: key.partition, SORT: key.sort})


async def _overwrite_log(ground: Ground) -> None:
    key = await ground.logged()
    await ground.log.put(key, b"x" * len(await ground.log.get(key)))


async def _delete_log(ground: Ground) -> None:
    async for info in list_all(ground.log, history_prefix(ground.entry.id)):
        await ground.log.delete(info.key)


async def _create_log(ground: Ground) -> None:
    """Of a deletion that never happened."""
    entry, runtime = ground.entry, ground.volume.store.runtime
    operation = Operation(
        runtime.uuid(), "delete", entry.id, entry.version + 1, runtime.now_ms(), entry, None
    )
    record = LogRecord(operation, "committed")
    await ground.log.put(entry_key(operation, "committed"), encode(record))


async def _truncate_log(ground: Ground) -> None:
    key = await ground.logged()
    data = await ground.log.get(key)
    await ground.log.put(key, data[: len(data) // 2])


async def _replace_log(ground: Ground) -> None:
    """With that of the other file."""
    keys = [info.key async for info in list_all(ground.log, history_prefix(ground.other.id))]
    await ground.log.put(await ground.logged(), await ground.log.get(keys[0]))


async def _overwrite_record(ground: Ground) -> None:
    await ground.put({**await ground.item(RECORD_KEY), "suffix_count": 7})


async def _delete_record(ground: Ground) -> None:
    await ground.volume.items.write(Delete(RECORD_KEY, Condition()))


async def _create_record(ground: Ground) -> None:
    """A second one, under another sort key."""
    await ground.put({**await ground.item(RECORD_KEY), SORT: "record-2"})


async def _truncate_record(ground: Ground) -> None:
    await ground.cut(RECORD_KEY, 3)


async def _replace_record(ground: Ground) -> None:
    """With that of another volume, whose table had the tag as well."""
    config = memory_config(layout=ground.config.layout or "path")
    await init_volume(config)
    other = await open_volume(config)
    item = await other.items.get(RECORD_KEY)
    await other.close()
    assert item is not None
    await ground.put(item)


Change = Callable[[Ground], Awaitable[None]]
CHANGES: Final[Mapping[tuple[str, str], Change]] = {
    ("data", "overwrite"): _overwrite_data,
    ("data", "delete"): _delete_data,
    ("data", "create"): _create_data,
    ("data", "truncate"): _truncate_data,
    ("data", "replace"): _replace_data,
    ("item", "overwrite"): _overwrite_item,
    ("item", "delete"): _delete_item,
    ("item", "create"): _create_item,
    ("item", "truncate"): _truncate_item,
    ("item", "replace"): _replace_item,
    ("log", "overwrite"): _overwrite_log,
    ("log", "delete"): _delete_log,
    ("log", "create"): _create_log,
    ("log", "truncate"): _truncate_log,
    ("log", "replace"): _replace_log,
    ("record", "overwrite"): _overwrite_record,
    ("record", "delete"): _delete_record,
    ("record", "create"): _create_record,
    ("record", "truncate"): _truncate_record,
    ("record", "replace"): _replace_record,
}
"""What is changed, and how."""


async def _stat(fs: S3kClient, path: str) -> str:
    status = await fs.stat(path)
    names = {len(SECOND): "ok", len(FIRST): "former version", len(OTHER): "`/d/g`"}
    return names.get(status.size, "WRONG SIZE")


def _known(data: bytes) -> str:
    names = {SECOND: "ok", FIRST: "former version", OTHER: "`/d/g`"}
    return names.get(data, "WRONG BYTES")


async def _read(fs: S3kClient, path: str) -> str:
    return _known(await fs.read(path))


async def _range(fs: S3kClient, path: str) -> str:
    """All but the first byte, which is no whole file, whose checksum could be verified."""
    size = (await fs.stat(path)).size
    (data,) = await fs.read_ranges(path, [(1, size)])
    return _known(next((each for each in (SECOND, FIRST, OTHER) if each[1:] == data), data))


async def _ls(fs: S3kClient, path: str) -> str:
    names = {status.name async for status in fs.list("/d")}
    return "ok" if names == {"f", "g", path.rpartition("/")[2]} else "not listed"


async def _overwrite(fs: S3kClient, path: str) -> str:
    await fs.write(path, b"written over")
    return "ok" if await fs.read(path) == b"written over" else "WRONG BYTES"


async def _delete(fs: S3kClient, path: str) -> str:
    await fs.delete(path)
    return "STILL THERE" if await fs.exists(path) else "ok"


async def _rename(fs: S3kClient, path: str) -> str:
    await fs.rename(path, "/moved")
    moved = await fs.exists("/moved") and not await fs.exists(path)
    return "ok" if moved else "NOT MOVED"


async def _copy(fs: S3kClient, path: str) -> str:
    await fs.copy(path, "/copied")
    return _known(await fs.read("/copied"))


async def _append(fs: S3kClient, path: str) -> str:
    """The file is read, too: appending reads nothing. A missing one is created."""
    async with fs.open(path, "ab") as writer:
        await writer.write(b"+")
    data = await fs.read(path)
    if data == b"+":
        return "new file"
    return _known(data[:-1]) if data.endswith(b"+") else "WRONG BYTES"


async def _delete_directory(fs: S3kClient, path: str) -> str:
    await fs.delete("/d", recursive=True)
    return "STILL THERE" if await fs.exists("/d") or await fs.exists(path) else "ok"


async def _undelete(fs: S3kClient, path: str) -> str:
    await fs.delete(path)
    await fs.undelete(path)
    return _known(await fs.read(path))


async def stream(ground: Ground, make: Change) -> str:
    """What an open file does that was opened before the change."""
    async with S3kClient(config=ground.config) as fs:
        file = await fs.open("/d/f")
        await make(ground)
        try:
            return _known(await file.read())
        except S3kError as error:
            return type(error).__name__


Verb = Callable[[S3kClient, str], Awaitable[str]]
VERBS: Final[Mapping[str, Verb]] = {
    "stat": _stat,
    "ls": _ls,
    "read": _read,
    "range": _range,
    "overwrite": _overwrite,
    "append": _append,
    "copy": _copy,
    "rename": _rename,
    "delete": _delete,
    "delete -r": _delete_directory,
    "undelete": _undelete,
}


async def outcome(ground: Ground, verb: str, path: str) -> str:
    """What a new client does: `ok`, or the error."""
    try:
        async with S3kClient(config=ground.config) as fs:
            return await VERBS[verb](fs, path)
    except S3kError as error:
        return type(error).__name__


async def findings(ground: Ground, *, deep: bool) -> str:
    """What fsck reports when nothing is young, but for the data of the first version, or its
    error."""
    try:
        volume = await open_volume(ground.config)
    except S3kError as error:
        return type(error).__name__
    try:
        report = await verify_volume(volume, grace=-60.0, deep=deep)
    finally:
        await volume.close()
    former = ground.first.physical
    kinds = {each.kind for each in report.findings if each.key != former}
    return ", ".join(sorted(kinds)) or "clean"
