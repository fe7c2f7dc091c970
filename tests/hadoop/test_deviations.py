"""The page on deviations: every row names tests, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

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


OLD_OPTIONS = {
    "is-blobstore": False,
    "is-case-sensitive": True,
    "create-overwrites-directory": False,
    "create-visibility-delayed": False,
    "metadata_updated_on_hsync": False,
    "rejects-seek-past-eof": True,
    "rename-creates-dest-dirs": False,
    "rename-overwrites-dest": False,
    "rename-remove-dest-if-empty-dir": False,
    "rename-returns-false-if-dest-exists": True,
    "rename-returns-false-if-source-missing": False,
    "supports-append": False,
    "supports-atomic-directory-delete": False,
    "supports-atomic-file-rename": True,
    "supports-atomic-rename": False,
    "supports-block-locality": False,
    "supports-concat": False,
    "supports-content-check": False,
    "supports-file-reference": False,
    "supports-getfilestatus": True,
    "supports-hflush": False,
    "supports-hsync": False,
    "supports-seek": True,
    "supports-settimes": False,
    "supports-strict-exceptions": True,
    "supports-unbuffer": False,
    "supports-unix-permissions": False,
    "test.root-tests-enabled": True,
}
"""S3-FileSystem 1.0's `s3k.xml`; what that does not set is false."""


def test_the_options_differ_from_the_old_ones_as_the_page_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, table = (
        text.split("## Contract options", 1)[1].split("## From Hadoop", 1)[0].split("| option |", 1)
    )
    options = {
        name: value == "true"
        for name, value in re.findall(r"^\| `([\w.-]+)` \| (\w+) \|", table, re.MULTILINE)
    }
    assert options.keys() == OLD_OPTIONS.keys()
    changed = {name for name, value in options.items() if value != OLD_OPTIONS[name]}
    assert changed == {
        "supports-append",
        "supports-atomic-rename",
        "supports-atomic-directory-delete",
        "supports-concat",
        "supports-settimes",
    }
    assert changed == set(re.findall(r"`(supports-[\w-]+)`", head))


def test_the_page_has_its_tables() -> None:
    assert len(rows()) > 60


def test_every_row_names_tests_that_exist() -> None:
    wrong = []
    for row in rows():
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        references = REFERENCE.findall(cells[-1])
        if len(cells) != 3 or not references:
            wrong.append(f"not three cells, or no test in the last: {row}")
        wrong += [
            f"{path}::{name} is no test: {row}"
            for path, name in references
            if not (name.startswith("test_") and name in functions_of(path))
        ]
    assert not wrong, "\n".join(wrong)
