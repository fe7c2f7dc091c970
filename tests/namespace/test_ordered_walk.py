"""Streams in order become one; trees are told in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async._native import Entries
from s3k_async.errors import ThrottledError
from s3k_async.model import Entry
from s3k_async.namespace.ordered_walk import AHEAD, in_order, resume_in_order, walk_in_order
from s3k_async.table.codec import in_columns
from s3k_async.table.keys import Directory, KeyScheme

KEYS = KeyScheme("v", 1)
NAMES = st.text(st.sampled_from("ab!-.é😀\uffff"), min_size=1, max_size=3).filter(
    lambda name: name not in {".", ".."}
)


def _directory(path: str) -> Entry:
    return Entry(path, True, "i", 1, 1, 1000)


def _page(paths: Sequence[str]) -> Entries:
    return in_columns([_directory(path) for path in paths], KEYS)


def _key(path: str) -> list[bytes]:
    return [name.encode() for name in path.split("/")]


def _in_order(paths: Sequence[str]) -> list[str]:
    return sorted(paths, key=_key)


class Stream:
    """Pages cut from paths in order, empty ones among them; it knows how far it was read and
    whether it was left."""

    def __init__(
        self, paths: Sequence[str], sizes: Sequence[int], error: Exception | None = None
    ) -> None:
        self.pages = []
        rest = _in_order(paths)
        for size in sizes:
            self.pages.append(rest[:size])
            rest = rest[size:]
        self.pages.append(rest)
        self.error = error
        self.read = 0
        self.left = False

    async def __call__(self) -> AsyncGenerator[Entries, None]:
        try:
            for page in self.pages:
                await asyncio.sleep(0)
                self.read += 1
                yield _page(page)
            if self.error is not None:
                raise self.error
        finally:
            self.left = True


SIZES = st.lists(st.integers(0, 3), max_size=6)


@given(st.lists(st.tuples(st.lists(NAMES, max_size=8), SIZES), max_size=5))
def test_streams_become_one(parts: list[tuple[list[str], list[int]]]) -> None:
    streams = [Stream([f"/d/{name}" for name in set(names)], sizes) for names, sizes in parts]

    async def told() -> list[str]:
        return [
            path
            async for page in in_order([stream() for stream in streams])
            for path in page.paths()
        ]

    assert asyncio.run(told()) == _in_order(
        [f"/d/{name}" for names, _ in parts for name in set(names)]
    )
    assert all(stream.left for stream in streams)


async def test_no_more_than_two_pages_of_a_stream_are_read_ahead() -> None:
    streams = [Stream([f"/{letter}{number}" for number in range(9)], [1] * 9) for letter in "ab"]
    found = in_order([stream() for stream in streams])
    assert (await anext(found)).paths() == ["/a0"]
    # The names of the second stream all come later: it waits with one page held and one read.
    for number in range(1, 8):
        assert (await anext(found)).paths() == [f"/a{number}"]
        assert streams[1].read <= 2
    await found.aclose()
    assert all(stream.left for stream in streams)


async def test_more_streams_than_are_read_at_a_time() -> None:
    streams = [Stream([f"/{number:03}", f"/{number + 500:03}"], [1]) for number in range(150)]
    paths = [
        path async for page in in_order([stream() for stream in streams]) for path in page.paths()
    ]
    assert paths == sorted(path for stream in streams for page in stream.pages for path in page)


async def test_an_error_of_a_stream_ends_all() -> None:
    streams = [Stream(["/a", "/c"], [1]), Stream(["/b"], [], ThrottledError("slow down"))]
    with pytest.raises(ThrottledError):
        [page async for page in in_order([stream() for stream in streams])]
    assert all(stream.left for stream in streams)


class Reader:
    """A tree of directories."""

    def __init__(self, paths: set[str], size: int) -> None:
        self.paths = paths
        self.size = size
        self.keys = KeyScheme("v", 1)
        self.open = 0

    async def children_in_order(
        self, directory: Directory, *, after: str = "", rows: int | None = None
    ) -> AsyncGenerator[Entries, None]:
        self.open += 1
        above = directory.path.rstrip("/")
        try:
            children = _in_order(
                [
                    child
                    for child in self.paths
                    if child.rpartition("/")[0] == above
                    and child.rpartition("/")[2].encode() > after.encode()
                ]
            )
            for start in range(0, len(children), self.size):
                yield _page(children[start : start + self.size])
        finally:
            self.open -= 1


@given(st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=10), st.integers(1, 3))
def test_trees_are_told_in_order(lists: list[list[str]], size: int) -> None:
    paths = {"/" + "/".join(names[:depth]) for names in lists for depth in range(1, len(names) + 1)}
    reader = Reader(paths, size)

    async def told() -> list[str]:
        return [
            path async for page in walk_in_order(reader, Directory.at("/")) for path in page.paths()
        ]

    assert asyncio.run(told()) == _in_order(list(paths))
    assert reader.open == 0


@given(
    st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=10),
    st.lists(NAMES, min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_a_walk_resumes_after_a_path(lists: list[list[str]], after: list[str], size: int) -> None:
    paths = {"/" + "/".join(names[:depth]) for names in lists for depth in range(1, len(names) + 1)}
    reader = Reader(paths, size)
    above = ["/", *("/" + "/".join(after[:depth]) for depth in range(1, len(after) + 1))]
    places = zip(above, [*after, ""], strict=True)
    levels = [(Directory.at(path), name) for path, name in places if path in {"/", *paths}]

    async def told() -> list[str]:
        walk = resume_in_order(reader, levels)
        return [path async for page in walk for path in page.paths()]

    last = _key(above[-1])
    assert asyncio.run(told()) == [path for path in _in_order(list(paths)) if _key(path) > last]
    assert reader.open == 0


class Listings:
    """A directory of eight empty ones; reading `/5` fails."""

    keys = KEYS

    def __init__(self) -> None:
        self.begun: list[str] = []

    async def children_in_order(
        self, directory: Directory, *, after: str = "", rows: int | None = None
    ) -> AsyncGenerator[Entries, None]:
        assert (after, rows) in (("", None), ("", 1))
        self.begun.append(directory.path)
        if directory.path == "/5":
            raise ThrottledError("too many requests", path="/5")
        yield _page([f"/{number}" for number in range(8)] if directory.path == "/" else [])


async def test_some_directories_are_read_ahead() -> None:
    reader, found = Listings(), list[str]()
    async with aclosing(walk_in_order(reader, Directory.at("/"))) as walk:
        async for page in walk:
            found += page.paths()
            await asyncio.sleep(0)
            if found[-1] == "/1":
                assert reader.begun == ["/", *(f"/{number}" for number in range(1 + AHEAD))]
                break


async def test_an_error_of_a_directory_that_is_read_ahead_is_raised_in_its_turn() -> None:
    found: list[str] = []

    async def read() -> None:
        async for page in walk_in_order(Listings(), Directory.at("/")):
            found.extend(page.paths())

    with pytest.raises(ThrottledError):
        await read()
    assert found == [f"/{number}" for number in range(6)]


async def test_nothing_is_read_ahead_for_a_few_rows() -> None:
    reader = Listings()
    async with aclosing(resume_in_order(reader, [(Directory.at("/"), "")], rows=1)) as walk:
        async for page in walk:
            if page.paths() == ["/1"]:
                break
    assert reader.begun == ["/", "/0"]


async def test_a_walk_that_is_left_closes_its_listings() -> None:
    reader = Reader({"/a", "/a/b", "/a/b/c", "/d"}, 1)
    walk = walk_in_order(reader, Directory.at("/"))
    found: AsyncIterator[Entries] = walk
    assert [(await anext(found)).paths() for _ in range(3)] == [["/a"], ["/a/b"], ["/a/b/c"]]
    assert reader.open > 1
    await walk.aclose()
    assert reader.open == 0
