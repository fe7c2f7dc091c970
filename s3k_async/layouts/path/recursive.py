"""Recursive changes: concurrent over directories and suffixes, resumed by repeating the call.

This is the plain mode, without a transaction record: directories get an intent before they are
listed, additions go top-down, removals bottom-up, and a reader may see part of the change.
`atomic_changes` has the atomic mode.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from s3k_async import _native
from s3k_async._core.concurrency import to_the_end
from s3k_async._native import Entries
from s3k_async.backends.ports.items import ABSENT, Check, Delete, Put
from s3k_async.errors import (
    ConditionFailedError,
    ConflictError,
    LeaseExpiredError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    RenameIntoSelfError,
    S3kError,
)
from s3k_async.layouts.path.file_moves import move_files
from s3k_async.layouts.path.tree_change import TreeChange, look_ahead
from s3k_async.model import ChangeResult, ChangeTally, Entry
from s3k_async.namespace.bulk_changes import BulkOutcome, delete_files
from s3k_async.namespace.conflict_backoff import ObstructedError, until_unobstructed
from s3k_async.namespace.layout import Chain, OnProgress
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import NEXT, to_item, unchanged
from s3k_async.table.keys import Directory
from s3k_async.txn.chunking import chunks, cost_of_files, reread

__all__ = ["NotInterruptedError", "Tree", "forget"]

_LOG = logging.getLogger(__name__)


class NotInterruptedError(PathNotFoundError):
    """There is no interrupted rename to finish."""


class Tree:
    """Recursive operations over a metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def delete(self, entry: Entry, *, progress: OnProgress = None) -> ChangeResult:
        """Delete a directory and everything below it, bottom-up. The data is left to garbage
        collection.

        Raises PathNotFoundError, NotDirectoryError, ConflictError (another directory is there),
        BusyError for the directory itself; failures below it are listed in the result, and then the
        directories above them remain.
        """
        self._store.require_writable(entry.path)
        async with self._store.transactions.hold("mark", entry.path) as txn:
            change = _PlainChange(self._store, txn, "delete", ChangeTally(), progress)
            held = await self._store.hold_current(entry, txn, same=True)
            await change.delete_below(held)
            return change.tally.result()

    async def rename(
        self,
        source: Entry,
        target: str,
        *,
        resume: bool = False,
        found: Chain | None = None,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Move a directory and everything below it. Object ids stay, versions are incremented.

        The target must not exist, unless an interrupted rename of the same directory has created it
        (it has the same object id): then that rename is finished; with `resume` only such a rename
        is, and NotInterruptedError is raised if there is none. Raises RenameIntoSelfError,
        PathExistsError, PathNotFoundError (source, or target's parent), NotDirectoryError,
        BusyError; failures below it are listed in the result, and then both directories exist.
        """
        self._store.require_writable(target)
        if target == source.path or target.startswith(source.path + "/"):
            raise RenameIntoSelfError("a directory cannot be moved into itself", path=target)
        # Checked before anything is held as well, so that a refusal changes nothing.
        with suppress(ObstructedError):
            await look_ahead(self._store, target, source, found=found)

        async def attempt() -> ChangeResult:
            async with self._store.transactions.hold("mark", source.path, target) as txn:
                change = _PlainChange(self._store, txn, "rename", ChangeTally(), progress)
                await change.rename(source, target, resume=resume)
                return change.tally.result()

        return await until_unobstructed(self._store, attempt)


class _PlainChange(TreeChange):
    """A recursive change in progress. Its methods return False, or raise, if something failed and
    the directory remains."""

    async def _below(
        self,
        held: Entry,
        ready: Callable[[Entries], Awaitable[Entries]],
        change_files: Callable[[Entries], Awaitable[BulkOutcome]],
        change_directory: Callable[[Entry], Awaitable[bool]],
    ) -> bool:
        """Change the content of a held directory, once it is `ready`: files in chunks,
        directories one by one."""
        clean = True

        async def chunk(entries: Entries) -> None:
            nonlocal clean
            self.txn.check()
            entries = await ready(entries)
            if files := entries.files():
                done = await change_files(files)
                self.tally.failures += done.failures
                self.count(held.path, files=done.files, size=done.bytes)
                clean = clean and not done.failures
            await self.budget.run_all(directory, entries.directories())

        async def directory(entry: Entry) -> None:
            nonlocal clean
            try:
                changed = await change_directory(entry)
            except LeaseExpiredError:
                raise
            except S3kError as error:
                self.tally.failures.append((entry.path, error))
                changed = False
            clean = clean and changed

        pages = chunks(self.store.stored_children(Directory.at(held.path)))
        await self.budget.run_all(chunk, pages, cost=cost_of_files)
        return clean

    async def _without_intents(self, entries: Entries) -> Entries:
        """The entries after resolving intents of other transactions; those of this one are kept."""
        foreign = {place for place, text in entries.with_intents() if text != self.txn.hold_intent}
        return await reread(entries, foreign, self.store.resolved, self.store.keys)

    # Deleting

    async def delete_below(self, held: Entry) -> bool:
        """Delete the content of a held directory, then the directory."""
        try:
            ready, files, child = self._without_intents, self._delete_files, self._delete_child
            if not await self._below(held, ready, files, child):
                await self.store.release(held, self.txn)
                return False
            await self.store.delete_held(held, self.txn)
        except S3kError:
            await self.store.release(held, self.txn)
            raise
        self.count(held.path, directories=1)
        return True

    async def _delete_files(self, files: Entries) -> BulkOutcome:
        return await delete_files(self.store, files, self.txn.turn)

    async def _delete_child(self, entry: Entry) -> bool:
        try:
            held = await self.store.hold_current(entry, self.txn, named=False)
            return await self.delete_below(held)
        except PathNotFoundError:
            return True

    # Moving

    async def rename(self, source: Entry, target: str, *, resume: bool) -> bool:
        """Move a directory. Raises ObstructedError, and NotInterruptedError as `Tree.rename`."""
        held = await self.store.hold_current(source, self.txn)
        try:
            # The intent is set before these reads: of two directories renamed into each other, one
            # sees the other.
            await look_ahead(self.store, target, held)
            made = await self._make_top(held, target, resume=resume)
        except S3kError:
            await self.store.release(held, self.txn)
            raise
        return await self._move_below(held, made)

    async def _make_top(self, held: Entry, target: str, *, resume: bool = False) -> Entry:
        """The directory at the target. Raises ObstructedError if its parent was removed or carries
        an intent, or if a hidden entry is at the target."""
        store = self.store
        parent = _native.split(target)[0]
        if not await store.directory_exists(Directory.at(parent)):
            raise ObstructedError(target)
        try:
            checks = store.require_parent(Directory.at(parent))
            return await self._make_target(held, target, *checks, resume=resume)
        except ConflictError as error:
            hidden = await store.stored(target)
            raise ObstructedError(target, [hidden] if hidden and hidden.pending else ()) from error

    async def _make_target(
        self, held: Entry, target: str, *checks: Check, resume: bool = False
    ) -> Entry:
        """The directory at the target, with this transaction's intent: created now, or by an
        interrupted rename. Raises PathExistsError, ConflictError (a check failed).
        """
        store = self.store
        existing = await store.get(target)
        if existing is None and resume:
            # The source is held: if both entries had existed at one time, they still would.
            raise NotInterruptedError("no interrupted rename of this directory", path=target)
        if existing is not None:
            if existing.id != held.id:
                raise PathExistsError("the target exists", path=target)
            try:
                existing = await store.hold_current(existing, self.txn, same=True, named=False)
            except (PathNotFoundError, NotDirectoryError) as error:
                raise ConflictError("the target was moved or deleted", path=target) from error
            if existing.version > held.version:
                return existing
            # An interrupted rename went in the opposite direction: the entry at the target is the
            # older one.
        moved = replace(
            held.moved(target, operation=store.runtime.uuid()),
            pending=self.txn.hold_intent,
        )
        self.txn.check()
        try:
            await store.transact(
                [store.changes.operation("rename", held, moved)],
                [
                    Put(
                        to_item(moved, store.keys),
                        ABSENT if existing is None else unchanged(existing),
                    ),
                    *checks,
                ],
            )
        except ConditionFailedError as error:
            there = error.current.get(0)
            if existing is None and there is not None and not there.get(NEXT):
                raise PathExistsError("the target exists", path=target) from error
            raise ConflictError(
                "the target or its parent is being moved or deleted", path=target
            ) from error
        return moved

    async def _move_below(self, held: Entry, made: Entry) -> bool:
        """Move the content of a held directory below `made`, then remove the directory."""

        async def files(entries: Entries) -> BulkOutcome:
            done = await move_files(self.store, entries, made.path, self.txn.turn)
            await self._confirm(made)
            return done

        try:
            clean = await self._below(held, self._reap, files, partial(self._move_child, made))
            if clean:
                self.txn.check()
                await forget(self.store, held)
        except BaseException as error:
            await to_the_end(partial(self._stop, held, made, error))
            raise
        if not clean:
            await self.store.release(held, self.txn)
        # An intent that remains does not undo the change.
        await self.store.release(made, self.txn)
        self.count(held.path, directories=int(clean))
        return clean

    async def _stop(self, held: Entry, made: Entry, error: BaseException) -> None:
        """After a failure or a cancellation: remove the intents, and make sure that moved entries
        have parents."""
        if isinstance(error, S3kError):
            await self.store.release(held, self.txn)
            await self.store.release(made, self.txn)
        if not self.txn.expired:
            return
        # A client that considered the transaction expired may have removed the target directory.
        try:
            await self.store.recreate_directory(made.path)
        except S3kError as failure:
            _LOG.warning("what was moved into %s may lack its parents: %s", made.path, failure)

    async def _move_child(self, into: Entry, entry: Entry) -> bool:
        try:
            held = await self.store.hold_current(entry, self.txn, named=False)
        except PathNotFoundError:
            return True
        target = _native.join(into.path, _native.split(entry.path)[1])
        try:
            made = await self._make_target(held, target)
        except LeaseExpiredError:
            raise
        except S3kError:
            await self.store.release(held, self.txn)
            raise
        await self._confirm(into)
        return await self._move_below(held, made)

    async def _reap(self, entries: Entries) -> Entries:
        """The entries without expired reservations, which are removed; one that changed meanwhile
        in its current state."""
        entries = await self._without_intents(entries)
        if len(entries.without_reservations()) == len(entries):
            return entries
        reserved = {place for place, entry in enumerate(entries) if self.store.ran_out(entry)}
        return await reread(entries, reserved, self._abandoned, self.store.keys)

    async def _abandoned(self, reservation: Entry) -> Entry | None:
        await self.store.abandon(reservation)
        return await self.store.get(reservation.path)

    async def _confirm(self, made: Entry) -> None:
        """After a batch, check that the target directory still carries this transaction's intent.
        Raises LeaseExpiredError."""
        current = await self.store.stored(made.entry_key)
        if current is not None and current.pending == self.txn.hold_intent:
            return
        self.txn.lose()
        raise LeaseExpiredError(
            "transaction lease expired; repeat the call to finish the operation", path=made.path
        )


async def forget(store: MetadataStore, held: Entry) -> None:
    """Remove the old entry of a directory that has moved. Not logged, since the object still
    exists at its new path. Raises ConflictError if it no longer carries this transaction's intent.
    """
    try:
        await store.items.write(Delete(store.keys.of(held), unchanged(held)))
    except ConditionFailedError as error:
        raise ConflictError(
            "another client changed the directory during its rename", path=held.path
        ) from error
