"""A healthy volume in memory, and every way of damaging it that fsck's tables know in both layouts.

`tests/torture/damage_tree.py` has those of layout `tree` alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from anyio import sleep_forever

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import ABSENT, Action, Condition, Delete, Key, Put, Update
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.config import LogMode, MemoryTable, Tuning, VolumeConfig
from s3k_async.config import MemoryBlobs as MemoryLocation
from s3k_async.files.multipart import create_upload, put_part
from s3k_async.integrity.recheck import read_item
from s3k_async.model import UNCOMMITTED, Content, Entry, LayoutName
from s3k_async.oplog.entries import LogRecord, Operation, encode, entry_key, history_prefix
from s3k_async.table.codec import to_item
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.testing import Died, FaultPlan
from s3k_async.txn.txn_record import RENEW_SECONDS, TRANSACTION_PARTITION, OwnedTransaction
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import faulty_client
from tests.engines.volumes import fresh_name
from tests.support import FakeClock, fake_runtime

__all__ = [
    "DAMAGES",
    "GRACE",
    "ONLY",
    "PATHS",
    "YOUNG_BYTES",
    "Damage",
    "Scene",
    "die_at_publication",
]

GRACE = 60.0
YOUNG_BYTES = b"uploaded right now"
ONLY: Mapping[LayoutName, frozenset[tuple[str, tuple[str, ...]]]] = {
    "path": frozenset(
        {
            # S3-FileSystem 1.0 has this layout.
            ("ids", ("S3-FileSystem 1.0", "directory", "of several versions")),
            ("reservations", ("S3-FileSystem 1.0",)),
            # Two directories with one id have different children, so each needs an id of its own.
            ("ids", ("directory",)),
            # The entries of a lost directory are in that which is at its path.
            ("log", ("no entry", "log: directory", "path is taken by a directory")),
            # Entries can be below a file, whose path is their directory key.
            ("parents", ("a file is there",)),
        }
    ),
    "tree": frozenset(
        {
            # Two items of a directory have the same children.
            ("ids", ("directories by id", "directory", "something pending")),
            ("ids", ("directories by id", "directory")),
            # The entries of a lost directory are in no other one.
            ("log", ("no entry", "directories by id", "log: directory", "path is taken")),
            # The log is asked where a directory is, whose id does not tell its path.
            ("parents", ("no log to ask",)),
            ("parents", ("log: directory exists",)),
            ("parents", ("log: operation pending",)),
            ("parents", ("log: removed just now",)),
            ("parents", ("log: directory removed",)),
            # Paths cannot lead in a circle.
            ("cycles", ("it exists",)),
            ("cycles", ()),
            # There is a trash.
            ("trash", ("deleted long ago", "reclamation begun")),
            ("trash", ("deleted long ago",)),
            ("trash", ()),
        }
    ),
}
"""The rows of fsck's tables that only one layout can reach, by table and conditions."""
PATHS = ("/top", *(f"/a/d{directory}/f{file}" for directory in range(2) for file in range(3)))


