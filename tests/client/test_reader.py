"""Files open for reading."""

from __future__ import annotations

import asyncio
import gc
import io
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async.client import S3kClient
from s3k_async.config import Tuning
from s3k_async.errors import (
    ArgumentTypeError,
    CorruptDataError,
    DataMissingError,
    InvalidArgumentError,
    IsDirectoryError,
    PathNotFoundError,
    StreamClosedError,
    UnreachableError,
    UnsupportedError,
)
from s3k_async.files import open_files
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded")

DATA = bytes(index % 251 for index in range(1000))


@backends
async def test_reading_from_start_to_end(fs: S3kClient) -> None:
    await fs.write("/f", DATA)
    async with fs.open("/f") as reader:
        assert await reader.read(3) == DATA[:3]
        assert await reader.tell() == 3
        assert await reader.read(500) == DATA[3:503]
        assert await reader.read() == DATA[503:]
        assert await reader.read() == b""
        assert await reader.read(5) == b""
        assert (reader.size, reader.name, reader.mode) == (1000, "/f", "rb")
        assert (reader.readable(), reader.writable(), reader.seekable()) == (True, False, True)
        assert reader.status == await fs.stat("/f")


@backends
async def test_seeking(fs: S3kClient) -> None:
    await fs.write("/f", DATA)
    async with fs.open("/f") as reader:
        assert await reader.seek(-10, io.SEEK_END) == 990
        assert await reader.read() == DATA[990:]
        assert await reader.seek(5) == 5
        assert await reader.seek(5, io.SEEK_CUR) == 10
        assert await reader.read(2) == DATA[10:12]
        assert await reader.seek(2000) == 2000
        assert await reader.read() == b""
        with pytest.raises(InvalidArgumentError):
            await reader.seek(-1)
        with pytest.raises(ValueError, match="start"):
            await reader.seek(-3000, io.SEEK_CUR)
        with pytest.raises(InvalidArgumentError):
            await reader.seek(0, 7)
        assert await reader.tell() == 2000


@backends
async def test_other_ways_to_read(fs: S3kClient) -> None:
    await fs.write("/f", DATA)
    async with fs.open("/f") as reader:
        buffer = bytearray(300)
        assert await reader.readinto(buffer) == 300
        assert buffer == DATA[:300]
        assert await reader.read_at(900, 500) == DATA[900:]
        assert await reader.read_at(1000, 1) == b""
        assert await reader.read_at(7, 0) == b""
        assert await reader.tell() == 300
        with pytest.raises(InvalidArgumentError):
            await reader.read_at(-1, 5)
        chunks = [chunk async for chunk in reader]
        assert b"".join(chunks) == DATA[300:]
        assert {len(chunk) for chunk in chunks[:-1]} == {64}


@backends
async def test_a_file_without_bytes(fs: S3kClient) -> None:
    await fs.write("/empty", b"")
    assert await fs.read("/empty") == b""
    async with fs.open("/empty") as reader:
        assert await reader.read() == b""
        assert await reader.read_at(0, 10) == b""
        assert [chunk async for chunk in reader] == []
        assert await reader.seek(0, io.SEEK_END) == 0


@backends
async def test_a_reader_keeps_its_version_while_others_overwrite_and_delete(fs: S3kClient) -> None:
    await fs.write("/f", DATA)
    reader = await fs.open("/f")
    assert await reader.read(10) == DATA[:10]
    await fs.write("/f", b"new")
    assert await reader.read(400) == DATA[10:410]
    await fs.delete("/f")
    assert await reader.read() == DATA[410:]
    assert await reader.seek(0) == 0
    assert await reader.read() == DATA
    await reader.close()
    with pytest.raises(PathNotFoundError):
        await fs.open("/f")


