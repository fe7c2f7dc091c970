"""A change of many entries that was interrupted is one finding, and repair ends it as a whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import anyio
import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import Condition, Key, Update
from s3k_async.errors import OutcomeUnknownError, ServiceError
from s3k_async.integrity import repair
from s3k_async.integrity.change_outcome import happened
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.facts import Finding
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.integrity.repair_actions import Repairer, Task
from s3k_async.model import Entry, LayoutName, Progress
from s3k_async.oplog import log_writer as oplog
from s3k_async.oplog.entries import Operation, seal, segment_key
from s3k_async.oplog.log_reader import LogReader, latest
from s3k_async.testing import Died, FaultPlan, Moment
from s3k_async.transaction import Transaction
from s3k_async.txn.txn_record import OwnedTransaction, TransactionRecords
from s3k_async.txn.write_intent import REMOVED, WriteIntent
from tests.client.rig import faulty_client
from tests.layouts.trees import stored_and_seen
from tests.level import FULL, calls_to_try
from tests.torture.damage import GRACE, Scene, die_at_publication

MOMENTS: Final[tuple[Moment, ...]] = ("before", "after")
EVER: Final = 10**9
Files = Mapping[str, bytes]
Verb = Callable[[S3kClient], Awaitable[object]]


pytestmark = pytest.mark.layouts("path", "tree")


@asynccontextmanager
async def scene(layout: LayoutName, files: int = 0) -> AsyncIterator[Scene]:
    """The tree of `damage`, with more files in /a/d1, and an empty directory."""
    world = await Scene.start(layout=layout)
    try:
        await world.volume.store.make_directory("/empty")
        for number in range(files):
            await world.write(f"/a/d1/more{number:03d}", b"more")
        await world.settled()
        yield world
    finally:
        await world.end()


def client(world: Scene, faults: FaultPlan | None = None) -> AbstractAsyncContextManager[S3kClient]:
    return faulty_client(faults or FaultPlan(), world.volume.config, world.volume.store.runtime)


async def rename(fs: S3kClient) -> None:
    await fs.rename("/a", "/b")


async def delete(fs: S3kClient) -> None:
    await fs.delete("/a", recursive=True)


async def transaction(fs: S3kClient) -> None:
    """More than fits into one transaction of the table."""
    async with fs.transaction() as tx:
        await change_files(tx)


def recorded(change: Callable[[Transaction], Awaitable[object]]) -> Verb:
    """A change in a transaction that needs a record in layout `tree`, which removes an empty
    directory as well."""

    async def run(fs: S3kClient) -> None:
        async with fs.transaction() as tx:
            await change(tx)
            await tx.delete("/empty")

    return run


async def change_files(tx: Transaction) -> None:
    await tx.rename("/a", "/b")
    await tx.write("/top", b"new")
    for number in range(3):
        await tx.write(f"/c/f{number}", b"c")


VERBS: Final[Mapping[LayoutName, dict[str, Verb]]] = {
    "path": {"rename": rename, "delete": delete, "transaction": transaction},
    "tree": {
        "rename": recorded(lambda tx: tx.rename("/a", "/b")),
        "delete": recorded(lambda tx: tx.delete("/a", recursive=True)),
        "transaction": recorded(change_files),
    },
}
NAMES: Final = tuple(VERBS["path"])


def verb_of(world: Scene, name: str) -> Verb:
    return VERBS[world.volume.store.keys.layout][name]


async def interrupted(world: Scene, verb: str, faults: FaultPlan) -> None:
    """Carry a verb out in a process that dies at some call, and let its lease and the grace period
    run out."""
    with suppress(Died):
        async with client(world, faults) as fs:
            await verb_of(world, verb)(fs)
    world.clock.advance(1000)


async def contents(world: Scene) -> Files:
    """What a reader sees."""
    async with client(world) as fs:
        return {
            status.path: await fs.read(status.path) async for status in fs.find("/", type="file")
        }


async def problems(world: Scene) -> list[Finding]:
    return (await verify_volume(world.volume, grace=GRACE)).problems


async def open_segments(world: Scene) -> list[str]:
    return await LogReader(world.log_blobs).open_segments("segments/")


async def need_the_log_agree(world: Scene) -> None:
    """What the log alone knows of each file is where the table has it."""
    truths = latest([finding async for finding in LogReader(world.log_blobs).records()])
    logged = {
        truth.committed.operation.after.entry_key
        for truth in truths.values()
        if truth.committed
        and truth.committed.operation.after
        and not truth.committed.operation.after.is_dir
    }
    _, seen = await stored_and_seen(world.volume.store)
    assert logged == {entry.entry_key for entry in seen if not entry.is_dir}
    assert not any(truth.pending for truth in truths.values())


async def calls_of(layout: LayoutName, verb: str) -> int:
    async with scene(layout) as world:
        faults = FaultPlan()
        async with client(world, faults) as fs:
            await verb_of(world, verb)(fs)
            await fs._volume().store.changes.log.drained()
            return len(faults.calls)


async def die_and_repair(layout: LayoutName, verb: str, number: int, when: Moment) -> int:
    """The number of interrupted changes that were told of."""
    async with scene(layout) as world:
        before = dict(world.files)
        faults = FaultPlan()
        faults.fail_when(lambda call: call.number == number, Died("died"), when=when)
        faults.fail_when(lambda call: call.number > number, Died("is dead"), times=EVER)
        await interrupted(world, verb, faults)
        found = await problems(world)
        assert {finding.kind for finding in found} <= {"interrupted_change"}
        assert len(found) <= 1
        report = await repair_volume(world.volume, dry_run=False, grace=GRACE)
        # Removed by the publication itself, in layout `tree`: nothing at its place shows that.
        single = {("commit_log", "/empty")} if layout == "tree" else set()
        done = {(each.finding.action, each.finding.path) for each in report.repairs}
        assert {each for each in done if each[0] != "finish_change"} <= single
        assert {outcome for _, outcome in report.outcomes} <= {"done"}
        assert await problems(world) == []
        assert await open_segments(world) == []
        await need_the_log_agree(world)
        after = await contents(world)
        assert after in (before, AFTER[verb](before))
        return len(found)


AFTER: Final[Mapping[str, Callable[[Files], Files]]] = {
    "rename": lambda files: {
        "/b" + path[2:] if path.startswith("/a/") else path: files[path] for path in files
    },
    "delete": lambda files: {
        path: data for path, data in files.items() if not path.startswith("/a/")
    },
    "transaction": lambda files: (
        {"/b" + path[2:]: files[path] for path in files if path.startswith("/a/")}
        | {"/top": b"new"}
        | {f"/c/f{number}": b"c" for number in range(3)}
    ),
}


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        *(("path", verb) for verb in NAMES),
        *(pytest.param("tree", verb, marks=pytest.mark.slow) for verb in ("rename", "delete")),
        ("tree", "transaction"),
    ],
)
async def test_death_at_every_call_leaves_one_finding_and_repair_ends_it_as_a_whole(
    name: LayoutName, verb: str
) -> None:
    layout, told = name, 0
    for number in calls_to_try(await calls_of(layout, verb)):
        for when in MOMENTS if FULL else (MOMENTS[number % 2],):
            try:
                told += await die_and_repair(layout, verb, number, when)
            except BaseException as error:
                error.add_note(f"death {when} call {number}")
                raise
    assert told > ((10 if layout == "path" else 5) if FULL else 2)


@pytest.mark.layouts("path")  # layout `tree` changes one entry
@pytest.mark.parametrize("verb", ["rename", "delete"])
@pytest.mark.parametrize("published", [True, False])
async def test_the_log_is_written_once_for_each_segment(
    layout: LayoutName, verb: str, published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oplog, "SEGMENT_OPERATIONS", 50)
    async with scene(layout, files=200) as world:
        await stop_at_publication(world, verb, published)
        segments = await open_segments(world)
        assert len(segments) > 4
        (found,) = await problems(world)
        assert (found.kind, found.action, found.path) == (
            "interrupted_change",
            "finish_change",
            "/a",
        )
        assert f"in {len(segments)} log segments" in found.detail
        assert ("after it took effect" in found.detail) is published
        faults = FaultPlan()
        async with client(world, faults) as fs:
            report = await repair_volume(fs._volume(), dry_run=False, grace=GRACE)
        assert report.outcomes == {("finish_change", "done"): 1}
        written = [
            call
            for call in faults.calls
            if call.method in ("put", "delete") and "audit/" not in call.key
        ]
        assert len(written) == len(segments)
        assert await problems(world) == []
        await need_the_log_agree(world)


@pytest.mark.layouts("path")  # layout `tree` changes one entry
@pytest.mark.parametrize("published", [True, False])
async def test_repair_takes_few_requests_for_three_thousand_files(
    layout: LayoutName, published: bool
) -> None:
    """The scans of the volume included."""
    async with scene(layout) as world:
        async with client(world) as fs:
            await fs.write_many([(f"/a/many{number}", b"") for number in range(3000)])
        await stop_at_publication(world, "rename", published)
        async with client(world) as fs:
            with fs.count() as counted:
                report = await repair_volume(fs._volume(), dry_run=False, grace=GRACE)
            assert report.outcomes == {("finish_change", "done"): 1}
            assert counted.requests.total < 400, str(counted.requests)


async def stop_at_publication(world: Scene, verb: str, published: bool) -> None:
    await die_at_publication(world, verb_of(world, verb), published=published)
    world.clock.advance(1000)


async def test_a_dry_run_plans_one_thing_and_changes_nothing(layout: LayoutName) -> None:
    async with scene(layout) as world:
        await stop_at_publication(world, "rename", False)
        segments = await open_segments(world)
        report = await repair_volume(world.volume, grace=GRACE)
        assert report.outcomes == {("finish_change", "planned"): 1}
        assert await open_segments(world) == segments
        assert len(await problems(world)) == 1


async def end_transactions(world: Scene) -> None:
    store = world.volume.store
    for record in [record async for record in store.transactions.records()]:
        assert await store.resolver.complete(record)


@pytest.mark.parametrize("published", [True, False])
async def test_the_log_of_a_transaction_that_another_client_has_ended_is_one_finding(
    layout: LayoutName, published: bool
) -> None:
    """A client that finds its intents ends the transaction, but not its log."""
    async with scene(layout, files=20) as world:
        await stop_at_publication(world, "rename", published)
        await end_transactions(world)
        (found,) = await problems(world)
        assert (found.kind, found.action) == ("interrupted_change", "finish_change")
        report = await repair_volume(world.volume, dry_run=False, grace=GRACE)
        single = {("commit_log", "done"): 2} if layout == "tree" and published else {}
        # Without its record, the table does not show that the empty directory was removed by it.
        assert report.outcomes == {("finish_change", "done"): 1, **single}
        await need_the_log_agree(world)
        assert (await contents(world)).keys() == (
            AFTER["rename"](world.files) if published else world.files
        ).keys()


async def test_the_log_of_a_recently_ended_transaction_is_not_changed(layout: LayoutName) -> None:
    """Its owner may be about to write the committed objects."""
    async with scene(layout) as world:
        await stop_at_publication(world, "rename", True)
        await end_transactions(world)
        assert (await verify_volume(world.volume, grace=10_000)).clean
        assert len(await problems(world)) == 1


async def test_what_the_table_does_not_tell_is_decided_object_by_object(layout: LayoutName) -> None:
    """A file was written over and another was removed before the log of the rename was mended."""
    async with scene(layout) as world:
        await stop_at_publication(world, "rename", True)
        await end_transactions(world)
        async with client(world) as fs:
            await fs.write("/b/d0/f0", b"later")
            await fs.delete("/b/d0/f1")
        world.clock.advance(1000)
        report = await repair_volume(world.volume, dry_run=False, grace=GRACE)
        assert report.outcomes["finish_change", "done"] == 1
        assert await problems(world) == []
        assert await open_segments(world) == []
        await need_the_log_agree(world)
        expected = {**AFTER["rename"](world.files), "/b/d0/f0": b"later"}
        del expected["/b/d0/f1"]
        assert await contents(world) == expected


async def test_a_change_of_many_files_without_a_transaction_is_one_finding_by_its_segment(
    layout: LayoutName,
) -> None:
    """Some of its transactions arrived, and their answers were lost; nobody could write the
    mark."""
    async with scene(layout) as world:
        faults = FaultPlan()
        lost = OutcomeUnknownError("lost")
        faults.fail_when(lambda call: call.method == "transact", lost, when="after", times=EVER)
        faults.fail_when(
            lambda call: call.key.endswith(".committed"), ServiceError("no"), times=EVER
        )
        faults.fail_when(
            lambda call: call.method == "get_many" and call.number > 40, lost, times=EVER
        )
        async with client(world, faults) as fs:
            await fs.write_many([(f"/a/many{number}", b"x") for number in range(150)])
        world.clock.advance(1000)
        assert len(await open_segments(world)) == 1
        (found,) = await problems(world)
        assert (found.kind, found.action) == ("interrupted_change", "finish_change")
        assert found.key.startswith("segments/")
        report = await repair_volume(world.volume, dry_run=False, grace=GRACE)
        assert report.outcomes == {("finish_change", "done"): 1}
        assert await problems(world) == []
        await need_the_log_agree(world)


@pytest.mark.parametrize("verb", ["rename", "delete"])
async def test_a_transaction_that_begins_after_the_scan_of_the_table_is_not_changed(
    layout: LayoutName, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client's clock is an hour slow, so that its segments look old, and it is published
    later."""
    async with scene(layout, files=3) as world:
        late_ms = world.clock.now_ms() - SYSTEM.now_ms() - 3_600_000
        slow = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + late_ms)
        begun, go = anyio.Event(), anyio.Event()
        publish, scan_log, repair_action = (
            TransactionRecords.publish,
            Collector._scan_log,
            Repairer.repair_action,
        )
        owners: list[asyncio.Task[None]] = []

        async def owner() -> None:
            async with faulty_client(FaultPlan(), world.volume.config, slow) as fs:
                await verb_of(world, verb)(fs)

        async def held(self: TransactionRecords, txn: OwnedTransaction, *others: Any) -> None:
            begun.set()
            await go.wait()
            await publish(self, txn, *others)

        async def between(self: Collector, tell: Callable[[Progress], object]) -> None:
            if not owners:
                owners.append(asyncio.create_task(owner()))
                await begun.wait()
            await scan_log(self, tell)

        async def then(self: Repairer, task: Task) -> None:
            try:
                await repair_action(self, task)
            finally:
                go.set()
                await asyncio.wait(owners)

        monkeypatch.setattr(TransactionRecords, "publish", held)
        monkeypatch.setattr(Collector, "_scan_log", between)
        monkeypatch.setattr(Repairer, "repair_action", then)
        await repair_volume(world.volume, dry_run=False, grace=GRACE)
        go.set()
        await owners[0]
        assert await contents(world) == AFTER[verb](world.files)


