"""Files and directories on this machine, as transfers see them. Blocking; every error is one of ours."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from s3k_async.errors import (
    InvalidPathError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    UnsupportedError,
)
from s3k_async.stores.os_errors import os_errors

__all__ = [
    "Survey",
    "create",
    "local_errors",
    "make_directory",
    "open_regular",
    "read",
    "remove",
    "replace",
    "survey",
    "write",
]


@contextmanager
def local_errors(path: str) -> Iterator[None]:
    """Raise the operating system's errors about a local path as ours."""
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
class Survey:
    """Directories and files below a local directory, relative to it, and what is neither, with the reason."""

    directories: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    failures: list[tuple[str, Exception]] = field(default_factory=list)


def survey(root: str) -> Survey:
    """Look through a local directory. Links to files count as files; links to directories are not followed."""
    found = Survey()
    for entry in _walk(root, found.failures):
        relative = os.path.relpath(entry.path, root)
        try:
            with local_errors(entry.path):
                if entry.is_dir(follow_symlinks=False):
                    found.directories.append(relative)
                elif entry.is_file():
                    found.files.append(relative)
                else:
                    raise UnsupportedError(_not_a_file(entry), path=entry.path)
        except S3kError as error:
            found.failures.append((entry.path, error))
    return found


def _not_a_file(entry: os.DirEntry[str]) -> str:
    if not entry.is_symlink():
        return "neither a file nor a directory"
    return "a link to a directory is not followed" if entry.is_dir() else "the link leads nowhere"


def _walk(root: str, failures: list[tuple[str, Exception]]) -> Iterator[os.DirEntry[str]]:
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        try:
            with local_errors(directory), os.scandir(directory) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except S3kError as error:
            failures.append((directory, error))
            continue
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


def open_regular(path: str) -> tuple[int, int]:
    """A descriptor of a regular file and the file's size. Never waits for the other end of a pipe.

    Raises UnsupportedError for what is no regular file.
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


def create(part: str, path: str) -> int:
    """A descriptor of a new file, which will become the one at `path`."""
    with local_errors(path):
        return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def write(descriptor: int, path: str, data: bytes | memoryview) -> None:
    """Append all of the data."""
    view = memoryview(data)
    with local_errors(path):
        while view:
            view = view[os.write(descriptor, view) :]


def replace(old: str, new: str) -> None:
    """Rename a file, over another one if need be."""
    with local_errors(new):
        os.replace(old, new)


def remove(path: str) -> None:
    """Remove a file; absent is fine."""
    with local_errors(path), suppress(FileNotFoundError):
        os.unlink(path)


def make_directory(path: str) -> None:
    """Make a directory and its missing parents. Raises NotDirectoryError if a file is in the way."""
    try:
        with local_errors(path):
            os.makedirs(path, exist_ok=True)
    except PathExistsError as error:
        raise NotDirectoryError("a local file is in the way", path=path) from error.__cause__
