"""versions, undelete, restore and rm --permanently."""

from __future__ import annotations

import re
import time

import pytest

from tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("volume")


def put(cli: Cli, path: str, data: bytes) -> None:
    cli.ok("put", "-", path, stdin=data)


def test_versions_are_listed(cli: Cli) -> None:
    put(cli, "/d/f", b"1")
    put(cli, "/d/f", b"4444")
    cli.ok("rm", "/d/f")
    lines = cli.ok("versions", "/d/f").lines
    assert [line.split()[1] for line in lines] == ["deleted", "overwritten"]
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf"[0-9a-f-]{{36}}\.3  deleted      {stamp}  {stamp} +4", lines[0])
    found = cli.ok("versions", "/d/f", "--json").json_lines()
    assert [each["size"] for each in found] == [4, 1]
    assert found[0].keys() == {
        "volume",
        "id",
        "path",
        "state",
        "operation",
        "since_ms",
        "until_ms",
        "size",
        "mtime_ms",
        "checksum",
        "has_data",
    }
    cli.ok("rm", "-f", "--permanently", "/d/f")
    assert {each["has_data"] for each in cli.ok("versions", "/d/f", "--json").json_lines()} == {
        False
    }
    assert all(line.endswith("  no data") for line in cli.ok("versions", "/d/f").lines)
    assert "no file is or was at the path" in cli.fails(3, "versions", "/missing").errors
    assert "-r brings a directory back" not in cli.fails(1, "versions", "/d").errors


def test_undelete(cli: Cli) -> None:
    put(cli, "/d/f", b"1")
    put(cli, "/d/f", b"22")
    put(cli, "/d/s/g", b"333")
    old = cli.ok("versions", "/d/f", "--json").json_lines()[-1]["id"]
    cli.ok("rm", "/d/f")
    assert cli.ok("undelete", "/d/f").lines[0].startswith("undeleted 1 file, 2 bytes to memory://")
    assert "--to brings it back" in cli.fails(4, "undelete", "/d/f").errors
    cli.ok("undelete", "/d/f", "--version", old, "--to", "/old/")
    assert cli.ok("cat", "/old/f").output == b"1"
    cli.ok("rm", "-r", "/d")
    assert "-r brings a directory back" in cli.fails(1, "undelete", "/d").errors
    assert "no such version" not in cli.fails(3, "undelete", "/nothing").errors
    done = cli.ok("undelete", "-r", "/d", "--json").json()
    assert (done["files"], done["bytes"], done["failed"]) == (2, 5, 0)
    cli.ok("rm", "-r", "/d")
    cli.ok("undelete", "-r", "/d", "--since", "1h", "--to", "/e")
    assert cli.ok("cat", "/e/s/g", "/e/f").output == b"33322"
    for arguments in (
        ["/a", "/b", "--version", old],
        ["/a", "-r", "--version", old],
        ["/a", "--since", "1h"],
        ["-r", "/a", "--since", "soon"],
        ["/a/f", "/b/f", "--to", "/c"],
        ["/d/f", "--version", "x"],
    ):
        cli.fails(2, "undelete", *arguments)


def test_undelete_of_patterns(cli: Cli) -> None:
    for path in (
        "/d/a.csv",
        "/d/b.csv",
        "/d/b.txt",
        "/e/a.csv",
        "/d1/s/f",
        "/d2/s/f",
        "/d/kept.csv",
    ):
        put(cli, path, path.encode())
    cli.ok("rm", "-r", "/d/a.csv", "/d/b.csv", "/d/b.txt", "/e", "/d1", "/d2")
    put(cli, "/d/b.csv", b"new")
    assert cli.ok("undelete", "/d/*.csv").lines[0].startswith("undeleted 1 file, 8 bytes to ")
    assert cli.ok("cat", "/d/a.csv", "/d/b.csv").out == "/d/a.csvnew"
    assert "no deleted file matches" in cli.fails(3, "undelete", "/d/*.gone").errors
    assert "no deleted file matches" in cli.fails(3, "undelete", "/d[12]").errors
    assert "have the name 's'" in cli.fails(2, "undelete", "-r", "/*/s", "--to", "/x").errors
    cli.ok("undelete", "-r", "/d?", "--to", "/x")
    taken = cli("undelete", "/d1/s/*", "/d2/s/*", "/e/*", "--to", "/y")
    assert taken.code == 10
    assert "/y/f" in taken.errors
    assert cli.ok("ls", "/y").lines == ["a.csv", "f"]
    assert cli.ok("find", "/x", "--type", "f").lines == ["/x/d1/s/f", "/x/d2/s/f"]
    assert cli.ok("undelete", "-r", "/d[12]", "/e", "--since", "1h", "--json").json()["files"] == 3
    put(cli, "/d/*.txt", b"literal")
    cli.ok("rm", "/d/[*].txt")
    cli.ok("undelete", "/d/*.txt")
    assert cli.ok("ls", "/d").lines == ["*.txt", "a.csv", "b.csv", "kept.csv"]


def test_directories_from_the_trash_by_a_pattern(cli: Cli, tree_volume: str) -> None:
    for name in ("/d1/f", "/d2/f", "/e/f"):
        put(cli, name, name.encode())
    cli.ok("rm", "-r", "/d1", "/d2", "/e")
    done = cli.ok("undelete", "-r", "/d*", "--json").json()
    assert (done["files"], done["directories"]) == (0, 2)
    assert cli.ok("cat", "/d1/f", "/d2/f").out == "/d1/f/d2/f"
    cli.fails(3, "ls", "/e")
    cli.ok("rm", "-r", "/d1")
    put(cli, "/d1/g", b"new")
    assert cli.ok("undelete", "-r", "/d[12]", "--json").json()["directories"] == 0
    cli.ok("undelete", "-r", "/[e]", "--to", "/back")
    assert cli.ok("ls", "/back/e").lines == ["f"]


