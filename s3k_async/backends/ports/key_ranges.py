"""Listings in computed key ranges: with random ids, ranges of one size hold equal numbers of
keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from s3k_async.backends.ports.blobs import BlobInfo, BlobStore
from s3k_async.backends.ports.pagination import LAST, list_pages

__all__ = ["HEX", "KeyRange", "hex_ranges", "key_ranges", "list_range", "list_range_pages"]

HEX: Final = "0123456789abcdef"
_DIGITS: Final = 8
"""Digits of a boundary: shorter than an id, so that no boundary equals an id."""
_OF_A_DIGIT: Final = 16 ** (_DIGITS - 1)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys that begin with `prefix`, follow `after`, and do not follow `until`; an empty bound
    does not apply."""

    prefix: str = ""
    after: str = ""
    until: str = ""


async def list_range(blobs: BlobStore, keys: KeyRange) -> AsyncIterator[BlobInfo]:
    """Every blob of a range: a listing from its start, ended here at its end."""
    async for page in list_range_pages(blobs, keys):
        for blob in page:
            yield blob


async def list_range_pages(blobs: BlobStore, keys: KeyRange) -> AsyncIterator[Sequence[BlobInfo]]:
    """As `list_range`, page by page."""
    async for page in list_pages(blobs, keys.prefix, after=keys.after):
        if keys.until and page and page[-1].key > keys.until:
            yield [blob for blob in page if blob.key <= keys.until]
            return
        yield page


def hex_ranges(count: int) -> list[list[KeyRange]]:
    """The keys that begin with a hexadecimal digit, in `count` groups of ranges. Each such key is
    in one range, and random ids are divided evenly. No range spans two first digits, since many
    foreign keys may lie between 9 and a."""
    cuts = [number * 16**_DIGITS // count for number in range(count + 1)]
    return [_ranges(low, high) for low, high in pairwise(cuts)]


def key_ranges(count: int) -> list[list[KeyRange]]:
    """All keys, in `count` groups of ranges: those of `hex_ranges`, and the ranges before, between
    and after them."""
    first, *others = hex_ranges(count)
    # The largest prefixes before 0 and before a.
    gaps = [
        KeyRange(until=f"/{LAST}"),
        KeyRange(after=f"9{LAST}", until=f"`{LAST}"),
        KeyRange(after=f"f{LAST}"),
    ]
    return [[*first, *gaps], *others]


def _ranges(low: int, high: int) -> list[KeyRange]:
    found = []
    for digit in range(low // _OF_A_DIGIT, (high - 1) // _OF_A_DIGIT + 1):
        start, end = digit * _OF_A_DIGIT, (digit + 1) * _OF_A_DIGIT
        found.append(
            KeyRange(HEX[digit], _cut(low) if low > start else "", _cut(high) if high < end else "")
        )
    return found


def _cut(value: int) -> str:
    return f"{value:0{_DIGITS}x}"
