"""Directories in which the examples of the commands can be run."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from s3k_async.cli.examples import EXAMPLES
from tests.cli.conftest import Cli

ELSEWHERE = {
    "alerts drain": "tests/cli/test_alerts.py",
    "alerts purge": "tests/cli/test_alerts.py",
    "dev up": "tests/cli/test_dev.py",
    "oplog retire": "tests/cli/test_moving.py",
    "presign": "tests/cli/test_presign.py",
    "set-capacity": "tests/cli/test_capacity.py",
    "stats": "tests/cli/test_service_stats.py",
    **{
        each: "tests/spark/test_command_examples.py"
        for each in EXAMPLES
        if each.startswith("spark ")
    },
}
"""Commands whose example needs more than embedded volumes, and the test that runs it."""

OFFLINE = {
    "cache clear",
    "cache evict",
    "cache info",
    "completion",
    "dev down",
    "dev status",
    "plan",
    "policy",
}
"""Commands that send no request."""


def example_words(
    example: str, place: Path, model: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The words of an example after `s3k`. The working directory becomes `place`, a new copy of the
    model with the files that the example needs."""
    shutil.copytree(model, place)
    (place / ".home").mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place / ".home"))
    if "./tiered" in example:
        cli.ok("init", "./tiered", "--hot", "./fast")
    if "$ID" in example:
        made = cli.ok("object", "upload", "create", "/photos/b.jpg", "--json").json()
        cli.ok("object", "upload", "put", "./vol", made["id"], "1", "report.csv")
        monkeypatch.setenv("ID", made["id"])
    if "$KEY" in example:
        monkeypatch.setenv("KEY", cli.ok("stat", "/raw/a.csv", "--json").json()["physical"])
    words = [os.path.expandvars(word) for word in shlex.split(example)]
    return [word.replace("/tmp/", f"{place}/") for word in words][1:]
