"""Volumes of layout `tree` for tests: entries are put into the table as they are stored, and any
number of clients, each with its own faults, change them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from anyio import sleep_forever

from s3k_async import _native
from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.interception import TableStore
from s3k_async.backends.ports.items import ABSENT, Action, Put
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.config import Tuning
from s3k_async.layouts.tree.directory_changes import DirectoryChanges
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.layouts.tree.tree_layout import TreeLayout
from s3k_async.model import ROOT, UNCOMMITTED, ChangeResult, Entry
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.log_reader import LogReader, ObjectState, latest
from s3k_async.oplog.log_writer import NativeLog
from s3k_async.table.codec import from_item, to_item
from s3k_async.table.keys import ROOT_KEY, TRASH_ID, KeyScheme
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.testing import Died, FaultPlan, FaultyItems
from s3k_async.txn.txn_record import RENEW_SECONDS, TRANSACTION_PARTITION
from s3k_async.txn.write_intent import parse_intent
from tests.contracts.subjects import params
from tests.support import FakeClock, fake_runtime

__all__ = [
    "KEYS",
    "Client",
    "Tree",
    "TreeVolume",
    "contradictions",
    "everywhere",
    "paths_of",
    "stored_and_seen",
]

Tree = Mapping[str, str]
"""Object ids by path; the names of directories below the trash are their object ids."""
KEYS = KeyScheme("v", 2, layout="tree")

everywhere = pytest.mark.parametrize(
    "table", params(("memory", "sqlite", "dynoxide")), indirect=True
)
"""The fixture `table` on each of these engines."""


class RecordedItems(FaultyItems):
    """A table through a plan of faults, with the actions of its transactions."""

    def __init__(self, store: TableStore, plan: FaultPlan) -> None:
        super().__init__(store, plan)
        self.transactions: list[Sequence[Action]] = []

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        self.transactions.append(actions)
        await super().transact(actions, token)


@dataclass
class Client:
    """One client of a volume."""

    volume: TreeVolume
    store: MetadataStore
    faults: FaultPlan
    items: RecordedItems

    @property
    def layout(self) -> TreeLayout:
        assert isinstance(self.store.layout, TreeLayout)
        return self.store.layout

    @property
    def changes(self) -> DirectoryChanges:
        return self.layout.changes

    async def need(self, path: str) -> Entry:
        entry = await self.store.get(path)
        assert entry is not None, path
        return entry

    async def rename(self, source: str, target: str) -> ChangeResult:
        """Rename by path, as the verb does, but for the read of the source before it."""
        return await self.layout.rename_directory(_at(source), target, atomic=True)

    async def delete(self, path: str) -> ChangeResult:
        return await self.layout.delete_directory(await self.need(path), atomic=True)

    def requests(self) -> list[str]:
        """The calls of the table since the last time, by method; the list begins anew."""
        made = [call.method for call in self.faults.calls if call.store == "items"]
        self.faults.calls.clear()
        return made


def _at(path: str) -> Entry:
    """Any entry of a path: a rename reads it again."""
    return Entry(path, True, "id", 1, 1, 1)


@dataclass
class TreeVolume:
    """A volume; `open_table` gives another handle of its table."""

    name: str
    table: TableStore | None = None
    """Where it is; by default in memory under the name."""
    clock: FakeClock = field(default_factory=FakeClock)
    real_time: bool = False
    """And with ids that no other volume has, which engines ask for in tokens. With the fake clock a
    sleeping task makes time pass at once."""
    runtime: Runtime = field(init=False)
    logs: list[NativeLog] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.real_time:
            self.runtime = SYSTEM
            return
        runtime = fake_runtime(self.clock, seed=7)

        async def sleep(seconds: float) -> None:
            # A lease is not renewed while nothing takes time.
            await (sleep_forever() if seconds == RENEW_SECONDS else runtime.sleep(seconds))

        self.runtime = replace(runtime, sleep=sleep)

    async def start(self, *paths: str) -> TreeVolume:
        """Create it with entries: a path that ends with `/` is a directory, one that ends with `?`
        a reservation, any other a file; parents first."""
        if self.table is None:
            self.table = MemoryItems(self.name)
            await self.table.create()
        await MemoryBlobs(self.name).create()
        await self.put(*paths)
        return self

    async def put(self, *paths: str) -> None:
        """Store entries, as `start`."""
        ids = dict(await self.tree())
        for path in paths:
            entry = self.entry(path, ids)
            await self._items().write(Put(to_item(entry, KEYS), ABSENT))
            ids[entry.path] = entry.id

    def entry(self, path: str, ids: Tree) -> Entry:
        """A new entry, in a directory of `ids`."""
        plain = path.rstrip("/?")
        parent = _native.split(plain)[0]
        directory = ROOT_ENTRY.id if parent == ROOT else ids[parent]
        entry = Entry(
            plain,
            path.endswith("/"),
            self.runtime.uuid(),
            2,
            ctime=1,
            mtime_ms=1000,
            operation=self.runtime.uuid(),
            directory=directory,
        )
        if path.endswith("/"):
            return entry
        if path.endswith("?"):
            lease = self.runtime.now_ms() + 600_000
            return replace(entry, physical=UNCOMMITTED, lease_ms=lease, version=1)
        physical = self.runtime.physical_key(entry.id)
        return replace(entry, size=3, physical=physical, committed=True, etag="e")

    def client(self, faults: FaultPlan | None = None, *, busy_timeout: float = 5.0) -> Client:
        faults = faults or FaultPlan()
        policy = RetryPolicy(attempts=4)
        recorded = RecordedItems(self._items(), faults)
        items = RetryingItems(recorded, policy, self.runtime)
        blobs = RetryingBlobs(faults.blobs(MemoryBlobs(self.name)), policy, self.runtime)
        log = NativeLog(blobs, self.runtime)
        self.logs.append(log)
        tuning = Tuning(busy_timeout=busy_timeout, lease=600.0)
        store = MetadataStore(items, KEYS, log, self.runtime, tuning, TreeLayout)
        return Client(self, store, faults, recorded)

    async def hold(self, path: str) -> str:
        """Put an intent on an entry by a client that then dies; returns its transaction."""
        client = self.client()
        with suppress(Died):
            async with client.store.transactions.hold("mark", path) as txn:
                await client.store.hold(await client.need(path), txn)
                client.faults.fail_when(lambda _: True, Died("is dead"), times=1000)
        return txn.id

    async def stored(self) -> list[Entry]:
        """Every entry of the table, by entry key; the trash included."""
        found = [
            from_item(item, KEYS)
            async for page in scan_all(self._items())
            for item in page
            if item["path"] not in (ROOT_KEY.partition, TRANSACTION_PARTITION)
        ]
        return sorted(found, key=lambda entry: entry.entry_key)

    async def tree(self) -> Tree:
        """Object ids by path, after checking that each entry has one place that a walk from the
        root or the trash reaches. Markers of removed directories are left out."""
        return paths_of(await self.stored(), {entry.id for entry in await self.markers()})

    async def trashed(self) -> list[TrashedDirectory]:
        """What is in the trash."""
        return [
            TrashedDirectory.from_item(item, KEYS)
            async for page in scan_all(self._items())
            for item in page
            if str(item["path"]).startswith(f"s3k:tree/{TRASH_ID}-")
        ]

    async def markers(self) -> list[Entry]:
        return [each.entry for each in await self.trashed() if each.why == "empty"]

    async def truths(self) -> dict[str, ObjectState]:
        """What the log says, by object id, once the marks of all clients that live are written."""
        for log in self.logs:
            with suppress(Died):
                await log.drained()
        return await self.truths_now()

    async def truths_now(self) -> dict[str, ObjectState]:
        """What the log says, by object id. Does not wait for marks, which a gate would hold up."""
        return latest([record async for record in LogReader(MemoryBlobs(self.name)).records()])

    def _items(self) -> TableStore:
        assert self.table is not None
        return self.table


def _in_effect(entries: Iterable[Entry], published: Collection[str]) -> list[Entry]:
    """The entries that clients see, given the stored ones and the ids of the published
    transactions."""
    found = []
    for stored in entries:
        if stored.pending:
            intent = parse_intent(stored.pending)
            seen = intent.resolve(stored, published=intent.txn in published)
            if seen is not None:
                found.append(replace(seen, path=stored.path, directory=stored.directory))
        else:
            found.append(stored)
    return found


async def contradictions(store: MetadataStore, log_blobs: BlobStore) -> set[str]:
    """Contradictions to the log and remains of transactions, by the names of fsck but found without
    it."""
    entries, seen = await stored_and_seen(store)
    by_id = {entry.id: entry for entry in seen}
    paths_of(seen)
    truths = latest([each async for each in LogReader(log_blobs).records()])
    found = {"stale_intent"} if any(entry.pending for entry in entries) else set()
    for object_id in by_id.keys() | truths.keys():
        truth = truths.get(object_id, ObjectState())
        if truth.pending:
            found.add("log_pending")
        elif not _agrees(by_id.get(object_id), truth.entry):
            found.add("contradiction")
    return found


async def stored_and_seen(store: MetadataStore) -> tuple[list[Entry], list[Entry]]:
    """All stored entries, and the entries that clients see."""
    entries = [entry async for page in store.scan(ROOT) for entry in page]
    records = [record async for record in store.transactions.records()]
    return entries, _in_effect(entries, {each.id for each in records if each.is_published})


def _agrees(stored: Entry | None, logged: Entry | None) -> bool:
    """Whether a stored entry agrees with the log. A directory that was removed as empty leaves an
    item in the trash that the log does not contain, and neither does it contain that of a staged
    directory."""
    if stored is None or logged is None:
        return stored is logged or (stored is not None and stored.directory == TRASH_ID)
    return (stored.entry_key, stored.version) == (logged.entry_key, logged.version)


def paths_of(entries: Sequence[Entry], markers: Collection[str] = ()) -> Tree:
    """The paths of stored entries. Fails for an object at two places, and for an entry to which no
    path leads."""
    names: dict[str, list[Entry]] = {}
    for entry in entries:
        if not (entry.directory == TRASH_ID and entry.id in markers):
            names.setdefault(entry.directory, []).append(entry)
    found: dict[str, str] = {}
    left = [("", ROOT_ENTRY.id), ("/.trash", TRASH_ID)]
    while left:
        path, directory = left.pop()
        for entry in names.pop(directory, []):
            place = f"{path}/{entry.entry_key.partition('/')[2]}"
            found[place] = entry.id
            if entry.is_dir:
                left.append((place, entry.id))
    assert not names, f"no path leads to {names}"
    assert len(set(found.values())) == len(found), f"an object at two places: {found}"
    return found
