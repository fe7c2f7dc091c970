"""The rule for the names of buckets and objects, and their paths in the volume.

A bucket is a directory of the root, and an object `a/b` of the bucket `x` the file `/x/a/b`. So a
key is a relative path: components that are not empty, `.` or `..`, with one `/` between them, and
none at the start or end. Names are text without NUL that UTF-8 can encode, of up to 1,024 bytes for
each component, and some 2,000 bytes for the path above the last one, which has to fit into a
partition key. The name of a bucket is one component; that of a new bucket has at most
LONGEST_BUCKET characters, the limit of H3.
"""

from __future__ import annotations

from typing import Final

from s3k_async._native import normalize
from s3k_async.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    InvalidPathError,
    NameTooLongError,
)
from s3k_async.namespace.layout import Layout

__all__ = ["LONGEST_BUCKET", "bucket_path", "check_new_bucket", "check_prefix", "object_path"]

LONGEST_BUCKET: Final = 64
"""Characters in the name of a new bucket."""
LONGEST_NAME: Final = 1024
"""Bytes of UTF-8 in a component: the longest sort key of DynamoDB."""


def bucket_path(bucket: str) -> str:
    """The directory of a bucket. Raises ArgumentTypeError, InvalidArgumentError,
    NameTooLongError."""
    _need_text(bucket, "the name of a bucket")
    if "/" in bucket:
        raise InvalidArgumentError(f"the name of a bucket has no `/`: {bucket!r:.80}")
    if bucket in ("", ".", ".."):
        raise InvalidArgumentError(f"expected the name of a bucket, not {bucket!r}")
    return _path(bucket, bucket, "the name of a bucket")


def check_new_bucket(bucket: str) -> str:
    """As `bucket_path`, with the limit for new buckets."""
    path = bucket_path(bucket)
    if len(bucket) > LONGEST_BUCKET:
        raise NameTooLongError(
            f"the name of a bucket has at most {LONGEST_BUCKET} characters, not {len(bucket):,}",
            path=path,
        )
    return path


def object_path(layout: Layout, bucket: str, key: str) -> str:
    """The file of an object. Raises ArgumentTypeError, InvalidArgumentError, NameTooLongError."""
    top = bucket_path(bucket)
    _need_text(key, "a key")
    path = _path(f"{bucket}/{key}", key, "a key", top)
    try:
        layout.check_path(path)
    except InvalidPathError as error:
        raise NameTooLongError(
            "the key is too long: its directories have some 2,000 bytes of UTF-8 at most, with the "
            "names of the volume and the bucket",
            path=path,
        ) from error
    return path


def check_prefix(prefix: str) -> str:
    """A prefix of keys: empty, a key, or the start of one. Raises ArgumentTypeError,
    InvalidArgumentError, NameTooLongError."""
    _need_text(prefix, "a prefix of keys")
    folder, _, name = prefix.rpartition("/")
    if folder or prefix.startswith("/"):
        _path(folder, prefix, "a prefix of keys")
    if name not in ("", ".", ".."):  # the start of a longer name
        _path(name, prefix, "a prefix of keys")
    return prefix


def _need_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{what} is text, not {type(value).__name__}")


def _path(relative: str, name: str, what: str, path: str | None = None) -> str:
    """The path of a relative path that is normal."""
    if any(len(part.encode(errors="replace")) > LONGEST_NAME for part in relative.split("/")):
        raise NameTooLongError(
            f"{what} has at most {LONGEST_NAME:,} bytes between two `/`", path=path
        )
    try:
        is_normal = normalize(f"/{relative}") == f"/{relative}" != "/"
    except InvalidPathError as error:
        raise InvalidArgumentError(f"{what} is invalid: {error.message}", path=path) from error
    if not is_normal:
        raise InvalidArgumentError(
            f"{what} consists of names that are not empty, `.` or `..`, with one `/` between "
            f"them: {name!r:.80}",
            path=path,
        )
    return f"/{relative}"
