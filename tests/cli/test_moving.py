"""dump, load and reshard."""

from __future__ import annotations

import json
import shlex
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.cli.examples import EXAMPLES
from s3k_async.cli.invocation import Invocation
from s3k_async.config import VolumeConfig
from s3k_async.volumes import Volume
from tests.cli.conftest import Cli
from tests.cli.old_volumes import old_and_new
from tests.migrate.rig import rewritten
from tests.old_volume import OldFiles


@pytest.fixture
def volume(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An embedded volume of layout `path` with two files, in which no lock has to wait until open
    clients have stopped."""
    monkeypatch.setattr("s3k_async.txn.volume_lock.QUIET_SECONDS", 0.0)
    path = str(tmp_path / "vol")
    cli.ok("init", path, "--layout", "path")
    cli.ok("put", "-", f"{path}:/a/b/1", stdin=b"one")
    cli.ok("put", "-", f"{path}:/top", stdin=b"top")
    return path


def test_dump_and_load(cli: Cli, volume: str, tmp_path: Path) -> None:
    file = str(tmp_path / "x.dump")
    said = cli.ok("dump", volume, "-o", file).lines
    assert said == [f"dumped 2 files, 2 directories of {volume}:/ to {file}"]
    copy = str(tmp_path / "copy")
    done = cli.ok("load", file, copy, "--suffix-count", "9", "--copy-bytes-from", volume)
    assert done.out == f"loaded 2 files, 2 directories into {copy}\n"
    assert cli.ok("cat", f"{copy}:/a/b/1").out == "one"
    assert (
        "suffix count" not in cli.fails(4, "load", file, copy, "--copy-bytes-from", volume).errors
    )
    assert cli.ok("fsck", copy).out.startswith("clean")


def test_json(cli: Cli, volume: str, tmp_path: Path) -> None:
    file = str(tmp_path / "x.parquet")
    done = cli.ok("--json", "dump", f"{volume}:/a", "-o", file, "--format", "parquet").json()
    counts = {"entries": 3, "files": 1, "directories": 2, "bytes": 3}
    origin = {"volume": f"{volume}:/", "path": "/a"}
    assert done == {"file": file, "format": "parquet", **origin, **counts}
    copy = str(tmp_path / "copy")
    done = cli.ok("load", file, copy, "--copy-bytes-from", volume, "--json").json()
    assert done == {"file": file, "volume": copy, **counts, "skipped": 0, "made": 0}
    done = cli.ok("reshard", copy, "--suffix-count", "3", "--json").json()
    assert (done["suffix_count"], done["hash"], done["entries"]) == (3, "xxh3", 3)


def test_a_mistake_is_one_line(cli: Cli, volume: str, tmp_path: Path) -> None:
    file, copy = str(tmp_path / "x.dump"), str(tmp_path / "copy")
    cli.ok("dump", volume, "-o", file)
    assert "bytes are not here" in cli.fails(2, "load", file, copy).errors
    assert "bytes of files" in cli.fails(9, "load", file, copy, "--check").errors
    cli.fails(2, "load", file, copy, "--check", "--copy-bytes-from", volume)
    cli.fails(3, "load", str(tmp_path / "none"), copy)
    cut = tmp_path / "cut.dump"
    cut.write_bytes(Path(file).read_bytes()[:-10])
    assert "cut" in cli.fails(9, "load", str(cut), copy, "--copy-bytes-from", volume).errors
    cli.fails(2, "dump", f"{volume}:/a", "--path", "/b", "-o", file)
    cli.fails(3, "dump", f"{volume}:/none", "-o", file)
    cli.fails(2, "dump", volume)
    cli.fails(2, "reshard", volume)
    cli.fails(2, "reshard", volume, "--suffix-count", "0")
    cli.fails(2, "reshard", f"{volume}:/a", "--suffix-count", "3")
    for line in cli.fails(
        3, "reshard", str(tmp_path / "none"), "--suffix-count", "3"
    ).errors.splitlines():
        assert line.startswith("s3k: ")


def test_both_layouts(
    cli: Cli, volume: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No option names layout `tree`."""
    file, copy, back = str(tmp_path / "x.dump"), str(tmp_path / "tree"), str(tmp_path / "back")
    resolve_one = Invocation.resolve

    def resolve(self: Invocation, volume: str | None) -> VolumeConfig:
        config = resolve_one(self, volume)
        return replace(config, layout="tree") if "tree" in str(volume) else config

    monkeypatch.setattr(Invocation, "resolve", resolve)
    cli.ok("dump", f"{volume}:/a/b", "-o", file)
    done = cli.ok("load", file, copy, "--copy-bytes-from", volume)
    assert done.out == f"loaded 1 file, 1 directory into {copy}; made 1 directory above them\n"
    assert cli.ok("fsck", copy).out.startswith("clean")
    assert "moved" in cli.ok("reshard", copy, "--suffix-count", "3").out
    cli.ok("mv", f"{copy}:/a", f"{copy}:/z")
    cli.ok("dump", copy, "-o", file, "--format", "parquet")
    done = cli.ok("load", file, back, "--copy-bytes-from", copy)
    assert done.out == f"loaded 1 file, 2 directories into {back}\n"
    assert cli.ok("cat", f"{back}:/z/b/1").out == "one"
    assert cli.ok("fsck", back).out.startswith("clean")


def test_new_ids_of_a_load_are_told(
    cli: Cli, volume: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, copy, origin = str(tmp_path / "x.dump"), str(tmp_path / "copy"), volume
    resolve_one = Invocation.resolve

    def resolve(self: Invocation, volume: str | None) -> VolumeConfig:
        config = resolve_one(self, volume)
        return config if volume == origin else replace(config, layout="tree")

    monkeypatch.setattr(Invocation, "resolve", resolve)
    cli.ok("mkdir", f"{volume}:/c")
    cli.ok("dump", volume, "-o", file)
    rewritten(
        file,
        lambda found: [
            *found,
            *({**line, "path": "/d"} for line in found if line["path"] == "/c"),
        ],
    )
    done = cli.ok("load", file, copy, "--copy-bytes-from", volume, "--json").json()
    assert (done["new_ids"], done["directories"]) == (1, 4)
    copy = str(tmp_path / "another")
    assert cli.ok("load", file, copy, "--copy-bytes-from", volume).out == (
        f"loaded 2 files, 4 directories into {copy}; gave new ids to 1 directory that the dump has "
        "at two paths\n"
    )


def test_migrate(cli: Cli, volume: str) -> None:
    done = cli.ok("migrate", volume, "--layout", "tree")
    assert done.out.startswith(f"{volume} has layout tree; moved 4 entries\n")
    assert cli.ok("cat", f"{volume}:/a/b/1").out == "one"
    assert (
        "layout ('tree', not 'path')"
        in cli.fails(11, "--layout", "path", "ls", f"{volume}:/").errors
    )
    assert "moved 0 entries" in cli.ok("migrate", volume, "--layout", "tree").out
    done = cli.ok("migrate", volume, "--layout", "path", "--json").json()
    assert done == {"volume": volume, "layout": "path", "entries": 4, "moved": 4}
    assert cli.ok("cat", f"{volume}:/a/b/1").out == "one"
    assert cli.ok("fsck", volume).out.startswith("clean")
    cli.fails(2, "migrate", volume)
    cli.fails(2, "migrate", volume, "--layout", "other")
    cli.fails(2, "migrate", f"{volume}:/a", "--layout", "tree")


def test_migrate_to_extents(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s3k_async.txn.volume_lock.QUIET_SECONDS", 0.0)
    volume, local = str(tmp_path / "old"), tmp_path / "local"
    local.write_bytes(b"more")
    cli.ok("init", volume, "--without", "extents")
    cli.ok("put", "-", f"{volume}:/f", stdin=b"some")
    refused = cli.fails(1, "append", str(local), f"{volume}:/f").errors
    assert "s3k migrate --enable extents" in refused
    for wrong in (
        ("--enable", "extents", "--layout", "path"),
        ("--enable", "extents", "--no-check"),
    ):
        cli.fails(2, "migrate", volume, *wrong)
    assert cli.ok("migrate", volume, "--enable", "extents", "--json").json() == {
        "volume": volume,
        "enabled": ["extents"],
        "added": ["extents"],
    }
    assert not cli.ok("migrate", volume, "--enable", "extents", "--json").json()["added"]
    cli.ok("append", str(local), f"{volume}:/f")
    assert cli.ok("cat", f"{volume}:/f").out == "somemore"


def test_migrate_to_uploads(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads need extents, which come with them."""
    monkeypatch.setattr("s3k_async.txn.volume_lock.QUIET_SECONDS", 0.0)
    volume = str(tmp_path / "old")
    cli.ok("init", volume, "--without", "extents")
    assert cli.ok("migrate", volume, "--enable", "uploads", "--json").json() == {
        "volume": volume,
        "enabled": ["uploads"],
        "added": ["extents", "uploads"],
    }
    assert not cli.ok("migrate", volume, "--enable", "extents", "--json").json()["added"]


def test_migrate_is_refused_while_fsck_has_something_to_repair(cli: Cli, volume: str) -> None:
    with closing(sqlite3.connect(f"{volume}/metadata.sqlite")) as table, table:
        assert table.execute("DELETE FROM items WHERE sort = '1'").rowcount == 1
    failed = cli.fails(9, "migrate", volume, "--layout", "tree")
    assert "entry_missing (1); run s3k fsck repair first" in failed.errors
    assert cli.ok("ls", f"{volume}:/a").out == "b/\n"
    cli.ok("migrate", volume, "--layout", "tree", "--no-check")
    assert cli.fails(3, "cat", f"{volume}:/a/b/1").out == ""


def test_reshard(cli: Cli, volume: str) -> None:
    assert (
        "has suffix count 7, hash xxh3; moved"
        in cli.ok("reshard", volume, "--suffix-count", "7").out
    )
    assert "moved 0 entries" in cli.ok("reshard", volume, "--suffix-count", "7").out
    assert "moved" in cli.ok("reshard", volume, "--suffix-count", "7", "--hash", "java31").out
    assert cli.ok("cat", f"{volume}:/a/b/1").out == "one"
    assert json.loads(cli.ok("fsck", volume, "--json").out)["clean"]


def test_reshard_says_that_the_settings_name_another_suffix_count(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3k_async.txn.volume_lock.QUIET_SECONDS", 0.0)
    places = ["--table", f"sqlite://{tmp_path}/t.db", "--data-location", f"file://{tmp_path}/data"]
    cli.ok("init", "s3k://named", *places, "--suffix-count", "3")
    done = cli.ok("reshard", "s3k://named", "--suffix-count", "5")
    assert "change them" in done.out
    assert "suffix_count" in cli.fails(11, "ls", "s3k://named").errors


def test_from_an_old_volume(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = old_and_new(monkeypatch)
    old, file = f"s3k://{name}", str(tmp_path / "old.dump")
    cli.ok("dump", old, "-o", file)
    cli.fails(2, "load", file, "s3k://new", "--adopt", "--copy-bytes-from", old)
    assert (
        cli.ok("load", file, "s3k://new", "--adopt").out
        == "loaded 1 file, 1 directory into s3k://new\n"
    )
    assert cli.ok("cat", "s3k://new/d/f").out == "bytes"
    assert (
        "stop all writers"
        in cli.fails(6, "oplog", "retire", old, "--successor", "s3k://new", "--yes").errors
    )
    example = shlex.split(EXAMPLES["oplog retire"][0].replace("s3k://old", old))
    flags = [*example[1:], "--grace", "0"]
    told = cli.ok(*flags).out
    assert told == (
        "dry run: would move 2 log objects below retired-1.0-log/; 1 file not committed, not "
        "migrated\n"
    )
    assert cli.ok(*flags, "--yes").out.startswith("moved 2 log objects below retired-1.0-log/")
    done = cli.ok(*flags, "--yes", "--json").json()
    assert done == {"objects": 0, "moved": 0, "reservations": 1, "differing": [], "dry_run": False}
    assert cli.ok("cat", "s3k://new/d/f").out == "bytes"


def test_a_dump_of_an_old_volume_with_unreachable_entries_is_partial(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = old_and_new(monkeypatch)
    anyio.run(OldFiles(name, MemoryItems(name), MemoryBlobs(name)).file, "/lost/f", b"orphan")
    file = tmp_path / "old.dump"
    failed = cli.fails(10, "dump", f"s3k://{name}", "-o", str(file))
    assert failed.lines == [f"dumped 1 file, 1 directory of memory://{name}/ to {file}"]
    assert "1 entry without a parent directory not dumped" in failed.errors
    assert cli.ok("cat", f"s3k://{name}/lost/f").out == "orphan"
    assert file.exists()


def test_a_retirement_without_a_successor_closes_the_old_volume(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = old_and_new(monkeypatch)
    close, closed = Volume.close, list[str]()

    async def noted(volume: Volume) -> None:
        await close(volume)
        closed.append(volume.record.name)

    monkeypatch.setattr(Volume, "close", noted)
    failed = cli.fails(3, "oplog", "retire", f"s3k://{name}", "--successor", "s3k://new")
    assert "no volume is here" in failed.errors
    assert closed == [name]
