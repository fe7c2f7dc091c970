"""Entries as table items.

Attributes and their meaning are S3-FileSystem 1.0's (`path`, `children`, `isdir`, `ctime`, `ver`,
`id`, `size`, `physpath`, `physcommitted`); ours are `mtime`, `etag`, `sum`, `op`, `lease` and
`next`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from s3k_async._native import Entries, Rows
from s3k_async.backends.ports.items import OPERATION, PARTITION, SORT, Condition, Item, Value
from s3k_async.errors import ItemFormatError
from s3k_async.model import UNCOMMITTED, Entry
from s3k_async.table.keys import KeyScheme

__all__ = [
    "NEXT",
    "from_item",
    "from_items",
    "in_columns",
    "to_item",
    "unchanged",
]

_REMEDY = "s3k fsck reports what is damaged, s3k fsck repair quarantines it"

NEXT = "next"
"""The attribute that holds the write intent."""


def to_item(entry: Entry, keys: KeyScheme) -> dict[str, Value]:
    """The item that stores an entry."""
    key = keys.of(entry)
    item: dict[str, Value] = {
        PARTITION: key.partition,
        SORT: key.sort,
        "isdir": entry.is_dir,
        "ctime": entry.ctime,
        "ver": entry.version,
        "id": entry.id,
        "mtime": entry.mtime_ms,
        OPERATION: entry.operation,
    }
    if not entry.is_dir:
        item |= {
            "size": entry.size,
            "physpath": UNCOMMITTED if entry.physical is None else entry.physical,
            "physcommitted": entry.committed,
        }
    for name, value in (("etag", entry.etag), ("sum", entry.checksum), (NEXT, entry.pending)):
        if value:
            item[name] = value
    if entry.lease_ms:
        item["lease"] = entry.lease_ms
    return item


def from_item(item: Item, keys: KeyScheme) -> Entry:
    """The entry that an item stores. Raises ItemFormatError for anything S3-FileSystem 1.0 would
    refuse."""
    return from_items([item], keys)[0]


def from_items(items: Sequence[Item], keys: KeyScheme, *, records: bool = False) -> Entries:
    """The entries that items store, in their order; with `records`, without the items that are none
    but records of the volume. Raises ItemFormatError as `from_item`."""
    try:
        return Rows(items).entries(keys.volume, records=records)
    except ItemFormatError as error:
        raise ItemFormatError(
            f"a damaged item: {error.message} ({_REMEDY})", path=error.path
        ) from error


def in_columns(entries: Iterable[Entry], keys: KeyScheme) -> Entries:
    """The same entries, in columns. Raises InvalidPathError for the root, which has no item."""
    return from_items([to_item(entry, keys) for entry in entries], keys)


def unchanged(entry: Entry) -> Condition:
    """The stored item is still what `entry` was read from: same id, same version, same pending
    change."""
    equals: dict[str, Value] = {"id": entry.id, "ver": entry.version}
    if entry.pending:
        return Condition(equals=equals | {NEXT: entry.pending})
    return Condition(equals=equals, missing=(NEXT,))
