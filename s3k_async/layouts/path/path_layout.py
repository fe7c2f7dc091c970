"""Layout `path` of an open volume."""

from __future__ import annotations

from collections.abc import Iterable

from s3k_async.layouts.path.atomic_changes import AtomicTree, SubtreePreparation
from s3k_async.layouts.path.empty_trash import EmptyTrash
from s3k_async.layouts.path.parents import ParentDirectories
from s3k_async.layouts.path.path_check import PathCheck
from s3k_async.layouts.path.recursive import Tree
from s3k_async.layouts.path.tree_resolution import TreeResolution
from s3k_async.model import ChangeResult, ChangeTally, Entry
from s3k_async.namespace.layout import Chain, LayoutCheck, OnProgress, TrashedEntry
from s3k_async.namespace.mutations import CommitPlan
from s3k_async.namespace.store import MetadataStore
from s3k_async.txn.logged_write import TransactionLog
from s3k_async.txn.txn_record import OwnedTransaction

__all__ = ["PathLayout"]


class PathLayout(ParentDirectories):
    """An implementation of `namespace.layout.Layout`."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store)
        self._plain = Tree(store)
        self._atomic = AtomicTree(store, self._plain)

    @property
    def has_trash(self) -> bool:
        """Recursive deletes are final."""
        return False

    def check_path(self, path: str) -> None:
        """Raise InvalidPathError for a path without a key."""
        self._store.keys.key(path)

    async def rename_directory(
        self,
        source: Entry,
        target: str,
        *,
        atomic: bool,
        found: Chain | None = None,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Move a directory entry by entry."""
        await self._store.access.permit_move(source, target)
        tree = self._atomic if atomic else self._plain
        return await tree.rename(source, target, found=found, progress=progress)

    async def delete_directory(
        self,
        entry: Entry,
        *,
        atomic: bool,
        progress: OnProgress = None,
        wait: bool = True,
    ) -> ChangeResult:
        """Delete a directory entry by entry. The call always waits, whatever `wait` is."""
        await self._store.access.permit_tree_removal(entry)
        tree = self._atomic if atomic else self._plain
        return await tree.delete(entry, progress=progress)

    async def remove_empty(self, held: Entry, txn: OwnedTransaction) -> None:
        """Remove the item of a directory."""
        await self._store.delete_held(held, txn)

    def trash(self) -> EmptyTrash:
        """The trash, which is always empty."""
        return EmptyTrash()

    def scanned_paths(self, directories: Iterable[tuple[str, str]]) -> dict[str, str] | None:
        """None: they are known."""
        return None

    def check(self) -> LayoutCheck:
        """The part of layout `path`, which evaluates no permissions."""
        store = self._store.unrestricted()
        return PathCheck(store) if store is self._store else store.layout.check()

    def trashed(
        self,
        directory: Entry,
        operation: str,
        *,
        empty: bool,
    ) -> TrashedEntry | None:
        """Always None: a removed directory is not moved into the trash."""
        return None

    async def staged_commit(self, plan: CommitPlan, name: str) -> None:
        """None: entries could be read by their paths before they are published."""

    async def prepare_subtree(
        self,
        txn: OwnedTransaction,
        log: TransactionLog,
        source: Entry,
        target: str,
        tally: ChangeTally,
    ) -> None:
        """Put intents on all entries below a directory."""
        await SubtreePreparation(self._store, txn, log, tally).below(source.path, target)

    async def end_trees(
        self, txn: OwnedTransaction, source: str, target: str, *, published: bool
    ) -> None:
        """Walk over both trees; only entries with intents of the transaction are changed."""
        store, runtime = self._store, self._store.runtime
        if source:
            await TreeResolution(store, txn, txn.removal_intent, published, runtime).run(source)
        if target:
            intent = txn.creation_intent
            await TreeResolution(store, txn, intent, not published, runtime).run(target)
