"""Glob patterns in path arguments, and put --skip-existing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

Tree = dict[str, bytes]


def test_a_pattern_stands_for_what_matches(cli: Cli, small_tree: Tree, other_volume: str) -> None:
    assert cli.ok("cat", "/a/b/t*", "/top.?xt").output == b"2" * 2000 + b"top"
    assert [line["path"] for line in cli.ok("stat", "--json", "/a/*").json_lines()] == [
        "/a/b",
        "/a/one.txt",
    ]
    assert len(cli.ok("checksum", "/**/*.txt").lines) == 3
    assert "==> " in cli.ok("head", "-n", "1", "/a/{one.txt,b/two.csv}").out
    assert "==> " not in cli.ok("head", "-n", "1", "/a/one*").out
    assert [line["path"] for line in cli.ok("du", "-s", "--json", "/[ae]*").json_lines()] == [
        "/a",
        "/empty",
    ]
    cli.ok("put", "-", f"{other_volume}/x1", stdin=b"1")
    cli.ok("put", "-", f"{other_volume}/x2", stdin=b"2")
    assert cli.ok("cat", f"{other_volume}/x*").output == b"12"


def test_a_path_that_exists_is_no_pattern(cli: Cli, volume: str) -> None:
    for name in ("[a]", "a", "b*", "bc", "{d,e}", "d"):
        cli.ok("put", "-", f"/{name}", stdin=name.encode())
    assert cli.ok("cat", "/[a]").output == b"[a]"
    assert cli.ok("cat", "/b*").output == b"b*"
    assert cli.ok("cat", "/{d,e}").output == b"{d,e}"
    cli.ok("rm", "/[a]", "/b*", "/{d,e}")
    assert cli.ok("ls").lines == ["a", "bc", "d"]
    assert cli.ok("cat", "/[a]", "/b*", "/{d,e}").output == b"abcd"


def test_a_pattern_without_matches_is_a_missing_path(cli: Cli, small_tree: Tree) -> None:
    assert "/gone*" in cli.fails(3, "cat", "/gone*").errors
    assert cli("rm", "/gone*", "/a/one*").code == 10
    cli.ok("rm", "-f", "/gone*")
    cli.fails(3, "cp", "/gone*", "/empty")
    cli.fails(2, "cat", "/a/../../*")
    assert cli.ok("ls", "/a").lines == ["b/"]


def test_patterns_of_sources(cli: Cli, small_tree: Tree) -> None:
    cli.ok("cp", "-r", "/a/*", "/copy/")
    assert cli.ok("ls", "/copy").lines == ["b/", "one.txt"]
    cli.ok("cp", "/a/*.txt", "/a/b/t*.csv", "/empty")
    assert cli.ok("ls", "/empty").lines == ["one.txt", "two.csv"]
    cli.ok("mkdir", "/moved")
    cli.ok("mv", "/copy/*", "/moved")
    assert cli.ok("ls", "-R", "/moved").lines == [
        "/moved/b/",
        "/moved/b/three.txt",
        "/moved/b/two.csv",
        "/moved/one.txt",
    ]
    assert cli.ok("ls", "/copy").out == ""
    assert "several sources" in cli.fails(2, "cp", "/a/*.txt", "/moved/*.txt", "/copy").errors
    cli.ok("get", "-r", "/a/*", "out")
    assert Path("out/b/two.csv").read_bytes() == b"2" * 2000
    assert Path("out/one.txt").read_bytes() == b"1" * 10
    cli.ok("get", "/a/one*", "one")
    assert Path("one").read_bytes() == b"1" * 10
    cli.ok("rm", "-r", "/moved/*")
    assert cli.ok("ls", "/moved").out == ""
    assert cli("cp", "/a/*.txt", "/a/b/*", "/top.txt").code == 1


def test_ls_of_patterns_and_several_paths(
    cli: Cli, small_tree: Tree, volume: str, other_volume: str
) -> None:
    assert cli.ok("ls", "/a/one.txt").lines == ["/a/one.txt"]
    assert cli.ok("ls", "/a/*.txt").lines == ["/a/one.txt"]
    assert cli.ok("ls", "/a/*").lines == ["/a/one.txt", "/a/b/three.txt", "/a/b/two.csv"]
    assert cli.ok("ls", "/a/*/").lines == ["/a/b/three.txt", "/a/b/two.csv"]
    assert cli.ok("ls", "/a", "/top.txt", "/empty").lines == ["/top.txt", "/a/b/", "/a/one.txt"]
    assert cli.ok("ls", "-R", "/top.txt", "/a").lines == [
        "/top.txt",
        "/a/b/",
        "/a/b/three.txt",
        "/a/b/two.csv",
        "/a/one.txt",
    ]
    assert [line.split()[-1] for line in cli.ok("ls", "-l", "/a/*").lines] == [
        "/a/one.txt",
        "/a/b/three.txt",
        "/a/b/two.csv",
    ]
    assert [line["path"] for line in cli.ok("ls", "--json", "/top.txt", "/a").json_lines()] == [
        "/top.txt",
        "/a/b",
        "/a/one.txt",
    ]
    assert cli.ok("ls", "/empty").out == ""
    cli.ok("ls", "-o", "all.jsonl", "/a/*")
    assert Path("all.jsonl").read_text().count('"path"') == 3
    cli.ok("ls", "-o", "all.parquet", "/a", "/a/b")
    assert Path("all.parquet").stat().st_size
    cli.ok("put", "-", f"{other_volume}/x", stdin=b"1")
    mixed = cli.ok("ls", "/top.txt", f"{other_volume}/").lines
    assert mixed == [f"{volume}/top.txt", f"{other_volume}/x"]


def test_ls_reports_what_is_missing_and_lists_the_rest(cli: Cli, small_tree: Tree) -> None:
    assert "nothing matches the pattern" in cli.fails(3, "ls", "/gone*").errors
    done = cli.fails(10, "ls", "/gone", "/a/one.txt")
    assert done.lines == ["/a/one.txt"]
    assert "/gone" in done.errors
    assert "alone" in cli.fails(2, "ls", "s3://bucket/a", "/a").errors


def test_patterns_of_searches_and_trees(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("find", "/[ae]*", "--type", "f").lines == [
        "/a/b/three.txt",
        "/a/b/two.csv",
        "/a/one.txt",
    ]
    assert cli.ok("find", "/*/b", "--name", "*.csv").lines == ["/a/b/two.csv"]
    assert cli.ok("tree", "/[ae]*", "-L", "1").lines == [
        *("/a", "├── b/", "└── one.txt"),
        "/empty",
        *("", "1 directory, 1 file"),
    ]
    assert [each["path"] for each in cli.ok("tree", "/*/b", "--json").json_lines()] == [
        "/a/b/three.txt",
        "/a/b/two.csv",
    ]
    for command in ("find", "tree"):
        assert "nothing matches the pattern" in cli.fails(3, command, "/*.gone").errors


def test_a_special_character_is_matched_by_a_set(cli: Cli, volume: str) -> None:
    for name in ("[a]1", "[a]2", "a1", "b*1", "bc1"):
        cli.ok("put", "-", f"/{name}", stdin=name.encode())
    assert cli.ok("ls", "/[[]a]*").lines == ["/[a]1", "/[a]2"]
    assert cli.ok("cat", "/b[*]?").out == "b*1"
    cli.ok("rm", "/[[]*")
    assert cli.ok("ls").lines == ["a1", "b*1", "bc1"]


def test_patterns_of_attributes_and_changes(cli: Cli, small_tree: Tree) -> None:
    cli.ok("attr", "--mode", "600", "/a/*")
    assert [each["path"] for each in cli.ok("attr", "--json", "/a/*").json_lines()] == [
        "/a/b",
        "/a/one.txt",
    ]
    assert "0600" in cli.ok("attr", "/a/o*").out
    assert len(cli.ok("versions", "--json", "/a/*.txt").json_lines()) >= 1
    assert "nothing matches" in cli.fails(3, "versions", "/a/*.gone").errors
    cli.ok("truncate", "-s", "3", "/a/b/*")
    assert cli.ok("cat", "/a/b/*").output == bytes(3) + b"222"
    assert [each["path"] for each in cli.ok("compact", "--json", "/a/b/*").json_lines()] == [
        "/a/b/three.txt",
        "/a/b/two.csv",
    ]
    cli.fails(3, "truncate", "-s", "3", "/a/*.gone")
    cli.fails(3, "compact", "/a/*.gone")


def test_a_created_file_has_the_name_of_a_pattern_without_matches(
    cli: Cli, small_tree: Tree
) -> None:
    before = cli.ok("stat", "--json", "/a/one.txt").json()["mtime_ms"]
    cli.ok("touch", "/a/*.txt")
    assert cli.ok("ls", "/a").lines == ["b/", "one.txt"]
    assert cli.ok("stat", "--json", "/a/one.txt").json()["mtime_ms"] > before
    cli.ok("append", "-", "/a/o*.txt", stdin=b"!")
    assert cli.ok("cat", "/a/one.txt").output == b"1" * 10 + b"!"
    several = cli.fails(2, "append", "-", "/a/b/*", stdin=b"!")
    assert "matches 2 paths" in several.errors
    assert cli.ok("ls", "/a/b").lines == ["three.txt", "two.csv"]
    cli.ok("touch", "/empty/*.txt")
    cli.ok("append", "-", "/empty/?", stdin=b"x")
    assert cli.ok("ls", "/empty").lines == ["*.txt", "?"]


def test_every_match_must_fulfil_a_condition(cli: Cli, small_tree: Tree) -> None:
    assert cli("test", "-e", "/a/*").code == 0
    assert cli("test", "-f", "/a/*").code == 1
    assert cli("test", "-f", "/a/*.txt").code == 0
    assert cli("test", "-d", "/a/*/").code == 0
    assert cli("test", "-e", "/gone*").code == 1
    assert cli.ok("test", "--json", "-s", "/a/b/t*v").json() == {"path": "/a/b/t*v", "result": True}
    assert cli("test", "-s", "/a/b/*").code == 1


def test_a_pattern_of_directories(cli: Cli, small_tree: Tree) -> None:
    cli.ok("rm", "-r", "/a/*/")
    assert cli.ok("ls", "/a").lines == ["one.txt"]
    cli.fails(3, "rm", "-r", "/a/*/")
    assert cli.ok("ls", "/a").lines == ["one.txt"]


def test_several_sources_need_a_directory(cli: Cli, small_tree: Tree) -> None:
    for verb in (("cp", "-r"), ("mv",), ("get", "-r")):
        Path("file").write_bytes(b"kept")
        target = "file" if verb[0] == "get" else "/top.txt"
        done = cli(*verb, "/a/one.txt", "/a/b", target)
        assert done.code == 1, done
        assert cli.ok("cat", "/top.txt").output == b"top"
        assert Path("file").read_bytes() == b"kept"
    assert cli.ok("ls", "/a").lines == ["b/", "one.txt"]


def test_put_skips_what_exists(cli: Cli, volume: str) -> None:
    for name in ("src/a", "src/sub/b"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"new")
    cli.ok("put", "-", "/in/a", stdin=b"old")
    done = cli.ok("put", "-r", "--skip-existing", "src", "/in").lines
    assert done == [f"put 1 file, 2 directories, 3 bytes to {volume}/in; 1 existing file skipped"]
    assert cli.ok("cat", "/in/a", "/in/sub/b").output == b"oldnew"
    assert cli.ok("put", "-r", "--skip-existing", "--json", "src", "/in").json()["skipped"] == 2
    assert "1 existing file skipped" in cli.ok("put", "--skip-existing", "src/a", "/in").out
    assert cli.ok("cat", "/in/a").output == b"old"
    cli.ok("mkdir", "-p", "/dir/a")
    cli.fails(1, "put", "--skip-existing", "src/a", "/dir/")
    Path("src/a").unlink()
    Path("src/a").mkdir()
    done_in_part = cli.fails(10, "put", "-r", "--skip-existing", "src", "/in")
    assert "src/a" in done_in_part.errors
    for arguments in (["-", "/in/a"], ["--no-overwrite", "src/a", "/in/a"]):
        cli.fails(2, "put", "--skip-existing", *arguments)


@pytest.mark.parametrize(
    "verb",
    [
        ("append", "-"),
        ("attr", "--mode", "600"),
        ("cat",),
        ("checksum",),
        ("compact",),
        ("count",),
        ("du",),
        ("find",),
        ("head",),
        ("ls",),
        ("presign",),
        ("rm", "-f"),
        ("stat",),
        ("tail",),
        ("test", "-e"),
        ("touch",),
        ("tree",),
        ("truncate", "-s", "0"),
        ("verify",),
        ("versions",),
    ],
    ids=lambda verb: verb[0],
)
def test_a_literal_name_is_not_a_pattern(cli: Cli, volume: str, verb: tuple[str, ...]) -> None:
    cli.ok("put", "-", "/d/a1", stdin=b"other")
    before = cli.ok("stat", "--json", "/d/a1").json()
    done = cli(*verb, "--literal", "/d/a[1]", stdin=b"x")
    creates = verb[0] in ("append", "touch")
    expected = 0 if creates or verb[0] == "rm" else {"test": 1, "verify": 9}.get(verb[0], 3)
    assert done.code == expected, done
    assert "matches the pattern" not in done.errors
    assert "a1" not in done.out
    assert cli.ok("ls", "/d").lines == (["a1", "a[1]"] if creates else ["a1"])
    assert cli.ok("stat", "--json", "/d/a1").json() == before


def test_a_repeated_removal_of_a_literal_name_changes_nothing(cli: Cli, volume: str) -> None:
    for name in ("a[1].csv", "a1.csv"):
        cli.ok("put", "-", f"/d/{name}", stdin=b"x")
    for _ in range(2):
        cli.ok("rm", "-f", "--literal", "/d/a[1].csv")
        assert cli.ok("ls", "/d").lines == ["a1.csv"]


def test_literal_sources(cli: Cli, volume: str) -> None:
    for name in ("a[1]", "a1"):
        cli.ok("put", "-", f"/d/{name}", stdin=name.encode())
    cli.ok("rm", "/d/a[[]1]")
    for verb, target in (("cp", "/t"), ("mv", "/t"), ("get", "t")):
        cli.fails(3, verb, "--literal", "/d/a[1]", target)
    cli.ok("rm", "/d/a1")
    cli.ok("undelete", "--literal", "/d/a[1]")
    assert cli.ok("ls", "/d").lines == ["a[1]"]
