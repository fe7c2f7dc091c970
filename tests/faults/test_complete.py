"""Every fault of the old systems that this version mends has a regression test named for it."""

from __future__ import annotations

import re
from pathlib import Path

FAULTS = [
    *("D2", "D3", "D4", "D5", "D6", "D7", "D8", "D11", "D14"),
    *(f"S{number}" for number in range(1, 12)),
    *("P1", "P4", "P11"),
]
NAMES = re.findall(
    r"def test_([A-Z]\d+)_",
    "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py")),
)


def test_each_fault_has_its_test() -> None:
    assert [fault for fault in FAULTS if fault not in NAMES] == []


TABLED = [
    *("D1", "D2", *(f"D{number}" for number in range(9, 15))),
    *(f"T{number}" for number in range(1, 9)),
    *(f"P{number}" for number in range(5, 11)),
    *(f"O{number}" for number in range(1, 7)),
]
"""Those of which docs/reliability.md says where they are shown to be mended, or why they are not,
or cannot occur."""
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reliability.md"
ROWS = dict(
    re.findall(r"^\| ([A-Z]\d+): .*? \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
)


def defined(file: str, name: str) -> bool:
    return f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_the_table_has_each_fault() -> None:
    assert list(ROWS) == TABLED


def test_each_fault_of_the_table_has_a_test_or_a_reason() -> None:
    wrong = []
    for fault, row in ROWS.items():
        reason, _, tests = row.partition(" | ")
        shown = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        if not shown and not reason.startswith(("Cannot occur:", "Not mended:", "Mended by ")):
            wrong.append(f"{fault} has neither: {row}")
        wrong += [f"{fault}: no {file}::{name}" for file, name in shown if not defined(file, name)]
    assert not wrong, "\n".join(wrong)
