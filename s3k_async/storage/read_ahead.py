"""Read-ahead: blocks fetched before a sequential reader asks for them."""

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
    """Blocks on their way, one behind the other. Of one event loop, but for `drop`."""

    _start: int = 0
    _blocks: deque[_Block] = field(default_factory=deque)
    _pid: int = field(default_factory=os.getpid)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def end(self) -> int:
        """Where the blocks end."""
        return self._blocks[-1].end if self._blocks else self._start

    def seek(self, position: int) -> None:
        """Keep what begins at `position`, or nothing.

        Nothing, too, once a block has failed: that may be long ago, and nobody had asked for it.
        """
        if position != self._start or any(map(_has_failed, self._blocks)):
            self.drop()
            self._start = position

    def extend(
        self, end: int, block: int, fetch: Callable[[int, int], Coroutine[None, None, bytes]]
    ) -> None:
        """Have everything before `end` under way, by the `block` bytes; `fetch` gets the bytes
        [start, end)."""
        start = self.end
        while start < end:
            stop = min(end, start + block)
            task = asyncio.get_running_loop().create_task(fetch(start, stop))
            task.add_done_callback(_look)
            self._blocks.append(_Block(stop, task))
            start = stop

    async def take(self) -> bytes:
        """The next block. Raises what fetching it raised; then, and after a cancellation, nothing
        is left."""
        block = self._blocks.popleft()
        try:
            data = await block.task
        except BaseException:
            self.drop()
            raise
        self._start = block.end
        return data

    def drop(self) -> None:
        """Let go of all blocks. From any thread; does nothing in a forked child, whose loop is not
        this one."""
        blocks = list(self._blocks)
        self._blocks.clear()
        if os.getpid() != self._pid:
            return
        for block in blocks:
            if not block.task.done():
                with suppress(RuntimeError):  # the loop is closed, and has ended the task
                    block.task.get_loop().call_soon_threadsafe(block.task.cancel)


def _has_failed(block: _Block) -> bool:
    task = block.task
    return task.done() and (task.cancelled() or task.exception() is not None)


def _look(task: asyncio.Task[bytes]) -> None:
    """So that nobody is told of a failure that no reader waits for."""
    if not task.cancelled():
        task.exception()
