"""What counters count, what that costs, and how journals are folded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.attributes import Attributes
from s3k_async.backends.ports.items import (
    OPERATION,
    PARTITION,
    SORT,
    Condition,
    Delete,
    Item,
    Key,
    Put,
)
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    PermissionDeniedError,
    S3kError,
    TransactionConflictError,
    UnsupportedError,
)
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.migrate.features import enable_features
from s3k_async.model import Feature, LayoutName
from s3k_async.objects import BucketInfo, ObjectStore
from s3k_async.table.codec import unchanged
from s3k_async.testing import Call, FaultPlan, Moment
from s3k_async.txn import bucket_counters
from s3k_async.txn.bucket_counters import FOLDED, BucketCounters
from s3k_async.txn.bucket_totals import BucketTotal
from s3k_async.volumes import init_volume
from s3k_async.volumes.volume import Volume
from tests.client.rig import faulty_client, memory_config
from tests.counters.counted import check_counters, counted, counter_items, walked
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.support import FakeClock, fake_runtime

pytestmark = pytest.mark.layouts("path", "tree")
COUNTERS: tuple[Feature, ...] = ("counters",)


@dataclass
class Place:
    """A volume with counters, and a client whose calls are numbered."""

    fs: S3kClient
    objects: ObjectStore
    faults: FaultPlan
    config: VolumeConfig

    @property
    def volume(self) -> Volume:
        return self.fs._volume()

    async def statistics(self, bucket: str = "b") -> tuple[int | None, int | None]:
        info = await self.objects.bucket_info(bucket, statistics=True)
        return info.objects, info.bytes

    @property
    def counters(self) -> BucketCounters:
        counters = self.volume.store.changes.counters
        assert counters is not None
        return counters

    def requests(self) -> list[str]:
        """The methods of the table's calls, and forget them."""
        made = [call.method for call in self.faults.calls]
        self.faults.calls.clear()
        return made


@asynccontextmanager
async def place_of(
    layout: LayoutName, features: Sequence[Feature] = COUNTERS
) -> AsyncIterator[Place]:
    config = memory_config(layout=layout)
    await init_volume(config, enable=features)
    faults = FaultPlan()
    # What is known for some seconds is known however long the test takes.
    runtime = replace(SYSTEM, monotonic=lambda: 0.0)
    async with faulty_client(faults, config, runtime) as fs:
        await fs.makedirs("/b")
        yield Place(fs, ObjectStore(fs), faults, config)


@pytest.fixture
async def place(layout: LayoutName) -> AsyncIterator[Place]:
    async with place_of(layout) as made:
        yield made
        await check_counters(made.volume)


async def test_statistics_are_those_of_the_counter(place: Place) -> None:
    objects = place.objects
    assert await place.statistics() == (0, 0)
    await objects.create("b", "one", bytes(300))
    await objects.create("b", "x/y/two", bytes(700))
    assert await place.statistics() == (2, 1000)
    await objects.put("b", "one", bytes(10))
    await objects.write("b", "one", bytes(20), offset=5)
    assert await place.statistics() == (2, 725)
    await objects.truncate("b", "one", 1000)
    await place.fs.append("/b/one", bytes(50))
    assert await place.statistics() == (2, 1750)
    await objects.create_bucket("c")
    await objects.move("b", "one", "moved", target_bucket="c")
    await objects.copy("b", "x/y/two", "two", target_bucket="c")
    assert (await place.statistics(), await place.statistics("c")) == ((1, 700), (2, 1750))
    await objects.exchange("b", "x/y/two", "moved", second_bucket="c")
    assert (await place.statistics(), await place.statistics("c")) == ((1, 1050), (2, 1400))
    await objects.set_metadata("b", "x/y/two", "Origin", b"here")
    await objects.delete("b", "x/y/two")
    assert await place.statistics() == (0, 0)
    await objects.purge_bucket("c")
    assert await place.statistics("c") == (0, 0)
    info = await objects.bucket_info("c", statistics=True)
    assert isinstance(info, BucketInfo)
    assert info.newest_ms is None


async def test_files_in_the_root_and_reservations_do_not_count(place: Place) -> None:
    fs = place.fs
    await fs.write("/file", b"in no bucket")
    async with fs.open("/b/coming", "xb") as file:
        await file.write(b"x")
        assert await place.statistics() == (0, 0)
    assert await place.statistics() == (1, 1)
    await fs.rename("/b/coming", "/coming")
    assert await place.statistics() == (0, 0)
    await fs.rename("/file", "/b/file")
    assert await place.statistics() == (1, 12)
    assert {str(item[PARTITION]) for item in await counter_items(place.volume)} == {
        "s3k:counters/b"
    }


