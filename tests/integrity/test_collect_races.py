"""Garbage collection beside everything else that happens: no live byte goes, whatever comes between
which calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import Final

import pytest
from anyio import Event, Lock, create_task_group
from anyio.lowlevel import checkpoint

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Put
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.errors import BusyError, LeaseExpiredError, S3kError, UnreachableError
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.gc_sweep import GarbageCollector
from s3k_async.integrity.repair import repair_volume
from s3k_async.model import LayoutName
from s3k_async.namespace import multi_path_commit
from s3k_async.oplog.entries import decode, numbered_segment, segment_key
from s3k_async.oplog.segments import SegmentCommit, encode_segment, encode_segment_commit
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.upload_items import is_upload_partition
from tests.client.rig import faulty_client
from tests.integrity.garbage import DAY, Yard, live_keys, yard
from tests.oplog.operations import make_directories

pytestmark = pytest.mark.layouts("path", pytest.param("tree", marks=pytest.mark.slow))

NOW: Final = Ages(grace=0.0, lease=600.0, late=60.0)
"""No grace at all: only leases protect."""

Deed = Callable[[S3kClient], Awaitable[object]]


async def rename_and_back(fs: S3kClient) -> None:
    await fs.rename("/a/live", "/b/live")
    await fs.rename("/b/live", "/a/live")


async def rename_away_and_further(fs: S3kClient) -> None:
    await fs.rename("/a/live", "/b/x")
    await fs.rename("/b/x", "/b/y")


async def transaction(fs: S3kClient) -> None:
    """By a transaction, whatever its size."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(multi_path_commit, "AT_ONCE", 0)
        async with fs.transaction() as tx:
            await tx.write("/a/live", b"new")
            await tx.write("/a/dead", b"new")
            await tx.rename("/a/other", "/b/still", overwrite=True)


DEEDS: Final[dict[str, Deed]] = {
    "rename": lambda fs: fs.rename("/a/live", "/b/live"),
    "rename and back": rename_and_back,
    "rename twice": rename_away_and_further,
    "rename over another": lambda fs: fs.rename("/a/live", "/a/other", overwrite=True),
    "rename the directory": lambda fs: fs.rename("/a", "/c"),
    "overwrite": lambda fs: fs.write("/a/live", b"new"),
    "copy": lambda fs: fs.copy("/a/live", "/b/copy"),
    "touch": lambda fs: fs.touch("/a/live"),
    "delete and write": lambda fs: fs.write("/a/dead", b"new"),
    "delete": lambda fs: fs.delete("/a/other"),
    "transaction": transaction,
}


async def fill(place: Yard) -> None:
    """Live files and garbage, long ago."""
    fs = place.client
    for name in ("/a/live", "/a/other", "/a/dead", "/b/still"):
        await fs.write(name, name.encode())
    await fs.write("/b/still", b"/b/still")
    await fs.delete("/a/dead")
    await place.settle()
    place.clock.advance(DAY)


async def check(place: Yard) -> None:
    """Every file can be read."""
    fs = place.client
    paths = [status.path async for status in fs.list("/", recursive=True) if status.is_file]
    assert all([await fs.read(path) for path in paths])
    assert await live_keys(fs) <= await place.keys()


async def calls_of_a_run(layout: LayoutName, tmp_path: Path) -> int:
    async with yard(tmp_path, layout=layout) as place:
        await fill(place)
        plan = FaultPlan()
        await place.gc(plan, NOW)
        return len(plan.calls)


@pytest.mark.parametrize(
    ("name", "first", "step"),
    [
        *((name, 1 + number, 10) for number, name in enumerate(DEEDS)),
        *(pytest.param(name, 1, 1, marks=pytest.mark.slow) for name in DEEDS),
    ],
)
async def test_a_change_between_any_two_calls_of_a_run_loses_nothing(
    layout: LayoutName, name: str, first: int, step: int, tmp_path: Path
) -> None:
    calls = await calls_of_a_run(layout, tmp_path)
    assert calls > 30
    for moment in range(first, calls + 1, step):
        async with yard(tmp_path, layout=layout) as place:
            await fill(place)

            async def gate(call: Call, moment: int = moment, place: Yard = place) -> None:
                if call.number == moment:
                    await DEEDS[name](place.client)

            await place.gc(FaultPlan(gate), NOW)
            await check(place)
            await place.settle()
            place.clock.advance(DAY)
            await place.gc(ages=NOW)
            assert await place.keys() == await live_keys(place.client), moment


