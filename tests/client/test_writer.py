"""Files open for writing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal

import anyio
import pytest

from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ConflictError,
    IsDirectoryError,
    LeaseExpiredError,
    NoSpaceError,
    NotDirectoryError,
    PathExistsError,
    StreamClosedError,
)
from s3k_async.files.open_files import FileWriter
from s3k_async.storage.physical import checksum_of
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config, paths
from tests.engines.volumes import volume_backends
from tests.support import FakeClock, fake_runtime

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded")

DATA = bytes(index % 251 for index in range(1000))


async def blobs_of(fs: S3kClient) -> set[str]:
    """Physical objects, whoever they belong to."""
    return {
        info.key
        async for info in list_all(fs._volume().blobs)
        if ".id=" in info.key and "/" not in info.key
    }


async def fail_inside(writer: FileWriter, data: bytes) -> None:
    async with writer:
        await writer.write(data)
        raise KeyError


async def write_much(fs: S3kClient) -> None:
    async with fs.open("/f", "wb") as writer:
        for _ in range(100):
            await writer.write(DATA)


@backends
@pytest.mark.parametrize("mode", ["wb", "xb"])
@pytest.mark.parametrize("size", [0, 10, 250, 251, 5000])
async def test_a_new_file_appears_when_it_is_closed(
    fs: S3kClient, mode: Literal["wb", "xb"], size: int
) -> None:
    data = (DATA * 5)[:size]
    async with fs.open("/new/dir/f", mode) as writer:
        for start in range(0, size, 37):
            assert await writer.write(memoryview(data)[start : start + 37]) == len(
                data[start : start + 37]
            )
        assert await writer.tell() == size
        reserved = await fs.stat("/new/dir/f")
        assert (reserved.committed, reserved.size, reserved.version) == (False, 0, 1)
        assert (writer.name, writer.closed) == ("/new/dir/f", False)
        assert (writer.readable(), writer.writable(), writer.seekable()) == (False, True, False)
    status = await fs.stat("/new/dir/f")
    assert (status.committed, status.size, status.version, status.id) == (
        True,
        size,
        2,
        reserved.id,
    )
    assert status.checksum == checksum_of(data)
    assert await fs.read("/new/dir/f") == data
    assert writer.closed


@backends
async def test_readers_see_the_old_bytes_until_close(fs: S3kClient) -> None:
    old = await fs.write("/f", b"old")
    async with fs.open("/f", "wb") as writer:
        await writer.write(DATA)
        assert await fs.read("/f") == b"old"
        assert await fs.stat("/f") == old
    assert await fs.read("/f") == DATA
    new = await fs.stat("/f")
    assert (new.id, new.version) == (old.id, old.version + 1)


@backends
async def test_commit_tells_what_was_published(fs: S3kClient) -> None:
    async with fs.open("/f", "wb") as writer:
        await writer.write(DATA)
        status = await writer.commit()
        assert status == await fs.stat("/f")
        assert await writer.commit() == status
        await writer.close()
        await writer.discard()
        with pytest.raises(StreamClosedError):
            await writer.write(b"late")
    await writer.close()
    assert await fs.stat("/f") == status


@backends
@pytest.mark.parametrize("size", [0, 10, 1000])
async def test_leaving_by_an_exception_publishes_nothing(fs: S3kClient, size: int) -> None:
    writer = await fs.open("/d/f", "wb")
    with pytest.raises(KeyError):
        await fail_inside(writer, DATA[:size])
    assert not await fs.exists("/d/f")
    assert await paths(fs, include_uncommitted=True) == {"/d"}
    assert await blobs_of(fs) == set()
    await writer.close()
    with pytest.raises(StreamClosedError):
        await writer.commit()
    assert not await fs.exists("/d/f")


@backends
async def test_leaving_by_an_exception_keeps_the_file_that_was_there(fs: S3kClient) -> None:
    old = await fs.write("/f", b"old")
    with pytest.raises(KeyError):
        await fail_inside(await fs.open("/f", "wb"), DATA)
    assert await fs.stat("/f") == old
    assert await fs.read("/f") == b"old"


@backends
async def test_discarding(fs: S3kClient) -> None:
    writer = await fs.open("/f", "wb")
    await writer.write(DATA)
    await writer.discard()
    await writer.discard()
    await writer.close()
    assert writer.closed
    assert not await fs.exists("/f")
    assert await blobs_of(fs) == set()


@backends
async def test_exclusive_creation(fs: S3kClient) -> None:
    await fs.write("/f", b"1")
    with pytest.raises(PathExistsError):
        await fs.open("/f", "xb")
    async with fs.open("/g", "xb"):
        with pytest.raises(PathExistsError):
            await fs.open("/g", "xb")
        with pytest.raises(PathExistsError):
            await fs.write("/g", b"", overwrite=False)
    with pytest.raises(PathExistsError):
        await fs.open("/g", "xb")


@backends
async def test_what_cannot_be_written_to(fs: S3kClient) -> None:
    await fs.write("/f", b"1")
    await fs.makedirs("/d")
    for mode in ("wb", "xb"):
        with pytest.raises(IsDirectoryError):
            await fs.open("/", mode)
        with pytest.raises(IsDirectoryError):
            await fs.open("/d", mode)
        with pytest.raises(NotDirectoryError):
            await fs.open("/f/below", mode)
    assert await paths(fs, include_uncommitted=True) == {"/f", "/d"}


@backends
async def test_of_two_writers_of_a_new_path_the_first_to_close_wins(fs: S3kClient) -> None:
    first = await fs.open("/f", "wb")
    second = await fs.open("/f", "wb")
    await first.write(b"first")
    await second.write(b"second")
    await second.close()
    with pytest.raises(ConflictError):
        await first.close()
    assert await fs.read("/f") == b"second"
    assert len(await blobs_of(fs)) == 1


@backends
async def test_discarding_beside_another_writers_reservation_leaves_that_alone(
    fs: S3kClient,
) -> None:
    first = await fs.open("/f", "wb")
    second = await fs.open("/f", "wb")
    await second.write(b"second")
    await second.discard()
    assert not (await fs.stat("/f")).committed
    await first.write(b"first")
    await first.close()
    assert await fs.read("/f") == b"first"


@backends
async def test_of_two_writers_of_a_file_the_second_to_close_is_told(fs: S3kClient) -> None:
    await fs.write("/f", b"old")
    first, second = await fs.open("/f", "wb"), await fs.open("/f", "wb")
    await first.write(b"first")
    await second.write(b"second")
    await first.close()
    with pytest.raises(ConflictError):
        await second.close()
    assert await fs.read("/f") == b"first"


@backends
async def test_a_file_deleted_under_its_writer_stays_deleted(fs: S3kClient) -> None:
    writer = await fs.open("/f", "wb")
    await writer.write(DATA)
    await fs.delete("/f")
    with pytest.raises(ConflictError):
        await writer.close()
    assert not await fs.exists("/f")
    assert await blobs_of(fs) == set()


async def test_a_failed_part_fails_the_file_and_removes_the_reservation() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        faults.fail_when(lambda call: call.method == "put_part", NoSpaceError("full"))
        with pytest.raises(NoSpaceError):
            await write_much(fs)
        assert await paths(fs, include_uncommitted=True) == set()
        assert await blobs_of(fs) == set()


async def test_publishing_later_than_the_lease_is_refused() -> None:
    clock = FakeClock()
    config = memory_config(replace(TUNING, lease=60.0))
    await init_volume(config)
    async with faulty_client(FaultPlan(), config, fake_runtime(clock)) as fs:
        writer = await fs.open("/f", "wb")
        await writer.write(DATA)
        clock.advance(61)
        with pytest.raises(LeaseExpiredError):
            await writer.close()
        with pytest.raises(LeaseExpiredError):
            await writer.close()
        assert not await fs.exists("/f")
        assert await blobs_of(fs) == set()


async def test_a_reservation_whose_writer_vanished_is_taken_over_after_its_lease() -> None:
    clock = FakeClock()
    config = memory_config(replace(TUNING, lease=60.0))
    await init_volume(config)
    async with faulty_client(FaultPlan(), config, fake_runtime(clock)) as fs:
        await fs.open("/f", "xb")
        with pytest.raises(PathExistsError):
            await fs.open("/f", "xb")
        clock.advance(61)
        async with fs.open("/f", "xb") as writer:
            await writer.write(b"mine")
        assert await fs.read("/f") == b"mine"


@pytest.mark.parametrize("method", ["start_upload", "put_part", "complete"])
@pytest.mark.parametrize("how", ["task", "scope", "timeout"])
async def test_cancellation_in_the_middle_of_an_upload_leaves_nothing(
    method: str, how: str
) -> None:
    reached = anyio.Event()

    async def gate(call: Call) -> None:
        if call.method == method and not reached.is_set():
            reached.set()
            await anyio.sleep_forever()

    async def work() -> None:
        async with fs.open("/f", "wb") as writer:
            for _ in range(10):
                await writer.write(DATA)

    async with faulty_client(FaultPlan(gate)) as fs:
        if how == "task":
            task = asyncio.create_task(work())
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "scope":
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                await reached.wait()
                tasks.cancel_scope.cancel()
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await work()
            reached.set()  # on a busy machine the time is up before
        assert await paths(fs, include_uncommitted=True) == set()
        assert await blobs_of(fs) == set()
        await fs.write("/f", DATA)
        assert await fs.read("/f") == DATA


async def test_cancellation_while_the_path_is_being_reserved_leaves_no_reservation() -> None:
    """Whichever call of opening the cancellation hits, the reservation is gone afterwards."""
    for number in range(1, 50):
        reached = anyio.Event()

        async def gate(call: Call, number: int = number, reached: anyio.Event = reached) -> None:
            if call.number == number:
                reached.set()
                await anyio.sleep(0.001)

        async def work() -> None:
            await fs.open("/f", "wb")

        faults = FaultPlan()
        async with faulty_client(faults) as fs:
            faults.gate = gate
            task = asyncio.create_task(work())
            waiter = asyncio.create_task(reached.wait())
            await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                waiter.cancel()
                break
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert await paths(fs, include_uncommitted=True) == set()
    assert number > 3


async def change(fs: S3kClient, verb: str, writer: FileWriter | None) -> None:
    if verb == "write":
        await fs.write("/new", DATA)
    elif verb == "rename":
        await fs.rename("/old", "/new")
    elif verb == "delete":
        await fs.delete("/old")
    elif verb == "makedirs":
        await fs.makedirs("/new/dir")
    elif writer is not None:
        await writer.close()


@pytest.mark.parametrize("verb", ["write", "close", "rename", "delete", "makedirs"])
async def test_a_change_that_is_cancelled_happened_or_did_not(verb: str) -> None:
    """Whichever call a cancellation hits, what is there afterwards is complete, and nothing is left
    in the log."""
    outcomes: set[bool] = set()
    number = 0
    while True:
        number += 1
        reached = anyio.Event()

        async def gate(call: Call, number: int = number, reached: anyio.Event = reached) -> None:
            if call.number == number:
                reached.set()
                await anyio.sleep(0.001)

        faults = FaultPlan()
        async with faulty_client(faults) as fs:
            await fs.write("/old", DATA)
            writer = await fs.open("/new", "wb") if verb == "close" else None
            if writer is not None:
                await writer.write(DATA)
            faults.calls.clear()
            faults.gate = gate
            task = asyncio.ensure_future(change(fs, verb, writer))
            waiter = asyncio.create_task(reached.wait())
            await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                waiter.cancel()
                break
            task.cancel()
            await asyncio.wait([task])
            faults.gate = None
            there = await paths(fs, include_uncommitted=True)
            done = {
                "write": {"/old", "/new"},
                "close": {"/old", "/new"},
                "rename": {"/new"},
                "delete": set(),
                "makedirs": {"/old", "/new", "/new/dir"},
            }[verb]
            assert there in (done, {"/old"})
            for path in there:
                status = await fs.stat(path)
                assert status.committed
                assert status.is_dir or await fs.read(path) == DATA
            outcomes.add(there == done)
    assert outcomes == {True, False}


@backends
async def test_many_writers_of_one_path_all_succeed_and_one_of_them_is_last(fs: S3kClient) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(fs.write, "/deep/down/f", bytes([number]) * 300)
    data = await fs.read("/deep/down/f")
    assert data == data[:1] * 300
    assert (await fs.stat("/deep/down/f")).version == 13


@backends
async def test_of_many_exclusive_creations_one_succeeds(config: VolumeConfig) -> None:
    outcomes: list[str] = []

    async def create(number: int) -> None:
        async with S3kClient(config=config) as fs:
            try:
                await fs.write("/f", bytes([number]) * 300, overwrite=False)
            except PathExistsError:
                outcomes.append("exists")
            else:
                outcomes.append("created")

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(create, number)
    assert sorted(outcomes) == ["created"] + ["exists"] * 11
    async with S3kClient(config=config) as fs:
        assert len(await blobs_of(fs)) == 1
