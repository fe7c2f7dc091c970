"""Exit codes of the command line."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from s3k_async import errors

__all__ = ["ExitCode", "exit_code", "exit_code_of_all"]


class ExitCode(IntEnum):
    """Exit codes. Numbers are never given a new meaning."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    EXISTS = 4
    DENIED = 5
    BUSY = 6
    UNKNOWN = 7
    UNREACHABLE = 8
    DAMAGE = 9
    PARTIAL = 10
    CONFIG = 11
    NO_SPACE = 12
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


_CODES: Final[tuple[tuple[ExitCode, tuple[type[errors.S3kError], ...]], ...]] = (
    (
        ExitCode.USAGE,
        (
            errors.CrossVolumeError,
            errors.InvalidArgumentError,
            errors.InvalidPathError,
            errors.OverlapError,
            errors.RenameIntoSelfError,
        ),
    ),
    (
        ExitCode.NOT_FOUND,
        (
            errors.BlobNotFoundError,
            errors.MetadataNotFoundError,
            errors.PathNotFoundError,
            errors.VolumeNotFoundError,
        ),
    ),
    (
        ExitCode.EXISTS,
        (
            errors.BlobExistsError,
            errors.DirectoryNotEmptyError,
            errors.MetadataExistsError,
            errors.PathExistsError,
            errors.VolumeExistsError,
        ),
    ),
    (ExitCode.DENIED, (errors.PermissionDeniedError, errors.ReadOnlyVolumeError)),
    (
        ExitCode.BUSY,
        (
            errors.BlobChangedError,
            errors.BusyError,
            errors.ConditionFailedError,
            errors.ConflictError,
            errors.LeaseExpiredError,
            errors.TransactionConflictError,
            errors.UncommittedFileError,
        ),
    ),
    (ExitCode.UNKNOWN, (errors.OutcomeUnknownError, errors.ResponseLostError)),
    (
        ExitCode.UNREACHABLE,
        (errors.RequestTimeoutError, errors.ThrottledError, errors.UnreachableError),
    ),
    (
        ExitCode.DAMAGE,
        (
            errors.CorruptDataError,
            errors.DataMissingError,
            errors.ItemFormatError,
            errors.LogFormatError,
        ),
    ),
    (ExitCode.PARTIAL, (errors.PartialFailureError,)),
    (
        ExitCode.CONFIG,
        (
            errors.ConfigError,
            errors.NotAVolumeError,
            errors.VolumeFormatError,
            errors.VolumeMismatchError,
        ),
    ),
    (ExitCode.NO_SPACE, (errors.NoSpaceError,)),
)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def exit_code(error: BaseException) -> ExitCode:
    """The exit code for an error: one of the package's, or of writing to standard output."""
    if isinstance(error, OSError) and not isinstance(error, errors.S3kError):
        return ExitCode.NO_SPACE if error.errno in _FULL else ExitCode.FAILURE
    return next((code for code, kinds in _CODES if isinstance(error, kinds)), ExitCode.FAILURE)


def exit_code_of_all(failures: Sequence[BaseException]) -> ExitCode:
    """The exit code if everything failed: the common code of all failures, else PARTIAL."""
    codes = {exit_code(error) for error in failures}
    return codes.pop() if len(codes) == 1 else ExitCode.PARTIAL
