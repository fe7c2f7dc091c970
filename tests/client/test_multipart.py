"""Multipart uploads: parts in any order, by any process, that become one file."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from s3k_async._core.concurrency import run_all
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Key, Put, Update
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.errors import (
    ArgumentTypeError,
    BusyError,
    ConditionFailedError,
    ConflictError,
    DataMissingError,
    InvalidArgumentError,
    IsDirectoryError,
    ItemFormatError,
    NotDirectoryError,
    PartialFailureError,
    PathNotFoundError,
    ServiceError,
    UncommittedFileError,
    UnsupportedError,
    UploadNotFoundError,
    VolumeFormatError,
)
from s3k_async.files.edits import HARD_LIMIT
from s3k_async.files.multipart import (
    LARGEST_NUMBER,
    abort_upload,
    complete_upload,
    copy_part,
    create_upload,
    expire_uploads,
    list_parts,
    list_uploads,
    put_part,
)
from s3k_async.integrity.repair import repair_volume
from s3k_async.migrate import enable_features
from s3k_async.model import Feature, LayoutName
from s3k_async.namespace import multi_path_commit
from s3k_async.storage.extents import parse_extents, physical_keys
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn import volume_lock, volume_record
from s3k_async.txn.upload_items import COMPLETION, is_upload_partition, part_key, upload_key
from s3k_async.txn.upload_records import UploadRecords
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import faulty_client, memory_config
from tests.client.transacting import problems
from tests.engines.volumes import volume_backends
from tests.support import FakeClock, fake_runtime

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded", "dynoxide+seaweedfs")


def of(fs: S3kClient) -> Volume:
    return fs._volume()


async def data_keys(volume: Volume) -> set[str]:
    """The keys of all physical objects."""
    return {info.key async for info in list_all(volume.blobs) if ".id=" in info.key}


async def upload_items(volume: Volume) -> int:
    """The number of items of uploads and their parts."""
    page = await volume.items.scan(0, 1)
    return sum(is_upload_partition(str(item["path"])) for item in page.items)


async def numbers(volume: Volume, upload_id: str) -> dict[int, int]:
    """The sizes of the parts by number, in their order."""
    return {part.number: part.size for part in await list_parts(volume, upload_id)}


async def nothing_is_left(fs: S3kClient, *paths: str) -> None:
    """No item of an upload is left, and no data but that of the files."""
    kept = {key for path in paths for key in physical_keys((await fs.stat(path)).physical)}
    assert await data_keys(of(fs)) == kept
    assert await upload_items(of(fs)) == 0
    assert await problems(fs) == []


@volume_backends("memory")
@pytest.mark.parametrize("is_repaired", [False, True])
async def test_an_upload_in_a_table_from_before_its_completion(
    fs: S3kClient, is_repaired: bool
) -> None:
    """Such as from a backup: its parts are the data of a file, although it is open."""
    volume = of(fs)
    upload = await create_upload(volume, "/f")
    for number in (1, 2):
        await put_part(volume, upload.id, number, b"%d" % number * 1000)
    before = [dict(item) for item in (await volume.items.scan(0, 1)).items]
    await complete_upload(volume, upload.id)
    data = await fs.read("/f")
    for item in (await volume.items.scan(0, 1)).items:
        key = Key(str(item["path"]), str(item["children"]))
        await volume.items.write(Delete(key, Condition()))
    for item in before:
        await volume.items.write(Put(item, ABSENT))
    if is_repaired:
        await repair_volume(volume, grace=0.0, dry_run=False)
        assert await fs.read("/f") == data
    await put_part(volume, upload.id, 2, b"stored again")
    await abort_upload(volume, upload.id)
    assert await upload_items(volume) == 0
    await repair_volume(volume, grace=0.0, dry_run=False)
    assert await fs.read("/f") == data


@backends
async def test_parts_in_any_order_become_a_file(fs: S3kClient) -> None:
    volume = of(fs)
    upload = await create_upload(volume, "/b/deep/f")
    assert not await fs.exists("/b")
    assert upload.expires_ms - upload.started_ms == 7 * 86_400_000
    for number, data in ((7, b"third"), (0, b"first, "), (3, b"second, ")):
        part = await put_part(volume, upload.id, number, data)
        assert (part.number, part.size) == (number, len(data))
    parts = await list_parts(volume, upload.id)
    assert [each.number for each in parts] == [0, 3, 7]
    assert part in parts or part.number == 3
    assert all(each.checksum.startswith("xxh128:") and each.etag for each in parts)
    assert not await fs.exists("/b")
    entry = await complete_upload(volume, upload.id)
    assert (entry.path, entry.id, entry.size) == ("/b/deep/f", upload.id, 20)
    assert await fs.read("/b/deep/f") == b"first, second, third"
    assert (await fs.stat("/b/deep/f")).version == entry.version
    await nothing_is_left(fs, "/b/deep/f")
    assert await fs.append("/b/deep/f", b"!") is not None
    assert await fs.read("/b/deep/f") == b"first, second, third!"


@backends
async def test_a_part_is_replaced(fs: S3kClient) -> None:
    volume = of(fs)
    upload = await create_upload(volume, "/f")
    for number in (1, 0, 1, 1):
        await put_part(volume, upload.id, number, b"%d" % number * 100)
    first = await data_keys(volume)
    assert len(first) == 2
    await put_part(volume, upload.id, 0, b"a")
    await put_part(volume, upload.id, 1, b"z" * 1000)
    assert len(await data_keys(volume)) == 2
    assert not first & await data_keys(volume)
    assert await numbers(volume, upload.id) == {0: 1, 1: 1000}
    await complete_upload(volume, upload.id)
    assert await fs.read("/f") == b"a" + b"z" * 1000
    await nothing_is_left(fs, "/f")


@backends
async def test_a_completed_upload_replaces_the_file(fs: S3kClient) -> None:
    volume = of(fs)
    await fs.write("/d/f", b"old")
    before = await fs.stat("/d/f")
    uploads = [await create_upload(volume, "/d/f") for _ in range(3)]
    for place, upload in enumerate(uploads):
        await put_part(volume, upload.id, 1, b"upload %d" % place)
    assert await fs.read("/d/f") == b"old"
    await complete_upload(volume, uploads[1].id)
    assert await fs.read("/d/f") == b"upload 1"
    after = await fs.stat("/d/f")
    assert (after.id, before.id != after.id) == (uploads[1].id, True)
    assert {each.id for each in await list_uploads(volume)} == {uploads[0].id, uploads[2].id}
    await complete_upload(volume, uploads[0].id)
    assert await fs.read("/d/f") == b"upload 0"
    await abort_upload(volume, uploads[2].id)
    assert await fs.read("/d/f") == b"upload 0"
    assert await upload_items(volume) == 0
    assert await problems(fs) == []


@backends
async def test_an_ended_upload_has_no_valid_id(fs: S3kClient) -> None:
    volume = of(fs)
    await fs.write("/g", b"g")
    completed, aborted = [await create_upload(volume, "/f") for _ in range(2)]
    for upload in (completed, aborted):
        await put_part(volume, upload.id, 1, b"data")
    await complete_upload(volume, completed.id)
    await abort_upload(volume, aborted.id)
    for invalid in (completed.id, aborted.id, str(uuid4()), "", "an id", "0" * 36):
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(put_part, volume, invalid, 1, b"x"),
            partial(copy_part, volume, invalid, 1, "/g"),
            partial(list_parts, volume, invalid),
            partial(complete_upload, volume, invalid),
            partial(abort_upload, volume, invalid),
        ]
        for call in calls:
            with pytest.raises(UploadNotFoundError):
                await call()
    assert issubclass(UploadNotFoundError, PathNotFoundError)
    assert await list_uploads(volume) == []
    await nothing_is_left(fs, "/f", "/g")


@backends
async def test_a_range_of_a_file_is_a_part(fs: S3kClient) -> None:
    volume = of(fs)
    whole = random.Random(3).randbytes(1000)
    await fs.write("/whole", whole)
    await fs.write("/many", b"a" * 100)
    await fs.write_range("/many", 50, b"b" * 10)
    await fs.write_range("/many", 1000, b"c")
    many = await fs.read("/many")
    upload = await create_upload(volume, "/f")
    await copy_part(volume, upload.id, 1, "/whole")
    await copy_part(volume, upload.id, 2, "/whole", 10, 500)
    await copy_part(volume, upload.id, 3, "/many")
    await copy_part(volume, upload.id, 4, "/many", 45, 500)
    await copy_part(volume, upload.id, 5, "/many", 1000)
    await copy_part(volume, upload.id, 6, "/whole", 7, 0)
    for offset, size in ((0, 1001), (-1, 5), (1001, 0), (5, -1), (999, 2)):
        with pytest.raises(InvalidArgumentError, match="1,000 bytes"):
            await copy_part(volume, upload.id, 7, "/whole", offset, size)
    with pytest.raises(ArgumentTypeError):
        await copy_part(volume, upload.id, 7, "/whole", 1.5)  # type: ignore[arg-type]
    with pytest.raises(PathNotFoundError):
        await copy_part(volume, upload.id, 7, "/none")
    await fs.makedirs("/d")
    with pytest.raises(IsDirectoryError):
        await copy_part(volume, upload.id, 7, "/d")
    async with fs.open("/open", "wb"):
        with pytest.raises(UncommittedFileError):
            await copy_part(volume, upload.id, 7, "/open")
    entry = await complete_upload(volume, upload.id)
    expected = whole + whole[10:510] + many + many[45:545] + many[1000:]
    assert (entry.size, await fs.read("/f")) == (len(expected), expected)
    holes = [each for each in parse_extents(str(entry.physical)) if each.is_hole]
    assert sum(each.length for each in holes) == 900 + 445
    await fs.delete("/whole")
    await fs.delete("/many")
    assert await fs.read("/f") == expected
    assert await problems(fs) == []


@backends
async def test_a_part_arrives_in_pieces(fs: S3kClient) -> None:
    async def pieces(fails: bool) -> AsyncIterator[bytes]:
        for number in range(10):
            yield b"%d" % number * 100
        if fails:
            raise ZeroDivisionError

    volume = of(fs)
    upload = await create_upload(volume, "/f")
    with pytest.raises(ZeroDivisionError):
        await put_part(volume, upload.id, 1, pieces(True))
    assert await numbers(volume, upload.id) == {}
    assert await data_keys(volume) == set()
    part = await put_part(volume, upload.id, 1, pieces(False))
    entry = await complete_upload(volume, upload.id)
    assert (entry.content, entry.size) == (part.content, 1000)
    assert await fs.read("/f") == b"".join(b"%d" % number * 100 for number in range(10))
    await nothing_is_left(fs, "/f")


@backends
async def test_empty_parts(fs: S3kClient) -> None:
    volume = of(fs)
    upload = await create_upload(volume, "/f")
    await put_part(volume, upload.id, 1, b"")
    await put_part(volume, upload.id, 2, b"")
    assert await numbers(volume, upload.id) == {1: 0, 2: 0}
    assert (await complete_upload(volume, upload.id)).size == 0
    assert await fs.read("/f") == b""
    await nothing_is_left(fs, "/f")
    upload = await create_upload(volume, "/f")
    await put_part(volume, upload.id, 1, b"")
    await put_part(volume, upload.id, 2, b"data")
    await complete_upload(volume, upload.id)
    assert await fs.read("/f") == b"data"


@backends
async def test_an_upload_without_parts_is_not_completed(fs: S3kClient) -> None:
    volume = of(fs)
    upload = await create_upload(volume, "/f")
    with pytest.raises(InvalidArgumentError, match="no parts"):
        await complete_upload(volume, upload.id)
    assert not await fs.exists("/f")
    await put_part(volume, upload.id, 0, b"a part")
    await complete_upload(volume, upload.id)
    assert await fs.read("/f") == b"a part"


@backends
async def test_a_path_that_cannot_be_written_leaves_the_upload(fs: S3kClient) -> None:
    volume = of(fs)
    upload = await create_upload(volume, "/d/f")
    await put_part(volume, upload.id, 1, b"data")
    await fs.makedirs("/d/f/g")
    with pytest.raises(IsDirectoryError):
        await complete_upload(volume, upload.id)
    await fs.delete("/d", recursive=True)
    await fs.write("/d", b"a file")
    with pytest.raises(NotDirectoryError):
        await complete_upload(volume, upload.id)
    assert await numbers(volume, upload.id) == {1: 4}
    await fs.delete("/d")
    await complete_upload(volume, upload.id)
    assert await fs.read("/d/f") == b"data"


@backends
async def test_uploads_are_listed_by_page(fs: S3kClient) -> None:
    volume = of(fs)
    made = [
        await create_upload(volume, f"/{bucket}/{number % 7}")
        for bucket in ("a", "ab")
        for number in range(25)
    ]
    assert await list_uploads(volume, "/none") == []
    for directory in ("/", "/a", "/ab"):
        expected = sorted(
            each.id for each in made if each.path.startswith(directory.rstrip("/") + "/")
        )
        found: list[str] = []
        after = ""
        while page := await list_uploads(volume, directory, after=after, limit=7):
            assert len(page) == 7 or len(found) + len(page) == len(expected)
            found += [each.id for each in page]
            after = found[-1]
        assert found == expected
    assert len(await list_uploads(volume)) == 50
    assert sorted(made, key=lambda each: each.id) == await list_uploads(volume)
    await abort_upload(volume, made[0].id)
    assert len(await list_uploads(volume)) == 49
    with pytest.raises(InvalidArgumentError):
        await list_uploads(volume, limit=0)


@backends
async def test_many_parts_are_joined(fs: S3kClient) -> None:
    volume = of(fs)
    upload = await create_upload(volume, "/f")
    data = [random.Random(number).randbytes(number % 50) for number in range(2 * HARD_LIMIT + 9)]
    order = list(enumerate(data))
    random.Random(1).shuffle(order)
    await run_all(lambda part: put_part(volume, upload.id, *part), order, limit=16)
    entry = await complete_upload(volume, upload.id)
    assert len(parse_extents(str(entry.physical))) <= HARD_LIMIT
    assert await fs.read("/f") == b"".join(data)
    await nothing_is_left(fs, "/f")


@pytest.mark.slow
async def test_ten_thousand_parts(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        volume = of(fs)
        upload = await create_upload(volume, "/f")
        numbers_of = list(range(10_000))
        random.Random(2).shuffle(numbers_of)
        await run_all(
            lambda number: put_part(volume, upload.id, number, b"%05d" % number),
            numbers_of,
            limit=32,
        )
        assert len(await list_parts(volume, upload.id)) == 10_000
        entry = await complete_upload(volume, upload.id)
        assert len(parse_extents(str(entry.physical))) <= HARD_LIMIT
        assert await fs.read("/f") == b"".join(b"%05d" % number for number in range(10_000))
        await nothing_is_left(fs, "/f")


@backends
async def test_concurrent_parts_with_one_number(fs: S3kClient) -> None:
    volume = of(fs)
    upload = await create_upload(volume, "/f")
    data = [b"%d" % number * 50 for number in range(12)]
    await run_all(lambda each: put_part(volume, upload.id, 5, each), data, limit=12)
    [part] = await list_parts(volume, upload.id)
    assert await data_keys(volume) == {part.content.physical}
    await complete_upload(volume, upload.id)
    assert await fs.read("/f") in data
    await nothing_is_left(fs, "/f")


@backends
async def test_concurrent_completions_publish_once(fs: S3kClient) -> None:
    volume = of(fs)
    await fs.write("/f", b"old")
    upload = await create_upload(volume, "/f")
    await put_part(volume, upload.id, 1, b"one, ")
    await put_part(volume, upload.id, 2, b"two")
    done = await asyncio.gather(
        *(complete_upload(volume, upload.id) for _ in range(5)), return_exceptions=True
    )
    entries = [each for each in done if not isinstance(each, BaseException)]
    assert len(entries) == 1
    assert all(isinstance(each, UploadNotFoundError) for each in done if each not in entries)
    assert await fs.read("/f") == b"one, two"
    assert (await fs.stat("/f")).version == entries[0].version
    assert await problems(fs) == []


@asynccontextmanager
async def held(
    layout: LayoutName, is_held: Callable[[Call], bool]
) -> AsyncIterator[tuple[Volume, S3kClient, asyncio.Event, asyncio.Event]]:
    """Two clients of a volume; the first one stops before the first call that matches."""
    reached, go = asyncio.Event(), asyncio.Event()

    async def gate(call: Call) -> None:
        if is_held(call) and not reached.is_set():
            reached.set()
            await go.wait()

    config = memory_config(layout=layout)
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as one, S3kClient(config=config) as other:
        await other.exists("/")
        faults.gate = gate
        yield of(one), other, reached, go


def publishes(call: Call) -> bool:
    """Whether the call is the transaction of the table by which an upload is completed."""
    return call.method == "transact"


async def test_a_part_that_is_replaced_during_a_completion_is_in_the_file(
    layout: LayoutName,
) -> None:
    async with held(layout, publishes) as (volume, other, reached, go):
        upload = await create_upload(of(other), "/f")
        await put_part(of(other), upload.id, 1, b"one, ")
        await put_part(of(other), upload.id, 2, b"two")
        completion = asyncio.create_task(complete_upload(volume, upload.id))
        await reached.wait()
        await put_part(of(other), upload.id, 2, b"TWO")
        await put_part(of(other), upload.id, 3, b", three")
        go.set()
        await completion
        assert await other.read("/f") == b"one, TWO, three"
        await nothing_is_left(other, "/f")


async def test_a_request_that_arrives_again_does_not_hide_a_part(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write that begins a completion was sent again after its time-out, and the first request
    arrives when a part has interrupted that completion."""
    begun: list[Update] = []
    write = MemoryItems.write

    async def recorded(items: MemoryItems, action: Put | Update | Delete) -> None:
        await write(items, action)
        if isinstance(action, Update) and COMPLETION in action.set:
            begun.append(action)

    monkeypatch.setattr(MemoryItems, "write", recorded)
    async with held(layout, publishes) as (volume, other, reached, go):
        upload = await create_upload(of(other), "/f")
        await put_part(of(other), upload.id, 1, b"one, ")
        completion = asyncio.create_task(complete_upload(volume, upload.id))
        await reached.wait()
        await put_part(of(other), upload.id, 2, b"two")
        with suppress(ConditionFailedError):
            await of(other).items.write(begun[0])
        go.set()
        await completion
        assert await other.read("/f") == b"one, two"
        await nothing_is_left(other, "/f")


