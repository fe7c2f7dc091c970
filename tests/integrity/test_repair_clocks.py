"""fsck repair beside a client whose clock is slow: what that client has done is not undone.

Nothing tells repair that what this client does is young: the stores in memory, too, take their
times from the clock of the client that writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from s3k_async._core.runtime import Runtime
from s3k_async.client import S3kClient
from s3k_async.config import MemoryBlobs, MemoryTable, Tuning, VolumeConfig
from s3k_async.errors import ConflictError, PathNotFoundError
from s3k_async.integrity.repair import RepairReport, repair_volume, verify_volume
from s3k_async.model import Entry, LayoutName
from s3k_async.namespace.bulk_changes import delete_files
from s3k_async.namespace.pair_renames import PairRenames, RenamePair
from s3k_async.oplog.compaction import Compactor
from s3k_async.table.codec import in_columns
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import faulty_client
from tests.engines.volumes import fresh_name
from tests.support import FakeClock, fake_runtime, under

pytestmark = pytest.mark.layouts("path", "tree")

GRACE: Final = 300.0
SLOW: Final = [600.0, 3600.0]
"""By how many seconds the writer's clock is slow."""
OLD: Final = ("/a/old0", "/a/old1", "/b/old2")
NEW: Final = ("/a/new0", "/b/new1")


@dataclass
class Rig:
    """A volume, the slow client, and what is in the files by all that was acknowledged to it."""

    config: VolumeConfig
    clock: FakeClock
    client: S3kClient
    faults: FaultPlan
    """Of the client's calls."""
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def volume(self) -> Volume:
        return self.client._volume()

    async def need(self, path: str) -> Entry:
        entry = await self.volume.store.get(path)
        assert entry is not None
        return entry

    async def write(self, *paths: str) -> None:
        for path in paths:
            self.files[path] = f"{path} {len(self.files)} {self.clock.seconds}".encode()
            self.clock.advance(0.001)
            await self.client.write(path, self.files[path])

    async def delete(self, *paths: str) -> None:
        for path in paths:
            await self.client.delete(path)
            del self.files[path]

    async def delete_many(self, *paths: str) -> None:
        store = self.volume.store
        entries = [await self.need(path) for path in paths]
        await delete_files(store, in_columns(entries, store.keys))
        for path in paths:
            del self.files[path]

    async def move(self, *paths: str, to: str) -> None:
        for path in paths:
            await self.client.rename(path, path + to)
            self.files[path + to] = self.files.pop(path)

    async def move_many(self, *paths: str, to: str) -> None:
        pairs = [RenamePair(path, path + to) for path in paths]
        renames = PairRenames(self.volume.store, overwrite=False, missing_ok=False)
        await renames.rename(pairs)
        for path in paths:
            self.files[path + to] = self.files.pop(path)

    async def compact(self) -> None:
        assert self.volume.log_blobs is not None
        await self.volume.log.drained()
        await Compactor(self.volume.log_blobs, self.volume.store.runtime, grace=0.0).run(
            dry_run=False
        )

    async def repair(self, gate: Callable[[Call], Awaitable[None]]) -> tuple[RepairReport, int]:
        """Repair by another client, whose clock is right; its calls go through the gate."""
        faults = FaultPlan()
        volume = await under(
            faults, open_volume(self.config, runtime=fake_runtime(self.clock, seed=5))
        )
        faults.calls.clear()
        faults.gate = gate
        try:
            return await repair_volume(volume, dry_run=False, grace=GRACE), len(faults.calls)
        finally:
            faults.gate = None
            await volume.close()

    async def check(self) -> None:
        """The tree is what was acknowledged, and nothing is wrong with it."""
        paths = [each.path async for each in self.client.list("/", recursive=True) if each.is_file]
        found = {path: await self.client.read(path) for path in paths}
        assert found == self.files
        await self.volume.log.drained()
        self.clock.advance(100_000)
        assert (await verify_volume(self.volume, grace=GRACE)).problems == []


@asynccontextmanager
async def rig(layout: LayoutName, slow: float) -> AsyncIterator[Rig]:
    clock, name = FakeClock(), fresh_name("slow")
    config = VolumeConfig(
        name,
        MemoryTable(name),
        MemoryBlobs(name),
        suffix_count=2,
        tuning=Tuning(busy_timeout=5.0),
        layout=layout,
    )
    runtime = fake_runtime(clock, seed=7)
    await init_volume(config, runtime=runtime)
    late: Runtime = replace(runtime, now_ms=lambda: clock.now_ms() - int(slow * 1000))
    faults = FaultPlan()
    async with faulty_client(faults, config, late) as client:
        place = Rig(config, clock, client, faults)
        await place.write(*OLD)
        await client.makedirs("/kept")
        await place.volume.log.drained()
        clock.advance(100_000)
        yield place


