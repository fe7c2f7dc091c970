"""Restored entries as a tree in layout `tree`: resolves the claims of objects to names in
directories, which are known by their ids (docs/design/011-directories-by-id.md, section 8.4).

A rename or deletion of a directory changes its own item alone, so that every claim is decided by
itself, wherever the directories above it are. In addition to what `integrity.restore_plan` does,
removals below removed and reclaimed directories are finished, directories are moved out of cycles,
and missing directories are created with their ids in `/lost+found`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from s3k_async import _native
from s3k_async.backends.ports.items import Value
from s3k_async.integrity.restore_plan import (
    ROWS_AT_ONCE,
    TreePlan,
    entry_of,
    is_plain,
)
from s3k_async.integrity.restore_report import UNTOLD, RestoreOutcome
from s3k_async.integrity.restore_rules import RestoreDecision, RuleName
from s3k_async.layouts.tree.path_index import PathIndex
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.layouts.tree.tree_check import LOST_AND_FOUND
from s3k_async.model import ROOT, TRASH_ID, Entry
from s3k_async.oplog.entries import deletion_from
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.table.codec import to_item
from s3k_async.table.keys import KeyScheme
from s3k_async.table.stored_reader import ROOT_ENTRY

__all__ = ["IdPlan"]

_SCHEMA: Final = """
CREATE TABLE emptied (object TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE gone (object TEXT PRIMARY KEY, newest INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE outcomes (
    object TEXT NOT NULL, rule TEXT NOT NULL, place TEXT NOT NULL, path TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE TABLE nodes (object TEXT PRIMARY KEY, parent TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE scope (object TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_INDEXES: Final = """
CREATE INDEX IF NOT EXISTS by_rule ON claims (rule);
CREATE INDEX IF NOT EXISTS by_depth ON claims (depth);
CREATE INDEX IF NOT EXISTS nodes_by_parent ON nodes (parent);
"""
_ROOTS: Final = (ROOT_ENTRY.id, TRASH_ID)
"""The directory keys that need no directory item."""
_LOST_AND_FOUND: Final = f"{ROOT_ENTRY.id}/{_native.split(LOST_AND_FOUND)[1]}"
_WITHOUT_DIRECTORY: Final = (
    " AND NOT EXISTS (SELECT 1 FROM claims AS above WHERE above.object = claims.parent AND isdir)"
    " AND NOT EXISTS (SELECT 1 FROM existing WHERE existing.object = claims.parent AND isdir)"
)
"""Claims in directories that are neither claimed nor in the table."""
_REMOVED: Final = f"""
SELECT object, isdir FROM claims
WHERE rule = 'delete_undone' AND parent IN (SELECT directory FROM removed) {_WITHOUT_DIRECTORY}
"""  # noqa: S608 - constants
"""Entries that were being removed from a removed directory."""
_MISSING: Final = f"""
SELECT parent, min(ctime) FROM (
    SELECT parent, ctime FROM claims
    UNION ALL SELECT parent, ctime FROM files WHERE ctime IS NOT NULL
) AS child
WHERE parent NOT IN (?, ?) {_WITHOUT_DIRECTORY.replace("claims.parent", "child.parent")}
GROUP BY parent
"""  # noqa: S608 - constants
"""Missing directories, and the earliest ctime of their entries."""
_CREATED: Final = "rule IN ('create_done', 'update_done') AND before IS NULL"
"""Claims of objects whose creation is pending."""
_UNPUBLISHED: Final = f"""
SELECT DISTINCT parent FROM claims
WHERE {_CREATED} AND parent NOT IN (?, ?) {_WITHOUT_DIRECTORY}
AND parent NOT IN (SELECT directory FROM removed)
AND parent NOT IN (SELECT object FROM emptied)
AND (
    parent NOT IN (SELECT object FROM gone)
    OR parent IN (SELECT object FROM outcomes WHERE rule = 'yielded')
)
"""  # noqa: S608 - constants
"""Directories that were never published: the log has entries in them, which are pending, and of the
directory nothing, or only that its creation is pending at a place that is taken."""
_KEPT, _DELETED, _BELOW_DELETED, _RECLAIMED = range(4)
"""In the tree, in the trash itself, below a directory there, and below one that is being reclaimed:
what is further on is deleted earlier, or cannot be restored by itself."""


class IdPlan(TreePlan):
    """The plan of a volume of layout `tree`."""

    names = ("place", "object_id", "name")

    def __init__(self, sorter: ExternalSort, volume_id: str, path: str) -> None:
        super().__init__(sorter, volume_id, path)
        self._database.executescript(_SCHEMA)
        self._index = PathIndex()

    @property
    def within(self) -> str:
        """The root: the log does not tell which objects are below a path, since directories above
        them may have been renamed later."""
        return ROOT

    def is_current(self, entry_key: str) -> bool:
        """Whether it begins with an id: those of layout `path` are paths."""
        return not entry_key.startswith(ROOT)

    def remove(self, directories: Iterable[tuple[str, str]]) -> None:
        """Add the ids."""
        self._sorter.many(
            "INSERT OR REPLACE INTO removed VALUES (?)", [(each,) for each, _ in directories]
        )

    def add_removed(self, object_ids: Iterable[str]) -> None:
        """Add directories that were removed as empty."""
        rows = [(object_id,) for object_id in object_ids]
        self._sorter.many("INSERT OR REPLACE INTO emptied VALUES (?)", rows)

    @staticmethod
    def leaves_out(state: Entry, path: str) -> bool:
        """Files, but for those that may be at the path, or at that of `/lost+found`."""
        name = _native.split(state.path)[1]
        return not state.is_dir and name not in IdPlan.kept_names(path)

    @staticmethod
    def kept_names(path: str) -> frozenset[str]:
        """Those of the path and of `/lost+found`."""
        return frozenset(_native.split(each)[1] for each in (LOST_AND_FOUND, path) if each != ROOT)

    @staticmethod
    def looks_above(directory_keys: AbstractSet[str]) -> set[str]:
        """The directories: a file may have their ids, or the names that they get in
        `/lost+found`."""
        return set(directory_keys)

    @staticmethod
    def looks_for(decision: RestoreDecision) -> set[str]:
        """The directory of the claim: a file may have its id, or the name that the directory gets
        in `/lost+found`. And every place and directory of an uncertain claim, and of a directory.
        """
        entry = decision.entry
        if entry is not None and is_plain(decision):
            return {entry.directory}
        states = (entry, decision.before, decision.after)
        return {
            value
            for state in states
            if state is not None
            for value in (state.directory, state.entry_key)
        }

    def directories(self) -> Iterator[tuple[str, str | None]]:
        """Those in the tree and in the trash, root and trash included; with a path to restore,
        every object at and below it."""
        keys: Iterable[str] = (*_ROOTS, *self._index.ids())
        if self.path != ROOT:
            keys = (row[0] for row in self._database.execute("SELECT object FROM scope"))
        for key in keys:
            yield key, self._index.path(key) if self._is_known(key) else None

    def close(self) -> None:
        """Remove the temporary file of the path index."""
        self._index.close()

    def item(self, entry: Entry, keys: KeyScheme) -> Mapping[str, Value]:
        """The item of an entry, in the trash with the attributes of the deletion."""
        if entry.directory != TRASH_ID:
            return to_item(entry, keys)
        ((text,),) = self._all("SELECT trash FROM claims WHERE object = ?", entry.id)
        deletion = deletion_from(json.loads(text)[str(entry.version)], "restore")
        return TrashedDirectory.of(entry, deletion).item(keys)

    def note(self, decision: RestoreDecision, object_id: str) -> None:
        """Note the outcome for an object that is not restored. It is counted at the end, if it was
        at or below the path to restore."""
        last = decision.last
        if decision.rule == "other_layout":
            if self.path in {ROOT, decision.path} or decision.path.startswith(self.path + "/"):
                super().note(decision, object_id)
        elif last is not None:
            self._note(object_id, decision.rule, last, decision.detail)
        if last is not None and last.is_dir:
            self._forget(object_id, decision.newest)

    def _note(self, object_id: str, rule: RuleName, entry: Entry, detail: str) -> None:
        row = (object_id, rule, entry.entry_key, entry.path, detail)
        self._database.execute("INSERT INTO outcomes VALUES (?, ?, ?, ?, ?)", row)

    def _forget(self, object_id: str, newest: int) -> None:
        """Note the highest version of a directory that is not restored, which one that is created
        with its id must not have again."""
        self._database.execute(
            "INSERT INTO gone VALUES (?, ?) ON CONFLICT DO UPDATE"
            " SET newest = max(newest, excluded.newest)",
            (object_id, newest),
        )

    def _place(self, entry: Entry) -> tuple[str, str, int | None]:
        return entry.entry_key, entry.directory, None

    def _shown(self, entry: Entry) -> Entry:
        name = _native.split(entry.path)[1]
        return replace(entry, path=_native.join(self._index.path(entry.directory), name))

    def _drop(self, object_id: str, rule: RuleName, detail: str = "") -> None:
        self._note(object_id, rule, self._discard(object_id), detail)

    def _discard(self, object_id: str) -> Entry:
        """Remove a claim, and return its entry."""
        ((text, newest),) = self._all(
            "SELECT entry, newest FROM claims WHERE object = ?", object_id
        )
        self._database.execute("DELETE FROM claims WHERE object = ?", (object_id,))
        entry = entry_of(text)
        if entry.is_dir:
            self._forget(object_id, int(newest))
        return entry

    def _resolve(self) -> None:
        self.index_existing()
        self._database.executescript(_INDEXES)
        self._drop_emptied()
        self._finish_removals()
        changed = True
        while changed:
            self._leave_reclaimed()
            self._leave_trash()
            self._yield_places()
            self._refuse_occupied()
            self._drop_unpublished()
            self._make_parents()
            changed = self._break_cycles() or self._leave_reclaimed() or self._leave_trash()
        self._finish_reclaimed()
        self._set_depths()
        self._report_outcomes(self._keep_scope())

    def _drop_emptied(self) -> None:
        """A removal marker shows that the directory was removed, whatever the log knows of it."""
        rows = self._all("SELECT object FROM claims JOIN emptied USING (object)")
        for (object_id,) in rows:
            self._drop(object_id, "delete_done", "its removal marker is in the trash")

    def _drop_unpublished(self) -> None:
        """The content of a new directory may be stored before the directory is published. The log
        has the directory before that, so that without it nothing of it has taken effect."""
        left = [parent for (parent,) in self._all(_UNPUBLISHED, *_ROOTS)]
        while left:
            rows = self._all(
                f"SELECT object, isdir FROM claims WHERE {_CREATED} AND parent = ?",  # noqa: S608
                left.pop(),
            )
            for object_id, is_dir in rows:
                self._drop(object_id, "update_undone", "its directory was never published")
                if is_dir:
                    left.append(object_id)

    def _finish_removals(self) -> None:
        """A directory is removed after everything in it: entries that were being removed from a
        removed directory are certainly gone, and directories are in the trash."""
        rows = True
        while rows:
            found = self._all(_REMOVED)
            for object_id, is_dir in found:
                self._finish_removal(object_id, "its directory was removed")
                if is_dir:
                    self.remove([(object_id, "")])
            rows = bool(found)

    def _leave_trash(self) -> bool:
        """Take back pending renames that would lead into a directory in the trash: they were begun
        before its deletion, and may not have happened, so that garbage collection would delete what
        no client has deleted. Not if the former place was taken, or its directory removed, which
        show that they have. Returns whether there were any."""
        pending = [
            (object_id, parent, entry_of(before))
            for object_id, parent, before in self._all(
                "SELECT object, parent, before FROM claims WHERE rule = 'rename_done'"
                " AND before IS NOT NULL ORDER BY object"
            )
        ]
        lost = [
            (object_id, before)
            for object_id, parent, before in pending
            if self._loss(parent) > self._loss(before.directory)
        ]
        changed = False
        for object_id, before in lost:
            if self._is_free(before.entry_key) and not self._is_removed(before.directory):
                self._take_back(object_id, "rename_undone", "it would be in the trash")
                if before.directory == TRASH_ID:  # it may have been restored: the retention begins
                    self._delete_now(object_id, before.version)
                changed = True
        return changed

    def _delete_now(self, object_id: str, version: int) -> None:
        """Let the deletion of a directory in the trash count from the time of the restore."""
        ((trash,),) = self._all("SELECT trash FROM claims WHERE object = ?", object_id)
        self._database.execute(
            "UPDATE claims SET trash = ? WHERE object = ?",
            (self._deleted_now(json.loads(trash), version), object_id),
        )

    def _leave_reclaimed(self) -> bool:
        """Take pending moves out of a directory that is being reclaimed as done: into the trash,
        from which a directory can be restored, and if several are pending one to another place.
        Otherwise garbage collection would delete the content. Returns whether there were any."""
        changed = False
        for object_id, rule, after, detail, trash, newest in [
            row
            for parent, *row in self._all(
                "SELECT parent, object, rule, after, detail, trash, newest FROM claims"
                " WHERE rule IN ('delete_undone', 'rivals') AND after IS NOT NULL ORDER BY object"
            )
            if self._loss(parent) == _RECLAIMED
        ]:
            moved = entry_of(after)
            if rule == "delete_undone":
                self._finish_removal(object_id, "its directory is being reclaimed")
            elif self._loss(moved.directory) < _RECLAIMED and self._is_free(moved.entry_key):
                self._replace(object_id, "rivals", after, detail, trash, int(newest))
            else:
                continue
            changed = True
        return changed

    def _loss(self, directory: str) -> int:
        """How near to their deletion entries of a directory are, by what is above them: one of the
        numbers _KEPT to _RECLAIMED."""
        if directory == TRASH_ID:
            return _DELETED
        seen: set[str] = set()
        while directory != ROOT_ENTRY.id and directory not in seen:
            seen.add(directory)
            rows = self._all(
                "SELECT parent, entry, trash FROM claims WHERE object = ? AND isdir", directory
            )
            if rows:
                ((parent, text, trash),) = rows
                if parent == TRASH_ID:
                    return _RECLAIMED if _is_reclaimed(text, trash) else _BELOW_DELETED
            else:
                rows = self._all(
                    "SELECT substr(place, 1, instr(place, '/') - 1) FROM existing"
                    " WHERE object = ? AND isdir",
                    directory,
                )
                if not rows:
                    break
                ((parent,),) = rows
                if parent == TRASH_ID:
                    return _BELOW_DELETED
            directory = parent
        return _KEPT

    def _is_free(self, place: str) -> bool:
        """Whether nothing is restored at a place, nor is there."""
        return not self._one(
            "SELECT 1 FROM claims WHERE place = ? UNION SELECT 1 FROM existing WHERE place = ?",
            place,
            place,
        )

    def _is_removed(self, directory: str) -> bool:
        """Whether a directory was certainly removed, after everything in it."""
        return self._claim_of(directory) is None and bool(
            self._one(
                "SELECT 1 FROM removed WHERE directory = ?"
                " UNION SELECT 1 FROM emptied WHERE object = ?",
                directory,
                directory,
            )
        )

    def _make_parents(self) -> None:
        """Create the missing directories with their ids, in `/lost+found`."""
        missing = self._all(_MISSING, *_ROOTS)
        for key, ctime in missing:
            flaw = self._make_parent(key, int(ctime))
            if flaw:
                for (object_id,) in self._all("SELECT object FROM claims WHERE parent = ?", key):
                    self._drop(object_id, "parent_is_file", flaw)
                self._refuse(key, flaw)
        if missing:
            self._make_parents()  # of what was dropped

    def _make_parent(self, key: str, ctime: int) -> str:
        """Create a missing directory. Returns the reason why that is impossible, or nothing."""
        if self._one("SELECT 1 FROM claims WHERE object = ? AND isdir", key):
            return ""  # `/lost+found` itself, created for another one
        if self._one("SELECT 1 FROM claims WHERE object = ?", key) or self.is_present(key):
            return "a file has the id of its directory"
        home = self._lost_and_found(ctime)
        if home == key:
            return ""
        if home is None:
            return f"its directory is missing, and {LOST_AND_FOUND} is a file"
        path = _native.join(LOST_AND_FOUND, key)
        made = replace(self._new_directory(path, ctime), id=key, directory=home)
        if not self._is_free(made.entry_key):
            return f"its directory is missing, and {path} is taken"
        self._claim_made(made)
        return ""

    def _lost_and_found(self, ctime: int) -> str | None:
        """The id of `/lost+found`, which is created if it is missing; None if it is a file."""
        found = self._all(
            "SELECT object, isdir FROM claims WHERE place = ?"
            " UNION SELECT object, isdir FROM existing WHERE place = ?",
            _LOST_AND_FOUND,
            _LOST_AND_FOUND,
        )
        if found:
            ((object_id, is_dir),) = found
            return object_id if is_dir else None
        home = replace(self._new_directory(LOST_AND_FOUND, ctime), directory=ROOT_ENTRY.id)
        self._claim_made(home)
        return home.id

    def _claim_made(self, directory: Entry) -> None:
        """Claim a created directory, at a version that it never had. Its operation id is the same
        whenever the restore is repeated."""
        newest = self._one("SELECT newest FROM gone WHERE object = ?", directory.id)
        version = 1 if newest is None else newest[0] + 1
        _, operation = self._ids(f"{directory.id}\n{version}")
        made = replace(directory, version=version, operation=operation)
        self.claim([(made.id, RestoreDecision("parent_made", made, path=made.path))])

    def _break_cycles(self) -> bool:
        """Pending renames that are taken as done can lead in a circle, although only some of them
        have happened: one of each circle whose former place is free is taken back. Without such a
        one the log is damaged: a directory is moved to `/lost+found`. Returns whether there were
        any."""
        self._index_directories()
        broken = False
        for cycle in self._index.cycles():
            members = [each for each in cycle if self._claim_of(each) is not None]
            renamed = [each for each in members if self._can_go_back(each)]
            if renamed:
                self._take_back(min(renamed), "rename_undone", "it would be below itself")
            elif members:
                self._discard(min(members))
            broken = broken or bool(members)
        return broken

    def _can_go_back(self, object_id: str) -> bool:
        """Whether an object has a pending rename that is taken as done, and its former place is
        free."""
        rows = self._all(
            "SELECT came_from FROM claims WHERE object = ? AND rule = 'rename_done'"
            " AND came_from IS NOT NULL",
            object_id,
        )
        return bool(rows) and self._is_free(rows[0][0])

    def _claim_of(self, object_id: str) -> str | None:
        """The rule of the claim of an object, if it has one."""
        rows = self._all("SELECT rule FROM claims WHERE object = ?", object_id)
        return rows[0][0] if rows else None

    def _index_directories(self) -> None:
        self._index.close()
        self._index = PathIndex()
        rows = self._database.execute(
            "SELECT object, place FROM claims WHERE isdir"
            " UNION ALL SELECT object, place FROM existing WHERE isdir"
        )
        while some := rows.fetchmany(ROWS_AT_ONCE):
            self._index.add(some)

    def _finish_reclaimed(self) -> None:
        """Nothing at or below a directory that is being reclaimed can be restored from the trash,
        so pending removals there are taken as done, those of directories after everything in
        them."""
        if self._one("SELECT 1 FROM claims WHERE rule = 'delete_undone'") is None:
            return
        tops = [
            object_id
            for object_id, text, trash in self._all(
                "SELECT object, entry, trash FROM claims WHERE parent = ?", TRASH_ID
            )
            if _is_reclaimed(text, trash)
        ]
        self._sorter.many("INSERT OR REPLACE INTO scope VALUES (?)", [(each,) for each in tops])
        self._add_below()
        while found := self._all(
            "SELECT object FROM claims WHERE rule = 'delete_undone'"
            " AND object IN (SELECT object FROM scope)"
            " AND NOT EXISTS (SELECT 1 FROM claims AS child WHERE child.parent = claims.object)"
            " AND NOT EXISTS"
            " (SELECT 1 FROM files WHERE files.parent = claims.object AND ctime IS NOT NULL)"
        ):
            for (object_id,) in found:
                self._finish_removal(object_id, "its directory is being reclaimed")
        self._database.execute("DELETE FROM scope")

    def _add_below(self) -> None:
        """Add to the scope everything below the directories in it."""
        self._database.executescript(
            "DELETE FROM nodes;"
            " INSERT OR REPLACE INTO nodes SELECT object, substr(place, 1, instr(place, '/') - 1)"
            " FROM existing WHERE isdir;"
            " INSERT OR REPLACE INTO nodes SELECT object, parent FROM claims;"
            " INSERT OR REPLACE INTO scope"
            " WITH RECURSIVE below(object) AS (SELECT object FROM scope"
            " UNION SELECT nodes.object FROM nodes JOIN below ON nodes.parent = below.object)"
            " SELECT object FROM below;"
        )

    def _is_used(self, object_id: str) -> bool:
        """As for all layouts; nor may a directory that is created have a removal marker."""
        return super()._is_used(object_id) or bool(
            self._one("SELECT 1 FROM emptied WHERE object = ?", object_id)
        )

    def _set_depths(self) -> None:
        """The levels of the order of writes: a directory is written before what is in it."""
        depth = 0
        changed = self._database.execute(
            "UPDATE claims SET depth = 0 WHERE parent IN (?, ?) OR EXISTS"
            " (SELECT 1 FROM existing WHERE existing.object = claims.parent AND isdir)",
            _ROOTS,
        )
        while changed.rowcount:
            changed = self._database.execute(
                "UPDATE claims SET depth = ? WHERE depth IS NULL"
                " AND parent IN (SELECT object FROM claims WHERE depth = ? AND isdir)",
                (depth + 1, depth),
            )
            depth += 1

    def _keep_scope(self) -> tuple[str, Sequence[str]] | None:
        """Drop the claims that are neither at nor below the path to restore, nor the directories
        above it. Returns the entry key of the path, and the directories above it; None if no path
        is given, or nothing is at its parent's."""
        if self.path == ROOT:
            return None
        place = ""
        above: list[str] = []
        found: str | None = ROOT_ENTRY.id
        for name in self.path.strip("/").split("/"):
            if found is None:
                place = ""
                break
            above.append(found)
            place = f"{found}/{name}"
            rows = self._all(
                "SELECT object FROM claims WHERE place = ?"
                " UNION SELECT object FROM existing WHERE place = ?",
                place,
                place,
            )
            found = rows[0][0] if rows else None
        if found is not None:
            self._database.execute("INSERT INTO scope VALUES (?)", (found,))
            self._add_below()
        kept = [(each,) for each in (above if found is not None else [])]
        self._database.execute("CREATE TABLE above (object TEXT PRIMARY KEY) WITHOUT ROWID")
        self._sorter.many("INSERT OR REPLACE INTO above VALUES (?)", kept)
        self._database.execute(
            "DELETE FROM claims WHERE object NOT IN (SELECT object FROM scope)"
            " AND object NOT IN (SELECT object FROM above)"
        )
        return place, above

    def _report_outcomes(self, within: tuple[str, Sequence[str]] | None) -> None:
        """Count the outcomes of objects that are not restored, at and below the path to restore."""
        statement = "SELECT object, rule, place, path, detail FROM outcomes"
        values: tuple[object, ...] = ()
        if self.path != ROOT:
            assert within is not None
            statement += (
                " WHERE place = ? OR object IN (SELECT object FROM scope) OR"
                " substr(place, 1, instr(place, '/') - 1) IN (SELECT object FROM scope)"
            )
            values = (within[0],)
        for object_id, rule, place, path, detail in self._database.execute(statement, values):
            shown = path if rule in UNTOLD else self._path_of(place, path)
            self.report.note(RestoreOutcome(rule, shown, object_id, detail))

    def _path_of(self, place: str, path: str) -> str:
        """The path of a place, or the logged one if its directory is not in the tree."""
        directory, _, name = place.partition("/")
        if not self._is_known(directory):
            return path
        return _native.join(self._index.path(directory), name)

    def _is_known(self, directory: str) -> bool:
        """Whether the path index has the directory."""
        return directory in _ROOTS or self._index.place(directory) is not None


def _is_reclaimed(text: str, trash: str) -> bool:
    """Whether a claimed directory in the trash is being reclaimed."""
    return bool(json.loads(trash)[str(entry_of(text).version)]["state"])
