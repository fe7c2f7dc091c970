"""Files that grow and change in place: append, write_range, truncate, concat, compact."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.cost_model.item_size import item_size
from s3k_async.errors import (
    ArgumentTypeError,
    ConflictError,
    CorruptDataError,
    DataMissingError,
    InvalidArgumentError,
    IsDirectoryError,
    OutcomeUnknownError,
    PathNotFoundError,
    ResponseLostError,
    ServiceError,
    UncommittedFileError,
    UnsupportedError,
    VolumeFormatError,
)
from s3k_async.files import edits
from s3k_async.files.edits import HARD_LIMIT, LARGEST_FILE, MOST_EXTENTS
from s3k_async.model import ChangeResult, Entry, LayoutName
from s3k_async.storage.extents import (
    EMPTY,
    Extent,
    content_of,
    has_extents,
    parse_extents,
    physical_keys,
)
from s3k_async.storage.tiered_blobs import need_tiers
from s3k_async.table.codec import to_item
from s3k_async.table.keys import KeyScheme
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn import volume_record
from s3k_async.txn.write_intent import WriteIntent
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config
from tests.client.transacting import contents, problems
from tests.engines.volumes import volume_backends
from tests.level import FULL
from tests.support import FakeClock, fake_runtime
from tests.tiers.rig import move_all, sizes, tiered_volume

pytestmark = pytest.mark.layouts("path", "tree")

BACKENDS = ("memory", "embedded", "redis", "rocksdb", "dynoxide+seaweedfs", "dynoxide+moto")
backends = volume_backends(*BACKENDS)


async def extents(fs: S3kClient, path: str = "/f") -> int:
    """The number of extents of a file; 0 for one that is one object."""
    physical = (await fs.stat(path)).physical
    assert physical is not None
    return len(parse_extents(physical)) if has_extents(physical) else 0


async def data_keys(fs: S3kClient) -> set[str]:
    """The keys of all physical objects."""
    return {info.key async for info in list_all(fs._volume().blobs) if ".id=" in info.key}


async def live_keys(fs: S3kClient) -> set[str]:
    """The keys that the files of the tree refer to."""
    found: set[str] = set()
    async for status in fs.list("/", recursive=True):
        if status.is_file:
            found.update(physical_keys(status.physical))
    return found


@backends
async def test_bytes_are_added_at_the_end(fs: S3kClient) -> None:
    await fs.makedirs("/d")
    made = await fs.append("/d/f", b"one")
    assert (made.size, await fs.read("/d/f")) == (3, b"one")
    grown = await fs.append("/d/f", b", two")
    assert (grown.id, grown.version, grown.size) == (made.id, made.version + 1, 8)
    assert grown.created == made.created
    assert await fs.append("/d/f", b"") == grown
    assert await fs.append("/d/g/h", b"parents are made") is not None
    assert await fs.append("/e", b"") is not None
    assert await contents(fs) == {
        "/d": None,
        "/d/f": b"one, two",
        "/d/g": None,
        "/d/g/h": b"parents are made",
        "/e": b"",
    }
    assert await problems(fs) == []


@backends
async def test_bytes_are_replaced_in_place(fs: S3kClient) -> None:
    await fs.write("/f", bytes(range(200)) + bytes(200))
    expected = bytearray(bytes(range(200)) + bytes(200))
    for offset, data in ((0, b"start"), (150, b"m" * 120), (398, b"over the end"), (500, b"far")):
        status = await fs.write_range("/f", offset, data)
        expected.extend(bytes(max(0, offset - len(expected))))
        expected[offset : offset + len(data)] = data
        assert status.size == len(expected)
        assert await fs.read("/f") == expected
    before = await fs.stat("/f")
    assert await fs.write_range("/f", 10, b"") == before
    assert await fs.read_ranges("/f", [(0, 5), (140, 160), (395, 420), (499, 503)]) == [
        bytes(expected[start:end]) for start, end in ((0, 5), (140, 160), (395, 420), (499, 503))
    ]
    async with fs.open("/f") as file:
        assert b"".join([chunk async for chunk in file]) == expected
        assert await file.read_at(405, 98) == expected[405:503]
    assert await problems(fs) == []


@backends
async def test_a_file_gets_a_size(fs: S3kClient) -> None:
    await fs.write("/f", b"0123456789")
    assert (await fs.truncate("/f", 4)).size == 4
    assert await fs.read("/f") == b"0123"
    assert (await fs.truncate("/f", 300)).size == 300
    assert await fs.read("/f") == b"0123" + bytes(296)
    assert await fs.truncate("/f", 300) == await fs.stat("/f")
    assert (await fs.truncate("/f", 0)).size == 0
    assert await fs.read("/f") == b""
    assert (await fs.append("/f", b"again")).size == 5
    assert await contents(fs) == {"/f": b"again"}
    assert await problems(fs) == []


@backends
async def test_files_are_appended_to_another_one(fs: S3kClient) -> None:
    await fs.makedirs("/d")
    await fs.append("/f", b"a" * 150)
    await fs.append("/f", b"b" * 20)
    for path, data in (("/d/1", b"one"), ("/2", b""), ("/d/3", b"three")):
        await fs.write(path, data)
    await fs.append("/d/3", b"!")
    before = await fs.stat("/f")
    done = await fs.concat("/f", ["/d/1", "/2", "/d/3"])
    assert done == ChangeResult(files=3, bytes=9)
    after = await fs.stat("/f")
    assert (after.id, after.version, after.size) == (before.id, before.version + 1, 179)
    assert await contents(fs) == {"/d": None, "/f": b"a" * 150 + b"b" * 20 + b"onethree!"}
    assert await problems(fs) == []


async def test_no_source_is_lost_or_used_twice(fs: S3kClient) -> None:
    await fs.write("/f", b"f")
    await fs.write("/g", b"g")
    await fs.makedirs("/d")
    kept = await contents(fs)
    for sources, error in (
        (["/f"], InvalidArgumentError),
        (["/g", "/g"], InvalidArgumentError),
        (["/g", "/missing"], PathNotFoundError),
        (["/g", "/d"], IsDirectoryError),
        ("/g", ArgumentTypeError),
    ):
        with pytest.raises(error):
            await fs.concat("/f", sources)
    with pytest.raises(InvalidArgumentError) as twice:
        await fs.concat("/f", ["/g", "/g"])
    assert twice.value.path == "/g"
    with pytest.raises(PathNotFoundError):
        await fs.concat("/missing", ["/g"])
    assert await contents(fs) == kept
    assert await data_keys(fs) == await live_keys(fs)
    before = await fs.stat("/f")
    assert await fs.concat("/f", []) == ChangeResult()
    assert await fs.stat("/f") == before


@backends
async def test_a_reader_keeps_the_version_that_it_opened(fs: S3kClient) -> None:
    await fs.write("/f", b"0123456789" * 30)
    async with fs.open("/f") as file:
        await fs.append("/f", b"more")
        await fs.write_range("/f", 5, b"changed")
        await fs.truncate("/f", 50)
        assert await file.read() == b"0123456789" * 30
        assert await file.read_at(295, 100) == b"56789"


@backends
async def test_compaction_keeps_content_and_time(fs: S3kClient) -> None:
    await fs.write("/f", b"x" * 90)
    for number in range(5):
        await fs.write_range("/f", 10 + 15 * number, b"%d" % number)
    content, before = await fs.read("/f"), await fs.stat("/f")
    with pytest.raises(UnsupportedError, match="s3k compact --whole"):
        await fs.physical_path("/f")
    assert await extents(fs) == 11
    after = await fs.compact("/f")
    assert (after.id, after.size, after.modified) == (before.id, before.size, before.modified)
    assert await extents(fs) == 0
    assert await fs.read("/f") == content
    assert await fs.compact("/f") == after
    assert (await fs.physical_path("/f")).endswith(after.id)
    await fs.truncate("/f", 2000)
    await fs.append("/f", b"end")
    await fs.compact("/f")
    assert await extents(fs) == 3
    assert await fs.read("/f") == content + bytes(1910) + b"end"
    whole = await fs.compact("/f", whole=True)
    assert (await extents(fs), whole.size) == (0, 2003)
    assert whole.checksum == await fs.checksum("/f")
    assert await fs.read("/f") == content + bytes(1910) + b"end"
    assert await problems(fs) == []


@backends
async def test_compaction_drops_what_a_single_extent_does_not_use(fs: S3kClient) -> None:
    await fs.write("/cut", b"x" * 90)
    for size, whole in ((5, False), (3, True)):
        await fs.truncate("/cut", size)
        assert await extents(fs, "/cut") == 1
        status = await fs.compact("/cut", whole=whole)
        assert (status.checksum, status.size) == (await fs.checksum("/cut"), size)
        assert (await fs.physical_path("/cut")).endswith(status.id)
        assert await fs.read("/cut") == b"x" * size
        assert await fs.compact("/cut", whole=whole) == status
    await fs.append("/hole", b"")
    await fs.truncate("/hole", 100)
    assert (await fs.compact("/hole")).physical == (await fs.stat("/hole")).physical
    status = await fs.compact("/hole", whole=True)
    assert (await fs.physical_path("/hole")).endswith(status.id)
    assert await fs.read("/hole") == bytes(100)
    assert await problems(fs) == []


async def test_compaction_leaves_an_object_without_a_checksum(fs: S3kClient) -> None:
    """Such as one of a volume whose entries had none: it may be terabytes."""
    volume = fs._volume()
    target = await volume.store.prepare("/f")
    content = await volume.storage.put(target.object_id, b"abc")
    await volume.store.publish(target, replace(content, checksum=""))
    before = await fs.stat("/f")
    assert await fs.compact("/f", whole=True) == await fs.compact("/f") == before


async def test_compaction_that_lost_a_race_leaves_no_data(fs: S3kClient) -> None:
    await fs.write("/f", b"a" * 90)
    await fs.append("/f", b"b")
    volume, content = fs._volume(), await fs.read("/f")
    publish, races = volume.store.publish, 0

    async def late(*args: Any, **options: Any) -> Entry:
        nonlocal races
        races += 1
        if races == 1:
            await fs.compact("/f", whole=True)
        return await publish(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(volume.store, "publish", late)
        await fs.compact("/f", whole=True)
    assert races == 2, "the second attempt had nothing to change"
    assert await fs.read("/f") == content
    assert len(await data_keys(fs) - await live_keys(fs)) == 2, "those of the first versions"


async def test_appends_leave_few_extents_and_write_little(fs: S3kClient) -> None:
    expected = b""
    for number in range(300):
        data = b"%4d\n" % number
        expected += data
        await fs.append("/f", data)
        assert await extents(fs) <= 10
    assert await fs.read("/f") == expected


async def test_many_changes_in_place_stay_below_the_limits(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = bytearray(4000)
    await fs.write("/f", bytes(expected))
    draw = random.Random(5)
    for number in range(200):
        place = draw.randrange(3990)
        expected[place] = number
        await fs.write_range("/f", place, bytes([number]))
        assert await extents(fs) <= MOST_EXTENTS
    assert await fs.read("/f") == expected
    # What compaction may rewrite is bounded, until the list is so long that it must.
    monkeypatch.setattr(edits, "REWRITTEN", 0)
    monkeypatch.setattr(edits, "HARD_LIMIT", 100)
    longest = 0
    for number in range(200):
        place = draw.randrange(3990)
        expected[place] = number
        await fs.write_range("/f", place, bytes([number]))
        longest = max(longest, await extents(fs))
    assert MOST_EXTENTS < longest <= 100 < HARD_LIMIT
    assert await fs.read("/f") == expected
    assert await problems(fs) == []


def test_a_hundred_files_with_intents_fit_into_a_transaction_of_dynamodb() -> None:
    """4 MB in a transaction, 400 KB in an item. Source: Amazon DynamoDB Developer Guide, quotas."""
    object_id = "11111111-1111-4111-8111-111111111111"
    long = LARGEST_FILE // HARD_LIMIT
    extent = Extent(f"{'k' * 36}.id={object_id}", 0, long, EMPTY)
    longest = f"/{'é' * 500}/{'é' * 450}/{'é' * 512}"
    entry = Entry(longest, False, object_id, 2, 1, 1).with_content(
        content_of(object_id, [extent] * HARD_LIMIT), mtime_ms=10**13, operation=object_id
    )
    held = replace(entry, pending=WriteIntent(object_id, entry).text())
    size = item_size(to_item(held, KeyScheme("v", 1000, "xxh3")))
    assert size < 400_000
    assert 100 * size < 4_000_000


async def test_long_holes_are_not_filled_by_a_small_write(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joining what they keep apart would write terabytes of zeros."""
    monkeypatch.setattr(edits, "HARD_LIMIT", 90)
    step = edits.COMPACTED + 8192
    await fs.write("/f", b"0")
    for number in range(1, 45):
        await fs.write_range("/f", number * step, b"%d" % number)
    assert await extents(fs) == 89
    before = await fs.stat("/f")
    with pytest.raises(UnsupportedError, match="long holes") as raised:
        await fs.write_range("/f", 45 * step, b"one too many")
    assert raised.value.path == "/f"
    assert await fs.stat("/f") == before
    await fs.write_range("/f", 44 * step, b"in place")
    assert await fs.read_ranges("/f", [(7 * step - 1, 7 * step + 2)]) == [b"\x007\0"]
    stored = [info.size async for info in list_all(fs._volume().blobs) if ".id=" in info.key]
    assert sum(stored) < 1024**2


