"""Local files and directories for transfers. Raises errors of this package.

What is not a coroutine blocks. A cancelled task waits for its worker thread before it closes a
file: the thread would otherwise go on with the number of a closed descriptor, which may by then be
that of another file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.file_replacement import replaceable
from s3k_async._core.os_errors import os_errors
from s3k_async._core.runtime import SYSTEM
from s3k_async._core.worker_threads import in_thread
from s3k_async.errors import (
    InvalidPathError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    UnsupportedError,
)

__all__ = [
    "LocalEntry",
    "LocalTree",
    "appearing",
    "in_order",
    "local_errors",
    "make_directory",
    "open_regular",
    "opened",
    "read",
    "read_piece",
    "read_small",
    "survey",
    "write",
    "write_piece",
]

T = TypeVar("T")

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Error codes of file systems without hard links."""


@contextmanager
def local_errors(path: str) -> Iterator[None]:
    """Raise the operating system's errors about a local path as errors of this package."""
    try:
        with os_errors(path):
            yield
    except S3kError as error:
        number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
        if number not in _KINDS:
            raise
        kind, message = _KINDS[number]
        raise kind(message, path=path) from error.__cause__


_KINDS: dict[int | None, tuple[type[S3kError], str]] = {
    errno.ENOENT: (PathNotFoundError, "no such local file or directory"),
    errno.EEXIST: (PathExistsError, "the local file exists"),
    errno.EISDIR: (IsDirectoryError, "a local directory is in the way"),
    errno.ENOTDIR: (NotDirectoryError, "a local file is in the way"),
    errno.ELOOP: (InvalidPathError, "the local link leads to itself"),
}


@dataclass(slots=True)
class LocalTree:
    """Directories and files below a local directory, relative to it, and skipped entries with the
    reason."""

    directories: list[str] = field(default_factory=list)
    files: list[tuple[str, int]] = field(default_factory=list)
    """With their sizes."""
    failures: list[tuple[str, Exception]] = field(default_factory=list)


def survey(root: str) -> LocalTree:
    """Scan a local directory, as `in_order`."""
    found = LocalTree()
    for entry in in_order(root, found.failures):
        if entry.is_dir:
            found.directories.append(entry.path)
        else:
            found.files.append((entry.path, entry.size))
    return found


@dataclass(frozen=True, slots=True)
class LocalEntry:
    """A file or directory below a local directory."""

    path: str
    """Relative to that directory."""
    is_dir: bool
    size: int = 0
    mtime_ns: int = 0
    """Modification time of a file, epoch nanoseconds."""


def in_order(root: str, failures: list[tuple[str, Exception]]) -> Iterator[LocalEntry]:
    """Everything below a local directory, by name, each directory followed by its content. Links
    to files count as files; links to directories are not followed. Entries that are neither, and
    those that cannot be read, are appended to `failures`. The names in the directories above the
    current one are in memory."""
    levels = [_scanned(root, failures)]
    while levels:
        found = next(levels[-1], None)
        if found is None:
            levels.pop()
            continue
        try:
            with local_errors(found.path):
                entry = _local_entry(found, os.path.relpath(found.path, root))
        except S3kError as error:
            failures.append((found.path, error))
            continue
        yield entry
        if entry.is_dir:
            levels.append(_scanned(found.path, failures))


def _local_entry(found: os.DirEntry[str], relative: str) -> LocalEntry:
    if found.is_dir(follow_symlinks=False):
        return LocalEntry(relative, True)
    if not found.is_file():
        raise UnsupportedError(_not_a_file(found), path=found.path)
    status = found.stat()
    return LocalEntry(relative, False, status.st_size, status.st_mtime_ns)


def _not_a_file(entry: os.DirEntry[str]) -> str:
    if not entry.is_symlink():
        return "neither a file nor a directory"
    return "a link to a directory is not followed" if entry.is_dir() else "the link leads nowhere"


def _scanned(directory: str, failures: list[tuple[str, Exception]]) -> Iterator[os.DirEntry[str]]:
    try:
        with local_errors(directory), os.scandir(directory) as found:
            return iter(sorted(found, key=lambda entry: entry.name))
    except S3kError as error:
        failures.append((directory, error))
        return iter(())


