"""Suffixes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.errors import InvalidPathError
from s3k_async.model import HashName
from tests.native import oracle
from tests.native.strategies import COMPONENTS, COUNTS, HASHES, NAMES

JAVA31 = [
    # name, hash, index among 3, 10 and 80
    ("a", 97, 1, 7, 17),
    ("f", 102, 0, 2, 22),
    ("f1", 3211, 1, 1, 11),
    ("file", 3143036, 2, 6, 76),
    ("file0", 97434164, 2, 4, 4),
    ("dir0", 3083587, 1, 7, 67),
    ("part-00000", -1741854250, 1, 0, 10),
    ("_SUCCESS", 1209037476, 0, 6, 36),
    ("é", 233, 2, 3, 73),
    ("😀", 1772899, 1, 9, 19),
]


@pytest.mark.parametrize(("name", "value", "of3", "of10", "of80"), JAVA31)
def test_java31_places_names_where_java_clients_look(
    name: str, value: int, of3: int, of10: int, of80: int
) -> None:
    assert oracle.java31(name) == value
    assert [_native.suffix_index(name, count, "java31") for count in (3, 10, 80)] == [
        of3,
        of10,
        of80,
    ]


XXH3 = [
    # name, XXH3 of 64 bits, index among 3, 10 and 80
    ("a", 0xE6C632B61E964E1F, 1, 9, 79),
    ("part-00000", 0xDC0DE34BEB8F7DC3, 0, 3, 3),
    ("_SUCCESS", 0x78B86F23CEDF6CDD, 2, 3, 13),
    ("😀", 0x0B4FECF421A0808E, 1, 8, 78),
    ("polygenelubricants", 0xDC27C7278448CD60, 0, 2, 32),
]


@pytest.mark.parametrize(("name", "value", "of3", "of10", "of80"), XXH3)
def test_xxh3_never_moves_a_name(name: str, value: int, of3: int, of10: int, of80: int) -> None:
    assert _native.xxh3_64(name.encode()) == value
    assert [_native.suffix_index(name, count, "xxh3") for count in (3, 10, 80)] == [of3, of10, of80]


@given(NAMES, COUNTS, HASHES)
def test_as_the_oracle(name: str, count: int, algorithm: HashName) -> None:
    index = _native.suffix_index(name, count, algorithm)
    assert index == oracle.suffix_index(name, count, algorithm)
    assert 0 <= index < count


@given(st.lists(NAMES, max_size=30), COUNTS, HASHES)
def test_many_as_one_at_a_time(names: list[str], count: int, algorithm: HashName) -> None:
    wanted = [_native.suffix_index(name, count, algorithm) for name in names]
    assert _native.suffix_indexes(names, count, algorithm) == wanted


@given(COMPONENTS, HASHES)
def test_only_names_have_a_suffix(name: str, algorithm: HashName) -> None:
    if oracle.is_name(name):
        assert _native.suffix_index(name, 10, algorithm) in range(10)
        return
    with pytest.raises(InvalidPathError):
        _native.suffix_index(name, 10, algorithm)
    with pytest.raises(InvalidPathError):
        _native.suffix_indexes(["fine", name], 10, algorithm)


@pytest.mark.parametrize("count", [0, -1, 65_537, 2**31, 2**32 + 1, 2**63, -(2**70)])
def test_counts_out_of_bounds_are_value_errors(count: int) -> None:
    for call in (
        lambda: _native.suffix_index("a", count, "xxh3"),
        lambda: _native.suffix_indexes(["a"], count, "xxh3"),
        lambda: _native.item_key("v", "/a", count, "xxh3"),
        lambda: _native.item_keys("v", ["/a"], count, "xxh3"),
        lambda: _native.partition_keys("v", "/a", count),
    ):
        with pytest.raises(ValueError, match="between 1 and 65536"):
            call()


@pytest.mark.parametrize("name", ["", "XXH3", "md5", "java", "xxh3 ", "\ud800"])
def test_unknown_hashes_are_value_errors(name: HashName) -> None:
    for call in (
        lambda: _native.suffix_index("a", 10, name),
        lambda: _native.suffix_indexes(["a"], 10, name),
        lambda: _native.item_key("v", "/a", 10, name),
        lambda: _native.item_keys("v", ["/a"], 10, name),
    ):
        with pytest.raises(ValueError, match="unknown hash"):
            call()


def test_the_types_are_checked() -> None:
    with pytest.raises(TypeError):
        _native.suffix_index("a", "10", "xxh3")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _native.suffix_index("a", 10.0, "xxh3")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _native.suffix_index("a", 10, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _native.suffix_index(b"a", 10, "xxh3")  # type: ignore[arg-type]
