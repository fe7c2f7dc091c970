"""Every error this package raises.

Each class is also the builtin that a caller would expect, carries the path it is about, keeps its
cause, and survives pickling (worker processes send errors home).

    S3kError
    ├── path and tree  InvalidPathError, PathNotFoundError, PathExistsError, NotDirectoryError,
    │                  IsDirectoryError, DirectoryNotEmptyError, CrossVolumeError,
    │                  UncommittedFileError, RenameIntoSelfError
    ├── concurrency    BusyError, ConflictError, LeaseExpiredError, OutcomeUnknownError,
    │                  PartialFailureError
    ├── data           CorruptDataError, DataMissingError, LogFormatError, ItemFormatError,
    │                  NoSpaceError, EndOfFileError
    ├── volume         VolumeNotFoundError, VolumeExistsError, NotAVolumeError, VolumeFormatError,
    │                  VolumeMismatchError, ReadOnlyVolumeError
    ├── service        PermissionDeniedError, CredentialsError, UnreachableError,
    │                  RequestTimeoutError, ThrottledError, ServiceError
    ├── client         ConfigError, UnsupportedError, ClosedClientError, WrongLoopError,
    │                  ForkedClientError, StreamClosedError, InvalidArgumentError,
    │                  ArgumentTypeError
    └── store          ConditionFailedError, TransactionConflictError, ResponseLostError,
                       BlobNotFoundError, BlobExistsError, BlobChangedError
"""

from __future__ import annotations

import errno
import io
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

__all__ = [
    "ArgumentTypeError",
    "BlobChangedError",
    "BlobExistsError",
    "BlobNotFoundError",
    "BusyError",
    "ClosedClientError",
    "ConditionFailedError",
    "ConfigError",
    "ConflictError",
    "CorruptDataError",
    "CredentialsError",
    "CrossVolumeError",
    "DataMissingError",
    "DirectoryNotEmptyError",
    "EndOfFileError",
    "ForkedClientError",
    "InvalidArgumentError",
    "InvalidPathError",
    "IsDirectoryError",
    "ItemFormatError",
    "LeaseExpiredError",
    "LogFormatError",
    "NoSpaceError",
    "NotAVolumeError",
    "NotDirectoryError",
    "OutcomeUnknownError",
    "PartialFailureError",
    "PathExistsError",
    "PathNotFoundError",
    "PermissionDeniedError",
    "ReadOnlyVolumeError",
    "RenameIntoSelfError",
    "RequestTimeoutError",
    "ResponseLostError",
    "S3kError",
    "ServiceError",
    "StreamClosedError",
    "ThrottledError",
    "TransactionConflictError",
    "UncommittedFileError",
    "UnreachableError",
    "UnsupportedError",
    "VolumeExistsError",
    "VolumeFormatError",
    "VolumeMismatchError",
    "VolumeNotFoundError",
    "WrongLoopError",
]


class S3kError(Exception):
    """Base of every error of this package.

    `message` says what happened and, where there is one, what to do. `path` is the logical path (or
    the volume, table, bucket or key) it is about, or None.
    """

    code: ClassVar[str] = "error"
    default_errno: ClassVar[int | None] = None
    before_change: bool = False
    """Whether the failure certainly came before anything in the table was touched, whatever its
    class."""

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        _describe(self, self.default_errno, message, path)

    def name(self, path: str) -> None:
        """Set the path that the error is about, where it was not known when the error was made."""
        self.path = path
        _describe(self, self.default_errno, self.message, path)

    def __str__(self) -> str:
        if self.path is None or self.path in self.message:
            return self.message
        return f"{self.message}: {self.path}"

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        state["__cause__"] = self.__cause__ if isinstance(self.__cause__, S3kError) else None
        return _rebuild, (type(self), self.message, self.path), state

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        for name, value in (state or {}).items():
            setattr(self, name, value)


def _describe(error: BaseException, number: int | None, message: str, path: str | None) -> None:
    """Fill in what the handlers of an OSError look at."""
    if isinstance(error, OSError):
        error.errno = number
        error.strerror = message
        error.filename = path


def _rebuild(cls: type[S3kError], message: str, path: str | None) -> S3kError:
    error = cls.__new__(cls, message)
    S3kError.__init__(error, message, path=path)
    return error


