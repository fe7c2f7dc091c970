"""s3k tier: moves and statistics; s3k init --hot; s3k migrate --hot."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from s3k_async.txn import volume_lock
from tests.cli.conftest import Cli


def embedded(cli: Cli, directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An embedded volume with a hot directory, which is the default one."""
    volume = str(directory / "v")
    made = cli.ok("--json", "init", volume, "--hot", str(directory / "hot")).json()
    assert made["hot"] == f"file://{directory}/hot/"
    monkeypatch.setenv("S3K_VOLUME", volume)
    return volume


def test_moves_and_what_is_where(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = embedded(cli, tmp_path, monkeypatch)
    cli.ok("put", "-", "/a", stdin=b"content")
    cli.ok("put", "-", "/b", stdin=b"more")
    assert cli.ok("tier", "status").lines == [
        "hot   2 objects, 11 bytes",
        "cold  0 objects, 0 bytes",
        "both  0 objects, 0 bytes",
    ]
    dry = cli.ok("tier", "run", "--dry-run", "--high", "10", "--low", "7")
    assert dry.lines == [f"would move 1 object, 7 bytes in {volume}:/; hot: 1 object, 4 bytes"]
    assert cli.ok("tier", "run", "--older-than", "7d").lines == [
        f"moved 0 objects, 0 bytes in {volume}:/; hot: 2 objects, 11 bytes"
    ]
    done = cli.ok("--json", "tier", "run", "--rate", "1000000").json()
    assert done["volume"] == f"{volume}:/"
    assert (done["moved"], done["bytes"], done["left"]) == (2, 11, 0)
    found = cli.ok("--json", "tier", "status").json()
    assert found["hot"] == found["both"] == {"objects": 0, "bytes": 0}
    assert found["cold"] == {"objects": 2, "bytes": 11}
    assert found["differing"] == []
    assert cli.ok("cat", "/a").output == b"content"


def test_reads_fill_the_hot_location_if_they_are_to(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded(cli, tmp_path, monkeypatch)
    cli.ok("put", "-", "/a", stdin=b"content")
    cli.ok("tier", "run")
    assert "hot location" not in cli("--stats", "cat", "/a").errors
    done = cli("--stats", "--hot-reads", "fill", "cat", "/a")
    assert "  hot location: 1 object, 7 bytes copied" in done.errors.splitlines()
    assert cli.ok("tier", "status").lines == [
        "hot   1 object, 7 bytes",
        "cold  1 object, 7 bytes",
        "both  1 object, 7 bytes",
    ]
    assert cli.ok("cat", "/a").output == b"content"
    monkeypatch.setenv("S3K_HOT_READS", "fill")
    cli.ok("tier", "run")
    done = cli("--json", "--stats", "cat", "/a")
    assert json.loads(done.errors)["stats"]["fills"]["filled"] == 1


def test_a_large_file_is_copied_when_it_is_read_whole(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded(cli, tmp_path, monkeypatch)
    monkeypatch.setenv("S3K_HOT_READS", "fill")
    monkeypatch.setenv("S3K_MULTIPART_THRESHOLD", "1000")
    monkeypatch.setenv("S3K_PART_SIZE", "500")
    content = bytes(range(256)) * 10
    cli.ok("put", "-", "/a", stdin=content)
    cli.ok("tier", "run")
    assert cli.ok("cat", "--range", "10-19", "/a").output == content[10:20]
    assert cli.ok("tier", "status").lines[0] == "hot   0 objects, 0 bytes"
    assert cli.ok("cat", "/a").output == content
    assert cli.ok("tier", "status").lines[0] == "hot   1 object, 2,560 bytes"
    assert cli.ok("cat", "/a").output == content


def test_files_are_copied_back(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded(cli, tmp_path, monkeypatch)
    cli.ok("put", "-", "/d/a", stdin=b"content")
    cli.ok("put", "-", "/d/b", stdin=b"more")
    cli.ok("tier", "run")
    cli.fails(1, "tier", "warm", "/d")
    cli.fails(3, "tier", "warm", "/gone")
    dry = cli.ok("tier", "warm", "--dry-run", "-r", "/d")
    assert dry.lines == ["would copy 2 objects, 11 bytes, of 2 files"]
    assert cli.ok("tier", "warm", "--rate", "1000000", "/d/a").lines == [
        "copied 1 object, 7 bytes, of 1 file"
    ]
    done = cli.ok("--json", "tier", "warm", "-r", "/d").json()
    assert (done["copied"], done["bytes"], done["hot"], done["damaged"]) == (1, 4, 1, [])
    assert cli.ok("tier", "status").lines[-1] == "both  2 objects, 11 bytes"
    assert cli.ok("cat", "/d/a").output == b"content"


def test_a_cold_object_that_is_damaged_is_not_copied(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = embedded(cli, tmp_path, monkeypatch)
    cli.ok("put", "-", "/a", stdin=b"content")
    cli.ok("tier", "run")
    (stored,) = (Path(volume) / "data").glob("s3k-*/*.id=*")
    stored.write_bytes(b"CONTENT")
    assert stored.name in cli.fails(9, "tier", "warm", "/a").errors
    assert cli.ok("tier", "status").lines[0] == "hot   0 objects, 0 bytes"


def test_files_that_stay_hot_or_become_cold_by_their_metadata(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded(cli, tmp_path, monkeypatch)
    for name in ("hot", "cold", "free"):
        cli.ok("put", "-", f"/{name}", stdin=b"content")
    cli.ok("attr", "--set", "Tier=hot", "/hot")
    cli.ok("attr", "--set", "Tier=cold", "/cold")
    assert "hot or cold" in cli.fails(2, "attr", "--set", "Tier=warm", "/free").errors
    assert cli.ok("--json", "tier", "run", "--older-than", "7d").json()["moved"] == 1
    done = cli.ok("--json", "tier", "run").json()
    assert (done["moved"], done["left"], done["pinned"]) == (1, 1, 1)


def test_a_copy_that_differs_is_shown(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = embedded(cli, tmp_path, monkeypatch)
    cli.ok("put", "-", "/a", stdin=b"content")
    [scope] = [
        name for name in os.listdir(tmp_path / "hot") if name.startswith("s3k-") and "." not in name
    ]
    [key] = os.listdir(tmp_path / "hot" / scope)
    (Path(volume) / "data" / scope).mkdir()
    (Path(volume) / "data" / scope / key).write_bytes(b"cut")
    assert cli.ok("tier", "status").lines[-1] == f"differs in size: {key}"
    assert cli.ok("cat", "/a").output == b"content"
    assert key in cli.fails(9, "tier", "run").errors
    assert (Path(volume) / "data" / scope / key).read_bytes() == b"cut"
    assert cli.ok("cat", "/a").output == b"content"


def test_a_hot_disk_that_is_not_mounted(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded(cli, tmp_path, monkeypatch)
    (tmp_path / "hot").rename(tmp_path / "away")
    gone = cli.fails(3, "ls", "/").errors
    assert "mount its disk" in gone
    (tmp_path / "hot").mkdir()
    unmarked = cli.fails(3, "ls", "/").errors
    assert "mount the disk; if only the mark was lost, s3k init --take-over" in unmarked
    assert "s3k init creates one" not in gone + unmarked


def test_volumes_without_a_hot_location(cli: Cli, volume: str) -> None:
    for verb in ("run", "status"):
        done = cli("tier", verb)
        assert done.code != 0
        assert "the volume has no hot location; s3k migrate --hot LOCATION adds one" in done.errors
    assert cli("tier", "run", f"{volume}:/path").code == 2


@pytest.mark.parametrize(
    "options", [["--high", "5"], ["--low", "5"], ["--high", "1", "--low", "2"], ["--rate", "0"]]
)
def test_options_that_are_refused(cli: Cli, volume: str, options: list[str]) -> None:
    assert cli("tier", "run", *options).code == 2


def test_a_volume_gets_a_hot_location(
    cli: Cli, volume: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    done = cli("migrate", volume, "--hot", str(tmp_path))
    assert done.code == 11
    assert "--hot-on-this-machine" in done.errors
    words = ["--json", "migrate", volume, "--hot", f"{volume}-hot"]
    assert cli.ok(*words).json()["added"] is True
    assert cli.ok(*words).json()["added"] is False
    assert cli.ok("tier", "status").lines[0] == "hot   0 objects, 0 bytes"
    assert cli("migrate", volume, "--hot", "x", "--layout", "tree").code == 2
    assert cli("migrate", volume, "--hot", "x", "--no-check").code == 2
