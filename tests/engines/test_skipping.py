"""CI skips no test that needs an engine: the rule itself, tried on small test files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.engines.process import ROOT

CASES = """
import pytest

@pytest.mark.engine
@pytest.mark.skip(reason="no such engine")
def test_skipped_by_a_mark(): pass

@pytest.mark.spark
def test_skipped_inside(): pytest.skip("no Java")

@pytest.fixture
def server(): pytest.skip("no such engine")

@pytest.mark.engine
def test_skipped_by_a_fixture(server): pass

@pytest.mark.engine
def test_unavailable():
    from tests.conftest import unavailable
    unavailable("no such engine")

@pytest.mark.engine
@pytest.mark.xfail(reason="deviates")
def test_expected_failure(): assert False

@pytest.mark.skip(reason="a matter of taste")
def test_skip_of_another_kind(): pass

@pytest.mark.engine
def test_pass(): pass
"""
ALWAYS = {"expected_failure": "XFAIL", "skip_of_another_kind": "SKIPPED", "pass": "PASSED"}
SKIPPING = ("skipped_by_a_mark", "skipped_inside", "skipped_by_a_fixture", "unavailable")
SKIPS_ITSELF = """
import pytest
pytest.importorskip("a_module_that_does_not_exist")
def test_it(): pass
"""


def run(directory: Path, ci: str) -> tuple[int, dict[str, str], str]:
    """Exit code, outcomes by test name, and the last line."""
    (directory / "test_cases.py").write_text(CASES)
    (directory / "test_module.py").write_text(SKIPS_ITSELF)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    engine\n    spark\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
    ]
    command += ["--continue-on-collection-errors"]
    environment = {
        **os.environ,
        "CI": ci,
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    outcomes = dict(re.findall(r"^test_cases\.py::test_(\w+) ([A-Z]+)", done.stdout, re.MULTILINE))
    return done.returncode, outcomes, done.stdout.splitlines()[-1]


def test_what_is_skipped_fails_in_ci(tmp_path: Path) -> None:
    code, outcomes, summary = run(tmp_path, "true")
    assert code == 1
    assert {outcomes[name] for name in SKIPPING} <= {"FAILED", "ERROR"}
    assert {name: outcomes[name] for name in ALWAYS} == ALWAYS
    failed = sum(outcome == "FAILED" for outcome in outcomes.values())
    assert f"{failed} failed" in summary
    assert f"{len(SKIPPING) - failed + 1} error" in summary, "the module that skips itself is one"


def test_what_is_skipped_is_skipped_elsewhere(tmp_path: Path) -> None:
    code, outcomes, summary = run(tmp_path, "")
    assert code == 0
    assert outcomes == {**ALWAYS, **dict.fromkeys(SKIPPING, "SKIPPED")}
    assert f"{len(SKIPPING) + 1 + 1} skipped" in summary, (
        "a matter of taste, and the module that skips itself"
    )
