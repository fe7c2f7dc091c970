"""Read-ahead: blocks fetched before a sequential reader needs them."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

__all__ = ["ReadAhead"]

_MOST_BUFFERS = 4
"""Buffers that are kept for later blocks."""


@dataclass(slots=True)
class _Block:
    end: int
    place: memoryview
    task: asyncio.Task[None]


@dataclass(slots=True)
class ReadAhead:
    """Contiguous blocks in flight. Belongs to one event loop, except `drop`.

    Their buffers are used again. The system clears each page of a fresh one when it is first
    written, which takes more processor time than receiving the bytes.
    """

    _start: int = 0
    _blocks: deque[_Block] = field(default_factory=deque)
    _buffers: list[bytearray] = field(default_factory=list)
    """Buffers of blocks that were given back."""
    _pid: int = field(default_factory=os.getpid)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def end(self) -> int:
        """End of the last block."""
        return self._blocks[-1].end if self._blocks else self._start

    def seek(self, position: int) -> None:
        """Keep the blocks from `position` on, or none.

        None, too, after a block has failed: the failure may be old, of a block that was not
        requested.
        """
        if position != self._start or any(map(_has_failed, self._blocks)):
            self.drop()
            self._start = position

    def extend(
        self,
        end: int,
        block: int,
        fetch: Callable[[int, memoryview], Coroutine[None, None, None]],
        *,
        size: int,
    ) -> None:
        """Start fetching everything before `end` in blocks of `block` bytes, which only the end of
        the file at `size` cuts; `fetch` fills a buffer with the bytes from a position on."""
        start = self.end
        while start < min(end, size):
            stop = min(size, start + block)
            place = self._place(stop - start, block)
            task = asyncio.get_running_loop().create_task(fetch(start, place))
            task.add_done_callback(_look)
            self._blocks.append(_Block(stop, place, task))
            start = stop

    async def take(self) -> memoryview:
        """The next block, to be given back. Raises the error of its fetch; then, and after a
        cancellation, all blocks are dropped."""
        block = self._blocks.popleft()
        try:
            await block.task
        except BaseException:
            # Its buffer, too: a request may still have it.
            self.drop()
            raise
        self._start = block.end
        return block.place

    def give_back(self, block: memoryview) -> None:
        """Use the buffer of a block again, which `take` returned; without blocks in flight, as at
        the end of the file, none is kept."""
        buffer = block.obj
        block.release()
        if not self._blocks:
            self._buffers.clear()
        elif isinstance(buffer, bytearray) and len(self._buffers) < _MOST_BUFFERS:
            self._buffers.append(buffer)

    def drop(self) -> None:
        """Drop all blocks and buffers. From any thread; no effect on the requests in a forked
        child, which has another loop."""
        blocks = list(self._blocks)
        self._blocks.clear()
        self._buffers.clear()
        if os.getpid() != self._pid:
            return
        for block in blocks:
            if not block.task.done():
                with suppress(RuntimeError):  # the loop is closed and has ended the task
                    block.task.get_loop().call_soon_threadsafe(block.task.cancel)

    def _place(self, size: int, block: int) -> memoryview:
        """A buffer of this size, at most that of a block, to which nothing else refers."""
        while self._buffers:
            buffer = self._buffers.pop()
            if len(buffer) == block and _is_unused(buffer):
                return memoryview(buffer)[:size]
        return memoryview(bytearray(size))


def _is_unused(buffer: bytearray) -> bool:
    """Whether no view of a buffer exists, of a reader in another thread or of a request. Python
    itself counts them: a buffer with views cannot be resized."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


def _has_failed(block: _Block) -> bool:
    task = block.task
    return task.done() and (task.cancelled() or task.exception() is not None)


def _look(task: asyncio.Task[None]) -> None:
    """Retrieve the exception, so that asyncio does not log a failure without a reader."""
    if not task.cancelled():
        task.exception()