# Path and tree


class InvalidPathError(S3kError, ValueError):
    """The path cannot name anything: NUL, `..` above the root, a name or key that is too long, not
    UTF-8."""

    code = "invalid_path"


class PathNotFoundError(S3kError, FileNotFoundError):
    """Nothing is at the path."""

    code = "not_found"
    default_errno = errno.ENOENT


class PathExistsError(S3kError, FileExistsError):
    """Something is at the path already."""

    code = "exists"
    default_errno = errno.EEXIST


class NotDirectoryError(S3kError, NotADirectoryError):
    """A directory was wanted, or the path leads through a file."""

    code = "not_a_directory"
    default_errno = errno.ENOTDIR


class IsDirectoryError(S3kError, IsADirectoryError):
    """A file was wanted and a directory is there."""

    code = "is_a_directory"
    default_errno = errno.EISDIR


class DirectoryNotEmptyError(S3kError, OSError):
    """The directory has children and the call was not recursive."""

    code = "directory_not_empty"
    default_errno = errno.ENOTEMPTY


class RenameIntoSelfError(S3kError, OSError, ValueError):
    """A directory cannot be renamed to itself or to a path below itself."""

    code = "rename_into_self"
    default_errno = errno.EINVAL


class CrossVolumeError(S3kError, ValueError):
    """The path belongs to another volume than the one that was asked."""

    code = "cross_volume"


class UncommittedFileError(S3kError, OSError):
    """The entry is a writer's reservation: its bytes are not durable yet."""

    code = "uncommitted"
    default_errno = errno.EAGAIN


# Concurrency


class BusyError(S3kError, OSError):
    """Another client's change holds the entry, and did not finish within the time we wait."""

    code = "busy"
    default_errno = errno.EBUSY


class ConflictError(S3kError, OSError):
    """The entry changed while we worked on it; nothing of ours was applied."""

    code = "conflict"
    default_errno = errno.ESTALE


class LeaseExpiredError(S3kError, OSError):
    """Our reservation or job outlived its lease, so another client may have acted on it; nothing
    was published."""

    code = "lease_expired"
    default_errno = errno.ESTALE


class OutcomeUnknownError(S3kError, OSError):
    """The answer to a write was lost and reading back could not tell whether it was applied.

    `operation` is the operation id to look for in the operation log.
    """

    code = "outcome_unknown"
    default_errno = errno.EIO

    def __init__(
        self, message: str, *, path: str | None = None, operation: str | None = None
    ) -> None:
        super().__init__(message, path=path)
        self.operation = operation


class PartialFailureError(S3kError, OSError):
    """Part of a change of many entries failed; `failures` lists (path, error). Running it again
    finishes the work."""

    code = "partial_failure"
    default_errno = errno.EIO

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        failures: Sequence[tuple[str, Exception]] = (),
    ) -> None:
        super().__init__(message, path=path)
        self.failures = tuple(failures)


# Data


class CorruptDataError(S3kError, OSError):
    """The bytes that were read are not the bytes that were written."""

    code = "corrupt_data"
    default_errno = errno.EIO


class DataMissingError(S3kError, OSError):
    """The entry exists, its physical object does not."""

    code = "data_missing"
    default_errno = errno.EIO


class LogFormatError(S3kError, ValueError):
    """An operation log entry is truncated, foreign or of a format this version does not know."""

    code = "log_format"


class ItemFormatError(S3kError, ValueError):
    """A table item cannot be understood as an entry."""

    code = "item_format"


class NoSpaceError(S3kError, OSError):
    """The device or the quota is full."""

    code = "no_space"
    default_errno = errno.ENOSPC


class EndOfFileError(S3kError, OSError, EOFError):
    """The position lies before the start or past the end of the file, or the file ended before the
    read did."""

    code = "end_of_file"
    default_errno = errno.EINVAL


# Volume


class VolumeNotFoundError(S3kError, FileNotFoundError):
    """The volume, its table or its bucket does not exist."""

    code = "volume_not_found"
    default_errno = errno.ENOENT


class VolumeExistsError(S3kError, FileExistsError):
    """A volume is there already."""

    code = "volume_exists"
    default_errno = errno.EEXIST


