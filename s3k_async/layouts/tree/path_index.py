"""The path index of layout `tree`: the places of directories that a scan of the table has found, by
their ids.

The keys of entries contain ids instead of paths, so that a scan knows no paths. The index makes
them from the directories that it was given. Since a scan is no snapshot, a path may be one that
never existed at any moment: it is for people, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from s3k_async import _native
from s3k_async.layouts.tree.trash_items import TRASH_FOLDER
from s3k_async.model import ROOT
from s3k_async.namespace.directory_file import DirectoryFile
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.table.keys import BY_ID, TRASH_ID
from s3k_async.table.stored_reader import ROOT_ENTRY

__all__ = ["HELD_DIRECTORIES", "PathIndex", "paths_from_root"]

HELD_DIRECTORIES: Final = 100_000
"""Directories held in memory before all are written to a temporary file."""
BUFFERED: Final = 1000
"""Directories held in memory after that, before they are written too."""

_SCHEMA: Final = """
CREATE TABLE directories (id TEXT PRIMARY KEY, parent TEXT NOT NULL, name TEXT NOT NULL)
WITHOUT ROWID
"""
_UNREACHED: Final = """
WITH RECURSIVE reached(id) AS (
    SELECT id FROM directories WHERE parent NOT IN (SELECT id FROM directories)
    UNION SELECT below.id FROM directories AS below JOIN reached ON below.parent = reached.id
)
SELECT id FROM directories WHERE id NOT IN (SELECT id FROM reached) ORDER BY id
"""


def paths_from_root(directories: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The paths of directories by id, the root included, from their ids and entry keys. Those that
    no path leads to are left out, and so is the trash."""
    below: dict[str, list[tuple[str, str]]] = {}
    for object_id, entry_key in directories:
        parent, _, name = entry_key.partition("/")
        below.setdefault(parent, []).append((object_id, name))
    found = {ROOT_ENTRY.id: ROOT}
    left = [ROOT_ENTRY.id]
    while left:
        parent = left.pop()
        for object_id, name in below.get(parent, ()):
            if object_id not in found:
                found[object_id] = _native.join(found[parent], name)
                left.append(object_id)
    return found


class PathIndex:
    """Directory id to the id of its parent, and its name. Of several places of one directory, the
    one that was added last is kept."""

    def __init__(self, held: int | None = None) -> None:
        """`held`: directories in memory before all are written to a temporary file, by default
        HELD_DIRECTORIES."""
        self._held = HELD_DIRECTORIES if held is None else held
        self._places: dict[str, tuple[str, str]] = {}
        self._file: ExternalSort | None = None
        self._saved: DirectoryFile | None = None
        self._paths: dict[str, str] = {}
        """The last paths that were asked for, of those that lead to a root: others must not depend
        on the order of the questions."""

    def add(self, directories: Iterable[tuple[str, str]]) -> None:
        """Add directories by id, each with the entry key of its item."""
        self._paths.clear()
        for object_id, entry_key in directories:
            parent, _, name = entry_key.partition("/")
            self._places[object_id] = parent, name
            if len(self._places) > (self._held if self._file is None else BUFFERED):
                self._spill()

    def save(self, path: str) -> None:
        """Write the directories into a new file, for `open`."""
        DirectoryFile.write(path, ((key, f"{parent}/{name}") for key, parent, name in self._rows()))

    def open(self, path: str) -> None:
        """Look up directories in a file that `save` has written, in place of all that were added
        before. Those that are added later take precedence; `ids` and `cycles` see only them."""
        self.close()
        self._places.clear()
        self._paths.clear()
        self._saved = DirectoryFile(path)

    def place(self, object_id: str) -> str | None:
        """The entry key of a directory's item; None for an unknown directory."""
        found = self._at(object_id)
        return None if found is None else f"{found[0]}/{found[1]}"

    def ids(self) -> Iterator[str]:
        """The ids of the directories."""
        if self._file is None:
            yield from self._places
            return
        self._spill()
        yield from (row[0] for row in self._file.database.execute("SELECT id FROM directories"))

    def path(self, object_id: str) -> str:
        """The path of a directory: below `/.trash` for one in the trash, and below `/.directory` if
        no path leads to it."""
        names: list[str] = []
        seen: set[str] = set()
        key = object_id
        while (top := self._top(key)) is None:
            place = None if key in seen else self._at(key)
            if place is None:
                return f"{BY_ID}/{object_id}"
            seen.add(key)
            names.append(place[1])
            key = place[0]
        for name in reversed(names):
            top = _native.join(top, name)
        if len(self._paths) >= self._held:
            self._paths.clear()
        self._paths[object_id] = top
        return top

    def _top(self, key: str) -> str | None:
        """The path of a directory that is known without its parent."""
        if key == ROOT_ENTRY.id:
            return ROOT
        return TRASH_FOLDER if key == TRASH_ID else self._paths.get(key)

    def cycles(self) -> list[list[str]]:
        """The directories that are below themselves: the ids of each cycle, from the least on."""
        found: list[list[str]] = []
        known: set[str] = set()
        for start in self._unreached():
            trail: dict[str, None] = {}
            key = start
            while key not in trail and key not in known:
                trail[key] = None
                place = self._at(key)
                assert place is not None
                key = place[0]
            if key in trail:
                members = list(trail)
                cycle = members[members.index(key) :]
                least = cycle.index(min(cycle))
                found.append(cycle[least:] + cycle[:least])
            known.update(trail)
        return sorted(found)

    def close(self) -> None:
        """Remove the temporary file, and close that of `open`. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._saved is not None:
            self._saved.close()
            self._saved = None

    def _at(self, object_id: str) -> tuple[str, str] | None:
        found = self._places.get(object_id)
        if found is None and self._file is not None:
            found = self._file.database.execute(
                "SELECT parent, name FROM directories WHERE id = ?", (object_id,)
            ).fetchone()
        if found is None and self._saved is not None:
            entry_key = self._saved.entry_key(object_id)
            if entry_key is not None:
                parent, _, name = entry_key.partition("/")
                found = parent, name
        return found

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """The directories in the order of their ids: each with its parent and name."""
        if self._file is None:
            yield from ((key, *place) for key, place in sorted(self._places.items()))
            return
        self._spill()
        yield from self._file.database.execute(
            "SELECT id, parent, name FROM directories ORDER BY id"
        )

    def _unreached(self) -> Iterator[str]:
        """The ids of directories that neither a root nor an unknown directory is above."""
        if self._file is not None:
            self._spill()
            self._file.database.execute(
                "CREATE INDEX IF NOT EXISTS by_parent ON directories (parent)"
            )
            yield from (row[0] for row in self._file.database.execute(_UNREACHED).fetchall())
            return
        reached: set[str] = set()
        for start in sorted(self._places):
            trail: dict[str, None] = {}
            key = start
            while key in self._places and key not in trail and key not in reached:
                trail[key] = None
                key = self._places[key][0]
            if key in trail:
                yield start
            elif key in reached or key not in self._places:
                reached.update(trail)

    def _spill(self) -> None:
        if self._file is None:
            self._file = ExternalSort()
            self._file.database.execute(_SCHEMA)
        rows = [(object_id, *place) for object_id, place in self._places.items()]
        self._file.many("INSERT OR REPLACE INTO directories VALUES (?, ?, ?)", rows)
        self._places.clear()
