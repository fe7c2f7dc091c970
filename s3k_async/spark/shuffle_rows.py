"""Rows of the shuffle: the scans' facts, each with the number of its partition.

A line is what `Shuffle` writes to a file on one machine. Rows of one part are brought together by
Spark, and fill a `Shuffle` in the memory of a task, one part after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from s3k_async.integrity.collector import LOOSE
from s3k_async.integrity.scans import Thing
from s3k_async.integrity.shuffle import Pile, Shuffle, from_line, hash_of, to_line

__all__ = ["LINES", "NOWHERE", "batch_of", "divided", "line_of", "parts_of", "things_of"]

LINES: Final = "part long, pile string, line binary"
"""The rows of a scan. `part`: what a thing is divided by; `NOWHERE` for what the driver takes."""
NOWHERE: Final = -1
_SCHEMA: Final = pa.schema([("part", pa.int64()), ("pile", pa.string()), ("line", pa.binary())])


def line_of(pile: str, line: str) -> pa.RecordBatch:
    """One row for the driver."""
    return pa.record_batch([[NOWHERE], [pile], [line.encode()]], schema=_SCHEMA)


def batch_of(things: Iterable[Thing]) -> pa.RecordBatch:
    """The rows of some things."""
    parts, piles, lines = [], [], []
    for pile, key, thing in _first_children(things):
        parts.append(NOWHERE if pile in LOOSE else hash_of(key))
        piles.append(pile)
        lines.append(to_line(pile, thing).encode())
    return pa.record_batch([parts, piles, lines], schema=_SCHEMA)


def _first_children(things: Iterable[Thing]) -> Iterator[Thing]:
    """The things, but of each parent's children only the first by name: nobody asks for another
    (`Collector.lonely`), and all of a parent's are in one part, which has to fit into memory.
    """
    first: dict[str, Any] = {}
    for pile, key, thing in things:
        if pile != "children":
            yield pile, key, thing
        elif key not in first or thing[1] < first[key][1]:
            first[key] = thing
    for parent, child in first.items():
        yield "children", parent, child


def things_of(rows: Iterable[Any]) -> Iterator[Thing]:
    """The things without an object id among the rows that the driver takes."""
    for row in rows:
        if row.pile in LOOSE:
            yield row.pile, "", from_line(row.pile, bytes(row.line))


def divided(things: DataFrame, parts: int, partitions: int) -> DataFrame:
    """The things, each part of them in one partition and in one run of rows."""
    numbered = things.where(F.col("part") != NOWHERE).withColumn("part", F.col("part") % parts)
    return numbered.repartition(partitions, "part").sortWithinPartitions("part")


def parts_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Shuffle]]:
    """The parts that are in a partition with their numbers, one at a time in memory."""
    current: int | None = None
    parts = Shuffle(held=sys.maxsize)
    for batch in batches:
        numbers, piles, lines = (
            batch.column(name).to_pylist() for name in ("part", "pile", "line")
        )
        for number, pile, line in zip(numbers, piles, lines, strict=True):
            if number != current and current is not None:
                yield current, parts
                parts = Shuffle(held=sys.maxsize)
            current = number
            _add(parts, pile, line)
    if current is not None:
        yield current, parts


def _add(parts: Shuffle, pile: Pile, line: bytes) -> None:
    parts.add(pile, "", from_line(pile, line))
