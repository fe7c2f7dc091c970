"""Renames, deletions and restorations of directories in layout `tree`: each is one transaction of
the table, regardless of the content of the directory.

The transaction requires every ancestor of the paths that it changes. So when it commits, the paths
still lead to the directories that the client has read. A directory cannot be moved below itself,
and nothing below a deleted directory can be moved out of it
(docs/design/011-directories-by-id.md, section 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_TRANSACTION,
    Condition,
    Delete,
    Put,
    Value,
)
from s3k_async.errors import (
    ConditionFailedError,
    ConflictError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    RenameIntoSelfError,
    TransactionConflictError,
    UnsupportedError,
)
from s3k_async.layouts.tree.resolved_path import ResolvedPath
from s3k_async.layouts.tree.trash_items import (
    TrashedDirectory,
    deleted_by,
    moved_to_trash,
)
from s3k_async.layouts.tree.tree_reads import TreeReads
from s3k_async.model import ROOT, ChangeResult, Entry, Progress, TrashReason
from s3k_async.namespace.conflict_backoff import ObstructedError, until_unobstructed
from s3k_async.namespace.directories import require_directories
from s3k_async.namespace.layout import Chain, OnProgress
from s3k_async.namespace.required_directories import RequiredDirectories
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import Operation
from s3k_async.table.codec import to_item, unchanged
from s3k_async.table.keys import TRASH_ID, Directory
from s3k_async.txn.bucket_totals import refuse_move
from s3k_async.txn.txn_record import OwnedTransaction
from s3k_async.txn.write_intent import transaction_of

__all__ = ["DirectoryChanges"]


class DirectoryChanges:
    """The methods of `namespace.layout.Layout` that change directories with everything below them,
    and restorations from the trash."""

    def __init__(self, store: MetadataStore, reads: TreeReads) -> None:
        self._store = store
        self._reads = reads

    async def rename_directory(
        self,
        source: Entry,
        target: str,
        *,
        atomic: bool,
        found: Chain | None = None,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Move a directory; always atomic. The result counts the directory alone."""
        self._store.require_writable(target)
        if source.path in (ROOT, target) or target.startswith(source.path + "/"):
            raise RenameIntoSelfError("a directory cannot be moved into itself", path=target)
        above = self._reads.known_above(source)
        try:
            if found is None or above is None or source.pending:
                raise ObstructedError(target)
            # The caller has just read both. If anything has changed since, this is refused.
            await self._move(source, above, ResolvedPath(found))
        except ObstructedError:
            await until_unobstructed(self._store, lambda: self._rename(source.path, target))
        return _one_directory("rename", source.path, progress)

    async def delete_directory(
        self,
        entry: Entry,
        *,
        atomic: bool,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Move a directory into the trash; always atomic. The result counts the directory alone."""
        await self.move_to_trash(entry)
        return _one_directory("delete", entry.path, progress)

    async def move_to_trash(self, entry: Entry) -> TrashedDirectory:
        """Move a directory into the trash. Raises the errors of `Layout.delete_directory`."""
        self._store.require_writable(entry.path)
        above = self._reads.known_above(entry)
        try:
            if above is None or entry.pending or not entry.is_dir:
                raise ObstructedError(entry.path)
            # The caller has just read the entry. If anything has changed since, this is refused.
            return await self._to_trash(entry, above)
        except ObstructedError:
            return await until_unobstructed(self._store, lambda: self._delete(entry))

    async def remove_empty(self, held: Entry, txn: OwnedTransaction) -> None:
        """Remove an empty directory that carries the transaction's intent, and put a removal marker
        into the trash. Raises LeaseExpiredError, ConflictError.

        It does not wait for other transactions, which might be waiting for the intent.
        """
        store = self._store
        above = self._reads.known_above(held)
        if above is None:
            await self._reads.get(held.path)
            above = self._reads.known_above(held)
        if above is None:
            raise ConflictError("another client moved the directory", path=held.path)
        removal = store.changes.operation("delete", held, None)
        marker = self.trashed(held, "empty", removal.id)
        txn.check()
        try:
            await self._commit(removal, held, marker.item(store.keys), [above])
        except ObstructedError as error:
            await self._resolve_late_writes(error.obstacles)
            raise ConflictError(
                "another client changed the directory, or one above it, during its removal",
                path=held.path,
            ) from error
        self._reads.discard(store.keys.directory(held))

    async def _resolve_late_writes(self, obstacles: Iterable[Entry]) -> None:
        """Remove items in the trash that late writes of aborted transactions have left: they would
        obstruct every attempt at a removal. Never waits."""
        for entry in obstacles:
            if entry.directory == TRASH_ID:
                record = await self._store.transactions.record(transaction_of(entry.pending))
                if record is None:
                    await self._store.resolve(entry, entry.path)

    async def restore(self, trashed: TrashedDirectory, target: str) -> Entry:
        """Move a deleted directory from the trash to a path; missing parents are created.

        Raises PathNotFoundError (it is no longer in the trash, or is being reclaimed),
        PathExistsError, NotDirectoryError, BusyError, and the services' errors: then nothing was
        changed. OutcomeUnknownError.
        """
        self._store.require_writable(target)
        current = trashed

        async def attempt() -> Entry:
            nonlocal current
            try:
                return await self._restore(current, target)
            except ObstructedError:
                current = await self._read_trashed(trashed)
                raise

        return await until_unobstructed(self._store, attempt)

    async def _rename(self, source: str, target: str) -> None:
        old, new = await self._reads.resolve([source, target])
        await self._move(_directory_at(old), self._above(old), new, [old])

    async def _move(
        self,
        entry: Entry,
        above: Sequence[Directory],
        new: ResolvedPath,
        old: Sequence[ResolvedPath] = (),
    ) -> None:
        """Move a directory, from below these directories to a path. `old`: its own path, if that
        was resolved."""
        store, target = self._store, new.path
        await store.access.permit_move(entry, target)
        store.refuse_read_only(entry)
        _require_free(new)
        _require_no_intents(entry.path, [*old, new])
        if any(above is not None and above.id == entry.id for _, above in new.chain):
            raise ObstructedError(target)  # moved between the reads of the two paths
        moved = _moved(entry, new, store.runtime.uuid())
        renaming = store.changes.operation("rename", entry, moved)
        chains = [above, self._above(new)]
        await self._commit(renaming, entry, to_item(moved, store.keys), chains)
        self._reads.discard(store.keys.directory(entry))
        self._reads.remember(moved)

    async def _delete(self, expected: Entry) -> TrashedDirectory:
        (found,) = await self._reads.resolve([expected.path])
        entry = _directory_at(found)
        if entry.id != expected.id:
            raise ConflictError("another directory is now at this path", path=expected.path)
        _require_no_intents(expected.path, [found])
        return await self._to_trash(entry, self._above(found))

    async def _to_trash(self, entry: Entry, above: Sequence[Directory]) -> TrashedDirectory:
        store = self._store
        await store.access.permit_tree_removal(entry)
        store.refuse_read_only(entry)
        trashed = self.trashed(entry, "deleted", store.runtime.uuid())
        renaming = store.changes.operation("rename", entry, trashed.entry, trashed.deletion)
        await self._commit(renaming, entry, trashed.item(store.keys), [above])
        self._reads.discard(store.keys.directory(entry))
        return trashed

    async def _restore(self, trashed: TrashedDirectory, target: str) -> Entry:
        store = self._store
        if not trashed.can_be_restored():
            raise PathNotFoundError("the directory cannot be restored", path=trashed.was)
        store.access.require_owner(trashed.entry, "restore it")
        if store.changes.counters is not None:
            refuse_move(trashed.was, target)
        (new,) = await self._reads.resolve([target])
        if new.entry is None and new.parent is None:
            await store.need_directory(new.chain[-2][0])
            (new,) = await self._reads.resolve([target])
        _require_free(new)
        await store.access.permit_creation(target)
        _require_no_intents(target, [new])
        entry = trashed.entry
        restored = _moved(entry, new, store.runtime.uuid())
        await self._commit(
            store.changes.operation("rename", entry, restored),
            entry,
            to_item(restored, store.keys),
            [self._above(new)],
            when=trashed.is_restorable(),
        )
        self._reads.remember(restored)
        return restored

    async def _read_trashed(self, trashed: TrashedDirectory) -> TrashedDirectory:
        keys = self._store.keys
        item = await self._store.items.get(trashed.key(trashed.entry.id, keys))
        if item is None:
            raise PathNotFoundError("the directory is not in the trash", path=trashed.was)
        return TrashedDirectory.from_item(item, keys)

    def trashed(self, directory: Entry, why: TrashReason, operation: str) -> TrashedDirectory:
        """The new item in the trash for a directory that is being removed."""
        return TrashedDirectory(
            entry=moved_to_trash(directory, operation=operation),
            why=why,
            origin=directory.directory,
            was=directory.path,
            when_ms=self._store.runtime.now_ms(),
            by=deleted_by(),
        )

    def _above(self, found: ResolvedPath) -> list[Directory]:
        """The root and the other directories above an existing entry, or a free path."""
        above = [entry for _, entry in found.chain[:-1] if entry is not None]
        return [self._store.keys.directory(entry) for entry in above]

    async def _commit(
        self,
        operation: Operation,
        directory: Entry,
        item: Mapping[str, Value],
        chains: Sequence[Sequence[Directory]],
        *,
        when: Condition | None = None,
    ) -> None:
        """Replace the item of a directory by one at another key, in one transaction. Its
        conditions: the directory is unchanged (or `when`), the other key is free, and all
        directories of `chains` are in place, each chain from the root down to a parent. The parents
        are touched.

        Raises ObstructedError if a condition failed, UnsupportedError for too many
        directories, OutcomeUnknownError and the services' errors.
        """
        store, path = self._store, chains[-1][-1].path
        required = RequiredDirectories(
            store, path, [each[-1] for each in chains], chain.from_iterable(chains)
        )
        actions = [
            Delete(store.keys.of(directory), when or unchanged(directory)),
            Put(item, ABSENT),
            *required.actions,
        ]
        if len(actions) > MAX_TRANSACTION:
            raise UnsupportedError(
                "too many directories are above it for one transaction; move one of them first",
                path=path,
            )
        try:
            await required.transact([operation], actions)
        except ConditionFailedError as error:
            raise ObstructedError(path, store.obstacles(error.current.values())) from error
        except TransactionConflictError as error:
            raise ObstructedError(path) from error


def _directory_at(found: ResolvedPath) -> Entry:
    """The directory at a path. Raises PathNotFoundError, NotDirectoryError."""
    if found.entry is None:
        raise PathNotFoundError("no such directory", path=found.path)
    if not found.entry.is_dir:
        raise NotDirectoryError("not a directory", path=found.path)
    return found.entry


def _require_free(target: ResolvedPath) -> None:
    """Raise PathNotFoundError or NotDirectoryError if the path has no parent, PathExistsError for
    an existing entry. An entry with an intent is ignored, as it may be about to be removed."""
    require_directories(target.chain[:-1])
    if target.entry is not None and not target.entry.pending:
        raise PathExistsError("the target exists", path=target.path)


def _require_no_intents(path: str, found: Iterable[ResolvedPath]) -> None:
    """Raise ObstructedError for entries of the paths with intents."""
    entries = (entry for each in found for _, entry in each.chain if entry is not None)
    if held := [entry for entry in entries if entry.pending]:
        raise ObstructedError(path, held)


def _moved(directory: Entry, target: ResolvedPath, operation: str) -> Entry:
    """The next version of a directory, at a free path."""
    assert target.parent is not None
    moved = directory.moved(target.path, operation=operation)
    return replace(moved, directory=target.parent.id)


def _one_directory(operation: str, path: str, progress: OnProgress) -> ChangeResult:
    if progress is not None:
        progress(Progress(operation, 1, path=path))
    return ChangeResult(directories=1)
