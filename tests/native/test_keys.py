"""Table keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.errors import InvalidPathError, ItemFormatError
from s3k_async.model import HashName
from tests.native import oracle
from tests.native.strategies import (
    COMPONENTS,
    COUNTS,
    DIRECTORY_IDS,
    ENTRY_KEY_SPELLINGS,
    ENTRY_KEYS,
    HASHES,
    NAMES,
    PATHS,
    SPELLINGS,
    VOLUMES,
)


def test_the_layout_of_keys() -> None:
    assert _native.item_key("bucket", "/a/b", 10, "java31") == ("ks://bucket/a-sf8", "b")
    assert _native.item_key("bucket", "/a", 10, "java31") == ("ks://bucket/-sf7", "a")
    assert _native.item_key("bucket", "/logs/part-00000", 80, "java31") == (
        "ks://bucket/logs-sf10",
        "part-00000",
    )
    assert _native.item_key("bucket", "/a b//é", 3, "java31") == ("ks://bucket/a b-sf2", "é")
    assert _native.partition_key("bucket", "/", 4) == "ks://bucket/-sf4"
    assert _native.partition_key("bucket", "/a/b/", 0) == "ks://bucket/a/b-sf0"
    assert _native.partition_keys("bucket", "/", 3) == [
        "ks://bucket/-sf0",
        "ks://bucket/-sf1",
        "ks://bucket/-sf2",
    ]
    assert _native.partition_keys("bucket", "/a", 12)[9:] == [
        "ks://bucket/a-sf9",
        "ks://bucket/a-sf10",
        "ks://bucket/a-sf11",
    ]


ROOT_ID = "00000000-0000-4000-8000-000000000000"
DIRECTORY_ID = "0b8a4b8e-5b1c-4d8f-9f43-2f6e2d0a7c11"


def test_the_keys_of_layout_tree() -> None:
    assert _native.item_key(None, f"{ROOT_ID}/a", 10, "java31") == (f"s3k:tree/{ROOT_ID}-sf7", "a")
    assert _native.item_key(None, f"{DIRECTORY_ID}/part-00000", 80, "java31") == (
        f"s3k:tree/{DIRECTORY_ID}-sf10",
        "part-00000",
    )
    assert _native.partition_key(None, ROOT_ID, 4) == f"s3k:tree/{ROOT_ID}-sf4"
    assert _native.partition_keys(None, "A_z-9", 12)[9:] == [
        "s3k:tree/A_z-9-sf9",
        "s3k:tree/A_z-9-sf10",
        "s3k:tree/A_z-9-sf11",
    ]
    longest = _native.partition_key(None, "x" * 64, 65_535)
    assert len(longest) == 81
    assert _native.decode_key(None, longest, "a") == "x" * 64 + "/a"


@pytest.mark.parametrize(
    ("volume", "text", "message"),
    [
        ("v", "a/b", "does not begin with '/'"),
        ("v", "a", "does not begin with '/'"),
        ("v", f"{DIRECTORY_ID}/b", "does not begin with '/'"),
        ("v", ".", "does not begin with '/'"),
        ("v", "", "the path is empty"),
        (None, "/a/b", "a path is no key of layout 'tree'"),
        (None, "/", "a path is no key of layout 'tree'"),
        (None, "", "not an entry key of layout 'tree'"),
        (None, DIRECTORY_ID, "not an entry key of layout 'tree'"),
        (None, "a b/c", "not a directory id"),
        (None, "x" * 65 + "/c", "not a directory id"),
        (None, "a/b/c", "not a single name"),
        (None, "a/", "not a single name"),
        (None, "a//b", "not a single name"),
        (None, "a/..", "not a single name"),
        (None, "a/b\0", "NUL"),
        (None, "a/" + "n" * 1025, "longer than 1024 bytes"),
        (None, "a/\ud800", "UTF-8"),
    ],
)
def test_only_entry_keys_of_the_layout_have_keys(
    volume: str | None, text: str, message: str
) -> None:
    fine = "a/b" if volume is None else "/a/b"
    for call in (
        lambda: _native.item_key(volume, text, 10, "xxh3"),
        lambda: _native.item_keys(volume, [fine, text], 10, "xxh3"),
    ):
        with pytest.raises(InvalidPathError, match=message) as caught:
            call()
        assert caught.value.path == text.encode(errors="backslashreplace").decode()


@pytest.mark.parametrize(
    ("volume", "text", "message"),
    [
        ("v", "a", "does not begin with '/'"),
        ("v", ROOT_ID, "does not begin with '/'"),
        ("v", "a/b", "does not begin with '/'"),
        (None, "/", "a path is no key of layout 'tree'"),
        (None, "/a", "a path is no key of layout 'tree'"),
        (None, "", "not a directory id"),
        (None, "a/b", "not a directory id"),
        (None, "é", "not a directory id"),
        (None, "x" * 65, "not a directory id"),
    ],
)
def test_only_directory_keys_of_the_layout_have_partitions(
    volume: str | None, text: str, message: str
) -> None:
    for call in (
        lambda: _native.partition_key(volume, text, 0),
        lambda: _native.partition_keys(volume, text, 1),
    ):
        with pytest.raises(InvalidPathError, match=message) as caught:
            call()
        assert caught.value.path == text


def test_the_root_has_no_item() -> None:
    for root in ("/", "//", "/a/.."):
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


@given(ENTRY_KEY_SPELLINGS, COUNTS, HASHES)
def test_item_key_of_layout_tree_as_the_oracle(
    entry_key: str, count: int, algorithm: HashName
) -> None:
    try:
        wanted = oracle.item_key(None, entry_key, count, algorithm)
    except oracle.RefusedError:
        with pytest.raises(InvalidPathError) as one:
            _native.item_key(None, entry_key, count, algorithm)
        with pytest.raises(InvalidPathError) as many:
            _native.item_keys(None, ["a/fine", entry_key], count, algorithm)
        assert (one.value.message, one.value.path) == (many.value.message, many.value.path)
        return
    assert _native.item_key(None, entry_key, count, algorithm) == wanted
    assert _native.decode_key(None, *wanted) == entry_key
    directory, index = entry_key.partition("/")[0], int(wanted[0].rpartition("-sf")[2])
    assert _native.partition_key(None, directory, index) == wanted[0]
    assert _native.partition_keys(None, directory, index + 1)[-1] == wanted[0]


@given(VOLUMES, st.one_of(SPELLINGS, ENTRY_KEYS), COUNTS, HASHES)
def test_no_text_is_an_entry_key_of_both_layouts(
    volume: str, text: str, count: int, algorithm: HashName
) -> None:
    def is_key(volume: str | None) -> bool:
        try:
            return bool(_native.item_key(volume, text, count, algorithm))
        except InvalidPathError:
            return False

    assert not (is_key(volume) and is_key(None))


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
        st.one_of(
            NAMES.map(lambda name: f"/{name}"),
            NAMES.map(lambda name: f"/d/{name}"),
            PATHS.map(lambda path: path + "/"),
        ),
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


@given(st.lists(ENTRY_KEYS, max_size=60), COUNTS, HASHES)
def test_many_of_layout_tree_as_one_at_a_time(
    entry_keys: list[str], count: int, algorithm: HashName
) -> None:
    wanted = [_native.item_key(None, entry_key, count, algorithm) for entry_key in entry_keys]
    partitions, sorts = _native.item_keys(None, entry_keys, count, algorithm)
    assert list(zip(partitions, sorts, strict=True)) == wanted
    assert _native.decode_keys(None, partitions, sorts) == entry_keys


@pytest.mark.parametrize("volume", ["v", None])
def test_many_directories_and_suffixes_do_not_mix(volume: str | None) -> None:
    slash = "" if volume is None else "/"
    keys = [f"{slash}d{number % 3001}/{number}" for number in range(9000)]
    for count in (1, 7, 128, 129, 1000, 65_536):
        wanted = [oracle.item_key(volume, key, count, "xxh3") for key in keys]
        partitions, sorts = _native.item_keys(volume, keys, count, "xxh3")
        assert list(zip(partitions, sorts, strict=True)) == wanted
        assert _native.decode_keys(volume, partitions, sorts) == keys


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
    ("s3k:tree/a-sf1", "b"),
    (f"s3k:tree/{ROOT_ID}-sf1", "b"),
]
DECODABLE_IN_TREE = [
    (f"s3k:tree/{ROOT_ID}-sf0", "a", f"{ROOT_ID}/a"),
    ("s3k:tree/a-sf1-sf65535", "x:y", "a-sf1/x:y"),
    ("s3k:tree/--sf2", "...", "-/..."),
    ("s3k:tree/-sf1-sf2", "x", "-sf1/x"),
    (f"s3k:tree/{'x' * 64}-sf3", "😀", "x" * 64 + "/😀"),
    ("s3k:tree/a-sf1", "n" * 1024, "a/" + "n" * 1024),
]
NOT_DECODABLE_IN_TREE = [
    ("s3k:tree/-sf0", "b"),
    ("s3k:tree/a", "b"),
    ("s3k:tree/a-sf", "b"),
    ("s3k:tree/a-sf01", "b"),
    ("s3k:tree/a-sf-1", "b"),
    ("s3k:tree/a-sf65536", "b"),
    ("s3k:tree/a-1", "b"),
    ("s3k:tree/a b-sf1", "b"),
    ("s3k:tree/é-sf1", "b"),
    ("s3k:tree/\ud800-sf1", "b"),
    ("s3k:tree/a/b-sf1", "b"),
    ("s3k:tree//a-sf1", "b"),
    (f"s3k:tree/{'x' * 65}-sf1", "b"),
    ("s3k:tree-sf1", "b"),
    ("S3K:tree/a-sf1", "b"),
    ("s3k:root", "root"),
    ("ks://v/a-sf1", "b"),
    ("ks://v/-sf1", "b"),
    ("", "b"),
    ("s3k:tree/a-sf1", ""),
    ("s3k:tree/a-sf1", ".."),
    ("s3k:tree/a-sf1", "b/c"),
    ("s3k:tree/a-sf1", "b\0"),
    ("s3k:tree/a-sf1", "n" * 1025),
    ("s3k:tree/a-sf1", "\ud800"),
]


@pytest.mark.parametrize(
    ("volume", "partition", "sort", "entry_key"),
    [("v", *case) for case in DECODABLE] + [(None, *case) for case in DECODABLE_IN_TREE],
)
def test_decode(volume: str | None, partition: str, sort: str, entry_key: str) -> None:
    assert _native.decode_key(volume, partition, sort) == entry_key
    assert _native.decode_keys(volume, [partition] * 3, [sort] * 3) == [entry_key] * 3


@pytest.mark.parametrize(
    ("volume", "partition", "sort"),
    [("v", *case) for case in NOT_DECODABLE] + [(None, *case) for case in NOT_DECODABLE_IN_TREE],
)
def test_other_keys_are_not_decoded(volume: str | None, partition: str, sort: str) -> None:
    fine = "s3k:tree/a-sf0" if volume is None else "ks://v/-sf0"
    with pytest.raises(ItemFormatError) as one:
        _native.decode_key(volume, partition, sort)
    with pytest.raises(ItemFormatError) as many:
        _native.decode_keys(volume, [fine, partition, partition], ["a", sort, sort])
    assert (one.value.message, one.value.path) == (many.value.message, many.value.path)
    assert str(one.value).encode()


@given(
    st.one_of(st.none(), st.sampled_from(["v", "w"])),
    st.one_of(
        st.text(),
        st.builds("ks://v{}{}".format, SPELLINGS, st.sampled_from(["-sf1", "-sf", ""])),
        st.builds(
            "s3k:tree/{}{}".format,
            st.one_of(DIRECTORY_IDS, SPELLINGS),
            st.sampled_from(["-sf1", "-sf0", "-sf", "-sf01", ""]),
        ),
    ),
    COMPONENTS,
)
def test_what_is_decoded_is_encoded_to_the_same(
    volume: str | None, partition: str, sort: str
) -> None:
    try:
        wanted = oracle.decode_key(volume, partition, sort)
    except oracle.RefusedError:
        with pytest.raises(ItemFormatError):
            _native.decode_key(volume, partition, sort)
        return
    assert _native.decode_key(volume, partition, sort) == wanted
    directory, name = oracle.entry_key_parts(volume, wanted)
    assert name == sort
    index = int(partition.rpartition("-sf")[2])
    assert partition == _native.partition_key(volume, directory, index)


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


@pytest.mark.parametrize("volume", [1, b"v", ["v"]])
def test_a_volume_is_a_name_or_none(volume: Any) -> None:
    with pytest.raises(TypeError):
        _native.item_key(volume, "/a", 1, "xxh3")


@pytest.mark.parametrize("index", [-1, 65_536, 2**70])
def test_suffixes_out_of_bounds_are_value_errors(index: int) -> None:
    with pytest.raises(ValueError, match="between 0 and 65535"):
        _native.partition_key("v", "/", index)


@pytest.mark.parametrize(("volume", "directory"), [("v", "/d"), (None, "d")])
def test_items_of_one_directory_share_their_partition_key(
    volume: str | None, directory: str
) -> None:
    entry_keys = [f"{directory}/{number}" for number in range(100)]
    partitions, _ = _native.item_keys(volume, entry_keys, 4, "xxh3")
    assert len(partitions) == 100
    assert len({id(partition) for partition in partitions}) == 4
