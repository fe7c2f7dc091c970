"""Every error of this package.

Each class also derives from the corresponding builtin exception, carries the affected path, keeps
its cause, and can be pickled (worker processes return errors to their parent).

    S3kError
    ├── path and tree  InvalidPathError, PathNotFoundError, PathExistsError, NotDirectoryError,
    │                  IsDirectoryError, DirectoryNotEmptyError, CrossVolumeError,
    │                  UncommittedFileError, RenameIntoSelfError, OverlapError,
    │                  MetadataNotFoundError, MetadataExistsError, UploadNotFoundError
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
    │                  ArgumentTypeError, NameTooLongError
    └── store          ConditionFailedError, TransactionConflictError, ResponseLostError,
                       BlobNotFoundError, BlobExistsError, BlobChangedError
"""

from __future__ import annotations

import copy
import errno
import io
import re
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
    "MetadataExistsError",
    "MetadataNotFoundError",
    "NameTooLongError",
    "NoSpaceError",
    "NotAVolumeError",
    "NotDirectoryError",
    "OutcomeUnknownError",
    "OverlapError",
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
    "UploadNotFoundError",
    "VolumeExistsError",
    "VolumeFormatError",
    "VolumeMismatchError",
    "VolumeNotFoundError",
    "WrongLoopError",
]


class S3kError(Exception):
    """Base of every error of this package.

    `message` names the problem and, where there is one, the remedy. `path` is the affected path, or
    the volume, table, bucket or key, or None.
    """

    code: ClassVar[str] = "error"
    default_errno: ClassVar[int | None] = None
    before_change: bool = False
    """Whether the failure certainly preceded any change of the table, whatever its class."""
    keeps_data: bool = False
    """Whether entries of the failed change may still be in the table, until another client removes
    them: the data of staged files must then be left to garbage collection."""

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        _describe(self, self.default_errno, message, path)

    def name(self, path: str) -> None:
        """Set the affected path of an error that was created without it."""
        self.path = path
        _describe(self, self.default_errno, self.message, path)

    def __str__(self) -> str:
        if self.path is None or mentions(self.message, self.path):
            return self.message
        return f"{self.message}: {self.path}"

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        state["__cause__"] = self.__cause__ if isinstance(self.__cause__, S3kError) else None
        return _rebuild, (type(self), self.message, self.path), state

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        for name, value in (state or {}).items():
            setattr(self, name, value)


def mentions(message: str, path: str) -> bool:
    """Whether a message contains a path, not only as a part of a word."""
    before = r"(?<!\w)" if path[:1].isalnum() else ""
    after = r"(?!\w)" if path[-1:].isalnum() else ""
    return re.search(f"{before}{re.escape(path)}{after}", message) is not None


def _describe(error: BaseException, number: int | None, message: str, path: str | None) -> None:
    """Set the attributes of an OSError."""
    if isinstance(error, OSError):
        error.errno = number
        error.strerror = message
        error.filename = path


def copy_of(error: BaseException) -> BaseException:
    """A copy of an error of this package for each of several callers, since raising adds to a
    traceback; another error itself."""
    if not isinstance(error, S3kError):
        return error
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _rebuild(cls: type[S3kError], message: str, path: str | None) -> S3kError:
    error = cls.__new__(cls, message)
    S3kError.__init__(error, message, path=path)
    return error


# Path and tree


class InvalidPathError(S3kError, ValueError):
    """The path is invalid: NUL, `..` above the root, a name or key that is too long, not UTF-8."""

    code = "invalid_path"


class PathNotFoundError(S3kError, FileNotFoundError):
    """No file or directory is at the path."""

    code = "not_found"
    default_errno = errno.ENOENT


class MetadataNotFoundError(S3kError, OSError):
    """The file or directory has no user metadata of the name."""

    code = "metadata_not_found"
    default_errno = errno.ENODATA


class UploadNotFoundError(PathNotFoundError):
    """No multipart upload has the id: it was completed or aborted, has expired, or never existed.
    `path` is the id."""

    code = "upload_not_found"


class PathExistsError(S3kError, FileExistsError):
    """A file or directory is already at the path."""

    code = "exists"
    default_errno = errno.EEXIST


class NotDirectoryError(S3kError, NotADirectoryError):
    """A directory is required, or a parent of the path is a file."""

    code = "not_a_directory"
    default_errno = errno.ENOTDIR


class IsDirectoryError(S3kError, IsADirectoryError):
    """A file is required, and the path is a directory."""

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


class OverlapError(S3kError, ValueError):
    """The source and the target of a synchronization are the same directory, or one contains the
    other; or a local path of an upload or download is a part of the embedded volume, or contains
    it."""

    code = "overlap"


class CrossVolumeError(S3kError, ValueError):
    """The path belongs to another volume."""

    code = "cross_volume"


class UncommittedFileError(S3kError, OSError):
    """The entry is a writer's reservation: its bytes are not durable yet."""

    code = "uncommitted"
    default_errno = errno.EAGAIN


class MetadataExistsError(S3kError, OSError):
    """The entry already has user metadata of the name."""

    code = "metadata_exists"
    default_errno = errno.EEXIST


# Concurrency


class BusyError(S3kError, OSError):
    """Concurrent changes of other clients did not finish, or did not pause during a listing, within
    `busy_timeout`. Try again."""

    code = "busy"
    default_errno = errno.EBUSY