Deed = Callable[[Rig], Awaitable[object]]


async def write_and_delete(place: Rig) -> None:
    await place.delete_many(*NEW)
    await place.write(*NEW)
    await place.delete_many(*NEW)


async def delete_and_compact(place: Rig) -> None:
    """The tombstones are dropped by the second compaction."""
    await place.delete_many(*NEW)
    await place.compact()
    place.clock.advance(200_000)
    await place.compact()
    await place.compact()


NEW_MOVED: Final = tuple(path + "-moved" for path in OLD)
FIRST: Final[dict[str, Deed]] = {
    "write": lambda place: place.write(*NEW),
    "move": lambda place: place.move(*OLD, to="-moved"),
    "move many": lambda place: place.move_many(*OLD, to="-moved"),
}
"""What happens while the table is scanned (moves), or between the table and the log (writes)."""
THEN: Final[dict[tuple[str, str], Deed]] = {
    ("write", "delete"): lambda place: place.delete(*NEW),
    ("write", "delete many"): lambda place: place.delete_many(*NEW),
    ("write", "move many"): lambda place: place.move_many(*NEW, to="-further"),
    ("write", "overwrite"): lambda place: place.write(*NEW),
    ("write", "delete, write, delete"): write_and_delete,
    ("write", "delete, compact"): delete_and_compact,
    ("move", "delete many"): lambda place: place.delete_many(*NEW_MOVED),
    ("move many", "move many"): lambda place: place.move_many(*NEW_MOVED, to="-on"),
}


def is_begin(call: Call, first: str) -> bool:
    if first == "write":
        return any(part in call.key for part in ("checkpoints/", "entries/", "segments/"))
    return call.method == "scan" and call.number > 3


async def run(layout: LayoutName, first: str, then: str, slow: float, moment: int) -> int:
    """A repair with the first deed at its moment, and the other so many calls later; how many calls
    follow the first.
    """
    async with rig(layout, slow) as place:
        begun: list[int] = []
        done: list[int] = []

        async def gate(call: Call) -> None:
            if not begun and is_begin(call, first):
                begun.append(call.number)
                await FIRST[first](place)
            elif begun and not done and call.number >= begun[0] + moment:
                done.append(call.number)
                await THEN[first, then](place)

        _, calls = await place.repair(gate)
        assert begun
        await place.check()
        return calls - begun[0]


@pytest.mark.layouts("path", pytest.param("tree", marks=pytest.mark.slow))
@pytest.mark.parametrize("slow", SLOW)
@pytest.mark.parametrize(
    ("first", "then", "start", "step"),
    [
        *((first, then, 1 + number, 9) for number, (first, then) in enumerate(THEN)),
        *(pytest.param(*case, 1, 1, marks=pytest.mark.slow) for case in THEN),
    ],
)
async def test_what_a_slow_client_changes_during_a_repair_is_not_undone(
    layout: LayoutName, first: str, then: str, start: int, step: int, slow: float
) -> None:
    moment = start
    while moment <= await run(layout, first, then, slow, moment):
        moment += step


@pytest.mark.parametrize("slow", SLOW)
async def test_the_writer_of_what_was_rolled_back_changes_nothing(
    layout: LayoutName, slow: float
) -> None:
    """The operation is in the log and not in the table yet when repair takes it for one of the
    dead. If the writer went on, the log would not tell of its change until that is committed.
    """
    async with rig(layout, slow) as place:
        path = OLD[0]
        reports: list[RepairReport] = []

        async def nothing(_: Call) -> None:
            pass

        async def gate(call: Call) -> None:
            if not reports and call.method in ("write", "transact") and call.store == "items":
                reports.append((await place.repair(nothing))[0])

        place.faults.gate = gate
        with pytest.raises((ConflictError, PathNotFoundError)):
            await place.volume.store.delete_file(await place.need(path))
        place.faults.gate = None
        assert ("roll_back_log", "done") in reports[0].outcomes
        await place.check()


@pytest.mark.parametrize("slow", SLOW)
async def test_a_writer_that_withdraws_a_segment_which_repair_has_marked_leaves_no_damage(
    layout: LayoutName, slow: float
) -> None:
    """Repair takes the segment for one of the dead and marks its operations as unknown; then the
    writer is refused, and removes the pending object."""
    async with rig(layout, slow) as place:
        reports: list[RepairReport] = []

        async def nothing(_: Call) -> None:
            pass

        async def gate(call: Call) -> None:
            if not reports and call.method == "transact" and call.store == "items":
                reports.append((await place.repair(nothing))[0])

        place.faults.gate = gate
        (await place.client.delete_many(OLD)).raise_for_failures()
        place.faults.gate = None
        for path in OLD:
            del place.files[path]
        assert ("finish_change", "done") in reports[0].outcomes
        await place.check()
