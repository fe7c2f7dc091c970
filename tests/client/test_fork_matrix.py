"""Clients across fork, spawn and forkserver: they work or say why not, and never hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.fork_case import CASES
from tests.support import run_program

LIMIT_SECONDS = 20


@pytest.mark.parametrize(
    ("method", "state"),
    [
        pytest.param(
            method,
            state,
            marks=[] if method == "fork" or state == "used" else [pytest.mark.slow],
            id=f"{method}-{state}",
        )
        for method in ("fork", "spawn", "forkserver")
        for state in CASES
    ],
)
def test_a_client_and_its_children(tmp_path: Path, method: str, state: str) -> None:
    volume = str(tmp_path / "volume")
    assert (
        run_program("-m", "tests.client.fork_case", method, state, volume, limit=LIMIT_SECONDS)
        == ""
    )
