"""The filesystem, for asyncio."""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, Unpack, overload
from weakref import WeakSet

import anyio

from s3k_async import _native
from s3k_async._core.active_calls import call
from s3k_async._core.metering import RequestCounter, Requests, counted, counting
from s3k_async._native import Xxh3_128
from s3k_async.addresses import SCHEME, Path, inside
from s3k_async.bulk.path_verbs import ManyPaths
from s3k_async.bulk.publish import ProgressCallback, ProgressTally, copy, is_below, touch, write
from s3k_async.bulk.staged_uploads import StagedUploads
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ClosedClientError,
    ConflictError,
    ForkedClientError,
    InvalidArgumentError,
    PathNotFoundError,
    PermissionDeniedError,
    RenameIntoSelfError,
    UnsupportedError,
    WrongLoopError,
)
from s3k_async.file_ranges import existing, need_readable, need_same, read_file, read_spans
from s3k_async.files import FileReader, FileWriter, Opening, check_mode, open_reader, open_writer
from s3k_async.listing import (
    EntryType,
    Filter,
    Listing,
    Walked,
    find_pages,
    glob_pages,
    list_pages,
    record_batches,
    summary,
    walk_pages,
)
from s3k_async.metadata.conflict_backoff import ConflictBackoff
from s3k_async.metadata.txn_record import TransactionRecord
from s3k_async.model import ROOT, ChangeResult, ContentSummary, Entry, FileStatus, status_of
from s3k_async.physical_files import PhysicalPaths
from s3k_async.storage.upload import CHECKSUM_PREFIX
from s3k_async.stores.blobs import Buffer
from s3k_async.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from s3k_async.settings.keywords import Settings
    from s3k_async.volumes import Volume

__all__ = ["HURRY", "SCHEME", "Path", "S3kClient", "volume_text"]

T = TypeVar("T")

HURRY = 2.0
"""Seconds that calls under way are given at most when the client is left by an exception."""

Pages: TypeAlias = AsyncIterator[list[T]]


@dataclass(frozen=True, slots=True)
class _Opened:
    volume: Volume
    loop: asyncio.AbstractEventLoop
    pid: int