def test_the_work_of_joining_grows_with_the_number_of_extents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = f"{'k' * 36}.id=x"
    runs = [(Extent(key, 10 * number, 5),) for number in range(20_000)]
    looks = 0
    cost = edits._Joins._cost

    def counted(joins: edits._Joins, place: int) -> float:
        nonlocal looks
        looks += 1
        return cost(joins, place)

    monkeypatch.setattr(edits._Joins, "_cost", counted)
    joined = edits._compacted(runs, "/f")
    assert looks <= 10 * len(runs)
    assert len(joined) == edits.LEFT_EXTENTS
    assert [piece for run in joined for piece in run] == [run[0] for run in runs]


@volume_backends("memory", "embedded")
async def test_a_sparse_file_of_six_gibibytes(fs: S3kClient) -> None:
    """H3 kept offsets in 32 bits, and wrapped at 4 GiB."""
    size = 6 * 1024**3
    await fs.append("/f", b"start")
    await fs.write_range("/f", 5 * 1024**3, b"middle")
    await fs.write_range("/f", size - 3, b"end")
    assert (await fs.stat("/f")).size == size
    assert (await fs.content_summary("/f")).length == size
    assert await fs.read_ranges(
        "/f", [(0, 8), (4 * 1024**3, 4 * 1024**3 + 4), (5 * 1024**3 - 1, 5 * 1024**3 + 7)]
    ) == [b"start\0\0\0", bytes(4), b"\0middle\0"]
    async with fs.open("/f") as file:
        await file.seek(size - 4)
        assert await file.read() == b"\0end"
    stored = [info.size async for info in list_all(fs._volume().blobs) if ".id=" in info.key]
    assert sum(stored) == 14
    await fs.copy("/f", "/g")
    assert (await fs.stat("/g")).size == size
    assert await fs.read_ranges("/g", [(size - 4, size)]) == [b"\0end"]
    stored = [info.size async for info in list_all(fs._volume().blobs) if ".id=" in info.key]
    assert sum(stored) == 28


