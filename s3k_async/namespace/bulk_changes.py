"""Changes of many files of one directory: transactions of a hundred actions, logged by page.

The entries stay columns throughout; an object is built only for a file with an error. Entries that
changed meanwhile are read and evaluated again; missing entries are no failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from anyio.lowlevel import checkpoint_if_cancelled

from s3k_async import _native
from s3k_async._native import Entries
from s3k_async.backends.ports.items import Item
from s3k_async.errors import (
    BusyError,
    ConflictError,
    LeaseExpiredError,
    LogFormatError,
    PathExistsError,
    PermissionDeniedError,
    S3kError,
    UncommittedFileError,
)
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import NEXT, from_item, from_items, in_columns
from s3k_async.txn.column_plan import ColumnPlan, plan_deletes
from s3k_async.txn.executor import ExecutionResult, Turn, execute

__all__ = ["BulkChange", "BulkOutcome", "Failure", "delete_files"]

Failure = tuple[str, Exception]

ROUNDS = 8
"""How often an entry that keeps changing is re-evaluated."""


@dataclass(slots=True)
class BulkOutcome:
    """The outcome for some files: changed, failed, and missing ones."""

    files: int = 0
    bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Paths of entries that another client had moved or deleted."""

    def add(self, other: BulkOutcome) -> None:
        self.files += other.files
        self.bytes += other.bytes
        self.failures += other.failures
        self.gone += other.gone


async def delete_files(
    store: MetadataStore,
    entries: Entries,
    turn: Turn = checkpoint_if_cancelled,
    *,
    since: float = math.inf,
    named: bool = False,
    counted_at: str = "",
) -> BulkOutcome:
    """Delete files and reservations; missing ones count as deleted. `turn` is awaited before each
    transaction; an error of it ends the work. `since`: when the entries were read by their paths,
    for `MetadataStore.withheld`. `named`: the caller has named each of them, instead of a directory
    above, so that read-only ones are refused. `counted_at`: a path in their bucket, if their own
    are not known.
    """
    return await BulkChange(
        store,
        lambda entries: plan_deletes(entries, store.runtime),
        turn,
        since,
        named=named,
        counted_at=counted_at,
    ).apply(entries)


