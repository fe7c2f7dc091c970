"""Where an entry lives in the table: a partition of its directory, and its name.

An entry key, `<directory key>/<name>`, stands for one entry. In layout `path` it is the path of the
entry, and the partition `ks://<volume>/<parent>-sf<i>` (S3-FileSystem 1.0); in layout `tree` it
begins with the object id of the directory, and the partition is `s3k:tree/<id>-sf<i>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from s3k_async import _native
from s3k_async._native import Entries
from s3k_async.backends.ports.items import Key
from s3k_async.errors import InvalidPathError
from s3k_async.model import TRASH_ID, Entry, HashName, LayoutName

__all__ = [
    "BY_ID",
    "ENTRY_PREFIXES",
    "ROOT_KEY",
    "TRASH_FOLDER",
    "TRASH_ID",
    "Directory",
    "KeyScheme",
    "is_entry_partition",
]

_PATH_PREFIX = "ks://"
_TREE_PREFIX = "s3k:tree/"
ENTRY_PREFIXES: Final = (_PATH_PREFIX, _TREE_PREFIX)
"""How the partitions of entries begin, in any volume and layout."""
BY_ID = "/.directory"
"""The parent of the paths that are shown for entries whose path is not known, in layout `tree`."""
TRASH_FOLDER = "/.trash"
"""The parent of the paths that are shown for directories in the trash."""

ROOT_KEY = Key("s3k:root", "root")
"""Where the root's record is. The root has no item; a transaction that changes something in it
writes its operation there."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory as the parent of its children."""

    key: str
    """Its directory key: what the keys of its children are made of."""
    path: str
    entry_key: str
    """What the key of its own item is made of; the root has no item."""

    @classmethod
    def at(cls, path: str) -> Self:
        """The directory at a path, in layout `path`."""
        return cls(path, path, path)


@dataclass(frozen=True, slots=True)
class KeyScheme:
    """The keys of one volume. Two clients with different schemes on one table would corrupt it: see
    the record."""

    volume: str
    suffix_count: int
    hash: HashName = "xxh3"
    layout: LayoutName = "path"
    by_id: bool = field(init=False)
    """Whether directory keys are object ids, as in layout `tree`."""
    authority: str | None = field(init=False)
    """The name of the volume in its keys, for native functions; None in layout `tree`, whose keys
    have none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", self.layout == "tree")
        object.__setattr__(self, "authority", None if self.by_id else self.volume)

    def key(self, entry_key: str) -> Key:
        """The key of an item. Raises InvalidPathError for the root and for keys too long."""
        return Key(*_native.item_key(self.authority, entry_key, self.suffix_count, self.hash))

    def keys(self, entry_keys: Sequence[str]) -> list[Key]:
        """`key` for many."""
        return list(
            map(
                Key,
                *_native.item_keys(self.authority, list(entry_keys), self.suffix_count, self.hash),
            )
        )

    def of(self, entry: Entry) -> Key:
        """`key` of the item that stores an entry."""
        # every change makes keys: in layout `path` without a call of `entry_key`
        entry_key = entry.entry_key if entry.directory else entry.path
        return Key(*_native.item_key(self.authority, entry_key, self.suffix_count, self.hash))

    def has(self, entry_key: str) -> bool:
        """Whether an item can have the entry key, or could have it before the layout of the volume
        was changed: it is not the root's, normalised, and not too long."""
        if not self.is_current(entry_key):
            return replace(self, layout="path" if self.by_id else "tree").has(entry_key)
        try:
            if not self.by_id and _native.normalize(entry_key) != entry_key:
                return False
            return bool(self.key(entry_key))
        except InvalidPathError:
            return False

    def is_current(self, entry_key: str) -> bool:
        """Whether this is the layout of an entry key. The log has entry keys of the other one if
        the layout was changed."""
        return entry_key.startswith("/") != self.by_id

    def partitions(self, directory_key: str) -> list[str]:
        """The partitions that together hold a directory's children; none if its path leaves no room
        for a child."""
        try:
            return _native.partition_keys(self.authority, directory_key, self.suffix_count)
        except InvalidPathError:
            return []

    def directory(self, entry: Entry) -> Directory:
        """A directory by its entry, or by that of the root."""
        if not self.by_id:
            return Directory(entry.path, entry.path, entry.path)
        return Directory(entry.id, entry.path, entry.entry_key)

    def directories(self, entries: Entries) -> list[Directory]:
        """The directories among entries, in their order."""
        if not self.by_id:
            return [Directory.at(path) for path in entries.directories().paths()]
        return [self.directory(entry) for entry in entries.directories()]

    def directory_keys(self, entries: Entries) -> list[str]:
        """The directory keys of the directories among entries, in their order."""
        if not self.by_id:
            return entries.directories().paths()
        return [entry.id for entry in entries.directories()]

    def placed(self, entry: Entry, directory_key: str) -> Entry:
        """An entry in a directory, which in layout `path` follows from the path of the entry."""
        return replace(entry, directory=directory_key) if self.by_id else entry

    def directory_of_entries(self, directory: Directory) -> str:
        """The `directory` of the entries in a directory: its key; empty in layout `path`, where it
        follows from their paths."""
        return directory.key if self.by_id else ""

    def child(self, directory_key: str, name: str) -> str:
        """The entry key of a child."""
        return f"{directory_key}/{name}" if self.by_id else _native.join(directory_key, name)

    def parent_key(self, entry_key: str) -> str:
        """The directory key in an entry key, that of its directory."""
        if not self.by_id:
            return _native.split(entry_key)[0]
        return entry_key.rpartition("/")[0]

    def entry_key(self, key: Key) -> str:
        """The entry key of an item's key. Raises ItemFormatError for a key that is no entry of this
        volume."""
        return _native.decode_key(self.authority, key.partition, key.sort)

    def with_path(self, entry: Entry) -> Entry:
        """An entry that was read by a scan, with a path for the log. In layout `tree`, whose keys
        contain no paths, the path contains the id of the directory: `/.directory/<id>/<name>`."""
        if not self.by_id:
            return entry
        return replace(entry, path=f"{BY_ID}/{entry.entry_key}")

    def entry_keys(self, keys: Sequence[Key]) -> list[str]:
        """`entry_key` for many."""
        return _native.decode_keys(
            self.authority, [key.partition for key in keys], [key.sort for key in keys]
        )

    def is_own(self, partition: str) -> bool:
        """Whether a partition is one of entries of this volume."""
        # `ks://name` is not `ks://name-2`
        own = f"{_PATH_PREFIX}{self.volume}/" if self.layout == "path" else _TREE_PREFIX
        return partition.startswith(own)


def is_entry_partition(partition: str) -> bool:
    """Whether a partition holds entries, of any volume and layout; every other one holds records of
    ours, or foreign items."""
    return partition.startswith(ENTRY_PREFIXES)
