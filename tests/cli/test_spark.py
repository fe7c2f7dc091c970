"""The command `spark` as far as it needs no Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Cli

JOBS = (
    "listing",
    "du",
    "rename",
    "delete",
    "import",
    "purge",
    "fsck-verify",
    "fsck-repair",
    "fsck-restore",
    "dump",
    "load",
    "reshard",
    "gc",
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["du"],
        ["listing", "/", "-o", "listing"],
        ["purge", "/a", "--yes"],
        ["rename", "--pairs", "pairs"],
        ["delete", "--from", "paths"],
        ["import", "--from", "objects"],
        ["import", "--below", "s3://bucket/old", "--to", "/in"],
        ["dump", "-o", "dump"],
        ["gc"],
        ["load", "dump", "./v"],
        ["reshard", "./v", "--suffix-count", "3"],
        ["fsck-verify"],
        ["fsck-repair"],
        ["fsck-restore", "--yes"],
    ],
)
def test_without_pyspark_it_says_what_to_install(
    cli: Cli, volume: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    for name in ("pyspark", "pyspark.sql", "pyspark.errors"):
        monkeypatch.setitem(sys.modules, name, None)
    done = cli.fails(11, "spark", *arguments)
    assert "pip install 's3k-async[spark]'" in done.errors
    assert cli("--json", "spark", *arguments).error()["code"] == "config"


def test_the_command_line_loads_no_pyspark_before_a_job_runs() -> None:
    code = (
        "import sys, s3k_async.cli.application, s3k_async.cli.commands.spark; print('pyspark' in "
        "sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n"


def test_each_job_has_its_help_and_its_flags_in_the_documentation(cli: Cli) -> None:
    from s3k_async.cli.commands.spark import spark

    text = (Path(__file__).resolve().parents[2] / "docs" / "command-line.md").read_text(
        encoding="utf-8"
    )
    section = text.partition("\n### `s3k spark")[2].partition("\n### ")[0]
    context = click.Context(spark)
    assert spark.list_commands(context) == sorted(JOBS)
    for name in JOBS:
        command = spark.get_command(context, name)
        assert command is not None
        assert cli.ok("spark", name, "--help").out.startswith(f"Usage: s3k spark {name} ")
        assert f"`s3k spark {name} " in section
        for param in command.params:
            if isinstance(param, click.Option) and not (param.name or "").startswith(
                ("setting_", "common_")
            ):
                assert all(
                    f"`{flag}" in section or f" {flag} " in section for flag in param.opts
                ), (name, param.opts)