async def test_lists_of_files(place: Place) -> None:
    """Full transactions have no room for a journal item."""
    fs = place.fs
    names = [f"/{'bc'[number % 2]}/d/{number:03}" for number in range(250)]
    done = await fs.write_many([(path, bytes(3)) for path in names])
    assert done.failures == ()
    await check_counters(place.volume)
    assert (await place.statistics(), await place.statistics("c")) == ((125, 375), (125, 375))
    renamed = await fs.rename_many([(path, path + "x") for path in names[:150]])
    moved = await fs.rename_many([(f"{path}x", f"/e/{path[-3:]}") for path in names[:120]])
    assert (renamed.failures, moved.files) == ((), 0)  # there is no directory to move them to
    await fs.makedirs("/e")
    moved = await fs.rename_many([(f"{path}x", f"/e/{path[-3:]}") for path in names[:120]])
    assert moved.failures == ()
    await check_counters(place.volume)
    assert await place.statistics("e") == (120, 360)
    deleted = await fs.delete_many(names[150:])
    assert deleted.failures == ()
    assert await check_counters(place.volume) == {
        "b": BucketTotal(15, 45),
        "c": BucketTotal(15, 45),
        "e": BucketTotal(120, 360),
    }


async def test_a_transaction_counts_in_each_of_its_buckets(place: Place) -> None:
    fs = place.fs
    await fs.write_many([(f"/b/{number}", bytes(number)) for number in range(120)])
    async with fs.transaction() as tx:
        for number in range(120):
            await tx.rename(f"/b/{number}", f"/b/moved-{number}")
        await tx.write("/c/new", bytes(7))
        await tx.write("/d/x/new", bytes(8))
    assert await check_counters(place.volume) == {
        "b": BucketTotal(120, sum(range(120))),
        "c": BucketTotal(1, 7),
        "d": BucketTotal(1, 8),
    }


async def test_a_transaction_of_too_many_buckets_is_refused(
    place: Place, layout: LayoutName
) -> None:
    fs = place.fs

    async def write_in(buckets: int) -> None:
        async with fs.transaction() as tx:
            for number in range(buckets):
                await tx.write(f"/bucket-{number}/f", b"1")

    with pytest.raises(UnsupportedError, match="more than 49 buckets"):
        await write_in(50)
    assert await walked(fs) == {}
    await write_in(49)
    assert len(await check_counters(place.volume)) == 49

    async def remove(buckets: int) -> None:
        async with fs.transaction() as tx:
            for number in range(buckets):
                await tx.delete(f"/bucket-{number}", recursive=True)

    if layout == "path":
        await fs.write("/bucket-49/f", b"1")
        with pytest.raises(UnsupportedError, match="more than 49 buckets"):
            await remove(50)
        await remove(49)
        assert await check_counters(place.volume) == {"bucket-49": BucketTotal(1, 1)}
        return
    await remove(49)
    assert len(await check_counters(place.volume)) == 49


async def rename_in_transaction(fs: S3kClient, source: str, target: str) -> None:
    async with fs.transaction() as tx:
        await tx.rename(source, target)


async def test_a_bucket_is_moved_by_its_files_only(place: Place, layout: LayoutName) -> None:
    """In layout `tree` the files below a directory are not read when it is moved."""
    fs = place.fs
    await fs.write("/b/d/f", bytes(5))
    await fs.write("/c/g", bytes(7))
    moves = [("/b", "/n"), ("/b/d", "/c/d"), ("/b/d", "/d"), ("/b", "/c/b")]
    if layout == "path":
        for source, target in moves[:2]:
            await fs.rename(source, target)
            await check_counters(place.volume)
            await fs.rename(target, source)
        return
    for source, target in moves:
        with pytest.raises(UnsupportedError, match="another bucket"):
            await fs.rename(source, target)
        with pytest.raises(UnsupportedError, match="another bucket"):
            await rename_in_transaction(fs, source, target)
    with pytest.raises(UnsupportedError, match="another bucket"):
        await fs.exchange("/b/d", "/c")
    await fs.delete("/b/d", recursive=True)
    with pytest.raises(UnsupportedError, match="another bucket"):
        await fs.trash().restore("/b/d", "/c/d")
    await fs.trash().restore("/b/d", "/b/e")
    assert await place.statistics() == (1, 5)
    await fs.rename_many([("/b/e/f", "/c/f")])
    assert (await place.statistics(), await place.statistics("c")) == ((0, 0), (2, 12))


