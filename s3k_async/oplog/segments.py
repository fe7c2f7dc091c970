"""Segments: several operations in one log object.

Lines of JSON as in `entries`: a header, one line for each operation, the seal. The pending object holds every
operation that was begun. The committed object holds, in full, those that succeeded, so that it alone suffices; its
header names them (`"all"`, or their ids) and the ones whose outcome is not known. An operation that a
committed segment names in neither way did not happen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from s3k_async.errors import LogFormatError
from s3k_async.oplog.entries import (
    FORMAT,
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

__all__ = ["Segment", "decode_segment", "encode_segment"]

_SEGMENT: Final = "oplog-segment"


@dataclass(frozen=True, slots=True)
class Segment:
    """What one segment object holds."""

    id: str
    state: LogState
    operations: tuple[Operation, ...]
    """Pending: all that were begun. Committed: those that succeeded."""
    complete: bool = True
    """Whether every operation that was begun is in it."""
    unknown: tuple[str, ...] = ()
    """Committed: ids of operations whose outcome is not known, so that they are still pending."""

    def records(self, key: str = "") -> list[LogRecord]:
        """The operations with the segment's state."""
        return [LogRecord(operation, self.state, key) for operation in self.operations]


def encode_segment(segment: Segment) -> bytes:
    """The bytes of a segment. Raises LogFormatError for a segment that contradicts itself."""
    key = segment_key(segment.id, segment.state)
    _check(segment, key)
    head: dict[str, Any] = {
        "s3k": _SEGMENT,
        "format": FORMAT,
        "segment": segment.id,
        "state": segment.state,
        "count": len(segment.operations),
    }
    if segment.state == "committed":
        head["succeeded"] = "all" if segment.complete else _ids(segment)
        head["unknown"] = list(segment.unknown)
    lines = [json.dumps(head, separators=(",", ":")).encode("ascii")]
    lines += [operation_line(operation, key) for operation in segment.operations]
    return seal(lines)


def decode_segment(data: bytes, key: str) -> Segment:
    """The segment in an object's bytes.

    Raises LogFormatError, with the key, for bytes that are cut, damaged, foreign or of a newer format, and for a
    segment that contradicts itself or its key.
    """
    expected = parse_key(key)
    if not isinstance(expected, SegmentKey):
        raise LogFormatError("not the key of a segment", path=key)
    lines = unseal(data, _SEGMENT, key)
    head = parse_line(lines[0], key)
    if SegmentKey(*(read_field(head, name, (str,), key) for name in ("segment", "state"))) != expected:
        raise LogFormatError("the segment's content does not belong to its key", path=key)
    if read_field(head, "count", (int,), key) != len(lines) - 1:
        raise LogFormatError("the segment does not hold the operations that it counts", path=key)
    operations = tuple(operation_from(line, key) for line in lines[1:])
    if expected.state == "pending":
        segment = Segment(expected.segment_id, "pending", operations)
    else:
        succeeded = head.get("succeeded")
        unknown = _texts(read_field(head, "unknown", (list,), key), key)
        segment = Segment(expected.segment_id, "committed", operations, succeeded == "all", unknown)
        if succeeded != "all" and _texts(read_field(head, "succeeded", (list,), key), key) != tuple(_ids(segment)):
            raise LogFormatError("the segment does not hold the operations that it names", path=key)
    _check(segment, key)
    return segment


def _ids(segment: Segment) -> list[str]:
    return list(dict.fromkeys(operation.id for operation in segment.operations))


def _texts(values: list[object], key: str) -> tuple[str, ...]:
    if not all(type(value) is str for value in values):
        raise LogFormatError("an operation id is not text", path=key)
    return tuple(str(value) for value in values)


def _check(segment: Segment, key: str) -> None:
    objects = {(operation.object_id, operation.version, operation.id) for operation in segment.operations}
    if len(objects) != len(segment.operations):
        raise LogFormatError("the segment holds an operation twice", path=key)
    if segment.unknown and (segment.complete or not set(segment.unknown).isdisjoint(_ids(segment))):
        raise LogFormatError("an operation of the segment is both known and unknown", path=key)
    if segment.state == "pending" and not segment.complete:
        raise LogFormatError("a pending segment holds all that was begun", path=key)
