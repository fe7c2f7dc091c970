"""A volume on which clients race, and the checks after a race."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import anyio

from s3k_async import S3kClient
from s3k_async._core.concurrency import gather
from s3k_async._core.runtime import SYSTEM
from s3k_async.client import volume_of
from s3k_async.config import DynamoTable, Tuning, VolumeConfig
from s3k_async.errors import S3kError
from s3k_async.model import Entry
from s3k_async.namespace.ordered_walk import walk
from s3k_async.oplog.log_reader import LogReader
from s3k_async.table.keys import Directory
from s3k_async.txn.txn_record import TRANSACTION_PARTITION
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.engines.volumes import volume_backends
from tests.integrity.verifier import Verifier
from tests.races.operations import Operation, Outcome, Tree, parent_of
from tests.races.order import Done, explain

everywhere = volume_backends(
    "memory", "embedded", "dynamodb_local+seaweedfs", "dynoxide+seaweedfs", "redis", "rocksdb"
)
"""Races run on every combination of stores but moto's: its concurrent writes can vanish."""

__all__ = ["Arena", "Scene", "arena_on", "everywhere", "play", "race_config", "seed_of_run"]

CLIENTS = 2
AT_ONCE = 4
"""Rounds that are run at the same time, each in a directory of its own."""
SPREADS = (0.0, 0.0, 0.01, 0.04)
"""Seconds over which the operations of a round begin: one of these."""
ENGINE_SPREADS = (0.0, 0.02, 0.2, 0.5)
"""The same where a round takes a hundred times as long."""
BUSY_TIMEOUT = 60.0


@dataclass(frozen=True)
class Scene:
    """A tree, and what is done to it at once."""

    start: Tree
    operations: Sequence[Operation]
    real_time: bool = False
    """Whether an operation that ended before another began has to come first in the order. A change
    of a whole directory is not visible at once, so it promises less."""


def seed_of_run() -> int:
    """The seed of the rounds, printed: S3K_TEST_SEED repeats a run's choices (though not its
    scheduling)."""
    seed = int(os.environ.get("S3K_TEST_SEED") or random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"S3K_TEST_SEED={seed}\n")
    return seed


def race_config(config: VolumeConfig) -> VolumeConfig:
    """Few suffixes, since every listing asks each of them; and patience, since a refusal as busy is
    no result."""
    return replace(config, suffix_count=3, tuning=Tuning(busy_timeout=BUSY_TIMEOUT))


async def play(
    clients: Sequence[S3kClient],
    place: str,
    operations: Sequence[Operation],
    seed: str,
    spreads: Sequence[float] = SPREADS,
) -> list[Done]:
    """Begin the operations together, or nearly so, on the clients in turn."""
    choice = random.Random(seed)
    spread = choice.choice(spreads)
    delays = [choice.uniform(0.0, spread) for _ in operations]
    order = choice.sample(range(len(operations)), len(operations))
    start = anyio.Event()
    done: dict[int, Done] = {}

    async def one(number: int) -> None:
        await start.wait()
        await anyio.sleep(delays[number])
        fs = clients[number % len(clients)]
        begin = time.monotonic()
        outcome: Outcome
        try:
            outcome = await operations[number].run(fs, place)
        except S3kError as error:
            outcome = type(error)
        done[number] = Done(operations[number], outcome, begin, time.monotonic())

    async with anyio.create_task_group() as tasks:
        for number in order:
            tasks.start_soon(one, number)
        start.set()
    return [done[number] for number in range(len(operations))]


