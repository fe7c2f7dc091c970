"""Listings see every transaction completely or not at all, whichever of its steps happen between
two of their requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import pytest

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.errors import BusyError, PathNotFoundError
from s3k_async.listing.listings import (
    Filter,
    Listing,
    find_pages,
    glob_pages,
    list_pages,
    summary,
    walk_pages,
)
from s3k_async.model import Entry, FileStatus
from s3k_async.namespace import consistent_listing
from s3k_async.namespace.consistent_listing import ATTEMPTS, SnapshotView, list_consistently
from s3k_async.namespace.store import MetadataStore
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn.write_intent import CREATED, REMOVED, WriteIntent
from tests.namespace.manual_transactions import Hand, Step, a_directory, a_file
from tests.namespace.rig import Rig

TREE = [
    a_directory("/a"),
    a_directory("/a/d"),
    a_file("/a/d/f"),
    a_directory("/a/e"),
    a_file("/a/e/g"),
    a_directory("/k"),
    a_file("/k/h"),
]

Found = frozenset[str]
Script = Callable[[Hand], list[Step]]
Look = Callable[["Place"], Awaitable[Found]]


@dataclass
class Place:
    """A volume in memory, whose reader's calls are numbered, and what happens before some of
    them."""

    store: MetadataStore
    hand: Hand
    faults: FaultPlan
    due: dict[int, list[Step]] = field(default_factory=dict)

    @property
    def second_readings(self) -> int:
        """Batches that were read of entries."""
        return sum(
            call.method == "get_many" and "s3k:job" not in call.key for call in self.faults.calls
        )


async def place(name: str, suffix_count: int = 1) -> Place:
    rig = await Rig(name, suffix_count=suffix_count).start()
    due: dict[int, list[Step]] = {}
    one_after_the_other = asyncio.Lock()

    async def gate(call: Call) -> None:
        async with one_after_the_other:
            for step in due.pop(call.number, []):
                await step()

    faults = FaultPlan(gate)
    store = rig.client(faults)
    hand = Hand(MemoryItems(rig.name), store.keys)
    await hand.put(*TREE)
    return Place(store, hand, faults, due)


def told(status: object) -> str:
    assert isinstance(status, FileStatus | Entry)
    return f"{status.path} {status.version}"


async def listed(
    place: Place, path: str = "/", *, recursive: bool = True, sorted: bool = False
) -> Found:
    pages = list_pages(place.store, path, Listing(recursive=recursive, sorted=sorted))
    return frozenset([told(status) async for page in pages for status in page])


async def in_order(place: Place) -> Found:
    return await listed(place, sorted=True)


async def walked(place: Place) -> Found:
    found: set[str] = set()
    async for page in walk_pages(place.store, "/"):
        for _, directories, files in page:
            found |= {told(status) for status in (*directories, *files)}
    return frozenset(found)


async def searched(place: Place) -> Found:
    return frozenset(
        [
            told(each)
            async for page in find_pages(place.store, "/", Filter(type="file"))
            for each in page
        ]
    )


async def globbed(place: Place) -> Found:
    return frozenset(
        [told(each) async for page in glob_pages(place.store, "/{a,b,k}/*/[fgh]") for each in page]
    )


async def globbed_from_the_root(place: Place) -> Found:
    return frozenset(
        [told(each) async for page in glob_pages(place.store, "/*/**/*") for each in page]
    )


async def summed(place: Place) -> Found:
    return frozenset([str(await summary(place.store, "/"))])


def renaming(hand: Hand) -> list[Step]:
    return hand.rename("J", TREE, "/a", "/b")


def renaming_twice(hand: Hand) -> list[Step]:
    """One transaction after the other, at the same entries."""
    again = [
        Entry(
            "/b" + entry.path[2:],
            entry.is_dir,
            entry.id,
            entry.version + 1,
            5,
            5000,
            physical=entry.physical,
        )
        for entry in TREE[:5]
    ]
    return [*renaming(hand), *hand.rename("K", again, "/b", "/c")]


def aborting(hand: Hand) -> list[Step]:
    intents = renaming(hand)[:7]
    return hand.aborted(intents, "J", ["/a", "/b", "/a/d", "/b/d", "/a/d/f", "/b/d/f"])


def changing(hand: Hand) -> list[Step]:
    """Files of several directories: one is replaced, one removed, one made."""
    return hand.change(
        "J",
        [(TREE[2], a_file("/a/d/f", version=9)), (TREE[6], REMOVED), (a_file("/a/e/new"), CREATED)],
    )


async def moments(name: str, script: Script, look: Look) -> set[Found]:
    """What can be seen while nobody is between two steps of the transaction."""
    there = await place(name)
    seen = {await look(there)}
    for step in script(there.hand):
        await step()
        seen.add(await look(there))
    return seen


async def interleavings(name: str, script: Script, look: Look, *, whole: bool) -> set[Found]:
    """What is seen if the first steps of the transaction happen before one request of the listing,
    and the rest before another, for all pairs of requests and some of the steps, or with `whole`
    all steps before one of them."""
    alone = await place(f"{name} alone")
    await look(alone)
    requests = range(1, len(alone.faults.calls) + 1)
    seen = set()
    for first, second in combinations_with_replacement(requests, 2):
        if whole and first != second:
            continue
        steps = script(alone.hand)
        stride = len(steps) // 8
        cuts = (
            [len(steps)]
            if first == second
            else range(1 + (first + second) % stride, len(steps), stride)
        )
        for cut in cuts:
            there = await place(f"{name} {first} {second} {cut}")
            steps = script(there.hand)
            there.due[first] = steps[:cut]
            there.due.setdefault(second, []).extend(steps[cut:])
            seen.add(await look(there))
    return seen


SCRIPTS = {
    "rename": renaming,
    "two renames": renaming_twice,
    "abort": aborting,
    "transaction": changing,
}
LOOKS: dict[str, Look] = {
    "list": listed,
    "sorted": in_order,
    "walk": walked,
    "find": searched,
    "glob": globbed,
    "glob from the root": globbed_from_the_root,
    "content_summary": summed,
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_transaction_between_two_requests_is_seen_completely_or_not_at_all(
    script: str, look: str
) -> None:
    name = f"{script} {look}"
    allowed = await moments(name, SCRIPTS[script], LOOKS[look])
    expected = {"rename": 2, "two renames": 3, "abort": 1, "transaction": 2}[script]
    if look != "content_summary":
        assert len(allowed) == expected
    seen = await interleavings(name, SCRIPTS[script], LOOKS[look], whole=look != "list")
    assert seen <= allowed


@pytest.mark.parametrize("look", sorted(set(LOOKS) - {"content_summary"}))
async def test_without_validation_part_of_a_transaction_is_seen(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interleavings above are such that the second reading matters."""

    async def is_unchanged(_: SnapshotView) -> bool:
        return True

    monkeypatch.setattr(SnapshotView, "is_unchanged", is_unchanged)
    name = f"no second reading {look}"
    allowed = await moments(name, renaming, LOOKS[look])
    assert not await interleavings(name, renaming, LOOKS[look], whole=True) <= allowed


