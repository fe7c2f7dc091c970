"""append, truncate, concat, compact."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli

Tree = dict[str, bytes]


def test_append_adds_local_files_and_standard_input(
    cli: Cli, small_tree: Tree, tmp_path: Path
) -> None:
    for name, data in (("one", b"-one"), ("two", b"-two"), ("empty", b"")):
        (tmp_path / name).write_bytes(data)
    one, two, empty = (str(tmp_path / name) for name in ("one", "two", "empty"))
    assert cli.ok("append", one, empty, two, "/top.txt").out.startswith("appended 8 bytes to ")
    assert cli.ok("cat", "/top.txt").out == "top-one-two"
    assert cli.ok("append", "-", "/new/log", stdin=b"line\n").out.startswith("appended 5 bytes")
    said = cli.ok("append", one, "/new/log", "--json").json()
    assert (said["path"], said["size"]) == ("/new/log", 9)
    assert cli.ok("cat", "/new/log").out == "line\n-one"


def test_append_refusals(cli: Cli, small_tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    one = str(tmp_path / "one")
    assert "/a" in cli.fails(1, "append", one, "/a").errors
    missing = str(tmp_path / "missing")
    message = f"no such local file or directory: {missing}"
    assert message in cli.fails(3, "append", one, missing, "/top.txt").errors
    assert message in cli.fails(3, "append", missing, "/new").errors
    assert message in cli.fails(3, "put", missing, "/new").errors
    assert "a local file is in the way" in cli.fails(1, "append", f"{one}/x", "/top.txt").errors
    assert "directory" in cli.fails(1, "append", str(tmp_path), "/top.txt").errors
    assert "once" in cli.fails(2, "append", "-", "-", "/top.txt").errors
    assert cli.ok("cat", "/top.txt").out == "top"
    assert cli.ok("ls", "-R", "/").out.count("top.txt") == 1


def test_truncate(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("truncate", "--size", "2", "/top.txt").out == ""
    assert cli.ok("cat", "/top.txt").out == "to"
    for text, size in (("1TiB", 2**40), ("2TB", 2 * 10**12), ("3t", 3 * 10**12)):
        cli.ok("truncate", "-s", text, "/top.txt")
        assert cli.ok("stat", "/top.txt", "--json").json()["size"] == size
    cli.ok("truncate", "-s", "2", "/top.txt")
    cli.ok("truncate", "-s", "1KiB", "/top.txt", "/a/one.txt")
    assert cli.ok("stat", "/top.txt", "--json").json()["size"] == 1024
    assert cli.ok("stat", "/a/one.txt", "--json").json()["size"] == 1024
    cli.fails(3, "truncate", "-s", "1", "/gone")
    cli.fails(1, "truncate", "-s", "1", "/a")
    assert "--size" in cli.fails(2, "truncate", "-s", "many", "/top.txt").errors
    assert "--size" in cli.fails(2, "truncate", "/top.txt").errors


def test_concat(cli: Cli, small_tree: Tree) -> None:
    parts = cli.ok("cat", "/top.txt", "/a/one.txt", "/a/b/two.csv").out
    done = cli.ok("concat", "/top.txt", "/a/one.txt", "/a/b/two.csv").out
    assert done.startswith(f"appended 2 files, {len(parts) - 3:,} bytes to ")
    assert cli.ok("cat", "/top.txt").out == parts
    assert cli.ok("ls", "-R", "/a").lines == ["/a/b/", "/a/b/three.txt"]
    cli.fails(2, "concat", "/top.txt", "/top.txt")
    cli.fails(3, "concat", "/top.txt", "/gone")
    assert cli.ok("cat", "/top.txt").out == parts


def test_compact(cli: Cli, small_tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    for path in ("/top.txt", "/a/one.txt"):
        cli.ok("append", str(tmp_path / "one"), path)
        assert cli.ok("stat", path, "--json").json()["physical"].startswith("extents:")
    before = cli.ok("stat", "/top.txt", "--json").json()
    cli.ok("compact", "--whole", "/top.txt")
    after = cli.ok("stat", "/top.txt", "--json").json()
    assert not after["physical"].startswith("extents:")
    assert (after["size"], after["mtime_ms"]) == (before["size"], before["mtime_ms"])
    done = cli.ok("compact", "-r", "/", "--json")
    assert [line for line in done.lines if "/a/one.txt" in line]
    assert not cli.ok("stat", "/a/one.txt", "--json").json()["physical"].startswith("extents:")
    cli.fails(1, "compact", "/a")
    cli.fails(3, "compact", "/gone")
