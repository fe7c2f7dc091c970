"""Validation of blob keys and of arguments of the blob port, before any other work of an
adapter."""

from __future__ import annotations

from s3k_async.backends.ports.blobs import MAX_COPIED_PART, BlobInfo
from s3k_async.errors import BlobChangedError, InvalidPathError

__all__ = [
    "MAX_KEY",
    "check_copied_part",
    "check_key",
    "check_page",
    "check_put",
    "check_range",
    "check_source",
    "check_unchanged",
    "part_numbers",
]

MAX_KEY = 1024
"""UTF-8 bytes of a key."""
_NO_COMPONENT = frozenset(("", ".", ".."))


def check_key(key: str) -> str:
    """The key itself. Raises InvalidPathError unless it is 1 to 1,024 UTF-8 bytes without a leading
    `/`, NUL, or a component that is empty, `.` or `..`."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidPathError("a blob key must be encodable as UTF-8", path=repr(key)) from error
    if not 1 <= size <= MAX_KEY:
        raise InvalidPathError(f"a blob key has 1 to {MAX_KEY} UTF-8 bytes, not {size}", path=key)
    if "\0" in key:
        raise InvalidPathError("a blob key must not hold NUL", path=key)
    if not _NO_COMPONENT.isdisjoint(key.split("/")):
        raise InvalidPathError(
            "a blob key must not have a component that is empty, `.` or `..`", path=key
        )
    return key


def check_put(if_absent: bool, if_match: str | None) -> None:
    """Raise ValueError for contradictory conditions of a put."""
    if if_absent and if_match is not None:
        raise ValueError("if_absent and if_match exclude each other")


def check_range(start: int, end: int | None) -> None:
    """Raise ValueError for a range that begins or ends before byte 0."""
    if start < 0 or (end is not None and end < 0):
        raise ValueError("a range does not begin or end before byte 0")


def check_page(limit: int | None) -> None:
    """Raise ValueError for a page of less than one blob."""
    if limit is not None and limit < 1:
        raise ValueError("a page holds at least one blob")


def check_unchanged(found: BlobInfo, if_match: str | None, if_size: int | None = None) -> None:
    """Raise BlobChangedError unless the blob has the etag and the size in bytes; None matches
    any."""
    if if_match is not None and found.etag != if_match:
        raise BlobChangedError(
            f"the blob has the etag {found.etag}, not {if_match}", path=found.key
        )
    if if_size is not None and found.size != if_size:
        raise BlobChangedError(f"the blob has {found.size} bytes, not {if_size}", path=found.key)


def check_copied_part(number: int, start: int, end: int) -> None:
    """Raise ValueError for a number or a range that a copied part cannot have."""
    if number < 1:
        raise ValueError("parts are numbered from 1")
    check_range(start, end)
    if not 1 <= end - start <= MAX_COPIED_PART:
        raise ValueError(f"a copied part has 1 to {MAX_COPIED_PART} bytes, not {end - start}")


def check_source(found: BlobInfo, if_match: str | None, end: int) -> None:
    """Raise BlobChangedError unless the source of a copied part has the etag, and bytes up to
    `end`."""
    check_unchanged(found, if_match)
    if found.size < end:
        raise BlobChangedError(f"the blob has {found.size} bytes, not {end}", path=found.key)


def part_numbers(sizes: dict[int, int], min_part: int) -> list[int]:
    """The part numbers of an upload in order. Raises ValueError unless they are 1..n, n >= 1, and
    all parts but the last have `min_part` bytes."""
    numbers = sorted(sizes)
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        raise ValueError("the parts of an upload are numbered 1 to n without a gap")
    if any(sizes[number] < min_part for number in numbers[:-1]):
        raise ValueError(f"a part that is not the last has fewer than {min_part} bytes")
    return numbers
