"""trash: deleted directories, in volumes of both layouts."""

from __future__ import annotations

import re
from dataclasses import replace

import anyio
import pytest

from s3k_async._core.duration_syntax import duration_text
from s3k_async.backends.ports.items import Condition, Update
from s3k_async.client import S3kClient
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.settings import resolve
from tests.cli.conftest import Cli


def test_the_retention_is_shown_and_changed(cli: Cli, tree_volume: str) -> None:
    where = f"retention of the trash in {tree_volume}/: "
    assert cli.ok("trash", "retention").lines == [f"{where}1d"]
    assert cli.ok("trash", "retention", tree_volume, "--set", "1w").lines == [
        f"{where}7d, before 1d"
    ]
    assert cli.ok("trash", "retention", "--quiet").lines == [f"{where}7d"]
    assert cli.ok("trash", "retention", "--set", "90", "--quiet").lines == []
    document = {"volume": f"{tree_volume}/", "trash_retention": 90}
    assert cli.ok("trash", "retention", "--json").json() == document
    changed = cli.ok("trash", "retention", "--set", "0", "--json").json()
    assert changed == document | {"trash_retention": 0, "previous": 90}
    assert cli.ok("trash", "retention").lines == [f"{where}0s"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("1.5h", 5400), ("15m", 900), ("3d", 259_200)],
)
def test_durations(cli: Cli, tree_volume: str, text: str, seconds: int) -> None:
    cli.ok("trash", "retention", "--set", text)
    assert cli.ok("trash", "retention", "--json").json()["trash_retention"] == seconds
    cli.ok("trash", "retention", "--set", duration_text(seconds))
    assert cli.ok("trash", "retention", "--json").json()["trash_retention"] == seconds


@pytest.mark.parametrize("text", ["", "-1", "soon", "0.5", "1y", "nan", "inf", "1 d", "9999999w"])
def test_what_is_no_duration(cli: Cli, tree_volume: str, text: str) -> None:
    for command in (["trash", "retention", "--set"], ["gc", "--trash-retention"]):
        assert "write 3600, 90s, 15m" in cli.fails(2, *command, text).errors
    assert "write 3600" in cli.fails(2, "init", "memory://no", "--trash-retention", text).errors
    assert cli.ok("trash", "retention", "--json").json()["trash_retention"] == 86_400


def test_init_takes_a_retention(cli: Cli) -> None:
    volume, tree = "memory://cli-retention", ("--layout", "tree")
    cli.ok("init", volume, *tree, "--trash-retention", "2d")
    assert cli.ok("trash", "retention", volume, "--json").json()["trash_retention"] == 172_800
    cli.ok("init", volume, "--exist-ok")
    cli.ok("init", volume, *tree, "--exist-ok", "--trash-retention", "48h")
    done = cli.fails(11, "init", volume, *tree, "--exist-ok", "--trash-retention", "0")
    assert "s3k trash retention changes it" in done.errors


def test_layout_path_has_no_retention(cli: Cli, volume: str) -> None:
    assert cli.ok("trash", "retention").lines == [f"{volume}/ has layout path, which has no trash"]
    assert cli.ok("trash", "retention", "--json").json()["trash_retention"] is None
    assert "has no trash" in cli.fails(1, "trash", "retention", "--set", "1d").errors
    done = cli.fails(11, "init", "memory://no", "--trash-retention", "1d")
    assert "layout path, which has no trash" in done.errors
    cli.fails(3, "ls", "memory://no")


def test_a_retention_belongs_to_a_volume(cli: Cli, tree_volume: str) -> None:
    cli.fails(2, "trash", "retention", f"{tree_volume}/a")
    cli.fails(3, "trash", "retention", "memory://nobody")
    cli.fails(2, "trash", "retention", tree_volume, "7d")


@pytest.fixture
def deleted(cli: Cli, tree_volume: str, small_tree: dict[str, bytes]) -> dict[str, str]:
    """Directories in the trash, by their former paths: their ids."""
    cli.ok("put", "-", "/c/d/f", stdin=b"four")
    cli.ok("rm", "-r", "/a/b")
    cli.ok("rm", "-r", "/c/d")
    return {each["path"]: each["id"] for each in cli.ok("trash", "ls", "--json").json_lines()}


def test_ls_shows_what_was_deleted(cli: Cli, deleted: dict[str, str], tree_volume: str) -> None:
    pattern = r"([0-9a-f-]{36})  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  -           \S+@\S+  (/\S+)"
    found = [re.fullmatch(pattern, line) for line in cli.ok("trash", "ls").lines]
    assert {each[2]: each[1] for each in found if each} == deleted
    assert deleted.keys() == {"/a/b", "/c/d"}
    (line,) = cli.ok("trash", "ls", f"{tree_volume}/a").lines
    assert line.endswith("/a/b")
    assert cli.ok("trash", "ls", "/a/b/").lines == [line]
    assert cli.ok("trash", "ls", "/a/bc").lines == []
    (document,) = cli.ok("trash", "ls", "/c", "--json").json_lines()
    assert document.keys() == {"volume", "path", "id", "deleted_ms", "by", "state"}
    assert (document["path"], document["id"], document["state"]) == ("/c/d", deleted["/c/d"], None)
    cli.ok("trash", "empty", "/c", "--yes")
    assert "  reclaiming  " in cli.ok("trash", "ls", "/c").out
    assert cli.ok("trash", "ls", "/c", "--json").json()["state"] == "reclaiming"


