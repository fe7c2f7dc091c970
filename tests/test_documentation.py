"""What the documentation says exists, exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

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


def test_every_test_that_a_page_names_exists() -> None:
    missing = [
        f"{page.relative_to(ROOT)} names {file}::{name}"
        for page in PAGES
        for file, name in REFERENCE.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / file).is_file() or (name and name not in functions(ROOT / file))
    ]
    assert not missing, "\n".join(missing)


def test_every_link_within_the_project_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)} links to {target}"
        for page in PAGES
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)


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