class Mover:
    """Takes a file from place to place."""

    def __init__(self, place: Yard) -> None:
        self.at = "/a/live"
        self._place = place
        self._route = cycle(f"/b/{number}" for number in range(7))
        self._turn = Lock()

    async def move(self) -> None:
        async with self._turn:
            to = next(self._route)
            await self._place.client.rename(self.at, to)
            self.at = to


@pytest.mark.parametrize("every", [1, 2, 3, 5])
@pytest.mark.parametrize("unmarked", [False, True], ids=["log up to date", "log behind"])
async def test_a_file_that_never_stays_where_it_is_keeps_its_bytes(
    layout: LayoutName, every: int, unmarked: bool, tmp_path: Path
) -> None:
    """It moves at every call of the run, or every few; where the log is behind, it knows no move to
    have happened, and only the table can tell."""
    for start in range(every):
        async with yard(tmp_path, layout=layout) as place:
            if unmarked:
                refused = UnreachableError("the log takes no marks")
                place.faults.fail_when(
                    lambda call: call.key.endswith(".committed"), refused, times=10**9
                )
            await fill(place)
            mover = Mover(place)

            async def gate(call: Call, start: int = start, mover: Mover = mover) -> None:
                if call.number % every == start:
                    await mover.move()

            await place.gc(FaultPlan(gate), NOW)
            assert await place.client.read(mover.at) == b"/a/live"
            await check(place)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_death_at_any_call_of_a_run_loses_nothing_and_the_next_run_finishes(
    layout: LayoutName, when: str, step: int, tmp_path: Path
) -> None:
    calls = await calls_of_a_run(layout, tmp_path)
    for moment in range(1 + (when == "after"), calls + 1, step):
        async with yard(tmp_path, layout=layout) as place:
            await fill(place)
            await place.client.open("/a/reserved", "xb")
            place.clock.advance(DAY)
            plan = FaultPlan()
            plan.die(moment, when="before" if when == "before" else "after")
            with suppress(Died):
                await place.gc(plan, NOW)
            assert len(plan.calls) >= moment
            await check(place)
            if moment % 2:
                await place.gc(ages=NOW)
            else:  # with the list of the run that died, where it got as far as that
                with suppress(S3kError):
                    await (await place.collector(ages=NOW)).sweep(place.candidates)
                await place.gc(ages=NOW)
            assert await place.keys() == await live_keys(place.client), moment
            assert not await place.client.exists("/a/reserved")


async def test_two_runs_at_once_do_no_harm(layout: LayoutName, tmp_path: Path) -> None:
    calls = await calls_of_a_run(layout, tmp_path)
    for moment in range(1, calls + 1, 4):
        async with yard(tmp_path, layout=layout) as place:
            await fill(place)

            async def gate(call: Call, moment: int = moment, place: Yard = place) -> None:
                if call.number == moment:
                    other = await place.collector(ages=NOW)
                    await other.mark(place.candidates + "-2")
                    await other.sweep(place.candidates + "-2")

            await place.gc(FaultPlan(gate), NOW)
            await check(place)
            assert await place.keys() == await live_keys(place.client)


async def test_a_list_is_swept_by_one_at_a_time(layout: LayoutName, tmp_path: Path) -> None:
    async with yard(tmp_path, layout=layout) as place:
        await fill(place)
        await (await place.collector(ages=NOW)).mark(place.candidates)
        refused: list[BusyError] = []

        async def gate(call: Call) -> None:
            if call.method == "delete_many" and not refused:
                with pytest.raises(BusyError) as error:
                    await (await place.collector(ages=NOW)).sweep(place.candidates)
                refused.append(error.value)

        await (await place.collector(FaultPlan(gate), NOW)).sweep(place.candidates)
        assert [error.path for error in refused] == [place.candidates]
        await check(place)
        again = await (await place.collector(ages=NOW)).sweep(place.candidates)
        assert again.deleted == {}


