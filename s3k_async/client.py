"""The filesystem, for asyncio."""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

import anyio

from s3k_async import _native
from s3k_async._core.active_calls import call
from s3k_async._core.metering import RequestCounter, Requests, counted, counting
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk.adoption import adopt_many
from s3k_async.bulk.file_reads import exists_many, read_each, read_many, stat_many
from s3k_async.bulk.file_writes import write_many
from s3k_async.bulk.path_changes import delete, delete_many, rename, rename_many
from s3k_async.bulk.publish import ProgressCallback, copy, touch, write
from s3k_async.bulk.staged_uploads import StagedWriter, discard_staged, open_staged
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ArgumentTypeError,
    ClosedClientError,
    ForkedClientError,
    S3kError,
    UnsupportedError,
    WrongLoopError,
)
from s3k_async.files.file_ranges import read_file, read_ranges
from s3k_async.files.open_files import (
    FileReader,
    FileWriter,
    Opening,
    check_mode,
    checksum,
    open_reader,
    open_writer,
)
from s3k_async.listing.listings import (
    EntryType,
    Filter,
    Listing,
    PagedIterator,
    Walked,
    find_pages,
    glob_pages,
    list_pages,
    record_batches,
    summary,
    walk_pages,
)
from s3k_async.listing.physical_files import PhysicalFile, physical_pages, physical_path
from s3k_async.model import (
    ROOT,
    ChangeResult,
    ContentSummary,
    Entry,
    FileStatus,
    StagedFile,
    status_of,
)
from s3k_async.namespace.addresses import SCHEME, Path, inside
from s3k_async.namespace.entry_reader import existing
from s3k_async.transaction import Transaction
from s3k_async.txn.txn_record import TransactionRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from s3k_async.settings.keywords import Settings
    from s3k_async.volumes import Volume

__all__ = ["HURRY", "SCHEME", "Path", "S3kClient", "reader_of", "volume_of", "volume_text"]

T = TypeVar("T")

HURRY = 2.0
"""Seconds that calls under way are given at most when the client is left by an exception."""


@dataclass(frozen=True, slots=True)
class _Opened:
    volume: Volume
    loop: asyncio.AbstractEventLoop
    pid: int


