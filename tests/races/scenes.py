"""What is raced: small trees, and a handful of operations that get in each other's way.

Each scene draws from its own pool, so that every round is a little different, and stays small
enough for every order to be tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.races.arena import Scene
from tests.races.operations import (
    Create,
    Delete,
    MakeDirectory,
    Operation,
    Read,
    Rename,
    Tree,
    Write,
)

__all__ = ["DIRECTORY_SCENES", "FILE_SCENES"]


def rename_against_overwrite(choice: random.Random) -> Scene:
    """One file renamed onto another, while both are written and read."""
    pool: list[Operation] = [
        Rename("/s", "/t", overwrite=True),
        Rename("/s", "/u"),
        Rename("/t", "/s", overwrite=True),
        Write("/s", b"second s" * 100),
        Write("/s", b"third s"),
        Write("/t", b"second t" * 200),
        Write("/u", b"u", overwrite=False),
        Delete("/t"),
        Read("/s"),
        Read("/s"),
        Read("/t"),
        Read("/t"),
    ]
    start: Tree = {"/s": b"first s", "/t": b"first t" * 50}
    fixed: list[Operation] = [
        Rename("/s", "/t", overwrite=True),
        Write("/s", b"new s"),
        Write("/t", b"new t" * 9),
    ]
    return Scene(start, [*fixed, *choice.sample(pool, 6)], real_time=True)


def create_against_recursive_delete(choice: random.Random) -> Scene:
    """Files and directories made below a directory that is deleted with all it holds."""
    start: Tree = {"/p": None, "/p/old": b"old", "/p/q": None, "/p/q/older": b"older"}
    pool: list[Operation] = [
        Write("/p/a", b"a"),
        Create("/p/b", b"b"),
        Write("/p/q/c", b"c"),
        Create("/p/q/d", b"d"),
        Write("/p/q/r/e", b"e"),
        Write("/p/s/t/f", b"f"),
        MakeDirectory("/p/q/u/v"),
        MakeDirectory("/p/w"),
        Write("/p/old", b"new"),
        Rename("/p/old", "/p/q/old"),
        Rename("/p/q", "/p/z"),
        Delete("/p/q/older"),
        Delete("/p", recursive=True),
    ]
    return Scene(start, [Delete("/p", recursive=True), *choice.sample(pool, 6)])


def create_against_removal(choice: random.Random) -> Scene:
    """Files and directories made below directories that are removed if they are empty."""
    start: Tree = {"/p": None, "/p/q": None}
    pool: list[Operation] = [
        Write("/p/a", b"a"),
        Create("/p/b", b"b"),
        Write("/p/q/c", b"c"),
        Create("/p/q/d", b"d"),
        Write("/p/q/r/e", b"e"),
        MakeDirectory("/p/q/u"),
        MakeDirectory("/p/w/x"),
        Delete("/p/q/u"),
        Delete("/p/q"),
        Delete("/p"),
        Delete("/p", recursive=True),
    ]
    return Scene(start, [Delete("/p/q"), Delete("/p"), *choice.sample(pool, 5)])


GROWN: Tree = {
    "/a": None,
    "/a/f": b"f",
    "/a/d": None,
    "/a/d/g": b"g",
    "/a/d/h": b"h",
    "/a/e": None,
    "/a/e/deep": None,
    "/a/e/deep/i": b"i",
}


def directory_rename_against_changes_inside(choice: random.Random) -> Scene:
    """A directory renamed while things are made, changed, moved and removed in it."""
    pool: list[Operation] = [
        Write("/a/x", b"x"),
        Write("/a/d/y", b"y", overwrite=False),
        Write("/a/e/deep/z", b"z"),
        Write("/a/new/w", b"w"),
        MakeDirectory("/a/d/made"),
        Write("/a/d/g", b"second g"),
        Write("/a/f", b"second f"),
        Rename("/a/d/g", "/a/e/g"),
        Rename("/a/d/h", "/out"),
        Rename("/in", "/a/d/in"),
        Rename("/a/e", "/a/d/e"),
        Delete("/a/e/deep/i"),
        Delete("/a/d", recursive=True),
    ]
    return Scene({**GROWN, "/in": b"in"}, [Rename("/a", "/b"), *choice.sample(pool, 5)])


def renames_of_one_directory(choice: random.Random) -> Scene:
    """One directory renamed to different places, or deleted, and parts of it moved out."""
    pool: list[Operation] = [
        Rename("/a", "/d"),
        Rename("/a", "/b"),
        Rename("/a/d", "/e"),
        Rename("/a/e/deep", "/a/deep"),
        Rename("/a/d/g", "/g"),
        MakeDirectory("/b"),
        Write("/c", b"in the way"),
        Delete("/a", recursive=True),
    ]
    return Scene(GROWN, [Rename("/a", "/b"), Rename("/a", "/c"), *choice.sample(pool, 2)])


def renames_across(choice: random.Random) -> Scene:
    """Directories renamed into each other, in twos and threes."""
    start: Tree = {}
    for top in ("/a", "/b", "/c"):
        start |= {top: None, f"{top}/x": None, f"{top}/x/f": top.encode(), f"{top}/g": b"g"}
    crossing: list[list[Operation]] = [
        [Rename("/a", "/b/a"), Rename("/b", "/a/b")],
        [Rename("/a", "/b/x/a"), Rename("/b", "/a/x/b")],
        [Rename("/a", "/b/x/a"), Rename("/b", "/c/x/b"), Rename("/c", "/a/x/c")],
        [Rename("/a/x", "/b/x/x"), Rename("/b", "/a/b")],
        [Rename("/a/x", "/b/x/y"), Rename("/b/x", "/a/x/y"), Rename("/b", "/c/b")],
    ]
    pool: list[Operation] = [
        Write("/a/x/f", b"new"),
        Write("/b/x/h", b"h"),
        Rename("/a/g", "/b/x/a-g"),
    ]
    return Scene(start, [*choice.choice(crossing), choice.choice(pool)])


def deletes_at_once(choice: random.Random) -> Scene:
    """Recursive deletes of one tree and of its parts, and renames into it and out of it."""
    start: Tree = {**GROWN, "/t": None, "/t/f": b"t"}
    pool: list[Operation] = [
        Delete("/a/e", recursive=True),
        Delete("/a/d/g"),
        Delete("/a/e/deep"),
        Rename("/a/d", "/kept"),
        Rename("/a/d/h", "/h"),
        Rename("/t", "/a/e/t"),
        Rename("/t/f", "/a/d/t"),
        Rename("/a", "/t/a"),
        Delete("/t", recursive=True),
        Write("/a/d/new", b"new"),
    ]
    return Scene(
        start, [Delete("/a", recursive=True), Delete("/a", recursive=True), *choice.sample(pool, 3)]
    )


FILE_SCENES: tuple[Callable[[random.Random], Scene], ...] = (
    rename_against_overwrite,
    create_against_recursive_delete,
    create_against_removal,
)
DIRECTORY_SCENES: tuple[Callable[[random.Random], Scene], ...] = (
    directory_rename_against_changes_inside,
    renames_of_one_directory,
    renames_across,
    deletes_at_once,
)
