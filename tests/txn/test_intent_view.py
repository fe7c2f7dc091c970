"""What readers see of entries with write intents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import Condition, Update
from s3k_async.errors import BusyError, ItemFormatError, S3kError
from s3k_async.model import Entry
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import NEXT
from s3k_async.table.keys import Directory
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn.txn_record import TransactionState
from s3k_async.txn.write_intent import CREATED, REMOVED, NewState
from tests.namespace.manual_transactions import Hand, a_directory, a_file
from tests.namespace.rig import Rig

TOP, OLD, NEW = a_directory("/d"), a_file("/d/f"), a_file("/d/f", version=7)

FAR_FUTURE_MS = 10**14

STATES: list[TransactionState | None] = ["preparing", "published", "aborted", None]
"""Of a transaction; None: it has no record."""
THENS: list[NewState] = [None, REMOVED, CREATED, NEW]


def seen(then: NewState, state: TransactionState | None) -> Entry | None:
    """The table of 004, in other words."""
    new_side = state == "published"
    if then == CREATED:
        return OLD if new_side else None
    if then == REMOVED:
        return None if new_side else OLD
    return NEW if new_side and isinstance(then, Entry) else OLD


class Ground:
    """A volume in memory: a store whose calls are numbered, and a hand that writes past it."""

    def __init__(self, rig: Rig) -> None:
        self.faults = FaultPlan()
        self.store: MetadataStore = rig.client(self.faults)
        self.hand = Hand(MemoryItems(rig.name), self.store.keys)

    async def record(self, state: TransactionState | None, name: str = "J") -> None:
        if state is not None:
            await self.hand.record(name, state)

    def reads_of_records(self) -> int:
        return sum(call.key.startswith("s3k:job/") for call in self.faults.calls)


@pytest.fixture
async def ground(request: pytest.FixtureRequest) -> Ground:
    return Ground(await Rig(request.node.name, suffix_count=2).start())


async def got(store: MetadataStore) -> Entry | None:
    return await store.get("/d/f")


async def got_of_many(store: MetadataStore) -> Entry | None:
    missing, top, found = await store.get_many(["/missing", "/d", "/d/f"])
    assert (missing, top) == (None, TOP)
    return found


async def got_each(store: MetadataStore) -> Entry | None:
    (found,) = await store.get_each(["/d/f"])
    assert not isinstance(found, S3kError)
    return found


async def in_chain(store: MetadataStore) -> Entry | None:
    chain = await store.layout.chain("/d/f")
    assert [path for path, _ in chain] == ["/", "/d", "/d/f"]
    return chain[-1][1]


async def among_children(store: MetadataStore) -> Entry | None:
    return next(
        iter([entry async for page in store.children(Directory.at("/d")) for entry in page]), None
    )


async def among_sorted_children(store: MetadataStore) -> Entry | None:
    return next(
        iter(
            [entry async for page in store.children_in_order(Directory.at("/d")) for entry in page]
        ),
        None,
    )


READS = [got, got_of_many, got_each, in_chain, among_children, among_sorted_children]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("then", THENS, ids=["hold", "gone", "here", "other"])
async def test_an_entry_with_an_intent_shows_the_side_of_its_transaction(
    ground: Ground,
    then: NewState,
    state: TransactionState | None,
    read: Callable[[MetadataStore], Awaitable[Entry | None]],
) -> None:
    await ground.hand.put(TOP, OLD)
    await ground.record(state)
    await ground.hand.add_intent("/d/f", "J", then)
    stored = await ground.store.stored("/d/f")
    assert stored is not None
    expected = seen(then, state)
    found = await read(ground.store)
    # A visible entry keeps its intent: no client may change it before the transaction is resolved.
    stamped = stored.operation if expected == OLD else NEW.operation
    assert found == (
        None if expected is None else replace(expected, pending=stored.pending, operation=stamped)
    )
    assert await ground.store.has_children(Directory.at("/d")) is (expected is not None)
    assert await ground.store.has_stored_children(Directory.at("/d"))


async def test_what_is_stored_is_given_as_it_is(ground: Ground) -> None:
    await ground.hand.put(TOP, OLD)
    await ground.hand.record("J", "published")
    await ground.hand.add_intent("/d/f", "J", REMOVED)
    stored = await ground.store.stored("/d/f")
    assert stored is not None
    assert replace(stored, pending="", operation=OLD.operation) == OLD
    assert await ground.store.stored_many(["/d/f", "/", "/x"]) == [
        stored,
        await ground.store.stored("/"),
        None,
    ]
    assert [
        entry async for page in ground.store.stored_children(Directory.at("/d")) for entry in page
    ] == [stored]
    assert stored in [entry async for page in ground.store.scan("/") for entry in page]
    assert ground.reads_of_records() == 0


async def test_an_entry_without_an_intent_costs_nothing(ground: Ground) -> None:
    await ground.hand.put(TOP, OLD)
    await ground.store.get("/d/f")
    await ground.store.get_many(["/d", "/d/f"])
    [page async for page in ground.store.children(Directory.at("/d"))]
    assert [call.method for call in ground.faults.calls] == ["get", "get_many", "query", "query"]


async def test_an_intent_without_a_new_state_costs_nothing(ground: Ground) -> None:
    await ground.hand.put(TOP)
    await ground.hand.add_intent("/d", "J", None)
    assert await ground.store.get("/d") is not None
    assert [call.method for call in ground.faults.calls] == ["get"]


async def test_each_transaction_record_is_read_once_in_a_call(ground: Ground) -> None:
    await ground.hand.put(TOP, *(a_file(f"/d/{number}") for number in range(20)))
    for txn in ("J", "K"):
        await ground.hand.record(txn)
    for number in range(20):
        await ground.hand.add_intent(f"/d/{number}", "JK"[number % 2], REMOVED)
    assert len(await ground.store.get_many([f"/d/{number}" for number in range(20)])) == 20
    assert ground.reads_of_records() == 1
    assert sum([len(page) async for page in ground.store.children(Directory.at("/d"))]) == 20
    # Both suffixes may be answered before a record was asked for.
    assert ground.reads_of_records() <= 3


async def before_the_record(ground: Ground, change: Callable[[], Awaitable[None]]) -> None:
    """Have something happen between the look at an entry and the look at its transaction."""
    done = False

    async def gate(call: Call) -> None:
        nonlocal done
        if call.key.startswith("s3k:job/") and not done:
            done = True
            await change()

    ground.faults.gate = gate


@pytest.mark.parametrize("read", READS)
async def test_a_transaction_that_was_resolved_before_its_record_was_read_shows_its_new_side(
    ground: Ground, read: Callable[[MetadataStore], Awaitable[Entry | None]]
) -> None:
    """There is no record: the item is read again, and has no intent any more."""
    await ground.hand.put(TOP, OLD)
    await ground.hand.record("J")
    await ground.hand.add_intent("/d/f", "J", CREATED)

    async def fold() -> None:
        await ground.hand.record("J", "published")
        await ground.hand.drop("/d/f", "J")
        await ground.hand.forget("J")

    await before_the_record(ground, fold)
    found = await read(ground.store)
    assert found is not None
    assert (found.id, found.version, found.pending) == (OLD.id, OLD.version, "")


@pytest.mark.parametrize("read", READS)
async def test_an_entry_that_gets_another_intent_meanwhile_shows_the_side_of_its_new_transaction(
    ground: Ground, read: Callable[[MetadataStore], Awaitable[Entry | None]]
) -> None:
    await ground.hand.put(TOP, OLD)
    await ground.hand.record("J")
    await ground.hand.add_intent("/d/f", "J", REMOVED)

    async def abort_and_remove() -> None:
        await ground.hand.record("J", "aborted")
        await ground.hand.drop("/d/f", "J")
        await ground.hand.forget("J")
        await ground.hand.record("K", "published")
        await ground.hand.add_intent("/d/f", "K", REMOVED)

    await before_the_record(ground, abort_and_remove)
    assert await read(ground.store) is None


async def test_an_empty_directory_with_a_hidden_entry_is_not_removed(ground: Ground) -> None:
    """A transaction that is about to show the entry would leave it without a parent."""
    await ground.hand.put(TOP, OLD)
    await ground.hand.record("J", lease=FAR_FUTURE_MS)
    await ground.hand.add_intent("/d/f", "J", CREATED)
    assert not await ground.store.has_children(Directory.at("/d"))
    with pytest.raises(BusyError):
        await ground.store.remove_directory(TOP)
    assert await ground.store.stored("/d") is not None
    assert await ground.store.stored("/d/f") is not None


async def test_hidden_entries_of_an_expired_transaction_are_removed_before_their_directory(
    ground: Ground,
) -> None:
    await ground.hand.put(TOP, OLD)
    await ground.hand.record("J")
    await ground.hand.add_intent("/d/f", "J", CREATED)
    await ground.store.remove_directory(TOP)
    assert await ground.store.stored("/d") is None
    assert await ground.store.stored("/d/f") is None


async def test_many_hidden_entries_are_looked_through_by_the_page(ground: Ground) -> None:
    await ground.hand.put(TOP, *(a_file(f"/d/{number:03}") for number in range(100)))
    await ground.hand.record("J", "published")
    for number in range(99):
        await ground.hand.add_intent(f"/d/{number:03}", "J", REMOVED)
    assert await ground.store.has_children(Directory.at("/d"))
    assert sum(call.method == "query" for call in ground.faults.calls) <= 4


async def test_an_unreadable_intent_changes_nothing(ground: Ground) -> None:
    await ground.hand.put(TOP, OLD)
    key = ground.store.keys.key("/d/f")
    await ground.hand.items.write(Update(key, Condition(), set={NEXT: '{"job":'}))
    assert await ground.store.get("/d/f") == replace(OLD, pending='{"job":')


async def test_an_unreadable_record_is_an_error(ground: Ground) -> None:
    await ground.hand.put(TOP, OLD)
    await ground.hand.record("J", kind="party")
    await ground.hand.add_intent("/d/f", "J", REMOVED)
    with pytest.raises(ItemFormatError):
        await ground.store.get("/d/f")


async def test_damage_of_one_item_does_not_hide_the_intents_of_others(
    ground: Ground,
) -> None:
    await ground.hand.put(TOP, OLD, a_file("/d/g"))
    await ground.hand.items.write(
        Update(ground.store.keys.key("/d/g"), Condition(), set={"ver": 0})
    )
    await ground.hand.record("J", "published")
    await ground.hand.add_intent("/d/f", "J", REMOVED)
    gone, damaged = await ground.store.get_each(["/d/f", "/d/g"])
    assert gone is None
    assert isinstance(damaged, ItemFormatError)


NAMES = [f"n{number}" for number in range(8)]
TRANSACTIONS = {"P": "preparing", "Q": "published", "A": "aborted", "-none-": None}
INTENTS = st.none() | st.tuples(
    st.sampled_from(sorted(TRANSACTIONS)), st.sampled_from(["hold", REMOVED, CREATED, "other"])
)
_numbers = count()


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), INTENTS), st.integers(1, 3))
def test_intents_are_resolved_as_by_a_plain_reading_of_the_table(
    intents: dict[str, tuple[str, str] | None], suffix_count: int
) -> None:
    async def check() -> None:
        rig = await Rig(f"random intents {next(_numbers)}", suffix_count=suffix_count).start()
        store = rig.store
        hand = Hand(MemoryItems(rig.name), store.keys)
        for txn, state in TRANSACTIONS.items():
            if state is not None:
                await hand.record(txn, state)  # type: ignore[arg-type]
        expected: dict[str, int] = {}
        for name, intent in intents.items():
            path = f"/d/{name}"
            await hand.put(a_file(path))
            version: int | None = 2
            if intent is not None:
                txn, then = intent
                changes: dict[str, NewState] = {
                    "hold": None,
                    REMOVED: REMOVED,
                    CREATED: CREATED,
                    "other": a_file(path, version=7),
                }
                await hand.add_intent(path, txn, changes[then])
                published = TRANSACTIONS[txn] == "published"
                if then == ("gone" if published else "here"):
                    version = None
                elif then == "other" and published:
                    version = 7
            if version is not None:
                expected[path] = version
        paths = [f"/d/{name}" for name in NAMES]
        assert {
            entry.path: entry.version for entry in await store.get_many(paths) if entry is not None
        } == expected
        pages = [page async for page in store.children(Directory.at("/d"))]
        assert {entry.path: entry.version for page in pages for entry in page} == expected
        in_order = [
            entry.path
            async for page in store.children_in_order(Directory.at("/d"))
            for entry in page
        ]
        assert in_order == sorted(expected)
        assert await store.has_children(Directory.at("/d")) is bool(expected)
        stored = [
            entry.path async for page in store.stored_children(Directory.at("/d")) for entry in page
        ]
        assert sorted(stored) == sorted(f"/d/{name}" for name in intents)

    asyncio.run(check())
