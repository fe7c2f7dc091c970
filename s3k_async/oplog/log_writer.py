"""The writer of the operation log: a pending record before the table changes, then a commit, or a
roll-back if the change failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, Protocol

import anyio

from s3k_async._core.active_calls import note_event
from s3k_async._core.concurrency import gather, to_the_end
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.key_ranges import KeyRange, list_range
from s3k_async.errors import (
    BlobExistsError,
    ConflictError,
    OutcomeUnknownError,
    ResponseLostError,
    S3kError,
    ServiceError,
)
from s3k_async.oplog.deferred_commits import DeferredCommits
from s3k_async.oplog.entries import committed_key, segment_id, transaction_segments
from s3k_async.oplog.group_commit import GROUPED_OPERATIONS, GroupCommit
from s3k_async.oplog.pending_log import (
    OBJECTS_AT_ONCE,
    EntryObject,
    HeldLog,
    LogObject,
    PendingLog,
    PendingObjects,
    SegmentObject,
)
from s3k_async.oplog.segments import (
    Operations,
    cut_lines,
    operation_ids,
    segment_lines,
)

__all__ = [
    "SEGMENT_BYTES",
    "SEGMENT_OPERATIONS",
    "DisabledLog",
    "NativeLog",
    "OperationLog",
]

SEGMENT_OPERATIONS: Final = 5000
"""Most operations in one segment (renames: about five megabytes); more are divided among
several."""
SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of a segment's operations, unless one alone is longer. Only long paths (about 600
bytes) reach it before the number of operations."""

UNIQUE_DIGITS: Final = 12
"""Random digits in the id of a transaction's segment: 48 bits."""

_logger = logging.getLogger(__name__)


class OperationLog(Protocol):
    """The log of a volume."""

    @property
    def failed_commits(self) -> int:
        """Number of log objects that could not be committed since this log was opened."""

    @property
    def failed_rollbacks(self) -> int:
        """Number of pending log objects that could not be removed since this log was opened."""

    async def begin(
        self, operations: Operations, *, together: bool = False, txn: str = ""
    ) -> PendingLog:
        """Write the operations as pending: one as an entry (unless `together`), more as segments.

        `txn`: the id of their transaction; its segments are named after it, so that another client
        that ends the transaction finds them.

        Idempotent for identical operations. Raises ConflictError if the key has another operation,
        LogFormatError for an operation that contradicts itself, and the store's errors (a lost
        answer as ServiceError: the operation has certainly failed). Then its objects are removed as
        far as the store can be reached, and the table must not be changed.
        """

    async def withdraw(self, txn: str) -> None:
        """Remove the pending segments of another client's transaction that was aborted and of
        which nothing is left in the table. Segments that cannot be removed are counted, as by
        `PendingLog.rollback`. Raises the store's errors."""

    async def drained(self) -> None:
        """Wait until every mark of `commit_later` is written, or has failed and was counted."""

    async def close(self) -> None:
        """Wait as `drained` does, for the last time. Idempotent."""


class DisabledLog:
    """No log: such a volume cannot be restored."""

    failed_commits = 0
    failed_rollbacks = 0

    async def begin(
        self,
        operations: Operations,  # noqa: ARG002 - nothing is logged
        *,
        together: bool = False,  # noqa: ARG002 - nothing is logged
        txn: str = "",  # noqa: ARG002 - nothing is logged
    ) -> PendingLog:
        """Write nothing; the handle always reports success."""
        return _NOTHING_PENDING

    async def withdraw(self, txn: str) -> None:
        pass

    async def drained(self) -> None:
        """No effect: nothing is deferred."""

    async def close(self) -> None:
        """No effect."""


class _NothingPending:
    async def commit(
        self,
        succeeded: Collection[str] | None = None,  # noqa: ARG002
        *,
        unknown: Collection[str] = (),  # noqa: ARG002
    ) -> bool:
        return True

    async def commit_later(
        self, succeeded: Collection[str] | None = None, *, unknown: Collection[str] = ()
    ) -> None:
        pass

    def hold(self, succeeded: Collection[str] | None = None) -> HeldLog:  # noqa: ARG002
        return self

    def abandon(self) -> None:
        pass

    async def rollback(self) -> bool:
        return True


_NOTHING_PENDING: Final[PendingLog] = _NothingPending()