@pytest.mark.parametrize("pattern", ["", "/*", "/{a,[d]}", "/{a,d}", "/[ad]/d"])
async def test_a_rename_between_two_partitions_of_one_directory_is_seen_wholly_or_not_at_all(
    pattern: str,
) -> None:
    """Of the root, where no remaining entry has an intent: its record shows it. Without a pattern
    it is listed."""

    async def look(there: Place) -> Found:
        if not pattern:
            return await listed(there, recursive=False)
        return frozenset(
            [told(each) async for page in glob_pages(there.store, pattern) for each in page]
        )

    keys = (await place(f"keys {pattern}", 2)).store.keys
    assert keys.key("/a").partition != keys.key("/d").partition
    alone = await place(f"alone {pattern}", 2)
    allowed = {await look(alone)}
    requests = len(alone.faults.calls)
    for step in alone.hand.rename("J", TREE, "/a", "/d"):
        await step()
    allowed.add(await look(alone))
    assert len(allowed) == 2
    for request in range(1, requests + 1):
        there = await place(f"{pattern} {request}", 2)
        there.due[request] = there.hand.rename("J", TREE, "/a", "/d")
        assert await look(there) in allowed


@pytest.mark.parametrize("path", ["/a", "/a/d", "/b", "/b/e"])
async def test_a_listing_shows_moved_entries_before_or_after_the_transaction(path: str) -> None:
    """It is listed as it was before or afterwards, or not there."""

    async def look(there: Place) -> Found:
        try:
            return await listed(there, path)
        except PathNotFoundError:
            return frozenset(["nothing"])

    allowed = await moments(path, renaming, look)
    assert len(allowed) == 2
    assert await interleavings(path, renaming, look, whole=False) <= allowed


OLD = frozenset(told(entry) for entry in TREE)


