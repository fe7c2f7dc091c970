"""Entries as Arrow record batches."""

from __future__ import annotations

import gc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async._native import Entries, Rows
from s3k_async.listing.listings import arrow_schema
from s3k_async.model import Entry
from s3k_async.table.codec import to_item
from s3k_async.table.keys import KeyScheme
from tests.native.test_entries import ENTRIES

KEYS = KeyScheme("v", 4)
_TIME = pa.timestamp("ms", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("is_dir", pa.bool_(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("mtime", _TIME, nullable=False),
        pa.field("ctime", _TIME, nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("committed", pa.bool_(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("checksum", pa.string(), nullable=False),
        pa.field("attributes", pa.string(), nullable=False),
        pa.field("physical", pa.string()),
    ]
)


def _entries(entries: list[Entry]) -> Entries:
    return Rows([to_item(entry, KEYS) for entry in entries]).entries("v")


def _rows(entries: Entries) -> list[dict[str, Any]]:
    return [
        {
            "path": status.path,
            "is_dir": status.is_dir,
            "size": status.size,
            "mtime": status.mtime_ms,
            "ctime": status.ctime_ms,
            "id": status.id,
            "version": status.version,
            "committed": status.committed,
            "etag": status.etag,
            "checksum": status.checksum,
            "attributes": status.attributes_json,
            "physical": status.physical,
        }
        for status in entries.statuses()
    ]


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows of a batch, times as whole numbers (the largest are no dates)."""
    columns = {
        name: column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    rows: list[dict[str, Any]] = pa.table(columns).to_pylist()
    return rows


@given(ENTRIES, st.booleans())
def test_batches_hold_what_statuses_tell(entries: list[Entry], part: bool) -> None:
    found = _entries(entries)[::-2] if part else _entries(entries)
    batch = pa.record_batch(found)
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA, check_metadata=True)
    assert _plain(batch) == _rows(found)


def test_the_schema_is_told_without_data() -> None:
    assert pa.schema(_entries([])).equals(SCHEMA, check_metadata=True)
    assert arrow_schema().equals(SCHEMA, check_metadata=True)


def test_an_empty_batch() -> None:
    batch = pa.record_batch(_entries([]))
    assert batch.num_rows == 0
    assert batch.schema.equals(SCHEMA)


def test_a_batch_outlives_its_entries() -> None:
    found = _entries([Entry(f"/d/{number}", True, "i", 1, 1, 1) for number in range(1000)])
    batch = pa.record_batch(found)
    del found
    gc.collect()
    assert batch.column("path").to_pylist() == [f"/d/{number}" for number in range(1000)]


def test_capsules_that_nobody_takes_are_released() -> None:
    found = _entries([Entry("/d", True, "i", 1, 1, 1)] * 10_000)
    gc.collect()  # the garbage of other tests
    before = pa.total_allocated_bytes()
    for _ in range(20):
        found.__arrow_c_array__()
        found.__arrow_c_schema__()
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_a_capsule_is_taken_once() -> None:
    capsules = _entries([Entry("/d", True, "i", 1, 1, 1)]).__arrow_c_array__()
    pa.RecordBatch._import_from_c_capsule(*capsules)
    with pytest.raises(pa.ArrowInvalid):
        pa.RecordBatch._import_from_c_capsule(*capsules)