class Arena:
    """A volume with several clients, each with connections of its own."""

    def __init__(self, clients: Sequence[S3kClient], volume: Volume, seed: int) -> None:
        self.clients = clients
        self.volume = volume
        self.seed = seed
        self._spreads = ENGINE_SPREADS if isinstance(volume.config.table, DynamoTable) else SPREADS

    async def play(self, place: str, operations: Sequence[Operation], seed: str) -> list[Done]:
        """Race through the operations."""
        return await play(self.clients, place, operations, seed, self._spreads)

    async def rounds(self, count: int, one: Callable[[str, str], Awaitable[None]]) -> None:
        """Run `one(place, seed)` so often, some at the same time, and check the volume when all are
        over."""

        async def each(number: int) -> None:
            place = f"/round-{number}"
            await self.clients[0].makedirs(place)
            await one(place, f"{self.seed}-{number}")

        await gather(each, range(count), limit=AT_ONCE)
        await self.check_sound()

    async def play_scenes(self, count: int, scene: Callable[[random.Random], Scene]) -> None:
        """Race through a scene so often, and explain every outcome by an order."""

        async def one(place: str, seed: str) -> None:
            act = scene(random.Random(seed))
            await self.build(place, act.start)
            done = await self.play(place, act.operations, seed)
            await self.check_explained(place, act, done)

        await self.rounds(count, one)

    async def build(self, place: str, tree: Tree) -> None:
        """Make a tree below `place`."""
        for path in sorted(tree):
            data = tree[path]
            if data is None:
                await self.clients[0].makedirs(place + path)
            else:
                await self.clients[0].write(place + path, data)

    async def tree(self, place: str) -> Tree:
        """What is below `place`, with its bytes."""
        fs = self.clients[-1]
        found = [
            status async for status in fs.list(place, recursive=True, include_uncommitted=True)
        ]
        assert len({status.path for status in found}) == len(found)
        return {
            status.path.removeprefix(place): None if status.is_dir else await fs.read(status.path)
            for status in found
        }

    async def check_explained(self, place: str, scene: Scene, done: Sequence[Done]) -> None:
        """Fail unless some order explains what the callers were told and what is there now."""
        end = await self.tree(place)
        order = explain(scene.start, done, end, real_time=scene.real_time)
        story = "\n  ".join(str(each) for each in done)
        assert order is not None, (
            f"no order explains {place}\nfrom {scene.start}\n  {story}\nto {end}"
        )

    async def check_sound(self) -> None:
        """Nothing lost, doubled, detached or left behind: by table, by tree, and by fsck without a
        grace period, after the clients' deferred commits."""
        for client in self.clients:
            await volume_of(client).log.drained()
        volume = self.volume
        scanned = [entry async for page in volume.store.scan("/") for entry in page]
        walked = [entry async for page in walk(volume.store, Directory.at("/")) for entry in page]
        assert Counter(entry.path for entry in scanned) == Counter(entry.path for entry in walked)
        assert doubled(scanned, "path") == doubled(scanned, "id") == {}
        assert doubled([entry for entry in scanned if entry.physical], "physical") == {}
        directories = {entry.path for entry in scanned if entry.is_dir} | {"/"}
        detached = [entry.path for entry in scanned if parent_of(entry.path) not in directories]
        assert not detached, detached
        unfinished = [entry for entry in scanned if entry.pending or entry.is_reservation]
        assert not unfinished, unfinished
        transactions = list((await volume.items.query(TRANSACTION_PARTITION)).items)
        assert not transactions, transactions
        assert volume.log_blobs is not None
        verifier = Verifier(
            volume.store,
            volume.blobs,
            LogReader(volume.log_blobs),
            SYSTEM,
            grace=0.0,
            place=volume.place,
        )
        report = await verifier.verify(deep=True)
        found = [finding for finding in report.findings if finding.kind != "collectable_data"]
        assert not found, found
        assert report.files + report.directories == len(scanned)


def doubled(entries: Sequence[Entry], name: str) -> dict[str, int]:
    """The values of an attribute that more than one entry has."""
    return {
        value: count
        for value, count in Counter(getattr(entry, name) for entry in entries).items()
        if count > 1
    }


@asynccontextmanager
async def arena_on(config: VolumeConfig, seed: int, session: object) -> AsyncIterator[Arena]:
    """A new volume with its clients open. Of the session they share what it knows of AWS, not its
    connections."""
    config = race_config(config)
    await init_volume(config, session=session)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(S3kClient(config=config, session=session))
            for _ in range(CLIENTS)
        ]
        volume = await open_volume(config, session=session)
        stack.push_async_callback(volume.close)
        yield Arena(clients, volume, seed)
