"""Directories that are known for a moment, and reads that are shared."""

from __future__ import annotations

import asyncio

import pytest

from s3k_async.backends.ports.items import Delete, Item, Key, Put, Update
from s3k_async.errors import BusyError, NotDirectoryError, UnreachableError
from s3k_async.layouts.path.parent_cache import KNOWN_SECONDS, AncestorReads, ParentCache
from s3k_async.namespace.single_flight import SingleFlight
from s3k_async.testing import FaultPlan
from tests.namespace.rig import Rig, calls
from tests.support import FakeClock


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> Rig:
    return await Rig(request.node.name).start()


async def turns() -> None:
    """Let every other task run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


# What is remembered


def test_a_directory_is_known_for_some_seconds() -> None:
    clock = FakeClock()
    known = ParentCache(clock.monotonic, seconds=5.0)
    known.add("/a")
    clock.advance(4.9)
    assert "/a" in known
    clock.advance(0.2)
    assert "/a" not in known
    assert len(known) == 0
    known.add("/a")
    known.discard("/a")
    known.discard("/never")
    assert "/a" not in known


def test_what_was_not_needed_for_the_longest_time_is_forgotten_first() -> None:
    known = ParentCache(FakeClock().monotonic, limit=2)
    known.add("/a")
    known.add("/b")
    assert "/a" in known
    known.add("/c")
    assert ["/a" in known, "/b" in known, "/c" in known] == [True, False, True]
    assert len(known) == 2


# Shared reads


class Reads:
    """Reads that end when they are told to, each with what it was told."""

    def __init__(self) -> None:
        self.begun = 0
        self.ends: list[asyncio.Future[bool]] = []

    async def __call__(self, key: str) -> bool:
        self.begun += 1
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.ends.append(end)
        return await end


async def test_who_asks_while_a_read_is_under_way_waits_for_the_next_one() -> None:
    reads = Reads()
    shared = SingleFlight(reads)
    first = asyncio.create_task(shared.ask("/d"))
    await turns()
    late = [asyncio.create_task(shared.ask("/d")) for _ in range(5)]
    await turns()
    assert reads.begun == 1
    reads.ends[0].set_result(True)
    assert await first is True
    await turns()
    assert reads.begun == 2
    assert not any(task.done() for task in late)
    reads.ends[1].set_result(False)
    assert await asyncio.gather(*late) == [False] * 5
    await turns()
    assert (reads.begun, len(shared)) == (2, 0)


async def test_reads_of_different_things_do_not_wait_for_each_other() -> None:
    reads = Reads()
    shared = SingleFlight(reads)
    tasks = [asyncio.create_task(shared.ask(key)) for key in ("/a", "/b")]
    await turns()
    assert reads.begun == 2
    for end in reads.ends:
        end.set_result(True)
    assert await asyncio.gather(*tasks) == [True, True]


async def test_the_cancellation_of_whoever_asked_first_fails_nobody_else() -> None:
    reads = Reads()
    shared = SingleFlight(reads)
    tasks = [asyncio.create_task(shared.ask("/d")) for _ in range(3)]
    await turns()
    tasks[0].cancel()
    await turns()
    assert [task.done() for task in tasks] == [True, False, False]
    reads.ends[0].set_result(True)
    assert await asyncio.gather(*tasks[1:]) == [True, True]
    assert reads.begun == 1


async def test_a_read_that_nobody_waits_for_any_more_is_not_begun() -> None:
    reads = Reads()
    shared = SingleFlight(reads)
    first = asyncio.create_task(shared.ask("/d"))
    await turns()
    second = asyncio.create_task(shared.ask("/d"))
    await turns()
    second.cancel()
    await turns()
    reads.ends[0].set_result(True)
    assert await first is True
    await turns()
    assert (reads.begun, len(shared)) == (1, 0)


async def test_a_read_that_fails_fails_those_who_shared_it_and_not_the_next() -> None:
    reads = Reads()
    shared = SingleFlight(reads)
    first = asyncio.create_task(shared.ask("/d"))
    await turns()
    second = asyncio.create_task(shared.ask("/d"))
    await turns()
    reads.ends[0].set_exception(UnreachableError("no route"))
    with pytest.raises(UnreachableError):
        await first
    await turns()
    reads.ends[1].set_result(True)
    assert await second is True


# Looks


async def test_one_looks_and_the_others_know_then() -> None:
    known = ParentCache(FakeClock().monotonic)
    looks, go, seen = AncestorReads(known), asyncio.Event(), 0

    async def look() -> str:
        nonlocal seen
        seen += 1
        await go.wait()
        known.add("/d")
        return "entry"

    tasks = [asyncio.create_task(looks.first("/d", look)) for _ in range(4)]
    await turns()
    go.set()
    assert await asyncio.gather(*tasks) == [(True, "entry"), *[(False, None)] * 3]
    assert (seen, len(looks)) == (1, 0)


async def test_the_cancellation_of_the_one_who_looks_lets_another_look() -> None:
    known = ParentCache(FakeClock().monotonic)
    looks, go, seen = AncestorReads(known), asyncio.Event(), 0

    async def look() -> None:
        nonlocal seen
        seen += 1
        await go.wait()
        known.add("/d")

    tasks = [asyncio.create_task(looks.first("/d", look)) for _ in range(4)]
    await turns()
    tasks[0].cancel()
    await turns()
    assert seen == 2
    go.set()
    assert [looked for looked, _ in await asyncio.gather(*tasks[1:])] == [True, False, False]


async def test_where_one_fails_to_look_each_looks_for_himself_at_once() -> None:
    known = ParentCache(FakeClock().monotonic)
    looks, go, seen = AncestorReads(known), asyncio.Event(), 0

    async def look() -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            await go.wait()
        raise BusyError("being moved", path="/d")

    tasks = [asyncio.create_task(looks.first("/d", look)) for _ in range(4)]
    await turns()
    assert seen == 1
    go.set()
    assert [type(result) for result in await asyncio.gather(*tasks, return_exceptions=True)] == [
        BusyError
    ] * 4
    assert seen == 4


# In the store


def reads_of(faults: FaultPlan, *, since: int = 0) -> list[tuple[str, str]]:
    return [
        (call.method, call.key)
        for call in faults.calls[since:]
        if call.method in {"get", "get_many"}
    ]


async def test_a_new_file_in_a_known_directory_reads_itself_and_then_its_parent(rig: Rig) -> None:
    await rig.write("/a/b/c/f")
    before = len(rig.faults.calls)
    await rig.write("/a/b/c/g")
    found = [
        key
        for method, key in reads_of(rig.faults, since=before)
        if method == "get" and "ks://" in key
    ]
    assert [key.rpartition("/")[2] for key in found] == ["g", "c"]
    assert calls(rig.faults, "get_many") == len(
        [1 for call in rig.faults.calls[:before] if call.method == "get_many"]
    )


async def test_a_directory_is_looked_at_again_after_some_seconds(rig: Rig) -> None:
    await rig.write("/a/b/f")
    before = calls(rig.faults, "get_many")
    rig.clock.advance(KNOWN_SECONDS)
    await rig.write("/a/b/g")
    assert calls(rig.faults, "get_many") == before + 1


async def test_many_new_files_in_a_new_directory_make_it_once(rig: Rig) -> None:
    await asyncio.gather(*(rig.write(f"/a/b/c/f{number}") for number in range(50)))
    transactions = [call for call in rig.faults.calls if call.method == "transact"]
    assert len(transactions) == 1
    # The path's chain, and the directory's once more to make it.
    assert calls(rig.faults, "get_many") == 2
    assert {
        entry.version for entry in [await rig.need(f"/a/b/c/f{number}") for number in range(50)]
    } == {2}


async def test_a_file_that_exists_is_read_while_its_directory_stood(rig: Rig) -> None:
    await rig.write("/a/f")
    before = len(rig.faults.calls)
    await rig.write("/a/f")
    assert [method for method, _ in reads_of(rig.faults, since=before) if method == "get_many"] == [
        "get_many"
    ]


async def test_a_known_directory_that_others_removed_is_made_again(rig: Rig) -> None:
    await rig.write("/a/b/f")
    other = rig.client()
    await other.delete_file(await rig.need("/a/b/f"))
    await other.remove_directory(await rig.need("/a/b"))
    entry = await rig.write("/a/b/g")
    assert await rig.need("/a/b/g") == entry
    assert await rig.paths() == await rig.scanned() == {"/a", "/a/b", "/a/b/g"}


async def test_a_known_directory_that_others_made_a_file_is_no_parent(rig: Rig) -> None:
    await rig.write("/a/b/f")
    other = rig.client()
    await other.delete_file(await rig.need("/a/b/f"))
    await other.remove_directory(await rig.need("/a/b"))
    await rig.write("/a/b", store=other)
    with pytest.raises(NotDirectoryError):
        await rig.write("/a/b/g")
    assert await rig.paths() == await rig.scanned() == {"/a", "/a/b"}


async def test_a_directory_that_this_client_removed_is_not_known(rig: Rig) -> None:
    await rig.write("/a/b/f")
    await rig.tree.delete(await rig.need("/a"))
    entry = await rig.write("/a/b/f")
    # Nothing was written and withdrawn on the way.
    assert entry.version == 2


async def test_a_read_that_began_before_a_write_does_not_confirm_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The directory gets an intent between the read that the first file waits for and the write of
    the second one."""
    rig = await Rig("began-before", real_time=True).start()
    await rig.write("/a/keep")
    store = rig.client()
    items = store.items._store  # type: ignore[attr-defined]
    read, answered, written = asyncio.Event(), asyncio.Event(), asyncio.Event()
    get, write = items.get, items.write

    async def slow_get(key: Key) -> Item | None:
        item: Item | None = await get(key)
        if key.sort == "a" and not read.is_set():
            read.set()
            await answered.wait()
        return item

    async def seen_write(action: Put | Update | Delete) -> None:
        await write(action)
        if action.key.sort == "second":
            written.set()

    monkeypatch.setattr(items, "get", slow_get)
    monkeypatch.setattr(items, "write", seen_write)
    first = asyncio.create_task(rig.write("/a/first", store=store))
    await read.wait()
    second = asyncio.create_task(rig.write("/a/second", store=store))
    await written.wait()
    async with rig.store.transactions.hold("mark", "/a") as txn:
        pending = await rig.store.hold(await rig.need("/a"), txn)
        answered.set()
        await first
        # It has looked for itself, and waits for the resolution of the intent.
        for _ in range(100):
            await asyncio.sleep(0)
        assert not second.done()
        await rig.store.drop_intent(pending, txn)
    assert (await first).version == (await second).version == 2
    assert await rig.paths() == await rig.scanned() == {"/a", "/a/keep", "/a/first", "/a/second"}
