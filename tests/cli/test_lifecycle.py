"""init and destroy."""

from __future__ import annotations

import itertools
import os
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.blobs import DeleteFailure
from s3k_async.errors import PermissionDeniedError, S3kError, ServiceError
from s3k_async.settings import OPTIONS
from s3k_async.volumes import destruction
from tests.cli.conftest import Cli

_numbers = itertools.count(1)

CONFIG = Path("home", ".config", "s3k", "config.toml")


@pytest.fixture
def places() -> list[str]:
    """Flags that say where a new volume is, in memory."""
    stem = f"lifecycle-{os.getpid()}-{next(_numbers)}"
    return ["--table", f"memory://{stem}", "--data-location", f"memory://{stem}"]


def test_init_of_a_name_saves_its_settings(cli: Cli, places: list[str], tmp_path: Path) -> None:
    done = cli.ok("init", "s3k://analytics", *places, "--suffix-count", "7", "--hash", "java31")
    config = tmp_path / CONFIG
    assert str(config) in done.out
    assert "suffix count 7" in done.out
    assert tomllib.loads(config.read_text()) == {
        "volumes": {
            "analytics": {
                "table": places[1],
                "data_location": places[3],
                "suffix_count": 7,
                "hash": "java31",
            }
        }
    }
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    cli.ok("put", "-", "s3k://analytics/a", stdin=b"data")
    assert cli.ok("cat", "s3k://analytics/a").out == "data"
    assert cli.ok("--volume", "s3k://analytics", "cat", "/a").out == "data"
    assert cli.ok("cat", "/a", "--volume", "s3k://analytics").out == "data"


def test_init_no_save(cli: Cli, places: list[str], tmp_path: Path) -> None:
    assert "saved" not in cli.ok("init", "s3k://analytics", *places, "--no-save").out
    assert not (tmp_path / CONFIG).exists()
    assert "analytics" in cli.fails(11, "ls", "s3k://analytics").errors
    assert cli.ok("ls", "s3k://analytics", *places).out == ""


