"""uploads: the unfinished uploads of a volume, listed and aborted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from s3k_async.config import VolumeConfig
from s3k_async.settings import resolve
from s3k_async.volumes import open_volume
from tests.cli.conftest import Cli
from tests.cli.old_volumes import old_and_new
from tests.engines.volumes import fresh_name

KEY = "11111111-1111-4111-8111-111111111111.id=22222222-2222-4222-8222-222222222222"


@pytest.fixture
def embedded(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new embedded volume, which is the default one."""
    place = str(tmp_path / "volume")
    cli.ok("init", place)
    monkeypatch.setenv("S3K_VOLUME", place)
    return place


def test_those_of_an_embedded_volume(cli: Cli, embedded: str) -> None:
    assert cli.ok("uploads").lines == [f"0 unfinished uploads in {embedded}:/"]
    anyio.run(begin, resolve(embedded), [KEY])
    found = cli.ok("uploads", embedded, "--json").json_lines()
    assert [(each["location"], each["key"]) for each in found] == [("data", None)]
    assert [set(each) for each in found] == [{"volume", "location", "key", "id", "started_ms"}]
    assert found[0]["volume"] == f"{embedded}:/"
    line, last = cli.ok("uploads").lines
    assert line.split()[1:] == ["data", "-", found[0]["id"]]
    assert last == f"1 unfinished upload in {embedded}:/"
    assert cli.ok("uploads", "-q", "--older-than", "1h").out == ""
    assert cli.ok("uploads", "--older-than", "1h", "--abort").lines == [
        f"aborted 0 unfinished uploads in {embedded}:/"
    ]
    refused = cli.fails(2, "uploads", "--abort")
    assert "recent uploads belong to running writers" in refused.errors
    assert len(cli.ok("uploads", "--json").json_lines()) == 1
    assert cli.ok("uploads", "--older-than", "0", "--abort").lines[1:] == [
        f"aborted 1 unfinished upload in {embedded}:/"
    ]
    assert cli.ok("uploads", "--json").out == ""
    audits = [path.read_text() for path in Path(embedded).rglob("audit/*/000000")]
    assert [json.loads(each)["deed"] for each in audits] == ["abort_upload"]
    assert "clean" in cli.ok("fsck").out


def test_an_expected_number(cli: Cli, embedded: str) -> None:
    cli.ok("uploads", "--expect", "0")
    anyio.run(begin, resolve(embedded), [KEY])
    assert len(cli.ok("uploads", "--expect", "1", "--json").json_lines()) == 1
    cli.ok("uploads", "--older-than", "1h", "--expect", "0")
    other = ("uploads", "--older-than", "0", "--abort", "--expect", "2")
    assert "expected 2 unfinished uploads, found 1" in cli.fails(1, *other).errors
    assert cli.ok("uploads").lines[1:] == [f"1 unfinished upload in {embedded}:/"]


@pytest.mark.usefixtures("service")
def test_those_of_a_bucket(cli: Cli) -> None:
    """Uploads of others in the bucket are neither listed nor aborted."""
    name = fresh_name("uploads")
    place = f"s3k://{name}"
    cli.ok("init", place, "--table", name, "--bucket", name)
    begun = anyio.run(begin, resolve(place), [KEY, "notes.txt"])
    found = cli.ok("uploads", place, "--json").json_lines()
    assert [(each["location"], each["key"]) for each in found] == [("data", KEY)]
    assert KEY in cli.ok("uploads", place, "--older-than", "0", "--abort").out
    assert cli.ok("uploads", place).lines == [f"0 unfinished uploads in {place}/"]
    assert anyio.run(unfinished, resolve(place)) == begun - {KEY}


def test_those_of_an_old_volume(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bucket may hold other volumes, whose keys look alike."""
    place = f"s3k://{old_and_new(monkeypatch)}"
    begun = anyio.run(begin, resolve(place), [KEY, "notes.txt"])
    found = cli.ok("uploads", place, "--json").json_lines()
    assert [(each["location"], each["key"]) for each in found] == [("data", KEY)]
    assert "expected 0" in cli.fails(1, "uploads", place, "--expect", "0").errors
    cli.fails(5, "uploads", place, "--older-than", "0", "--abort")
    assert anyio.run(unfinished, resolve(place)) == begun


def test_those_of_a_volume_without_a_prefix_of_its_own_are_listed_and_not_aborted(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3k_async.volumes.creation.SCOPED", "attributes")
    place = f"memory://{fresh_name('plain')}"
    cli.ok("init", place)
    begun = anyio.run(begin, resolve(place), [KEY, "notes.txt"])
    assert cli.ok("uploads", place, "--json").json_lines()[0]["key"] == KEY
    cli.fails(1, "uploads", place, "--expect", "0")
    cli.ok("uploads", place, "--older-than", "0", "--abort", "--expect", "0")
    assert anyio.run(unfinished, resolve(place)) == begun


def test_a_path_and_another_volume(cli: Cli, embedded: str) -> None:
    assert "expected a volume" in cli.fails(2, "uploads", f"{embedded}:/a").errors
    cli.fails(3, "uploads", "./missing")


async def begin(config: VolumeConfig, keys: list[str]) -> set[str]:
    """Begin uploads."""
    opened: Any = await open_volume(config)
    for key in keys:
        upload = await opened.blobs.start_upload(key)
        await upload.put_part(1, b"part")
    await opened.close()
    return set(keys)


async def unfinished(config: VolumeConfig) -> set[str]:
    """The keys of all uploads in the data location."""
    opened = await open_volume(config)
    found = {each.key async for each in opened.blobs.list_uploads()}
    await opened.close()
    return found