@backends
async def test_a_closed_reader(fs: S3kClient) -> None:
    await fs.write("/f", DATA)
    reader = await fs.open("/f")
    await reader.close()
    await reader.close()
    assert reader.closed
    for call in (
        reader.read(),
        reader.seek(0),
        reader.tell(),
        reader.read_at(0, 1),
        reader.readinto(bytearray(1)),
    ):
        with pytest.raises(StreamClosedError):
            await call
    with pytest.raises(ValueError, match="closed"):
        await reader.read(0)


@backends
async def test_what_cannot_be_opened(fs: S3kClient) -> None:
    await fs.makedirs("/d")
    with pytest.raises(IsDirectoryError):
        await fs.open("/d")
    with pytest.raises(PathNotFoundError):
        await fs.open("/none")
    for mode in ("r+b", "rb+", "r", "rt", "w", "x", "a"):
        with pytest.raises(UnsupportedError):
            fs.open("/f", mode)
    for mode in ("", "q", "rw", "bb", "rbb", "b", "rb "):
        with pytest.raises(InvalidArgumentError):
            fs.open("/f", mode)
    with pytest.raises(ArgumentTypeError):
        fs.open("/f", 3)  # type: ignore[call-overload]


@backends
async def test_whole_files_and_ranges(fs: S3kClient) -> None:
    await fs.write("/f", DATA)
    assert await fs.read("/f") == DATA
    ranges = [(0, 10), (990, 2000), (5, 5), (100, 700), (1000, 1001), (3000, 4000)]
    assert await fs.read_ranges("/f", ranges) == [DATA[start:end] for start, end in ranges]
    assert await fs.read_ranges("/f", []) == []
    for bad in ((-1, 3), (5, 4)):
        with pytest.raises(InvalidArgumentError):
            await fs.read_ranges("/f", [(0, 1), bad])
    await fs.makedirs("/d")
    with pytest.raises(IsDirectoryError):
        await fs.read("/d")


@backends
async def test_missing_bytes(fs: S3kClient) -> None:
    await fs.write("/f", DATA)
    reader = await fs.open("/f")
    storage = fs._volume().storage
    await storage.delete((await fs.stat("/f")).physical or "")
    for call in (
        fs.read("/f"),
        fs.read_ranges("/f", [(0, 1)]),
        reader.read(10),
        reader.read_at(900, 5),
    ):
        with pytest.raises(DataMissingError) as raised:
            await call
        assert raised.value.path == "/f"
        assert "gone" in str(raised.value)


@backends
@pytest.mark.parametrize("damage", [DATA[:-1], DATA[:-1] + b"?", b""])
async def test_damaged_bytes(fs: S3kClient, damage: bytes) -> None:
    await fs.write("/f", DATA)
    await fs._volume().blobs.put((await fs.stat("/f")).physical or "", damage)
    with pytest.raises(CorruptDataError) as raised:
        await fs.read("/f")
    assert raised.value.path == "/f"
    if len(damage) != len(DATA):
        reader = await fs.open("/f")
        with pytest.raises(CorruptDataError):
            await reader.read()


async def test_a_version_that_is_collected_while_it_is_read_is_looked_up_again() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fs.write("/f", DATA)
        old = (await fs.stat("/f")).physical or ""

        async def replace_under_the_reader(call: object) -> None:
            if (
                getattr(call, "method", "") == "get"
                and getattr(call, "key", "") == fs._volume().record.scope + old
            ):
                faults.gate = None
                await fs.write("/f", DATA[::-1])
                await fs._volume().storage.delete(old)

        faults.gate = replace_under_the_reader
        assert await fs.read("/f") == DATA[::-1]


async def test_small_reads_do_not_each_make_a_request() -> None:
    config = memory_config(Tuning(read_ahead=400, part_size=1000, multipart_threshold=10_000))
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA)
        faults.calls.clear()
        async with fs.open("/f") as reader:
            pieces = []
            while piece := await reader.read(7):
                pieces.append(piece)
        assert b"".join(pieces) == DATA
        gets = [call for call in faults.calls if call.store == "blobs"]
        assert len(gets) == 3


