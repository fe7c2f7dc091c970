"""Path resolution in layout `tree`: one batch reads the directories of a path and the entry itself.

The cache predicts the ids of the directories, and the batch confirms them. A directory that leaves
its key gets another version. So a directory that the batch returns with the id and version known
before was at its key when the batch was sent. All directories of a chain were therefore in place at
that moment, which is within the call (docs/design/011-directories-by-id.md, section 4.2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from s3k_async import _native
from s3k_async._core.concurrency import gather
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import MAX_BATCH
from s3k_async.errors import BusyError, ItemFormatError
from s3k_async.layouts.tree.directory_cache import DirectoryCache, KnownDirectory
from s3k_async.layouts.tree.resolved_path import ResolvedPath
from s3k_async.model import ROOT, Entry
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.intent_view import Seeing

__all__ = ["ChainResolver"]

BATCHES = 8
"""Batches of one call that are read concurrently."""

Found: TypeAlias = Mapping[str, Entry | ItemFormatError]
"""What is at entry keys; the error of an item that cannot be read."""
Read: TypeAlias = Callable[[Sequence[str], Seeing | None, dict[str, str] | None], Awaitable[Found]]
"""Strongly consistent reads by entry key, by one request for up to a hundred keys. Given the paths
of directories by id; an entry of any other directory has its entry key as path."""


class _Route:
    """The predicted directories of a path, topmost first, as far as they are known."""

    __slots__ = ("_names", "directory", "known", "next", "path", "places", "trusted")

    def __init__(self, path: str) -> None:
        self.path = path
        self.places: Sequence[str] = [*_native.ancestors(path), path]
        """The path's ancestors below the root, and the path."""
        self._names = path.split("/")
        self.known: list[tuple[str, KnownDirectory]] = []
        """Entry keys of the directories above `next`."""
        self.directory = ROOT_ENTRY.id
        """The id of the directory that holds `next`."""
        self.next = f"{self.directory}/{self._names[1]}"
        """The entry key of the first place below the known directories."""
        self.trusted = 0
        """The number of known directories, from the topmost on, that are not read again."""

    @property
    def is_complete(self) -> bool:
        """Whether all directories are known; then `next` is the key of the entry itself."""
        return len(self.known) == len(self.places) - 1

    @property
    def keys(self) -> list[str]:
        return [*(key for key, _ in self.known[self.trusted :]), self.next]

    def directories(self) -> Iterator[tuple[str, str]]:
        """Id and predicted path of each directory, the root's first."""
        yield ROOT_ENTRY.id, ROOT
        for place, (_, known) in zip(self.places, self.known, strict=False):
            yield known.id, place

    def trust(self, since: float) -> None:
        """Do not read the directories above the parent, if all of them were confirmed since then.
        The parent is read: a file in it is not shown while the parent is being removed."""
        above = self.known[:-1] if self.is_complete else []
        if all(known.confirmed >= since for _, known in above):
            self.trusted = len(above)

    def follow(self, directory: KnownDirectory) -> None:
        """Continue below a directory at `next`."""
        self.known.append((self.next, directory))
        self.directory = directory.id
        self.next = f"{directory.id}/{self._names[len(self.known) + 1]}"


