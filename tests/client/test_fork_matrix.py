"""Clients across fork, spawn and forkserver: they work or say why not, and never hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.fork_case import CASES

LIMIT_SECONDS = 20
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("state", CASES)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_client_and_its_children(tmp_path: Path, method: str, state: str) -> None:
    case = subprocess.Popen(
        [sys.executable, "-m", "tests.client.fork_case", method, state, str(tmp_path / "volume")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = case.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(case.pid, signal.SIGKILL)
        output, _ = case.communicate()
        pytest.fail(f"hung for {LIMIT_SECONDS} seconds: {output}", pytrace=False)
    assert (case.returncode, output) == (0, "")
