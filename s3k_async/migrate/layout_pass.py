"""Passes of a change of the layout over the table. Design:
docs/design/011-directories-by-id.md, section 8.6.

The keys of both layouts lie in one table, since their prefixes differ. Each pass may be repeated
while the volume lock is held: no other client changes an entry meanwhile, so copies are equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

from s3k_async import _native
from s3k_async.backends.ports.items import OPERATION, PARTITION, SORT, Item, Value
from s3k_async.errors import (
    BusyError,
    CorruptDataError,
    DirectoryNotEmptyError,
    ItemFormatError,
    LogFormatError,
)
from s3k_async.layouts.tree.path_index import PathIndex
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.migrate.table_walk import PassResult, entry_pages, key_of, remove_items
from s3k_async.model import ROOT, Entry, Operation
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import operation_line
from s3k_async.oplog.segments import each_object_once
from s3k_async.table.codec import from_items
from s3k_async.table.keys import TRASH_ID, KeyScheme
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.volumes import Volume

__all__ = ["LayoutPass", "LayoutPassName", "NewPlaces", "PlacesById", "PlacesByPath"]

LayoutPassName: TypeAlias = Literal["index", "check", "copy", "clean"]
"""`index` reads the directories, `check` refuses items that cannot be moved, `copy` logs each entry
and writes it under its new key, `clean` removes the old items, each only if its copy exists and is
equal but for key, version and operation."""

_KNOWN: Final = 100_000
_REPAIR: Final = "run s3k fsck repair first"


class NewPlaces(Protocol):
    """Where entries of one layout are in the other."""

    def add(self, directories: Sequence[Entry]) -> None:
        """Add directories that a scan has found. Raises ItemFormatError for one whose id another
        directory has."""

    def end(self) -> None:
        """Called once all directories were added. Raises ItemFormatError for directories below
        themselves."""

    async def of(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries with their paths and directory keys in the new layout. Raises ItemFormatError
        for an entry without a parent."""

    def close(self) -> None:
        """Remove temporary files. Idempotent."""


class PlacesById:
    """From layout `path` to layout `tree`: the directory key of an entry is the id of the directory
    at its parent's path. Directories are read from the layout that is complete: from the old one
    until the change of the record, then from the new one."""

    def __init__(self, complete: MetadataStore) -> None:
        self._complete = complete
        self._ids = PathIndex()
        self._known: dict[str, str] = {}
        """Ids of directories by path."""

    def add(self, directories: Sequence[Entry]) -> None:
        """As NewPlaces."""
        for each in directories:
            other = self._ids.place(each.id)
            if other not in (None, each.path):
                raise _two_places(each, str(other))
            self._ids.add([(each.id, each.path)])

    def end(self) -> None:
        """No effect: a path does not lead below itself."""

    async def of(self, entries: Sequence[Entry]) -> list[Entry]:
        """As NewPlaces."""
        wanted = {_native.split(entry.path)[0] for entry in entries} - {ROOT}
        keys = {path: self._known[path] for path in wanted if path in self._known}
        unknown = sorted(wanted - keys.keys())
        for path, found in zip(unknown, await self._complete.get_many(unknown), strict=True):
            if found is None or not found.is_dir:
                raise ItemFormatError(f"an entry has no parent; {_REPAIR}", path=path)
            keys[path] = found.id
        if len(self._known) + len(unknown) > _KNOWN:
            self._known.clear()
        self._known |= {path: keys[path] for path in unknown}
        keys[ROOT] = ROOT_ENTRY.id
        return [replace(each, directory=keys[_native.split(each.path)[0]]) for each in entries]

    def close(self) -> None:
        """As NewPlaces."""
        self._ids.close()