@dataclass
class Scene:
    """The volume, what its files hold, and which of them are no longer expected to."""

    volume: Volume
    clock: FakeClock
    name: str
    files: dict[str, bytes] = field(default_factory=dict)
    harmed: set[str] = field(default_factory=set)
    """Paths whose bytes or entry no repair can bring back."""
    unlogged: set[str] = field(default_factory=set)
    """Paths of which the log does not tell what the table does, or tells it of another path as
    well."""
    untabled: set[str] = field(default_factory=set)
    """Paths of which only the log knows what the bytes are."""
    adrift: set[str] = field(default_factory=set)
    """Paths of files in layout `tree` that are elsewhere after the repair, as in `/lost+found`,
    since their directory is."""
    doubled: set[str] = field(default_factory=set)
    """Paths of directories that have another item as well."""
    top: str = "/a"
    """The tree whose directories are damaged: `d0` and `d1` are in it."""
    young_ms: int = 10**6
    """How far ahead of the clock the times lie of what is to be young."""

    @staticmethod
    async def start(
        log_mode: LogMode = "native",
        *,
        layout: LayoutName | None = None,
        place: VolumeConfig | None = None,
        clock: FakeClock | None = None,
        lease: float = 600.0,
        seed: int | str = 3,
    ) -> Scene:
        """`layout`: that of `place`, or `path`, unless given. `place`: where the volume is; in
        memory unless given. `seed`: decides the ids."""
        name = fresh_name("damage") if place is None else place.name
        clock = clock or FakeClock()
        fake = fake_runtime(clock, seed=seed)

        async def sleep(seconds: float) -> None:
            # Nothing takes time here, so a lease that is renewed would advance the clock alone.
            await (sleep_forever() if seconds == RENEW_SECONDS else fake.sleep(seconds))

        runtime = replace(fake, sleep=sleep)
        place = place or VolumeConfig(name, MemoryTable(name), MemoryLocation(name))
        config = replace(
            place,
            layout=layout or place.layout,
            suffix_count=3,
            log_mode=log_mode,
            tuning=Tuning(busy_timeout=5.0, lease=lease),
        )
        await init_volume(config, runtime=runtime)
        scene = Scene(await open_volume(config, runtime=runtime), clock, name)
        for path in PATHS:
            await scene.write(path, path.encode())
        await scene.write("/a/d0/f1", b"written over")
        await scene.volume.store.rename_file(await scene.need("/a/d0/f2"), "/a/d1/moved")
        scene.files["/a/d1/moved"] = scene.files.pop("/a/d0/f2")
        await scene.settled()
        return scene

    async def end(self) -> None:
        await self.volume.close()
        await MemoryItems(self.name).drop()
        await MemoryBlobs(self.name).drop()
        await MemoryBlobs(f"{self.name}/oplog").drop()

    @property
    def log_blobs(self) -> BlobStore:
        assert self.volume.log_blobs is not None
        return self.volume.log_blobs

    async def settled(self) -> None:
        """Everything so far is old."""
        await self.volume.store.changes.log.drained()
        self.clock.advance(1000)

    async def write(self, path: str, data: bytes) -> Entry:
        target = await self.volume.store.prepare(path)
        content = await self.volume.storage.put(target.object_id, data)
        self.files[path] = data
        return await self.volume.store.publish(target, content)

    @asynccontextmanager
    async def client(self, faults: FaultPlan | None = None) -> AsyncIterator[S3kClient]:
        """A client with the clock of the scene."""
        runtime = self.volume.store.runtime
        async with faulty_client(faults or FaultPlan(), self.volume.config, runtime) as fs:
            yield fs

    @property
    def by_id(self) -> bool:
        """Whether the layout is `tree`."""
        return self.volume.store.keys.by_id

    async def entry_key(self, path: str) -> str | None:
        """The entry key of the path; None if its directory is not there, or cannot be read."""
        keys = self.volume.store.keys
        parent, _, name = path.rpartition("/")
        if not self.by_id:
            return path
        directory = await self.find(parent) if parent else ROOT_ENTRY
        return keys.child(directory.id, name) if directory and directory.is_dir else None

    async def key(self, path: str) -> Key:
        """The key of the item of the path."""
        entry_key = await self.entry_key(path)
        assert entry_key is not None, path
        return self.volume.store.keys.key(entry_key)

    async def find(self, path: str) -> Entry | None:
        """What is stored at the path, if it can be read."""
        entry_key = await self.entry_key(path)
        entry = None if entry_key is None else await read_item(self.volume.store, entry_key)
        return entry and replace(entry, path=path)

    async def need(self, path: str) -> Entry:
        entry = await self.find(path)
        assert entry is not None, path
        return entry

    async def lose(self, path: str) -> None:
        await self.volume.items.write(Delete(await self.key(path), Condition()))

    async def lose_directory(self, path: str) -> None:
        """Lose the item of a directory, which is at another path if it has an item there."""
        if path in self.doubled:
            self.cast_adrift(path)
        await self.lose(path)

    def below(self, path: str) -> set[str]:
        """The paths of the files below a directory."""
        return {each for each in self.files if each.startswith(path + "/")}

    def cast_adrift(self, path: str) -> None:
        """In layout `tree`, the files below the directory will be elsewhere."""
        if self.by_id:
            self.adrift |= self.below(path)

    def forget(self, path: str) -> None:
        """The item is about to be lost: what the log does not know is lost with it."""
        self.harmed |= {path} & self.unlogged

    def unlog(self, path: str) -> None:
        """The log is about to lose what it says: what the table does not know is lost with it."""
        self.unlogged.add(path)
        self.harmed |= {path} & self.untabled

    async def put(self, entry: Entry) -> None:
        """Put an item there, whatever is there."""
        key = self.volume.store.keys.of(entry)
        if await self.volume.items.get(key) is not None:
            await self.volume.items.write(Delete(key, Condition()))
        await self.volume.items.write(Put(to_item(entry, self.volume.store.keys), ABSENT))

    async def log_keys(self, object_id: str, end: str = "") -> list[str]:
        """The keys of an object's entries in the log, in their order."""
        found = list_all(self.log_blobs, history_prefix(object_id))
        return [info.key async for info in found if info.key.endswith(end)]

    async def lose_log(self, object_id: str, end: str = "") -> None:
        for key in await self.log_keys(object_id, end):
            await self.log_blobs.delete(key)

    async def log(self, operation: Operation, state: Any) -> None:
        await self.log_blobs.put(entry_key(operation, state), encode(LogRecord(operation, state)))

    def uuid(self) -> str:
        return self.volume.store.runtime.uuid()

    def now_ms(self) -> int:
        return self.clock.now_ms()


