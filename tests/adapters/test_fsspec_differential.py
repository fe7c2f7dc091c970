"""The answers of `s3k://` are those of fsspec's local filesystem, over random trees, paths and
patterns."""

from __future__ import annotations

import asyncio
import posixpath
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.level import FULL

NAMES = ["a", "b", "ab", "a.x", "b.x", ".a", "{a}", "[a]"]
PATTERNS = [
    *(
        "*",
        "**",
        "?",
        "a*",
        "*.x",
        "[ab]",
        "[!a]*",
        "[{]a}",
        "{a}",
        "{*",
        "[[]a]",
        "[a",
        "[]",
        "a",
        "a.x",
        ".*",
    ),
]

PHASES = [Phase.explicit, Phase.generate]
"""Not shrinking: the trees are small as they are, and every look at one is many calls."""

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
trees = st.dictionaries(
    paths, st.sampled_from([None, b"", b"1", b"12345"]), min_size=1, max_size=10
)
patterns = st.builds(
    lambda parts, slash: "/".join(parts) + slash,
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4),
    st.sampled_from(["", "/"]),
)
depths = st.sampled_from([None, 1, 2, 3])


class Pair:
    """A volume and a local directory that hold the same."""

    def __init__(self, fs: S3kFileSystem, directory: Path) -> None:
        self.sides: tuple[tuple[Any, str], ...] = (
            (fs, "/tree"),
            (LocalFileSystem(), str(directory)),
        )

    def build(self, tree: dict[str, bytes | None]) -> None:
        """The tree in place of what was there; None is a directory, and what is below a file is
        left out."""
        (fs, root), (_, directory) = self.sides
        if fs.exists(root):
            fs.rm(root, recursive=True)
        shutil.rmtree(directory, ignore_errors=True)
        for each, top in self.sides:
            each.makedirs(top)
        for path in sorted(tree, key=len):
            data = tree[path]
            if any(fs.isfile(f"{root}/{above}") for above in ancestors(path)) or fs.exists(
                f"{root}/{path}"
            ):
                continue
            for each, top in self.sides:
                each.makedirs(posixpath.dirname(f"{top}/{path}"), exist_ok=True)
                if data is None:
                    each.makedirs(f"{top}/{path}", exist_ok=True)
                else:
                    each.pipe_file(f"{top}/{path}", data)

    def ask(self, question: Any) -> list[Any]:
        """What each side says to `question(fs, root)`: paths relative to the root, or the builtin
        error."""
        return [answer(question, fs, root) for fs, root in self.sides]


def answer(question: Any, fs: Any, root: str) -> Any:
    try:
        return relative(question(fs, root), root)
    except (OSError, ValueError) as error:
        if isinstance(error, NotADirectoryError):
            return FileNotFoundError  # below a file there is nothing
        kinds = (FileNotFoundError, FileExistsError, IsADirectoryError, ValueError)
        return next((kind for kind in kinds if isinstance(error, kind)), OSError)


