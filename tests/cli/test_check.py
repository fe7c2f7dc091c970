"""fsck."""

from __future__ import annotations

import anyio
import pytest

from s3k_async.backends.ports.items import Condition, Delete, Update
from s3k_async.settings import resolve
from s3k_async.volumes import open_volume
from tests.cli.conftest import Cli

Tree = dict[str, bytes]


def lose_bytes(cli: Cli, volume: str, path: str) -> None:
    """Delete a file's physical object from under its entry."""
    physical = cli.ok("stat", "--json", path).json()["physical"]

    async def delete() -> None:
        opened = await open_volume(resolve(volume))
        await opened.blobs.delete(physical)
        await opened.close()

    anyio.run(delete)


def change_bytes(cli: Cli, volume: str, path: str, data: bytes) -> None:
    """Put other bytes in the place of a file's."""
    physical = cli.ok("stat", "--json", path).json()["physical"]

    async def replace() -> None:
        opened = await open_volume(resolve(volume))
        await opened.blobs.put(physical, data)
        await opened.close()

    anyio.run(replace)


def test_a_clean_volume(cli: Cli, volume: str, small_tree: Tree) -> None:
    expected = "clean: 4 files, 3 directories, 2,013 bytes, "
    for arguments in (
        ["fsck"],
        ["fsck", "verify"],
        ["fsck", volume],
        ["fsck", "verify", volume, "--deep"],
    ):
        (line,) = cli.ok(*arguments, "--grace", "0").lines
        assert line.startswith(expected)


def test_what_waits_for_collection_is_no_problem(cli: Cli, volume: str, small_tree: Tree) -> None:
    cli.ok("rm", "/top.txt")
    assert cli.ok("fsck", "--grace", "0").out.endswith(f", 1 object to collect in {volume}/\n")
    document = cli.ok("fsck", "--grace", "0", "--json").json()
    assert document["clean"]
    assert (document["files"], document["collectable"], document["collectable_bytes"]) == (3, 1, 3)
    assert [each["kind"] for each in document["notes"]] == ["collectable_data"]
    assert document["problems"] == []


def test_missing_bytes_are_a_problem(cli: Cli, volume: str, small_tree: Tree) -> None:
    lose_bytes(cli, volume, "/a/one.txt")
    done = cli("fsck", "--grace", "0")
    assert done.code == 9
    assert done.errors == ""
    problem, summary = done.lines
    assert problem.startswith("data_missing: /a/one.txt: ")
    assert summary.startswith("found 1 problem (1 data_missing) in 4 files, ")
    document = cli("fsck", "--grace", "0", "--json").json()
    assert not document["clean"]
    assert [(each["kind"], each["path"]) for each in document["problems"]] == [
        ("data_missing", "/a/one.txt")
    ]
    assert "/a/one.txt" in cli.fails(9, "cat", "/a/one.txt").errors


def test_deep_reads_the_bytes(cli: Cli, volume: str, small_tree: Tree) -> None:
    change_bytes(cli, volume, "/top.txt", b"pot")
    assert cli("fsck", "--grace", "0").code == 0
    assert (
        cli("fsck", "--grace", "0", "--deep").lines[0].startswith("checksum_mismatch: /top.txt: ")
    )
    assert "checksum" in cli.fails(9, "get", "/top.txt", "local").errors
    assert "checksum" in cli("cat", "/top.txt").errors


def test_a_part_of_a_volume(cli: Cli, volume: str, small_tree: Tree) -> None:
    lose_bytes(cli, volume, "/top.txt")
    assert cli.ok("fsck", "--grace", "0", "--path", "/a").out.startswith("clean: 3 files, ")
    assert cli.ok("fsck", "--grace", "0", f"{volume}/a").out.startswith("clean: 3 files, ")
    assert cli("fsck", "--grace", "0", f"{volume}/").code == 9
    assert "/gone" in cli.fails(3, "fsck", "--path", "/gone").errors


def test_a_path_whose_entry_is_lost_or_unreadable_is_repaired(
    cli: Cli, volume: str, small_tree: Tree
) -> None:
    def change(path: str, *, lost: bool) -> None:
        async def write() -> None:
            opened = await open_volume(resolve(volume))
            entry = await opened.store.get(path)
            assert entry is not None
            key = opened.store.keys.of(entry)
            broken = Update(key, Condition(), set={"isdir": "x"})
            await opened.items.write(Delete(key, Condition()) if lost else broken)
            await opened.close()

        anyio.run(write)

    for path, lost in (("/top.txt", True), ("/a/one.txt", False), ("/a/b", False)):
        change(path, lost=lost)
        assert cli("fsck", "--grace", "0", "--path", path).code == 9
        assert cli("fsck", "repair", "--grace", "0", f"{volume}{path}").code == 9
        cli.ok("fsck", "repair", "--grace", "0", "--path", path, "--yes")
        cli.ok("fsck", "--grace", "0", "--path", path)
    cli.ok("fsck", "--grace", "0")
    assert "/gone" in cli.fails(3, "fsck", "repair", "--path", "/gone").errors


def test_what_is_young_is_passed_over(cli: Cli, volume: str, small_tree: Tree) -> None:
    lose_bytes(cli, volume, "/top.txt")
    assert cli("fsck", "--grace", "0").code == 9
    assert cli("fsck").code == cli("fsck", "--grace", "300").code


@pytest.mark.parametrize(
    "arguments", [["--grace", "-1"], ["--grace", "x"], ["verify", "memory://a", "memory://b"]]
)
def test_bad_usage(cli: Cli, volume: str, arguments: list[str]) -> None:
    cli.fails(2, "fsck", *arguments)


def test_the_path_is_given_once(cli: Cli, volume: str) -> None:
    cli.fails(2, "fsck", f"{volume}/a", "--path", "/b")
    cli.fails(3, "fsck", "memory://nobody")


def test_nothing_is_written(cli: Cli, volume: str, small_tree: Tree) -> None:
    lose_bytes(cli, volume, "/top.txt")
    before = cli("fsck", "--grace", "0", "--json").json()
    assert cli("fsck", "--grace", "0", "--json", "--deep").json() == before


@pytest.mark.parametrize("key", ["aaa-foreign", "0", "zzz-foreign", "feed/x.txt", "Ä"])
def test_foreign_objects_are_a_note_whatever_they_begin_with(
    cli: Cli, volume: str, small_tree: Tree, key: str
) -> None:
    """`aaa-foreign` made the exit code 9, `zzz-foreign` passed."""

    async def put() -> None:
        opened = await open_volume(resolve(volume))
        await opened.blobs.put(key, b"somebody's")
        await opened.close()

    anyio.run(put)
    document = cli.ok("fsck", "--grace", "0", "--json").json()
    assert document["clean"]
    assert {each["kind"] for each in document["notes"]} <= {"foreign_blob"}
    cli.ok("fsck", "repair", "--grace", "0", "--yes")
    cli.ok("gc", "--grace", "0", "--lease", "0", "--yes")

    async def kept() -> bytes:
        opened = await open_volume(resolve(volume))
        try:
            return await opened.blobs.get(key)
        finally:
            await opened.close()

    assert anyio.run(kept) == b"somebody's"
