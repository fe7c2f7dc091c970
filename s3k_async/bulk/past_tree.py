"""The tree below a path at an earlier time, from the operation log, in a temporary file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from s3k_async import _native
from s3k_async._core.paths import ancestors
from s3k_async.bulk.publish import is_below
from s3k_async.integrity.sorted_log import SortedLog
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import entry_document, entry_from
from s3k_async.oplog.entry_states import ObjectHistory, history_of

__all__ = ["PastTree", "UnknownState"]

_SCHEMA = """
CREATE TABLE past (path TEXT PRIMARY KEY, since INTEGER NOT NULL, entry TEXT NOT NULL) WITHOUT ROWID
"""
_PUT = """
INSERT INTO past VALUES (?, ?, ?)
ON CONFLICT (path) DO UPDATE SET since = excluded.since, entry = excluded.entry
WHERE excluded.since > past.since
"""
ROWS_AT_ONCE = 1000
_UNKNOWN_PLACE: Final = "the log does not show where the file was at that time"
_FIRST_FILE: Final = 2
"""The version of the first content of a file, after its reservation."""
_FIRST_DIRECTORY: Final = 1
_OUTSIDE: Final = "the file was elsewhere at that time, and is not restored there"


@dataclass(frozen=True, slots=True)
class UnknownState:
    """A file whose state at the time is not known."""

    path: str
    reason: str


class PastTree:
    """The entries at and below a path at a time, until they are taken. Closes with its log."""

    def __init__(
        self,
        log: SortedLog,
        store: MetadataStore,
        path: str,
        time_ms: int,
        history_ms: int | None = None,
    ) -> None:
        """`history_ms`: since when the log has every operation; None: it was not compacted."""
        self.unknown: list[UnknownState] = []
        self._log = log
        self._store = store
        self._path = path
        self._time_ms = time_ms
        self._history_ms = time_ms if history_ms is None else history_ms
        self._uncertain: frozenset[str] = frozenset()
        """In layout `tree`, later paths of the directories whose places at that time are not
        known."""
        self._directories: dict[str, str] | None = None
        self._database = log.sorter.database
        self._database.execute(_SCHEMA)

    def build(self) -> None:
        """Find the entries, by their paths at that time."""
        if self._store.keys.by_id:
            self._directories = self._paths_of_directories()
        rows: list[tuple[str, int, str]] = []
        for records in self._log.objects():
            self._add(history_of(records), rows)
            if len(rows) >= ROWS_AT_ONCE:
                self._log.sorter.many(_PUT, rows)
                rows.clear()
        self._log.sorter.many(_PUT, rows)

    def take(self, path: str) -> Entry | None:
        """The entry at a path, which is removed; None if there was none, or it was taken."""
        row = self._database.execute("SELECT entry FROM past WHERE path = ?", (path,)).fetchone()
        if row is None:
            return None
        self._database.execute("DELETE FROM past WHERE path = ?", (path,))
        return _entry(row[0], path)

    def left(self) -> Iterator[Entry]:
        """The entries that were not taken, by path."""
        for path, text in self._database.execute("SELECT path, entry FROM past ORDER BY path"):
            yield _entry(text, path)

    def directory(self, object_id: str) -> str | None:
        """In layout `tree`, the path of a directory at that time; None if it had none at or below
        the path."""
        found = (self._directories or {}).get(object_id)
        if found is not None and self._is_uncertain(found):
            return None
        return found if found is not None and is_below(found, self._path) else None

    def reason_to_keep(self, entry: Entry) -> str:
        """Why a file that was not at its present path at that time must not be deleted; empty if it
        was created later, or its state of that time is among these entries."""
        records = self._log.sorter.of(entry.id)
        if not records:
            return _UNKNOWN_PLACE if entry.ctime * 1000 <= self._time_ms else ""
        history = history_of(records)
        if self._is_undecided(history) or self._is_compacted(history):
            return _UNKNOWN_PLACE
        state = next((each for each in history.states if each.was_at(self._time_ms)), None)
        if state is None:
            return ""
        path = self._path_of(state.entry)
        if path is not None and self._is_uncertain(path):
            return _UNKNOWN_PLACE
        is_among = path is not None and is_below(path, self._path)
        return "" if is_among or state.entry.is_reservation else _OUTSIDE

    def _paths_of_directories(self) -> dict[str, str]:
        found: list[tuple[str, str]] = []
        compacted: list[str] = []
        for records in self._log.directories():
            history = history_of(records)
            found += [
                (state.entry.id, state.entry.entry_key)
                for state in history.states
                if state.entry.is_dir and state.was_at(self._time_ms)
            ]
            if self._is_compacted(history):
                compacted.append(history.object_id)
        paths = self._store.layout.scanned_paths(found) or {}
        self._uncertain = frozenset(paths[each] for each in compacted if each in paths)
        return paths

    def _add(self, history: ObjectHistory, rows: list[tuple[str, int, str]]) -> None:
        if self._is_compacted(history):
            first = history.states[0].entry
            # In layout `path` the log has a path for each file below a directory.
            if self._directories is not None or not first.is_dir:
                self._note_compacted(first)
            return
        state = next((each for each in history.states if each.was_at(self._time_ms)), None)
        if state is None:
            return
        path = self._path_of(state.entry)
        if path is None or path == ROOT or not is_below(path, self._path):
            return
        if self._is_uncertain(path):
            self._note_compacted(state.entry)
            return
        if self._is_undecided(history):
            reason = "an operation on it was interrupted: s3k fsck repair decides it"
            self.unknown.append(UnknownState(path, reason))
        elif state.entry.is_dir or not state.entry.is_reservation:
            rows.append((path, state.since_ms, json.dumps(entry_document(state.entry))))

    def _note_compacted(self, entry: Entry) -> None:
        """Note an entry that existed, and whose state or path at the time compaction has removed
        from the log; with a later path."""
        path = self._path_of(entry)
        if path is not None and is_below(path, self._path):
            reason = (
                "compaction has removed its history of that time from the log; s3k versions shows "
                "what is left"
            )
            self.unknown.append(UnknownState(path, reason))

    def _is_undecided(self, history: ObjectHistory) -> bool:
        """Whether the state at the time depends on an operation of unknown outcome."""
        return any(operation.time_ms <= self._time_ms for operation in history.pending)

    def _is_compacted(self, history: ObjectHistory) -> bool:
        """Whether an entry existed at the time, and compaction may have removed its state of that
        time. The first version of an entry that is visible had no state before."""
        first = history.states[0] if history.states else None
        if first is None or first.began is not None:
            return False
        if first.ended is not None and first.ended.time_ms <= self._time_ms:
            return False
        entry = first.entry
        if not entry.is_dir and entry.ctime * 1000 <= self._time_ms < first.since_ms:
            return True
        is_first = entry.version <= (_FIRST_DIRECTORY if entry.is_dir else _FIRST_FILE)
        return first.was_at(self._time_ms) and self._time_ms < self._history_ms and not is_first

    def _is_uncertain(self, path: str) -> bool:
        """In layout `tree`, whether a path leads through a directory whose place is not known."""
        return bool(self._uncertain) and not self._uncertain.isdisjoint((path, *ancestors(path)))

    def _path_of(self, entry: Entry) -> str | None:
        """The path of an entry at that time; None if no path led to it."""
        if self._directories is None or not entry.directory:
            return entry.path
        if entry.is_dir:
            return self._directories.get(entry.id)
        above = self._directories.get(entry.directory)
        return None if above is None else _native.join(above, entry.path.rpartition("/")[2])


def _entry(text: str, path: str) -> Entry:
    document = json.loads(text)
    document["path"] = path
    return entry_from(document, path)
