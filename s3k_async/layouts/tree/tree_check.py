"""fsck in layout `tree`: directories are known by their ids, and paths come from the path index of
the scan (docs/design/011-directories-by-id.md, section 8.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from s3k_async import _native
from s3k_async._core.concurrency import merge
from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_TRANSACTION,
    PARTITION,
    SORT,
    Action,
    Check,
    Condition,
    Delete,
    Item,
    Put,
    Value,
)
from s3k_async.backends.ports.pagination import query_all, scan_all
from s3k_async.errors import ConflictError, ItemFormatError, UnsupportedError
from s3k_async.layouts.tree.directory_changes import DirectoryChanges
from s3k_async.layouts.tree.path_index import PathIndex
from s3k_async.layouts.tree.trash_items import SETTLE_MS, TrashedDirectory
from s3k_async.model import ROOT, TRASH_ID, Deletion, Entry, Operation
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import from_item, to_item, unchanged
from s3k_async.table.keys import Directory
from s3k_async.table.stored_reader import ROOT_ENTRY, SUFFIX_STREAMS

__all__ = ["LOST_AND_FOUND", "TreeCheck"]

LOST_AND_FOUND: Final = "/lost+found"
"""The directory of those whose parents cannot be found."""
_ROOTS: Final = frozenset({ROOT_ENTRY.id, TRASH_ID})


class TreeCheck:
    """An implementation of `namespace.layout.LayoutCheck`."""

    def __init__(self, store: MetadataStore, changes: DirectoryChanges) -> None:
        self._store = store
        self._changes = changes
        self._index = PathIndex()
        self._top = ""
        """The entry key of the path that is checked, if that is not the root; empty if its
        directory is not there."""

    @property
    def by_id(self) -> bool:
        """Yes."""
        return True

    @property
    def roots(self) -> Collection[str]:
        """The root and the trash."""
        return _ROOTS

    @property
    def settle_ms(self) -> int:
        """The settle time."""
        return SETTLE_MS

    # The scan

    async def begin(self, path: str) -> None:
        """Add the directories above the path to the path index. Reads what is stored: a check
        resolves no intents."""
        self._top = ""
        *above, last = path.strip("/").split("/")
        found = ROOT_ENTRY
        for name in above:
            try:
                stored = await self._store.stored(self._store.keys.child(found.id, name))
            except ItemFormatError:
                return
            if stored is None or not stored.is_dir:
                return
            found = stored
            self.add_directories([(found.id, found.entry_key)])
        if path != ROOT:
            self._top = self._store.keys.child(found.id, last)

    def pages(self, path: str, segment: int, segments: int) -> AsyncIterator[Sequence[Item]]:
        """The items of one segment of the table, or those that a walk from the path reaches."""
        if path == ROOT:
            return scan_all(self._store.items, segment, segments)
        return self._walk(self._top if segment == 0 else "")

    async def _walk(self, top: str) -> AsyncIterator[Sequence[Item]]:
        item = await self._store.items.get(self._store.keys.key(top)) if top else None
        if item is None:
            return
        yield [item]
        try:
            entry = from_item(item, self._store.keys)
        except ItemFormatError:
            return
        left = deque([entry.id] if entry.is_dir else [])
        while left:
            partitions = self._store.keys.partitions(left.popleft())
            streams = [query_all(self._store.items, each) for each in partitions]
            async for page in merge(streams, limit=SUFFIX_STREAMS):
                left += self._below(page)
                yield page

    def _below(self, page: Sequence[Item]) -> list[str]:
        """The directories of a page that the walk has not reached before."""
        found = []
        for item in page:
            try:
                entry = from_item(item, self._store.keys)
            except ItemFormatError:
                continue
            if entry.is_dir and self._index.place(entry.id) is None:
                self.add_directories([(entry.id, entry.entry_key)])
                found.append(entry.id)
        return found

    def is_object(self, item: Item, entry: Entry) -> bool:
        """False for removal markers, which are no objects, and for staged directories, which are
        not logged. Raises ItemFormatError."""
        if entry.directory != TRASH_ID:
            return True
        return TrashedDirectory.from_item(item, self._store.keys).why == "deleted"

    def is_staged(self, item: Item, entry: Entry) -> bool:
        """Whether it is in the trash for that reason. Raises ItemFormatError."""
        if entry.directory != TRASH_ID:
            return False
        return TrashedDirectory.from_item(item, self._store.keys).why == "staged"

    def add_directories(self, directories: Iterable[tuple[str, str]]) -> None:
        """Add directories to the path index."""
        self._index.add(directories)

    def save_directories(self, file: str) -> bool:
        """Write the path index."""
        self._index.save(file)
        return True

    def open_directories(self, file: str) -> None:
        """Look up the places of directories in the file."""
        self._index.open(file)

    def directory(self, key: str) -> Directory | None:
        """The directory with the id, where the scan has found it."""
        if key == ROOT_ENTRY.id:
            return self._store.keys.directory(ROOT_ENTRY)
        place = self._index.place(key)
        return None if place is None else Directory(key, self._index.path(key), place)

    def with_path(self, entry: Entry) -> Entry:
        """The entry with the path of its directory in the path index, or as it was logged before a
        change of the layout."""
        if not self._store.keys.is_current(entry.entry_key):
            return entry
        name = entry.entry_key.partition("/")[2]
        return replace(entry, path=_native.join(self._index.path(entry.directory), name))

    def cycles(self) -> list[list[Directory]]:
        """The cycles of the path index."""
        return [
            [each for key in cycle if (each := self.directory(key)) is not None]
            for cycle in self._index.cycles()
        ]

    async def is_below_file(self, entry: Entry) -> bool:
        """False: a file has no directory key."""
        return False

    def close(self) -> None:
        """Close the files of the path index, and remove the temporary one."""
        self._index.close()

    # The writes of repairs

    async def put_for(self, before: Entry, after: Entry) -> Put:
        """The item of the entry; in the trash with the attributes of the deletion, which are read
        again. It must not be written over a reclamation that has begun since: the directory could
        be restored while its content is deleted."""
        keys, when = self._store.keys, unchanged(before)
        item = None
        if before.directory == TRASH_ID:
            item = await self._store.items.get(keys.of(before))
        if item is None:
            return Put(to_item(after, keys), when)
        trashed = TrashedDirectory.from_item(item, keys)
        stored = trashed.is_stored()
        when = Condition(
            equals={**stored.equals, **when.equals},
            missing=tuple(name for name in stored.missing if name not in when.equals),
        )
        return Put(replace(trashed, entry=after).item(keys), when)

    def logged_item(self, operation: Operation) -> Mapping[str, Value]:
        """The item of the entry, in the trash with the attributes of the deletion."""
        after = operation.after
        assert after is not None
        if operation.trash is None:
            return to_item(after, self._store.keys)
        return TrashedDirectory.of(after, operation.trash).item(self._store.keys)

    def deletion(self, item: Item) -> Deletion | None:
        """The attributes of the deletion in an item in the trash; None for other items."""
        keys = self._store.keys
        if from_item(item, keys).directory != TRASH_ID:
            return None
        return TrashedDirectory.from_item(item, keys).deletion

    def moved_item(self, item: Item, entry: Entry) -> Mapping[str, Value]:
        """The item with another key, and all of its attributes."""
        key = self._store.keys.of(entry)
        return {**item, PARTITION: key.partition, SORT: key.sort}

    async def make_parent(self, key: str, before: Entry | None, version: int) -> None:
        """Create the directory with its id, in `/lost+found`, unless it is in the trash: a
        directory that was staged since the scan is not in the log yet."""
        store = self._store
        in_trash = TrashedDirectory.key(key, store.keys)
        if await store.items.get(in_trash) is not None:
            raise ConflictError("the directory is in the trash", path=key)
        parent = await store.make_directory(LOST_AND_FOUND)
        blank = store.new_directory(_native.join(LOST_AND_FOUND, key), parent)
        made = replace(blank, id=key, version=version)
        operation = store.changes.operation("rename" if before else "create", before, made)
        actions: list[Action] = [
            Put(to_item(made, store.keys), ABSENT),
            Check(in_trash, ABSENT),
            *store.require_parent(store.keys.directory(parent)),
        ]
        await store.transact([operation], actions)
        self.add_directories([(key, made.entry_key)])

    async def remove_unreachable(self, entry: Entry) -> None:
        """Delete the file, or move the directory into the trash."""
        store = self._store
        if not entry.is_dir:
            await store.delete_file(entry, anywhere=True)
            return
        if entry.pending:
            await store.resolve(entry)
            raise ConflictError("a transaction was changing the directory", path=entry.path)
        trashed = self._changes.trashed(entry, "deleted", store.runtime.uuid())
        actions: list[Action] = [
            Delete(store.keys.of(entry), unchanged(entry)),
            Put(trashed.item(store.keys), ABSENT),
        ]
        renaming = store.changes.operation("rename", entry, trashed.entry, trashed.deletion)
        await store.transact([renaming], actions)

    async def break_cycle(self, entry: Entry, others: Sequence[Entry]) -> None:
        """Move the directory, on the condition that the others are unchanged."""
        store = self._store
        parent = await store.make_directory(LOST_AND_FOUND)
        moved = entry.moved(_native.join(LOST_AND_FOUND, entry.id), operation=store.runtime.uuid())
        moved = replace(moved, directory=parent.id)
        actions: list[Action] = [
            Delete(store.keys.of(entry), unchanged(entry)),
            Put(to_item(moved, store.keys), ABSENT),
            *(Check(store.keys.of(each), unchanged(each)) for each in others),
            *store.require_parent(store.keys.directory(parent)),
        ]
        if len(actions) > MAX_TRANSACTION:
            raise UnsupportedError(
                "the cycle has too many directories for one transaction", path=entry.path
            )
        await store.transact([store.changes.operation("rename", entry, moved)], actions)