CHANGES = 2000 if FULL else 200


@volume_backends(*BACKENDS, "dynamodb_local+seaweedfs")
async def test_random_changes_equal_those_of_a_local_file(fs: S3kClient) -> None:
    """Positional writes, truncates and appends, compared byte for byte."""
    await change_at_random(fs, CHANGES)


async def test_random_changes_of_a_volume_with_tiers(layout: LayoutName) -> None:
    """A file whose parts are in the hot location and in the cold one."""
    config = await tiered_volume(layout)
    async with S3kClient(config=config) as fs:
        tiers = need_tiers(fs._volume().blobs, config.name)
        moved = 0

        async def move() -> None:
            nonlocal moved
            moved += (await move_all(tiers)).moved

        await change_at_random(fs, CHANGES, move)
        await fs.append("/f", b"hot")
        assert moved > 0
        assert await sizes(tiers.hot) != {}
        assert await sizes(tiers.cold) != {}
        assert (await fs.read("/f")).endswith(b"hot")


async def change_at_random(
    fs: S3kClient, changes: int, between: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Change a file and a local one alike, and compare them. `between`: called now and then."""
    draw, local = random.Random(7), bytearray()
    await fs.append("/f", b"")
    for number in range(changes):
        kind = draw.random()
        data = draw.randbytes(draw.choice((1, 7, 90, 260)))
        if kind < 0.4:
            await fs.append("/f", data)
            local += data
        elif kind < 0.85:
            offset = draw.randrange(len(local) + 50)
            await fs.write_range("/f", offset, data)
            local += bytes(max(0, offset - len(local)))
            local[offset : offset + len(data)] = data
        else:
            size = max(0, len(local) + draw.randrange(-300, 100))
            await fs.truncate("/f", size)
            del local[size:]
            local += bytes(size - len(local))
        if number % 20 == 0:
            if between is not None:
                await between()
            assert await fs.read("/f") == local, number
    assert await fs.read("/f") == local
    assert (await fs.stat("/f")).size == len(local)
    assert await problems(fs) == []


# Several clients


@backends
async def test_every_concurrent_append_is_in_the_file(config: VolumeConfig) -> None:
    lines = [b"%03d\n" % number for number in range(24)]
    # In each round of their race one of them succeeds, and a round of a busy machine is long.
    patient = replace(config, tuning=replace(config.tuning, busy_timeout=120.0))
    async with S3kClient(config=patient) as fs:
        await asyncio.gather(*(fs.append("/f", line) for line in lines))
        found = (await fs.read("/f")).splitlines(keepends=True)
        assert sorted(found) == lines
        assert (await fs.stat("/f")).version == len(lines) + 1
        assert await problems(fs) == []


Verb: TypeAlias = Callable[[S3kClient], Awaitable[object]]

VERBS: dict[str, tuple[Verb, bytes]] = {
    "append": (lambda fs: fs.append("/f", b"!"), b"theirs!"),
    "write_range": (lambda fs: fs.write_range("/f", 1, b"XY"), b"tXYirs"),
    "truncate": (lambda fs: fs.truncate("/f", 2), b"th"),
    "compact": (lambda fs: fs.compact("/f", whole=True), b"theirs"),
    "concat": (lambda fs: fs.concat("/f", ["/g"]), b"theirsg"),
    "open": (lambda fs: append_by_file(fs, b"?"), b"theirs?"),
    "open, long": (lambda fs: append_by_file(fs, b"?" * 300), b"theirs" + b"?" * 300),
}


async def append_by_file(fs: S3kClient, data: bytes) -> None:
    async with fs.open("/f", "ab") as file:
        await file.write(data)


@asynccontextmanager
async def grown(layout: LayoutName) -> AsyncIterator[tuple[S3kClient, FaultPlan, VolumeConfig]]:
    """A client of a volume with a file of two extents, `/f`, and a whole one, `/g`; the plan of its
    calls."""
    config = memory_config(TUNING, layout)
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", b"0123456789")
        await fs.append("/f", b"abcdef")
        await fs.write("/g", b"g")
        await fs._volume().log.drained()
        yield fs, faults, config


@asynccontextmanager
async def racing(
    layout: LayoutName, theirs: Callable[[S3kClient], Awaitable[object]]
) -> AsyncIterator[S3kClient]:
    """A client, and another one that makes a change just before the first write of the first one
    to the table."""
    async with grown(layout) as (one, faults, config), S3kClient(config=config) as other:
        came = False

        async def gate(call: Call) -> None:
            nonlocal came
            if not came and call.store == "items" and call.method in ("write", "transact"):
                came = True
                await theirs(other)

        faults.gate = gate
        yield one
        assert came
        faults.gate = None
        assert await problems(one) == []
        assert await data_keys(one) >= await live_keys(one)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_change_is_made_again_on_what_another_client_wrote(
    layout: LayoutName, verb: str
) -> None:
    change, expected = VERBS[verb]
    async with racing(layout, lambda other: other.write("/f", b"theirs")) as fs:
        await change(fs)
        assert await fs.read("/f") == expected


@pytest.mark.parametrize("verb", ["open", "open, long"])
async def test_an_open_file_does_not_append_to_another_one(layout: LayoutName, verb: str) -> None:
    async def replaced(other: S3kClient) -> None:
        await other.write("/h", b"another")
        await other.rename("/h", "/f", overwrite=True)

    async with racing(layout, replaced) as fs:
        with pytest.raises(ConflictError, match="removed or replaced"):
            await VERBS[verb][0](fs)
        assert await fs.read("/f") == b"another"


@pytest.mark.parametrize("verb", ["write_range", "truncate", "compact", "concat", "open"])
async def test_a_removed_file_does_not_come_back(layout: LayoutName, verb: str) -> None:
    async with racing(layout, lambda other: other.delete("/f")) as fs:
        with pytest.raises((PathNotFoundError, ConflictError)):
            await VERBS[verb][0](fs)
        assert await contents(fs) == {"/g": b"g"}


async def test_an_append_to_a_removed_file_makes_a_new_one(layout: LayoutName) -> None:
    async with racing(layout, lambda other: other.delete("/f")) as fs:
        await fs.append("/f", b"new")
        assert await fs.read("/f") == b"new"


@pytest.mark.parametrize("verb", VERBS)
async def test_a_change_that_fails_leaves_the_file_and_no_data(
    layout: LayoutName, verb: str
) -> None:
    async with grown(layout) as (fs, faults, _):
        before, kept = await contents(fs), await data_keys(fs)
        faults.fail_when(
            lambda call: call.store == "items" and call.method in ("write", "transact"),
            ServiceError("refused"),
            times=100,
        )
        with pytest.raises(ServiceError):
            await VERBS[verb][0](fs)
        faults._faults.clear()
        assert await contents(fs) == before
        assert await data_keys(fs) == kept
        assert await problems(fs) == []


@pytest.mark.parametrize("verb", VERBS)
async def test_after_a_lost_answer_nothing_that_may_be_live_is_removed(
    layout: LayoutName, verb: str
) -> None:
    async with grown(layout) as (fs, faults, _):
        lost = ResponseLostError("lost")
        faults.fail_when(
            lambda call: call.store == "items" and call.method in ("write", "transact"),
            lost,
            when="after",
            times=100,
        )
        with suppress(OutcomeUnknownError):
            await VERBS[verb][0](fs)
        faults._faults.clear()
        assert await live_keys(fs) <= await data_keys(fs)
        for data in (await contents(fs)).values():
            assert data is not None


# Refusals


async def test_what_is_no_file_cannot_be_changed(fs: S3kClient) -> None:
    await fs.makedirs("/d")
    writer = await fs.open("/new", "wb")
    changes: dict[str, Callable[[str], Awaitable[object]]] = {
        "append": lambda path: fs.append(path, b"x"),
        "write_range": lambda path: fs.write_range(path, 0, b"x"),
        "truncate": lambda path: fs.truncate(path, 5),
        "concat": lambda path: fs.concat(path, []),
        "compact": fs.compact,
        "open": lambda path: append_to(fs, path),
    }
    for name, change in changes.items():
        with pytest.raises(IsDirectoryError):
            await change("/d")
        with pytest.raises(UncommittedFileError):
            await change("/new")
        if name not in ("append", "open"):
            with pytest.raises(PathNotFoundError):
                await change("/missing")
            with pytest.raises(PathNotFoundError):
                await change("/no/such/parent")
    await writer.discard()
    assert await contents(fs) == {"/d": None}
    await fs.write("/f", b"f")
    for call in (
        fs.write_range("/f", -1, b"x"),
        fs.write_range("/f", LARGEST_FILE, b"x"),
        fs.truncate("/f", -1),
        fs.truncate("/f", LARGEST_FILE + 1),
    ):
        with pytest.raises(InvalidArgumentError):
            await call
    for call in (
        fs.append("/f", "text"),  # type: ignore[arg-type]
        fs.write_range("/f", 0, None),  # type: ignore[arg-type]
        fs.write_range("/f", 1.5, b"x"),  # type: ignore[arg-type]
        fs.truncate("/f", "5"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentTypeError):
            await call
    assert await contents(fs) == {"/d": None, "/f": b"f"}


async def append_to(fs: S3kClient, path: str) -> None:
    async with fs.open(path, "ab") as file:
        await file.write(b"x")


async def test_an_adopted_file_is_not_changed(fs: S3kClient) -> None:
    volume = fs._volume()
    await volume.place.put("theirs", b"theirs")
    await fs.adopt_many([("/f", volume.place.uri("theirs"))])
    for change in (
        fs.append("/f", b"x"),
        fs.write_range("/f", 0, b"x"),
        fs.truncate("/f", 1),
        append_to(fs, "/f"),
    ):
        with pytest.raises(UnsupportedError, match="adopted"):
            await change
    assert await fs.read("/f") == b"theirs"
    await fs.copy("/f", "/g")
    await fs.append("/g", b"!")
    assert await fs.read("/g") == b"theirs!"


async def test_a_volume_without_extents_keeps_whole_files(layout: LayoutName) -> None:
    config = memory_config(TUNING, layout)
    await init_volume(config, without=["extents"])
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"f")
        for change in (
            fs.append("/f", b"x"),
            fs.append("/new", b"x"),
            fs.write_range("/f", 0, b"x"),
            fs.truncate("/f", 0),
            fs.concat("/f", []),
            fs.compact("/f"),
            append_to(fs, "/f"),
        ):
            with pytest.raises(UnsupportedError, match="s3k migrate --enable extents"):
                await change
        assert await contents(fs) == {"/f": b"f"}


async def test_a_client_that_does_not_know_extents_is_kept_out(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = memory_config(TUNING, layout)
    await init_volume(config)
    monkeypatch.setattr(volume_record, "FLAGS", volume_record.FLAGS - {"extents"})
    with pytest.raises(VolumeFormatError, match="needs features this version lacks: extents"):
        await S3kClient(config=config).open_volume()


async def test_a_copy_in_a_volume_without_extents_is_one_object(layout: LayoutName) -> None:
    config, other = memory_config(TUNING, layout), memory_config(TUNING, layout)
    await init_volume(config)
    await init_volume(other, without=["extents"])
    async with S3kClient(config=config) as fs, S3kClient(config=other) as target:
        await fs.write("/f", b"x" * 300)
        await fs.write_range("/f", 100, b"in place")
        await fs.truncate("/f", 500)
        await fs.copy_to(target, "/f", "/f")
        assert await extents(target) == 0
        assert await target.read("/f") == await fs.read("/f")


# Damage


async def test_an_object_that_cannot_be_joined_is_reported_with_the_path_of_the_file(
    fs: S3kClient,
) -> None:
    await fs.write("/f", b"a" * 90)
    await fs.append("/f", b"b")
    before = await fs.stat("/f")
    await fs._volume().blobs.delete(physical_keys(before.physical)[1])
    for change in (fs.compact("/f"), fs.append("/f", b"c")):
        with pytest.raises(DataMissingError) as raised:
            await change
        assert raised.value.path == "/f"
    assert await fs.stat("/f") == before


async def test_a_truth_value_is_no_size(fs: S3kClient) -> None:
    await fs.write("/f", b"abc")
    with pytest.raises(ArgumentTypeError, match="bool"):
        await fs.truncate("/f", True)
    with pytest.raises(ArgumentTypeError, match="bool"):
        await fs.write_range("/f", False, b"x")
    assert await fs.read("/f") == b"abc"


async def test_lost_and_damaged_objects_are_noticed(fs: S3kClient) -> None:
    await fs.write("/f", b"a" * 30)
    await fs.append("/f", b"b" * 10)
    physical = str((await fs.stat("/f")).physical)
    first, second = physical_keys(physical)
    blobs = fs._volume().blobs
    await blobs.put(second, b"c" * 10)
    with pytest.raises(CorruptDataError, match="checksum"):
        await fs.read("/f")
    with pytest.raises(CorruptDataError, match="checksum"):
        await fs.read_ranges("/f", [(25, 40)])
    await blobs.put(second, b"b" * 9)
    with pytest.raises(CorruptDataError):
        await fs.read("/f")
    await blobs.delete(second)
    with pytest.raises(DataMissingError):
        await fs.read("/f")
    assert await fs.read_ranges("/f", [(0, 30)]) == [b"a" * 30]
    assert first in await data_keys(fs)


async def test_open_files_append_what_was_written_together(fs: S3kClient) -> None:
    await fs.write("/f", b"0123456789")
    async with fs.open("/f", "ab") as file:
        assert await file.tell() == 10
        await file.write(b"one")
        await file.write(b"x" * 400)
        assert await file.tell() == 413
        assert await fs.read("/f") == b"0123456789"
        await fs.append("/f", b"meanwhile")
    assert file.mode == "ab"
    assert await fs.read("/f") == b"0123456789meanwhileone" + b"x" * 400
    with suppress(ZeroDivisionError):
        async with fs.open("/f", "ab") as file:
            await file.write(b"never")
            raise ZeroDivisionError
    await append_to(fs, "/new/file")
    async with fs.open("/f", "ab"):
        pass
    assert await contents(fs) == {
        "/f": b"0123456789meanwhileone" + b"x" * 400,
        "/new": None,
        "/new/file": b"x",
    }
    assert await problems(fs) == []


@pytest.mark.parametrize("size", [1, 400])
async def test_several_append_to_a_new_file(fs: S3kClient, size: int) -> None:
    """Bytes that were uploaded in parts before another one created the file are copied."""
    files = [await fs.open("/d/new", "ab") for _ in range(3)]
    for number, file in enumerate(files):
        await file.write(b"%d" % number * size)
    assert [status async for status in fs.list("/d", include_uncommitted=True)] == []
    await files[1].discard()
    await files[2].close()
    await files[0].close()
    assert await fs.read("/d/new") == b"2" * size + b"0" * size
    assert await live_keys(fs) <= await data_keys(fs)
    assert len(await data_keys(fs)) == 2  # the copy, and not what was copied or discarded
    assert await problems(fs) == []


@pytest.mark.parametrize("size", [1, 400])
async def test_a_file_that_is_created_while_it_is_opened_to_append_is_kept(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    store = fs._volume().store
    get = store.get

    async def outdated(path: str, *arguments: Any, **options: Any) -> Entry | None:
        found = await get(path, *arguments, **options)
        monkeypatch.undo()
        await fs.write("/f", b"theirs")
        return found

    monkeypatch.setattr(store, "get", outdated)
    async with fs.open("/f", "ab") as file:
        await file.write(b"x" * size)
    assert await fs.read("/f") == b"theirs" + b"x" * size


async def test_an_expired_reservation_is_no_obstacle_to_an_append() -> None:
    clock = FakeClock()
    config = memory_config(replace(TUNING, lease=60.0))
    await init_volume(config)
    async with faulty_client(FaultPlan(), config, fake_runtime(clock)) as fs:
        await fs.open("/f", "wb")
        with pytest.raises(UncommittedFileError):
            await fs.open("/f", "ab")
        clock.advance(61)
        await append_to(fs, "/f")
        assert await fs.read("/f") == b"x"


@pytest.mark.parametrize("verb", VERBS)
async def test_a_cancelled_change_is_made_or_not(layout: LayoutName, verb: str) -> None:
    """Cancelled after any number of steps of the event loop."""
    before = b"0123456789abcdef"
    async with grown(layout) as (fs, _, _):
        await VERBS[verb][0](fs)
        after = await contents(fs)
    outcomes = set()
    for steps in range(0, 60, 1 if FULL else 4):
        async with grown(layout) as (fs, _, _):
            task = asyncio.ensure_future(VERBS[verb][0](fs))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError, OutcomeUnknownError):
                await task
            found = await contents(fs)
            assert found in ({"/f": before, "/g": b"g"}, after), steps
            assert await live_keys(fs) <= await data_keys(fs)
            assert await problems(fs) == []
            outcomes.add(found == after)
    assert False in outcomes or verb == "compact"


@pytest.mark.parametrize("verb", ["write_range", "truncate", "compact", "concat"])
async def test_the_directories_of_a_removed_file_are_not_made_again(
    layout: LayoutName, verb: str
) -> None:
    """The file is read; before it is written, it is gone with its directory."""
    config = memory_config(TUNING, layout)
    await init_volume(config)
    faults = FaultPlan()
    async with S3kClient(config=config) as other, faulty_client(faults, config) as fs:
        await fs.write("/d/f", b"0123456789")
        await fs.append("/d/f", b"abcdef")
        await fs.write("/g", b"g")
        await fs._volume().log.drained()
        changes: dict[str, Verb] = {
            "write_range": lambda fs: fs.write_range("/d/f", 1, b"XY"),
            "truncate": lambda fs: fs.truncate("/d/f", 2),
            "compact": lambda fs: fs.compact("/d/f", whole=True),
            "concat": lambda fs: fs.concat("/d/f", ["/g"]),
        }
        came = False

        async def gate(call: Call) -> None:
            nonlocal came
            if not came and call.store == "items" and call.method in ("write", "transact"):
                came = True
                await other.delete("/d", recursive=True, wait=True)

        faults.gate = gate
        with pytest.raises((PathNotFoundError, ConflictError)):
            await changes[verb](fs)
        assert came
        faults.gate = None
        assert await contents(fs) == {"/g": b"g"}
