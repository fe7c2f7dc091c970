"""Entries as table items.

Attributes and their meaning are S3-FileSystem 1.0's (`path`, `children`, `isdir`, `ctime`, `ver`,
`id`, `size`, `physpath`, `physcommitted`); ours are `mtime`, `etag`, `sum`, `attrs`, `op`, `lease`
and `next`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from s3k_async import _native
from s3k_async._native import Entries, Rows
from s3k_async.backends.ports.items import OPERATION, PARTITION, SORT, Condition, Item, Value
from s3k_async.errors import ItemFormatError
from s3k_async.model import UNCOMMITTED, Entry
from s3k_async.table.keys import KeyScheme

__all__ = [
    "NEXT",
    "directory_paths",
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
    for name, value in (
        ("etag", entry.etag),
        ("sum", entry.checksum),
        ("attrs", entry.attributes),
        (NEXT, entry.pending),
    ):
        if value:
            item[name] = value
    if entry.lease_ms:
        item["lease"] = entry.lease_ms
    return item


def from_item(item: Item, keys: KeyScheme) -> Entry:
    """The entry that an item stores. Raises ItemFormatError for anything S3-FileSystem 1.0 would
    refuse."""
    return from_items([item], keys)[0]


def from_items(
    items: Sequence[Item],
    keys: KeyScheme,
    *,
    records: bool = False,
    paths: dict[str, str] | None = None,
) -> Entries:
    """The entries that items store, in their order; with `records`, without the items that are none
    but records of the volume. Raises ItemFormatError as `from_item`.

    `paths`: in layout `tree` the paths of directories, by directory key. An entry of another
    directory has its entry key as path.
    """
    try:
        return Rows(items).entries(keys.authority, records=records, paths=paths)
    except ItemFormatError as error:
        raise ItemFormatError(
            f"a damaged item: {error.message} ({_REMEDY})", path=error.path
        ) from error


def in_columns(entries: Iterable[Entry], keys: KeyScheme) -> Entries:
    """The same entries, in columns. Raises InvalidPathError for the root, which has no item."""
    rows = list(entries)
    items = [to_item(entry, keys) for entry in rows]
    return from_items(items, keys, paths=directory_paths(rows))


def directory_paths(entries: Iterable[Entry]) -> dict[str, str]:
    """The paths of the directories of some entries, by directory key, as far as they are known;
    none in layout `path`."""
    return {
        entry.directory: _native.split(entry.path)[0]
        for entry in entries
        if entry.directory and entry.path.startswith("/")
    }


def unchanged(entry: Entry) -> Condition:
    """The stored item is still what `entry` was read from: same id, same version, same pending
    change."""
    equals: dict[str, Value] = {"id": entry.id, "ver": entry.version}
    if entry.pending:
        return Condition(equals=equals | {NEXT: entry.pending})
    return Condition(equals=equals, missing=(NEXT,))
