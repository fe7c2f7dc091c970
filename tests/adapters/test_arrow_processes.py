"""Datasets across fork, spawn and forkserver, in pools and data loaders, beside threads and loops:
never a hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.arrow_fork_case import CASES
from tests.support import run_program

LIMIT_SECONDS = 120


def case(method: str, state: str) -> object:
    """Fork is where something can be inherited; a child that starts from nothing takes seconds to
    import Arrow."""
    common = (
        state in {"used", "in use", "loop", "loader"}
        if method == "fork"
        else (method, state) == ("spawn", "pool")
    )
    return pytest.param(method, state, marks=[] if common else [pytest.mark.slow])


@pytest.mark.parametrize(
    ("method", "state"),
    [case(method, state) for method in ("fork", "spawn", "forkserver") for state in CASES],
)
def test_a_filesystem_and_its_children(tmp_path: Path, method: str, state: str) -> None:
    volume = str(tmp_path / "volume")
    assert (
        run_program(
            "-m", "tests.adapters.arrow_fork_case", method, state, volume, limit=LIMIT_SECONDS
        )
        == ""
    )
