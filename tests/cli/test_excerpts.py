"""head, tail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from s3k_async.cli.commands.excerpts import BLOCK
from tests.cli.conftest import Cli

Tree = dict[str, bytes]

CONTENTS = {
    "empty": b"",
    "a line feed": b"\n",
    "no line feed": b"abc",
    "lines": b"".join(b"%d\n" % number for number in range(25)),
    "no line feed at the end": b"a\n\nb\nc",
    "empty lines": b"\n\n\n\n",
    "bytes that are not text": bytes(range(256)) * 3,
    "a line feed at a border from the end": b"x\n" + b"y" * (BLOCK - 1) + b"\n",
    "a line feed before a border from the end": b"x" * 10 + b"\n" + b"y" * BLOCK,
    "lines longer than a block": b"\n".join([b"z" * (BLOCK + 7)] * 5) + b"\n",
    "many blocks": b"".join(b"line %d\n" % number for number in range(60_000)),
}


@pytest.mark.parametrize("data", CONTENTS.values(), ids=CONTENTS)
def test_lines_at_both_ends(cli: Cli, volume: str, data: bytes) -> None:
    cli.ok("put", "-", "/file", stdin=data)
    lines = data.splitlines(keepends=True) if b"\r" not in data else _lines(data)
    for count in (0, 1, 2, 3, 10, 50_000, 100_000):
        number = str(count)
        assert cli.ok("head", "-n", number, "/file").output == b"".join(lines[:count]), count
        expected = b"".join(lines[-count:]) if count else b""
        assert cli.ok("tail", "-n", number, "/file").output == expected, count
    assert cli.ok("head", "/file").output == b"".join(lines[:10])
    assert cli.ok("tail", "/file").output == b"".join(lines[-10:])


def _lines(data: bytes) -> list[bytes]:
    """Lines that end with a line feed only."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


@pytest.mark.parametrize(
    ("size", "first", "last"),
    [
        ("0", b"", b""),
        ("3", b"012", b"789"),
        ("10", b"0123456789", b"0123456789"),
        ("1KiB", b"0123456789", b"0123456789"),
    ],
)
def test_bytes_at_both_ends(cli: Cli, volume: str, size: str, first: bytes, last: bytes) -> None:
    cli.ok("put", "-", "/digits", stdin=b"0123456789")
    assert cli.ok("head", "-c", size, "/digits").output == first
    assert cli.ok("tail", "--bytes", size, "/digits").output == last


@pytest.mark.parametrize("arguments", [["-n", "5"], ["-c", "100"]])
@pytest.mark.parametrize("command", ["head", "tail"])
def test_only_the_end_that_is_shown_is_read(
    cli: Cli, tmp_path: Path, command: str, arguments: list[str]
) -> None:
    volume = str(tmp_path / "vol")
    cli.ok("init", volume)
    cli.ok("put", "-", f"{volume}:/long", stdin=b"a line\n" * 1_000_000)
    opened = json.loads(cli("--json", "--stats", "stat", f"{volume}:/long").errors)
    done = cli("--json", "--stats", command, *arguments, f"{volume}:/long")
    assert done.code == 0
    read = json.loads(done.errors)["stats"]["bytes"] - opened["stats"]["bytes"]
    # Lines are found in a block, and then written by another range.
    assert len(done.output) <= read <= BLOCK + len(done.output)


def test_several_files_have_headers_unless_quiet(cli: Cli, small_tree: Tree, volume: str) -> None:
    expected = f"==> {volume}/top.txt <==\ntop\n==> {volume}/a/one.txt <==\n1111111111"
    for command in ("head", "tail"):
        assert cli.ok(command, "/top.txt", "/a/one.txt").out == expected
        assert cli.ok(command, "-q", "/top.txt", "/a/one.txt").out == "top1111111111"
        assert cli.ok(command, "--json", "/top.txt", "/a/one.txt").out == "top1111111111"


@pytest.mark.parametrize("command", ["head", "tail"])
def test_what_is_no_file(cli: Cli, small_tree: Tree, command: str) -> None:
    cli.fails(3, command, "/gone")
    assert "s3k ls lists a directory" in cli.fails(1, command, "/a").errors
    done = cli(command, "-q", "/gone", "/top.txt")
    assert (done.code, done.output) == (10, b"top")
