"""Deferred commits: commit records written after the caller has its answer.

After an earlier crash the operation is pending in the log and applied in the table, from which fsck
resolves it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.metering import deferred

__all__ = ["MARKS_UNDER_WAY", "DeferredCommits"]

MARKS_UNDER_WAY: Final = 64
"""Marks written concurrently; the next one waits until one of them is written."""


class DeferredCommits:
    """The deferred marks of one log. Belongs to one event loop and one process: a forked child does
    not write them a second time."""

    def __init__(self, limit: int = MARKS_UNDER_WAY) -> None:
        self._places = asyncio.Semaphore(limit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._given_up = False
        self._pid = 0

    async def begin(self, write: Callable[[], Awaitable[object]]) -> None:
        """Start writing a mark and return; waits only while too many are in progress.

        `write` has its own time limit and handles the errors of the store. It is not cancelled with
        the caller.
        """
        await self._places.acquire()
        self._pid = os.getpid()
        task = asyncio.create_task(self._write(write, self._pid))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def drained(self) -> None:
        """Wait until all started marks are written. Raises their unexpected errors."""
        while self._tasks and self._pid == os.getpid():
            await asyncio.wait(set(self._tasks))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """As `drained`; if cancelled, it stops the marks in progress."""
        try:
            await self.drained()
        except asyncio.CancelledError:
            self._given_up = True
            tasks = set(self._tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                await to_the_end(partial(asyncio.wait, tasks))
            raise

    async def _write(self, write: Callable[[], Awaitable[object]], pid: int) -> None:
        if pid != os.getpid():
            return
        with deferred():
            try:
                await write()
            except asyncio.CancelledError:
                if self._given_up:
                    raise
                # The loop is ending, as at the end of `asyncio.run`, and awaits cancelled tasks. A
                # second write leaves the same object.
                await write()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._places.release()
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = self._failure or failure
