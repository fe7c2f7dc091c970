"""The claims of objects to places in the restored tree: the part of a plan that does not depend on
the layout of the volume.

The rules have decided each object by itself (`restore_rules`). Here certain states win over assumed
ones, and no two objects share a place. A place is an entry key, in layout `path` the path. The work
is done in a temporary file, so that memory is bounded.

After a distributed decision only the claims that can affect others are given to the plan, and the
others are summarised: see `TreePlan.summarise`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import count, groupby, islice
from typing import ClassVar, Final, TypeAlias

from s3k_async.backends.ports.items import Value
from s3k_async.integrity.restore_report import UNTOLD, RestoreOutcome, RestoreReport
from s3k_async.integrity.restore_rules import RestoreDecision, RuleName
from s3k_async.model import Deletion, Entry
from s3k_async.oplog.entries import deletion_document, deletion_from, entry_document, entry_from
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.table.codec import to_item
from s3k_async.table.keys import KeyScheme

__all__ = [
    "ROWS_AT_ONCE",
    "ClaimRow",
    "TreePlan",
    "deletions_line",
    "deletions_of",
    "entry_line",
    "entry_of",
    "is_plain",
]

ROWS_AT_ONCE: Final = 1000
ClaimRow: TypeAlias = tuple[str, str, str, int | None, bool, int | None, int, str, int]
"""A claim of the rule "committed", as of `_native.committed_claims`: object id, entry key,
directory key, depth in layout `path`, whether it is a directory, bytes of a file, ctime, the entry
as of `entry_line`, and its version."""
_SCHEMA: Final = """
CREATE TABLE claims (
    object TEXT PRIMARY KEY, place TEXT NOT NULL, parent TEXT NOT NULL, depth INTEGER,
    isdir INTEGER NOT NULL, bytes INTEGER, ctime INTEGER NOT NULL, entry TEXT NOT NULL,
    newest INTEGER NOT NULL, rule TEXT NOT NULL, certain INTEGER NOT NULL, detail TEXT NOT NULL,
    before TEXT, came_from TEXT, after TEXT, trash TEXT
) WITHOUT ROWID;
CREATE TABLE removed (directory TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE existing (
    place TEXT PRIMARY KEY, object TEXT NOT NULL, isdir INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE files (parent TEXT PRIMARY KEY, ctime INTEGER) WITHOUT ROWID;
CREATE TABLE refused (parent TEXT PRIMARY KEY, detail TEXT NOT NULL) WITHOUT ROWID;
"""
_INDEXES: Final = """
CREATE INDEX IF NOT EXISTS by_place ON claims (place);
CREATE INDEX IF NOT EXISTS by_parent ON claims (parent);
"""
_CLAIM: Final = f"INSERT INTO claims VALUES ({', '.join('?' * 16)})"  # noqa: S608 - question marks
_COMMITTED: Final = """
INSERT INTO claims (
    object, place, parent, depth, isdir, bytes, ctime, entry, newest, rule, certain, detail
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'committed', 1, '')
"""
_HALF: Final = 1 << 32


class TreePlan(ABC):
    """The claims, in a temporary file that may hold other tables as well."""

    names: ClassVar[tuple[str, ...]]
    """What the plan may know an object by that it was not given, after a distributed decision:
    `place`, `object_id`, or the `name` in its directory."""

    def __init__(self, sorter: ExternalSort, volume_id: str, path: str) -> None:
        """`path`: entries at and below it are restored."""
        self.report = RestoreReport()
        self.path = path
        self._sorter = sorter
        self._volume_id = volume_id
        self._database = sorter.database
        self._now_ms = 0
        self._database.executescript(_SCHEMA)

    @property
    @abstractmethod
    def within(self) -> str:
        """The path of the objects that have to be decided: those at and below it."""

    @abstractmethod
    def is_current(self, entry_key: str) -> bool:
        """As `KeyScheme.is_current`."""

    # Input

    def claim(self, decisions: Iterable[tuple[str, RestoreDecision]]) -> None:
        """Add the decisions with an entry, by object id."""
        rows = [
            self._row(object_id, decision, decision.entry)
            for object_id, decision in decisions
            if decision.entry
        ]
        self._sorter.many(_CLAIM, rows)

    def claim_committed(self, rows: list[ClaimRow]) -> None:
        """Add objects that are restored as the log has them, of the rule "committed"."""
        self._sorter.many(_COMMITTED, rows)

    @abstractmethod
    def remove(self, directories: Iterable[tuple[str, str]]) -> None:
        """Add directories that are certainly removed: object id and path."""

    def add_existing(self, entries: Iterable[tuple[str, str, bool]]) -> None:
        """Add existing entries of the table: entry key, object id, and whether it is a
        directory."""
        self._sorter.many("INSERT OR REPLACE INTO existing VALUES (?, ?, ?)", list(entries))

    @abstractmethod
    def add_removed(self, object_ids: Iterable[str]) -> None:
        """Add directories whose removal the table shows, by their removal markers."""

    @abstractmethod
    def close(self) -> None:
        """Remove temporary files other than that of the claims. Idempotent."""

    # After a distributed decision

    @staticmethod
    @abstractmethod
    def leaves_out(state: Entry, path: str) -> bool:
        """Whether an object with this state, which is certain, can be left out, unless it is looked
        for. `path`: entries at and below it are restored."""

    @staticmethod
    @abstractmethod
    def kept_names(path: str) -> frozenset[str]:
        """The names of files that cannot be left out; `path` as of `leaves_out`."""

    @staticmethod
    @abstractmethod
    def looks_above(directory_keys: AbstractSet[str]) -> set[str]:
        """What the plan looks for because of plain claims in these directories."""

    @staticmethod
    @abstractmethod
    def looks_for(decision: RestoreDecision) -> set[str]:
        """What the plan looks for because of a claim: values of `names`."""

    def summarise(self, parents: Iterable[tuple[str, int | None]]) -> None:
        """Add files that are not claimed one by one, by directory key: the earliest ctime of those
        whose place is free in the table.

        A file can be left out of the claims if it is plain (`is_plain`), `leaves_out` permits it,
        its place is that of no other claim, and it is not looked for. The caller drops it if its
        place is occupied, or its directory among `refused`.
        """
        self._sorter.many("INSERT OR REPLACE INTO files VALUES (?, ?)", list(parents))

    def refused(self) -> Iterator[list[tuple[str, str]]]:
        """Directories of summarised files that cannot be created, with the reasons."""
        rows = self._database.execute("SELECT parent, detail FROM refused")
        while some := rows.fetchmany(ROWS_AT_ONCE):
            yield some

    @abstractmethod
    def directories(self) -> Iterator[tuple[str, str | None]] | None:
        """The directory keys in the scope of the restore, each with the path of the directory if it
        is in the tree; None if entries outside of the scope were not decided, and all have their
        paths."""

    # What comes out

    def entries(self) -> Iterator[list[Entry]]:
        """The entries to restore, in lists: a directory comes in an earlier list than its
        children."""
        rows = self._database.execute("SELECT depth, entry FROM claims ORDER BY depth, place")
        for _, level in groupby(rows, key=lambda row: row[0]):
            while some := list(islice(level, ROWS_AT_ONCE)):
                yield [self._shown(entry_of(text)) for _, text in some]

    def made_parents(self) -> Iterator[list[Entry]]:
        """The created directories, which are in no log."""
        rows = self._database.execute(
            "SELECT entry FROM claims WHERE rule = 'parent_made' ORDER BY depth, place"
        )
        while some := rows.fetchmany(ROWS_AT_ONCE):
            yield [self._shown(entry_of(text)) for (text,) in some]

    def item(self, entry: Entry, keys: KeyScheme) -> Mapping[str, Value]:
        """The item of an entry to restore."""
        return to_item(entry, keys)

    def is_present(self, object_id: str) -> bool:
        """Whether the table has an entry of the object."""
        return self._one("SELECT 1 FROM existing WHERE object = ?", object_id) is not None

    def present(self, object_ids: str) -> set[str]:
        """Those among the object ids, a JSON array, of which the table has an entry."""
        rows = self._all(
            "SELECT object FROM existing WHERE object IN (SELECT value FROM json_each(?))",
            object_ids,
        )
        return {object_id for (object_id,) in rows}

    def index_existing(self) -> None:
        """Create the index for `is_present` and `present`, after all existing entries were
        added."""
        self._database.execute("CREATE INDEX IF NOT EXISTS by_object_existing ON existing (object)")

    def make_a_tree(self, now_ms: int) -> None:
        """Resolve conflicts between the claims, and count the result. `now_ms`: the time of the
        restore."""
        self._now_ms = now_ms
        self._database.executescript(_INDEXES)
        self._resolve()
        self._count()

    def note(self, decision: RestoreDecision, object_id: str) -> None:
        """Count the outcome for an object that is not restored."""
        path = decision.entry.path if decision.entry else decision.path
        self.report.note(RestoreOutcome(decision.rule, path, object_id, decision.detail))

    # How

    @abstractmethod
    def _resolve(self) -> None:
        """Resolve conflicts between the claims."""

    @abstractmethod
    def _place(self, entry: Entry) -> tuple[str, str, int | None]:
        """The place of an entry, the directory key in it, and its depth if that is known."""

    def _shown(self, entry: Entry) -> Entry:
        """A restored entry with its path."""
        return entry

    def _count(self) -> None:
        """Add the claims to the report."""
        totals: tuple[int, ...] = self._database.execute(
            # In halves, since a sum has 64 bits, too.
            "SELECT count(*), total(isdir), count(bytes),"
            " ifnull(sum(bytes / :half), 0), ifnull(sum(bytes % :half), 0) FROM claims",
            {"half": _HALF},
        ).fetchone()
        count, directories, files, high, low = map(int, totals)
        self.report.files += files
        self.report.directories += directories
        self.report.reservations += count - directories - files
        self.report.bytes += high * _HALF + low
        untold = (json.dumps(sorted(UNTOLD)),)
        for rule, number in self._database.execute(
            "SELECT rule, count(*) FROM claims"
            " WHERE rule IN (SELECT value FROM json_each(?)) GROUP BY rule",
            untold,
        ):
            self.report.counts[rule] += number
        rows = self._database.execute(
            "SELECT object, rule, entry, detail FROM claims"
            " WHERE rule NOT IN (SELECT value FROM json_each(?))",
            untold,
        )
        for object_id, rule, text, detail in rows:
            path = self._shown(entry_of(text)).path
            self.report.note(RestoreOutcome(rule, path, object_id, detail))

    def _row(self, object_id: str, decision: RestoreDecision, entry: Entry) -> tuple[object, ...]:
        before, after = decision.before, decision.after
        place, parent, depth = self._place(entry)
        return (
            object_id,
            place,
            parent,
            depth,
            entry.is_dir,
            entry.size if entry.committed else None,
            entry.ctime,
            entry_line(entry),
            max(decision.newest, entry.version),
            decision.rule,
            decision.is_certain,
            decision.detail,
            None if before is None else entry_line(before),
            None if before is None else self._place(before)[0],
            None if after is None else entry_line(after),
            deletions_line(decision.deletions),
        )

    def _one(self, statement: str, *values: object) -> tuple[int, ...] | None:
        row: tuple[int, ...] | None = self._database.execute(statement, values).fetchone()
        return row

    def _yield_places(self) -> None:
        """Certain states win over assumed ones; if several remain at a place, none is restored."""
        shared = "SELECT place FROM claims GROUP BY place HAVING count(*) > 1"
        for _ in range(3):
            for (place,) in self._all(shared):
                rows = self._all("SELECT object, rule, certain FROM claims WHERE place = ?", place)
                others = [row for row in rows if row[1] != "delete_undone"]
                is_taken = any(row[2] for row in others)
                for object_id, rule, certain in rows:
                    if rule == "delete_undone" and others:
                        self._finish_removal(object_id, "its path was taken", certain=is_taken)
                    elif not certain and rule != "rename_undone" and is_taken:
                        self._take_back(object_id, "yielded")
        for (place,) in self._all(shared):
            rows = self._all("SELECT object FROM claims WHERE place = ?", place)
            ids = ", ".join(sorted(object_id for (object_id,) in rows))
            for (object_id,) in rows:
                self._drop(object_id, "path_conflict", f"claimed by {ids}")

    def _refuse_occupied(self) -> None:
        rows = self._all("SELECT claims.object FROM claims JOIN existing USING (place)")
        for (object_id,) in rows:
            self._drop(object_id, "occupied")

    def _new_directory(self, path: str, ctime: int) -> Entry:
        """A directory with a deterministic id, so that a repeated restore does not create a second
        one at its path. An id that an earlier restore gave a directory, which has been moved since,
        is not used again."""
        identity, operation = self._ids(path)
        for number in count(1):
            if not self._is_used(identity):
                break
            identity, operation = self._ids(f"{path}\n{number}")
        return Entry(path, True, identity, 1, ctime, ctime * 1000, operation=operation)

    def _is_used(self, object_id: str) -> bool:
        """Whether an object with that id is restored, or in the table."""
        return self._one(
            "SELECT 1 FROM claims WHERE object = ?", object_id
        ) is not None or self.is_present(object_id)

    def _ids(self, name: str) -> list[str]:
        """Two ids that this volume has for a name."""
        digest = hashlib.sha256(f"{self._volume_id}\n{name}".encode()).digest()
        return [str(uuid.UUID(bytes=digest[start : start + 16], version=4)) for start in (0, 16)]

    def _finish_removal(self, object_id: str, detail: str, *, certain: bool = True) -> None:
        """Decide that a removal that was assumed not to have happened did: the object is dropped,
        or is in the trash. Unless that is certain, it counts as deleted now: it stays for the
        whole retention."""
        (after, trash, newest) = self._all(
            "SELECT after, trash, newest FROM claims WHERE object = ?", object_id
        )[0]
        if after is None:
            self._drop(object_id, "delete_done", detail)
        else:
            if not certain:
                trash = self._deleted_now(json.loads(trash), entry_of(after).version)
            self._replace(object_id, "delete_done", after, detail, trash, int(newest))

    def _deleted_now(self, deletions: Mapping[str, object], version: int) -> str:
        """The attributes of a directory in the trash, deleted now instead of earlier."""
        deletion = deletion_from(deletions[str(version)], "restore")
        now_ms = max(deletion.when_ms, self._now_ms)
        return json.dumps({version: deletion_document(replace(deletion, when_ms=now_ms))})

    def _take_back(self, object_id: str, rule: RuleName, detail: str = "") -> None:
        """Replace an assumed state by the state before it."""
        ((before, known, trash, newest),) = self._all(
            "SELECT before, detail, trash, newest FROM claims WHERE object = ?", object_id
        )
        if before is None:
            self._drop(object_id, rule, detail or known)
        else:
            self._replace(object_id, rule, before, detail or known, trash, int(newest))

    def _refuse(self, directory: str, detail: str) -> None:
        """Refuse the summarised files of a directory."""
        if self._one("SELECT 1 FROM files WHERE parent = ?", directory):
            self._database.execute("DELETE FROM files WHERE parent = ?", (directory,))
            self._database.execute("INSERT INTO refused VALUES (?, ?)", (directory, detail))

    def _replace(
        self,
        object_id: str,
        rule: RuleName,
        line: str,
        detail: str,
        trash: str | None,
        newest: int,
    ) -> None:
        self._database.execute("DELETE FROM claims WHERE object = ?", (object_id,))
        decision = RestoreDecision(rule, entry_of(line), detail=detail, newest=newest)
        self.claim([(object_id, decision)])
        self._database.execute("UPDATE claims SET trash = ? WHERE object = ?", (trash, object_id))

    def _drop(self, object_id: str, rule: RuleName, detail: str = "") -> None:
        """Remove a claim, and count its outcome."""
        ((text,),) = self._all("SELECT entry FROM claims WHERE object = ?", object_id)
        self._database.execute("DELETE FROM claims WHERE object = ?", (object_id,))
        entry = entry_of(text)
        self.note(RestoreDecision(rule, None, path=entry.path, detail=detail), object_id)

    def _all(self, statement: str, *values: object) -> list[tuple[str, ...]]:
        return self._database.execute(statement, values).fetchall()


def entry_line(entry: Entry) -> str:
    """An entry as a line of JSON, as the log has it."""
    return json.dumps(entry_document(entry), separators=(",", ":"))


def entry_of(line: str | bytes) -> Entry:
    """The entry in a line."""
    return entry_from(json.loads(line), "restore")


def deletions_line(deletions: Mapping[int, Deletion]) -> str | None:
    """The attributes of states in the trash, by version, as a line of JSON; None for none."""
    found = {version: deletion_document(each) for version, each in deletions.items()}
    return json.dumps(found) if found else None


def deletions_of(line: str | None) -> dict[int, Deletion]:
    """The attributes in a line."""
    found = json.loads(line) if line else {}
    return {int(version): deletion_from(each, "restore") for version, each in found.items()}


def is_plain(decision: RestoreDecision) -> bool:
    """Whether the claim is certain, and not a directory."""
    return decision.is_certain and decision.entry is not None and not decision.entry.is_dir
