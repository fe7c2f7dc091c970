"""What an item means, in plain Python: one attribute after the other, as S3-FileSystem 1.0 reads
it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from s3k_async import _native
from s3k_async.backends.ports.items import OPERATION, PARTITION, SORT, Item
from s3k_async.errors import ItemFormatError
from s3k_async.model import UNCOMMITTED, Entry
from tests.native.oracle import is_directory_id

T = TypeVar("T", str, int, bool)


RESERVED_IDS = (
    "00000000-0000-4000-8000-000000000000",
    "00000000-0000-4000-8000-000000000001",
)


def from_item(item: Item, volume: str | None, paths: Mapping[str, str] | None = None) -> Entry:
    """In layout `tree`, without a `volume`, with the paths of known directories."""
    entry_key = _native.decode_key(volume, _need(item, PARTITION, str), _need(item, SORT, str))
    path, directory = entry_key, ""
    if volume is None:
        directory, _, name = entry_key.partition("/")
        parent = (paths or {}).get(directory)
        path = entry_key if parent is None else f"{parent.rstrip('/')}/{name}"
    try:
        return _meaning(item, path, directory)
    except ItemFormatError as error:
        raise ItemFormatError(error.message, path=path) from None


def _meaning(item: Item, path: str, directory: str) -> Entry:
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
        committed=not is_dir and _get(item, "physcommitted", bool, True),
        etag=_get(item, "etag", str, ""),
        checksum=_get(item, "sum", str, ""),
        attributes=_get(item, "attrs", str, ""),
        operation=_get(item, OPERATION, str, ""),
        lease_ms=_get(item, "lease", int, 0),
        pending=_get(item, "next", str, ""),
        directory=directory,
    )
    if ctime <= 0 or entry.version <= 0 or entry.size < 0 or not entry.id:
        raise ItemFormatError(
            "ctime and version must be positive, size not negative, the id not empty", path=path
        )
    if directory and entry.id in RESERVED_IDS:
        raise ItemFormatError("the id is that of the root or of the trash", path=path)
    if directory and is_dir and not is_directory_id(entry.id):
        raise ItemFormatError(
            "the id of a directory must be 1 to 64 ASCII letters, digits, '-' and '_'", path=path
        )
    if entry.committed and entry.physical == UNCOMMITTED:
        raise ItemFormatError("a committed file must name its physical object", path=path)
    return entry


def _need(item: Item, name: str, kind: type[T]) -> T:
    value = item.get(name)
    if type(value) is not kind:
        where = f"{item.get(PARTITION)} / {item.get(SORT)}"
        raise ItemFormatError(
            f"attribute {name!r} is missing or not of type {kind.__name__}", path=where
        )
    return value


def _get(item: Item, name: str, kind: type[T], default: T) -> T:
    return _need(item, name, kind) if name in item else default
