"""Hadoop's `FileSystem` over the client."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import NoReturn

from s3k_async._core import paths
from s3k_async._core.concurrency import gather
from s3k_async.adapters.hadoop.builders import CreateFlag, OpenFileBuilder, OutputStreamBuilder
from s3k_async.adapters.hadoop.file_attributes import FileAttributes
from s3k_async.adapters.hadoop.glob import Component, components, expand
from s3k_async.adapters.hadoop.status import (
    BlockLocation,
    HadoopContentSummary,
    HadoopFileStatus,
    HadoopLocatedFileStatus,
    locate,
)
from s3k_async.adapters.hadoop.streams import HadoopInputStream, HadoopOutputStream
from s3k_async.errors import (
    DirectoryNotEmptyError,
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    RenameIntoSelfError,
    UnsupportedError,
)
from s3k_async.model import ROOT, FileStatus

__all__ = ["CreateFlag", "HadoopFileSystem", "PathFilter"]

LOOKUPS = 16
"""Concurrent listings and lookups of one glob."""

_LOG = logging.getLogger(__name__)

PathFilter = Callable[[str], bool]
"""Filter of paths, given as URLs."""


class HadoopFileSystem(FileAttributes):
    """A volume with the interface of Hadoop's `FileSystem`.

    Paths are `s3k://<volume>/a/b`, `/a/b`, or relative to the working directory. Every method
    raises CrossVolumeError (a ValueError) for another scheme or volume. Hadoop's IOException is an
    OSError here.
    """

    # Lookups

    async def get_file_status(self, path: str) -> HadoopFileStatus:
        """The status of a file or directory. Raises PathNotFoundError."""
        return self._status(await self._client.stat(self._local(path)))

    async def exists(self, path: str) -> bool:
        """Whether the path exists, files that are being written included."""
        return await self._client.exists(self._local(path))

    async def is_file(self, path: str) -> bool:
        """Whether the path is a file."""
        return await self._client.is_file(self._local(path))

    async def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        return await self._client.is_dir(self._local(path))

    async def list_status(
        self, path: str, path_filter: PathFilter | None = None
    ) -> list[HadoopFileStatus]:
        """The children of a directory by name, or the file itself; all in memory. Raises
        PathNotFoundError."""
        found = [status async for status in self._children(self._local(path))]
        return self._shown(sorted(found, key=lambda status: status.path), path_filter)

    async def list_status_iterator(self, path: str) -> AsyncIterator[HadoopFileStatus]:
        """As `list_status`, one page in memory at a time, in no order. Raises when the iteration
        starts."""
        async for status in self._children(self._local(path)):
            yield self._status(status)

    async def list_located_status(
        self, path: str, path_filter: PathFilter | None = None
    ) -> AsyncIterator[HadoopLocatedFileStatus]:
        """As `list_status_iterator`, with block locations."""
        async for status in self._children(self._local(path)):
            if path_filter is None or path_filter(self._url(status.path)):
                yield self._located(status)

    async def list_files(
        self, path: str, recursive: bool
    ) -> AsyncIterator[HadoopLocatedFileStatus]:
        """The files of a directory, with `recursive` of its subtree, or the file itself; in no
        order.

        Raises PathNotFoundError when the iteration starts.
        """
        async for status in self._children(self._local(path), recursive=recursive):
            if status.is_file:
                yield self._located(status)

    async def glob_status(
        self, pattern: str, path_filter: PathFilter | None = None
    ) -> list[HadoopFileStatus] | None:
        """The matches of a pattern (Hadoop's syntax: `glob.py`), by path.

        None if the pattern has no special characters and the path does not exist. Raises
        InvalidArgumentError for a malformed pattern.
        """
        inside = self._inside(pattern)
        patterns = [components(expanded) for expanded in expand(inside)]
        found = {
            status.path: status for pattern in patterns for status in await self._glob(pattern)
        }
        if (
            not found
            and len(patterns) == 1
            and all(component.pattern is None for component in patterns[0])
        ):
            return None
        return self._shown([found[path] for path in sorted(found)], path_filter)

    async def get_content_summary(self, path: str) -> HadoopContentSummary:
        """Totals of a file or subtree; files being written count for nothing. Raises
        PathNotFoundError."""
        summary = await self._client.content_summary(self._local(path))
        return HadoopContentSummary(
            summary.length, summary.file_count, summary.directory_count, summary.length
        )

    async def get_file_block_locations(
        self, path: str, start: int, length: int
    ) -> tuple[BlockLocation, ...]:
        """Locations of a part of a file; none for a directory. Raises PathNotFoundError,
        InvalidArgumentError for a negative start or length.
        """
        found = await self._client.stat(self._local(path))
        return () if found.is_dir else locate(found.size, start, length)

    # Reads and writes

    async def open(self, path: str) -> HadoopInputStream:
        """Open a file for reading. Raises PathNotFoundError (a directory as well),
        UncommittedFileError."""
        local = self._local(path)
        try:
            reader = await self._client.open(local, "rb")
        except IsDirectoryError as error:
            raise PathNotFoundError("a directory is at the path, not a file", path=local) from error
        return HadoopInputStream(reader)

    def open_file(self, path: str) -> OpenFileBuilder:
        """A builder of `open`."""
        return OpenFileBuilder(path, self.make_qualified(path), self.open)

    async def create(self, path: str, overwrite: bool = True) -> HadoopOutputStream:
        """Create a file and its missing parents; the content becomes visible when the stream is
        closed.

        The path of a new file exists at once, with length 0. Raises PathExistsError (a file and not
        `overwrite`, a directory in any case), IsDirectoryError (the root), NotDirectoryError (the
        path leads through a file).
        """
        local = self._local(path)
        if local == ROOT:
            raise IsDirectoryError("the root is a directory", path=local)
        try:
            writer = await self._client.open(local, "wb" if overwrite else "xb")
        except IsDirectoryError as error:
            raise PathExistsError("a directory is at the path", path=local) from error
        return HadoopOutputStream(writer)

    def create_file(self, path: str) -> OutputStreamBuilder:
        """A builder of `create`."""
        self.check_path(path)
        return OutputStreamBuilder(path, self)

    async def create_non_recursive(
        self, path: str, flags: CreateFlag = CreateFlag.CREATE
    ) -> HadoopOutputStream:
        """Create or replace a file whose parent must be a directory.

        CREATE: the file must not exist, unless OVERWRITE or APPEND is set too; OVERWRITE or APPEND
        alone: it must. Raises as `create` and `append`, and PathNotFoundError (no parent; nothing
        to overwrite), NotDirectoryError (the parent is a file), InvalidArgumentError (none of the
        three, or both OVERWRITE and APPEND).
        """
        local = self._local(path)
        if local == ROOT:
            raise IsDirectoryError("the root is a directory", path=local)
        if not flags & (CreateFlag.CREATE | CreateFlag.OVERWRITE | CreateFlag.APPEND):
            raise InvalidArgumentError(
                f"neither CREATE nor OVERWRITE nor APPEND in {flags}", path=local
            )
        if CreateFlag.APPEND in flags and CreateFlag.OVERWRITE in flags:
            raise InvalidArgumentError("both OVERWRITE and APPEND", path=local)
        await self._need_directory(paths.split(local)[0])
        if CreateFlag.CREATE not in flags:
            await self._client.stat(local)
        if CreateFlag.APPEND in flags:
            return HadoopOutputStream(await self._client.open(local, "ab"))
        return await self.create(local, overwrite=CreateFlag.OVERWRITE in flags)

    async def append(self, path: str) -> HadoopOutputStream:
        """Open an existing file to add bytes at its end, which become visible together when the
        stream is closed.

        Raises PathNotFoundError, IsDirectoryError, UnsupportedError (an adopted file, or a volume
        without extents); on closing ConflictError (the file was removed, renamed or replaced).
        """
        local = self._local(path)
        if (await self._client.stat(local)).is_dir:
            raise IsDirectoryError("a directory cannot be appended to", path=local)
        return HadoopOutputStream(await self._client.open(local, "ab"))

    async def concat(self, path: str, sources: Iterable[str]) -> None:
        """Append files to an existing file, and remove them, in one transaction.

        Raises InvalidArgumentError (no source, or a file that is named twice), PathNotFoundError,
        IsDirectoryError.
        """
        local, others = self._local(path), [self._local(source) for source in sources]
        if not others:
            raise InvalidArgumentError("there is nothing to append", path=local)
        await self._client.concat(local, others)

    async def truncate(self, path: str, length: int) -> bool:
        """Cut a file off at a length, which is no more than it has; True, since the file can be
        used at once.

        Raises PathNotFoundError, IsDirectoryError, InvalidArgumentError (a length that is negative,
        or more than that of the file).
        """
        local = self._local(path)
        status = await self._client.stat(local)
        if status.is_file and length > status.size:
            raise InvalidArgumentError(
                f"the file has {status.size} bytes, fewer than {length}", path=local
            )
        await self._client.truncate(local, length)
        return True

    async def create_symlink(self, target: str, link: str, create_parent: bool) -> NoReturn:
        """Not supported. Raises UnsupportedError."""
        self._unsupported("symbolic links", self._local(link))

    # Changes of the tree

    async def mkdirs(self, path: str) -> bool:
        """Make a directory and its missing parents; True also if it exists.

        Raises PathExistsError (the path is a file), NotDirectoryError (the path leads through a
        file).
        """
        await self._client.makedirs(self._local(path))
        return True

    async def delete(self, path: str, recursive: bool) -> bool:
        """Delete a file or directory; False for a missing path, and for the root, which is kept. In
        layout `tree`, `recursive` moves a directory into the trash.

        Raises DirectoryNotEmptyError (not `recursive`), PartialFailureError (the same call again
        continues).
        """
        local = self._local(path)
        if local == ROOT:
            return await self._refuse_root(recursive)
        try:
            await self._client.delete(local, recursive=recursive)
        except PathNotFoundError:
            return False
        return True

    async def rename(self, source: str, target: str) -> bool:
        """Move a file or a directory, atomically.

        An existing directory as target receives the source beneath it. False if the target is an
        existing file, or the path beneath the target directory exists. True for a path renamed to
        itself, without effect. The partial result of an interrupted rename that was not atomic is
        completed.

        Raises PathNotFoundError (no source; no parent of the target), NotDirectoryError (that
        parent is a file), RenameIntoSelfError (the root, or a target below the source),
        UncommittedFileError, BusyError.
        """
        old, new = self._local(source), self._local(target)
        if old == new:
            await self._client.stat(old)
            return True
        if old == ROOT or new.startswith(old + "/"):
            raise RenameIntoSelfError("the target is below the source", path=new)
        found = await self._client.stat(old)
        place = await self._rename_place(found, new)
        if place is None:
            return False
        try:
            await self._client.rename(old, place)
        except PathExistsError:
            return False
        return True

    async def close(self) -> None:
        """Close the client. Idempotent."""
        await self._client.close()

    # Internals

    def _status(self, status: FileStatus) -> HadoopFileStatus:
        return HadoopFileStatus.of(status, self._url(status.path), *self._ownership(status))

    def _located(self, status: FileStatus) -> HadoopLocatedFileStatus:
        return HadoopLocatedFileStatus.of(status, self._url(status.path), *self._ownership(status))

    def _shown(
        self, found: Iterable[FileStatus], path_filter: PathFilter | None
    ) -> list[HadoopFileStatus]:
        shown = map(self._status, found)
        return [status for status in shown if path_filter is None or path_filter(status.path)]

    async def _find(self, local: str) -> FileStatus | None:
        try:
            return await self._client.stat(local)
        except PathNotFoundError:
            return None

    def _children(self, local: str, *, recursive: bool = False) -> AsyncIterator[FileStatus]:
        return self._client.list(local, recursive=recursive, include_uncommitted=True)

    async def _need_directory(self, local: str) -> None:
        if not (await self._client.stat(local)).is_dir:
            raise NotDirectoryError("the parent is a file", path=local)

    async def _refuse_root(self, recursive: bool) -> bool:
        if not recursive:
            children = self._children(ROOT)
            first = await anext(children, None)
            if isinstance(children, AsyncGenerator):
                await children.aclose()
            if first is not None:
                raise DirectoryNotEmptyError(
                    "the root is not empty, and is never deleted", path=ROOT
                )
        _LOG.warning("delete of the root of %s refused", self.get_uri())
        return False

    async def _rename_place(self, source: FileStatus, target: str) -> str | None:
        """The new path of the source in a rename to `target`, or None if another entry has it."""
        existing = await self._find(target)
        if existing is None:
            await self._need_directory(paths.split(target)[0])
            return target
        if existing.is_file:
            return None
        if existing.id == source.id:
            return target
        beneath = paths.join(target, source.name)
        taken = await self._find(beneath)
        if taken is None or (taken.is_dir and taken.id == source.id and beneath != source.path):
            return beneath
        return None

    async def _glob(self, pattern: list[Component]) -> list[FileStatus]:
        """The matches of the components. Literal ones are not looked up one by one: a listing or a
        final lookup decides whether they exist."""
        places = [ROOT]
        found: list[FileStatus] | None = None
        for component in pattern:
            if component.pattern is None:
                places = [paths.join(place, component.literal) for place in places]
                found = None
                continue
            if found is not None:
                places = [status.path for status in found if status.is_dir]
            found = [
                status
                for listing in await gather(self._listing, places, limit=LOOKUPS)
                for status in listing
                if component.matches(status.name)
            ]
            places = [status.path for status in found]
        if found is not None:
            return found
        return [
            status
            for status in await gather(self._find, places, limit=LOOKUPS)
            if status is not None
        ]

    async def _listing(self, place: str) -> list[FileStatus]:
        """The children of a directory; none for other paths."""
        try:
            return [status async for status in self._children(place) if status.path != place]
        except PathNotFoundError:
            return []

    def _unsupported(self, what: str, local: str) -> NoReturn:
        raise UnsupportedError(f"{what}: not supported by this file system", path=local)
