"""The writer of the operation log: a pending record before the table changes, then a commit, or a
roll-back if the change failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio

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
from s3k_async.oplog.entries import (
    Operation,
    committed_key,
    entry_key,
    entry_of_line,
    operation_line,
    segment_id,
    segment_key,
    transaction_segments,
)
from s3k_async.oplog.segments import (
    Operations,
    SegmentCommit,
    cut_lines,
    encode_segment_commit,
    operation_ids,
    seal_segment,
    segment_lines,
)

__all__ = [
    "SEGMENT_BYTES",
    "SEGMENT_OPERATIONS",
    "DisabledLog",
    "HeldLog",
    "NativeLog",
    "OperationLog",
    "PendingLog",
]

SEGMENT_OPERATIONS: Final = 5000
"""Most operations in one segment (renames: about five megabytes); more are divided among
several."""
SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of a segment's operations, unless one alone is longer. Only long paths (about 600
bytes) reach it before the number of operations."""

_OBJECTS_AT_ONCE: Final = 8
UNIQUE_DIGITS: Final = 12
"""Random digits in the id of a transaction's segment: 48 bits."""

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class PendingLog(Protocol):
    """Operations that the log holds as pending.

    Ended by `commit` or `rollback`; by neither if the outcome of the change is unknown.
    """

    async def commit(
        self, succeeded: Collection[str] | None = None, *, unknown: Collection[str] = ()
    ) -> bool:
        """Record the ids of the operations that succeeded (None: all but the unknown).

        Those in `unknown` stay pending, all others are rolled back. False if the log could not be
        written: the change is applied nevertheless, and fsck repairs the log. Completed even if the
        caller is cancelled meanwhile; never raises the store's errors. Raises ValueError for
        unknown ids.
        """

    async def commit_later(
        self, succeeded: Collection[str] | None = None, *, unknown: Collection[str] = ()
    ) -> None:
        """As `commit`, but without waiting for the mark, unless too many are being written; the
        log's `drained` and `close` wait for it. Failed operations are rolled back before this
        returns. To be called inside `to_the_end`."""

    def hold(self, succeeded: Collection[str] | None = None) -> HeldLog:
        """The commit or roll-back at the end of an undecided transaction, without the operations in
        memory.

        `succeeded`: the ids of those applied if the transaction is published (None: all). Raises
        ValueError as `commit`.
        """

    async def rollback(self) -> bool:
        """Remove the objects of `begin`, after a definite failure.

        False if an object is left, or if `commit` was called before: then nothing is removed.
        Cancellation and errors as for `commit`.
        """


class HeldLog(Protocol):
    """Pending operations with the outcome of a transaction. Ended by either call, or still
    pending."""

    async def commit_later(self) -> None:
        """The transaction was published; as `PendingLog.commit_later`."""

    async def rollback(self) -> bool:
        """The transaction was aborted; as `PendingLog.rollback`."""


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
        self.failed_commits = 0
        self.failed_rollbacks = 0

    async def begin(
        self, operations: Operations, *, together: bool = False, txn: str = ""
    ) -> PendingLog:
        """As `OperationLog.begin`; more than SEGMENT_OPERATIONS or SEGMENT_BYTES become several
        segments."""
        if not operations:
            return _NOTHING_PENDING
        objects = self._objects(operations, together=together, txn=txn)
        created: set[str] = set()

        def create(part: _LogObject) -> Awaitable[None]:
            return self.create(part.pending_key, part.pending(), created)

        async def withdraw() -> None:
            await gather(self.remove, created, limit=_OBJECTS_AT_ONCE)

        try:
            await gather(create, objects, limit=_OBJECTS_AT_ONCE)
        except (ResponseLostError, OutcomeUnknownError) as error:
            await to_the_end(withdraw)
            raise ServiceError(
                "the operation log could not be written, so nothing was changed"
            ) from error
        except (S3kError, asyncio.CancelledError):
            await to_the_end(withdraw)
            raise
        return _NativePending(self, objects)

    async def withdraw(self, txn: str) -> None:
        segments = KeyRange(transaction_segments(txn))
        found = {info.key async for info in list_range(self._blobs, segments)}
        pending = [key for key in sorted(found) if key.endswith(".pending")]
        left = [key for key in pending if committed_key(key) not in found]
        await gather(self.remove, left, limit=_OBJECTS_AT_ONCE)

    async def drained(self) -> None:
        """As `OperationLog.drained`."""
        await self._marks.drained()

    async def close(self) -> None:
        """As `OperationLog.close`; if cancelled, it gives up the marks in progress."""
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
        self.failed_commits += not written
        return written

    async def commit_later(self, key: str, data: bytes) -> None:
        """Start writing a committed object; waits only while too many are being written."""
        await self._marks.begin(partial(self.commit, key, data))

    async def remove(self, key: str) -> bool:
        """Remove a pending object; False, counted and logged, if that fails or takes too long."""
        removed = await self._finish(partial(self._blobs.delete, key), "not rolled back", key)
        self.failed_rollbacks += not removed
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

    def _objects(self, operations: Operations, *, together: bool, txn: str) -> list[_LogObject]:
        if len(operations) == 1 and not (together or txn):
            return [_EntryObject(operations[0])]
        parts: list[_LogObject] = []
        for first in range(0, len(operations), SEGMENT_OPERATIONS):
            start, end = first, min(len(operations), first + SEGMENT_OPERATIONS)
            for count, lines in cut_lines(segment_lines(operations, start, end), SEGMENT_BYTES):
                # After the transaction id a part of a UUID suffices, and keeps the key short.
                unique = self._runtime.uuid()[-UNIQUE_DIGITS:] if txn else self._runtime.uuid()
                ids = operation_ids(operations, start, start + count)
                parts.append(_SegmentObject(segment_id(unique, txn), ids, lines))
                start += count
        return parts


