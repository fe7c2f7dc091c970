"""Evaluation of permissions for one client: search permission where paths are resolved, and the
permission for a change before it begins.

Entries are evaluated in the version that is then changed conditionally. Directories above them are
evaluated as they were read within the call, in layout `path` at most KNOWN_SECONDS before it. The
work of fsck, garbage collection and migrations, the intents of other clients, and the reclamation
of the trash are not evaluated.

Clients evaluate permissions. They protect from mistakes, not from somebody with credentials for the
table (docs/permissions.md).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from s3k_async import _native
from s3k_async._core.runtime import Runtime
from s3k_async._native import Entries
from s3k_async.attributes import Attributes, without_time
from s3k_async.errors import PermissionDeniedError, S3kError
from s3k_async.model import ROOT, Entry, FileStatus
from s3k_async.namespace.layout import Chain, Layout
from s3k_async.namespace.ordered_walk import walk
from s3k_async.permissions import (
    EXECUTE,
    READ,
    SUPERUSER,
    WRITE,
    Identity,
    Ownership,
    created,
    require_change,
    rewritten,
)
from s3k_async.table.keys import Directory, KeyScheme

__all__ = ["AccessControl", "CheckedReads", "PathSearch", "SeenDirectories"]

KNOWN_DIRECTORIES: Final = 4096
"""Directories whose permissions are kept; the least recently used are dropped first."""
KNOWN_SECONDS: Final = 5.0
"""Seconds for which they are kept, as those of the parent cache of layout `path`."""
_CHANGE: Final = WRITE | EXECUTE
"""What a directory must allow for entries to be created in it, or removed."""
_VERBS: Final = {
    READ: "read it",
    WRITE: "write it",
    EXECUTE: "search it",
    READ | EXECUTE: "list it",
}


class AccessTree(Protocol):
    """The reads of a store that evaluation needs."""

    layout: Layout
    runtime: Runtime
    access: AccessControl

    @property
    def keys(self) -> KeyScheme: ...
    def children(self, directory: Directory) -> AsyncGenerator[Entries, None]: ...
    async def has_children(self, directory: Directory) -> bool: ...


class AccessControl:
    """The permissions of one client, and the directories whose permissions it has read lately.

    Without an identity the volume does not evaluate permissions: nothing is read, and nothing is
    refused. Nor is anything refused to the superuser. All other methods raise
    PermissionDeniedError, with the path of the entry that denies, before anything is written.
    """

    def __init__(self, store: AccessTree, identity: Identity | None, root: Ownership) -> None:
        """`root`: owner and mode of the root, which has no item."""
        self.identity = identity or Identity(SUPERUSER, ())
        self.is_evaluated = identity is not None
        """Whether the volume evaluates permissions, and new entries have an owner."""
        self.is_enforced = self.is_evaluated and not self.identity.is_superuser
        """Whether anything can be refused."""
        self._store = store
        self._root = root
        self._known: OrderedDict[str, tuple[Ownership, float]] = OrderedDict()

    # Values

    def of(self, entry: Entry) -> Ownership:
        """Owner, group and mode of an entry."""
        return self._root if entry.path == ROOT else Ownership.of(entry)

    def of_status(self, status: FileStatus) -> Ownership:
        """Owner, group and mode of the entry with a status."""
        if status.path == ROOT:
            return self._root
        return Ownership.of_attributes(status.attributes, is_dir=status.is_dir)

    def attributes_of_new(self, given: str, path: str, *, is_dir: bool) -> str:
        """The attributes of a new entry, in their stored form, from those that are given."""
        given = without_time(given)
        if not self.is_evaluated:
            return given
        return created(self.identity, given, path, is_dir=is_dir)

    def attributes_of_rewritten(self, given: str, current: Entry) -> str:
        """The attributes of a file that is overwritten, from those that are given, with the time of
        the change if it is one."""
        if self.is_evaluated:
            given = rewritten(given, current.attributes)
        if given == current.attributes:
            return given
        wanted, now = Attributes.from_json(given), self._store.runtime.now_ms()
        return Attributes.from_json(current.attributes).replaced_by(wanted, now).to_json()

    # Permissions of one entry

    def require(self, entry: Entry, wanted: int) -> None:
        """Check mode bits of an entry."""
        if self.is_enforced:
            self._require(self.of(entry), wanted, entry.path, _VERBS.get(wanted, "access it"))

    def require_listable(self, directory: Entry) -> None:
        """Check that a directory can be listed with the status of its entries: as in HDFS, which
        needs permission to read and to search."""
        self.require(directory, READ | EXECUTE)

    def require_root(self, wanted: int) -> None:
        """Check mode bits of the root."""
        if self.is_enforced:
            self._require(self._root, wanted, ROOT, _VERBS.get(wanted, "access it"))

    def require_owner(self, entry: Entry, what: str) -> None:
        """Check that the entry is that of the identity; `what`: the verb, in messages."""
        if self.is_enforced and not (own := self.of(entry)).is_owner(self.identity):
            raise own.owner_only(self.identity, what, entry.path)

    def require_superuser(self, what: str, path: str) -> None:
        """Check that the identity is the superuser, for a verb that reads the table regardless of
        directories."""
        if self.is_enforced:
            raise PermissionDeniedError(
                f"user {self.identity.uid} may not {what}: only the superuser, uid 0, may",
                path=path,
            )

    def permit_change(self, before: Entry, after: Entry) -> None:
        """Check a change of attributes, modification time or content."""
        if self.is_enforced:
            require_change(self.identity, before, after)

    def _require(self, own: Ownership, wanted: int, path: str, what: str) -> None:
        if not own.allows(self.identity, wanted):
            raise own.refusal(self.identity, wanted, path, what)

    # Changes of directories

    async def permit_write(self, path: str, current: Entry | None) -> None:
        """Check that the file at a path can be written, or created if there is none."""
        if current is None:
            await self.permit_creation(path)
        else:
            self.require(current, WRITE)

    async def permit_creation(self, path: str, chain: Chain | None = None) -> None:
        """Check that an entry can be created at a path: in its parent, or, if that is to be created
        as well, in the lowest directory above that exists. `chain`: of the path, if it was read."""
        if self.is_enforced:
            place, own = await self._above(path, chain)
            self._require(own, _CHANGE, place, f"create {path}")

    async def permit_removal(self, entry: Entry) -> None:
        """Check that an entry can be removed from its parent, or moved out of it: from a sticky one
        only by the owner of either."""
        if not self.is_enforced:
            return
        place, own = await self._above(entry.path)
        self._require(own, _CHANGE, place, f"remove or rename {entry.path}")
        self._require_unstuck(own, [entry])

    async def permit_move(self, source: Entry, target: str, replaced: Entry | None = None) -> None:
        """Check that an entry can be moved to a path, where it replaces a file."""
        if not self.is_enforced:
            return
        await self.permit_removal(source)
        if replaced is not None:
            await self.permit_removal(replaced)
        else:
            await self.permit_creation(target)

    async def permit_tree_removal(self, directory: Entry) -> None:
        """Check that a directory can be removed with everything below it.

        In layout `path` each directory that is not empty must allow the removal of its entries. In
        layout `tree` only the directory itself: what is below it is detached, unread, in one write.
        """
        if not self.is_enforced:
            return
        await self.permit_removal(directory)
        if self._store.keys.by_id:
            own = self.of(directory)
            top = self._store.keys.directory(directory)
            if not own.allows(self.identity, _CHANGE) and await self._store.has_children(top):
                raise own.refusal(self.identity, _CHANGE, directory.path, "remove its entries")
            return
        owns = {directory.path: self.of(directory)}
        pages = walk(self._store, self._store.keys.directory(directory))
        async with aclosing(pages):
            async for page in pages:
                self._permit_page(page, owns)

    def _permit_page(self, page: Entries, owns: dict[str, Ownership]) -> None:
        """Check that entries of one directory can be removed; `owns`: of the directories by path,
        to which those of the page are added."""
        if not page:
            return
        parent = _native.split(page[0].path)[0]
        own = owns[parent]
        self._require(own, _CHANGE, parent, "remove its entries")
        if own.is_sticky:
            self._require_unstuck(own, page)
        for entry in page.directories():
            owns[entry.path] = self.of(entry)

    def _require_unstuck(self, parent: Ownership, entries: Iterable[Entry]) -> None:
        if not parent.is_sticky or parent.is_owner(self.identity):
            return
        for entry in entries:
            self.require_owner(entry, "remove or rename it: its directory is sticky")

    async def _above(self, path: str, chain: Chain | None = None) -> tuple[str, Ownership]:
        """The lowest directory above a path that exists."""
        parent = _native.split(path)[0]
        known = None if chain is not None else self._fresh(parent)
        if known is not None:
            return parent, known
        above = (await self._store.layout.chain(parent)) if chain is None else chain[:-1]
        for place, entry in reversed(above):
            if entry is not None and entry.is_dir:
                return place, self.of(entry)
        return ROOT, self._root

    # Resolution of paths

    def search(self, paths: Sequence[str]) -> PathSearch:
        """The evaluation of some paths that are about to be resolved, in layout `path`."""
        return PathSearch(self, paths)

    def denial(self, above: Iterable[tuple[str, Entry | None]]) -> PermissionDeniedError | None:
        """The refusal of the first directory above a path that may not be searched, or None; in
        layout `tree`, whose resolution has read them."""
        for place, entry in above:
            self.note(place, entry)
            if entry is not None and entry.is_dir:
                own = self.of(entry)
                if not own.allows(self.identity, EXECUTE):
                    return own.refusal(self.identity, EXECUTE, place, "resolve a path below it")
        return None

    def note(self, path: str, entry: Entry | None) -> Ownership | None:
        """Note what was read at a path; returns the ownership of a directory."""
        if not self.is_enforced:
            return None
        if entry is None or not entry.is_dir:
            self._known.pop(path, None)
            return None
        own = self.of(entry)
        self._known[path] = own, self._store.runtime.monotonic() + KNOWN_SECONDS
        self._known.move_to_end(path)
        if len(self._known) > KNOWN_DIRECTORIES:
            self._known.popitem(last=False)
        return own

    def forget(self, path: str) -> None:
        """Forget a directory that may have been, or may be about to be, moved or removed."""
        self._known.pop(path, None)

    def known(self, paths: Iterable[str]) -> Iterator[tuple[str, Ownership]]:
        """The directories among the paths that need not be read."""
        for path in paths:
            if (own := self._fresh(path)) is not None:
                yield path, own

    def _fresh(self, path: str) -> Ownership | None:
        if path == ROOT:
            return self._root
        own, until = self._known.get(path, (None, 0.0))
        if own is None or until <= self._store.runtime.monotonic():
            return None
        return own


class PathSearch:
    """The directories above some paths, of which those that are not known are read with them."""

    def __init__(self, access: AccessControl, paths: Sequence[str]) -> None:
        self._access = access
        above = {each for path in paths if path != ROOT for each in _native.ancestors(path)}
        self._own = dict(access.known((ROOT, *above)))
        self.unknown = [path for path in above if path not in self._own]
        """The directories to read."""

    def add(self, found: Mapping[str, Entry | S3kError]) -> None:
        """Add what was read at the unknown directories."""
        for path in self.unknown:
            entry = found.get(path)
            own = self._access.note(path, None if isinstance(entry, S3kError) else entry)
            if own is not None:
                self._own[path] = own

    def denial(self, path: str) -> PermissionDeniedError | None:
        """The refusal of the first directory above a path that may not be searched, or None."""
        if path == ROOT:
            return None
        identity = self._access.identity
        for place in (ROOT, *_native.ancestors(path)):
            own = self._own.get(place)
            if own is not None and not own.allows(identity, EXECUTE):
                return own.refusal(identity, EXECUTE, place, f"resolve {path}")
        return None

    def require(self, paths: Iterable[str]) -> None:
        """Raise the refusal of the first path that has one."""
        for path in paths:
            if (error := self.denial(path)) is not None:
                raise error


class SeenDirectories:
    """The directories that a listing has come across, each checked before it is listed."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access
        self._seen: dict[str, Entry] = {}

    def add(self, keys: KeyScheme, entries: Iterable[Entry]) -> None:
        """Note directories, by their directory keys."""
        if self._access.is_enforced:
            self._seen.update(
                (keys.directory(entry).key, entry) for entry in entries if entry.is_dir
            )

    def add_page(self, keys: KeyScheme, page: Entries) -> None:
        """Note the directories of a page."""
        if self._access.is_enforced and (found := page.directories()):
            self._seen.update(zip(keys.directory_keys(found), found, strict=True))

    def require(self, directory: Directory) -> None:
        """Check that a directory can be listed. The root need not have been read."""
        if not self._access.is_enforced:
            return
        entry = self._seen.get(directory.key)
        if entry is not None:
            self._access.require_listable(entry)
        elif directory.path == ROOT:
            self._access.require_root(READ | EXECUTE)
        else:
            raise PermissionDeniedError(
                "its permissions are not known, so it cannot be listed", path=directory.path
            )


class CheckedReads:
    """The reads of a walk over a store that is no consistent listing: each directory is checked
    before it is listed."""

    def __init__(self, store: AccessTree, top: Entry) -> None:
        self._store = store
        self._seen = SeenDirectories(store.access)
        self._seen.add(store.keys, [top])

    @property
    def keys(self) -> KeyScheme:
        """The keys of the volume."""
        return self._store.keys

    async def children(self, directory: Directory) -> AsyncGenerator[Entries, None]:
        """A directory's children in pages."""
        self._seen.require(directory)
        async with aclosing(self._store.children(directory)) as pages:
            async for page in pages:
                self._seen.add_page(self.keys, page)
                yield page
