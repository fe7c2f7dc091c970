"""One page of the files below a directory, in order, from any place in it on.

Files are in the order of their paths, component by component, by UTF-8 bytes. A page begins after a
path, or at the names with a prefix: directories that precede that place are not read, and of those
above it only what follows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from s3k_async._native import Entries, join
from s3k_async.errors import PathNotFoundError
from s3k_async.model import FileStatus
from s3k_async.namespace.consistent_listing import SnapshotView, list_consistently
from s3k_async.namespace.directories import DirectoryStore
from s3k_async.namespace.entry_reader import existing
from s3k_async.namespace.ordered_walk import resume_in_order
from s3k_async.table.codec import in_columns
from s3k_async.table.keys import Directory

__all__ = ["file_page"]


async def file_page(
    store: DirectoryStore, top: str, *, prefix: str, after: str, limit: int
) -> list[FileStatus]:
    """The first files below the directory `top`, at most `limit`, reservations excluded.

    `prefix`: only those whose path relative to `top` begins with this text. `after`: only those
    that follow this relative path, which no file need have. Both are empty, or normalised paths
    without the slash at the start; the prefix may also end in a slash. Raises PathNotFoundError
    (no such directory), BusyError.
    """
    found: list[FileStatus] = []
    page = _FilePage(top, prefix, after, limit)
    async with aclosing(list_consistently(store, page.entries, top)) as parts:
        async for part in parts:
            found += part.statuses()
    return found


class _FilePage:
    """One page: where it begins, and which files it has."""

    def __init__(self, top: str, prefix: str, after: str, limit: int) -> None:
        folder, _, self._name = prefix.rpartition("/")
        self._top = top
        self._base = f"{top}/{folder}" if folder else top
        """The directory that the prefix narrows the page to."""
        self._limit = limit
        self._place = self._begin(
            folder.split("/") if folder else [], after.split("/") if after else []
        )

    def _begin(self, folder: Sequence[str], after: Sequence[str]) -> Sequence[str] | None:
        """The components, below the base, of the path after which the page begins; None if all of
        its files precede it."""
        depth = len(folder)
        if list(after[:depth]) != list(folder):
            return [] if _key(after) < _key(folder) else None
        return after[depth:]

    async def entries(self, view: SnapshotView) -> AsyncGenerator[Entries, None]:
        """The files of the page, by one attempt."""
        top = await existing(view, self._top)
        if not top.is_dir:
            raise PathNotFoundError("no such directory: a file is at the path", path=self._top)
        base = top if self._base == self._top else await view.get(self._base)
        if self._place is None or base is None or not base.is_dir:
            return
        levels, left = [(view.keys.directory(base), "")], self._limit
        begin, is_included = self._first()
        if begin:
            levels, first = await self._levels(view, levels[0][0], begin)
            if first is not None and is_included:
                left -= len(first)
                yield first
        async with aclosing(resume_in_order(view, levels, rows=left)) as pages:
            async for page in pages:
                mine = self._matching(page)
                files = mine.files().without_reservations()[:left]
                if files:
                    left -= len(files)
                    yield files
                if not left or len(mine) < len(page):
                    return

    def _first(self) -> tuple[Sequence[str], bool]:
        """The components of the path from which the walk goes on, and whether a file there belongs
        to the page."""
        place = self._place or []
        if self._name and (not place or place[0].encode() < self._name.encode()):
            return [self._name], True
        return place, False

    async def _levels(
        self, view: SnapshotView, base: Directory, begin: Sequence[str]
    ) -> tuple[list[tuple[Directory, str]], Entries | None]:
        """The directories above the place where the page begins, with the names after which they
        are read; and the file at that place."""
        if begin[0] in (".", ".."):  # the start of longer names
            return [(base, begin[0])], None
        paths = [self._base]
        for name in begin:
            paths.append(join(paths[-1], name))
        levels = [(base, begin[0])]
        for entry, after in zip(await view.get_many(paths[1:]), [*begin[1:], ""], strict=True):
            if entry is None or not entry.is_dir:
                is_last = entry is not None and entry.path == paths[-1] and entry.committed
                return levels, in_columns([entry], view.keys) if entry and is_last else None
            levels.append((view.keys.directory(entry), after))
        return levels, None

    def _matching(self, page: Entries) -> Entries:
        """The entries up to the first one without the prefix, which no later one has either."""
        if not self._name:
            return page
        start = f"{self._base}/{self._name}"
        for place, path in enumerate(page.paths()):
            if not path.startswith(start):
                return page[:place]
        return page


def _key(components: Sequence[str]) -> list[bytes]:
    return [each.encode() for each in components]
