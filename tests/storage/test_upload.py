"""Bytes on their way into one blob."""

from __future__ import annotations

import asyncio

import anyio
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from s3k_async.backends.ports.blobs import BlobInfo, Buffer, Upload
from s3k_async.config import Tuning
from s3k_async.errors import NoSpaceError, ServiceError, StreamClosedError, UnreachableError
from s3k_async.storage.pending_bytes import KEPT
from s3k_async.testing import Call
from tests.storage.rig import OBJECT, TUNING, StorageRig


def checksum(data: bytes) -> str:
    return "xxh128:" + xxhash.xxh3_128_hexdigest(data)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 249, 250, 251, 300, 301, 1000])
async def test_every_size_arrives_with_its_size_and_checksum(size: int) -> None:
    rig = await StorageRig().start()
    data = bytes(index % 251 for index in range(size))
    content = await rig.storage.put(OBJECT, data)
    assert content.size == size
    assert content.checksum == checksum(data)
    assert content.physical.endswith(f".id={OBJECT}")
    assert await rig.storage.read(content.physical) == data
    assert rig.count("start_upload") == (1 if size > TUNING.multipart_threshold else 0)


@given(
    pieces=st.lists(st.binary(max_size=400), max_size=12),
    part=st.integers(1, 300),
    threshold=st.integers(0, 500),
)
@settings(max_examples=60, deadline=None)
def test_however_it_is_cut_the_content_is_the_same(
    pieces: list[bytes], part: int, threshold: int
) -> None:
    async def write() -> tuple[str, bytes]:
        rig = await StorageRig(Tuning(part_size=part, multipart_threshold=threshold)).start()
        writer = rig.storage.writer(OBJECT)
        for piece in pieces:
            await writer.write(memoryview(bytearray(piece)))
        content = await writer.finish()
        assert content.size == len(whole)
        assert await rig.keys() == [content.physical]
        return content.checksum, await rig.storage.read(content.physical)

    whole = b"".join(pieces)
    assert asyncio.run(write()) == (checksum(whole), whole)


async def test_a_buffer_may_be_reused_after_write() -> None:
    rig = await StorageRig().start()
    writer = rig.storage.writer(OBJECT)
    buffer = bytearray(70)
    for value in range(20):
        buffer[:] = bytes([value]) * 70
        await writer.write(buffer)
    content = await writer.finish()
    assert await rig.storage.read(content.physical) == b"".join(
        bytes([value]) * 70 for value in range(20)
    )


async def test_a_large_buffer_may_be_reused_while_its_parts_are_on_their_way() -> None:
    held = anyio.Event()

    async def gate(call: Call) -> None:
        if call.method == "put_part":
            await held.wait()

    rig = await StorageRig(gate=gate).start()
    writer = rig.storage.writer(OBJECT)
    buffer = bytearray(b"x" * 310)
    await writer.write(buffer)
    buffer[:] = b"?" * 310
    held.set()
    content = await writer.finish()
    assert await rig.storage.read(content.physical) == b"x" * 310


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize(
    ("size", "parts"), [(200, [200]), (300, [300]), (301, [300, 1]), (600, [300, 300])]
)
async def test_no_part_is_empty(kind: type, size: int, parts: list[int]) -> None:
    """Also where parts are larger than the threshold above which there are any."""
    rig = await StorageRig(Tuning(part_size=300, multipart_threshold=100)).start()
    sent: dict[int, int] = {}
    start = rig.blobs.start_upload

    async def noted_start(key: str) -> Upload:
        upload = await start(key)
        put_part = upload.put_part

        async def noted_part(number: int, data: Buffer) -> None:
            sent[number] = len(data)
            await put_part(number, data)

        upload.put_part = noted_part  # type: ignore[method-assign]
        return upload

    rig.blobs.start_upload = noted_start  # type: ignore[method-assign]
    await rig.storage.put(OBJECT, kind(size))
    assert [sent[number] for number in sorted(sent)] == parts


async def test_bytes_that_cannot_change_are_sent_without_a_copy() -> None:
    rig = await StorageRig().start()
    sent: list[object] = []
    put, start = rig.blobs.put, rig.blobs.start_upload

    async def noted_put(key: str, data: Buffer) -> BlobInfo:
        sent.append(data)
        return await put(key, data)

    async def noted_start(key: str) -> Upload:
        upload = await start(key)
        put_part = upload.put_part

        async def noted_part(number: int, data: Buffer) -> None:
            sent.append(data.obj if isinstance(data, memoryview) else data)
            await put_part(number, data)

        upload.put_part = noted_part  # type: ignore[method-assign]
        return upload

    rig.blobs.put, rig.blobs.start_upload = noted_put, noted_start  # type: ignore[method-assign, assignment]
    small, large = b"s" * 200, b"l" * 1000
    await rig.storage.put(OBJECT, small)
    assert sent.pop() is small
    await rig.storage.put(OBJECT, memoryview(large))
    assert len(sent) == 10
    assert all(part is large for part in sent[:-1])