Damage = Callable[[Scene, str], Awaitable[None]]
"""Given the scene and a file that is there; says in `harmed` what it destroys for good."""


async def nothing(scene: Scene, path: str) -> None:
    """The first rows of most tables."""


async def no_item(scene: Scene, path: str) -> None:
    scene.forget(path)
    await scene.lose(path)


async def no_item_no_bytes(scene: Scene, path: str) -> None:
    await no_bytes(scene, path)
    await scene.lose(path)


async def no_directory(scene: Scene, path: str) -> None:
    if await scene.find(f"{scene.top}/d0") is not None:
        await scene.lose_directory(f"{scene.top}/d0")


async def no_directory_nor_log(scene: Scene, path: str) -> None:
    entry = await scene.find(f"{scene.top}/d1")
    if entry is not None:
        await scene.lose_log(entry.id)
        await scene.lose(f"{scene.top}/d1")
        scene.cast_adrift(f"{scene.top}/d1")


async def no_directories_nor_files(scene: Scene, path: str) -> None:
    for each in (f"{scene.top}/d0/f0", f"{scene.top}/d0/f1", f"{scene.top}/d0", scene.top):
        if await scene.find(each) is not None:
            scene.forget(each)
            await scene.lose_directory(each)


async def other_directory(scene: Scene, path: str) -> None:
    if await scene.find(f"{scene.top}/d0") is not None:
        await scene.lose(f"{scene.top}/d0")
        await scene.volume.store.make_directory(f"{scene.top}/d0")
        scene.cast_adrift(f"{scene.top}/d0")


async def other_file(scene: Scene, path: str) -> None:
    """From now on the log knows two objects at the path, both of them alive."""
    scene.unlog(path)
    await scene.lose(path)
    await scene.write(path, b"another")


async def file_for_directory(scene: Scene, path: str) -> None:
    if await scene.find(f"{scene.top}/d1") is not None:
        await scene.lose(f"{scene.top}/d1")
        await scene.write(f"{scene.top}/d1", b"in its place")
        scene.cast_adrift(f"{scene.top}/d1")
        if not scene.by_id:
            scene.harmed |= scene.below(f"{scene.top}/d1")


async def young_child(scene: Scene, path: str) -> None:
    if await scene.find(scene.top) is None:
        return
    entry = replace(
        await scene.need(path),
        path="/none/child",
        directory=scene.uuid() if scene.by_id else "",
        id=scene.uuid(),
        mtime_ms=scene.now_ms() + scene.young_ms,
    )
    await scene.put(entry)


async def no_bytes(scene: Scene, path: str) -> None:
    scene.harmed.add(path)
    await scene.volume.blobs.delete(str((await scene.need(path)).physical))


async def short_bytes(scene: Scene, path: str) -> None:
    scene.harmed.add(path)
    await scene.volume.blobs.put(str((await scene.need(path)).physical), b"")


async def replaced_object(scene: Scene, path: str) -> None:
    """An adopted object that somebody has written over with as many bytes."""
    key, blobs = f"feeds/{scene.uuid()}", scene.volume.place
    info = await blobs.put(key, b"adopted")
    target = await scene.volume.store.prepare(path + "-adopted")
    await scene.volume.store.publish(target, Content(blobs.uri(key), info.size, info.etag, ""))
    await blobs.put(key, b"another")


async def no_physical(scene: Scene, path: str) -> None:
    """An item that contradicts itself is quarantined, and the log knows better."""
    scene.forget(path)
    await scene.put(replace(await scene.need(path), physical=UNCOMMITTED))