class ConflictError(S3kError, OSError):
    """Another client changed the entry first; no changes were applied."""

    code = "conflict"
    default_errno = errno.ESTALE


class LeaseExpiredError(S3kError, OSError):
    """The lease of a reservation, transaction or lock expired, so that another client may have
    taken over; nothing was published."""

    code = "lease_expired"
    default_errno = errno.ESTALE


class OutcomeUnknownError(S3kError, OSError):
    """The response to a write was lost, and reading back did not show whether it was applied.

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
    """Part of a change of many entries failed; `failures` lists (path, error). Repeat the call to
    finish it."""

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
    """The data read differs from the data written."""

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
    """A table item is not a valid entry."""

    code = "item_format"


class NoSpaceError(S3kError, OSError):
    """The device or the quota is full."""

    code = "no_space"
    default_errno = errno.ENOSPC


class EndOfFileError(S3kError, OSError, EOFError):
    """The position is before the start or past the end of the file, or the file ended during the
    read."""

    code = "end_of_file"
    default_errno = errno.EINVAL


# Volume


class VolumeNotFoundError(S3kError, FileNotFoundError):
    """The volume, its table or its bucket does not exist."""

    code = "volume_not_found"
    default_errno = errno.ENOENT


class VolumeExistsError(S3kError, FileExistsError):
    """A volume already exists at the location."""

    code = "volume_exists"
    default_errno = errno.EEXIST


class NotAVolumeError(S3kError, ValueError):
    """The table or directory holds something that is not a volume of this kind."""

    code = "not_a_volume"


class VolumeFormatError(S3kError, ValueError):
    """The volume was created by a newer version, or needs a feature that this version lacks."""

    code = "volume_format"


class VolumeMismatchError(S3kError, ValueError):
    """The given settings differ from those of the volume record."""

    code = "volume_mismatch"


class ReadOnlyVolumeError(S3kError, PermissionError):
    """The volume is open for reading only."""

    code = "read_only"
    default_errno = errno.EROFS


# Service


class PermissionDeniedError(S3kError, PermissionError):
    """The service, the operating system or the permissions of an entry denied access."""

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
    """No response within the timeout."""

    code = "timeout"
    default_errno = errno.ETIMEDOUT


class ThrottledError(S3kError, OSError):
    """The service throttled the request until the retries were exhausted. Nothing was applied."""

    code = "throttled"
    default_errno = errno.EAGAIN
    positions: Sequence[int] = ()
    """In a transaction of the table: the throttled actions, if the service names them."""


class ServiceError(S3kError, OSError):
    """The service returned an error without a class of its own; `service_code` is its code."""

    code = "service"
    default_errno = errno.EIO

    def __init__(
        self, message: str, *, path: str | None = None, service_code: str | None = None
    ) -> None:
        super().__init__(message, path=path)
        self.service_code = service_code


# Client


class ConfigError(S3kError, ValueError):
    """A setting is missing, malformed or in conflict with another."""

    code = "config"


class UnsupportedError(S3kError, io.UnsupportedOperation):
    """The operation does not exist for this kind of file or volume."""

    code = "unsupported"


class ClosedClientError(S3kError, RuntimeError):
    """The client is closed, or was never opened."""

    code = "closed"


class WrongLoopError(S3kError, RuntimeError):
    """The client belongs to another event loop."""

    code = "wrong_loop"


class ForkedClientError(S3kError, RuntimeError):
    """The client was opened in the parent process; open a new one in the child."""

    code = "forked"


class InvalidArgumentError(S3kError, ValueError):
    """An invalid argument: an offset before the start of the file, an unknown mode, a malformed
    pattern."""

    code = "invalid_argument"


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument of the wrong type: text instead of bytes, a path that is not text."""

    code = "argument_type"


class NameTooLongError(InvalidArgumentError):
    """A name of the object API is too long: of a new bucket or of metadata, more than 64
    characters; of another bucket or an object, more than the volume can hold."""

    code = "name_too_long"


class StreamClosedError(S3kError, OSError, ValueError):
    """The file was closed before the call."""

    code = "stream_closed"
    default_errno = errno.EBADF


# Store: what the two ports raise. The layers above turn these into the errors above.


class ConditionFailedError(S3kError):
    """A condition did not hold; nothing was applied.

    `current` maps the position of each action whose condition failed to the item now stored, or to
    None if there is none. A single action is position 0.
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
    """A concurrent request was changing the same item. Nothing was applied; a retry is safe."""

    code = "transaction_conflict"
    default_errno = errno.EAGAIN


class ResponseLostError(S3kError, OSError):
    """The response to a request was lost; the request may or may not have been applied."""

    code = "response_lost"
    default_errno = errno.EIO


class BlobNotFoundError(S3kError, FileNotFoundError):
    """No blob has the key."""

    code = "blob_not_found"
    default_errno = errno.ENOENT


class BlobExistsError(S3kError, FileExistsError):
    """A blob with the key to be created already exists."""

    code = "blob_exists"
    default_errno = errno.EEXIST


class BlobChangedError(S3kError, OSError):
    """The blob's etag or size is not the expected one; nothing was replaced, and no bytes are
    returned."""

    code = "blob_changed"
    default_errno = errno.ESTALE
