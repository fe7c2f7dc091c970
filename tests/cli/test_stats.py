"""`--stats`: what a command asked of the services."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from s3k_async.volumes.claims import CLAIM
from tests.cli.conftest import Cli


@pytest.fixture
def volume(cli: Cli, tmp_path: Path) -> str:
    cli.ok("init", str(tmp_path / "vol"))
    cli.ok("put", "-", f"{tmp_path}/vol:/a", stdin=b"twelve bytes")
    return f"{tmp_path}/vol:"


def mark_of(volume: str) -> int:
    """Bytes of the mark that every client reads when it opens the volume."""
    return (Path(volume.removesuffix(":")) / "data" / CLAIM).stat().st_size


def test_requests_by_kind(cli: Cli, volume: str) -> None:
    done = cli("--stats", "cat", f"{volume}/a")
    assert (done.code, done.output) == (0, b"twelve bytes")
    first, *parts = done.errors.splitlines()
    assert re.fullmatch(rf"\d+ requests, {12 + mark_of(volume)} bytes, \d+\.\d\d s", first)
    assert [part.split(":")[0] for part in parts] == ["  table", "  data", "  log"]
    assert "GetObject 2" in parts[1]  # the volume's mark, and the file


def test_as_json(cli: Cli, volume: str) -> None:
    done = cli("--json", "stat", "--stats", f"{volume}/a")
    (line,) = done.errors.splitlines()
    stats = json.loads(line)["stats"]
    assert set(stats) == {"requests", "total", "sent_again", "bytes", "seconds"}
    assert stats["requests"]["table"]["GetItem"] >= 1
    assert stats["total"] == sum(sum(kinds.values()) for kinds in stats["requests"].values())
    assert (stats["sent_again"], stats["bytes"]) == (0, mark_of(volume))
    assert json.loads(done.output)["path"] == "/a"


def test_what_is_written_after_the_answer_counts(cli: Cli, volume: str) -> None:
    done = cli("--stats", "--json", "rm", f"{volume}/a")
    stats = json.loads(done.errors)["stats"]
    assert stats["requests"]["log"]["PutObject"] == 2


def test_a_failure_has_its_requests_too(cli: Cli, volume: str) -> None:
    done = cli("--stats", "cat", f"{volume}/missing")
    assert done.code == 3
    assert f"requests, {mark_of(volume)} bytes" in done.errors
    assert done.errors.splitlines()[-1].startswith("s3k: ")


def test_without_volumes_there_is_nothing_to_count(cli: Cli) -> None:
    done = cli("--stats", "cat")
    assert done.code == 2
    assert "request" not in done.errors.replace("requests, 0 bytes", "")
