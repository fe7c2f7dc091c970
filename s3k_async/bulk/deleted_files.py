"""The files that were deleted below a directory, from the operation log, in a temporary file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from s3k_async.bulk.publish import is_below
from s3k_async.integrity.restore_plan import entry_line, entry_of
from s3k_async.integrity.sorted_log import SortedLog
from s3k_async.model import Entry
from s3k_async.oplog.entry_states import ObjectHistory, history_of

__all__ = ["DeletedFile", "DeletedFiles"]

_SCHEMA: Final = """
CREATE TABLE deleted (
    path TEXT PRIMARY KEY, time INTEGER NOT NULL, pending INTEGER NOT NULL, entry TEXT NOT NULL
) WITHOUT ROWID
"""
_PUT: Final = """
INSERT INTO deleted VALUES (?, ?, ?, ?)
ON CONFLICT (path) DO UPDATE
SET time = excluded.time, pending = excluded.pending, entry = excluded.entry
WHERE excluded.time > deleted.time
"""
ROWS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class DeletedFile:
    """A file that was deleted."""

    entry: Entry
    """Its last state."""
    time_ms: int
    """When it was deleted, epoch milliseconds."""
    is_pending: bool
    """Whether only the table shows that the deletion took effect: its client has died."""


class DeletedFiles:
    """Of each path at or below another one, the file that was deleted there last. It ends with its
    log."""

    def __init__(self, log: SortedLog, path: str) -> None:
        self._log = log
        self._path = path
        log.sorter.database.execute(_SCHEMA)

    def find(self, is_wanted: Callable[[DeletedFile], bool]) -> int:
        """Find the files; returns their number."""
        rows: list[tuple[str, int, bool, str]] = []
        for records in self._log.objects_with(self._path):
            file = _deleted(history_of(records))
            if file is None or not is_below(file.entry.path, self._path) or not is_wanted(file):
                continue
            rows.append((file.entry.path, file.time_ms, file.is_pending, entry_line(file.entry)))
            if len(rows) >= ROWS_AT_ONCE:
                self._log.sorter.many(_PUT, rows)
                rows.clear()
        self._log.sorter.many(_PUT, rows)
        (count,) = self._log.sorter.database.execute("SELECT count(*) FROM deleted").fetchone()
        return int(count)

    def files(self) -> Iterator[DeletedFile]:
        """The files, by path."""
        rows = self._log.sorter.database.execute(
            "SELECT time, pending, entry FROM deleted ORDER BY path"
        )
        for time_ms, is_pending, line in rows:
            yield DeletedFile(entry_of(line), time_ms, bool(is_pending))


def _deleted(history: ObjectHistory) -> DeletedFile | None:
    """The file of a history, if its last operation is a deletion."""
    last = history.states[-1] if history.states else None
    if last is None or last.entry.is_dir or last.entry.is_reservation:
        return None
    if last.ended is not None:
        is_deleted = last.end == "delete"
        return DeletedFile(last.entry, last.ended.time_ms, False) if is_deleted else None
    pending = [each.time_ms for each in history.pending if each.after is None]
    return DeletedFile(last.entry, max(pending), True) if pending else None