class PlacesByPath:
    """From layout `tree` to layout `path`: the paths of the directories come from a scan of the
    layout that is complete."""

    def __init__(self) -> None:
        self._index = PathIndex()

    def add(self, directories: Sequence[Entry]) -> None:
        """As NewPlaces."""
        for each in directories:
            other = self._index.place(each.id)
            if other not in (None, each.entry_key):
                raise _two_places(each, str(other))
            self._index.add([(each.id, each.entry_key)])

    def end(self) -> None:
        """As NewPlaces."""
        for cycle in self._index.cycles():
            raise ItemFormatError(f"a directory is below itself; {_REPAIR}", path=cycle[0])

    async def of(self, entries: Sequence[Entry]) -> list[Entry]:
        """As NewPlaces."""
        return [replace(each, path=self._path(each), directory="") for each in entries]

    def _path(self, entry: Entry) -> str:
        name = entry.entry_key.partition("/")[2]
        if entry.directory == ROOT_ENTRY.id:
            return _native.join(ROOT, name)
        place = self._index.place(entry.directory)
        if place is None:
            raise ItemFormatError(f"an entry has no parent; {_REPAIR}", path=entry.entry_key)
        # Before the change of the record by entry keys, after it by paths.
        above = place if place.startswith(ROOT) else self._index.path(entry.directory)
        return _native.join(above, name)

    def close(self) -> None:
        """As NewPlaces."""
        self._index.close()


def _two_places(directory: Entry, other: str) -> ItemFormatError:
    return ItemFormatError(
        f"a directory has the id of another one, {other}; {_REPAIR}", path=directory.path
    )


