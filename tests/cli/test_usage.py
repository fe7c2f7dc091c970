"""What cannot be meant ends with code 2, one line, and nothing done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

COMMANDS = (
    "init",
    "volumes",
    "info",
    "set-capacity",
    "destroy",
    "ls",
    "tree",
    "stat",
    "find",
    "du",
    "diff",
    "sync",
    "import",
    "count",
    "checksum",
    "df",
    "test",
    "cat",
    "head",
    "tail",
    "presign",
    "put",
    "get",
    "cp",
    "mv",
    "rm",
    "mkdir",
    "touch",
    "versions",
    "undelete",
    "restore",
    "doctor",
    "fsck",
    "stats",
    "transactions",
    "oplog",
    "dump",
    "load",
    "reshard",
    "migrate",
    "spark",
    "completion",
    "dev",
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["lss"],
        ["--nonsense"],
        ["--nonsense", "ls"],
        ["ls", "--nonsense"],
        ["tree", "/a", "/b"],
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
        ["head"],
        ["head", "-n", "-1", "/a"],
        ["head", "-n", "1", "-c", "1", "/a"],
        ["tail", "-c", "many", "/a"],
        ["tail", "-n", "x", "/a"],
        ["tail", "-n", "1", "-c", "1", "/a"],
        ["checksum"],
        ["checksum", "raw"],
        ["count"],
        ["count", "raw"],
        ["df", "/path", "/path"],
        ["df", "memory://x/path"],
        ["test"],
        ["test", "-e"],
        ["test", "-e", "raw"],
        ["test", "-e", "/a", "/b"],
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
        ["volumes"],
        ["volumes", "memory://x", "memory://y"],
        ["set-capacity"],
        ["set-capacity", "memory://x"],
        ["set-capacity", "memory://x", "--on-demand", "--read-units", "1", "--write-units", "1"],
        ["set-capacity", "memory://x", "--read-units", "5"],
        ["set-capacity", "memory://x", "--read-units", "0", "--write-units", "1"],
        ["init", "--read-units", "0", "memory://x"],
        ["init", "--stream", "ALL", "memory://x"],
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
        ["stats"],
        ["stats", "s3k://analytics"],
        ["stats", "http://host/metrics", "--count", "1"],
        ["transactions", "./x", "./y"],
        ["transactions", "mend", "./x"],
        ["transactions", "resolve", "memory://x/a"],
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


@pytest.mark.parametrize(
    "arguments",
    [
        ["dump", "-o"],
        ["gc", "--list"],
        ["gc", "--audit"],
        ["fsck", "repair", "--audit"],
        ["fsck", "restore", "--audit"],
    ],
    ids=" ".join,
)
def test_an_output_that_cannot_be_standard_output(
    cli: Cli, volume: str, arguments: list[str]
) -> None:
    assert "cannot go to standard output" in cli.fails(2, *arguments, "-").errors
    assert not Path("-").exists()


def test_the_nearest_command_is_named(cli: Cli) -> None:
    assert "did you mean mkdir?" in cli.fails(2, "mkdri", "/a").errors


def test_without_arguments_there_is_help(cli: Cli) -> None:
    done = cli()
    assert done.code == 2
    assert "Lookup commands:" in done.errors


def test_help(cli: Cli) -> None:
    overview = cli.ok("--help").out
    for name in COMMANDS:
        assert f"\n  {name} " in overview
        text = cli.ok(name, "--help").out
        assert text.startswith(f"Usage: s3k {name} ")
        assert "--json" in text


def test_the_overview_has_every_command_once_in_aligned_sections(cli: Cli) -> None:
    shown = cli.ok("--help").out.partition("\nLookup commands:\n")[2]
    rows = re.findall(r"^  (\S+ +)\S", shown, re.MULTILINE)
    assert sorted(row.strip() for row in rows) == sorted(
        name for name, *below in every_command() if not below
    )
    assert len({len(row) for row in rows}) == 1
    assert re.findall(r"^(\S.*):$", shown, re.MULTILINE) == [
        "Content commands",
        "Change commands",
        "Volume commands",
        "Maintenance commands",
        "Development commands",
    ]


def test_version(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli.ok("--version").out == f"s3k {version('s3k-async')}\n"


def test_the_documentation_has_every_command_and_flag() -> None:
    import click

    from s3k_async.cli.application import s3k

    text = (Path(__file__).resolve().parents[2] / "docs" / "command-line.md").read_text(
        encoding="utf-8"
    )
    context = click.Context(s3k)
    for name in COMMANDS:
        command = s3k.get_command(context, name)
        assert command is not None
        section = text.partition(f"\n### `s3k {name}")[2].partition("\n### ")[0]
        assert section, f"docs/command-line.md has nothing about {name}"
        settings = {
            each for each in command.params if (each.name or "").startswith(("setting_", "common_"))
        }
        for param in command.params:
            if isinstance(param, click.Option) and param not in settings:
                assert all(f"`{flag}" in section for flag in param.opts), (
                    f"{name} {param.opts} is not documented"
                )


def test_the_documentation_says_what_json_every_command_writes() -> None:
    import click

    from s3k_async.cli.application import s3k

    text = (Path(__file__).resolve().parents[2] / "docs" / "command-line.md").read_text(
        encoding="utf-8"
    )
    rows = text.partition("\n| commands | JSON |\n")[2].partition("\n\n")[0]
    documented = {f"{each} " for each in re.findall(r"`([^`]+)`", rows)}
    for path in every_command():
        command: click.Command | None = s3k
        for name in path:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name)
        # Those of Spark are described with its jobs; a script of completion is no result.
        if path[0] not in ("spark", "completion") and not isinstance(command, click.Group):
            assert any(each.startswith(f"{' '.join(path)} ") for each in documented), path


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-1"])
@pytest.mark.parametrize(
    "command",
    [
        "gc --grace",
        "gc --lease",
        "gc --rate",
        "stats http://host/metrics --interval",
        "oplog compact --grace",
        "fsck verify --grace",
        "fsck repair --grace",
    ],
)
def test_a_number_that_is_none_is_a_mistake_of_the_user(
    cli: Cli, volume: str, command: str, number: str
) -> None:
    done = cli.fails(2, *command.split(), number)
    assert "internal error" not in done.errors


@pytest.mark.parametrize("command", ["gc --grace", "oplog compact --grace", "fsck --grace"])
def test_a_grace_period_is_a_duration(cli: Cli, volume: str, command: str) -> None:
    for text in ("0", "1.5", "90s", "15m", "36h", "7d", "1w"):
        cli.ok(*command.split(), text)
    assert "3600, 90s, 15m" in cli.fails(2, *command.split(), "1 day").errors


def shared_options() -> dict[str, str]:
    """The options that every command has, with a value that can be meant."""
    from s3k_async.settings import OPTIONS

    values = {
        "integer": "3",
        "integers": "3,4",
        "number": "3",
        "size": "3",
        "boolean": "true",
        "text": "x",
        "path": "x",
    }
    settings = {
        option.flag: option.choices[0] if option.choices else values[option.type]
        for option in OPTIONS.values()
        if option.flag is not None
    }
    settings |= {
        option.flag: str(int(option.minimum or 0))
        for option in OPTIONS.values()
        if option.flag is not None and (option.minimum or 0) > 3
    }
    return {
        "--volume": "memory://x",
        "--config": "x",
        "--context": "x",
        "--hadoop": "x",
        **settings,
    }


def every_command() -> list[tuple[str, ...]]:
    import click

    from s3k_async.cli.application import s3k

    def below(group: click.Group, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        found = []
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            found.append((*path, name))
            if isinstance(command, click.Group):
                found += below(command, (*path, name))
        return found

    return below(s3k, ())


def test_shared_options_may_stand_before_the_name_of_every_command(cli: Cli) -> None:
    before = [word for option in shared_options().items() for word in option]
    for command in every_command():
        for place in range(len(command)):
            names = [*command[:place], *before, *command[place:]]
            usage = f"Usage: s3k {' '.join(command)} "
            assert cli.ok(*names, "--help").out.startswith(usage), names
            assert cli.ok("-q", "--json", "--debug", *command, "--help").out.startswith(usage)


def test_an_option_before_the_name_takes_effect_and_one_behind_it_counts(
    cli: Cli, volume: str
) -> None:
    made = cli.ok("--suffix-count", "7", "--json", "init", f"{volume}-a").json()
    assert made["suffix_count"] == 7
    made = cli.ok(
        "--suffix-count", "7", "--json", "init", f"{volume}-b", "--suffix-count", "5"
    ).json()
    assert made["suffix_count"] == 5
    cli.ok("touch", "/a")
    assert cli.ok("--max-concurrency", "1", "mv", "/a", "/b").out.startswith("moved 1 file")
    assert "at least 1" in cli.fails(2, "--max-concurrency", "0", "mv", "/a", "/b").errors


@pytest.mark.parametrize("command", ["fsck", "transactions"])
def test_an_option_of_a_group_is_not_taken_for_its_command(
    cli: Cli, volume: str, command: str
) -> None:
    named = {"fsck": "repair", "transactions": "resolve"}[command]
    assert cli.ok(command, "--volume", volume, named).code == 0
    assert cli.ok(command, "--region", "list", named, volume).code == 0
    assert cli.ok(command, "--region", "repair", volume).code == 0


@pytest.mark.parametrize(
    ("before", "command"),
    [
        (["--name", "*.csv"], ["find"]),
        (["--suffix-count", "3"], ["reshard", "memory://x", "--suffix-count", "5"]),
        (["--lease", "5"], ["gc"]),
        (["--region", "x"], ["plan", "rename"]),
    ],
)
def test_a_setting_is_not_taken_for_an_option_of_the_same_name(
    cli: Cli, volume: str, before: list[str], command: list[str]
) -> None:
    done = cli.fails(2, *before, *command)
    assert f"{before[0]} before {command[0]} is a setting of volumes" in done.errors


def test_h_is_help_except_where_it_is_human(cli: Cli, small_tree: dict[str, bytes]) -> None:
    assert cli.ok("-h").out == cli.ok("--help").out
    for command in every_command():
        if command[-1] not in ("ls", "du", "df", "count"):
            assert cli.ok(*command, "-h").out == cli.ok(*command, "--help").out
    assert "2.0K" in cli.ok("ls", "-lh", "/a/b").out


@pytest.mark.parametrize(
    ("word", "command"), [("help", "--help"), ("copy", "cp"), ("rename", "mv"), ("upload", "put")]
)
def test_a_command_by_the_name_that_others_give_it_is_named(
    cli: Cli, word: str, command: str
) -> None:
    assert f"did you mean {command}?" in cli.fails(2, word).errors


def test_a_missing_argument_is_told_with_what_the_command_takes(cli: Cli) -> None:
    assert "; it takes s3k get [OPTIONS] SOURCE... LOCAL (see" in cli.fails(2, "get", "/a").errors
    assert "\\n" not in cli.fails(2, "plan").errors
