"""Atomic renames and deletions of directories.

Every entry below the source gets a write intent, and a rename writes invisible entries at the
target; then the change is committed as any `RecordedChange`. A directory gets its intent before it
is listed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from s3k_async import _native
from s3k_async._core.concurrency import to_the_end
from s3k_async._native import Entries
from s3k_async.backends.ports.items import ABSENT, Action, Put
from s3k_async.errors import (
    BusyError,
    ConditionFailedError,
    PathExistsError,
    RenameIntoSelfError,
    UncommittedFileError,
)
from s3k_async.layouts.path.file_moves import plan_moves
from s3k_async.layouts.path.recursive import NotInterruptedError, Tree
from s3k_async.layouts.path.tree_change import TreeChange, look_ahead
from s3k_async.model import ChangeResult, ChangeTally, Entry
from s3k_async.namespace.conflict_backoff import ObstructedError, until_unobstructed
from s3k_async.namespace.layout import Chain, OnProgress
from s3k_async.namespace.recorded_change import RecordedChange
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import NEXT, from_item, in_columns, to_item
from s3k_async.table.keys import Directory
from s3k_async.txn.chunking import cost, mixed_chunks, reread
from s3k_async.txn.column_plan import ColumnPlan, plan_deletes
from s3k_async.txn.executor import Refusal, execute
from s3k_async.txn.logged_write import LoggedOutcome, TransactionLog
from s3k_async.txn.txn_record import OwnedTransaction
from s3k_async.txn.write_intent import transaction_of

__all__ = ["AtomicChange", "AtomicTree", "SubtreePreparation"]


class AtomicTree:
    """Recursive changes over a metadata store, each made visible by one write."""

    def __init__(self, store: MetadataStore, tree: Tree) -> None:
        self._store = store
        self._plain = tree

    async def delete(self, entry: Entry, *, progress: OnProgress = None) -> ChangeResult:
        """Delete a directory and everything below it, reservations included. The data is left to
        garbage collection.

        Raises PathNotFoundError, NotDirectoryError, ConflictError (another directory is there),
        BusyError, and the services' errors: then nothing was changed. OutcomeUnknownError: either
        everything was deleted, or nothing.
        """
        self._store.require_writable(entry.path)
        async with self._store.transactions.hold("delete", entry.path) as txn:
            change = AtomicChange(self._store, txn, entry.path, "", progress)

            async def prepare() -> None:
                await change.log_removal(await change.hold_top(entry, same=True))
                await change.below(entry.path, "")

            await change.run(prepare)
        return change.tally.result()

    async def rename(
        self,
        source: Entry,
        target: str,
        *,
        found: Chain | None = None,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Move a directory and everything below it. Object ids stay, versions are incremented. The
        target must not exist. `found`: the target with its ancestors, if it was just read.

        Raises RenameIntoSelfError, PathExistsError, PathNotFoundError (source, or target's parent),
        NotDirectoryError, UncommittedFileError (another client is writing a new file below),
        BusyError, and the services' errors: then nothing was changed. OutcomeUnknownError: either
        everything was moved, or nothing.
        """
        store = self._store
        store.require_writable(target)
        if target == source.path or target.startswith(source.path + "/"):
            raise RenameIntoSelfError("a directory cannot be moved into itself", path=target)
        # Checked before anything is held as well, so that a refusal changes nothing.
        existing = found[-1][1] if found else await store.get(target)
        if existing is not None and existing.pending:
            existing = await store.get(target)
        if existing is not None and existing.id == source.id:
            # An interrupted plain rename of the same directory is finished in the plain mode.
            with suppress(NotInterruptedError):
                return await self._plain.rename(source, target, resume=True, progress=progress)
        with suppress(ObstructedError):
            await look_ahead(store, target, found=found)
        return await until_unobstructed(store, lambda: self._rename(source, target, progress))

    async def _rename(self, source: Entry, target: str, progress: OnProgress) -> ChangeResult:
        async with self._store.transactions.hold("rename", source.path, target) as txn:
            change = AtomicChange(self._store, txn, source.path, target, progress)

            async def prepare() -> None:
                held = await change.hold_top(source)
                # The intent is set before these reads: of two directories renamed into each other,
                # one sees the other.
                await look_ahead(self._store, target)
                await change.put_top(held)
                await change.below(source.path, target)

            await change.run(prepare)
        return change.tally.result()


