"""The states that an object had according to the log: each with the time at which it began, and the
operation that ended it.

An operation of the log has the state before and after, so that a compacted log, which keeps the
last operation on each object, still knows two states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from s3k_async.model import Entry, Operation, OperationKind
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.log_reader import latest, order_of_effect

__all__ = ["EntryState", "ObjectHistory", "history_of"]


@dataclass(frozen=True, slots=True)
class EntryState:
    """One version of an entry, of which the log knows that it existed."""

    entry: Entry
    began: Operation | None
    """The operation that led to it; None if compaction has removed it."""
    ended: Operation | None
    """The operation that followed; None for the last state."""

    @property
    def since_ms(self) -> int:
        """When it began, epoch milliseconds; without its operation, the modification time of a
        file, or its creation time if that is later, and the creation time of a directory."""
        if self.began is not None:
            return self.began.time_ms
        created_ms = self.entry.ctime * 1000
        return created_ms if self.entry.is_dir else max(created_ms, self.entry.mtime_ms)

    @property
    def until_ms(self) -> int | None:
        """When it ended, epoch milliseconds; None for the last state."""
        return None if self.ended is None else self.ended.time_ms

    @property
    def end(self) -> OperationKind | Literal[""]:
        """The kind of the operation that ended it; empty for none."""
        return "" if self.ended is None else self.ended.kind

    def was_at(self, time_ms: int) -> bool:
        """Whether the object was in this state at a time."""
        return self.since_ms <= time_ms and (self.ended is None or time_ms < self.ended.time_ms)


@dataclass(frozen=True, slots=True)
class ObjectHistory:
    """The states of one object, oldest first."""

    object_id: str
    states: tuple[EntryState, ...]
    is_deleted: bool
    """Whether the last committed operation removed the object."""
    pending: tuple[Operation, ...]
    """Later operations of unknown outcome."""


def history_of(records: Iterable[LogRecord]) -> ObjectHistory:
    """The history of one object, from all of its records in any order. Operations that were not
    committed are no part of it; those that may still take effect are `pending`. Of several with one
    version, the last one in `order_of_effect` counts."""
    found = list(records)
    object_id = found[0].operation.object_id
    truth = latest(found)[object_id]
    operations = (each.operation for each in found if each.state == "committed")
    committed = {each.version: each for each in sorted(operations, key=order_of_effect)}
    entries: dict[int, Entry] = {}
    for operation in committed.values():
        if operation.before is not None:
            entries.setdefault(operation.before.version, operation.before)
        if operation.after is not None:
            entries[operation.after.version] = operation.after
    versions = sorted(committed)
    states = []
    for version, entry in sorted(entries.items()):
        following = next((each for each in versions if each > version), None)
        ended = None if following is None else committed[following]
        states.append(EntryState(entry, committed.get(version), ended))
    last = committed[versions[-1]] if versions else None
    return ObjectHistory(
        object_id,
        tuple(states),
        last is not None and last.after is None,
        tuple(record.operation for record in truth.pending),
    )