@pytest.mark.parametrize("again", ["done", "interrupted"])
async def test_a_rename_that_is_repeated_is_not_proof_of_the_first_one(
    layout: LayoutName, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lead every directory to the same path and version."""
    async with scene(layout) as world:
        top = await world.need("/a")
        await stop_at_publication(world, "rename", False)
        await end_transactions(world)
        if again == "done":
            async with client(world) as fs:
                await verb_of(world, "rename")(fs)
        else:
            await stop_at_publication(world, "rename", False)
        world.clock.advance(1000)
        with monkeypatch.context() as patched:
            patched.setattr(repair, "ROUNDS", 1)
            await repair_volume(world.volume, dry_run=False, grace=GRACE)
        findings = [finding async for finding in LogReader(world.log_blobs).records()]
        for truth in latest(findings).values():
            state = truth.committed.operation.after if truth.committed else None
            assert not truth.conflict
            if layout == "tree" and (state is None or state.id != top.id):
                continue  # what is below is not moved
            assert (
                state is None
                or state.path in ("/top", "/empty")
                or state.path.startswith("/b" if again == "done" else "/a")
            )
        await repair_volume(world.volume, dry_run=False, grace=GRACE)
        assert await problems(world) == []
        await need_the_log_agree(world)


async def test_a_mark_of_a_newer_format_keeps_nothing_else_from_being_mended(
    layout: LayoutName,
) -> None:
    async with scene(layout) as world:
        await stop_at_publication(world, "rename", True)
        await end_transactions(world)
        segment = (await open_segments(world))[0]
        head = {"s3k": "oplog-segment", "format": 99, "segment": segment, "state": "committed"}
        newer = seal(json.dumps(head).encode() + b"\n")
        await world.log_blobs.put(segment_key(segment, "committed"), newer)
        await world.lose("/top")
        await repair_volume(world.volume, dry_run=False, grace=GRACE)
        assert await world.find("/top") is not None
        assert {finding.kind for finding in await problems(world)} == {"log_newer"}


async def test_an_aborted_transaction_is_ended_though_a_part_of_its_record_is_damaged(
    layout: LayoutName,
) -> None:
    async with scene(layout) as world:
        await stop_at_publication(world, "transaction", False)
        (txn,) = [record async for record in world.volume.store.transactions.records()]
        part = Key("s3k:job", f"{txn.id}#000000")
        attribute = "paths" if layout == "path" else "keys"
        await world.volume.items.write(Update(part, Condition(), set={attribute: "garbage"}))
        await repair_volume(world.volume, dry_run=False, grace=GRACE)
        assert await problems(world) == []
        assert await open_segments(world) == []
        assert await contents(world) == world.files


async def test_what_was_published_and_whose_new_item_is_damaged_comes_back_from_the_log(
    layout: LayoutName,
) -> None:
    async with scene(layout) as world:
        await stop_at_publication(world, "rename", True)
        # In layout `tree` the directory alone is moved.
        key = await world.key("/b/d0/f0" if layout == "path" else "/b")
        await world.volume.items.write(Update(key, Condition(), set={"ctime": "x"}))
        await repair_volume(world.volume, dry_run=False, grace=GRACE)
        assert await problems(world) == []
        assert await contents(world) == AFTER["rename"](world.files)


async def test_below_a_path_only_what_concerns_it_is_told(layout: LayoutName) -> None:
    async with scene(layout) as world:
        await world.volume.store.make_directory("/elsewhere")
        await stop_at_publication(world, "delete", True)
        # Only the paths of a deletion are known from its record, and not those of a transaction.
        elsewhere = 0 if layout == "path" else 1
        for path, told in (("/elsewhere", elsewhere), ("/a", 1), ("/a/d0", 1), ("/", 1)):
            found = (await verify_volume(world.volume, grace=GRACE, path=path)).problems
            assert len(found) == told, path


async def test_files_that_a_published_transaction_replaces_by_renames_are_ended_with_it(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def replace_files(fs: S3kClient) -> None:
        async with fs.transaction() as tx:
            await tx.rename("/a/d1/f0", "/a/d0/f0", overwrite=True)
            await tx.rename("/a/d1/f1", "/a/d0/f1", overwrite=True)
            for number in range(100):
                await tx.write(f"/c/f{number}", b"c")

    monkeypatch.setitem(VERBS[layout], "replace", replace_files)
    async with scene(layout) as world:
        await stop_at_publication(world, "replace", True)
        report = await repair_volume(world.volume, dry_run=False, grace=GRACE)
        expected = {("finish_change", "done"): 1}
        if layout == "tree":
            # Staged: nothing at the places of the replaced files shows what became of them.
            expected["commit_log", "done"] = 2
        assert report.outcomes == expected
        assert await problems(world) == []
        await need_the_log_agree(world)


# What the table tells of one operation

BEFORE: Final = Entry("/x", False, "id", 3, 1, 1000, size=1, physical="k", operation="o3")
MOVED: Final = replace(BEFORE, path="/y", version=4, operation="o4")
MOVE: Final = Operation("o4", "rename", "id", 4, 1000, BEFORE, MOVED)
REMOVAL: Final = Operation("o4", "delete", "id", 4, 1000, BEFORE, None)
OURS: Final = WriteIntent("J", REMOVED).text()
THEIRS: Final = WriteIntent("K", REMOVED).text()
HIDDEN: Final = WriteIntent("J", "here").text()
TOP: Final = replace(BEFORE, is_dir=True, size=0, physical=None)
TOP_MOVED: Final = replace(MOVED, is_dir=True, size=0, physical=None)
TOP_MOVE: Final = Operation("o4", "rename", "id", 4, 1000, TOP, TOP_MOVED)


@pytest.mark.parametrize(
    ("operation", "stored", "txn", "published", "expected"),
    [
        (MOVE, [MOVED], "J", False, True),
        (MOVE, [BEFORE], "J", False, False),
        (MOVE, [BEFORE], "", False, None),
        (MOVE, [], "J", True, None),
        (MOVE, [replace(MOVED, version=5, operation="o5")], "J", True, None),
        (MOVE, [replace(MOVED, operation="another")], "J", True, None),
        (MOVE, [replace(MOVED, id="another")], "J", True, None),
        (MOVE, [replace(BEFORE, pending=OURS), replace(MOVED, pending=HIDDEN)], "J", True, True),
        (MOVE, [replace(BEFORE, pending=OURS), replace(MOVED, pending=HIDDEN)], "J", False, False),
        (MOVE, [replace(BEFORE, pending=THEIRS)], "J", False, False),
        (MOVE, [replace(BEFORE, pending=THEIRS)], "J", True, None),
        (MOVE, [replace(BEFORE, version=5)], "J", False, None),
        (REMOVAL, [], "J", True, None),
        (REMOVAL, [], "J", False, None),
        (REMOVAL, [replace(BEFORE, pending=OURS)], "J", True, True),
        (REMOVAL, [replace(BEFORE, pending=OURS)], "J", False, False),
        (REMOVAL, [replace(BEFORE, pending=THEIRS)], "J", True, None),
        (REMOVAL, [BEFORE], "J", True, False),
        (MOVE, [replace(BEFORE, pending=OURS)], "J", True, True),
        (TOP_MOVE, [TOP_MOVED], "J", False, True),
        (TOP_MOVE, [replace(TOP_MOVED, operation="touched")], "J", False, None),
        (TOP_MOVE, [replace(TOP_MOVED, operation="o9", pending=THEIRS)], "J", False, None),
    ],
)
def test_what_the_table_tells_of_an_operation(
    operation: Operation, stored: list[Entry], txn: str, published: bool, expected: bool | None
) -> None:
    assert (
        happened(operation, {entry.path: entry for entry in stored}, txn, published=published)
        is expected
    )
