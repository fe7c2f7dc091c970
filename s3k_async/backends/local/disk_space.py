"""The space of a directory's file system."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from s3k_async._core.worker_threads import in_thread
from s3k_async.backends.ports.service_inspection import DiskSpace

__all__ = ["LocalDisk"]


@dataclass(frozen=True, slots=True)
class LocalDisk:
    """A DiskInspection of a directory, which need not exist."""

    directory: str

    async def space(self) -> DiskSpace:
        """As `DiskInspection.space`."""
        return await in_thread(_space, self.directory)


def _space(directory: str) -> DiskSpace:
    directory = os.path.abspath(directory)
    while not os.path.isdir(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    usage = shutil.disk_usage(directory)
    flags = os.statvfs(directory).f_flag
    is_writable = os.access(directory, os.W_OK | os.X_OK) and not flags & os.ST_RDONLY
    return DiskSpace(directory, usage.free, usage.total, is_writable)
