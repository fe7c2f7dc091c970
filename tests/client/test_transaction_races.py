"""Transactions beside others: what changed meanwhile, who came first, who died, who reads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import anyio
import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Condition, Key, Put, Update
from s3k_async.client import S3kClient
from s3k_async.errors import (
    BusyError,
    ConflictError,
    IsDirectoryError,
    ItemFormatError,
    LeaseExpiredError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    ResponseLostError,
    S3kError,
    TransactionConflictError,
)
from s3k_async.layouts.path.path_layout import PathLayout
from s3k_async.layouts.path.recursive import forget
from s3k_async.layouts.tree.tree_layout import TreeLayout
from s3k_async.model import LayoutName
from s3k_async.namespace import multi_path_commit, recorded_change
from s3k_async.table.keys import Directory
from s3k_async.testing import Call, FaultPlan
from s3k_async.transaction import Transaction
from s3k_async.txn import txn_manifest
from s3k_async.txn.txn_record import TRANSACTION_PARTITION, TransactionRecords
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config
from tests.client.transacting import (
    CHANGED,
    START,
    both_ways,
    change,
    contents,
    fill,
    problems,
    refused_at_the_end,
    stored_bytes,
    transaction_items,
    two_clients,
)

pytestmark = pytest.mark.layouts("path", "tree")


async def gone(fs: S3kClient) -> None:
    await fs.delete("/d/f")


async def newer(fs: S3kClient) -> None:
    await fs.write("/d/f", b"newer")


async def another(fs: S3kClient) -> None:
    await fs.delete("/d/f")
    await fs.write("/d/f", b"another")


async def taken(fs: S3kClient) -> None:
    await fs.write("/d/n", b"taken")


@both_ways
@pytest.mark.parametrize(
    ("verb", "meanwhile", "error"),
    [
        (lambda tx: tx.delete("/d/f"), gone, PathNotFoundError),
        (lambda tx: tx.delete("/d/f"), newer, ConflictError),
        (lambda tx: tx.delete("/d/f", missing_ok=True), another, ConflictError),
        (lambda tx: tx.rename("/d/f", "/d/n"), gone, PathNotFoundError),
        (lambda tx: tx.rename("/d/f", "/d/n"), newer, ConflictError),
        (lambda tx: tx.rename("/d/f", "/d/n"), taken, PathExistsError),
        (
            lambda tx: tx.rename("/d/f", "/e/x"),
            lambda fs: fs.delete("/e", recursive=True),
            PathNotFoundError,
        ),
        (lambda tx: tx.write("/d/n", b"x", overwrite=False), taken, PathExistsError),
        (lambda tx: tx.write("/d/n", b"x"), lambda fs: fs.makedirs("/d/n"), IsDirectoryError),
        (lambda tx: tx.write("/d/n/x", b"x"), taken, NotDirectoryError),
        (lambda tx: tx.rename("/d/f", "/d/n/x"), taken, NotDirectoryError),
        (lambda tx: tx.makedirs("/d/n"), taken, PathExistsError),
        (lambda tx: tx.makedirs("/d/n/m"), taken, NotDirectoryError),
    ],
)
async def test_what_others_changed_meanwhile_refuses_all_of_it(
    verb: Callable[[Transaction], Awaitable[None]],
    meanwhile: Callable[[S3kClient], Awaitable[object]],
    error: type[S3kError],
    layout: LayoutName,
) -> None:
    await refused_at_the_end(verb, meanwhile, error, layout)


async def moved_away(fs: S3kClient) -> None:
    await fs.rename("/d/f", "/e/old")


async def replaced_by_a_move(fs: S3kClient) -> None:
    await fs.rename("/d/g", "/d/f", overwrite=True)


@both_ways
@pytest.mark.parametrize("meanwhile", [gone, newer, another, moved_away, replaced_by_a_move])
async def test_a_file_is_written_over_whatever_is_there_by_then(
    meanwhile: Callable[[S3kClient], Awaitable[object]], layout: LayoutName
) -> None:
    async with two_clients(layout) as (fs, other):
        await fill(fs)
        tx = fs.transaction()
        await tx.write("/d/f", b"mine")
        await meanwhile(other)
        expected = await contents(other)
        assert (await tx.commit()).files == 1
        assert await contents(fs) == {**expected, "/d/f": b"mine"}
        ids = [status.id async for status in fs.list("/", recursive=True)]
        assert len(set(ids)) == len(ids)
        assert await problems(fs) == []
        await fs.delete("/d/f")
        assert await contents(fs) == {
            path: data for path, data in expected.items() if path != "/d/f"
        }
        assert await problems(fs) == []


@both_ways
async def test_a_file_is_created_over_another_that_appeared(layout: LayoutName) -> None:
    async with two_clients(layout) as (fs, other):
        await fill(fs)
        tx = fs.transaction()
        await tx.write("/d/n", b"mine")
        await tx.delete("/d/f", missing_ok=True)
        await taken(other)
        await gone(other)
        await tx.commit()
        assert await fs.read("/d/n") == b"mine"
        assert await problems(fs) == []


@both_ways
async def test_a_reservation_is_written_over_and_its_writer_told(layout: LayoutName) -> None:
    async with two_clients(layout) as (fs, other):
        await fill(fs)
        file = await other.open("/d/n", "wb")
        await file.write(b"theirs")
        async with fs.transaction() as tx:
            await tx.write("/d/n", b"mine")
        with pytest.raises(ConflictError):
            await file.commit()
        assert await fs.read("/d/n") == b"mine"
        assert await problems(fs) == []


@both_ways
async def test_bytes_of_before_the_lease_are_not_published(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    late = 0.0
    runtime = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + int(late * 1000))
    faults = FaultPlan()
    async with faulty_client(faults, config, runtime) as fs:
        await fill(fs)
        tx = fs.transaction()
        await tx.write("/d/f", b"mine")
        late = config.tuning.lease + 1
        faults.calls.clear()
        with pytest.raises(LeaseExpiredError):
            await tx.commit()
        assert await contents(fs) == START
        # Looked at before the transaction record is written: garbage collection rests on that.
        assert [call.method for call in faults.calls if call.method in {"write", "transact"}] == []


@both_ways
async def test_many_at_once_on_the_same_paths_come_one_after_the_other(layout: LayoutName) -> None:
    """Each writes the same files; in the end all are of one of them, and none was lost half-way."""
    config = memory_config(layout=layout)
    await init_volume(config)
    names = [f"/d{number}/f" for number in range(4)]

    async with faulty_client(FaultPlan(), config) as reader:

        async def one(number: int) -> None:
            async with faulty_client(FaultPlan(), config) as fs:
                for _ in range(3):
                    async with fs.transaction() as tx:
                        for name in names:
                            await tx.write(name, b"%d" % number)

        for name in names:
            await reader.write(name, b"-")
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(one, number)
        found = await reader.read_many(names)
        assert len(set(found)) == 1
        assert {status.version async for status in reader.find("/", type="file")} == {2 + 4 * 3}
        assert await reader.transactions() == []
        assert await problems(reader) == []


async def test_a_reader_that_lists_in_a_loop_sees_old_or_new(layout: LayoutName) -> None:
    """300 files over several directories are written, written over, moved and deleted."""
    async with two_clients(layout) as (fs, reader):
        seen: list[frozenset[tuple[str, str]]] = []
        done = anyio.Event()

        async def look() -> None:
            while not done.is_set():
                found = [status async for status in reader.list("/", recursive=True)]
                seen.append(
                    frozenset((status.path, status.etag) for status in found if status.is_file)
                )

        async def work() -> AsyncIterator[None]:
            for data in (b"first", b"second"):
                async with fs.transaction() as tx:
                    for number in range(300):
                        await tx.write(f"/d{number % 5}/f{number}", data)
                yield
            async with fs.transaction() as tx:
                for number in range(100):
                    await tx.rename(f"/d{number % 5}/f{number}", f"/d{number % 3}/moved{number}")
                for number in range(100, 300):
                    await tx.delete(f"/d{number % 5}/f{number}")
            yield

        states = {frozenset[tuple[str, str]]()}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            async for _ in work():
                found = [status async for status in fs.list("/", recursive=True)]
                states.add(
                    frozenset((status.path, status.etag) for status in found if status.is_file)
                )
            done.set()
        assert set(seen) <= states
        assert len(states) == 4
        assert len(seen) > 10
        sys.stdout.write(f"{len(seen)} listings, {len(set(seen))} states\n")
        assert await problems(fs) == []


@both_ways
@pytest.mark.parametrize("touched", [False, True])
async def test_between_any_two_requests_of_a_listing_it_happens_wholly(
    touched: bool, layout: LayoutName
) -> None:
    """Also if no transaction has ever changed anything in the root."""

    async def listed(before: int) -> tuple[frozenset[str], bool]:
        """What a listing finds if a transaction comes before one of its requests, and whether it
        had so many."""
        async with two_clients(layout) as (reader, other):
            await fill(other)
            if touched:
                await other._volume().store.touch(Directory.at("/"))
            faults: FaultPlan = reader._volume().items._store.plan  # type: ignore[attr-defined]  # the memory table's
            due = len(faults.calls) + before
            came = False

            async def gate(_: object) -> None:
                nonlocal came
                if len(faults.calls) == due and not came:
                    came = True
                    async with other.transaction() as tx:
                        await change(tx)

            faults.gate = gate
            found = frozenset([status.path async for status in reader.list("/", recursive=True)])
            faults.gate = None
            return found, came

    states: list[frozenset[str]] = []
    came = True
    while came:
        found, came = await listed(len(states) + 1)
        states.append(found)
    assert set(states) == {frozenset(START), frozenset(CHANGED)}
    assert len(states) > 10


@pytest.mark.layouts("path")
async def test_a_file_that_was_left_without_its_directory_gets_it_back() -> None:
    async with two_clients("path") as (fs, other):
        await other.write("/d/f", b"left")
        await other.write("/d/kept", b"kept")
        await other.write("/g", b"g")
        store = other._volume().store
        directory = await store.get("/d")
        assert directory is not None
        await forget(store, directory)
        async with fs.transaction() as tx:
            await tx.delete("/d/f")
            await tx.rename("/g", "/h")
        assert {status.path async for status in fs.list("/", recursive=True)} == {
            "/d",
            "/d/kept",
            "/h",
        }


async def test_a_directory_that_went_with_its_files_does_not_come_back(layout: LayoutName) -> None:
    async with two_clients(layout) as (fs, other):
        await other.write("/d/f", b"gone")
        await other.write("/g", b"g")
        faults: FaultPlan = fs._volume().items._store.plan  # type: ignore[attr-defined]  # the memory table has them

        async def gate(call: Call) -> None:
            if call.method == "transact":
                faults.gate = None
                await other.delete("/d", recursive=True)

        tx = fs.transaction()
        await tx.delete("/d/f")
        await tx.rename("/g", "/h")
        faults.gate = gate
        with pytest.raises(PathNotFoundError):
            await tx.commit()
        assert faults.gate is None
        assert [status.path async for status in fs.list("/", recursive=True)] == ["/g"]


async def test_a_directory_that_goes_away_meanwhile_is_made_again(layout: LayoutName) -> None:
    """It is removed between the read and the intents, by a client that saw it empty."""
    async with two_clients(layout) as (fs, other):
        await fs.makedirs("/d/x")
        faults: FaultPlan = fs._volume().items._store.plan  # type: ignore[attr-defined]  # the memory table has them
        removed = False

        async def gate(call: object) -> None:
            nonlocal removed
            if not removed and getattr(call, "method", "") == "transact":
                removed = True
                await other.delete("/d/x")

        faults.gate = gate
        async with fs.transaction() as tx:
            await tx.write("/d/x/f", b"1")
        faults.gate = None
        assert removed
        assert await contents(fs) == {"/d": None, "/d/x": None, "/d/x/f": b"1"}
        assert await problems(fs) == []


async def test_repeated_conflicts_in_one_directory_lead_to_a_transaction_record(
    layout: LayoutName,
) -> None:
    faults = FaultPlan()
    config = memory_config(layout=layout)
    await init_volume(config)
    async with faulty_client(faults, config) as fs:
        await fs.makedirs("/d")
        kinds: list[str] = []
        hold = TransactionRecords.hold

        def held(
            transactions: TransactionRecords, kind: str, *arguments: str, **options: int
        ) -> object:
            kinds.append(kind)
            return hold(transactions, kind, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

        faults.fail_when(
            lambda call: call.method == "transact", TransactionConflictError("in the way"), times=6
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(TransactionRecords, "hold", held)
            async with fs.transaction() as tx:
                await tx.write("/d/f", b"1")
                await tx.write("/d/g", b"2")
        assert kinds == ["transaction"]
        assert await contents(fs) == {"/d": None, "/d/f": b"1", "/d/g": b"2"}


async def test_an_answer_that_never_comes_is_unknown_and_its_bytes_stay(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fill(fs)
        tx = fs.transaction()
        await tx.write("/d/f", b"mine")
        before = await stored_bytes(config)
        faults.calls.clear()
        lost = ResponseLostError("lost")
        faults.fail_when(lambda call: call.method == "transact", lost, when="after", times=10**6)
        faults.fail_when(
            lambda call: call.method == "get_many" and transacted(faults), lost, times=10**6
        )
        with pytest.raises(OutcomeUnknownError):
            await tx.commit()
        faults._faults.clear()
        assert await stored_bytes(config) == before
        assert await fs.read("/d/f") == b"mine"


def transacted(faults: FaultPlan) -> bool:
    return any(call.method == "transact" for call in faults.calls)


@pytest.mark.usefixtures("by_record")
async def test_an_owner_that_lost_its_transaction_publishes_nothing(
    monkeypatch: pytest.MonkeyPatch, layout: LayoutName
) -> None:
    async with two_clients(layout) as (fs, other):
        await fill(fs)
        publish = TransactionRecords.publish

        async def late(transactions: TransactionRecords, *arguments: object) -> None:
            (record,) = await other.transactions()
            await other._volume().items.write(
                Update(Key(TRANSACTION_PARTITION, record.id), Condition(), set={"lease": 1})
            )
            await other.write("/d/f", b"theirs")
            await publish(transactions, *arguments)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(TransactionRecords, "publish", late)
        tx = fs.transaction()
        await tx.write("/d/f", b"mine")
        await tx.rename("/d/g", "/e/k", overwrite=True)
        with pytest.raises(LeaseExpiredError):
            await tx.commit()
        assert await contents(other) == {**START, "/d/f": b"theirs"}
        assert await other.transactions() == []
        assert [item async for item in transaction_items(other)] == []
        assert await problems(other) == []


@pytest.mark.layouts("path")
@pytest.mark.usefixtures("by_record")
async def test_fsck_knows_an_item_that_is_about_to_be_another_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a rename over a file that was published, only the old place was folded in: the moved
    object has no item."""

    async def died(_change: object) -> None:
        pass

    async with two_clients("path") as (fs, other):
        await fill(fs)
        monkeypatch.setattr(recorded_change.RecordedChange, "_fold", died)
        async with fs.transaction() as tx:
            await tx.rename("/d/g", "/e/k", overwrite=True)
        store = other._volume().store
        source = await store.stored("/d/g")
        assert source is not None
        await store.resolve(source)
        assert await store.stored("/d/g") is None
        assert await other.read("/e/k") == b"two"
        assert set(await problems(other)) == {"interrupted_change"}
        (record,) = await other.transactions()
        assert await store.resolver.complete(record)
        assert await other.transactions() == []
        assert await problems(other) == []


