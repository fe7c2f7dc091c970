"""docs/fsck.md shows the tables that decide."""

from __future__ import annotations

from pathlib import Path

from s3k_async.integrity.facts import Action
from s3k_async.integrity.verify_rules import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "fsck.md"


def tables() -> str:
    """The tables as the page shows them."""
    text = ""
    for table in TABLES:
        text += (
            f"### {table.name}: {table.about}\n\n| if all hold | finding | action "
            "|\n|---|---|---|\n"
        )
        for row in table.rows:
            text += (
                f"| {', '.join(row.when) or 'otherwise'} | {row.kind or '-'} | "
                f"{row.action if row.kind else '-'} |\n"
            )
        text += "\n"
    return text


def test_the_page_shows_the_tables_that_decide() -> None:
    assert tables() in PAGE.read_text(encoding="utf-8")


def test_the_page_tells_what_every_action_does() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for action in Action.__args__:  # type: ignore[attr-defined]
        assert f"\n| `{action}` | " in page, action
