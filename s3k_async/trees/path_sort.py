"""External sort of the entries of a tree by path: in memory, or, if there are many, in a temporary
file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Final, Self

from s3k_async._core.spill_database import SpillDatabase
from s3k_async.errors import NotDirectoryError, S3kError
from s3k_async.trees.file_tree import TreeEntry

__all__ = ["PathSort", "with_directories"]

HELD: Final = 100_000
"""Entries in memory."""
PAGE: Final = 1000
"""Entries of a page of the result."""

_SCHEMA = (
    "CREATE TABLE entries (path BLOB NOT NULL, is_dir INTEGER NOT NULL, size INTEGER NOT NULL, "
    "mtime INTEGER, etag TEXT NOT NULL, checksum TEXT NOT NULL)"
)


class PathSort:
    """Sorts entries by `TreeEntry.order`; a file precedes a directory of the same path. Blocks.

    with PathSort() as sorter:
        sorter.add(entries)
        for page in sorter.pages(): ...
    """

    def __init__(self) -> None:
        self._held: list[TreeEntry] = []
        self._file: SpillDatabase | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, entries: Iterable[TreeEntry]) -> None:
        """Add entries."""
        self._held += entries
        if len(self._held) > HELD:
            self._spill()

    def pages(self) -> Iterator[Sequence[TreeEntry]]:
        """All entries in order, in pages."""
        if self._file is None:
            self._held.sort(key=lambda entry: (entry.order, entry.is_dir))
            yield from (self._held[at : at + PAGE] for at in range(0, len(self._held), PAGE))
            return
        self._spill()
        rows = self._file.database.execute(
            "SELECT path, is_dir, size, mtime, etag, checksum FROM entries ORDER BY path, is_dir"
        )
        while page := [
            TreeEntry(path.decode(), bool(is_dir), size, mtime, etag, checksum)
            for path, is_dir, size, mtime, etag, checksum in (
                (row[0].replace(b"\0", b"/"), *row[1:]) for row in islice(rows, PAGE)
            )
        ]:
            yield page

    def _spill(self) -> None:
        self._file = self._file or SpillDatabase(_SCHEMA)
        self._file.many(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)",
            [
                (
                    each.order.encode(),
                    each.is_dir,
                    each.size,
                    each.mtime_ms,
                    each.etag,
                    each.checksum,
                )
                for each in self._held
            ],
        )
        self._held = []


def with_directories(
    pages: Iterable[Sequence[TreeEntry]], skipped: Callable[[str, S3kError], object]
) -> Iterator[list[TreeEntry]]:
    """Pages of sorted entries, each once, with the directories above them. An entry below a file
    is skipped, by its path."""
    last = ""
    file: str | None = None
    for page in pages:
        shown: list[TreeEntry] = []
        for entry in page:
            if file is not None and entry.path.startswith(f"{file}/"):
                error = NotDirectoryError("a file has the path of a directory above this one")
                skipped(entry.path, error)
                continue
            shown += [TreeEntry(above, True) for above in _new_directories(entry.path, last)]
            if entry.path != last:
                shown.append(entry)
                file = None if entry.is_dir else entry.path
            last = entry.path
        yield shown


def _new_directories(path: str, last: str) -> Iterator[str]:
    """The directories above a path that are neither the last path nor above it."""
    end = path.find("/")
    while end >= 0:
        if not f"{last}/".startswith(f"{path[:end]}/"):
            yield path[:end]
        end = path.find("/", end + 1)
