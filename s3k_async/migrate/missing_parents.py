"""Parents missing in a dump: those above its root, and those changed during the dump."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from s3k_async import _native
from s3k_async._core.runtime import Runtime
from s3k_async.errors import CorruptDataError, NotDirectoryError
from s3k_async.model import Entry
from s3k_async.namespace.store import MetadataStore

__all__ = ["MissingParents"]

_KNOWN = 100_000


class MissingParents:
    """Creates the missing parents of entries. Memory is bounded: evicted parents are read from the
    table again."""

    def __init__(self, store: MetadataStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._known: OrderedDict[str, None] = OrderedDict()
        self._made: set[str] = set()

    @property
    def made(self) -> int:
        """Number of created parents."""
        return len(self._made)

    def remember(self, chunk: Sequence[Entry]) -> None:
        """Record directories of the dump; each precedes its children, or CorruptDataError is
        raised."""
        late = self._made.intersection(entry.path for entry in chunk)
        if late:
            raise CorruptDataError("a directory of the dump follows its children", path=min(late))
        self._add(entry.path for entry in chunk if entry.is_dir)

    async def missing(self, chunk: Sequence[Entry]) -> list[Entry]:
        """New entries for parents that are neither in the dump nor in the table, topmost first.
        Raises NotDirectoryError if one is a file."""
        wanted = {path for entry in chunk for path in _native.ancestors(entry.path)}
        unknown = sorted(path for path in wanted if path not in self._known)
        made = await self.absent(unknown)
        self._add(unknown)
        return made

    async def absent(self, paths: Sequence[str]) -> list[Entry]:
        """New entries for directories that the table lacks. Raises NotDirectoryError if one is a
        file."""
        found = await self._store.get_many(paths)
        for path, entry in zip(paths, found, strict=True):
            if entry is not None and not entry.is_dir:
                raise NotDirectoryError(
                    "the path of an entry of the dump leads through a file", path=path
                )
        now = self._runtime.now_ms()
        made = [
            Entry(
                path,
                True,
                self._runtime.uuid(),
                1,
                now // 1000,
                now,
                operation=self._runtime.uuid(),
            )
            for path, entry in zip(paths, found, strict=True)
            if entry is None
        ]
        self._made.update(entry.path for entry in made)
        return made

    def _add(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._known[path] = None
            self._known.move_to_end(path)
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)
