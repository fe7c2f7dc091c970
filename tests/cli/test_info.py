"""info: what a volume is, from its record, its services and its objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from s3k_async.config import DynamoTable, S3Bucket
from s3k_async.testing import MemoryBlobs
from tests.cli.conftest import Cli
from tests.engines.volumes import VolumeMaker, volume_backends


def test_an_embedded_volume(cli: Cli) -> None:
    made = cli.ok("init", "./vol", "--json").json()
    cli.ok("put", "-", "./vol:/f", stdin=b"12345")
    found = cli.ok("info", "./vol", "--sizes", "--json").json()
    for name in ("name", "id", "layout", "suffix_count", "hash", "log_mode"):
        assert found[name] == made[name]
    assert (found["kind"], found["trash_retention"]) == ("native", 86_400)
    assert {"tree", "extents"} <= set(found["flags"])
    assert found["table"] == {"location": f"{Path.cwd()}/vol/metadata.sqlite"}
    assert (found["data"]["objects"], found["data"]["bytes"]) == (1, 5)
    assert found["log"]["objects"] >= 1
    assert "last_audit_ms" not in found["log"]


def test_the_last_change_by_maintenance(
    cli: Cli, volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("put", "-", "/f", stdin=b"12345")
    cli.ok("rm", "/f")
    now = MemoryBlobs.now_ms

    async def ahead(self: MemoryBlobs) -> int:
        return await now(self) + 5 * 3600 * 1000

    monkeypatch.setattr(MemoryBlobs, "now_ms", ahead)
    cli.ok("gc", "--yes", "--grace", "3600")
    found = cli.ok("info", "--sizes", "--json").json()
    assert found["data"]["objects"] == 0
    assert found["log"]["last_audit_ms"] >= found["created_ms"]


def test_the_lines(cli: Cli) -> None:
    cli.ok("init", "./vol", "--layout", "path", "--without", "attributes", "--log-mode", "disabled")
    lines = [line.strip() for line in cli.ok("info", "./vol", "--sizes").lines]
    assert "layout: path" in lines
    assert "suffix count: 4" in lines
    assert "data bytes: 0 (0B)" in lines
    assert not [line for line in lines if line.startswith(("log:", "trash", "hot"))]
    assert "data objects: 0" not in [line.strip() for line in cli.ok("info", "./vol").lines]


def test_a_volume_with_tiers(cli: Cli) -> None:
    cli.ok("init", "./vol", "--hot", "./fast")
    cli.ok("put", "-", "./vol:/f", stdin=b"12345")
    found = cli.ok("info", "./vol", "--sizes", "--json").json()
    assert (found["hot"]["objects"], found["data"]["objects"]) == (1, 0)


@volume_backends("dynoxide+seaweedfs")
def test_the_settings_of_services(
    new_volume: VolumeMaker, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = new_volume()
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    for part, aws in (("TABLE", config.table.aws), ("DATA", config.data.aws)):
        monkeypatch.setenv(f"S3K_{part}_ENDPOINT", str(aws.endpoint))
        monkeypatch.setenv(f"S3K_{part}_ACCESS_KEY_ID", aws.access_key_id.reveal())
        monkeypatch.setenv(f"S3K_{part}_SECRET_ACCESS_KEY", aws.secret_access_key.reveal())
    places = ("--table", config.table.name, "--bucket", config.data.bucket)
    cli.ok("init", "s3k://served", *places)
    found = cli.ok("info", "s3k://served", "--json").json()
    assert found["table"]["capacity"] == "on demand"
    assert found["table"]["status"] == "active"
    assert found["data"] == {"location": f"s3://{config.data.bucket}/", "versioning": "off"}


def test_what_is_no_volume(cli: Cli) -> None:
    cli.fails(3, "info", "./none")
    cli.fails(2, "info", "./vol:/a")
