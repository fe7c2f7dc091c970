"""Transfers of files and trees between local disk and volume, many files at once."""

from __future__ import annotations

import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Literal, Protocol, overload

from s3k_async._core.concurrency import run_all
from s3k_async._core.worker_threads import in_thread
from s3k_async._native import normalize
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk import local_tree
from s3k_async.bulk.file_writes import LARGE, NewFile, write_files
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    ClosedClientError,
    CredentialsError,
    NoSpaceError,
    OverlapError,
    PathExistsError,
    PathNotFoundError,
    ReadOnlyVolumeError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    UnreachableError,
    VolumeNotFoundError,
)
from s3k_async.files.open_files import FileReader, FileWriter, Opening
from s3k_async.model import (
    ROOT,
    ChangeResult,
    ChangeTally,
    Content,
    ContentSummary,
    FileStatus,
    Progress,
)
from s3k_async.namespace.store import WriteTarget
from s3k_async.volumes.volume import Volume

__all__ = [
    "ProgressCallback",
    "TransferTally",
    "download",
    "is_hopeless",
    "local_file",
    "upload",
    "verified",
]

ProgressCallback = Callable[[Progress], object]


class TransferClient(Protocol):
    """The verbs of a client that transfers use."""

    @property
    def config(self) -> VolumeConfig: ...

    async def write(self, path: str, data: Buffer, *, overwrite: bool = True) -> object: ...

    async def makedirs(self, path: str) -> object: ...

    async def stat(self, path: str) -> FileStatus: ...

    async def content_summary(self, path: str) -> ContentSummary: ...

    def list(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileStatus]: ...

    @overload
    def open(self, path: str, mode: Literal["rb"]) -> Opening[FileReader]: ...
    @overload
    def open(self, path: str, mode: Literal["wb", "xb"]) -> Opening[FileWriter]: ...


CHUNK = 8 * 1024 * 1024
"""Files of at most this size are transferred at once, larger ones in pieces of this size."""
FILES = 16
"""Concurrent files."""

TO_STDOUT = "s3k cat, and s3k get with - for LOCAL, write to standard output"
"""The remedy for a download to a device or a pipe."""

HOPELESS = (
    ClosedClientError,
    CredentialsError,
    NoSpaceError,
    ReadOnlyVolumeError,
    RequestTimeoutError,
    ThrottledError,
    UnreachableError,
    VolumeNotFoundError,
)
"""Errors that affect every file: they end a transfer, instead of being counted as the failure of
one file."""


def is_hopeless(error: S3kError) -> bool:
    """Whether an error ends a transfer: one of HOPELESS, except for a lost response, which affects
    one file."""
    return isinstance(error, HOPELESS) and not isinstance(error.__cause__, ResponseLostError)


@dataclass(slots=True)
class TransferTally:
    """The result of a transfer in progress."""

    operation: str
    total: int | None
    progress: ProgressCallback | None
    tally: ChangeTally = field(default_factory=ChangeTally)

    def done(self, path: str, size: int) -> None:
        """Count a file."""
        self.tally.files += 1
        self.tally.bytes += size
        if self.progress is not None:
            self.progress(
                Progress(self.operation, self.tally.files, self.total, self.tally.bytes, path)
            )

    async def attempt(self, path: str, work: Awaitable[object]) -> None:
        """Await the work on one entry; its error is recorded, unless it ends the transfer."""
        with self.noting(path):
            await work

    @contextmanager
    def noting(self, path: str) -> Iterator[None]:
        """As `attempt`, for the body."""
        try:
            yield
        except S3kError as error:
            self.failed(path, error)

    def failed(self, path: str, error: S3kError) -> None:
        """Record the error of one entry; raise it if it ends the transfer."""
        if is_hopeless(error):
            raise error
        self.tally.failures.append((path, error))


async def verified(reader: FileReader) -> AsyncGenerator[bytes, None]:
    """The content of an open file in pieces. The reader verifies it: if the checksum differs from
    the recorded one, it raises CorruptDataError instead of returning the last piece.
    """
    while piece := await reader.read(CHUNK):
        yield piece


