"""Directories of a load: those of the dump, and the missing ones above its entries, which are above
its root or were changed during the dump."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence

from s3k_async import _native
from s3k_async._core.runtime import Runtime
from s3k_async.errors import CorruptDataError, NotDirectoryError
from s3k_async.layouts.tree.path_index import PathIndex
from s3k_async.migrate.load_batch import LoadTarget
from s3k_async.model import ROOT, Entry
from s3k_async.table.stored_reader import ROOT_ENTRY

__all__ = ["DumpDirectories"]

_KNOWN = 100_000


class DumpDirectories:
    """The directories of a dump by path, for entries in the order of the dump. Creates missing
    ones. Memory is bounded: evicted directories are read from the table again.

    A dump contains no directory keys. In layout `tree` the key of an entry's directory is the id of
    the directory at its parent's path. New ids are derived from the dump and the path, so that
    another load of the dump writes the same entries.
    """

    def __init__(self, target: LoadTarget, runtime: Runtime) -> None:
        self._target = target
        self._store = target.volume.store
        self._keys = target.volume.store.keys
        self._runtime = runtime
        self._known: OrderedDict[str, str] = OrderedDict()
        """Directory keys by path."""
        self._ids = PathIndex()
        """In layout `tree` the paths of the directories of the dump, by id. The index takes them
        for entry keys, which are not known yet."""
        self._made: set[str] = set()
        self._new_ids = 0

    @property
    def made(self) -> int:
        """Number of created directories."""
        return len(self._made)

    @property
    def new_ids(self) -> int:
        """Number of directories with the id of another directory of the dump, which got new ids."""
        return self._new_ids

    def remember(self, chunk: Sequence[Entry]) -> Sequence[Entry]:
        """Record directories of the dump; each precedes its children, or CorruptDataError is
        raised. Returns the entries. In layout `tree`, a directory with the id of an earlier
        directory, because it was renamed during the dump, has a new id."""
        late = self._made.intersection(entry.path for entry in chunk)
        if late:
            raise CorruptDataError("a directory of the dump follows its children", path=min(late))
        if self._keys.by_id:
            chunk = [self._with_own_id(entry) if entry.is_dir else entry for entry in chunk]
        self._add((entry.path, self._key(entry)) for entry in chunk if entry.is_dir)
        return chunk

    async def placed(self, chunk: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
        """New entries for parents that are neither in the dump nor in the table, topmost first; and
        the entries of the dump, in their directories. Raises NotDirectoryError if a parent is a
        file."""
        wanted = {path for entry in chunk for path in _native.ancestors(entry.path)}
        keys, missing = await self._keys_at(wanted)
        made = [self._new(path) for path in missing]
        own = {entry.path: self._key(entry) for entry in made}
        self._add(own.items())
        keys |= own
        return self._in_directories(made, keys), self._in_directories(chunk, keys)

    async def located(self, chunk: Sequence[Entry]) -> Sequence[Entry]:
        """The entries in their directories, all of which the table has; in layout `path` the
        entries as they are, without a read. Raises CorruptDataError if the table lacks one."""
        if not self._keys.by_id:
            return chunk
        keys, missing = await self._keys_at({_native.split(entry.path)[0] for entry in chunk})
        if missing:
            raise CorruptDataError(
                "a directory that was loaded is not in the table", path=missing[0]
            )
        return self._in_directories(chunk, keys)

    async def absent(self, paths: Sequence[str]) -> list[Entry]:
        """New entries for directories that the table lacks, without directory keys. Raises
        NotDirectoryError if one is a file."""
        found = await self._directories(paths)
        return [self._new(path) for path, entry in found.items() if entry is None]

    def close(self) -> None:
        """Remove temporary files. Idempotent."""
        self._ids.close()

    async def _keys_at(self, paths: Collection[str]) -> tuple[dict[str, str], list[str]]:
        """The directory keys of the directories at the paths, that of the root included; and the
        paths at which the table has nothing, topmost first. Raises NotDirectoryError if one is a
        file."""
        keys = {path: self._known[path] for path in paths if path in self._known}
        for path in keys:
            self._known.move_to_end(path)
        found = await self._directories(sorted(set(paths) - keys.keys() - {ROOT}))
        read = {path: self._key(entry) for path, entry in found.items() if entry is not None}
        self._add(read.items())
        root = {ROOT: self._key(ROOT_ENTRY)}
        return keys | read | root, [path for path, entry in found.items() if entry is None]

    def _in_directories(self, entries: Sequence[Entry], keys: Mapping[str, str]) -> list[Entry]:
        return [self._keys.placed(entry, keys[_native.split(entry.path)[0]]) for entry in entries]

    async def _directories(self, paths: Sequence[str]) -> dict[str, Entry | None]:
        """What the table has at the paths. Raises NotDirectoryError if one is a file."""
        found = dict(zip(paths, await self._store.get_many(paths), strict=True))
        for path, entry in found.items():
            if entry is not None and not entry.is_dir:
                raise NotDirectoryError(
                    "the path of an entry of the dump leads through a file", path=path
                )
        return found

    def _new(self, path: str) -> Entry:
        """A new directory."""
        self._made.add(path)
        if self._keys.by_id:
            # Entries of an interrupted load may be in the directory, although it was not stored.
            return self._target.new_directory(path)
        now = self._runtime.now_ms()
        return Entry(
            path,
            True,
            self._runtime.uuid(),
            1,
            now // 1000,
            now,
            operation=self._runtime.uuid(),
        )

    def _with_own_id(self, directory: Entry) -> Entry:
        if directory.path in self._known:
            raise CorruptDataError("the dump holds a path twice", path=directory.path)
        if self._ids.place(directory.id) is not None:
            self._new_ids += 1
            return self._target.with_new_id(directory)
        self._ids.add([(directory.id, directory.path)])
        return directory

    def _key(self, directory: Entry) -> str:
        return self._keys.directory(directory).key

    def _add(self, directories: Iterable[tuple[str, str]]) -> None:
        for path, key in directories:
            self._known[path] = key
            self._known.move_to_end(path)
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)