@pytest.mark.usefixtures("by_record")
async def test_an_active_transaction_blocks_others_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, layout: LayoutName
) -> None:
    # In layout `tree`, new directories are filled without intents if everything else fits.
    monkeypatch.setattr(TreeLayout, "staged_commit", PathLayout.staged_commit)
    config = memory_config(replace(TUNING, busy_timeout=0.1), layout)
    await init_volume(config)
    async with (
        faulty_client(FaultPlan(), config) as fs,
        faulty_client(FaultPlan(), config) as other,
    ):
        await fill(fs)
        publish = TransactionRecords.publish

        async def meanwhile(transactions: TransactionRecords, *arguments: object) -> None:
            for call in (
                lambda: other.write("/d/f", b"theirs"),
                lambda: other.write("/n/m/x", b"theirs"),
                lambda: other.delete("/d/g"),
                lambda: other.makedirs("/n/m"),
            ):
                with pytest.raises(BusyError):
                    await call()
            assert await contents(other) == START
            await publish(transactions, *arguments)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(TransactionRecords, "publish", meanwhile)
        async with fs.transaction() as tx:
            await change(tx)
        assert await contents(other) == CHANGED


@pytest.mark.usefixtures("by_record")
async def test_paths_of_any_length_are_listed_in_parts(layout: LayoutName) -> None:
    deep = "/" + "/".join("d" * 250 for _ in range(7))
    divided = txn_manifest.divided([f"{deep}/{number:04}" for number in range(300)])
    assert [len(part.entry_keys) > 50 for part in divided] == [True] * len(divided)
    assert len(divided) > 1
    assert sum(len(part.entry_keys) for part in divided) == 300
    config = memory_config(layout=layout)
    await init_volume(config)
    async with faulty_client(FaultPlan(), config) as fs:
        async with fs.transaction() as tx:
            for number in range(250):
                await tx.write(f"{deep}/{number:04}\u00e9", b"")
        assert tx.result.files == 250
        assert (await fs.content_summary("/")).file_count == 250
        assert [item async for item in transaction_items(fs)] == []