async def requests_of(name: str, early: int) -> list[str]:
    """The calls of a listing while a rename has come so far."""
    there = await place(name)
    for step in renaming(there.hand)[:early]:
        await step()
    assert await listed(there) == OLD
    return [call.method for call in there.faults.calls]


async def test_a_listing_that_nothing_disturbs_reads_its_directories_once_more() -> None:
    """One batch; the root's record is the first request."""
    assert await requests_of("calm", 0) == [
        "get",
        "query",
        "query",
        "query",
        "query",
        "query",
        "get_many",
    ]


async def test_an_unpublished_transaction_costs_two_reads_of_its_record() -> None:
    """The record once for all of its entries, the directories once more, and the record once
    more."""
    there = await place("unpublished")
    steps = renaming(there.hand)
    published = next(
        number for number, step in enumerate(steps) if "published" in getattr(step, "args", ())
    )
    for step in steps[:published]:
        await step()
    assert await listed(there) == OLD
    assert [
        call.key.partition("/")[0] for call in there.faults.calls if call.method == "get_many"
    ].count("s3k:job") == 2
    assert there.second_readings == 1


async def test_a_transaction_that_is_resolved_during_the_listing_restarts_it() -> None:
    """When the second reading asks, there is no record any more: it may have been published."""
    there = await place("folded")
    steps = renaming(there.hand)
    for step in steps[:5]:
        await step()
    calm = len(await requests_of("folded calm", 5))
    there.due[calm - 1] = steps[5:]
    assert "/b 2" in await listed(there)
    assert there.second_readings == 2


async def test_a_transaction_that_is_aborted_meanwhile_does_not_change_the_listing() -> None:
    there = await place("aborted")
    steps = aborting(there.hand)
    for step in steps[:7]:
        await step()
    calm = len(await requests_of("aborted calm", 7))
    # Aborted, and nothing dropped yet, between the second reading of the directories and that of
    # the transaction.
    there.due[calm] = steps[7:8]
    assert await listed(there) == OLD
    assert there.second_readings == 1


async def test_a_directory_with_an_intent_when_first_read_names_its_transaction() -> None:
    """Its operation does not change any more: only the transaction record shows that the
    transaction is published."""
    there = await place("intent first")
    steps = renaming(there.hand)
    intents = len(steps) - 14
    for step in steps[:intents]:
        await step()
    assert await listed(there, "/a/d") == {"/a/d/f 2"}
    first = len(there.faults.calls)
    there.due[first + 3] = steps[intents : intents + 3]
    with pytest.raises(PathNotFoundError):
        await listed(there, "/a/d")


async def busy_place(name: str, seconds: float) -> tuple[Place, Rig]:
    """A transaction changes a directory before each second read, for so long."""
    rig = await Rig(name, suffix_count=1).start()
    hand = Hand(MemoryItems(rig.name), rig.store.keys)
    await hand.put(*TREE)
    began = rig.clock.monotonic()

    async def gate(call: Call) -> None:
        if call.method == "get_many" and rig.clock.monotonic() - began < seconds:
            await hand.touch("/a")

    faults = FaultPlan(gate)
    return Place(rig.client(faults), hand, faults), rig


async def test_a_listing_starts_again_until_directories_are_quiet() -> None:
    there, rig = await busy_place("busy for a while", 4.0)
    began = rig.clock.monotonic()
    assert await listed(there) == OLD
    assert there.second_readings > 2
    assert rig.clock.monotonic() - began >= 4.0


async def test_a_listing_of_directories_that_never_are_quiet_gives_up_and_shows_nothing() -> None:
    there, rig = await busy_place("busy for good", float("inf"))
    pages = list_pages(there.store, "/", Listing(recursive=True))
    began = rig.clock.monotonic()
    with pytest.raises(BusyError, match="during the listing"):
        await anext(pages)
    assert rig.clock.monotonic() - began >= there.store.tuning.busy_timeout


async def test_a_slow_listing_has_more_attempts_than_the_time_allows() -> None:
    there, rig = await busy_place("busy and slow", float("inf"))
    assert there.faults.gate is not None
    busy = there.faults.gate

    async def slow(call: Call) -> None:
        rig.clock.advance(there.store.tuning.busy_timeout)
        await busy(call)

    there.faults.gate = slow
    with pytest.raises(BusyError):
        await listed(there)
    assert there.second_readings == ATTEMPTS


