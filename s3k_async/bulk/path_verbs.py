"""The client's verbs on lists of paths: batched metadata requests, parallel reads under one memory
budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from s3k_async._core.active_calls import call
from s3k_async._core.concurrency import ByteBudget, run_all
from s3k_async._core.metering import counted
from s3k_async.bulk.adoption import adopt_many
from s3k_async.bulk.file_writes import write_many
from s3k_async.bulk.path_changes import delete_many, rename_many
from s3k_async.bulk.publish import ProgressCallback
from s3k_async.errors import ArgumentTypeError, PartialFailureError, PathNotFoundError, S3kError
from s3k_async.file_ranges import read_file, read_version
from s3k_async.model import ChangeResult, Entry, FileStatus, status_of
from s3k_async.stores.blobs import Buffer

if TYPE_CHECKING:
    from s3k_async.client import Path
    from s3k_async.volumes.volume import Volume

__all__ = ["ManyPaths"]

Found: TypeAlias = Entry | S3kError | None

FILES = 64
"""Files of one call that are read at the same time."""
IN_FLIGHT = 64 * 1024 * 1024
"""Bytes of one call that are asked for at the same time; a longer file is read alone."""


class ManyPaths:
    """What a client does with a list of paths. Nothing is a snapshot: each path is looked at by
    itself.

    A path that cannot be one raises InvalidPathError or CrossVolumeError before anything is asked
    for, as each verb for one path does; what is no list of paths, ArgumentTypeError. Entries are
    read 100 in a request.
    """

    @call
    async def stat_many(self, paths: Iterable[Path]) -> list[FileStatus | None]:
        """What is at each path, in the order of the paths; None where nothing is.

        The same path may come several times. Raises the errors of the table, for all paths
        together.
        """
        entries = await self._volume().store.get_many(self._paths(paths))
        return [None if entry is None else status_of(entry) for entry in entries]

    @call
    async def exists_many(self, paths: Iterable[Path]) -> list[bool]:
        """Whether something is at each path, in the order of the paths, files that are being
        written included.

        Raises as `stat_many`.
        """
        entries = await self._volume().store.get_many(self._paths(paths))
        return [entry is not None for entry in entries]

    @call
    async def read_many(self, paths: Iterable[Path]) -> list[bytes]:
        """Whole files, in the order of the paths, each as `read` gives it, size and checksum
        verified.

        Up to 64 files are read at once, and no more than 64 MiB of them (a longer file alone); the
        result holds all of them. Every file is tried; PartialFailureError, whose `failures` are the
        paths with what `read` would raise for them, is raised at the end. A path that comes several
        times is read once. Errors of the table that leave all entries unknown are raised as
        themselves.
        """
        places = self._paths(paths)
        read = await _read_all(self._volume(), list(dict.fromkeys(places)))
        failures = [(place, data) for place, data in read.items() if isinstance(data, S3kError)]
        if failures:
            raise PartialFailureError(
                f"{len(failures)} of {len(read)} files could not be read", failures=failures
            ) from failures[0][1]
        return [data for place in places if isinstance(data := read[place], bytes)]

    @call
    async def read_each(self, paths: Iterable[Path]) -> list[bytes | S3kError]:
        """As `read_many`, with the error of a file that could not be read in its place.

        Errors of the table that leave all entries unknown are raised.
        """
        places = self._paths(paths)
        read = await _read_all(self._volume(), list(dict.fromkeys(places)))
        return [read[place] for place in places]

    @call
    @counted
    async def write_many(
        self, files: Iterable[tuple[Path, Buffer]], *, overwrite: bool = True
    ) -> ChangeResult:
        """Write a list of (path, data), up to a hundred entries in a request, with missing parents
        made once.

        Each file is there or not by itself, as `write` does it; the order is not kept. What fails
        is listed in the result and keeps no other from being written; a path that is named twice is
        refused with InvalidArgumentError. Raises ArgumentTypeError for what is no list of pairs.
        """
        return await write_many(self._volume(), files, self._path, overwrite=overwrite)

    @call
    @counted
    async def adopt_many(
        self,
        pairs: Iterable[tuple[Path, str]],
        *,
        overwrite: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Make objects in the volume's data location files by a list of (path, URI), without
        copying them.

        Each is adopted by itself, as `Transaction.adopt` does it, up to a hundred entries in a
        request, with missing parents made once; the order is not kept. The list is taken a thousand
        pairs at a time. What fails is listed in the result by its path and keeps no other from
        being adopted; what is adopted at its path already is left as it is and not counted, so that
        the same list can be finished later. Of pairs that name one path, or one object, within a
        thousand all are refused with InvalidArgumentError; further apart, each is taken as it
        comes. Raises ArgumentTypeError for what is no list of pairs.
        """
        return await adopt_many(
            self._volume(), pairs, self._path, overwrite=overwrite, progress=progress
        )

    @call
    @counted
    async def rename_many(
        self,
        pairs: Iterable[tuple[Path, Path]],
        *,
        overwrite: bool = False,
        missing_ok: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Rename by a list of (source, target), up to 50 files in a request; the result lists what
        failed.

        Each pair is renamed as `rename` does it: files first, then directories in the order of the
        list. A pair that fails is listed by its source and keeps no other from being done. Pairs
        that share a path, as (a, b) and (b, c) do, are refused with InvalidArgumentError, all of
        them: what they lead to would depend on their order, and on how far an earlier call had
        come. With `missing_ok` a pair whose source is gone is done if something is at its target,
        so that the same list can be finished later. Raises ArgumentTypeError for what is no list of
        pairs.
        """
        return await rename_many(
            self._volume().store,
            pairs,
            self._path,
            lambda source, target: self.rename(source, target, overwrite=overwrite),
            overwrite=overwrite,
            missing_ok=missing_ok,
            progress=progress,
        )

    @call
    @counted
    async def delete_many(
        self,
        paths: Iterable[Path],
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Remove what is at the paths, up to 100 files in a request; the result lists what failed.

        Each is removed as `delete` does it: files first, then directories, the deepest first. A
        path that fails is listed and keeps no other from being done; a path that is named twice
        counts once. Raises ArgumentTypeError for what is no list.
        """
        volume = self._volume()
        with volume.freeing_space():
            return await delete_many(
                volume.store,
                paths,
                self._path,
                lambda path: self.delete(path, recursive=recursive, missing_ok=missing_ok),
                missing_ok=missing_ok,
                progress=progress,
            )

    def _paths(self, paths: Iterable[Path]) -> list[str]:
        if isinstance(paths, str | bytes):
            raise ArgumentTypeError("a list of paths is wanted, not one path")
        return [self._path(path) for path in paths]

    async def rename(self, source: Path, target: Path, *, overwrite: bool = False) -> ChangeResult:
        raise NotImplementedError

    async def delete(
        self, path: Path, *, recursive: bool = False, missing_ok: bool = False
    ) -> ChangeResult:
        raise NotImplementedError

    def _volume(self) -> Volume:
        raise NotImplementedError

    def _path(self, path: Path) -> str:
        raise NotImplementedError


async def _read_all(volume: Volume, paths: list[str]) -> dict[str, bytes | S3kError]:
    """The bytes or the error of each path."""
    budget = ByteBudget(IN_FLIGHT)
    read: dict[str, bytes | S3kError] = dict.fromkeys(paths, b"")

    async def one(found: tuple[str, Found]) -> None:
        path, entry = found
        try:
            read[path] = await _read_one(volume, path, entry, budget)
        except S3kError as error:
            read[path] = error

    await run_all(one, zip(paths, await volume.store.get_each(paths), strict=True), limit=FILES)
    return read


async def _read_one(volume: Volume, path: str, entry: Found, budget: ByteBudget) -> bytes:
    if isinstance(entry, S3kError):
        raise entry
    if entry is None:
        raise PathNotFoundError("no such file or directory", path=path)
    async with budget.hold(entry.size):
        found = await read_version(volume, entry)
        # Replaced, and its bytes collected, since the entries were read.
        return await read_file(volume, path) if found is None else found
