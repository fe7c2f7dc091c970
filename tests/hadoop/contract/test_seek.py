"""Hadoop's contract of seeking and positioned reads."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from s3k_async.adapters.hadoop.streams import END, HadoopInputStream
from s3k_async.errors import EndOfFileError, InvalidArgumentError, StreamClosedError
from tests.hadoop.ground import Ground, dataset

pytestmark = pytest.mark.asyncio(loop_scope="session")

SMALL = dataset(256, 0, 255)


@asynccontextmanager
async def opened(ground: Ground, data: bytes) -> AsyncIterator[HadoopInputStream]:
    await ground.write(ground.path("file"), data)
    async with await ground.fs.open(ground.path("file")) as stream:
        yield stream


async def test_seek_zero_byte_file(ground: Ground) -> None:
    async with opened(ground, b"") as stream:
        assert await stream.get_pos() == 0
        assert await stream.read() == END
        await stream.seek(0)
        assert await stream.read() == END
        assert await stream.get_pos() == 0


async def test_block_read_zero_byte_file(ground: Ground) -> None:
    async with opened(ground, b"") as stream:
        assert await stream.read_into(bytearray(1)) == END


async def test_seek_read_closed_file(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        await stream.close()
        with pytest.raises(StreamClosedError) as raised:
            await stream.seek(0)
        assert isinstance(raised.value, OSError)
        for call in (
            stream.available,
            stream.read,
            stream.get_pos,
            lambda: stream.read_into(bytearray(1)),
            lambda: stream.read_at(0, bytearray(1)),
            lambda: stream.read_fully(0, bytearray(1)),
            lambda: stream.seek_to_new_source(0),
        ):
            with pytest.raises(StreamClosedError):
                await call()
        await stream.close()


async def test_negative_seek(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        await stream.seek(7)
        with pytest.raises(EndOfFileError) as raised:
            await stream.seek(-1)
        assert isinstance(raised.value, EOFError)
        assert isinstance(raised.value, OSError)
        assert await stream.get_pos() == 7
        assert await stream.read() == 7


async def test_seek_file(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        assert await stream.get_pos() == 0
        assert await stream.read() == SMALL[0]
        assert await stream.get_pos() == 1
        await stream.seek(63)
        assert await stream.get_pos() == 63
        assert await stream.read() == SMALL[63]
        assert await stream.get_pos() == 64


async def test_seek_and_read_past_end_of_file(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        assert await stream.get_pos() == 0
        await stream.seek(len(SMALL) - 2)
        assert await stream.read() == SMALL[-2]
        assert await stream.read() == SMALL[-1]
        assert await stream.read() == END
        assert await stream.get_pos() == len(SMALL)


async def test_seek_past_end_of_file_then_reseek_and_read(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        with pytest.raises(EndOfFileError):
            await stream.seek(len(SMALL) + 1)
        assert await stream.get_pos() == 0
        await stream.seek(len(SMALL))
        assert await stream.read() == END
        await stream.seek(1)
        assert await stream.read() == SMALL[1]


async def test_seek_big_file(ground: Ground) -> None:
    block = dataset(100 * 1024, 0, 255)
    async with opened(ground, block) as stream:
        assert await stream.read() == block[0]
        for position in (40 * 1024, 8192, 99 * 1024, 256):
            await stream.seek(position)
            assert await stream.read() == block[position]
            buffer = bytearray(256)
            await stream.read_fully(position, buffer)
            assert bytes(buffer) == block[position : position + 256]
            assert await stream.get_pos() == position + 1
        await stream.seek(len(block) - 1)
        assert await stream.read() == block[-1]


async def test_positioned_bulk_read_doesnt_change_position(ground: Ground) -> None:
    block = dataset(65 * 1024, 0, 255)
    async with opened(ground, block) as stream:
        await stream.seek(39999)
        assert await stream.read() == block[39999]
        buffer = bytearray(256)
        assert await stream.read_at(128, buffer) == 256
        assert await stream.get_pos() == 40000
        assert bytes(buffer) == block[128:384]
        assert await stream.read() == block[40000]
        assert await stream.read_at(len(block) - 3, buffer) == 3
        assert await stream.get_pos() == 40001


async def test_random_seeks(ground: Ground) -> None:
    generator = random.Random(1)
    block = dataset(10 * 1024, 0, 255)
    async with opened(ground, block) as stream:
        for _ in range(100):
            position = generator.randrange(len(block))
            length = generator.randrange(len(block) - position)
            buffer = bytearray(length)
            await stream.read_fully(position, buffer, 0, length)
            assert bytes(buffer) == block[position : position + length]
            await stream.seek(position)
            assert await stream.read() == block[position]


async def test_read_fully_zero_byte_file(ground: Ground) -> None:
    async with opened(ground, b"") as stream:
        assert await stream.get_pos() == 0
        await stream.read_fully(0, bytearray(10), 0, 0)
        await stream.read_fully(0, bytearray(0))
        assert await stream.get_pos() == 0


async def test_read_fully_past_eof_zero_byte_file(ground: Ground) -> None:
    async with opened(ground, b"") as stream:
        with pytest.raises(EndOfFileError):
            await stream.read_fully(0, bytearray(10), 0, 1)


async def test_read_fully_small_file(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        buffer = bytearray(256)
        with pytest.raises(InvalidArgumentError):
            await stream.read_fully(0, buffer, 0, -16)
        with pytest.raises(EndOfFileError):
            await stream.read_fully(-1, bytearray(0))
        with pytest.raises(IndexError):
            await stream.read_fully(0, buffer, 0, 257)
        with pytest.raises(IndexError):
            await stream.read_fully(0, buffer, 1, 256)
        with pytest.raises(IndexError):
            await stream.read_fully(0, buffer, -2, 1)
        assert bytes(buffer) == bytes(256), "a refused read must not touch the buffer"
        await stream.read_fully(0, buffer)
        assert bytes(buffer) == SMALL
        await stream.read_fully(128, buffer, 16, 64)
        assert bytes(buffer[16:80]) == SMALL[128:192]
        with pytest.raises(EndOfFileError):
            await stream.read_fully(0, bytearray(257))
        assert await stream.get_pos() == 0


async def test_read_fully_past_eof(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        with pytest.raises(EndOfFileError):
            await stream.read_fully(len(SMALL) + 1, bytearray(1))


async def test_read_fully_zero_bytebuffer_past_eof(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        await stream.read_fully(len(SMALL) + 1, bytearray(0))


async def test_read_null_buffer(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        with pytest.raises(InvalidArgumentError) as raised:
            await stream.read_at(0, None, 0, 16)  # type: ignore[arg-type]
        assert isinstance(raised.value, ValueError)


async def test_read_small_file(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        buffer = bytearray(256)
        with pytest.raises(InvalidArgumentError):
            await stream.read_at(0, buffer, 0, -16)
        with pytest.raises(IndexError):
            await stream.read_at(0, buffer, -1, 16)
        with pytest.raises(IndexError):
            await stream.read_at(0, buffer, 1, 256)
        with pytest.raises(EndOfFileError):
            await stream.read_at(-1, buffer, 0, 16)
        assert await stream.read_at(len(SMALL) + 16, buffer, 0, 16) == END
        assert await stream.read_at(0, buffer, 0, 0) == 0
        assert await stream.read_at(0, buffer) == 256
        assert bytes(buffer) == SMALL


async def test_read_at_exact_eof(ground: Ground) -> None:
    async with opened(ground, SMALL) as stream:
        buffer = bytearray(1)
        assert await stream.read_at(len(SMALL) - 1, buffer) == 1
        assert buffer[0] == SMALL[-1]
        assert await stream.read_at(len(SMALL), buffer) == END