async def test_a_large_listing_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first page comes as soon as more was read than is held, and its directories are not read
    again."""
    monkeypatch.setattr(consistent_listing, "CONSISTENT_ROWS", len(TREE) - 1)
    there = await place("large")
    assert await listed(there) == OLD
    assert there.second_readings == 0
    monkeypatch.setattr(consistent_listing, "CONSISTENT_ROWS", len(TREE))
    assert await listed(there) == OLD
    assert there.second_readings == 1


async def test_what_is_searched_counts_and_not_what_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory is bounded however little of a tree meets the conditions."""
    monkeypatch.setattr(consistent_listing, "CONSISTENT_ROWS", 3)
    there = await place("searched")
    view = SnapshotView(there.store)
    async for _ in Listing(recursive=True).pages_of(view, "/"):
        pass
    assert view.is_large
    assert (view._looked_up, view._listed, view._directories) == ([], {}, [])
    assert await listed(there) == OLD


async def test_a_large_listing_that_is_left_early_reads_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consistent_listing, "CONSISTENT_ROWS", 2)
    there = await place("left")
    pages = list_pages(there.store, "/", Listing(recursive=True))
    assert await anext(pages)
    assert isinstance(pages, AsyncGenerator)
    await pages.aclose()
    await asyncio.sleep(0)
    read = len(there.faults.calls)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(there.faults.calls) == read < len(await requests_of("left calm", 0)) - 1


async def test_an_error_of_the_second_reading_is_raised_before_the_first_page() -> None:
    there = await place("failing")
    there.faults.fail_when(
        lambda call: call.method == "get_many", PathNotFoundError("no", path="/")
    )
    with pytest.raises(PathNotFoundError):
        await anext(list_pages(there.store, "/", Listing()))


async def test_a_volume_open_for_reading_only_has_no_transactions() -> None:
    """S3-FileSystem 1.0 writes no operations: neither is the root's record looked for nor anything
    read twice."""
    there = await place("1.0")
    there.store.read_only = True
    assert await listed(there) == OLD
    assert {call.method for call in there.faults.calls} == {"query"}


async def test_one_entry_is_true_by_itself() -> None:
    """A file that is listed, and a single name that is looked for, need no second reading."""
    there = await place("single")
    assert await listed(there, "/k/h") == {"/k/h 2"}
    assert [each async for page in glob_pages(there.store, "/k/h") for each in page]
    assert [call.method for call in there.faults.calls] == ["get", "get_many"]


async def test_names_that_are_looked_for_are_looked_for_twice() -> None:
    """Their directories were not read, so they are read themselves."""
    there = await place("names")
    await globbed(there)
    pages = [page async for page in glob_pages(there.store, "/{a/d/f,k/h}")]
    assert {status.path for page in pages for status in page} == {"/a/d/f", "/k/h"}
    txn = there.hand.change("J", [(TREE[2], REMOVED), (TREE[6], REMOVED)])
    before = len(there.faults.calls)
    there.due[before + 2] = txn
    again = [
        status.path async for page in glob_pages(there.store, "/{a/d/f,k/h}") for status in page
    ]
    assert again == []


async def test_parts_of_any_kind_are_given_once() -> None:
    there = await place("parts")

    async def parts(view: SnapshotView) -> AsyncGenerator[int, None]:
        assert await view.get("/a") is not None
        yield 1
        yield 2

    assert [part async for part in list_consistently(there.store, parts)] == [1, 2]


async def test_an_intent_without_a_new_state_is_no_change() -> None:
    """A change that is not atomic, whose transaction ends meanwhile, does not restart a listing."""
    there = await place("held")
    await there.hand.record("J", "", kind="mark")
    await there.hand.add_intent("/a", "J", None)
    calm = len(await requests_of("held calm", 0))
    there.due[calm + 1] = [lambda: there.hand.forget("J")]
    assert await listed(there) == OLD
    assert there.second_readings == 1
    assert WriteIntent("J").text() == (await there.store.stored("/a")).pending  # type: ignore[union-attr]


async def test_only_a_directory_that_changed_and_its_parent_are_listed_again() -> None:
    alone = await place("one changes, alone")
    await listed(alone)
    second = [call.number for call in alone.faults.calls if call.method == "get_many"][-1]
    there = await place("one changes")
    there.due[second] = [lambda: there.hand.touch("/k")]
    assert await listed(there) == OLD
    again = {call.key for call in there.faults.calls[second:] if call.method == "query"}
    partitions = there.store.keys.partitions
    assert again == {*partitions("/"), *partitions("/k")}
