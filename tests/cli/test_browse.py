"""ls, tree, stat, find, du."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from s3k_async.cli.commands import browse
from tests.cli.conftest import Cli

FIELDS = {
    "volume",
    "path",
    "type",
    "size",
    "mtime_ms",
    "ctime_ms",
    "changed_ms",
    "id",
    "version",
    "committed",
    "etag",
    "checksum",
    "physical",
}

Tree = dict[str, bytes]


# ls


def test_ls_shows_names_in_order_and_marks_directories(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("ls").lines == ["a/", "empty/", "top.txt"]
    assert cli.ok("ls", "/a").lines == ["b/", "one.txt"]
    assert cli.ok("ls", "/empty").lines == []


def test_ls_of_a_file_is_the_file(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("ls", "/a//one.txt").lines == ["/a/one.txt"]


def test_ls_R_shows_whole_paths(cli: Cli, small_tree: Tree) -> None:
    expected = [
        "/a/",
        "/a/b/",
        "/a/b/three.txt",
        "/a/b/two.csv",
        "/a/one.txt",
        "/empty/",
        "/top.txt",
    ]
    assert cli.ok("ls", "-R", "/").lines == expected
    assert cli.ok("ls", "--recursive", "/").lines == expected


def test_ls_l_shows_kind_size_and_time(cli: Cli, small_tree: Tree) -> None:
    directory, file = cli.ok("ls", "-l", "/a").lines
    assert re.fullmatch(r"d +- \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ b/", directory)
    assert re.fullmatch(r"- +10 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ one\.txt", file)
    assert " 2.0K " in cli.ok("ls", "-lh", "/a/b/two.csv").out
    assert " 2.0K " in cli.ok("ls", "--long", "--human", "/a/b/two.csv").out


def test_ls_a_shows_files_that_are_being_written(
    cli: Cli, volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None:
        raise KeyboardInterrupt

    from s3k_async.files.open_files import FileWriter

    monkeypatch.setattr(FileWriter, "_drop", crash)
    monkeypatch.setattr(FileWriter, "discard", crash)
    monkeypatch.setattr(FileWriter, "write", crash)
    assert cli("put", "-", "/half", stdin=b"data").code == 130
    assert cli.ok("ls").lines == []
    assert cli.ok("ls", "-a").lines == ["half"]
    assert cli.ok("ls", "-al").out.startswith("w ")
    assert cli.ok("ls", "--all", "--json").json()["committed"] is False
    assert cli.ok("tree").lines[-1] == "0 directories, 0 files"
    assert cli.ok("tree", "-a").lines[-1] == "0 directories, 1 file"
    assert "being written" in cli.fails(6, "cat", "/half").errors


def test_ls_json_is_an_object_a_line(cli: Cli, small_tree: Tree, volume: str) -> None:
    found = cli.ok("ls", "-R", "--json").json_lines()
    assert [each["path"] for each in found] == sorted([*small_tree, "/a", "/a/b", "/empty"])
    assert all(each.keys() == FIELDS for each in found)
    assert {each["volume"] for each in found} == {f"{volume}/"}
    by_path = {each["path"]: each for each in found}
    assert by_path["/a/b/two.csv"]["size"] == 2000
    assert by_path["/a/b/two.csv"]["type"] == "file"
    assert by_path["/a/b"]["type"] == "directory"
    assert by_path["/a/b"]["physical"] is None


def test_a_long_listing_comes_as_it_arrives_and_is_whole(
    cli: Cli, small_tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "SORTED", 3)
    assert sorted(cli.ok("ls", "-R").lines) == sorted([*small_tree, "/a/", "/a/b/", "/empty/"])
    assert cli.ok("ls").lines == ["a/", "empty/", "top.txt"]


def test_ls_of_nothing_is_not_found(cli: Cli, small_tree: Tree) -> None:
    assert cli.fails(3, "ls", "/nothing").errors == "s3k: no such file or directory: /nothing\n"


# tree


def test_tree_draws(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("tree").lines == [
        "/",
        "├── a/",
        "│   ├── b/",
        "│   │   ├── three.txt",
        "│   │   └── two.csv",
        "│   └── one.txt",
        "├── empty/",
        "└── top.txt",
        "",
        "3 directories, 4 files",
    ]


def test_tree_stops_at_a_depth(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("tree", "-L", "1").lines == [
        "/",
        "├── a/",
        "├── empty/",
        "└── top.txt",
        "",
        "2 directories, 1 file",
    ]
    assert cli.ok("tree", "--depth", "2", "/a").lines[0] == "/a"


def test_tree_json_has_the_depth(cli: Cli, small_tree: Tree) -> None:
    found = cli.ok("tree", "--json", "/a").json_lines()
    assert [(each["path"], each["depth"]) for each in found] == [
        ("/a/b", 1),
        ("/a/b/three.txt", 2),
        ("/a/b/two.csv", 2),
        ("/a/one.txt", 1),
    ]


def test_tree_of_a_file_and_of_nothing(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("tree", "/top.txt").lines == ["/top.txt", "", "0 directories, 0 files"]
    cli.fails(3, "tree", "/nothing")


def test_a_deep_tree_is_drawn(cli: Cli, volume: str) -> None:
    deep = "/x" * 900
    cli.ok("mkdir", "-p", deep)
    assert cli.ok("tree").lines[-1] == "900 directories, 0 files"


# stat


def test_stat_tells_about_each(cli: Cli, small_tree: Tree) -> None:
    done = cli.ok("stat", "/top.txt", "/a", "/")
    assert "path: /top.txt\n" in done.out
    assert "size: 3\n" in done.out
    assert "type: directory\n" in done.out
    assert "path: /\n" in done.out
    assert "checksum: xxh128:" in done.out


def test_stat_shows_attributes_as_attr_does(cli: Cli, small_tree: Tree) -> None:
    cli.ok("attr", "/top.txt", "--mode", "640", "--set", "k=v", "--read-only")
    lines = [line.strip() for line in cli.ok("stat", "/top.txt").lines]
    assert {"mode: 0640", "metadata: k=v", "read_only: true"} <= set(lines)
    assert not any(line.startswith("attributes") for line in lines)


def test_results_of_several_volumes_name_them(
    cli: Cli, volume: str, other_volume: str, small_tree: Tree
) -> None:
    cli.ok("mkdir", f"{other_volume}/a")
    assert [line.split()[-1] for line in cli.ok("du", "/a/b", f"{other_volume}/").lines] == [
        f"{volume}/a/b",
        f"{other_volume}/a",
        f"{other_volume}/",
    ]
    shown = cli.ok("stat", "/a", f"{other_volume}/a").out
    assert f"path: {volume}/a\n" in shown
    assert f"path: {other_volume}/a\n" in shown
    documents = cli.ok("du", "-s", "/a/b", f"{other_volume}/a", "--json").json_lines()
    assert [each["path"] for each in documents] == ["/a/b", "/a"]
    assert cli("du", "-s", "s3k://", "/a").lines == cli.ok("du", "-s", "/a").lines


def test_stat_json(cli: Cli, small_tree: Tree) -> None:
    file, directory = cli.ok("stat", "--json", "/top.txt", "/a").json_lines()
    assert file.keys() == FIELDS
    assert (file["path"], file["version"], file["committed"]) == ("/top.txt", 2, True)
    assert directory["type"] == "directory"


def test_stat_of_some_that_are_missing_tells_about_the_others(cli: Cli, small_tree: Tree) -> None:
    done = cli("stat", "/gone", "/top.txt")
    assert done.code == 10
    assert "path: /top.txt" in done.out
    assert done.errors == "s3k: no such file or directory: /gone\n"
    assert cli("stat", "/gone", "/gone-too").code == 3


# find


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (
            [],
            ["/a/", "/a/b/", "/a/b/three.txt", "/a/b/two.csv", "/a/one.txt", "/empty/", "/top.txt"],
        ),
        (["--name", "*.txt"], ["/a/b/three.txt", "/a/one.txt", "/top.txt"]),
        (["--name", "a/*"], ["/a/b/", "/a/one.txt"]),
        (["--name", "**/t*"], ["/a/b/three.txt", "/a/b/two.csv", "/top.txt"]),
        (["--type", "d"], ["/a/", "/a/b/", "/empty/"]),
        (["--type", "f", "--name", "t*"], ["/a/b/three.txt", "/a/b/two.csv", "/top.txt"]),
        (["--size", "+10"], ["/a/b/two.csv"]),
        (["--size", "+9", "--size", "-2k"], ["/a/one.txt"]),
        (["--size", "10"], ["/a/one.txt"]),
        (["--size", "2k"], ["/a/b/two.csv"]),
        (["--size", "-1"], ["/a/b/three.txt"]),
        (["--newer", "1h", "--type", "f", "--name", "o*"], ["/a/one.txt"]),
        (["--older", "1h"], []),
        (["--newer", "2000-01-01", "--name", "one*"], ["/a/one.txt"]),
        (["--older", "2000-01-01T00:00:00+02:00"], []),
        (["--older", "2999-01-01", "--name", "one*"], ["/a/one.txt"]),
    ],
)
def test_find(cli: Cli, small_tree: Tree, conditions: list[str], expected: list[str]) -> None:
    assert cli.ok("find", "/", *conditions).lines == expected


def test_find_looks_below_its_path_and_writes_json(cli: Cli, small_tree: Tree) -> None:
    found = cli.ok("find", "/a", "--name", "*.txt", "--json").json_lines()
    assert [each["path"] for each in found] == ["/a/b/three.txt", "/a/one.txt"]
    assert found[0].keys() == FIELDS
    cli.fails(3, "find", "/nothing")


# du


def test_du_adds_up_each_directory(cli: Cli, small_tree: Tree) -> None:
    rows = [line.split() for line in cli.ok("du").lines]
    assert rows == [
        ["2000", "2", "1", "/a/b"],
        ["2010", "3", "2", "/a"],
        ["0", "0", "1", "/empty"],
        ["2013", "4", "4", "/"],
    ]


def test_du_s_gives_the_totals(cli: Cli, small_tree: Tree, volume: str) -> None:
    assert cli.ok("du", "-s", "/a", "/top.txt").out.split() == [
        "2010",
        "3",
        "2",
        "/a",
        "3",
        "1",
        "0",
        "/top.txt",
    ]
    assert cli.ok("du", "--summarize", "--human", "/a").out.split() == ["2.0K", "3", "2", "/a"]
    assert cli.ok("du", "-h", "/a/b").out.split() == ["2.0K", "2", "1", "/a/b"]
    assert cli.ok("du", "-s", "--json").json() == {
        "volume": f"{volume}/",
        "path": "/",
        "bytes": 2013,
        "files": 4,
        "directories": 4,
    }
    cli.fails(3, "du", "/nothing")


def test_names_are_printed_as_they_are_into_a_file(cli: Cli, volume: str, tmp_path: Path) -> None:
    names = ["ümlaut", "漢字", "with space", "new\nline", "esc\x1b[31m", "a:b", "it's"]
    for name in names:
        cli.ok("touch", f":/{name}")
    assert cli.ok("ls").out == "".join(f"{name}\n" for name in sorted(names))
    assert sorted(each["path"] for each in cli.ok("ls", "--json").json_lines()) == sorted(
        f"/{name}" for name in names
    )
