"""Reclamation of directories in the trash of layout `tree`: deletes everything below a directory,
and finally its item in the trash.

A reclamation begins with a conditional write of the item in the trash. After that write the
directory cannot be restored, so nothing below it can be moved elsewhere. Calls that began before
the deletion may still create entries below the directory, and need to find its subdirectories.
Therefore directories are kept until the settle time has passed: the first phase deletes files, the
second phase everything else
(docs/design/011-directories-by-id.md, sections 6.6 and 7.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from s3k_async import _native
from s3k_async._core.concurrency import Budget
from s3k_async._native import Entries
from s3k_async.backends.ports.items import OPERATION, Delete, Put, Update, Value
from s3k_async.errors import (
    BusyError,
    ConditionFailedError,
    ItemFormatError,
    NotDirectoryError,
    S3kError,
    TransactionConflictError,
)
from s3k_async.layouts.tree.trash_items import (
    SINCE,
    TrashedDirectory,
    in_trash,
    moved_to_trash,
)
from s3k_async.model import ChangeTally, Entry, Progress
from s3k_async.namespace.bulk_changes import delete_files
from s3k_async.namespace.layout import OnProgress
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import in_columns
from s3k_async.table.keys import Directory
from s3k_async.txn.chunking import PARTS, chunks, cost_of_files
from s3k_async.txn.column_plan import plan_deletes
from s3k_async.txn.executor import execute
from s3k_async.txn.write_intent import transaction_of

__all__ = ["Reclamation"]


@dataclass(frozen=True, slots=True)
class _Place:
    """A directory whose content is being deleted."""

    directory: Directory
    shown: str
    """Its path in errors and progress reports: at or below the former path of the directory in the
    trash."""
    above: _Place | None = None

    def path(self, entry_path: str) -> str:
        """The path of one of its entries in errors."""
        return _native.join(self.shown, _native.split(entry_path)[1])

    def is_below(self, object_id: str) -> bool:
        """Whether this is the directory with that id, or is below it."""
        place: _Place | None = self
        while place is not None and place.directory.key != object_id:
            place = place.above
        return place is not None


class Reclamation:
    """The reclamation of one or several directories in the trash. `tally` counts the deleted files
    and the directories that no longer contain files; its failures list the entries that are kept.
    All directories above a kept entry are kept too.

    A reclamation can be repeated, and several clients can run it at the same time: each processes
    the entries that still exist. Up to `PARTS` directories are read at the same time, with a few
    chunks of their files in memory.
    """

    def __init__(
        self, store: MetadataStore, tally: ChangeTally, progress: OnProgress = None
    ) -> None:
        self._store = store
        self._tally = tally
        self._progress = progress
        self._budget = Budget(PARTS)
        self._live: dict[str, bool] = {}
        """Whether a transaction is live, by id."""

    async def run(self, trashed: TrashedDirectory, now_ms: int | None = None) -> None:
        """Reclaim a directory in the trash, unless it has been restored. Errors are added to the
        failures of the tally.

        `now_ms`: the time of the data store, passed by garbage collection. The first such call
        stores the time in the item; once the settle time has passed since then, the directories and
        the item are deleted as well.
        """
        try:
            current = await self._begun(trashed, now_ms)
            if current is None:
                return
            top = _Place(in_trash(current.entry), current.was)
            last = now_ms is not None and current.is_settled(now_ms)
            if await self._clear(top, last=last) and last:
                await self._remove_top(current)
        except S3kError as error:
            self._fail(trashed.was, error)

    async def note(self, marker: TrashedDirectory, now_ms: int) -> None:
        """Delete a removal marker after the settle time; before that, store the time at which it
        was first seen. Not logged: the log contains the deletion of its directory."""
        store = self._store
        key, unchanged = marker.key(marker.entry.id, store.keys), marker.is_stored()
        try:
            if marker.is_settled(now_ms):
                await store.items.write(Delete(key, unchanged))
            elif not marker.since_ms:
                seen: dict[str, Value] = {SINCE: now_ms, OPERATION: store.runtime.uuid()}
                await store.items.write(Update(key, unchanged, set=seen))
        except ConditionFailedError:
            return  # another client changed it first
        except S3kError as error:
            self._fail(marker.was, error)

    async def _begun(
        self, trashed: TrashedDirectory, now_ms: int | None
    ) -> TrashedDirectory | None:
        """Set the item in the trash to `reclaiming` and return it; None if it no longer exists, or
        belongs to another deletion. Raises BusyError."""
        store, deadline, current = self._store, self._store.deadline(), trashed
        while True:
            since_ms = current.since_ms or now_ms or 0
            if current.state and since_ms == current.since_ms:
                return current
            try:
                return await self._begin(current, since_ms)
            except (ConditionFailedError, TransactionConflictError):
                store.still_time(deadline, trashed.was)
            item = await store.items.get(trashed.key(trashed.entry.id, store.keys))
            if item is None:
                return None
            current = TrashedDirectory.from_item(item, store.keys)
            if current.entry.version != trashed.entry.version:
                if not current.state:
                    return None
                now_ms = None  # may be before this deletion: the settle time would be too short
            if current.entry.pending:
                raise _held(current.was)

    async def _begin(self, current: TrashedDirectory, since_ms: int) -> TrashedDirectory:
        """Write the next version of the item. It is logged before anything below is deleted, so
        that a restore from the log does not make the directory restorable without its files. A
        staged directory counts as deleted from now on, and can no longer be published."""
        store = self._store
        if current.why == "staged":
            await store.indexes.stop_counting()  # the files below were never counted
        entry = moved_to_trash(current.entry, operation=store.runtime.uuid())
        begun = replace(
            current, entry=entry, why="deleted", job="", state="reclaiming", since_ms=since_ms
        )
        put = Put(begun.item(store.keys), current.is_stored())
        await store.changes.run(
            [store.changes.operation("update", current.entry, entry, begun.deletion)],
            lambda _: store.items.write(put),
        )
        return begun

    async def _clear(self, place: _Place, *, last: bool) -> bool:
        """Delete everything below a directory, in the first phase only files. `last`: the second
        phase. False if something was kept."""
        is_clear = True

        async def chunk(entries: Entries) -> None:
            nonlocal is_clear
            if files := entries.files():
                is_clear = await self._delete_files(files, place) and is_clear
            if directories := entries.directories():
                is_clear = await self._clear_each(directories, place, last=last) and is_clear

        try:
            pages = chunks(self._store.stored_children(place.directory))
            await self._budget.run_all(chunk, pages, cost=cost_of_files)
        except S3kError as error:
            self._fail(place.shown, error)
            return False
        if is_clear and not last:
            self._count(place.shown, directories=1)
        return is_clear

    async def _delete_files(self, files: Entries, place: _Place) -> bool:
        free = await self._without_held(files, place)
        done = await delete_files(self._store, free, counted_at=place.shown)
        for path, error in done.failures:
            self._fail(place.path(path), error)
        self._count(place.shown, files=done.files, size=done.bytes)
        return len(free) == len(files) and not done.failures

    async def _clear_each(self, directories: Entries, place: _Place, *, last: bool) -> bool:
        """Clear directories, and delete them in the second phase. False if something was kept."""
        cleared: list[Entry] = []
        is_clear = True

        async def clear(found: Entry) -> None:
            nonlocal is_clear
            shown = place.path(found.path)
            try:
                entry = await self._without_intent(found, shown)
                if entry is None:
                    return
                _require_tree(entry, place, shown)
                if not await self._clear(_Place(in_trash(entry), shown, place), last=last):
                    is_clear = False
                    return
            except S3kError as error:
                self._fail(shown, error)
                is_clear = False
                return
            cleared.append(entry)

        await self._budget.run_all(clear, directories)
        if last and cleared:
            is_clear = await self._remove(cleared, place) and is_clear
        return is_clear

    async def _remove(self, directories: Iterable[Entry], place: _Place) -> bool:
        """Delete the items of empty directories. False if some were kept."""
        store = self._store
        plan = plan_deletes(in_columns(list(directories), store.keys), store.runtime)
        report = await execute(
            store.items, store.changes.run_parts, plan, plan.lanes(), store.runtime.uuid
        )
        kept = dict(report.failed)
        for row, refusal in report.refused.items():
            if refusal.get(0) is not None:
                kept[row] = BusyError("another client changed the directory")
        for row, error in kept.items():
            self._fail(place.path(plan.path(row)), error)
        self._count(place.shown, directories=len(report.succeeded))
        return not kept

    async def _remove_top(self, trashed: TrashedDirectory) -> None:
        store = self._store
        delete = Delete(trashed.key(trashed.entry.id, store.keys), trashed.is_stored())
        try:
            await store.transact([store.changes.operation("delete", trashed.entry, None)], [delete])
        except ConditionFailedError as error:
            if error.current.get(0) is not None:
                raise BusyError("another client changed the directory in the trash") from error
        else:
            self._count(trashed.was, directories=1)

    async def _without_intent(self, directory: Entry, shown: str) -> Entry | None:
        """The directory once its intent is resolved; None if it no longer exists. Raises BusyError
        for the intent of a live transaction, which may be moving the directory."""
        if directory.pending and await self._is_live(transaction_of(directory.pending)):
            raise _held(shown)
        return await self._store.resolved(directory)

    async def _without_held(self, entries: Entries, place: _Place) -> Entries:
        """The entries without an intent of a live transaction. The others become failures."""
        held = {
            row for row, text in entries.with_intents() if await self._is_live(transaction_of(text))
        }
        if not held:
            return entries
        for row in sorted(held):
            path = place.path(entries[row].path)
            self._fail(path, _held(path))
        return entries.take([row for row in range(len(entries)) if row not in held])

    async def _is_live(self, transaction_id: str) -> bool:
        """Whether a transaction is live. The result is kept for the whole reclamation."""
        if transaction_id not in self._live:
            transactions = self._store.transactions
            record = await transactions.record(transaction_id)
            self._live[transaction_id] = record is not None and transactions.lease_runs(record)
        return self._live[transaction_id]

    def _count(self, path: str, *, files: int = 0, directories: int = 0, size: int = 0) -> None:
        tally = self._tally
        tally.files += files
        tally.directories += directories
        tally.bytes += size
        if self._progress is not None and files + directories:
            done = tally.files + tally.directories
            self._progress(Progress("reclaim", done, bytes=tally.bytes, path=path))

    def _fail(self, path: str, error: Exception) -> None:
        self._tally.fail(path, error)


def _require_tree(entry: Entry, place: _Place, shown: str) -> None:
    """Raise NotDirectoryError for a file, ItemFormatError for a directory below itself."""
    if not entry.is_dir:
        raise NotDirectoryError("another client replaced the directory with a file", path=shown)
    if place.is_below(entry.id):
        raise ItemFormatError("the tree is damaged: the directory is below itself", path=shown)


def _held(path: str) -> BusyError:
    return BusyError("another client's transaction is changing this entry", path=path)
