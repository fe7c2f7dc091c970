"""Walking a directory tree in the order of its keys."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import nsmallest

from s3k_async.backends.ports.blobs import BlobInfo

__all__ = ["PRIVATE", "blob_info", "opened_directory", "walk"]

PRIVATE = ".tmp"
"""The directory of unpublished files below the root; no key begins with it."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened_directory(name: str, parent: int) -> Iterator[int]:
    """A descriptor of a directory below the one open as `parent`, never through a symbolic link."""
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def blob_info(key: str, facts: os.stat_result) -> BlobInfo:
    """A file as a blob. The etag is its modification time, whose part below a millisecond is
    random, and size."""
    etag = f"{facts.st_mtime_ns:x}-{facts.st_size:x}"
    return BlobInfo(key, facts.st_size, etag, facts.st_mtime_ns // 1_000_000)


def walk(root: int, prefix: str, after: str, batch: int) -> Iterator[BlobInfo]:
    """Every regular file below the directory open as `root` whose key starts with `prefix` and
    follows `after`.

    Keys ascend by their UTF-8 bytes as a whole: `a-b` comes before `a/b`. Each directory is read
    again after every `batch` of its names, which bounds the names in memory. Symbolic links, other
    special files, names that are not UTF-8, and files removed meanwhile are skipped.
    """
    yield from _walk(root, "", prefix, after, batch)


def _walk(directory: int, path: str, prefix: str, after: str, batch: int) -> Iterator[BlobInfo]:
    for name in _names(directory, path, prefix, after, batch):
        try:
            if name.endswith("/"):
                with opened_directory(name[:-1], directory) as descriptor:
                    yield from _walk(descriptor, path + name, prefix, after, batch)
            else:
                facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISREG(facts.st_mode):
                    yield blob_info(path + name, facts)
        except (FileNotFoundError, NotADirectoryError):
            continue


def _names(directory: int, path: str, prefix: str, after: str, batch: int) -> Iterator[str]:
    """The names on the way to wanted keys, in order; a directory's ends in `/`, as in its keys."""
    last = ""
    while True:
        names = nsmallest(
            batch, (name for name in _wanted(directory, path, prefix, after) if name > last)
        )
        yield from names
        if len(names) < batch:
            return
        last = names[-1]


def _wanted(directory: int, path: str, prefix: str, after: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                name = entry.name + "/"
                key = path + name
                leads = key.startswith(prefix) or prefix.startswith(key)
                wanted = leads and (key > after or after.startswith(key)) and key != PRIVATE + "/"
            else:
                name = entry.name
                key = path + name
                wanted = key.startswith(prefix) and key > after
            if wanted and _is_text(name):
                yield name


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
