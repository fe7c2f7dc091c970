"""The storage of the locations of a volume, as reported by their services."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["StorageInfo", "StorageSpace"]


@dataclass(frozen=True, slots=True)
class StorageSpace:
    """Bytes of the disk, or of the memory of the server, that holds a location; other programs may
    use it, too. None where the service does not report a number, or has no limit."""

    total: int | None = None
    used: int | None = None
    free: int | None = None
    """What can still be written. Not always the difference of the others: file systems reserve
    blocks for the superuser."""

    @classmethod
    def of_disk(cls, path: str) -> StorageSpace:
        """The file system that has `path`, as POSIX statvfs reports it. Raises OSError."""
        found = os.statvfs(path)
        return cls(
            total=found.f_blocks * found.f_frsize,
            used=(found.f_blocks - found.f_bfree) * found.f_frsize,
            free=found.f_bavail * found.f_frsize,
        )

    def __add__(self, other: StorageSpace) -> StorageSpace:
        """Both together; None where one of them is unknown."""
        return StorageSpace(
            _sum(self.total, other.total),
            _sum(self.used, other.used),
            _sum(self.free, other.free),
        )


@dataclass(frozen=True, slots=True)
class StorageInfo:
    """The storage of a volume's locations, which may be on one disk."""

    table: StorageSpace
    data: StorageSpace
    """Of a volume with tiers: of its cold location."""
    log: StorageSpace | None
    """None in a volume without an operation log."""
    hot: StorageSpace | None
    """None in a volume without tiers."""


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