async def test_a_part_that_is_late_for_a_completion_is_refused(layout: LayoutName) -> None:
    def stores_a_part(call: Call) -> bool:
        return call.method == "write" and call.key.startswith("s3k:upload/")

    async with held(layout, stores_a_part) as (volume, other, reached, go):
        upload = await create_upload(of(other), "/f")
        await put_part(of(other), upload.id, 1, b"one, ")
        part = asyncio.create_task(put_part(volume, upload.id, 2, b"two"))
        await reached.wait()
        await complete_upload(of(other), upload.id)
        go.set()
        with pytest.raises(UploadNotFoundError):
            await part
        assert await other.read("/f") == b"one, "
        assert await upload_items(volume) == 0


@pytest.mark.parametrize("replaces", [False, True])
async def test_a_part_stored_before_the_completion_reads_them_is_in_the_file(
    layout: LayoutName, replaces: bool
) -> None:
    """The client that stored it has not yet read the record of the upload: it is not told that its
    part is in the file, and must not delete its data."""
    state = {"stored": False}

    def confirms(call: Call) -> bool:
        stored, state["stored"] = state["stored"], state["stored"] or call.method == "write"
        return stored and call.method == "get"

    async with held(layout, confirms) as (volume, other, reached, go):
        upload = await create_upload(of(other), "/f")
        await put_part(of(other), upload.id, 1, b"one, ")
        if replaces:
            await put_part(of(other), upload.id, 2, b"former")
        part = asyncio.create_task(put_part(volume, upload.id, 2, b"two"))
        await reached.wait()
        await complete_upload(of(other), upload.id)
        go.set()
        with pytest.raises(UploadNotFoundError):
            await part
        assert await other.read("/f") == b"one, two"
        assert await upload_items(volume) == 0
        assert await problems(other) == []


