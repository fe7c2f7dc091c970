"""The tail of the log: objects written after a position.

Keys of the log are not in the order of time, so a position is the set of segment ids and checkpoint
keys. Entries need none, since those of one object are found by its id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

import anyio

from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.segment_ids import SegmentIds

__all__ = ["LogPosition", "LogTail", "position_of"]


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The contents of a log at the start of a read."""

    segments: SegmentIds = field(default_factory=SegmentIds)
    """The segments, those covered by a checkpoint included."""
    checkpoints: frozenset[str] = frozenset()
    """Keys of the manifests."""

    def document(self) -> dict[str, list[str]]:
        """The position as JSON."""
        return {"segments": list(self.segments), "checkpoints": sorted(self.checkpoints)}

    @classmethod
    def from_document(cls, document: Mapping[str, list[str]]) -> Self:
        """The position that `document` has returned. Raises KeyError, ValueError."""
        return cls(SegmentIds(document["segments"]), frozenset(document["checkpoints"]))


async def position_of(log: LogReader) -> LogPosition:
    """The current end of the log. Raises the store's errors."""
    checkpoints = await log.checkpoints.keys()
    segments = SegmentIds()
    async for segment in log.segment_ids():
        segments.add(segment)
    return LogPosition(segments, checkpoints)


class LogTail:
    """Log objects after a position. A segment of decided operations is read once, into a temporary
    file that `close` removes."""

    def __init__(self, log: LogReader, position: LogPosition) -> None:
        self._log = log
        self._known = SegmentIds(position.segments)
        self._checkpoints = position.checkpoints
        self._is_compacted = False
        self._sorter: ExternalSort | None = None
        self._undecided: list[LogRecord] = []
        self._begun = 0
        """Number of the last started read."""
        self._done = 0
        """Number of the last completed read."""
        self._turn = anyio.Lock()

    async def of(self, object_ids: Collection[str]) -> tuple[list[LogRecord], bool]:
        """The records of some objects in segments and checkpoints after the position, and whether
        the log was compacted since. If it was, earlier reads may be out of date (a tombstone that
        outweighed them may have been dropped), and all segments and checkpoints are read again.
        Unreadable objects are skipped. Raises the store's errors.

        To be called after the entries of these objects were read: compaction moves their records
        into checkpoints, which are listed last. Concurrent calls share a read that starts after
        each of them.
        """
        wanted = set(object_ids)
        needed = self._begun + 1
        async with self._turn:
            if self._done < needed:
                self._begun += 1
                await self._read()
                self._done = self._begun
            found = [each for each in self._undecided if each.operation.object_id in wanted]
            if self._sorter is not None:
                for object_id in sorted(wanted):
                    found += self._sorter.of(object_id)
            if self._is_compacted:
                kept = self._log.checkpoints.records(object_ids=wanted)
                found += [each async for each in kept if isinstance(each, LogRecord)]
            return found, self._is_compacted

    def close(self) -> None:
        """Remove the temporary file. Idempotent."""
        if self._sorter is not None:
            self._sorter.close()
            self._sorter = None

    async def _read(self) -> None:
        """Read new segments; all, if a checkpoint was written since."""
        while True:
            self._undecided = []
            parts = self._log.segments(without=self._known, without_covered=self._is_compacted)
            async for part in parts:
                if part.is_decided:
                    self._sorter = self._sorter or ExternalSort()
                    self._sorter.add(part.records)
                    self._known.add(part.segment)
                else:
                    self._undecided += part.records
            checkpoints = await self._log.checkpoints.keys()
            if checkpoints <= self._checkpoints:
                return
            self.close()
            self._known = SegmentIds()
            self._checkpoints |= checkpoints
            self._is_compacted = True
