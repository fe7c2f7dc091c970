"""What a run has measured so far, kept as JSON in `benchmarks/results`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measuring import Result

__all__ = ["Record"]


@dataclass
class Record:
    """The results of a run, in the order in which they were measured.

    `rows` maps each finished row to the number of its results. The results of a row that did not
    finish come last.
    """

    environment: dict[str, str]
    rows: dict[str, int] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Record:
        """Read a record. One without `rows`, as earlier versions wrote it, has no finished row."""
        kept = json.loads(path.read_text(encoding="utf-8"))
        results = [Result(**each) for each in kept["results"]]
        return cls(kept["environment"], kept.get("rows", {}), results)

    def save(self, path: Path) -> None:
        """Write what there is so far: a run that is stopped has not measured for nothing."""
        path.parent.mkdir(exist_ok=True)
        kept = {
            "environment": self.environment,
            "rows": self.rows,
            "results": [result.as_json() for result in self.results],
        }
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")

    def ended(self, row: str) -> None:
        """Record that this row is finished: all results that follow the finished rows are its."""
        self.rows[row] = len(self.results) - sum(self.rows.values())

    def missing(self, rows: Sequence[str]) -> list[str]:
        """Those rows that are not finished."""
        return [row for row in rows if row not in self.rows]

    def resumed(self, environment: Mapping[str, str]) -> Record:
        """A record with the finished rows of this one alone, for a run that measures the others.

        The first run describes the machine. What differs in the environment of the second is
        recorded beside it.

        Raises:
            ValueError: the runs have different numbers of repetitions, or no row is finished.
        """
        if not self.rows:
            raise ValueError("the record has no finished row to resume after")
        if environment["repetitions"] != self.environment["repetitions"]:
            raise ValueError(
                f"the record has {self.environment['repetitions']} repetitions, "
                f"this run {environment['repetitions']}"
            )
        differing = {
            f"resumed after {list(self.rows)[-1]}: {name}": value
            for name, value in environment.items()
            if self.environment.get(name) != value
        }
        finished = self.results[: sum(self.rows.values())]
        return Record({**self.environment, **differing}, dict(self.rows), finished)
