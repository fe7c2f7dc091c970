"""Tasks of a collection over Spark: the join in columns finds what the rules need, however Spark
cuts the rows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.integrity.shuffle import from_line, hash_of, to_line
from s3k_async.spark import gc_tasks
from s3k_async.spark.gc_tasks import Line, batch_of_lines, take_unnamed
from s3k_async.spark.shuffle_rows import LINES, NOWHERE, native_batch

IDS = [str(uuid.UUID(int=number << 120 | number, version=4)) for number in range(4)]
DATA = [f"{unique}.id={object_id}" for unique in IDS[:3] for object_id in IDS]
SIZE = 77

Row = tuple[str, str]
"""Tag and key of a data object, or an object id of an object that is held."""


def line_of(row: Row, *, ended: bool = True) -> Line:
    """A row of a scan. `ended`: with a newline, as the native core writes it."""
    tag, key = row
    if tag == "held":
        return hash_of(key), tag, key
    is_blob = tag == "blob"
    text = to_line("blobs", BlobInfo(key, SIZE, "", 7)) if is_blob else to_line("named", key)
    return hash_of(key[-36:]), tag, text + "\n" * ended


def unnamed(rows: Iterable[Row]) -> set[tuple[int, str, str]]:
    """The lines about unreferenced data, one object after the other."""
    known = set(rows)
    named = {key for tag, key in known if tag == "named"}
    held = {key for tag, key in known if tag == "held"}
    dead = {key for tag, key in known if tag == "blob"} - named
    found = {
        (hash_of(key[-36:]), "blob", to_line("blobs", BlobInfo(key, SIZE, "", 7))) for key in dead
    }
    for object_id in {key[-36:] for key in dead}:
        found.add((int(object_id[:2], 16), "wanted", object_id))
        if object_id in held:
            found.add((hash_of(object_id), "held", object_id))
    return found


def cut(lines: Sequence[Line], places: Iterable[int]) -> list[pa.RecordBatch]:
    """The lines as Spark gives them to a task: by hash, in batches, some of them slices."""
    whole = batch_of_lines(sorted(lines, key=lambda line: line[0]))
    ends = sorted({*(place % (len(lines) + 1) for place in places), len(lines)})
    starts = [0, *ends[:-1]]
    return [whole.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def of_batches(batches: Iterable[pa.RecordBatch]) -> list[tuple[int, str, str]]:
    rows: list[dict[str, Any]] = []
    for batch in batches:
        assert batch.schema == LINES
        rows += batch.to_pylist()
    return [(row["part"], row["tag"], row["line"].decode()) for row in rows]


ROWS = st.lists(
    st.one_of(
        st.tuples(st.just("blob"), st.sampled_from(DATA)),
        st.tuples(st.just("named"), st.sampled_from(DATA)),
        st.tuples(st.just("held"), st.sampled_from(IDS)),
    ),
    unique=True,
)


@given(ROWS, st.lists(st.integers(0, 40)), st.lists(st.booleans(), min_size=28, max_size=28))
def test_unreferenced_data_does_not_depend_on_the_batches(
    rows: list[Row], places: list[int], ended: list[bool]
) -> None:
    ends = iter(ended * 2)
    lines = [line_of(row, ended=next(ends)) for row in rows]
    found = of_batches(take_unnamed(cut(lines, places)))
    (counts,) = [json.loads(line) for part, tag, line in found if tag == "marked"]
    others = [each for each in found if each[0] != NOWHERE]
    assert len(others) == len(set(others))
    assert set(others) == unnamed(rows)
    kept = {key for tag, key in rows if tag == "blob"} & {
        key for tag, key in rows if tag == "named"
    }
    assert counts["counts"]["named"] == [len(kept), SIZE * len(kept)]


def test_referenced_data_is_no_python_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only unreferenced objects are decoded."""
    decoded: list[str] = []

    def counted(kind: str, text: bytes) -> list[BlobInfo]:
        found = [from_line("blobs", line) for line in text.splitlines()]
        decoded.extend(blob.key for blob in found)
        return found

    monkeypatch.setattr(gc_tasks, "facts_in", counted)
    rows = [("named", key) for key in DATA[1:]] + [("blob", key) for key in DATA]
    list(take_unnamed(cut([line_of(row) for row in rows], [5, 9])))
    assert decoded == DATA[:1]


def test_native_lines_are_rows_of_the_shuffle() -> None:
    blobs = [BlobInfo(key, 3, "", 7) for key in DATA]
    lines, _ = _native.old_blob_facts(blobs, 8)
    batch = native_batch("blob", lines)
    assert of_batches([batch]) == [
        (hash_of(key[-36:]), "blob", to_line("blobs", blob) + "\n")
        for key, blob in zip(DATA, blobs, strict=True)
    ]