async def upload(
    client: TransferClient,
    volume: Volume,
    source: str | os.PathLike[str],
    target: str,
    *,
    overwrite: bool = True,
    skip: Callable[[str], object] | None = None,
    progress: ProgressCallback | None = None,
) -> ChangeResult:
    """Upload a local file to `target`, or a local directory's tree below it, empty directories
    included.

    Symbolic links to files are followed; links to directories and special files are listed as
    failures. `skip`: called with each local file whose target exists already, unless `overwrite`,
    instead of failing. Raises PathNotFoundError (no such local file); OverlapError (the local
    path is a part of an embedded volume, or contains one); for a single file the errors of the
    write; and errors that affect every file (HOPELESS).
    """
    root = os.fspath(source)
    if not await in_thread(os.path.lexists, root):
        raise PathNotFoundError("no such local file or directory", path=root)
    await in_thread(_need_apart, root, client.config)
    if not await in_thread(os.path.isdir, root):
        transfer = TransferTally("put", 1, progress)
        try:
            transfer.done(target, await _upload_file(client, root, target, overwrite))
        except PathExistsError:
            if skip is None:
                raise
            skip(root)
        return transfer.tally.result()
    survey = await in_thread(local_tree.survey, root)
    transfer = TransferTally("put", len(survey.files), progress)
    transfer.tally.failures += survey.failures

    async def make(relative: str) -> None:
        await client.makedirs(f"{target}/{relative}")
        transfer.tally.directories += 1

    def files() -> Iterator[NewFile]:
        for relative, size in survey.files:
            local = os.path.join(root, relative)
            with transfer.noting(local):
                place = normalize(f"{target}/{relative}")
                yield _new_file(client, volume, local, place, size, overwrite)

    await client.makedirs(target)
    transfer.tally.directories += 1
    for _, level in groupby(sorted(survey.directories, key=_depth), _depth):
        await run_all(
            lambda each: transfer.attempt(os.path.join(root, each), make(each)),
            list(level),
            limit=FILES,
        )
    with volume.calls.running("upload_files", target):
        await _upload_files(volume, files(), transfer, overwrite=overwrite, skip=skip)
    return transfer.tally.result()


async def download(
    client: TransferClient,
    source: str,
    target: str | os.PathLike[str],
    *,
    overwrite: bool = True,
    progress: ProgressCallback | None = None,
) -> ChangeResult:
    """Download a file to the local path `target`, or a directory's tree below it, empty directories
    included.

    A local file appears complete and verified, or not at all; a link to a file is kept, and the
    file is replaced. Raises UnsupportedError (the local path is a device, a pipe or a socket),
    PathNotFoundError, PathExistsError (the local file exists, and not `overwrite`),
    IsDirectoryError, NotDirectoryError (a local file or directory is at the path), OverlapError (it
    is a part of an embedded volume), CorruptDataError, and errors that affect every file
    (HOPELESS).
    """
    local = os.fspath(target)
    own = await in_thread(_own_paths, client.config)
    if own:
        await in_thread(_need_outside, local, own)
        own = await in_thread(_inside, own, local)
    status = await client.stat(source)
    if not status.is_dir:
        transfer = TransferTally("get", 1, progress)
        transfer.done(status.path, await _download_file(client, status, local, overwrite))
        return transfer.tally.result()
    total = None
    if progress is not None:
        with suppress(BusyError):  # progress without a total
            total = (await client.content_summary(status.path)).file_count
    transfer = TransferTally("get", total, progress)

    async def get(found: FileStatus) -> None:
        relative = found.path[len(status.path) :] if status.path != ROOT else found.path
        place = os.path.join(local, *relative.strip("/").split("/"))
        if own:  # below the local directory
            await in_thread(_need_outside, place, own)
        if found.is_dir:
            await in_thread(local_tree.make_directory, place)
            transfer.tally.directories += 1
        else:
            transfer.done(found.path, await _download_file(client, found, place, overwrite))

    await in_thread(local_tree.make_directory, local)
    transfer.tally.directories += 1
    below = client.list(status.path, recursive=True)
    await run_all(lambda found: transfer.attempt(found.path, get(found)), below, limit=FILES)
    return transfer.tally.result()


