"""Operations that the log holds as pending, and the objects that hold them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from s3k_async._core.concurrency import gather, to_the_end
from s3k_async.oplog.entries import (
    Operation,
    committed_key,
    entry_key,
    entry_of_line,
    operation_line,
    segment_key,
)
from s3k_async.oplog.segments import SegmentCommit, encode_segment_commit, seal_segment

__all__ = [
    "OBJECTS_AT_ONCE",
    "EntryObject",
    "HeldLog",
    "LogObject",
    "PendingLog",
    "PendingObjects",
    "SegmentObject",
    "decided",
]

OBJECTS_AT_ONCE: Final = 8
"""Objects of one call that are written or removed concurrently."""

_logger = logging.getLogger(__name__)


class PendingLog(Protocol):
    """Operations that the log holds as pending.

    Ended by one of `commit`, `commit_later`, `rollback` and `abandon`.
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
        returns, unless they are in a group. To be called inside `to_the_end`."""

    def hold(self, succeeded: Collection[str] | None = None) -> HeldLog:
        """The commit or roll-back at the end of an undecided transaction, without the operations in
        memory.

        `succeeded`: the ids of those applied if the transaction is published (None: all). Raises
        ValueError as `commit`.
        """

    async def rollback(self) -> bool:
        """Remove the objects of `begin`, after a definite failure.

        False if an object is left, or if `commit` was called before: then nothing is removed.
        Of a group, the operations are left out of its mark, which follows. Cancellation and errors
        as for `commit`.
        """

    def abandon(self) -> None:
        """The outcome of the change is unknown: the operations stay pending."""


class HeldLog(Protocol):
    """Pending operations with the outcome of a transaction. Ended by either call, or still
    pending."""

    async def commit_later(self) -> None:
        """The transaction was published; as `PendingLog.commit_later`."""

    async def rollback(self) -> bool:
        """The transaction was aborted; as `PendingLog.rollback`."""


class LogObject(Protocol):
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

    def committed(self, succeeded: Sequence[str] | None, unknown: Sequence[str] = (), /) -> bytes:
        """The committed object's bytes, with the known outcome of at least one operation.
        `succeeded`: None: all of them."""


class EntryObject:
    """An entry: one operation."""

    def __init__(self, operation: Operation) -> None:
        self.ids = (operation.id,)
        self.pending_key = entry_key(operation, "pending")
        self.committed_key = committed_key(self.pending_key)
        self._line = operation_line(operation, self.pending_key)

    def pending(self) -> bytes:
        return entry_of_line(self._line, "pending")

    def committed(self, _succeeded: Sequence[str] | None, _unknown: Sequence[str] = (), /) -> bytes:
        return entry_of_line(self._line, "committed")


class SegmentObject:
    """A segment. `ids`: of its operations; `lines`: the operations, as `segment_lines`."""

    def __init__(self, segment_id: str, ids: Sequence[str], lines: bytes) -> None:
        self._id = segment_id
        self._count = len(ids)
        self._lines = lines
        self._ids = ids
        self.pending_key = segment_key(segment_id, "pending")
        self.committed_key = committed_key(self.pending_key)

    @cached_property
    def ids(self) -> Sequence[str]:
        # Only a partial outcome needs them: five thousand take a fifth of the time of the lines.
        return list(dict.fromkeys(self._ids))

    def pending(self) -> bytes:
        # Frees the written lines before the end of the change.
        lines, self._lines = self._lines, b""
        return seal_segment(self._id, self._count, lines)

    def committed(self, succeeded: Sequence[str] | None, unknown: Sequence[str] = (), /) -> bytes:
        if succeeded is not None and len(succeeded) == len(self.ids):
            succeeded = None
        named = None if succeeded is None else tuple(succeeded)
        return encode_segment_commit(SegmentCommit(self._id, self._count, named, tuple(unknown)))


def decided(
    ids: Collection[str], succeeded: Collection[str] | None, unknown: Collection[str]
) -> tuple[set[str], set[str]]:
    """The operations that succeeded and those of unknown outcome, of those with the `ids`;
    `succeeded` as in `PendingLog.commit`. Raises ValueError."""
    if succeeded is None and not unknown:
        return (ids if isinstance(ids, set) else set(ids)), set()
    undecided = set(unknown)
    done = set(ids) - undecided if succeeded is None else set(succeeded)
    if not (done | undecided) <= set(ids) or done & undecided:
        raise ValueError(
            "the ids that succeeded and the unknown ones must be apart, and must have been begun"
        )
    return done, undecided


class ObjectWriter(Protocol):
    """The part of the log's writer that ends pending operations."""

    async def commit(self, key: str, data: bytes) -> bool:
        """Write a committed object; False if that fails or takes too long."""

    async def commit_later(self, key: str, data: bytes) -> None:
        """Start writing a committed object."""

    async def remove(self, key: str) -> bool:
        """Remove a pending object; False if that fails or takes too long."""