class SubtreePreparation(TreeChange):
    """Puts the intents of a transaction on everything below a directory that it holds."""

    def __init__(
        self,
        store: MetadataStore,
        txn: OwnedTransaction,
        log: TransactionLog,
        tally: ChangeTally,
        progress: OnProgress = None,
    ) -> None:
        super().__init__(store, txn, txn.kind, tally, progress)
        self._log = log

    async def below(self, directory: str, target: str) -> None:
        """Prepare the content of a held directory, for the new path in `target`."""

        async def chunk(entries: Entries) -> None:
            await self.budget.run_all(child, await self._prepare(entries, target))

        async def child(path: str) -> None:
            await self.below(path, _native.join(target, _native.split(path)[1]) if target else "")

        pages = self.store.stored_children(Directory.at(directory))
        await self.budget.run_all(chunk, mixed_chunks(pages), cost=cost)

    async def _prepare(self, entries: Entries, target: str) -> list[str]:
        """Prepare a chunk, repeating entries that change meanwhile; returns its directories."""
        store, directories, work = self.store, list[str](), entries
        deadline = store.deadline()
        while len(work := await self._ready(work, target)) > 0:
            plan = self._plan(work, target)
            lanes, token = plan.lanes(), store.runtime.uuid
            report = await execute(
                store.items, self._log.run_parts, plan, lanes, token, turn=self.txn.turn
            )
            report.raise_failure()
            done = work if not report.refused else work.take(sorted(report.succeeded))
            directories += done.directories().paths()
            self._count(done)
            if report.refused:
                store.still_time(deadline, plan.path(min(report.refused)))
            work = await self._refused(plan, report.refused)
        return directories

    def _plan(self, entries: Entries, target: str) -> ColumnPlan:
        if not target:
            return plan_deletes(entries, self.store.runtime, self.txn.removal_intent)
        intents = (self.txn.removal_intent, self.txn.creation_intent)
        return plan_moves(entries, target, self.store.keys, self.store.runtime, intents)

    async def _ready(self, entries: Entries, target: str) -> Entries:
        """The current entries, without intents of other transactions and without expired
        reservations."""
        odd = {place for place, _ in entries.with_intents()}
        if target and len(entries.without_reservations()) < len(entries):
            odd |= {place for place, entry in enumerate(entries) if entry.is_reservation}

        async def resolved(entry: Entry) -> Entry | None:
            return await self._resolved(entry, moves=bool(target))

        return await reread(entries, odd, resolved, self.store.keys)

    async def _resolved(self, entry: Entry, *, moves: bool) -> Entry | None:
        if transaction_of(entry.pending) == self.txn.id:
            raise BusyError("the transaction encountered its own write intent", path=entry.path)
        current = await self.store.resolved(entry)
        if not moves or current is None or not current.is_reservation:
            return current
        if not self.store.ran_out(current):
            raise UncommittedFileError(
                "the file is still being written and cannot be renamed", path=entry.path
            )
        await self.store.abandon(current)
        return await self.store.stored(entry.entry_key)

    async def _refused(self, plan: ColumnPlan, refused: Mapping[int, Refusal]) -> Entries:
        """The current entries at paths where the condition failed; intents on entries at a target
        are resolved."""
        again = []
        for row, refusal in refused.items():
            there = refusal.get(1)
            if there is not None:
                if not there.get(NEXT):
                    path = plan.entries[row].path
                    raise PathExistsError(
                        "an entry without a parent directory is at the target; s3k fsck reports it",
                        path=path,
                    )
                await self.store.resolve(from_item(there, self.store.keys))
            if 0 not in refusal:
                again.append(plan.entries[row])
            elif (item := refusal[0]) is not None:
                again.append(from_item(item, self.store.keys))
        return in_columns(again, self.store.keys)

    def _count(self, done: Entries) -> None:
        if len(done) > 0:
            files = len(done.files())
            path = _native.split(done[0].path)[0]
            self.count(path, files=files, directories=len(done) - files, size=done.totals()[2])


class AtomicChange(SubtreePreparation):
    """One atomic change of a directory, owned by a transaction. `target`: empty for a deletion."""

    def __init__(
        self,
        store: MetadataStore,
        txn: OwnedTransaction,
        source: str,
        target: str,
        progress: OnProgress,
    ) -> None:
        self._change = RecordedChange(store, txn, source, target)
        super().__init__(store, txn, self._change.log, ChangeTally(), progress)
        self._source = source
        self._target = target

    async def run(self, prepare: Callable[[], Awaitable[object]]) -> None:
        """Prepare, and commit the change. Raises as `RecordedChange.run`."""
        parents = dict.fromkeys(
            _native.split(path)[0] for path in (self._source, self._target) if path
        )
        await self._change.run(prepare, map(Directory.at, parents))

    async def hold_top(self, entry: Entry, *, same: bool = False) -> Entry:
        """Hold the directory itself, in its current state. Raises as
        `DirectoryStore.hold_current`."""
        held = await self.store.hold_current(entry, self.txn, self.txn.removal_intent, same=same)
        self.tally.directories += 1
        return held

    async def log_removal(self, held: Entry) -> None:
        """Log the removal of the directory itself."""
        removal = self.store.changes.operation("delete", held.without_intent(), None)

        async def nothing_more(outcome: LoggedOutcome) -> None:
            outcome.succeeded = {removal.id}

        await self._log.run_parts([removal], nothing_more)

    async def put_top(self, held: Entry) -> None:
        """Create the directory at the target. Raises PathExistsError, ObstructedError."""
        store = self.store
        source = held.without_intent()
        moved = source.moved(self._target, operation=store.runtime.uuid())
        hidden = replace(moved, pending=self.txn.creation_intent)
        actions: list[Action] = [
            Put(to_item(hidden, store.keys), ABSENT),
            *store.require_parent(Directory.at(_native.split(self._target)[0])),
        ]

        async def put(outcome: LoggedOutcome) -> None:
            await to_the_end(partial(outcome.transact, store.items, actions, store.runtime.uuid))
            outcome.succeeded = {moved.operation}

        self.txn.check()
        try:
            await self._log.run_parts([store.changes.operation("rename", source, moved)], put)
        except ConditionFailedError as error:
            there = error.current.get(0)
            if there is not None and not there.get(NEXT):
                raise PathExistsError("the target exists", path=self._target) from error
            raise ObstructedError(self._target, store.obstacles(error.current.values())) from error
