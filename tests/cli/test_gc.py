"""gc."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from s3k_async.backends.ports.items import Condition, Update
from s3k_async.backends.ports.pagination import list_all
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.settings import resolve
from s3k_async.volumes import open_volume
from tests.cli.conftest import Cli


@pytest.fixture
def garbage(cli: Cli, volume: str) -> str:
    """A volume with a file, and bytes that were deleted and replaced."""
    cli.ok("put", "-", "/kept", stdin=b"kept")
    cli.ok("put", "-", "/kept", stdin=b"kept, and new")
    cli.ok("put", "-", "/gone", stdin=b"gone")
    cli.ok("rm", "/gone")
    return volume


def keys(volume: str) -> int:
    async def count() -> int:
        opened = await open_volume(resolve(volume))
        found = [info async for info in list_all(opened.blobs) if ".id=" in info.key]
        await opened.close()
        return len(found)

    return anyio.run(count)


def test_it_tells_first_and_deletes_when_it_is_confirmed(
    cli: Cli, garbage: str, later: None
) -> None:
    assert cli.ok("gc", "--grace", "3600").lines == [
        "deleted: 1 object, 4 bytes",
        "replaced: 1 object, 4 bytes",
        "kept, named: 1 object, 13 bytes",
        f"would delete 2 objects, 8 bytes in {garbage}/ (--yes deletes)",
    ]
    assert keys(garbage) == 3
    done = cli.ok("gc", garbage, "--grace", "3600", "--yes")
    assert done.lines[-1] == f"deleted 2 objects, 8 bytes in {garbage}/"
    assert keys(garbage) == 1
    assert cli.ok("cat", "/kept").output == b"kept, and new"
    document = cli.ok("gc", "--grace", "3600", "--yes", "--json").json()
    assert document["volume"] == f"{garbage}/"
    assert (document["deleted"], document["marked"]) == ({}, {"named": {"objects": 1, "bytes": 13}})


def test_quiet_leaves_out_the_summary_line(cli: Cli, garbage: str, later: None) -> None:
    grace = ("--grace", "3600")
    for command in (("fsck", *grace), ("fsck", "repair", *grace), ("gc", *grace)):
        shown, quiet = cli.ok(*command), cli.ok(*command, "-q")
        assert quiet.lines == shown.lines[:-1], command
    assert cli.ok("gc", "--grace", "3600", "--yes", "-q").lines == [
        "deleted: 1 object, 4 bytes",
        "replaced: 1 object, 4 bytes",
        "kept, named: 1 object, 13 bytes",
    ]


def test_what_is_young_is_kept(cli: Cli, garbage: str) -> None:
    assert cli.ok("gc", "--yes").lines == [
        "kept, young: 3 objects, 21 bytes",
        f"deleted 0 objects, 0 bytes in {garbage}/",
    ]
    assert keys(garbage) == 3


def test_a_list_is_swept_later(cli: Cli, garbage: str, later: None, tmp_path: Path) -> None:
    candidates, audit = str(tmp_path / "candidates"), tmp_path / "audit"
    assert (
        cli.ok("gc", "--grace", "3600", "--list", candidates, "--json").json()["marked"]["deleted"][
            "objects"
        ]
        == 1
    )
    assert keys(garbage) == 3
    cli.fails(2, "gc", "--sweep", candidates)
    done = cli.ok(
        "gc",
        "--grace",
        "3600",
        "--sweep",
        candidates,
        "--yes",
        "--rate",
        "1000",
        "--audit",
        str(audit),
    )
    assert done.lines[-1] == f"deleted 2 objects, 8 bytes in {garbage}/"
    assert keys(garbage) == 1
    deeds = [json.loads(line) for line in audit.read_text().splitlines()]
    assert sorted(deed["reason"] for deed in deeds) == ["deleted", "replaced"]
    again = cli.ok("gc", "--grace", "3600", "--sweep", candidates, "--yes")
    assert again.lines == [f"deleted 0 objects, 0 bytes in {garbage}/"]


def test_a_volume_without_a_log_has_to_be_ones_own(cli: Cli, later: None) -> None:
    cli.ok("init", "memory://unlogged", "--log-mode", "disabled")
    assert "exclusive" in cli.fails(2, "gc", "memory://unlogged").errors
    assert cli.ok("gc", "memory://unlogged", "--exclusive").lines == [
        "would delete 0 objects, 0 bytes in memory://unlogged/ (--yes deletes)"
    ]


def test_bad_usage(cli: Cli, garbage: str, tmp_path: Path) -> None:
    cli.fails(2, "gc", f"{garbage}/path")
    cli.fails(2, "gc", "--grace", "-1")
    cli.fails(2, "gc", "--rate", "0")
    cli.fails(2, "gc", "--list", "a", "--sweep", "b")
    cli.fails(2, "gc", "--trash-retention", "0", "--no-trash")
    cli.fails(2, "gc", "--trash-retention", "0", "--sweep", "b", "--yes")
    cli.fails(3, "gc", "memory://nobody")
    cli.fails(3, "gc", "--sweep", str(tmp_path / "none"), "--yes")
    other = tmp_path / "other"
    other.write_text("no list\n")
    cli.fails(2, "gc", "--sweep", str(other), "--yes")
    for arguments in (["--list", str(tmp_path / "no" / "file")], ["--list", str(tmp_path)]):
        cli.fails(1, "gc", *arguments)


def test_deleted_directories_are_reclaimed_first(cli: Cli, tree_volume: str) -> None:
    cli.ok("mkdir", "/a")
    cli.ok("put", "-", "/a/f", stdin=b"gone")
    cli.ok("rm", "-r", "/a")
    nothing = "would reclaim from the trash: 0 files, 0 directories, 0 bytes"
    would = "would reclaim from the trash: 1 file, 1 directory, 4 bytes"
    assert cli.ok("gc").lines[0] == nothing
    assert cli.ok("gc", "--trash-retention", "0").lines[0] == would
    cli.ok("trash", "retention", tree_volume, "--set", "0")
    assert cli.ok("gc").lines[0] == would
    assert cli.ok("gc", "--trash-retention", "1h").lines[0] == nothing
    assert not any("trash" in line for line in cli.ok("gc", "--no-trash", "--yes").lines)
    assert cli.ok("gc").lines[0] == would
    assert cli.ok("gc", "--yes").lines[0] == would.removeprefix("would ").replace(
        "reclaim ", "reclaimed ", 1
    )
    document = cli.ok("gc", "--json").json()
    assert document["reclaimed"] == {"files": 0, "directories": 1, "bytes": 0, "kept": 0}


def test_a_run_that_cannot_reclaim_an_entry_of_the_trash_is_not_recorded_as_clean(
    cli: Cli, tree_volume: str
) -> None:
    cli.ok("put", "-", "/a/f", stdin=b"gone")
    cli.ok("rm", "-r", "/a")

    async def damage() -> None:
        opened = await open_volume(resolve(tree_volume))
        (item,) = await opened.store.layout.trash().items()
        key = TrashedDirectory.key(item.id, opened.store.keys)
        await opened.items.write(Update(key, Condition(), set={"why": "unknown"}))
        await opened.close()

    anyio.run(damage)
    done = cli.fails(10, "gc", "--trash-retention", "0", "--yes")
    assert "damaged item" in done.errors
    run = cli.ok("info", "--json").json()["last_runs"]["gc"]
    assert (run["clean"], run["counts"]) == (False, {"failed": 1})


def test_a_volume_without_a_trash_has_nothing_to_reclaim(cli: Cli, garbage: str) -> None:
    assert "reclaimed" not in cli.ok("gc", "--json").json()
    assert cli.ok("gc", "--no-trash").lines == cli.ok("gc").lines
    assert "has no trash" in cli.fails(11, "gc", "--trash-retention", "1h").errors


def test_a_limit_of_units_needs_a_table_that_reports_them(cli: Cli, volume: str) -> None:
    for command in (
        ("gc", "--write-units", "5"),
        ("fsck", "--read-units", "0.5"),
        ("fsck", "repair", "--write-units", "5"),
        ("rules", "run", "--read-units", "5"),
    ):
        assert "does not report consumed capacity units" in cli.fails(1, *command).errors
    cli.fails(2, "gc", "--write-units", "0")
