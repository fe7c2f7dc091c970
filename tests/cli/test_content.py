"""cat, put, get."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

Tree = dict[str, bytes]


@pytest.fixture
def source() -> Path:
    """A local tree: `src/a.txt`, `src/sub/b.bin`, an empty directory `src/none`."""
    top = Path("src")
    (top / "sub").mkdir(parents=True)
    (top / "none").mkdir()
    (top / "a.txt").write_bytes(b"alpha")
    (top / "sub" / "b.bin").write_bytes(bytes(range(256)) * 40)
    return top


# cat


def test_cat_writes_bytes_as_they_are(cli: Cli, volume: str) -> None:
    data = bytes(range(256)) * 10
    cli.ok("put", "-", "/bytes", stdin=data)
    cli.ok("put", "-", "/more", stdin=b"more")
    assert cli.ok("cat", "/bytes").output == data
    assert cli.ok("cat", "/bytes", "/more").output == data + b"more"
    assert cli.ok("cat", "--json", "/more").output == b"more"


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ("0-0", "0"),
        ("2-4", "234"),
        ("7-", "789"),
        ("-3", "789"),
        ("5-99", "56789"),
        ("-99", "0123456789"),
        ("0-", "0123456789"),
    ],
)
def test_cat_range(cli: Cli, volume: str, span: str, expected: str) -> None:
    cli.ok("put", "-", "/digits", stdin=b"0123456789")
    assert cli.ok("cat", "--range", span, "/digits").out == expected


def test_cat_range_past_the_end(cli: Cli, volume: str) -> None:
    cli.ok("put", "-", "/digits", stdin=b"0123456789")
    assert "/digits" in cli.fails(1, "cat", "--range", "10-", "/digits").errors
    cli.ok("touch", "/nothing")
    assert cli.ok("cat", "--range", "0-9", "/nothing").out == ""


@pytest.mark.parametrize("span", ["", "-", "x", "4-2", "1", "1-2-3", "-0", "٣-٤"])
def test_cat_of_no_range(cli: Cli, volume: str, span: str) -> None:
    assert "--range" in cli.fails(2, "cat", "--range", span, "/digits").errors


def test_cat_of_what_is_no_file(cli: Cli, small_tree: Tree) -> None:
    cli.fails(3, "cat", "/gone")
    cli.fails(1, "cat", "/a")
    done = cli("cat", "/gone", "/top.txt")
    assert (done.code, done.output) == (10, b"top")


# put


def test_put_one_file_under_a_path(cli: Cli, volume: str, source: Path) -> None:
    assert (
        cli.ok("put", "src/a.txt", "/in/renamed").out.partition(" to ")[0] == "put 1 file, 5 bytes"
    )
    assert cli.ok("cat", "/in/renamed").out == "alpha"


def test_put_a_file_into_a_directory(cli: Cli, volume: str, source: Path) -> None:
    cli.ok("mkdir", "/there")
    cli.ok("put", "src/a.txt", "/there")
    cli.ok("put", "src/a.txt", "/new/")
    assert cli.ok("find", "/", "--type", "f").lines == ["/new/a.txt", "/there/a.txt"]


def test_put_several(cli: Cli, volume: str, source: Path) -> None:
    done = cli.ok("put", "-r", "src/a.txt", "src/sub", "/in")
    assert done.out.partition(" to ")[0] == "put 2 files, 1 directory, 10,245 bytes"
    assert cli.ok("find", "/", "--type", "f").lines == ["/in/a.txt", "/in/sub/b.bin"]


@pytest.mark.parametrize(
    ("local", "target", "top"),
    [
        ("src", "/in", "/in"),
        ("src/", "/in", "/in"),
        ("src", "/in/", "/in/src"),
        ("src", "/", "/src"),
        ("src/.", "/in/", "/in"),
    ],
)
def test_put_a_tree(cli: Cli, volume: str, source: Path, local: str, target: str, top: str) -> None:
    assert (
        cli.ok("put", "-r", local, target).out.partition(" to ")[0]
        == "put 2 files, 3 directories, 10,245 bytes"
    )
    assert cli.ok("ls", "-R", top).lines == [
        f"{top}/a.txt",
        f"{top}/none/",
        f"{top}/sub/",
        f"{top}/sub/b.bin",
    ]
    assert cli.ok("cat", f"{top}/sub/b.bin").output == (source / "sub" / "b.bin").read_bytes()


def test_put_a_tree_again_fills_it_up(cli: Cli, volume: str, source: Path) -> None:
    cli.ok("put", "-r", "src", "/in")
    (source / "new").write_bytes(b"new")
    (source / "a.txt").write_bytes(b"ALPHA")
    cli.ok("put", "--recursive", "src", "/in")
    assert cli.ok("cat", "/in/a.txt", "/in/new").out == "ALPHAnew"


def test_put_json_and_quiet(cli: Cli, volume: str, source: Path) -> None:
    assert cli.ok("put", "-r", "src", "/in", "--json").json() == {
        "files": 2,
        "directories": 3,
        "bytes": 10245,
        "failed": 0,
        "target": [f"{volume}/in"],
    }
    assert cli.ok("put", "-q", "src/a.txt", "/in/").out == ""
    assert cli.ok("--quiet", "put", "src/a.txt", "/in/").out == ""


def test_put_without_r_refuses_a_directory(cli: Cli, volume: str, source: Path) -> None:
    assert cli.fails(1, "put", "src", "/in").errors == "s3k: a local directory needs -r: src\n"
    assert cli.ok("ls").out == ""


def test_put_no_overwrite(cli: Cli, volume: str, source: Path) -> None:
    cli.ok("put", "src/a.txt", "/a.txt")
    assert "/a.txt" in cli.fails(4, "put", "--no-overwrite", "src/a.txt", "/a.txt").errors
    cli.fails(4, "put", "--no-overwrite", "-", "/a.txt", stdin=b"x")
    (source / "second").write_bytes(b"2")
    done = cli("put", "-r", "--no-overwrite", "src", "/")
    assert done.code == 0
    done = cli("put", "-r", "--no-overwrite", "--json", "src", "/src")
    assert done.code == 10
    assert done.json()["failed"] == 3
    assert done.error()["exit_code"] == 10
    assert {each["code"] for each in done.error()["failures"]} == {"exists"}


def test_put_what_is_not_there(cli: Cli, volume: str, source: Path) -> None:
    assert (
        cli.fails(3, "put", "gone", "/in").errors == "s3k: no such local file or directory: gone\n"
    )
    done = cli("put", "gone", "src/a.txt", "/in/")
    assert done.code == 10
    assert done.out.partition(" to ")[0] == "put 1 file, 5 bytes"
    assert done.errors == "s3k: no such local file or directory: gone\n"


def test_put_onto_what_cannot_take_it(cli: Cli, small_tree: Tree, source: Path) -> None:
    assert "/top.txt" in cli.fails(1, "put", "src/a.txt", "/top.txt/below").errors
    assert "/top.txt" in cli.fails(4, "put", "-r", "src", "/top.txt").errors


def test_put_of_same_names_is_refused(cli: Cli, volume: str, source: Path) -> None:
    (source / "sub" / "a.txt").write_bytes(b"other")
    assert "'a.txt'" in cli.fails(2, "put", "src/a.txt", "src/sub/a.txt", "/in/").errors
    assert cli.ok("ls").out == ""


def test_put_of_links_and_what_is_no_file(cli: Cli, volume: str, source: Path) -> None:
    os.symlink("a.txt", source / "link")
    os.symlink("sub", source / "dirlink")
    os.symlink("nowhere", source / "broken")
    os.mkfifo(source / "pipe")
    done = cli("put", "-r", "src", "/in")
    assert done.code == 10
    assert sorted(done.errors.splitlines()) == [
        "s3k: a link to a directory is not followed: src/dirlink",
        "s3k: neither a file nor a directory: src/pipe",
        "s3k: the link leads nowhere: src/broken",
    ]
    assert cli.ok("cat", "/in/link").out == "alpha"
    assert "src/pipe" in cli.fails(1, "put", "src/pipe", "/pipe").errors


def test_put_of_a_name_that_is_not_utf8(cli: Cli, volume: str, source: Path) -> None:
    (source / os.fsdecode(b"bad\xff")).write_bytes(b"x")
    done = cli("put", "-r", "src", "/in")
    assert done.code == 10
    assert "src/bad\\udcff" in done.errors
    assert cli.ok("ls", "/in").lines == ["a.txt", "none/", "sub/"]


def test_put_standard_input(cli: Cli, volume: str) -> None:
    data = os.urandom(3_000_000)
    assert (
        cli.ok("put", "-", "/stream", stdin=data).out.partition(" to ")[0]
        == "put 1 file, 3,000,000 bytes"
    )
    assert cli.ok("cat", "/stream").output == data


# get


def test_get_a_file(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("get", "/a/one.txt", "copy").out.partition(" to ")[0] == "got 1 file, 10 bytes"
    assert Path("copy").read_bytes() == small_tree["/a/one.txt"]
    Path("dir").mkdir()
    cli.ok("get", "/a/one.txt", "dir")
    cli.ok("get", "/a/one.txt", "new/")
    assert (
        Path("dir/one.txt").read_bytes()
        == Path("new/one.txt").read_bytes()
        == small_tree["/a/one.txt"]
    )
    assert sorted(os.listdir("new")) == ["one.txt"]


def test_get_a_tree(cli: Cli, small_tree: Tree) -> None:
    assert (
        cli.ok("get", "-r", "/", "all").out.partition(" to ")[0]
        == "got 4 files, 4 directories, 2,013 bytes"
    )
    for path, data in small_tree.items():
        assert Path("all" + path).read_bytes() == data
    assert list(Path("all/empty").iterdir()) == []
    cli.ok("get", "-r", "/a", "into/")
    assert sorted(os.listdir("into/a")) == ["b", "one.txt"]
    assert cli.ok("get", "--recursive", "--json", "/a", "again").json()["files"] == 3


def test_get_several(cli: Cli, small_tree: Tree) -> None:
    cli.ok("get", "-r", "/a/b", "/top.txt", "here")
    assert sorted(os.listdir("here")) == ["b", "top.txt"]
    assert "'one.txt'" in cli.fails(2, "get", "/a/one.txt", ":/one.txt", "here").errors


def test_get_to_standard_output(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("get", "/top.txt", "-").output == b"top"
    cli.fails(2, "get", "/top.txt", "/a/one.txt", "-")
    cli.fails(2, "get", "-r", "/a", "-")


def test_get_names_local_paths_and_their_sources(
    cli: Cli, volume: str, small_tree: dict[str, bytes]
) -> None:
    here = os.getcwd()
    done = cli.ok("get", "-r", "--json", "/a/b", "/top.txt", "./into").json()
    assert done["target"] == [f"{here}/into/b", f"{here}/into/top.txt"]
    assert done["source"] == [f"{volume}/a/b", f"{volume}/top.txt"]
    assert all(map(os.path.exists, done["target"]))
    partial = json.loads(cli("get", "--json", "/none", "/top.txt", "in").output)
    assert (partial["target"], partial["source"]) == ([f"{here}/in/top.txt"], [f"{volume}/top.txt"])


def test_get_no_overwrite(cli: Cli, small_tree: Tree) -> None:
    Path("top.txt").write_bytes(b"mine")
    assert "top.txt" in cli.fails(4, "get", "--no-overwrite", "/top.txt", "top.txt").errors
    assert Path("top.txt").read_bytes() == b"mine"
    cli.ok("get", "/top.txt", "top.txt")
    assert Path("top.txt").read_bytes() == b"top"


def test_get_of_what_cannot_be_had(cli: Cli, small_tree: Tree) -> None:
    assert cli.fails(3, "get", "/gone", "x").errors == "s3k: no such file or directory: /gone\n"
    assert cli.fails(1, "get", "/a", "x").errors == "s3k: a directory needs -r: /a\n"
    Path("file").write_bytes(b"")
    assert "file" in cli.fails(1, "get", "/top.txt", "file/below").errors
    assert "file" in cli.fails(1, "get", "-r", "/a", "file").errors
    Path("top.txt").mkdir()
    assert "top.txt" in cli.fails(1, "get", "/top.txt", "./").errors
    assert sorted(os.listdir()) == ["file", "top.txt"]
