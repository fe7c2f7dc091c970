"""File status with Hadoop's fields.

Times are epoch milliseconds, sizes bytes. A path is a URL, `s3k://<volume>/a/b`, its text not
percent-encoded.
"""

from __future__ import annotations

from dataclasses import dataclass

from s3k_async.errors import InvalidArgumentError
from s3k_async.model import FileStatus

__all__ = [
    "BLOCK_SIZE",
    "REPLICATION",
    "BlockLocation",
    "HadoopContentSummary",
    "HadoopFileStatus",
    "HadoopLocatedFileStatus",
    "locate",
]

BLOCK_SIZE = 128 * 1024 * 1024
"""Nominal block size. There are no blocks; jobs compute their input splits from it."""
REPLICATION = 1
DIRECTORY_PERMISSION = 0o777
FILE_PERMISSION = 0o666


@dataclass(frozen=True, slots=True, kw_only=True)
class HadoopFileStatus:
    """One file or directory. Permission, owner and group are enforced in a volume that evaluates
    permissions."""

    path: str
    length: int
    """0 for a directory and for a file whose writer has not closed it."""
    is_directory: bool
    modification_time: int
    """Time of publication (a directory: of creation), or the time that was set."""
    access_time: int = 0
    block_size: int
    replication: int
    permission: int
    """Permission bits; 0o777 of a directory and 0o666 of a file for which none were set."""
    owner: str
    """The name on this machine, or the id; the user of the filesystem if none was set."""
    group: str
    """As `owner`."""
    is_encrypted: bool = False
    is_erasure_coded: bool = False
    has_acl: bool = False

    @property
    def is_file(self) -> bool:
        """Whether this is a file, complete or not."""
        return not self.is_directory

    @property
    def is_symlink(self) -> bool:
        """Never."""
        return False

    @classmethod
    def of(
        cls, status: FileStatus, url: str, mode: int | None, owner: str, group: str
    ) -> HadoopFileStatus:
        """A client's status in Hadoop's form. `url`: the displayed path. `mode`: None for the
        default. `owner`, `group`: the names of its ids."""
        default = DIRECTORY_PERMISSION if status.is_dir else FILE_PERMISSION
        return cls(
            path=url,
            length=status.size,
            is_directory=status.is_dir,
            modification_time=status.mtime_ms,
            block_size=0 if status.is_dir else BLOCK_SIZE,
            replication=0 if status.is_dir else REPLICATION,
            permission=default if mode is None else mode,
            owner=owner,
            group=group,
        )


@dataclass(frozen=True, slots=True)
class BlockLocation:
    """Location of a part of a file. An object store is equally far from every host: always
    `localhost`."""

    offset: int
    length: int
    hosts: tuple[str, ...] = ("localhost",)
    names: tuple[str, ...] = ("localhost:9866",)


@dataclass(frozen=True, slots=True, kw_only=True)
class HadoopLocatedFileStatus(HadoopFileStatus):
    """A status with its block locations; none for a directory."""

    block_locations: tuple[BlockLocation, ...] = ()

    @classmethod
    def of(
        cls, status: FileStatus, url: str, mode: int | None, owner: str, group: str
    ) -> HadoopLocatedFileStatus:
        """As `HadoopFileStatus.of`."""
        plain = HadoopFileStatus.of(status, url, mode, owner, group)
        fields = {name: getattr(plain, name) for name in HadoopFileStatus.__slots__}
        return cls(
            **fields, block_locations=() if status.is_dir else locate(status.size, 0, status.size)
        )


def locate(size: int, start: int, length: int) -> tuple[BlockLocation, ...]:
    """Locations of `length` bytes from `start` of a file of `size` bytes, as in Hadoop's default:
    one for the whole file, none past its end. Raises InvalidArgumentError for a negative start or
    length."""
    if start < 0 or length < 0:
        raise InvalidArgumentError("start and length cannot be negative")
    return (BlockLocation(0, size),) if start < size else ()


@dataclass(frozen=True, slots=True)
class HadoopContentSummary:
    """Totals of a subtree. A directory counts itself, a file counts no directory. There are no
    quotas."""

    length: int
    file_count: int
    directory_count: int
    space_consumed: int
    """Equal to `length`, for directories as for files."""
    quota: int = -1
    space_quota: int = -1
