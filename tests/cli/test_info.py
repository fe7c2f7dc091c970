"""info: what a volume is, from its record, its services and its objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.config import DynamoTable, S3Bucket
from s3k_async.errors import PermissionDeniedError, ServiceError
from s3k_async.settings import resolve
from s3k_async.testing import MemoryBlobs
from s3k_async.volumes import open_volume
from tests.cli.conftest import Cli
from tests.cli.test_check import lose_bytes
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


def test_expected_values(cli: Cli) -> None:
    made = cli.ok("init", "./vol", "--json").json()
    suffixes = f"suffix_count={made['suffix_count']}"
    met = ("--expect", "layout=tree", "--expect", suffixes, "--expect", "last_runs={}")
    assert cli.ok("info", "./vol", *met).lines
    other = ("--expect", "layout=path", "--expect", "data.encryption=AES256")
    found = cli("info", "./vol", *met, *other)
    assert (found.code, found.lines) == (1, cli.ok("info", "./vol").lines)
    assert found.errors == (
        "s3k: expected layout path, found tree\n"
        "s3k: expected data.encryption AES256, but there is no such field, or it is not reported\n"
    )
    found = cli("info", "./vol", "--json", *other[:2])
    assert found.code == 1
    assert found.json()["layout"] == "tree"
    assert json.loads(found.errors) == {"warning": "expected layout path, found tree"}
    for text in ("layout", "=tree"):
        assert "is not FIELD=VALUE" in cli.fails(2, "info", "./vol", "--expect", text).errors


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


def test_the_last_runs(
    cli: Cli,
    volume: str,
    small_tree: dict[str, bytes],
    later: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only runs on the whole volume are recorded, and no dry runs."""
    cli.ok("fsck", "verify", "--path", "/a")
    cli.ok("fsck", "repair")
    cli.ok("gc")
    assert cli.ok("info", "--json").json()["last_runs"] == {}
    lose_bytes(cli, volume, "/top.txt")
    cli.ok("rm", "/a/one.txt")
    assert cli("fsck", "--grace", "0").code == 9
    cli.ok("gc", "--yes", "--grace", "0", "--lease", "0")
    cli("fsck", "repair", "--grace", "0", "--yes")
    found = cli.ok("info", "--sizes", "--json").json()
    runs = found["last_runs"]
    assert {kind: (run["clean"], run["counts"]) for kind, run in runs.items()} == {
        "fsck_verify": (False, {"data_missing": 1}),
        "fsck_repair": (False, {"data_missing": 1}),
        "gc": (True, {"deleted": 1}),
    }
    assert all(run["time_ms"] >= found["created_ms"] for run in runs.values())
    lines = [line.strip() for line in cli.ok("info").lines]
    assert any(
        line.startswith("last fsck verify: ") and line.endswith(", with problems: 1 data_missing")
        for line in lines
    )
    assert any(
        line.startswith("last gc: ") and line.endswith(", clean: 1 deleted") for line in lines
    )
    cli.ok("rm", "/top.txt")
    cli.ok("fsck", "--grace", "0")
    assert cli.ok("info", "--json").json()["last_runs"]["fsck_verify"]["counts"] == {}
    put = MemoryBlobs.put

    async def refuse(self: MemoryBlobs, key: str, data: bytes, **options: Any) -> BlobInfo:
        if key.endswith("audit/last/fsck_verify"):
            raise refusal
        return await put(self, key, data, **options)

    monkeypatch.setattr(MemoryBlobs, "put", refuse)
    refusal: Exception = PermissionDeniedError("no")
    cli.ok("fsck", "--grace", "0")
    refusal = ServiceError("no")
    assert "the run was not recorded" in cli("fsck", "--grace", "0").errors


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"kind":"gc","time_ms":"x"}'])
def test_a_damaged_record_of_a_run_is_ignored(cli: Cli, volume: str, data: bytes) -> None:
    cli.ok("gc", "--yes")

    async def damage() -> None:
        opened = await open_volume(resolve(volume))
        assert opened.log_blobs is not None
        await opened.log_blobs.put("audit/last/gc", data)
        await opened.close()

    assert cli.ok("info", "--json").json()["last_runs"].keys() == {"gc"}
    anyio.run(damage)
    assert cli.ok("info", "--json").json()["last_runs"] == {}
    assert cli.ok("fsck", "--grace", "0").out.startswith("clean: ")


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
