"""fsck restore."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import Condition, Delete
from s3k_async.errors import ThrottledError
from s3k_async.settings import resolve
from s3k_async.txn import volume_lock
from s3k_async.volumes import open_volume
from tests.cli.conftest import Cli
from tests.cli.old_volumes import old_and_new
from tests.cli.test_alerts import Hook, hook, kinds

__all__ = ["hook"]

Tree = dict[str, bytes]


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else has these volumes open."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


def lose_table(volume: str) -> None:
    async def lose() -> None:
        opened = await open_volume(resolve(volume))
        await opened.table.drop()
        await opened.close()

    anyio.run(lose)


def lose_entry(volume: str, path: str) -> None:
    async def lose() -> None:
        opened = await open_volume(resolve(volume))
        entry = await opened.store.get(path)
        assert entry is not None
        await opened.items.write(Delete(opened.store.keys.of(entry), Condition()))
        await opened.close()

    anyio.run(lose)


def test_a_lost_table_comes_back(cli: Cli, volume: str, small_tree: Tree) -> None:
    before = cli.ok("find", "/", "--json").lines
    lose_table(volume)
    cli.fails(3, "ls", "/")
    plan = cli.ok("fsck", "restore", volume).out
    assert cli.ok("fsck", "restore", volume, "-q").out == ""
    assert plan.startswith(
        "would restore 4 files, 3 directories, 2,013 bytes from 11 log records (--yes"
    )
    cli.fails(3, "ls", "/")
    assert cli.ok("fsck", "restore", volume, "--yes").out.startswith(
        "restored 4 files, 3 directories, 2,013 bytes"
    )
    assert cli.ok("find", "/", "--json").lines == before
    for path, data in small_tree.items():
        assert cli.ok("cat", path).output == data
    assert cli.ok("fsck", "--grace", "0").out.startswith("clean: 4 files")


def test_a_lost_entry_comes_back(cli: Cli, volume: str, small_tree: Tree, tmp_path: Path) -> None:
    before = cli.ok("find", "/", "--json").lines
    lose_entry(volume, "/a/one.txt")
    assert "--subtree" in cli.fails(4, "fsck", "restore", "--yes").errors
    audit = tmp_path / "audit"
    done = cli.ok(
        "fsck", "restore", "--subtree", "/a", "--yes", "--json", "--audit", str(audit)
    ).json()
    assert (done["clean"], done["written"], done["files"]) == (True, 1, 1)
    assert cli.ok("find", "/", "--json").lines == before
    assert [json.loads(line)["path"] for line in audit.read_text().splitlines()] == ["/a/one.txt"]


def test_a_restore_sends_alerts(
    cli: Cli, volume: str, small_tree: Tree, monkeypatch: pytest.MonkeyPatch, hook: Hook
) -> None:
    lose_table(volume)
    restore = ("fsck", "restore", volume)
    cli.ok(*restore)
    assert kinds(hook) == [("missing", "entry_missing", 7, [])]
    cli.ok(*restore, "--yes")
    assert {each["operation"] for each in hook.posted} == {"fsck restore"}
    assert kinds(hook) == [("repaired", "entry_missing", 7, [])]
    cli.ok(*restore, "--subtree", "/a", "--yes")
    assert kinds(hook) == []

    async def fail(*_: object, **__: object) -> None:
        raise ThrottledError("no answer")

    monkeypatch.setattr("s3k_async.cli.commands.restore.restore_volume", fail)
    cli.fails(8, *restore)
    assert kinds(hook) == [("throttled", "ThrottledError", 1, [])]


def test_what_cannot_be_restored_is_told(cli: Cli, volume: str, small_tree: Tree) -> None:
    physical = cli.ok("stat", "--json", "/a/one.txt").json()["physical"]

    async def lose() -> None:
        opened = await open_volume(resolve(volume))
        await opened.blobs.delete(physical)
        await opened.close()

    anyio.run(lose)
    lose_table(volume)
    done = cli("fsck", "restore", "--yes")
    assert done.code == 9
    assert done.lines[0] == f"bytes_missing: /a/one.txt: {physical}: missing"
    assert done.lines[1].startswith("restored 3 files")
    cli.fails(3, "stat", "/a/one.txt")


def test_where_no_volume_was(cli: Cli, volume: str) -> None:
    assert "no volume at this location" in cli.fails(3, "fsck", "restore", "memory://nobody").errors
    cli.fails(2, "fsck", "restore", f"{volume}/a")


@pytest.mark.parametrize("kind", ["native", "s3k-1.0"])
def test_an_old_volume_cannot_be_restored(
    cli: Cli, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said also without its kind, when the mark that it never had is missed."""
    name = old_and_new(monkeypatch)
    anyio.run(MemoryItems(name).drop)
    code = 3 if kind == "native" else 5
    failed = cli.fails(code, "fsck", "restore", f"s3k://{name}", "--kind", kind)
    assert "of S3-FileSystem 1.0" in failed.errors
    assert "cannot be restored" in failed.errors


@pytest.mark.parametrize("layout", ["path", "tree"])
def test_a_path_that_is_nowhere_is_an_error(cli: Cli, layout: str) -> None:
    """Not the path of an entry that exists or was lost. The volume is unlocked again."""
    cli.ok("init", "./vol", "--layout", layout)
    for name in ("/a/kept", "/a/lost", "/b/lost"):
        cli.ok("put", "-", f"./vol:{name}", stdin=b"1")
    restore = ("fsck", "restore", "./vol", "--subtree")
    for path in ("/never", "/a/never", "/a/kept/below"):
        for more in ((), ("--yes",)):
            errors = cli.fails(3, *restore, path, *more).errors
            assert (
                errors == f"s3k: nothing that exists or was lost is at or below the path: {path}\n"
            )
    lose_entry("./vol", "/a/lost")
    lose_entry("./vol", "/b/lost")
    lose_entry("./vol", "/b")
    assert cli.ok(*restore, "/a/kept", "--json").json()["files"] == 0
    assert cli.ok(*restore, "/a/lost", "--json").json()["files"] == 1
    assert cli.ok(*restore, "/b", "--yes", "--json").json()["files"] == 1
    assert cli.ok("cat", "./vol:/b/lost").output == b"1"
