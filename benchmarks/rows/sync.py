"""A second synchronization, of files that did not change: `s3k sync` and `aws s3 sync`, each as a
command, on the same engines."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from anyio import to_thread

from benchmarks.environment import ROOT
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.rows.scope import Scope
from benchmarks.servers import engine_named
from tests.engines.process import Engine

__all__ = ["results"]

AWS = os.environ.get("S3K_BENCH_AWS", str(ROOT / ".venv" / "awscli" / "bin" / "aws"))
"""The AWS command line, which has an environment of its own."""
DIRECTORIES = 50


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Local files into a volume in DynamoDB and S3, into an embedded one, and into a bucket."""
    files = scope.pick(500, 5_000)
    with (
        engine_named("dynoxide") as table,
        engine_named("seaweedfs") as data,
        tempfile.TemporaryDirectory() as place,
    ):
        source = Path(place) / "source"
        _plant(source, files)
        environment = _environment(Path(place), table, data)
        commands = _prepared(place, source, data, environment)
        for command in commands.values():
            _run(command, environment)  # the first one
        runs: dict[str, Run] = {
            name: partial(to_thread.run_sync, _run, command, environment)
            for name, command in commands.items()
        }
        case = Case(
            "second sync",
            f"{files:,} unchanged files in {DIRECTORIES} directories",
            files,
            "files",
            runs,
            "aws s3 sync" if "aws s3 sync" in runs else "ours",
            rounds=scope.pick(2, 9),
        )
        for result in await measure(case):
            yield result


def _prepared(
    place: str, source: Path, data: Engine, environment: Mapping[str, str]
) -> dict[str, list[str]]:
    """The command of each contender, whose target exists."""
    ours = [sys.executable, "-m", "s3k_async.cli"]
    for volume in ("s3k://bench", f"{place}/volume"):
        _run([*ours, "init", "-q", volume], environment)
    commands = {
        "ours": [*ours, "sync", "-q", str(source), "s3k://bench/in"],
        "ours, embedded": [*ours, "sync", "-q", str(source), f"{place}/volume:/in"],
    }
    if Path(AWS).exists():
        aws = [AWS, "--endpoint-url", data.endpoint, "s3"]
        _run([*aws, "mb", "s3://bench-aws"], environment)
        sync = [*aws, "sync", "--only-show-errors", str(source), "s3://bench-aws/in"]
        commands["aws s3 sync"] = sync
    return commands


def _plant(source: Path, files: int) -> None:
    for number in range(files):
        place = source / f"day={number % DIRECTORIES}" / f"part-{number:05}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x" * (100 + number % 900))


def _environment(place: Path, table: Engine, data: Engine) -> dict[str, str]:
    """The environment of both commands, with the configuration file of the volume."""
    config = place / "config.toml"
    config.write_text(
        "\n".join(
            [
                "[volumes.bench]",
                'table = "bench-table"',
                'bucket = "bench-ours"',
                f'table_endpoint = "{table.endpoint}"',
                f'data_endpoint = "{data.endpoint}"',
                f'region = "{data.region}"',
                f'access_key_id = "{data.access_key}"',
                f'secret_access_key = "{data.secret_key}"',
            ]
        )
    )
    given = {name: value for name, value in os.environ.items() if not name.startswith("S3K_")}
    return {
        **given,
        "S3K_CONFIG": str(config),
        "AWS_ACCESS_KEY_ID": data.access_key,
        "AWS_SECRET_ACCESS_KEY": data.secret_key,
        "AWS_DEFAULT_REGION": data.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONPATH": str(ROOT),
    }


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
