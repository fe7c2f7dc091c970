"""s3k cache: what is in the cache of this machine, and its eviction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.storage.cache_blocks import BlockName
from s3k_async.storage.cache_directory import CacheDirectory
from tests.cli.conftest import Cli


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of a cache, which S3K_CACHE names."""
    place = tmp_path / "cache"
    monkeypatch.setenv("S3K_CACHE", str(place))
    return place


def fill(place: Path, blocks: int) -> None:
    directory = CacheDirectory(str(place), SYSTEM)
    directory.prepare()
    for number in range(blocks):
        name = BlockName("s3k-1/", f"key-{number}", 1 << 20, 0)
        assert directory.store(name, bytes(1000)) > 1000


def test_a_read_of_the_command_line_fills_it(cli: Cli, volume: str, place: Path) -> None:
    cli.ok("put", "-", "/a", stdin=b"content")
    assert cli.ok("cat", "/a").output == b"content"
    found = cli.ok("--json", "cache", "info").json()
    assert (found["directory"], found["blocks"]) == (str(place), 1)
    assert found["bytes"] > 7
    assert cli.ok("cat", "/a").output == b"content"


def test_stats_show_what_the_cache_saved(cli: Cli, volume: str, place: Path) -> None:
    cli.ok("put", "-", "/a", stdin=b"content")
    for line in (
        "  cache: 0 blocks, 0 bytes read; 1 block, 7 bytes fetched",
        "  cache: 1 block, 7 bytes read; 0 blocks, 0 bytes fetched",
    ):
        done = cli("--stats", "cat", "/a")
        assert (done.code, done.errors.splitlines()[-1]) == (0, line)
    done = cli("--stats", "--json", "stat", "/a")
    assert "cache" not in json.loads(done.errors)["stats"]
    cli("--stats", "--json", "cat", "/a")
    found = json.loads(cli("--stats", "--json", "cat", "/a").errors)["stats"]["cache"]
    assert (found["hits"], found["misses"]) == (1, 0)


def test_info(cli: Cli, place: Path) -> None:
    assert cli.ok("cache", "info").lines[1] == "content    0 blocks, 0 bytes"
    fill(place, 3)
    lines = cli.ok("cache", "info", "--cache-size", "1k", "--cache-age", "3600").lines
    assert lines[0] == f"directory  {place}"
    assert lines[1].startswith("content    3 blocks, ")
    assert lines[3] == "limits     1000B; evicts above 900B to 700B, and after 1h without use"


def test_evict_and_clear(cli: Cli, place: Path) -> None:
    fill(place, 10)
    assert cli.ok("cache", "evict").out == "evicted 0 blocks, 0 bytes\n"
    done = cli.ok("--json", "cache", "evict", "--to", "5500").json()
    assert done["blocks"] == 5
    done = cli.ok("--json", "cache", "evict", "--cache-size", "5k").json()
    assert done["blocks"] == 2
    assert cli.ok("cache", "clear").out.startswith("removed 3 blocks, ")
    assert cli.ok("--json", "cache", "info").json()["blocks"] == 0


def test_the_section_of_a_volume_names_its_cache(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"[volumes.lab]\ntable = 't'\ncache = '{tmp_path}/lab'\ncache_size = '1GB'\n")
    found = cli.ok("--json", "--config", str(config), "--volume", "s3k://lab", "cache", "info")
    assert (found.json()["directory"], found.json()["size"]) == (f"{tmp_path}/lab", 10**9)
    config.write_text(f"default_volume = 's3k://lab'\n\n{config.read_text()}")
    found = cli.ok("--json", "--config", str(config), "cache", "info")
    assert (found.json()["directory"], found.json()["size"]) == (f"{tmp_path}/lab", 10**9)


def test_mistakes_of_the_user(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--to" in cli.fails(2, "cache", "evict", "--to", "many").errors
    assert "cache_low" in cli.fails(11, "cache", "evict", "--cache-low", "95").errors
    monkeypatch.delenv("S3K_CACHE")
    assert "no cache is configured" in cli.fails(11, "cache", "info").errors
