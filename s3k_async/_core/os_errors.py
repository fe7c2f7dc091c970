"""Mapping of operating system errors to those of `errors.py`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from s3k_async.errors import (
    InvalidPathError,
    NoSpaceError,
    PermissionDeniedError,
    S3kError,
    ServiceError,
)

__all__ = ["MAKE_ROOM", "TEMPORARY_ROOM", "os_errors", "sync_directory"]

MAKE_ROOM = (
    "free space there, or delete files of the volume, empty its trash and run s3k gc, or, for a "
    "hot location, s3k tier run; then repeat the call"
)
"""Remedy for a full disk."""
TEMPORARY_ROOM = "free space there, or set TMPDIR to a directory with more space"
"""Remedy for a full disk of temporary files."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def os_errors(path: str, room: str = MAKE_ROOM) -> Iterator[None]:
    """Map errors of system calls about `path`. Errors of this package pass through. `room`: the
    remedy for a full disk."""
    try:
        yield
    except OSError as error:
        if isinstance(error, S3kError):
            raise
        raise _mapped(error, path, room) from error


def _mapped(error: OSError, path: str, room: str) -> S3kError:
    if error.errno in _FULL:
        return NoSpaceError(
            f"the disk, the quota or the file size allowed is used up: {room}", path=path
        )
    if error.errno in _DENIED:
        return PermissionDeniedError(f"the file system refused ({error.strerror})", path=path)
    if error.errno == errno.ENAMETOOLONG:
        return InvalidPathError("the file system does not take a name this long", path=path)
    name = errno.errorcode.get(error.errno or 0, "")
    return ServiceError(
        f"the file system failed ({error.strerror or error})", path=path, service_code=name
    )


def sync_directory(path: str) -> None:
    """Sync a directory, which makes its names durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
