"""Logged writes: the log's pending entry, then the table, then, asynchronously, the log's
commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

from s3k_async._core.active_calls import note_change
from s3k_async._core.concurrency import ended, to_the_end
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    MAX_TRANSACTION,
    Action,
    Item,
    ItemStore,
    Put,
    refusal_of,
)
from s3k_async.errors import ConditionFailedError, OutcomeUnknownError, S3kError
from s3k_async.model import Deletion, Entry
from s3k_async.oplog.entries import Operation, OperationKind
from s3k_async.oplog.log_writer import OperationLog
from s3k_async.oplog.pending_log import HeldLog, PendingLog
from s3k_async.oplog.segments import Operations
from s3k_async.txn.bucket_counters import BucketCounters
from s3k_async.txn.bucket_totals import BucketTotal, TotalChanges, added, bucket_above

__all__ = [
    "DataUpload",
    "IndexItems",
    "LoggedOutcome",
    "LoggedWriter",
    "OperationIndex",
    "TransactionLog",
]

DataUpload: TypeAlias = Callable[[], Awaitable[object]]
"""Stores the data of operations."""


class IndexItems(Protocol):
    """Index items that are written in the transactions which apply operations. None of them is in
    the way of an operation: one that is stored already is replaced."""

    def count(self, identities: Iterable[str] | None = None) -> int:
        """The maximum number of items of some operations, None: of all."""

    def puts(self, identities: Iterable[str] | None = None) -> list[Put]:
        """The writes of the items, each with its own key, on the condition that the item is absent
        or as it was noted last."""

    def note_stored(self, put: Put, item: Item | None) -> None:
        """Note what is stored at the key of a write whose condition failed."""


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

    index_items: IndexItems | None = None
    """The index items of the operations; None if they have none, or they are written already."""

    @property
    def has_journal(self) -> bool:
        """Whether transactions that apply operations may have more items than the entries."""
        return self.counters is not None or self.index_items is not None

    def journal_size(self, identities: Iterable[str] | None = None) -> int:
        """The maximum number of items beside the entries in the transaction that applies
        operations, None: all of them."""
        chosen = None if identities is None else list(identities)
        indexed = 0 if self.index_items is None else self.index_items.count(chosen)
        return indexed + len(self._totals_of(chosen))

    async def transact(
        self,
        items: ItemStore,
        actions: Sequence[Action],
        token: Callable[[], str],
        identities: Iterable[str] | None = None,
    ) -> None:
        """Apply operations in one transaction of the table, which counts them and writes their
        index items. `identities`: their ids, None: all. Raises as `ItemStore.transact`, with the
        positions of `actions` only."""
        await self.send(actions, lambda sent: items.transact(sent, token()), identities)

    async def send(
        self,
        actions: Sequence[Action],
        transact: Callable[[Sequence[Action]], Awaitable[object]],
        identities: Iterable[str] | None = None,
        first: int = 0,
    ) -> None:
        """As `transact`, by a given call that sends the actions. `first`: the number of actions
        that the call sends before them.

        After a lost answer, a refusal because of index items alone shows that the entries meet
        their conditions. So the transaction is sent again, to replace these items; if that fails,
        the outcome remains unknown."""
        if not self.has_journal:
            await transact(actions)
            return
        chosen = None if identities is None else list(identities)
        unknown: OutcomeUnknownError | None = None
        while True:
            journal = self._journal(chosen)
            indexed = [] if self.index_items is None else self.index_items.puts(chosen)
            others = first + len(actions) + len(journal)
            try:
                await transact([*actions, *journal, *indexed])
            except S3kError as error:
                if not self._may_replace(refusal_of(error), indexed, others):
                    if unknown is not None:
                        raise unknown from error
                    raise
                if isinstance(error, OutcomeUnknownError):
                    unknown = error
                await asyncio.sleep(0)
            else:
                self._written(journal)
                return

    async def index_before(
        self, items: ItemStore, token: Callable[[], str], identities: Sequence[str]
    ) -> None:
        """Write the index items before the operations are applied, where no transaction has room
        for both: the index may have too much. Raises as `ItemStore.transact`."""
        assert self.counters is None, "their journal belongs to the operations"
        for start in range(0, len(identities), MAX_TRANSACTION):
            some = identities[start : start + MAX_TRANSACTION]
            if self.journal_size(some):
                await self.transact(items, [], token, some)
        self.index_items = None

    async def write(self, items: ItemStore, action: Put, token: Callable[[], str]) -> None:
        """Apply the operations by one write, in a transaction of the table if it changes totals or
        has index items."""
        if self.has_journal and self.journal_size():
            await self.transact(items, [action], token)
        else:
            await items.write(action)

    def _totals_of(self, identities: Iterable[str] | None) -> Mapping[str, BucketTotal]:
        if self.counters is None or self.totals is None:
            return {}
        return self.totals.of(identities)

    def _journal(self, identities: Iterable[str] | None) -> list[Put]:
        """The journal items of buckets that belong to the transaction that applies operations."""
        return [] if self.counters is None else self.counters.journal(self._totals_of(identities))

    def _may_replace(
        self, error: ConditionFailedError | None, indexed: Sequence[Put], start: int
    ) -> bool:
        """Note the index items that made a transaction fail, and remove them from the error.
        `start`: the position of the first one. Whether they were the only reason, so that the
        transaction can be sent again, to replace them."""
        if error is None:
            return False
        end = start + len(indexed)
        refused = [place for place in error.current if start <= place < end]
        for place in refused:
            assert self.index_items is not None
            self.index_items.note_stored(indexed[place - start], error.current.pop(place))
        return bool(refused) and not error.current

    def _written(self, journal: Sequence[Put]) -> None:
        if self.counters is not None:
            self.counters.written(journal)


class OperationIndex(Protocol):
    """What must contain an entry before the table does, or together with it."""

    async def items_of(self, operations: Operations) -> IndexItems | None:
        """Called before operations are applied: writes the items that precede them, and returns
        those that belong in the transactions that apply them, if any. Raises the errors of the
        table."""

    async def size_of(self, operations: Operations) -> int:
        """The number of items that `items_of` would return. Raises the errors of the table."""


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

    async def index_size(self, operations: Operations) -> int:
        """The number of index items in the transactions that apply operations. Raises the errors of
        the table, before any change."""
        try:
            return await self._index.size_of(operations)
        except S3kError as error:
            error.before_change = True
            raise

    async def run(
        self,
        operations: Operations,
        body: Callable[[LoggedOutcome], Awaitable[object]],
        counted_at: str = "",
        upload: DataUpload | None = None,
    ) -> None:
        """Log the operations around the table writes of `body`, which makes them by
        `LoggedOutcome.transact` or `write`; the commit record is written asynchronously.
        `counted_at`: a path in the bucket of entries whose path is not known. `upload`: the upload
        of their data, which is stored before `body` runs.

        After the pending entry is written, a cancellation waits for the end: the rest is short, and
        abandoning it would leave the outcome unknown. A definite failure rolls the log back; an
        unknown outcome leaves it pending, for fsck to decide.
        """
        outcome = self._outcome(await self.totals(operations, counted_at))
        pending = await self._begin_and_upload(operations, outcome, upload)

        async def rest() -> None:
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
        outcome = self._outcome(await self.totals(operations, counted_at))
        pending = await self.begin(operations, outcome)
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

    async def begin(
        self, operations: Operations, outcome: LoggedOutcome, transaction: str = ""
    ) -> PendingLog:
        """Log the operations as pending. `transaction`: the id of the one that publishes them. The
        outcome gets the index items that the body writes. A failure precedes any change."""
        try:
            outcome.index_items = await self._index.items_of(operations)
            return await self.log.begin(operations, txn=transaction)
        except S3kError as error:
            error.before_change = True
            raise

    async def _begin_and_upload(
        self,
        operations: Operations,
        outcome: LoggedOutcome,
        upload: DataUpload | None,
    ) -> PendingLog:
        """As `begin`, while the data is being stored. If either fails, or the caller is cancelled,
        nothing is pending."""
        if upload is None:
            return await self.begin(operations, outcome)
        beginning = asyncio.create_task(self.begin(operations, outcome))
        try:
            await upload()
            if not beginning.done():
                await ended(beginning)
        except BaseException as error:
            if isinstance(error, S3kError):
                error.before_change = True
            await to_the_end(partial(_withdraw, beginning))
            raise
        return beginning.result()


async def _withdraw(beginning: asyncio.Task[PendingLog]) -> None:
    """Cancel the logging of operations, or roll them back."""
    beginning.cancel()
    await ended(beginning)
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
        outcome = LoggedOutcome(succeeded=set())
        pending = await self._writer.begin(operations, outcome, self._transaction)
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
