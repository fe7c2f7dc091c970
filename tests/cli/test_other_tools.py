"""The page on the commands of other tools: every command and option of theirs has a row, and every
example is run, in embedded volumes and with moto's services."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from s3k_async.cli.application import s3k
from s3k_async.cli.examples import EXAMPLES
from s3k_async.txn import volume_lock
from tests.cli.conftest import Cli
from tests.engines.process import Engine
from tests.engines.volumes import fresh_bucket, fresh_name

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-other-tools.md"

_AGES = ("-days", "-hours", "-minutes", "-seconds")
_EXPIRY = ("-ru", "-wu", "-s", "-d", "-u", "-n")
_THREADS = ("--us-s3-mt-mapper", "--s3-threads-per-partition")

TOOLS = {
    "S3-FileSystem 1.0": {
        "help": (),
        "fsck verify": (
            *("--bucket", "--output-path", "--s3-partitions", "--meta-partitions"),
            *("--num-reducers", *_THREADS, "--hadoopProperties"),
        ),
        "fsck fullRestore": (
            *("--bucket", "--output-path", "--partitions", *_THREADS, "--num-reducers-phase-1"),
            *("--num-reducers-phase-2", "--props-files", "--phase-1", "--phase-2"),
        ),
        "fsck commandLoader": ("--base-dir", "--bucket", "--dry-run", "--hadoopProperties"),
        "fsck ls": ("--bucket", "--buffer-dir"),
        "tools metaStoreReader": ("--bucket", "--logicalPath"),
        "tools operationLogReader": ("--path",),
        "tools rawS3BucketDu": ("--bucket", "--keyCountOnly", "--sizeOnly"),
        "tools ddbStreamLister": ("--stream-arn", "--filter", "--threads", "--debug"),
        "tools purgeMeta": ("--path", "--partitions"),
        "tools purgeBucket": ("--bucket", "--partitions"),
    },
    "S3Guard": {
        "init": ("-meta", "-region", "-read", "-write", "-sse", "-cmk", "-tag"),
        "destroy": ("-meta", "-region"),
        "import": ("-authoritative", "-verbose", "-meta", "-region"),
        "diff": ("-meta", "-region"),
        "prune": (*_AGES, "-tombstone", "-meta", "-region"),
        "set-capacity": ("-read", "-write"),
        "bucket-info": (
            *("-guarded", "-unguarded", "-auth", "-nonauth", "-magic", "-encryption"),
            "-markers",
        ),
        "uploads": ("-list", "-abort", "-expect", "-verbose", "-force", *_AGES),
        "fsck": ("-check", "-internal", "-fix"),
        "authoritative": ("-required", "-check-config", "-verbose"),
        "markers": (
            *("-audit", "-clean", "-min", "-max", "-limit", "-nonauth", "-out", "-verbose"),
        ),
        "select": (),
        "dump": (),
        "purge": ("-force",),
    },
    "s3mper": {
        "meta list": (),
        "meta resolve": (),
        "meta delete_path": _EXPIRY,
        "meta delete_ts": _EXPIRY,
        "sqs log": (),
        "sqs purge": (),
        "fs verify": ("-t", "-f"),
        "alert clearAll": (),
        "alert log": (),
    },
}
"""The commands of each tool, with their options."""


class Row(NamedTuple):
    command: str
    options: tuple[str, ...]
    ours: str
    example: str


def section(tool: str) -> str:
    return PAGE.read_text(encoding="utf-8").split(f"\n## {tool}\n", 1)[1].split("\n## ", 1)[0]


def rows(tool: str) -> list[Row]:
    """The rows of a tool's table, without head and rule."""
    found = []
    lines = [line for line in section(tool).splitlines() if line.startswith("|")]
    for line in lines[2:]:
        old, ours, example = (cell.strip() for cell in line.strip("|").split("|"))
        words = old.strip("`").split()
        options = tuple(word for word in words if word.startswith("-"))
        command = " ".join(words[: len(words) - len(options)])
        found.append(Row(command, options, ours, example.strip("`")))
    return found


