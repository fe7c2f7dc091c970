"""Mapping of RocksDB's errors to those of `errors.py`.

rocksdict raises plain `Exception` with the text of RocksDB's status, which begins with its code:
`IO error: No space left on device: ...`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from s3k_async._core.os_errors import MAKE_ROOM
from s3k_async.errors import (
    BusyError,
    CorruptDataError,
    NoSpaceError,
    PermissionDeniedError,
    ResponseLostError,
    S3kError,
    ServiceError,
    ThrottledError,
)

__all__ = ["rocksdb_errors"]

_FULL: Final = ("No space left", "quota exceeded", "File too large")
_DENIED: Final = ("Permission denied", "Operation not permitted", "Read-only file system")
_SYNCING: Final = ("While fsync", "While fdatasync")
_LOCKED: Final = ("While lock file", "lock hold by current process")


@contextmanager
def rocksdb_errors(path: str, *, committing: bool = False) -> Iterator[None]:
    """Map errors of RocksDB. While `committing`, an I/O error leaves the outcome unknown, unless
    there was no room for the record in the log."""
    try:
        yield
    except Exception as error:
        if not _is_status(error):
            raise
        raise _mapped(str(error), path, committing) from error


def _is_status(error: Exception) -> bool:
    return type(error) is Exception


def _mapped(text: str, path: str, committing: bool) -> S3kError:
    code = text.partition(":")[0]
    if any(each in text for each in _LOCKED):
        return BusyError(
            "the RocksDB database is open in another process, and RocksDB allows one: close the "
            "volume there, or use a table and data that processes share, such as sqlite: and a "
            "directory",
            path=path,
        )
    if committing and any(each in text for each in _SYNCING):
        return ResponseLostError(f"the commit failed midway ({text})", path=path)
    if any(each in text for each in _FULL):
        return NoSpaceError(
            f"the disk, the quota or the file size allowed is used up: {MAKE_ROOM}", path=path
        )
    if any(each in text for each in _DENIED):
        return PermissionDeniedError(f"the database's files may not be used ({text})", path=path)
    if "stall" in text:
        return ThrottledError(f"RocksDB refused a write for now ({text})", path=path)
    if code == "Corruption":
        return CorruptDataError(f"the RocksDB database is damaged ({text})", path=path)
    if committing and code == "IO error":
        return ResponseLostError(f"the commit failed midway ({text})", path=path)
    return ServiceError(f"RocksDB failed: {text}", path=path, service_code=code)