async def test_a_write_that_is_under_way_while_everything_is_scanned_keeps_its_bytes(
    layout: LayoutName, tmp_path: Path
) -> None:
    """S3-FileSystem 1.0 scanned data and table at different times, and took what was created
    between for garbage."""
    async with yard(tmp_path, layout=layout) as place:
        await fill(place)

        async def collect(call: Call) -> None:
            if call.method in ("write", "transact") and place.faults.gate is not None:
                place.faults.gate = None
                place.clock.advance(NOW.lease - 1)
                await place.gc(ages=NOW)

        place.faults.gate = collect  # the bytes are there, the entry is not
        await place.client.write("/b/new", b"uploaded, and about to be published")
        assert place.faults.gate is None
        await place.gc(ages=NOW)
        await check(place)
        assert await place.client.read("/b/new") == b"uploaded, and about to be published"


def stall(place: Yard, method: str, seconds: float) -> None:
    """Let the next call of the method, and only that, take so long."""

    async def gate(call: Call) -> None:
        if call.method == method:
            place.faults.gate = None
            place.clock.advance(seconds)

    place.faults.gate = gate


async def transacted(fs: S3kClient, path: str) -> None:
    async with fs.transaction() as tx:
        await tx.write(path, b"x")


WRITERS: Final[dict[str, tuple[str, Deed]]] = {
    "write": ("put", lambda fs: fs.write("/new", b"x")),
    "overwrite": ("put", lambda fs: fs.write("/file", b"x")),
    "write in parts": ("put_part", lambda fs: fs.write("/new", b"x" * 1000)),
    "copy": ("copy", lambda fs: fs.copy("/file", "/new")),
    "touch": ("put", lambda fs: fs.touch("/new")),
    "transaction": ("put", lambda fs: transacted(fs, "/new")),
    "transaction over a file": ("put", lambda fs: transacted(fs, "/file")),
}


@pytest.mark.parametrize("name", WRITERS)
async def test_who_uploads_past_the_lease_publishes_nothing(
    layout: LayoutName, name: str, tmp_path: Path
) -> None:
    method, deed = WRITERS[name]
    async with yard(tmp_path, layout=layout) as place:
        await place.client.write("/file", b"file")
        await place.settle()
        stall(place, method, 601)
        with pytest.raises(LeaseExpiredError):
            await deed(place.client)
        assert not await place.client.exists("/new")
        assert await place.client.read("/file") == b"file"
        assert await place.keys() == await live_keys(place.client)


@pytest.mark.parametrize("path", ["/new", "/file"])
async def test_an_open_file_past_its_lease_publishes_nothing(
    layout: LayoutName, path: str, tmp_path: Path
) -> None:
    async with yard(tmp_path, layout=layout) as place:
        await place.client.write("/file", b"file")
        writer = await place.client.open(path, "wb")
        await writer.write(b"x" * 600)
        place.clock.advance(601)
        with pytest.raises(LeaseExpiredError):
            await writer.close()
        assert not await place.client.exists("/new")
        assert await place.client.read("/file") == b"file"


async def test_files_of_a_list_past_their_lease_are_not_published(
    layout: LayoutName, tmp_path: Path
) -> None:
    async with yard(tmp_path, layout=layout) as place:
        stall(place, "put", 601)
        result = await place.client.write_many([(f"/{number}", b"x") for number in range(3)])
        assert [type(error) for _, error in result.failures] == [LeaseExpiredError] * 3
        assert await place.keys() == set()


async def test_bytes_that_lose_a_race_keep_the_lease_that_they_were_uploaded_under(
    layout: LayoutName, tmp_path: Path
) -> None:
    """They are used again after a lost race; with a new lease they could become visible after they
    were collected."""
    async with yard(tmp_path, layout=layout) as place:
        fs = place.client
        await fs.write("/file", b"old")
        lost = 0

        async def gate(call: Call) -> None:
            nonlocal lost
            # Somebody else is faster, when the writer's bytes are uploaded and its entry is about
            # to be written.
            if call.method in ("write", "transact") and lost == 0:
                lost = 1
                place.faults.gate = None
                await fs.touch("/file")
                place.clock.advance(601)

        place.faults.gate = gate
        with pytest.raises(LeaseExpiredError):
            await fs.write("/file", b"new")
        assert lost == 1
        assert await fs.read("/file") == b"old"


async def calls_of(place: Yard, deed: Deed) -> int:
    """How many calls a change makes."""
    place.faults.calls.clear()
    await deed(place.client)
    await place.settle()
    return len(place.faults.calls)


