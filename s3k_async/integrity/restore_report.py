"""The report of a restore: its counts, and the outcomes of objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from s3k_async.integrity.restore_rules import PROBLEMS, RuleName

__all__ = ["LISTED_OUTCOMES", "UNTOLD", "RestoreOutcome", "RestoreReport"]

LISTED_OUTCOMES: Final = 10_000
"""Outcomes that a report holds; the counts are of all."""
UNTOLD: Final = frozenset({"committed", "deleted", "present"})
"""Rules whose outcomes are only counted."""


@dataclass(frozen=True, slots=True)
class RestoreOutcome:
    """The outcome for one object, or for one damaged object of the log."""

    rule: RuleName
    path: str
    object_id: str = ""
    detail: str = ""

    @property
    def is_problem(self) -> bool:
        """Whether it needs a manual decision."""
        return self.rule in PROBLEMS


@dataclass(slots=True)
class RestoreReport:
    """The result of a restore, or of a dry run."""

    files: int = 0
    directories: int = 0
    reservations: int = 0
    bytes: int = 0
    log_records: int = 0
    counts: Counter[RuleName] = field(default_factory=Counter)
    outcomes: list[RestoreOutcome] = field(default_factory=list)
    """Outcomes other than those of UNTOLD (restored as logged, still deleted, or never lost)."""
    written: int = 0
    """Entries written; 0 for a dry run."""
    run: str = ""
    """Id of the run in the audit trail; empty for a dry run."""
    heard: Callable[[RestoreOutcome], object] | None = field(
        default=None, compare=False, repr=False
    )
    """Called with each outcome that is listed."""

    @property
    def restored(self) -> int:
        """Entries to write."""
        return self.files + self.directories + self.reservations

    @property
    def problems(self) -> list[RestoreOutcome]:
        """The outcomes that need a manual decision."""
        return [outcome for outcome in self.outcomes if outcome.is_problem]

    @property
    def clean(self) -> bool:
        """Whether nothing needs a manual decision."""
        return not any(self.counts[rule] for rule in PROBLEMS)

    def note(self, outcome: RestoreOutcome) -> None:
        """Count an outcome, and list it unless it is in UNTOLD."""
        self.counts[outcome.rule] += 1
        if outcome.rule not in UNTOLD:
            if self.heard is not None:
                self.heard(outcome)
            if len(self.outcomes) < LISTED_OUTCOMES:
                self.outcomes.append(outcome)
