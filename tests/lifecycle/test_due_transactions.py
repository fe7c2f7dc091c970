"""Due items are written in the transactions of the table that write their entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from unittest.mock import patch

import pytest

from s3k_async.attributes import Attributes
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_TRANSACTION,
    OPERATION,
    PARTITION,
    SORT,
    Action,
    Delete,
    Item,
    Key,
    Put,
    Update,
)
from s3k_async.client import S3kClient
from s3k_async.errors import (
    ConditionFailedError,
    OutcomeUnknownError,
    ResponseLostError,
    S3kError,
    ServiceError,
)
from s3k_async.files.multipart import complete_upload, create_upload, put_part
from s3k_async.layouts.tree import staged_commit
from s3k_async.lifecycle_rules import DueTime, LifecycleRule
from s3k_async.model import Feature, LayoutName
from s3k_async.namespace import multi_path_commit
from s3k_async.namespace.due_index import DueIndex, DueItems
from s3k_async.namespace.due_items import DUE_PREFIX, due_item
from s3k_async.objects import ObjectStore
from s3k_async.oplog.segments import Operations
from s3k_async.testing import Call, Died, FaultPlan, Moment
from s3k_async.txn.logged_write import LoggedOutcome
from tests.client.rig import faulty_client
from tests.level import FULL
from tests.lifecycle.ruled import DAY, Ruled, ruled

pytestmark = pytest.mark.layouts("path", "tree")

Verb = Callable[[S3kClient], Awaitable[object]]
EVER = 10**9


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Action]]:
    """The transactions and writes that the table gets from now on."""
    found: list[Sequence[Action]] = []
    transact, write = MemoryItems.transact, MemoryItems.write

    async def transact_noted(self: MemoryItems, actions: Sequence[Action], token: str) -> None:
        found.append(list(actions))
        await transact(self, actions, token)

    async def write_noted(self: MemoryItems, action: Put | Update | Delete) -> None:
        found.append([action])
        await write(self, action)

    monkeypatch.setattr(MemoryItems, "transact", transact_noted)
    monkeypatch.setattr(MemoryItems, "write", write_noted)
    return found


def with_due(sent: Sequence[Sequence[Action]]) -> list[tuple[int, int]]:
    """Of the requests that write due items: all actions, and those for due items."""
    numbers = [
        (len(actions), sum(each.key.partition.startswith(DUE_PREFIX) for each in actions))
        for actions in sent
    ]
    return [each for each in numbers if each[1]]


async def prepare(place: Ruled) -> None:
    """A file below a rule, and two that are not, each of a time of its own."""
    fs = place.client
    await fs.set_rule("/d", expire_after=100)
    for path in ("/d/f", "/e/g", "/e/h"):
        await fs.write(path, b"1")
        place.clock.advance(1)
    await fs.run_rules()


async def in_transaction(fs: S3kClient) -> None:
    async with fs.transaction() as tx:
        await tx.write("/d/new", b"2")
        await tx.write("/d/f", b"2")
        await tx.rename("/e/g", "/d/g")
        await tx.delete("/e/h")


async def opened(fs: S3kClient) -> None:
    async with fs.open("/d/new", "wb") as file:
        await file.write(b"2" * 300)


EXPIRES = {"ExpiresAfter": b"50"}
SINGLE: Mapping[str, Verb] = {
    "write": lambda fs: fs.write("/d/new", b"2"),
    "write over": lambda fs: fs.write("/d/f", b"2"),
    "write with metadata": lambda fs: fs.write(
        "/e/new", b"2", attributes=Attributes(metadata=EXPIRES)
    ),
    "touch": lambda fs: fs.touch("/d/f"),
    "set_attributes": lambda fs: fs.set_attributes("/e/g", metadata=EXPIRES),
    "rename": lambda fs: fs.rename("/e/g", "/d/g"),
    "rename over": lambda fs: fs.rename("/e/g", "/d/f", overwrite=True),
    "exchange": lambda fs: fs.exchange("/d/f", "/e/g"),
    "transaction": in_transaction,
    "open": opened,
    "write_many": lambda fs: fs.write_many([(f"/d/{number}", b"2") for number in range(3)]),
    "rename_many": lambda fs: fs.rename_many([("/e/g", "/d/g"), ("/e/h", "/d/h")]),
}
"""Changes by transactions of the table alone."""


@contextmanager
def no_room() -> Iterator[None]:
    """No transaction of the table has room for all changes."""
    with (
        patch.object(multi_path_commit, "AT_ONCE", 0),
        patch.object(staged_commit, "STORED_AT_ONCE", 3),
    ):
        yield


async def in_large_transaction(fs: S3kClient) -> None:
    with no_room():
        await in_transaction(fs)


async def in_new_directories(fs: S3kClient) -> None:
    """In layout `tree` these are published with everything else by one transaction of the table."""
    with no_room():
        await fill_new_directories(fs)


async def fill_new_directories(fs: S3kClient) -> None:
    async with fs.transaction() as tx:
        await tx.write("/d/f", b"2")
        await tx.rename("/e/h", "/d/h")
        for number in range(4):
            await tx.write(f"/d/x/{number}", b"2")


RECORDED: Mapping[str, Verb] = {
    "rename of a directory": lambda fs: fs.rename("/e", "/d/e"),
    "rename of a directory, not atomic": lambda fs: fs.rename("/e", "/d/e", atomic=False),
    "large transaction": in_large_transaction,
    "new directories": in_new_directories,
}
"""Changes that take effect with a transaction record, or file by file."""
VERBS = {**SINGLE, **RECORDED}
LARGE = ("large transaction", "new directories")


@pytest.mark.parametrize("verb", SINGLE)
async def test_an_item_travels_with_its_entry(
    place: Ruled, fs: S3kClient, sent: list[Sequence[Action]], verb: str
) -> None:
    await prepare(place)
    place.clock.advance(7)
    sent.clear()
    await SINGLE[verb](fs)
    requests = with_due(sent)
    assert len(requests) == 1
    assert all(items < actions for actions, items in requests)
    await check_index(place)


async def test_a_completed_upload_has_its_item(
    layout: LayoutName, sent: list[Sequence[Action]]
) -> None:
    """An item that is there already is not taken for the record of the upload, which another client
    may have removed."""
    async with ruled(layout, features=("rules", "extents", "uploads")) as place:
        fs, volume = place.client, place.client._volume()
        await fs.set_rule("/d", expire_at=int(place.clock.seconds) + 50)
        await fs.write("/d/f", b"1")
        await fs.write("/d/gone", b"1")
        await fs.delete("/d/gone")
        for path in ("/d/f", "/d/gone", "/d/new"):
            upload = await create_upload(volume, path)
            await put_part(volume, upload.id, 1, b"2" * 100)
            sent.clear()
            await complete_upload(volume, upload.id)
            requests = with_due(sent)
            # The file has the id of the upload, so that a former item of the path is replaced.
            assert len(requests) == (1 if path == "/d/new" else 2)
            assert all(actions > items == 1 for actions, items in requests)
        await check_index(place)
        place.clock.advance(50)
        assert (await fs.run_rules()).expired == 3
        assert await place.findings() == []


async def test_without_a_rule_that_applies_nothing_is_added(
    place: Ruled, fs: S3kClient, sent: list[Sequence[Action]]
) -> None:
    await prepare(place)
    sent.clear()
    await fs.write("/e/new", b"1")
    await fs.set_attributes("/d/f", mode=0o600)  # its item is the same as before
    assert with_due(sent) == []
    assert [len(actions) for actions in sent] == [1, 1]


@pytest.mark.parametrize("features", [("rules",), ("rules", "counters")])
async def test_transactions_have_room_for_their_items(
    layout: LayoutName, features: tuple[Feature, ...], sent: list[Sequence[Action]]
) -> None:
    async with ruled(layout, features=features) as place:
        fs = place.client
        await fs.set_rule("/d", expire_after=100)
        await fs.write("/d/first", b"1")
        sent.clear()
        await fs.write_many([(f"/d/{number}", b"1") for number in range(120)])
        sizes = with_due(sent)
        assert sum(items for _, items in sizes) == 120
        assert all(items <= actions / 2 for actions, items in sizes)
        assert max(actions for actions, _ in sizes) <= MAX_TRANSACTION
        assert len(sizes) <= 4
        sent.clear()
        await fs.makedirs("/d/x")
        await fs.rename_many([(f"/d/{number}", f"/d/x/{number}") for number in range(60)])
        sizes = with_due(sent)
        assert sum(items for _, items in sizes) == 60
        assert max(actions for actions, _ in sizes) <= MAX_TRANSACTION
        await check_index(place)
        place.clock.advance(100)
        assert (await fs.run_rules()).expired == 121
        if "counters" in features:
            info = await ObjectStore(fs).bucket_info("d", statistics=True)
            assert info.objects == 0


@pytest.mark.parametrize(("files", "requests"), [(40, 1), (60, 2)])
async def test_a_transaction_without_room_for_its_items(
    place: Ruled, fs: S3kClient, sent: list[Sequence[Action]], files: int, requests: int
) -> None:
    """A record publishes it, and each item is written with the entry that it names."""
    await fs.set_rule("/d", expire_after=100)
    await fs.write("/d/first", b"1")
    sent.clear()
    async with fs.transaction() as tx:
        for number in range(files):
            await tx.write(f"/d/{number}", b"1")
    sizes = with_due(sent)
    assert len(sizes) == requests
    assert sum(items for _, items in sizes) == files
    assert all(items <= actions / 2 for actions, items in sizes)
    await check_index(place)


@pytest.mark.parametrize("verb", RECORDED)
async def test_items_travel_with_entries_that_a_record_publishes(
    place: Ruled, fs: S3kClient, sent: list[Sequence[Action]], verb: str
) -> None:
    await prepare(place)
    former = len(await place.due_items())
    place.clock.advance(7)
    sent.clear()
    await RECORDED[verb](fs)
    requests = with_due(sent)
    if verb not in LARGE and fs._volume().store.keys.by_id:  # only the directory changes
        assert requests == [(1, 1)]  # the request to scan it
        assert len(await place.due_items()) == former
        return
    assert requests
    assert all(items <= actions / 2 for actions, items in requests)
    assert len(await place.due_items()) == former + sum(items for _, items in requests)
    await check_index(place)


async def test_a_rule_that_is_set_between_decision_and_commit_makes_it_decide_again(
    place: Ruled, fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that fit into one transaction only without the items are published by a record."""
    await fs.set_rule("/e", expire_after=100)
    await fs.makedirs("/d")
    size_of = DueIndex.size_of

    async def set_meanwhile(self: DueIndex, operations: Operations) -> int:
        size = await size_of(self, operations)
        monkeypatch.setattr(DueIndex, "size_of", size_of)
        await self.set_rule(LifecycleRule("/d", expire_after=100))
        return size

    monkeypatch.setattr(DueIndex, "size_of", set_meanwhile)
    async with fs.transaction() as tx:
        for number in range(60):
            await tx.write(f"/d/{number}", b"1")
    assert len(await place.due_items()) == 60
    await check_index(place)
    assert await place.findings() == []


