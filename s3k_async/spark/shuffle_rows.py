"""Rows of the shuffle: the scans' facts, each with the number of its partition.

A line is what `Shuffle` writes to a file on one machine. Rows of one part are brought together by
Spark, and fill a `Shuffle` in the memory of a task, one part after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkFiles
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from s3k_async._native import FactLines
from s3k_async.integrity.collector import LOOSE
from s3k_async.integrity.scans import FactPage, FactRecord
from s3k_async.integrity.shuffle import FactKind, Shuffle, from_line, hash_of, to_line
from s3k_async.namespace.directory_file import DirectoryFile
from s3k_async.spark.task_rows import row_batch, spark_schema

__all__ = [
    "LINES",
    "NOWHERE",
    "batch_of",
    "batches_of",
    "divided",
    "facts_of",
    "line_of",
    "native_batch",
    "parts_of",
    "without_children",
]

LINES: Final = pa.schema([("part", pa.int64()), ("tag", pa.string()), ("line", pa.binary())])
"""The rows of a scan. `part`: the hash by which they are divided; `NOWHERE` for the driver. A line
ends with a newline."""
NOWHERE: Final = -1


def line_of(kind: str, line: str) -> pa.RecordBatch:
    """One row for the driver."""
    return row_batch(LINES, [(NOWHERE, kind, line.encode())])


def batches_of(page: FactPage, *, every_child: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows of the facts of a page; `every_child` as of `batch_of`."""
    if page.facts:
        yield batch_of(page.facts, every_child=every_child)
    for kind, lines in page.lines:
        yield native_batch(kind, lines)


def native_batch(tag: str, lines: FactLines) -> pa.RecordBatch:
    """The rows of facts that are lines already, without a copy for each."""
    hashes, offsets, text = map(pa.py_buffer, lines.columns())
    count = len(lines)
    columns = [
        pa.Array.from_buffers(pa.int64(), count, [None, hashes]),
        pa.repeat(tag, count),
        pa.Array.from_buffers(pa.binary(), count, [None, offsets, text]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LINES)


def batch_of(facts: Iterable[FactRecord], *, every_child: bool = False) -> pa.RecordBatch:
    """The rows of some facts; without `every_child` only the first child of each parent."""
    return row_batch(
        LINES,
        [
            (
                NOWHERE if kind in LOOSE else hash_of(key),
                kind,
                to_line(kind, fact).encode("ascii") + b"\n",
            )
            for kind, key, fact in (facts if every_child else _first_children(facts))
        ],
    )


def without_children(rows: DataFrame, directories: str) -> DataFrame:
    """The rows without the children of some directories: `directories` is the name of a
    DirectoryFile among Spark's files. In layout `tree` all children are needed of a directory that
    does not exist, and there are few; of the others, one directory may have more than fit into
    memory."""

    def lonely(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(DirectoryFile(SparkFiles.get(directories))) as file:
            for batch in batches:
                pairs = zip(batch.column("tag").to_pylist(), batch.column("line"), strict=True)
                parents: list[str | None] = [
                    from_line("children", line.as_py())[0] if tag == "children" else None
                    for tag, line in pairs
                ]
                asked = {parent for parent in parents if parent is not None}
                known = {parent for parent in asked if file.entry_key(parent) is not None}
                kept = [parent not in known for parent in parents]
                yield batch.filter(pa.array(kept, pa.bool_()))

    return rows.mapInArrow(lonely, spark_schema(LINES))


def _first_children(facts: Iterable[FactRecord]) -> Iterator[FactRecord]:
    """The facts, with only the first child by name of each parent: in layout `path` others are not
    needed (`Collector.lonely`), and all children of a parent would be in one part, which has to fit
    into memory.
    """
    first: dict[str, Any] = {}
    for kind, key, fact in facts:
        if kind != "children":
            yield kind, key, fact
        elif key not in first or fact[1] < first[key][1]:
            first[key] = fact
    for parent, child in first.items():
        yield "children", parent, child


def facts_of(rows: Iterable[Any]) -> Iterator[FactRecord]:
    """The facts without an object id among the rows that the driver takes."""
    for row in rows:
        if row.tag in LOOSE:
            yield row.tag, "", from_line(row.tag, bytes(row.line))


def divided(facts: DataFrame, parts: int, partitions: int) -> DataFrame:
    """The facts partitioned so that the rows of a part are adjacent in one partition, kind by
    kind."""
    numbered = facts.where(sf.col("part") != NOWHERE).withColumn("part", sf.col("part") % parts)
    return numbered.repartition(partitions, "part").sortWithinPartitions("part", "tag")


def parts_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Shuffle]]:
    """The parts in a partition with their numbers, one at a time in memory."""
    current: int | None = None
    parts = Shuffle(held=sys.maxsize)
    for batch in batches:
        for number, kind, start, end in _runs(batch):
            if number != current and current is not None:
                yield current, parts
                parts = Shuffle(held=sys.maxsize)
            current = number
            parts.add_to_part(kind, _text(batch.column("line"), start, end), end - start)
    if current is not None:
        yield current, parts


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, FactKind, int, int]]:
    """The runs of rows of one part and kind: part, kind, first row, and the row after the last."""
    numbers, kinds = (pc.run_end_encode(batch.column(name)) for name in ("part", "tag"))
    start = 0
    for end in sorted({*numbers.run_ends.to_pylist(), *kinds.run_ends.to_pylist()}):
        number, kind = (batch.column(name)[start].as_py() for name in ("part", "tag"))
        yield number, kind, start, end
        start = end


def _text(lines: pa.BinaryArray, start: int, end: int) -> bytes:
    """The lines [start, end), concatenated."""
    _, offsets, text = lines.buffers()
    places = memoryview(offsets).cast("i")
    first, last = places[lines.offset + start], places[lines.offset + end]
    return bytes(text[first:last])