def _own_paths(config: VolumeConfig) -> list[str]:
    """The local files and directories of an embedded volume, symbolic links resolved."""
    home = config.table.home
    if home is None:
        return []
    places = [each.directory for each in (config.data, config.log) if each is not None]
    below = _inside([each for each in places if each is not None], home)
    return [os.path.realpath(each) for each in (*config.table.files, *below)]


def _inside(paths: Iterable[str], directory: str) -> list[str]:
    """The local paths that are a directory, or below it, symbolic links resolved."""
    root = os.path.realpath(directory)
    return [each for each in paths if os.path.commonpath([root, os.path.realpath(each)]) == root]


def _need_apart(root: str, config: VolumeConfig) -> None:
    """Raise OverlapError for a local path that is a part of the volume, or contains one."""
    own = _own_paths(config)
    _need_outside(root, own)
    if _inside(own, root):
        raise OverlapError(
            f"the volume in {config.table.home} would be copied into itself: upload what is beside "
            "it",
            path=root,
        )


def _need_outside(place: str, own: Sequence[str]) -> None:
    """Raise OverlapError for a local path that is a part of the volume."""
    for part in own:
        if _inside([place], part):
            raise OverlapError(
                f"the local path is a part of the volume, {part}: choose another one", path=place
            )


def _depth(path: str) -> int:
    return path.count("/")


async def _upload_files(
    volume: Volume,
    files: Iterable[NewFile],
    transfer: TransferTally,
    *,
    overwrite: bool,
    skip: Callable[[str], object] | None,
) -> None:
    def failed(file: NewFile, error: S3kError) -> None:
        if skip is not None and isinstance(error, PathExistsError):
            skip(file.source)
        else:
            transfer.failed(file.source, error)

    await write_files(
        volume,
        files,
        overwrite=overwrite,
        done=lambda file, size: transfer.done(file.path, size),
        failed=failed,
    )


def _new_file(
    client: TransferClient, volume: Volume, local: str, target: str, size: int, overwrite: bool
) -> NewFile:
    file = local_file(volume, local, target, size)
    alone = partial(_upload_file, client, local, target, overwrite)
    return replace(file, alone=alone) if size >= LARGE else file


def local_file(volume: Volume, local: str, target: str, size: int) -> NewFile:
    """A local file to be written to a path; its size may have changed when it is uploaded."""

    async def upload(at: WriteTarget) -> Content:
        storage = volume.storage.at(at.path)
        data = await in_thread(local_tree.read_small, local, CHUNK)
        if data is not None:
            return await storage.put_in_bulk(at.object_id, data)
        async with local_tree.opened(local) as (descriptor, _):  # the file has grown
            writer = storage.writer(at.object_id)
            try:
                await _send(descriptor, local, writer.write)
                return await writer.finish()
            except BaseException:
                await writer.abort()
                raise

    return NewFile(target, size, upload, source=local)


async def _upload_file(client: TransferClient, local: str, target: str, overwrite: bool) -> int:
    data = await in_thread(local_tree.read_small, local, CHUNK)
    if data is not None:
        await client.write(target, data, overwrite=overwrite)
        return len(data)
    mode: Literal["wb", "xb"] = "wb" if overwrite else "xb"
    async with (
        local_tree.opened(local) as (descriptor, _),
        client.open(target, mode) as writer,
    ):
        return await _send(descriptor, local, writer.write)


async def _send(descriptor: int, local: str, write: Callable[[bytes], Awaitable[object]]) -> int:
    """Write an open local file in pieces; returns its size."""
    sent = 0
    while piece := await local_tree.read_piece(descriptor, local, sent, CHUNK):
        await write(piece)
        sent += len(piece)
    return sent


async def _download_file(
    client: TransferClient, status: FileStatus, local: str, overwrite: bool
) -> int:
    if not overwrite and await in_thread(os.path.lexists, local):
        raise PathExistsError("the local file exists", path=local)
    directory = os.path.dirname(local)
    await in_thread(local_tree.make_directory, directory or ".")
    async with (
        client.open(status.path, "rb") as reader,
        local_tree.appearing(local, overwrite=overwrite, hint=TO_STDOUT) as descriptor,
    ):
        async for piece in verified(reader):
            await local_tree.write_piece(descriptor, local, piece)
    return reader.size
