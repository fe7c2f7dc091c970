"""What cannot be meant ends with code 2, one line, and nothing done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

COMMANDS = (
    "init",
    "destroy",
    "ls",
    "tree",
    "stat",
    "find",
    "du",
    "cat",
    "put",
    "get",
    "cp",
    "mv",
    "rm",
    "mkdir",
    "touch",
    "fsck",
    "jobs",
    "oplog",
    "dump",
    "load",
    "reshard",
    "spark",
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["lss"],
        ["--nonsense"],
        ["--nonsense", "ls"],
        ["ls", "--nonsense"],
        ["ls", "/a", "/b"],
        ["ls", ""],
        ["ls", "raw"],
        ["ls", "raw/day=1"],
        ["ls", "http://host/path"],
        ["ls", "s3k://"],
        ["ls", "/.."],
        ["ls", "/a/../.."],
        ["ls", "/" + "n" * 1025],
        ["ls", "/" + "x" * 1000 + "/" + "y" * 1000 + "/" + "z" * 100 + "/w"],
        ["ls", "--recursive=yes"],
        ["tree", "-L", "0"],
        ["tree", "-L", "x"],
        ["stat"],
        ["cat"],
        ["cat", "--range", "b-a", "/a"],
        ["put"],
        ["put", "local"],
        ["put", "-", "/dir/"],
        ["put", "-", "-", "/a"],
        ["put", "-", "local", "/a"],
        ["get"],
        ["get", "/a"],
        ["get", "raw", "local"],
        ["cp"],
        ["cp", "/a"],
        ["mv", "/a"],
        ["mv", "/a", "relative"],
        ["rm"],
        ["rm", "-r", "raw"],
        ["mkdir"],
        ["mkdir", "/" + "n" * 1025],
        ["touch"],
        ["find", "--type", "x"],
        ["find", "--size", "many"],
        ["find", "--size", "+"],
        ["find", "--size", ""],
        ["find", "--newer", "yesterday"],
        ["find", "--older", "2x"],
        ["find", "--newer", "2026-13-01"],
        ["find", "--name", ""],
        ["du", "--nonsense"],
        ["destroy"],
        ["init", "a", "b"],
        ["init", "raw"],
        ["init", "--suffix-count", "none", "memory://x"],
        ["init", "--suffix-count", "0", "memory://x"],
        ["init", "--hash", "md5", "memory://x"],
        ["init", "--log-mode", "x", "memory://x"],
        ["init", "--read-timeout", "-1", "memory://x"],
        ["init", "--part-size", "huge", "memory://x"],
        ["init", "--verify-tls", "maybe", "memory://x"],
        ["ls", "--secret-access-key", "secret"],
        ["fsck", "mend", "memory://x"],
        ["fsck", "repair", "--grace", "x"],
        ["jobs", "./x", "./y"],
        ["jobs", "mend", "./x"],
        ["jobs", "settle", "memory://x/a"],
        ["spark", "nonsense"],
        ["spark", "purge"],
        ["spark", "rename", "memory://x"],
        ["spark", "import"],
        ["spark", "import", "--below", "s3://bucket/old"],
        ["spark", "import", "--from", "list", "--to", "/in"],
        ["spark", "du", "-L", "-1"],
        ["spark", "listing", "/", "-o", "x", "--by", "names"],
        ["spark", "dump", "memory://x"],
        ["spark", "gc", "memory://x:/a"],
        ["spark", "gc", "--grace", "x"],
        ["spark", "load", "dump"],
        ["spark", "load", "dump", "memory://x:/a"],
        ["spark", "reshard", "memory://x"],
        ["spark", "reshard", "memory://x", "--suffix-count", "0"],
        ["spark", "dump", "memory://x:/a", "--path", "/b", "-o", "x"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_bad_usage(cli: Cli, volume: str, arguments: list[str]) -> None:
    done = cli.fails(2, *arguments)
    assert done.out == ""
    document = cli("--json", *arguments).error()
    assert document["exit_code"] == 2
    assert document["code"] in ("usage", "invalid_path", "invalid_argument")
    assert cli.ok("ls", "-a").out == ""


def test_the_nearest_command_is_named(cli: Cli) -> None:
    assert "did you mean mkdir?" in cli.fails(2, "mkdri", "/a").errors


def test_without_arguments_there_is_help(cli: Cli) -> None:
    done = cli()
    assert done.code == 2
    assert "Commands:" in done.errors


def test_help(cli: Cli) -> None:
    overview = cli.ok("--help").out
    for name in COMMANDS:
        assert f"\n  {name} " in overview
        text = cli.ok(name, "--help").out
        assert text.startswith(f"Usage: s3k {name} ")
        assert "--json" in text


def test_version(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli.ok("--version").out == f"s3k {version('s3k-async')}\n"


def test_the_documentation_has_every_command_and_flag() -> None:
    import click

    from s3k_async.cli.application import s3k

    text = (Path(__file__).resolve().parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    context = click.Context(s3k)
    for name in COMMANDS:
        command = s3k.get_command(context, name)
        assert command is not None
        section = text.partition(f"\n### `s3k {name}")[2].partition("\n### ")[0]
        assert section, f"docs/command-line.md has nothing about {name}"
        settings = {each for each in command.params if (each.name or "").startswith(("setting_", "common_"))}
        for param in command.params:
            if isinstance(param, click.Option) and param not in settings:
                assert all(f"`{flag}" in section for flag in param.opts), f"{name} {param.opts} is not documented"


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-1"])
@pytest.mark.parametrize(
    "command",
    ["gc --grace", "gc --lease", "gc --rate", "oplog compact --grace", "fsck verify --grace", "fsck repair --grace"],
)
def test_a_number_that_is_none_is_a_mistake_of_the_user(cli: Cli, volume: str, command: str, number: str) -> None:
    done = cli.fails(2, *command.split(), number)
    assert "internal error" not in done.errors
