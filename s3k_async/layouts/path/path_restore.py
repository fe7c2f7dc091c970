"""Restored entries as a tree in layout `path`: resolves the claims of objects to paths.

In addition to what `integrity.restore_plan` does, a partly moved directory is moved back, and
missing directories are created.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from s3k_async import _native
from s3k_async.integrity.restore_plan import TreePlan, is_plain
from s3k_async.integrity.restore_rules import RestoreDecision
from s3k_async.model import ROOT, Entry

__all__ = ["PathPlan"]


class PathPlan(TreePlan):
    """The plan of a volume of layout `path`."""

    names = ("place",)

    @property
    def within(self) -> str:
        """The path that is restored."""
        return self.path

    def is_current(self, entry_key: str) -> bool:
        """Whether it is a path."""
        return entry_key.startswith(ROOT)

    def remove(self, directories: Iterable[tuple[str, str]]) -> None:
        """Add the paths."""
        self._sorter.many(
            "INSERT OR REPLACE INTO removed VALUES (?)", [(path,) for _, path in directories]
        )

    def add_removed(self, object_ids: Iterable[str]) -> None:
        """Do nothing: the layout has no removal markers."""

    def close(self) -> None:
        """Do nothing: there is one temporary file."""

    @staticmethod
    def leaves_out(state: Entry, path: str) -> bool:
        """Always."""
        return True

    @staticmethod
    def kept_names(path: str) -> frozenset[str]:
        """None."""
        return frozenset()

    @staticmethod
    def looks_above(directory_keys: AbstractSet[str]) -> set[str]:
        """The paths of the directories and of those above them, at which a file may be."""
        below = [each for each in directory_keys if each != ROOT]
        return {above for each in below for above in (*_native.ancestors(each), each)}

    @staticmethod
    def looks_for(decision: RestoreDecision) -> set[str]:
        """The paths above the claim, and above where an uncertain one was before, at which a file
        may be; and the paths of uncertain ones and of directories."""
        states = [each for each in (decision.entry, decision.before) if each is not None]
        found = PathPlan.looks_above({_native.split(each.path)[0] for each in states})
        return found if is_plain(decision) else found | {each.path for each in states}

    def directories(self) -> None:
        """None: claims have paths."""

    # How

    def _place(self, entry: Entry) -> tuple[str, str, int | None]:
        return entry.path, _native.split(entry.path)[0], entry.path.count("/")

    def _resolve(self) -> None:
        self.index_existing()
        self._remove_below_removed()
        self._move_back_what_was_not_moved_wholly()
        self._yield_places()
        self._refuse_occupied()
        self._make_parents()

    def _remove_below_removed(self) -> None:
        """A directory is removed after everything in it: entries that were being removed below a
        removed directory are certainly gone."""
        rows = self._all(
            "SELECT object, place FROM claims WHERE rule = 'delete_undone' ORDER BY depth"
        )
        for object_id, path in rows:
            above = _native.ancestors(path)
            if any(self._is_removed(directory) for directory in above):
                self._drop(object_id, "delete_done", "its directory was removed")

    def _is_removed(self, directory: str) -> bool:
        gone = self._one("SELECT 1 FROM removed WHERE directory = ?", directory)
        return (
            gone is not None
            and self._one("SELECT 1 FROM claims WHERE place = ?", directory) is None
        )

    def _move_back_what_was_not_moved_wholly(self) -> None:
        """A directory is moved with everything in it: if an entry is still below the old path, it
        was not part of the move, so the move did not happen."""
        moved = self._all(
            "SELECT came_from FROM claims WHERE rule = 'rename_done' AND isdir AND came_from <> "
            "place ORDER BY depth"
        )
        for (source,) in moved:
            low, high = source + "/", source + "0"
            left = self._one(
                "SELECT 1 FROM claims WHERE place > ? AND place < ?", low, high
            ) or self._one(
                "SELECT 1 FROM files WHERE parent = ? OR (parent > ? AND parent < ?)",
                source,
                low,
                high,
            )
            taken = self._one("SELECT 1 FROM claims WHERE place = ?", source)
            if left and not taken:
                for (object_id,) in self._all(
                    "SELECT object FROM claims WHERE rule = 'rename_done'"
                    " AND (came_from = ? OR (came_from > ? AND came_from < ?))",
                    source,
                    low,
                    high,
                ):
                    self._take_back(object_id, "rename_undone")

    def _make_parents(self) -> None:
        """Create the missing directories, or refuse claims below a file."""
        missing = (
            "SELECT parent, min(ctime) FROM (SELECT parent, ctime FROM claims"
            " UNION ALL SELECT parent, ctime FROM files)"
            " AS child WHERE parent <> '/' AND ctime IS NOT NULL"
            " AND NOT EXISTS (SELECT 1 FROM claims WHERE place = child.parent AND isdir)"
            " AND NOT EXISTS (SELECT 1 FROM existing WHERE place = child.parent AND isdir) GROUP "
            "BY parent"
        )
        while rows := self._all(missing):
            for parent, ctime in rows:
                if self._is_below_a_file(parent):
                    for (object_id,) in self._all(
                        "SELECT object FROM claims WHERE parent = ?", parent
                    ):
                        self._drop(object_id, "parent_is_file")
                    self._refuse(parent, "")
                    continue
                entry = self._new_directory(parent, int(ctime))
                decision = RestoreDecision("parent_made", entry, path=parent)
                self.claim([(entry.id, decision)])

    def _is_below_a_file(self, directory: str) -> bool:
        return any(
            self._one("SELECT 1 FROM claims WHERE place = ? AND NOT isdir", path)
            or self._one("SELECT 1 FROM existing WHERE place = ? AND NOT isdir", path)
            for path in [*_native.ancestors(directory), directory]
        )