async def test_a_deleted_directory_counts_until_it_is_reclaimed(
    place: Place, layout: LayoutName
) -> None:
    fs = place.fs
    await fs.write_many([(f"/b/d/{number}", bytes(3)) for number in range(5)])
    await fs.write("/b/d/x/y/z", bytes(4))
    await fs.write("/b/f", bytes(5))
    await fs.rename("/b/d", "/b/e")
    await fs.delete("/b/e", recursive=True)
    assert await place.statistics() == ((7, 24) if layout == "tree" else (1, 5))
    if layout == "tree":
        await fs.trash().empty()
    assert await place.statistics() == (1, 5)


async def test_what_expires_in_the_trash_counts(layout: LayoutName) -> None:
    """Lifecycle rules delete files to which no path leads."""
    async with place_of(layout, ("counters", "rules")) as place:
        fs = place.fs
        expiring = Attributes(metadata={"ExpiresAt": b"1"})
        await fs.write("/b/d/f", bytes(3), attributes=expiring)
        await fs.write("/b/d/g", bytes(4))
        await fs.write("/b/h", bytes(5), attributes=expiring)
        await fs.delete("/b/d", recursive=True)
        await fs.run_rules()
        await check_counters(place.volume)
        assert await place.statistics() == ((1, 4) if layout == "tree" else (0, 0))


VERBS: Sequence[Callable[[S3kClient], Awaitable[object]]] = (
    lambda fs: fs.write("/b/new", b"1"),
    lambda fs: fs.write("/b/new", b"22"),
    lambda fs: fs.append("/b/new", b"3"),
    lambda fs: fs.rename("/b/new", "/b/other"),
    lambda fs: fs.delete("/b/other"),
)


async def test_requests(place: Place) -> None:
    """Statistics are three requests however much there is; a write needs none more, but the
    hundredth."""
    fs = place.fs
    await fs.write("/b/0", b"1")
    place.requests()
    async with place_of(fs.config.layout or "path", ()) as plain:
        await plain.fs.write("/b/0", b"1")
        plain.requests()
        for verb in VERBS:
            await verb(plain.fs)
            await verb(fs)
            without, with_counters = plain.requests(), place.requests()
            assert len(with_counters) == len(without)
    assert await place.statistics() == (1, 1)
    assert Counter(place.requests()) == {"get": 1, "get_many": 1, "query": 1}
    for number in range(1, FOLDED - 5):
        await fs.write(f"/b/{number}", b"1")
    assert len(await counter_items(place.volume)) == FOLDED - 1
    place.requests()
    await fs.write("/b/last", b"1")
    last = Counter(place.requests())
    assert len(await counter_items(place.volume)) == 1
    await fs.write("/b/after", b"1")
    assert last - Counter(place.requests()) == {"get_many": 1, "write": 1, "transact": 1}
    assert await place.statistics() == (FOLDED - 3, FOLDED - 3)


async def test_the_latest_modification(place: Place) -> None:
    """A counter keeps that of an object that was deleted; a listing finds the one before it."""

    async def newest() -> tuple[int | None, int | None]:
        """By the counter, and by a listing."""
        counted = await place.objects.bucket_info("b", statistics=True)
        listed = await place.objects.bucket_info("b", statistics=True, newest=True)
        assert (counted.objects, counted.bytes) == (listed.objects, listed.bytes)
        return counted.newest_ms, listed.newest_ms

    assert await newest() == (None, None)
    await place.fs.write("/c/f", b"1")
    await place.objects.create("b", "x", bytes(3))
    (created, _) = await newest()
    assert created == (await place.objects.info("b", "x")).modified_ms
    later, latest = created + 10_000, created + 20_000
    for key, time in (("x", later), ("y", latest)):
        await place.objects.write("b", key, bytes(3))
        await place.objects.touch("b", key, modified=time)
        assert await newest() == (time, time)
    await place.objects.touch("b", "y", modified=created)
    assert await newest() == (latest, later)
    await place.objects.touch("b", "y", modified=latest)
    await place.objects.set_metadata("b", "x", "name", b"value")
    await place.fs.rename("/b/x", "/b/z")
    await place.fs.rename("/b/y", "/c/y")
    assert await newest() == (latest, later)
    await place.objects.delete("b", "z")
    assert await newest() == (None, None)
    await place.fs.rename("/c/y", "/b/y")
    await place.fs.write("/b/y", bytes(5))
    assert await newest() == (latest, (await place.objects.info("b", "y")).modified_ms)


