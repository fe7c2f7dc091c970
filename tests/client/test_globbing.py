"""Glob patterns: against an oracle that looks at every path, and what is listed on the way."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from s3k_async.client import S3kClient
from s3k_async.errors import InvalidArgumentError, InvalidPathError
from s3k_async.listing.globbing import expand_braces, glob_entries, matcher
from s3k_async.model import Entry
from s3k_async.table.keys import Directory, KeyScheme
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.engines.volumes import volume_backends

NAMES = ("a", "b", "ab", "abc", ".hid", "[x]", "a*", "{q}", "é")
FILES = sorted(
    {
        "/" + "/".join(parts)
        for depth in (1, 2, 3)
        for parts in itertools.product(NAMES[:5], repeat=depth)
    }
    | {f"/dir/{name}/leaf" for name in NAMES}
)
DIRECTORIES = {path.rpartition("/")[0] for path in FILES if path.count("/") > 1}
TREE = dict.fromkeys(FILES, False) | dict.fromkeys(DIRECTORIES | {"/dir"}, True)
"""Every path of the tree, and whether it is a directory."""


def oracle(pattern: str) -> set[str]:
    """What matches: the pattern as one regular expression over whole paths, one for each brace
    alternative."""
    return {
        path
        for text in oracle_braces(pattern)
        for path in ("/", *TREE)
        if re.fullmatch(oracle_expression(text), path)
    }


def oracle_braces(pattern: str) -> set[str]:
    """By taking the innermost group first; the patterns here have no commas or braces inside of
    sets."""
    inner = re.search(r"\{([^{}]*)\}", pattern)
    if inner is None:
        return {pattern}
    return {
        text
        for choice in inner[1].split(",")
        for text in oracle_braces(pattern[: inner.start()] + choice + pattern[inner.end() :])
    }


def oracle_expression(pattern: str) -> str:
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if not parts:
        return "/"
    text = ""
    for place, part in enumerate(parts):
        if part == "**":
            text += "(?:/[^/]+)+" if place == len(parts) - 1 else "(?:/[^/]+)*"
        else:
            text += "/(?=[^/])" + oracle_component(part)
    return text


def oracle_component(part: str) -> str:
    text, place = "", 0
    while place < len(part):
        character = part[place]
        end = part.find("]", place + 2 + (part[place + 1 : place + 2] == "!"))
        if character == "[" and end > 0:
            inside = part[place + 1 : end]
            negative = inside.startswith("!")
            escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[negative:])
            text += f"[{'^/' if negative else ''}{escaped}]"
            place = end + 1
            continue
        text += {"*": "[^/]*", "?": "[^/]"}.get(character, re.escape(character))
        place += 1
    return text


components = st.lists(
    st.sampled_from(
        ["a", "b", "c", "ab", "*", "?", "[ab]", "[!a]", "[a-b]", ".", "hid", "[[]", "[]]", "x"]
    ),
    min_size=1,
    max_size=3,
).map("".join)
plain = st.lists(st.one_of(components, st.just("**"), st.just("dir")), max_size=4).map("/".join)


def braced(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.lists(inside, min_size=1, max_size=3).map(
        lambda choices: "{" + ",".join(choices) + "}"
    )
    return st.tuples(
        st.sampled_from(["", "a", "*", "**/", "/"]), group, st.sampled_from(["", "b", "/*", "*"])
    ).map("".join)


patterns = st.recursive(plain, braced, max_leaves=4).filter(
    lambda pattern: (
        bool(pattern) and ".." not in pattern.replace("{", "").replace("}", "").replace(",", "/")
    )
)


class _Tree:
    """The tree in memory as globbing reads one; counts the directories that are listed."""

    def __init__(self) -> None:
        self.keys = KeyScheme("v", 1)
        self.listed: list[str] = []
        self.asked: list[str] = []

    async def get(self, path: str) -> Entry | None:
        return (await self.get_many([path]))[0]

    async def get_many(self, paths: Sequence[str]) -> list[Entry | None]:
        self.asked += paths
        return [
            entry(path, TREE[path]) if path in TREE else entry("/", True) if path == "/" else None
            for path in paths
        ]

    async def children(self, directory: Directory) -> AsyncIterator[list[Entry]]:
        self.listed.append(directory.path)
        parent = directory.path.rstrip("/")
        found = [
            entry(each, is_dir)
            for each, is_dir in TREE.items()
            if each.rpartition("/")[0] == parent
        ]
        yield found[: len(found) // 2]
        yield found[len(found) // 2 :]


def entry(path: str, is_dir: bool) -> Entry:
    return Entry(path, is_dir, "id", 2, 0, 0, committed=not is_dir)


@given(pattern=patterns)
@example("**")
@example("/**/a")
@example("a/**/b")
@example("**/**/leaf")
@example("{a,b}/**/{ab,abc}")
@example("{a,b/{a,ab}}/*")
@example("dir/[[]x]/leaf")
@example("dir/{[[]x],a}/leaf")
@example("/")
@example("{a,a}")
@settings(max_examples=200, deadline=None)
async def test_globbing_finds_what_looking_at_every_path_finds(pattern: str) -> None:
    tree = _Tree()
    found = [each.path async for page in glob_entries(tree, pattern) for each in page]
    assert sorted(found) == sorted(oracle(pattern))
    assert len(tree.listed) == len(set(tree.listed))


@given(pattern=patterns)
@settings(max_examples=200, deadline=None)
async def test_a_relative_path_matches_as_it_would_be_found(pattern: str) -> None:
    matches = matcher(pattern)
    assert {path for path in TREE if matches(path.lstrip("/"))} == oracle(pattern) - {"/"}


@pytest.mark.parametrize(
    ("pattern", "listed", "asked"),
    [
        ("/a/b/ab", [], ["/a/b/ab"]),
        ("/a/b/*", ["/a/b"], ["/a/b"]),
        ("/a/*/ab", ["/a"], ["/a"] + [f"/a/{name}/ab" for name in NAMES[:5]]),
        ("/{a,b}/ab", [], ["/a", "/b", "/a/ab", "/b/ab"]),
        ("/none/*/x", [], ["/none"]),
        ("/a/none*/**", ["/a"], ["/a"]),
        ("/dir/[[]x]/*", ["/dir", "/dir/[x]"], ["/dir"]),
        ("/a/b/*/x", ["/a/b"], ["/a/b"]),
        ("/a/b/a/*", [], ["/a/b/a"]),
    ],
)
async def test_only_directories_that_can_match_are_looked_into(
    pattern: str, listed: list[str], asked: list[str]
) -> None:
    tree = _Tree()
    async for _ in glob_entries(tree, pattern):
        pass
    assert sorted(tree.listed) == sorted(listed)
    assert sorted(tree.asked) == sorted(asked)


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("a", ["a"]),
        ("{a,b}c", ["ac", "bc"]),
        ("{a,b}{c,d}", ["ac", "ad", "bc", "bd"]),
        ("x{a,{b,c}d}", ["xa", "xbd", "xcd"]),
        ("{a,}", ["a", ""]),
        ("{a/b,c}/d", ["a/b/d", "c/d"]),
        ("{a", ["{a"]),
        ("a}", ["a}"]),
        ("{a{b,c}", ["{ab", "{ac"]),
        ("[{]a,b}", ["[{]a,b}"]),
        ("{[,],b}", ["[,]", "b"]),
        ("{a,b]}", ["a", "b]"]),
        ("[{a,b}", ["[a", "[b"]),
        ("{}", [""]),
    ],
)
def test_braces(pattern: str, expanded: list[str]) -> None:
    assert expand_braces(pattern) == expanded


@pytest.mark.parametrize("pattern", ["", "a\0", "/..", "a/../b", "{a,..}"])
async def test_patterns_that_name_nothing(pattern: str) -> None:
    with pytest.raises(InvalidPathError):
        [page async for page in glob_entries(_Tree(), pattern)]


async def test_a_pattern_of_too_many_alternatives() -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        [page async for page in glob_entries(_Tree(), "{a,b}" * 30)]
    assert raised.value.path == "{a,b}" * 30


@volume_backends("memory", "embedded")
async def test_globbing_a_volume(fs: S3kClient) -> None:
    for path in (
        "/logs/day=1/part-0",
        "/logs/day=1/part-1",
        "/logs/day=2/part-0",
        "/logs/_SUCCESS",
        "/other/day=1/x",
    ):
        await fs.write(path, b"1")

    async def found(pattern: str) -> set[str]:
        return {status.path async for status in fs.glob(pattern)}

    assert await found("/logs/day=*/part-0") == {"/logs/day=1/part-0", "/logs/day=2/part-0"}
    assert await found("logs/*") == {"/logs/day=1", "/logs/day=2", "/logs/_SUCCESS"}
    assert await found(f"s3k://{fs.name}/**/part-[!0]") == {"/logs/day=1/part-1"}
    assert await found("/{logs,other}/day=1/*") == {
        "/logs/day=1/part-0",
        "/logs/day=1/part-1",
        "/other/day=1/x",
    }
    assert await found("/logs/_SUCCESS") == {"/logs/_SUCCESS"}
    assert await found("/nothing*") == set()


async def test_a_glob_reads_only_the_partitions_of_matching_directories() -> None:
    config = memory_config()
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        for top in range(5):
            for below in range(5):
                await fs.write(f"/t{top}/b{below}/f", b"1")
        faults.calls.clear()
        assert [status.path async for status in fs.glob("/t3/b*/f")] != []
        queried = {call.key.rpartition("-sf")[0] for call in faults.calls if call.method == "query"}
        assert queried == {f"ks://{config.name}/t3"}