@pytest.mark.parametrize(
    ("name", "step"),
    [("rename the directory", 4), ("rename over another", 3), ("overwrite", 2), ("transaction", 3)],
)
async def test_bytes_of_changes_that_died_half_way_are_not_collected(
    layout: LayoutName, name: str, step: int, tmp_path: Path
) -> None:
    async with yard(tmp_path, layout=layout) as place:
        await fill(place)
        calls = await calls_of(place, DEEDS[name])
    for moment in range(1, calls + 1, step):
        async with yard(tmp_path, layout=layout) as place:
            await fill(place)
            place.faults.calls.clear()
            place.faults.die(moment, when="after")
            with suppress(Died):
                await DEEDS[name](place.client)
            with suppress(Died):
                await place.settle()
            place.clock.advance(10 * DAY)
            await place.gc(ages=NOW)
            async with faulty_client(FaultPlan(), place.config, place.runtime) as other:
                found = other.list("/", recursive=True)
                paths = [status.path async for status in found if status.is_file]
                assert {"/b/still"} < set(paths)
                assert all([await other.read(path) for path in paths])


class Unseen:
    """A live file that the mark's scan has missed, because it was moved meanwhile, and of which the
    log, being behind, knows nothing for certain: only what sweep reads can save it."""

    def __init__(self, place: Yard) -> None:
        self._place = place

    async def make(self, route: list[str]) -> None:
        """Write the file at the first path and take it to the others."""
        place = self._place
        refused = UnreachableError("the log takes no marks")
        place.faults.fail_when(lambda call: call.key.endswith(".committed"), refused, times=10**9)
        await place.client.write(route[0], b"live")
        for old, new in pairwise(route):
            await place.client.rename(old, new)
        await place.settle()
        place.clock.advance(DAY)

    async def mark(self, path: str, plan: FaultPlan | None = None) -> GarbageCollector:
        """Mark as if the scan had passed by the path before the file came there."""
        place = self._place
        items, key = MemoryItems(place.config.name), await place.key(path)
        item = await items.get(key)
        assert item is not None
        await items.write(Delete(key, Condition()))
        collector = await place.collector(plan, NOW)
        marked = await collector.mark(place.candidates)
        await items.write(Put(item, ABSENT))
        assert marked.of("unpublished").objects == 1
        return collector


async def test_what_the_scan_missed_is_found_where_the_log_has_seen_it(
    layout: LayoutName, tmp_path: Path
) -> None:
    async with yard(tmp_path, layout=layout) as place:
        unseen = Unseen(place)
        await unseen.make(["/a", "/b", "/c"])
        collector = await unseen.mark("/c")
        assert (await collector.sweep(place.candidates)).kept["named"].objects == 1
        assert await place.client.read("/c") == b"live"


async def test_what_was_moved_since_it_was_marked_is_in_the_logs_news(
    layout: LayoutName, tmp_path: Path
) -> None:
    for by_directory in (False, True):
        async with yard(tmp_path, layout=layout) as place:
            unseen = Unseen(place)
            await place.client.makedirs("/d")
            await place.client.write("/d/other", b"other")
            await unseen.make(["/a", "/d/b"])
            collector = await unseen.mark("/d/b")
            new = "/e" if by_directory else "/d/c"
            await place.client.rename("/d" if by_directory else "/d/b", new)
            # In layout `tree` the file itself has not moved.
            reason = "named" if by_directory and layout == "tree" else "changed"
            assert (await collector.sweep(place.candidates)).kept[reason].objects == 1
            assert await place.client.read("/e/b" if by_directory else "/d/c") == b"live"


async def test_a_rename_that_leaves_its_group_in_mid_reading_is_in_the_logs_news(
    layout: LayoutName, tmp_path: Path
) -> None:
    """It has come to the table and does not end. After a second it gets an entry, and the mark of
    its group does not name it: it is in a segment before, and in an entry afterwards."""
    moment, calls = 1, 1
    while moment <= calls:
        async with (
            yard(tmp_path, layout=layout) as place,
            faulty_client(FaultPlan(), place.config, place.runtime) as other,
        ):
            unseen, plan = Unseen(place), FaultPlan()
            await unseen.make(["/a", "/b"])
            collector = await unseen.mark("/b", plan)
            log = other._volume().log_blobs
            assert log is not None
            group = await into_group(place, log, ("/b", "/c"))

            async def leave(call: Call, moment: int = moment, group: Group = group) -> None:
                if call.number == moment:
                    await group.leave()

            plan.calls.clear()
            plan.gate = leave
            swept = await collector.sweep(place.candidates)
            assert group.is_left
            assert swept.kept["changed"].objects == 1, moment
            assert await place.client.read("/c") == b"live"
            calls = len(plan.calls)
        moment += 1
    assert calls > 5


