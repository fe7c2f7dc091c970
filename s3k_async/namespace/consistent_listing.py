"""Snapshot-consistent listings: read optimistically, then validate.

A transaction could commit between two pages of a listing. So the listing returns nothing until it
has read everything, and then reads the visited directories and the undecided transaction records
again. If one of them has changed, it starts again, for a bounded time, and keeps the pages of
unchanged directories. docs/design/004-nothing-lost.md, "Listings", has the argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from s3k_async._native import Entries
from s3k_async.backends.ports.items import OPERATION, Item
from s3k_async.errors import BusyError, PermissionDeniedError
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.access_control import SeenDirectories
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.directories import DirectoryStore
from s3k_async.namespace.layout import LocatedEntry
from s3k_async.table.codec import from_items
from s3k_async.table.keys import ROOT_KEY, Directory, KeyScheme
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.intent_view import IntentView, is_held

__all__ = ["ATTEMPTS", "CONSISTENT_ROWS", "SnapshotView", "list_consistently"]

CONSISTENT_ROWS = 50_000
"""Rows that a listing buffers; a listing with more rows is not validated."""
ATTEMPTS = 10
"""Least number of attempts at a listing, however long each takes, before it gives up."""

T = TypeVar("T")

_Children: TypeAlias = Callable[
    [Directory, Callable[[Entries], Awaitable[Entries]]], AsyncGenerator[Entries, None]
]
_Stamp: TypeAlias = tuple[str, str] | None
"""The operation id and the intent of an entry, which every change of the entry changes; None for a
missing entry."""
_Place: TypeAlias = tuple[str, int] | None
"""Id and version of an entry, of which every move changes one; None for a missing entry."""
_Listed: TypeAlias = tuple[Directory, bool]
"""A directory, and whether its children are in order."""


@dataclass(frozen=True, slots=True)
class _Validated:
    """The pages of a directory without intents, on itself or on its children, which had not changed
    when it was read again. `stamp`: from before the pages were read."""

    stamp: _Stamp
    pages: Sequence[Entries]


class SnapshotView:
    """The tree as seen by one attempt at a listing. Records the reads, up to CONSISTENT_ROWS
    rows."""

    def __init__(
        self,
        store: DirectoryStore,
        validated: Mapping[_Listed, _Validated] = MappingProxyType({}),
        ended: Collection[str] = (),
    ) -> None:
        """`validated`: of the previous attempt, used instead of another read, and validated again.
        `ended`: intents of removals that have ended, although the intents remain."""
        self._store = store
        self._ended = ended
        self._validated = validated
        self._complete: dict[_Listed, list[Entries]] = {}
        self._with_intents: set[str] = set()
        """Directory keys."""
        # A volume that is open for reading only belongs to S3-FileSystem 1.0: its writers do not
        # use transaction records.
        self._watched = not store.read_only
        self._intents = IntentView(store.items, store.keys, holds=True)
        self._rows = 0
        self._looked_up: list[tuple[str, _Stamp]] = []
        """By entry key."""
        self._above: dict[str, _Place] = {}
        """The directories that have to stay where they are for what was looked up to be at its
        path, by entry key: in layout `tree` those above it."""
        self._listed: dict[str, Directory] = {}
        """By directory key."""
        self._directories: list[Entries] = []
        self._seen = SeenDirectories(store.access)
        self.removed: Sequence[Entry] = ()
        """Directories whose removals must end before the next attempt; set by `is_unchanged`."""
        self.denied: Callable[[PermissionDeniedError], object] | None = None
        """Called for a directory that may not be listed, whose content is then left out; it may
        raise the error. None: the error is raised."""
        self._contradictory = False
        """Whether a directory was listed at two paths, or seen in two states."""

    @property
    def keys(self) -> KeyScheme:
        """The keys of the volume."""
        return self._store.keys

    @property
    def is_large(self) -> bool:
        """Whether more rows were read than are buffered."""
        return self._rows > CONSISTENT_ROWS

    async def get(self, path: str) -> Entry | None:
        """The entry at a path, or None. Raises InvalidPathError, ItemFormatError."""
        if path == ROOT and self._watched:
            located = LocatedEntry(_root(await self._store.items.get(ROOT_KEY)), ROOT)
        else:
            located = await self._store.layout.locate(path, self._intents.seen)
        self._note([located])
        return located.entry

    async def get_many(self, paths: Sequence[str]) -> list[Entry | None]:
        """The entries at the paths, in their order."""
        found = await self._store.layout.locate_many(paths, self._intents.seen)
        self._count(len(found))
        self._note(found)
        return [located.entry for located in found]

    def children(self, directory: Directory) -> AsyncGenerator[Entries, None]:
        """A directory's children in pages, in arrival order. The directory itself was read
        before."""
        return self._children((directory, False), self._store.children)

    def children_in_order(
        self, directory: Directory, *, after: str = "", rows: int | None = None
    ) -> AsyncGenerator[Entries, None]:
        """As `children`, by name; `after` and `rows`: as for `EntryReader.children_in_order`, and
        the same in each attempt."""
        read = partial(self._store.children_in_order, after=after, rows=rows)
        return self._children((directory, True), read)

    async def is_unchanged(self) -> bool:
        """Read everything again. Returns whether all results were valid at one moment, the start of
        this second read, with respect to transactions."""
        if self.is_large or not self._watched or (not self._listed and len(self._looked_up) < 2):
            return True
        stamps = [*self._looked_up, *self._visited()]
        current = await self._current({entry_key for entry_key, _ in stamps} | self._above.keys())
        changed = {key for key, stamp in stamps if _stamp(current[key]) != stamp}
        changed |= {key for key, place in self._above.items() if _place(current[key]) != place}
        self._keep(dict(stamps), changed)
        self.removed = self._removed_with_content(current)
        if changed or self._contradictory or self.removed:
            return False
        return await self._intents.is_unchanged()

    @property
    def validated(self) -> Mapping[_Listed, _Validated]:
        """The directories that the next attempt need not read again; set by `is_unchanged`."""
        return self._validated

    def _removed_with_content(self, current: Mapping[str, Entry | None]) -> list[Entry]:
        """The listed directories that have entries although a client is removing them as empty. In
        layout `tree`, a file that is being created in such a directory may be moved into another
        one, so it is not listed before the removal has ended."""
        if not self.keys.by_id:
            return []
        listed = (
            directory for (directory, _), pages in self._complete.items() if any(map(len, pages))
        )
        found = (current.get(directory.entry_key) for directory in listed)
        return [
            entry
            for entry in found
            if entry is not None and is_held(entry) and entry.pending not in self._ended
        ]

    def _keep(self, stamps: Mapping[str, _Stamp], changed: set[str]) -> None:
        # The page with a changed directory is in its parent, and out of date.
        parents = {self.keys.parent_key(each) for each in changed if each != ROOT}
        again = parents | self._with_intents
        self._validated = {
            (directory, in_order): _Validated(stamp, pages)
            for (directory, in_order), pages in self._complete.items()
            if directory.key not in again
            and directory.entry_key not in changed
            and (stamp := stamps.get(directory.entry_key)) is not None
            and not stamp[1]
        }

    async def _children(self, listed: _Listed, read: _Children) -> AsyncGenerator[Entries, None]:
        directory = listed[0]
        try:
            self._list(directory)
        except PermissionDeniedError as error:
            if self.denied is None:
                raise
            self.denied(error)
            return
        kept = self._validated.get(listed)
        pages: list[Entries] = []
        if kept is not None:
            self._looked_up.append((directory.entry_key, kept.stamp))
            for page in kept.pages:
                self._visit(page)
                pages.append(page)
                yield page
        else:
            async with aclosing(read(directory, partial(self._page, directory))) as parts:
                async for page in parts:
                    if self._watched:
                        pages.append(page)
                    yield page
        if self._watched:
            self._complete[listed] = pages

    def _note(self, found: Sequence[LocatedEntry]) -> None:
        self._seen.add(self.keys, (each.entry for each in found if each.entry is not None))
        if not self._watched:
            return
        for located in found:
            self._looked_up.append((located.entry_key, _stamp(located.entry)))
            for directory in located.above:
                place = _place(directory)
                self._contradictory |= self._above.setdefault(directory.entry_key, place) != place

    def _list(self, directory: Directory) -> None:
        self._seen.require(directory)
        if self._watched:
            # In layout `tree` one that was moved meanwhile may be in the listings of two others.
            self._contradictory |= self._listed.setdefault(directory.key, directory) != directory

    async def _page(self, directory: Directory, stored: Entries) -> Entries:
        if stored.with_intents():
            self._with_intents.add(directory.key)
        page = await self._intents.seen(stored)
        self._visit(page)
        return page

    def _visit(self, page: Entries) -> None:
        self._count(len(page))
        self._seen.add_page(self.keys, page)
        if self._watched and (directories := page.directories()):
            self._directories.append(directories)

    def _count(self, rows: int) -> None:
        self._rows += rows
        if self.is_large and self._watched:
            self._watched = False
            self._looked_up.clear()
            self._above.clear()
            self._listed.clear()
            self._directories.clear()
            self._complete.clear()

    def _visited(self) -> list[tuple[str, _Stamp]]:
        """The listed directories, as they appeared in the listings of their parents."""
        return [
            ((entry := entries[place]).entry_key, _stamp(entry))
            for entries in self._directories
            for place, directory_key in enumerate(self.keys.directory_keys(entries))
            if directory_key in self._listed
        ]

    async def _current(self, entry_keys: set[str]) -> dict[str, Entry | None]:
        """The current entries by entry key, by one BatchGetItem for each hundred."""
        below = sorted(entry_keys - {ROOT})
        keys = self.keys.keys(below)
        root = [ROOT_KEY] if ROOT in entry_keys else []
        found = await self._store.items.get_many([*keys, *root])
        stored = from_items([found[key] for key in keys if key in found], self.keys)
        seen = await self._intents.seen(stored)
        current: dict[str, Entry | None] = dict.fromkeys(below)
        current.update((entry.entry_key, entry) for entry in seen)
        current[ROOT] = _root(found.get(ROOT_KEY))
        return current


async def list_consistently(
    store: DirectoryStore,
    listing: Callable[[SnapshotView], AsyncGenerator[T, None]],
    path: str | None = None,
) -> AsyncGenerator[T, None]:
    """The parts of a listing, from an attempt without concurrent changes, as far as it is buffered.
    Raises BusyError, about `path`, if there is none within the busy timeout and ATTEMPTS
    attempts."""
    backoff = ConflictBackoff(store, attempts=ATTEMPTS)
    ended: set[str] = set()
    view = SnapshotView(store)
    while True:
        held: deque[T] = deque()
        async with aclosing(listing(view)) as parts:
            async for part in parts:
                held.append(part)
                if view.is_large:
                    break
            if await view.is_unchanged():
                while held:
                    yield held.popleft()
                async for part in parts:
                    yield part
                return
        for directory in view.removed:
            if not await store.end_removal(directory, path or ""):
                ended.add(directory.pending)
        await backoff.lost(
            BusyError("gave up: directories kept changing during the listing; try again", path=path)
        )
        view = SnapshotView(store, view.validated, ended)


def _stamp(entry: Entry | None) -> _Stamp:
    return None if entry is None else (entry.operation, entry.pending)


def _place(entry: Entry | None) -> _Place:
    return None if entry is None else (entry.id, entry.version)


def _root(record: Item | None) -> Entry:
    """The root, with the operation id of the last transaction that changed something in it."""
    return (
        ROOT_ENTRY
        if record is None
        else replace(ROOT_ENTRY, operation=str(record.get(OPERATION, "")))
    )
