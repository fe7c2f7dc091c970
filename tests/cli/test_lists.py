"""mv --pairs and rm --from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from s3k_async.cli import path_lists
from tests.cli.conftest import Cli

Tree = dict[str, bytes]


def below(cli: Cli, path: str = "/") -> list[str]:
    return cli.ok("ls", "-R", path).lines


@pytest.fixture
def many(cli: Cli, volume: str) -> int:
    """Files `/in/0000` and so on; small chunks."""
    count = 230
    Path("in").mkdir()
    for number in range(count):
        Path(f"in/{number:04}").write_bytes(b"x" * (number % 3))
    cli.ok("put", "-r", "in", "/in")
    cli.ok("mkdir", "/out")
    return count


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_lists, "CHUNK", 40)


def test_pairs(cli: Cli, small_tree: Tree) -> None:
    Path("pairs").write_text("/a/one.txt\t/empty/1\n/top.txt\t/top\n")
    assert (
        cli.ok("mv", "--pairs", "pairs").out.partition(" in ")[0].rstrip()
        == "moved 2 files, 13 bytes"
    )
    assert below(cli) == [
        "/a/",
        "/a/b/",
        "/a/b/three.txt",
        "/a/b/two.csv",
        "/empty/",
        "/empty/1",
        "/top",
    ]


def test_pairs_from_standard_input(cli: Cli, volume: str, small_tree: Tree) -> None:
    pairs = b'["/a", "/moved"]\n{"source": "/top.txt", "target": "/empty/top"}\n'
    done = cli.ok("mv", "--pairs", "-", "--json", stdin=pairs)
    assert done.json() == {
        "target": [f"{volume}/"],
        "files": 4,
        "directories": 2,
        "bytes": 2013,
        "failed": 0,
    }
    assert "/moved/b/two.csv" in below(cli)


def test_pairs_with_nul(cli: Cli, small_tree: Tree) -> None:
    cli.ok("mv", "-0", "--pairs", "-", stdin=b"/top.txt\0/new\nline\0")
    assert cli.ok("cat", "/new\nline").out == "top"


def test_pairs_of_a_named_volume(cli: Cli, other_volume: str, volume: str) -> None:
    cli.ok("put", "-", f"{other_volume}/f", stdin=b"data")
    cli.ok("mv", "--pairs", "-", stdin=f"{other_volume}/f\t{other_volume}/g\n".encode())
    assert below(cli, other_volume) == ["/g"]


def test_many_pairs_in_chunks(cli: Cli, volume: str, many: int, small_chunks: None) -> None:
    pairs = "".join(f"/in/{number:04}\t/out/{number:05}\n" for number in range(many))
    done = cli.ok("mv", "--pairs", "-", "--json", stdin=pairs.encode())
    assert done.json() == {
        "target": [f"{volume}/"],
        "files": many,
        "directories": 0,
        "bytes": 229,
        "failed": 0,
    }
    assert len(below(cli, "/out")) == many
    assert below(cli, "/in") == []


def test_a_wrong_line_changes_nothing(cli: Cli, many: int, small_chunks: None) -> None:
    pairs = "".join(f"/in/{number:04}\t/out/{number:04}\n" for number in range(many)) + "/in/last\n"
    error = cli.fails(2, "mv", "--pairs", "-", stdin=pairs.encode())
    assert "line 231" in error.errors
    assert (
        "line 231"
        in cli.fails(2, "rm", "--from", "-", stdin=("/in/0001\n" * 230 + "in\n").encode()).errors
    )
    assert len(below(cli, "/in")) == many


def test_pairs_that_fail_do_not_stop_others(cli: Cli, volume: str, small_tree: Tree) -> None:
    pairs = b"/gone\t/x\n/top.txt\t/a/one.txt\n/a/b/two.csv\t/two\n"
    done = cli("mv", "--pairs", "-", stdin=pairs)
    assert (done.code, done.out.partition(" in ")[0]) == (10, "moved 1 file, 2,000 bytes")
    assert sorted(line.rpartition(": ")[2] for line in done.errors.splitlines()) == [
        "/gone",
        "/top.txt",
    ]
    done = cli("mv", "--pairs", "-", "--json", stdin=b"/gone\t/x\n/top.txt\t/top\n")
    failure, summary = done.json_lines()
    assert (done.code, failure["path"], failure["code"]) == (10, "/gone", "not_found")
    assert summary == {
        "target": [f"{volume}/"],
        "files": 1,
        "directories": 0,
        "bytes": 3,
        "failed": 1,
    }
    assert done.error()["exit_code"] == 10


def test_nothing_but_failures_have_their_own_code(cli: Cli, volume: str) -> None:
    lines = "".join(f"/gone{number}\t/there{number}\n" for number in range(70))
    done = cli("mv", "--pairs", "-", stdin=lines.encode())
    assert (done.code, done.out) == (3, "")
    assert (len(done.errors.splitlines()), done.errors.splitlines()[-1]) == (
        51,
        "s3k: and 20 more failures",
    )


def test_overwrite_and_resume(cli: Cli, small_tree: Tree) -> None:
    Path("pairs").write_text("/top.txt\t/a/one.txt\n")
    cli.fails(4, "mv", "--pairs", "pairs")
    cli.ok("mv", "-f", "--pairs", "pairs")
    assert cli.ok("cat", "/a/one.txt").out == "top"
    cli.fails(3, "mv", "-f", "--pairs", "pairs")
    cli.ok("mv", "-f", "--pairs", "pairs", "--resume")
    cli.fails(3, "mv", "--resume", "--pairs", "-", stdin=b"/gone\t/nowhere\n")


def test_an_empty_list_is_done(cli: Cli, small_tree: Tree) -> None:
    assert (
        cli.ok("mv", "--pairs", "-").out.partition(" in ")[0].rstrip() == "moved 0 files, 0 bytes"
    )
    assert cli.ok("rm", "--from", "-", "--json").json()["files"] == 0


def test_rm_from_a_list(cli: Cli, many: int, small_chunks: None) -> None:
    cli.ok("ls", "/in", "-o", "all.jsonl")
    listed = [json.loads(line) for line in Path("all.jsonl").read_text().splitlines()]
    assert len(listed) == many
    assert cli.ok("rm", "--from", "all.jsonl", "--json").json()["files"] == many
    assert below(cli) == ["/in/", "/out/"]
    done = cli("rm", "--from", "all.jsonl", "-q")
    assert (done.code, len(done.errors.splitlines())) == (3, 51)
    assert (
        cli.ok("rm", "-f", "--from", "all.jsonl").out.partition(" in ")[0].rstrip()
        == "removed 0 files, 0 bytes"
    )


@pytest.mark.parametrize("form", ["jsonl", "plain", "null"])
def test_a_listed_path_that_looks_like_an_address_of_another_volume(
    cli: Cli, volume: str, tmp_path: Path, form: str
) -> None:
    embedded = f"{tmp_path}/old"
    cli.ok("init", embedded)
    for address in (f"{embedded}:/f", f":{embedded}:/f"):
        cli.ok("put", "-", address, stdin=b"x")
    if form == "jsonl":
        cli.ok("ls", "-R", "-o", "old.jsonl", f":{embedded}:")
    else:
        end = "\n" if form == "plain" else "\0"
        Path("old.jsonl").write_text(f"{embedded}:/f{end}")
    null = ["-0"] if form == "null" else []
    cli.ok("rm", "--from", "old.jsonl", "--volume", volume, *null)
    assert cli.ok("ls", f":{embedded}:").lines == []
    assert cli.ok("cat", f"{embedded}:/f").out == "x"


def test_a_listed_pair_that_looks_like_an_address_of_another_volume(cli: Cli, volume: str) -> None:
    cli.ok("put", "-", ":/a:/b", stdin=b"x")
    pair = json.dumps({"source": "/a:/b", "target": "/a:/c"})
    cli.ok("mv", "--pairs", "-", stdin=pair.encode())
    cli.ok("mv", "--pairs", "-", "--volume", volume, stdin=b"/a:/c\t/a:/d\n")
    assert cli.ok("cat", ":/a:/d").out == "x"


def test_rm_directories_from_a_list(cli: Cli, small_tree: Tree) -> None:
    done = cli("rm", "--from", "-", stdin=b"/a\n/empty\n")
    assert (done.code, done.out.partition(" in ")[0]) == (
        10,
        "removed 0 files, 1 directory, 0 bytes",
    )
    cli.ok("rm", "-r", "-0", "--from", "-", stdin=b"/a\0/top.txt")
    assert below(cli) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["mv"],
        ["mv", "/a"],
        ["mv", "/a", "/b", "-0"],
        ["mv", "/a", "/b", "--resume"],
        ["mv", "/a", "/b", "--pairs", "list"],
        ["rm"],
        ["rm", "-0", "/a"],
        ["rm", "/a", "--from", "list"],
    ],
)
def test_usage(cli: Cli, volume: str, arguments: list[str]) -> None:
    Path("list").write_text("")
    cli.fails(2, *arguments)


def test_no_such_list(cli: Cli, volume: str) -> None:
    assert "none" in cli.fails(3, "mv", "--pairs", "none").errors
    assert "none" in cli.fails(3, "rm", "--from", "none").errors
