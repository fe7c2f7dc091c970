"""The filesystem, for asyncio."""

from __future__ import annotations

import asyncio
import builtins
import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

import anyio

from s3k_async import _native
from s3k_async._core.active_calls import call, counted_call
from s3k_async._core.metering import RequestCounter, Requests, counting
from s3k_async._core.observation import Metrics, Observer
from s3k_async._core.verb_log import VerbLog
from s3k_async.attributes import AttributeChange, Attributes
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.backends.ports.presigning import PresignedMethod, PresignedUrl
from s3k_async.bulk.adoption import adopt_many
from s3k_async.bulk.copying import copy
from s3k_async.bulk.due_entries import due_actions
from s3k_async.bulk.entry_attributes import metadata_pages, set_attributes
from s3k_async.bulk.file_reads import exists_many, read_each, read_many, stat_many
from s3k_async.bulk.file_versions import FileVersion, list_versions
from s3k_async.bulk.file_writes import write_many
from s3k_async.bulk.location_space import storage_info
from s3k_async.bulk.path_changes import delete, delete_many, exchange, rename, rename_many
from s3k_async.bulk.point_in_time import PastResult, restore_to
from s3k_async.bulk.publish import ProgressCallback, touch, write
from s3k_async.bulk.rule_changes import list_rules, remove_rule, set_rule
from s3k_async.bulk.rule_runner import run_rules
from s3k_async.bulk.staged_uploads import StagedWriter, discard_staged, open_staged
from s3k_async.bulk.trash import Trash
from s3k_async.bulk.undeletion import undelete, undelete_tree
from s3k_async.bulk.version_removal import delete_permanently
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ArgumentTypeError,
    ClosedClientError,
    ForkedClientError,
    InvalidArgumentError,
    S3kError,
    UnsupportedError,
    WrongLoopError,
)
from s3k_async.files.edits import append, compact, concat, open_appender, truncate, write_range
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
from s3k_async.lifecycle_rules import DueAction, LifecycleRule, RulesResult
from s3k_async.listing.batch_listing import BatchListing, RowList, RowListing
from s3k_async.listing.listings import (
    EntryType,
    Filter,
    Listing,
    PagedIterator,
    Walked,
    find_pages,
    glob_pages,
    list_pages,
    milliseconds,
    record_batches,
    summary,
    walk_pages,
)
from s3k_async.listing.physical_files import (
    PhysicalFile,
    physical_pages,
    physical_path,
    presigned_url,
)
from s3k_async.model import (
    ROOT,
    CacheStatistics,
    ChangeResult,
    ContentSummary,
    Entry,
    FileStatus,
    FillStatistics,
    StagedFile,
    status_of,
)
from s3k_async.namespace.addresses import SCHEME, Path, inside
from s3k_async.storage_space import StorageInfo
from s3k_async.transaction import Transaction
from s3k_async.txn.txn_record import TransactionRecord
from s3k_async.volumes.volume_health import VolumeHealth, check_health

if TYPE_CHECKING:
    from s3k_async.settings.keywords import Settings
    from s3k_async.volumes import Volume

__all__ = ["HURRY", "SCHEME", "Path", "S3kClient", "reader_of", "volume_of", "volume_text"]

HURRY = 2.0
"""Maximum seconds that active calls may take to end when the client is left by an exception."""


@dataclass(frozen=True, slots=True)
class _Opened:
    volume: Volume
    loop: asyncio.AbstractEventLoop
    pid: int