class S3kClient(ManyPaths, StagedUploads, PhysicalPaths):
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
        self._writers: WeakSet[FileWriter] = WeakSet()
        self._transactions: WeakSet[Transaction] = WeakSet()
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
        self._need_loop(opened)
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
                        opened.volume.calls.hurry()
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
                await self._drop_unfinished()
            await calls.ended()
        finally:
            self._opened = None
            await opened.volume.close()

    async def _drop_unfinished(self) -> None:
        """Drop the files that are still being written, and the transactions that are not over."""
        name = volume_text(self._config)
        for writer in list(self._writers):
            if not writer.over:
                message = f"the client of {name} was closed before the file was"
                await writer._fail(ClosedClientError(message, path=writer.name))
        for transaction in list(self._transactions):
            message = (
                "the client was closed before the transaction's end; nothing of it has happened"
            )
            await transaction._fail(ClosedClientError(message, path=name))

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
        return _each(self._list_pages(path, Listing(recursive, include_uncommitted, sorted)))

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
        return volume.calls.stream(record_batches(listing.pages(volume, self._path(path))))

    def walk(self, path: Path = ROOT) -> AsyncIterator[Walked]:
        """Each directory from `path` down, as (path, directories in it, files in it), parents
        before children.

        The children of one directory are sorted by name and held in memory. A file yields nothing.
        Raises PathNotFoundError.
        """
        return _each(self._walk_pages(path))

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
        return _each(
            self._find_pages(
                path,
                pattern=pattern,
                type=type,
                min_size=min_size,
                max_size=max_size,
                newer_than=newer_than,
                older_than=older_than,
            )
        )

    def glob(self, pattern: str) -> AsyncIterator[FileStatus]:
        """What matches a pattern of `*`, `?`, `[..]`, `**` and `{a,b}`, each once, in no order.

        See `s3k_async.globbing`. Only directories in which something can match are listed. Raises
        InvalidArgumentError.
        """
        return _each(self._glob_pages(pattern))

    @call
    async def content_summary(self, path: Path) -> ContentSummary:
        """Bytes, files and directories of a subtree, itself included; files being written count for
        nothing.

        Raises PathNotFoundError.
        """
        return await summary(self._volume(), self._path(path))

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
        volume = self._volume()
        entry = await existing(volume.store, self._path(path))
        need_readable(entry)
        if entry.checksum:
            return entry.checksum
        digest = Xxh3_128()
        async with FileReader(self._volume, entry) as reader:
            async for chunk in reader:
                digest.update(chunk)
        return CHECKSUM_PREFIX + digest.hexdigest()

    @call
    async def physical_path(self, path: Path) -> str:
        """The URI of a file's bytes: `s3://bucket/key`, `file:///...`.

        Raises PathNotFoundError, IsDirectoryError, UncommittedFileError.
        """
        volume = self._volume()
        entry = await existing(volume.store, self._path(path))
        need_readable(entry)
        return volume.storage.uri(entry.physical or "")

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
        for start, end in ranges:
            if not 0 <= start <= end:
                raise InvalidArgumentError(
                    f"[{start}, {end}) is not a byte range", path=self._path(path)
                )
        return (await read_spans(self._volume(), self._path(path), ranges))[1]

    @call
    async def write(self, path: Path, data: Buffer, *, overwrite: bool = True) -> FileStatus:
        """Make `data` the file at a path, in one step, with missing parents; of racing writers the
        last one wins.

        Raises PathExistsError (not `overwrite`), IsDirectoryError, NotDirectoryError (the path
        leads through a file), NoSpaceError, OutcomeUnknownError.
        """
        return status_of(await write(self._volume(), self._path(path), data, overwrite=overwrite))

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
            return Opening(lambda: self._open_reader(place))
        return Opening(lambda: self._open_writer(place, exclusive=mode == "xb"))

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
        self._volume()
        transaction = Transaction(self._volume, self._path, self._writers)
        self._transactions.add(transaction)
        return transaction

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
        volume = self._volume()
        old, new = self._path(source), self._path(target)
        entry = await existing(volume.store, old)
        if entry.is_dir:
            if is_below(new, old):
                raise RenameIntoSelfError(
                    "the target is the directory itself or below it", path=new
                )
            tree = volume.atomic if atomic else volume.tree
            moved = await tree.rename(entry, new, progress=progress)
            return moved.raise_for_failures(path=old)
        if new == old:
            return ChangeResult()
        tally = ProgressTally("rename", progress)
        tally.add(await volume.store.rename_file(entry, new, overwrite=overwrite))
        return tally.result

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
        volume, place = self._volume(), self._path(path)
        if place == ROOT:
            raise PermissionDeniedError("the root cannot be deleted", path=place)
        race = ConflictBackoff(volume.store)
        while True:
            try:
                entry = await existing(volume.store, place)
                if expected is not None:
                    need_same(expected, entry)
                try:
                    return await self._delete(volume, entry, recursive, atomic, progress)
                except ConflictError as error:
                    await race.lost(error)
            except PathNotFoundError:
                if missing_ok:
                    return ChangeResult()
                raise

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
        there = other._volume()
        with there.calls.running():
            return await copy(
                self._volume(),
                self._path(source),
                there,
                other._path(target),
                overwrite=overwrite,
                recursive=recursive,
                progress=progress,
            )

    # Pages, from which the blocking client reads too

    def _list_pages(self, path: Path, listing: Listing) -> Pages[FileStatus]:
        return self._volume().calls.stream(list_pages(self._volume(), self._path(path), listing))

    def _walk_pages(self, path: Path) -> Pages[Walked]:
        return self._volume().calls.stream(walk_pages(self._volume(), self._path(path)))

    def _find_pages(self, path: Path, **conditions: Any) -> Pages[FileStatus]:
        return self._volume().calls.stream(
            find_pages(self._volume(), self._path(path), Filter(**conditions))
        )

    def _glob_pages(self, pattern: str) -> Pages[FileStatus]:
        return self._volume().calls.stream(glob_pages(self._volume(), self._inside(pattern)))

    # Ours

    async def _delete(
        self,
        volume: Volume,
        entry: Entry,
        recursive: bool,
        atomic: bool,
        progress: ProgressCallback | None,
    ) -> ChangeResult:
        with volume.freeing_space():
            if entry.is_dir and recursive:
                tree = volume.atomic if atomic else volume.tree
                deleted = await tree.delete(entry, progress=progress)
                return deleted.raise_for_failures(path=entry.path)
            store = volume.store
            await (store.remove_directory(entry) if entry.is_dir else store.delete_file(entry))
        tally = ProgressTally("delete", progress)
        tally.add(entry)
        return tally.result

    @call
    async def _open_reader(self, path: str) -> FileReader:
        return await open_reader(self._volume, path)

    @call
    async def _open_writer(self, path: str, *, exclusive: bool) -> FileWriter:
        writer = await open_writer(self._volume, path, exclusive=exclusive)
        self._writers.add(writer)
        return writer

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
        self._need_loop(opened)
        return opened.volume

    def _need_loop(self, opened: _Opened) -> None:
        if asyncio.get_running_loop() is not opened.loop:
            raise WrongLoopError("the client belongs to another event loop", path=self.name)

    def _path(self, path: Path) -> str:
        return _native.normalize(self._inside(path))

    def _inside(self, path: Path) -> str:
        return inside(path, self.name)


def volume_text(config: VolumeConfig) -> str:
    """The volume in messages: its name, or the place of its table while nobody knows the name."""
    return config.name or config.table.label


def _unpickled(cls: type[S3kClient], config: VolumeConfig) -> S3kClient:
    from s3k_async.settings import with_local_secrets

    return cls(config=with_local_secrets(config))


async def _each(pages: Pages[T]) -> AsyncIterator[T]:
    async for page in pages:
        for value in page:
            yield value