async def test_an_upload_that_is_aborted_during_its_completion_is_not_published(
    layout: LayoutName,
) -> None:
    async with held(layout, publishes) as (volume, other, reached, go):
        upload = await create_upload(of(other), "/f")
        for number in range(2 * HARD_LIMIT):
            await put_part(of(other), upload.id, number, b"%d" % number)
        completion = asyncio.create_task(complete_upload(volume, upload.id))
        await reached.wait()
        await abort_upload(of(other), upload.id)
        go.set()
        with pytest.raises(UploadNotFoundError):
            await completion
        assert not await other.exists("/f")
        await nothing_is_left(other)


async def test_parts_that_vanish_while_they_are_joined(layout: LayoutName) -> None:
    def joins(call: Call) -> bool:
        return call.method == "get" and ".id=" in call.key

    async with held(layout, joins) as (volume, other, reached, go):
        upload = await create_upload(of(other), "/f")
        for number in range(2 * HARD_LIMIT):
            await put_part(of(other), upload.id, number, b"a")
        completion = asyncio.create_task(complete_upload(volume, upload.id))
        await reached.wait()
        for number in range(2 * HARD_LIMIT):
            await put_part(of(other), upload.id, number, b"b")
        go.set()
        await completion
        assert await other.read("/f") == b"b" * 2 * HARD_LIMIT
        await nothing_is_left(other, "/f")


