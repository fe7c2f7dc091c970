"""Directories of new entries in layout `tree`: read before an entry is written, and again after it.

An entry is written into the directory to which its path led at one moment of the call, even if that
directory is moved or removed concurrently. If the directory was moved, or deleted recursively, the
entry stays in it. If the directory was removed as empty, the trash contains a removal marker for
it, and the new entry is moved into the directory that is now at the path
(docs/design/011-directories-by-id.md, section 5.4).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from s3k_async import _native
from s3k_async.backends.ports.items import ABSENT, Action, Check, Delete, Put
from s3k_async.errors import (
    ConditionFailedError,
    ConflictError,
    OutcomeUnknownError,
    S3kError,
    TransactionConflictError,
)
from s3k_async.layouts.tree.resolved_path import ResolvedPath
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.layouts.tree.tree_reads import TreeReads
from s3k_async.model import ROOT, Entry, TrashReason
from s3k_async.namespace.conflict_backoff import ConflictBackoff, ObstructedError
from s3k_async.namespace.directories import CHAIN_PART, require_directories
from s3k_async.namespace.layout import ConfirmedChain, PreparedPaths
from s3k_async.namespace.single_flight import SingleFlight
from s3k_async.namespace.store import MetadataStore, directories_above
from s3k_async.table.codec import to_item, unchanged
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.intent_view import is_held
from s3k_async.txn.lease import Moment

__all__ = ["TreeParents"]

CONCLUSIVE_SECONDS: Final = 600.0
"""How long after the confirmation of its chain a creation relies on the trash: half of the time for
which a removal marker is guaranteed to stay there."""


class TreeParents(TreeReads):
    """The methods of `namespace.layout.Layout` for parents of new entries."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store)
        self._shared = SingleFlight(store.directory_exists)

    # Before the write

    async def prepare(self, path: str) -> tuple[Entry | None, ConfirmedChain]:
        """The entry at a path that is to be written, read with its directories."""
        store, deadline = self._store, self._store.deadline()
        while True:
            since = Moment.now(store.runtime)
            resolved = (await self.resolve([path]))[0]
            require_directories(resolved.chain[:-1], missing_ok=True)
            parent = resolved.parent
            if parent is not None and not parent.pending:
                return resolved.entry, self._confirmed(resolved, parent, since)
            store.still_time(deadline, path)
            await store.need_directory(_native.split(path)[0])

    def _confirmed(self, resolved: ResolvedPath, parent: Entry, since: Moment) -> ConfirmedChain:
        directory = self._store.keys.directory(parent)
        return ConfirmedChain(directory, directories_above(resolved.chain), since)

    async def prepare_many(self, paths: Sequence[str]) -> PreparedPaths:
        """The entries at different paths and their directories, packed into batches. Missing
        parents are created once, and their paths are read again."""
        entries: dict[str, Entry | None] = {}
        chains: dict[str, ConfirmedChain] = {}
        lacking = await self._read_targets(paths, entries, chains)
        errors: dict[str, S3kError] = {}
        again: set[str] = set()
        if lacking:
            refused = await self._make_parents({_native.split(path)[0] for path in lacking})
            errors = {
                path: refused[parent]
                for path in lacking
                if (parent := _native.split(path)[0]) in refused
            }
            left = [path for path in lacking if path not in errors]
            again = set(await self._read_targets(left, entries, chains))
            entries |= dict.fromkeys(again)
        return PreparedPaths(entries, errors, again, chains)

    async def _read_targets(
        self,
        paths: Sequence[str],
        entries: dict[str, Entry | None],
        chains: dict[str, ConfirmedChain],
    ) -> list[str]:
        """Read the entries at paths with their directories; returns the paths without a directory
        as parent, or with one that has an intent."""
        since = Moment.now(self._store.runtime)
        lacking = []
        for path, resolved in zip(paths, await self.resolve(paths), strict=True):
            parent = resolved.parent
            if parent is None or not parent.is_dir or parent.pending:
                lacking.append(path)
                continue
            entries[path] = resolved.entry
            chains[path] = self._confirmed(resolved, parent, since)
        return lacking

    async def _make_parents(self, parents: Collection[str]) -> Mapping[str, S3kError]:
        """Create missing directories, topmost first, and wait for those with intents; returns the
        errors by path."""
        refused: dict[str, S3kError] = {}
        by_depth: dict[int, list[str]] = {}
        for parent in parents:
            by_depth.setdefault(parent.count("/"), []).append(parent)

        for depth in sorted(by_depth):
            refused |= await self._store.need_directories(by_depth[depth])
        return refused

    async def is_leaving(self, directory: Entry) -> bool:
        """Whether another client is removing a directory in which an entry was found, or has
        removed it."""
        current = await self._store.stored_again(directory)
        return current is None or current.id != directory.id or is_held(current)

    async def misplaced(self, entries: Sequence[Entry]) -> Collection[str]:
        """The paths whose parents are other directories by now, or missing."""
        parents = {_native.split(entry.path)[0]: "" for entry in entries}
        wanted = [parent for parent in parents if parent != ROOT]
        for parent, resolved in zip(wanted, await self.resolve(wanted), strict=True):
            if resolved.entry is not None and resolved.entry.is_dir:
                parents[parent] = resolved.entry.id
        parents[ROOT] = ROOT_ENTRY.id
        return {
            entry.path
            for entry in entries
            if parents[_native.split(entry.path)[0]] != entry.directory
        }

    async def confirm_publication(self, entry: Entry, chain: ConfirmedChain) -> None:
        """Raise ConflictError if the lowest directory that is no longer in place was deleted. If it
        was moved, the file is published in it."""
        if not await self.misplaced([entry]):
            return
        gone = await self._gone(chain.above)
        if gone is not None and await self._removed_as(gone, entry.path) is not None:
            raise ConflictError(
                "another client deleted the directory of the file; nothing was published",
                path=entry.path,
            )

    # After the write

    async def has_parent(
        self,
        entry: Entry,
        chain: ConfirmedChain | None,
    ) -> bool:
        """Whether the parent is still in place, without an intent of a live transaction. Concurrent
        calls for the same directory share a read that begins after all of them."""
        assert chain is not None
        return chain.parent.path == ROOT or await self._shared.ask(chain.parent)

    async def give_parents(self, entry: Entry, chain: ConfirmedChain | None) -> Entry:
        """If the parent was removed as empty, move the entry into the directory that is now at its
        path. If the parent was deleted recursively, the creation counts as before the deletion.

        Unless the parent is known to have been removed as empty, other clients may have seen the
        entry, and it must not be withdrawn.
        """
        assert chain is not None
        try:
            is_in_place = not await self._was_empty(entry, chain)
        except S3kError as error:
            raise _unknown(entry, "the file was written, but its directory is not known") from error
        if is_in_place:
            return entry
        deadline = self._store.deadline()
        while True:
            moved = await self._relocate(entry, entry.path)
            if moved is not None:
                return moved
            self._store.still_time(deadline, entry.path)

    async def _was_empty(self, entry: Entry, chain: ConfirmedChain) -> bool:
        """Whether the parent of a created entry was removed as empty. Raises BusyError, and
        OutcomeUnknownError if a removal marker may have been deleted by now."""
        store, deadline = self._store, self._store.deadline()
        while True:
            gone = await self._gone(chain.above[-1:])
            if gone is not None:
                if chain.since.age(store.runtime) >= CONCLUSIVE_SECONDS:
                    raise _unknown(entry, "the file was written, but its directory is not known")
                return await self._removed_as(gone, entry.path) == "empty"
            parent = await store.stored_again(chain.above[-1])
            if parent is not None and parent.id == chain.parent.key:
                if not parent.pending or await store.resolver.keeps_directory(
                    parent, end_removal=True
                ):
                    return False
                await store.resolve(parent, entry.path)
            store.still_time(deadline, entry.path)

    async def keep_moved(
        self, moved: Entry, source: Entry, chain: ConfirmedChain | None, *, replaced: bool
    ) -> Entry | None:
        """If the directory of the file was removed as empty, move the file into the directory that
        is now at its path, or, if that fails, back to its source. If the rename replaced a file,
        the directory was not empty, so it was deleted recursively, after the rename."""
        if replaced:
            return moved
        try:
            return await self.give_parents(moved, chain)
        except OutcomeUnknownError:
            raise
        except S3kError as error:
            if not await self._move_back(moved, source, error):
                return moved
            return None

    async def _move_back(self, moved: Entry, source: Entry, reason: S3kError) -> bool:
        """Undo a rename: move the file into the directory that is now at its old parent's path. If
        that directory was removed, it is created again. False if another client has changed the
        file."""
        unknown = _unknown(
            moved, "the file was moved, but another client is removing its directory"
        )
        deadline = self._store.deadline()
        while True:
            try:
                back = await self._relocate(moved, source.path)
                if back is not None:
                    return back is not moved
                self._store.still_time(deadline, source.path)
            except OutcomeUnknownError:
                raise
            except S3kError:
                raise unknown from reason

    async def _gone(self, directories: Sequence[Entry]) -> Entry | None:
        """The lowest of the directories that is no longer at its key, or None."""
        keys = [directory.entry_key for directory in directories]
        found = await self._read(keys) if keys else {}
        for key, directory in zip(reversed(keys), reversed(directories), strict=True):
            current = found.get(key)
            if isinstance(current, S3kError):
                raise current
            if current is None or not current.is_dir or current.id != directory.id:
                return directory
        return None

    async def _removed_as(self, directory: Entry, path: str) -> TrashReason | None:
        """Why a directory that is no longer at its key is in the trash; None if it is not in the
        trash, which means that it was moved. Raises BusyError, which names `path`.

        A transaction checks this. A read could miss the item in the trash although an earlier read
        has shown the deletion: DynamoDB makes the effects of a transaction visible item by item. It
        refuses other transactions on these items until all effects are visible.
        """
        store = self._store
        key = TrashedDirectory.key(directory.id, store.keys)
        race = ConflictBackoff(store)
        while True:
            try:
                await store.items.transact([Check(key, ABSENT)], store.runtime.uuid())
            except ConditionFailedError as error:
                item = error.current.get(0)
                held = store.obstacles([item])
                if item is not None and not held:
                    return TrashedDirectory.from_item(item, store.keys).why
                # It has left the trash since, or a transaction is moving it into the trash.
                await race.lost(ObstructedError(path, held))
            except TransactionConflictError:
                await race.lost(ObstructedError(path))
            except OutcomeUnknownError as error:
                await race.lost(error)  # after a lost response, a failed condition proves nothing
            else:
                return None

    async def _relocate(self, entry: Entry, path: str) -> Entry | None:
        """Move an entry that was just created or renamed from its removed directory to `path`, in
        the directory that is there now. The same transaction creates missing directories, so that
        none is created if the entry was deleted meanwhile.

        Returns the entry itself if its directory is in place again, or if another client has seen
        the entry and changed or removed it; None if anything else has changed. Raises ConflictError
        if the path is taken.
        """
        store = self._store
        since = store.runtime.monotonic()
        resolved = (await self.resolve([path]))[0]
        above = resolved.chain[:-1]
        require_directories(above, missing_ok=True)
        made, bases = store.missing_directories(above)
        if len(made) > CHAIN_PART:  # too many for one transaction: the topmost before it
            await store.need_directory(made[-CHAIN_PART - 1].path)
            return None
        parent = made[-1] if made else resolved.parent
        assert parent is not None
        lowest = bases[-1] if made else parent  # of those that exist
        if lowest.pending:
            await store.resolve(lowest, path)
            return None
        if (parent.id, path) == (entry.directory, entry.path):
            return entry
        if resolved.entry is not None:
            raise _taken(path)
        moved = entry.moved(path, operation=store.runtime.uuid(), directory=parent.id)
        operations, directories = store.plan_directories(made, [lowest])
        actions: list[Action] = [
            Delete(store.keys.of(entry), unchanged(entry)),
            Put(to_item(moved, store.keys), ABSENT),
            *directories,
        ]
        try:
            await store.transact(
                [store.changes.operation("rename", entry, moved), *operations],
                actions,
                [made[0] if made else moved],
                since,
            )
        except (ConflictError, TransactionConflictError):
            return None  # its new directory has changed as well
        except OutcomeUnknownError as error:
            raise _unknown(
                entry,
                "the file was written, but its directory was removed; whether it was moved "
                "into another one is unknown",
            ) from error
        except ConditionFailedError as error:
            if await store.resolve_refusal(error, path):
                return None
            if 0 in error.current:
                return entry
            if 1 in error.current:
                raise _taken(path) from error
            return None
        for directory in made:
            self.remember(directory)
        return moved


def _taken(path: str) -> ConflictError:
    return ConflictError(
        "another client removed the directory of the file and created an entry at its path",
        path=path,
    )


def _unknown(entry: Entry, message: str) -> OutcomeUnknownError:
    """The error of a creation that must not be withdrawn."""
    return OutcomeUnknownError(message, path=entry.path, operation=entry.operation)
