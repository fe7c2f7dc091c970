"""External sort: log records ordered by object id in a temporary file, for logs larger than
memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby, islice
from typing import Final, TypeAlias

from s3k_async._core.spill_database import SpillDatabase
from s3k_async.oplog.entries import LogRecord, LogState, operation_from, operation_line

__all__ = ["ExternalSort", "SortedLine", "records_in"]

SortedLine: TypeAlias = tuple[str, LogState, str, bytes]
"""A record that is not decoded: object id, state, key of its log object, and line."""

_SCHEMA = (
    "CREATE TABLE records (object TEXT NOT NULL, state TEXT NOT NULL, key TEXT NOT NULL, line BLOB "
    "NOT NULL)"
)

_LINES: Final = "SELECT object, state, key, line FROM records"


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
        return _by_object(self._sorted())

    def objects_with(self, text: bytes) -> Iterator[list[LogRecord]]:
        """As `objects`, of those with a record whose line contains a text."""
        return _by_object(
            self._sorted("WHERE object IN (SELECT object FROM records WHERE instr(line, ?))", text)
        )

    def batches(self, size: int) -> Iterator[list[SortedLine]]:
        """The records in the order of the ids, in lists of about `size`, each of which has all
        records of its objects."""
        found: list[SortedLine] = []
        lines = self._sorted()
        while some := list(islice(lines, size)):
            found += some
            if found[0][0] != found[-1][0]:
                # The next lines may be of the last object, too.
                cut = next(at for at in count(-1, -1) if found[at - 1][0] != found[-1][0])
                yield found[:cut]
                del found[:cut]
        if found:
            yield found

    def of(self, object_id: str) -> list[LogRecord]:
        """The records of one object."""
        self._index()
        return records_in(self.database.execute(f"{_LINES} WHERE object = ?", (object_id,)))

    def _sorted(self, which: str = "", *values: bytes) -> Iterator[SortedLine]:
        self._index()
        return self.database.execute(f"{_LINES} {which} ORDER BY object", values)

    def _index(self) -> None:
        self.database.execute("CREATE INDEX IF NOT EXISTS by_object ON records (object)")


def _by_object(lines: Iterable[SortedLine]) -> Iterator[list[LogRecord]]:
    for _, some in groupby(lines, key=lambda line: line[0]):
        yield records_in(some)


def records_in(lines: Iterable[SortedLine]) -> list[LogRecord]:
    """The records in lines."""
    return [LogRecord(operation_from(line, key), state, key) for _, state, key, line in lines]


def _object_in(line: bytes) -> str:
    """The object id in the line of an operation, the third of its texts."""
    return line.split(b'"', 12)[11].decode("ascii")
