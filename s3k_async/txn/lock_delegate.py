"""Lock delegates: worker processes, such as the tasks of a cluster, that may write while the driver
holds the volume lock.

A delegate knows the id of the lock, which is the fencing token. It reads the volume record every
few seconds, and sends requests only if it saw, at most LOOK_SECONDS ago, that the lock is held with
enough of the lease left for a request to arrive before a takeover. Otherwise its work is cancelled.
Before the holder gives the lock up for good, it revokes its delegates: it changes the id and waits
QUIET_SECONDS, as it does before its first change. A client that takes over interrupted work waits
as long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from s3k_async._core.runtime import Runtime
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.errors import LeaseExpiredError
from s3k_async.txn.lease import Lease, Moment, keep_renewed
from s3k_async.txn.volume_lock import HELD_SECONDS, LOOK_SECONDS
from s3k_async.txn.volume_record import LOCK, LOCK_LEASE, LOCK_SECONDS, RECORD_KEY, STATE

__all__ = ["LockDelegate"]

EVERY_SECONDS: Final = 5.0
MARGIN_SECONDS: Final = LOCK_SECONDS - HELD_SECONDS
"""As the holder's margin: the time for the last requests to arrive before a takeover."""


class LockDelegate:
    """The delegate in one worker process. `lock`: the id of the lock."""

    def __init__(self, lock: str, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lease = Lease.none(lock)

    def check(self) -> None:
        """Raise LeaseExpiredError unless the lock is certainly held."""
        if not self._lease.valid(self._runtime):
            raise LeaseExpiredError("the volume lock of this transaction is no longer held")

    @asynccontextmanager
    async def at_work(self, items: RetryingItems) -> AsyncIterator[None]:
        """Allow `items.load` for the time of the body. If the lock is not held, or is lost, the
        body is cancelled and LeaseExpiredError raised. Also raises the store's errors.
        """
        await self._look(items)
        # The check cancels the work with its requests in progress: a request that waits for
        # credentials or a connection has passed its own check, and must not be sent any more.
        look = partial(self._look, items)
        async with keep_renewed(look, EVERY_SECONDS, self._runtime, check=self.check):
            with items.loading(self.check):
                yield

    async def _look(self, items: RetryingItems) -> None:
        lock, looked = self._lease.owner, Moment.now(self._runtime)
        record = await items.get(RECORD_KEY) or {}
        lease = record.get(LOCK_LEASE)
        if STATE in record or record.get(LOCK) != lock or not isinstance(lease, int):
            self._lease = Lease.none(lock)
        else:
            self._lease = Lease(lock, lease, looked, LOOK_SECONDS, MARGIN_SECONDS)
        self.check()
