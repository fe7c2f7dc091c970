"""Segments of several operations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from s3k_async.errors import LogFormatError
from s3k_async.oplog.entries import LogRecord, Operation, operation_line, segment_key
from s3k_async.oplog.segments import (
    Segment,
    SegmentCommit,
    decode_segment,
    encode_segment,
    encode_segment_commit,
    operation_ids,
)
from tests.oplog import operations as sample

DATA = Path(__file__).parent.parent / "data" / "oplog"
THREE = tuple(sample.make_directories(3))
TREE_THREE = tuple(sample.make_directories(3, sample.PLACE))
GOLDEN: dict[str, Segment | SegmentCommit] = {
    "segment-1-pending.jsonl": Segment("5e6", "pending", THREE),
    "segment-1-committed-all.jsonl": Segment("5e6", "committed", THREE),
    "segment-1-committed-part.jsonl": Segment("5e6", "committed", THREE[:1], (THREE[2].id,)),
    "segment-2-pending.jsonl": Segment("5e6", "pending", THREE),
    "segment-2-committed-all.jsonl": SegmentCommit("5e6", 3),
    "segment-2-committed-part.jsonl": SegmentCommit("5e6", 3, (THREE[0].id,), (THREE[2].id,)),
    "segment-3-pending.jsonl": Segment("5e6", "pending", TREE_THREE),
}
PART = SegmentCommit("5e6", 3, (THREE[0].id,), (THREE[2].id,))
KEY = segment_key("5e6", "committed")
PENDING = segment_key("5e6", "pending")


def golden(name: str) -> bytes:
    return (DATA / name).read_bytes()


def state_of(name: str) -> str:
    return PENDING if name.endswith("pending.jsonl") else KEY


def distinct(operations: list[Operation]) -> tuple[Operation, ...]:
    return tuple({(one.object_id, one.version, one.id): one for one in operations}.values())


def resealed(change: Callable[[list[dict[str, Any]]], object], data: bytes) -> bytes:
    """The segment with its documents changed and sealed again."""
    documents = [json.loads(line) for line in data.splitlines()[:-1]]
    change(documents)
    body = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
    return body + b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


@pytest.mark.parametrize("name", GOLDEN)
def test_segments_written_by_every_version_are_read(name: str) -> None:
    assert decode_segment(golden(name), state_of(name)) == GOLDEN[name]


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith("segment-1")])
def test_segments_are_written_the_same_for_ever(name: str) -> None:
    segment = GOLDEN[name]
    written = (
        encode_segment_commit(segment)
        if isinstance(segment, SegmentCommit)
        else encode_segment(segment.id, segment.operations)
    )
    assert written == golden(name)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(sample.operations(), max_size=4).map(distinct))
def test_any_operations_survive_the_round_trip(operations: tuple[Operation, ...]) -> None:
    data = encode_segment("s", operations)
    assert decode_segment(data, segment_key("s", "pending")) == Segment("s", "pending", operations)
    assert data.count(b"\n") == len(operations) + 2


@given(
    st.lists(sample.ids, unique=True, max_size=6),
    st.integers(min_value=0, max_value=6),
    st.booleans(),
    st.integers(min_value=0, max_value=10**6),
)
def test_any_mark_survives_the_round_trip(
    names: list[str], cut: int, whole: bool, more: int
) -> None:
    mark = SegmentCommit(
        "s",
        len(names) + more,
        None if whole else tuple(names[:cut]),
        () if whole else tuple(names[cut:]),
    )
    assert decode_segment(encode_segment_commit(mark), segment_key("s", "committed")) == mark


def test_the_mark_of_thousands_of_operations_does_not_repeat_them() -> None:
    operations = sample.make_directories(2000)
    assert len(encode_segment_commit(SegmentCommit("s", 2000))) < 300
    some = tuple(operation.id for operation in operations[:-1])
    assert (
        len(encode_segment_commit(SegmentCommit("s", 2000, some)))
        < 40 * 2000
        < len(encode_segment("s", operations)) / 5
    )


class Columns:
    """Operations that are no objects: what the native columns look like from here."""

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self._lines = [operation_line(operation, "") + b"\n" for operation in operations]
        self._ids = [operation.id for operation in operations]

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, position: int, /) -> Operation:
        raise AssertionError(f"operation {position} was made into an object")

    def ids(self) -> list[str]:
        return list(self._ids)

    def with_metadata(self) -> list[int]:
        return []

    def lines(self, start: int, end: int) -> bytes:
        return b"".join(self._lines[start:end])


@pytest.mark.parametrize(("start", "end"), [(0, None), (0, 1), (1, 3), (2, 2)])
def test_columns_write_the_same_bytes_without_an_object_for_each(
    start: int, end: int | None
) -> None:
    columns = Columns(THREE)
    assert encode_segment("5e6", columns, start, end) == encode_segment("5e6", THREE, start, end)
    assert operation_ids(columns, start, end) == operation_ids(THREE, start, end)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_cut_at_any_byte_is_noticed(name: str) -> None:
    data, key = golden(name), state_of(name)
    for end in range(len(data)):
        with pytest.raises(LogFormatError) as caught:
            decode_segment(data[:end], key)
        assert caught.value.path == key


@pytest.mark.parametrize("name", GOLDEN)
def test_a_lost_line_is_noticed(name: str) -> None:
    lines = golden(name).splitlines(keepends=True)
    for lost in range(len(lines)):
        with pytest.raises(LogFormatError):
            decode_segment(b"".join(lines[:lost] + lines[lost + 1 :]), state_of(name))


def test_a_last_line_that_is_not_ended_is_noticed() -> None:
    body = encode_segment_commit(PART).rpartition(b'{"sha256"')[0]
    for end in (b"", b" ", b"}"):
        cut = body[:-1] + end
        with pytest.raises(LogFormatError):
            decode_segment(
                cut + b'{"sha256":"' + hashlib.sha256(cut).hexdigest().encode() + b'"}\n', KEY
            )


@pytest.mark.parametrize(
    "name", ["segment-1-committed-part.jsonl", "segment-2-committed-part.jsonl"]
)
def test_every_flipped_bit_is_noticed(name: str) -> None:
    data = golden(name)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(LogFormatError):
                decode_segment(bytes(damaged), KEY)


WRONG_HEADERS: list[dict[str, Any]] = [
    {"format": 0},
    {"format": 4},
    {"format": True},
    {"count": True},
    {"count": None},
    {"segment": "other"},
    {"state": "pending"},
    {"succeeded": "none"},
    {"succeeded": None},
    {"succeeded": [1]},
    {"succeeded": "all"},
    {"unknown": None},
    {"unknown": [1]},
    {"unknown": [THREE[0].id]},
]


@pytest.mark.parametrize(
    "changes", [*WRONG_HEADERS, {"count": 2}, {"succeeded": []}, {"succeeded": [THREE[1].id]}]
)
def test_a_header_that_contradicts_a_segment_of_format_1_is_noticed(
    changes: dict[str, Any],
) -> None:
    data = resealed(
        lambda documents: documents[0].update(changes), golden("segment-1-committed-part.jsonl")
    )
    with pytest.raises(LogFormatError) as caught:
        decode_segment(data, KEY)
    assert caught.value.path == KEY


@pytest.mark.parametrize(
    "changes",
    [
        *WRONG_HEADERS,
        {"format": 1},
        {"count": 1},
        {"succeeded": [THREE[0].id] * 2},
        {"unknown": [THREE[2].id] * 2},
    ],
)
def test_a_header_that_contradicts_itself_is_noticed(changes: dict[str, Any]) -> None:
    with pytest.raises(LogFormatError) as caught:
        decode_segment(
            resealed(lambda documents: documents[0].update(changes), encode_segment_commit(PART)),
            KEY,
        )
    assert caught.value.path == KEY


def test_a_mark_with_operations_is_noticed() -> None:
    data = resealed(lambda documents: documents.append({"id": "x"}), encode_segment_commit(PART))
    with pytest.raises(LogFormatError, match="counts"):
        decode_segment(data, KEY)


def test_unknown_fields_of_the_same_format_do_no_harm() -> None:
    def extend(documents: list[dict[str, Any]]) -> None:
        for document in documents:
            document["note"] = {"new": None}

    for name, segment in GOLDEN.items():
        assert decode_segment(resealed(extend, golden(name)), state_of(name)) == segment


def test_an_operation_of_a_segment_that_contradicts_itself_is_noticed() -> None:
    data = encode_segment("5e6", THREE)
    with pytest.raises(LogFormatError, match="another version"):
        decode_segment(resealed(lambda documents: documents[1].update(version=7), data), PENDING)
    with pytest.raises(LogFormatError):
        encode_segment("s", (replace(sample.UPDATE, version=7),))


def test_what_contradicts_itself_is_not_written() -> None:
    for operations, segment in (((THREE[0], THREE[0]), "s"), (THREE, "a/b")):
        with pytest.raises(LogFormatError):
            encode_segment(segment, operations)
    for mark in (
        SegmentCommit("s", 3, None, ("x",)),
        SegmentCommit("s", 3, ("x",), ("x",)),
        SegmentCommit("s", 3, ("x", "x")),
        SegmentCommit("s", 3, (), ("x", "x")),
        SegmentCommit("s", 1, ("x", "y")),
        SegmentCommit("a/b", 3),
    ):
        with pytest.raises(LogFormatError):
            encode_segment_commit(mark)


def test_a_mark_tells_what_became_of_the_operations_of_its_pending_object() -> None:
    begun = Segment("5e6", "pending", THREE)
    assert PART.records(begun, KEY) == [
        LogRecord(THREE[0], "committed"),
        LogRecord(THREE[2], "pending"),
    ]
    assert [record.key for record in PART.records(begun, KEY)] == [KEY, KEY]
    assert SegmentCommit("5e6", 3).records(begun, KEY) == [
        LogRecord(one, "committed") for one in THREE
    ]
    assert SegmentCommit("5e6", 3, ()).records(begun, KEY) == []
    for foreign in (
        SegmentCommit("5e6", 4),
        SegmentCommit("5e6", 3, ("other",)),
        SegmentCommit("5e6", 3, (), ("other",)),
    ):
        with pytest.raises(LogFormatError, match="not about") as caught:
            foreign.records(begun, KEY)
        assert caught.value.path == KEY


def test_operations_on_different_objects_may_share_an_id() -> None:
    """One transaction that renames a file over another is two operations."""
    removed = replace(sample.MOVED, id="replaced", path="/target")
    deletion = Operation(sample.THIRD, "delete", "replaced", 4, 0, removed, None)
    both = (sample.RENAME, deletion)
    begun = decode_segment(encode_segment("s", both), segment_key("s", "pending"))
    assert begun == Segment("s", "pending", both)
    records = SegmentCommit("s", 2, (sample.THIRD,)).records(begun, KEY)
    assert records == [LogRecord(operation, "committed") for operation in both]
