"""The columns of tables of values, and lists of values."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields

import pytest

from s3k_async import (
    DueAction,
    FileStatus,
    FileVersion,
    PhysicalFile,
    RowList,
    TrashItem,
    arrow_schema,
)
from s3k_async.listing.row_columns import row_schema
from s3k_async.objects import BucketInfo, ObjectInfo, UploadInfo

TIME = "timestamp[ms, tz=UTC]"
COLUMNS = {
    FileVersion: {
        "id": "string",
        "path": "string",
        "state": "string",
        "operation": "string",
        "since": TIME,
        "until": f"{TIME} or null",
        "size": "int64",
        "mtime": TIME,
        "checksum": "string",
        "has_data": "bool",
        "attributes": "string",
    },
    TrashItem: {"id": "string", "was": "string", "when": TIME, "by": "string", "state": "string"},
    PhysicalFile: {
        "path": "string",
        "uri": "string",
        "size": "int64",
        "mtime": TIME,
        "partitions": "map<string, string>",
    },
    DueAction: {"path": "string", "action": "string", "due": TIME},
    BucketInfo: {
        "name": "string",
        "created": TIME,
        "uid": "int64 or null",
        "objects": "int64 or null",
        "bytes": "int64 or null",
        "newest": f"{TIME} or null",
    },
    ObjectInfo: {
        "bucket": "string",
        "key": "string",
        "size": "int64",
        "created": TIME,
        "modified": TIME,
        "version": "int64",
        "etag": "string",
        "checksum": "string",
        "attributes": "string",
    },
    UploadInfo: {
        "id": "string",
        "bucket": "string",
        "key": "string",
        "started": TIME,
        "expires": TIME,
        "attributes": "string or null",
    },
}
"""The columns of each kind of value."""


@pytest.mark.parametrize("kind", COLUMNS, ids=lambda kind: kind.__name__)
def test_a_column_for_every_field(kind: type) -> None:
    found = {
        each.name: f"{each.type} or null" if each.nullable else str(each.type)
        for each in row_schema(kind)
    }
    assert found == COLUMNS[kind]
    assert [each.name.removesuffix("_ms") for each in fields(kind)] == list(found)


def test_statuses_have_the_columns_of_batches() -> None:
    assert row_schema(FileStatus) == arrow_schema()


def test_a_list_is_a_list() -> None:
    rows = RowList([TrashItem("id", "/was", 1)], TrashItem)
    assert rows == [TrashItem("id", "/was", 1)]
    assert repr(rows) == repr(list(rows))
    for twin in (copy.copy(rows), pickle.loads(pickle.dumps(rows))):
        assert (twin, twin.to_arrow()) == (rows, rows.to_arrow())
