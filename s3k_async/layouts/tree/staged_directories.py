"""Staged directories of layout `tree`: new directories that a transaction fills before it publishes
them.

Until then the item of such a directory is in the trash, so that no path leads to its content, which
needs no write intents. The transaction that publishes the record also moves the item to its place.
Every write below the directory requires that its owner can still publish the transaction: once
another client has taken that over, no write can arrive any more, and everything is deleted
(docs/design/011-directories-by-id.md, section 5.12).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s3k_async._native import Entries
from s3k_async.backends.ports.items import ABSENT, Delete, Put
from s3k_async.errors import ConditionFailedError
from s3k_async.layouts.tree.trash_items import (
    TRASH_FOLDER,
    TrashedDirectory,
    deleted_by,
    in_trash,
    place_in_trash,
)
from s3k_async.model import Entry
from s3k_async.table.codec import in_columns
from s3k_async.txn.column_plan import plan_deletes
from s3k_async.txn.executor import execute, unlogged
from s3k_async.txn.txn_record import OwnedTransaction

if TYPE_CHECKING:
    from s3k_async.namespace.store import MetadataStore

__all__ = ["StagedDirectories", "StagedDirectory"]


@dataclass(frozen=True, slots=True)
class StagedDirectory:
    """The item in the trash of a new directory that is not published yet. Its
    content can be stored below it, since no path leads there."""

    path: str
    """By which the manifest of the transaction lists it, for `Layout.end_trees`."""
    put: Put
    """The write of the item."""
    remove: Delete
    """The action of the publication beside the write of the directory at its place."""


class StagedDirectories:
    """The staged directories of an open volume."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def staged(self, directory: Entry, transaction: str) -> StagedDirectory:
        """The item of a new directory. `transaction`: the id of the one that publishes it."""
        store = self._store
        hidden = place_in_trash(directory)
        trashed = TrashedDirectory(
            entry=replace(hidden, operation=store.runtime.uuid()),
            why="staged",
            origin=directory.directory,
            was=directory.path,
            when_ms=store.runtime.now_ms(),
            by=deleted_by(),
            job=transaction,
        )
        return StagedDirectory(
            hidden.path,
            Put(trashed.item(store.keys), ABSENT),
            Delete(trashed.key(directory.id, store.keys), trashed.is_stored()),
        )

    async def discard(self, path: str, txn: OwnedTransaction) -> None:
        """Delete a directory of a transaction that can no longer be published, with its content.
        Not logged: the operations of the transaction are rolled back. Can be repeated."""
        store = self._store
        object_id = path.removeprefix(f"{TRASH_FOLDER}/")
        item = await store.items.get(TrashedDirectory.key(object_id, store.keys))
        if item is None:
            return
        trashed = TrashedDirectory.from_item(item, store.keys)
        if trashed.why != "staged" or trashed.job != txn.id:
            return
        levels = [[trashed.entry]]
        while levels[-1]:
            below: list[Entry] = []
            for directory in levels[-1]:
                async for page in store.stored_children(in_trash(directory)):
                    await self._delete(page.files(), txn)
                    below += page.directories()
            levels.append(below)
        # The deepest first: after an interruption, what is left can still be found.
        for level in levels[:0:-1]:
            await self._delete(in_columns(level, store.keys), txn)
        try:
            await store.items.write(Delete(trashed.key(object_id, store.keys), trashed.is_stored()))
        except ConditionFailedError:
            return  # another client has deleted it

    async def _delete(self, entries: Entries, txn: OwnedTransaction) -> None:
        """Delete entries. Those that are gone were deleted by another client."""
        if len(entries) == 0:
            return
        store = self._store
        plan = plan_deletes(entries, store.runtime)
        report = await execute(
            store.items, unlogged, plan, plan.lanes(), store.runtime.uuid, turn=txn.turn
        )
        report.raise_failure()
