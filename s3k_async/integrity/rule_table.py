"""The format of the decision tables of fsck, gc and restore: rules as data, evaluated without I/O.

A table is shown in the documentation as `render` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

__all__ = ["Rule", "RuleCoverage", "RuleTable"]

F = TypeVar("F")
O = TypeVar("O")  # noqa: E741 - the outcome
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Rule(Generic[O, A]):
    """If all conditions of `when` hold, the outcome is this one, and the action follows from it."""

    when: tuple[str, ...]
    outcome: O
    """None: nothing to report."""
    action: A
    detail: str = ""
    """Reported with the outcome; `{…}` fields are filled from the facts."""


@dataclass(frozen=True, slots=True)
class RuleTable(Generic[F, O, A]):
    """Rules on one kind of facts. The first rule that matches decides, and the last one always
    matches."""

    name: str
    about: str
    conditions: Mapping[str, Callable[[F], bool]] = field(repr=False)
    rules: Sequence[Rule[O, A]]

    def first(self, facts: F) -> Rule[O, A]:
        """The first rule that matches."""
        known: dict[str, bool] = {}

        def holds(condition: str) -> bool:
            if condition not in known:
                known[condition] = self.conditions[condition](facts)
            return known[condition]

        rule = next(rule for rule in self.rules if all(holds(condition) for condition in rule.when))
        for coverage in _active:
            coverage.reached.add((self.name, rule))
        return rule

    def render(self) -> str:
        """The table in Markdown, with its title."""
        return "\n".join(
            [
                f"### {self.name}: {self.about}",
                "",
                "| if all hold | outcome | action |",
                "|---|---|---|",
                *map(_row, self.rules),
                "",
            ]
        )


class RuleCoverage:
    """A context that collects (name of the table, rule) for every decision."""

    def __init__(self) -> None:
        self.reached: set[tuple[str, Rule[Any, Any]]] = set()

    def __enter__(self) -> set[tuple[str, Rule[Any, Any]]]:
        _active.append(self)
        return self.reached

    def __exit__(self, *_: object) -> None:
        _active.remove(self)


_active: list[RuleCoverage] = []


def _row(rule: Rule[Any, Any]) -> str:
    action = "-" if rule.outcome is None else rule.action
    return f"| {', '.join(rule.when) or 'otherwise'} | {rule.outcome or '-'} | {action} |"