async def stray_bytes(scene: Scene, path: str) -> None:
    await scene.volume.blobs.put(
        scene.volume.store.runtime.physical_key(scene.uuid()), b"never published"
    )


async def young_bytes(scene: Scene, path: str) -> None:
    scene.clock.advance(10**6)
    await scene.volume.blobs.put(scene.volume.store.runtime.physical_key(scene.uuid()), YOUNG_BYTES)
    scene.clock.advance(-(10**6))


async def open_upload(scene: Scene, path: str) -> None:
    """No damage: the data of a part that no entry names yet."""
    upload = await create_upload(scene.volume, f"{path}.new")
    await put_part(scene.volume, upload.id, 0, b"part")


async def foreign_bytes(scene: Scene, path: str) -> None:
    await scene.volume.blobs.put("feed.txt", b"somebody's")


async def no_log(scene: Scene, path: str) -> None:
    scene.unlog(path)
    await scene.lose_log((await scene.need(path)).id)


async def no_log_of_young(scene: Scene, path: str) -> None:
    scene.unlog(path)
    entry = await scene.need(path)
    await scene.put(replace(entry, mtime_ms=scene.now_ms() + scene.young_ms))
    await scene.lose_log(entry.id)


async def no_commit(scene: Scene, path: str) -> None:
    scene.unlog(path)
    await scene.lose_log((await scene.need(path)).id, "committed")


async def no_commits(scene: Scene, path: str) -> None:
    """Of two changes, one after the other."""
    scene.unlog(path)
    entry = await scene.write(path, b"once more")
    await scene.write(path, b"and again")
    await scene.settled()
    await scene.lose_log(entry.id, "committed")


async def cut_log(scene: Scene, path: str) -> None:
    scene.unlog(path)
    for key in (await scene.log_keys((await scene.need(path)).id, "committed"))[:1]:
        await scene.log_blobs.put(key, (await scene.log_blobs.get(key))[:-5])


async def newer_log(scene: Scene, path: str) -> None:
    await scene.log_blobs.put("segments/later.pending", b'{"s3k":"oplog-segment","format":99}\n')


async def never_happened(scene: Scene, path: str) -> None:
    """A pending operation that nobody carried out."""
    entry = await scene.need(path)
    after = replace(entry, version=entry.version + 1, path=path + "-moved", operation=scene.uuid())
    await scene.log(
        Operation(after.operation, "rename", entry.id, after.version, scene.now_ms(), entry, after),
        "pending",
    )


async def under_way(scene: Scene, path: str) -> None:
    entry = await scene.need(path)
    after = replace(entry, version=entry.version + 1, path=path + "-moving", operation=scene.uuid())
    time_ms = scene.now_ms() + scene.young_ms
    await scene.log(
        Operation(after.operation, "rename", entry.id, after.version, time_ms, entry, after),
        "pending",
    )


async def two_commits(scene: Scene, path: str) -> None:
    entry = await scene.need(path)
    after = replace(entry, operation=scene.uuid(), mtime_ms=1)
    await scene.log(
        Operation(after.operation, "update", entry.id, after.version, scene.now_ms(), None, after),
        "committed",
    )


async def young_commit(scene: Scene, path: str) -> None:
    entry = await scene.need(path)
    after = replace(entry, operation=scene.uuid(), version=entry.version + 1)
    time_ms = scene.now_ms() + scene.young_ms
    await scene.log(
        Operation(after.operation, "update", entry.id, after.version, time_ms, None, after),
        "committed",
    )


async def other_attributes(scene: Scene, path: str) -> None:
    await scene.put(replace(await scene.need(path), etag="another"))


async def deleted(scene: Scene, path: str) -> None:
    """Nothing is wrong with that."""
    await scene.volume.store.delete_file(await scene.need(path))
    del scene.files[path]


async def undone_delete(scene: Scene, path: str) -> None:
    scene.unlog(path)
    entry = await scene.need(path)
    await scene.volume.store.delete_file(entry)
    await scene.settled()
    await scene.put(entry)


async def old_item(scene: Scene, path: str) -> None:
    """The table is that of yesterday, and yesterday's bytes are collected."""
    scene.untabled.add(path)
    scene.harmed |= {path} & scene.unlogged
    entry = await scene.need(path)
    await scene.write(path, b"of today")
    await scene.settled()
    await scene.put(entry)
    await scene.volume.blobs.delete(str(entry.physical))


