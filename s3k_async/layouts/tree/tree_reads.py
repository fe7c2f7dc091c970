"""Reads by path in layout `tree`: each reads the directories of the path as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from s3k_async import _native
from s3k_async.backends.ports.items import Condition, Item
from s3k_async.errors import ItemFormatError, PermissionDeniedError, S3kError
from s3k_async.layouts.tree.chain_resolver import ChainResolver, Found
from s3k_async.layouts.tree.resolved_path import ResolvedPath
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.layout import Chain, LocatedEntry
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import NEXT, from_item, from_items
from s3k_async.table.keys import Directory
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.intent_view import Seeing

__all__ = ["TreeReads"]

_SURELY_VALID: Final = 256
"""Characters of a path that neither is too long nor has a name that is: each has at most four bytes
of UTF-8."""


class TreeReads:
    """The reads of `namespace.layout.Layout`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._path_keys = replace(store.keys, layout="path")
        """Those that the paths would have in layout `path`."""
        tuning = store.tuning
        self._resolver = ChainResolver(
            self._read, store.runtime, tuning.busy_timeout, tuning.directory_trust
        )

    def check_path(self, path: str) -> None:
        """Raise InvalidPathError for a path that is too long, or contains a name that is too long.
        Keys contain no paths, but the limit for paths is that of layout `path`, so that every valid
        path can be used in both layouts. The rename of an ancestor may make a path too long; it is
        invalid until an ancestor gets a shorter name."""
        if len(path) <= _SURELY_VALID:
            return
        keys = self._store.keys
        _native.ancestors(path)
        for name in path.split("/")[1:]:
            keys.key(keys.child(ROOT_ENTRY.id, name))
        if path != ROOT:
            self._path_keys.key(path)

    async def get(
        self, path: str, see: Seeing | None = None, *, trusting: bool = False
    ) -> Entry | None:
        """The entry at a path, or None. Raises InvalidPathError, ItemFormatError, BusyError."""
        return (await self.resolve([path], see, trusting=trusting))[0].entry

    async def get_many(
        self, paths: Sequence[str], see: Seeing | None = None, *, trusting: bool = False
    ) -> list[Entry | None]:
        """The entries at the paths, in their order, in as few requests as possible. Not a
        snapshot."""
        found = await self.resolve(paths, see, trusting=trusting)
        return [resolved.entry for resolved in found]

    async def get_each(
        self, paths: Sequence[str], *, trusting: bool = False
    ) -> list[Entry | S3kError | None]:
        """As `get_many`; for an invalid item, or a path that the identity may not resolve, the
        error takes the place of the entry."""
        return [
            resolved if isinstance(resolved, S3kError) else resolved.entry
            for resolved in await self._resolve(paths, trusting=trusting)
        ]

    async def chain(self, path: str) -> Chain:
        """The root, every other ancestor, and the path itself, topmost first."""
        return list((await self.resolve([path]))[0].chain)

    async def get_with_chain(self, path: str, other: str) -> tuple[Entry | None, Chain]:
        """`get` of a path and `chain` of another one, read in one batch."""
        found, target = await self.resolve([path, other])
        return found.entry, list(target.chain)

    async def locate(self, path: str, see: Seeing | None = None) -> LocatedEntry:
        """The entry at a path, with the directories above it."""
        return (await self.locate_many([path], see))[0]

    async def locate_many(
        self, paths: Sequence[str], see: Seeing | None = None
    ) -> list[LocatedEntry]:
        """The entries at the paths, in their order, with the directories above them."""
        return [self._located(resolved) for resolved in await self.resolve(paths, see)]

    def _located(self, resolved: ResolvedPath) -> LocatedEntry:
        above: list[Entry] = []
        for place, entry in resolved.chain[1:]:
            if place == resolved.path or entry is None:
                parent = above[-1] if above else ROOT_ENTRY
                key = self._store.keys.child(parent.id, _native.split(place)[1])
                return LocatedEntry(entry, key, above)
            above.append(entry)
        return LocatedEntry(ROOT_ENTRY, ROOT)

    async def resolve(
        self, paths: Sequence[str], see: Seeing | None = None, *, trusting: bool = False
    ) -> list[ResolvedPath]:
        """The paths with their directories, in their order. Raises ItemFormatError,
        PermissionDeniedError."""
        found = []
        for resolved in await self._resolve(paths, see, trusting=trusting):
            if isinstance(resolved, S3kError):
                raise resolved
            found.append(resolved)
        return found

    async def _resolve(
        self, paths: Sequence[str], see: Seeing | None = None, *, trusting: bool = False
    ) -> list[ResolvedPath | S3kError]:
        """`_resolve_all`, with the refusals of directories that may not be searched. Directories
        are not trusted if their permissions are evaluated."""
        access = self._store.access
        if not access.is_enforced:
            return [*await self._resolve_all(paths, see, trusting=trusting)]
        found = await self._resolve_all(paths, see)
        return [(isinstance(each, ResolvedPath) and self._denial(each)) or each for each in found]

    def _denial(self, resolved: ResolvedPath) -> PermissionDeniedError | None:
        access = self._store.access
        denial = access.denial(resolved.chain[:-1])
        if denial is None:
            access.note(resolved.path, resolved.entry)
        return denial

    async def _resolve_all(
        self, paths: Sequence[str], see: Seeing | None = None, *, trusting: bool = False
    ) -> list[ResolvedPath | ItemFormatError]:
        """The paths with their directories. If a client is removing a directory as empty, a file in
        it may be new, and its creator may move it into another directory. Such a file is not
        returned before the removal has ended, or, if this client may not write, before the lease of
        the removal has expired."""
        store = self._store
        for path in paths:
            self.check_path(path)
        found = await self._resolver.resolve(paths, see, trusting=trusting)
        deadline = store.deadline()
        ended: set[str] = set()
        while removed := {
            resolved.path: parent
            for resolved in found
            if isinstance(resolved, ResolvedPath)
            and (parent := resolved.removed_parent)
            and parent.pending not in ended
        }:
            directories = {parent.entry_key: (parent, path) for path, parent in removed.items()}
            for parent, path in directories.values():
                store.still_time(deadline, path)
                if not await store.end_removal(parent, path):
                    ended.add(parent.pending)
            again = await self._resolver.resolve(list(removed), see)
            current = dict(zip(removed, again, strict=True))
            found = [
                current.get(path, resolved) for path, resolved in zip(paths, found, strict=True)
            ]
        return found

    def known_above(self, entry: Entry) -> list[Directory] | None:
        """The root and the other directories above an entry, according to the cache; None if the
        cache does not lead to the entry. They may have been moved: a change must require them."""
        known = self._resolver.predicted_above(entry)
        if known is None:
            return None
        above = [Directory(each.id, path, key) for path, key, each in known]
        return [self._store.keys.directory(ROOT_ENTRY), *above]

    def is_directory(self, directory: Directory) -> Condition:
        """The condition that this directory, by its id, is at its key, without an intent. Another
        directory has other children."""
        return Condition(equals={"isdir": True, "id": directory.key}, missing=(NEXT,))

    def remember(self, directory: Entry) -> None:
        """Add a directory to the cache."""
        self._resolver.cache.update(directory.entry_key, directory)
        self._store.access.note(directory.path, directory)

    def discard(self, directory: Directory) -> None:
        """Remove a directory from the cache."""
        self._resolver.cache.update(directory.entry_key, None)
        self._store.access.forget(directory.path)

    async def _read(
        self,
        entry_keys: Sequence[str],
        see: Seeing | None = None,
        paths: dict[str, str] | None = None,
    ) -> Found:
        store = self._store
        if len(entry_keys) == 1:
            item = await store.items.get(store.keys.key(entry_keys[0]))
            stored = {} if item is None else {entry_keys[0]: item}
        else:
            stored = dict(await store.items_at(entry_keys))
        found: dict[str, Entry | ItemFormatError] = {}
        try:
            entries = from_items(list(stored.values()), store.keys, paths=paths)
        except ItemFormatError:
            found = self._damaged(stored)
            whole = [item for key, item in stored.items() if key not in found]
            entries = from_items(whole, store.keys, paths=paths)
        if entries.with_intents():
            entries = await (see or store.view())(entries)
        by_entry_key = dict(zip(entries.entry_keys(), entries, strict=True))
        return found | by_entry_key if found else by_entry_key

    def _damaged(self, stored: dict[str, Item]) -> dict[str, Entry | ItemFormatError]:
        """The errors of the items that cannot be read."""
        errors: dict[str, Entry | ItemFormatError] = {}
        for entry_key, item in stored.items():
            try:
                from_item(item, self._store.keys)
            except ItemFormatError as error:
                errors[entry_key] = error
        return errors
