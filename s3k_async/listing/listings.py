"""Listings: pages of entries, walks, finds, summaries, and listings as Arrow record batches.

All of them show a transaction completely or not at all, within the limits of
`s3k_async.namespace.consistent_listing`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from s3k_async._core.concurrency import merge
from s3k_async._native import Entries
from s3k_async.errors import ArgumentTypeError, InvalidArgumentError, PermissionDeniedError
from s3k_async.listing.globbing import glob_entries, matcher
from s3k_async.model import EPOCH, MILLISECOND, ROOT, ContentSummary, FileStatus, status_of
from s3k_async.namespace.consistent_listing import SnapshotView, list_consistently
from s3k_async.namespace.directories import DirectoryStore
from s3k_async.namespace.entry_reader import existing
from s3k_async.namespace.ordered_walk import walk, walk_in_order
from s3k_async.table.codec import in_columns
from s3k_async.table.keys import Directory

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BATCH_ROWS",
    "EntryType",
    "Filter",
    "Listing",
    "PagedIterator",
    "Walked",
    "arrow_schema",
    "find_pages",
    "glob_pages",
    "list_pages",
    "milliseconds",
    "pages_of",
    "record_batches",
    "summary",
    "walk_pages",
]

T = TypeVar("T")

BATCH_ROWS = 2048
"""Minimum rows of a record batch of a listing, except the last; at most about a page more."""
DIRECTORIES = 8
"""Directories that a walk reads ahead concurrently."""

EntryType: TypeAlias = Literal["file", "directory"]
Walked: TypeAlias = tuple[str, list[FileStatus], list[FileStatus]]
"""A directory, its subdirectories and its files."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions of `find`; None matches everything. Sizes (bytes) select files only; times
    (epoch milliseconds or aware `datetime`) are exclusive."""

    pattern: str | None = None
    type: EntryType | None = None
    min_size: int | None = None
    max_size: int | None = None
    newer_than: int | datetime | None = None
    older_than: int | datetime | None = None

    def select(self, entries: Entries, root: str) -> list[FileStatus]:
        """The entries that meet all conditions. Paths are matched relative to `root`."""
        statuses = entries.statuses()
        newer, older = milliseconds(self.newer_than), milliseconds(self.older_than, up=True)
        kept = [place for place, status in enumerate(statuses) if self._meets(status, newer, older)]
        if self.pattern is not None and kept:
            matches = matcher(self.pattern)
            whole = "/" in self.pattern
            names = [
                _relative(statuses[place].path, root) if whole else statuses[place].name
                for place in kept
            ]
            kept = [place for place, name in zip(kept, names, strict=True) if matches(name)]
        # New objects: if few are kept, they do not keep the whole page in memory.
        return entries.take(kept).statuses()

    def _meets(self, entry: FileStatus, newer: int | None, older: int | None) -> bool:
        if self.type is not None and entry.is_dir != (self.type == "directory"):
            return False
        if (self.min_size is not None or self.max_size is not None) and entry.is_dir:
            return False
        return (
            (self.min_size is None or entry.size >= self.min_size)
            and (self.max_size is None or entry.size <= self.max_size)
            and (newer is None or entry.mtime_ms > newer)
            and (older is None or entry.mtime_ms < older)
        )


def milliseconds(time: int | datetime | None, *, up: bool = False) -> int | None:
    """A time in epoch milliseconds, rounded down or up. Raises ArgumentTypeError,
    InvalidArgumentError (without a time zone)."""
    if not isinstance(time, datetime):
        if time is None:
            return None
        if isinstance(time, bool) or not isinstance(time, Real):
            raise ArgumentTypeError(
                f"a time is epoch milliseconds or a datetime, not {type(time).__name__}"
            )
        return time
    if time.tzinfo is None:
        raise InvalidArgumentError(f"{time!r} has no time zone")
    return (time - EPOCH + timedelta(microseconds=999 if up else 0)) // MILLISECOND


@dataclass(frozen=True, slots=True)
class Listing:
    """The options of a listing: a directory's children, or with `recursive` everything below it;
    with reservations on request; `sorted` by path, component by component (a directory is followed
    by its content)."""

    recursive: bool = False
    include_uncommitted: bool = False
    sorted: bool = False

    def pages(
        self,
        store: DirectoryStore,
        path: str,
        *,
        denied: Callable[[PermissionDeniedError], object] | None = None,
    ) -> AsyncGenerator[Entries, None]:
        """The entries in non-empty pages; for a file, the file itself. `denied`: called for each
        directory that may not be listed, before the entries that follow it; its content is left
        out. Raises PathNotFoundError, and without `denied` PermissionDeniedError."""

        def attempt(view: SnapshotView) -> AsyncGenerator[Entries, None]:
            view.denied = denied
            return self.pages_of(view, path)

        return list_consistently(store, attempt, path)

    async def pages_of(self, view: SnapshotView, path: str) -> AsyncGenerator[Entries, None]:
        """`pages` of one attempt."""
        start = await existing(view, path)
        found = (
            self._found(view, view.keys.directory(start))
            if start.is_dir
            else _single(in_columns([start], view.keys))
        )
        async with aclosing(found) as pages:
            async for page in pages:
                shown = page if self.include_uncommitted else page.without_reservations()
                if shown:
                    yield shown

    def _found(self, view: SnapshotView, directory: Directory) -> AsyncGenerator[Entries, None]:
        if self.recursive:
            return walk_in_order(view, directory) if self.sorted else walk(view, directory)
        return view.children_in_order(directory) if self.sorted else view.children(directory)


class PagedIterator(AsyncIterator[T]):
    """The values of pages, one by one; `pages` for callers that take a page at a time."""

    def __init__(self, pages: AsyncGenerator[list[T], None]) -> None:
        self.pages = pages
        self._values = _each(pages)

    def __aiter__(self) -> AsyncIterator[T]:  # noqa: PYI034 - a generator is faster than this
        return self._values

    def __anext__(self) -> Coroutine[Any, Any, T]:
        return self._values.__anext__()

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Cancel the read-ahead."""
        return self._values.aclose()