async def test_reads_all_over_the_place_fetch_only_what_they_need() -> None:
    config = memory_config(Tuning(read_ahead=500))
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA * 10)
        async with fs.open("/f") as reader:
            await reader.seek(5000)
            assert await reader.read(10) == (DATA * 10)[5000:5010]
            assert len(reader._window) == 10
            assert await reader.read(10) == (DATA * 10)[5010:5020]
            assert len(reader._window) == 500


async def test_a_sequential_reader_finds_the_next_blocks_under_way() -> None:
    config = memory_config(Tuning(read_ahead=100))
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA)
        async with fs.open("/f") as reader:
            assert await reader.read(100) == DATA[:100]
            assert await reader.read(100) == DATA[100:200]
            asked = len(faults.calls)
            await anyio.wait_all_tasks_blocked()
            assert len(faults.calls) == asked, "they were asked for together with what was needed"
            assert await reader.read(200) == DATA[200:400]
            assert await reader.read() == DATA[400:]
        gets = [call for call in faults.calls if call.store == "blobs" and call.method == "get"]
        assert len(gets) == 7, "four of 100 bytes, three of 200: nothing is fetched twice"


async def test_a_reader_of_long_pieces_is_handed_blocks_as_long_as_they_are() -> None:
    """Shorter ones would have to be put together, which costs as much as fetching them."""
    config = memory_config(Tuning(read_ahead=100, part_size=1000))
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA)
        async with fs.open("/f") as reader:
            assert await reader.read(200) == DATA[:200]
            assert await reader.read(200) == DATA[200:400]
            assert [block.end for block in reader._ahead._blocks] == [600, 800]
            assert await reader.read(200) == DATA[400:600]
            assert await reader.read() == DATA[600:]
        gets = [call for call in faults.calls if call.store == "blobs" and call.method == "get"]
        assert len(gets) == len(DATA) // 200


async def block_sizes(tuning: Tuning, size: int, *reads: tuple[int, int]) -> list[int]:
    """The bytes of each request for a file of this size that is read in pieces: how many pieces of
    how many bytes; with a negative number, the position to seek."""
    config = memory_config(tuning)
    await init_volume(config)
    data = bytes(index % 251 for index in range(size))
    sizes: list[int] = []
    async with S3kClient(config=config) as fs:
        await fs.write("/f", data)
        storage = fs._volume().storage
        read, read_into = storage.read, storage.read_into

        async def noted(
            physical: str, start: int = 0, end: int | None = None, **more: Any
        ) -> bytes:
            found = await read(physical, start, end, **more)
            sizes.append(len(found))
            return found

        async def noted_into(physical: str, start: int, buffer: memoryview, **more: Any) -> int:
            sizes.append(await read_into(physical, start, buffer, **more))
            return sizes[-1]

        storage.read_into = noted_into  # type: ignore[method-assign]
        storage.read = noted  # type: ignore[method-assign]
        async with fs.open("/f") as reader:
            for count, length in reads:
                if count < 0:
                    await reader.seek(length)
                for _ in range(count):
                    place = await reader.tell()
                    assert await reader.read(length) == data[place : place + length]
            await anyio.wait_all_tasks_blocked()
    return sizes


async def test_the_blocks_of_a_reader_of_long_pieces_grow() -> None:
    tuning = Tuning(part_size=100, read_ahead=50)
    sizes = await block_sizes(tuning, 4000, (40, 100))
    assert sizes == [100] * 6 + [200] * 17


async def test_the_blocks_of_a_reader_of_short_pieces_are_those_of_the_setting() -> None:
    tuning = Tuning(part_size=100, read_ahead=50)
    assert await block_sizes(tuning, 4000, (400, 10)) == [50] * 80


async def test_blocks_are_whole_whatever_the_length_of_the_reads() -> None:
    tuning = Tuning(part_size=100, read_ahead=50)
    assert await block_sizes(tuning, 1010, (40, 30)) == [50] * 20 + [10]