async def same_id(scene: Scene, path: str) -> None:
    scene.unlog(path)
    await scene.put(replace(await scene.need(path), path=path + "-twin"))


async def same_id_young(scene: Scene, path: str) -> None:
    scene.unlog(path)
    entry = await scene.need(path)
    await scene.put(replace(entry, path=path + "-young", mtime_ms=scene.now_ms() + scene.young_ms))


async def same_id_no_bytes(scene: Scene, path: str) -> None:
    await same_id(scene, path)
    await no_bytes(scene, path)


async def same_directory_id(scene: Scene, path: str) -> None:
    entry = await scene.find(f"{scene.top}/d0")
    if entry is not None and await scene.find(scene.top) is not None:
        await scene.put(replace(entry, path=f"{scene.top}/double"))
        scene.doubled.add(f"{scene.top}/d0")


async def broken_item(scene: Scene, path: str) -> None:
    scene.forget(path)
    await scene.volume.items.write(Update(await scene.key(path), Condition(), remove=("ver",)))


async def wrong_suffix(scene: Scene, path: str) -> None:
    entry = await scene.need(path)
    await scene.lose(path)
    await _put_elsewhere(scene, entry)


async def wrong_suffix_too(scene: Scene, path: str) -> None:
    await _put_elsewhere(scene, await scene.need(path))


async def _put_elsewhere(scene: Scene, entry: Entry) -> None:
    keys = scene.volume.store.keys
    item = dict(to_item(entry, keys))
    partitions = keys.partitions(keys.parent_key(entry.entry_key))
    item["path"] = next(each for each in partitions if each != keys.of(entry).partition)
    if await scene.volume.items.get(Put(item, ABSENT).key) is None:
        await scene.volume.items.write(Put(item, ABSENT))


async def foreign_items(scene: Scene, path: str) -> None:
    keys = scene.volume.store.keys
    for partition in ("elsewhere", f"ks://{keys.volume}-2/-sf0"):
        item = dict(to_item(await scene.need(path), keys)) | {"path": partition, "children": "x"}
        if await scene.volume.items.get(Put(item, ABSENT).key) is None:
            await scene.volume.items.write(Put(item, ABSENT))


async def reserved(scene: Scene, path: str) -> None:
    """Its lease runs, though the grace period is over."""
    await _reserve(scene, path + "-reserved")


async def _reserve(scene: Scene, path: str) -> Entry:
    entry = await scene.volume.store.reserve(
        await scene.volume.store.prepare(path), exclusive=False
    )
    await scene.volume.store.changes.log.drained()
    scene.clock.advance(GRACE + 1)
    return entry


async def abandoned(scene: Scene, path: str) -> None:
    await _reserve(scene, path + "-abandoned")
    await scene.settled()


async def abandoned_young(scene: Scene, path: str) -> None:
    entry = await _reserve(scene, path + "-cut")
    await scene.put(replace(entry, lease_ms=1, mtime_ms=scene.now_ms() + scene.young_ms))


async def lost_reservation(scene: Scene, path: str) -> None:
    entry = await _reserve(scene, path + "-lost")
    await scene.lose(entry.path)


async def uploaded(scene: Scene, path: str) -> None:
    """A writer died between its upload and the table."""
    await _upload(scene, path + "-uploaded")
    await scene.settled()


async def uploaded_and_alive(scene: Scene, path: str) -> None:
    await _upload(scene, path + "-alive")
    scene.clock.advance(GRACE + 1)


async def _upload(scene: Scene, path: str) -> None:
    entry = await _reserve(scene, path)
    content = await scene.volume.storage.put(entry.id, b"uploaded whole")
    after = entry.with_content(content, mtime_ms=scene.now_ms(), operation=scene.uuid())
    await scene.log(
        Operation(after.operation, "update", entry.id, after.version, scene.now_ms(), entry, after),
        "pending",
    )


async def expired_transaction(scene: Scene, path: str) -> None:
    """A write intent without a transaction record."""
    entry = await scene.find(f"{scene.top}/d1")
    if entry is not None and entry.is_dir and not entry.pending:
        async with scene.volume.store.transactions.hold("mark", f"{scene.top}/d1") as txn:
            await scene.volume.store.hold(entry, txn)


async def unreadable_intent(scene: Scene, path: str) -> None:
    entry = await scene.find(f"{scene.top}/d0")
    if entry is not None and not entry.pending:
        await scene.put(replace(entry, pending="?"))


async def stale_record(scene: Scene, path: str) -> None:
    await _record(scene, scene.now_ms() - 10**6)


