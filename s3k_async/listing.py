"""Looking at the tree in pages: listing, walking, finding, and listings as Arrow record batches."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from s3k_async.concurrency import merge
from s3k_async.globbing import matcher
from s3k_async.metadata.store import MetadataStore
from s3k_async.metadata.tree import Tree
from s3k_async.model import ROOT, Entry, FileStatus
from s3k_async.reading import existing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EntryType", "Filter", "Walked", "arrow_schema", "find_pages", "list_pages", "record_batches", "walk_pages"]

BATCH_ROWS = 4096
"""A record batch of a listing has at least so many rows, unless it is the last, and not many more."""
DIRECTORIES = 8
"""Directories that a walk reads ahead at the same time."""

EntryType: TypeAlias = Literal["file", "directory"]
Walked: TypeAlias = tuple[str, list[FileStatus], list[FileStatus]]
"""A directory, the directories in it and the files in it."""


class LookedAt(Protocol):
    """What looking needs of a volume."""

    @property
    def store(self) -> MetadataStore: ...
    @property
    def tree(self) -> Tree: ...


@dataclass(frozen=True, slots=True)
class Filter:
    """What `find` is looking for; None does not matter. Sizes (bytes) are met by files only, times (epoch
    milliseconds) are exclusive."""

    pattern: str | None = None
    type: EntryType | None = None
    min_size: int | None = None
    max_size: int | None = None
    newer_than: int | None = None
    older_than: int | None = None

    def select(self, entries: Sequence[Entry], root: str) -> list[FileStatus]:
        """Those of the entries that meet all conditions. Paths are matched relative to `root`."""
        kept = [entry for entry in entries if self._meets(entry)]
        if self.pattern is not None and kept:
            matches = matcher(self.pattern)
            whole = "/" in self.pattern
            kept = [entry for entry in kept if matches(_relative(entry.path, root) if whole else _name(entry.path))]
        return [FileStatus.of(entry) for entry in kept]

    def _meets(self, entry: Entry) -> bool:
        if self.type is not None and entry.is_dir != (self.type == "directory"):
            return False
        if (self.min_size is not None or self.max_size is not None) and entry.is_dir:
            return False
        return (
            (self.min_size is None or entry.size >= self.min_size)
            and (self.max_size is None or entry.size <= self.max_size)
            and (self.newer_than is None or entry.mtime_ms > self.newer_than)
            and (self.older_than is None or entry.mtime_ms < self.older_than)
        )


async def entry_pages(
    volume: LookedAt, path: str, *, recursive: bool, include_uncommitted: bool
) -> AsyncIterator[list[Entry]]:
    """What is in a directory, or everything below it; of a file, the file itself. Raises PathNotFoundError."""
    start = await existing(volume.store, path)
    if not start.is_dir:
        if include_uncommitted or start.committed:
            yield [start]
        return
    async for page in volume.tree.walk(path) if recursive else volume.store.children(path):
        shown = page if include_uncommitted else [entry for entry in page if not entry.is_reservation]
        if shown:
            yield shown


async def list_pages(
    volume: LookedAt, path: str, *, recursive: bool, include_uncommitted: bool
) -> AsyncIterator[list[FileStatus]]:
    """`entry_pages` as callers see them."""
    async for page in entry_pages(volume, path, recursive=recursive, include_uncommitted=include_uncommitted):
        yield [FileStatus.of(entry) for entry in page]


async def find_pages(volume: LookedAt, path: str, wanted: Filter) -> AsyncIterator[list[FileStatus]]:
    """What is below a directory (or a file itself) and meets the filter, in pages."""
    root = path if path == ROOT else path + "/"
    async for page in entry_pages(volume, path, recursive=True, include_uncommitted=False):
        if found := wanted.select(page, root):
            yield found


async def walk_pages(volume: LookedAt, path: str) -> AsyncIterator[list[Walked]]:
    """Every directory from `path` down with its children, each after the one it is in. A page is one directory."""
    start = await existing(volume.store, path)
    if not start.is_dir:
        return

    def below(walked: Walked) -> list[AsyncIterator[Walked]]:
        return [_directory(volume, status.path) for status in reversed(walked[1])]

    async for walked in merge([_directory(volume, path)], limit=DIRECTORIES, expand=below):
        yield [walked]


async def _directory(volume: LookedAt, path: str) -> AsyncIterator[Walked]:
    entries = [entry async for page in volume.store.children(path) for entry in page if not entry.is_reservation]
    shown = [FileStatus.of(entry) for entry in sorted(entries, key=lambda entry: entry.path)]
    yield path, [status for status in shown if status.is_dir], [status for status in shown if status.is_file]


def arrow_schema() -> pa.Schema:
    """Columns of a listing's record batches.

    `path` and `id` text; `is_dir`; `size` in bytes, 0 for directories; `mtime` and `ctime` in UTC milliseconds;
    `version`; `committed`; `etag` and `checksum`, empty if unknown; `physical`, null for directories and reservations.
    """
    import pyarrow as pa

    time = pa.timestamp("ms", tz="UTC")
    return pa.schema(
        [
            pa.field("path", pa.string(), nullable=False),
            pa.field("is_dir", pa.bool_(), nullable=False),
            pa.field("size", pa.int64(), nullable=False),
            pa.field("mtime", time, nullable=False),
            pa.field("ctime", time, nullable=False),
            pa.field("id", pa.string(), nullable=False),
            pa.field("version", pa.int64(), nullable=False),
            pa.field("committed", pa.bool_(), nullable=False),
            pa.field("etag", pa.string(), nullable=False),
            pa.field("checksum", pa.string(), nullable=False),
            pa.field("physical", pa.string()),
        ]
    )


async def record_batches(pages: AsyncIterable[Sequence[FileStatus]]) -> AsyncIterator[pa.RecordBatch]:
    """Pages as record batches of the schema `arrow_schema`."""
    schema = arrow_schema()
    rows: list[FileStatus] = []
    async for page in pages:
        rows += page
        if len(rows) >= BATCH_ROWS:
            yield _batch(rows, schema)
            rows = []
    if rows:
        yield _batch(rows, schema)


def _batch(rows: Sequence[FileStatus], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [
        [row.path for row in rows],
        [row.is_dir for row in rows],
        [row.size for row in rows],
        [row.mtime_ms for row in rows],
        [row.ctime_ms for row in rows],
        [row.id for row in rows],
        [row.version for row in rows],
        [row.committed for row in rows],
        [row.etag for row in rows],
        [row.checksum for row in rows],
        [row.physical for row in rows],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _relative(path: str, root: str) -> str:
    return path[len(root) :] or _name(path)