class PendingObjects:
    """PendingLog of operations in objects that hold no others."""

    def __init__(self, log: ObjectWriter, objects: Sequence[LogObject]) -> None:
        self._log = log
        self._objects = objects
        self._committing = False

    async def commit(
        self, succeeded: Collection[str] | None = None, *, unknown: Collection[str] = ()
    ) -> bool:
        marks, removals = self._endings(succeeded, unknown)

        async def end_all() -> bool:
            written = await gather(
                lambda mark: self._log.commit(*mark), marks, limit=OBJECTS_AT_ONCE
            )
            removed = await gather(self._log.remove, removals, limit=OBJECTS_AT_ONCE)
            return all([*written, *removed])

        return await to_the_end(end_all)

    async def commit_later(
        self, succeeded: Collection[str] | None = None, *, unknown: Collection[str] = ()
    ) -> None:
        marks, removals = self._endings(succeeded, unknown)
        await HeldObjects(self._log, marks, removals, ()).commit_later()

    def hold(self, succeeded: Collection[str] | None = None) -> HeldLog:
        marks, removals = self._endings(succeeded, ())
        return HeldObjects(self._log, marks, removals, [part.pending_key for part in self._objects])

    def _endings(
        self, succeeded: Collection[str] | None, unknown: Collection[str]
    ) -> tuple[list[tuple[str, bytes]], list[str]]:
        """The committed objects to write, key and bytes, and the keys of the pending ones to
        remove."""
        if succeeded is None and not unknown:
            self._committing = True
            return [(part.committed_key, part.committed(None)) for part in self._objects], []
        ids = {operation_id for part in self._objects for operation_id in part.ids}
        done, undecided = decided(ids, succeeded, unknown)
        self._committing = True
        marks, removals = [], []
        for part in self._objects:
            if len(done) == len(ids):
                successes, open_ids = list(part.ids), []
            else:
                successes = [operation_id for operation_id in part.ids if operation_id in done]
                open_ids = [operation_id for operation_id in part.ids if operation_id in undecided]
            # Without a success, a mark still distinguishes failed operations from unknown ones.
            if successes or 0 < len(open_ids) < len(part.ids):
                marks.append((part.committed_key, part.committed(successes, open_ids)))
            elif not open_ids:
                removals.append(part.pending_key)
        return marks, removals

    def abandon(self) -> None:
        pass  # the pending objects stay

    async def rollback(self) -> bool:
        if self._committing:
            _logger.warning("operation log: a rollback after the commit was asked for and refused")
            return False

        keys = [part.pending_key for part in self._objects]

        async def remove_all() -> bool:
            return all(await gather(self._log.remove, keys, limit=OBJECTS_AT_ONCE))

        return await to_the_end(remove_all)


@dataclass(frozen=True, slots=True)
class HeldObjects:
    """HeldLog of keys and marks, a few hundred bytes for each object."""

    _log: ObjectWriter
    _marks: Sequence[tuple[str, bytes]]
    _removals: Sequence[str]
    _pending: Sequence[str]

    async def commit_later(self) -> None:
        for mark in self._marks:
            await self._log.commit_later(*mark)
        await gather(self._log.remove, self._removals, limit=OBJECTS_AT_ONCE)

    async def rollback(self) -> bool:
        async def remove_all() -> bool:
            return all(await gather(self._log.remove, self._pending, limit=OBJECTS_AT_ONCE))

        return await to_the_end(remove_all)