async def live_record(scene: Scene, path: str) -> None:
    await _record(scene, scene.now_ms() + 10**9)


async def _record(scene: Scene, lease_ms: int) -> None:
    item: dict[str, Any] = {
        "path": TRANSACTION_PARTITION,
        "children": scene.uuid(),
        "kind": "mark",
        "source": "/none",
        "lease": lease_ms,
        "op": scene.uuid(),
    }
    await scene.volume.items.write(Put(item, ABSENT))


async def interrupted_rename(scene: Scene, path: str) -> None:
    """Its client died before the transaction was published."""
    await _interrupt(scene, published=False)


async def unfolded_rename(scene: Scene, path: str) -> None:
    """Its client died after it had published the transaction, before it resolved any intent or
    wrote the log."""
    await _interrupt(scene, published=True)


async def rename_without_a_record(scene: Scene, path: str) -> None:
    """Another client has ended the transaction, but not its log."""
    txn = await _interrupt(scene, published=True)
    async for record in scene.volume.store.transactions.records():
        if record.id == txn:
            await scene.volume.store.resolver.complete(record)


async def young_segment(scene: Scene, path: str) -> None:
    """A change of several entries that is under way, but for its transaction record."""
    scene.clock.advance(10**6)
    await rename_without_a_record(scene, path)
    scene.clock.advance(-(10**6))


async def _interrupt(scene: Scene, *, published: bool) -> str:
    """Move a directory of two files, by a client that dies at the publication of the move, and
    whose lease runs out. Returns the id of its transaction."""
    top = f"/moving-{scene.uuid()}"
    for name in ("one", "two"):
        await scene.write(f"{top}/{name}", name.encode())
    if scene.by_id:
        await scene.volume.store.make_directory(f"{top}-empty")

    async def rename(fs: S3kClient) -> None:
        if not scene.by_id:
            await fs.rename(top, f"{top}-moved")
            return
        # Layout `tree` renames a directory without a record, but not beside such a removal.
        async with fs.transaction() as tx:
            await tx.rename(top, f"{top}-moved")
            await tx.delete(f"{top}-empty")

    txn = await die_at_publication(scene, rename, published=published)
    scene.clock.advance(GRACE)
    if published:
        for name in ("one", "two"):
            scene.files[f"{top}-moved/{name}"] = scene.files.pop(f"{top}/{name}")
    return txn


async def die_at_publication(
    scene: Scene, verb: Callable[[S3kClient], Awaitable[object]], *, published: bool
) -> str:
    """Run a verb by a client that dies as it publishes a transaction, before or after it has.
    Returns the id of the transaction."""
    faults, txns = FaultPlan(), list[str]()
    with suppress(Died):
        async with scene.client(faults) as fs:
            records = fs._volume().store.transactions
            publish = records.publish

            async def then_die(txn: OwnedTransaction, others: Sequence[Action] = ()) -> None:
                txns.append(txn.id)
                if published:
                    await publish(txn, others)
                faults.fail_when(lambda _: True, Died("is dead"), times=10**9)
                raise Died("died at its publication")

            with patch.object(records, "publish", then_die):
                await verb(fs)
    (txn,) = txns
    return txn


DAMAGES: Mapping[str, Damage] = {
    damage.__name__: damage
    for damage in (
        nothing,
        no_item,
        no_item_no_bytes,
        no_directory,
        no_directory_nor_log,
        no_directories_nor_files,
        other_directory,
        other_file,
        file_for_directory,
        young_child,
        no_bytes,
        short_bytes,
        replaced_object,
        no_physical,
        stray_bytes,
        young_bytes,
        open_upload,
        foreign_bytes,
        no_log,
        no_log_of_young,
        no_commit,
        no_commits,
        cut_log,
        newer_log,
        never_happened,
        under_way,
        two_commits,
        young_commit,
        other_attributes,
        deleted,
        undone_delete,
        old_item,
        same_id,
        same_id_young,
        same_id_no_bytes,
        same_directory_id,
        broken_item,
        wrong_suffix,
        wrong_suffix_too,
        foreign_items,
        reserved,
        abandoned,
        abandoned_young,
        lost_reservation,
        uploaded,
        uploaded_and_alive,
        expired_transaction,
        unreadable_intent,
        stale_record,
        live_record,
        interrupted_rename,
        unfolded_rename,
        rename_without_a_record,
        young_segment,
    )
}
