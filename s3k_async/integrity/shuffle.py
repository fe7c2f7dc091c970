"""The shuffle of the local runner: scanned facts, divided by object id into parts that fit into
memory.

Facts are lines of JSON. A small number is one part. More are divided, and written to files in a
directory once they are too large for memory, so that a volume of any size is processed part by
part, and an interrupted run can resume.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from s3k_async._core.file_modes import make_directories, open_private
from s3k_async._core.os_errors import TEMPORARY_ROOM, os_errors
from s3k_async._native import FactLines, PartLines
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.errors import InvalidArgumentError
from s3k_async.integrity.facts import CopyFacts, Finding, ItemFacts, LogObjectFacts, OpenSegment
from s3k_async.model import Deletion, Entry
from s3k_async.oplog.entries import LogRecord, Operation
from s3k_async.txn.txn_record import TransactionRecord

__all__ = [
    "HELD",
    "PARTS",
    "Child",
    "FactKind",
    "LonelyEntry",
    "Shuffle",
    "State",
    "facts_in",
    "from_line",
    "hash_of",
    "to_line",
]

PARTS: Final = 256
"""Parts of a volume with more facts than are one part."""
HELD: Final = 20_000
"""The most facts that are one part."""
BUFFERED: Final = 32 * 1024 * 1024
"""Bytes of all parts together that are held in memory before they are written to files."""

Child: TypeAlias = tuple[str, str, str, int]
"""An entry that needs a parent: the key of the parent, its own entry key and id, its time in ms."""
FactKind: TypeAlias = Literal[
    "entries",
    "records",
    "blobs",
    "directories",
    "children",
    "lonely",
    "found",
    "items",
    "log_objects",
    "jobs",
    "segments",
    "adopted",
    "trash",
    "named",
    "copies",
]
State: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LonelyEntry:
    """An entry whose parent was not found by the scan."""

    child: Child
    records: tuple[LogRecord, ...] = ()
    """In layout `tree` what the log says about the parent."""


_ENTRY: Final = (
    "path",
    "is_dir",
    "id",
    "version",
    "ctime",
    "mtime_ms",
    "size",
    "physical",
    "committed",
    "etag",
    "checksum",
    "attributes",
    "operation",
    "lease_ms",
    "pending",
)
_CHOSEN_ROOM: Final = (
    "free space there, or copy the directory to a disk with more space and resume there"
)
"""Remedy for a full disk with the directory of the caller."""
_OPERATION: Final = ("id", "kind", "object_id", "version", "time_ms")


def _entry_row(entry: Entry | None) -> list[Any] | None:
    if entry is None:
        return None
    row = [getattr(entry, name) for name in _ENTRY]
    return [*row, entry.directory] if entry.directory else row


def _entry_of(row: list[Any] | None) -> Entry | None:
    if row is None:
        return None
    entry = Entry(**dict(zip(_ENTRY, row, strict=False)))
    return replace(entry, directory=row[-1]) if len(row) > len(_ENTRY) else entry


def _record_row(record: LogRecord) -> list[Any]:
    operation = record.operation
    row = [record.state, record.key, *(getattr(operation, name) for name in _OPERATION)]
    row += [_entry_row(operation.before), _entry_row(operation.after)]
    return row if operation.trash is None else [*row, astuple(operation.trash)]


def _record_of(row: list[Any]) -> LogRecord:
    operation = Operation(
        row[2],
        row[3],
        row[4],
        row[5],
        row[6],
        _entry_of(row[7]),
        _entry_of(row[8]),
        Deletion(*row[9]) if len(row) > 9 else None,
    )
    return LogRecord(operation, row[0], row[1])


_CODECS: Final[Mapping[FactKind, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "entries": (_entry_row, _entry_of),
    "records": (_record_row, _record_of),
    "blobs": (
        lambda blob: [blob.key, blob.size, blob.etag, blob.mtime_ms],
        lambda row: BlobInfo(*row),
    ),
    "directories": (
        lambda fact: fact[0] if fact[0] == fact[1] else list(fact),
        lambda row: (row, row) if isinstance(row, str) else tuple(row),
    ),
    "adopted": (lambda key: key, lambda row: row),
    "named": (lambda key: key, lambda row: row),
    "trash": (
        lambda fact: [fact[0], *astuple(fact[1])],
        lambda row: (row[0], Deletion(*row[1:])),
    ),
    "copies": (lambda copy: list(astuple(copy)), lambda row: CopyFacts(*row)),
    "children": (list, tuple),
    "lonely": (
        lambda lonely: [*lonely.child, *map(_record_row, lonely.records)],
        lambda row: LonelyEntry(tuple(row[:4]), tuple(map(_record_of, row[4:]))),
    ),
    "found": (lambda finding: list(astuple(finding)), lambda row: Finding(*row)),
    "items": (asdict, lambda row: ItemFacts(**row)),
    "log_objects": (asdict, lambda row: LogObjectFacts(**row)),
    "jobs": (asdict, lambda row: TransactionRecord(**row)),
    "segments": (asdict, lambda row: OpenSegment(**row)),
}
"""How facts of a kind are written and read."""


def to_line(kind: FactKind, fact: object) -> str:
    """A fact of a kind as a line of JSON, ASCII only, without its end."""
    return json.dumps(_CODECS[kind][0](fact), separators=(",", ":"))


def from_line(kind: FactKind, line: str | bytes) -> Any:
    """The fact in a line."""
    return _CODECS[kind][1](json.loads(line))


def facts_in(kind: FactKind, lines: bytes) -> Iterator[Any]:
    """The facts in lines, each ended by a newline."""
    for line in lines.splitlines():
        yield from_line(kind, line)


def _ended(line: str) -> bytes:
    return line.encode("ascii") + b"\n"


def hash_of(key: str) -> int:
    """A hash below 2^32, equal in all processes, by which facts are partitioned."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass"))