@dataclass
class Group:
    """A group without a mark, of a slow operation and another."""

    log: BlobStore
    entry: tuple[str, bytes]
    """Key and bytes of the entry that the slow operation gets."""
    mark: SegmentCommit
    is_left: bool = False

    async def leave(self) -> None:
        """The slow operation leaves it."""
        await self.log.put(*self.entry)
        await self.log.put(segment_key(self.mark.id, "committed"), encode_segment_commit(self.mark))
        self.is_left = True


async def into_group(place: Yard, log: BlobStore, paths: tuple[str, str]) -> Group:
    """Rename a file, as an operation of a group."""
    old = {info.key async for info in list_all(log, "entries/")}
    await place.client.rename(*paths)
    await place.settle()
    (key,) = {info.key async for info in list_all(log, "entries/")} - old
    entry = await log.get(key)
    await log.delete(key)
    segment = numbered_segment(place.runtime.uuid(), 1)
    (quick,) = make_directories(1)
    operations = [decode(entry, key).operation, quick]
    await log.put(segment_key(segment, "pending"), encode_segment(segment, operations))
    return Group(log, (key, entry), SegmentCommit(segment, len(operations), (quick.id,)))


async def test_what_moves_between_two_requests_of_one_reading_is_seen_by_the_next(
    layout: LayoutName, tmp_path: Path
) -> None:
    """A rename whose pending entry was there when the log was read, and which comes to the table in
    mid-reading."""
    async with yard(tmp_path, layout=layout) as place:
        unseen, arriving, arrived = Unseen(place), Event(), Event()
        await unseen.make([f"/{number:03}" for number in range(130)])

        async def hold(call: Call) -> None:
            if call.method == "transact":
                place.clock.advance(1)
                await arriving.wait()

        async def rename() -> None:
            await place.client.rename("/129", "/000")
            arrived.set()

        async def between(call: Call) -> None:
            if call.method == "get_many" and not is_upload_partition(call.key):
                requests.append(call)
                if len(requests) == 2:
                    arriving.set()
                    await arrived.wait()

        requests: list[Call] = []
        plan = FaultPlan()
        async with create_task_group() as tasks:
            place.faults.gate = hold
            began = place.clock.seconds
            tasks.start_soon(rename)
            while place.clock.seconds == began:
                await checkpoint()
            collector = await unseen.mark("/129", plan)
            plan.gate = between
            swept = await collector.sweep(place.candidates)
        assert swept.kept["named"].objects == 1
        assert len(requests) == 4
        assert await place.client.read("/000") == b"live"


@pytest.mark.parametrize("method", ["get_many", "delete_many"])
async def test_bytes_that_repair_may_still_publish_stay_as_long_as_their_reservation(
    layout: LayoutName, method: str, tmp_path: Path
) -> None:
    """A writer died between the log and the table: its bytes are whole, and repair rolls that
    forward."""
    async with yard(tmp_path, layout=layout) as place:
        await fill(place)
        writer = await place.client.open("/a/late", "xb")
        await writer.write(b"whole")
        dies = Died("before the table is written")
        place.faults.fail_when(lambda call: call.method in ("write", "transact"), dies, times=10**9)
        with suppress(Died):
            await writer.close()
        place.clock.advance(DAY)
        plan, repaired = FaultPlan(), 0
        async with faulty_client(FaultPlan(), place.config, place.runtime) as other:
            collector = await place.collector(plan, NOW)
            await collector.mark(place.candidates)

            async def repair(call: Call) -> None:
                nonlocal repaired
                if call.method == method and not repaired:
                    repaired += 1
                    await repair_volume(other._volume(), dry_run=False)

            plan.gate = repair
            await collector.sweep(place.candidates)
            assert repaired
            assert await other.read("/a/late") == b"whole"
