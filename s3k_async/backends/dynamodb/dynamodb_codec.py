"""Decoding of items and keys from DynamoDB's typed attribute values, and cursors.

Format as in the Amazon DynamoDB API Reference (`AttributeValue`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from s3k_async.backends.ports.items import (
    PARTITION,
    SORT,
    Item,
    Key,
    Value,
)

__all__ = [
    "cursor_text",
    "decode_item",
    "decode_key",
    "parse_cursor",
]

Wire: TypeAlias = dict[str, Any]
"""A structure of botocore."""

_WHOLE = re.compile(r"-?[0-9]{1,126}")
"""Digits of DynamoDB's largest number, 9.9…E+125; longer numbers stay text."""


def decode_item(wire: Mapping[str, Any]) -> Item:
    """An item from AttributeValues; values other than text, whole numbers and booleans become JSON
    text."""
    return {name: _decode_value(value) for name, value in wire.items()}


def decode_key(wire: Mapping[str, Any]) -> Key:
    """A primary key from AttributeValues."""
    return Key(wire[PARTITION]["S"], wire[SORT]["S"])


def _decode_value(wire: Mapping[str, Any]) -> Value:
    ((kind, value),) = wire.items()
    if kind == "S":
        return str(value)
    if kind == "BOOL":
        return bool(value)
    if kind == "N" and _WHOLE.fullmatch(value):
        return int(value)
    return json.dumps({kind: value}, default=_plain, separators=(",", ":"), ensure_ascii=False)


def _plain(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no place in an item")


def cursor_text(last: tuple[str, str]) -> str:
    """The text of a LastEvaluatedKey, given as partition and sort key."""
    return json.dumps(last, ensure_ascii=False)


def parse_cursor(cursor: str) -> Key:
    """The ExclusiveStartKey of a cursor. Raises ValueError for other text."""
    try:
        last = json.loads(cursor)
    except ValueError:
        last = None
    match last:
        case [str() as partition, str() as sort]:
            return Key(partition, sort)
        case _:
            raise ValueError("this is not a cursor of a DynamoDB table")
