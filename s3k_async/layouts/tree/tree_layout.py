"""Layout `tree` of an open volume."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from s3k_async.layouts.tree.directory_changes import DirectoryChanges
from s3k_async.layouts.tree.reclamation import Reclamation
from s3k_async.layouts.tree.staged_commit import commit_staged, staging_of
from s3k_async.layouts.tree.staged_directories import StagedDirectories
from s3k_async.layouts.tree.trash_items import TRASH_FOLDER
from s3k_async.layouts.tree.tree_parents import TreeParents
from s3k_async.layouts.tree.tree_trash import TreeTrash
from s3k_async.model import ChangeResult, ChangeTally, Entry
from s3k_async.namespace.layout import Chain, LayoutCheck, OnProgress, StagedCommit, TrashedEntry
from s3k_async.namespace.mutations import CommitPlan
from s3k_async.namespace.store import MetadataStore
from s3k_async.txn.logged_write import TransactionLog
from s3k_async.txn.txn_record import OwnedTransaction

__all__ = ["TreeLayout"]

_LOG = logging.getLogger(__name__)


class TreeLayout(TreeParents):
    """An implementation of `namespace.layout.Layout`."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store)
        self.changes = DirectoryChanges(store, self)

    @property
    def has_trash(self) -> bool:
        """Deleted directories go into the trash."""
        return True

    async def rename_directory(
        self,
        source: Entry,
        target: str,
        *,
        atomic: bool = True,
        found: Chain | None = None,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Move a directory in one transaction."""
        return await self.changes.rename_directory(
            source, target, atomic=atomic, found=found, progress=progress
        )

    async def delete_directory(
        self,
        entry: Entry,
        *,
        atomic: bool = True,
        progress: OnProgress = None,
        wait: bool = False,
    ) -> ChangeResult:
        """Move a directory into the trash in one transaction; with `wait`, also delete the files
        below it. Entries that are kept are left to garbage collection."""
        if not wait:
            return await self.changes.delete_directory(entry, atomic=atomic, progress=progress)
        trashed = await self.changes.move_to_trash(entry)
        tally = ChangeTally()
        await Reclamation(self._store, tally, progress).run(trashed)
        for path, error in tally.failures:
            _LOG.warning("%s is left to garbage collection: %s", path, error)
        if tally.unlisted:
            _LOG.warning("%s more entries are left to garbage collection", tally.unlisted)
        return replace(tally.result(), failures=(), unlisted=0)

    async def remove_empty(self, held: Entry, txn: OwnedTransaction) -> None:
        """Remove the item of a directory, and put a removal marker into the trash."""
        await self.changes.remove_empty(held, txn)

    def trash(self) -> TreeTrash:
        """The directories in the trash."""
        return TreeTrash(self._store, self.changes)

    def scanned_paths(self, directories: Iterable[tuple[str, str]]) -> dict[str, str] | None:
        """The paths that lead from the root."""
        from s3k_async.layouts.tree.path_index import paths_from_root

        return paths_from_root(directories)

    def check(self) -> LayoutCheck:
        """A new path index, and the writes of repairs, which evaluate no permissions."""
        # Clients do not need it, nor sqlite3, with which it sorts.
        from s3k_async.layouts.tree.tree_check import TreeCheck

        store = self._store.unrestricted()
        if store is not self._store:
            return store.layout.check()
        return TreeCheck(store, self.changes)

    def trashed(self, directory: Entry, operation: str, *, empty: bool) -> TrashedEntry | None:
        """The directory in the trash, or its removal marker."""
        trashed = self.changes.trashed(directory, "empty" if empty else "deleted", operation)
        return TrashedEntry(trashed.entry, trashed.item(self._store.keys), trashed.deletion)

    async def staged_commit(self, plan: CommitPlan, name: str) -> StagedCommit | None:
        """By staged directories."""
        staging = await staging_of(self._store, plan, name)
        return None if staging is None else partial(commit_staged, self._store, plan, staging)

    async def prepare_subtree(
        self,
        txn: OwnedTransaction,
        log: TransactionLog,
        source: Entry,
        target: str,
        tally: ChangeTally,
    ) -> None:
        """Do nothing: everything below a directory moves with its item. Only the directory itself
        is counted."""

    async def end_trees(
        self,
        txn: OwnedTransaction,
        source: str,
        target: str,
        *,
        published: bool,
    ) -> None:
        """Delete a staged directory of a transaction that was not published. There is nothing else
        to do: transactions put no intents below a directory as a whole."""
        is_staged = txn.kind == "transaction" and source.startswith(f"{TRASH_FOLDER}/")
        if is_staged and not published:
            await StagedDirectories(self._store).discard(source, txn)
