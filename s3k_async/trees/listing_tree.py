"""A listing in a file, as `s3k ls -R -o` writes it, as a tree without contents."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from s3k_async._core.object_version import digest_in
from s3k_async._core.worker_threads import in_thread
from s3k_async._native import normalize
from s3k_async.bulk.file_writes import NewFile
from s3k_async.bulk.local_tree import local_errors
from s3k_async.bulk.publish import is_below
from s3k_async.errors import (
    InvalidArgumentError,
    InvalidPathError,
    NotDirectoryError,
    PathNotFoundError,
    UnsupportedError,
)
from s3k_async.model import ROOT
from s3k_async.trees.file_tree import Skipped, TreeEntry, TreePlace
from s3k_async.trees.path_sort import PathSort, with_directories
from s3k_async.volumes.volume import Volume

__all__ = ["EXTENSIONS", "ListingTree"]

EXTENSIONS: Final = (".jsonl", ".parquet")
"""Extensions of listings: JSON lines, and Parquet."""
READ: Final = 10_000
"""Entries that are read in one turn of a worker thread."""

_Row = dict[str, Any]


class ListingTree:
    """The entries of a listing at or below a directory, `root`: JSON lines with `path`, `type`,
    `size` and optionally `mtime_ms`, `etag` and `checksum`, in any order, or Parquet with the
    columns of `s3k_async.arrow_schema`. It is sorted in memory, or, if it is long, in a temporary
    file."""

    lists_directories = True
    is_local = False
    has_contents = False

    def __init__(self, file: str | os.PathLike[str], root: str = "/") -> None:
        self.file = os.fspath(file)
        self.root = normalize(root)

    def __repr__(self) -> str:
        return f"<ListingTree {self.label}>"

    @property
    def label(self) -> str:
        """The file, with the directory in it."""
        return self.full_name("")

    @property
    def places(self) -> Sequence[TreePlace]:
        """The file."""
        return [TreePlace("listing", os.path.realpath(self.file))]

    def full_name(self, path: str) -> str:
        """The path of an entry, with the file."""
        return f"{self.file}:{normalize(f'{self.root}/{path}')}"

    async def exists(self) -> bool:
        """Whether the file exists; `entries` checks the directory in it."""
        return await in_thread(os.path.isfile, self.file)

    async def entries(self, skipped: Skipped) -> AsyncGenerator[TreeEntry, None]:
        """Everything below the directory. Raises InvalidArgumentError (no listing, or a path occurs
        twice), PathNotFoundError (the directory is not in the listing) and NotDirectoryError (it is
        a file)."""
        with PathSort() as sorter:
            rows = self._rows()
            # A listing of a directory has no row for the directory itself.
            is_present = self.root == ROOT or not await in_thread(self._has_rows)
            while batch := await in_thread(lambda: list(islice(rows, READ))):
                is_present = True
                if any(not entry.path and not entry.is_dir for entry in batch):
                    raise NotDirectoryError("a file in the listing", path=self.label)
                await in_thread(sorter.add, [entry for entry in batch if entry.path])
            if not is_present:
                raise PathNotFoundError("no such directory in the listing", path=self.label)
            found = with_directories(
                self._distinct(sorter.pages()),
                lambda path, error: skipped(self.full_name(path), error),
            )
            while (page := await in_thread(next, found, None)) is not None:
                for entry in page:
                    yield entry

    async def content(self, entry: TreeEntry) -> AsyncGenerator[bytes, None]:
        """Raises UnsupportedError."""
        raise self._without_contents(entry)
        yield b""

    def new_file(
        self,
        entry: TreeEntry,
        volume: Volume,  # noqa: ARG002
        path: str,  # noqa: ARG002
        *,
        overwrite: bool = True,  # noqa: ARG002
    ) -> NewFile:
        """Raises UnsupportedError."""
        raise self._without_contents(entry)

    def _without_contents(self, entry: TreeEntry) -> UnsupportedError:
        return UnsupportedError(
            "a listing has no contents, and no checksum of this file: give the tree itself",
            path=self.full_name(entry.path),
        )

    def _has_rows(self) -> bool:
        return next(self._read(), None) is not None

    def _read(self) -> Iterator[_Row]:
        return self._parquet() if self.file.endswith(".parquet") else self._lines()

    def _rows(self) -> Iterator[TreeEntry]:
        for number, row in enumerate(self._read(), start=1):
            entry = self._entry(row, number)
            if entry is not None:
                yield entry

    def _lines(self) -> Iterator[_Row]:
        with local_errors(self.file), open(self.file, "rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise self._wrong(number, f"not JSON: {error}") from error
                if not isinstance(row, dict):
                    raise self._wrong(number, "not an object with path, type and size")
                yield row

    def _parquet(self) -> Iterator[_Row]:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile

        columns = ["path", "is_dir", "size", "mtime", "etag", "checksum"]
        try:
            with local_errors(self.file), ParquetFile(self.file) as file:
                if not pa.types.is_timestamp(file.schema_arrow.field("mtime").type):
                    raise KeyError("mtime")
                for batch in file.iter_batches(columns=columns):
                    for row in batch.to_pylist():
                        kind = "directory" if row["is_dir"] else "file"
                        mtime = row["mtime"]
                        time = None if mtime is None else round(mtime.timestamp() * 1000)
                        yield {**row, "type": kind, "mtime_ms": time}
        except (pa.ArrowException, KeyError) as error:
            raise InvalidArgumentError(
                f"not a listing in Parquet ({error}): s3k ls -R -o writes one", path=self.file
            ) from error

    def _entry(self, row: _Row, number: int) -> TreeEntry | None:
        """An entry of the listing, with an empty path for the directory itself; None for one
        outside of the directory."""
        path, kind, size, time = (row.get(name) for name in ("path", "type", "size", "mtime_ms"))
        is_valid = (
            isinstance(path, str)
            and kind in ("file", "directory")
            and isinstance(size, int)
            and (time is None or isinstance(time, int))
        )
        if not is_valid:
            raise self._wrong(number, "not an object with path, type and size")
        assert isinstance(path, str)
        try:
            place = normalize(path)
        except InvalidPathError as error:
            raise self._wrong(number, error.message) from error
        if place == self.root:
            return TreeEntry("", kind == "directory")
        if not is_below(place, self.root):
            return None
        relative = place[len(self.root.rstrip("/")) + 1 :]
        if kind == "directory":
            return TreeEntry(relative, True)
        etag, checksum = (str(row.get(name) or "") for name in ("etag", "checksum"))
        return TreeEntry(relative, False, int(size or 0), time, etag, digest_in(checksum))

    def _distinct(self, pages: Iterator[Sequence[TreeEntry]]) -> Iterator[Sequence[TreeEntry]]:
        last = ""
        for page in pages:
            for entry in page:
                if entry.path == last:
                    raise InvalidArgumentError(
                        f"a path occurs twice: {normalize(f'{self.root}/{last}')}", path=self.file
                    )
                last = entry.path
            yield page

    def _wrong(self, number: int, reason: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"line {number:,}: {reason}", path=self.file)
