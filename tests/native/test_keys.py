"""Table keys."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.errors import InvalidPathError, ItemFormatError
from s3k_async.model import HashName
from tests.native import oracle
from tests.native.strategies import COMPONENTS, COUNTS, HASHES, NAMES, PATHS, SPELLINGS, VOLUMES


def test_the_layout_of_keys() -> None:
    assert _native.item_key("bucket", "/a/b", 10, "java31") == ("ks://bucket/a-sf8", "b")
    assert _native.item_key("bucket", "/a", 10, "java31") == ("ks://bucket/-sf7", "a")
    assert _native.item_key("bucket", "/logs/part-00000", 80, "java31") == (
        "ks://bucket/logs-sf10",
        "part-00000",
    )
    assert _native.item_key("bucket", "a b/é", 3, "java31") == ("ks://bucket/a b-sf2", "é")
    assert _native.partition_key("bucket", "/", 4) == "ks://bucket/-sf4"
    assert _native.partition_key("bucket", "/a/b/", 0) == "ks://bucket/a/b-sf0"
    assert _native.partition_keys("bucket", "/", 3) == [
        "ks://bucket/-sf0",
        "ks://bucket/-sf1",
        "ks://bucket/-sf2",
    ]
    assert _native.partition_keys("bucket", "a", 12)[9:] == [
        "ks://bucket/a-sf9",
        "ks://bucket/a-sf10",
        "ks://bucket/a-sf11",
    ]


def test_the_root_has_no_item() -> None:
    for root in ("/", ".", "/a/.."):
        for call in (
            lambda: _native.item_key("v", root, 10, "xxh3"),  # noqa: B023
            lambda: _native.item_keys("v", ["/a", root], 10, "xxh3"),  # noqa: B023
        ):
            with pytest.raises(InvalidPathError, match="root") as caught:
                call()
            assert caught.value.path == root


@given(VOLUMES, SPELLINGS, COUNTS, HASHES)
def test_item_key_as_the_oracle(volume: str, path: str, count: int, algorithm: HashName) -> None:
    try:
        wanted = oracle.item_key(volume, path, count, algorithm)
    except oracle.RefusedError:
        with pytest.raises(InvalidPathError) as one:
            _native.item_key(volume, path, count, algorithm)
        with pytest.raises(InvalidPathError) as many:
            _native.item_keys(volume, ["/fine", path], count, algorithm)
        assert (one.value.message, one.value.path) == (many.value.message, many.value.path)
        return
    assert _native.item_key(volume, path, count, algorithm) == wanted
    parent, index = oracle.split(path)[0], oracle.suffix_index(wanted[1], count, algorithm)
    assert _native.partition_key(volume, parent, index) == wanted[0]
    assert _native.partition_keys(volume, parent, index + 1)[-1] == wanted[0]


@given(VOLUMES, PATHS, COUNTS, HASHES)
def test_a_path_is_read_back_from_its_keys(
    volume: str, path: str, count: int, algorithm: HashName
) -> None:
    try:
        partition, sort = _native.item_key(volume, path, count, algorithm)
    except InvalidPathError:
        assume(False)
    assert _native.decode_key(volume, partition, sort) == path
    assert _native.decode_keys(volume, [partition], [sort]) == [path]


@given(
    VOLUMES,
    st.lists(
        st.one_of(NAMES, NAMES.map(lambda name: f"/d/{name}"), PATHS.map(lambda path: path + "/")),
        max_size=60,
    ),
    COUNTS,
    HASHES,
)
def test_many_as_one_at_a_time(
    volume: str, paths: list[str], count: int, algorithm: HashName
) -> None:
    paths = [path for path in paths if len(path.encode()) < 1900]
    wanted = [_native.item_key(volume, path, count, algorithm) for path in paths]
    partitions, sorts = _native.item_keys(volume, paths, count, algorithm)
    assert list(zip(partitions, sorts, strict=True)) == wanted
    normal = _native.normalize_many(paths)
    assert _native.decode_keys(volume, partitions, sorts) == normal


def test_many_directories_and_suffixes_do_not_mix() -> None:
    paths = [f"/d{number % 3001}/{number}" for number in range(9000)]
    for count in (1, 7, 128, 129, 1000, 65_536):
        wanted = [oracle.item_key("v", path, count, "xxh3") for path in paths]
        partitions, sorts = _native.item_keys("v", paths, count, "xxh3")
        assert list(zip(partitions, sorts, strict=True)) == wanted
        assert _native.decode_keys("v", partitions, sorts) == paths


@given(VOLUMES, st.integers(1, 300), HASHES, st.integers(-3, 3), st.booleans())
def test_keys_of_2048_bytes_and_not_one_more(
    volume: str, count: int, algorithm: HashName, excess: int, nested: bool
) -> None:
    room = 2048 - len(f"ks://{volume}-sf{count - 1}".encode()) + excess
    parent = "".join("/" + "d" * 99 for _ in range(room // 100)) + "/" + "d" * (room % 100)
    assume(room % 100 != 1)
    parent = parent[:room] if room % 100 else parent[:-1]
    assert len(parent) == room
    path = f"{parent}/x" if not nested else f"{parent}/./x"
    calls = (
        lambda: [_native.item_key(volume, path, count, algorithm)],
        lambda: _native.item_keys(volume, [path], count, algorithm),
        lambda: _native.partition_keys(volume, parent, count),
        lambda: [_native.partition_key(volume, parent, count - 1)],
    )
    for call in calls:
        if excess > 0:
            with pytest.raises(InvalidPathError, match="longer than 2048 bytes"):
                call()
        else:
            assert call()


DECODABLE = [
    ("ks://v/-sf0", "a", "/a"),
    ("ks://v/a-sf9", "b", "/a/b"),
    ("ks://v/a-sf1-sf2", "x", "/a-sf1/x"),
    ("ks://v/-sf1-sf2", "x", "/-sf1/x"),
    ("ks://v/a-b/c-sf65535", "x:y", "/a-b/c/x:y"),
    ("ks://v/a b/é-sf3", "😀", "/a b/é/😀"),
]
NOT_DECODABLE = [
    ("ks://v/a", "b"),
    ("ks://v/a-sf", "b"),
    ("ks://v/a-sf01", "b"),
    ("ks://v/a-sf+1", "b"),
    ("ks://v/a-sf-1", "b"),
    ("ks://v/a-sf1 ", "b"),
    ("ks://v/a-sf65536", "b"),
    ("ks://v/a-sf\N{ARABIC-INDIC DIGIT ONE}", "b"),
    ("ks://v/a-xf1", "b"),
    ("ks://v/a-1", "b"),
    ("ks://v/a-", "b"),
    ("ks://v-sf1", "b"),
    ("ks://v", "b"),
    ("ks://w/a-sf1", "b"),
    ("ks://vv/a-sf1", "b"),
    ("ks:///a-sf1", "b"),
    ("s3k://v/a-sf1", "b"),
    ("s3k:volume", "record"),
    ("s3k:job", "b"),
    ("", "b"),
    ("ks://v/a/-sf1", "b"),
    ("ks://v//a-sf1", "b"),
    ("ks://v/a/../b-sf1", "b"),
    ("ks://v/../b-sf1", "b"),
    ("ks://v/./b-sf1", "b"),
    ("ks://v/a\0-sf1", "b"),
    ("ks://v/a-sf1", ""),
    ("ks://v/a-sf1", "."),
    ("ks://v/a-sf1", ".."),
    ("ks://v/a-sf1", "b/c"),
    ("ks://v/a-sf1", "b\0"),
    ("ks://v/a-sf1", "n" * 1025),
    ("ks://v/\ud800-sf1", "b"),
    ("ks://v/a-sf1", "\ud800"),
]


@pytest.mark.parametrize(("partition", "sort", "path"), DECODABLE)
def test_decode(partition: str, sort: str, path: str) -> None:
    assert _native.decode_key("v", partition, sort) == path
    assert _native.decode_keys("v", [partition] * 3, [sort] * 3) == [path] * 3


@pytest.mark.parametrize(("partition", "sort"), NOT_DECODABLE)
def test_other_keys_are_not_decoded(partition: str, sort: str) -> None:
    with pytest.raises(ItemFormatError) as one:
        _native.decode_key("v", partition, sort)
    with pytest.raises(ItemFormatError) as many:
        _native.decode_keys("v", ["ks://v/-sf0", partition, partition], ["a", sort, sort])
    assert (one.value.message, one.value.path) == (many.value.message, many.value.path)
    assert str(one.value).encode()


@given(
    VOLUMES,
    st.one_of(
        st.text(), st.builds("ks://v{}{}".format, SPELLINGS, st.sampled_from(["-sf1", "-sf", ""]))
    ),
    COMPONENTS,
)
def test_what_is_decoded_is_encoded_to_the_same(volume: str, partition: str, sort: str) -> None:
    try:
        path = _native.decode_key(volume, partition, sort)
    except ItemFormatError:
        return
    parent, name = _native.split(path)
    assert name == sort
    assert partition == _native.partition_key(volume, parent, int(partition.rpartition("-sf")[2]))


def test_as_many_sort_keys_as_partition_keys() -> None:
    with pytest.raises(ValueError, match="as many"):
        _native.decode_keys("v", ["ks://v/-sf0"], [])


@pytest.mark.parametrize("volume", ["", "a/b", "/", "a\0b", "\ud800"])
def test_bad_volume_names(volume: str) -> None:
    for call in (
        lambda: _native.partition_key(volume, "/", 0),
        lambda: _native.partition_keys(volume, "/", 1),
        lambda: _native.item_key(volume, "/a", 1, "xxh3"),
        lambda: _native.item_keys(volume, ["/a"], 1, "xxh3"),
        lambda: _native.decode_key(volume, "ks://v/-sf0", "a"),
        lambda: _native.decode_keys(volume, ["ks://v/-sf0"], ["a"]),
    ):
        with pytest.raises(InvalidPathError):
            call()


@pytest.mark.parametrize("index", [-1, 65_536, 2**70])
def test_suffixes_out_of_bounds_are_value_errors(index: int) -> None:
    with pytest.raises(ValueError, match="between 0 and 65535"):
        _native.partition_key("v", "/", index)


def test_items_of_one_directory_share_their_partition_key() -> None:
    partitions, _ = _native.item_keys("v", [f"/d/{number}" for number in range(100)], 4, "xxh3")
    assert len(partitions) == 100
    assert len({id(partition) for partition in partitions}) == 4
