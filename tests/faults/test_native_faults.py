"""Faults of the systems before this one, as far as keys and paths go."""

from __future__ import annotations

from collections import Counter

import pytest

from s3k_async import _native
from s3k_async.errors import InvalidPathError, ItemFormatError
from s3k_async.model import HashName

HASHES: tuple[HashName, ...] = ("xxh3", "java31")


@pytest.mark.parametrize("name", ["x:y", ":", "a:", ":b", "c:d", "2026-11-21T03:04:05"])
def test_a_name_with_a_colon_can_be_read_back(name: str) -> None:
    for path in (f"/{name}", f"/dir/{name}", f"/{name}/child"):
        for hash_name in HASHES:
            partition, sort = _native.item_key("v", path, 10, hash_name)
            assert _native.decode_key("v", partition, sort) == path


def test_a_name_whose_hash_has_no_absolute_value_has_a_suffix() -> None:
    name = "polygenelubricants"
    wanted = {1: 0, 3: 1, 10: 2, 30: 22, 31: 29, 80: 32, 64: 0}
    assert {count: _native.suffix_index(name, count, "java31") for count in wanted} == wanted
    for count in wanted:
        partition, sort = _native.item_key("v", f"/d/{name}", count, "java31")
        assert partition in _native.partition_keys("v", "/d", count)
        assert _native.decode_key("v", partition, sort) == f"/d/{name}"


def test_the_root_has_one_spelling_in_keys() -> None:
    assert _native.normalize(".") == "/"
    for root in ("/", "//", "/.", "/a/.."):
        assert _native.normalize(root) == "/"
        assert _native.partition_key("bucket", root, 3) == "ks://bucket/-sf3"
    with pytest.raises(InvalidPathError):
        _native.normalize("")
    with pytest.raises(ItemFormatError):
        _native.decode_key("bucket", "ks://bucket-sf3", "a")


@pytest.mark.parametrize("path", ["/..", "/../b", "/a/../../b", "..", "../a"])
def test_nothing_is_above_the_root(path: str) -> None:
    with pytest.raises(InvalidPathError, match="above the root"):
        _native.normalize(path)
    with pytest.raises(InvalidPathError, match="above the root"):
        _native.item_key("v", path, 10, "java31")
    with pytest.raises(ItemFormatError):
        _native.decode_key("v", "ks://v/..-sf0", "b")


def test_volume_names_may_contain_an_underscore() -> None:
    partition, sort = _native.item_key("my_bucket", "/a/b", 10, "xxh3")
    assert partition.startswith("ks://my_bucket/a-sf")
    assert _native.decode_key("my_bucket", partition, sort) == "/a/b"


@pytest.mark.parametrize("character", ["n", "é", "😀"])
def test_names_over_1024_bytes_are_refused(character: str) -> None:
    size = len(character.encode())
    longest = character * (1024 // size)
    assert _native.item_key("v", f"/{longest}", 10, "xxh3")[1] == longest
    with pytest.raises(InvalidPathError, match="1024 bytes"):
        _native.item_key("v", f"/{longest}{character}", 10, "xxh3")


def test_partition_keys_over_2048_bytes_are_refused_whatever_the_name_hashes_to() -> None:
    names = [str(number) for number in range(50)]
    above = "/" + "d" * 999 + "/" + "é" * 400 + "/"
    fits = above + "x" * (2048 - len(f"ks://v{above}-sf10".encode()))
    assert len(f"ks://v{fits}-sf10".encode()) == 2048
    for name in names:
        assert len(_native.item_key("v", f"{fits}/{name}", 11, "xxh3")[0].encode()) in {2047, 2048}
        with pytest.raises(InvalidPathError, match="2048 bytes"):
            _native.item_key("v", f"{fits}y/{name}", 11, "xxh3")
    assert {_native.suffix_index(name, 11, "xxh3") for name in names} >= {3, 10}


@pytest.mark.parametrize(
    "names",
    [
        [f"part-r-{number:05}.gz" for number in range(1000)],
        [f"attempt_202611210000_{number:04}_m_000000_0" for number in range(1000)],
        [f"part-{number:05}" for number in range(1000)],
        [f"hour={number:02}" for number in range(1000)],
    ],
    ids=["part-r", "attempt", "part", "hour"],
)
@pytest.mark.parametrize("count", [10, 30, 31, 32, 62, 80])
def test_names_that_share_an_ending_spread_over_all_suffixes(names: list[str], count: int) -> None:
    suffixes = Counter(_native.suffix_indexes(names, count, "xxh3"))
    ideal = len(names) / count
    assert len(suffixes) == count
    assert max(suffixes.values()) < ideal + 5 * ideal**0.5


def test_the_old_hash_puts_names_that_share_an_ending_on_one_suffix() -> None:
    names = [f"part-r-{number:05}.gz" for number in range(1000)]
    assert len(set(_native.suffix_indexes(names, 31, "java31"))) == 1
