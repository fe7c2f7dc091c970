"""Hadoop's glob syntax, and what `glob_status` answers."""

from __future__ import annotations

import pytest

from s3k_async.adapters.hadoop.glob import components, expand
from s3k_async.errors import InvalidArgumentError, InvalidPathError
from tests.hadoop.ground import Ground


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("plain", ["plain"], ["plai", "plainx", "PLAIN"]),
        ("*", ["a", ".hidden", "a\nb"], []),
        ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
        ("part-*", ["part-", "part-0001"], ["apart-1"]),
        ("**", ["a", "abc"], []),
        ("[abc]x", ["ax", "cx"], ["dx", "x", "abx"]),
        ("[a-c]x", ["bx"], ["dx", "-x"]),
        ("[^a-c]x", ["dx", "-x"], ["bx"]),
        ("[!a]x", ["bx", "!x"], ["ax"]),
        ("[]a]x", ["]x", "ax"], ["bx"]),
        ("[a\\]]x", ["ax", "]x"], ["\\x"]),
        ("[\\d]x", ["dx"], ["1x"]),
        ("[&&a]x", ["&x", "ax"], ["bx"]),
        ("{a,b}.txt", ["a.txt", "b.txt"], ["c.txt", "{a,b}.txt"]),
        ("{a,b{1,2}}", ["a", "b1", "b2"], ["b", "a1"]),
        ("{a*,b?}", ["a", "aaa", "b1"], ["b"]),
        ("a{,b}", ["a", "ab"], ["b"]),
        ("\\*\\{", ["*{"], ["a{", "\\*\\{"]),
        ("a\\**", ["a*", "a*b"], ["ab"]),
        ("a.b+(c)$|^", ["a.b+(c)$|^"], ["aXb+(c)$|^"]),
        ("*.b+(c)$|^", ["a.b+(c)$|^"], ["aXb+(c)$|^"]),
        ("a,b}*", ["a,b}", "a,b}c"], ["a"]),
    ],
)
def test_what_a_component_matches(pattern: str, fitting: list[str], others: list[str]) -> None:
    [component] = components(pattern)
    assert [name for name in fitting if not component.matches(name)] == []
    assert [name for name in others if component.matches(name)] == []


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("/a/{b,c}", ["/a/{b,c}"]),
        ("/a/{b/c,d}/e*", ["/a/b/c/e*", "/a/d/e*"]),
        ("{/a/{x,y},/b}/z", ["/a/{x,y}/z", "/b/z"]),
        ("/{a,b}/{c/d,e}", ["/{a,b}/c/d", "/{a,b}/e"]),
        ("/a\\{b,c/d\\}", ["/a\\{b,c/d\\}"]),
        ("/[{]/a,b}", ["/[{]/a,b}"]),
    ],
)
def test_alternatives_with_a_slash_become_patterns(pattern: str, expanded: list[str]) -> None:
    assert expand(pattern) == expanded


@pytest.mark.parametrize("pattern", ["/a{b", "/a[b", "/{a/b", "/*\\", "/[z-a]"])
def test_a_malformed_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        [components(expanded) for expanded in expand(pattern)]
    assert raised.value.path


@pytest.mark.parametrize("pattern", ["", "/../*"])
def test_a_pattern_that_is_no_path_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPathError):
        components(pattern)


@pytest.mark.asyncio(loop_scope="session")
class TestGlobStatus:
    async def matches(self, ground: Ground, pattern: str) -> list[str] | None:
        found = await ground.fs.glob_status(pattern)
        return (
            None
            if found is None
            else [status.path.removeprefix(ground.fs.get_uri()) for status in found]
        )

    async def test_whole_paths(self, ground: Ground) -> None:
        for path in (
            "2026/01/a.csv",
            "2026/02/a.csv",
            "2026/02/b.txt",
            "2027/01/a.csv",
            "2027/.hidden/x",
            "file",
        ):
            await ground.write(ground.path(path))

        assert await self.matches(ground, "/2026/*/a.csv") == ["/2026/01/a.csv", "/2026/02/a.csv"]
        assert await self.matches(ground, "/{2026/02,2027/01}/*.csv") == [
            "/2026/02/a.csv",
            "/2027/01/a.csv",
        ]
        assert await self.matches(ground, "/202[67]/0[^1]/*") == [
            "/2026/02/a.csv",
            "/2026/02/b.txt",
        ]
        assert await self.matches(ground, ground.path("*")) == ["/2026", "/2027", "/file"]
        assert await self.matches(ground, "*/01/../02/b.txt") == ["/2026/02/b.txt"]
        assert await self.matches(ground, "/2027/*") == ["/2027/.hidden", "/2027/01"]
        assert await self.matches(ground, "/2026/02/{b.txt,a.csv}") == [
            "/2026/02/a.csv",
            "/2026/02/b.txt",
        ]
        assert await self.matches(ground, "/2026/02") == ["/2026/02"]
        assert await self.matches(ground, "/") == ["/"]

    async def test_nothing_matches(self, ground: Ground) -> None:
        await ground.write(ground.path("file"))

        assert await self.matches(ground, "/absent/*") == []
        assert await self.matches(ground, "/file/*") == []
        assert await self.matches(ground, "/*/below") == []
        assert await self.matches(ground, "/{x/y,z}") == []
        assert await self.matches(ground, "/absent") is None
        assert await self.matches(ground, "/file/below") is None

    async def test_escapes_name_special_characters(self, ground: Ground) -> None:
        await ground.write(ground.path("a*b"))
        await ground.write(ground.path("aXb"))

        assert await self.matches(ground, "/a\\*b") == ["/a*b"]
        assert await self.matches(ground, "/a[*]b") == ["/a*b"]
        assert await self.matches(ground, "/a*b") == ["/a*b", "/aXb"]

    async def test_a_filter_sees_whole_paths(self, ground: Ground) -> None:
        await ground.write(ground.path("a/x"))
        await ground.write(ground.path("b/x"))

        found = await ground.fs.glob_status("/*/x", lambda path: path == ground.path("b/x"))

        assert found is not None
        assert [status.path for status in found] == [ground.path("b/x")]

    async def test_many_alternatives_make_a_long_component(self, ground: Ground) -> None:
        await ground.write(ground.path("part-0007"))

        pattern = "/{" + ",".join(f"part-{number:04d}" for number in range(500)) + "}"

        assert await self.matches(ground, pattern) == ["/part-0007"]
