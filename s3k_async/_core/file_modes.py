"""Modes of new local files and directories: private, or shared with a directory's group.

A directory is shared if it has the setgid bit and is writable by the group. Below the root of a
store, files and directories have the mode of the root, so that its owner can open or close it by
`chmod`. The umask neither adds to these modes nor takes from them.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from s3k_async.errors import NotAVolumeError, PermissionDeniedError, ServiceError

__all__ = [
    "directory_mode",
    "file_mode",
    "inherited",
    "is_shared",
    "make_directories",
    "make_parent",
    "open_private",
    "shares_with_group",
]

_SHARED: Final = stat.S_ISGID | stat.S_IWGRP


def file_mode(directory: str) -> int:
    """The mode of a file in a directory that is not below a store's root."""
    return 0o660 if is_shared(directory) else 0o600


def directory_mode(directory: str) -> int:
    """The mode of a directory in another one that is not below a store's root."""
    return 0o2770 if is_shared(directory) else 0o700


def inherited(root: os.stat_result) -> tuple[int, int]:
    """The modes of files and of directories below a store's root."""
    return root.st_mode & 0o666 | 0o600, root.st_mode & 0o2777 | 0o700


def open_private(path: str, flags: int) -> int:
    """An opener for `open`: new files are not readable by all users."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    mode = file_mode(os.path.dirname(os.path.abspath(path)))
    if flags & os.O_EXCL and mode != 0o600:
        os.fchmod(descriptor, mode)
    return descriptor


def make_directories(path: str) -> None:
    """Make a directory and its missing parents. Raises the errors of `os.makedirs`."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above != path:
        make_directories(above)
    mode = directory_mode(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    if mode != 0o700:
        os.chmod(path, mode)


def make_parent(path: str) -> None:
    """Make the parent directory of a file or directory of a volume. Raises NotAVolumeError,
    PermissionDeniedError, ServiceError."""
    try:
        make_directories(os.path.dirname(os.path.abspath(path)))
    except (FileExistsError, NotADirectoryError) as error:
        raise NotAVolumeError("the volume's directory is a file", path=path) from error
    except PermissionError as error:
        raise PermissionDeniedError("the volume's directory cannot be made", path=path) from error
    except OSError as error:
        raise ServiceError(
            f"the volume's directory cannot be made: {error.strerror}", path=path
        ) from error


def is_shared(directory: str) -> bool:
    """Whether a directory is shared with its group."""
    return shares_with_group(os.stat(directory))


def shares_with_group(facts: os.stat_result) -> bool:
    """As `is_shared`, from the status of the directory."""
    return facts.st_mode & _SHARED == _SHARED
