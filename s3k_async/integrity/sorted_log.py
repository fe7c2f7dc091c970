"""The whole log, sorted by object id in a temporary file.

Committed operations that the native core finds to be in the usual form are sorted as the lines that
the log has, and decoded when their object is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from s3k_async import _native
from s3k_async.errors import LogFormatError
from s3k_async.model import Progress
from s3k_async.oplog.damage import DamagedLog, Finding
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.record_lines import RecordLines
from s3k_async.table.keys import KeyScheme

__all__ = ["SortedLog", "unreadable"]

RECORDS_AT_ONCE: Final = 2000


class SortedLog:
    """The records of a log by object id. Memory is bounded; the file has the size of the log."""

    def __init__(self, directory: str | None = None) -> None:
        """`directory`: where the temporary file is made; None: the system's default."""
        self.sorter = ExternalSort(directory)
        self.count = 0
        """Number of records."""
        self.damaged: list[DamagedLog] = []

    def close(self) -> None:
        """Remove the temporary file."""
        self.sorter.close()

    async def read(
        self,
        log: LogReader,
        keys: KeyScheme,
        tell: Callable[[Progress], object] = lambda _: None,
        *,
        operation: str,
    ) -> None:
        """Read a log. `operation`: what the progress is reported for. Damage is collected. Raises
        the store's errors."""
        records: list[LogRecord] = []
        told = 0
        async for found in log.batches():
            if not isinstance(found, RecordLines):
                self._note([found], records)
            elif _is_plain(found, keys):
                self.sorter.add_lines(found.lines, found.key)
                self.count += len(found.lines)
            else:
                self._note(await found.decode(), records)
            if len(records) >= RECORDS_AT_ONCE:
                self.sorter.add(records)
                records.clear()
            if self.count - told >= RECORDS_AT_ONCE:
                told = self.count
                tell(Progress(operation, told, phase="log", unit="operations"))
        self.sorter.add(records)

    def require_readable(self) -> None:
        """Raise LogFormatError if a part of the log was unreadable, which may concern any file."""
        for damage in self.damaged:
            raise unreadable(damage)

    def objects(self) -> Iterator[list[LogRecord]]:
        """The records of each object, in the order of the ids."""
        return self.sorter.objects()

    def objects_with(self, path_text: str) -> Iterator[list[LogRecord]]:
        """The records of each object one of whose records contains a part of a path."""
        return self._with(json.dumps(path_text)[1:-1].encode("ascii"))

    def directories(self) -> Iterator[list[LogRecord]]:
        """The records of each directory."""
        return self._with(b'"is_dir":true')

    def _with(self, text: bytes) -> Iterator[list[LogRecord]]:
        return self.sorter.objects_with(text)

    def _note(self, findings: Sequence[Finding], records: list[LogRecord]) -> None:
        """Add the records among findings to a list, and count them; add damage to `damaged`."""
        for finding in findings:
            if isinstance(finding, DamagedLog):
                self.damaged.append(finding)
            else:
                self.count += 1
                records.append(finding)


def unreadable(damage: DamagedLog) -> LogFormatError:
    """The error for an unreadable part of the log."""
    return LogFormatError(
        "a part of the log cannot be read, and may concern any file: s3k fsck repair moves it to "
        f"quarantine ({damage.error})",
        path=damage.key,
    )


def _is_plain(found: RecordLines, keys: KeyScheme) -> bool:
    """Whether every operation is exactly as `operation_line` writes it, and valid in the volume."""
    facts = _native.record_facts(found.lines, found.key, keys.authority, keys.suffix_count)
    return facts is not None
