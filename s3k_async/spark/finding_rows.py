"""Results of fsck tasks: findings as columns, the outcome of repairs, and totals.

The sum of a task is a row, not an accumulator: it counts once, however often the task was run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async.integrity.facts import Finding
from s3k_async.integrity.repair import RepairOutcome
from s3k_async.integrity.verify import LISTED, VerifyReport
from s3k_async.spark.task_rows import Batches, dict_batches, spark_schema

__all__ = [
    "REPAIRS",
    "RESULTS",
    "FindingCounts",
    "Findings",
    "Result",
    "batches_of",
    "finding_of",
    "frame_of",
    "repairs_of",
    "result_of",
]

ROWS: Final = 1000
"""Rows of a batch."""
_FIELDS: Final = tuple(Finding.__dataclass_fields__)
_NUMBERS: Final = frozenset({"size", "version"})

REPAIRS: Final = pa.schema(
    [
        ("round", pa.int32()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        *((name, pa.int64() if name in _NUMBERS else pa.string()) for name in _FIELDS),
    ]
)
"""The outcome of repairs; from the fourth on, the columns of a finding."""
RESULTS: Final = pa.schema([("tag", pa.string()), ("line", pa.binary()), *REPAIRS])
"""The rows of tasks: findings (`found`), their repairs (`repaired`), a `sum`, and lines of other
tags."""

Result: TypeAlias = dict[str, Any]
"""A row."""


@dataclass(slots=True)
class FindingCounts:
    """Counts of findings."""

    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Of actions."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Kinds of the findings that were repaired."""
    collectable_bytes: int = 0
    tags: Counter[str] = field(default_factory=Counter)

    def counted(self, rows: Iterable[Result]) -> Iterator[Result]:
        """The rows, followed by one row with their sum."""
        for row in rows:
            self.tags[row["tag"]] += 1
            if row["tag"] == "found":
                self.kinds[row["kind"]] += 1
                self.collectable_bytes += row["size"] if row["kind"] == "collectable_data" else 0
            elif row["tag"] == "repaired":
                self.outcomes[row["action"], row["outcome"]] += 1
                self.repaired[row["kind"]] += row["outcome"] == "done"
            yield row
        document = {
            "kinds": self.kinds,
            "outcomes": [[*key, count] for key, count in self.outcomes.items()],
            "repaired": self.repaired,
            "collectable_bytes": self.collectable_bytes,
            "tags": self.tags,
        }
        yield result_of("sum", line=json.dumps(document))

    def add(self, line: bytes) -> None:
        """Add the sum of a task."""
        found = json.loads(line)
        self.kinds.update(found["kinds"])
        self.outcomes.update(
            {(action, outcome): count for action, outcome, count in found["outcomes"]}
        )
        self.repaired.update(found.get("repaired", {}))  # absent in checkpoints from before it
        self.collectable_bytes += found["collectable_bytes"]
        self.tags.update(found["tags"])


class Findings:
    """Findings of the tasks of a stage. The driver collects small results at once; of large ones
    only the rows that it needs."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame
        self.sum = FindingCounts()
        for row in frame.where(sf.col("tag") == "sum").select("line").collect():
            self.sum.add(row.line)
        self._rows: list[Any] | None = None
        if self.sum.tags.total() <= LISTED:
            self._rows = frame.where(sf.col("tag") != "sum").collect() if self.sum.tags else []

    def rows(self, tag: str) -> list[Any]:
        """The rows of a tag."""
        if self._rows is not None:
            return [row for row in self._rows if row.tag == tag]
        return self.frame.where(sf.col("tag") == tag).collect() if self.sum.tags[tag] else []

    def add_to(self, report: VerifyReport) -> None:
        """Count the findings, and list them while there is room."""
        report.kinds.update(self.sum.kinds)
        report.collectable_bytes += self.sum.collectable_bytes
        if self._rows is not None:
            report.findings += [finding_of(row) for row in self.rows("found")]
            return
        for kind in self.sum.kinds:
            some = self.frame.where((sf.col("tag") == "found") & (sf.col("kind") == kind)).limit(
                LISTED
            )
            report.findings += [finding_of(row) for row in some.collect()]

    def repairs(self) -> list[RepairOutcome]:
        """The first repairs, as many as a report lists."""
        rows = self._rows
        if rows is None:
            rows = self.frame.where(sf.col("tag") == "repaired").limit(LISTED).collect()
        return [
            RepairOutcome(finding_of(row), row.outcome, row.reason)
            for row in rows
            if row.tag == "repaired"
        ]


def result_of(tag: str, finding: Finding | None = None, *, line: str = "") -> Result:
    """One row."""
    row: Result = {
        "tag": tag,
        "line": line.encode(),
        "round": None,
        "outcome": None,
        "reason": None,
    }
    for name in _FIELDS:
        value = None if finding is None else getattr(finding, name)
        row[name] = _text(value) if isinstance(value, str) else value
    return row


def repairs_of(repairs: RepairOutcome, number: int) -> Result:
    """The row of a repair in a round."""
    row = result_of("repaired", repairs.finding)
    return {**row, "round": number, "outcome": repairs.outcome, "reason": _text(repairs.reason)}


def batches_of(rows: Iterable[Result]) -> Batches:
    """The rows as record batches."""
    return dict_batches(RESULTS, rows, ROWS)


def frame_of(spark: SparkSession, rows: Iterable[Result]) -> DataFrame:
    """The driver's own rows."""
    values = [tuple(row[name] for name in RESULTS.names) for row in rows]
    return spark.createDataFrame(values, spark_schema(RESULTS))


def finding_of(row: Any) -> Finding:
    """The finding of a row."""
    return Finding(*(row[name] for name in _FIELDS))


def _text(value: str) -> str:
    """The text as a column can hold it: foreign keys may contain surrogates."""
    return value.encode("utf-8", "backslashreplace").decode()
