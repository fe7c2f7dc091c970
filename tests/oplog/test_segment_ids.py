"""Sets of segment ids, with runs of numbered ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async.oplog.entries import numbered_segment, segment_key
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.segment_ids import SegmentIds
from s3k_async.oplog.segments import SegmentCommit, encode_segment, encode_segment_commit
from s3k_async.oplog.tail import LogPosition, LogTail, position_of
from s3k_async.testing import FaultPlan
from tests.oplog.operations import log_blobs, make_directories

SERIES = ("123e4567-e89b-12d3-a456-426614174000", "00000000-0000-4000-8000-000000000001")
OTHERS = ("new", "123e4567-e89b-12d3-a456-426614174000_0123456789ab", SERIES[0])

numbered = st.builds(numbered_segment, st.sampled_from(SERIES), st.integers(1, 12))
ids = st.lists(st.one_of(numbered, st.sampled_from(OTHERS)))


@given(ids, ids)
def test_it_is_a_set_whose_texts_are_ids_and_runs(some: list[str], more: list[str]) -> None:
    found = SegmentIds(some)
    found.update(more)
    whole = {*some, *more}
    every = [numbered_segment(series, number) for series in SERIES for number in range(14)]
    assert {each for each in (*every, *OTHERS) if each in found} == whole
    assert SegmentIds(found) == found == SegmentIds(whole)
    assert len(list(found)) == len(found) <= len(whole)
    texts = list(found)
    assert texts == sorted(texts)
    assert found.has_runs == any(".." in text for text in texts)
    for each in whole:
        last = found.last_of_run(each)
        assert last is None if each in OTHERS else last is not None and last in whole


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 8))))
def test_runs_that_touch_are_one(runs: list[tuple[int, int]]) -> None:
    found = SegmentIds()
    for first, more in runs:
        text = numbered_segment(SERIES[0], first)
        found.add(f"{text}..{first + more:012d}")
    numbers = sorted({first + each for first, more in runs for each in range(more + 1)})
    gaps = sum(later - number > 1 for number, later in pairwise(numbers))
    assert len(found) == (gaps + 1 if numbers else 0)
    assert all(numbered_segment(SERIES[0], number) in found for number in numbers)


def test_no_text_is_taken_that_is_neither_an_id_nor_a_run() -> None:
    series = SERIES[0]
    for text in (
        "",
        "a/b",
        "x" * 65,
        f"{series}-000000000000",
        f"{series}-000000000002..000000000001",
        f"{series}-000000000001..2",
        "new..000000000002",
    ):
        with pytest.raises(ValueError, match="not a "):
            SegmentIds([text])
    assert 5 not in SegmentIds(["5"])
    assert "5" in SegmentIds(["5"])


async def test_a_listing_passes_over_long_runs_of_known_segments() -> None:
    """Two runs of 4,000 segments, with their marks, are eight pages of keys each."""
    faults = FaultPlan()
    blobs = await log_blobs(faults)
    for series in SERIES:
        for number in range(1, 4001):
            segment = numbered_segment(series, number)
            for state in ("committed", "pending"):
                await blobs.put(segment_key(segment, state), b"")
    reader = LogReader(blobs)
    position = await position_of(reader)
    assert list(position.segments) == [
        f"{series}-000000000001..000000004000" for series in sorted(SERIES)
    ]
    assert LogPosition.from_document(position.document()) == position
    (operation,) = make_directories(1)
    new = numbered_segment(SERIES[1], 4001)
    await blobs.put(segment_key(new, "pending"), encode_segment(new, [operation]))
    await blobs.put(segment_key(new, "committed"), encode_segment_commit(SegmentCommit(new, 1)))
    faults.calls.clear()
    tail = LogTail(reader, position)
    records, compacted = await tail.of([operation.object_id])
    tail.close()
    assert [record.operation for record in records] == [operation]
    assert not compacted
    listings = [call for call in faults.calls if call.method == "list" and call.key == "segments/"]
    assert len(listings) <= 3
