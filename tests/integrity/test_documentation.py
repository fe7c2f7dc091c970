"""The pages show the tables that decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from s3k_async.integrity import gc_rules, restore_rules, verify_rules
from s3k_async.integrity.facts import Action
from s3k_async.integrity.restore_rules import PROBLEMS, RuleName
from s3k_async.integrity.rule_table import RuleTable

TABLES: dict[str, tuple[RuleTable[Any, Any, Any], ...]] = {
    "fsck.md": verify_rules.TABLES,
    "gc.md": (gc_rules.RULES,),
    "restore.md": (restore_rules.OBJECTS,),
}


def page(name: str) -> str:
    return (Path(__file__).parents[2] / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_the_tables_that_decide(name: str) -> None:
    assert "\n".join(table.render() for table in TABLES[name]) in page(name)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_always_decides_and_defines_its_conditions(name: str) -> None:
    for table in TABLES[name]:
        assert [rule.when for rule in table.rules if not rule.when] == [table.rules[-1].when]
        used = {condition for rule in table.rules for condition in rule.when}
        assert used <= table.conditions.keys()


def test_every_condition_is_used() -> None:
    for tables in TABLES.values():
        rules = [rule for table in tables for rule in table.rules]
        used = {condition for rule in rules for condition in rule.when}
        assert used == {condition for table in tables for condition in table.conditions}


def test_the_page_tells_what_every_action_does() -> None:
    for action in get_args(Action):
        assert f"\n| `{action}` | " in page("fsck.md"), action


def test_the_page_tells_what_every_outcome_of_a_restore_means() -> None:
    for outcome in get_args(RuleName):
        mark = " **manual decision**" if outcome in PROBLEMS else ""
        assert f"\n| `{outcome}`{mark} | " in page("restore.md"), outcome