async def test_a_rule_that_is_set_during_a_staged_commit_makes_it_decide_again(
    place: Ruled, fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publication of a new directory writes files outside of it, too."""
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    await fs.set_rule("/e", expire_after=100)
    await fs.makedirs("/d")
    size_of, sizes = DueIndex.size_of, list[int]()
    last = 2 if fs._volume().store.keys.by_id else 1  # layout `path` has no staged directories

    async def set_meanwhile(self: DueIndex, operations: Operations) -> int:
        sizes.append(await size_of(self, operations))
        if len(sizes) == last:
            await self.set_rule(LifecycleRule("/d", expire_after=100))
        return sizes[-1]

    monkeypatch.setattr(DueIndex, "size_of", set_meanwhile)
    async with fs.transaction() as tx:
        await tx.write("/d/new/f", b"1")
        for number in range(60):
            await tx.write(f"/d/{number}", b"1")
    # The abandoned attempt may have left an item of its own.
    assert len({item["shown"] for item in await place.due_items()}) == 61
    await check_index(place)
    assert await place.findings() == []


@pytest.mark.layouts("tree")
@pytest.mark.parametrize("moved", [True, False])
async def test_a_directory_is_replaced_though_the_items_do_not_fit(
    place: Ruled, fs: S3kClient, sent: list[Sequence[Action]], moved: bool
) -> None:
    """Only one transaction of the table can replace it, which writes the moved files, too. Their
    items are written right before it."""
    await fs.write("/d/out/old", b"1")
    await fs.makedirs("/d/other")
    await fs.write_many([(f"/e/{number}", b"1") for number in range(46)])
    await fs.set_rule("/d", expire_at=int(place.clock.seconds) + 50)
    await fs.run_rules()
    former = len(await place.due_items())
    sent.clear()
    async with fs.transaction() as tx:
        await tx.replace("/d/out")
        await tx.write("/d/out/new", b"2")
        for number in range(46):
            if moved:
                await tx.rename(f"/e/{number}", f"/d/out/{number}")
            else:
                await tx.write(f"/d/other/{number}", b"2")
                await tx.delete(f"/e/{number}")
    assert await fs.exists("/d/out/new")
    assert not await fs.exists("/d/out/old")
    assert sum(items for _, items in with_due(sent)) == 47
    assert len(with_due(sent)) == 2
    assert len(await place.due_items()) == former + 47
    await check_index(place)
    place.clock.advance(50)
    assert (await fs.run_rules()).expired == 47
    assert await place.findings() == []


async def test_an_item_that_is_there_already_is_written_again(place: Ruled, fs: S3kClient) -> None:
    """A runner that has read the former one does not remove the new one."""
    await fs.set_rule("/d", expire_at=int(place.clock.seconds) + 50)
    index = fs._volume().store.indexes.due
    assert index is not None
    await fs.write("/d/f", b"1")
    (former,) = await place.due_items()
    await fs.delete("/d/f")
    await fs.write("/d/f", b"2")
    (item,) = await place.due_items()
    assert (item[PARTITION], item[SORT]) == (former[PARTITION], former[SORT])
    assert item["id"] != former["id"]
    assert not await index.remove(former)
    await fs.delete("/d/f")
    assert await fs.write_many([("/d/f", b"3"), ("/d/g", b"3")]) is not None
    assert len(await place.due_items()) == 2
    assert not await index.remove(item)
    await check_index(place)
    place.clock.advance(50)
    assert (await fs.run_rules()).expired == 2
    assert await place.findings() == []


async def test_a_refused_change_writes_no_item(place: Ruled, fs: S3kClient) -> None:
    """Its error has the positions of its own actions only; an item that is there is no reason."""
    await prepare(place)
    store = fs._volume().store
    entry = await store.get("/d/f")
    assert entry is not None
    wanted = DueItems({"one": [(entry, DueTime(1000, "expire"))]}, place.runtime)
    (put,) = wanted.puts()
    stored = {**put.item, OPERATION: "another"}
    await store.items.write(Put(stored, ABSENT))
    outcome = LoggedOutcome(index_items=wanted)
    taken: Item = {PARTITION: "/x", SORT: "x", OPERATION: "taken"}
    free: Item = {PARTITION: "/y", SORT: "y", OPERATION: "free"}
    await store.items.write(Put(taken, ABSENT))
    with pytest.raises(ConditionFailedError) as raised:
        await outcome.transact(
            store.items, [Put(free, ABSENT), Put(taken, ABSENT)], place.runtime.uuid, ["one"]
        )
    assert list(raised.value.current) == [1]
    assert await store.items.get(put.key) == stored
    await outcome.transact(store.items, [Put(free, ABSENT)], place.runtime.uuid, ["one"])
    found = await store.items.get(put.key)
    assert found is not None
    assert found[OPERATION] != "another"


async def test_one_key_of_two_operations_is_written_once(place: Ruled, fs: S3kClient) -> None:
    await prepare(place)
    entry = await fs._volume().store.get("/d/f")
    assert entry is not None
    due = DueTime(1000, "expire")
    items = DueItems({"one": [(entry, due)], "two": [(entry, due)]}, place.runtime)
    assert items.count() == 2
    assert len(items.puts()) == len(items.puts(["two"])) == 1
    assert items.puts(["three"]) == []


async def entries_without_items(place: Ruled, fs: S3kClient) -> set[str]:
    """The files that have no item for their next action, nor a requested scan above."""
    index = fs._volume().store.indexes.due
    assert index is not None
    rules = await index.rules.newest()
    stored = await place.stored()
    items = {(item["entry"], item[SORT]) for item in stored if "entry" in item}
    scans = [str(item["shown"]) for item in stored if "scan" in str(item[PARTITION])]
    missing = set()
    async for status in fs.list("/", recursive=True):
        entry = await fs._volume().store.get(status.path)
        due = None if entry is None else rules.next_due(entry)
        if entry is None or due is None:
            continue
        wanted = due_item(entry, due.time_ms, 0, "")
        listed = any(f"{entry.path}/".startswith(f"{scan}/") for scan in scans if scan != "/d")
        if (wanted["entry"], wanted[SORT]) not in items and not listed:
            missing.add(entry.path)
    return missing


async def check_index(place: Ruled) -> None:
    async with faulty_client(FaultPlan(), place.config, place.runtime) as other:
        assert await entries_without_items(place, other) == set()


async def items_without_entries(place: Ruled, fs: S3kClient, former: Sequence[Item]) -> list[Item]:
    """New items whose entry was not written."""
    known = {item[OPERATION] for item in former}
    written = set()
    async for status in fs.list("/", recursive=True):
        entry = await fs._volume().store.get(status.path)
        assert entry is not None
        written.add((entry.entry_key, entry.id, entry.version))
    return [
        item
        for item in await place.due_items()
        if item[OPERATION] not in known and (item["entry"], item["id"], item["ver"]) not in written
    ]


async def interrupted(
    layout: LayoutName, verb: str, arm: Callable[[FaultPlan, int], None], number: int
) -> bool:
    """Interrupt a verb at a call, and check the index. False: it makes fewer calls."""
    async with ruled(layout) as place:
        await prepare(place)
        await place.client._volume().log.drained()
        place.clock.advance(7)
        former = await place.due_items()
        faults = FaultPlan()
        with suppress(Died, S3kError):
            async with faulty_client(faults, place.config, place.runtime) as fs:
                arm(faults, number)
                await VERBS[verb](fs)
        place.clock.advance(DAY if verb in RECORDED else 0)
        async with faulty_client(FaultPlan(), place.config, place.runtime) as other:
            assert await entries_without_items(place, other) == set(), number
            if verb in SINGLE:
                assert await items_without_entries(place, other, former) == [], number
        return len(faults.calls) >= number


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", VERBS)
async def test_death_at_any_call_leaves_entries_with_their_items(
    layout: LayoutName, verb: str, when: Moment
) -> None:
    """Where a transaction of the table writes both, there is no item without its entry either."""

    def die(faults: FaultPlan, number: int) -> None:
        faults.die(number, when=when)
        faults.fail_when(lambda call: call.number > number, Died("is dead"), times=EVER)

    for number in count(1, 1 if FULL or verb in SINGLE else 5):
        if not await interrupted(layout, verb, die, number):
            break


@pytest.mark.parametrize("verb", SINGLE)
async def test_a_failure_or_a_lost_answer_leaves_entries_with_their_items(
    layout: LayoutName, verb: str
) -> None:
    def fail(faults: FaultPlan, number: int) -> None:
        faults.fail(number, ServiceError("no", service_code="X"))

    def lose(faults: FaultPlan, number: int) -> None:
        faults.fail(number, ResponseLostError("lost"), when="after")

    for arm in (fail, lose):
        for number in count(1):
            if not await interrupted(layout, verb, arm, number):
                break


async def in_former_places(fs: S3kClient, *others: str) -> None:
    with no_room():
        async with fs.transaction() as tx:
            for path in ("/d/gone", "/d/f", "/d/x/gone", *others):
                await tx.write(path, b"2")


FORMER: Mapping[str, Verb] = {
    "write over": lambda fs: fs.write("/d/f", b"2"),
    "create": lambda fs: fs.write("/d/gone", b"2"),
    "write_many": lambda fs: fs.write_many([("/d/f", b"2"), ("/d/gone", b"2")]),
    "rename": lambda fs: fs.rename("/e/g", "/d/gone"),
    "rename of a directory": lambda fs: fs.rename("/e", "/d/e"),
    "large transaction": in_former_places,
    "new directories": lambda fs: in_former_places(fs, "/d/x/new"),
}
"""Changes that find a former item at the key of theirs."""


async def prepare_former(place: Ruled) -> None:
    """Due items of files that are gone."""
    fs = place.client
    await fs.set_rule("/d", expire_at=int(place.clock.seconds) + 50)
    for path in ("/d/f", "/d/gone", "/d/e/g", "/d/x/gone", "/e/g"):
        await fs.write(path, b"1")
    await fs.delete("/d/gone")
    await fs.delete("/d/e", recursive=True)
    await fs.delete("/d/x", recursive=True)
    await fs._volume().log.drained()


@pytest.mark.parametrize("verb", FORMER)
async def test_a_lost_answer_of_a_change_that_finds_a_former_item_is_resolved(
    layout: LayoutName, verb: str
) -> None:
    """Whether the item was the reason of a refusal is not known before the answer comes."""
    for number in count(1):
        async with ruled(layout) as place:
            await prepare_former(place)
            faults = FaultPlan()
            async with faulty_client(faults, place.config, place.runtime) as other:
                faults.fail(number, ResponseLostError("lost"), when="after")
                await FORMER[verb](other)
            if len(faults.calls) < number:
                break
            await check_index(place)


@pytest.mark.parametrize("verb", ["create", "rename"])
async def test_a_change_that_finds_a_former_item_and_loses_every_answer_is_resolved(
    place: Ruled, verb: str
) -> None:
    await prepare_former(place)
    faults = FaultPlan()
    async with faulty_client(faults, place.config, place.runtime) as other:
        faults.fail_when(
            lambda call: call.method == "transact", ResponseLostError("lost"), when="after", times=4
        )
        await FORMER[verb](other)
    assert "/d/gone" in await place.paths()
    await check_index(place)


@pytest.mark.parametrize("refused", ["by another entry", "by the service"])
async def test_a_refusal_after_lost_answers_leaves_the_outcome_unknown(
    place: Ruled, fs: S3kClient, refused: str
) -> None:
    """The refused transaction is sent again to replace an item; that this fails, also because
    another client has written the entry meanwhile, does not tell whether the first request came
    late."""
    await prepare(place)
    store = fs._volume().store
    entry = await store.get("/d/f")
    assert entry is not None
    wanted = DueItems({"one": [(entry, DueTime(1000, "expire"))]}, place.runtime)
    (put,) = wanted.puts()
    await store.items.write(Put({**put.item, OPERATION: "another"}, ABSENT))
    free: Item = {PARTITION: "/y", SORT: "y", OPERATION: "free"}
    taken: Item = {PARTITION: "/y", SORT: "y", OPERATION: "taken"}
    seen: list[str] = []

    async def write_between(call: Call) -> None:
        seen.append(call.method)
        if seen.count("transact") == 3 and call.method == "transact":
            if refused == "by the service":
                raise ServiceError("no", service_code="X")
            await MemoryItems(place.config.name).write(Put(taken, ABSENT))

    faults = FaultPlan(write_between)
    async with faulty_client(faults, place.config, place.runtime) as other:
        seen.clear()
        faults.fail(1, ResponseLostError("lost"), when="after")
        outcome = LoggedOutcome(index_items=wanted)
        with pytest.raises(OutcomeUnknownError):
            await outcome.transact(
                other._volume().store.items,
                [Put(free, ABSENT)],
                place.runtime.uuid,
                ["one"],
            )
    present = await store.items.get(Key("/y", "y"))
    assert present == (None if refused == "by the service" else taken)
