"""The blocking client: the verbs of `S3kClient` over one event loop in a thread of this process."""

from __future__ import annotations

import asyncio
import builtins
import os
import weakref
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, Unpack, overload

from s3k_async._core.metering import RequestCounter, Requests
from s3k_async._sync.loop_thread import Bridge, current_bridge
from s3k_async._sync.sync_files import SyncFileReader, SyncFileWriter, SyncStagedWriter
from s3k_async._sync.sync_transaction import SyncTransaction
from s3k_async.bulk.publish import ProgressCallback
from s3k_async.bulk.staged_uploads import StagedWriter
from s3k_async.client import HURRY, Path, S3kClient, volume_text
from s3k_async.config import VolumeConfig
from s3k_async.errors import ClosedClientError, S3kError
from s3k_async.files import FileReader, FileWriter
from s3k_async.listing import EntryType, Listing, Walked
from s3k_async.metadata.txn_record import TransactionRecord
from s3k_async.model import (
    ROOT,
    ChangeResult,
    ContentSummary,
    Entry,
    FileStatus,
    StagedFile,
)
from s3k_async.physical_files import PhysicalFile
from s3k_async.stores.blobs import Buffer
from s3k_async.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from s3k_async.settings.keywords import Settings

__all__ = ["S3kSyncClient"]

T = TypeVar("T")

PagesOf: TypeAlias = Callable[[S3kClient], AsyncIterator[Sequence[T]]]


class _Session:
    """An async client of this process, opened on the bridge's loop when it is first needed."""

    def __init__(self, config: VolumeConfig, aws: object) -> None:
        self.pid = os.getpid()
        self.bridge: Bridge = current_bridge()
        self.client = S3kClient(config=config, session=aws)
        self._opening = asyncio.Lock()

    async def opened(self) -> S3kClient:
        """The client, open."""
        if self.client.closed:
            async with self._opening:
                if self.client.closed:
                    await self.client.open_volume()
                    seconds = min(HURRY, self.client.config.tuning.close_timeout)
                    self.bridge.register(self, partial(self.close, timeout=seconds))
        return self.client

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - bounds a part of it
        """Close the client; it opens again if it is used again."""
        async with self._opening:
            self.bridge.unregister(self)
            await self.client.close(timeout=timeout)