@pytest.mark.parametrize(("size", "requests"), [(310, 31), (320, 16), (330, 17)])
async def test_a_long_span_takes_longer_requests(size: int, requests: int) -> None:
    config = memory_config(Tuning(part_size=10))
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA[:size])
        faults.calls.clear()
        assert await fs.read("/f") == DATA[:size]
        gets = [call for call in faults.calls if call.store == "blobs" and call.method == "get"]
        assert len(gets) == requests


@pytest.mark.parametrize("is_into", [False, True])
async def test_the_buffers_of_blocks_are_used_again(is_into: bool) -> None:
    """The system clears each page of fresh memory."""
    config = memory_config(Tuning(part_size=100, read_ahead=50))
    await init_volume(config)
    data = bytes(index % 251 for index in range(10_000))
    buffers: dict[int, object] = {}
    async with S3kClient(config=config) as fs:
        await fs.write("/f", data)
        storage = fs._volume().storage
        read_into = storage.read_into

        async def noted(physical: str, start: int, buffer: memoryview, **more: Any) -> int:
            assert isinstance(buffer.obj, bytearray)
            buffers[id(buffer.obj)] = buffer.obj
            return await read_into(physical, start, buffer, **more)

        storage.read_into = noted  # type: ignore[method-assign]
        pieces: list[bytes] = []
        async with fs.open("/f") as reader:
            target = bytearray(80)
            while len(pieces) < 125:
                if is_into:
                    assert await reader.readinto(target) == 80
                    pieces.append(bytes(target))
                else:
                    pieces.append(await reader.read(80))
        assert b"".join(pieces) == data
    # Of both sizes of blocks those under way and that of the reader, and the last one.
    assert len(buffers) <= 9


@settings(max_examples=40, deadline=None)
@example(damaged=5, reads=[(False, 1), (False, 100)], long=1)
@example(damaged=5, reads=[(False, 70), (False, 20)], long=40)
@example(damaged=5, reads=[(True, 70), (True, 60)], long=40)
@example(damaged=999, reads=[(False, 80)], long=40)
@example(damaged=5, reads=[(False, 70), (True, 20)], long=40)
@given(
    damaged=st.integers(0, 999),
    reads=st.lists(st.tuples(st.booleans(), st.integers(1, 300)), min_size=1, max_size=30),
    long=st.sampled_from([1, 40, 10_000]),
)
def test_a_file_that_is_read_in_order_is_verified_whatever_the_reads(
    damaged: int, reads: list[tuple[bool, int]], long: int
) -> None:
    damage = bytearray(DATA)
    damage[damaged] ^= 1

    async def pieces(fs: S3kClient) -> AsyncIterator[bytes]:
        async with fs.open("/f") as reader:
            while await reader.tell() < len(DATA):
                for is_into, length in reads:
                    if is_into:
                        target = bytearray(length)
                        size = await reader.readinto(target)
                        yield bytes(target[:size])
                    else:
                        yield await reader.read(length)

    async def check() -> None:
        # The entity tag of the damaged object is another one.
        tuning = Tuning(part_size=100, read_ahead=50, change_detection="none")
        config = memory_config(tuning)
        await init_volume(config)
        async with S3kClient(config=config) as fs:
            await fs.write("/f", DATA)
            assert b"".join([piece async for piece in pieces(fs)]) == DATA
            await fs._volume().blobs.put((await fs.stat("/f")).physical or "", bytes(damage))
            with pytest.raises(CorruptDataError):
                async for _ in pieces(fs):
                    pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_files, "FIRST_WINDOW", 10)
        patch.setattr(open_files, "LONG", long)
        asyncio.run(check())


async def test_a_seek_to_the_start_begins_with_a_small_window_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_files, "FIRST_WINDOW", 10)
    tuning = Tuning(part_size=100, read_ahead=50)
    begun = await block_sizes(tuning, 1000, (3, 5))
    assert begun == [10, 20]
    sizes = await block_sizes(tuning, 1000, (40, 5), (-1, 0), (3, 5))
    assert sizes[-2:] == begun