def open_regular(path: str) -> tuple[int, int]:
    """A descriptor of a regular file and the file's size. Never blocks on a pipe.

    Raises UnsupportedError for any other kind of file.
    """
    with local_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise UnsupportedError("not a regular file", path=path)
    return descriptor, found.st_size


def read(descriptor: int, path: str, start: int, length: int) -> bytes:
    """`length` bytes from `start`, fewer only at the end of the file."""
    pieces: list[bytes] = []
    got = 0
    with local_errors(path):
        while got < length and (piece := os.pread(descriptor, length - got, start + got)):
            pieces.append(piece)
            got += len(piece)
    return b"".join(pieces)


def read_small(path: str, limit: int) -> bytes | None:
    """The content of a regular file of fewer than `limit` bytes, None for a larger one. Raises as
    `open_regular`."""
    descriptor, size = open_regular(path)
    try:
        if size >= limit:
            return None
        data = read(descriptor, path, 0, limit)
        return data if len(data) < limit else None
    finally:
        os.close(descriptor)


@asynccontextmanager
async def opened(path: str) -> AsyncIterator[tuple[int, int]]:
    """As `open_regular`, for the body of an `async with`."""
    async with _open(partial(open_regular, path), lambda found: found[0]) as found:
        yield found


async def read_piece(descriptor: int, path: str, start: int, length: int) -> bytes:
    """As `read`, in a worker thread."""
    return await in_thread(read, descriptor, path, start, length)


async def write_piece(descriptor: int, path: str, data: bytes | memoryview) -> None:
    """As `write`, in a worker thread."""
    await in_thread(write, descriptor, path, data)


@asynccontextmanager
async def _open(opener: Callable[[], T], descriptor_of: Callable[[T], int]) -> AsyncIterator[T]:
    """What an opener returns; its descriptor is closed at the end, also if the task is cancelled
    while the opener runs."""
    made: list[T] = []
    try:
        await in_thread(lambda: made.append(opener()))
        yield made[0]
    finally:
        for each in made:
            os.close(descriptor_of(each))


@asynccontextmanager
async def appearing(path: str, *, overwrite: bool = True, hint: str = "") -> AsyncIterator[int]:
    """A descriptor of a temporary file in the same directory, renamed into place at the end of the
    body.

    A failure, or a cancellation, leaves nothing behind. Raises as `replaceable`, with `hint`, and
    PathExistsError (not `overwrite`, and a file is there by the end).
    """
    place = await in_thread(partial(replaceable, path, hint=hint))
    # With a short name, since the file's own may have the maximum length.
    part = os.path.join(os.path.dirname(place), f".{SYSTEM.uuid()}.part")
    try:
        async with _open(partial(_create, part, path), int) as descriptor:
            yield descriptor
            await in_thread(_replace if overwrite else _link, part, place, path)
    except BaseException:
        await to_the_end(partial(in_thread, _remove, part))
        raise


def _create(part: str, path: str) -> int:
    with local_errors(path):
        return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _replace(part: str, place: str, path: str) -> None:
    with local_errors(path):
        os.replace(part, place)


def _link(part: str, place: str, path: str) -> None:
    """Give a file its name, unless the name is taken by now."""
    with local_errors(path):
        try:
            os.link(part, place)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Without hard links a race remains: a file created at this moment is replaced.
            if os.path.lexists(place):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place) from error
            os.replace(part, place)
            return
        os.unlink(part)


def _remove(part: str) -> None:
    with local_errors(part), suppress(FileNotFoundError):
        os.unlink(part)


def write(descriptor: int, path: str, data: bytes | memoryview) -> None:
    """Write all of the data."""
    view = memoryview(data)
    with local_errors(path):
        while view:
            view = view[os.write(descriptor, view) :]


def make_directory(path: str) -> None:
    """Create a directory and its missing parents. Raises NotDirectoryError if a file is in the
    way."""
    try:
        with local_errors(path):
            os.makedirs(path, exist_ok=True)
    except PathExistsError as error:
        raise NotDirectoryError("a local file is in the way", path=path) from error.__cause__
