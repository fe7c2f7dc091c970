"""Every fault of the old systems that this version mends has a regression test named for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FAULTS = [
    *("D2", "D3", "D4", "D5", "D6", "D7", "D8", "D11", "D14"),
    *(f"S{number}" for number in range(1, 12)),
    *("P1", "P4", "P11"),
]
NAMES = re.findall(
    r"def test_([A-Z]\d+)_",
    "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py")),
)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_has_its_test(fault: str) -> None:
    assert fault in NAMES


TABLED = [
    *("D1", "D2", *(f"D{number}" for number in range(9, 15))),
    *(f"T{number}" for number in range(1, 9)),
    *(f"P{number}" for number in range(5, 11)),
    *(f"O{number}" for number in range(1, 7)),
]
"""Those of which docs/reliability.md says where they are shown to be mended, or why they are not,
or cannot occur."""
PAGE = Path(__file__).parents[2] / "docs/reliability.md"
ROWS = dict(
    re.findall(r"^\| ([A-Z]\d+): .*? \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
)


def test_the_table_has_each_fault() -> None:
    assert list(ROWS) == TABLED


@pytest.mark.parametrize("fault", TABLED)
def test_the_fault_has_a_test_or_a_reason(fault: str) -> None:
    reason, _, tests = ROWS[fault].partition(" | ")
    shown = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
    assert shown or reason.startswith(("Cannot occur:", "Not mended:", "Mended by ")), ROWS[fault]
    for file, name in shown:
        assert f"def {name}(" in (Path(__file__).parents[2] / file).read_text(encoding="utf-8")
