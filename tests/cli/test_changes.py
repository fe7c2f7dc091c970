"""cp, mv, rm, mkdir, touch."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

Tree = dict[str, bytes]


def below(cli: Cli, path: str = "/") -> list[str]:
    return cli.ok("ls", "-R", path).lines


# cp


def test_cp_a_file(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("cp", "/top.txt", "/copy").out.partition(" to ")[0] == "copied 1 file, 3 bytes"
    cli.ok("cp", "/top.txt", "/empty")
    cli.ok("cp", "/top.txt", "/new/")
    assert cli.ok("cat", "/copy", "/empty/top.txt", "/new/top.txt", "/top.txt").out == "top" * 4


def test_cp_a_tree(cli: Cli, small_tree: Tree) -> None:
    assert (
        cli.ok("cp", "-r", "/a", "/c").out.partition(" to ")[0]
        == "copied 3 files, 2 directories, 2,010 bytes"
    )
    assert below(cli, "/c") == ["/c/b/", "/c/b/three.txt", "/c/b/two.csv", "/c/one.txt"]
    assert cli.ok("cp", "--recursive", "/a", "/empty/", "--json").json()["files"] == 3
    assert "/empty/a/one.txt" in below(cli)


def test_cp_several(cli: Cli, small_tree: Tree) -> None:
    cli.ok("cp", "-r", "/a", "/top.txt", "/empty")
    assert cli.ok("ls", "/empty").lines == ["a/", "top.txt"]
    assert "'top.txt'" in cli.fails(2, "cp", "/top.txt", ":/top.txt", "/empty").errors


def test_cp_overwrites_unless_told(cli: Cli, small_tree: Tree) -> None:
    cli.ok("cp", "/top.txt", "/a/one.txt")
    assert cli.ok("cat", "/a/one.txt").out == "top"
    assert "/a/one.txt" in cli.fails(4, "cp", "--no-overwrite", "/top.txt", "/a/one.txt").errors
    cli.fails(4, "cp", "-r", "--no-overwrite", "/a", "/empty")
    cli.ok("cp", "-r", "/a", "/empty")


def test_cp_refusals(cli: Cli, small_tree: Tree) -> None:
    assert "/a" in cli.fails(1, "cp", "/a", "/c").errors
    assert "/a/b/c" in cli.fails(2, "cp", "-r", "/a", "/a/b/c").errors
    cli.fails(3, "cp", "/gone", "/c")
    done = cli("cp", "/gone", "/top.txt", "/empty")
    assert (done.code, done.errors) == (10, "s3k: no such file or directory: /gone\n")
    assert cli.ok("ls", "/empty").lines == ["top.txt"]


def test_cp_between_volumes(cli: Cli, small_tree: Tree, other_volume: str) -> None:
    cli.ok("cp", "-r", "/a", f"{other_volume}/in/a")
    cli.ok("cp", f"{other_volume}/in/a/one.txt", "/back")
    assert below(cli, f"{other_volume}/in/a") == [
        "/in/a/b/",
        "/in/a/b/three.txt",
        "/in/a/b/two.csv",
        "/in/a/one.txt",
    ]
    assert cli.ok("cat", "/back").output == small_tree["/a/one.txt"]


# mv


def test_mv_renames(cli: Cli, volume: str, small_tree: Tree) -> None:
    assert (
        cli.ok("mv", "/a", "/moved").out.partition(" to ")[0]
        == "moved 3 files, 2 directories, 2,010 bytes"
    )
    assert below(cli, "/moved") == [
        "/moved/b/",
        "/moved/b/three.txt",
        "/moved/b/two.csv",
        "/moved/one.txt",
    ]
    cli.fails(3, "ls", "/a")
    assert cli.ok("mv", "/top.txt", "/moved/one", "--json").json() == {
        "files": 1,
        "directories": 0,
        "bytes": 3,
        "failed": 0,
        "target": [f"{volume}/moved/one"],
    }


def test_mv_into_a_directory(cli: Cli, small_tree: Tree) -> None:
    cli.ok("mv", "/top.txt", "/empty")
    cli.ok("mv", "/a", "/empty/")
    assert cli.ok("ls", "/empty").lines == ["a/", "top.txt"]
    cli.ok("mkdir", "/x", "/y")
    cli.ok("mv", "/x", "/y", "/empty")
    assert cli.ok("ls", "/empty").lines == ["a/", "top.txt", "x/", "y/"]


def test_mv_replaces_a_file_only_when_told(cli: Cli, small_tree: Tree) -> None:
    assert "/a/one.txt" in cli.fails(4, "mv", "/top.txt", "/a/one.txt").errors
    cli.ok("mv", "-f", "/top.txt", "/a/one.txt")
    assert cli.ok("cat", "/a/one.txt").out == "top"
    cli.ok("touch", "/top.txt")
    cli.ok("mv", "--overwrite", "/top.txt", "/a/one.txt")


def test_mv_exchanges_two_files(cli: Cli, volume: str, small_tree: Tree, other_volume: str) -> None:
    done = cli.ok("mv", "--exchange", "/top.txt", "/a/one.txt").out
    assert done == f"exchanged 2 files, 13 bytes with {volume}/a/one.txt\n"
    assert cli.ok("cat", "/a/one.txt").out == "top"
    assert cli.ok("cat", "/top.txt").output == small_tree["/a/one.txt"]
    assert "/gone" in cli.fails(3, "mv", "--exchange", "/top.txt", "/gone").errors
    assert "one of the paths is below" in cli.fails(2, "mv", "--exchange", "/a", "/a/b").errors
    cli.ok("touch", f"{other_volume}/x")
    refused = cli.fails(2, "mv", "--exchange", "/top.txt", f"{other_volume}/x")
    assert "of one volume" in refused.errors
    for more in (["-f"], ["--no-atomic"], ["/a/b/two.csv"]):
        usage = cli.fails(2, "mv", "--exchange", *more, "/top.txt", "/a/one.txt")
        assert "--exchange has two operands and no other options" in usage.errors
    assert "cannot be combined" in cli.fails(2, "mv", "--exchange", "--pairs", "-").errors


def test_mv_refusals(cli: Cli, small_tree: Tree) -> None:
    assert cli.fails(4, "mv", "/a", "/empty").errors.endswith("end the target with a /: /empty/\n")
    assert "/a/b/c" in cli.fails(2, "mv", "/a", "/a/b/c").errors
    assert "/gone" in cli.fails(3, "mv", "/gone", "/x").errors
    assert "/no" in cli.fails(3, "mv", "/top.txt", "/no/such/parent").errors
    assert "/top.txt" in cli.fails(1, "mv", "/a", "/top.txt/x").errors
    assert sorted(below(cli)) == sorted([*small_tree, "/a/", "/a/b/", "/empty/"])


def test_mv_between_volumes(cli: Cli, small_tree: Tree, other_volume: str) -> None:
    assert (
        cli.ok("mv", "/a", f"{other_volume}/a").out.partition(" to ")[0]
        == "moved 3 files, 2 directories, 2,010 bytes"
    )
    assert below(cli, f"{other_volume}/") == [
        "/a/",
        "/a/b/",
        "/a/b/three.txt",
        "/a/b/two.csv",
        "/a/one.txt",
    ]
    assert cli.ok("cat", f"{other_volume}/a/b/two.csv").output == small_tree["/a/b/two.csv"]
    assert below(cli) == ["/empty/", "/top.txt"]
    cli.ok("mv", "/top.txt", other_volume)
    assert cli.ok("ls", other_volume).lines == ["a/", "top.txt"]


def test_mv_between_volumes_refuses_what_is_there(
    cli: Cli, small_tree: Tree, other_volume: str
) -> None:
    cli.ok("put", "-", f"{other_volume}/top.txt", stdin=b"other")
    cli.ok("mkdir", f"{other_volume}/a")
    cli.fails(4, "mv", "/top.txt", f"{other_volume}/top.txt")
    cli.fails(4, "mv", "/a", f"{other_volume}/a")
    assert sorted(below(cli)) == sorted([*small_tree, "/a/", "/a/b/", "/empty/"])
    cli.ok("mv", "-f", "/top.txt", "/a", f"{other_volume}/")
    assert cli.ok("cat", f"{other_volume}/top.txt").out == "top"
    assert below(cli) == ["/empty/"]
    cli.fails(1, "mv", "/", f"{other_volume}/root")


# rm


def test_rm(cli: Cli, volume: str, small_tree: Tree) -> None:
    assert (
        cli.ok("rm", "/top.txt", "/empty").out.partition(" from ")[0]
        == "removed 1 file, 1 directory, 3 bytes"
    )
    done = cli.ok("rm", "-r", "--json", "/a").json()
    assert done == {
        "target": [f"{volume}/a"],
        "files": 3,
        "directories": 2,
        "bytes": 2010,
        "failed": 0,
    }
    assert cli.ok("ls").lines == []


def test_rm_refusals(cli: Cli, small_tree: Tree) -> None:
    assert "/a" in cli.fails(4, "rm", "/a").errors
    assert "/gone" in cli.fails(3, "rm", "/gone").errors
    assert "/" in cli.fails(5, "rm", "-r", "/").errors
    assert cli.ok("rm", "-f", "/gone").out.partition(" from ")[0] == "removed 0 files, 0 bytes"
    cli.ok("rm", "--missing-ok", "--recursive", "/gone", "/a")
    done = cli("rm", "/gone", "/top.txt")
    assert (done.code, done.errors) == (10, "s3k: no such file or directory: /gone\n")
    assert cli.ok("ls").lines == ["empty/"]


# mkdir, touch


def test_mkdir(cli: Cli, volume: str) -> None:
    cli.ok("mkdir", "/x", "/x/y")
    assert "/x" in cli.fails(4, "mkdir", "/x").errors
    assert "/no" in cli.fails(3, "mkdir", "/no/parent").errors
    cli.ok("mkdir", "-p", "/no/parent/at/all", "/x")
    cli.ok("mkdir", "--parents", "/x")
    (made,) = cli.ok("mkdir", "--json", "/z").json_lines()
    assert (made["path"], made["type"]) == ("/z", "directory")
    assert below(cli) == [
        "/no/",
        "/no/parent/",
        "/no/parent/at/",
        "/no/parent/at/all/",
        "/x/",
        "/x/y/",
        "/z/",
    ]


@pytest.mark.parametrize("option", [[], ["-p"]])
def test_mkdir_where_a_file_is(cli: Cli, small_tree: Tree, option: list[str]) -> None:
    cli.fails(4, "mkdir", *option, "/top.txt")
    cli.fails(1, "mkdir", *option, "/top.txt/x")


def test_touch(cli: Cli, small_tree: Tree) -> None:
    cli.ok("touch", "/new", "/top.txt")
    assert cli.ok("cat", "/new", "/top.txt").out == "top"
    (touched,) = cli.ok("touch", "--json", "/top.txt").json_lines()
    assert touched["version"] == 4
    cli.fails(1, "touch", "/a")


# rm and the trash


def test_rm_r_moves_a_directory_into_the_trash(
    cli: Cli, tree_volume: str, small_tree: Tree
) -> None:
    where = f"{tree_volume}/a"
    undo = f"for 1d, s3k trash restore {where} restores it"
    assert cli.ok("rm", "-r", "/a").lines == [f"removed 1 directory from {where}; {undo}"]
    cli.fails(3, "ls", "/a")
    cli.ok(*undo.partition("s3k ")[2].partition(" restores")[0].split())
    assert cli.ok("cat", "/a/b/two.csv").output == small_tree["/a/b/two.csv"]
    assert cli.ok("rm", "-r", "/a", "-q").lines == []
    cli.ok("trash", "restore", "/a")
    assert cli.ok("rm", "-r", "/a", "--json").json() == {
        "target": [where],
        "files": 0,
        "directories": 1,
        "bytes": 0,
        "failed": 0,
        "trashed": [where],
    }
    cli.ok("trash", "retention", "--set", "36h")
    cli.ok("trash", "restore", "/a")
    (line,) = cli.ok("rm", "-r", "/a", "/top.txt", "/empty").lines
    assert line == (
        f"removed 1 file, 2 directories, 3 bytes from {where}, {tree_volume}/top.txt, "
        f"{tree_volume}/empty; for 36h, s3k trash restore {where} {tree_volume}/empty restores them"
    )


def test_rm_quotes_the_paths_of_the_undoing_command(cli: Cli, tree_volume: str) -> None:
    for number in range(4):
        cli.ok("mkdir", f"/it's {number}")
    (line,) = cli.ok("rm", "-r", "/it's 0").lines
    assert shlex.split(line.partition("s3k ")[2])[:3] == [
        *("trash", "restore", f"{tree_volume}/it's 0")
    ]
    cli.ok("trash", "restore", "/it's 0")
    (line,) = cli.ok("rm", "-r", *(f"/it's {number}" for number in range(4))).lines
    assert line.endswith(
        "and 1 more; for 1d, s3k trash restore restores the directories; s3k trash ls lists them"
    )


def test_what_does_not_go_into_the_trash(cli: Cli, tree_volume: str, small_tree: Tree) -> None:
    for path in ("/top.txt", "/empty"):
        assert "trash" not in cli.ok("rm", path).out
    assert cli.ok("rm", "-r", "/a/one.txt", "--json").json()["trashed"] == []
    assert "trash" not in cli.ok("rm", "-r", "-f", "/gone").out
    assert cli.ok("trash", "ls").lines == []


@pytest.mark.parametrize("option", ["--skip-trash", ""])
def test_rm_r_waits_if_nothing_can_be_restored(
    cli: Cli, tree_volume: str, small_tree: Tree, option: str
) -> None:
    if not option:
        cli.ok("trash", "retention", "--set", "0")
    command = ["rm", "-r", *([option] if option else [])]
    (line,) = cli.ok(*command, "/a/b").lines
    assert line == f"removed 2 files, 1 directory, 2,000 bytes from {tree_volume}/a/b"
    assert "  reclaiming  " in cli.ok("trash", "ls", "/a/b").out
    cli.fails(3, "trash", "restore", "/a/b")
    paths = b"/a\n/top.txt\n"
    done = cli.ok(*command, "--from", "-", "--json", stdin=paths).json()
    assert (done["files"], done["directories"], "trashed" in done) == (2, 1, False)
    cli.fails(3, "trash", "restore", "/a")


def test_a_list_of_directories_goes_into_the_trash(
    cli: Cli, tree_volume: str, small_tree: Tree
) -> None:
    paths = b"/a\n/top.txt\n/empty\n"
    (line,) = cli.ok("rm", "-r", "--from", "-", stdin=paths).lines
    assert line == (
        f"removed 1 file, 2 directories, 3 bytes in {tree_volume}/; for 1d, s3k trash restore "
        f"restores the directories; s3k trash ls {tree_volume}/ lists them"
    )
    cli.ok("trash", "restore", "/a", "/empty")
    assert "/a/b/two.csv" in below(cli)
    assert cli.ok("rm", "-r", "--from", "-", "--json", stdin=b"/a\n").json()["trashed"] == [
        f"{tree_volume}/"
    ]


def test_layout_path_says_nothing_of_a_trash(cli: Cli, volume: str, small_tree: Tree) -> None:
    line = f"removed 3 files, 2 directories, 2,010 bytes from {volume}/a"
    assert cli.ok("rm", "-r", "--skip-trash", "/a").lines == [line]
    assert cli.ok("rm", "-r", "/empty", "--json").json().keys() == {
        *("target", "files", "directories", "bytes", "failed")
    }
    done = cli.ok("rm", "-r", "--from", "-", "--json", stdin=b"/top.txt\n").json()
    assert "trashed" not in done


def test_sources_without_names_of_their_own(cli: Cli, volume: str, other_volume: str) -> None:
    for place, data in ((volume, b"1"), (other_volume, b"2")):
        cli.ok("put", "-", f"{place}/f", stdin=data)
        Path(data.decode()).mkdir()
        Path(data.decode(), "f").write_bytes(data)
    cli.ok("mkdir", "/in")
    for command in (
        ["put", "-r", "1/.", "2/.", "/in"],
        ["cp", "-r", f"{volume}/", f"{other_volume}/", "/in"],
        ["get", "-r", f"{volume}/", f"{other_volume}/", "into"],
    ):
        assert "have no name of their own" in cli.fails(2, *command).errors
    assert cli.ok("ls", "/in").lines == []
    assert not Path("into").exists()
    cli.ok("put", "-r", "1/.", "2", "/in")
    assert cli.ok("ls", "-R", "/in").lines == ["/in/2/", "/in/2/f", "/in/f"]
