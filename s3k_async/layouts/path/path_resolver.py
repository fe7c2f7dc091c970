"""Reads by path: one key for each path, regardless of its ancestors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from s3k_async import _native
from s3k_async.backends.ports.items import Item
from s3k_async.errors import ItemFormatError, S3kError
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.access_control import PathSearch
from s3k_async.namespace.layout import Chain, LocatedEntry
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import from_item, from_items
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.intent_view import Seeing

__all__ = ["PathResolver"]


class PathResolver:
    """The reads of `namespace.layout.Layout`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def get(
        self, path: str, see: Seeing | None = None, *, trusting: bool = False
    ) -> Entry | None:
        """The entry at a path, or None. Raises InvalidPathError, ItemFormatError."""
        if path == ROOT:
            return ROOT_ENTRY
        search = self._search([path])
        if search is not None:
            if search.unknown:
                return (await self.get_many([path], see))[0]
            search.require([path])
        item = await self._store.items.get(self._store.keys.key(path))
        if item is None:
            self._store.access.forget(path)
            return None
        found = from_items([item], self._store.keys)
        if found.with_intents():
            found = await (see or self._store.view())(found)
        entry = found[0] if found else None
        self._store.access.note(path, entry)
        return entry

    async def get_many(
        self, paths: Sequence[str], see: Seeing | None = None, *, trusting: bool = False
    ) -> list[Entry | None]:
        """The entries at the paths, in their order, in as few requests as possible. Not a
        snapshot."""
        search = self._search(paths)
        stored = await self._store.items_at([*paths, *(search.unknown if search else ())])
        found = from_items(list(stored.values()), self._store.keys)
        if found.with_intents():
            found = await (see or self._store.view())(found)
        entries: dict[str, Entry] = {ROOT: ROOT_ENTRY}
        entries.update(zip(found.paths(), found, strict=True))
        if search is not None:
            self._note(paths, entries)
            search.add(entries)
            search.require(paths)
        return [entries.get(path) for path in paths]

    async def get_each(
        self, paths: Sequence[str], *, trusting: bool = False
    ) -> list[Entry | S3kError | None]:
        """As `get_many`; for an invalid item, or a path that the identity may not resolve, the
        error takes the place of the entry."""
        search = self._search(paths)
        stored = await self._store.items_at([*paths, *(search.unknown if search else ())])
        entries: dict[str, Entry | S3kError] = {ROOT: ROOT_ENTRY}
        try:
            found = from_items(list(stored.values()), self._store.keys)
        except ItemFormatError:
            damaged = {
                path: error
                for path, item in stored.items()
                if (error := self._damage(item)) is not None
            }
            entries.update(damaged)
            found = from_items(
                [item for path, item in stored.items() if path not in damaged], self._store.keys
            )
        if found.with_intents():
            found = await self._store.view()(found)
        entries.update(zip(found.paths(), found, strict=True))
        if search is None:
            return [entries.get(path) for path in paths]
        self._note(paths, entries)
        search.add(entries)
        return [search.denial(path) or entries.get(path) for path in paths]

    def _search(self, paths: Sequence[str]) -> PathSearch | None:
        """The evaluation of the directories above the paths, in a volume with permissions."""
        access = self._store.access
        return access.search(paths) if access.is_enforced else None

    def _note(self, paths: Sequence[str], found: Mapping[str, Entry | S3kError]) -> None:
        """Note the directories among the paths themselves."""
        for path in paths:
            entry = found.get(path)
            self._store.access.note(path, None if isinstance(entry, S3kError) else entry)

    async def locate(self, path: str, see: Seeing | None = None) -> LocatedEntry:
        """The entry at a path. It does not depend on its ancestors."""
        return LocatedEntry(await self.get(path, see), path)

    async def locate_many(
        self, paths: Sequence[str], see: Seeing | None = None
    ) -> list[LocatedEntry]:
        """The entries at the paths, in their order."""
        found = await self.get_many(paths, see)
        return [LocatedEntry(entry, path) for path, entry in zip(paths, found, strict=True)]

    async def chain(self, path: str) -> Chain:
        """The root, every other ancestor, and the path itself, topmost first, read in one batch."""
        paths = _places(path)
        return list(zip(paths, await self.get_many(paths), strict=True))

    async def get_with_chain(self, path: str, other: str) -> tuple[Entry | None, Chain]:
        """`get` of a path and `chain` of another one, read in one batch."""
        paths = _places(other)
        entry, *found = await self.get_many([path, *paths])
        return entry, list(zip(paths, found, strict=True))

    def _damage(self, item: Item) -> ItemFormatError | None:
        try:
            from_item(item, self._store.keys)
        except ItemFormatError as error:
            return error
        return None


def _places(path: str) -> list[str]:
    """The root, every other ancestor of a path, and the path itself, topmost first."""
    return [ROOT, *_native.ancestors(path), path] if path != ROOT else [ROOT]
