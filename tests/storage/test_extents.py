"""Lists of extents: their text, and the ranges that are cut from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async._native import object_id_of
from s3k_async.errors import CorruptDataError, UnsupportedError
from s3k_async.model import Content
from s3k_async.storage.extents import (
    Extent,
    content_of,
    cut,
    extents_of,
    format_extents,
    has_extents,
    is_stored,
    joined,
    parse_extents,
    physical_keys,
)

OBJECT = "11111111-1111-4111-8111-111111111111"
KEYS = [f"{digit * 8}-0000-4000-8000-000000000000.id={OBJECT}" for digit in "abc"]
CHECKSUM = "xxh128:" + "0123456789abcdef" * 2
TAG = "fedcba9876543210" * 2 + "-12"

holes = st.builds(Extent, st.just(""), st.just(0), st.integers(1, 9))
tags = st.sampled_from(["", TAG, "18f3a-5"])
ranges = st.builds(
    Extent,
    st.sampled_from(KEYS),
    st.integers(0, 9),
    st.integers(1, 9),
    st.sampled_from(["", CHECKSUM]),
    tags,
)
wholes = st.builds(
    Extent,
    st.sampled_from(KEYS),
    st.just(0),
    st.integers(1, 9),
    st.just(CHECKSUM),
    tags,
    covers=st.just(True),
)
lists = st.lists(st.one_of(holes, ranges, wholes), max_size=8)


def spelled(extents: list[Extent]) -> list[tuple[str, int]]:
    """Each byte of the content: where it is stored."""
    return [
        (each.key, each.offset + place if each.key else 0)
        for each in extents
        for place in range(each.length)
    ]


@given(lists)
def test_a_text_is_read_as_it_was_written(extents: list[Extent]) -> None:
    text = format_extents(OBJECT, extents)
    assert has_extents(text)
    assert list(parse_extents(text)) == extents
    assert [each.checksum for each in parse_extents(text)] == [each.checksum for each in extents]
    assert set(physical_keys(text)) == {each.key for each in extents} - {""}
    assert object_id_of(text) is None
    assert "://" not in text


def test_the_text_is_the_documented_one() -> None:
    extents = [
        Extent(KEYS[0], 0, 5, CHECKSUM, "18f3a-5", covers=True),
        Extent("", 0, 7),
        Extent(KEYS[1], 3, 2),
        Extent(KEYS[2], 0, 4, CHECKSUM, TAG),
    ]
    digest = "0123456789abcdef0123456789abcdef"
    assert format_extents(OBJECT, extents) == (
        f"extents:{OBJECT}:aaaaaaaa-0000-4000-8000-000000000000@0+5={digest}~18f3a-5,+7,"
        "bbbbbbbb-0000-4000-8000-000000000000@3+2,"
        f"cccccccc-0000-4000-8000-000000000000@0+4^{digest}~{TAG}"
    )


def test_a_tag_that_the_text_cannot_have_is_left_out() -> None:
    assert format_extents(OBJECT, [Extent(KEYS[0], 1, 2, "", 'W/"a,b"')]) == format_extents(
        OBJECT, [Extent(KEYS[0], 1, 2)]
    )


def test_a_file_without_extents_is_empty() -> None:
    assert format_extents(OBJECT, []) == f"extents:{OBJECT}:"
    assert parse_extents(f"extents:{OBJECT}:") == ()


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "+0",
        "+-1",
        "+01",
        "+1,",
        ",+1",
        "+1 ",
        "+٣",
        "+1=" + "0" * 31,
        f"{KEYS[0][:36]}@1+2={'0' * 32}",
        f"{KEYS[0][:36]}@-1+2",
        f"{KEYS[0][:36]}@01+2",
        f"{KEYS[0][:35]}@1+2",
        f"{KEYS[0][:36]}@1",
        f"{KEYS[0]}@1+2",
        "+99999999999999999999",
        "+1^" + "0" * 32,
        "+1~tag",
        f"{KEYS[0][:36]}@1+2~",
        f"{KEYS[0][:36]}@1+2~a~b",
        f"{KEYS[0][:36]}@1+2~tag^{'0' * 32}",
    ],
)
def test_other_texts_are_refused_and_name_nothing_that_exists(text: str) -> None:
    physical = f"extents:{OBJECT}:{text}"
    with pytest.raises(CorruptDataError):
        parse_extents(physical)
    assert physical_keys(physical) == (physical,)
    assert not is_stored(physical, 1, dict.fromkeys(KEYS, 10**9))


@given(lists, st.integers(0, 80), st.integers(0, 80))
def test_a_cut_has_exactly_the_bytes_of_its_range(
    extents: list[Extent], start: int, end: int
) -> None:
    found = cut(extents, start, end)
    assert spelled(found) == spelled(extents)[start:end]
    assert all(each.checksum == "" or each in extents for each in found)
    assert all(each.length > 0 for each in found)


@given(lists)
def test_joining_changes_no_byte(extents: list[Extent]) -> None:
    found = joined(extents)
    assert spelled(found) == spelled(extents)
    assert len(found) <= len(extents)
    assert joined(found) == found


@given(lists)
def test_a_content_has_its_extents(extents: list[Extent]) -> None:
    content = content_of(OBJECT, extents)
    assert content.size == len(spelled(extents))
    assert list(extents_of(content, OBJECT)) == extents
    is_one_object = len(extents) == 1 and bool(extents[0].checksum)
    assert (content.physical in KEYS) is is_one_object


def test_a_whole_file_is_one_extent() -> None:
    assert extents_of(Content(KEYS[0], 5, "etag", CHECKSUM), OBJECT) == (
        Extent(KEYS[0], 0, 5, CHECKSUM, "etag"),
    )
    assert extents_of(Content(KEYS[0], 5, "etag", ""), OBJECT) == (
        Extent(KEYS[0], 0, 5, "", "etag"),
    )
    assert extents_of(Content(KEYS[0], 0, "etag", ""), OBJECT) == ()
    for physical in ("s3://bucket/key", KEYS[0].replace("1111-", "2222-")):
        with pytest.raises(UnsupportedError, match="adopted"):
            extents_of(Content(physical, 5, "", ""), OBJECT)


def test_extents_are_stored_if_every_object_reaches_their_end() -> None:
    text = format_extents(OBJECT, [Extent(KEYS[0], 2, 3), Extent("", 0, 4), Extent(KEYS[0], 0, 1)])
    assert is_stored(text, 8, {KEYS[0]: 5})
    assert is_stored(text, 8, {KEYS[0]: 6})
    assert not is_stored(text, 8, {KEYS[0]: 4})
    assert not is_stored(text, 8, {KEYS[1]: 5})
    assert not is_stored(text, 9, {KEYS[0]: 5})