def test_ls_shows_the_newest_first(cli: Cli, deleted: dict[str, str]) -> None:
    cli.ok("put", "-", "/a/b/new", stdin=b"new")
    cli.ok("rm", "-r", "/a/b")
    times = [each["deleted_ms"] for each in cli.ok("trash", "ls", "--json").json_lines()]
    assert len(times) == 3
    assert times == sorted(times, reverse=True)


def test_restore_by_path_and_by_id(cli: Cli, deleted: dict[str, str], tree_volume: str) -> None:
    cli.fails(3, "ls", "/a/b")
    assert cli.ok("trash", "restore", "/a/b").lines == [f"restored {tree_volume}/a/b"]
    assert cli.ok("ls", "/a/b").lines == ["three.txt", "two.csv"]
    assert cli.ok("cat", "/a/b/two.csv").output == b"2" * 2000
    cli.ok("rm", "/c")
    document = cli.ok("trash", "restore", deleted["/c/d"].upper(), "--json").json()
    assert (document["path"], document["id"]) == ("/c/d", deleted["/c/d"])
    assert cli.ok("cat", "/c/d/f").output == b"four"
    assert cli.ok("trash", "ls").lines == []
    cli.ok("rm", "-r", "/c/d")
    assert cli.ok("trash", "restore", "-q", f"{tree_volume}/c/d").lines == []


def test_restore_of_the_directory_that_was_deleted_last(cli: Cli, deleted: dict[str, str]) -> None:
    cli.ok("put", "-", "/a/b/new", stdin=b"new")
    cli.ok("rm", "-r", "/a/b")
    cli.ok("trash", "restore", "/a/b")
    assert cli.ok("ls", "/a/b").lines == ["new"]
    done = cli.fails(4, "trash", "restore", deleted["/a/b"])
    assert "--to restores the directory at another path" in done.errors
    cli.ok("trash", "restore", deleted["/a/b"], "--to", "/old/b")
    assert cli.ok("ls", "/old/b").lines == ["three.txt", "two.csv"]


def test_restore_at_another_path(
    cli: Cli, deleted: dict[str, str], tree_volume: str, other_volume: str
) -> None:
    cli.ok("trash", "restore", "/a/b", deleted["/c/d"], "--to", "/new/place")
    assert cli.ok("ls", "/new/place").lines == ["b/", "d/"]
    cli.ok("rm", "-r", "/new/place/b")
    cli.ok("trash", "restore", "/new/place/b", "--to", f"{tree_volume}/empty/")
    assert cli.ok("ls", "/empty/b").lines == ["three.txt", "two.csv"]
    cli.ok("rm", "-r", "/empty/b")
    cli.fails(2, "trash", "restore", "/empty/b", "--to", f"{other_volume}/b")
    assert "top.txt" in cli.fails(1, "trash", "restore", "/empty/b", "--to", "/top.txt/b").errors
    assert len(cli.ok("trash", "ls").lines) == 1


def test_what_is_not_in_the_trash(cli: Cli, deleted: dict[str, str]) -> None:
    missing = "00000000-0000-4000-8000-00000000000f"
    for operand in ("/top.txt", "/", "/a", missing, ":/a/b/c"):
        done = cli.fails(3, "trash", "restore", operand)
        assert "no such directory in the trash; s3k trash ls lists" in done.errors
    for operand in ("/top.txt", missing):
        cli.fails(3, "trash", "empty", operand, "--yes")
    done = cli("trash", "restore", "/top.txt", "/a/b")
    assert (done.code, done.errors.count("\n")) == (10, 1)
    assert cli.ok("ls", "/a").lines == ["b/", "one.txt"]
    cli.fails(2, "trash", "restore", "a/b")
    cli.fails(2, "trash", "restore")
    cli.fails(2, "trash", "restore", "/a/b", "--to", "")
    cli.fails(2, "trash", "ls", "/..")
    cli.fails(3, "trash", "ls", "memory://nobody")
    assert cli("trash", "restore", "/x", "--json").error()["code"] == "not_found"


