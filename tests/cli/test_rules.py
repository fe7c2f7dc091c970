"""rules set, list, remove, run."""

from __future__ import annotations

import os

import pytest

from tests.cli.conftest import Cli

Tree = dict[str, bytes]


@pytest.fixture
def ruled(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A volume with rules, and a file in it."""
    cli.ok("init", "./ruled", "--enable", "rules")
    monkeypatch.setenv("S3K_VOLUME", "./ruled")
    cli.ok("put", "-", "/top.txt", stdin=b"top")
    return cli


def test_rules_are_set_listed_and_removed(ruled: Cli) -> None:
    said = ruled.ok("rules", "set", "/a", "--expire-after", "30d", "--read-only-after", "1h")
    place = f"{os.getcwd()}/ruled:/"
    assert said.lines[0].endswith(": expires after 30d, read-only after 1h")
    ruled.ok("rules", "set", "/a/b", "--expire-at", "2030-01-02T03:04")
    assert ruled.ok("rules", "list").lines == [
        "/a: expires after 30d, read-only after 1h",
        "/a/b: expires at 2030-01-02T03:04:00Z",
    ]
    assert ruled.ok("rules", "list", "--json").json_lines() == [
        {
            "volume": place,
            "path": "/a",
            "name_prefix": "",
            "expire_at": None,
            "expire_after": 30 * 86_400,
            "read_only_after": 3600,
        },
        {
            "volume": place,
            "path": "/a/b",
            "name_prefix": "",
            "expire_at": 1_893_553_440,
            "expire_after": None,
            "read_only_after": None,
        },
    ]
    ruled.ok("rules", "remove", "/a", "/a/b")
    assert ruled.ok("rules", "list").out == ""
    assert "no lifecycle rule" in ruled.fails(3, "rules", "remove", "/a").errors


def test_rules_of_names(ruled: Cli) -> None:
    names = ("--name-prefix", "2026-1")
    said = ruled.ok("rules", "set", "/a", *names, "--expire-after", "30d")
    assert said.lines[0].endswith("/a (names that begin with 2026-1): expires after 30d")
    ruled.ok("rules", "set", "/b", *names, "--expire-after", "1d")
    ruled.ok("rules", "set", "/a", "--expire-after", "2d")
    assert ruled.ok("rules", "list").lines == [
        "/a: expires after 2d",
        "/a (names that begin with 2026-1): expires after 30d",
        "/b (names that begin with 2026-1): expires after 1d",
    ]
    listed = ruled.ok("rules", "list", "--json").json_lines()
    assert [(each["path"], each["name_prefix"]) for each in listed] == [
        ("/a", ""),
        ("/a", "2026-1"),
        ("/b", "2026-1"),
    ]
    ruled.ok("rules", "remove", "/a", "/b", *names)
    assert ruled.ok("rules", "list").lines == ["/a: expires after 2d"]
    assert "begin with '2026-1'" in ruled.fails(3, "rules", "remove", "/a", *names).errors
    refused = ruled.fails(2, "rules", "set", "/a", "--name-prefix", "x/y", "--expire-after", "1d")
    assert "without `/`" in refused.errors
    for command in (("set", "--expire-after", "1d"), ("remove",)):
        refused = ruled.fails(2, "rules", *command, "/a", "--name-prefix", "")
        assert "it is empty" in refused.errors
    assert ruled.ok("rules", "list").lines == ["/a: expires after 2d"]


def test_a_run(ruled: Cli) -> None:
    ruled.ok("attr", "/top.txt", "--set", "ExpiresAt=1")
    dry = ruled.ok("rules", "run", "--dry-run", "--json").json_lines()
    place = f"{os.getcwd()}/ruled:/"
    assert dry == [{"volume": place, "path": "/top.txt", "action": "expire", "due_ms": 1000}]
    due, summary = ruled.ok("rules", "run", "--dry-run").lines
    assert due.split() == ["expire", "1970-01-01T00:00:01Z", "/top.txt"]
    assert summary.startswith("dry run: 1 file would expire, 0 files would become read-only in ")
    assert summary.endswith("ruled:/")
    assert ruled.ok("rules", "run", "--dry-run", "--quiet").lines == [due]
    ruled.ok("stat", "/top.txt")
    said = ruled.ok("rules", "run", "--rate", "100", "--json").json()
    assert (said["expired"], said["read_only"], said["failed"]) == (1, 0, 0)
    assert said["volume"] == place
    assert place.endswith("ruled:/")
    ruled.fails(3, "stat", "/top.txt")
    assert ruled.ok("rules", "run").lines == [
        f"0 files expired, 0 files became read-only in {place}"
    ]
    ruled.ok("put", "-", "/kept.txt", stdin=b"kept")
    ruled.ok("touch", "/kept.txt")
    ruled.ok("rules", "set", "/", "--expire-at", "1970-01-01T00:00:01Z")
    assert ruled.ok("rules", "run").lines == [
        f"1 file expired, 0 files became read-only in {place}"
    ]


def test_refusals(ruled: Cli) -> None:
    said = ruled.fails(2, "rules", "set", "/a").errors
    assert "a rule needs --expire-at, --expire-after or --read-only-after" in said
    ruled.fails(2, "rules", "set", "/a", "--expire-after", "soon")
    for time in ("soon", "2d"):  # an age would be in the past
        assert "not a time" in ruled.fails(2, "rules", "set", "/a", "--expire-at", time).errors
    ruled.fails(2, "rules", "set", "/a", "--expire-after", "0")
    ruled.fails(2, "rules", "run", "--rate", "0")
    ruled.fails(2, "rules", "run", ":/a")
    ruled.fails(2, "attr", "/top.txt", "--set", "ExpiresAfter=30d")
    of_file = ruled.fails(1, "rules", "set", "/top.txt", "--expire-after", "1")
    assert "s3k attr --set ExpiresAfter=" in of_file.errors
    assert ruled.ok("rules", "list").out == ""


def test_a_volume_without_rules(cli: Cli, small_tree: Tree) -> None:
    for command in (
        ("list",),
        ("run",),
        ("run", "--dry-run"),
        ("set", "/a", "--expire-after", "1"),
    ):
        assert "s3k migrate --enable rules" in cli.fails(1, "rules", *command).errors
