"""Where an entry lives in the table: the partition of its parent and suffix, and its name.

Source of the format: S3-FileSystem 1.0, `ks://<volume>/<parent>-sf<i>` and the last path component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from s3k_async import _native
from s3k_async.backends.ports.items import Key
from s3k_async.errors import InvalidPathError
from s3k_async.model import HashName

__all__ = ["ENTRY_PREFIX", "ROOT_KEY", "KeyScheme"]

ENTRY_PREFIX = "ks://"
"""Partitions of entries begin with this; every other partition is a record of ours or foreign."""

ROOT_KEY = Key("s3k:root", "root")
"""Where the root's record is. The root has no item; a transaction that changes something in it
writes its operation there."""


@dataclass(frozen=True, slots=True)
class KeyScheme:
    """The keys of one volume. Two clients with different schemes on one table would corrupt it: see
    the record."""

    volume: str
    suffix_count: int
    hash: HashName = "xxh3"

    def key(self, path: str) -> Key:
        """Key of the entry at a normalised path. Raises InvalidPathError for the root and for keys
        too long."""
        return Key(*_native.item_key(self.volume, path, self.suffix_count, self.hash))

    def keys(self, paths: Sequence[str]) -> list[Key]:
        """`key` for many paths."""
        return list(
            map(Key, *_native.item_keys(self.volume, list(paths), self.suffix_count, self.hash))
        )

    def has(self, path: str) -> bool:
        """Whether an entry can be at the path: it is that of no root, normalised, and not too
        long."""
        try:
            return _native.normalize(path) == path and bool(self.key(path))
        except InvalidPathError:
            return False

    def partitions(self, directory: str) -> list[str]:
        """The partitions that together hold a directory's children; none if its path leaves no room
        for a child."""
        try:
            return _native.partition_keys(self.volume, directory, self.suffix_count)
        except InvalidPathError:
            return []

    def path(self, key: Key) -> str:
        """The path a key stands for. Raises ItemFormatError for a key that is no entry of this
        volume."""
        return _native.decode_key(self.volume, key.partition, key.sort)
