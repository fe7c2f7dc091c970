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
from pyspark.sql import functions as sf

from s3k_async.integrity.collector import LOOSE
from s3k_async.integrity.scans import Thing
from s3k_async.integrity.shuffle import Pile, Shuffle, from_line, hash_of, to_line
from s3k_async.spark.task_rows import row_batch

__all__ = ["LINES", "NOWHERE", "batch_of", "divided", "line_of", "parts_of", "things_of"]

LINES: Final = pa.schema([("part", pa.int64()), ("pile", pa.string()), ("line", pa.binary())])
"""The rows of a scan. `part`: the hash by which they are divided; `NOWHERE` for the driver."""
NOWHERE: Final = -1


def line_of(pile: str, line: str) -> pa.RecordBatch:
    """One row for the driver."""
    return row_batch(LINES, [(NOWHERE, pile, line.encode())])


def batch_of(things: Iterable[Thing]) -> pa.RecordBatch:
    """The rows of some things."""
    return row_batch(
        LINES,
        [
            (NOWHERE if pile in LOOSE else hash_of(key), pile, to_line(pile, thing).encode())
            for pile, key, thing in _first_children(things)
        ],
    )


def _first_children(things: Iterable[Thing]) -> Iterator[Thing]:
    """The things, but of each parent's children only the first by name: others are not needed
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
    numbered = things.where(sf.col("part") != NOWHERE).withColumn("part", sf.col("part") % parts)
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
