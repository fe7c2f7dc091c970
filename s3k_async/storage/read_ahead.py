"""Read-ahead: blocks fetched before a sequential reader needs them."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

__all__ = ["ReadAhead"]


@dataclass(slots=True)
class _Block:
    end: int
    task: asyncio.Task[bytes]


@dataclass(slots=True)
class ReadAhead:
    """Contiguous blocks in flight. Belongs to one event loop, except `drop`."""

    _start: int = 0
    _blocks: deque[_Block] = field(default_factory=deque)
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
        fetch: Callable[[int, int], Coroutine[None, None, bytes]],
        *,
        size: int,
    ) -> None:
        """Start fetching everything before `end` in blocks of `block` bytes, which only the end of
        the file at `size` cuts; `fetch` reads the bytes [start, end)."""
        start = self.end
        while start < min(end, size):
            stop = min(size, start + block)
            task = asyncio.get_running_loop().create_task(fetch(start, stop))
            task.add_done_callback(_look)
            self._blocks.append(_Block(stop, task))
            start = stop

    async def take(self) -> bytes:
        """The next block. Raises the error of its fetch; then, and after a cancellation, all blocks
        are dropped."""
        block = self._blocks.popleft()
        try:
            data = await block.task
        except BaseException:
            self.drop()
            raise
        self._start = block.end
        return data

    def drop(self) -> None:
        """Drop all blocks. From any thread; no effect in a forked child, which has another loop."""
        blocks = list(self._blocks)
        self._blocks.clear()
        if os.getpid() != self._pid:
            return
        for block in blocks:
            if not block.task.done():
                with suppress(RuntimeError):  # the loop is closed and has ended the task
                    block.task.get_loop().call_soon_threadsafe(block.task.cancel)


def _has_failed(block: _Block) -> bool:
    task = block.task
    return task.done() and (task.cancelled() or task.exception() is not None)


def _look(task: asyncio.Task[bytes]) -> None:
    """Retrieve the exception, so that asyncio does not log a failure without a reader."""
    if not task.cancelled():
        task.exception()
