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
    r"def test_([A-Z]\d+)_", "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_has_its_test(fault: str) -> None:
    assert fault in NAMES