def test_empty_shows_first_what_it_would_reclaim(
    cli: Cli, deleted: dict[str, str], tree_volume: str
) -> None:
    counts = "3 files, 2 directories, 2,004 bytes"
    would = f"would reclaim from the trash of {tree_volume}/: {counts} (--yes reclaims)"
    assert cli.ok("trash", "empty").lines == [would]
    assert len(cli.ok("trash", "ls").lines) == 2
    done = cli.ok("trash", "empty", "--yes")
    assert done.lines == [f"reclaimed from the trash of {tree_volume}/: {counts}"]
    for operand in deleted:
        cli.fails(3, "trash", "restore", operand)
    cli.fails(3, "trash", "restore", deleted["/a/b"])
    assert cli.ok("trash", "empty", "--yes", "--json").json() == {
        "target": f"{tree_volume}/",
        "files": 0,
        "directories": 2,
        "bytes": 0,
        "failed": 0,
        "dry_run": False,
    }


def test_empty_some(cli: Cli, deleted: dict[str, str]) -> None:
    assert cli.ok("trash", "empty", "/c", "--json").json()["files"] == 1
    assert cli.ok("trash", "empty", deleted["/a/b"], "/c/d", "--json").json_lines()[0]["files"] == 2
    for yes in ([], ["--yes"]):
        for older, files in (("1h", 0), ("2000-01-01", 0), ("2999-01-01", 3)):
            if not yes or not files:
                done = cli.ok("trash", "empty", "--older-than", older, "--json", *yes).json()
                assert (done["files"], done["dry_run"]) == (files, not yes)
    cli.ok("trash", "empty", deleted["/c/d"], "--yes")
    states = {each["path"]: each["state"] for each in cli.ok("trash", "ls", "--json").json_lines()}
    assert states == {"/a/b": None, "/c/d": "reclaiming"}
    for wrong in ("soon", "", "2d3h"):
        cli.fails(2, "trash", "empty", "--older-than", wrong, "--yes")
    cli.ok("trash", "empty", "--older-than", "0s", "/a", "--yes", "-q")
    cli.fails(3, "trash", "restore", "/a/b")


def test_a_damaged_item_is_reported_and_the_rest_is_reclaimed(
    cli: Cli, deleted: dict[str, str], tree_volume: str
) -> None:
    async def damage() -> None:
        async with S3kClient(config=replace(resolve(tree_volume), layout="tree")) as fs:
            volume = fs._volume()
            key = TrashedDirectory.key(deleted["/a/b"], volume.store.keys)
            await volume.items.write(Update(key, Condition(), {"why": "unknown"}))

    anyio.run(damage)
    cli.fails(9, "trash", "ls")
    cli.fails(9, "trash", "empty")
    done = cli("trash", "empty", "--yes")
    assert done.code == 10
    first, last = done.errors.splitlines()
    assert "repeat the call to finish" in last
    assert deleted["/a/b"] in first
    assert "1 file, 1 directory, 4 bytes" in done.out


def test_layout_path_has_an_empty_trash(
    cli: Cli, volume: str, small_tree: dict[str, bytes]
) -> None:
    cli.ok("rm", "-r", "/a")
    assert cli.ok("trash", "ls").lines == []
    cli.fails(3, "trash", "restore", "/a")
    cli.fails(3, "trash", "empty", "/a")
    nothing = f"reclaimed from the trash of {volume}/: 0 files, 0 directories, 0 bytes"
    assert cli.ok("trash", "empty", "--yes").lines == [nothing]


def test_du_of_the_trash(cli: Cli, deleted: dict[str, str], tree_volume: str) -> None:
    def lines(*arguments: str) -> list[tuple[str, ...]]:
        return [tuple(line.split()) for line in cli.ok("du", "--trash", *arguments).lines]

    found = lines()
    assert found[-1] == ("2004", "3", "2", "/")
    assert sorted(found[:-1]) == [("2000", "2", "1", "/a/b"), ("4", "1", "1", "/c/d")]
    assert lines("-s") == found[-1:]
    assert lines("/c", "/a/b", "/none") == [
        *[("4", "1", "1", "/c/d"), ("4", "1", "1", "/c")],
        *[("2000", "2", "1", "/a/b"), ("2000", "2", "1", "/a/b"), ("0", "0", "0", "/none")],
    ]
    assert lines("-h", "-s", "/a") == [("2.0K", "2", "1", "/a")]
    counts = {"bytes": 4, "files": 1, "directories": 1}
    total = {"volume": f"{tree_volume}/", "path": "/c", **counts}
    assert cli.ok("du", "--trash", "/c", "--json").json_lines() == [
        total | {"path": "/c/d", "id": deleted["/c/d"]},
        total,
    ]
    cli.ok("trash", "empty", "/c", "--yes")
    assert lines("/c") == [("0", "0", "1", "/c/d"), ("0", "0", "1", "/c")]


def test_du_of_the_trash_in_layout_path(cli: Cli, small_tree: dict[str, bytes]) -> None:
    cli.ok("rm", "-r", "/a")
    assert cli.ok("du", "--trash", "/a").lines == [f"{0:>13} {0:>8} {0:>7}  /a"]
    assert "trash" not in cli.ok("du").out
