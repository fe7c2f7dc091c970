"""Segments of several operations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async.errors import LogFormatError
from s3k_async.oplog.entries import LogState, Operation, segment_key
from s3k_async.oplog.segments import Segment, decode_segment, encode_segment
from tests.oplog import operations as sample

DATA = Path(__file__).parent.parent / "data" / "oplog"
THREE = tuple(sample.make_directories(3))
GOLDEN = {
    "segment-1-pending.jsonl": Segment("5e6", "pending", THREE),
    "segment-1-committed-all.jsonl": Segment("5e6", "committed", THREE),
    "segment-1-committed-part.jsonl": Segment("5e6", "committed", THREE[:1], False, (THREE[2].id,)),
}
PART = GOLDEN["segment-1-committed-part.jsonl"]
PART_KEY = segment_key("5e6", "committed")


def distinct(operations: list[Operation]) -> tuple[Operation, ...]:
    return tuple({(one.object_id, one.version, one.id): one for one in operations}.values())


def resealed(change: Callable[[list[dict[str, Any]]], object], data: bytes) -> bytes:
    """The segment with its documents changed and sealed again."""
    documents = [json.loads(line) for line in data.splitlines()[:-1]]
    change(documents)
    body = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
    return body + b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


@pytest.mark.parametrize("name", GOLDEN)
def test_segments_written_by_every_version_are_read_and_written_the_same(name: str) -> None:
    segment = GOLDEN[name]
    data = (DATA / name).read_bytes()
    assert decode_segment(data, segment_key(segment.id, segment.state)) == segment
    assert encode_segment(segment) == data


@given(
    st.lists(sample.operations(), max_size=4).map(distinct),
    st.sampled_from(["pending", "committed"]),
    st.booleans(),
)
def test_any_segment_survives_the_round_trip(
    operations: tuple[Operation, ...], state: LogState, complete: bool
) -> None:
    segment = Segment("s", state, operations, complete or state == "pending")
    data = encode_segment(segment)
    assert decode_segment(data, segment_key("s", state)) == segment
    assert data.count(b"\n") == len(operations) + 2


def test_a_cut_at_any_byte_is_noticed() -> None:
    data = encode_segment(PART)
    for end in range(len(data)):
        with pytest.raises(LogFormatError) as caught:
            decode_segment(data[:end], PART_KEY)
        assert caught.value.path == PART_KEY


def test_a_lost_line_is_noticed() -> None:
    lines = encode_segment(GOLDEN["segment-1-committed-all.jsonl"]).splitlines(keepends=True)
    for lost in range(len(lines)):
        with pytest.raises(LogFormatError):
            decode_segment(b"".join(lines[:lost] + lines[lost + 1 :]), PART_KEY)


def test_a_last_line_that_is_not_ended_is_noticed() -> None:
    body = encode_segment(PART).rpartition(b'{"sha256"')[0]
    for end in (b"", b" ", b"}"):
        cut = body[:-1] + end
        with pytest.raises(LogFormatError):
            decode_segment(cut + b'{"sha256":"' + hashlib.sha256(cut).hexdigest().encode() + b'"}\n', PART_KEY)


def test_every_flipped_bit_is_noticed() -> None:
    data = encode_segment(PART)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(LogFormatError):
                decode_segment(bytes(damaged), PART_KEY)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"count": 2},
        {"count": True},
        {"count": None},
        {"segment": "other"},
        {"state": "pending"},
        {"succeeded": []},
        {"succeeded": "none"},
        {"succeeded": None},
        {"succeeded": [THREE[1].id]},
        {"succeeded": [1]},
        {"succeeded": "all"},
        {"unknown": None},
        {"unknown": [1]},
        {"unknown": [THREE[0].id]},
    ],
)
def test_a_header_that_contradicts_the_segment_is_noticed(changes: dict[str, Any]) -> None:
    with pytest.raises(LogFormatError) as caught:
        decode_segment(resealed(lambda documents: documents[0].update(changes), encode_segment(PART)), PART_KEY)
    assert caught.value.path == PART_KEY


def test_unknown_fields_of_the_same_format_do_no_harm() -> None:
    def extend(documents: list[dict[str, Any]]) -> None:
        for document in documents:
            document["note"] = {"new": None}

    assert decode_segment(resealed(extend, encode_segment(PART)), PART_KEY) == PART


def test_an_operation_of_a_segment_that_contradicts_itself_is_noticed() -> None:
    with pytest.raises(LogFormatError, match="another version"):
        decode_segment(resealed(lambda documents: documents[1].update(version=7), encode_segment(PART)), PART_KEY)
    with pytest.raises(LogFormatError):
        encode_segment(Segment("s", "pending", (replace(sample.UPDATE, version=7),)))


def test_segments_that_contradict_themselves_are_not_written() -> None:
    for segment in (
        Segment("s", "pending", (THREE[0], THREE[0])),
        Segment("s", "pending", THREE, complete=False),
        Segment("s", "committed", THREE, unknown=("x",)),
        Segment("s", "committed", THREE, complete=False, unknown=(THREE[0].id,)),
        Segment("a/b", "pending", THREE),
    ):
        with pytest.raises(LogFormatError):
            encode_segment(segment)


def test_operations_on_different_objects_may_share_an_id() -> None:
    """One transaction that renames a file over another is two operations."""
    removed = replace(sample.MOVED, id="replaced", path="/target")
    deletion = Operation(sample.THIRD, "delete", "replaced", 4, 0, removed, None)
    segment = Segment("s", "committed", (sample.RENAME, deletion))
    assert decode_segment(encode_segment(segment), segment_key("s", "committed")) == segment