class NotAVolumeError(S3kError, ValueError):
    """The table or directory holds something that is not a volume of this kind."""

    code = "not_a_volume"


class VolumeFormatError(S3kError, ValueError):
    """The volume was made by a newer version, or needs a feature that this version lacks."""

    code = "volume_format"


class VolumeMismatchError(S3kError, ValueError):
    """What the caller asked for differs from what the volume record fixes."""

    code = "volume_mismatch"


class ReadOnlyVolumeError(S3kError, PermissionError):
    """The volume is open for reading only."""

    code = "read_only"
    default_errno = errno.EROFS


# Service


class PermissionDeniedError(S3kError, PermissionError):
    """The service or the operating system refused us."""

    code = "permission_denied"
    default_errno = errno.EACCES


class CredentialsError(PermissionDeniedError):
    """Credentials are missing, expired or wrong."""

    code = "credentials"


class UnreachableError(S3kError, ConnectionError):
    """No connection could be made, so nothing was sent."""

    code = "unreachable"
    default_errno = errno.ECONNREFUSED


class RequestTimeoutError(S3kError, TimeoutError):
    """No answer within the time allowed."""

    code = "timeout"
    default_errno = errno.ETIMEDOUT


class ThrottledError(S3kError, OSError):
    """The service asked us to slow down and kept asking until the retry policy ran out. Nothing was
    applied."""

    code = "throttled"
    default_errno = errno.EAGAIN


class ServiceError(S3kError, OSError):
    """The service answered with an error that has no class of its own; `service_code` is its name
    for it."""

    code = "service"
    default_errno = errno.EIO

    def __init__(
        self, message: str, *, path: str | None = None, service_code: str | None = None
    ) -> None:
        super().__init__(message, path=path)
        self.service_code = service_code


# Client


class ConfigError(S3kError, ValueError):
    """A setting is missing, malformed or contradicts another."""

    code = "config"


class UnsupportedError(S3kError, io.UnsupportedOperation):
    """The operation does not exist for this kind of file or volume."""

    code = "unsupported"


class ClosedClientError(S3kError, RuntimeError):
    """The client is closed or was never entered."""

    code = "closed"


class WrongLoopError(S3kError, RuntimeError):
    """The client belongs to another event loop."""

    code = "wrong_loop"


class ForkedClientError(S3kError, RuntimeError):
    """The client was entered in the parent process; open a new one in the child."""

    code = "forked"


class InvalidArgumentError(S3kError, ValueError):
    """An argument that can never be right: an offset before the file, an unknown mode, a malformed
    pattern."""

    code = "invalid_argument"


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument of a type that can never be right: text where bytes are wanted, a path that is no
    text."""

    code = "argument_type"


class StreamClosedError(S3kError, OSError, ValueError):
    """The file was closed before the call."""

    code = "stream_closed"
    default_errno = errno.EBADF


# Store: what the two ports raise. The layers above turn these into the errors above.


class ConditionFailedError(S3kError):
    """A condition did not hold; definitely nothing was applied.

    `current` maps the position of each action whose condition failed to the item now stored there,
    or None when there is none. A single action is position 0.
    """

    code = "condition_failed"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        current: Mapping[int, Mapping[str, Any] | None] | None = None,
    ) -> None:
        super().__init__(message, path=path)
        self.current = dict(current or {})


class TransactionConflictError(S3kError, OSError):
    """Another request was changing the same item at the same moment. Nothing was applied; sending
    again is safe."""

    code = "transaction_conflict"
    default_errno = errno.EAGAIN


class ResponseLostError(S3kError, OSError):
    """The request may have been sent and no answer came: it may or may not have been applied."""

    code = "response_lost"
    default_errno = errno.EIO


class BlobNotFoundError(S3kError, FileNotFoundError):
    """No blob has the key."""

    code = "blob_not_found"
    default_errno = errno.ENOENT


class BlobExistsError(S3kError, FileExistsError):
    """A blob has the key already, and it was to be created."""

    code = "blob_exists"
    default_errno = errno.EEXIST


class BlobChangedError(S3kError, OSError):
    """The blob's etag or size is not the expected one; nothing was replaced, and no bytes are
    returned."""

    code = "blob_changed"
    default_errno = errno.ESTALE