class ChainResolver:
    """Resolves paths for one client."""

    def __init__(
        self, read: Read, runtime: Runtime, busy_timeout: float, trust: float = 0.0
    ) -> None:
        """`trust`: as `Tuning.directory_trust`."""
        self.cache = DirectoryCache()
        self._trust = trust
        self._read = read
        self._runtime = runtime
        self._busy_timeout = busy_timeout

    async def resolve(
        self, paths: Sequence[str], see: Seeing | None = None, *, trusting: bool = False
    ) -> list[ResolvedPath | ItemFormatError]:
        """What is at the paths, in their order; for a path with an invalid item, its error.

        `trusting`: directories above the parent that were confirmed within the client's
        `directory_trust` are neither read nor in the result. If nothing is found below them, they
        are read.

        Raises BusyError if directories of a path kept moving for the busy timeout.
        """
        found: dict[str, ResolvedPath | ItemFormatError] = {
            ROOT: ResolvedPath([(ROOT, ROOT_ENTRY)])
        }
        left = [path for path in dict.fromkeys(paths) if path != ROOT]
        deadline = self._runtime.monotonic() + self._busy_timeout
        while left:
            routes = await self._predict(left, see)
            sent = self._runtime.monotonic()
            if trusting and self._trust:
                for route in routes:
                    route.trust(sent - self._trust)
            entries = await self._read_packed(routes, see)
            left = []
            for route in routes:
                resolved = self._confirm(route, entries, sent)
                if resolved is None or (route.trusted and not _is_there(resolved)):
                    left.append(route.path)
                else:
                    found[route.path] = resolved
            trusting = False
            if left and sent >= deadline:
                raise BusyError("gave up: concurrent changes to this path", path=left[0])
        return [found[path] for path in paths]

    def predicted_above(self, entry: Entry) -> list[tuple[str, str, KnownDirectory]] | None:
        """Path, entry key and cached state of the directories between the root and an entry,
        topmost first; None if the cache does not lead to it. The cache may be outdated: a change
        must require these directories."""
        route = _Route(entry.path)
        while not route.is_complete:
            known = self.cache.get(route.next)
            if known is None:
                return None
            route.follow(known)
        if route.next != entry.entry_key:
            return None
        return [
            (place, key, known)
            for place, (key, known) in zip(route.places, route.known, strict=False)
        ]

    async def _predict(self, paths: Sequence[str], see: Seeing | None) -> list[_Route]:
        """Routes according to the cache; unknown directories are read, level by level."""
        routes = [_Route(path) for path in paths]
        open_routes = routes
        seen: dict[str, KnownDirectory] = {}
        while True:
            unknown: dict[str, list[_Route]] = {}
            for route in open_routes:
                while not route.is_complete:
                    known = seen.get(route.next) or self.cache.get(route.next)
                    if known is None:
                        unknown.setdefault(route.next, []).append(route)
                        break
                    route.follow(known)
            if not unknown:
                return routes
            found = await self._read(list(unknown), see, None)
            open_routes = []
            for key, waiting in unknown.items():
                known = self.cache.update(key, found.get(key))
                if known is not None:
                    seen[key] = known
                    open_routes += waiting

    async def _read_packed(self, routes: Sequence[_Route], see: Seeing | None) -> Found:
        """What is at the keys of all routes, each route within one batch."""
        paths = {key: path for route in routes for key, path in route.directories()}
        batches = list(_batches(routes))
        if len(batches) == 1:
            return await self._read(batches[0], see, paths)
        found: dict[str, Entry | ItemFormatError] = {}
        for part in await gather(lambda keys: self._read(keys, see, paths), batches, limit=BATCHES):
            found.update(part)
        return found

    def _confirm(
        self, route: _Route, found: Found, sent: float
    ) -> ResolvedPath | ItemFormatError | None:
        """The result, if the entries that were read agree with the prediction; None: resolve
        again."""
        steps: list[tuple[str, Entry | None]] = []
        read = route.known[route.trusted :]
        for place, (key, known) in zip(route.places[route.trusted :], read, strict=False):
            entry = found.get(key)
            if not known.is_still(entry):
                self.cache.update(key, entry)
                return _at(entry, place) if isinstance(entry, ItemFormatError) else None
            assert isinstance(entry, Entry)
            steps.append((place, _named(entry, place)))
        if self._trust and not route.trusted:
            for key, known in read:
                self.cache.confirm(key, known, sent)
        reached = len(route.known)
        place, last = route.places[reached], found.get(route.next)
        if isinstance(last, ItemFormatError):
            return _at(last, place)
        if self.cache.update(route.next, last) is not None and not route.is_complete:
            return None  # a directory that was missing when the route was predicted
        steps.append((place, None if last is None else _named(last, place)))
        steps += [(place, None) for place in route.places[reached + 1 :]]
        return ResolvedPath([(ROOT, ROOT_ENTRY), *steps])


def _is_there(resolved: ResolvedPath | ItemFormatError) -> bool:
    return isinstance(resolved, ResolvedPath) and resolved.entry is not None


def _named(entry: Entry, path: str) -> Entry:
    """The entry with its path, which of two predicted ones of its directory may be the other."""
    return entry if entry.path == path else replace(entry, path=path)


def _at(error: ItemFormatError, path: str) -> ItemFormatError:
    """The error of an item that was read by its entry key, now with its path."""
    error.name(path)
    return error


def _batches(routes: Sequence[_Route]) -> Iterator[list[str]]:
    """The keys of the routes, each once, in full batches that do not divide a route."""
    if len(routes) == 1:
        yield routes[0].keys
        return
    batch: dict[str, None] = {}
    for route in routes:
        longer = dict.fromkeys([*batch, *route.keys])
        if batch and len(longer) > MAX_BATCH:
            yield list(batch)
            longer = dict.fromkeys(route.keys)
        batch = longer
    if batch:
        yield list(batch)
