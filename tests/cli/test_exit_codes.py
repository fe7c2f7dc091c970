"""Every error of the package has its exit code, and the documentation says the same."""

from __future__ import annotations

import re
from pathlib import Path

from s3k_async import errors
from s3k_async.cli.exit_codes import ExitCode, exit_code, exit_code_of_all

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"

EXPECTED = {
    "ArgumentTypeError": 2,
    "BlobChangedError": 6,
    "BlobExistsError": 4,
    "BlobNotFoundError": 3,
    "BusyError": 6,
    "ClosedClientError": 1,
    "ConditionFailedError": 6,
    "ConfigError": 11,
    "ConflictError": 6,
    "CorruptDataError": 9,
    "CredentialsError": 5,
    "CrossVolumeError": 2,
    "DataMissingError": 9,
    "DirectoryNotEmptyError": 4,
    "EndOfFileError": 1,
    "ForkedClientError": 1,
    "InvalidArgumentError": 2,
    "InvalidPathError": 2,
    "IsDirectoryError": 1,
    "ItemFormatError": 9,
    "LeaseExpiredError": 6,
    "LogFormatError": 9,
    "NoSpaceError": 12,
    "NotAVolumeError": 11,
    "NotDirectoryError": 1,
    "OutcomeUnknownError": 7,
    "OverlapError": 2,
    "PartialFailureError": 10,
    "PathExistsError": 4,
    "MetadataExistsError": 4,
    "MetadataNotFoundError": 3,
    "NameTooLongError": 2,
    "PathNotFoundError": 3,
    "PermissionDeniedError": 5,
    "ReadOnlyVolumeError": 5,
    "RenameIntoSelfError": 2,
    "UploadNotFoundError": 3,
    "RequestTimeoutError": 8,
    "ResponseLostError": 7,
    "S3kError": 1,
    "ServiceError": 1,
    "StreamClosedError": 1,
    "ThrottledError": 8,
    "TransactionConflictError": 6,
    "UncommittedFileError": 6,
    "UnreachableError": 8,
    "UnsupportedError": 1,
    "VolumeExistsError": 4,
    "VolumeFormatError": 11,
    "VolumeMismatchError": 11,
    "VolumeNotFoundError": 3,
    "WrongLoopError": 1,
}


def test_each_error_has_its_code() -> None:
    codes = {
        name: exit_code(getattr(errors, name)("message", path="/a")) for name in errors.__all__
    }
    wrong = [
        f"{name}: {codes.get(name)} instead of {EXPECTED.get(name)}"
        for name in sorted(codes.keys() | EXPECTED)
        if codes.get(name) != EXPECTED.get(name)
    ]
    assert not wrong, "\n".join(
        ["give a new error an exit code, here and in s3k_async/cli/exit_codes.py:", *wrong]
    )


def test_what_is_no_error_of_ours_is_a_failure() -> None:
    assert exit_code(KeyError("x")) == 1


def test_the_documented_codes_are_the_real_ones() -> None:
    rows = re.findall(r"^\| (\d+) \| ", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(row) for row in rows] == [int(code) for code in ExitCode]


def test_failures_of_one_kind_keep_their_code_where_nothing_succeeded() -> None:
    missing, busy = errors.PathNotFoundError("gone", path="/a"), errors.BusyError("busy", path="/b")
    assert exit_code_of_all([missing, missing]) == 3
    assert exit_code_of_all([missing, busy]) == 10
