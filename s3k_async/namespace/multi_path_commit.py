"""Commits of changes on several paths: one transaction of the table where they fit, else a
transaction record that one write commits.

On known paths it never waits while its intents are in the table: after a conflict it removes them,
resolves the obstructing intents, and decides everything again. So two transactions cannot wait for
each other. Only below a directory that is moved or removed as a whole does it wait for other
transactions, as an atomic rename or deletion does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from s3k_async._core.concurrency import run_all
from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_TRANSACTION,
    OPERATION,
    Action,
    Delete,
    Item,
    Put,
    Update,
    Value,
)
from s3k_async.errors import ConditionFailedError, ConflictError, TransactionConflictError
from s3k_async.model import ROOT, ChangeResult
from s3k_async.namespace.conflict_backoff import ObstructedError, until_unobstructed
from s3k_async.namespace.mutations import (
    Change,
    CommitPlan,
    Mutation,
    SubtreeMutation,
    WriteFile,
    decide,
)
from s3k_async.namespace.recorded_change import RecordedChange
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import NEXT, to_item, unchanged
from s3k_async.table.keys import Directory
from s3k_async.txn.executor import by_transaction, execute
from s3k_async.txn.logged_write import TransactionLog
from s3k_async.txn.row_plan import RowPlan
from s3k_async.txn.txn_manifest import ManifestPart, divided, write_parts
from s3k_async.txn.txn_record import OwnedTransaction
from s3k_async.txn.write_intent import WriteIntent

__all__ = ["Renew", "commit_mutations"]

AT_ONCE = MAX_TRANSACTION
"""Actions of one transaction of the table; larger changes need a transaction record."""
TOUCHES = 16
"""Directories that are touched at the same time."""

Renew: TypeAlias = Callable[[WriteFile], Awaitable[WriteFile]]
"""Gives the data of a write a key with a new object id."""


async def commit_mutations(
    store: MetadataStore, mutations: Iterable[Mutation], renew: Renew
) -> ChangeResult:
    """Make all changes visible atomically.

    Raises the errors of `decide` and of the services: then nothing was changed. BusyError when
    other transactions obstructed it for the busy timeout. OutcomeUnknownError: either all changes
    were applied, or none.
    """
    wanted = list(mutations)

    async def attempt() -> ChangeResult:
        nonlocal wanted
        while (plan := await decide(store, wanted)).displaced:
            displaced = set(plan.displaced)
            wanted = [
                await renew(each) if isinstance(each, WriteFile) and each in displaced else each
                for each in wanted
            ]
        await _attempt(store, plan)
        return plan.tally.result()

    return await until_unobstructed(store, attempt)


async def _attempt(store: MetadataStore, plan: CommitPlan) -> None:
    """Make the changes. Raises ObstructedError if an entry has changed since the decision."""
    if not plan.changes:
        return
    if not plan.subtrees and len(plan.changes) + len(plan.parents()) <= AT_ONCE:
        try:
            await _in_one(store, plan)
        except TransactionConflictError:
            # Too many transactions touch the same directories. With a transaction record, single
            # writes suffice.
            pass
        else:
            return
    await _by_record(store, plan)


async def _in_one(store: MetadataStore, plan: CommitPlan) -> None:
    """Commit in one transaction of the table. If several paths change, the operation id of each of
    their directories changes too, so that listings detect the change; a single change only checks
    that the directory of a new path exists.
    """
    keys = store.keys
    stamp: dict[str, Value] = {OPERATION: store.runtime.uuid()}
    touched: list[Directory] = []
    if len(plan.changes) > 1:
        touched = plan.parents()
        root = next((each for each in touched if each.path == ROOT), None)
        if root is not None and not store.root_has_record:
            # After a lost response, a failure because the record is missing could not be told from
            # other failures.
            await store.touch(root)
        actions: list[Action] = [store.touching(each, stamp) for each in touched]
    else:
        change = next(iter(plan.changes.values()))
        actions = [*store.require_parent(change.parent)] if change.before is None else []
    for change in plan.changes.values():
        when = ABSENT if change.before is None else unchanged(change.before)
        if change.after is None:
            actions.append(Delete(keys.key(change.entry_key), when))
        else:
            actions.append(Put(to_item(change.after, keys), when))
    try:
        await store.transact(plan.operations, actions, plan.placed(), plan.since)
    except ConflictError as error:
        raise _obstructed(store, plan, ()) from error
    except ConditionFailedError as error:
        absent = [
            each for place, each in enumerate(touched) if error.current.get(place, stamp) is None
        ]
        changes = enumerate(plan.changes.values(), len(touched))
        await _make(
            store, absent, [change for place, change in changes if place not in error.current]
        )
        raise _obstructed(store, plan, error.current.values()) from error


async def _make(store: MetadataStore, absent: Iterable[Directory], fit: Iterable[Change]) -> None:
    """Create missing items that are to be touched: the record of the root before its first use, and
    in layout `path` a directory in which a dead writer left a file. A directory that was removed
    with its files is not created again.

    `fit`: the changes without obstruction.
    """
    left = {change.parent for change in fit if change.before is not None}
    for directory in absent:
        if directory.path == ROOT:
            await store.touch(directory)
        elif directory in left and store.keys.layout == "path":
            await store.recreate_directory(directory.path)


async def _by_record(store: MetadataStore, plan: CommitPlan) -> None:
    trees = [path for each in plan.subtrees for path in (each.source.path, each.target) if path]
    parts = divided([change.entry_key for change in plan.changes.values()], trees)
    async with store.transactions.hold("transaction", "", parts=len(parts)) as txn:
        commit = RecordedChange(store, txn)
        await commit.run(_Preparation(store, txn, commit.log, plan, parts).run)


def _obstructed(
    store: MetadataStore, plan: CommitPlan, items: Iterable[Item | None]
) -> ObstructedError:
    return ObstructedError(next(iter(plan.changes)), store.obstacles(items))


class _Preparation:
    """The intents of a commit by a transaction record. It waits for no other client while it has
    intents."""

    def __init__(
        self,
        store: MetadataStore,
        txn: OwnedTransaction,
        log: TransactionLog,
        plan: CommitPlan,
        parts: Sequence[ManifestPart],
    ) -> None:
        self._store = store
        self._txn = txn
        self._log = log
        self._plan = plan
        self._parts = parts

    async def run(self) -> None:
        """Put all intents. Raises ObstructedError if an entry has changed since the decision."""
        await write_parts(self._store.items, self._txn, self._parts, self._store.runtime)
        plan = self._plan
        await self._hold(plan.going)
        await self._look_ahead(plan.subtrees)
        # A directory is written, hidden, before its content.
        await self._hold(plan.coming, in_turn=True)
        for subtree in plan.subtrees:
            await self._prepare_below(subtree)
        await self._hold(plan.files)
        await run_all(self._touch, plan.parents(), limit=TOUCHES)

    async def _look_ahead(self, subtrees: Sequence[SubtreeMutation]) -> None:
        """Check again: of two directories moved into each other, one sees the other, since both are
        held by now."""
        for subtree in subtrees:
            chain = await self._store.layout.chain(subtree.target) if subtree.target else []
            held = [entry for _, entry in chain if entry is not None and entry.pending]
            if held:
                raise ObstructedError(subtree.target, held)

    async def _prepare_below(self, subtree: SubtreeMutation) -> None:
        directory = self._store.keys.directory(subtree.source)
        self._store.layout.discard(directory)
        if subtree.must_be_empty:
            await self._store.need_empty(directory)
            return
        await self._store.layout.prepare_subtree(
            self._txn, self._log, subtree.source, subtree.target, self._plan.tally
        )

    async def _hold(self, changes: Sequence[Change], *, in_turn: bool = False) -> None:
        """Log the changes and hold their paths, transaction after transaction, or several at the
        same time."""
        if not changes:
            return
        store = self._store
        plan = RowPlan(changes, self._intents, operations=lambda change: change.operations)
        transactions = by_transaction(range(len(changes)))
        lanes = [transactions] if in_turn else [[each] for each in transactions]
        report = await execute(
            store.items, self._log.run_parts, plan, lanes, store.runtime.uuid, turn=self._txn.turn
        )
        report.raise_failure()
        if report.refused:
            there = [item for refusal in report.refused.values() for item in refusal.values()]
            raise _obstructed(store, self._plan, there)

    def _intents(self, change: Change) -> Sequence[Action]:
        keys, before, after = self._store.keys, change.before, change.after
        if before is None:
            assert after is not None
            return [Put(to_item(replace(after, pending=self._txn.creation_intent), keys), ABSENT)]
        intent = (
            self._txn.removal_intent if after is None else WriteIntent(self._txn.id, after).text()
        )
        # A listing knows a directory by its operation.
        stamp: dict[str, Value] = {OPERATION: self._store.runtime.uuid()} if before.is_dir else {}
        return [Update(keys.of(before), unchanged(before), set={NEXT: intent, **stamp})]

    async def _touch(self, directory: Directory) -> None:
        """Touch the directory: a later transaction that moves or removes it then finds the new
        entries."""
        self._txn.check()
        try:
            await self._store.touch(directory, required=True)
        except ConditionFailedError as error:
            raise _obstructed(self._store, self._plan, error.current.values()) from error
