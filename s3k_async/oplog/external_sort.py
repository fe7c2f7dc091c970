"""External sort: log records ordered by object id in a temporary file, for logs larger than
memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import cast

from s3k_async._core.spill_database import SpillDatabase
from s3k_async.oplog.entries import LogRecord, LogState, operation_from, operation_line

__all__ = ["ExternalSort"]

_SCHEMA = (
    "CREATE TABLE records (object TEXT NOT NULL, state TEXT NOT NULL, key TEXT NOT NULL, line BLOB "
    "NOT NULL)"
)


class ExternalSort(SpillDatabase):
    """Log records by object id. `directory`: parent of the temporary directory; None: the system's
    default.

        with ExternalSort() as sorter:
            sorter.add(records)
            for records in sorter.objects():
                ...
    """

    def __init__(self, directory: str | None = None) -> None:
        super().__init__(_SCHEMA, directory)

    def add(self, records: Iterable[LogRecord]) -> None:
        """Add records."""
        rows = [
            (
                each.operation.object_id,
                each.state,
                each.key,
                operation_line(each.operation, each.key),
            )
            for each in records
        ]
        self.many("INSERT INTO records VALUES (?, ?, ?, ?)", rows)

    def add_lines(self, lines: Sequence[bytes], key: str) -> None:
        """Add committed operations of one log object, exactly as `operation_line` writes them, with
        ids that have no escapes."""
        rows = [(_object_in(line), "committed", key, line) for line in lines]
        self.many("INSERT INTO records VALUES (?, ?, ?, ?)", rows)

    def objects(self) -> Iterator[list[LogRecord]]:
        """The records of each object, in the order of the ids."""
        return self._objects("")

    def objects_with(self, text: bytes) -> Iterator[list[LogRecord]]:
        """As `objects`, of those with a record whose line contains a text."""
        return self._objects(
            "WHERE object IN (SELECT object FROM records WHERE instr(line, ?))", text
        )

    def _objects(self, which: str, *values: bytes) -> Iterator[list[LogRecord]]:
        self.database.execute("CREATE INDEX IF NOT EXISTS by_object ON records (object)")
        rows = self.database.execute(
            f"SELECT object, state, key, line FROM records {which} ORDER BY object",  # noqa: S608
            values,
        )
        for _, some in groupby(rows, key=lambda row: row[0]):
            yield [
                LogRecord(operation_from(line, key), cast("LogState", state), key)
                for _, state, key, line in some
            ]

    def of(self, object_id: str) -> list[LogRecord]:
        """The records of one object."""
        self.database.execute("CREATE INDEX IF NOT EXISTS by_object ON records (object)")
        rows = self.database.execute(
            "SELECT state, key, line FROM records WHERE object = ?", (object_id,)
        )
        return [
            LogRecord(operation_from(line, key), cast("LogState", state), key)
            for state, key, line in rows
        ]


def _object_in(line: bytes) -> str:
    """The object id in the line of an operation, the third of its texts."""
    return line.split(b'"', 12)[11].decode("ascii")
