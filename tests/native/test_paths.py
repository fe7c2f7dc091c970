"""Logical paths."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async._core import paths
from s3k_async.errors import InvalidPathError
from tests.native import oracle
from tests.native.strategies import COMPONENTS, NAMES, PATHS, SPELLINGS


@pytest.mark.parametrize(
    ("given_path", "normal"),
    [
        ("/", "/"),
        ("//", "/"),
        (".", "/"),
        ("./", "/"),
        ("/a/..", "/"),
        ("a", "/a"),
        ("a/b", "/a/b"),
        ("/a/", "/a"),
        ("//a///b//", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/a/b/../..", "/"),
        ("/...", "/..."),
        ("/.a/b.", "/.a/b."),
        ("/c%20d/a b", "/c%20d/a b"),
        ("/x#y?z\\w", "/x#y?z\\w"),
        ("/x:y", "/x:y"),
        ("s3k://v/a", "/s3k:/v/a"),
        ("/é/😀", "/é/😀"),
        ("/e\N{COMBINING ACUTE ACCENT}", "/e\N{COMBINING ACUTE ACCENT}"),
    ],
)
def test_normalize(given_path: str, normal: str) -> None:
    assert paths.normalize(given_path) == normal
    assert paths.normalize_many([given_path, given_path]) == [normal, normal]


LONGEST_PATH = 2048 + 1 + 1024
"""Bytes: a partition key, a slash and a name."""
BAD = [
    ("", "empty"),
    ("/a\0b", "NUL"),
    ("..", "above the root"),
    ("/..", "above the root"),
    ("/a/../../b", "above the root"),
    ("/" + "n" * 1025, "longer than 1024 bytes"),
    ("/" + "é" * 513 + "/x", "longer than 1024 bytes"),
    ("/a\ud800", "UTF-8"),
    ("\udcff", "UTF-8"),
]


@pytest.mark.parametrize(("path", "reason"), BAD)
def test_bad_paths_are_refused_by_name(path: str, reason: str) -> None:
    shown = path.encode("utf-8", "backslashreplace").decode()
    for call in (
        lambda: paths.normalize(path),
        lambda: paths.normalize_many(["/fine", path, "/fine"]),
        lambda: paths.split(path),
        lambda: paths.join(path, "x"),
        lambda: paths.ancestors(path),
        lambda: _native.item_key("v", path, 10, "xxh3"),
        lambda: _native.item_keys("v", ["/fine", path], 10, "xxh3"),
        lambda: _native.partition_key("v", path, 0),
        lambda: _native.partition_keys("v", path, 10),
    ):
        with pytest.raises(InvalidPathError, match=reason) as caught:
            call()
        assert caught.value.path == shown
        assert str(caught.value).encode()
        assert pickle.loads(pickle.dumps(caught.value)).path == shown


def test_names_of_1024_bytes_are_accepted() -> None:
    for name in ("n" * 1024, "é" * 512, "😀" * 256):
        assert paths.normalize("/a/" + name) == "/a/" + name
        assert paths.join("/", name) == "/" + name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0", "n" * 1025, "\ud800"])
def test_join_takes_one_component(name: str) -> None:
    with pytest.raises(InvalidPathError):
        paths.join("/a", name)


def test_the_ancestors_of_a_path_too_long_for_a_key_are_not_made() -> None:
    longest = "/a" * 1536
    assert len(paths.ancestors(longest)) == 1535
    for components in (1537, 500_000):
        with pytest.raises(InvalidPathError, match="longer than 2048"):
            paths.ancestors("/a" * components)


def test_split_and_ancestors() -> None:
    assert paths.split("/a") == ("/", "a")
    assert paths.split("a//b/./c/") == ("/a/b", "c")
    assert paths.ancestors("/a/b/c") == ["/a", "/a/b"]
    assert paths.ancestors("/a") == []
    assert paths.ancestors("/") == []
    for root in ("/", "//", "a/.."):
        with pytest.raises(InvalidPathError, match="root") as caught:
            paths.split(root)
        assert caught.value.path == root


@given(SPELLINGS)
def test_normalize_as_the_oracle(path: str) -> None:
    try:
        wanted = oracle.normalize(path)
    except oracle.RefusedError:
        with pytest.raises(InvalidPathError):
            paths.normalize(path)
        with pytest.raises(InvalidPathError):
            paths.normalize_many([path])
        return
    assert paths.normalize(path) == wanted
    assert paths.normalize(wanted) == wanted
    if len(wanted.encode()) > LONGEST_PATH:
        with pytest.raises(InvalidPathError, match="longer than 2048"):
            paths.ancestors(path)
        return
    assert paths.ancestors(path) == [
        f"/{'/'.join(wanted.split('/')[1:end])}" for end in range(2, wanted.count("/") + 1)
    ]


@given(SPELLINGS)
def test_split_as_the_oracle(path: str) -> None:
    try:
        wanted = oracle.split(path)
    except oracle.RefusedError:
        with pytest.raises(InvalidPathError):
            paths.split(path)
        return
    assert paths.split(path) == wanted
    assert paths.join(*wanted) == paths.normalize(path)


@given(SPELLINGS, COMPONENTS)
def test_join_as_the_oracle(parent: str, name: str) -> None:
    try:
        wanted = oracle.join(parent, name)
    except oracle.RefusedError:
        with pytest.raises(InvalidPathError):
            paths.join(parent, name)
        return
    assert paths.join(parent, name) == wanted


@given(
    st.lists(
        st.one_of(
            PATHS,
            NAMES,
            PATHS.map(lambda path: path + "//./"),
            st.sampled_from(["/", "//x", "./x"]),
        ),
        max_size=40,
    )
)
def test_many_as_one_at_a_time(many: list[str]) -> None:
    assert paths.normalize_many(many) == [paths.normalize(path) for path in many]


@given(
    st.lists(
        SPELLINGS.filter(lambda path: "\ud800" not in path and "\udc80" not in path), max_size=12
    )
)
def test_many_fail_on_the_first_bad_one(many: list[str]) -> None:
    bad = [path for path in many if not _is_fine(path)]
    if not bad:
        assert paths.normalize_many(many) == [paths.normalize(path) for path in many]
        return
    with pytest.raises(InvalidPathError) as one:
        paths.normalize(bad[0])
    with pytest.raises(InvalidPathError) as all_of_them:
        paths.normalize_many(many)
    assert (all_of_them.value.message, all_of_them.value.path) == (
        one.value.message,
        one.value.path,
    )


def _is_fine(path: str) -> bool:
    try:
        oracle.normalize(path)
    except oracle.RefusedError:
        return False
    return True


def test_a_string_is_no_list_of_paths() -> None:
    with pytest.raises(TypeError):
        paths.normalize_many("/a")
    with pytest.raises(TypeError):
        paths.normalize_many(["/a", b"/b"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        paths.normalize(b"/a")  # type: ignore[arg-type]


def test_any_sequence_of_strings_will_do() -> None:
    assert paths.normalize_many(("a", "b")) == ["/a", "/b"]
    assert paths.normalize_many([]) == []


def test_what_comes_back_is_plain_text() -> None:
    class Path(str):
        __slots__ = ()

    for answer in (paths.normalize(Path("/a")), *paths.normalize_many([Path("/a"), Path("b")])):
        assert type(answer) is str