async def test_lost_data_of_a_part_is_reported(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        volume = of(fs)
        upload = await create_upload(volume, "/f")
        for number in range(2 * HARD_LIMIT):
            await put_part(volume, upload.id, number, b"a")
        first, *_ = await list_parts(volume, upload.id)
        await volume.blobs.delete(first.content.physical)
        with pytest.raises(DataMissingError):
            await complete_upload(volume, upload.id)
        await put_part(volume, upload.id, first.number, b"a")
        await complete_upload(volume, upload.id)
        assert await fs.read("/f") == b"a" * 2 * HARD_LIMIT
        await nothing_is_left(fs, "/f")


async def test_a_completion_among_endless_parts_gives_up(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    clock = FakeClock()
    faults = FaultPlan()
    async with (
        faulty_client(faults, config, fake_runtime(clock)) as fs,
        S3kClient(config=config) as other,
    ):
        upload = await create_upload(of(fs), "/f")
        await put_part(of(fs), upload.id, 1, b"a")
        await other.exists("/")

        async def interrupt(call: Call) -> None:
            if publishes(call):
                await put_part(of(other), upload.id, 1, b"b")

        faults.gate = interrupt
        with pytest.raises(ConflictError, match="parts were stored"):
            await complete_upload(of(fs), upload.id)
        faults.gate = None
        await complete_upload(of(fs), upload.id)
        assert await fs.read("/f") == b"b"


async def test_a_completion_that_fits_into_no_transaction_gives_up(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never published without the condition that the upload is open."""
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 1)
    clock, config = FakeClock(), memory_config(layout=layout)
    runtime = fake_runtime(clock)
    await init_volume(config, runtime=runtime)
    async with faulty_client(FaultPlan(), config, runtime) as fs:
        upload = await create_upload(of(fs), "/f")
        await put_part(of(fs), upload.id, 1, b"data")
        with pytest.raises(BusyError):
            await complete_upload(of(fs), upload.id)
        assert not await fs.exists("/f")
        monkeypatch.undo()
        await complete_upload(of(fs), upload.id)
        await nothing_is_left(fs, "/f")


async def test_uploads_expire(layout: LayoutName) -> None:
    clock, config = FakeClock(), memory_config(layout=layout)
    runtime = fake_runtime(clock)
    await init_volume(config, runtime=runtime)
    async with faulty_client(FaultPlan(), config, runtime) as fs:
        volume = of(fs)
        long, *short = [
            await create_upload(volume, "/f", lifetime=lifetime) for lifetime in (120, 60, 60, 60)
        ]
        for upload in (long, *short):
            await put_part(volume, upload.id, 1, b"data")
        assert await expire_uploads(volume) == 0
        clock.advance(61)
        assert await expire_uploads(volume) == 3
        assert await expire_uploads(volume) == 0
        for upload in short:
            with pytest.raises(UploadNotFoundError):
                await complete_upload(volume, upload.id)
        clock.advance(61)
        await complete_upload(volume, long.id)
        assert await upload_items(volume) == 0
        # Their data is left to garbage collection.
        assert len(await data_keys(volume)) == 4


async def test_data_that_cannot_be_deleted_is_reported(layout: LayoutName) -> None:
    faults, config = FaultPlan(), memory_config(layout=layout)
    await init_volume(config)
    async with faulty_client(faults, config) as fs:
        volume = of(fs)
        upload = await create_upload(volume, "/f")
        part = await put_part(volume, upload.id, 1, b"data")
        faults.refuse(volume.record.scope + part.content.physical, ServiceError("no"))
        with pytest.raises(PartialFailureError):
            await abort_upload(volume, upload.id)
        with pytest.raises(UploadNotFoundError):
            await put_part(volume, upload.id, 1, b"data")
        assert await list_uploads(volume) == []
        faults._refused.clear()
        await abort_upload(volume, upload.id)
        await nothing_is_left(fs)


async def test_what_a_completion_cannot_clean_up_is_no_failure(layout: LayoutName) -> None:
    faults, config = FaultPlan(), memory_config(layout=layout)
    await init_volume(config)
    async with faulty_client(faults, config) as fs:
        volume = of(fs)
        upload = await create_upload(volume, "/f")
        empty = await put_part(volume, upload.id, 1, b"")
        await put_part(volume, upload.id, 2, b"data")
        faults.refuse(volume.record.scope + empty.content.physical, ServiceError("no"))
        await complete_upload(volume, upload.id)
        assert await fs.read("/f") == b"data"
        with pytest.raises(UploadNotFoundError):
            await complete_upload(volume, upload.id)
        assert await upload_items(volume) > 0
        assert await expire_uploads(volume) == 1
        assert await upload_items(volume) == 0


async def test_invalid_arguments(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        volume = of(fs)
        with pytest.raises(IsDirectoryError):
            await create_upload(volume, "/")
        for lifetime in (0, -1, float("nan"), float("inf")):
            with pytest.raises(InvalidArgumentError):
                await create_upload(volume, "/f", lifetime=lifetime)
        upload = await create_upload(volume, "/f")
        wrong: Any
        for wrong in (-1, LARGEST_NUMBER + 1):
            with pytest.raises(InvalidArgumentError):
                await put_part(volume, upload.id, wrong, b"x")
        for wrong in ("1", 1.0, True, None):
            with pytest.raises(ArgumentTypeError):
                await put_part(volume, upload.id, wrong, b"x")
        wrong = "text"
        with pytest.raises(ArgumentTypeError):
            await put_part(volume, upload.id, 1, wrong)
        await put_part(volume, upload.id, LARGEST_NUMBER, b"last")
        await put_part(volume, upload.id, LARGEST_NUMBER - 1, b"first ")
        await complete_upload(volume, upload.id)
        assert await fs.read("/f") == b"first last"


async def test_a_damaged_record_is_an_error(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        volume = of(fs)
        changes: list[tuple[bool, dict[str, str | int]]] = [
            (True, {"state": "other"}),
            (True, {"expires": "soon"}),
            (True, {"file": 1}),
            (False, {"physpath": ""}),
            (False, {"size": -1}),
        ]
        for of_upload, change in changes:
            upload = await create_upload(volume, "/f")
            await put_part(volume, upload.id, 1, b"x")
            key = upload_key(upload.id) if of_upload else part_key(upload.id, 1)
            await volume.items.write(Update(key, Condition(), change))
            with pytest.raises(ItemFormatError, match="s3k fsck repair"):
                await complete_upload(volume, upload.id)


async def refuses_uploads(volume: Volume) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: create_upload(volume, "/f"),
        lambda: list_uploads(volume),
        lambda: put_part(volume, str(uuid4()), 1, b""),
        lambda: copy_part(volume, str(uuid4()), 1, "/f"),
        lambda: list_parts(volume, str(uuid4())),
        lambda: complete_upload(volume, str(uuid4())),
        lambda: abort_upload(volume, str(uuid4())),
        lambda: expire_uploads(volume),
    ]
    for call in calls:
        with pytest.raises(UnsupportedError, match="s3k migrate --enable uploads"):
            await call()


async def test_volumes_without_the_flag(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    config = memory_config(layout=layout)
    await init_volume(config, without=["extents"])
    features: tuple[Feature, ...] = ("extents", "uploads")
    for feature in features:
        async with S3kClient(config=config) as fs:
            await refuses_uploads(of(fs))
        assert await enable_features(config, [feature])
    volume = await open_volume(config)
    try:
        assert volume.record.uploads
        assert (await create_upload(volume, "/f")).is_open
    finally:
        await volume.close()


async def test_a_client_that_does_not_know_uploads_is_kept_out(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    monkeypatch.setattr(volume_record, "FLAGS", volume_record.FLAGS - {"uploads"})
    with pytest.raises(VolumeFormatError, match="needs features this version lacks: uploads"):
        await open_volume(config)


async def test_the_records_of_a_missing_upload(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        records = UploadRecords(of(fs).items, of(fs).store.runtime)
        assert not await records.end_if_over(str(uuid4()))
        assert not await records.end_if_over("no id")
        assert await records.get("no id") is None
