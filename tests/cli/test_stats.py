"""`--stats`: what a command asked of the services."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from s3k_async.errors import ThrottledError
from s3k_async.testing import FaultPlan
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
    assert [part.split(":")[0] for part in parts[:3]] == ["  table", "  data", "  log"]
    assert any(
        re.fullmatch(r"  latency, ms: data GetObject p50 [\d.]+, p95 [\d.]+, p99 [\d.]+", part)
        for part in parts[3:]
    )
    assert "GetObject 2" in parts[1]  # the volume's mark, and the file


def test_as_json(cli: Cli, volume: str) -> None:
    done = cli("--json", "stat", "--stats", f"{volume}/a")
    (line,) = done.errors.splitlines()
    stats = json.loads(line)["stats"]
    assert set(stats) == {
        *("requests", "total", "sent_again", "bytes", "seconds"),
        *("latency", "partitions", "throttled"),
    }
    kinds = [(part, kind) for part in stats["requests"] for kind in stats["requests"][part]]
    assert [(each["part"], each["operation"]) for each in stats["latency"]] == kinds
    assert all(0 < each["p50"] <= each["p95"] <= each["p99"] for each in stats["latency"])
    assert (stats["throttled"], stats["partitions"]) == (0, {})
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


def test_throttled_requests_name_their_partition(cli: Cli, volume: str) -> None:
    faults = FaultPlan()
    faults.fail_when(lambda call: call.method == "query", ThrottledError("slow down"), times=1)
    with faults.injected():
        done = cli("--stats", "ls", f"{volume}/")
    (throttled,) = [call.key for call in faults.calls if call.method == "query"][:1]
    assert done.errors.splitlines()[-2:] == [
        "  throttled: 1 request",
        f"  throttled: 1 of partition {throttled}",
    ]


def test_the_log_of_verbs_is_shown_on_request(cli: Cli, volume: str) -> None:
    done = cli("--log-verbs", "info", "stat", f"{volume}/a")
    (line,) = done.errors.splitlines()
    assert re.fullmatch(r"stat /a: success, [\d.]+ ms, 1 requests", line)
    done = cli("--json", "--log-verbs", "debug", "stat", f"{volume}/missing")
    record = json.loads(done.errors.splitlines()[0])["log"]
    assert (record["verb"], record["path"]) == ("stat", "/missing")
    assert (record["outcome"], record["error"]) == ("error", "PathNotFoundError")
    assert cli("stat", f"{volume}/a").errors == ""
