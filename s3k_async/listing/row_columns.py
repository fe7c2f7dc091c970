"""The values that listings yield as rows of Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin, get_type_hints

from s3k_async._core.object_version import as_version
from s3k_async.attributes import Attributes
from s3k_async.listing.listings import arrow_schema
from s3k_async.model import FileStatus

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["row_batch", "row_schema"]

_TIME: Final = "_ms"
"""The end of the name of a field that has epoch milliseconds."""


def row_schema(kind: type) -> pa.Schema:
    """The columns of values of a type: for `FileStatus` `arrow_schema`, for a dataclass one for
    each field.

    A field of epoch milliseconds, `mtime_ms`, is the column `mtime` in UTC milliseconds. Attributes
    are JSON, empty if there are none; a dictionary is a map. A column whose field can be None has
    nulls.
    """
    import pyarrow as pa

    if kind is FileStatus:
        return arrow_schema()
    hints = get_type_hints(kind)
    return pa.schema([_column(each.name, hints[each.name]) for each in fields(kind)])


def row_batch(kind: type, rows: Sequence[Any]) -> pa.RecordBatch:
    """Values of a type as a record batch of the schema `row_schema`."""
    import pyarrow as pa

    columns = _of_statuses(rows) if kind is FileStatus else _of_fields(kind, rows)
    return pa.RecordBatch.from_pydict(columns, schema=row_schema(kind))


def _column(name: str, hint: Any) -> pa.Field:
    import pyarrow as pa

    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    types = {
        Attributes: pa.string(),
        bool: pa.bool_(),
        dict: pa.map_(pa.string(), pa.string()),
        int: pa.timestamp("ms", "UTC") if name.endswith(_TIME) else pa.int64(),
        Literal: pa.string(),
        str: pa.string(),
    }
    found = types[get_origin(kinds[0]) or kinds[0]]
    return pa.field(name.removesuffix(_TIME), found, nullable=NoneType in kinds)


def _of_fields(kind: type, rows: Sequence[Any]) -> dict[str, list[Any]]:
    return {
        each.name.removesuffix(_TIME): [_stored(getattr(row, each.name)) for row in rows]
        for each in fields(kind)
    }


def _stored(value: object) -> object:
    if isinstance(value, Attributes):
        return value.to_json()
    return list(value.items()) if isinstance(value, dict) else value


def _of_statuses(statuses: Sequence[FileStatus]) -> dict[str, list[Any]]:
    return {
        "path": [status.path for status in statuses],
        "is_dir": [status.is_dir for status in statuses],
        "size": [status.size for status in statuses],
        "mtime": [status.mtime_ms for status in statuses],
        "ctime": [status.ctime_ms for status in statuses],
        "id": [status.id for status in statuses],
        "version": [status.version for status in statuses],
        "committed": [status.committed for status in statuses],
        "etag": [status.etag for status in statuses],
        "checksum": [status.checksum or as_version(status.object_version) for status in statuses],
        "attributes": [status.attributes_json for status in statuses],
        "physical": [status.physical for status in statuses],
    }
