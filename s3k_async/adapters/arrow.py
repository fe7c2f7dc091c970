"""Volumes for pyarrow: a `pyarrow.fs.FileSystem` over the blocking client.

    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSelector
    from s3k_async.adapters.arrow import arrow_filesystem

    fs = arrow_filesystem("s3k://analytics")  # settings of S3kClient
    pq.write_table(table, "/raw/day=1/part-0.parquet", filesystem=fs)
    raw = ds.dataset("/raw", filesystem=fs, partitioning="hive")
    raw.to_table(filter=ds.field("day") == 1)
    fs.get_file_info(FileSelector("/raw", recursive=True))  # one listing, directories in parallel
    fs.move("/staging/day=2", "/raw/day=2")  # atomic, without a copy

`pyarrow.fs.FileSystem.from_uri` does not know the scheme `s3k`: pass the filesystem beside the
path. (It accepts `fsspec+s3k://analytics/raw`, for the filesystem of fsspec, not this one.)
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Unpack

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

from s3k_async._core import paths
from s3k_async._core.observation import Metrics
from s3k_async._sync.loop_thread import current_bridge
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_files import SyncFileReader, SyncFileWriter
from s3k_async._sync.sync_session import on_client
from s3k_async.adapters.unwind import Unwinding
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.client import SCHEME, S3kClient, volume_of
from s3k_async.config import AwsConfig, TableLocation, VolumeConfig
from s3k_async.errors import (
    ConflictError,
    CrossVolumeError,
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    UnsupportedError,
)
from s3k_async.files.open_files import FileReader, open_reader
from s3k_async.model import ROOT, FileStatus
from s3k_async.namespace.addresses import Path
from s3k_async.settings.keywords import Settings

__all__ = ["S3kHandler", "arrow_filesystem"]

_LOG = logging.getLogger(__name__)

NS_OF_MS = 1_000_000
EMPTYING = 10_000
"""Paths of a directory in memory at once while it is emptied."""
APPENDING = 4 * 1024 * 1024
"""Bytes copied at once before an append."""


def arrow_filesystem(
    volume: Path | None = None,
    *,
    config: VolumeConfig | Path | None = None,
    context: str | None = None,
    hadoop: Mapping[str, object] | None = None,
    session: object | Mapping[str, object] | None = None,
    metrics: Metrics | Sequence[Metrics] | None = None,
    **settings: Unpack[Settings],
) -> PyFileSystem:
    """A volume as a `pyarrow.fs.FileSystem`; the parameters are those of `S3kClient`.

    It opens at the first call in each process, and closes when it is no longer referenced;
    `handler.client` is its blocking client. It may be pickled (configuration, no secrets),
    compared, used by any number of threads, in forked children and beside a running event loop.
    Raises ConfigError.

    Paths are `/a/b`, `a/b` or `s3k://<volume>/a/b`, and are returned in the given form. Errors are
    those of the client.

    Each file is published atomically when it is closed: a `with` left by an exception publishes
    nothing, and `pyarrow.dataset.write_dataset` does not publish the files open when it fails, but
    keeps those it had finished. To make all files of a dataset visible at once, write them to an
    unused directory and `move` it. Use a stream with `compression` or `buffer_size` in `with`: a
    forgotten one is closed by Arrow itself, and published.
    """
    client = S3kSyncClient(
        volume,
        config=config,
        context=context,
        hadoop=hadoop,
        session=session,
        metrics=metrics,
        **settings,
    )
    return PyFileSystem(S3kHandler(client))


class S3kHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow is untyped
    """Handler of `pyarrow.fs.PyFileSystem`, called from any of Arrow's threads. The methods follow
    pyarrow's documentation; the docstrings below have only the volume's additions. All raise the
    client's errors."""

    def __init__(self, client: S3kSyncClient) -> None:
        self.client = client

    def __eq__(self, other: object) -> bool:
        """Whether both are of the same volume."""
        if not isinstance(other, S3kHandler):
            return NotImplemented
        mine, yours = self.client.name, other.client.name
        # An embedded volume has no name before it is opened, and its table has no other volume
        # with its prefix.
        return _table(self.client) == _table(other.client) and (
            mine == yours or not (mine and yours)
        )

    def __hash__(self) -> int:
        return hash(_table(self.client))

    def get_type_name(self) -> str:
        """`s3k`; the filesystem's `type_name` is `py::s3k`."""
        return "s3k"

    def normalize_path(self, path: str) -> str:
        """The path without superfluous parts: absolute if it was or if it was a URL, else relative,
        the root empty.

        A slash at its end is kept: a `SubTreeFileSystem` recognises its own root by it. Raises
        CrossVolumeError, InvalidPathError.
        """
        normal = self._normal(path)
        if path.endswith("/") and normal != ROOT:
            normal += "/"
        return normal if path.startswith(ROOT) or _is_url(path) else normal.removeprefix(ROOT)

    # Lookups

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """One request for a hundred paths. A new file that is not published yet is not found."""
        statuses = self.client.stat_many([path or ROOT for path in paths])
        return [_info(path, status) for path, status in zip(paths, statuses, strict=True)]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """One listing, ordered by path, since Dask reads files in the order of the listing; up to
        50,000 entries show an atomic change completely or not at all.

        Raises NotDirectoryError (the base is a file), PathNotFoundError.
        """
        base = selector.base_dir
        top = self._normal(base)
        skip = len(top.rstrip("/")) + 1
        above = base if not base or base.endswith("/") else f"{base}/"
        infos = []
        try:
            for status in self.client.list(top, recursive=selector.recursive):
                if status.path == top:
                    raise NotDirectoryError("a file is at the path", path=top)
                infos.append(_info(above + status.path[skip:], status))
        except PathNotFoundError:
            if not selector.allow_not_found:
                raise
            return []
        return sorted(infos, key=lambda info: info.path)

    # Changes of the tree

    def create_dir(self, path: str, recursive: bool) -> None:
        """Without `recursive`, PathNotFoundError if the parent is missing."""
        place = self._normal(path)
        if not recursive and place != ROOT and not self.client.exists(paths.split(place)[0]):
            raise PathNotFoundError("the parent directory does not exist", path=place)
        self.client.makedirs(place)

    def delete_dir(self, path: str) -> None:
        """Atomic: readers see all of it or nothing. In layout `tree` the directory goes into the
        trash. The root is refused."""
        place = self._normal(path)
        self.client.delete(place, recursive=True, expected=self._need(place, directory=True))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Entry by entry; each directory in it atomically. The root is refused with
        InvalidArgumentError."""
        place = self._normal(path)
        if place == ROOT:
            raise InvalidArgumentError(
                "the root is emptied only with accept_root_dir=True", path=place
            )
        try:
            self._empty(place)
        except PathNotFoundError:
            if not missing_dir_ok:
                raise

    def delete_root_dir_contents(self) -> None:
        """As `delete_dir_contents`."""
        self._empty(ROOT)

    def delete_file(self, path: str) -> None:
        """Raises IsDirectoryError for a directory, even an empty one."""
        place = self._normal(path)
        while True:
            found = self._need(place, directory=False)
            with suppress(ConflictError):  # overwritten, or replaced by a directory
                self.client.delete(place, expected=found)
                return

    def move(self, src: str, dest: str) -> None:
        """Copies no bytes. A file replaces a file at the target, a directory an empty directory.

        Raises PathExistsError (the target is of another kind), DirectoryNotEmptyError,
        RenameIntoSelfError, and PathNotFoundError also for a missing parent of the target.
        """
        source, target = self._normal(src), self._normal(dest)
        try:
            self.client.rename(source, target, overwrite=True)
        except PathExistsError:
            moved, replaced = self.client.stat_many([source, target])
            if moved is None or replaced is None or not (moved.is_dir and replaced.is_dir):
                raise
            self.client.delete(target, expected=replaced)
            self.client.rename(source, target)

    def copy_file(self, src: str, dest: str) -> None:
        """Inside the service if possible; missing parents are made. Raises IsDirectoryError for
        either."""
        self.client.copy(self._normal(src), self._normal(dest), overwrite=True)

    # Files

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """The current version of the file, with read-ahead for sequential reads."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """The current version of the file. Nothing is fetched yet; random reads fetch the requested
        ranges only. Buffers are the fetched bytes, without a copy."""
        return pa.PythonFile(self.client.open(self._normal(path)), mode="r")

    def open_output_stream(self, path: str, _metadata: object) -> pa.NativeFile:
        """A new file or version, visible when it is closed. Metadata is not kept."""
        return pa.PythonFile(_Output(self.client.open(self._normal(path), "wb")), mode="w")

    def open_append_stream(self, path: str, _metadata: object) -> pa.NativeFile:
        """A stream that adds bytes at the end of a file, or makes one. They become visible together
        when it is closed; several streams can append at the same time. `tell` counts the added
        bytes only: Arrow counts what is written to a Python file from 0, and does not ask it.

        An adopted file, and a file of a volume without extents, is read and written again; then
        closing raises ConflictError if the file was changed meanwhile.
        """
        return pa.PythonFile(_Output(self._appending(self._normal(path))), mode="w")

    # Internals

    def _normal(self, path: str) -> str:
        """The path inside the volume. Raises CrossVolumeError, InvalidPathError."""
        if not _is_url(path):
            return paths.normalize(path or ROOT)
        name, _, rest = path[len(SCHEME) :].partition("/")
        if not self.client.name:
            self.client.open_volume()
        if name != self.client.name:
            raise CrossVolumeError(f"the path is not in the volume {self.client.name!r}", path=path)
        return paths.normalize(ROOT + rest)

    def _need(self, path: str, *, directory: bool) -> FileStatus:
        found = self.client.stat(path)
        if found.is_dir == directory:
            return found
        if directory:
            raise NotDirectoryError("a file is at the path", path=path)
        raise IsDirectoryError("a directory is at the path", path=path)

    def _empty(self, path: str) -> None:
        listing = self.client.list(path, include_uncommitted=True)
        while children := [status.path for status in islice(listing, EMPTYING)]:
            if children == [path]:
                raise NotDirectoryError("a file is at the path", path=path)
            self._delete_all(path, children)

    def _delete_all(self, path: str, children: Iterable[str]) -> None:
        deleted = self.client.delete_many(children, recursive=True, missing_ok=True)
        deleted.raise_for_failures(path=path)

    def _appending(self, path: str) -> SyncFileWriter:
        with suppress(UnsupportedError):
            return self.client.open(path, "ab")
        if not self.client.exists(path):
            return self.client.open(path, "xb")
        # The writer first: it replaces the current version, and fails if a later one is read here.
        writer = self.client.open(path, "wb")
        try:
            with _open_uncached(self.client, path) as reader:
                while chunk := reader.read(APPENDING):
                    writer.write(chunk)
        except BaseException:
            writer.discard()
            raise
        return writer


def _open_uncached(client: S3kSyncClient, path: str) -> SyncFileReader:
    """Open a file whose bytes are stored again."""

    async def reader(fs: S3kClient) -> FileReader:
        return await open_reader(partial(volume_of, fs), path, cached=False)

    return SyncFileReader(current_bridge(), on_client(client, reader), client)


class _Output:
    """The target of an Arrow stream. `close` publishes it, unless an exception closes it.

    Arrow closes it in the thread in which Python code closes the stream, or in one of its own
    threads when a dataset's file is complete; abandoned streams are dropped without closing, and
    the writer's finaliser discards them.
    """

    def __init__(self, writer: SyncFileWriter) -> None:
        self._writer = writer
        self._unwinding = Unwinding()

    @property
    def closed(self) -> bool:
        return self._writer.closed

    def write(self, data: Buffer) -> int:
        return self._writer.write(data)

    def close(self) -> None:
        if self._unwinding.by_exception:
            if not self.closed:
                _LOG.warning("%s is not published: an exception closes it", self._writer.name)
            self._writer.discard()
        elif self._unwinding.by_finaliser and not self.closed:
            self._writer.discard()
            message = f"discarding a file that was not closed: {self._writer.name}"
            warnings.warn(message, ResourceWarning, source=self, stacklevel=2)
        else:
            self._writer.close()


def _is_url(path: str) -> bool:
    return path[: len(SCHEME)].lower() == SCHEME


def _info(path: str, status: FileStatus | None) -> FileInfo:
    if status is None or not (status.is_dir or status.committed):
        return FileInfo(path, FileType.NotFound)
    kind, size = (FileType.Directory, None) if status.is_dir else (FileType.File, status.size)
    # The root has no time of its own.
    return FileInfo(path, kind, size=size, mtime_ns=status.mtime_ms * NS_OF_MS or None)


def _table(client: S3kSyncClient) -> tuple[TableLocation, str]:
    """Identity of the volume's table, without settings that may differ between clients, and the
    volume's table prefix."""
    table, prefix = client.config.table, client.config.table_prefix
    service = table.service
    if service is None:
        return table, prefix
    return table.with_service(
        AwsConfig(region=service.region, endpoint=service.endpoint, profile=service.profile)
    ), prefix
