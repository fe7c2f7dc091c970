"""Logged writes: the log's pending entry, then the table, then, asynchronously, the log's
commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from s3k_async._core.active_calls import note_change
from s3k_async._core.concurrency import to_the_end
from s3k_async._core.runtime import Runtime
from s3k_async.errors import OutcomeUnknownError, S3kError
from s3k_async.model import Deletion, Entry
from s3k_async.oplog.entries import Operation, OperationKind
from s3k_async.oplog.log_writer import OperationLog
from s3k_async.oplog.pending_log import HeldLog, PendingLog
from s3k_async.oplog.segments import Operations

__all__ = ["LoggedOutcome", "LoggedWriter", "OperationIndex", "TransactionLog"]


@dataclass(slots=True)
class LoggedOutcome:
    """The outcome of logged operations, by id."""

    succeeded: set[str] | None = None
    """Operations that were applied; None: all but the unknown ones."""
    unknown: set[str] = field(default_factory=set)
    """Operations with an unknown outcome; they stay pending."""


class OperationIndex(Protocol):
    """What must contain an entry before the table does."""

    async def add_operations(self, operations: Operations) -> None:
        """Add the states after operations that are about to be applied. Raises the errors of the
        table."""


class LoggedWriter:
    """Logs operations before and after the table changes."""

    def __init__(self, log: OperationLog, runtime: Runtime, index: OperationIndex) -> None:
        self.log = log
        self._runtime = runtime
        self._index = index

    def operation(
        self,
        kind: OperationKind,
        before: Entry | None,
        after: Entry | None,
        trash: Deletion | None = None,
    ) -> Operation:
        """The log record of one change of one entry. The operation id is that of `after`; a removal
        gets a new one. `trash`: of an entry that is in the trash after the change."""
        if after is not None:
            identity, object_id, version = after.operation, after.id, after.version
        else:
            assert before is not None
            identity, object_id, version = self._runtime.uuid(), before.id, before.version + 1
        return Operation(
            id=identity,
            kind=kind,
            object_id=object_id,
            version=version,
            time_ms=self._runtime.now_ms(),
            before=before,
            after=after,
            trash=trash,
        )

    async def run(
        self, operations: Operations, body: Callable[[LoggedOutcome], Awaitable[object]]
    ) -> None:
        """Log the operations around the table writes of `body`; the commit record is written
        asynchronously.

        After the pending entry is written, a cancellation waits for the end: the rest is short, and
        abandoning it would leave the outcome unknown. A definite failure rolls the log back; an
        unknown outcome leaves it pending, for fsck to decide.
        """
        pending = await self.begin(operations)

        async def rest() -> None:
            outcome = LoggedOutcome()
            try:
                await body(outcome)
            except OutcomeUnknownError:
                note_change()
                pending.abandon()
                raise
            except S3kError:
                await pending.rollback()
                raise
            note_change()
            await pending.commit_later(outcome.succeeded, unknown=outcome.unknown)

        await to_the_end(rest)

    async def run_parts(
        self, operations: Operations, body: Callable[[LoggedOutcome], Awaitable[object]]
    ) -> None:
        """As `run`, for a body of many parts, which a cancellation interrupts. The outcomes
        recorded by then are logged in any case: operations recorded neither as succeeded nor as
        unknown were not applied.
        """
        pending = await self.begin(operations)
        outcome = LoggedOutcome(succeeded=set())
        try:
            await body(outcome)
        finally:
            if outcome.unknown or outcome.succeeded != set():
                note_change()
            await to_the_end(
                lambda: pending.commit_later(outcome.succeeded, unknown=outcome.unknown)
            )

    async def begin(self, operations: Operations, transaction: str = "") -> PendingLog:
        """Log the operations as pending. A failure of this precedes any change."""
        try:
            await self._index.add_operations(operations)
            return await self.log.begin(operations, txn=transaction)
        except S3kError as error:
            error.before_change = True
            raise


class TransactionLog:
    """The log of a transaction: its operations are pending until its record is committed."""

    def __init__(self, writer: LoggedWriter, transaction: str) -> None:
        self._writer = writer
        self._transaction = transaction
        self._held: list[HeldLog] = []

    async def run_parts(
        self, operations: Operations, body: Callable[[LoggedOutcome], Awaitable[object]]
    ) -> None:
        """As `LoggedWriter.run_parts`, but the recorded outcomes take effect only after the
        commit."""
        pending = await self._writer.begin(operations, self._transaction)
        outcome = LoggedOutcome(succeeded=set())
        try:
            await body(outcome)
        finally:
            self._held.append(pending.hold(outcome.succeeded))

    async def commit(self) -> None:
        for held in self._held:
            await held.commit_later()

    async def rollback(self) -> None:
        for held in self._held:
            await held.rollback()