@pytest.mark.layouts("path")
async def test_a_part_that_cannot_be_read_is_named() -> None:
    config = memory_config()
    await init_volume(config)
    async with faulty_client(FaultPlan(), config) as fs:
        items = MemoryItems(config.name)
        for number, text in enumerate(("", "{}", "[1]", '["relative"]', "[" * 100_000)):
            key = Key(TRANSACTION_PARTITION, f"job#{number:06}")
            await items.write(
                Put({"path": key.partition, "children": key.sort, "paths": text}, ABSENT)
            )
            with pytest.raises(ItemFormatError):
                await txn_manifest.read_part(fs._volume().items, "job", number)
        assert await txn_manifest.read_part(fs._volume().items, "job", 99) is None


@pytest.mark.usefixtures("by_record")
async def test_cancelled_in_the_middle_it_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, layout: LayoutName
) -> None:
    async with two_clients(layout) as (fs, other):
        await fill(fs)
        began = asyncio.Event()

        async def touch(_change: object, _directory: str) -> None:
            began.set()
            await anyio.sleep_forever()

        monkeypatch.setattr(multi_path_commit._Preparation, "_touch", touch)
        monkeypatch.setattr(TreeLayout, "staged_commit", PathLayout.staged_commit)

        async def run() -> None:
            async with fs.transaction() as tx:
                await change(tx)

        task = asyncio.ensure_future(run())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await contents(other) == START
        assert await other.transactions() == []
