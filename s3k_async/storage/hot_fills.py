"""Fills of the hot location of a volume with tiers: background copies of cold objects that were
read.

A fill is what `s3k tier warm` does for one object (`storage.object_copies.copy_to_hot`): the cold
object stays, its recorded checksum is verified, and a copy that differs is deleted. So a fill may
end at any call, and whatever is wrong with it, no read waits for it or fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.metering import deferred
from s3k_async._core.runtime import Runtime
from s3k_async.config import Tuning
from s3k_async.errors import (
    BlobChangedError,
    BlobNotFoundError,
    CorruptDataError,
    S3kError,
)
from s3k_async.model import FillStatistics
from s3k_async.storage.object_copies import copy_to_hot
from s3k_async.storage.tiered_blobs import TieredBlobs

__all__ = ["HotFills"]

_LOG = logging.getLogger(__name__)

FILLS_AT_ONCE: Final = 4
"""Objects that are copied at the same time. A copy has at most a part in memory."""
WAITING: Final = 64
"""Fills that wait for their turn; further ones are dropped."""
PAUSE_SECONDS: Final = 60.0
"""Time in which no fill begins after one that failed."""
EXCLUDED: Final = 10_000
"""Objects that a client remembers as damaged."""
COUNTED: Final = 4096
"""Objects whose reads a client counts, those that were read last."""


@dataclass(slots=True)
class _ColdReads:
    """What a client has read of an object from the cold location."""

    bytes: int = 0
    wanted: int = 0
    """The bytes from which on the object is copied; 0 until its size is known."""


class HotFills:
    """The fills of one client. Belongs to its event loop.

    An object of more than `multipart_threshold` bytes is copied once the client has read as many
    bytes of it as it has, so that reads of a few ranges of a large file do not copy all of it.
    """

    def __init__(self, blobs: TieredBlobs, runtime: Runtime, tuning: Tuning) -> None:
        self._blobs = blobs
        self._runtime = runtime
        self._tuning = tuning
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The fills under way, by physical key."""
        self._waiting: dict[str, tuple[str, Context]] = {}
        """Recorded checksums, and the contexts of the reads, by physical key."""
        self._reads: OrderedDict[str, _ColdReads] = OrderedDict()
        """By physical key, the one that was read last at the end."""
        self._excluded: OrderedDict[str, None] = OrderedDict()
        self._paused_until = float("-inf")
        self._is_closing = False
        self._statistics = FillStatistics()

    @property
    def statistics(self) -> FillStatistics:
        """The counts of this client so far."""
        return self._statistics

    def blobs_of(self, checksum: str) -> TieredBlobs:
        """The blobs, for a read of an object with this recorded checksum, empty if it is not known:
        if it is read from the cold location, it fills the hot one."""
        return self._blobs.notifying(partial(self._begin, checksum))

    async def close(self) -> None:
        """Wait for the copies under way, at most the time `close_timeout`, then cancel them. Fills
        that wait for their turn are dropped. Idempotent."""
        self._is_closing = True
        self._drop_waiting()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=self._tuning.close_timeout)
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            if tasks:
                await to_the_end(partial(asyncio.wait, tasks))

    def _begin(self, checksum: str, key: str, length: int) -> None:
        """Count a read, and copy the object when it is its turn, if it was read enough."""
        reads = self._counted(key)
        reads.bytes += length
        if reads.bytes < reads.wanted:
            return
        if self._is_closing or self._runtime.monotonic() < self._paused_until:
            return
        if key in self._tasks or key in self._waiting or key in self._excluded:
            return
        if len(self._waiting) >= WAITING:
            self._count(dropped=1)
            return
        self._waiting[key] = checksum, copy_context()
        self._start()

    def _counted(self, key: str) -> _ColdReads:
        """The reads of an object so far."""
        reads = self._reads.setdefault(key, _ColdReads())
        self._reads.move_to_end(key)
        if len(self._reads) > COUNTED:
            self._reads.popitem(last=False)
        return reads

    def _start(self) -> None:
        """Start the fills whose turn it is, in the order of the reads."""
        while self._waiting and len(self._tasks) < FILLS_AT_ONCE:
            key = next(iter(self._waiting))
            checksum, context = self._waiting.pop(key)
            task = asyncio.get_running_loop().create_task(
                self._fill(key, checksum), context=context
            )
            self._tasks[key] = task
            task.add_done_callback(partial(self._ended, key))

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        if task.cancelled():
            self._drop_waiting()  # the event loop ends
        self._start()

    def _drop_waiting(self) -> None:
        self._count(dropped=len(self._waiting))
        self._waiting.clear()

    async def _fill(self, key: str, checksum: str) -> None:
        with deferred():
            try:
                await self._copy(key, checksum)
            except (BlobNotFoundError, BlobChangedError):
                pass  # deleted meanwhile
            except CorruptDataError as error:
                self._exclude(key)
                self._count(damaged=1)
                _LOG.warning("%s is not copied to the hot location: %s", key, error)
            except Exception as error:  # noqa: BLE001 - no caller waits for it
                self._pause(key, error)

    async def _copy(self, key: str, checksum: str) -> None:
        hot, cold = self._blobs.hot, self._blobs.cold
        there = await cold.head(key)
        if there is None:
            return
        is_large = there.size > self._tuning.multipart_threshold
        if is_large and not self._is_read(key, there.size):
            return
        if await hot.head(key) is None:
            if is_large and not await self._has_room(there.size):
                self._count(dropped=1)
            else:
                await copy_to_hot(cold, hot, key, there.size, self._tuning.part_size, checksum)
                self._count(filled=1, filled_bytes=there.size)
        self._reads.pop(key, None)

    def _is_read(self, key: str, size: int) -> bool:
        """Whether the client has read as many bytes of an object as it has."""
        reads = self._counted(key)
        reads.wanted = size
        return reads.bytes >= size

    async def _has_room(self, size: int) -> bool:
        """Whether so many bytes can be written to the hot location, if it knows: a copy that fails
        at its end would have taken the room of the writers until then."""
        free = (await self._blobs.hot.space()).free
        return free is None or size <= free

    def _exclude(self, key: str) -> None:
        """Do not fill an object any more."""
        self._excluded[key] = None
        if len(self._excluded) > EXCLUDED:
            self._excluded.popitem(last=False)

    def _pause(self, key: str, error: Exception) -> None:
        """Count a failure, and begin no fill for a while."""
        self._count(failures=1)
        self._drop_waiting()
        now = self._runtime.monotonic()
        if now >= self._paused_until:
            _LOG.warning(
                "%s cannot be copied to the hot location (%s): for %.0f seconds reads copy nothing "
                "there",
                key,
                error,
                PAUSE_SECONDS,
                exc_info=None if isinstance(error, S3kError) else error,
            )
        self._paused_until = now + PAUSE_SECONDS

    def _count(self, **more: int) -> None:
        before = self._statistics
        self._statistics = replace(
            before, **{name: getattr(before, name) + number for name, number in more.items()}
        )
