"""A lost table, or a lost part of one, rebuilt from the log and from which bytes exist.

The log is sorted by object in a temporary file, each object is decided (`restoring`), and what the objects claim is
then made a tree: what was only taken as done yields to what is certain, a directory that was moved but not wholly is
moved back, no two objects share a path, and what has no directory above it gets one. Memory is bounded.

Nothing is decided from two tables: whoever writes holds the volume alone.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Final

import anyio.to_thread

from s3k_async import _native
from s3k_async.concurrency import merge
from s3k_async.fsck.restoring import PROBLEMS, Decision, RuleName, decide_restore, named_keys
from s3k_async.model import ROOT, Entry, Progress
from s3k_async.oplog.damage import DamagedLog
from s3k_async.oplog.entries import Operation, entry_document, entry_from
from s3k_async.oplog.reader import LogReader
from s3k_async.oplog.spill import Spill
from s3k_async.sources import Sources
from s3k_async.stores.blobs import BlobInfo, BlobStore

__all__ = ["Outcome", "RestorePlan", "RestoreReport", "plan_restore"]

HEX: Final = "0123456789abcdef"
RECORDS_AT_ONCE: Final = 2000
ROWS_AT_ONCE: Final = 1000
LISTED_OUTCOMES: Final = 10_000
"""Outcomes that a report holds; the counts are of all."""

_SCHEMA: Final = """
CREATE TABLE blobs (key TEXT PRIMARY KEY, size INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE claims (
    object TEXT PRIMARY KEY, path TEXT NOT NULL, parent TEXT NOT NULL, depth INTEGER NOT NULL, isdir INTEGER NOT NULL,
    rule TEXT NOT NULL, certain INTEGER NOT NULL, entry TEXT NOT NULL, before TEXT, came_from TEXT, detail TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE removed (path TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE standing (path TEXT PRIMARY KEY, object TEXT NOT NULL, isdir INTEGER NOT NULL) WITHOUT ROWID;
"""
_INDEXES: Final = """
CREATE INDEX IF NOT EXISTS by_path ON claims (path);
CREATE INDEX IF NOT EXISTS by_parent ON claims (parent);
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one object, or of one object of the log."""

    rule: RuleName
    path: str
    object_id: str = ""
    detail: str = ""

    @property
    def is_problem(self) -> bool:
        """Whether a person has to look at it."""
        return self.rule in PROBLEMS


@dataclass(slots=True)
class RestoreReport:
    """What a restore found, and did or would do."""

    files: int = 0
    directories: int = 0
    reservations: int = 0
    bytes: int = 0
    log_records: int = 0
    counts: Counter[RuleName] = field(default_factory=Counter)
    outcomes: list[Outcome] = field(default_factory=list)
    """What is worth telling: everything but what was restored as the log says, stays deleted or stands."""
    written: int = 0
    """Entries written; 0 for a dry run."""
    run: str = ""
    """Id of the run in the audit trail; empty for a dry run."""

    @property
    def restored(self) -> int:
        """Entries to write."""
        return self.files + self.directories + self.reservations

    @property
    def problems(self) -> list[Outcome]:
        """What a person has to look at."""
        return [outcome for outcome in self.outcomes if outcome.is_problem]

    @property
    def clean(self) -> bool:
        """Whether there is nothing that a person has to look at."""
        return not any(self.counts[rule] for rule in PROBLEMS)

    def note(self, outcome: Outcome) -> None:
        """Count an outcome, and keep it if it is worth telling."""
        self.counts[outcome.rule] += 1
        plain = outcome.rule in {"committed", "deleted", "stands"}
        if not plain and len(self.outcomes) < LISTED_OUTCOMES:
            self.outcomes.append(outcome)


async def plan_restore(
    log: BlobStore,
    data: BlobStore,
    sources: Sources,
    *,
    volume_id: str,
    standing: AsyncIterator[Sequence[Entry]] | None = None,
    path: str = ROOT,
    directory: str | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> RestorePlan:
    """Read log, bytes and what the table still has (`standing`), and decide what to restore at and below `path`.

    `directory`: where the temporary file is made. The plan has to be closed. Raises the stores' errors; damage is an
    outcome.
    """
    plan = RestorePlan(Spill(directory), volume_id, path)
    tell = progress or (lambda _: None)
    try:
        await plan.read_log(log, tell)
        await plan.read_data(data, tell)
        if standing is not None:
            async for entries in standing:
                plan.add_standing(entries)
        # In a thread: whoever holds a lock has to renew it meanwhile.
        await anyio.to_thread.run_sync(plan.decide, sources.now_ms())
        await anyio.to_thread.run_sync(plan.make_a_tree)
    except BaseException:
        plan.close()
        raise
    return plan


class RestorePlan:
    """What is to be restored, in a temporary file."""

    def __init__(self, spill: Spill, volume_id: str, path: str) -> None:
        self.report = RestoreReport()
        self._spill = spill
        self._volume_id = volume_id
        self._path = path
        self._database = spill.database
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Remove the temporary file."""
        self._spill.__exit__(None, None, None)

    def entries(self) -> Iterator[list[Entry]]:
        """The entries to restore, some at a time: no list holds a directory and what is in it, which comes later."""
        rows = self._database.execute("SELECT depth, entry FROM claims ORDER BY depth, path")
        for _, level in groupby(rows, key=lambda row: row[0]):
            while some := list(islice(level, ROWS_AT_ONCE)):
                yield [_entry(text) for _, text in some]

    def made_parents(self) -> Iterator[list[Entry]]:
        """The directories that no log knows."""
        rows = self._database.execute("SELECT entry FROM claims WHERE rule = 'parent_made' ORDER BY depth, path")
        while some := rows.fetchmany(ROWS_AT_ONCE):
            yield [_entry(text) for (text,) in some]

    async def read_log(self, log: BlobStore, tell: Callable[[Progress], object]) -> None:
        """Keep what the log says."""
        records = []
        async for finding in LogReader(log).records():
            if isinstance(finding, DamagedLog):
                self.report.note(Outcome("log_damaged", finding.key, detail=str(finding.error)))
                continue
            self.report.log_records += 1
            records.append(finding)
            if len(records) == RECORDS_AT_ONCE:
                self._spill.add(records)
                records.clear()
                tell(Progress("restore", self.report.log_records, path="log"))
        self._spill.add(records)

    async def read_data(self, data: BlobStore, tell: Callable[[Progress], object]) -> None:
        """Keep which bytes exist."""
        seen = 0
        blobs: list[BlobInfo] = []
        async for blob in merge([data.list_all(digit) for digit in HEX], limit=len(HEX)):
            blobs.append(blob)
            if len(blobs) == RECORDS_AT_ONCE:
                seen += len(blobs)
                self._add_blobs(blobs)
                blobs.clear()
                tell(Progress("restore", seen, path="data"))
        self._add_blobs(blobs)

    def _add_blobs(self, blobs: Sequence[BlobInfo]) -> None:
        self._spill.many("INSERT OR REPLACE INTO blobs VALUES (?, ?)", [(blob.key, blob.size) for blob in blobs])

    def add_standing(self, entries: Sequence[Entry]) -> None:
        """Keep what the table has."""
        rows = [(entry.path, entry.id, entry.is_dir) for entry in entries]
        self._spill.many("INSERT OR REPLACE INTO standing VALUES (?, ?, ?)", rows)

    def decide(self, now_ms: int) -> None:
        """Decide each object by itself."""
        self._database.execute("CREATE INDEX by_object_standing ON standing (object)")
        claims: list[tuple[object, ...]] = []
        removed: list[tuple[str]] = []
        for records in self._spill.objects():
            object_id = records[0].operation.object_id
            decision = decide_restore(records, self._sizes(named_keys(records)), now_ms)
            if not self._is_wanted(decision.entry.path if decision.entry else decision.path):
                continue
            if self._one("SELECT 1 FROM standing WHERE object = ?", object_id):
                self._note(Decision("stands", None, path=decision.path), object_id)
                continue
            if decision.entry is None:
                self._note(decision, object_id)
                if decision.rule == "deleted" and any(_removes_directory(record.operation) for record in records):
                    removed.append((decision.path,))
            else:
                claims.append(_claim(object_id, decision, decision.entry))
            if len(claims) + len(removed) >= ROWS_AT_ONCE:
                self._keep(claims, removed)
        self._keep(claims, removed)
        self._database.executescript(_INDEXES)

    def make_a_tree(self) -> None:
        """Decide what the claims are together, and count what is left."""
        self._remove_below_removed()
        self._move_back_what_was_not_moved_wholly()
        self._yield_paths()
        self._refuse_occupied()
        self._make_parents()
        rows = self._database.execute("SELECT object, rule, entry, detail FROM claims")
        for object_id, rule, text, detail in rows:
            entry = _entry(text)
            self._count(entry)
            self.report.note(Outcome(rule, entry.path, object_id, detail))

    def _count(self, entry: Entry) -> None:
        report = self.report
        report.directories += entry.is_dir
        report.reservations += entry.is_reservation
        if entry.committed:
            report.files += 1
            report.bytes += entry.size

    def _sizes(self, keys: set[str]) -> dict[str, int]:
        found = ((key, self._one("SELECT size FROM blobs WHERE key = ?", key)) for key in keys)
        return {key: row[0] for key, row in found if row is not None}

    def _is_wanted(self, path: str) -> bool:
        return self._path in {ROOT, path} or path.startswith(self._path + "/")

    def _keep(self, claims: list[tuple[object, ...]], removed: list[tuple[str]]) -> None:
        self._spill.many(f"INSERT INTO claims VALUES ({', '.join('?' * 11)})", claims)  # noqa: S608 - question marks
        self._spill.many("INSERT OR REPLACE INTO removed VALUES (?)", removed)
        claims.clear()
        removed.clear()

    def _one(self, statement: str, *values: object) -> tuple[int, ...] | None:
        row: tuple[int, ...] | None = self._database.execute(statement, values).fetchone()
        return row

    def _remove_below_removed(self) -> None:
        """A directory is removed after everything in it: what was being removed below one is gone for certain."""
        rows = self._all("SELECT object, path FROM claims WHERE rule = 'delete_undone' ORDER BY depth")
        for object_id, path in rows:
            above = _native.ancestors(path)
            if any(self._is_removed(directory) for directory in above):
                self._drop(object_id, Decision("delete_done", None, path=path, detail="its directory was removed"))

    def _is_removed(self, directory: str) -> bool:
        gone = self._one("SELECT 1 FROM removed WHERE path = ?", directory)
        return gone is not None and self._one("SELECT 1 FROM claims WHERE path = ?", directory) is None

    def _move_back_what_was_not_moved_wholly(self) -> None:
        """Everything in a directory is moved, or none of it: what stays in it was never marked to go along."""
        moved = self._all(
            "SELECT came_from FROM claims WHERE rule = 'rename_done' AND isdir AND came_from <> path ORDER BY depth"
        )
        for (source,) in moved:
            low, high = source + "/", source + "0"
            left = self._one("SELECT 1 FROM claims WHERE path > ? AND path < ?", low, high)
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
        """What is not certain gives way to what is; what is left of two at a path is nobody's."""
        shared = "SELECT path FROM claims GROUP BY path HAVING count(*) > 1"
        for _ in range(3):
            for (path,) in self._all(shared):
                rows = self._all("SELECT object, rule, certain FROM claims WHERE path = ?", path)
                others = [row for row in rows if row[1] != "delete_undone"]
                for object_id, rule, certain in rows:
                    if rule == "delete_undone" and others:
                        detail = "its path was taken"
                        self._drop(object_id, Decision("delete_done", None, path=path, detail=detail))
                    elif not certain and rule != "rename_undone" and any(row[2] for row in others):
                        self._take_back(object_id, "yielded")
        for (path,) in self._all(shared):
            rows = self._all("SELECT object FROM claims WHERE path = ?", path)
            ids = ", ".join(sorted(object_id for (object_id,) in rows))
            for (object_id,) in rows:
                self._drop(object_id, Decision("path_conflict", None, path=path, detail=f"claimed by {ids}"))

    def _refuse_occupied(self) -> None:
        rows = self._all("SELECT claims.object, path FROM claims JOIN standing USING (path)")
        for object_id, path in rows:
            self._drop(object_id, Decision("occupied", None, path=path))

    def _make_parents(self) -> None:
        """Make the directories that are missing, or refuse what a file is above."""
        missing = (
            "SELECT parent, min(json_extract(entry, '$.ctime')) FROM claims AS child WHERE parent <> '/'"
            " AND NOT EXISTS (SELECT 1 FROM claims WHERE path = child.parent AND isdir)"
            " AND NOT EXISTS (SELECT 1 FROM standing WHERE path = child.parent AND isdir) GROUP BY parent"
        )
        while rows := self._all(missing):
            for parent, ctime in rows:
                if self._is_below_a_file(parent):
                    for object_id, path in self._all("SELECT object, path FROM claims WHERE parent = ?", parent):
                        self._drop(object_id, Decision("parent_is_file", None, path=path))
                    continue
                entry = self._new_directory(parent, int(ctime))
                decision = Decision("parent_made", entry, path=parent)
                self._keep([_claim(entry.id, decision, entry)], [])

    def _is_below_a_file(self, directory: str) -> bool:
        return any(
            self._one("SELECT 1 FROM claims WHERE path = ? AND NOT isdir", path)
            or self._one("SELECT 1 FROM standing WHERE path = ? AND NOT isdir", path)
            for path in [*_native.ancestors(directory), directory]
        )

    def _new_directory(self, path: str, ctime: int) -> Entry:
        """The same one whenever the same restore is run again, so that no second one comes to be at its path."""
        digest = hashlib.sha256(f"{self._volume_id}\n{path}".encode()).digest()
        identity, operation = (str(uuid.UUID(bytes=digest[start : start + 16], version=4)) for start in (0, 16))
        return Entry(path, True, identity, 1, ctime, ctime * 1000, operation=operation)

    def _take_back(self, object_id: str, rule: RuleName) -> None:
        """Put what was before in the place of what was taken as done."""
        ((path, before, detail),) = self._all("SELECT path, before, detail FROM claims WHERE object = ?", object_id)
        if before is None:
            self._drop(object_id, Decision(rule, None, path=path, detail=detail))
            return
        entry = _entry(before)
        self._database.execute("DELETE FROM claims WHERE object = ?", (object_id,))
        self._keep([_claim(object_id, Decision(rule, entry, detail=detail), entry)], [])

    def _drop(self, object_id: str, decision: Decision) -> None:
        self._database.execute("DELETE FROM claims WHERE object = ?", (object_id,))
        self._note(decision, object_id)

    def _note(self, decision: Decision, object_id: str) -> None:
        path = decision.entry.path if decision.entry else decision.path
        self.report.note(Outcome(decision.rule, path, object_id, decision.detail))

    def _all(self, statement: str, *values: object) -> list[tuple[str, ...]]:
        return self._database.execute(statement, values).fetchall()


def _claim(object_id: str, decision: Decision, entry: Entry) -> tuple[object, ...]:
    before = decision.before
    return (
        object_id,
        entry.path,
        _native.split(entry.path)[0],
        entry.path.count("/"),
        entry.is_dir,
        decision.rule,
        decision.is_certain,
        _text(entry),
        None if before is None else _text(before),
        None if before is None else before.path,
        decision.detail,
    )


def _removes_directory(operation: Operation) -> bool:
    return operation.after is None and operation.before is not None and operation.before.is_dir


def _text(entry: Entry) -> str:
    return json.dumps(entry_document(entry))


def _entry(text: str) -> Entry:
    return entry_from(json.loads(text), "restore")