async def test_pieces_of_the_length_of_a_part_are_sent_without_a_copy() -> None:
    part = 2 * KEPT
    rig = await StorageRig(Tuning(part_size=part, multipart_threshold=2 * part)).start()
    sent: list[object] = []
    start = rig.blobs.start_upload

    async def noted_start(key: str) -> Upload:
        upload = await start(key)
        put_part = upload.put_part

        async def noted_part(number: int, data: Buffer) -> None:
            sent.append(data)
            await put_part(number, data)

        upload.put_part = noted_part  # type: ignore[method-assign]
        return upload

    rig.blobs.start_upload = noted_start  # type: ignore[method-assign]
    writer = rig.storage.writer(OBJECT)
    pieces = [bytes([number]) * part for number in range(6)]
    for piece in pieces:
        await writer.write(piece)
    content = await writer.finish()
    assert [id(each) for each in sent] == [id(piece) for piece in pieces]
    assert content.checksum == checksum(b"".join(pieces))
    assert await rig.storage.read(content.physical) == b"".join(pieces)


async def test_nothing_is_visible_before_finish() -> None:
    rig = await StorageRig().start()
    writer = rig.storage.writer(OBJECT)
    await writer.write(b"x" * 1000)
    assert await rig.keys() == []
    await writer.finish()
    assert await rig.keys() == [writer.physical]


async def test_finish_may_be_called_again_and_abort_then_changes_nothing() -> None:
    rig = await StorageRig().start()
    writer = rig.storage.writer(OBJECT)
    await writer.write(b"x" * 1000)
    content = await writer.finish()
    await writer.abort()
    assert await writer.finish() == content
    assert await rig.storage.read(content.physical) == b"x" * 1000
    with pytest.raises(StreamClosedError):
        await writer.write(b"more")


async def test_parts_in_flight_are_bounded_for_all_uploads_together() -> None:
    inside = most = 0

    async def gate(call: Call) -> None:
        nonlocal inside, most
        if call.method == "put_part":
            inside += 1
            most = max(most, inside)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            inside -= 1

    rig = await StorageRig(gate=gate).start()
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(rig.storage.put, OBJECT, b"x" * 2000)
    assert most == TUNING.max_concurrency
    assert len(await rig.keys()) == 4


async def test_a_part_that_fails_for_good_aborts_the_upload() -> None:
    rig = await StorageRig().start()
    rig.faults.fail_when(lambda call: call.method == "put_part", NoSpaceError("full"))
    with pytest.raises(NoSpaceError):
        await rig.storage.put(OBJECT, b"x" * 1000)
    assert rig.count("abort") == 1
    assert rig.count("complete") == 0
    assert await rig.keys() == []


async def test_a_part_that_fails_for_a_while_is_sent_again() -> None:
    rig = await StorageRig().start()
    rig.faults.fail_when(lambda call: call.method == "put_part", UnreachableError("away"), times=2)
    content = await rig.storage.put(OBJECT, b"x" * 1000)
    assert await rig.storage.read(content.physical) == b"x" * 1000


async def test_a_writer_that_failed_stays_failed() -> None:
    rig = await StorageRig().start()
    failure = ServiceError("no")
    rig.faults.fail_when(lambda call: call.method == "complete", failure)
    writer = rig.storage.writer(OBJECT)
    await writer.write(b"x" * 1000)
    for _ in range(2):
        with pytest.raises(ServiceError) as raised:
            await writer.finish()
        assert raised.value is failure
    assert rig.count("complete") == 1
    assert rig.count("abort") == 1


async def test_abort_drops_the_parts_under_way() -> None:
    rig = await StorageRig().start()
    writer = rig.storage.writer(OBJECT)
    await writer.write(b"x" * 1000)
    await writer.abort()
    await writer.abort()
    assert rig.count("abort") == 1
    assert await rig.keys() == []
    with pytest.raises(StreamClosedError):
        await writer.finish()


async def test_an_abort_that_fails_does_not_hide_the_reason() -> None:
    rig = await StorageRig().start()
    rig.faults.fail_when(lambda call: call.method == "put_part", NoSpaceError("full"))
    rig.faults.fail_when(lambda call: call.method == "abort", ServiceError("no"), times=9)
    with pytest.raises(NoSpaceError):
        await rig.storage.put(OBJECT, b"x" * 1000)


@pytest.mark.parametrize("method", ["start_upload", "put_part", "complete", "put"])
@pytest.mark.parametrize("how", ["task", "task, repeatedly", "scope"])
async def test_cancellation_aborts_the_upload(method: str, how: str) -> None:
    reached = anyio.Event()

    async def gate(call: Call) -> None:
        if call.method == method and not reached.is_set():
            reached.set()
            await anyio.sleep_forever()

    rig = await StorageRig(gate=gate).start()
    data = b"x" * (100 if method == "put" else 1000)
    if how != "scope":
        task = asyncio.create_task(rig.storage.put(OBJECT, data))
        await reached.wait()
        task.cancel()
        while how == "task, repeatedly" and not task.done():
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.storage.put, OBJECT, data)
            await reached.wait()
            tasks.cancel_scope.cancel()
    assert await rig.keys() == []
    assert rig.count("abort") == (1 if method in {"put_part", "complete"} else 0)
    assert [each async for each in rig.storage.blobs.list_uploads()] == []
    # Every slot is free again.
    await rig.storage.put(OBJECT, b"y" * 5000)


async def test_the_part_size_grows_so_that_ten_thousand_parts_are_enough() -> None:
    rig = await StorageRig(Tuning(part_size=1, multipart_threshold=0)).start()
    writer = rig.storage.writer(OBJECT)
    for _ in range(5):
        await writer.write(bytes(1000))
    content = await writer.finish()
    assert content.size == 5000
    assert rig.count("put_part") == 1000 + 1000 + 500
