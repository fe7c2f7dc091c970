"""A local directory as a tree."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import islice

from s3k_async._core.concurrency import run_all
from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk import local_tree
from s3k_async.bulk.file_writes import LARGE, NewFile, written_alone
from s3k_async.bulk.local_tree import LocalEntry
from s3k_async.bulk.transfer import CHUNK, FILES, local_file
from s3k_async.errors import (
    ConflictError,
    InvalidPathError,
    NotDirectoryError,
    PathNotFoundError,
    S3kError,
    UnsupportedError,
)
from s3k_async.trees.file_tree import (
    FailedFile,
    FileTree,
    Skipped,
    TreeEntry,
    TreePlace,
    WrittenFile,
)
from s3k_async.volumes.volume import Volume

__all__ = ["DirectoryTree"]

SCANNED = 1000
"""Entries that are scanned in one turn of a worker thread."""


class DirectoryTree:
    """A local directory, which need not exist. Links to files are files; links to directories,
    special files and names that are not UTF-8 are skipped."""

    lists_directories = True
    is_local = True
    has_contents = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.expanduser(os.fspath(root))

    def __repr__(self) -> str:
        return f"<DirectoryTree {self.label}>"

    @property
    def label(self) -> str:
        """The directory as given."""
        return self.root

    @property
    def places(self) -> Sequence[TreePlace]:
        """The directory without symbolic links."""
        return [TreePlace("", os.path.realpath(self.root))]

    def full_name(self, path: str) -> str:
        """The local path of an entry."""
        return os.path.join(self.root, path) if path else self.root

    async def exists(self) -> bool:
        """Whether the directory exists."""
        return await in_thread(self._exists)

    def _exists(self) -> bool:
        root = place = os.path.abspath(self.root)
        while not os.path.lexists(place):
            place = os.path.dirname(place)
        if os.path.isdir(place):
            return place == root
        reason = "a tree is a directory; s3k put copies single files"
        raise NotDirectoryError(
            reason if place == root else f"the path leads through a file, {place}", path=self.label
        )

    async def entries(self, skipped: Skipped) -> AsyncGenerator[TreeEntry, None]:
        """Everything below the directory."""
        if not await self.exists():
            raise PathNotFoundError("no such local directory", path=self.label)
        failures: list[tuple[str, Exception]] = []
        found = local_tree.in_order(self.root, failures)
        batch: Sequence[LocalEntry] = [LocalEntry("", True)]
        while batch:
            batch = await in_thread(_scanned, found)
            # Before the entries that follow: these show that something is missing.
            for path, failure in failures:
                assert isinstance(failure, S3kError)
                skipped(path, failure)
            failures.clear()
            for each in batch:
                try:
                    entry = _tree_entry(each)
                except UnicodeEncodeError:
                    name = repr(os.fsencode(self.full_name(each.path)))
                    skipped(name, InvalidPathError("the name of a local file is not UTF-8"))
                else:
                    yield entry

    async def content(self, entry: TreeEntry) -> AsyncGenerator[bytes, None]:
        """The bytes of the file."""
        place = self.full_name(entry.path)
        async with local_tree.opened(place) as (descriptor, _):
            start = 0
            while piece := await local_tree.read_piece(descriptor, place, start, CHUNK):
                yield piece
                start += len(piece)

    def new_file(
        self, entry: TreeEntry, volume: Volume, path: str, *, overwrite: bool = True
    ) -> NewFile:
        """An upload of the file."""
        file = local_file(volume, self.full_name(entry.path), path, entry.size)
        file = replace(file, mtime_ms=entry.mtime_ms)
        return written_alone(volume, file, overwrite=overwrite) if entry.size >= LARGE else file

    async def make_directory(self, source: FileTree, entry: TreeEntry) -> None:  # noqa: ARG002
        """A directory with the permissions of a new one."""
        place = self.full_name(entry.path)
        if entry.path:
            await in_thread(self._need_inside, place)
        await in_thread(local_tree.make_directory, place)

    async def copy_files(
        self,
        source: FileTree,
        files: AsyncIterable[TreeEntry],
        *,
        overwrite: bool = True,
        done: WrittenFile,
        failed: FailedFile,
    ) -> None:
        """Each file appears complete, or not at all; a link to a file is kept, and the file is
        replaced."""

        async def write(entry: TreeEntry) -> None:
            try:
                size = await self._write(source, entry, overwrite)
            except S3kError as error:
                failed(entry, error)
            else:
                done(entry, size)

        await run_all(write, files, limit=FILES)

    async def remove_listed(self, entries: Sequence[TreeEntry], *, failed: FailedFile) -> None:
        """Removals of files that have the size and modification time that was listed. Of a link to
        a file, the link."""
        for entry in entries:
            try:
                await in_thread(self._remove, entry)
            except S3kError as error:
                failed(entry, error)

    async def _write(self, source: FileTree, entry: TreeEntry, overwrite: bool) -> int:
        place = self.full_name(entry.path)
        above = os.path.dirname(place)
        await in_thread(self._need_inside, above)
        await in_thread(local_tree.make_directory, above)
        size = 0
        async with (
            local_tree.appearing(place, overwrite=overwrite) as descriptor,
            aclosing(source.content(entry)) as pieces,
        ):
            async for piece in pieces:
                await local_tree.write_piece(descriptor, place, piece)
                size += len(piece)
            if entry.mtime_ms is not None:
                times = entry.mtime_ns or entry.mtime_ms * 1_000_000
                os.utime(descriptor, ns=(times, times))
        return size

    def _need_inside(self, directory: str) -> None:
        """Raise UnsupportedError if a link below the root leads elsewhere."""
        root = os.path.realpath(self.root)
        wanted = os.path.normpath(os.path.join(root, os.path.relpath(directory, self.root)))
        if os.path.realpath(directory) != wanted:
            raise UnsupportedError(
                "a link to a directory is not followed: remove it, or exclude it", path=directory
            )

    def _remove(self, entry: TreeEntry) -> None:
        place = self.full_name(entry.path)
        self._need_inside(os.path.dirname(place))
        with local_tree.local_errors(place):
            if entry.is_dir:
                os.rmdir(place)
                return
            found = os.stat(place)
            is_same = (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime_ns)
            if not is_same or not stat.S_ISREG(found.st_mode):
                raise ConflictError(
                    "the local file was changed since it was listed, and was kept", path=place
                )
            os.unlink(place)


def _scanned(found: Iterator[LocalEntry]) -> list[LocalEntry]:
    return list(islice(found, SCANNED))


def _tree_entry(found: LocalEntry) -> TreeEntry:
    found.path.encode()
    if found.is_dir:
        return TreeEntry(found.path, True)
    return TreeEntry(
        found.path,
        False,
        found.size,
        found.mtime_ns // 1_000_000,
        mtime_ns=found.mtime_ns,
    )
