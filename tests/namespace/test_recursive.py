"""Recursive changes: write intents, leases, interruptions, and races that a gate decides."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest

from s3k_async._native import Entries
from s3k_async.backends.ports.items import MAX_TRANSACTION, Condition, Update, Value
from s3k_async.errors import (
    BusyError,
    DirectoryNotEmptyError,
    PathExistsError,
    PathNotFoundError,
    RenameIntoSelfError,
    ServiceError,
    UncommittedFileError,
)
from s3k_async.layouts.path.recursive import Tree
from s3k_async.listing.listings import summary
from s3k_async.model import ContentSummary, Entry
from s3k_async.namespace.ordered_walk import walk
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import in_columns
from s3k_async.table.keys import Directory, KeyScheme
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.chunking import CHUNK, chunks
from s3k_async.txn.txn_record import (
    LEASE_SECONDS,
    OwnedTransaction,
    TransactionRecords,
    transaction_key,
)
from tests.namespace.rig import Rig


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> Rig:
    return await Rig(request.node.name).start()


async def grow(rig: Rig, top: str, *, directories: int = 3, files: int = 7) -> set[str]:
    paths = {top}
    for directory in range(directories):
        paths.add(f"{top}/d{directory}")
        for file in range(files):
            path = f"{top}/d{directory}/f{file}"
            await rig.write(path)
            paths.add(path)
    return paths


async def test_rename_keeps_ids_and_raises_versions(rig: Rig) -> None:
    await grow(rig, "/a")
    before = {
        entry.path: entry async for page in walk(rig.store, Directory.at("/a")) for entry in page
    }
    result = await rig.tree.rename(await rig.need("/a"), "/z")
    assert (result.files, result.directories, result.failures) == (21, 4, ())
    for path, entry in before.items():
        moved = await rig.need("/z" + path.removeprefix("/a"))
        assert (moved.id, moved.version, moved.pending) == (entry.id, entry.version + 1, "")
        assert moved.physical == entry.physical
    assert await rig.store.get("/a") is None


@pytest.mark.parametrize("target", ["/a", "/a/b", "/a/d0/x"])
async def test_rename_into_itself_is_refused(rig: Rig, target: str) -> None:
    paths = await grow(rig, "/a")
    with pytest.raises(RenameIntoSelfError):
        await rig.tree.rename(await rig.need("/a"), target)
    assert await rig.paths() == paths


async def test_rename_to_a_name_that_begins_with_the_source(rig: Rig) -> None:
    await grow(rig, "/a")
    await rig.tree.rename(await rig.need("/a"), "/ab")
    assert "/ab/d0/f0" in await rig.paths()


async def test_rename_onto_something_is_refused(rig: Rig) -> None:
    paths = await grow(rig, "/a") | await grow(rig, "/b")
    with pytest.raises(PathExistsError):
        await rig.tree.rename(await rig.need("/a"), "/b")
    assert await rig.paths() == paths


async def test_an_interrupted_rename_is_finished_by_the_same_call(rig: Rig) -> None:
    rig.stop_renewing()  # so that the call that dies is one that every run makes
    await grow(rig, "/a")
    total = FaultPlan()
    await rename_to_the_end(rig.client(total), await rig.need("/a"), "/probe")
    await rig.tree.rename(await rig.need("/probe"), "/a")
    for number in range(1, len(total.calls) + 1, 3):
        faults = FaultPlan()
        faults.die(number, when="after")
        client = rig.client(faults)
        with pytest.raises(Died):
            await rename_to_the_end(client, await rig.need("/a"), "/z")
        rig.clock.advance(60)
        if await rig.store.get("/a") is not None:
            await rig.tree.rename(await rig.need("/a"), "/z")
        found = await rig.paths()
        assert found == {path.replace("/a", "/z", 1) for path in await expected_paths()}, number
        assert found == await rig.scanned()
        await rig.tree.rename(await rig.need("/z"), "/a")


async def rename_to_the_end(store: MetadataStore, source: Entry, target: str) -> None:
    """Rename, and wait for the marks in the log as well."""
    await Tree(store).rename(source, target)
    await store.changes.log.drained()


async def expected_paths() -> set[str]:
    return (
        {"/a"}
        | {f"/a/d{d}" for d in range(3)}
        | {f"/a/d{d}/f{f}" for d in range(3) for f in range(7)}
    )


async def interrupted_rename(rig: Rig, source: str, target: str) -> None:
    """Leave a rename of which nothing happened but the creation of the target."""
    for number in range(1, 20):
        faults = FaultPlan()
        faults.die(number, when="after")
        with pytest.raises(Died):
            await Tree(rig.client(faults)).rename(await rig.need(source), target)
        rig.clock.advance(60)
        if await rig.store.get(target) is not None:
            return
    raise AssertionError("the target was never created")


async def test_a_target_removed_while_its_rename_is_finished_is_created_again(rig: Rig) -> None:
    rig.stop_renewing()
    await rig.write("/a/f")
    removals = 0

    async def gate(call: Call) -> None:
        nonlocal removals
        if call.number == number:
            with suppress(BusyError, DirectoryNotEmptyError):
                await rig.store.remove_directory(await rig.need("/z"))
                removals += 1

    for number in itertools.count(1):
        await interrupted_rename(rig, "/a", "/z")
        faults = FaultPlan(gate)
        result = await Tree(rig.client(faults)).rename(await rig.need("/a"), "/z")
        assert result.failures == (), number
        assert await rig.paths() == {"/z", "/z/f"} == await rig.scanned(), number
        if len(faults.calls) < number:
            break
        await rig.tree.rename(await rig.need("/z"), "/a")
    assert removals > 5


async def test_an_interrupted_delete_is_finished_by_the_same_call(rig: Rig) -> None:
    for number in range(3, 40, 2):
        await grow(rig, "/a")
        faults = FaultPlan()
        faults.die(number, when="before")
        client = rig.client(faults)
        try:
            await Tree(client).delete(await rig.need("/a"))
            await client.changes.log.drained()
        except Died:
            rig.clock.advance(60)
            if await rig.store.get("/a") is not None:
                await rig.tree.delete(await rig.need("/a"))
        assert await rig.scanned() == set(), number


async def test_an_active_transaction_blocks_others_and_an_expired_one_does_not(rig: Rig) -> None:
    await grow(rig, "/a")
    faults = FaultPlan()
    store = rig.client(faults)
    async with store.transactions.hold("mark", "/a", "/b") as txn:
        await store.hold(await rig.need("/a/d0"), txn)
        with pytest.raises(BusyError):
            await rig.write("/a/d0/new")
        with pytest.raises(BusyError):
            await rig.store.make_directory("/a/d0/new/deep")
        with pytest.raises(BusyError):
            await rig.tree.delete(await rig.need("/a/d0"))
        assert await rig.store.get("/a/d0/new") is None
    await rig.write("/a/d0/new")
    assert (await rig.need("/a/d0")).pending == ""


async def test_a_transaction_of_the_dead_whose_clock_was_ahead_blocks_for_a_lease(
    rig: Rig,
) -> None:
    await grow(rig, "/a")
    store = rig.client(FaultPlan())

    async def die(_transactions: TransactionRecords, _txn: OwnedTransaction) -> None:
        """The record stays as it is."""

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TransactionRecords, "_end", die)
        async with store.transactions.hold("mark", "/a", "/b") as txn:
            await store.hold(await rig.need("/a/d0"), txn)
    lease: dict[str, Value] = {"lease": rig.clock.now_ms() + 86_400_000}
    await store.items.write(Update(transaction_key(txn.id), Condition(), lease))
    began = rig.clock.seconds
    for _ in range(60):
        with suppress(BusyError):
            await rig.write("/a/d0/new")
            break
    assert LEASE_SECONDS <= rig.clock.seconds - began < 2 * LEASE_SECONDS
    assert (await rig.need("/a/d0")).pending == ""


async def test_a_directory_that_is_not_empty_stays_and_loses_its_intent(rig: Rig) -> None:
    await rig.write("/a/f")
    with pytest.raises(DirectoryNotEmptyError):
        await rig.store.remove_directory(await rig.need("/a"))
    assert (await rig.need("/a")).pending == ""
    await rig.store.delete_file(await rig.need("/a/f"))
    await rig.store.remove_directory(await rig.need("/a"))
    assert await rig.scanned() == set()


async def test_a_file_created_while_its_directory_is_removed_is_withdrawn_or_seen() -> None:
    rig = await Rig("removed-meanwhile", real_time=True).start()
    await rig.store.make_directory("/a")
    created = asyncio.Event()
    removed = asyncio.Event()

    async def gate(call: Call) -> None:
        # The creator's entry is written; before it reads the parent again, the directory is
        # removed.
        if call.method == "get" and not created.is_set():
            created.set()
            await removed.wait()

    creator = rig.client(FaultPlan(gate))

    async def create() -> None:
        await rig.write("/a/f", store=creator)

    async def remove() -> None:
        await created.wait()
        with pytest.raises(DirectoryNotEmptyError):
            await rig.store.remove_directory(await rig.need("/a"))
        await rig.tree.delete(await rig.need("/a"))
        removed.set()

    await asyncio.gather(create(), remove())
    # The deletion saw the file: it came first. Nothing is left without a parent.
    assert await rig.scanned() == await rig.paths()


async def test_a_file_created_after_its_directory_was_listed_gets_its_parents_back() -> None:
    rig = await Rig("listed-before", real_time=True).start()
    await rig.store.make_directory("/a")
    listed = asyncio.Event()
    written = asyncio.Event()

    async def hold_removal(call: Call) -> None:
        if call.method == "transact" and call.store == "items":
            listed.set()
            await written.wait()

    async def hold_creation(call: Call) -> None:
        if call.method == "write" and not listed.is_set():
            await listed.wait()
        if call.method == "get" and not written.is_set():
            written.set()

    remover, creator = rig.client(FaultPlan(hold_removal)), rig.client(FaultPlan(hold_creation))

    async def remove() -> None:
        await remover.remove_directory(await rig.need("/a"))

    async def create() -> None:
        await rig.write("/a/f", store=creator)

    await asyncio.gather(remove(), create())
    assert await rig.paths() == {"/a", "/a/f"} == await rig.scanned()


async def test_renames_into_each_others_subtree_never_detach_anything(rig: Rig) -> None:
    for path in ("/a/x/f", "/b/y/g"):
        await rig.write(path)
    other = Tree(rig.client())
    outcomes = await asyncio.gather(
        rig.tree.rename(await rig.need("/a"), "/b/y/a"),
        other.rename(await rig.need("/b"), "/a/x/b"),
        return_exceptions=True,
    )
    found = await rig.paths()
    assert found == await rig.scanned()
    assert {path.rpartition("/")[2] for path in found} >= {"f", "g"}
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or isinstance(
            outcome, BusyError | PathNotFoundError
        )


async def test_a_reservation_below_makes_a_rename_fail_in_part_and_resume(rig: Rig) -> None:
    await rig.write("/a/f")
    target = await rig.store.prepare("/a/open")
    reservation = await rig.store.reserve(target, exclusive=True)
    result = await rig.tree.rename(await rig.need("/a"), "/z")
    assert [(path, type(error)) for path, error in result.failures] == [
        ("/a/open", UncommittedFileError)
    ]
    await rig.store.commit(reservation, rig.content(reservation.id))
    again = await rig.tree.rename(await rig.need("/a"), "/z")
    assert again.failures == ()
    assert await rig.paths() == {"/z", "/z/f", "/z/open"}


async def test_a_failure_below_is_listed_and_the_rest_is_deleted(rig: Rig) -> None:
    await grow(rig, "/a")
    faults = FaultPlan()
    faults.fail_when(
        lambda call: call.method == "transact" and "/a/d1" in call.key,
        ServiceError("no", service_code="X"),
        times=3,
    )
    result = await Tree(rig.client(faults)).delete(await rig.need("/a"))
    assert result.failures
    assert all(path.startswith("/a/d1") for path, _ in result.failures)
    assert await rig.store.get("/a/d0") is None
    assert (await rig.tree.delete(await rig.need("/a"))).failures == ()
    assert await rig.scanned() == set()


async def test_summary_counts_committed_files_and_directories(rig: Rig) -> None:
    await grow(rig, "/a")
    await rig.store.reserve(await rig.store.prepare("/a/open"), exclusive=True)
    assert await summary(rig.store, "/a") == ContentSummary(63, 21, 4)


async def test_every_change_is_in_the_log(rig: Rig) -> None:
    await grow(rig, "/a", directories=1, files=2)
    await rig.tree.rename(await rig.need("/a"), "/z")
    truths = await rig.truths()
    entries = {
        entry.id: entry async for page in walk(rig.store, Directory.at("/")) for entry in page
    }
    assert truths.keys() == entries.keys()
    for identity, truth in truths.items():
        assert truth.committed is not None
        assert truth.pending == ()
        assert truth.committed.operation.after is not None
        assert truth.committed.operation.after.path == entries[identity].path
        assert truth.committed.operation.after.version == entries[identity].version
    await rig.tree.delete(await rig.need("/z"))
    assert all(
        truth.committed and truth.committed.operation.kind == "delete"
        for truth in (await rig.truths()).values()
    )


async def test_files_are_taken_by_the_portion_whatever_the_pages() -> None:
    keys = KeyScheme("volume", 4)
    files = [
        Entry(f"/a/{number:05}", False, "id", 2, 1, 1, physical="p", committed=True)
        for number in range(12_345)
    ]
    directory = Entry("/a/d", True, "id", 1, 1, 1)

    async def pages() -> AsyncGenerator[Entries, None]:
        for start in range(0, len(files), 777):
            yield in_columns([*reversed(files[start : start + 777]), directory], keys)

    divided = [chunk async for chunk in chunks(pages())]
    of_files = [chunk for chunk in divided if not chunk[0].is_dir]
    assert [len(chunk) for chunk in of_files] == [CHUNK, CHUNK, 12_345 - 2 * CHUNK]
    assert [path for chunk in of_files for path in chunk.paths()] == [entry.path for entry in files]
    assert sum(len(chunk) for chunk in divided if chunk[0].is_dir) == 16
    assert CHUNK % MAX_TRANSACTION == 0  # or the last transaction of each portion would not be full


async def test_pages_of_directories_are_not_held_for_their_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = KeyScheme("v", 3)
    file = Entry("/d/f", False, "i", 2, 1, 1, physical="p", committed=True)
    sorted_parts: list[int] = []

    class Counting:
        joined = Entries.joined

        @staticmethod
        def sorted(parts: list[Entries]) -> Entries:
            sorted_parts.append(len(parts))
            return Entries.sorted(parts)

    async def pages() -> AsyncGenerator[Entries, None]:
        for number in range(50):
            yield in_columns([Entry(f"/d/{number}", True, "i", 1, 1, 1)], keys)
        yield in_columns([file], keys)

    monkeypatch.setattr("s3k_async.txn.chunking.Entries", Counting)
    divided = [chunk async for chunk in chunks(pages())]
    assert [len(chunk) for chunk in divided] == [1] * 51
    assert sorted_parts == [1]
