"""Commits that publish new directories together with their content.

Such a directory is staged: its item is put into the trash, and everything in it is stored below it
by plain transactions of the table, without write intents, since no path leads there. Then one
transaction of the table publishes the record, moves the items of the directories to their places
and makes all other changes of the commit
(docs/design/011-directories-by-id.md, section 5.12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from anyio.lowlevel import checkpoint_if_cancelled

from s3k_async import _native
from s3k_async._core.concurrency import to_the_end
from s3k_async.backends.ports.items import MAX_TRANSACTION, Action, Item
from s3k_async.errors import (
    ConditionFailedError,
    LeaseExpiredError,
    TransactionConflictError,
)
from s3k_async.layouts.tree.staged_directories import StagedDirectories, StagedDirectory
from s3k_async.namespace.conflict_backoff import ConflictBackoff, ObstructedError
from s3k_async.namespace.mutations import Change, CommitPlan
from s3k_async.namespace.recorded_change import RecordedChange
from s3k_async.namespace.required_directories import RequiredDirectories
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import Operation
from s3k_async.txn.logged_write import LoggedOutcome, TransactionLog
from s3k_async.txn.txn_manifest import ManifestPart, write_parts
from s3k_async.txn.txn_record import OwnedTransaction

__all__ = ["Staging", "commit_staged", "staging_of"]

STORED_AT_ONCE: Final = MAX_TRANSACTION - 1
"""Entries below staged directories that one transaction of the table stores, beside the condition
on the record."""


@dataclass(frozen=True, slots=True)
class Staging:
    """The division of a plan."""

    name: str
    """The path in errors."""
    directories: Sequence[Change]
    """The topmost new directories that have content."""
    content: Sequence[Change]
    """All new entries below them, a directory before its content."""
    others: Sequence[Change]
    """Everything else, which changes in the publishing transaction."""
    required: RequiredDirectories

    @property
    def operations(self) -> list[Operation]:
        """The operations of the publishing transaction."""
        changes = (*self.directories, *self.others)
        return [operation for change in changes for operation in change.operations]


async def staging_of(store: MetadataStore, plan: CommitPlan, name: str) -> Staging | None:
    """The division of a plan, if it creates entries in new directories or replaces directories, and
    everything but these entries fits into one transaction of the table, with its index items unless
    a directory is replaced, which no other commit can do. `name`: the path in errors."""
    if any(each.must_be_empty for each in plan.subtrees):
        return None
    tops: dict[str, Change] = {}
    filled: set[str] = set()
    content: list[Change] = []
    others: list[Change] = list(plan.trashed)
    for path, change in plan.changes.items():
        top = next((above for above in _native.ancestors(path) if above in tops), None)
        if not _is_new(change):
            others.append(change)
        elif top is not None:
            filled.add(top)
            content.append(change)
        elif change.is_directory:
            tops[path] = change
        else:
            others.append(change)
    replaces = any(each.replaces_directory for each in tops.values())
    if not content and not replaces:
        return None
    directories = [change for path, change in tops.items() if path in filled]
    others += [change for path, change in tops.items() if path not in filled]
    required = RequiredDirectories(store, name, plan.parents(), [*plan.required, *plan.above])
    staging = Staging(name, directories, content, others, required)
    journal = store.changes.journal_size(plan.operations)
    indexed = 0 if replaces else await store.changes.index_size(staging.operations)
    actions = 1 + 2 * len(directories) + len(others) + len(required.actions) + journal + indexed
    return staging if actions <= MAX_TRANSACTION else None


def _is_new(change: Change) -> bool:
    """Whether a new object comes to a free path, or a new directory to the place of another one."""
    before, after = change.before, change.after
    if after is None or any(each.before is not None for each in change.operations):
        return False
    return before is None or change.replaces_directory


async def commit_staged(
    store: MetadataStore, plan: CommitPlan, staging: Staging, keep_data: Callable[[], None]
) -> None:
    """Make the changes of a plan. Raises ObstructedError if an entry has changed since the
    decision. `keep_data`: called after a failure if new entries may still be in the table, until
    another client removes them, so that their data must not be deleted before."""
    async with store.transactions.hold("transaction", "", parts=1) as txn:
        change = RecordedChange(store, txn, stores_entries=True)
        commit = _StagedCommit(store, txn, change.log, staging)
        try:
            await change.run(commit.prepare, publish=commit.publish)
        finally:
            if change.left_entries:
                keep_data()
    for each in plan.changes.values():
        if each.before is not None and each.before.is_dir:
            store.layout.discard(store.keys.directory(each.before))


class _StagedCommit:
    """One attempt of a commit."""

    def __init__(
        self, store: MetadataStore, txn: OwnedTransaction, log: TransactionLog, staging: Staging
    ) -> None:
        self._store = store
        self._txn = txn
        self._log = log
        self._staging = staging
        self._path = staging.name
        self._staged = list(self._stage())
        self._published = LoggedOutcome()
        """The outcome of the operations that the publication applies."""

    def _stage(self) -> Iterable[StagedDirectory]:
        directories = StagedDirectories(self._store)
        for change in self._staging.directories:
            assert change.after is not None
            yield directories.staged(change.after, self._txn.id)

    async def prepare(self) -> None:
        """Stage the directories, store their content, and log all changes."""
        store, txn = self._store, self._txn
        # The record lists the directories before they exist, so that any client can remove them.
        part = ManifestPart(trees=tuple(each.path for each in self._staged))
        await write_parts(store.items, txn, [part], store.runtime)
        if self._staged:
            await self._send([each.put for each in self._staged], LoggedOutcome())
            await self._put_content()
        # Last: the log must not have the directories before all of their content.
        await self._log.run_parts(self._staging.operations, self._all_done)

    async def publish(self) -> None:
        """Publish the record together with the directories and all other changes."""
        store, staging = self._store, self._staging
        required = staging.required
        changes = (*staging.directories, *staging.others)
        actions = [
            *required.actions,
            *(each.remove for each in self._staged),
            *(change.action(store.keys) for change in changes),
        ]
        others = self._published.journal_size() + len(self._txn.journal)
        if 1 + len(actions) + others > MAX_TRANSACTION:
            ids = [each.id for each in staging.operations]
            await self._published.index_before(store.items, store.runtime.uuid, ids)
        publish = partial(store.transactions.publish, self._txn)
        backoff = ConflictBackoff(store)
        while True:
            try:
                await required.send(
                    actions, lambda: self._published.send(actions, publish, first=1), first=1
                )
            except ConditionFailedError as error:
                raise self._obstructed(error.current.values()) from error
            except TransactionConflictError:
                # What is stored so far need not be stored again.
                await backoff.lost(ObstructedError(self._path))
            else:
                return

    async def _all_done(self, outcome: LoggedOutcome) -> None:
        """Note that all operations take effect with the publication, which writes their index
        items."""
        outcome.succeeded = None
        self._published = outcome

    async def _put_content(self) -> None:
        """Store the content, one transaction of the table after the other: those that require the
        same record conflict with each other. The first failure ends it: nothing is stored in a
        directory that is not stored, since no client could find it there."""
        content = self._staging.content

        async def store(outcome: LoggedOutcome) -> None:
            # An entry has at most one index item.
            size = STORED_AT_ONCE // 2 if outcome.index_items is not None else STORED_AT_ONCE
            for start in range(0, len(content), size):
                some = content[start : start + size]
                ids = [operation.id for each in some for operation in each.operations]
                await self._send([each.action(self._store.keys) for each in some], outcome, ids)
            outcome.succeeded = None

        await self._log.run_parts([each for row in content for each in row.operations], store)

    async def _send(
        self, puts: Sequence[Action], outcome: LoggedOutcome, identities: Sequence[str] = ()
    ) -> None:
        """Store entries that only this transaction has, with the index items of the operations
        `identities`. Raises LeaseExpiredError if another client has taken over the transaction."""
        store, backoff = self._store, ConflictBackoff(self._store)
        transact = partial(outcome.transact, store.items, identities=identities)
        actions = [*puts, self._txn.can_be_published]
        while True:
            await checkpoint_if_cancelled()
            await self._txn.turn()
            try:
                await to_the_end(partial(transact, actions, store.runtime.uuid))
            except ConditionFailedError as error:
                self._txn.lose()
                raise LeaseExpiredError(
                    "transaction lease expired; no changes were applied"
                ) from error
            except TransactionConflictError:
                await backoff.lost(ObstructedError(self._path))
            else:
                return

    def _obstructed(self, items: Iterable[Item | None]) -> ObstructedError:
        return ObstructedError(self._path, self._store.obstacles(items))