class Shuffle:
    """Facts by kind, each in the part that its key belongs to.

    `directory`: where the files are kept; without one, a temporary directory is created in `parent`
    when it is needed. Writing raises NoSpaceError (the disk is full), PermissionDeniedError and
    ServiceError.
    """

    def __init__(
        self, directory: str | None = None, *, held: int = HELD, parent: str | None = None
    ) -> None:
        self._directory = directory
        self._parent = parent
        self._is_kept = directory is not None
        self._held = held
        self._count = 0
        self._is_divided = False
        self._lines: dict[FactKind, PartLines] = {}
        """The facts that are not in files."""
        if directory is not None:
            with self._writing(directory):
                make_directories(directory)
            self._is_divided = True

    @property
    def count(self) -> int:
        """The number of parts: one as long as there are few facts."""
        return PARTS if self._is_divided else 1

    def add(self, kind: FactKind, key: str, fact: object) -> None:
        """Add a fact to the part of its key."""
        self._part_lines(kind).add_to_part(hash_of(key) % PARTS, _ended(to_line(kind, fact)))
        self._added(1)

    def add_lines(self, kind: FactKind, lines: FactLines) -> None:
        """Add facts to the parts of their keys."""
        self._part_lines(kind).add(lines)
        self._added(len(lines))

    def add_to_part(self, kind: FactKind, text: bytes, count: int) -> None:
        """Add facts of a part that is in memory as a whole: `count` lines, each ended by a
        newline."""
        self._part_lines(kind).add_to_part(0, text)
        self._added(count)

    def read(self, kind: FactKind, number: int) -> Iterator[Any]:
        """The facts of a part, in no particular order."""
        if self._is_divided and os.path.exists(path := self._path(kind, number)):
            with open(path, "rb") as file:
                for line in file:
                    yield from_line(kind, line)
        yield from facts_in(kind, self._text(kind, number))

    def lines(self, kind: FactKind, number: int) -> list[bytes]:
        """The facts of a part as lines, each ended by a newline, in no particular order."""
        found = []
        if self._is_divided and os.path.exists(path := self._path(kind, number)):
            with open(path, "rb") as file:
                found.append(file.read())
        return [*found, self._text(kind, number)]

    def keep(self, kind: FactKind, number: int, facts: Iterable[object]) -> None:
        """Save facts of one part for a later run, replacing those saved before. Without a directory
        of the caller nothing is saved.
        """
        if not self._is_kept:
            return
        self._forget(kind, number)
        for fact in facts:
            self._part_lines(kind).add_to_part(number, _ended(to_line(kind, fact)))
        self._flush(kind, number)

    def flush(self) -> None:
        """Write the facts in memory to the files, unless they are one part."""
        if self._is_divided:
            for kind in self._lines:
                for number in range(PARTS):
                    self._flush(kind, number)

    def forget(self, kinds: tuple[FactKind, ...]) -> None:
        """Drop whole kinds before they are collected again."""
        for kind in kinds:
            self._lines.pop(kind, None)
            for number in range(PARTS if self._is_divided else 0):
                self._forget(kind, number)

    def load_state(self) -> State:
        """The state saved by `save_state`; empty at the beginning. Raises InvalidArgumentError if
        it cannot be read."""
        if not self._is_kept or not os.path.exists(self._path("state", None)):
            return {}
        try:
            with open(self._path("state", None), encoding="ascii") as file:
                return cast("State", json.load(file))
        except ValueError as error:
            raise InvalidArgumentError(
                "not the directory of an interrupted fsck; give another directory",
                path=self._directory,
            ) from error

    def save_state(self, state: State) -> None:
        """Save the progress of the run if the directory is kept; all facts are written to its files
        first."""
        if not self._is_kept:
            return
        self.flush()
        temporary = self._path("state", None) + ".new"
        with self._writing(temporary):
            with open(temporary, "w", encoding="ascii", opener=open_private) as file:
                json.dump(state, file)
            os.replace(temporary, self._path("state", None))

    def end(self, state: State) -> None:
        """Remove the files of a run that has ended from a directory of the caller, except for its
        state: the next run begins again."""
        if self._is_kept:
            self.forget(get_args(FactKind))
            self.save_state(state)

    def close(self) -> None:
        """Remove the files, unless the directory is the caller's."""
        self._lines.clear()
        if self._directory is not None and not self._is_kept:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _part_lines(self, kind: FactKind) -> PartLines:
        lines = self._lines.get(kind)
        if lines is None:
            lines = self._lines[kind] = PartLines(PARTS)
        return lines

    def _added(self, count: int) -> None:
        """Divide the facts once they are too many for one part, and write them to files once they
        are too large for memory."""
        self._count += count
        if not self._is_divided and self._count > self._held:
            with self._writing(self._parent or "the directory of temporary files"):
                self._directory = tempfile.mkdtemp(prefix="s3k-fsck-", dir=self._parent)
            self._is_divided = True
        if self._is_divided and sum(map(len, self._lines.values())) >= BUFFERED:
            self.flush()

    def _text(self, kind: FactKind, number: int) -> bytes:
        """The lines of a part that are in memory, where they remain."""
        lines = self._lines.get(kind)
        if lines is None:
            return b""
        if not self._is_divided:
            return lines.text()
        text = lines.take(number)
        lines.add_to_part(number, text)
        return text

    def _flush(self, kind: FactKind, number: int) -> None:
        lines = self._lines[kind].take(number) if kind in self._lines else b""
        if lines:
            path = self._path(kind, number)
            with self._writing(path), open(path, "ab", opener=open_private) as file:
                file.write(lines)

    def _writing(self, path: str) -> AbstractContextManager[None]:
        """Map errors of writing a file, with the remedy for the disk it is on."""
        return os_errors(path, _CHOSEN_ROOM if self._is_kept else TEMPORARY_ROOM)

    def _forget(self, kind: FactKind, number: int) -> None:
        if kind in self._lines:
            self._lines[kind].take(number)
        if os.path.exists(self._path(kind, number)):
            os.remove(self._path(kind, number))

    def _path(self, kind: str, number: int | None) -> str:
        assert self._directory is not None
        name = kind if number is None else f"{kind}-{number:03d}"
        return os.path.join(self._directory, name + ".json")