async def test_a_reader_that_is_closed_lets_go_of_what_it_reads_ahead() -> None:
    config = memory_config(Tuning(read_ahead=100))
    await init_volume(config)
    faults = FaultPlan()
    begun, ended = 0, 0

    async def hold(call: Call) -> None:
        nonlocal begun, ended
        if call.method == "get" and call.store == "blobs" and len(faults.calls) > first + 2:
            begun += 1
            try:
                await anyio.sleep_forever()
            finally:
                ended += 1

    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA)
        async with fs.open("/f") as reader:
            first = len(faults.calls)
            faults.gate = hold
            assert await reader.read(100) == DATA[:100]
            assert await reader.read(100) == DATA[100:200]
            await anyio.wait_all_tasks_blocked()
            assert begun == 2
        await anyio.wait_all_tasks_blocked()
        assert ended == 2


async def test_a_block_that_failed_before_anybody_needed_it_is_fetched_again() -> None:
    """The network was away for a moment while the reader did something else; now it is there."""
    config = memory_config(Tuning(read_ahead=100, retry=Retries.alike(RetryPolicy(attempts=1))))
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA)
        async with fs.open("/f") as reader:
            faults.fail(len(faults.calls) + 4, UnreachableError("the cable", path="data"))
            assert await reader.read(100) == DATA[:100]
            assert await reader.read(100) == DATA[100:200]
            await anyio.wait_all_tasks_blocked()
            assert await reader.read(100) == DATA[200:300]
            assert await reader.read() == DATA[300:]


async def test_a_block_that_fails_fails_the_read_that_needs_it_and_no_other() -> None:
    config = memory_config(Tuning(read_ahead=100, retry=Retries.alike(RetryPolicy(attempts=1))))
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA)
        async with fs.open("/f") as reader:
            first = len(faults.calls)
            faults.fail(first + 3, UnreachableError("the cable", path="data"))
            faults.fail(first + 5, UnreachableError("the cable", path="data"))
            assert await reader.read(100) == DATA[:100]
            assert await reader.read(100) == DATA[100:200]
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(UnreachableError):
                await reader.read(100)
            assert await reader.tell() == 200
            assert await reader.read() == DATA[200:], "and it can be read again"


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(-1, 400), st.just(0)),
            st.tuples(st.just("readinto"), st.integers(0, 400), st.just(0)),
            st.tuples(st.just("seek"), st.integers(-300, 1200), st.integers(0, 2)),
        ),
        max_size=25,
    ),
    read_ahead=st.integers(0, 300),
)
@settings(max_examples=80, deadline=None)
async def test_reading_is_as_from_bytes_in_memory(
    steps: list[tuple[str, int, int]], read_ahead: int
) -> None:
    config = memory_config(Tuning(read_ahead=read_ahead, part_size=70))
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/f", DATA)
        oracle = io.BytesIO(DATA)
        async with fs.open("/f") as reader:
            for verb, number, whence in steps:
                if verb == "read":
                    assert await reader.read(number) == oracle.read(number)
                    continue
                if verb == "readinto":
                    buffer, expected = bytearray(number), bytearray(number)
                    assert await reader.readinto(buffer) == oracle.readinto(expected)
                    assert buffer == expected
                    continue
                base = (0, oracle.tell(), len(DATA))[whence]
                if base + number < 0:
                    with pytest.raises(InvalidArgumentError):
                        await reader.seek(number, whence)
                else:
                    assert await reader.seek(number, whence) == oracle.seek(number, whence)
                assert await reader.tell() == oracle.tell()


@contextmanager
def bytes_held_at_once() -> Iterator[list[int]]:
    """The most bytes that the body allocates, as the first element afterwards."""
    found: list[int] = []
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield found
        found.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()


@asynccontextmanager
async def large_file(size: int) -> AsyncIterator[S3kClient]:
    config = memory_config(Tuning(part_size=2**20, read_ahead=2**19))
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/f", bytes(range(256)) * (size // 256))
        yield fs


