"""Those who work for the holder of a volume's exclusive lock in other processes: the tasks of a
cluster.

A deputy knows the lock by its id. It looks at the volume record again every few seconds, and sends
nothing unless it has seen, LOOK_SECONDS ago at most, that the lock is held, with so much of the
lease left that nobody can take it over while a request is on its way; when that is over, what it
has under way is cancelled. Whoever holds the lock dismisses its deputies before giving it up for
good: it changes the id and waits QUIET_SECONDS, as it does before its first change, and for the
same reason. Whoever takes over interrupted work waits so as well.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from s3k_async.concurrency import raise_first
from s3k_async.errors import LeaseExpiredError, S3kError
from s3k_async.metadata.exclusive import (
    HELD_SECONDS,
    LEASE_SECONDS,
    LOOK_SECONDS,
    now,
    seconds_since,
)
from s3k_async.metadata.record import LOCK, LOCK_LEASE, RECORD_KEY, STATE
from s3k_async.sources import Sources
from s3k_async.stores.reliable_items import ReliableItems
from s3k_async.stores.sending import at_once

__all__ = ["Deputy"]

EVERY_SECONDS: Final = 5.0
CHECK_SECONDS: Final = 1.0


class Deputy:
    """One of them. `lock`: the id of the lock that it works under."""

    def __init__(self, lock: str, sources: Sources) -> None:
        self._lock = lock
        self._sources = sources
        self._looked: tuple[float, int] = (-math.inf, 0)
        self._lease_ms = 0

    def check(self) -> None:
        """Raises LeaseExpiredError unless the lock certainly is held."""
        left = (self._lease_ms - self._sources.now_ms()) / 1000
        if (
            seconds_since(self._looked, self._sources) >= LOOK_SECONDS
            or left < LEASE_SECONDS - HELD_SECONDS
        ):
            raise LeaseExpiredError("the volume lock of this job is no longer held")

    @asynccontextmanager
    async def at_work(self, items: ReliableItems) -> AsyncIterator[None]:
        """For the time of the body `items.load` may be used, as long as the lock is held. Raises
        LeaseExpiredError if it is not, the body being cancelled, and the store's errors.
        """
        await self._look(items)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, items)
                tasks.start_soon(self._end_in_time)
                with items.loading(self.check):
                    yield
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_first(group)

    async def _watch(self, items: ReliableItems) -> None:
        while True:
            await self._sources.sleep(EVERY_SECONDS)
            try:
                with at_once():
                    await self._look(items)
            except LeaseExpiredError:
                return
            except S3kError:
                continue  # `check` stops the work if no look succeeds

    async def _end_in_time(self) -> None:
        """End the work with what it has under way: a request that waits for credentials or a
        connection was checked already, and must not be sent any more."""
        while True:
            await self._sources.sleep(CHECK_SECONDS)
            self.check()

    async def _look(self, items: ReliableItems) -> None:
        looked = now(self._sources)
        record = await items.get(RECORD_KEY) or {}
        lease = record.get(LOCK_LEASE)
        if STATE in record or record.get(LOCK) != self._lock or not isinstance(lease, int):
            self._lease_ms = 0
        else:
            self._looked, self._lease_ms = looked, lease
        self.check()
