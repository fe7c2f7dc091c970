"""Blocks that are read ahead, and their buffers."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from s3k_async.errors import UnreachableError
from s3k_async.storage.read_ahead import ReadAhead

SIZE = 1000


class Source:
    """A file of 1,000 bytes; the fetches of its blocks, and their buffers."""

    def __init__(self) -> None:
        self.buffers: list[bytearray] = []
        self.failing: set[int] = set()
        self.held: set[int] = set()
        self.ended = 0

    async def fetch(self, start: int, place: memoryview) -> None:
        assert isinstance(place.obj, bytearray)
        self.buffers.append(place.obj)
        place[: len(place) // 2] = bytes([start // 100]) * (len(place) // 2)
        try:
            if start in self.held:
                await anyio.sleep_forever()
            await anyio.lowlevel.checkpoint()
        finally:
            self.ended += 1
        if start in self.failing:
            raise UnreachableError("the cable", path="data")
        place[:] = bytes([start // 100]) * len(place)


async def test_a_buffer_is_used_again_once_its_block_is_given_back() -> None:
    source, ahead = Source(), ReadAhead()
    for start in range(0, SIZE, 100):
        ahead.extend(start + 200, 100, source.fetch, size=SIZE)
        block = await ahead.take()
        assert bytes(block) == bytes([start // 100]) * 100
        ahead.give_back(block)
    assert len(source.buffers) == 10
    assert len({id(buffer) for buffer in source.buffers}) == 2


async def test_a_buffer_is_not_used_again_while_a_view_of_it_exists() -> None:
    source, ahead = Source(), ReadAhead()
    ahead.extend(200, 100, source.fetch, size=SIZE)
    block = await ahead.take()
    view = block[10:20]
    ahead.give_back(block)
    ahead.extend(400, 100, source.fetch, size=SIZE)
    for _ in range(3):
        ahead.give_back(await ahead.take())
    assert bytes(view) == b"\0" * 10
    assert len(source.buffers) == 4
    assert all(buffer is not source.buffers[0] for buffer in source.buffers[1:])
    with pytest.raises(ValueError, match="released"):
        bytes(block)


async def test_a_block_that_is_not_given_back_is_not_overwritten() -> None:
    source, ahead = Source(), ReadAhead()
    ahead.extend(200, 100, source.fetch, size=SIZE)
    kept = await ahead.take()
    for start in range(100, SIZE, 100):
        ahead.extend(start + 200, 100, source.fetch, size=SIZE)
        ahead.give_back(await ahead.take())
    assert bytes(kept) == b"\0" * 100


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_buffers_of_requests_that_failed_or_were_cancelled_are_not_used_again(
    is_cancelled: bool,
) -> None:
    source, ahead = Source(), ReadAhead()
    (source.held if is_cancelled else source.failing).add(100)
    ahead.extend(300, 100, source.fetch, size=SIZE)
    ahead.give_back(await ahead.take())
    if is_cancelled:
        with anyio.move_on_after(0.01):
            await ahead.take()
    else:
        with pytest.raises(UnreachableError):
            await ahead.take()
    assert not ahead
    before = list(source.buffers)
    source.held.clear()
    source.failing.clear()
    ahead.extend(SIZE, 100, source.fetch, size=SIZE)
    while ahead:
        ahead.give_back(await ahead.take())
    assert not {id(buffer) for buffer in before} & {
        id(buffer) for buffer in source.buffers[len(before) :]
    }
    await asyncio.sleep(0)
    assert source.ended == len(source.buffers)


async def test_no_buffer_is_kept_after_the_last_block() -> None:
    source, ahead = Source(), ReadAhead()
    ahead.extend(SIZE, 100, source.fetch, size=SIZE)
    while ahead:
        ahead.give_back(await ahead.take())
    assert len(source.buffers) == 10
    assert ahead._buffers == []


async def test_the_last_block_is_shorter() -> None:
    source, ahead = Source(), ReadAhead()
    ahead.extend(SIZE, 300, source.fetch, size=SIZE)
    sizes = []
    while ahead:
        block = await ahead.take()
        sizes.append(len(block))
        ahead.give_back(block)
    assert sizes == [300, 300, 300, 100]