class S3kSyncClient:
    """A volume as a filesystem, blocking. The same verbs and parameters as `S3kClient`.

    It opens at the first call, or by `with`, and closes at the end of `with`, by `close`, or when
    the interpreter exits. Any number of threads may use it, running event loops in the caller do
    not matter, and a forked or spawned child that has it opens the volume for itself. A call from a
    callback of its own (progress) raises WrongLoopError; Ctrl-C cancels the call under way. A
    pickled client is its configuration without secrets, which are looked for anew where it arrives.

    Every method may raise InvalidPathError, CrossVolumeError (the URL of another volume),
    ClosedClientError, ReadOnlyVolumeError for changes, BusyError while others move or delete what
    is needed, and the services' errors; the first call also what `open_volume` raises.
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
        self._aws = session
        self._closed = False
        self._sessions: dict[int, _Session] = {}

    def __repr__(self) -> str:
        return f"<S3kSyncClient {self.name!r} {'closed' if self._closed else 'open'}>"

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
        session = self._sessions.get(os.getpid())
        return self._config if session is None else session.client.config

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    @property
    def requests(self) -> Requests:
        """What the client asked of the services since it was made, opening and deferred work
        included.

        In this process: a forked child counts anew.
        """
        session = self._sessions.get(os.getpid())
        return Requests() if session is None else session.client.requests

    def count(self) -> AbstractContextManager[RequestCounter]:
        """Count what this client asks of the services for the body of a `with`, tasks that it
        starts included.

        Other threads count for themselves.
        """
        return self._session().client.count()

    def __enter__(self) -> Self:
        self.open_volume()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = self.config.tuning.close_timeout
        self.close(timeout=seconds if kind is None else min(seconds, HURRY))

    def open_volume(self) -> None:
        """What entering the client does, for callers that cannot; `close` ends it.

        Harmless when it is open. Raises VolumeNotFoundError, NotAVolumeError, VolumeFormatError,
        VolumeMismatchError.
        """
        self._closed = False
        session = self._session()
        session.bridge.run(session.opened)

    def close(self, *, timeout: float | None = None) -> None:
        """Wait for the calls that are under way and for the operation log, then release connections
        and files.

        The calls are those of other threads. Further calls raise ClosedClientError at once. Calls
        that run longer than `timeout` seconds (None: the setting `close_timeout`) are cancelled:
        each raises ClosedClientError, and then has changed nothing, or OutcomeUnknownError. What is
        still being written, or in a transaction, is dropped, not published. Harmless when called
        again, and in a forked child, which has nothing open.
        """
        self._closed = True
        session = self._sessions.get(os.getpid())
        if session is not None:
            session.bridge.run(lambda: session.close(timeout=timeout))

    # Looking

    def stat(self, path: Path) -> FileStatus:
        """What is at a path; for a file that is being written for the first time, `committed` is
        False.

        Raises PathNotFoundError.
        """
        return self._call(lambda fs: fs.stat(path))

    def exists(self, path: Path) -> bool:
        """Whether something is at the path, a file that is being written included."""
        return self._call(lambda fs: fs.exists(path))

    def is_file(self, path: Path) -> bool:
        """Whether a file is at the path, one that is being written included."""
        return self._call(lambda fs: fs.is_file(path))

    def is_dir(self, path: Path) -> bool:
        """Whether a directory is at the path."""
        return self._call(lambda fs: fs.is_dir(path))

    def list(
        self,
        path: Path = ROOT,
        *,
        recursive: bool = False,
        include_uncommitted: bool = False,
        sorted: bool = False,
    ) -> Iterator[FileStatus]:
        """What is in a directory, or with `recursive` all that is below it; of a file, the file
        itself.

        What existed for the whole call comes exactly once; memory is bounded. Of up to 50,000
        entries, an atomic change of many is seen wholly or not at all, and the first comes when all
        were read. In no order, or `sorted` by name (by UTF-8 bytes), with each directory followed
        by what is in it. Raises PathNotFoundError.
        """
        listing = Listing(recursive, include_uncommitted, sorted)
        return self._iterate(lambda fs: fs._list_pages(path, listing))

    def list_batches(
        self,
        path: Path = ROOT,
        *,
        recursive: bool = False,
        include_uncommitted: bool = False,
        sorted: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """As `list`, in Arrow record batches of the schema `s3k_async.arrow_schema`.

        No Python object is made for an entry. Raises PathNotFoundError.
        """

        async def pages(fs: S3kClient) -> AsyncIterator[Sequence[pa.RecordBatch]]:
            async for batch in fs.list_batches(
                path,
                recursive=recursive,
                include_uncommitted=include_uncommitted,
                sorted=sorted,
            ):
                yield [batch]

        return self._iterate(pages)

    def walk(self, path: Path = ROOT) -> Iterator[Walked]:
        """Each directory from `path` down, as (path, directories in it, files in it), parents
        before children.

        The children of one directory are sorted by name and held in memory. A file yields nothing.
        Raises PathNotFoundError.
        """
        return self._iterate(lambda fs: fs._walk_pages(path))

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
    ) -> Iterator[FileStatus]:
        """What is below a directory and meets every condition given.

        `pattern` is a glob over the name, or, if it has a `/`, over the path relative to `path`;
        `min_size` and `max_size` are inclusive and met by files only; `newer_than` and `older_than`
        are exclusive modification times, epoch milliseconds or an aware `datetime`. Raises
        PathNotFoundError, InvalidArgumentError.
        """
        return self._iterate(
            lambda fs: fs._find_pages(
                path,
                pattern=pattern,
                type=type,
                min_size=min_size,
                max_size=max_size,
                newer_than=newer_than,
                older_than=older_than,
            )
        )

    def glob(self, pattern: str) -> Iterator[FileStatus]:
        """What matches a pattern of `*`, `?`, `[..]`, `**` and `{a,b}`, each once, in no order.

        See `s3k_async.globbing`. Only directories in which something can match are listed. Raises
        InvalidArgumentError.
        """
        return self._iterate(lambda fs: fs._glob_pages(pattern))

    def content_summary(self, path: Path) -> ContentSummary:
        """Bytes, files and directories of a subtree, itself included; files being written count for
        nothing.

        Raises PathNotFoundError.
        """
        return self._call(lambda fs: fs.content_summary(path))

    def jobs(self) -> builtins.list[TransactionRecord]:
        """Changes of many entries that are under way, or whose owner died. Raises
        ItemFormatError."""
        return self._call(lambda fs: fs.jobs())

    def checksum(self, path: Path) -> str:
        """`xxh128:` and 32 hex digits: XXH3 of 128 bits over a file's bytes, computed now if it was
        not recorded.

        Raises PathNotFoundError, IsDirectoryError, UncommittedFileError, DataMissingError,
        CorruptDataError.
        """
        return self._call(lambda fs: fs.checksum(path))

    def physical_path(self, path: Path) -> str:
        """The URI of a file's bytes: `s3://bucket/key`, `file:///...`.

        Raises PathNotFoundError, IsDirectoryError, UncommittedFileError.
        """
        return self._call(lambda fs: fs.physical_path(path))

    def physical_paths(
        self, path: Path = ROOT, *, recursive: bool = True
    ) -> Iterator[PhysicalFile]:
        """The committed files below a directory, or without `recursive` in it, or a file itself,
        with the URIs of their bytes and the values in the `name=value` directories between.

            files = [file for file in client.physical_paths("/sales")]
            spark.read.parquet(*[file.uri for file in files])

        The files are those of a listing, which sees an atomic change of many wholly or not at all
        (`list`); their bytes stay for the grace period of garbage collection, whatever becomes of
        the files. Raises PathNotFoundError.
        """
        return self._iterate(lambda fs: fs._physical_pages(path, recursive))

    # Reading and writing

    def read(self, path: Path) -> bytes:
        """A whole file, its size and checksum verified.

        Raises PathNotFoundError, IsDirectoryError, UncommittedFileError, DataMissingError,
        CorruptDataError.
        """
        return self._call(lambda fs: fs.read(path))

    def read_ranges(self, path: Path, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """The bytes [start, end) of each range, cut at the end of the file, all of one version,
        several at once.

        Raises InvalidArgumentError (a negative start, or an end before the start), and as `read`.
        """
        return self._call(lambda fs: fs.read_ranges(path, ranges))

    def stat_many(self, paths: Iterable[Path]) -> builtins.list[FileStatus | None]:
        """What is at each path, in the order of the paths; None where nothing is.

        The same path may come several times. Raises the errors of the table, for all paths
        together.
        """
        return self._call(lambda fs: fs.stat_many(paths))

    def exists_many(self, paths: Iterable[Path]) -> builtins.list[bool]:
        """Whether something is at each path, in the order of the paths, files that are being
        written included.

        Raises as `stat_many`.
        """
        return self._call(lambda fs: fs.exists_many(paths))

    def read_many(self, paths: Iterable[Path]) -> builtins.list[bytes]:
        """Whole files, in the order of the paths, each as `read` gives it, size and checksum
        verified.

        Up to 64 files are read at once, and no more than 64 MiB of them (a longer file alone); the
        result holds all of them. Every file is tried; PartialFailureError, whose `failures` are the
        paths with what `read` would raise for them, is raised at the end. A path that comes several
        times is read once. Errors of the table that leave all entries unknown are raised as
        themselves.
        """
        return self._call(lambda fs: fs.read_many(paths))

    def read_each(self, paths: Iterable[Path]) -> builtins.list[bytes | S3kError]:
        """As `read_many`, with the error of a file that could not be read in its place.

        Errors of the table that leave all entries unknown are raised.
        """
        return self._call(lambda fs: fs.read_each(paths))

    def write(self, path: Path, data: Buffer, *, overwrite: bool = True) -> FileStatus:
        """Make `data` the file at a path, in one step, with missing parents; of racing writers the
        last one wins.

        Raises PathExistsError (not `overwrite`), IsDirectoryError, NotDirectoryError (the path
        leads through a file), NoSpaceError, OutcomeUnknownError.
        """
        return self._call(lambda fs: fs.write(path, data, overwrite=overwrite))

    def write_many(
        self, files: Iterable[tuple[Path, Buffer]], *, overwrite: bool = True
    ) -> ChangeResult:
        """Write a list of (path, data), up to a hundred entries in a request, with missing parents
        made once.

        Each file is there or not by itself, as `write` does it; the order is not kept. What fails
        is listed in the result and keeps no other from being written; a path that is named twice is
        refused with InvalidArgumentError. Raises ArgumentTypeError for what is no list of pairs.
        """
        return self._call(lambda fs: fs.write_many(files, overwrite=overwrite))

    @overload
    def open(self, path: Path, mode: Literal["rb"] = ...) -> SyncFileReader: ...
    @overload
    def open(self, path: Path, mode: Literal["wb", "xb"]) -> SyncFileWriter: ...
    @overload
    def open(self, path: Path, mode: str) -> SyncFileReader | SyncFileWriter: ...
    def open(self, path: Path, mode: str = "rb") -> SyncFileReader | SyncFileWriter:
        """A file: `rb` to read, `wb` to write, `xb` to create.

        It is an `io.RawIOBase`, used by `with` or as it is; `io.TextIOWrapper(fs.open(path))` reads
        text.

        A new path is reserved when the file is opened and published when it is closed; until then
        readers of an existing file see the old bytes. Raises UnsupportedError (`ab`, `r+`, text),
        PathNotFoundError, PathExistsError (`xb`), IsDirectoryError, NotDirectoryError,
        UncommittedFileError.
        """
        session = self._session()

        async def opened() -> FileReader | FileWriter:
            return await (await session.opened()).open(path, mode)

        file = session.bridge.run(opened)
        if isinstance(file, FileReader):
            return SyncFileReader(session.bridge, file, self)
        return SyncFileWriter(session.bridge, file, self)

    def stage(self) -> SyncStagedWriter:
        """Upload bytes that `Transaction.publish` makes a file, here or in another process; for
        `with`.

            with client.stage() as file:
                file.write(data)
            send(file.staged)

        Nobody sees them, and table and log know nothing of them. They must be published within
        `Tuning.lease` of the moment at which the file was opened; after the grace period garbage
        collection removes what was not. Left by an exception, or discarded, nothing remains. Raises
        ReadOnlyVolumeError.
        """
        session = self._session()

        async def opened() -> StagedWriter:
            return await (await session.opened()).stage()

        return SyncStagedWriter(session.bridge, session.bridge.run(opened), self)

    def discard_staged(self, staged: Iterable[StagedFile]) -> None:
        """Drop the bytes of uploads that will not be published; those that are gone are fine.

        Only where it is certain that nobody published them, which after OutcomeUnknownError it is
        not: garbage collection finds out. Raises InvalidArgumentError (another volume's),
        ReadOnlyVolumeError, PartialFailureError (with the keys that could not be dropped, which
        garbage collection removes).
        """
        self._call(lambda fs: fs.discard_staged(staged))

    def touch(self, path: Path) -> FileStatus:
        """Create an empty file, or give a file a new version whose modification time is now.

        Raises IsDirectoryError, NotDirectoryError, UncommittedFileError.
        """
        return self._call(lambda fs: fs.touch(path))

    # Changing the tree

    def transaction(self) -> SyncTransaction:
        """Several changes that happen together or not at all, for `with`; see `Transaction`.

            with client.transaction() as tx:
                tx.write("/out/part-0", data)
                tx.delete("/out/part-of-yesterday")

        What is raised inside leaves everything as it was.
        """
        session = self._session()

        async def begun() -> Transaction:
            return (await session.opened()).transaction()

        return SyncTransaction(session.bridge, session.bridge.run(begun), self)

    def makedirs(self, path: Path, *, exist_ok: bool = True) -> FileStatus:
        """Make a directory and its missing parents.

        Raises PathExistsError (a file is there; or a directory, unless `exist_ok`),
        NotDirectoryError.
        """
        return self._call(lambda fs: fs.makedirs(path, exist_ok=exist_ok))

    def rename(
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
        return self._call(
            lambda fs: fs.rename(
                source, target, overwrite=overwrite, atomic=atomic, progress=progress
            )
        )

    def delete(
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
        of a file, or that directory, is removed, by a conditional write. Raises PathNotFoundError
        (unless `missing_ok`), DirectoryNotEmptyError, PermissionDeniedError (the root),
        ConflictError (not what is `expected`), BusyError.
        """
        return self._call(
            lambda fs: fs.delete(
                path,
                recursive=recursive,
                missing_ok=missing_ok,
                atomic=atomic,
                expected=expected,
                progress=progress,
            )
        )

    def adopt_many(
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
        return self._call(lambda fs: fs.adopt_many(pairs, overwrite=overwrite, progress=progress))

    def rename_many(
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
        return self._call(
            lambda fs: fs.rename_many(
                pairs, overwrite=overwrite, missing_ok=missing_ok, progress=progress
            )
        )

    def delete_many(
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
        return self._call(
            lambda fs: fs.delete_many(
                paths, recursive=recursive, missing_ok=missing_ok, progress=progress
            )
        )

    def copy(
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
        return self._call(
            lambda fs: fs.copy(
                source, target, overwrite=overwrite, recursive=recursive, progress=progress
            )
        )

    def copy_to(
        self,
        other: S3kSyncClient,
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
        there = other._session()

        async def copy_to(fs: S3kClient) -> ChangeResult:
            return await fs.copy_to(
                await there.opened(),
                source,
                target,
                overwrite=overwrite,
                recursive=recursive,
                progress=progress,
            )

        return self._call(copy_to)

    # Ours

    def _finish_deferred(self) -> None:
        """Wait for the marks of the log that are still being written."""
        self._call(lambda fs: fs._volume().log.drained())

    def _open_version(self, entry: Entry) -> SyncFileReader:
        """A file whose entry is known already: the table is asked nothing.

        Raises IsDirectoryError, UncommittedFileError.
        """
        session = self._session()

        async def opened() -> FileReader:
            return FileReader((await session.opened())._volume, entry)

        return SyncFileReader(session.bridge, session.bridge.run(opened), self)

    def _call(self, verb: Callable[[S3kClient], Awaitable[T]]) -> T:
        session = self._session()

        async def called() -> T:
            return await verb(await session.opened())

        return session.bridge.run(called)

    def _iterate(self, pages_of: PagesOf[T]) -> Iterator[T]:
        """What is in the pages; a hop over the bridge for each page."""
        return self._values(self._session(), pages_of)

    def _values(self, session: _Session, pages_of: PagesOf[T]) -> Iterator[T]:
        pages: deque[AsyncIterator[Sequence[T]]] = deque()

        async def next_page() -> Sequence[T] | None:
            if not pages:
                pages.append(pages_of(await session.opened()))
            return await anext(pages[0], None)

        async def close() -> None:
            for generator in pages:
                if isinstance(generator, AsyncGenerator):
                    await generator.aclose()

        try:
            while (page := session.bridge.run(next_page)) is not None:
                yield from page
        finally:
            # Not waited for: a generator may be finalised on any thread, the loop's own included.
            session.bridge.post(close)

    def _session(self) -> _Session:
        if self._closed:
            raise ClosedClientError("the client is closed", path=volume_text(self.config))
        pid = os.getpid()
        session = self._sessions.get(pid)
        if session is None:
            # setdefault, not a lock, which a fork could leave locked for ever. Sessions of parent
            # processes stay: they must not be finalised here.
            made = _Session(self._config, self._aws)
            session = self._sessions.setdefault(pid, made)
            if session is made:
                weakref.finalize(self, session.bridge.post, session.close).atexit = False
        return session


def _unpickled(cls: type[S3kSyncClient], config: VolumeConfig) -> S3kSyncClient:
    from s3k_async.settings import with_local_secrets

    return cls(config=with_local_secrets(config))
