"""UUIDs and physical keys."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.errors import InvalidPathError

ENTROPY = st.binary(min_size=16, max_size=16)
OBJECT_IDS = st.one_of(
    st.uuids().map(str),
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=40
    ),
).filter(lambda text: ".id=" not in text)


@given(ENTROPY)
def test_uuids_are_of_version_4(entropy: bytes) -> None:
    text = _native.uuid_text(entropy)
    assert text == str(uuid.UUID(bytes=entropy, version=4))
    parsed = uuid.UUID(text)
    assert parsed.version == 4
    assert parsed.variant == uuid.RFC_4122


@given(st.lists(ENTROPY, max_size=20))
def test_many_uuids_as_one_at_a_time(entropy: list[bytes]) -> None:
    assert _native.uuid_texts(b"".join(entropy)) == [
        _native.uuid_text(sixteen) for sixteen in entropy
    ]


@given(OBJECT_IDS, ENTROPY)
def test_the_object_id_is_read_back(object_id: str, entropy: bytes) -> None:
    key = _native.physical_key(object_id, entropy)
    assert key == f"{uuid.UUID(bytes=entropy, version=4)}.id={object_id}"
    assert _native.object_id_of(key) == object_id
    assert _native.object_id_of(f"s3://bucket/{key}") == object_id


@given(st.lists(st.tuples(OBJECT_IDS, ENTROPY), max_size=20))
def test_many_keys_as_one_at_a_time(rows: list[tuple[str, bytes]]) -> None:
    ids, entropy = [row[0] for row in rows], b"".join(row[1] for row in rows)
    assert _native.physical_keys(ids, entropy) == [_native.physical_key(*row) for row in rows]


@pytest.mark.parametrize(
    "key", ["", "plain", "a/b.parquet", "x.id=", "dir.id=5/file", "x.ID=y", "x.id"]
)
def test_other_keys_have_no_object_id(key: str) -> None:
    assert _native.object_id_of(key) is None


def test_the_last_mark_counts() -> None:
    assert _native.object_id_of("s3://b/a.id=1/x.id=2.id=3") == "3"


@pytest.mark.parametrize("object_id", ["", "a/b", "a\0", "a.id=b", "x" * 985, "\ud800"])
def test_bad_object_ids(object_id: str) -> None:
    with pytest.raises(InvalidPathError):
        _native.physical_key(object_id, bytes(16))
    with pytest.raises(InvalidPathError):
        _native.physical_keys(["fine", object_id], bytes(32))


@pytest.mark.parametrize("length", [0, 15, 17, 32])
def test_entropy_of_another_length(length: int) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        _native.uuid_text(bytes(length))
    with pytest.raises(ValueError, match="16 bytes"):
        _native.physical_key("a", bytes(length))
    with pytest.raises(ValueError, match="16 bytes"):
        _native.physical_keys(["a"], bytes(length))
    if length % 16:
        with pytest.raises(ValueError, match="16 bytes"):
            _native.uuid_texts(bytes(length))