@pytest.mark.parametrize("tool", TOOLS)
def test_every_command_and_option_has_a_row(tool: str) -> None:
    table = rows(tool)
    options: dict[str, list[str]] = defaultdict(list)
    for row in table:
        options[row.command] += row.options
    listed = section(tool).split("Commands:", 1)[1].split(".\n", 1)[0]
    assert re.findall(r"`([^`]+)`", listed) == list(TOOLS[tool]) == list(options)
    assert {name: sorted(found) for name, found in options.items()} == {
        name: sorted(known) for name, known in TOOLS[tool].items()
    }
    assert {row.command for row in table if not row.options} == set(TOOLS[tool])


@pytest.mark.parametrize("tool", TOOLS)
def test_a_row_says_what_to_do_or_why_there_is_nothing(tool: str) -> None:
    for row in rows(tool):
        assert row.ours, row
        if row.ours.startswith("left out"):
            assert re.match(r"left out: \S", row.ours), row
            assert not row.example, row
        elif not row.options and not row.ours.startswith("not built yet"):
            assert row.example.startswith("s3k "), row


def flags_of(command: click.Command) -> set[str]:
    """The flags of a command and of those in its group."""
    # A command keeps the help option of the first context.
    context = click.Context(command, help_option_names=["--help", "-h"])
    found = {flag for each in command.get_params(context) for flag in getattr(each, "opts", ())}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= flags_of(below)
    return found


def test_the_flags_that_the_tables_name_exist() -> None:
    """Those of the second column, and of what the keys of Hadoop say."""
    keys = (PAGE.parent / "hadoop-keys.md").read_text(encoding="utf-8")
    texts = [row.ours for tool in TOOLS for row in rows(tool)]
    texts += [line.rpartition(" | ")[2] for line in keys.splitlines() if line.startswith("|")]
    named = {
        word
        for text in texts
        for span in re.findall(r"`([^`]+)`", text)
        for word in span.split()
        if re.match(r"--?[A-Za-z]", word)
    }
    assert {"--hadoop", "--yes", "--threads", "-f"} <= named
    assert named <= flags_of(s3k)


IN_AWS = ("s3k://", "s3://")
"""What an example contains that needs a service."""


def examples_of(tool: str, *, in_aws: bool) -> list[str]:
    """The examples of a tool that need services or not, without those of the tools before it and
    those of the help, which test_examples.py runs."""
    tools = list(TOOLS)
    elsewhere = {example for examples in EXAMPLES.values() for example in examples}
    for earlier in tools[: tools.index(tool)]:
        elsewhere.update(row.example for row in rows(earlier))
    own = sorted({row.example for row in rows(tool) if row.example} - elsewhere)
    return [each for each in own if any(mark in each for mark in IN_AWS) == in_aws]


CORE_SITE = "<configuration><property><name>a</name><value>b</value></property></configuration>"


@pytest.mark.parametrize("tool", TOOLS)
def test_the_examples_can_be_run(
    tool: str, model: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    monkeypatch.setenv("S3K_VOLUME", "./vol")
    examples = examples_of(tool, in_aws=False)
    assert len(examples) >= 5
    for number, example in enumerate(examples):
        place = tmp_path / str(number)
        shutil.copytree(model, place)
        monkeypatch.chdir(place)
        Path("core-site.xml").write_text(CORE_SITE)
        if "$KEY" in example:
            monkeypatch.setenv("KEY", cli.ok("stat", "/raw/a.csv", "--json").json()["physical"])
        done = cli(*shlex.split(os.path.expandvars(example))[1:])
        assert done.code == 0, (example, done)
        assert done.output or "-q" in example or "s3k: " not in done.errors, (example, done)


@pytest.mark.engine
@pytest.mark.usefixtures("service")
def test_the_examples_for_services_can_be_run(
    cli: Cli, moto_s3: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:

        def bucket() -> str:
            return stack.enter_context(fresh_bucket(moto_s3)).bucket

        lab = bucket()
        cli.ok("init", f"s3k://{lab}", "--table", lab, "--bucket", lab)
        for tool in TOOLS:
            for example in examples_of(tool, in_aws=True):
                own = example.replace("s3://lake", f"s3://{lab}")
                if example.startswith("s3k init"):
                    own = re.sub(r"\blab\b(?!-)", fresh_name("lab"), own)
                    own = own.replace("lab-data", bucket())
                own = own.replace("s3k://lab", f"s3k://{lab}")
                done = cli(*shlex.split(own)[1:])
                assert done.code == 0, (example, done)
