"""The directory cache of layout `tree`: ids and versions under which a client last saw directories.

No decision depends on it. It tells which keys to read for a path, and what the read returns is
compared with it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from s3k_async.model import Entry

__all__ = ["DirectoryCache", "KnownDirectory"]

KNOWN_DIRECTORIES: Final = 32_768
"""Maximum number of directories; the least recently used are dropped first. About 12 MB."""


@dataclass(frozen=True, slots=True)
class KnownDirectory:
    """A directory as it was last seen at an entry key."""

    id: str
    version: int

    def is_still(self, entry: object) -> bool:
        """Whether an entry that was read since is this directory, unmoved: a directory that leaves
        its key gets another version."""
        return (
            isinstance(entry, Entry)
            and entry.is_dir
            and entry.id == self.id
            and entry.version == self.version
        )


class DirectoryCache:
    """Directories by entry key. Belongs to one client, hence to one process and event loop."""

    def __init__(self, limit: int = KNOWN_DIRECTORIES) -> None:
        self._limit = limit
        self._known: OrderedDict[str, KnownDirectory] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, entry_key: str) -> KnownDirectory | None:
        """The directory last seen at the key, if it is remembered."""
        known = self._known.get(entry_key)
        if known is not None:
            self._known.move_to_end(entry_key)
        return known

    def update(self, entry_key: str, entry: object) -> KnownDirectory | None:
        """Remember what was read at the key: the directory, if it is one, else nothing."""
        if not isinstance(entry, Entry) or not entry.is_dir:
            self._known.pop(entry_key, None)
            return None
        known = self._known[entry_key] = KnownDirectory(entry.id, entry.version)
        self._known.move_to_end(entry_key)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
        return known
