"""Volumes for pyarrow: a `pyarrow.fs.FileSystem` over the blocking client.

    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSelector
    from s3k_async.adapters.arrow import arrow_filesystem

    fs = arrow_filesystem("s3k://analytics")                # settings as S3kClient takes them
    pq.write_table(table, "/raw/day=1/part-0.parquet", filesystem=fs)
    ds.dataset("/raw", filesystem=fs, partitioning="hive").to_table(filter=ds.field("day") == 1)
    fs.get_file_info(FileSelector("/raw", recursive=True))  # one listing, directories in parallel
    fs.move("/staging/day=2", "/raw/day=2")                 # copies no bytes; atomic

`pyarrow.fs.FileSystem.from_uri` cannot know the scheme `s3k`: a filesystem has to be passed beside
the path. (`fsspec+s3k://analytics/raw` it does know: that is the filesystem of fsspec, not this
one.)
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Unpack

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

from s3k_async import paths
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_files import SyncFileWriter
from s3k_async.adapters.unwind import Unwinding
from s3k_async.addresses import Path
from s3k_async.client import SCHEME
from s3k_async.config import AwsConfig, TableLocation, VolumeConfig
from s3k_async.errors import (
    ConflictError,
    CrossVolumeError,
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
)
from s3k_async.model import ROOT, FileStatus
from s3k_async.settings.keywords import Settings
from s3k_async.stores.blobs import Buffer

__all__ = ["S3kHandler", "arrow_filesystem"]

_LOG = logging.getLogger(__name__)

NS_OF_MS = 1_000_000
EMPTYING = 10_000
"""Entries of a directory whose paths are held in memory at once while it is emptied."""
APPENDING = 4 * 1024 * 1024
"""Bytes that are copied at once before a file is appended to."""


def arrow_filesystem(
    volume: Path | None = None,
    *,
    config: VolumeConfig | Path | None = None,
    context: str | None = None,
    hadoop: Mapping[str, object] | None = None,
    session: object | Mapping[str, object] | None = None,
    **settings: Unpack[Settings],
) -> PyFileSystem:
    """A volume as a `pyarrow.fs.FileSystem`; the parameters are those of `S3kClient`.

    It opens at the first call, for each process anew, and closes when nobody holds it any more;
    `handler.client` is the blocking client under it. It may be pickled (configuration, no secrets),
    compared, used by any number of threads, in forked children and beside a running event loop.
    Raises ConfigError.

    Paths are `/a/b`, `a/b` or `s3k://<volume>/a/b`, and come back as they were given. Errors are
    those of the client.

    Files are published one by one when they are closed, with everything in them or not at all: a
    `with` that is left by an exception publishes nothing, and neither does
    `pyarrow.dataset.write_dataset` with the files that it has open when it fails. Those that it had
    finished stay. To make all files of a dataset visible at once, write them to a directory that
    nobody reads and `move` it. A stream with `compression` or `buffer_size` is to be used by
    `with`: one that is forgotten is closed by Arrow itself, and published.
    """
    client = S3kSyncClient(
        volume, config=config, context=context, hadoop=hadoop, session=session, **settings
    )
    return PyFileSystem(S3kHandler(client))


class S3kHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow is untyped
    """What `pyarrow.fs.PyFileSystem` calls, from whichever thread of Arrow's. Each method is what
    pyarrow's documentation says; below is only what a volume adds. All raise what the client
    raises."""

    def __init__(self, client: S3kSyncClient) -> None:
        self.client = client

    def __eq__(self, other: object) -> bool:
        """Whether both are of the same volume."""
        if not isinstance(other, S3kHandler):
            return NotImplemented
        mine, yours = self.client.name, other.client.name
        # A volume that is found by its directory has no name before it is opened, and is alone in
        # its table.
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

        A slash at its end stays: by it a `SubTreeFileSystem` knows its own root again. Raises
        CrossVolumeError, InvalidPathError.
        """
        normal = self._normal(path)
        if path.endswith("/") and normal != ROOT:
            normal += "/"
        return normal if path.startswith(ROOT) or _is_url(path) else normal.removeprefix(ROOT)

    # Looking

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """One request for a hundred paths. A file that is being written for the first time is not
        found."""
        statuses = self.client.stat_many([path or ROOT for path in paths])
        return [_info(path, status) for path, status in zip(paths, statuses, strict=True)]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """One listing, by path, since Dask reads files in the order of the listing; up to 50,000
        entries see an atomic change of many wholly or not at all.

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

    # Changing the tree

    def create_dir(self, path: str, recursive: bool) -> None:
        """Without `recursive`, PathNotFoundError if the parent is missing."""
        place = self._normal(path)
        if not recursive and place != ROOT and not self.client.exists(paths.split(place)[0]):
            raise PathNotFoundError("the parent directory does not exist", path=place)
        self.client.makedirs(place)

    def delete_dir(self, path: str) -> None:
        """At once: readers see all of it or nothing. The root is refused."""
        place = self._normal(path)
        self.client.delete(place, recursive=True, expected=self._need(place, directory=True))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Entry by entry; each directory in it at once. The root is refused with
        InvalidArgumentError."""
        place = self._normal(path)
        if place == ROOT:
            raise InvalidArgumentError(
                "emptying the root has to be asked for: accept_root_dir=True", path=place
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
        """Raises IsDirectoryError for a directory, an empty one too."""
        place = self._normal(path)
        while True:
            found = self._need(place, directory=False)
            with suppress(ConflictError):  # written anew, or not a file any more
                self.client.delete(place, expected=found)
                return

    def move(self, src: str, dest: str) -> None:
        """No bytes are copied. A file at the target is replaced by a file, an empty directory by a
        directory.

        Raises PathExistsError (the target is of another kind), DirectoryNotEmptyError,
        RenameIntoSelfError, and PathNotFoundError also where the target's parent is missing.
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
        """Inside the service where it can; missing parents are made. Raises IsDirectoryError for
        either."""
        self.client.copy(self._normal(src), self._normal(dest), overwrite=True)

    # Files

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """The file at the version it has now. It reads ahead while it is read on and on."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """The file at the version it has now: nothing is fetched yet, and of what is read here and
        there nothing more than was asked for. Buffers are the bytes that were fetched, without a
        copy."""
        return pa.PythonFile(self.client.open(self._normal(path)), mode="r")

    def open_output_stream(self, path: str, _metadata: object) -> pa.NativeFile:
        """A new file, or another version of one, visible when it is closed. Metadata is not
        kept."""
        return pa.PythonFile(_Output(self.client.open(self._normal(path), "wb")), mode="w")

    def open_append_stream(self, path: str, _metadata: object) -> pa.NativeFile:
        """A new version that begins with the bytes of this one: they are read and written again.

        Visible when it is closed, and refused then (ConflictError) if the file was changed
        meanwhile.
        """
        return pa.PythonFile(_Output(self._appending(self._normal(path))), mode="w")

    # Ours

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
        if not self.client.exists(path):
            return self.client.open(path, "xb")
        # The writer first: it replaces the version that it finds, and is refused if what is read
        # now is a later one.
        writer = self.client.open(path, "wb")
        try:
            with self.client.open(path) as reader:
                while chunk := reader.read(APPENDING):
                    writer.write(chunk)
        except BaseException:
            writer.discard()
            raise
        return writer


class _Output:
    """What Arrow's stream writes into. Closing it publishes, unless it is closed because something
    failed.

    Arrow closes it in the thread in which Python code closes the stream, or in one of its own
    threads when a dataset's file is complete; what it gives up, it drops without closing, and the
    writer's finaliser discards it.
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


def _table(client: S3kSyncClient) -> TableLocation:
    """Where the volume's table is, without what may differ between two clients of it."""
    table = client.config.table
    service = table.service
    if service is None:
        return table
    return table.with_service(
        AwsConfig(region=service.region, endpoint=service.endpoint, profile=service.profile)
    )