def relative(found: Any, root: str) -> Any:
    """Without the root, and without what no two filesystems agree on."""
    if isinstance(found, str):
        return "." + found.removeprefix(root) if found.startswith(root) else found
    if isinstance(found, dict) and "type" in found:
        size = found["size"] if found["type"] == "file" else 0
        return {"name": relative(found["name"], root), "type": found["type"], "size": size}
    if isinstance(found, dict):
        return {relative(key, root): relative(value, root) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [relative(each, root) for each in found]
    return found


def ancestors(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    config = memory_config()
    asyncio.run(init_volume(config))
    fs = S3kFileSystem(config=config)
    yield Pair(fs, tmp_path_factory.mktemp("local") / "tree")
    fs.close_session()


EXAMPLES = 100 if FULL else 6
examples = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES
)


@examples
@given(trees, st.lists(patterns, min_size=4, max_size=12), depths, st.booleans())
@example(
    {"a/b": b"1", "ab/a": None},
    ["**", "**/", "**/**", "*/**", "a/**", "**/b", "a*/**/", "**/a*"],
    1,
    True,
)
@example(
    {"{a}": b"1", "[a]": None, "{a}x": b""}, ["{a}*", "[{]a}", "[[]a]", "[a", "{*"], None, True
)
def test_glob(
    pair: Pair, tree: dict[str, bytes | None], wanted: list[str], depth: int | None, dirs: bool
) -> None:
    pair.build(tree)
    for pattern in wanted:
        found = pair.ask(
            lambda fs, root, pattern=pattern: fs.glob(f"{root}/{pattern}", maxdepth=depth)
        )
        assert found[0] == found[1], pattern
        found = pair.ask(
            lambda fs, root, pattern=pattern: fs.glob(
                f"{root}/{pattern}", detail=True, withdirs=dirs, maxdepth=depth
            )
        )
        assert found[0] == found[1], pattern


@examples
@given(trees, st.lists(paths, min_size=1, max_size=4), depths)
def test_looking(
    pair: Pair, tree: dict[str, bytes | None], some: list[str], depth: int | None
) -> None:
    pair.build(tree)
    for path in ["", "/", *some, *(f"{each}/" for each in some), *list(tree)[:4]]:
        questions = [
            lambda fs, p: fs.exists(p),
            lambda fs, p: fs.isdir(p),
            lambda fs, p: fs.isfile(p),
            lambda fs, p: fs.info(p),
            lambda fs, p: sorted(fs.ls(p, detail=False)),
            lambda fs, p: sorted(fs.ls(p, detail=True), key=lambda info: info["name"]),
            lambda fs, p: fs.find(p, maxdepth=depth),
            lambda fs, p: fs.find(p, maxdepth=depth, withdirs=True, detail=True),
            lambda fs, p: fs.find(p, maxdepth=0),
            lambda fs, p: fs.du(p, maxdepth=depth),
            lambda fs, p: fs.du(p, maxdepth=depth, total=False),
            lambda fs, p: fs.cat(p),
            lambda fs, p: fs.cat_file(p, 0, 2),
            lambda fs, p: fs.size(p) if fs.isfile(p) else None,
            lambda fs, p: fs.expand_path(p),
            lambda fs, p: fs.expand_path(p, recursive=True, maxdepth=depth),
            lambda fs, p: walked(fs, p, maxdepth=depth),
            lambda fs, p: walked(fs, p, maxdepth=depth, topdown=False),
            lambda fs, p: walked(fs, p, detail=True),
            lambda fs, p: walked(fs, p, on_error="raise"),
        ]
        for number, question in enumerate(questions):
            mine, theirs = pair.ask(
                lambda fs, root, question=question, path=path: question(fs, f"{root}/{path}")
            )
            assert mine == theirs, (number, path)


def walked(fs: Any, path: str, **options: Any) -> list[Any]:
    steps = [(step[0], order(step[1]), order(step[2])) for step in fs.walk(path, **options)]
    return sorted(steps, key=lambda step: str(step[0]))


def order(names: Any) -> Any:
    return dict(sorted(names.items())) if isinstance(names, dict) else sorted(names)


def test_a_walk_goes_only_where_it_is_let(pair: Pair) -> None:
    pair.build({"a/b/c": b"1", "b/c": b"1", "ab": None})

    def pruned(fs: Any, root: str) -> list[str]:
        seen = []
        for path, dirs, _ in fs.walk(root):
            seen.append(path)
            if "a" in dirs:
                dirs.remove("a")
        return sorted(seen)

    found = pair.ask(pruned)
    assert found[0] == found[1] == [".", "./ab", "./b"]


CHANGES: list[Callable[[Any, str, str], object]] = [
    lambda fs, a, b: fs.mv(a, b),
    lambda fs, a, b: fs.rm(a, recursive=True),
    lambda fs, a, b: fs.rm_file(a) if fs.isfile(a) else None,
    lambda fs, a, b: fs.mkdir(a, create_parents=False),
    lambda fs, a, b: fs.makedirs(a, exist_ok=True),
    lambda fs, a, b: fs.rmdir(a) if fs.isdir(a) else None,
    lambda fs, a, b: fs.touch(a, truncate=False) if fs.isdir(posixpath.dirname(a)) else None,
    lambda fs, a, b: fs.copy(a, b, recursive=True) if fs.isfile(a) or not fs.exists(b) else None,
    lambda fs, a, b: fs.pipe_file(a, b"new") if fs.isdir(posixpath.dirname(a)) else None,
]
"""Where the local filesystem wants a parent and a volume makes one, only what both do is compared.
"""

plain = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map("/".join)
plain_trees = st.dictionaries(plain, st.sampled_from([None, b"", b"1"]), min_size=1, max_size=8)
steps = st.lists(
    st.tuples(st.sampled_from(range(len(CHANGES))), plain, plain), min_size=1, max_size=8
)


def comparable(fs: Any, root: str, one: str, other: str) -> bool:
    """Not: into itself, without a parent, and onto a name that a directory has already."""
    target = f"{root}/{other}"
    if not fs.isdir(posixpath.dirname(target)) or f"{other}/".startswith(f"{one}/"):
        return False
    return not (fs.isdir(target) and fs.exists(f"{target}/{posixpath.basename(one)}"))


@examples
@given(plain_trees, steps)
def test_changing(
    pair: Pair, tree: dict[str, bytes | None], changes: list[tuple[int, str, str]]
) -> None:
    pair.build(tree)
    for number, one, other in changes:
        if not comparable(*pair.sides[0], one, other):
            continue
        for fs, root in pair.sides:
            answer(partial(change, number, one, other), fs, root)
        mine, theirs = pair.ask(lambda fs, root: fs.find(root, withdirs=True, detail=True))
        assert mine == theirs, (number, one, other)


def change(number: int, one: str, other: str, fs: Any, root: str) -> None:
    CHANGES[number](fs, f"{root}/{one}", f"{root}/{other}")
