"""The volume lock: exclusive use of a volume for loading, restoring, resharding and a change of its
layout.

The lock is in the volume record (`loading`), taken by a conditional write, with a lease that its
holder renews. A locked volume cannot be opened by other clients. Clients that had it open detect
the lock themselves: each reads the record again every LOOK_SECONDS while it works, and rejects
responses that arrive more than BELIEVED_SECONDS after its last read. A new holder waits
QUIET_SECONDS; after that no client reads its changes, and it overwrites no acknowledged write. A
client that finds the record locked, or locked since it was opened, has to be opened again.

Interrupted work leaves the lock with an expired lease; only the same work can take it over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Final, Literal, TypeAlias

import anyio

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import OPERATION, Condition, Item, Update, Value
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.errors import (
    BusyError,
    ConditionFailedError,
    LeaseExpiredError,
    S3kError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.txn.lease import Lease, Moment, keep_renewed
from s3k_async.txn.volume_record import (
    DESTROYING,
    LOCK,
    LOCK_DONE,
    LOCK_EPOCH,
    LOCK_LEASE,
    LOCK_PURPOSE,
    LOCK_SECONDS,
    LOCK_SUBJECT,
    RECORD_KEY,
    STATE,
    VolumeRecord,
    lock_is_held,
    locked_message,
)

__all__ = [
    "BELIEVED_SECONDS",
    "HELD_SECONDS",
    "LOOK_SECONDS",
    "QUIET_SECONDS",
    "RENEW_SECONDS",
    "LockPurpose",
    "RecordFence",
    "VolumeLock",
]

LockPurpose: TypeAlias = Literal["load", "restore", "reshard", "migration"]

HELD_SECONDS: Final = 45.0
"""How long the holder relies on the lock after a renewal: the rest of the lease is for its last
requests to arrive."""
RENEW_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 15.0
"""Maximum age of a client's last read of the record when it sends a request."""
BELIEVED_SECONDS: Final = 30.0
"""Maximum age of that read when the response arrives."""
QUIET_SECONDS: Final = 40.0
"""Seconds that the holder waits before its first change; more than BELIEVED_SECONDS to allow for
clock drift."""
_ATTEMPTS: Final = 10


