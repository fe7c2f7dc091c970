"""Segments: several operations in one log object.

Lines of JSON as in `entries`. The pending object holds a header, one line for each operation that
was begun, and the seal. The committed object is the mark that ends them: a header, which lists the
operations that succeeded (`"all"`, or their ids) and those of unknown outcome, and the seal. It
does not repeat the operations, so the pending object is kept. An operation in neither list was not
applied.

In format 1 the committed object held the operations that succeeded, in full; it is still read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from s3k_async import _native
from s3k_async.errors import LogFormatError
from s3k_async.model import Entry
from s3k_async.oplog.entries import (
    LogRecord,
    LogState,
    Operation,
    SegmentKey,
    operation_from,
    operation_line,
    parse_key,
    parse_line,
    read_field,
    seal,
    segment_key,
    unseal,
)

__all__ = [
    "Operations",
    "Segment",
    "SegmentCommit",
    "cut_lines",
    "decode_segment",
    "each_object_once",
    "encode_segment",
    "encode_segment_commit",
    "operation_ids",
    "pending_lines",
    "seal_segment",
    "segment_lines",
]

FORMAT: Final = 3
"""The newest format of segments; written for operations on entries with directory keys."""
PATH_FORMAT: Final = 2
"""The format of marks, and of operations on entries without directory keys."""

_SEGMENT: Final = "oplog-segment"
_FULL_COMMITS: Final = 1
"""The last format in which a committed object repeats the operations."""


@runtime_checkable
class Encoded(Protocol):
    """Columnar operations: ids and lines without an object for each."""

    def ids(self) -> list[str]:
        """The operation ids, in order."""

    def with_metadata(self) -> list[int]:
        """Indexes of the operations that give an entry with user metadata another place."""

    def lines(self, start: int, end: int) -> bytes:
        """The lines of the operations [start, end), as `operation_line`, each ended by a
        newline."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Operation: ...


Operations: TypeAlias = Sequence[Operation] | Encoded
"""Operations for the log."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Operations in one object, in one state. Format 1 has such objects for committed ones, too."""

    id: str
    state: LogState
    operations: tuple[Operation, ...]
    """Pending: all started operations. Committed: those that succeeded."""
    unknown: tuple[str, ...] = ()
    """Committed: ids of operations of unknown outcome, still pending."""

    def records(self, key: str = "") -> list[LogRecord]:
        """The operations with the segment's state."""
        return [LogRecord(operation, self.state, key) for operation in self.operations]


@dataclass(frozen=True, slots=True)
class SegmentCommit:
    """Outcome of the operations in the pending twin of a committed object."""

    id: str
    count: int
    """Number of operations in the pending object."""
    succeeded: tuple[str, ...] | None = None
    """Ids of the operations that succeeded; None: all."""
    unknown: tuple[str, ...] = ()
    """Ids of operations of unknown outcome, still pending."""

    def records(self, begun: Segment, key: str) -> list[LogRecord]:
        """The operations that succeeded or are of unknown outcome; the latter are pending with the
        mark's `key`. Raises LogFormatError, with `key`, for a mark of another pending object."""
        ids = {operation.id for operation in begun.operations}
        done = ids if self.succeeded is None else set(self.succeeded)
        open_ids = set(self.unknown)
        if self.count != len(begun.operations) or not (done | open_ids) <= ids:
            raise LogFormatError(
                "the mark is not about the operations of the pending object", path=key
            )
        return [
            LogRecord(operation, "committed" if operation.id in done else "pending", key)
            for operation in begun.operations
            if operation.id in done or operation.id in open_ids
        ]


def operation_ids(operations: Operations, start: int = 0, end: int | None = None) -> list[str]:
    """The ids of the operations [start, end), in order."""
    end = len(operations) if end is None else end
    # A check of a protocol takes 10 µs, that of a list none.
    if isinstance(operations, list | tuple) or not isinstance(operations, Encoded):
        return [operations[number].id for number in range(start, end)]
    return operations.ids()[start:end]


def encode_segment(
    segment_id: str, operations: Operations, start: int = 0, end: int | None = None
) -> bytes:
    """The pending object of the operations [start, end). Raises LogFormatError for operations that
    contradict themselves or occur twice.
    """
    end = len(operations) if end is None else end
    return seal_segment(segment_id, end - start, segment_lines(operations, start, end))


def seal_segment(segment_id: str, count: int, lines: bytes) -> bytes:
    """The pending object of `count` operations, given as lines. Raises LogFormatError for an
    invalid id."""
    segment_key(segment_id, "pending")
    number = FORMAT if _native.has_directories(lines) else PATH_FORMAT
    return seal(_head(segment_id, "pending", count, number), lines)


def cut_lines(lines: bytes, count: int, most: int) -> list[tuple[int, bytes]]:
    """`count` lines in runs of at most `most` bytes, or of one longer line: the number of lines of
    each, and the run."""
    if len(lines) <= most:
        return [(count, lines)]
    runs: list[tuple[int, bytes]] = []
    start = 0
    while start < len(lines):
        end = len(lines)
        if end - start > most:
            end = lines.rfind(b"\n", start, start + most) + 1 or lines.index(b"\n", start) + 1
        runs.append((lines.count(b"\n", start, end), lines[start:end]))
        start = end
    return runs


def encode_segment_commit(mark: SegmentCommit) -> bytes:
    """The committed object. Raises LogFormatError for a mark that contradicts itself."""
    _check_commit(mark, segment_key(mark.id, "committed"))
    succeeded = "all" if mark.succeeded is None else list(mark.succeeded)
    return seal(
        _head(
            mark.id,
            "committed",
            mark.count,
            PATH_FORMAT,
            succeeded=succeeded,
            unknown=list(mark.unknown),
        )
    )