async def _each(pages: AsyncIterator[list[T]]) -> AsyncGenerator[T, None]:
    async for page in pages:
        for value in page:
            yield value


def pages_of(values: AsyncIterator[T]) -> AsyncIterator[list[T]]:
    """The pages of an iterator of values; for other iterators, one page for each value."""
    if isinstance(values, PagedIterator):
        return values.pages
    return ([value] async for value in values)


async def _single(page: Entries) -> AsyncGenerator[Entries, None]:
    yield page


async def list_pages(
    store: DirectoryStore, path: str, listing: Listing
) -> AsyncIterator[list[FileStatus]]:
    """`Listing.pages` as public statuses."""
    async with aclosing(listing.pages(store, path)) as pages:
        async for page in pages:
            yield page.statuses()


async def find_pages(
    store: DirectoryStore, path: str, wanted: Filter
) -> AsyncIterator[list[FileStatus]]:
    """The entries below a directory (or a file itself) that meet the filter, in pages."""
    root = path if path == ROOT else path + "/"

    async def found(view: SnapshotView) -> AsyncGenerator[list[FileStatus], None]:
        async with aclosing(Listing(recursive=True).pages_of(view, path)) as pages:
            async for page in pages:
                if selected := wanted.select(page, root):
                    yield selected

    async with aclosing(list_consistently(store, found, path)) as pages:
        async for page in pages:
            yield page


async def glob_pages(store: DirectoryStore, pattern: str) -> AsyncIterator[list[FileStatus]]:
    """The matches of a pattern, in pages."""
    async with aclosing(
        list_consistently(store, lambda view: glob_entries(view, pattern), pattern)
    ) as pages:
        async for page in pages:
            if shown := [status_of(entry) for entry in page if not entry.is_reservation]:
                yield shown


async def summary(store: DirectoryStore, path: str) -> ContentSummary:
    """Totals of a subtree, itself included. Reservations are not counted. Raises
    PathNotFoundError."""

    async def totals(view: SnapshotView) -> AsyncGenerator[tuple[int, int, int], None]:
        start = await existing(view, path)
        yield (0, 1, 0) if start.is_dir else in_columns([start], view.keys).totals()
        if start.is_dir:
            async with aclosing(walk(view, view.keys.directory(start))) as pages:
                async for page in pages:
                    yield page.totals()

    length, files, directories = 0, 0, 0
    async with aclosing(list_consistently(store, totals, path)) as sums:
        async for more_files, more_directories, more_bytes in sums:
            files += more_files
            directories += more_directories
            length += more_bytes
    return ContentSummary(length, files, directories)


async def walk_pages(store: DirectoryStore, path: str) -> AsyncIterator[list[Walked]]:
    """Every directory from `path` down with its children, parents first. A page is one
    directory."""
    async with aclosing(list_consistently(store, lambda view: _walked(view, path), path)) as pages:
        async for walked in pages:
            yield [walked]


async def _walked(view: SnapshotView, path: str) -> AsyncGenerator[Walked, None]:
    start = await existing(view, path)
    if not start.is_dir:
        return

    def below(read: _ReadDirectory) -> list[AsyncIterator[_ReadDirectory]]:
        return [_read_directory(view, each) for each in reversed(read.below)]

    top = _read_directory(view, view.keys.directory(start))
    async for read in merge([top], limit=DIRECTORIES, expand=below):
        yield read.walked


@dataclass(frozen=True, slots=True)
class _ReadDirectory:
    """A directory of a walk, and its subdirectories."""

    walked: Walked
    below: list[Directory]


async def _read_directory(
    view: SnapshotView, directory: Directory
) -> AsyncIterator[_ReadDirectory]:
    pages = [page.without_reservations() async for page in view.children(directory)]
    children = Entries.sorted(pages)
    found = children.directories()
    walked = directory.path, found.statuses(), children.files().statuses()
    yield _ReadDirectory(walked, view.keys.directories(found))


def arrow_schema() -> pa.Schema:
    """Columns of a listing's record batches.

    `path` and `id` text; `is_dir`; `size` in bytes, 0 for directories; `mtime` and `ctime` in UTC
    milliseconds; `version`; `committed`; `etag` and `checksum`, empty if unknown, the latter
    `version:<version id>` for an adopted object of a versioned bucket; `attributes`, JSON, empty if
    there are none; `physical`, null for directories and reservations.
    """
    import pyarrow as pa

    return pa.schema(Entries)


async def record_batches(pages: AsyncIterable[Entries]) -> AsyncIterator[pa.RecordBatch]:
    """Pages as record batches of the schema `arrow_schema`; small pages are combined."""
    import pyarrow as pa

    held: list[Entries] = []
    rows = 0
    async for page in pages:
        if len(page) >= BATCH_ROWS:
            yield pa.record_batch(page)
            continue
        held.append(page)
        rows += len(page)
        if rows >= BATCH_ROWS:
            yield pa.record_batch(Entries.joined(held))
            held, rows = [], 0
    if held:
        yield pa.record_batch(Entries.joined(held))


def _relative(path: str, root: str) -> str:
    return path[len(root) :] or path.rpartition("/")[2]
