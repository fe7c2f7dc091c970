"""df, checksum, count, test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from s3k_async.storage.physical import checksum_of
from tests.cli.conftest import Cli

Tree = dict[str, bytes]


# df


def test_the_space_of_a_volume(cli: Cli, tmp_path: Path) -> None:
    volume = str(tmp_path / "vol")
    cli.ok("init", volume)
    found = cli.ok("df", volume, "--json").json()
    assert [*found] == ["volume", "table", "data", "log", "hot"]
    assert found["volume"] == f"{volume}:/"
    assert found["hot"] is None
    total = shutil.disk_usage(tmp_path).total
    assert [found[name]["total"] for name in ("table", "data", "log")] == [total] * 3
    head, *rows = [line.split() for line in cli.ok("df", volume).lines]
    assert head == ["total", "used", "free"]
    assert [row[0] for row in rows] == ["table", "data", "log"]
    assert int(rows[1][1]) == total
    assert rows[1][1:] != cli.ok("df", "-h", volume).lines[2].split()[1:] > ["0B"]
    cli.fails(2, "df", f"{volume}:/path")


def test_the_space_of_the_default_volume_is_unknown_in_memory(cli: Cli, small_tree: Tree) -> None:
    rows = [line.split() for line in cli.ok("df").lines[1:]]
    assert rows == [[name, "unknown", "unknown", "unknown"] for name in ("table", "data", "log")]


# checksum


def test_checksums_are_the_recorded_ones(cli: Cli, small_tree: Tree, volume: str) -> None:
    (status,) = cli.ok("stat", "/top.txt", "--json").json_lines()
    digest = checksum_of(b"top")
    assert status["checksum"] == digest
    line = f"{digest}  {status['etag'] or '-'}  {volume}/top.txt"
    assert cli.ok("checksum", "/top.txt").lines == [line]
    shown = cli.ok("checksum", "/top.txt", "/a/b/two.csv", "--json").json_lines()
    assert [each["path"] for each in shown] == ["/top.txt", "/a/b/two.csv"]
    assert [each["size"] for each in shown] == [3, 2000]
    assert shown[1]["checksum"] == checksum_of(b"2" * 2000)
    assert [each["verified"] for each in shown] == [False, False]


def test_verification_reads_the_file(cli: Cli, tmp_path: Path) -> None:
    volume = str(tmp_path / "vol")
    cli.ok("init", volume)
    cli.ok("put", "-", f"{volume}:/file", stdin=b"right")
    (shown,) = cli.ok("checksum", "--verify", f"{volume}:/file", "--json").json_lines()
    assert shown["verified"] is True
    (status,) = cli.ok("stat", f"{volume}:/file", "--json").json_lines()
    (stored,) = [
        path
        for path in (tmp_path / "vol").rglob("*")
        if path.name in status["physical"] and path.is_file()
    ]
    stored.write_bytes(b"wrong")
    assert cli.ok("checksum", f"{volume}:/file").code == 0
    assert "/file" in cli.fails(9, "checksum", "--verify", f"{volume}:/file").errors


def test_a_checksum_that_is_not_recorded_is_computed(cli: Cli, small_tree: Tree) -> None:
    cli.ok("truncate", "-s", "2", "/top.txt")
    (shown,) = cli.ok("checksum", "/top.txt", "--json").json_lines()
    assert shown["checksum"] == ""
    assert cli.ok("checksum", "/top.txt").out.startswith("-  ")
    (shown,) = cli.ok("checksum", "--verify", "/top.txt", "--json").json_lines()
    assert (shown["checksum"], shown["verified"]) == (checksum_of(b"to"), False)


def test_checksums_are_of_files(cli: Cli, small_tree: Tree) -> None:
    cli.fails(1, "checksum", "/a")
    cli.fails(3, "checksum", "/gone")
    done = cli("checksum", "/gone", "/top.txt")
    assert done.code == 10
    assert len(done.lines) == 1


# count


def test_count(cli: Cli, small_tree: Tree, volume: str) -> None:
    columns = [line.split() for line in cli.ok("count", "/", "/a", "/top.txt").lines]
    assert columns == [
        ["4", "4", "2013", f"{volume}/"],
        ["2", "3", "2010", f"{volume}/a"],
        ["0", "1", "3", f"{volume}/top.txt"],
    ]
    for human in ("--human", "-h"):
        assert cli.ok("count", human, "/a").out.split()[2] == "2.0K"


def test_count_as_json_is_that_of_du(cli: Cli, small_tree: Tree) -> None:
    for path in ("/", "/a", "/empty", "/top.txt"):
        assert cli.ok("count", path, "--json").json() == cli.ok("du", "-s", path, "--json").json()


def test_count_of_missing_paths(cli: Cli, small_tree: Tree) -> None:
    cli.fails(3, "count", "/gone")
    done = cli("count", "/gone", "/a")
    assert (done.code, len(done.lines)) == (10, 1)


# test


@pytest.mark.parametrize(
    ("path", "fulfilled"),
    [
        ("/", "ed"),
        ("/a", "ed"),
        ("/top.txt", "efs"),
        ("/a/b/three.txt", "efz"),
        ("/gone", ""),
        ("/top.txt/below", ""),
    ],
)
def test_conditions(cli: Cli, small_tree: Tree, path: str, fulfilled: str) -> None:
    for condition in "efdsz":
        done = cli("test", f"-{condition}", path)
        assert (done.code, done.out, done.errors) == (int(condition not in fulfilled), "", "")
    assert cli("test", path).code == int(not fulfilled)


def test_all_conditions_must_be_fulfilled(cli: Cli, small_tree: Tree) -> None:
    assert cli("test", "-f", "-s", "/top.txt").code == 0
    assert cli("test", "-s", "-z", "/top.txt").code == 1
    assert cli("test", "-fz", "/a/b/three.txt").code == 0


def test_the_result_as_json(cli: Cli, small_tree: Tree) -> None:
    done = cli("test", "-d", "/a", "--json")
    assert (done.code, done.json()) == (0, {"path": "/a", "result": True})
    done = cli("test", "-d", "/top.txt", "--json")
    assert (done.code, done.json()) == (1, {"path": "/top.txt", "result": False})


def test_an_error_is_not_a_negative_answer(cli: Cli, volume: str) -> None:
    cli.fails(3, "test", "-e", "memory://no-such-volume/a")
    cli.fails(2, "test", "-e", "relative")
