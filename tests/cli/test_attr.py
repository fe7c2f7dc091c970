"""attr, and find by metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_an_identity_is_given_by_flags_or_the_environment(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = str(tmp_path / "shared")
    cli.ok("init", volume, "--enable", "permissions", "--uid", "1000", "--gids", "1000,5")
    cli.ok("put", "-", f"{volume}:/f", "--uid", "1000", "--gids", "5", stdin=b"x")
    shown = cli.ok("attr", f"{volume}:/f").out.splitlines()[1:]
    assert shown == ["  gid: 5", "  mode: 0644", "  uid: 1000"]
    refused = cli.fails(5, "--uid", "1001", "--gids", "5", "rm", f"{volume}:/f").errors
    assert (
        "cannot remove or rename /f: user 1001 has no permission to write and search /" in refused
    )
    assert "Traceback" not in refused
    monkeypatch.setenv("S3K_UID", "1001")
    assert "may not change the mode" in cli.fails(5, "attr", "--mode", "777", f"{volume}:/f").errors
    monkeypatch.setenv("S3K_UID", "0")
    cli.ok("attr", "--uid", "1001", f"{volume}:/f")
    cli.ok("cat", f"{volume}:/f", "--uid", "1002")
    cli.ok("attr", "--mode", "600", f"{volume}:/f")
    assert "cannot read it" in cli.fails(5, "cat", f"{volume}:/f", "--uid", "1002").errors
    assert "--gids" in cli.fails(2, "ls", volume, "--gids", "a").errors


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
