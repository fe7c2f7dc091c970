"""The path index of layout `tree`, in memory and in its temporary file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from s3k_async.layouts.tree.path_index import PathIndex, paths_from_root
from s3k_async.table.keys import BY_ID, TRASH_ID
from s3k_async.table.stored_reader import ROOT_ENTRY

ROOT_ID = ROOT_ENTRY.id


@pytest.fixture(params=[1, 100], ids=["in a file", "in memory"])
def index(request: pytest.FixtureRequest) -> Iterator[PathIndex]:
    made = PathIndex(held=request.param)
    yield made
    made.close()
    made.close()


def test_a_path_leads_from_the_root_or_the_trash_or_names_the_directory(index: PathIndex) -> None:
    index.add([("c", "b/c-name"), ("b", "a/b-name")])
    assert index.path("b") == f"{BY_ID}/b"
    index.add([("a", f"{ROOT_ID}/a-name"), ("t", f"{TRASH_ID}/t"), ("u", "t/u-name")])
    assert index.path("c") == "/a-name/b-name/c-name"
    assert index.path("b") == "/a-name/b-name"
    assert index.path("u") == "/.trash/t/u-name"
    assert index.path(ROOT_ID) == "/"
    assert index.path("unknown") == f"{BY_ID}/unknown"


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_a_path_does_not_depend_on_those_asked_for_before(index: PathIndex, order: str) -> None:
    index.add([("a", "b/a"), ("b", "a/b"), ("c", "b/c"), ("d", "missing/d"), ("e", "d/e")])
    assert {each: index.path(each) for each in order} == {each: f"{BY_ID}/{each}" for each in "abc"}
    assert [index.path(each) for each in "ded"] == [f"{BY_ID}/{each}" for each in "ded"]


def test_paths_lead_from_the_root_and_not_from_the_trash() -> None:
    directories = [
        ("c", "b/c-name"),
        ("b", f"{ROOT_ID}/b-name"),
        ("t", f"{TRASH_ID}/t"),
        ("u", "t/u-name"),
        ("x", "y/x"),
        ("y", "x/y"),
        ("lost", "missing/lost"),
    ]
    paths = paths_from_root(directories)
    assert paths == {ROOT_ID: "/", "b": "/b-name", "c": "/b-name/c-name"}


def test_the_place_that_was_added_last_is_kept(index: PathIndex) -> None:
    index.add([("a", f"{ROOT_ID}/first"), ("b", "a/b")])
    index.add([("other", f"{ROOT_ID}/other")])
    assert index.path("b") == "/first/b"
    index.add([("a", f"{ROOT_ID}/second")])
    assert index.place("a") == f"{ROOT_ID}/second"
    assert index.path("b") == "/second/b"
    assert index.place("unknown") is None
    assert index.cycles() == []


def test_a_saved_index_answers_in_another_one(index: PathIndex, tmp_path: Path) -> None:
    index.add([("c", "b/c"), ("b", f"{ROOT_ID}/first"), ("lost", "unknown/lost")])
    index.add([("b", f"{ROOT_ID}/b")])
    file = tmp_path / "a b%?#"
    index.save(str(file))
    written = file.read_bytes()
    with closing(PathIndex(held=1)) as other:
        other.add([("b", f"{ROOT_ID}/before"), ("before", f"{ROOT_ID}/before")])
        assert other.path("b") == "/before"
        other.open(str(file))
        for key in ("b", "c", "lost", "before", ROOT_ID):
            assert (other.place(key), other.path(key)) == (index.place(key), index.path(key))
        assert other.place("before") is None
        added = [("b", f"{ROOT_ID}/after"), ("d", "c/d"), ("e", "d/e")]
        other.add(added)
        assert [other.path(key) for key in "bcde"] == [
            "/after",
            *(f"/after/{below}" for below in ("c", "c/d", "c/d/e")),
        ]
        assert sorted(other.ids()) == ["b", "d", "e"]
        other.add([("x", "c/x"), ("c", "x/c")])
        assert other.cycles() == [["c", "x"]]
        other.close()
        assert other.place("lost") is None
    assert file.read_bytes() == written
    index.add([("c", f"{ROOT_ID}/c")])
    assert index.path("c") == "/c"


def test_directories_below_themselves_are_found_once(index: PathIndex) -> None:
    index.add([("b", "a/b"), ("a", "c/a"), ("c", "b/c")])
    index.add([("self", "self/name"), ("below", "b/below"), ("deep", "below/deep")])
    index.add([("fine", f"{ROOT_ID}/fine"), ("lost", "unknown/lost"), ("t", f"{TRASH_ID}/t")])
    assert index.cycles() == [["a", "c", "b"], ["self"]]
    assert index.path("deep").startswith(BY_ID)
    assert index.path("lost") == f"{BY_ID}/lost"
    index.add([("a", f"{ROOT_ID}/a")])
    assert index.cycles() == [["self"]]
    assert index.path("deep") == "/a/b/below/deep"


@pytest.mark.parametrize("seed", range(20))
def test_the_cycles_are_those_that_a_walk_upwards_finds(index: PathIndex, seed: int) -> None:
    chance = random.Random(seed)
    ids = [f"d{number:02d}" for number in range(30)]
    parents = {each: chance.choice([*ids, ROOT_ID, TRASH_ID, "unknown"]) for each in ids}
    for each in chance.sample(ids, len(ids)):
        index.add([(each, f"{parents[each]}/name")])
    expected = set()
    for each in ids:
        above = parents[each]
        for _ in ids:
            if above == each:
                expected.add(each)
            above = parents.get(above, above)
    found = index.cycles()
    assert sorted(each for cycle in found for each in cycle) == sorted(expected)
    for cycle in found:
        assert cycle[0] == min(cycle)
        assert [parents[each] for each in cycle] == [*cycle[1:], cycle[0]]