class NativeLog:
    """The log as immutable objects, one for each entry or segment and state, created by conditional
    puts."""

    def __init__(
        self, blobs: BlobStore, runtime: Runtime, *, outcome_timeout: float = 30.0
    ) -> None:
        """`blobs`: rooted at the log, with retries.

        `outcome_timeout`: limit in seconds for writing or removing one object after the table's
        answer, since a cancelled caller waits for it.
        """
        self._blobs = blobs
        self._runtime = runtime
        self._outcome_timeout = outcome_timeout
        self._marks = DeferredCommits()
        self._groups = GroupCommit(self, runtime)
        self.failed_commits = 0
        self.failed_rollbacks = 0

    async def begin(
        self, operations: Operations, *, together: bool = False, txn: str = ""
    ) -> PendingLog:
        """As `OperationLog.begin`; more than SEGMENT_OPERATIONS or SEGMENT_BYTES become several
        segments. A few operations may become part of a group, whose failure is theirs."""
        if not operations:
            return _NOTHING_PENDING
        if (
            isinstance(operations, list | tuple)
            and len(operations) <= GROUPED_OPERATIONS
            and not (together or txn)
        ):
            return await self._groups.begin(operations)
        return await self.write(self.objects(operations, together=together, txn=txn))

    def pending(self, objects: Sequence[LogObject]) -> PendingObjects:
        """As `GroupWriter.pending`."""
        return PendingObjects(self, objects)

    async def write(self, objects: Sequence[LogObject]) -> PendingObjects:
        """Write pending objects, or none of them. Raises as `begin`."""
        created: set[str] = set()

        def create(part: LogObject) -> Awaitable[None]:
            return self.create(part.pending_key, part.pending(), created)

        async def withdraw() -> None:
            await gather(self.remove, created, limit=OBJECTS_AT_ONCE)

        try:
            await gather(create, objects, limit=OBJECTS_AT_ONCE)
        except (ResponseLostError, OutcomeUnknownError) as error:
            note_event("log.pending_failed")
            await to_the_end(withdraw)
            raise ServiceError(
                "the operation log could not be written, so nothing was changed"
            ) from error
        except S3kError:
            note_event("log.pending_failed")
            await to_the_end(withdraw)
            raise
        except asyncio.CancelledError:
            await to_the_end(withdraw)
            raise
        return PendingObjects(self, objects)

    async def withdraw(self, txn: str) -> None:
        segments = KeyRange(transaction_segments(txn))
        found = {info.key async for info in list_range(self._blobs, segments)}
        pending = [key for key in sorted(found) if key.endswith(".pending")]
        left = [key for key in pending if committed_key(key) not in found]
        await gather(self.remove, left, limit=OBJECTS_AT_ONCE)

    async def drained(self) -> None:
        """As `OperationLog.drained`."""
        await self._groups.drained()
        await self._marks.drained()

    async def close(self) -> None:
        """As `OperationLog.close`; if cancelled, it gives up the marks in progress."""
        try:
            await self._groups.close()
        finally:
            await self._marks.close()

    async def create(self, key: str, data: bytes, created: set[str] | None = None) -> None:
        """Write an object of the log. Equal existing bytes are accepted, others raise
        ConflictError.

        `created` gets the key unless the object existed: its keys may be removed again.
        """
        possibly = set() if created is None else created
        possibly.add(key)
        try:
            await self._blobs.put(key, data, if_absent=True)
        except BlobExistsError as error:
            possibly.discard(key)
            if await self._blobs.get(key, 0, len(data) + 1) != data:
                raise ConflictError(
                    "the operation log has another record at this key", path=key
                ) from error

    async def commit(self, key: str, data: bytes) -> bool:
        """Write a committed object; False, counted and logged, if that fails or takes too long."""
        written = await self._finish(partial(self.create, key, data), "not committed", key)
        if not written:
            self.failed_commits += 1
            note_event("log.commit_failed")
        return written

    async def commit_later(self, key: str, data: bytes) -> None:
        """Start writing a committed object; waits only while too many are being written."""
        await self._marks.begin(partial(self.commit, key, data))

    async def remove(self, key: str) -> bool:
        """Remove a pending object; False, counted and logged, if that fails or takes too long."""
        removed = await self._finish(partial(self._blobs.delete, key), "not rolled back", key)
        self.failed_rollbacks += not removed
        note_event("log.rolled_back" if removed else "log.rollback_failed")
        return removed

    async def _finish(self, work: Callable[[], Awaitable[object]], failure: str, key: str) -> bool:
        reason = "no answer in time"
        with anyio.move_on_after(self._outcome_timeout):
            try:
                await work()
            except S3kError as error:
                reason = error.code
            else:
                return True
        _logger.warning("operation log: %s %s (%s)", key, failure, reason)
        return False

    def objects(
        self, operations: Operations, *, together: bool = False, txn: str = ""
    ) -> list[LogObject]:
        """The objects of operations that are not grouped; `together` and `txn` as for `begin`.
        Raises LogFormatError for an operation that contradicts itself."""
        if len(operations) == 1 and not (together or txn):
            return [EntryObject(operations[0])]
        parts: list[LogObject] = []
        for first in range(0, len(operations), SEGMENT_OPERATIONS):
            start, end = first, min(len(operations), first + SEGMENT_OPERATIONS)
            all_lines = segment_lines(operations, start, end)
            for count, lines in cut_lines(all_lines, end - start, SEGMENT_BYTES):
                # After the transaction id a part of a UUID suffices, and keeps the key short.
                unique = self._runtime.uuid()[-UNIQUE_DIGITS:] if txn else self._runtime.uuid()
                ids = operation_ids(operations, start, start + count)
                parts.append(SegmentObject(segment_id(unique, txn), ids, lines))
                start += count
        return parts
