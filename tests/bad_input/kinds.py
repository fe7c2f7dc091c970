"""The kinds of errors that rows expect: class, builtin, exit code."""

from __future__ import annotations

import io
from typing import NamedTuple

from s3k_async import errors
from s3k_async.errors import S3kError

__all__ = [
    "ARGUMENT",
    "BAD_PATH",
    "CLOSED",
    "CONFIG",
    "CORRUPT",
    "CREDENTIALS",
    "CROSS_VOLUME",
    "DENIED",
    "END_OF_FILE",
    "EXISTS",
    "FORKED",
    "GONE_DATA",
    "INTO_SELF",
    "IS_DIRECTORY",
    "ITEM",
    "LOG",
    "MISMATCH",
    "NEWER",
    "NOT_A_VOLUME",
    "NOT_DIRECTORY",
    "NOT_EMPTY",
    "NOT_FOUND",
    "NO_SPACE",
    "NO_VOLUME",
    "READ_ONLY",
    "STREAM_CLOSED",
    "THROTTLED",
    "TIMEOUT",
    "TYPE",
    "UNCOMMITTED",
    "UNREACHABLE",
    "UNSUPPORTED",
    "VOLUME_EXISTS",
    "WRONG_LOOP",
    "Kind",
]


class Kind(NamedTuple):
    """What an error has to be, for programs and for the shell."""

    error: type[S3kError]
    builtin: type[Exception]
    exit: int


BAD_PATH = Kind(errors.InvalidPathError, ValueError, 2)
ARGUMENT = Kind(errors.InvalidArgumentError, ValueError, 2)
TYPE = Kind(errors.ArgumentTypeError, TypeError, 2)
CROSS_VOLUME = Kind(errors.CrossVolumeError, ValueError, 2)
INTO_SELF = Kind(errors.RenameIntoSelfError, ValueError, 2)

NOT_FOUND = Kind(errors.PathNotFoundError, FileNotFoundError, 3)
NO_VOLUME = Kind(errors.VolumeNotFoundError, FileNotFoundError, 3)

EXISTS = Kind(errors.PathExistsError, FileExistsError, 4)
NOT_EMPTY = Kind(errors.DirectoryNotEmptyError, OSError, 4)
VOLUME_EXISTS = Kind(errors.VolumeExistsError, FileExistsError, 4)

DENIED = Kind(errors.PermissionDeniedError, PermissionError, 5)
CREDENTIALS = Kind(errors.CredentialsError, PermissionError, 5)
READ_ONLY = Kind(errors.ReadOnlyVolumeError, PermissionError, 5)

UNCOMMITTED = Kind(errors.UncommittedFileError, OSError, 6)

UNREACHABLE = Kind(errors.UnreachableError, ConnectionError, 8)
TIMEOUT = Kind(errors.RequestTimeoutError, TimeoutError, 8)
THROTTLED = Kind(errors.ThrottledError, OSError, 8)

CORRUPT = Kind(errors.CorruptDataError, OSError, 9)
GONE_DATA = Kind(errors.DataMissingError, OSError, 9)
ITEM = Kind(errors.ItemFormatError, ValueError, 9)
LOG = Kind(errors.LogFormatError, ValueError, 9)

CONFIG = Kind(errors.ConfigError, ValueError, 11)
NOT_A_VOLUME = Kind(errors.NotAVolumeError, ValueError, 11)
NEWER = Kind(errors.VolumeFormatError, ValueError, 11)
MISMATCH = Kind(errors.VolumeMismatchError, ValueError, 11)

NO_SPACE = Kind(errors.NoSpaceError, OSError, 12)

NOT_DIRECTORY = Kind(errors.NotDirectoryError, NotADirectoryError, 1)
IS_DIRECTORY = Kind(errors.IsDirectoryError, IsADirectoryError, 1)
END_OF_FILE = Kind(errors.EndOfFileError, EOFError, 1)
UNSUPPORTED = Kind(errors.UnsupportedError, io.UnsupportedOperation, 1)
CLOSED = Kind(errors.ClosedClientError, RuntimeError, 1)
WRONG_LOOP = Kind(errors.WrongLoopError, RuntimeError, 1)
FORKED = Kind(errors.ForkedClientError, RuntimeError, 1)
STREAM_CLOSED = Kind(errors.StreamClosedError, ValueError, 1)