def test_init_saves_where_config_says(
    cli: Cli, places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("given.toml").write_text('default_volume = "s3k://analytics"\n')
    cli.ok("--config", "given.toml", "init", "s3k://analytics", *places)
    assert cli.ok("ls", "--config", "given.toml").out == ""
    monkeypatch.setenv("S3K_CONFIG", "given.toml")
    assert cli.ok("ls").out == ""


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_init_creates_the_configuration_file(
    cli: Cli, places: list[str], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Other commands, and those that save nothing, refuse a file that does not exist."""
    flags = ["--config", "new/file.toml"] if by == "flag" else []
    if by == "environment":
        monkeypatch.setenv("S3K_CONFIG", "new/file.toml")
    for refused in (
        ["ls", "s3k://analytics", *places],
        ["init", "s3k://analytics"],
        ["init", "s3k://analytics", *places, "--no-save"],
    ):
        failed = cli.fails(11, *flags, *refused)
        assert "the configuration file does not exist" in failed.errors
    assert not Path("new").exists()
    assert "new/file.toml" in cli.fails(11, *flags, "init", "s3k://x", "--region", "eu").errors
    made = cli.ok(*flags, "init", "s3k://analytics", *places, "--json").json()
    assert made["saved"] == os.path.abspath("new/file.toml")
    assert cli.ok(*flags, "ls", "s3k://analytics").out == ""


def test_init_json(cli: Cli, places: list[str]) -> None:
    made = cli.ok("init", "s3k://analytics", *places, "--json").json()
    assert made["name"] == "analytics"
    assert made["table"] == places[1]
    assert made["suffix_count"] == 10
    assert made["hash"] == "xxh3"
    assert made["log_mode"] == "native"
    assert made["saved"].endswith("config.toml")
    assert len(made["id"]) == 36


def test_init_of_what_is_there(cli: Cli, places: list[str]) -> None:
    cli.ok("init", "s3k://analytics", *places)
    cli.fails(4, "init", "s3k://analytics")
    cli.ok("init", "s3k://analytics", "--exist-ok")
    cli.ok("init", "s3k://analytics", *places, "--exist-ok")
    assert (
        "suffix"
        in cli.fails(
            11, "init", "s3k://analytics", "--exist-ok", "--no-save", "--suffix-count", "3"
        ).errors
    )


def test_init_makes_nothing_that_it_could_not_save(
    cli: Cli, places: list[str], tmp_path: Path
) -> None:
    config = tmp_path / CONFIG
    config.parent.mkdir(parents=True)
    before = '[volumes.analytics]\ntable = "elsewhere"\nbucket = "elsewhere"\n'
    config.write_text(before)
    assert "--no-save" in cli.fails(11, "init", "s3k://analytics", *places).errors
    assert config.read_text() == before
    cli.fails(3, "ls", "s3k://analytics", *places)


def test_a_volume_that_cannot_be_saved_after_all_is_named(
    cli: Cli, places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3k_async import settings
    from s3k_async.errors import ConfigError

    def refuse(*_: object) -> bool:
        raise ConfigError("the configuration file cannot be written", path="config.toml")

    monkeypatch.setattr(settings, "save_volume", refuse)
    assert "the volume was made, but" in cli.fails(11, "init", "s3k://analytics", *places).errors
    assert cli.ok("ls", "s3k://analytics", *places).out == ""


def test_init_without_an_address(cli: Cli, places: list[str], tmp_path: Path) -> None:
    cli.ok("init", "--name", "plain", *places)
    assert not (tmp_path / CONFIG).exists()
    assert "which volume?" in cli.fails(11, "init").errors


def test_init_of_what_is_no_volume(cli: Cli) -> None:
    assert "/path" in cli.fails(2, "init", "s3k://analytics/path").errors
    cli.fails(2, "init", "analytics")
    assert "analytics" in cli.fails(11, "init", "s3k://analytics").errors
    assert "bucket" in cli.fails(11, "init", "s3k://analytics", "--table", "some-table").errors
    cli.fails(11, "init", "memory://x", "--log-mode", "binary")
    cli.fails(1, "init", "memory://x", "--kind", "s3k-1.0", "--suffix-count", "4")


def test_settings_are_flags_of_every_command(cli: Cli, volume: str) -> None:
    cli.ok(
        "ls",
        "--max-concurrency",
        "3",
        "--retry-attempts",
        "1",
        "--read-ahead",
        "1MiB",
        "--verify-tls",
        "false",
    )
    assert "--max-concurrency" in cli.fails(2, "ls", "--max-concurrency", "0").errors
    assert "--data-read-timeout" in cli.fails(2, "ls", "--data-read-timeout", "soon").errors


def test_every_setting_but_secrets_is_a_flag(cli: Cli) -> None:
    shown = cli.ok("init", "--help").out
    for option in OPTIONS.values():
        if option.type == "secret":
            assert f"--{option.name.replace('_', '-')}" not in shown
        elif option.part is None:
            assert f"{option.flag} " in shown


# destroy


def test_destroy_asks_and_needs_force(cli: Cli, volume: str) -> None:
    cli.ok("put", "-", "/a", stdin=b"data")
    assert "--yes" in cli.fails(2, "destroy", volume).errors
    assert "--yes" in cli.fails(2, "destroy", volume, stdin=b"y\n").errors
    assert "--force" in (refused := cli.fails(4, "destroy", volume, "--yes").errors)
    assert volume in refused
    assert cli.ok("cat", "/a").out == "data"
    assert cli.ok("destroy", volume, "--yes", "--force").out == f"destroyed {volume}\n"
    cli.fails(3, "ls")
    cli.fails(3, "destroy", volume, "--yes")


def test_destroy_without_the_permission_to_delete(
    cli: Cli, volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[type[S3kError]] = [PermissionDeniedError]

    async def refuse(self: MemoryBlobs, keys: Sequence[str]) -> list[DeleteFailure]:
        kinds = itertools.cycle(refusals)
        return [DeleteFailure(key, kind("refused")) for key, kind in zip(keys, kinds, strict=False)]

    for name in ("/a", "/b"):
        cli.ok("put", "-", name, stdin=b"x")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryBlobs, "delete_many", refuse)
        denied = cli.fails(5, "destroy", volume, "--yes", "--force").errors
        assert "repeat s3k destroy to finish (refused)" in denied
        refusals.append(ServiceError)
        assert cli("destroy", volume, "--yes", "--force").code == 10
    cli.ok("destroy", volume, "--yes", "--force")


def test_destroy_of_an_empty_volume(cli: Cli, volume: str) -> None:
    assert cli.ok("destroy", volume, "--yes", "--json").json() == {
        "volume": volume,
        "table": volume,
        "left": 0,
    }
    cli.fails(3, "ls")


def test_destroy_needs_a_volume(cli: Cli, volume: str) -> None:
    cli.fails(2, "destroy", "--yes")
    cli.fails(2, "destroy", "/", "/", "--yes")
    cli.fails(2, "destroy", f"{volume}/a", "--yes")
    cli.fails(2, "destroy", ":/", "--yes")
    assert cli.ok("ls").out == ""


def test_volumes_that_share_a_table(cli: Cli, places: list[str], tmp_path: Path) -> None:
    table = places[1]
    for name in ("logs", "raw"):
        data = ("--data-location", f"{table}-{name}")
        cli.ok("init", f"s3k://{name}", "--table", table, "--table-prefix", name, *data)
    saved = tomllib.loads((tmp_path / CONFIG).read_text())["volumes"]["raw"]
    assert saved["table_prefix"] == "raw"
    cli.ok("put", "-", "s3k://logs/a", stdin=b"of logs")
    cli.ok("put", "-", "s3k://raw/a", stdin=b"of raw")
    cli.ok("cp", "s3k://logs/a", "s3k://raw/b")
    assert cli.ok("cat", "s3k://raw/a", "s3k://raw/b").out == "of rawof logs"
    lines = cli.ok("volumes", table).lines
    assert [line.split()[:3] for line in lines] == [
        ["logs", "ready", "path"],
        ["raw", "ready", "path"],
    ]
    listed = cli.ok("volumes", table, "--json").json_lines()
    info = cli.ok("info", "s3k://raw", "--json").json()
    assert (listed[1]["id"], listed[1]["data"]) == (info["id"], info["data"]["location"])
    assert info["table"]["location"] == f"{table}/raw"
    assert (listed[1]["prefix"], listed[1]["state"], listed[1]["flags"]) == (
        "raw",
        "ready",
        info["flags"],
    )
    assert "==> s3k://raw/b <==" in cli.ok("head", "s3k://raw/a", "s3k://raw/b").out
    refused = cli.fails(11, "init", "s3k://other", *places)
    assert "s3k volumes" in refused.errors
    cli.fails(11, "init", "s3k://other", *places, "--table-prefix", "a/b")
    cli.fails(3, "volumes", f"{table}-missing")
    assert cli.ok("volumes", "s3k://logs").lines == lines


def test_volumes_of_the_table_of_a_directory(cli: Cli) -> None:
    cli.ok("init", "./vol")
    (line,) = cli.ok("volumes", "./vol").lines
    assert line.split()[:3] == ["-", "ready", "tree"]
    assert cli.ok("volumes", "sqlite:vol/metadata.sqlite").lines == [line]
    assert "names no DynamoDB table" in cli.fails(11, "volumes", "./none").errors


def test_destroying_one_of_them(
    cli: Cli, places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destruction, "QUIET_SECONDS", 0.0)
    table = places[1]
    for name in ("logs", "raw"):
        data = ("--data-location", f"{table}-{name}")
        cli.ok("init", f"s3k://{name}", "--table", table, "--table-prefix", name, *data)
        cli.ok("put", "-", f"s3k://{name}/a", stdin=b"data")
    done = cli.ok("destroy", "s3k://logs", "--yes", "--force")
    assert done.out == f"destroyed s3k://logs; the table {table} was kept\n"
    assert [each["prefix"] for each in cli.ok("volumes", table, "--json").json_lines()] == ["raw"]
    assert cli.ok("cat", "s3k://raw/a").out == "data"
    cli.ok("destroy", "s3k://raw", "--yes", "--force")
    assert cli.ok("volumes", table).out == ""


def test_a_table_with_one_volume(cli: Cli, places: list[str]) -> None:
    cli.ok("init", "s3k://alone", *places)
    (line,) = cli.ok("volumes", places[1]).lines
    assert line.split()[:2] == ["-", "ready"]
    assert cli.ok("volumes", places[1], "--json").json()["name"] == "alone"
