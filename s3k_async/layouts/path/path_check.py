"""fsck in layout `path`: keys contain paths, so that nothing has to be looked up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Final

from s3k_async import _native
from s3k_async.backends.ports.items import Item, Put, Value
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.errors import ItemFormatError
from s3k_async.model import ROOT, Deletion, Entry, Operation
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import to_item, unchanged
from s3k_async.table.keys import Directory

__all__ = ["PathCheck"]

_ROOTS: Final = frozenset({ROOT})


class PathCheck:
    """An implementation of `namespace.layout.LayoutCheck`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    @property
    def by_id(self) -> bool:
        """No: they are paths."""
        return False

    @property
    def roots(self) -> Collection[str]:
        """The root."""
        return _ROOTS

    @property
    def settle_ms(self) -> int:
        """None: its creator creates the directory again."""
        return 0

    async def begin(self, path: str) -> None:
        """Do nothing."""

    def pages(self, path: str, segment: int, segments: int) -> AsyncIterator[Sequence[Item]]:
        """The items of one segment of the table, whatever the path."""
        return scan_all(self._store.items, segment, segments)

    def is_object(self, item: Item, entry: Entry) -> bool:
        """Always true."""
        return True

    def is_staged(self, item: Item, entry: Entry) -> bool:
        """Always false."""
        return False

    def add_directories(self, directories: Iterable[tuple[str, str]]) -> None:
        """Do nothing."""

    def save_directories(self, file: str) -> bool:
        """Always false: the key of a directory is its path."""
        return False

    def open_directories(self, file: str) -> None:
        """Do nothing."""

    def directory(self, key: str) -> Directory | None:
        """The directory at the path."""
        return Directory.at(key)

    def with_path(self, entry: Entry) -> Entry:
        """The entry itself."""
        return entry

    def cycles(self) -> list[list[Directory]]:
        """None: a path is never below itself."""
        return []

    async def is_below_file(self, entry: Entry) -> bool:
        """Read the parent."""
        parent = _native.split(entry.path)[0]
        if parent == ROOT:
            return False
        try:
            found = await self._store.stored(parent)
        except ItemFormatError:
            return False
        return found is not None and not found.is_dir

    def close(self) -> None:
        """Do nothing."""

    async def put_for(self, before: Entry, after: Entry) -> Put:
        """The item of the entry."""
        return Put(to_item(after, self._store.keys), unchanged(before))

    def logged_item(self, operation: Operation) -> Mapping[str, Value]:
        """The item of the entry."""
        assert operation.after is not None
        return to_item(operation.after, self._store.keys)

    def deletion(self, item: Item) -> Deletion | None:
        """None: there is no trash."""
        return None

    def moved_item(self, item: Item, entry: Entry) -> Mapping[str, Value]:
        """The item of the entry."""
        return to_item(entry, self._store.keys)

    async def make_parent(self, key: str, before: Entry | None, version: int) -> None:
        """Create the directory at the path, with a new id."""
        await self._store.make_directory(key)

    async def remove_unreachable(self, entry: Entry) -> None:
        """Never called: missing directories are created."""
        raise AssertionError("layout path has no unreachable entries")

    async def break_cycle(self, entry: Entry, others: Sequence[Entry]) -> None:
        """Never called: there are no cycles."""
        raise AssertionError("layout path has no cycles")
