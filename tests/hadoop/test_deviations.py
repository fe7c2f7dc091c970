"""The page on deviations: every row names tests, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "hadoop-deviations.md"
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    """The rows of all tables, without heads and rules."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("|") and not line.startswith("|---") and not following.startswith("|---")
    ]


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


def test_the_page_has_its_tables() -> None:
    assert len(rows()) > 60


@pytest.mark.parametrize("row", rows())
def test_every_row_names_a_test_that_exists(row: str) -> None:
    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
    assert len(cells) == 3
    references = REFERENCE.findall(cells[-1])
    assert references
    for path, name in references:
        assert name.startswith("test_")
        assert name in functions_of(path), f"{path} has no {name}"
