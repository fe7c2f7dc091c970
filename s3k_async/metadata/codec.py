"""Entries as table items.

Attributes and their meaning are S3-FileSystem 1.0's (`path`, `children`, `isdir`, `ctime`, `ver`, `id`, `size`,
`physpath`, `physcommitted`); ours are `mtime`, `etag`, `sum`, `op`, `lease` and `next`.
"""

from __future__ import annotations

from typing import TypeVar

from s3k_async.errors import ItemFormatError
from s3k_async.metadata.keys import KeyScheme
from s3k_async.model import UNCOMMITTED, Entry
from s3k_async.stores.items import OPERATION, PARTITION, SORT, Condition, Item, Key, Value

__all__ = ["NEXT", "from_item", "is_unmarked_directory", "to_item", "unchanged"]

NEXT = "next"
"""The attribute that holds the pending change of a live job."""

T = TypeVar("T", str, int, bool)


def to_item(entry: Entry, keys: KeyScheme) -> dict[str, Value]:
    """The item that stores an entry."""
    key = keys.key(entry.path)
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
            "physpath": entry.physical or UNCOMMITTED,
            "physcommitted": entry.committed,
        }
    for name, value in (("etag", entry.etag), ("sum", entry.checksum), (NEXT, entry.pending)):
        if value:
            item[name] = value
    if entry.lease_ms:
        item["lease"] = entry.lease_ms
    return item


def from_item(item: Item, keys: KeyScheme) -> Entry:
    """The entry that an item stores. Raises ItemFormatError for anything S3-FileSystem 1.0 would refuse."""
    key = Key(_need(item, PARTITION, str), _need(item, SORT, str))
    path = keys.path(key)
    is_dir = _need(item, "isdir", bool)
    ctime = _need(item, "ctime", int)
    entry = Entry(
        path=path,
        is_dir=is_dir,
        id=_need(item, "id", str),
        version=_need(item, "ver", int),
        ctime=ctime,
        mtime_ms=_get(item, "mtime", int, ctime * 1000),
        size=0 if is_dir else _get(item, "size", int, 0),
        physical=None if is_dir else _need(item, "physpath", str),
        # A file without the flag was written before the flag existed, hence committed.
        committed=not is_dir and _get(item, "physcommitted", bool, True),
        etag=_get(item, "etag", str, ""),
        checksum=_get(item, "sum", str, ""),
        operation=_get(item, OPERATION, str, ""),
        lease_ms=_get(item, "lease", int, 0),
        pending=_get(item, NEXT, str, ""),
    )
    if ctime <= 0 or entry.version <= 0 or entry.size < 0 or not entry.id:
        raise ItemFormatError("ctime and version must be positive, size not negative, the id not empty", path=path)
    if entry.committed and entry.physical == UNCOMMITTED:
        raise ItemFormatError("a committed file must name its physical object", path=path)
    return entry


def unchanged(entry: Entry) -> Condition:
    """The stored item is still what `entry` was read from: same id, same version, same pending change."""
    equals: dict[str, Value] = {"id": entry.id, "ver": entry.version}
    if entry.pending:
        return Condition(equals=equals | {NEXT: entry.pending})
    return Condition(equals=equals, missing=(NEXT,))


def is_unmarked_directory() -> Condition:
    """The stored item is a directory that no job is removing or moving."""
    return Condition(equals={"isdir": True}, missing=(NEXT,))


def _need(item: Item, name: str, kind: type[T]) -> T:
    value = item.get(name)
    if type(value) is not kind:
        where = f"{item.get(PARTITION)} / {item.get(SORT)}"
        raise ItemFormatError(f"attribute {name!r} is missing or not of type {kind.__name__}", path=where)
    return value


def _get(item: Item, name: str, kind: type[T], default: T) -> T:
    return _need(item, name, kind) if name in item else default
