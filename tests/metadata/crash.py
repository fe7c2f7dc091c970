"""One volume in memory and the changes to be interrupted: what they start from, what they do, what they lead to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from anyio import sleep_forever

from s3k_async import loading, publishing
from s3k_async.config import MemoryBlobs as MemoryLocation
from s3k_async.config import Tuning
from s3k_async.errors import OutcomeUnknownError, PartialFailureError, PathNotFoundError
from s3k_async.files import open_writer
from s3k_async.fsck.decide import Finding
from s3k_async.fsck.verify import Verifier
from s3k_async.metadata.jobs import RENEW_SECONDS
from s3k_async.metadata.keys import KeyScheme
from s3k_async.metadata.store import MetadataStore
from s3k_async.metadata.tree import Tree, TreeResult
from s3k_async.model import Entry
from s3k_async.oplog.log import NativeLog
from s3k_async.oplog.reader import LogReader
from s3k_async.retry import RetryPolicy
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.stores.faults import FaultPlan
from s3k_async.stores.memory_blobs import MemoryBlobs
from s3k_async.stores.memory_items import MemoryItems
from s3k_async.stores.reliable_blobs import ReliableBlobs
from s3k_async.stores.reliable_items import ReliableItems
from tests.support import FakeClock, fake_sources

__all__ = ["SCENARIOS", "Client", "Paths", "Scenario", "World"]

Paths = Mapping[str, bytes | None]
"""A tree: the bytes of each file; None for a directory."""

TUNING = Tuning(busy_timeout=5.0, lease=600.0, multipart_threshold=64, part_size=32)


@dataclass
class Client:
    """One process that uses the volume."""

    store: MetadataStore
    storage: PhysicalStorage
    tree: Tree

    async def run(self, scenario: Scenario) -> None:
        """Make the change, and live until its marks are in the log."""
        try:
            await scenario.run(self)
        finally:
            await self.store.changes.log.drained()

    async def write(self, path: str, data: bytes, *, overwrite: bool = True) -> None:
        await publishing.write(self, path, data, overwrite=overwrite)

    async def save(self, path: str, data: bytes) -> None:
        async with await open_writer(lambda: self, path, exclusive=False) as file:
            await file.write(data)

    async def need(self, path: str) -> Entry:
        entry = await self.store.get(path)
        if entry is None:
            raise PathNotFoundError("nothing is there", path=path)
        return entry


@dataclass
class World:
    """The volume, whoever uses it."""

    name: str
    clock: FakeClock = field(default_factory=FakeClock)

    async def start(self) -> World:
        sources = fake_sources(self.clock, seed=7)

        async def sleep(seconds: float) -> None:
            # A lease is not renewed while nothing takes time, or renewals would be most of the calls.
            await (sleep_forever() if seconds == RENEW_SECONDS else sources.sleep(seconds))

        self.sources = replace(sources, sleep=sleep)
        await MemoryItems(self.name).create()
        await MemoryBlobs(self.name).create()
        await MemoryBlobs(self.name + "-data").create()
        return self

    async def drop(self) -> None:
        await MemoryItems(self.name).drop()
        await MemoryBlobs(self.name).drop()
        await MemoryBlobs(self.name + "-data").drop()

    def client(self, faults: FaultPlan | None = None) -> Client:
        policy = RetryPolicy(attempts=4)
        items = ReliableItems(MemoryItems(self.name, faults, self.sources), policy, self.sources)
        log = ReliableBlobs(MemoryBlobs(self.name, faults, sources=self.sources), policy, self.sources)
        data = ReliableBlobs(MemoryBlobs(self.name + "-data", faults, sources=self.sources), policy, self.sources)
        store = MetadataStore(items, KeyScheme("v", 2), NativeLog(log, self.sources), self.sources, TUNING)
        return Client(store, PhysicalStorage(data, self.sources, TUNING, MemoryLocation(self.name)), Tree(store))

    async def tree(self) -> dict[str, bytes | None]:
        """What a client sees that begins at the root: the bytes of every file are read."""
        client = self.client()
        found: dict[str, bytes | None] = {}
        async for page in client.tree.walk("/"):
            for entry in page:
                assert entry.path not in found, f"{entry.path} twice"
                if not entry.is_reservation:
                    found[entry.path] = None if entry.is_dir else await client.storage.read(str(entry.physical))
        return found

    async def scanned(self) -> dict[str, Entry]:
        """Every entry of the table, whether or not it has parents."""
        return {entry.path: entry async for page in self.client().store.scan("/") for entry in page}

    async def findings(self) -> list[Finding]:
        verifier = Verifier(
            self.client().store,
            MemoryBlobs(self.name + "-data"),
            LogReader(MemoryBlobs(self.name)),
            self.sources,
            grace=60.0,
        )
        return (await verifier.verify(deep=True)).findings


@dataclass(frozen=True)
class Scenario:
    """A change that may be interrupted at every call it makes."""

    before: Paths
    run: Callable[[Client], Awaitable[object]]
    after: Paths
    atomic: bool = True
    """Whether nobody may see anything but `before` and `after`, apart from `between`."""
    between: Paths = field(default_factory=dict)
    """What may be there as well: directories that are made on the way."""
    by_file: bool = False
    """Whether each file is old or new by itself."""
    gone: bool = False
    """Whether running it again after it was complete finds nothing to do: PathNotFoundError."""


async def write_many(client: Client) -> None:
    """A file that exists, one that does not, and one in a directory that has to be made; a failure that is definite
    is raised rather than one that is not."""
    files = [("/d/f", b"new"), ("/d/g", b"more"), ("/e/h", b"third" * 20)]
    result = await loading.write_many(client, files, str, overwrite=True)
    failures = [error for _, error in result.failures]
    for error in sorted(failures, key=lambda one: isinstance(one, OutcomeUnknownError)):
        raise error


async def whole(change: Awaitable[TreeResult], path: str) -> None:
    result = await change
    if result.failures:
        raise PartialFailureError("not all of it", path=path, failures=result.failures) from result.failures[0][1]


async def reserve_and_commit(client: Client) -> None:
    await client.save("/d/f", b"new" * 50)


async def abandon(client: Client) -> None:
    file = await open_writer(lambda: client, "/d/f", exclusive=False)
    await file.write(b"new")
    await file.discard()


async def rename_file(client: Client) -> None:
    await client.store.rename_file(await client.need("/d/f"), "/e/g")


async def rename_over(client: Client) -> None:
    await client.store.rename_file(await client.need("/d/f"), "/e/g", overwrite=True)


async def delete_file(client: Client) -> None:
    await client.store.delete_file(await client.need("/d/f"))


async def makedirs(client: Client) -> None:
    await client.store.make_directory("/d/x/y/z")


async def remove_directory(client: Client) -> None:
    await client.store.remove_directory(await client.need("/d/x"))


async def rename_tree(client: Client) -> None:
    await whole(client.tree.rename(await client.need("/d"), "/e/z"), "/d")


async def delete_tree(client: Client) -> None:
    await whole(client.tree.delete(await client.need("/d")), "/d")


GROWN: Paths = {
    "/d": None,
    "/d/f": b"one",
    "/d/g": b"two",
    "/d/x": None,
    "/d/x/h": b"three",
    "/d/y": None,
    "/e": None,
    "/e/k": b"four",
}

SCENARIOS: Mapping[str, Scenario] = {
    "write_new": Scenario(
        {}, lambda client: client.write("/d/f", b"new"), {"/d": None, "/d/f": b"new"}, between={"/d": None}
    ),
    "write_over": Scenario(
        {"/d": None, "/d/f": b"old"}, lambda client: client.write("/d/f", b"new"), {"/d": None, "/d/f": b"new"}
    ),
    "write_in_parts": Scenario(
        {"/d": None, "/d/f": b"old"},
        lambda client: client.write("/d/f", b"new" * 50),
        {"/d": None, "/d/f": b"new" * 50},
    ),
    "write_many": Scenario(
        {"/d": None, "/d/f": b"old"},
        write_many,
        {"/d": None, "/d/f": b"new", "/d/g": b"more", "/e": None, "/e/h": b"third" * 20},
        by_file=True,
    ),
    "reserve_and_commit": Scenario({"/d": None}, reserve_and_commit, {"/d": None, "/d/f": b"new" * 50}),
    "open_over": Scenario({"/d": None, "/d/f": b"old"}, reserve_and_commit, {"/d": None, "/d/f": b"new" * 50}),
    "abandon": Scenario({"/d": None}, abandon, {"/d": None}),
    "rename_file": Scenario(
        {"/d": None, "/d/f": b"one", "/e": None},
        rename_file,
        {"/d": None, "/e": None, "/e/g": b"one"},
        gone=True,
    ),
    "rename_over": Scenario(
        {"/d": None, "/d/f": b"one", "/e": None, "/e/g": b"two"},
        rename_over,
        {"/d": None, "/e": None, "/e/g": b"one"},
        gone=True,
    ),
    "delete_file": Scenario({"/d": None, "/d/f": b"one"}, delete_file, {"/d": None}, gone=True),
    "makedirs": Scenario({"/d": None}, makedirs, {"/d": None, "/d/x": None, "/d/x/y": None, "/d/x/y/z": None}),
    "remove_directory": Scenario({"/d": None, "/d/x": None}, remove_directory, {"/d": None}, gone=True),
    "rename_tree": Scenario(
        GROWN,
        rename_tree,
        {"/e/z" + path[2:] if path.startswith("/d") else path: data for path, data in GROWN.items()},
        atomic=False,
        gone=True,
    ),
    "delete_tree": Scenario(
        GROWN,
        delete_tree,
        {path: data for path, data in GROWN.items() if not path.startswith("/d")},
        atomic=False,
        gone=True,
    ),
}
