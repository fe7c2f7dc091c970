"""Restored entries as a tree in layout `path`: resolves the claims of objects to paths.

The rules have decided each object by itself (`restore_rules`). Here certain states win over assumed
ones, a partly moved directory is moved back, no two objects share a path, and missing directories
are created. The work is done in a temporary file, so that memory is bounded.

After a distributed decision only the claims that can affect others are given to the tree: see
`TreePlan.summarise`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Final

from s3k_async import _native
from s3k_async.integrity.restore_report import RestoreOutcome, RestoreReport
from s3k_async.integrity.restore_rules import RestoreDecision, RuleName
from s3k_async.model import Entry
from s3k_async.oplog.entries import entry_document, entry_from
from s3k_async.oplog.external_sort import ExternalSort

__all__ = ["ROWS_AT_ONCE", "TreePlan", "entry_line", "entry_of", "is_plain"]

ROWS_AT_ONCE: Final = 1000
_SCHEMA: Final = """
CREATE TABLE claims (
    object TEXT PRIMARY KEY, path TEXT NOT NULL, parent TEXT NOT NULL, depth INTEGER NOT NULL,
    isdir INTEGER NOT NULL, rule TEXT NOT NULL, certain INTEGER NOT NULL, entry TEXT NOT NULL,
    before TEXT, came_from TEXT, detail TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE removed (path TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE existing (
    path TEXT PRIMARY KEY, object TEXT NOT NULL, isdir INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE files (parent TEXT PRIMARY KEY, ctime INTEGER) WITHOUT ROWID;
CREATE TABLE refused (path TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_INDEXES: Final = """
CREATE INDEX IF NOT EXISTS by_path ON claims (path);
CREATE INDEX IF NOT EXISTS by_parent ON claims (parent);
"""


class TreePlan:
    """The claims, in a temporary file that may hold other tables as well."""

    def __init__(self, sorter: ExternalSort, volume_id: str) -> None:
        self.report = RestoreReport()
        self._sorter = sorter
        self._volume_id = volume_id
        self._database = sorter.database
        self._database.executescript(_SCHEMA)

    # Input

    def claim(self, decisions: Iterable[tuple[str, RestoreDecision]]) -> None:
        """Add the decisions with an entry, by object id."""
        rows = [
            _row(object_id, decision, decision.entry)
            for object_id, decision in decisions
            if decision.entry
        ]
        self._sorter.many(f"INSERT INTO claims VALUES ({', '.join('?' * 11)})", rows)  # noqa: S608 - question marks

    def remove(self, paths: Iterable[str]) -> None:
        """Add paths of directories that are certainly removed."""
        self._sorter.many("INSERT OR REPLACE INTO removed VALUES (?)", [(path,) for path in paths])

    def add_existing(self, entries: Iterable[tuple[str, str, bool]]) -> None:
        """Add existing entries of the table: path, object id, and whether it is a directory."""
        self._sorter.many("INSERT OR REPLACE INTO existing VALUES (?, ?, ?)", list(entries))

    def summarise(self, parents: Iterable[tuple[str, int | None]]) -> None:
        """Add files that are not claimed one by one, by directory: the earliest ctime of those
        whose path is free in the table.

        A file can be left out of the claims if it is plain (`is_plain`), and its path is neither
        that of another claim, nor where an uncertain one was before, nor above any of these.
        The caller drops it if its path is occupied, or its directory among `refused`.
        """
        self._sorter.many("INSERT OR REPLACE INTO files VALUES (?, ?)", list(parents))

    # What comes out

    def entries(self) -> Iterator[list[Entry]]:
        """The entries to restore, in lists: a directory comes in an earlier list than its
        children."""
        rows = self._database.execute("SELECT depth, entry FROM claims ORDER BY depth, path")
        for _, level in groupby(rows, key=lambda row: row[0]):
            while some := list(islice(level, ROWS_AT_ONCE)):
                yield [entry_of(text) for _, text in some]

    def made_parents(self) -> Iterator[list[Entry]]:
        """The created directories, which are in no log."""
        rows = self._database.execute(
            "SELECT entry FROM claims WHERE rule = 'parent_made' ORDER BY depth, path"
        )
        while some := rows.fetchmany(ROWS_AT_ONCE):
            yield [entry_of(text) for (text,) in some]

    def refused(self) -> Iterator[list[str]]:
        """Directories of summarised files that cannot be created, because a file is above them."""
        rows = self._database.execute("SELECT path FROM refused")
        while some := rows.fetchmany(ROWS_AT_ONCE):
            yield [path for (path,) in some]

    def is_present(self, object_id: str) -> bool:
        """Whether the table has an entry of the object."""
        return self._one("SELECT 1 FROM existing WHERE object = ?", object_id) is not None

    def index_existing(self) -> None:
        """Create the index for `is_present`, after all existing entries were added."""
        self._database.execute("CREATE INDEX IF NOT EXISTS by_object_existing ON existing (object)")

    def make_a_tree(self) -> None:
        """Resolve conflicts between the claims, and count the result."""
        self._database.executescript(_INDEXES)
        self._remove_below_removed()
        self._move_back_what_was_not_moved_wholly()
        self._yield_paths()
        self._refuse_occupied()
        self._make_parents()
        rows = self._database.execute("SELECT object, rule, entry, detail FROM claims")
        for object_id, rule, text, detail in rows:
            entry = entry_of(text)
            self.report.count(entry)
            self.report.note(RestoreOutcome(rule, entry.path, object_id, detail))

    def note(self, decision: RestoreDecision, object_id: str) -> None:
        """Count the outcome for an object that is not restored."""
        path = decision.entry.path if decision.entry else decision.path
        self.report.note(RestoreOutcome(decision.rule, path, object_id, decision.detail))

    # How

    def _one(self, statement: str, *values: object) -> tuple[int, ...] | None:
        row: tuple[int, ...] | None = self._database.execute(statement, values).fetchone()
        return row

    def _remove_below_removed(self) -> None:
        """A directory is removed after everything in it: entries that were being removed below a
        removed directory are certainly gone."""
        rows = self._all(
            "SELECT object, path FROM claims WHERE rule = 'delete_undone' ORDER BY depth"
        )
        for object_id, path in rows:
            above = _native.ancestors(path)
            if any(self._is_removed(directory) for directory in above):
                self._drop(
                    object_id,
                    RestoreDecision(
                        "delete_done", None, path=path, detail="its directory was removed"
                    ),
                )

    def _is_removed(self, directory: str) -> bool:
        gone = self._one("SELECT 1 FROM removed WHERE path = ?", directory)
        return (
            gone is not None and self._one("SELECT 1 FROM claims WHERE path = ?", directory) is None
        )

    def _move_back_what_was_not_moved_wholly(self) -> None:
        """A directory is moved with everything in it: if an entry is still below the old path, it
        was not part of the move, so the move did not happen."""
        moved = self._all(
            "SELECT came_from FROM claims WHERE rule = 'rename_done' AND isdir AND came_from <> "
            "path ORDER BY depth"
        )
        for (source,) in moved:
            low, high = source + "/", source + "0"
            left = self._one(
                "SELECT 1 FROM claims WHERE path > ? AND path < ?", low, high
            ) or self._one(
                "SELECT 1 FROM files WHERE parent = ? OR (parent > ? AND parent < ?)",
                source,
                low,
                high,
            )
            taken = self._one("SELECT 1 FROM claims WHERE path = ?", source)
            if left and not taken:
                for object_id, _ in self._all(
                    "SELECT object, path FROM claims WHERE rule = 'rename_done'"
                    " AND (came_from = ? OR (came_from > ? AND came_from < ?))",
                    source,
                    low,
                    high,
                ):
                    self._take_back(object_id, "rename_undone")

    def _yield_paths(self) -> None:
        """Certain states win over assumed ones; if several remain at a path, none is restored."""
        shared = "SELECT path FROM claims GROUP BY path HAVING count(*) > 1"
        for _ in range(3):
            for (path,) in self._all(shared):
                rows = self._all("SELECT object, rule, certain FROM claims WHERE path = ?", path)
                others = [row for row in rows if row[1] != "delete_undone"]
                for object_id, rule, certain in rows:
                    if rule == "delete_undone" and others:
                        detail = "its path was taken"
                        self._drop(
                            object_id,
                            RestoreDecision("delete_done", None, path=path, detail=detail),
                        )
                    elif not certain and rule != "rename_undone" and any(row[2] for row in others):
                        self._take_back(object_id, "yielded")
        for (path,) in self._all(shared):
            rows = self._all("SELECT object FROM claims WHERE path = ?", path)
            ids = ", ".join(sorted(object_id for (object_id,) in rows))
            for (object_id,) in rows:
                self._drop(
                    object_id,
                    RestoreDecision("path_conflict", None, path=path, detail=f"claimed by {ids}"),
                )

    def _refuse_occupied(self) -> None:
        rows = self._all("SELECT claims.object, path FROM claims JOIN existing USING (path)")
        for object_id, path in rows:
            self._drop(object_id, RestoreDecision("occupied", None, path=path))

    def _make_parents(self) -> None:
        """Create the missing directories, or refuse claims below a file."""
        missing = (
            "SELECT parent, min(ctime) FROM (SELECT parent, json_extract(entry, '$.ctime') AS "
            "ctime FROM claims"
            " UNION ALL SELECT parent, ctime FROM files)"
            " AS child WHERE parent <> '/' AND ctime IS NOT NULL"
            " AND NOT EXISTS (SELECT 1 FROM claims WHERE path = child.parent AND isdir)"
            " AND NOT EXISTS (SELECT 1 FROM existing WHERE path = child.parent AND isdir) GROUP BY "
            "parent"
        )
        while rows := self._all(missing):
            for parent, ctime in rows:
                if self._is_below_a_file(parent):
                    for object_id, path in self._all(
                        "SELECT object, path FROM claims WHERE parent = ?", parent
                    ):
                        self._drop(object_id, RestoreDecision("parent_is_file", None, path=path))
                    self._refuse(parent)
                    continue
                entry = self._new_directory(parent, int(ctime))
                decision = RestoreDecision("parent_made", entry, path=parent)
                self.claim([(entry.id, decision)])

    def _refuse(self, directory: str) -> None:
        if self._one("SELECT 1 FROM files WHERE parent = ?", directory):
            self._database.execute("DELETE FROM files WHERE parent = ?", (directory,))
            self._database.execute("INSERT INTO refused VALUES (?)", (directory,))

    def _is_below_a_file(self, directory: str) -> bool:
        return any(
            self._one("SELECT 1 FROM claims WHERE path = ? AND NOT isdir", path)
            or self._one("SELECT 1 FROM existing WHERE path = ? AND NOT isdir", path)
            for path in [*_native.ancestors(directory), directory]
        )

    def _new_directory(self, path: str, ctime: int) -> Entry:
        """A directory with a deterministic id, so that a repeated restore does not create a second
        one at its path."""
        digest = hashlib.sha256(f"{self._volume_id}\n{path}".encode()).digest()
        identity, operation = (
            str(uuid.UUID(bytes=digest[start : start + 16], version=4)) for start in (0, 16)
        )
        return Entry(path, True, identity, 1, ctime, ctime * 1000, operation=operation)

    def _take_back(self, object_id: str, rule: RuleName) -> None:
        """Replace an assumed state by the state before it."""
        ((path, before, detail),) = self._all(
            "SELECT path, before, detail FROM claims WHERE object = ?", object_id
        )
        if before is None:
            self._drop(object_id, RestoreDecision(rule, None, path=path, detail=detail))
            return
        entry = entry_of(before)
        self._database.execute("DELETE FROM claims WHERE object = ?", (object_id,))
        self.claim([(object_id, RestoreDecision(rule, entry, detail=detail))])

    def _drop(self, object_id: str, decision: RestoreDecision) -> None:
        self._database.execute("DELETE FROM claims WHERE object = ?", (object_id,))
        self.note(decision, object_id)

    def _all(self, statement: str, *values: object) -> list[tuple[str, ...]]:
        return self._database.execute(statement, values).fetchall()


def _row(object_id: str, decision: RestoreDecision, entry: Entry) -> tuple[object, ...]:
    before = decision.before
    return (
        object_id,
        entry.path,
        _native.split(entry.path)[0],
        entry.path.count("/"),
        entry.is_dir,
        decision.rule,
        decision.is_certain,
        entry_line(entry),
        None if before is None else entry_line(before),
        None if before is None else before.path,
        decision.detail,
    )


def is_plain(decision: RestoreDecision) -> bool:
    """Whether the claim is certain, and not a directory."""
    return decision.is_certain and decision.entry is not None and not decision.entry.is_dir


def entry_line(entry: Entry) -> str:
    """An entry as a line of JSON."""
    return json.dumps(entry_document(entry))


def entry_of(line: str | bytes) -> Entry:
    """The entry in a line."""
    return entry_from(json.loads(line), "restore")