class S3kClient:
    """A volume as a filesystem, for asyncio. Used by `async with`, only in the event loop and
    process that entered it.

    `volume` is `s3k://name`, `./directory`, or None for `S3K_VOLUME` and then the configured
    default; `config` is a complete `VolumeConfig` (then nothing else is given) or a configuration
    file's path; `context` and `hadoop` are a context id and a mapping in S3-FileSystem 1.0's keys;
    `session` is an aioboto3 session, or a mapping from `table`, `data` and `log` to sessions;
    `metrics` receives observations of verbs and requests (`Metrics`, one or several); other
    settings are the options of `s3k_async.settings`. Raises ConfigError.

    Paths are `Path`s; times are epoch milliseconds, sizes bytes. Every method may raise
    InvalidPathError, CrossVolumeError (the URL of another volume), ClosedClientError (not entered,
    or closed), WrongLoopError (another event loop), ForkedClientError (entered in a parent
    process), ReadOnlyVolumeError for changes, BusyError while other clients move or delete entries
    of the path, and the services' errors. Pickling a client keeps its configuration without
    secrets, which are resolved again where it is unpickled; the new client must be entered again.
    """

    def __init__(
        self,
        volume: Path | None = None,
        *,
        config: VolumeConfig | Path | None = None,
        context: str | None = None,
        hadoop: Mapping[str, object] | None = None,
        session: object | Mapping[str, object] | None = None,
        metrics: Metrics | Sequence[Metrics] | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        from s3k_async.settings import resolve

        self._config = resolve(volume, config=config, context=context, hadoop=hadoop, **settings)
        self._session = session
        self._opened: _Opened | None = None
        self._counter = RequestCounter()
        self._observer = _observer_of(metrics, self._config)
        self._cache_statistics = CacheStatistics()
        self._fill_statistics = FillStatistics()
        self._closed: asyncio.Event | None = None
        """While the client is closing: set at the end of that."""

    def __repr__(self) -> str:
        return f"<S3kClient {self.name!r} {'closed' if self._opened is None else 'open'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self._config)

    @property
    def name(self) -> str:
        """The volume's name, as in its URL; for an embedded volume it may be empty before the
        client is entered."""
        return self.config.name

    @property
    def config(self) -> VolumeConfig:
        """The configuration; after entering, completed from the volume record."""
        return self._config if self._opened is None else self._opened.volume.config

    @property
    def closed(self) -> bool:
        """Whether the client is not open."""
        return self._opened is None or self._closed is not None

    @property
    def requests(self) -> Requests:
        """The requests of the client since its creation, including those of opening and deferred
        work."""
        return self._counter.requests

    @property
    def cache_statistics(self) -> CacheStatistics:
        """What the read cache did since the client was entered; zeros without a cache."""
        if self._opened is not None:
            cache = self._opened.volume.storage.cache
            if cache is not None:
                self._cache_statistics = cache.statistics
        return self._cache_statistics

    @property
    def fill_statistics(self) -> FillStatistics:
        """What reads copied to the hot location since the client was entered; zeros unless
        `hot_reads` is `fill`."""
        if self._opened is not None:
            fills = self._opened.volume.storage.fills
            if fills is not None:
                self._fill_statistics = fills.statistics
        return self._fill_statistics

    def count(self) -> AbstractContextManager[RequestCounter]:
        """Count the requests of this client for the body of a `with`, including tasks started
        there.

            with client.count() as counted:
                async for status in client.list("/raw"): ...
            print(counted.requests)

        Requests after the caller has its result (`Requests.deferred`) are counted when they are
        sent.
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
        """Open the client without `with`; `close` ends it.

        Raises VolumeNotFoundError, NotAVolumeError, VolumeFormatError, VolumeMismatchError,
        UnsupportedError (already open).
        """
        from s3k_async.volumes import open_volume

        if self._opened is not None and self._opened.pid == os.getpid():
            raise UnsupportedError("the client is already open; create another one", path=self.name)
        volume = await open_volume(
            self._config,
            session=self._session,
            counter=self._counter,
            observer=self._observer,
        )
        self._opened = _Opened(volume, asyncio.get_running_loop(), os.getpid())

    async def close(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - bounds a part of it
    ) -> None:
        """Wait for active calls and for the operation log, then release connections and files.

        Further calls raise ClosedClientError at once. Calls that run longer than `timeout` seconds
        (None: the setting `close_timeout`) are cancelled: each raises ClosedClientError if it has
        changed nothing, else OutcomeUnknownError. Unfinished files and transactions are dropped,
        not published. If `close` itself is cancelled, it cancels the calls at once, and after a
        second cancellation no longer waits for them; the cancellation is raised when the client is
        closed. Idempotent; no effect in a forked child.
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
            if opened.volume.storage.cache is not None:
                self._cache_statistics = opened.volume.storage.cache.statistics
            if opened.volume.storage.fills is not None:
                self._fill_statistics = opened.volume.storage.fills.statistics

    @call
    async def health(
        self,
        *,
        timeout: float = 5.0,  # noqa: ASYNC109 - of each service
    ) -> VolumeHealth:
        """Whether table, data and log answer: one request to each of them, at the same time,
        without retries and outside of the limit of `max_concurrency`. For readiness probes.

        A service that fails, or does not answer within `timeout` seconds, is reported with its
        error, which is not raised.
        """
        return await check_health(self._volume(), timeout)

    # Metadata

    @call
    async def stat(self, path: Path) -> FileStatus:
        """The status of a path; `committed` is False for a new file that is still being written.

        Raises PathNotFoundError.
        """
        return status_of(await self._volume().store.lookup(self._path(path)))

    @call
    async def exists(self, path: Path) -> bool:
        """Whether the path exists, including a new file that is still being written."""
        return await self._volume().store.get(self._path(path), trusting=True) is not None

    @call
    async def is_file(self, path: Path) -> bool:
        """Whether the path is a file, including a new file that is still being written."""
        entry = await self._volume().store.get(self._path(path), trusting=True)
        return entry is not None and not entry.is_dir

    @call
    async def is_dir(self, path: Path) -> bool:
        """Whether the path is a directory."""
        entry = await self._volume().store.get(self._path(path), trusting=True)
        return entry is not None and entry.is_dir

    def list(
        self,
        path: Path = ROOT,
        *,
        recursive: bool = False,
        include_uncommitted: bool = False,
        sorted: bool = False,
    ) -> RowListing[FileStatus]:
        """The children of a directory, or with `recursive` everything below it; for a file, the
        file itself.

        An entry that existed for the whole call is returned exactly once; memory is bounded. A
        listing of up to 50,000 entries shows an atomic change of many either completely or not at
        all; it returns the first entry after all were read. In no order, or `sorted` by name (by
        UTF-8 bytes), with each directory followed by its content. `to_arrow` and `to_pandas` of
        the result return a table or a data frame, as those of `find` and `glob` do. Raises
        PathNotFoundError, and BusyError if the directories keep changing for `busy_timeout` and at
        least ten attempts.
        """
        listing = Listing(recursive, include_uncommitted, sorted)
        place = self._path(path)
        return self._statuses(list_pages(self._volume().store, place, listing), "list", place)

    def list_batches(
        self,
        path: Path = ROOT,
        *,
        recursive: bool = False,
        include_uncommitted: bool = False,
        sorted: bool = False,
    ) -> BatchListing:
        """As `list`, in Arrow record batches of the schema `s3k_async.arrow_schema`; `to_arrow` and
        `to_pandas` of the result return them as a table or a data frame.

        No Python objects are created for entries. Raises PathNotFoundError.
        """
        volume, place = self._volume(), self._path(path)
        listing = Listing(recursive, include_uncommitted, sorted)
        batches = record_batches(listing.pages(volume.store, place))
        return BatchListing(volume.calls.stream(batches, "list_batches", place))

    def walk(self, path: Path = ROOT) -> AsyncIterator[Walked]:
        """Each directory from `path` down, as (path, directories in it, files in it), parents
        before children.

        The children of one directory are sorted by name and held in memory. A file yields nothing.
        The entries as a table: `list_batches(recursive=True)`. Raises PathNotFoundError.
        """
        volume, place = self._volume(), self._path(path)
        return PagedIterator(volume.calls.stream(walk_pages(volume.store, place), "walk", place))

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
        metadata: str | None = None,
    ) -> RowListing[FileStatus]:
        """The entries below a directory that meet all given conditions.

        `pattern` is a glob over the name, or, if it has a `/`, over the path relative to `path`;
        `min_size` and `max_size` are inclusive and select files only; `newer_than` and `older_than`
        are exclusive modification times, epoch milliseconds or an aware `datetime`. `metadata`: the
        name of user metadata that they have; such entries are found by an index, without listing
        the directory, each once and in no order. Raises PathNotFoundError, InvalidArgumentError.
        """
        wanted = Filter(pattern, type, min_size, max_size, newer_than, older_than)
        volume, place = self._volume(), self._path(path)
        if metadata is not None:
            return self._statuses(metadata_pages(volume, metadata, place, wanted), "find", place)
        return self._statuses(find_pages(volume.store, place, wanted), "find", place)

    def glob(self, pattern: str) -> RowListing[FileStatus]:
        """The entries that match a pattern of `*`, `?`, `[..]`, `**` and `{a,b}`, each once, in no
        order.

        See `s3k_async.listing.globbing`. Only directories in which something can match are listed.
        Raises InvalidArgumentError.
        """
        place = inside(pattern, self.name)
        return self._statuses(glob_pages(self._volume().store, place), "glob", place)

    @call
    async def content_summary(self, path: Path) -> ContentSummary:
        """Bytes, files and directories of a subtree, itself included; files being written are not
        counted.

        Raises PathNotFoundError.
        """
        return await summary(self._volume().store, self._path(path))

    @call
    async def storage_info(self) -> StorageInfo:
        """The total, used and free bytes of the storage of each location of the volume; None for
        what a service does not report, such as S3 and DynamoDB."""
        return await storage_info(self._volume())

    @call
    async def transactions(self) -> builtins.list[TransactionRecord]:
        """The records of running and interrupted transactions. Raises ItemFormatError."""
        return [record async for record in self._volume().store.transactions.records()]

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

        Raises PathNotFoundError, IsDirectoryError, UncommittedFileError, UnsupportedError (a file
        that was appended to or changed in place: see `compact`; an empty file without an object:
        see `physical_paths`).
        """
        return await physical_path(self._volume(), self._path(path))

    @call
    async def presign(
        self, path: Path, *, expires: int | timedelta = 3600, method: PresignedMethod = "GET"
    ) -> PresignedUrl:
        """A URL by which anybody can read the bytes of a file, without credentials and without this
        package, for `expires` seconds (at most seven days), by GET or HEAD.

        It is signed with the credentials of the client, and ends with them if they are temporary.
        It leads to the bytes that the file has now: after a change or a deletion of the file it
        works until garbage collection has deleted them. No request is sent to S3. Treat it as a
        secret. Of data that is encrypted with a customer key (`AwsConfig.customer_key`), the reader
        has to send the `headers` of the result, which contain the key of the whole volume.

        Raises PathNotFoundError, IsDirectoryError, UncommittedFileError, PermissionDeniedError,
        CredentialsError, InvalidArgumentError, UnsupportedError (the data is not in S3, or in a
        volume with tiers; a file that was appended to or changed in place: see `compact`; an empty
        file without an object: `write` creates one).
        """
        return await presigned_url(self._volume(), self._path(path), expires, method)

    def physical_paths(
        self, path: Path = ROOT, *, recursive: bool = True
    ) -> RowListing[PhysicalFile]:
        """The committed files below a directory, or without `recursive` only its own, or a file
        itself, with the URIs of their data and the partition values from `name=value` directories.

            files = [file async for file in client.physical_paths("/sales")]
            spark.read.parquet(*[file.uri for file in files])

        The files are those of a listing, with its consistency (`list`), without empty ones that
        have no object: those of `write_many` and `upload`, and those that were truncated. Their
        data is kept for the grace period of garbage collection, even if the files are changed or
        deleted. Raises PathNotFoundError, UnsupportedError (a file that was appended to or changed
        in place: see `compact`).
        """
        volume, place = self._volume(), self._path(path)
        pages = physical_pages(volume, place, Listing(recursive=recursive))
        return RowListing(volume.calls.stream(pages, "physical_paths", place), PhysicalFile)

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
        read concurrently.

        Raises InvalidArgumentError (a negative start, or an end before the start), and as `read`.
        """
        return await read_ranges(self._volume(), self._path(path), ranges)

    @call
    async def stat_many(self, paths: Iterable[Path]) -> builtins.list[FileStatus | None]:
        """The status of each path, in the order of the paths; None for a missing one.

        The same path may occur several times. Raises the errors of the table, for all paths
        together.
        """
        return await stat_many(self._volume(), self._paths(paths))

    @call
    async def exists_many(self, paths: Iterable[Path]) -> builtins.list[bool]:
        """Whether each path exists, in the order of the paths, including new files that are still
        being written.

        Raises as `stat_many`.
        """
        return await exists_many(self._volume(), self._paths(paths))

    @call
    async def read_many(self, paths: Iterable[Path]) -> builtins.list[bytes]:
        """Whole files, in the order of the paths, each as returned by `read`, size and checksum
        verified.

        Up to 64 files are read at once, and no more than 64 MiB of them (a longer file alone); the
        result holds all of them. Every file is tried; at the end PartialFailureError is raised,
        whose `failures` are the paths with the errors of `read`. A path that occurs several times
        is read once. Errors of the table that affect all entries are raised unchanged.
        """
        return await read_many(self._volume(), self._paths(paths))

    @call
    async def read_each(self, paths: Iterable[Path]) -> builtins.list[bytes | S3kError]:
        """As `read_many`, with the error of a file that could not be read in its place.

        Errors of the table that affect all entries are raised.
        """
        return await read_each(self._volume(), self._paths(paths))

    @call
    async def write(
        self,
        path: Path,
        data: Buffer,
        *,
        overwrite: bool = True,
        attributes: Attributes | None = None,
    ) -> FileStatus:
        """Write a file with the content `data` atomically, and create missing parents. Of
        concurrent writers the last one wins. `attributes`: those of the file from then on; None: a
        file that is replaced keeps its own.

        Raises PathExistsError (not `overwrite`), IsDirectoryError, NotDirectoryError (the path
        leads through a file), PermissionDeniedError (a read-only file), InvalidArgumentError and
        UnsupportedError (of `attributes`, as `set_attributes`), NoSpaceError, OutcomeUnknownError.
        """
        return status_of(
            await write(
                self._volume(), self._path(path), data, overwrite=overwrite, attributes=attributes
            )
        )

    @counted_call
    async def write_many(
        self, files: Iterable[tuple[Path, Buffer]], *, overwrite: bool = True
    ) -> ChangeResult:
        """Write a list of (path, data), up to a hundred entries in a request. Missing parents are
        created once.

        Each file is written independently, as by `write`, in any order. Failures are listed in the
        result and do not affect the other files; a path that occurs twice is refused with
        InvalidArgumentError. Raises ArgumentTypeError if `files` is not a list of pairs.
        """
        return await write_many(self._volume(), files, self._path, overwrite=overwrite)

    @call
    async def append(self, path: Path, data: Buffer) -> FileStatus:
        """Add bytes at the end of a file, or create it. The cost does not depend on its size.

        Readers see all of the bytes or none. Of concurrent appends each is in the file, in some
        order. Raises IsDirectoryError, NotDirectoryError, UncommittedFileError, UnsupportedError
        (an adopted file, or a volume of a version without extents), ConflictError,
        OutcomeUnknownError: appending again may add the bytes twice.
        """
        return status_of(await append(self._volume(), self._path(path), data))

    @call
    async def write_range(self, path: Path, offset: int, data: Buffer) -> FileStatus:
        """Replace the bytes of a file from an offset on, atomically. The file grows if they end
        after it; what is between its end and the offset reads as zeros.

        Raises PathNotFoundError, InvalidArgumentError (a negative offset, or more than 5 TiB), and
        as `append`; UnsupportedError also if the file would have more than 128 extents, because
        holes longer than 64 MiB keep them apart.
        """
        return status_of(await write_range(self._volume(), self._path(path), offset, data))

    @call
    async def truncate(self, path: Path, size: int) -> FileStatus:
        """Cut a file off at a size, or extend it by zeros, which take no space.

        Raises as `write_range`.
        """
        return status_of(await truncate(self._volume(), self._path(path), size))

    @counted_call
    async def concat(self, path: Path, sources: Iterable[Path]) -> ChangeResult:
        """Append files to a file, in their order, and remove them, in one transaction. The data is
        copied by the service where it can. The result counts the files that were appended.

        Raises PathNotFoundError, InvalidArgumentError (a file is named twice), and as `append`.
        """
        return await concat(self._volume(), self._path(path), self._paths(sources))

    @call
    async def compact(self, path: Path, *, whole: bool = False) -> FileStatus:
        """Store the parts of a file that were appended or written in place in fewer objects, or,
        with `whole`, in one, which then has a `physical_path`. Content and modification time stay.

        Raises as `truncate`.
        """
        return status_of(await compact(self._volume(), self._path(path), whole=whole))

    @overload
    def open(self, path: Path, mode: Literal["rb"] = ...) -> Opening[FileReader]: ...
    @overload
    def open(self, path: Path, mode: Literal["wb", "xb", "ab"]) -> Opening[FileWriter]: ...
    @overload
    def open(self, path: Path, mode: str) -> Opening[FileReader] | Opening[FileWriter]: ...
    def open(self, path: Path, mode: str = "rb") -> Opening[FileReader] | Opening[FileWriter]:
        """Open a file: `rb` to read, `wb` to write, `xb` to create, `ab` to append.

        Use it with `async with`, or await it. A new file is published when it is closed, and its
        path is reserved until then, except by `ab`; readers of an existing file see its old content
        until then. Raises UnsupportedError (`r+`, text, and `ab` as `append`); on opening
        PathNotFoundError, PathExistsError (`xb`), IsDirectoryError, NotDirectoryError,
        UncommittedFileError.
        """
        place = self._path(path)
        check_mode(mode, place)
        self._volume()
        if mode == "rb":
            return Opening(lambda: open_reader(self._volume, place))
        if mode == "ab":
            return Opening(lambda: open_appender(self._volume, place))
        return Opening(lambda: open_writer(self._volume, place, exclusive=mode == "xb"))

    def stage(self, path: Path = ROOT) -> Opening[StagedWriter]:
        """Upload data without an entry, which `Transaction.publish` publishes as a file, here or in
        another process; for `with`.

            async with client.stage() as file:
                await file.write(data)
            send(file.staged)

        `path`: where the file will be published, if known; it determines only the storage class
        and tags (`Tuning.storage_rules`).

        Staged data is in no listing, and neither in the table nor in the log. It must be published
        within `Tuning.lease` of opening the file; garbage collection removes unpublished data after
        the grace period. After an exception or `discard` nothing remains. Raises
        ReadOnlyVolumeError, InvalidPathError.
        """
        place = self._path(path)
        self._volume().store.require_writable(ROOT)
        return Opening(lambda: open_staged(self._volume, place))

    @call
    async def discard_staged(self, staged: Iterable[StagedFile]) -> None:
        """Delete the data of uploads that will not be published; missing data is ignored.

        Only for files that are certainly unpublished, so not after OutcomeUnknownError or an error
        with `keeps_data`: leave those to garbage collection. Raises InvalidArgumentError (staged in
        another volume), ReadOnlyVolumeError, PartialFailureError (with the keys that could not be
        deleted, which garbage collection removes).
        """
        await discard_staged(self._volume(), staged)

    @call
    async def touch(self, path: Path) -> FileStatus:
        """Create an empty file, or give a file a new version whose modification time is now.

        Raises IsDirectoryError, NotDirectoryError, UncommittedFileError.
        """
        return status_of(await touch(self._volume(), self._path(path)))

    @call
    async def set_attributes(
        self,
        path: Path,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        read_only: bool | None = None,
        metadata: Mapping[str, bytes | None] | None = None,
        mtime_ms: int | None = None,
    ) -> FileStatus:
        """Change attributes of a file or directory: those that are given, atomically, with a new
        version of the entry. The time of a change is recorded in `Attributes.changed_ms`.

        `mode`: permission bits, to 0o7777. `uid`, `gid`: owner and group. `read_only`: whether the
        entry may not be changed, replaced, moved or deleted; a directory that is moved or deleted
        takes the read-only entries below it along. `metadata`: values by name, of 1 to 64
        characters without `#` at the start; None removes one. `mtime_ms`: the modification time,
        epoch milliseconds. Together they may have 4 KiB. Raises PathNotFoundError,
        InvalidArgumentError, UncommittedFileError, PermissionDeniedError (the root; the time of a
        read-only entry), UnsupportedError (a volume without the feature `attributes`).
        """
        change = AttributeChange(mode, uid, gid, read_only, metadata)
        return status_of(
            await set_attributes(self._volume(), self._path(path), change, mtime_ms=mtime_ms)
        )

    # Lifecycle rules

    @call
    async def set_rule(
        self,
        path: Path,
        *,
        name_prefix: str = "",
        expire_at: int | datetime | None = None,
        expire_after: int | timedelta | None = None,
        read_only_after: int | timedelta | None = None,
    ) -> LifecycleRule:
        """Set the lifecycle rule of a directory, in place of its former one. It applies to all
        files below the path, which need not exist, but not where a nearer rule is for the same
        action, and not to files whose metadata says otherwise.

        `name_prefix` restricts the rule to what begins with `<path>/<name_prefix>`: files in the
        directory, and those below directories in it, whose names begin with the text. A directory
        can have any number of such rules; the one with the longest prefix is the nearest.
        `expire_at`: when the files are deleted, epoch seconds or an aware `datetime`.
        `expire_after`, `read_only_after`: how long after its last modification a file is deleted or
        becomes read-only, seconds. `run_rules` does that; it knows files that exist already from
        its first run on, and those that other clients write within a minute from its first run
        after an hour. Raises ArgumentTypeError, InvalidArgumentError, NotDirectoryError (a file is
        at the path), UnsupportedError (a volume without the feature `rules`).
        """
        rule = LifecycleRule(
            self._path(path),
            _whole_seconds(expire_at),
            _whole_seconds(expire_after),
            _whole_seconds(read_only_after),
            name_prefix,
        )
        return await set_rule(self._volume(), rule)

    @call
    async def remove_rule(self, path: Path, *, name_prefix: str = "") -> None:
        """Remove the lifecycle rule of a directory, or of names in it. A more distant rule may
        apply then.

        Raises ArgumentTypeError, InvalidArgumentError, PathNotFoundError (there is no such rule),
        UnsupportedError.
        """
        await remove_rule(self._volume(), self._path(path), name_prefix)

    @call
    async def rules(self) -> builtins.list[LifecycleRule]:
        """The lifecycle rules of the volume, by path and name prefix. Raises UnsupportedError."""
        return await list_rules(self._volume())

    @call
    async def run_rules(
        self, *, rate: float | None = None, progress: ProgressCallback | None = None
    ) -> RulesResult:
        """Delete the files that have expired, and make those read-only whose time has come, by
        the clock of this machine. An expired file is deleted even if it is read-only.

        Any number of clients may do this at the same time; each action is made once. `rate`:
        actions per second at most. Failures are listed in the result and do not affect the other
        files. Raises InvalidArgumentError, UnsupportedError.
        """
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float)):
            raise ArgumentTypeError(f"the rate is a number, not {type(rate).__name__}")
        if rate is not None and not rate > 0:
            raise InvalidArgumentError(f"the rate is a positive number, not {rate!r}")
        return await run_rules(self._volume(), rate=rate, progress=progress)

    def due_actions(self) -> RowListing[DueAction]:
        """What `run_rules` would do now, in no order; nothing is changed. Raises
        UnsupportedError."""
        volume = self._volume()
        return RowListing(volume.calls.stream(due_actions(volume), "due_actions"), DueAction)

    # Versions

    @call
    async def versions(self, path: Path) -> RowList[FileVersion]:
        """The contents that files had at a path, newest first, as far as the operation log goes
        back, and whether their data still exists. A compacted log has the last two of each file.

        Reads the whole log. Garbage collection deletes the data of a version its grace period after
        the file was deleted or overwritten. Raises IsDirectoryError, UnsupportedError (a volume
        without a log), LogFormatError (a part of the log is unreadable).
        """
        return RowList(await list_versions(self._volume(), self._path(path)), FileVersion)

    @counted_call
    async def undelete(
        self,
        path: Path,
        *,
        version: str = "",
        target: Path | None = None,
        recursive: bool = False,
        since: int | datetime | None = None,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Create a file from a former version of a file, with its content, attributes and
        modification time. The data is copied, inside the service where it can be.

        `version`: the id of the version (`FileVersion.id`), by default the newest one that was
        deleted or overwritten and has data. `target`: the path of the new file, by default `path`;
        nothing must be there. With `recursive`, a deleted directory: from the trash, or else every
        file that was deleted below it, the last one of each path, at paths that are free; `since`:
        only what was deleted at that time or later. Failures below a directory raise
        PartialFailureError. Raises PathNotFoundError (no such version), PathExistsError (the
        target), DataMissingError (the data was collected), IsDirectoryError (a directory, and not
        `recursive`), InvalidArgumentError, UnsupportedError, LogFormatError, and as `write`.
        """
        place = self._path(path)
        goal = place if target is None else self._path(target)
        if recursive and version:
            raise InvalidArgumentError("a directory has no versions", path=place)
        if not recursive:
            if since is not None:
                raise InvalidArgumentError("`since` is for `recursive`", path=place)
            made = await undelete(self._volume(), place, version=version, target=goal)
            return ChangeResult(1, 0, made.size)
        since_ms = milliseconds(since, up=True)
        done = await undelete_tree(
            self._volume(), place, target=goal, since_ms=since_ms, progress=progress
        )
        return done.raise_for_failures(path=place)

    @call
    async def restore(
        self,
        path: Path,
        at: int | datetime,
        *,
        delete: bool = False,
        dry_run: bool = True,
        progress: ProgressCallback | None = None,
    ) -> PastResult:
        """Restore everything at and below a path to its state at an earlier time: deleted files are
        brought back, and overwritten ones get the content and attributes of that time. Files that
        were created later stay, unless `delete`. `dry_run`: change nothing, and return the
        differences.

        `at`: epoch milliseconds, or an aware `datetime`. Directories that are in the trash of
        layout `tree` are restored from it, other files are copied. Each file is changed
        independently, on the condition that it is as the comparison found it; failures are in the
        result, and repeating the call tries those again. Not restored: attributes of files whose
        content is the same. Reads the whole log, and lists the subtree; the differences are in
        memory. Raises PathNotFoundError (nothing is or was at the path, as far as the log goes
        back), InvalidArgumentError (a `datetime` without a time zone), UnsupportedError (a volume
        without a log), LogFormatError (a part of the log is unreadable).
        """
        time_ms = milliseconds(at)
        if time_ms is None:
            raise ArgumentTypeError("`at` is epoch milliseconds or a datetime")
        return await restore_to(
            self._volume(),
            self._path(path),
            time_ms,
            delete=delete,
            dry_run=dry_run,
            progress=progress,
        )

    # Changing the tree

    def transaction(self) -> Transaction:
        """Several changes that are applied together or not at all, for `with`; see
        `Transaction`.

            async with client.transaction() as tx:
                await tx.write("/out/part-0", data)
                await tx.delete("/out/part-of-yesterday")

        An exception in the body discards all changes.
        """
        return Transaction(self._volume, self._path)

    def trash(self) -> Trash:
        """The trash of a volume of layout `tree`: directories that were deleted recursively and can
        be restored; see `Trash`."""
        self._volume()
        return Trash(self._volume, self._path, self.name)

    @call
    async def makedirs(self, path: Path, *, exist_ok: bool = True) -> FileStatus:
        """Create a directory and its missing parents.

        Raises PathExistsError (a file is there; or a directory, unless `exist_ok`),
        NotDirectoryError.
        """
        store = self._volume().store
        return status_of(await store.make_directory(self._path(path), exist_ok=exist_ok))

    @counted_call
    async def rename(
        self,
        source: Path,
        target: Path,
        *,
        overwrite: bool = False,
        atomic: bool = True,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Move a file or a directory atomically, without copying data.

        The target's parent must exist. An existing target is refused, unless source and target are
        files and `overwrite` is set. Renaming a file to itself has no effect. A call that raises
        has changed nothing; after OutcomeUnknownError, all or nothing. Without `atomic` a directory
        is moved entry by entry, with about half as many writes; after an interruption or
        PartialFailureError, repeat the call to finish it. Raises PathNotFoundError,
        PathExistsError, NotDirectoryError, RenameIntoSelfError (a directory to itself or below
        itself), UncommittedFileError (also for a new file below that is still being written),
        BusyError.
        """
        return await rename(
            self._volume(),
            self._path(source),
            self._path(target),
            overwrite=overwrite,
            atomic=atomic,
            progress=progress,
        )

    @counted_call
    async def exchange(self, first: Path, second: Path) -> ChangeResult:
        """Let the entries at two paths change places atomically, without copying data: at any time
        one of the two is at each path.

        Both are files, or, in a volume of layout `tree`, any of them a directory with everything
        below it. Exchanging a path with itself has no effect. A call that raises has changed
        nothing; after OutcomeUnknownError, all or nothing. Raises PathNotFoundError,
        RenameIntoSelfError (one path is below the other), UnsupportedError (a directory in layout
        `path`), UncommittedFileError, BusyError.
        """
        return await exchange(self._volume(), self._path(first), self._path(second))

    @counted_call
    async def delete(
        self,
        path: Path,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        atomic: bool = True,
        expected: FileStatus | None = None,
        wait: bool = False,
        permanently: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Remove a file, an empty directory, or, with `recursive`, a directory and everything below
        it, atomically.

        The data is left to garbage collection, so that open readers can continue. A call that
        raises has changed nothing; after OutcomeUnknownError, all or nothing. Without `atomic` a
        directory is removed entry by entry; after an interruption or PartialFailureError, repeat
        the call to finish it. With `expected`, a result of `stat` or a listing, only that version
        of a file, or that directory, is removed, by a conditional write. In a volume of layout
        `tree`, `recursive` moves a directory into the trash, and the result counts only the
        directory itself; with `wait`, the files below it are deleted and counted before the call
        returns, and the directory cannot be restored. With `permanently`, the data of all versions
        of the file, and of files that were deleted at the path before, is deleted at once, with
        `recursive` also below it: readers that have them open fail, and nothing can be undeleted.
        This reads the whole log, and applies to a path that was deleted before as well. Raises
        PathNotFoundError (unless `missing_ok`), DirectoryNotEmptyError, PermissionDeniedError (the
        root), ConflictError (not what is `expected`), BusyError; with `permanently`
        PartialFailureError (other clients use some of the data: repeat the call),
        UnsupportedError (a volume without a log), LogFormatError.
        """
        if permanently:
            return await delete_permanently(
                self._volume(),
                self._path(path),
                recursive=recursive,
                missing_ok=missing_ok,
                atomic=atomic,
                expected=expected,
                progress=progress,
            )
        return await delete(
            self._volume(),
            self._path(path),
            recursive=recursive,
            missing_ok=missing_ok,
            atomic=atomic,
            expected=expected,
            wait=wait,
            progress=progress,
        )

    @counted_call
    async def adopt_many(
        self,
        pairs: Iterable[tuple[Path, str]],
        *,
        overwrite: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Adopt objects in the volume's data location, or in another bucket of its service, as
        files, by a list of (path, URI), without copying them.

        Each object is adopted independently, as by `Transaction.adopt`, in any order, up to a
        hundred entries in a request. Missing parents are created once. The list is processed a
        thousand pairs at a time. Failures are listed in the result by path and do not affect the
        other pairs. An object that is already adopted at its path is skipped and not counted, so
        that the same list can be finished later. If a path or an object occurs several times within
        a thousand pairs, all of these pairs are refused with InvalidArgumentError; further apart,
        each is processed in turn. In a versioned bucket the version id is recorded, and the file is
        read at this version. Raises ArgumentTypeError if `files` is not a list of pairs.
        """
        return await adopt_many(
            self._volume(), pairs, self._path, overwrite=overwrite, progress=progress
        )

    @counted_call
    async def rename_many(
        self,
        pairs: Iterable[tuple[Path, Path]],
        *,
        overwrite: bool = False,
        missing_ok: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Rename by a list of (source, target), up to 50 files in a request; the result lists the
        failures.

        Each pair is renamed as by `rename`: files first, then directories in the order of the list.
        Failures are listed by source and do not affect the other pairs. Pairs that share a path, as
        (a, b) and (b, c) do, are all refused with InvalidArgumentError: the result would depend on
        their order, and on the progress of an earlier call. With `missing_ok` a pair with a missing
        source is done if its target exists, so that the same list can be finished later. Raises
        ArgumentTypeError if `pairs` is not a list of pairs.
        """
        return await rename_many(
            self._volume(),
            pairs,
            self._path,
            overwrite=overwrite,
            missing_ok=missing_ok,
            progress=progress,
        )

    @counted_call
    async def delete_many(
        self,
        paths: Iterable[Path],
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        wait: bool = False,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Remove files and directories, up to 100 files in a request; the result lists the
        failures.

        Each is removed as by `delete`: files first, then directories, the deepest first, each with
        `recursive` and `wait` as given. Failures are listed and do not affect the other paths; a
        path that occurs twice counts once. Raises ArgumentTypeError if `paths` is not a list.
        """
        return await delete_many(
            self._volume(),
            paths,
            self._path,
            recursive=recursive,
            missing_ok=missing_ok,
            wait=wait,
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

        Missing parents are created. With `overwrite` files are replaced and an existing directory
        is merged into. Raises PathNotFoundError, PathExistsError (not `overwrite`),
        IsDirectoryError, NotDirectoryError, RenameIntoSelfError (a directory below itself),
        UncommittedFileError, DataMissingError, CorruptDataError, PartialFailureError.
        """
        return await self.copy_to(
            self, source, target, overwrite=overwrite, recursive=recursive, progress=progress
        )

    @counted_call
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

        The data passes through this process unless one service holds both volumes and can copy
        between them. Raises as `copy`.
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

    @counted_call
    async def upload(
        self,
        source: str | os.PathLike[str],
        target: Path,
        *,
        overwrite: bool = True,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Upload a local file to `target`, or the contents of a local directory, including empty
        directories, to the directory `target`.

        Missing parents are created. Each file is published atomically, independently of the others.
        Links to files are followed. Raises PathNotFoundError (no such local file), PathExistsError
        (not `overwrite`), IsDirectoryError, NotDirectoryError, OverlapError (the local path is a
        part of an embedded volume, or contains it), and for a directory PartialFailureError after
        all other files were uploaded; links to directories and special files count as failures.
        """
        from s3k_async.bulk.transfer import upload

        place, volume = self._path(target), self._volume()
        done = await upload(self, volume, source, place, overwrite=overwrite, progress=progress)
        return done.raise_for_failures(path=place)

    @counted_call
    async def download(
        self,
        source: Path,
        target: str | os.PathLike[str],
        *,
        overwrite: bool = True,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Download a file to the local path `target`, or the contents of a directory, including
        empty directories, to the local directory `target`.

        Missing parents are created. Each file appears locally complete and verified, or not at all;
        other files in a local directory are kept. Raises PathNotFoundError, PathExistsError (not
        `overwrite`), IsDirectoryError, NotDirectoryError, CorruptDataError, UnsupportedError (the
        local path is a device, a pipe or a socket), OverlapError (it is a part of an embedded
        volume), NoSpaceError, and for a directory PartialFailureError after all other files were
        downloaded.
        """
        from s3k_async.bulk.transfer import download

        place = self._path(source)
        done = await download(self, place, target, overwrite=overwrite, progress=progress)
        return done.raise_for_failures(path=place)

    # Internal

    def _statuses(
        self, pages: AsyncIterator[builtins.list[FileStatus]], verb: str, path: str
    ) -> RowListing[FileStatus]:
        return RowListing(self._volume().calls.stream(pages, verb, path), FileStatus)

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
            return _native.normalize(path)  # the usual case: no URL to resolve
        return _native.normalize(inside(path, self.name))

    def _paths(self, paths: Iterable[Path]) -> builtins.list[str]:
        if isinstance(paths, str | bytes):
            raise ArgumentTypeError("expected a list of paths, not one path")
        return [self._path(path) for path in paths]


def volume_of(client: S3kClient) -> Volume:
    """The open volume of a client, for modules that work on it directly. Raises ClosedClientError,
    ForkedClientError, WrongLoopError."""
    return client._volume()  # noqa: SLF001 - hidden from users


def reader_of(client: S3kClient, entry: Entry, *, cached: bool = True) -> FileReader:
    """A reader for an entry that was read before, without a request. `cached`: as of FileReader.
    Raises IsDirectoryError, UncommittedFileError."""
    return FileReader(partial(volume_of, client), entry, cached=cached)


def _whole_seconds(value: int | datetime | timedelta | None) -> int | None:
    """Whole seconds of a time or of a length of time. Raises InvalidArgumentError for a time
    without a time zone; other values are for the rule to check."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidArgumentError("the time has no time zone")
        return int(value.timestamp())
    return int(value.total_seconds()) if isinstance(value, timedelta) else value


def _observer_of(
    metrics: Metrics | Sequence[Metrics] | None, config: VolumeConfig
) -> Observer | None:
    """What observes the calls of a client; None without receivers."""
    given: builtins.list[Metrics] = []
    if metrics is not None:
        given += metrics if isinstance(metrics, Sequence) else [metrics]
    if config.tuning.log_verbs != "off":
        given.append(VerbLog(logging.getLevelNamesMapping()[config.tuning.log_verbs.upper()]))
    return Observer(given, config.name) if given else None


def volume_text(config: VolumeConfig) -> str:
    """The volume in messages: its name, or the location of its table if the name is unknown."""
    return config.name or config.where


def _unpickled(cls: type[S3kClient], config: VolumeConfig) -> S3kClient:
    from s3k_async.settings import with_local_secrets

    return cls(config=with_local_secrets(config))
