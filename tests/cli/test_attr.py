"""attr, and find by metadata."""

from __future__ import annotations

from tests.cli.conftest import Cli

Tree = dict[str, bytes]


def test_attributes_are_changed_and_shown(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("attr", "/top.txt").out == "/top.txt:\n"
    cli.ok("attr", "/top.txt", "/a", "--mode", "640", "--uid", "7", "--gid", "8")
    cli.ok("attr", "/top.txt", "--set", "owner=team a", "--set", "empty=", "--read-only")
    assert cli.ok("attr", "/top.txt").out.splitlines() == [
        "/top.txt:",
        "  gid: 8",
        "  empty=",
        "  owner=team a",
        "  mode: 0640",
        "  read_only: true",
        "  uid: 7",
    ]
    assert cli.ok("attr", "/a", "--json").json()["attributes"] == {"gid": 8, "mode": 416, "uid": 7}
    said = cli.ok("attr", "/top.txt", "--unset", "empty", "--writable", "--json").json()
    assert said["attributes"]["metadata"] == {"owner": "dGVhbSBh"}
    assert "read_only" not in said["attributes"]
    assert said == cli.ok("stat", "/top.txt", "--json").json()


def test_a_read_only_file_is_kept(cli: Cli, small_tree: Tree) -> None:
    cli.ok("attr", "/top.txt", "--read-only")
    for command in (("rm", "/top.txt"), ("mv", "/top.txt", "/x"), ("touch", "/top.txt")):
        assert "s3k attr --writable" in cli.fails(5, *command).errors
    cli.ok("attr", "/top.txt", "--writable")
    cli.ok("rm", "/top.txt")


def test_refusals(cli: Cli, small_tree: Tree) -> None:
    for wrong in (
        ("--mode", "9"),
        ("--set", "name"),
        ("--set", "a=1", "--set", "a=2"),
        ("--set", "a=1", "--unset", "a"),
        ("--uid", "-1"),
    ):
        cli.fails(2, "attr", "/top.txt", *wrong)
    assert "begins with" in cli.fails(2, "attr", "/top.txt", "--set", "#a=1").errors
    assert cli.ok("attr", "/top.txt").out == "/top.txt:\n"


def test_find_by_metadata(cli: Cli, small_tree: Tree) -> None:
    cli.ok("attr", "/top.txt", "/a", "--set", "team=x")
    assert cli.ok("find", "--metadata", "team").out.split() == ["/a/", "/top.txt"]
    assert cli.ok("find", "--metadata", "team", "--type", "d").out.split() == ["/a/"]
    assert cli.ok("find", "--metadata", "none").out == ""