class VolumeLock:
    """One acquisition of the lock. `subject` identifies the work (the dump of a load, the target of
    a reshard): only work with the same purpose and subject can finish interrupted work."""

    def __init__(self, purpose: LockPurpose, subject: str, runtime: Runtime) -> None:
        self.purpose = purpose
        self.subject = subject
        self.done = 0
        """The progress of the work, stored in the record from the next renewal on; initially that
        of interrupted work."""
        self.touched = False
        """Whether something was changed, so that the volume cannot be opened until the work is
        finished."""
        self.alone = False
        """Whether the volume was created with the lock, so that no client can have it open."""
        self._runtime = runtime
        self._lease = Lease.none(runtime.uuid())
        self._turn = anyio.Lock()

    @property
    def id(self) -> str:
        """The fencing token: the record's writes under the lock are conditional on it."""
        return self._lease.owner

    def fields(self) -> dict[str, Value]:
        """The fields of the record while the lock is held. The lease begins now."""
        self._lease = self._new_lease()
        return {
            LOCK: self.id,
            LOCK_EPOCH: self.id,
            LOCK_PURPOSE: self.purpose,
            LOCK_SUBJECT: self.subject,
            LOCK_DONE: self.done,
            LOCK_LEASE: self._lease.expiry_ms,
        }

    def check(self) -> None:
        """Raise LeaseExpiredError unless the lock is certainly held."""
        if not self._lease.valid(self._runtime):
            raise LeaseExpiredError(
                f"the volume lock was lost; repeat the {self.purpose} to finish it"
            )

    async def take(self, items: RetryingItems, record: VolumeRecord, where: str) -> None:
        """Lock a volume, or take over the lock of the same work after an interruption.

        Raises BusyError (another client holds the lock, other work was interrupted, or the record
        is no longer the one given), VolumeNotFoundError.
        """
        for _ in range(_ATTEMPTS):
            item = await items.get(RECORD_KEY)
            if item is None or item.get(STATE) == DESTROYING:
                raise VolumeNotFoundError("another client removed the volume", path=where)
            if VolumeRecord.from_item(item, where) != record:
                raise BusyError("another client changed the volume record; try again", path=where)
            seen = {name: item[name] for name in (LOCK, LOCK_LEASE) if name in item}
            if LOCK in seen:
                await self._take_over(items, item, where)
            missing = tuple(name for name in (LOCK, LOCK_LEASE, STATE) if name not in seen)
            when = Condition(equals={"volume_id": record.volume_id, **seen}, missing=missing)
            try:
                await items.write(
                    Update(RECORD_KEY, when, {**self.fields(), OPERATION: self._runtime.uuid()})
                )
            except ConditionFailedError:
                continue
            except BaseException:
                # This client may have taken the lock after all, and would lock out all others
                # without doing any work.
                await to_the_end(partial(self._give_up, items, finished=False))
                raise
            return
        raise BusyError("gave up: concurrent changes to the volume record", path=where)

    async def _take_over(self, items: RetryingItems, item: Item, where: str) -> None:
        done = item.get(LOCK_DONE)
        same = item.get(LOCK_PURPOSE) == self.purpose and item.get(LOCK_SUBJECT) == self.subject
        if not same or await lock_is_held(items, item, self._runtime):
            raise BusyError(locked_message(item, self._runtime.now_ms()), path=where)
        self.done = done if isinstance(done, int) else 0
        self.touched = True

    @asynccontextmanager
    async def held(self, items: RetryingItems) -> AsyncIterator[None]:
        """Renew the acquired lock for the time of the body, in which `items.load` may be used; then
        release it.

        After an error the volume stays locked for a client that finishes the work, unless nothing
        was changed.
        """
        finished = False
        try:
            async with keep_renewed(partial(self._renew, items), RENEW_SECONDS, self._runtime):
                with items.loading(self.check):
                    yield
                finished = True
        finally:
            await to_the_end(partial(self._give_up, items, finished=finished))

    async def abandon(self, items: RetryingItems) -> None:
        """Release the lock before `held` is entered, if a request may have acquired it."""
        if self._lease.expiry_ms:
            await self._give_up(items, finished=False)

    async def change(
        self, items: RetryingItems, fields: dict[str, Value], gone: tuple[str, ...] = ()
    ) -> None:
        """Change the volume record under the lock, and remove the fields `gone`. Raises
        LeaseExpiredError if it was lost."""
        async with self._turn:
            await self._change(items, fields, gone)

    async def _change(
        self, items: RetryingItems, fields: dict[str, Value], gone: tuple[str, ...] = ()
    ) -> None:
        self.check()
        new = {**fields, OPERATION: self._runtime.uuid()}
        try:
            await items.write(Update(RECORD_KEY, self._ours(), new, gone))
        except ConditionFailedError as error:
            raise self._lose() from error

    async def dismiss(self, items: RetryingItems) -> None:
        """Change the lock id, so that all delegates (`txn.lock_delegate`) stop, and wait until none
        can be writing. Needed before the lock is finally released: a task that Spark considers lost
        may still run. Raises LeaseExpiredError if the lock was lost.
        """
        async with self._turn:
            new = self._runtime.uuid()
            await self._change(items, {LOCK: new})
            self._lease = replace(self._lease, owner=new)
        await self._runtime.sleep(QUIET_SECONDS)
        self.check()

    async def wait_for_clients_to_stop(self) -> None:
        """Wait until every client with the volume open has detected the lock."""
        if self.alone:
            return
        await self._runtime.sleep(QUIET_SECONDS)
        self.check()

    async def _renew(self, items: RetryingItems) -> None:
        async with self._turn:
            lease = self._new_lease()
            await self._change(items, {LOCK_LEASE: lease.expiry_ms, LOCK_DONE: self.done})
            self._lease = lease

    async def _give_up(self, items: RetryingItems, *, finished: bool) -> None:
        """Unlock; if the work is unfinished, expire the lease, so that the next client can take
        over at once."""
        operation = self._runtime.uuid()
        if finished or not self.touched:
            gone = (LOCK, LOCK_LEASE, LOCK_PURPOSE, LOCK_SUBJECT, LOCK_DONE)
            update = Update(RECORD_KEY, self._ours(), {OPERATION: operation}, gone)
        else:
            left: dict[str, Value] = {LOCK_LEASE: 0, LOCK_DONE: self.done, OPERATION: operation}
            update = Update(RECORD_KEY, self._ours(), left)
        try:
            await items.write(update)
        except ConditionFailedError as error:
            if finished:
                raise self._lose() from error
        except S3kError:
            if finished:
                raise

    def _ours(self) -> Condition:
        return Condition(equals={LOCK: self.id}, missing=(STATE,))

    def _lose(self) -> LeaseExpiredError:
        self._lease = Lease.none(self.id)
        return LeaseExpiredError(f"another client took over the volume lock of this {self.purpose}")

    def _new_lease(self) -> Lease:
        margin = LOCK_SECONDS - HELD_SECONDS
        return Lease.granted(self.id, Moment.now(self._runtime), LOCK_SECONDS, margin)


class RecordFence:
    """Stops an open client after its volume was locked; see the module.

    `read` gives the record item, strongly consistent; `record` was read after the moment `since`.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Item | None]],
        record: VolumeRecord,
        since: Moment,
        runtime: Runtime,
        where: str,
    ) -> None:
        self._read = read
        self._record = record
        self._runtime = runtime
        self._where = where
        self._looked = since
        self._turn = anyio.Lock()
        self._failures: list[S3kError] = []

    def due(self) -> bool:
        """Whether the record must be read before a request is sent."""
        return self._looked.age(self._runtime) >= LOOK_SECONDS

    def late(self) -> bool:
        """Whether the record must be read before a response is used."""
        return self._looked.age(self._runtime) >= BELIEVED_SECONDS

    async def look(self) -> None:
        """Read the record, unless a concurrent call has done so. Raises BusyError (the volume is
        locked), VolumeMismatchError (it was locked since it was opened), VolumeNotFoundError (it
        was removed), and the errors of the read."""
        failures = self._failures
        async with self._turn:
            if not self.due():
                return
            if failures:
                # Many calls wait at once, and would otherwise wait one after the other for an
                # unresponsive table.
                raise copy(failures[0])
            try:
                await self._look()
            except S3kError as error:
                failures.append(error)
                self._failures = []
                raise

    async def _look(self) -> None:
        looked = Moment.now(self._runtime)
        item = await self._read()
        if (
            item is None
            or item.get(STATE) == DESTROYING
            or item.get("volume_id") != self._record.volume_id
        ):
            raise VolumeNotFoundError(
                "the volume was removed since it was opened", path=self._where
            )
        if LOCK in item:
            raise BusyError(locked_message(item, self._runtime.now_ms()), path=self._where)
        if VolumeRecord.from_item(item, self._where).epoch != self._record.epoch:
            raise VolumeMismatchError(
                "the volume was loaded, restored or resharded since it was opened; open it again",
                path=self._where,
            )
        self._looked = looked