class S3kClient:
    """A volume as a filesystem, for asyncio. Used by `async with`, by the event loop and process
    that entered it.

    `volume` is `s3k://name`, `./directory`, or None for `S3K_VOLUME` and then the configured
    default; `config` is a complete `VolumeConfig` (then nothing else is given) or a configuration
    file's path; `context` and `hadoop` are a context id and a mapping in S3-FileSystem 1.0's keys;
    `session` is an aioboto3 session, or a mapping of `table`, `data` and `log` to one each; other
    settings are the options of `s3k_async.settings`. Raises ConfigError.

    Paths are `Path`s; times are epoch milliseconds, sizes bytes. Every method may raise
    InvalidPathError, CrossVolumeError (the URL of another volume), ClosedClientError (not entered,
    or closed), WrongLoopError (another event loop), ForkedClientError (entered in a parent
    process), ReadOnlyVolumeError for changes, BusyError while others move or delete what is needed,
    and the services' errors. A pickled client is its configuration without secrets, which are
    looked for anew where it arrives, and has to be entered anew.
    """

    def __init__(
        self,
        volume: Path | None = None,
        *,
        config: VolumeConfig | Path | None = None,
        context: str | None = None,
        hadoop: Mapping[str, object] | None = None,
        session: object | Mapping[str, object] | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        from s3k_async.settings import resolve

        self._config = resolve(volume, config=config, context=context, hadoop=hadoop, **settings)
        self._session = session
        self._opened: _Opened | None = None
        self._counter = RequestCounter()
        self._closed: asyncio.Event | None = None
        """While it is being closed: set when that is over."""

    def __repr__(self) -> str:
        return f"<S3kClient {self.name!r} {'closed' if self._opened is None else 'open'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self._config)

    @property
    def name(self) -> str:
        """The volume's name, which its URL has; of an embedded volume it may be empty before the
        client is entered."""
        return self.config.name

    @property
    def config(self) -> VolumeConfig:
        """What the client opens; once it is entered, with what the volume record decides filled
        in."""
        return self._config if self._opened is None else self._opened.volume.config

    @property
    def closed(self) -> bool:
        """Whether the client is not entered now."""
        return self._opened is None or self._closed is not None

    @property
    def requests(self) -> Requests:
        """What the client asked of the services since it was made, opening and deferred work
        included."""
        return self._counter.requests

    def count(self) -> AbstractContextManager[RequestCounter]:
        """Count what this client asks of the services for the body of a `with`, tasks that it
        starts included.

            with client.count() as counted:
                async for status in client.list("/raw"): ...
            print(counted.requests)

        What is done for it after the caller was answered (`Requests.deferred`) is counted when it
        happens.
        """
        return counting(self._counter)

    async def __aenter__(self) -> Self:
        await self.open_volume()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = self.config.tuning.close_timeout
        await self.close(timeout=seconds if kind is None else min(seconds, HURRY))

    async def open_volume(self) -> None:
        """What entering the client does, for callers that cannot; `close` ends it.

        Raises VolumeNotFoundError, NotAVolumeError, VolumeFormatError, VolumeMismatchError,
        UnsupportedError (it is open already).
        """
        from s3k_async.volumes import open_volume

        if self._opened is not None and self._opened.pid == os.getpid():
            raise UnsupportedError("the client is already open; create another one", path=self.name)
        volume = await open_volume(self._config, session=self._session, counter=self._counter)
        self._opened = _Opened(volume, asyncio.get_running_loop(), os.getpid())

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - bounds a part of it
        """Wait for the calls that are under way and for the operation log, then release connections
        and files.

        Further calls raise ClosedClientError at once. Calls that run longer than `timeout` seconds
        (None: the setting `close_timeout`) are cancelled: each raises ClosedClientError, and then
        has changed nothing, or OutcomeUnknownError. What is still being written, or in a
        transaction, is dropped, not published. A cancellation is raised when the client is closed;
        it shortens the wait to nothing, and a second one that for what was cancelled. Harmless when
        called again, and in a forked child, which has nothing open.
        """
        opened = self._opened
        if opened is None or opened.pid != os.getpid():
            return
        calls = self._volume().calls  # raises WrongLoopError
        if self._closed is not None:
            await self._closed.wait()
            return
        self._closed = asyncio.Event()
        seconds = opened.volume.config.tuning.close_timeout if timeout is None else timeout
        closing = asyncio.create_task(self._close(opened, seconds))
        cancelled: asyncio.CancelledError | None = None
        try:
            with anyio.CancelScope(shield=True):
                while not closing.done():
                    try:
                        await asyncio.wait({closing})
                    except asyncio.CancelledError as error:
                        if cancelled is not None:
                            closing.cancel()
                        cancelled = error
                        calls.hurry()
        finally:
            self._opened = None
            self._closed.set()
            self._closed = None
        if cancelled is not None:
            if not closing.cancelled():
                closing.exception()
            raise cancelled
        closing.result()

    async def _close(self, opened: _Opened, seconds: float) -> None:
        calls = opened.volume.calls
        try:
            await calls.finish(seconds)
            with calls.own():
                await calls.drop_unfinished(volume_text(self._config))
            await calls.ended()
        finally:
            self._opened = None
            await opened.volume.close()

    # Looking

    @call
    async def stat(self, path: Path) -> FileStatus:
        """What is at a path; for a file that is being written for the first time, `committed` is
        False.

        Raises PathNotFoundError.
        """
        return status_of(await existing(self._volume().store, self._path(path)))

    @call
    async def exists(self, path: Path) -> bool:
        """Whether something is at the path, a file that is being written included."""
        return await self._volume().store.get(self._path(path)) is not None

    @call
    async def is_file(self, path: Path) -> bool:
        """Whether a file is at the path, one that is being written included."""
        entry = await self._volume().store.get(self._path(path))
        return entry is not None and not entry.is_dir

    @call
    async def is_dir(self, path: Path) -> bool:
        """Whether a directory is at the path."""
        entry = await self._volume().store.get(self._path(path))
        return entry is not None and entry.is_dir

    def list(
        self,
        path: Path = ROOT,
        *,
        recursive: bool = False,
        include_uncommitted: bool = False,
        sorted: bool = False,
    ) -> AsyncIterator[FileStatus]:
        """What is in a directory, or with `recursive` all that is below it; of a file, the file
        itself.

        What existed for the whole call comes exactly once; memory is bounded. Of up to 50,000
        entries, an atomic change of many is seen wholly or not at all, and the first comes when all
        were read. In no order, or `sorted` by name (by UTF-8 bytes), with each directory followed
        by what is in it. Raises PathNotFoundError.
        """
        listing = Listing(recursive, include_uncommitted, sorted)
        return self._values(list_pages(self._volume().store, self._path(path), listing))

    def list_batches(
        self,
        path: Path = ROOT,
        *,
        recursive: bool = False,
        include_uncommitted: bool = False,
        sorted: bool = False,
    ) -> AsyncIterator[pa.RecordBatch]:
        """As `list`, in Arrow record batches of the schema `s3k_async.arrow_schema`.

        No Python object is made for an entry. Raises PathNotFoundError.
        """
        volume = self._volume()
        listing = Listing(recursive, include_uncommitted, sorted)
        return volume.calls.stream(record_batches(listing.pages(volume.store, self._path(path))))

    def walk(self, path: Path = ROOT) -> AsyncIterator[Walked]:
        """Each directory from `path` down, as (path, directories in it, files in it), parents
        before children.

        The children of one directory are sorted by name and held in memory. A file yields nothing.
        Raises PathNotFoundError.
        """
        return self._values(walk_pages(self._volume().store, self._path(path)))

    def find(
        self,
        path: Path = ROOT,
        *,
        pattern: str | None = None,
        type: EntryType | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
        newer_than: int | datetime | None = None,
        older_than: int | datetime | None = None,
    ) -> AsyncIterator[FileStatus]:
        """What is below a directory and meets every condition given.

        `pattern` is a glob over the name, or, if it has a `/`, over the path relative to `path`;
        `min_size` and `max_size` are inclusive and met by files only; `newer_than` and `older_than`
        are exclusive modification times, epoch milliseconds or an aware `datetime`. Raises
        PathNotFoundError, InvalidArgumentError.
        """
        wanted = Filter(pattern, type, min_size, max_size, newer_than, older_than)
        return self._values(find_pages(self._volume().store, self._path(path), wanted))

    def glob(self, pattern: str) -> AsyncIterator[FileStatus]:
        """What matches a pattern of `*`, `?`, `[..]`, `**` and `{a,b}`, each once, in no order.

        See `s3k_async.listing.globbing`. Only directories in which something can match are listed.
        Raises InvalidArgumentError.
        """
        return self._values(glob_pages(self._volume().store, inside(pattern, self.name)))

    @call
    async def content_summary(self, path: Path) -> ContentSummary:
        """Bytes, files and directories of a subtree, itself included; files being written count for
        nothing.

        Raises PathNotFoundError.
        """
        return await summary(self._volume().store, self._path(path))

    @call
    async def jobs(self) -> builtins.list[TransactionRecord]:
        """Changes of many entries that are under way, or whose owner died. Raises
        ItemFormatError."""
        return [record async for record in self._volume().store.jobs.records()]

    @call
    async def checksum(self, path: Path) -> str:
        """`xxh128:` and 32 hex digits: XXH3 of 128 bits over a file's bytes, computed now if it was
        not recorded.

        Raises PathNotFoundError, IsDirectoryError, UncommittedFileError, DataMissingError,
        CorruptDataError.
        """
        return await checksum(self._volume(), self._path(path))

    @call
    async def physical_path(self, path: Path) -> str:
        """The URI of a file's bytes: `s3://bucket/key`, `file:///...`.

        Raises PathNotFoundError, IsDirectoryError, UncommittedFileError.
        """
        return await physical_path(self._volume(), self._path(path))

    def physical_paths(
        self, path: Path = ROOT, *, recursive: bool = True
    ) -> AsyncIterator[PhysicalFile]:
        """The committed files below a directory, or without `recursive` in it, or a file itself,
        with the URIs of their bytes and the values in the `name=value` directories between.

            files = [file async for file in client.physical_paths("/sales")]
            spark.read.parquet(*[file.uri for file in files])

        The files are those of a listing, which sees an atomic change of many wholly or not at all
        (`list`); their bytes stay for the grace period of garbage collection, whatever becomes of
        the files. Raises PathNotFoundError.
        """
        return self._values(
            physical_pages(self._volume(), self._path(path), Listing(recursive=recursive))
        )

    # Reading and writing

    @call
    async def read(self, path: Path) -> bytes:
        """A whole file, its size and checksum verified.

        Raises PathNotFoundError, IsDirectoryError, UncommittedFileError, DataMissingError,
        CorruptDataError.
        """
        return await read_file(self._volume(), self._path(path))

    @call
    async def read_ranges(
        self, path: Path, ranges: Sequence[tuple[int, int]]
    ) -> builtins.list[bytes]:
        """The bytes [start, end) of each range, cut at the end of the file, all of one version,
        several at once.

        Raises InvalidArgumentError (a negative start, or an end before the start), and as `read`.
        """
        return await read_ranges(self._volume(), self._path(path), ranges)

    @call
    async def stat_many(self, paths: Iterable[Path]) -> builtins.list[FileStatus | None]:
        """What is at each path, in the order of the paths; None where nothing is.

        The same path may come several times. Raises the errors of the table, for all paths
        together.
        """
        return await stat_many(self._volume(), self._paths(paths))

    @call
    async def exists_many(self, paths: Iterable[Path]) -> builtins.list[bool]:
        """Whether something is at each path, in the order of the paths, files that are being
        written included.

        Raises as `stat_many`.
        """
        return await exists_many(self._volume(), self._paths(paths))

    @call
    async def read_many(self, paths: Iterable[Path]) -> builtins.list[bytes]:
        """Whole files, in the order of the paths, each as `read` gives it, size and checksum
        verified.

        Up to 64 files are read at once, and no more than 64 MiB of them (a longer file alone); the
        result holds all of them. Every file is tried; PartialFailureError, whose `failures` are the
        paths with what `read` would raise for them, is raised at the end. A path that comes several
        times is read once. Errors of the table that leave all entries unknown are raised as
        themselves.
        """
        return await read_many(self._volume(), self._paths(paths))

    @call
    async def read_each(self, paths: Iterable[Path]) -> builtins.list[bytes | S3kError]:
        """As `read_many`, with the error of a file that could not be read in its place.

        Errors of the table that leave all entries unknown are raised.
        """
        return await read_each(self._volume(), self._paths(paths))

    @call
    async def write(self, path: Path, data: Buffer, *, overwrite: bool = True) -> FileStatus:
        """Make `data` the file at a path, in one step, with missing parents; of racing writers the
        last one wins.

        Raises PathExistsError (not `overwrite`), IsDirectoryError, NotDirectoryError (the path
        leads through a file), NoSpaceError, OutcomeUnknownError.
        """
        return status_of(await write(self._volume(), self._path(path), data, overwrite=overwrite))

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

    @overload
    def open(self, path: Path, mode: Literal["rb"] = ...) -> Opening[FileReader]: ...
    @overload
    def open(self, path: Path, mode: Literal["wb", "xb"]) -> Opening[FileWriter]: ...
    @overload
    def open(self, path: Path, mode: str) -> Opening[FileReader] | Opening[FileWriter]: ...
    def open(self, path: Path, mode: str = "rb") -> Opening[FileReader] | Opening[FileWriter]:
        """A file: `rb` to read, `wb` to write, `xb` to create.

        It is entered with `async with`, or awaited. A new path is reserved when the file is opened
        and published when it is closed; until then readers of an existing file see the old bytes.
        Raises UnsupportedError (`ab`, `r+`, text); when opened PathNotFoundError, PathExistsError
        (`xb`), IsDirectoryError, NotDirectoryError, UncommittedFileError.
        """
        place = self._path(path)
        check_mode(mode, place)
        self._volume()
        if mode == "rb":
            return Opening(lambda: open_reader(self._volume, place))
        return Opening(lambda: open_writer(self._volume, place, exclusive=mode == "xb"))

    def stage(self) -> Opening[StagedWriter]:
        """Upload bytes that `Transaction.publish` makes a file, here or in another process; for
        `with`.

            async with client.stage() as file:
                await file.write(data)
            send(file.staged)

        Staged bytes are in no listing, and neither in the table nor in the log. They must be
        published within `Tuning.lease` of the opening of the file; after the grace period garbage
        collection removes the others. After an exception or `discard` nothing remains. Raises
        ReadOnlyVolumeError.
        """
        self._volume().store.require_writable(ROOT)
        return Opening(lambda: open_staged(self._volume))

    @call
    async def discard_staged(self, staged: Iterable[StagedFile]) -> None:
        """Drop the bytes of uploads that will not be published; those that are gone are fine.

        Only for files that are certainly unpublished, so not after OutcomeUnknownError: garbage
        collection decides about those. Raises InvalidArgumentError (another volume's),
        ReadOnlyVolumeError, PartialFailureError (with the keys that could not be dropped, which
        garbage collection removes).
        """
        await discard_staged(self._volume(), staged)

    @call
    async def touch(self, path: Path) -> FileStatus:
        """Create an empty file, or give a file a new version whose modification time is now.

        Raises IsDirectoryError, NotDirectoryError, UncommittedFileError.
        """
        return status_of(await touch(self._volume(), self._path(path)))

    # Changing the tree

    def transaction(self) -> Transaction:
        """Several changes that happen together or not at all, for `with`; see `Transaction`.

            async with client.transaction() as tx:
                await tx.write("/out/part-0", data)
                await tx.delete("/out/part-of-yesterday")

        What is raised inside leaves everything as it was.
        """
        return Transaction(self._volume, self._path)

    @call
    async def makedirs(self, path: Path, *, exist_ok: bool = True) -> FileStatus:
        """Make a directory and its missing parents.

        Raises PathExistsError (a file is there; or a directory, unless `exist_ok`),
        NotDirectoryError.
        """
        store = self._volume().store
        return status_of(await store.make_directory(self._path(path), exist_ok=exist_ok))

    @call
    @counted
    async def rename(
        self,
        source: Path,
        target: Path,
        *,
        overwrite: bool = False,
        atomic: bool = True,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Move a file or a directory; no bytes are copied, and readers see all of it or nothing.

        The target's parent must exist. An existing target is refused, unless it is a file, the
        source is one too, and `overwrite`. A file renamed to itself stays. What is raised has
        changed nothing, but for OutcomeUnknownError: all of it, or nothing. Without `atomic` a
        directory is moved entry by entry, by about half as many writes; interrupted, or after
        PartialFailureError, the same call finishes it. Raises PathNotFoundError, PathExistsError,
        NotDirectoryError, RenameIntoSelfError (a directory to itself or below itself),
        UncommittedFileError (also where a new file below is being written), BusyError.
        """
        return await rename(
            self._volume(),
            self._path(source),
            self._path(target),
            overwrite=overwrite,
            atomic=atomic,
            progress=progress,
        )

    @call
    @counted
    async def delete(
        self,
        path: Path,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        atomic: bool = True,
        expected: FileStatus | None = None,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Remove a file, an empty directory, or, with `recursive`, a directory and everything below
        it, atomically.

        The data is left to garbage collection, so that open readers can continue. A call that
        raises has changed nothing; after OutcomeUnknownError, all or nothing. Without `atomic` a
        directory is removed entry by entry; after an interruption or PartialFailureError, repeat
        the call to finish it. With `expected`, a result of `stat` or a listing, only that version
        of a file, or that directory, is removed, by a conditional write.
        Raises PathNotFoundError (unless `missing_ok`), DirectoryNotEmptyError,
        PermissionDeniedError (the root), ConflictError (not what is `expected`), BusyError.
        """
        return await delete(
            self._volume(),
            self._path(path),
            recursive=recursive,
            missing_ok=missing_ok,
            atomic=atomic,
            expected=expected,
            progress=progress,
        )

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
            self._volume(),
            pairs,
            self._path,
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
        return await delete_many(
            self._volume(),
            paths,
            self._path,
            recursive=recursive,
            missing_ok=missing_ok,
            progress=progress,
        )

    @call
    async def copy(
        self,
        source: Path,
        target: Path,
        *,
        overwrite: bool = False,
        recursive: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Copy a file, or with `recursive` a directory, inside the service where it can.

        Missing parents are made. With `overwrite` files are replaced and an existing directory is
        filled up. Raises PathNotFoundError, PathExistsError (not `overwrite`), IsDirectoryError,
        NotDirectoryError, RenameIntoSelfError (a directory below itself), UncommittedFileError,
        DataMissingError, CorruptDataError, PartialFailureError.
        """
        return await self.copy_to(
            self, source, target, overwrite=overwrite, recursive=recursive, progress=progress
        )

    @call
    @counted
    async def copy_to(
        self,
        other: S3kClient,
        source: Path,
        target: Path,
        *,
        overwrite: bool = False,
        recursive: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Copy from this volume to a path of another client's volume.

        Bytes go through this process unless both volumes are in one service that can copy between
        them. Raises as `copy`.
        """
        return await copy(
            self._volume(),
            self._path(source),
            volume_of(other),
            _native.normalize(inside(target, other.name)),
            overwrite=overwrite,
            recursive=recursive,
            progress=progress,
        )

    # Internal

    def _values(self, pages: AsyncIterator[builtins.list[T]]) -> PagedIterator[T]:
        return PagedIterator(self._volume().calls.stream(pages))

    def _volume(self) -> Volume:
        opened = self._opened
        if opened is None:
            raise ClosedClientError(
                "the client is not open: use it inside `async with`", path=volume_text(self.config)
            )
        if opened.pid != os.getpid():
            raise ForkedClientError(
                "the client was opened in a parent process; open a new one", path=self.name
            )
        if asyncio.get_running_loop() is not opened.loop:
            raise WrongLoopError("the client belongs to another event loop", path=self.name)
        return opened.volume

    def _path(self, path: Path) -> str:
        if isinstance(path, str) and path[:1] == "/":
            return _native.normalize(path)  # as most are given: no URL, nothing to look up
        return _native.normalize(inside(path, self.name))

    def _paths(self, paths: Iterable[Path]) -> builtins.list[str]:
        if isinstance(paths, str | bytes):
            raise ArgumentTypeError("a list of paths is wanted, not one path")
        return [self._path(path) for path in paths]


def volume_of(client: S3kClient) -> Volume:
    """The open volume of a client, for modules that work on it directly. Raises ClosedClientError,
    ForkedClientError, WrongLoopError."""
    return client._volume()  # noqa: SLF001 - hidden from users


def reader_of(client: S3kClient, entry: Entry) -> FileReader:
    """The file of an entry that was read before: nothing is asked. Raises IsDirectoryError,
    UncommittedFileError."""
    return FileReader(partial(volume_of, client), entry)


def volume_text(config: VolumeConfig) -> str:
    """The volume in messages: its name, or the place of its table while nobody knows the name."""
    return config.name or config.table.label


def _unpickled(cls: type[S3kClient], config: VolumeConfig) -> S3kClient:
    from s3k_async.settings import with_local_secrets

    return cls(config=with_local_secrets(config))
