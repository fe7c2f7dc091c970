"""A ballast file: disk space reserved for calls that free space.

A deletion writes its log entry and its transaction before it frees anything, so on a full disk it
would fail like any other write. CockroachDB keeps a file of this name for the same reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from s3k_async._core.file_modes import open_private

__all__ = ["LEFT", "OPENING", "SIZE", "Ballast"]

SIZE: Final = 16 * 1024 * 1024
"""Bytes of the file, and the free space below which it is released."""
OPENING: Final = 64 * 1024
"""Bytes that SQLite needs to open a database: its shared-memory index and the head of its log."""
LEFT: Final = 256 * 1024
"""Bytes that stay free when the file is restored, for the log's last entries."""


class Ballast:
    """The ballast file at `path`. Failures are not raised here: the call that needs the space
    raises them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._users = 0

    @contextmanager
    def released(self) -> Iterator[None]:
        """Releases the file if the disk has less than `SIZE` bytes free; restores it when the last
        user ends."""
        self._users += 1
        try:
            with suppress(OSError):
                if self._free() < SIZE:
                    os.unlink(self._path)
            yield
        finally:
            self._users -= 1
            if not self._users:
                self.restore()

    def shrink(self) -> bool:
        """Free `OPENING` bytes on a full disk; False if nothing was freed."""
        with suppress(OSError):
            size = self._size()
            if size and self._free() < OPENING:
                os.truncate(self._path, max(size - OPENING, 0))
                return True
        return False

    def restore(self) -> None:
        """Restore the file to its full size, or as much of it as the disk has space for."""
        with suppress(OSError):
            size = self._size()
            if size >= SIZE:
                return
            created = 0 if os.path.exists(self._path) else os.O_CREAT | os.O_EXCL
            descriptor = open_private(self._path, os.O_WRONLY | created)
            try:
                wanted = min(SIZE, size + self._free() - LEFT)
                if wanted > size:
                    _allocate(descriptor, size, wanted - size)
            finally:
                os.close(descriptor)

    def _size(self) -> int:
        return os.stat(self._path).st_size if os.path.exists(self._path) else 0

    def _free(self) -> int:
        facts = os.statvfs(os.path.dirname(self._path))
        return facts.f_bavail * facts.f_frsize


def _allocate(descriptor: int, start: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, size)
    else:  # macOS
        os.pwrite(descriptor, bytes(size), start)