def decode_segment(data: bytes, key: str) -> Segment | SegmentCommit:
    """The segment in an object's bytes: its operations, or, for a committed object of the present
    format, its mark.

    Raises LogFormatError, with the key, for bytes that are truncated, damaged, foreign or of a
    newer format, and for a segment that contradicts itself or its key.
    """
    expected, head, lines = _opened(data, key)
    if _is_mark(expected, head, key):
        count = read_field(head, "count", (int,), key)
        mark = SegmentCommit(expected.segment_id, count, _succeeded(head, key), _unknown(head, key))
        _check_commit(mark, key)
        return mark
    operations = tuple(operation_from(line, key) for line in lines)
    _check_distinct(operations, key)
    if expected.state == "pending":
        return Segment(expected.segment_id, "pending", operations)
    return _committed_in_full(expected.segment_id, operations, head, key)


def pending_lines(data: bytes, key: str) -> list[bytes]:
    """The lines of the operations in a pending object, not decoded. Raises LogFormatError as
    `decode_segment`, but not for what is in the lines."""
    return _opened(data, key)[2]


def _opened(data: bytes, key: str) -> tuple[SegmentKey, dict[str, Any], list[bytes]]:
    """The key of a segment's object, its header, and the lines of its operations, as many as the
    header says."""
    expected = parse_key(key)
    if not isinstance(expected, SegmentKey):
        raise LogFormatError("not the key of a segment", path=key)
    head_line, *lines = unseal(data, _SEGMENT, FORMAT, key)
    head = parse_line(head_line, key)
    if (
        SegmentKey(*(read_field(head, name, (str,), key) for name in ("segment", "state")))
        != expected
    ):
        raise LogFormatError("the segment's content does not belong to its key", path=key)
    count = read_field(head, "count", (int,), key)
    if len(lines) != (0 if _is_mark(expected, head, key) else count):
        raise LogFormatError("the segment does not hold the operations that it counts", path=key)
    return expected, head, lines


def _is_mark(found: SegmentKey, head: dict[str, Any], key: str) -> bool:
    return found.state == "committed" and read_field(head, "format", (int,), key) > _FULL_COMMITS


def _committed_in_full(
    segment_id: str, operations: tuple[Operation, ...], head: dict[str, Any], key: str
) -> Segment:
    """The committed object of format 1."""
    succeeded, unknown = _succeeded(head, key), _unknown(head, key)
    held = list(dict.fromkeys(operation.id for operation in operations))
    if succeeded is not None and list(succeeded) != held:
        raise LogFormatError("the segment does not hold the operations that it names", path=key)
    if unknown and (succeeded is None or not set(unknown).isdisjoint(held)):
        raise LogFormatError("an operation of the segment is both known and unknown", path=key)
    return Segment(segment_id, "committed", operations, unknown)


def segment_lines(operations: Operations, start: int, end: int) -> bytes:
    """The lines of the operations [start, end), each ended by a newline. Raises LogFormatError as
    `encode_segment`."""
    if isinstance(operations, list | tuple) or not isinstance(operations, Encoded):
        key = segment_key("new", "pending")
        part = operations[start:end]
        _check_distinct(part, key)
        return b"".join(operation_line(operation, key) + b"\n" for operation in part)
    return operations.lines(start, end)


def _head(segment_id: str, state: LogState, count: int, number: int, **more: object) -> bytes:
    head = {
        "s3k": _SEGMENT,
        "format": number,
        "segment": segment_id,
        "state": state,
        "count": count,
        **more,
    }
    return json.dumps(head, separators=(",", ":")).encode("ascii") + b"\n"


def _succeeded(head: dict[str, Any], key: str) -> tuple[str, ...] | None:
    return (
        None
        if head.get("succeeded") == "all"
        else _texts(read_field(head, "succeeded", (list,), key), key)
    )


def _unknown(head: dict[str, Any], key: str) -> tuple[str, ...]:
    return _texts(read_field(head, "unknown", (list,), key), key)


def _texts(values: list[object], key: str) -> tuple[str, ...]:
    if not all(type(value) is str for value in values):
        raise LogFormatError("an operation id is not text", path=key)
    return tuple(str(value) for value in values)


def _check_commit(mark: SegmentCommit, key: str) -> None:
    named: Collection[str] = mark.succeeded or ()
    if len(set(named)) != len(named) or len(set(mark.unknown)) != len(mark.unknown):
        raise LogFormatError("the mark names an operation twice", path=key)
    if mark.unknown and (mark.succeeded is None or not set(mark.unknown).isdisjoint(named)):
        raise LogFormatError("an operation of the segment is both known and unknown", path=key)
    if mark.count < len(named) + len(mark.unknown):
        raise LogFormatError("the mark names more operations than were begun", path=key)


def _check_distinct(operations: Sequence[Operation], key: str) -> None:
    objects = {(operation.object_id, operation.version, operation.id) for operation in operations}
    if len(objects) != len(operations):
        raise LogFormatError("the segment holds an operation twice", path=key)


def each_object_once(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The entries in lists in which each object is once, as in a segment."""
    left = list(entries)
    while left:
        first = {entry.id: entry for entry in reversed(left)}
        yield [entry for entry in left if first[entry.id] is entry]
        left = [entry for entry in left if first[entry.id] is not entry]
