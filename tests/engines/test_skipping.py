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


def run(directory: Path, text: str, ci: str) -> tuple[int, dict[str, str]]:
    """Exit code and outcomes by test name."""
    (directory / "test_cases.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    engine\n    spark\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, dict(re.findall(r"^test_cases\.py::test_(\w+) ([A-Z]+)", done.stdout, re.MULTILINE))


def test_a_skipped_engine_test_fails_in_ci(tmp_path: Path) -> None:
    code, outcomes = run(tmp_path, CASES, "true")
    assert code == 1
    assert {outcomes[name] for name in SKIPPING} <= {"FAILED", "ERROR"}
    assert {name: outcomes[name] for name in ALWAYS} == ALWAYS


def test_a_skipped_engine_test_is_skipped_elsewhere(tmp_path: Path) -> None:
    code, outcomes = run(tmp_path, CASES, "")
    assert code == 0
    assert outcomes == {**ALWAYS, **dict.fromkeys(SKIPPING, "SKIPPED")}


def test_a_skipped_module_fails_in_ci(tmp_path: Path) -> None:
    skips_itself = "import pytest\npytest.importorskip('a_module_that_does_not_exist')\ndef test_it(): pass\n"
    assert run(tmp_path, skips_itself, "true")[0] not in (0, 5)
    assert run(tmp_path, skips_itself, "")[0] == 5  # no test was collected
