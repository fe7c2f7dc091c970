"""A path that means a directory with an embedded volume does not end up in the default volume, and
results say where they are.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def embedded(cli: Cli, volume: str, tmp_path: Path) -> str:
    """An embedded volume, which is not the default one."""
    directory = str(tmp_path / "emb")
    cli.ok("init", directory)
    cli.ok("put", "-", f"{directory}:/sub/f", stdin=b"data")
    cli.ok("put", "-", "/f", stdin=b"data")
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "x").write_bytes(b"x")
    return directory


@pytest.mark.parametrize(
    "arguments",
    [
        ["put", "-r", "small", "@"],
        ["rm", "-r", "@"],
        ["rm", "-r", "/f", "@/sub"],
        ["mv", "@/sub", "/moved"],
        ["mv", "/f", "@"],
        ["cp", "-r", "@/sub", "/copied"],
        ["cp", "/f", "@/f"],
        ["get", "@/sub/f", "copy"],
        ["get", "/f", "@"],
        ["get", "/f", "@/sub/new"],
        ["mkdir", "@/new"],
        ["touch", "@/new"],
        ["ls", "@"],
        ["tree", "@/sub"],
        ["stat", "@"],
        ["find", "@"],
        ["du", "@"],
        ["cat", "@/sub/f"],
    ],
    ids=" ".join,
)
def test_the_directory_of_a_volume_is_no_path_of_the_default_one(
    cli: Cli, embedded: str, arguments: list[str]
) -> None:
    os.chdir(os.path.dirname(embedded))
    before = (
        cli.ok("ls", "-R", "/").lines,
        cli.ok("ls", "-R", f"{embedded}:/").lines,
        sorted(os.listdir(embedded)),
    )
    done = cli.fails(2, *(each.replace("@", embedded) for each in arguments))
    path = next(each for each in arguments if each.startswith("@")).removeprefix("@") or "/"
    assert f"{embedded}:{path}" in done.errors
    after = (
        cli.ok("ls", "-R", "/").lines,
        cli.ok("ls", "-R", f"{embedded}:/").lines,
        sorted(os.listdir(embedded)),
    )
    assert after == before


def test_lists_are_looked_at_likewise(cli: Cli, embedded: str) -> None:
    done = cli.fails(2, "rm", "--from", "-", stdin=f"/f\n{embedded}/sub/f\n".encode())
    assert f"{embedded}:/sub/f" in done.errors
    assert cli.ok("cat", "/f").output == b"data"


def test_no_output_is_written_over_a_volume(cli: Cli, embedded: str, tmp_path: Path) -> None:
    database = f"{embedded}/metadata.sqlite"
    (tmp_path / "link").symlink_to(database)
    for command in (
        ["dump", embedded, "-o", database],
        ["dump", embedded, "-o", str(tmp_path / "link")],
        ["ls", "-R", "-o", database, "--format", "jsonl", f"{embedded}:/"],
        ["gc", embedded, "--list", database],
        ["gc", embedded, "--audit", f"{embedded}/data/audit"],
        ["fsck", "repair", embedded, "--audit", database],
        ["fsck", "restore", embedded, "--audit", database],
    ):
        assert "is a part of the volume" in cli.fails(2, *command).errors
    cli.ok("ls", "-R", "-o", f"{embedded}/beside.jsonl", f"{embedded}:/")
    assert cli.ok("fsck", embedded).out.startswith("clean")


def test_the_path_can_be_meant(cli: Cli, volume: str, embedded: str) -> None:
    done = cli.ok("put", "-", f":{embedded}/x", stdin=b"1")
    assert done.out == f"put 1 file, 1 bytes to {volume}{embedded}/x\n"
    assert cli.ok("cat", f"{volume}{embedded}/x").output == b"1"


def test_results_name_their_targets(cli: Cli, volume: str, embedded: str, tmp_path: Path) -> None:
    os.chdir(tmp_path)

    def told(*arguments: str) -> str:
        return cli.ok(*arguments).out.rstrip("\n")

    assert (
        told("put", "-r", "small", f"{embedded}:/")
        == f"put 1 file, 1 directory, 1 bytes to {embedded}:/small"
    )
    assert told("put", "small/x", "/into/") == f"put 1 file, 1 bytes to {volume}/into/x"
    assert told("get", "/f", "copy") == f"got 1 file, 4 bytes to {tmp_path}/copy, from {volume}/f"
    assert told("cp", "/f", f"{embedded}:/") == f"copied 1 file, 4 bytes to {embedded}:/f"
    assert told("mv", "/into/x", "/y") == f"moved 1 file, 1 bytes to {volume}/y"
    assert told("rm", "/y", f"{embedded}:/small/x") == (
        f"removed 2 files, 2 bytes from {volume}/y, {embedded}:/small/x"
    )
    for number in range(5):
        cli.ok("touch", f"/t{number}")
    assert told("rm", *(f"/t{number}" for number in range(5))).endswith(
        f"from {volume}/t0, {volume}/t1, {volume}/t2 and 2 more"
    )
    (tmp_path / "list").write_text("/f\t/g\n")
    assert told("mv", "--pairs", "list") == f"moved 1 file, 4 bytes in {volume}/"
    assert cli.ok("rm", "/g", "--json").json()["target"] == [f"{volume}/g"]


@pytest.mark.parametrize("verb", ["rm", "cp", "mv"])
def test_results_name_no_target_of_a_failure(cli: Cli, volume: str, verb: str) -> None:
    cli.ok("mkdir", "/into")
    to = [] if verb == "rm" else ["/into/"]
    where = "/into/f" if to else "/f"
    cli.ok("put", "-", "/f", stdin=b"1")
    done = cli(verb, "/missing", "/f", *to)
    assert done.code == 10
    assert done.out.endswith(f" {'to' if to else 'from'} {volume}{where}\n")
    assert "/missing" in done.errors