async def test_a_long_file_is_held_once() -> None:
    size = 16 * 2**20
    async with large_file(size) as fs:
        with bytes_held_at_once() as held:
            data = await fs.read("/f")
        assert data == bytes(range(256)) * (size // 256)
        assert size <= held[0] < size + 2**20
        with bytes_held_at_once() as held:
            async with fs.open("/f") as reader:
                data = await reader.read()
        assert data == bytes(range(256)) * (size // 256)
        assert held[0] < size + 2**20


async def test_a_buffer_of_the_caller_is_filled_without_another() -> None:
    size = 16 * 2**20
    async with large_file(size) as fs:
        buffer = bytearray(size)
        with bytes_held_at_once() as held:
            async with fs.open("/f") as reader:
                assert await reader.readinto(buffer) == size
        assert buffer == bytes(range(256)) * (size // 256)
        assert held[0] < 2**20
        with bytes_held_at_once() as held:
            async with fs.open("/f") as reader:
                await reader.seek(5)
                assert await reader.readinto(memoryview(buffer)[: 2**20]) == 2**20
        assert buffer[: 2**20] == (bytes(range(256)) * (size // 256))[5 : 2**20 + 5]
        assert held[0] < 2**18


async def test_ranges_that_arrive_in_another_order_are_verified() -> None:
    """The first of ten ranges comes last of the four that are requested together."""
    config = memory_config(Tuning(part_size=100))
    await init_volume(config)
    faults = FaultPlan()
    others = 0
    released = anyio.Event()

    async def hold_the_first(call: Call) -> None:
        nonlocal others
        if call.method == "get" and call.store == "blobs":
            others += 1
            if others == 1:
                await released.wait()
            elif others == 4:
                released.set()

    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA)
        faults.gate = hold_the_first
        assert await fs.read("/f") == DATA
        physical = (await fs.stat("/f")).physical or ""
        for damaged in (b"?" + DATA[1:], DATA[:-1] + b"?"):
            await fs._volume().blobs.put(physical, damaged)
            others, released = 0, anyio.Event()
            with pytest.raises(CorruptDataError):
                await fs.read("/f")
            buffer = bytearray(len(DATA))
            async with fs.open("/f") as reader:
                with pytest.raises(CorruptDataError):
                    await reader.readinto(buffer)


async def test_bytes_of_a_read_that_failed_are_not_verified_in_place_of_those_returned() -> None:
    config = memory_config(Tuning(part_size=100, retry=Retries.alike(RetryPolicy(attempts=1))))
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA)
        async with fs.open("/f") as reader:
            faults.fail(len(faults.calls) + 8, UnreachableError("the cable", path="data"))
            buffer = bytearray(len(DATA))
            with pytest.raises(UnreachableError):
                await reader.readinto(buffer)
            assert buffer[:100] == DATA[:100]
            assert await reader.tell() == 0
            await fs._volume().blobs.put(reader.status.physical or "", b"?" + DATA[1:])
            with pytest.raises(CorruptDataError):
                await reader.readinto(buffer)


async def test_a_cancelled_read_into_a_buffer_leaves_no_task() -> None:
    config = memory_config(Tuning(part_size=100))
    await init_volume(config)
    faults = FaultPlan()

    async def hold(call: Call) -> None:
        if call.method == "get" and call.store == "blobs":
            await anyio.sleep_forever()

    async with faulty_client(faults, config) as fs:
        await fs.write("/f", DATA)
        async with fs.open("/f") as reader:
            before = asyncio.all_tasks()
            faults.gate = hold
            buffer = bytearray(len(DATA))
            task = asyncio.create_task(reader.readinto(buffer))
            await anyio.wait_all_tasks_blocked()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == before
            faults.gate = None
            assert buffer == bytes(len(DATA))
            buffer += b"?"  # no view is left
            assert await reader.readinto(buffer) == len(DATA)
            assert buffer == DATA + b"?"
