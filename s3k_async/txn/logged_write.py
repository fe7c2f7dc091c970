"""Logged writes: the log's pending entry, then the table, then, asynchronously, the log's
commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

from s3k_async._core.active_calls import note_change
from s3k_async._core.concurrency import to_the_end
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import Action, ItemStore, Put
from s3k_async.errors import OutcomeUnknownError, S3kError
from s3k_async.model import Deletion, Entry
from s3k_async.oplog.entries import Operation, OperationKind
from s3k_async.oplog.log_writer import OperationLog
from s3k_async.oplog.pending_log import HeldLog, PendingLog
from s3k_async.oplog.segments import Operations
from s3k_async.txn.bucket_counters import BucketCounters
from s3k_async.txn.bucket_totals import BucketTotal, TotalChanges, added, bucket_above

__all__ = ["DataUpload", "LoggedOutcome", "LoggedWriter", "OperationIndex", "TransactionLog"]

DataUpload: TypeAlias = Callable[[], Awaitable[object]]
"""Stores the data of operations."""


@dataclass(slots=True)
class LoggedOutcome:
    """The outcome of logged operations, by id."""

    succeeded: set[str] | None = None
    """Operations that were applied; None: all but the unknown ones."""
    unknown: set[str] = field(default_factory=set)
    """Operations with an unknown outcome; they stay pending."""
    counters: BucketCounters | None = None
    """The counters of buckets that the writes of the body change; None if they change none."""
    totals: TotalChanges | None = None
    """What the operations change in the totals of buckets."""

    def journal(self, identities: Iterable[str] | None = None) -> list[Put]:
        """The journal items that belong to the transaction that applies operations, None: all of
        them."""
        if self.counters is None or self.totals is None:
            return []
        return self.counters.journal(self.totals.of(identities))

    async def transact(
        self,
        items: ItemStore,
        actions: Sequence[Action],
        token: str,
        identities: Iterable[str] | None = None,
    ) -> None:
        """Apply operations in one transaction of the table, which counts them. Raises as
        `ItemStore.transact`."""
        journal = self.journal(identities)
        await items.transact([*actions, *journal] if journal else actions, token)
        self._written(journal)

    async def write(self, items: ItemStore, action: Put, token: Callable[[], str]) -> None:
        """Apply the operations by one write, in a transaction of the table if it changes totals."""
        journal = self.journal()
        if journal:
            await items.transact([action, *journal], token())
        else:
            await items.write(action)
        self._written(journal)

    def _written(self, journal: Sequence[Put]) -> None:
        if self.counters is not None:
            self.counters.written(journal)


class OperationIndex(Protocol):
    """What must contain an entry before the table does."""

    async def add_operations(self, operations: Operations) -> None:
        """Add the states after operations that are about to be applied. Raises the errors of the
        table."""


class LoggedWriter:
    """Logs operations before and after the table changes."""

    def __init__(
        self,
        log: OperationLog,
        runtime: Runtime,
        index: OperationIndex,
        counters: BucketCounters | None = None,
    ) -> None:
        """`counters`: those of buckets; None in a volume without them."""
        self.log = log
        self.counters = counters
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

    async def totals(self, operations: Operations, counted_at: str = "") -> TotalChanges | None:
        """What operations that are about to be logged change in the totals of buckets; None if they
        change nothing. Raises as `BucketCounters.changes`; that precedes any change."""
        if self.counters is None:
            return None
        try:
            return await self.counters.changes(operations, counted_at) or None
        except S3kError as error:
            error.before_change = True
            raise

    def journal_size(self, operations: Operations, trees: Iterable[str] = ()) -> int:
        """The maximum number of journal items in a transaction that applies operations, and moves
        or removes everything below the paths in `trees`."""
        if self.counters is None:
            return 0
        return len(TotalChanges(operations).buckets.union(map(bucket_above, trees)))

    async def run(
        self,
        operations: Operations,
        body: Callable[[LoggedOutcome], Awaitable[object]],
        counted_at: str = "",
        upload: DataUpload | None = None,
    ) -> None:
        """Log the operations around the table writes of `body`; the commit record is written
        asynchronously. `counted_at`: a path in the bucket of entries whose path is not known.
        `upload`: the upload of their data, which is stored before `body` runs.

        After the pending entry is written, a cancellation waits for the end: the rest is short, and
        abandoning it would leave the outcome unknown. A definite failure rolls the log back; an
        unknown outcome leaves it pending, for fsck to decide.
        """
        totals = await self.totals(operations, counted_at)
        pending = await self._begin_and_upload(operations, upload)

        async def rest() -> None:
            outcome = self._outcome(totals)
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
        await self.fold()

    async def run_parts(
        self,
        operations: Operations,
        body: Callable[[LoggedOutcome], Awaitable[object]],
        counted_at: str = "",
    ) -> None:
        """As `run`, for a body of many parts, which a cancellation interrupts. The outcomes
        recorded by then are logged in any case: operations recorded neither as succeeded nor as
        unknown were not applied.
        """
        totals = await self.totals(operations, counted_at)
        pending = await self.begin(operations)
        outcome = self._outcome(totals)
        outcome.succeeded = set()
        try:
            await body(outcome)
        finally:
            if outcome.unknown or outcome.succeeded != set():
                note_change()
            await to_the_end(
                lambda: pending.commit_later(outcome.succeeded, unknown=outcome.unknown)
            )
        await self.fold()

    async def fold(self) -> None:
        """Fold the journal of buckets, if this client has enough of it."""
        if self.counters is not None:
            await self.counters.fold_full()

    def _outcome(self, totals: TotalChanges | None) -> LoggedOutcome:
        return LoggedOutcome(counters=self.counters if totals else None, totals=totals)

    async def begin(self, operations: Operations, transaction: str = "") -> PendingLog:
        """Log the operations as pending. A failure of this precedes any change."""
        try:
            await self._index.add_operations(operations)
            return await self.log.begin(operations, txn=transaction)
        except S3kError as error:
            error.before_change = True
            raise

    async def _begin_and_upload(
        self, operations: Operations, upload: DataUpload | None
    ) -> PendingLog:
        """As `begin`, while the data is being stored. If either fails, or the caller is cancelled,
        nothing is pending."""
        if upload is None:
            return await self.begin(operations)
        beginning = asyncio.create_task(self.begin(operations))
        try:
            await upload()
            if not beginning.done():
                await asyncio.wait({beginning})
        except BaseException as error:
            if isinstance(error, S3kError):
                error.before_change = True
            await to_the_end(partial(_withdraw, beginning))
            raise
        return beginning.result()


async def _withdraw(beginning: asyncio.Task[PendingLog]) -> None:
    """Cancel the logging of operations, or roll them back."""
    beginning.cancel()
    await asyncio.wait({beginning})
    if not beginning.cancelled() and beginning.exception() is None:
        await beginning.result().rollback()


class TransactionLog:
    """The log of a transaction: its operations are pending until its record is committed, and
    counted by the write that commits it."""

    def __init__(self, writer: LoggedWriter, transaction: str) -> None:
        self._writer = writer
        self._transaction = transaction
        self._held: list[HeldLog] = []
        self._totals: dict[str, BucketTotal] = {}

    async def run_parts(
        self, operations: Operations, body: Callable[[LoggedOutcome], Awaitable[object]]
    ) -> None:
        """As `LoggedWriter.run_parts`, but the recorded outcomes take effect only after the
        commit."""
        totals = await self._writer.totals(operations)
        pending = await self._writer.begin(operations, self._transaction)
        outcome = LoggedOutcome(succeeded=set())
        try:
            await body(outcome)
        finally:
            self._held.append(pending.hold(outcome.succeeded))
            if totals is not None:
                self._totals = added([self._totals, totals.of(outcome.succeeded)])

    def journal(self) -> list[Put]:
        """The journal items that belong to the transaction that publishes the record."""
        counters = self._writer.counters
        return [] if counters is None else counters.journal(self._totals)

    async def commit(self, journal: Sequence[Put] = ()) -> None:
        """Record that the transaction was published, with the journal items in the same write."""
        if self._writer.counters is not None:
            self._writer.counters.written(journal)
        for held in self._held:
            await held.commit_later()

    async def rollback(self) -> None:
        for held in self._held:
            await held.rollback()