@dataclass(frozen=True, slots=True)
class LayoutPass:
    """One pass, from the keys `old` to the keys `new`."""

    name: LayoutPassName
    old: KeyScheme
    new: KeyScheme
    places: NewPlaces
    complete: KeyScheme
    """The keys, `old` or `new`, of the layout that is complete."""
    txn: str = ""
    """The id in the names of the segments."""
    time_ms: int = 0
    """When the change of the layout began, epoch milliseconds."""

    async def over(
        self, volume: Volume, segment: int, segments: int, held: Callable[[], object]
    ) -> AsyncGenerator[PassResult, None]:
        """Run the pass over one segment of the table, page by page. `held` raises unless the lock
        certainly is held.

        Raises ItemFormatError, InvalidPathError, BusyError and DirectoryNotEmptyError (`index`,
        `check`), CorruptDataError (`clean`), the errors of `held`, of the log and of the table.
        """
        async for items in entry_pages(volume, segment, segments):
            yield await self._do(volume, items, held)

    async def _do(
        self, volume: Volume, items: Sequence[Item], held: Callable[[], object]
    ) -> PassResult:
        if self.name == "index":
            return self._index(items)
        mine = [item for item in items if self.old.is_own(str(item[PARTITION]))]
        if self.name == "check" and len(mine) < len(items):
            odd = next(item for item in items if not self.old.is_own(str(item[PARTITION])))
            raise ItemFormatError(
                f"the table has an item of another layout or volume; {_REPAIR}", path=_place(odd)
            )
        if self.name == "clean":
            return await self._clean(volume, items, mine, held)
        objects = self._objects(mine)
        entries = await self._moved(objects)
        copies = [self._copy_of(item, entry) for item, entry in zip(objects, entries, strict=True)]
        if self.name == "check":
            self._check(mine, objects, copies)
            self._check_operations(entries)
        elif copies:
            for some in each_object_once(entries):
                held()
                await volume.log.begin(
                    list(map(self._operation, some)), together=True, txn=self.txn
                )
            held()
            await volume.store.indexes.add_entries(entries)
            held()
            await volume.items.load(copies)
        return PassResult(len(objects), len(copies))

    def _index(self, items: Sequence[Item]) -> PassResult:
        found = self._entries(
            [item for item in items if self.complete.is_own(str(item[PARTITION]))], self.complete
        )
        if self.complete is self.old:
            self._objects([each for each in items if self.old.is_own(str(each[PARTITION]))])
        self.places.add([each for each in found if each.is_dir and each.directory != TRASH_ID])
        return PassResult(len(found))

    def _objects(self, items: Sequence[Item]) -> list[Item]:
        """Without removal markers, on which no client depends after the lock. Raises
        DirectoryNotEmptyError for a directory in the trash."""
        found = []
        for item in items:
            if self.old.by_id and self.old.entry_key(key_of(item)).startswith(f"{TRASH_ID}/"):
                trashed = TrashedDirectory.from_item(item, self.old)
                if trashed.why != "empty":
                    raise DirectoryNotEmptyError(
                        "layout path has no trash, and there are directories in the trash: empty "
                        "it, then have s3k gc remove them",
                        path=trashed.was,
                    )
            else:
                found.append(item)
        return found

    async def _moved(self, items: Sequence[Item]) -> list[Entry]:
        """The next versions of the entries, at their new places."""
        entries = await self.places.of(self._entries(items, self.old))
        return [
            replace(each, version=each.version + 1, operation=self._derived(each))
            for each in entries
        ]

    def _entries(self, items: Sequence[Item], keys: KeyScheme) -> list[Entry]:
        try:
            return list(from_items(items, keys))
        except ItemFormatError as error:
            raise ItemFormatError(f"{error.message}; {_REPAIR}", path=error.path) from error

    def _copy_of(self, item: Item, entry: Entry) -> dict[str, Value]:
        """The item of a moved entry, with all other attributes of the old one."""
        key = self.new.of(entry)
        return {
            **item,
            PARTITION: key.partition,
            SORT: key.sort,
            "ver": entry.version,
            OPERATION: entry.operation,
        }

    def _operation(self, entry: Entry) -> Operation:
        """The log's record of a copy: the state in the new layout alone, as of a loaded entry. Its
        earlier states are of the other layout."""
        return Operation(
            id=entry.operation,
            kind="update" if entry.committed else "create",
            object_id=entry.id,
            version=entry.version,
            time_ms=self.time_ms,
            before=None,
            after=entry,
        )

    def _derived(self, entry: Entry) -> str:
        """The id of the operation: the same in every attempt. A file can be at two places with one
        id, for example if it was staged once and published twice."""
        text = f"{self.txn} {entry.id} {entry.version} {entry.entry_key}"
        return _native.uuid_text(hashlib.sha256(text.encode()).digest()[:16])

    def _check(
        self, items: Sequence[Item], objects: Sequence[Item], copies: Sequence[Item]
    ) -> None:
        """Refuse misplaced entries, those of unfinished transactions, and those that cannot be in
        the new layout."""
        for item, key in zip(
            items, self.old.keys(self.old.entry_keys(list(map(key_of, items)))), strict=True
        ):
            if key_of(item) != key:
                raise ItemFormatError(
                    f"the item is in the wrong partition; {_REPAIR}", path=_place(item)
                )
        for item in objects:
            if "next" in item:
                raise BusyError(f"a transaction on it is unfinished; {_REPAIR}", path=_place(item))
        self._entries(copies, self.new)
        if self.new.by_id:
            directories = [str(each["id"]) for each in copies if each["isdir"]]
            self.new.keys([self.new.child(each, "x") for each in directories])

    def _check_operations(self, entries: Sequence[Entry]) -> None:
        """Refuse entries that the log cannot hold."""
        for entry in entries:
            try:
                # The time is not known yet.
                operation_line(replace(self._operation(entry), time_ms=1), entry.path)
            except LogFormatError as error:
                raise ItemFormatError(f"{error.message}; {_REPAIR}", path=entry.path) from error

    async def _clean(
        self,
        volume: Volume,
        items: Sequence[Item],
        leftover: Sequence[Item],
        held: Callable[[], object],
    ) -> PassResult:
        objects = self._objects(leftover)
        expected = [
            self._copy_of(item, entry)
            for item, entry in zip(objects, await self._moved(objects), strict=True)
        ]
        copies = await volume.items.get_many(list(map(key_of, expected)))
        for each in expected:
            copy = copies.get(key_of(each))
            if copy is None or dict(copy) != each:
                raise CorruptDataError("an entry has no copy at its new place", path=_place(each))
        await remove_items(volume, leftover, held)
        return PassResult(len(items) - len(leftover), len(objects))


def _place(item: Item) -> str:
    return f"{item[PARTITION]}/{item[SORT]}"
