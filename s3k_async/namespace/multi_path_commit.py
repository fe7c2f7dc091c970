"""Commits of changes on several paths: one transaction of the table where they fit, else a
transaction record that one write commits.

On known paths it never waits while its intents are in the table: after a conflict it removes them,
resolves the obstructing intents, and decides everything again. So two transactions cannot wait for
each other. Only below a directory that is moved or removed as a whole does it wait for other
transactions, as an atomic rename or deletion does.

In layout `tree` nothing changes below a directory that is moved or removed, so such changes may
also fit into one transaction of the table. That transaction requires the directories above to be in
place, as does the transaction that publishes a record. The content of new directories needs no
intents there (`Layout.staged_commit`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
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
from s3k_async.errors import (
    ConditionFailedError,
    ConflictError,
    TransactionConflictError,
    UnsupportedError,
)
from s3k_async.model import ROOT, ChangeResult
from s3k_async.namespace.commit_planning import decide
from s3k_async.namespace.conflict_backoff import ObstructedError, until_unobstructed
from s3k_async.namespace.mutations import Change, CommitPlan, Mutation, SubtreeMutation, WriteFile
from s3k_async.namespace.recorded_change import RecordedChange
from s3k_async.namespace.required_directories import RequiredDirectories
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import NEXT, unchanged
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
PUBLISHED_AT_ONCE = MAX_TRANSACTION
"""Actions of the transaction of the table that publishes a record."""
REMOVED_AS_EMPTY = (MAX_TRANSACTION - 1) // 2
"""Empty directories that a publication in layout `tree` can remove, with two actions each, less one
for each bucket that is counted."""
TOUCHES = 16
"""Directories that are touched at the same time."""

Renew: TypeAlias = Callable[[WriteFile], Awaitable[WriteFile]]
"""Gives the data of a write a key with a new object id."""


async def commit_mutations(
    store: MetadataStore,
    mutations: Iterable[Mutation],
    renew: Renew | None = None,
    keep_data: Callable[[], None] = lambda: None,
    *,
    also: Sequence[Action] = (),
) -> ChangeResult:
    """Make all changes visible atomically. `renew`: needed for files that are written. `keep_data`:
    called if the data of the written files must stay though the commit fails, since entries in the
    table still have it. `also`: actions on other items, in the same transaction of the table, for a
    few changes that fit into one.

    Raises the errors of `decide` and of the services: then nothing was changed. BusyError when
    other transactions obstructed it for the busy timeout. ConditionFailedError: the condition of an
    action of `also` failed; nothing was changed. OutcomeUnknownError: either all changes were
    applied, or none.
    """
    wanted = list(mutations)

    async def attempt() -> ChangeResult:
        nonlocal wanted
        while (plan := await decide(store, wanted)).displaced:
            assert renew is not None, "only a write can be displaced"
            displaced = set(plan.displaced)
            wanted = [
                await renew(each) if isinstance(each, WriteFile) and each in displaced else each
                for each in wanted
            ]
        await _attempt(store, plan, keep_data, also)
        return plan.tally.result()

    return await until_unobstructed(store, attempt)


async def _attempt(
    store: MetadataStore,
    plan: CommitPlan,
    keep_data: Callable[[], None],
    also: Sequence[Action],
) -> None:
    """Make the changes. Raises ObstructedError if an entry has changed since the decision."""
    if not plan.changes:
        return
    # In layout `path` everything below a directory is changed, too.
    trees = [] if store.keys.by_id else _trees(plan)
    journal = store.changes.journal_size(plan.operations, trees)
    _refuse_too_many(plan, journal)
    required = RequiredDirectories(store, _name(plan), plan.parents(), plan.required)
    conflict: TransactionConflictError | None = None
    others = journal + await store.changes.index_size(plan.operations)
    actions = len(plan.rows) + len(required.actions) + len(also) + others
    if not _needs_record(store, plan) and actions <= AT_ONCE:
        try:
            await _in_one(store, plan, required, also, others)
        except TransactionConflictError as error:
            # Too many transactions touch the same directories. With a transaction record, single
            # writes suffice.
            conflict = error
        else:
            return
    if also:
        raise _obstructed(store, plan, ()) from conflict
    commit_staged = await store.layout.staged_commit(plan, _name(plan))
    if commit_staged is not None:
        await commit_staged(keep_data)
        return
    if replaced := [path for path, each in plan.changes.items() if each.replaces_directory]:
        if conflict is not None:
            # It fits into one transaction of the table, but not with a record and all checks.
            raise _obstructed(store, plan, ()) from conflict
        raise UnsupportedError(_why_not_replaced(plan), path=replaced[0])
    await _by_record(store, plan)


def _refuse_too_many(plan: CommitPlan, journal: int) -> None:
    """Raise UnsupportedError if the transaction of the table that publishes the plan has no room
    for the directories that it removes as empty, or for the buckets that it counts."""
    if journal > REMOVED_AS_EMPTY:
        raise UnsupportedError(
            f"in a volume with the feature counters a transaction cannot change objects of more "
            f"than {REMOVED_AS_EMPTY} buckets; divide it into several transactions",
            path=_name(plan),
        )
    marked = [subtree.source.path for subtree in plan.subtrees if subtree.marker is not None]
    most = REMOVED_AS_EMPTY - journal
    if len(marked) > most:
        raise UnsupportedError(
            f"a transaction cannot remove more than {most} directories as empty; "
            "remove them recursively, or by several transactions",
            path=marked[most],
        )


def _why_not_replaced(plan: CommitPlan) -> str:
    """The reason why no transaction of the table can replace the directories of a plan."""
    if any(each.must_be_empty for each in plan.subtrees):
        return (
            "a transaction cannot replace a directory and remove another one without `recursive`; "
            "remove it recursively, or by another transaction"
        )
    return (
        "a transaction cannot replace a directory if its changes outside of new directories do "
        f"not fit into {MAX_TRANSACTION} actions; divide it into several transactions"
    )


def _name(plan: CommitPlan) -> str:
    """The path in errors that concern the whole plan."""
    return next(iter(plan.changes))


def _needs_record(store: MetadataStore, plan: CommitPlan) -> bool:
    """Whether intents are needed: in layout `path` on everything below a directory, in both layouts
    on a directory that is listed before it is removed as empty."""
    if not store.keys.by_id:
        return bool(plan.subtrees)
    return any(subtree.must_be_empty for subtree in plan.subtrees)


async def _in_one(
    store: MetadataStore,
    plan: CommitPlan,
    required: RequiredDirectories,
    also: Sequence[Action],
    others: int,
) -> None:
    """Commit in one transaction of the table, with up to `others` items that count or index the
    changes. If several paths change, the operation id of each of their directories changes too, so
    that listings detect the change; a single change only checks that the directory of a new path
    exists.
    """
    if len(plan.rows) > 1:
        all_above = RequiredDirectories(
            store, _name(plan), plan.parents(), [*plan.required, *plan.above]
        )
        if len(plan.rows) + len(all_above.actions) + len(also) + others <= MAX_TRANSACTION:
            required = all_above
    else:
        change = next(iter(plan.changes.values()))
        pinned = () if store.keys.by_id else plan.required
        created_in = [change.parent, *pinned] if change.before is None else []
        required = RequiredDirectories(store, _name(plan), (), created_in)
    actions = [*required.actions, *(change.action(store.keys) for change in plan.rows), *also]
    try:
        await required.transact(plan.operations, actions, plan.placed(), plan.since)
    except ConflictError as error:
        raise _obstructed(store, plan, ()) from error
    except ConditionFailedError as error:
        refused = error.current
        if also and any(place >= len(actions) - len(also) for place in refused):
            raise
        absent = [
            directory
            for place, directory in enumerate(required.touched)
            if place in refused and refused[place] is None
        ]
        changes = enumerate(plan.rows, len(required.actions))
        await _make(store, absent, [change for place, change in changes if place not in refused])
        raise _obstructed(store, plan, error.current.values()) from error
    for change in plan.going:
        assert change.before is not None
        store.layout.discard(store.keys.directory(change.before))


async def _make(store: MetadataStore, absent: Iterable[Directory], fit: Iterable[Change]) -> None:
    """In layout `path`, create missing directories that are to be touched and in which a crashed
    writer left a file. A directory that was removed with its files is not created again.

    `fit`: the changes without obstruction.
    """
    if store.keys.by_id:
        return
    left = {change.parent for change in fit if change.before is not None}
    for directory in absent:
        if directory in left and directory.path != ROOT:
            await store.recreate_directory(directory.path)


async def _by_record(store: MetadataStore, plan: CommitPlan) -> None:
    trees = [] if store.keys.by_id else _trees(plan)
    parts = divided([change.entry_key for change in plan.rows], trees)
    async with store.transactions.hold("transaction", "", parts=len(parts)) as txn:
        commit = RecordedChange(store, txn)
        preparation = _Preparation(store, txn, commit.log, plan, parts)
        in_place = preparation.publish if store.keys.by_id else None
        await commit.run(preparation.run, publish=in_place)


def _trees(plan: CommitPlan) -> list[str]:
    """The directories that are moved or removed, and the new paths of those that are moved."""
    return [path for each in plan.subtrees for path in (each.source.path, each.target) if path]


def _obstructed(
    store: MetadataStore, plan: CommitPlan, items: Iterable[Item | None]
) -> ObstructedError:
    return ObstructedError(_name(plan), store.obstacles(items))


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
        self._marked = {each.source.path for each in plan.subtrees if each.marker is not None}
        """Directories that the publication itself removes."""

    async def run(self) -> None:
        """Put all intents. Raises ObstructedError if an entry has changed since the decision."""
        await write_parts(self._store.items, self._txn, self._parts, self._store.runtime)
        plan = self._plan
        for subtree in plan.subtrees:
            if subtree.marker is not None:
                # While the directory is held, readers of files in it would wait.
                await self._store.refuse_content(subtree.source)
        await self._hold(plan.going)
        await self._look_ahead()
        # A directory is written, hidden, before its content.
        await self._hold(plan.coming, in_turn=True)
        for subtree in plan.subtrees:
            await self._prepare_below(subtree)
        await self._hold(plan.files)
        await run_all(self._touch, plan.parents(), limit=TOUCHES)

    async def publish(self) -> None:
        """In layout `tree`: publish the record on the condition that the directories above all
        changes are in place. If there are too many of them for one transaction of the table, all of
        them are read right before it."""
        store, plan = self._store, self._plan
        removals = list(self._removals())
        required = RequiredDirectories(
            store, _name(plan), (), [*plan.required, *plan.parents(), *plan.above]
        )
        others = 1 + len(removals) + len(self._txn.journal)
        checks, free = required.checks(), max(0, PUBLISHED_AT_ONCE - others)
        if len(checks) > free:
            await self._confirm(required.checked)
        try:
            await store.transactions.publish(self._txn, [*removals, *checks[:free]])
        except ConditionFailedError as error:
            raise _obstructed(store, plan, error.current.values()) from error
        except TransactionConflictError as error:
            if plan.subtrees:
                raise _obstructed(store, plan, ()) from error
            # Too many transactions require the same directories, and only files change.
            await self._confirm(required.checked)
            await store.transactions.publish(self._txn)

    def _removals(self) -> Iterator[Action]:
        """In layout `tree`, the removals of empty directories. The directories are held by intents
        without a new state, so that readers wait for the end of the removal, as for any removal of
        an empty directory."""
        keys = self._store.keys
        for subtree in self._plan.subtrees:
            if subtree.marker is not None:
                held = replace(subtree.source, pending=self._txn.hold_intent)
                yield Delete(keys.of(held), unchanged(held))
                yield Put(subtree.marker, ABSENT)

    async def _look_ahead(self) -> None:
        """Check again: of two directories moved into each other, one sees the other, since both are
        held by now."""
        if self._store.keys.by_id:
            await self._confirm(self._plan.required)
            return
        for subtree in self._plan.subtrees:
            chain = await self._store.layout.chain(subtree.target) if subtree.target else []
            held = [entry for _, entry in chain if entry is not None and entry.pending]
            if held:
                raise ObstructedError(subtree.target, held)

    async def _confirm(self, directories: Iterable[Directory]) -> None:
        """In layout `tree`: raise ObstructedError unless the directories are in place, without an
        intent."""
        wanted = [each for each in directories if each.path != ROOT]
        found = await self._store.stored_many([each.entry_key for each in wanted]) if wanted else []
        for directory, entry in zip(wanted, found, strict=True):
            if entry is None or entry.id != directory.key or entry.pending:
                held = [] if entry is None or not entry.pending else [entry]
                raise ObstructedError(directory.path, held)

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
            return [change.put(keys, ABSENT, self._txn.creation_intent)]
        if after is not None:
            intent = WriteIntent(self._txn.id, after).text()
        elif change.path in self._marked:
            intent = self._txn.hold_intent
        else:
            intent = self._txn.removal_intent
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
