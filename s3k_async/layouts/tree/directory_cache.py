"""The directory cache of layout `tree`: ids and versions under which a client last saw directories.

No decision depends on the cache. It predicts the keys to read for a path, and the entries that are
read are compared with it; unless `Tuning.directory_trust` is set, for reads alone.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from math import inf
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
    confirmed: float = field(default=-inf, compare=False)
    """Monotonic time at which a read was sent that has found it in place with all directories
    above; not noted unless the client trusts directories."""

    def is_still(self, entry: object) -> bool:
        """Whether an entry that was read later is this directory and was not moved: a directory
        that leaves its key gets another version."""
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
        """The directory last seen at the key, or None if it is not cached."""
        known = self._known.get(entry_key)
        if known is not None:
            self._known.move_to_end(entry_key)
        return known

    def confirm(self, entry_key: str, known: KnownDirectory, sent: float) -> None:
        """Note that the directory was in place, with all directories above it."""
        if self._known.get(entry_key) == known:
            self._known[entry_key] = replace(known, confirmed=sent)

    def update(self, entry_key: str, entry: object) -> KnownDirectory | None:
        """Store the directory that was read at the key; for anything else, remove the key."""
        if not isinstance(entry, Entry) or not entry.is_dir:
            self._known.pop(entry_key, None)
            return None
        known = self._known[entry_key] = KnownDirectory(entry.id, entry.version)
        self._known.move_to_end(entry_key)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
        return known
