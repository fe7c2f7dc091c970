"""What the documentation says exists, exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REFERENCE = re.compile(r"`(tests/[\w/.-]+\.py)(?:::(\w+))?`")
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for file, name in REFERENCE.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / file).is_file(), file
        assert not name or name in functions(ROOT / file), f"{file}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_within_the_project_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_row_of_the_promises_names_a_test() -> None:
    page = (ROOT / "docs/semantics.md").read_text(encoding="utf-8")
    promises, heading, _ = page.partition("\n## What depends on clocks\n")
    assert heading
    rows = [
        line
        for line in promises.splitlines()
        if line.startswith("| ")
        and not line.startswith(("| promise", "| rule", "| what is read", "|---"))
    ]
    assert len(rows) >= 30
    for row in rows:
        assert REFERENCE.search(row), row