class _LogObject(Protocol):
    """The content of one pending object and its committed twin."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids of its operations."""

    @property
    def pending_key(self) -> str: ...

    @property
    def committed_key(self) -> str: ...

    def pending(self) -> bytes:
        """The pending object's bytes."""

    def committed(self, succeeded: Sequence[str], unknown: Sequence[str]) -> bytes:
        """The committed object's bytes, with the known outcome of at least one operation."""


class _EntryObject:
    def __init__(self, operation: Operation) -> None:
        self.ids = (operation.id,)
        self.pending_key = entry_key(operation, "pending")
        self.committed_key = committed_key(self.pending_key)
        self._line = operation_line(operation, self.pending_key)

    def pending(self) -> bytes:
        return entry_of_line(self._line, "pending")

    def committed(self, succeeded: Sequence[str], unknown: Sequence[str]) -> bytes:  # noqa: ARG002
        return entry_of_line(self._line, "committed")


class _SegmentObject:
    def __init__(self, segment_id: str, ids: Sequence[str], lines: bytes) -> None:
        self._id = segment_id
        self._count = len(ids)
        self._lines = lines
        self.ids = list(dict.fromkeys(ids))
        self.pending_key = segment_key(segment_id, "pending")
        self.committed_key = committed_key(self.pending_key)

    def pending(self) -> bytes:
        # Frees the written lines before the end of the change.
        lines, self._lines = self._lines, b""
        return seal_segment(self._id, self._count, lines)

    def committed(self, succeeded: Sequence[str], unknown: Sequence[str]) -> bytes:
        named = None if len(succeeded) == len(self.ids) else tuple(succeeded)
        return encode_segment_commit(SegmentCommit(self._id, self._count, named, tuple(unknown)))


class _NativePending:
    def __init__(self, log: NativeLog, objects: Sequence[_LogObject]) -> None:
        self._log = log
        self._objects = objects
        self._ids = {operation_id for part in objects for operation_id in part.ids}
        self._committing = False

    async def commit(
        self, succeeded: Collection[str] | None = None, *, unknown: Collection[str] = ()
    ) -> bool:
        marks, removals = self._endings(succeeded, unknown)

        async def end_all() -> bool:
            written = await gather(
                lambda mark: self._log.commit(*mark), marks, limit=_OBJECTS_AT_ONCE
            )
            removed = await gather(self._log.remove, removals, limit=_OBJECTS_AT_ONCE)
            return all([*written, *removed])

        return await to_the_end(end_all)

    async def commit_later(
        self, succeeded: Collection[str] | None = None, *, unknown: Collection[str] = ()
    ) -> None:
        marks, removals = self._endings(succeeded, unknown)
        await _HeldCommit(self._log, marks, removals, ()).commit_later()

    def hold(self, succeeded: Collection[str] | None = None) -> HeldLog:
        marks, removals = self._endings(succeeded, ())
        return _HeldCommit(self._log, marks, removals, [part.pending_key for part in self._objects])

    def _endings(
        self, succeeded: Collection[str] | None, unknown: Collection[str]
    ) -> tuple[list[tuple[str, bytes]], list[str]]:
        """The committed objects to write, key and bytes, and the keys of the pending ones to
        remove."""
        undecided = set(unknown)
        done = self._ids - undecided if succeeded is None else set(succeeded)
        if not (done | undecided) <= self._ids or done & undecided:
            raise ValueError(
                "the ids that succeeded and the unknown ones must be apart, and must have been "
                "begun"
            )
        self._committing = True
        marks, removals = [], []
        for part in self._objects:
            successes = [operation_id for operation_id in part.ids if operation_id in done]
            open_ids = [operation_id for operation_id in part.ids if operation_id in undecided]
            # Without a success, a mark still distinguishes failed operations from unknown ones.
            if successes or 0 < len(open_ids) < len(part.ids):
                marks.append((part.committed_key, part.committed(successes, open_ids)))
            elif not open_ids:
                removals.append(part.pending_key)
        return marks, removals

    async def rollback(self) -> bool:
        if self._committing:
            _logger.warning("operation log: a rollback after the commit was asked for and refused")
            return False

        keys = [part.pending_key for part in self._objects]

        async def remove_all() -> bool:
            return all(await gather(self._log.remove, keys, limit=_OBJECTS_AT_ONCE))

        return await to_the_end(remove_all)


@dataclass(frozen=True, slots=True)
class _HeldCommit:
    """HeldLog of keys and marks, a few hundred bytes for each object."""

    _log: NativeLog
    _marks: Sequence[tuple[str, bytes]]
    _removals: Sequence[str]
    _pending: Sequence[str]

    async def commit_later(self) -> None:
        for mark in self._marks:
            await self._log.commit_later(*mark)
        await gather(self._log.remove, self._removals, limit=_OBJECTS_AT_ONCE)

    async def rollback(self) -> bool:
        async def remove_all() -> bool:
            return all(await gather(self._log.remove, self._pending, limit=_OBJECTS_AT_ONCE))

        return await to_the_end(remove_all)