class BulkChange:
    """One change of many entries in progress. `plan` gives the actions for some of them; `turn` is
    awaited before each transaction. `counted_at` as for `delete_files`."""

    def __init__(
        self,
        store: MetadataStore,
        plan: Callable[[Entries], ColumnPlan],
        turn: Turn,
        since: float = math.inf,
        *,
        named: bool = False,
        counted_at: str = "",
    ) -> None:
        self._store = store
        self._plan = plan
        self._turn = turn
        self._since = since
        self._named = named
        self._counted_at = counted_at
        self._paths: dict[str, str] = {}
        """In layout `tree` the paths of the directories of changed entries, by directory key."""
        self._changed: list[Item] = []
        self._done = BulkOutcome()

    async def apply(self, entries: Entries) -> BulkOutcome:
        """Change the entries; repeat with those that changed meanwhile."""
        work = entries
        for _ in range(ROUNDS):
            work = await self._resolved(work)
            if self._named:
                work = await self._permitted(self._without_read_only(work))
            if len(work) > 0:
                await self._page(work)
            changed, self._changed = self._changed, []
            work = from_items(changed, self._store.keys, paths=self._paths)
            if len(work) == 0:
                break
        for path in work.paths():
            self._fail(path, BusyError("gave up: concurrent changes to this file", path=path))
        return self._done

    async def _resolved(self, entries: Entries) -> Entries:
        """The entries after their intents are resolved, read again: a state with an intent is never
        a condition of the change."""
        held = entries.with_intents()
        if not held:
            return entries
        places = {place for place, _ in held}
        kept = []
        for place, entry in enumerate(entries):
            try:
                current = await self._store.resolved(entry) if place in places else entry
            except BusyError as error:
                self._fail(entry.path, error)
                continue
            if current is None:
                self._done.gone.append(entry.path)
            elif current.is_dir:
                self._fail(
                    entry.path,
                    BusyError("another client replaced the file by a directory", path=entry.path),
                )
            else:
                kept.append(current)
        return in_columns(kept, self._store.keys)

    def _without_read_only(self, entries: Entries) -> Entries:
        refused = set(entries.read_only())
        for place in refused:
            entry = entries[place]
            try:
                self._store.refuse_read_only(entry)
            except PermissionDeniedError as error:
                self._fail(entry.path, error)
        if not refused:
            return entries
        return entries.take([place for place in range(len(entries)) if place not in refused])

    async def _permitted(self, entries: Entries) -> Entries:
        """The entries that the identity may remove."""
        access = self._store.access
        if not access.is_enforced:
            return entries
        kept = []
        for place, entry in enumerate(entries):
            try:
                await access.permit_removal(entry)
            except PermissionDeniedError as error:
                self._fail(entry.path, error)
            else:
                kept.append(place)
        return entries.take(kept)

    async def _page(self, entries: Entries) -> None:
        plan = self._plan(entries)
        store = self._store
        try:
            lanes, token = plan.lanes(), store.runtime.uuid
            report = await execute(
                store.items,
                partial(store.changes.run_parts, counted_at=self._counted_at),
                plan,
                lanes,
                token,
                turn=self._turn,
                withheld=store.withheld(lambda row: [plan.entries[row]], self._since),
            )
        except LogFormatError as error:
            await self._without_the_odd(entries, error)
        except LeaseExpiredError:
            raise
        except S3kError as error:
            for path in entries.paths():
                self._fail(path, error)
        else:
            self._sort_out(plan, report)

    async def _without_the_odd(self, entries: Entries, error: LogFormatError) -> None:
        """Change the entries without those that the log cannot hold; its error has identified one
        of them."""
        if len(entries) == 1:
            self._fail(entries[0].path, error)
            return
        middle = len(entries) // 2
        for half in (range(middle), range(middle, len(entries))):
            await self._page(entries.take(half))

    def _sort_out(self, plan: ColumnPlan, report: ExecutionResult) -> None:
        undone = set(report.failed)
        for row, error in report.failed.items():
            self._fail(plan.path(row), error)
        for row, refusal in report.refused.items():
            undone.add(row)
            if not refusal:
                path = plan.path(row)
                self._fail(path, ConflictError("another client moved its directory", path=path))
            elif 0 not in refusal:
                self._occupied(plan, row, refusal[1])
            elif (item := refusal[0]) is not None:
                self._again(plan, row, item)
            else:
                self._done.gone.append(plan.path(row))
        done = plan.entries
        if undone:
            done = done.take([row for row in range(len(plan)) if row not in undone])
        self._done.files += len(done)
        self._done.bytes += done.totals()[2]

    def _occupied(self, plan: ColumnPlan, row: int, item: Item | None) -> None:
        path = plan.path(row)
        if item is not None and item.get(NEXT):
            self._fail(
                path, BusyError("another client's transaction is changing the target", path=path)
            )
        else:
            self._fail(path, PathExistsError("the target exists", path=path))

    def _again(self, plan: ColumnPlan, row: int, item: Item) -> None:
        """Decide again from the stored items."""
        path = plan.path(row)
        try:
            current = from_item(item, self._store.keys)
        except S3kError as error:
            self._fail(path, error)
            return
        if current.is_dir:
            self._fail(
                path, BusyError("another client replaced the file by a directory", path=path)
            )
        elif current.is_reservation and plan.width > 1:
            self._fail(
                path,
                UncommittedFileError(
                    "the file is still being written and cannot be renamed", path=path
                ),
            )
        else:
            if current.directory:
                self._paths[current.directory] = _native.split(path)[0]
            self._changed.append(item)

    def _fail(self, path: str, error: S3kError) -> None:
        self._done.failures.append((path, error))