def test_a_directory_from_the_trash(cli: Cli, tree_volume: str) -> None:
    put(cli, "/d/f", b"1")
    cli.ok("rm", "-r", "/d")
    assert cli.ok("versions", "/d/f").lines[0].split()[1] == "trash"
    said = cli.ok("undelete", "-r", "/d").lines
    assert said == [f"undeleted 0 files, 1 directory, 0 bytes to {tree_volume}/d"]
    assert cli.ok("cat", "/d/f").output == b"1"


def test_restore_to_a_time(cli: Cli) -> None:
    put(cli, "/d/f", b"1")
    put(cli, "/d/g", b"1")
    time.sleep(0.01)
    at = str(cli.ok("versions", "/d/g", "--json").json_lines()[0]["since_ms"] + 1)
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(int(at) // 1000))}.{at[-3:]}"
    cli.ok("rm", "/d/f")
    put(cli, "/d/g", b"22")
    put(cli, "/d/new", b"333")
    dry = cli.ok("restore", "/d", "--at", moment, "--delete")
    assert dry.lines[:3] == [
        "create: /d/f  1 byte",
        "replace: /d/g  1 byte",
        "delete: /d/new  3 bytes",
    ]
    assert re.fullmatch(r"would make 3 changes in memory:\S+/d \(--yes makes them\)", dry.lines[3])
    cli.fails(3, "stat", "/d/f")
    *changes, summary = cli.ok("restore", "/d", "--at", moment, "--yes", "--json").json_lines()
    assert [each["change"] for each in changes] == ["create", "replace"]
    assert (summary["files"], summary["failed"], summary["dry_run"]) == (2, 0, False)
    assert cli.ok("cat", "/d/f", "/d/g", "/d/new").output == b"11333"
    cli.ok("rm", "--permanently", "/d/f")
    lost = cli("restore", "/d", "--at", moment)
    assert lost.code == 9
    assert lost.lines[0] == "cannot recover: /d/f: its data does not exist any more"
    assert lost.lines[1].endswith("; 1 path cannot be recovered")
    cli.fails(2, "restore", "/d", "--at", "soon")
    cli.fails(2, "restore", "/d")


def test_restore_of_a_path_that_never_existed(cli: Cli, tree_volume: str) -> None:
    put(cli, "/d/f", b"1")
    put(cli, "/e/g/h", b"1")
    cli.ok("mv", "/e", "/d/moved")
    for path in ("/nope", "/d/nope", "/d/f/nope"):
        for more in ((), ("--yes",)):
            said = cli.fails(3, "restore", path, "--at", "1m", *more).errors
            assert said == (
                "s3k: no file or directory is or was at the path, as far as the operation log "
                f"goes back: {path}\n"
            )
    cli.ok("rm", "-r", "/d")
    for path in ("/", "/d", "/d/f", "/d/moved/g", "/d/moved/g/h", "/e", "/e/g", "/e/g/h"):
        assert "would make 0 changes" in cli.ok("restore", path, "--at", "1m").out


def test_a_time_in_the_future(cli: Cli) -> None:
    """Nothing is known of it; but another clock may be a little ahead."""
    put(cli, "/d/f", b"1")
    cli.ok("rm", "-r", "/d")
    later, soon = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + seconds))
        for seconds in (3600, 30)
    )
    for command in (["restore", "/", "--at"], ["undelete", "-r", "/d", "--since"]):
        said = cli.fails(2, *command, later).errors
        assert f"{command[-1]}: {later} is in the future: give an earlier time" in said
    cli.ok("restore", "/", "--at", soon)
    cli.fails(3, "undelete", "-r", "/d", "--since", soon)


def test_rm_permanently(cli: Cli) -> None:
    put(cli, "/d/f", b"1")
    put(cli, "/d/f", b"22")
    assert cli.ok("rm", "--permanently", "/d/f").lines[0].startswith("removed 1 file, 2 bytes")
    cli.fails(9, "undelete", "/d/f")
    cli.fails(3, "rm", "--permanently", "/d/f")
    assert "would delete 0 objects" in cli.ok("gc", "--grace", "0").out
    put(cli, "/d/g", b"1")
    cli.ok("rm", "-r", "--permanently", "/d")
    cli.fails(2, "rm", "--permanently", "--from", "-")


def test_restore_to_a_time_before_a_compaction(cli: Cli, volume: str) -> None:
    put(cli, "/d/f", b"1")
    time.sleep(0.01)
    at = str(cli.ok("versions", "/d/f", "--json").json_lines()[0]["since_ms"] + 1)
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(int(at) // 1000))}.{at[-3:]}"
    cli.ok("mv", "/d/f", "/d/g")
    cli.ok("mv", "/d/g", "/d/h")
    cli.ok("oplog", "compact", volume, "--grace", "0", "--yes")
    said = cli("restore", "/d", "--at", moment)
    assert said.code == 9
    assert re.fullmatch("cannot recover: /d/g: compaction .* s3k versions .*", said.lines[0])
    assert re.search(
        "compaction has removed .* complete since 20..-..-..T..:..:..Z$", said.lines[1]
    )
    summary = cli("restore", "/d", "--at", moment, "--json").json_lines()[-1]
    assert summary["history_ms"] > int(at)
