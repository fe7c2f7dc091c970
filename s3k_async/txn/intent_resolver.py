"""The intent resolver: applies write intents if their transaction committed, removes them if it
aborted.

A client that has to change an entry with an intent resolves the intent first. It waits while the
transaction's lease is valid, and takes over a transaction whose lease has expired. Intents are
resolved from the stored items, directories after their children, so that the next client finds the
remaining ones by a walk from the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from s3k_async._core.active_calls import note_event
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    OPERATION,
    Condition,
    Delete,
    Put,
    Update,
    Value,
)
from s3k_async.errors import BusyError, ConditionFailedError, ItemFormatError, OutcomeUnknownError
from s3k_async.model import Entry
from s3k_async.table.codec import NEXT, to_item
from s3k_async.table.stored_reader import StoredReader
from s3k_async.txn.executor import Lane, by_transaction, execute, unlogged
from s3k_async.txn.row_plan import RowPlan
from s3k_async.txn.txn_manifest import ManifestPart, read_part, remove_parts
from s3k_async.txn.txn_record import (
    POLL_CAP_SECONDS,
    POLL_SECONDS,
    OwnedTransaction,
    TransactionRecord,
    TransactionRecords,
)
from s3k_async.txn.write_intent import CREATED, REMOVED, NewState, parse_intent, transaction_of

__all__ = ["IntentResolver"]


class EndTrees(Protocol):
    """`namespace.layout.Layout.end_trees`."""

    async def __call__(
        self, txn: OwnedTransaction, source: str, target: str, *, published: bool
    ) -> None: ...


class IntentResolver:
    """Resolves the write intents of a volume for calls that encounter them."""

    def __init__(
        self,
        reader: StoredReader,
        transactions: TransactionRecords,
        runtime: Runtime,
        busy_timeout: float,
        end_trees: EndTrees,
    ) -> None:
        """`end_trees` resolves the intents at and below a source and a target of a transaction."""
        self._reader = reader
        self._transactions = transactions
        self._runtime = runtime
        self._busy_timeout = busy_timeout
        self._end_trees = end_trees

    async def resolve(self, entry: Entry) -> None:
        """Wait until the stored item no longer carries the intent of `entry`, or may not; read it
        again afterwards.

        Raises BusyError when another client's transaction has not ended within the busy timeout.
        """
        deadline = self._runtime.monotonic() + self._busy_timeout
        delay = POLL_SECONDS
        while True:
            record = await self._transactions.record(transaction_of(entry.pending))
            if record is None or (
                record.kind == "mark" and not self._transactions.lease_runs(record)
            ):
                await self._end_one(entry, published=False)
                return
            if record.is_published and not entry.is_dir:
                # The intent of a file affects only that file; the intent of a directory affects
                # everything below it.
                await self._end_one(entry, published=True)
                return
            if not self._transactions.lease_runs(record):
                await self._complete_around(entry, record)
            elif self._runtime.monotonic() >= deadline:
                raise BusyError(
                    "gave up: another client is moving or deleting this entry", path=entry.path
                )
            else:
                await self._runtime.sleep(self._runtime.uniform(delay / 2, delay))
                delay = min(POLL_CAP_SECONDS, delay * 2)
            if await self._is_over(entry):
                return

    async def _complete_around(self, entry: Entry, record: TransactionRecord) -> None:
        """Finish a transaction, or, if a damaged item prevents that, at least this entry. The
        remaining intents mean the old side, with the record and without it.
        """
        try:
            await self.complete(record)
        except ItemFormatError:
            if record.is_published:
                raise
            await self._end_one(entry, published=False)

    async def keeps_directory(self, directory: Entry, *, end_removal: bool = False) -> bool:
        """Whether no transaction removes or moves a directory with an intent. An intent without
        effect is removed. With `end_removal`, the intent of a client that is removing the
        directory as empty is removed too, and that removal fails.
        """
        record = await self._transactions.record(transaction_of(directory.pending))
        state = _new_state(directory)
        if record is not None and record.is_published:
            return state == CREATED
        if record is not None and (
            record.kind != "mark" or (not end_removal and self._transactions.lease_runs(record))
        ):
            return False
        return await self._end_one(directory, published=False) and state != CREATED

    async def complete(self, record: TransactionRecord) -> bool:
        """Take over a transaction whose lease has expired, and finish it. False if another client
        was faster."""
        async with self._transactions.take_over(record) as txn:
            if txn is None:
                return False
            await self.end(txn, record.source, record.target, published=record.is_published)
            done = "rolled_forward" if record.is_published else "rolled_back"
            note_event(f"transaction.{done}")
            return True

    async def end(
        self, txn: OwnedTransaction, source: str, target: str, *, published: bool
    ) -> None:
        """Apply or remove all intents of a transaction. Raises the first failure; can be
        repeated."""
        if txn.kind == "transaction":
            await self._end_parts(txn, published=published)
        await self._end_trees(txn, source, target, published=published)
        txn.over = True

    async def _end_parts(self, txn: OwnedTransaction, *, published: bool) -> None:
        """From the last part to the first, so that a directory that the transaction created comes
        after its content."""
        damage: ItemFormatError | None = None
        for number in reversed(range(txn.parts)):
            try:
                part = await read_part(self._reader.items, txn.id, number)
            except ItemFormatError as error:
                damage = error
                continue
            if part is not None:
                await self._end_part(txn, part, published=published)
        if damage is not None and published:
            # The listed intents mean the new side only as long as the record exists.
            raise damage
        await remove_parts(self._reader.items, txn)

    async def _end_part(
        self, txn: OwnedTransaction, part: ManifestPart, *, published: bool
    ) -> None:
        for top in part.trees:
            await self._end_trees(txn, top, top, published=published)
        stored = await self._reader.stored_many(part.entry_keys)
        held = [
            entry
            for entry in stored
            if entry is not None and transaction_of(entry.pending) == txn.id
        ]
        plan = RowPlan(held, lambda entry: [self._resolution(entry, published=published)])
        files = [row for row, entry in enumerate(held) if not entry.is_dir]
        directories = [row for row, entry in enumerate(held) if entry.is_dir][::-1]
        await self._apply(txn, plan, [(rows,) for rows in by_transaction(files)])
        await self._apply(txn, plan, [by_transaction(directories)])

    async def _apply(
        self, txn: OwnedTransaction, plan: RowPlan[Entry], lanes: Sequence[Lane]
    ) -> None:
        """Entries that have changed since the read were resolved by another client."""
        report = await execute(
            self._reader.items, unlogged, plan, lanes, self._runtime.uuid, turn=txn.turn
        )
        report.raise_failure()

    async def _is_over(self, entry: Entry) -> bool:
        stored = await self._reader.stored(entry.entry_key)
        return stored is None or stored.pending != entry.pending

    async def _end_one(self, entry: Entry, *, published: bool) -> bool:
        """Apply or remove one intent. False if it may still exist."""
        try:
            await self._reader.items.write(self._resolution(entry, published=published))
        except (ConditionFailedError, OutcomeUnknownError):
            return False
        note_event("intent.applied" if published else "intent.removed")
        return True

    def _resolution(self, entry: Entry, *, published: bool) -> Put | Update | Delete:
        """The write that applies an intent, or removes it."""
        state, keys = _new_state(entry), self._reader.keys
        key, held = keys.of(entry), Condition(equals={NEXT: entry.pending})
        if state == (REMOVED if published else CREATED):
            return Delete(key, held)
        if published and isinstance(state, Entry):
            return Put(to_item(state, keys), held)
        # Listings detect changes of a directory by its operation id.
        stamp: dict[str, Value] = {OPERATION: self._runtime.uuid()} if entry.is_dir else {}
        return Update(key, held, set=stamp, remove=(NEXT,))


def _new_state(entry: Entry) -> NewState:
    """The new state of a held entry; an unreadable intent changes nothing."""
    try:
        return parse_intent(entry.pending).new_state
    except ItemFormatError:
        return None
