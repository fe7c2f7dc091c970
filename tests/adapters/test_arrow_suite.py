"""The public suite of pyarrow's filesystems passes over a volume, on SQLite and a directory and on
real engines."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from s3k_async.config import DynamoTable, LocalDirectory, S3Bucket, SqliteFile, VolumeConfig
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 1800
LEAST = 36
"""Tests for one form of paths, with pyarrow 26."""


def toml(config: VolumeConfig) -> str:
    """The volume, the default of a configuration file, with its secrets."""
    lines = [f'default_volume = "s3k://{config.name}"', f"[volumes.{config.name}]"]
    table, data = config.table, config.data
    if isinstance(table, DynamoTable) and isinstance(data, S3Bucket):
        lines += [f'table = "{table.name}"', f'bucket = "{data.bucket}"']
        lines += [f'prefix = "{data.prefix}"'] if data.prefix else []
        for part, aws in (("table", table.aws), ("data", data.aws), ("log", data.aws)):
            lines += [f'{part}_endpoint = "{aws.endpoint}"', f'{part}_region = "{aws.region}"']
            lines += [f'{part}_access_key_id = "{aws.access_key_id.reveal()}"']
            lines += [f'{part}_secret_access_key = "{aws.secret_access_key.reveal()}"']
    else:
        assert isinstance(table, SqliteFile)
        assert isinstance(data, LocalDirectory)
        lines += [f'table = "sqlite:{table.path}"', f'data_location = "{data.path}"']
    return "\n".join(lines) + "\n"


def run_suite(config: VolumeConfig, directory: Path, forms: str) -> list[ET.Element]:
    """Run the suite over a volume; its test cases, with what became of them."""
    settings, report = directory / "s3k.toml", directory / "report.xml"
    settings.write_text(toml(config))
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "pyarrow.tests.conftest",
                "-p",
                "no:cacheprovider",
                "--noconftest",
            ),
            *("-q", "--maxfail=5", f"--junitxml={report}", f"--basetemp={directory / 'temporary'}"),
            "tests/adapters/arrow_suite.py",
        ],
        cwd=ROOT,
        env={**os.environ, "S3K_CONFIG": str(settings), "ARROW_SUITE_FORMS": forms},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return list(ET.parse(report).iter("testcase"))


@volume_backends("embedded", slow=["dynoxide+seaweedfs", "dynamodb_local+seaweedfs"])
def test_the_suite_of_pyarrow(new_volume: VolumeMaker, tmp_path: Path) -> None:
    forms = "relative,url" if new_volume.backend == "embedded" else "absolute"
    config = new_volume()
    asyncio.run(init_volume(config))
    cases = run_suite(config, tmp_path, forms)
    assert [case.get("name") for case in cases if len(case)] == [], (
        "nothing fails, and nothing is skipped"
    )
    assert len(cases) >= LEAST * len(forms.split(","))
