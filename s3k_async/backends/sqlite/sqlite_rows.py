"""Rows of a SQLite table as items, including damaged rows.

A row is sealed: the upper half of its `segment` is a checksum of its key and attributes, so that a
changed byte in any of them is detected, above all in a key, under which another file would be
served. Rows of earlier versions have no seal; of them only the partition key is checked.

A row is damaged if its seal is broken, if its attributes are no JSON object of texts, whole numbers
and booleans, or if a key is no text. It is served as an item that is not an entry of a volume:
decoding refuses it by its key, and it can be read, compared and removed like any other. Its
attributes become one, `RAW`, or `RAW_BASE64` if they are no UTF-8. A key that is no UTF-8 text, or
empty, becomes `<text form>///<t or b><hexadecimal digits>`, for a text or a blob of these bytes: no
key of a volume has three slashes, since no name is empty.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from s3k_async.backends.ports.item_semantics import segment_of
from s3k_async.backends.ports.items import PARTITION, SORT, Key, Value

__all__ = [
    "RAW",
    "RAW_BASE64",
    "Row",
    "bound",
    "fetch",
    "found_of",
    "item_of",
    "items_of",
    "key_from",
    "row_of",
]

RAW: Final = "attributes"
RAW_BASE64: Final = "attributes_base64"

_MARK: Final = "///"
_PLAIN: Final = frozenset({str, int, bool})
_NOT_FLAT: Final = ("[", "null", "\\ud", "\\uD", f'"{PARTITION}"', f'"{SORT}"')

Row: TypeAlias = tuple[Any, Any, Any, Any]
"""Partition, sort, segment and attributes, as stored."""

_SEAL_BITS: Final = 0x7FFFFFFF
"""SQLite's numbers have 63 bits and a sign: 32 are the segment's."""


class _Undecoded(bytes):
    """A text of SQLite that is not UTF-8; a blob is plain `bytes`."""


def _not_plain(text: str) -> Any:
    raise ValueError(f"{text} is no value of an attribute")


_DECODER: Final = json.JSONDecoder(parse_float=_not_plain, parse_constant=_not_plain)


def row_of(key: Key, attributes: str) -> Row:
    """The stored row of an item."""
    segment = segment_of(key.partition)
    return (
        key.partition,
        key.sort,
        (_seal(segment, key.sort, attributes) << 32) | segment,
        attributes,
    )


def _seal(segment: int, sort: str, attributes: str) -> int:
    """The checksum of a row, never 0. It continues the partition's checksum, the segment."""
    return zlib.crc32(f"\0{sort}\0{attributes}".encode(), segment) & _SEAL_BITS or 1


def _is_intact(row: Row, segment: int) -> bool:
    """Whether the row has its seal; `segment` is that of its partition."""
    stored = row[2]
    if type(stored) is not int or stored & 0xFFFFFFFF != segment:
        return False
    return stored >> 32 in (0, _seal(segment, row[1], row[3]))


def fetch(connection: sqlite3.Connection, statement: str, values: Sequence[object]) -> list[Row]:
    """All rows of a query. Raises the errors of SQLite, except for a text that is not UTF-8."""
    try:
        return connection.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if not str(error).startswith("Could not decode to UTF-8"):
            raise
    connection.text_factory = _decoded
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.text_factory = str


def items_of(rows: Sequence[Row]) -> list[dict[str, Value]]:
    """The items of rows."""
    attributes = _flat(rows)
    if attributes is None:
        return [item_of(row) for row in rows]
    return [
        {PARTITION: row[0], SORT: row[1], **each}
        for row, each in zip(rows, attributes, strict=True)
    ]


def found_of(rows: Sequence[Row]) -> dict[str, Value] | None:
    """The item of the rows of one key. Several are damage: one of them had another key."""
    if len(rows) > 1:
        return _damaged(rows[0])
    return item_of(rows[0]) if rows else None


def item_of(row: Row) -> dict[str, Value]:
    """The item of a row."""
    try:
        if not _is_intact(row, segment_of(row[0])):
            return _damaged(row)
        attributes = _DECODER.decode(row[3])
        if "\\u" in row[3]:  # half of a surrogate pair is no text
            json.dumps(attributes, ensure_ascii=False).encode()
    except (AttributeError, ValueError, TypeError, RecursionError):
        return _damaged(row)
    if type(attributes) is not dict or not {*map(type, attributes.values())} <= _PLAIN:
        return _damaged(row)
    if PARTITION in attributes or SORT in attributes:
        return _damaged(row)
    place, name = key_from(row)
    return {PARTITION: place, SORT: name, **attributes}


def _flat(rows: Sequence[Row]) -> list[dict[str, Value]] | None:
    """The attributes of rows, parsed together in half the time; None unless each row is certainly
    one object, valid for `item_of`, with an intact key."""
    places, names, texts = ([row[column] for row in rows] for column in (0, 1, 3))
    try:
        text = ",".join(texts)
        if (
            not (all(places) and all(names))
            or _MARK in "\n".join(places)
            or _MARK in "\n".join(names)
            or text.count("{") != len(rows)
            or not all(each.startswith("{") for each in texts)
            or any(part in text for part in _NOT_FLAT)
        ):
            return None
        segments = {place: segment_of(place) for place in set(places)}
        if not all(_is_intact(row, segments[row[0]]) for row in rows):
            return None
        found: list[Any] = _DECODER.decode(f"[{text}]")
    except (ValueError, TypeError, RecursionError):
        return None
    return found if len(found) == len(rows) and {*map(type, found)} <= {dict} else None


def key_from(row: Row) -> Key:
    """The key of a row in the form of the item port."""
    return Key(_key_text(row[0]), _key_text(row[1]))


def bound(text: str) -> tuple[str, str | bytes]:
    """Half of a key for a query: an expression with a placeholder, and its value."""
    _, mark, stored = text.rpartition(_MARK)
    if not mark or stored[:1] not in ("t", "b"):
        return "?", text
    try:
        data = bytes.fromhex(stored[1:])
    except ValueError:
        return "?", text
    return ("CAST(? AS TEXT)" if stored[0] == "t" else "?"), data


def _key_text(value: object) -> str:
    if type(value) is str and value and _MARK not in value:
        return value
    raw = value.encode() if isinstance(value, str) else value
    data = bytes(raw)  # type: ignore[call-overload]  # a blob
    kind = "t" if isinstance(value, str | _Undecoded) else "b"
    return f"{data.decode(errors='backslashreplace')}{_MARK}{kind}{data.hex()}"


def _damaged(row: Row) -> dict[str, Value]:
    key, value = key_from(row), row[3]
    if isinstance(value, str):
        return {PARTITION: key.partition, SORT: key.sort, RAW: value}
    return {PARTITION: key.partition, SORT: key.sort, RAW_BASE64: base64.b64encode(value).decode()}


def _decoded(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _Undecoded(data)
