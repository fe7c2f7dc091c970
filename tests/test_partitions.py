"""Names of partition directories: there and back, and as Spark writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async.errors import InvalidArgumentError
from s3k_async.listing.hive_partitions import NO_VALUE, partition_directory, partition_values

names = st.text(min_size=1)
values = st.none() | st.text(min_size=1).filter(lambda text: text != NO_VALUE)


@given(st.dictionaries(names, values))
def test_what_is_written_is_read(partition: dict[str, str | None]) -> None:
    directory = partition_directory(partition)
    assert partition_values(f"{directory}/part-0") == partition
    assert directory.count("/") == max(0, len(partition) - 1)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("part-0", {}),
        ("", {}),
        ("a=1", {}),
        ("a=1/", {"a": "1"}),
        ("a=1/part-0", {"a": "1"}),
        ("a=1/b=x%2Fy/c=2", {"a": "1", "b": "x/y"}),
        ("a=1/plain/b=2/part-0", {"a": "1", "b": "2"}),
        ("a=1=2/part-0", {"a": "1=2"}),
        ("a%3Db=c/part-0", {"a=b": "c"}),
        ("=1/part-0", {}),
        ("a=/part-0", {"a": ""}),
        ("a=1/a=2/part-0", {"a": "2"}),
        (f"a={NO_VALUE}/b=x/part-0", {"a": None, "b": "x"}),
        ("a=%2f%zz%4/part-0", {"a": "/%zz%4"}),
        ("a=%C3%A9é/part-0", {"a": "Ã©é"}),
    ],
)
def test_values_in_paths(path: str, found: dict[str, str | None]) -> None:
    assert partition_values(path) == found


def test_names_of_directories() -> None:
    assert partition_directory({}) == ""
    assert partition_directory({"day": "2026-11-22", "at": "10:30", "who": None}) == (
        f"day=2026-11-22/at=10%3A30/who={NO_VALUE}"
    )
    assert partition_directory({"a": ""}) == f"a={NO_VALUE}"
    with pytest.raises(InvalidArgumentError):
        partition_directory({"": "1"})


ESCAPED = {*map(chr, range(0x01, 0x20)), "\x7f", *"\"#%'*/:=?[\\]^{"}


def test_what_is_escaped() -> None:
    for code in range(0x180):
        written = f"%{code:02X}" if chr(code) in ESCAPED else chr(code)
        assert partition_directory({"a": f"x{chr(code)}y"}) == f"a=x{written}y"