async def test_a_volume_without_counters_writes_none(layout: LayoutName) -> None:
    async with place_of(layout, ()) as place:
        await place.fs.write("/b/f", bytes(3))
        assert await counter_items(place.volume) == []
        assert await place.statistics() == (1, 3)
        assert place.volume.store.changes.counters is None


async def test_a_client_that_closes_folds_its_journal(place: Place) -> None:
    async with faulty_client(FaultPlan(), place.config) as other:
        for number in range(5):
            await other.write(f"/{'bc'[number % 2]}/{number}", b"1")
        assert len(await counter_items(place.volume)) == 5
    assert [item[SORT] for item in await counter_items(place.volume)] == ["#", "#"]
    assert await place.statistics() == (3, 3)


async def test_a_client_closes_though_the_table_does_not_answer(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has not folded is read, and folded by others."""
    monkeypatch.setattr(bucket_counters, "CLOSING", 0.05)
    faults = FaultPlan()
    async with faulty_client(faults, place.config) as other:
        await other.write("/b/f", b"1")

        async def gate(call: Call) -> None:
            if "s3k:counters" in call.key:
                asked.append(call.method)
                await asyncio.Event().wait()

        asked: list[str] = []
        faults.gate = gate
        await asyncio.wait_for(other.close(), 30)
        assert asked == ["get"]
    assert await place.statistics() == (1, 1)


async def test_writes_that_conflict_are_repeated(place: Place) -> None:
    """A write that is counted is a transaction, which the table refuses during another one."""
    for data in (b"new", b"over it"):
        conflict = TransactionConflictError("another transaction")
        place.faults.fail_when(lambda call: call.method == "transact", conflict, times=8)
        await place.fs.write("/b/f", data)
    assert await place.statistics() == (1, 7)


async def test_readers_fold_what_dead_clients_have_left(place: Place) -> None:
    """The journal of a bucket does not grow with the number of clients that have died."""
    for client in range(5):
        faults = FaultPlan()
        async with faulty_client(faults, place.config) as other:
            await other.write_many([(f"/b/{client}-{each}", b"1") for each in range(2)])
            for each in range(2, 42):
                await other.write(f"/b/{client}-{each}", b"1")
            faults.fail_when(lambda _: True, S3kError("is dead"), times=10**9)
    before = len(await counter_items(place.volume))
    assert before > 2 * FOLDED
    assert await place.statistics() == (210, 210)
    assert len(await counter_items(place.volume)) == before - FOLDED + 1
    for _ in range(3):
        assert await place.statistics() == (210, 210)
    assert len(await counter_items(place.volume)) <= FOLDED + 1


MOMENTS: tuple[Moment, ...] = ("before", "after")


def arm(faults: FaultPlan, first: int, when: Moment) -> None:
    """Let a call fail, and those after it."""
    error = S3kError("is dead")
    faults.fail_when(lambda call: call.number >= first, error, when=when, times=10**9)


async def test_a_folding_that_is_interrupted_anywhere(layout: LayoutName) -> None:
    """Before and after the counter was written, and when its items are deleted."""
    for number in range(1, 6):
        for when in MOMENTS:
            async with place_of(layout) as place:
                faults = FaultPlan()
                async with faulty_client(faults, place.config) as other:
                    for each in range(3):
                        await other.write(f"/b/{each}", bytes(10))
                    await other.delete("/b/0")
                    faults.calls.clear()
                    arm(faults, number, when)
                await check_counters(place.volume)
                await place.fs.write("/b/more", bytes(5))
                await place.counters.close()
                assert await place.statistics() == (3, 25)
                await check_counters(place.volume)


async def test_calls_that_fold_the_same_buckets(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction fills the journals of two buckets; while it folds the first one, another call
    folds the second one."""
    monkeypatch.setattr(bucket_counters, "FOLDED", 2)
    fs = place.fs
    await fs.makedirs("/c")
    await fs.makedirs("/d")
    for bucket in "bc":
        await fs.write(f"/{bucket}/one", b"1")
    folded: list[str] = []

    async def gate(call: Call) -> None:
        if call.method == "get" and "s3k:counters/b" in call.key and not folded:
            folded.append("b")
            await fs.write("/d/meanwhile", b"1")

    place.faults.gate = gate
    async with fs.transaction() as tx:
        await tx.write("/b/two", b"2")
        await tx.write("/c/two", b"2")
    assert folded == ["b"]
    assert (await place.statistics(), await place.statistics("c")) == ((2, 2), (2, 2))


async def test_what_another_client_has_folded_is_not_folded_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader dies between the two steps, and then the writer folds its own items."""
    async with faulty_client(FaultPlan(), place.config) as writer:
        for number in range(5):
            await writer.write(f"/b/{number}", bytes(10))
        monkeypatch.setattr(bucket_counters, "FOLDED", 3)
        faults = FaultPlan()
        async with faulty_client(faults, place.config) as reader:
            faults.fail_when(lambda call: call.method == "transact", S3kError("is dead"), times=9)
            info = await ObjectStore(reader).bucket_info("b", statistics=True)
            assert (info.objects, info.bytes) == (5, 50)
        assert len(await counter_items(place.volume)) == 6
        await check_counters(place.volume)
    assert [item[SORT] for item in await counter_items(place.volume)] == ["#"]


async def test_a_folding_between_the_pages_of_a_reading(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_counters, "PAGE", 1)
    async with faulty_client(FaultPlan(), place.config) as writer:
        for number in range(4):
            await writer.write(f"/b/{number}", bytes(10))
        counters = writer._volume().store.changes.counters
        assert counters is not None

        async def gate(call: Call) -> None:
            if call.method == "query" and len(queries) < 3:
                queries.append(call.number)
                if len(queries) == 3:
                    await counters.close()

        queries: list[int] = []
        place.faults.gate = gate
        assert await place.statistics() == (4, 40)
        assert len(queries) == 3


async def test_concurrent_clients_of_one_bucket(place: Place) -> None:
    """Readers meanwhile see no total that was never there, and at the end nothing is missing."""
    seen: list[int] = []

    async def work(client: int) -> None:
        async with faulty_client(FaultPlan(), place.config) as other:
            for number in range(30):
                await other.write(f"/b/{client}/{number}", bytes(2))
                if number % 3 == 0:
                    await other.delete(f"/b/{client}/{number}")
                await other.write("/b/same", bytes(2))

    async def read() -> None:
        while not done:
            total = await place.counters.total("b")
            if total is not None:
                assert total.size == 2 * total.objects
                seen.append(total.objects)
            await asyncio.sleep(0)

    done = False
    reader = asyncio.ensure_future(read())
    await asyncio.gather(*map(work, range(8)))
    done = True
    await reader
    assert await place.statistics() == (161, 322)
    assert len(set(seen)) > 10
    assert all(later >= earlier - 8 for earlier, later in pairwise(seen))
    assert [item[SORT] for item in await counter_items(place.volume)] == ["#"]


async def test_a_volume_that_gets_the_feature(layout: LayoutName) -> None:
    """Everything is counted, and again by the same call."""
    async with place_of(layout, ()) as place:
        await place.fs.write_many([(f"/b/{each}", bytes(each)) for each in range(20)])
        await place.fs.write("/c/x/f", bytes(7))
        await place.fs.delete("/b/3")
        await place.fs.delete("/c/x", recursive=True)
    assert await enable_features(place.config, ["counters"]) == ("counters",)
    async with faulty_client(FaultPlan(), place.config) as fs:
        volume = fs._volume()
        expected = await check_counters(volume)
        assert expected["b"] == BucketTotal(19, sum(range(20)) - 3)
        assert ("c" in expected) == (layout == "tree")
        # a bucket that is gone, and a counter that is wrong
        for bucket in ("b", "gone"):
            key = Key(f"s3k:counters/{bucket}", "#")
            wrong: Item = {
                PARTITION: key.partition,
                SORT: "#",
                "objects": 9,
                "size": 9,
                OPERATION: "x",
            }
            there = await volume.items.get(key) is not None
            await volume.items.write(Put(wrong, Condition(exists=there)))
        assert (await counted(volume)).totals["gone"] == BucketTotal(9, 9)
    assert await enable_features(place.config, ["counters"]) == ()
    async with faulty_client(FaultPlan(), place.config) as fs:
        assert await check_counters(fs._volume()) == expected


async def test_a_damaged_counter_is_not_read(place: Place) -> None:
    await place.fs.write("/b/f", bytes(3))
    await place.counters.close()
    item = (await counter_items(place.volume))[0]
    damaged = {**item, "objects": "many"}
    await place.volume.items.write(Put(damaged, Condition()))
    assert await place.statistics() == (1, 3)
    assert (await counted(place.volume)).is_stale
    await place.volume.items.write(Put({**item, OPERATION: "repaired"}, Condition()))


@pytest.mark.parametrize("damage", ["counter", "journal item"])
async def test_a_damaged_counter_has_no_growing_journal(damage: str, layout: LayoutName) -> None:
    """Also one of a former format: until it is counted again, nothing can be folded into it."""
    async with place_of(layout) as place:
        fs, volume = place.fs, place.volume
        await fs.write("/b/f", bytes(3))
        if damage == "counter":
            await place.counters.close()
        (item,) = await counter_items(volume)
        damaged = {**item, "size": "large", OPERATION: "another"}
        await volume.items.write(Put(damaged, Condition()))
        for _ in range(2):
            await fs.write_many([(f"/b/{number}", b"1") for number in range(FOLDED // 2)])
            for number in range(FOLDED):
                await fs.write("/b/f", bytes(number))
            assert len(await counter_items(volume)) < FOLDED
        assert await place.statistics() == (FOLDED // 2 + 1, FOLDED // 2 + FOLDED - 1)
        assert (await counted(volume)).is_stale
    await enable_features(place.config, COUNTERS)
    async with faulty_client(FaultPlan(), place.config) as fs:
        await check_counters(fs._volume())


async def test_what_fsck_repairs_is_listed(layout: LayoutName) -> None:
    """A directory whose item is lost, with the files below it, and after a new count."""
    clock = FakeClock()
    runtime = fake_runtime(clock, seed=5)
    config = memory_config(layout=layout)
    await init_volume(config, runtime=runtime, enable=COUNTERS)
    async with faulty_client(FaultPlan(), config, runtime) as fs:
        volume = fs._volume()
        await fs.write("/b/d/x/f", bytes(3))
        await fs.write("/c/g", bytes(4))
        await volume.log.drained()
        found = await volume.store.get("/b/d")
        assert found is not None
        await volume.items.write(Delete(volume.store.keys.of(found), unchanged(found)))
        clock.advance(10**6)
        await repair_volume(volume, dry_run=False)
        assert (await counted(volume)).is_stale
        info = await ObjectStore(fs).bucket_info("b", statistics=True)
        assert (info.objects, info.bytes) == (1, 3)
    await enable_features(config, COUNTERS, runtime=runtime)
    async with faulty_client(FaultPlan(), config, runtime) as fs:
        expected = {"b": BucketTotal(1, 3), "c": BucketTotal(1, 4)}
        assert await check_counters(fs._volume()) == expected


async def test_fsck_and_gc_know_the_items(place: Place) -> None:
    await place.fs.write("/b/f", bytes(3))
    async with faulty_client(FaultPlan(), place.config) as other:
        await other.write("/b/g", bytes(3))
    await place.volume.log.drained()
    report = await verify_volume(place.volume)
    assert [each for each in report.findings if each.is_problem] == []


async def test_counters_are_for_those_to_whom_nothing_is_refused(layout: LayoutName) -> None:
    """A listing evaluates the permissions of each directory."""
    async with place_of(layout, ("counters", "permissions")) as place:
        await place.fs.write("/b/secret/f", bytes(3))
        await place.fs.set_attributes("/b/secret", mode=0o700)
        assert await place.statistics() == (1, 3)
        tuning = replace(place.config.tuning, uid=7, gids=())
        async with faulty_client(FaultPlan(), replace(place.config, tuning=tuning)) as other:
            with pytest.raises(PermissionDeniedError):
                await ObjectStore(other).bucket_info("b", statistics=True)


@volume_backends("embedded", "dynoxide+seaweedfs", slow=["redis"])
async def test_each_kind_of_table(new_volume: VolumeMaker, layout: LayoutName) -> None:
    config = new_volume(layout=layout)
    await init_volume(config, enable=COUNTERS)
    async with S3kClient(config=config) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        await fs.write_many([(f"/b/d/{number}", bytes(2)) for number in range(120)])
        await asyncio.gather(*(fs.write(f"/b/{number}", bytes(3)) for number in range(8)))
        await asyncio.gather(*(fs.write("/b/same", bytes(4)) for _ in range(4)))
        await fs.rename("/b/d", "/b/e")
        await fs.delete("/b/0")
        info = await objects.bucket_info("b", statistics=True)
        assert (info.objects, info.bytes) == (128, 240 + 21 + 4)
        await fs.delete("/b/e", recursive=True)
        await check_counters(fs._volume())
    async with S3kClient(config=config) as fs:
        await check_counters(fs._volume())
        assert [item[SORT] for item in await counter_items(fs._volume())] == ["#"]
