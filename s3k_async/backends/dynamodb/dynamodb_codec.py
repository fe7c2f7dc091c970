"""Items and actions in DynamoDB's own form: typed attribute values, expressions with placeholders,
cursors.

Formats as in the Amazon DynamoDB API Reference (`AttributeValue`, `TransactWriteItem`, condition
and update expressions).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from s3k_async.stores.items import (
    PARTITION,
    SORT,
    Action,
    Check,
    Condition,
    Delete,
    Item,
    Key,
    Put,
    Update,
    Value,
)

__all__ = [
    "Expressions",
    "cursor_text",
    "decode_item",
    "decode_key",
    "encode_item",
    "encode_key",
    "encode_request",
    "encode_transaction_action",
    "parse_cursor",
    "write_cursor",
]

Wire: TypeAlias = dict[str, Any]
"""A structure as botocore takes and gives it."""

_WHOLE = re.compile(r"-?[0-9]{1,126}")
"""The largest number of DynamoDB, 9.9…E+125, has so many digits; what has more stays text."""


def encode_value(value: Value) -> Wire:
    """A text, whole number or truth value as an AttributeValue."""
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    return {"S": value}


def encode_item(item: Mapping[str, Value]) -> Wire:
    """An item, or some of its attributes, as AttributeValues by name."""
    return {name: encode_value(value) for name, value in item.items()}


def encode_key(key: Key) -> Wire:
    """A primary key as AttributeValues by name."""
    return {PARTITION: {"S": key.partition}, SORT: {"S": key.sort}}


def decode_item(wire: Mapping[str, Any]) -> Item:
    """An item from AttributeValues; what is neither text, whole number nor truth value becomes its
    JSON text."""
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


class Expressions:
    """The names and values that the expressions of one request refer to; every name is a
    placeholder, because many plain ones are reserved words."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Wire] = {}

    def name(self, attribute: str) -> str:
        return self._names.setdefault(attribute, f"#n{len(self._names)}")

    def value(self, value: Value) -> str:
        placeholder = f":v{len(self._values)}"
        self._values[placeholder] = encode_value(value)
        return placeholder

    def condition(self, when: Condition) -> str:
        """A condition expression that holds exactly when `when.holds(stored)`."""
        if not when.exists:
            return f"attribute_not_exists({self.name(PARTITION)})"
        terms = [f"attribute_exists({self.name(PARTITION)})"]
        terms += [f"{self.name(name)} = {self.value(value)}" for name, value in when.equals.items()]
        terms += [f"attribute_not_exists({self.name(name)})" for name in when.missing]
        return " AND ".join(terms)

    def update(self, action: Update) -> str:
        """An update expression."""
        changes = ", ".join(
            f"{self.name(name)} = {self.value(value)}" for name, value in action.set.items()
        )
        removals = ", ".join(self.name(name) for name in action.remove)
        return " ".join(
            clause
            for clause in (
                f"SET {changes}" if changes else "",
                f"REMOVE {removals}" if removals else "",
            )
            if clause
        )

    def fields(self) -> Wire:
        """The request fields that hold names and values."""
        fields: Wire = {}
        if self._names:
            fields["ExpressionAttributeNames"] = {
                placeholder: name for name, placeholder in self._names.items()
            }
        if self._values:
            fields["ExpressionAttributeValues"] = dict(self._values)
        return fields


def encode_request(table: str, action: Action) -> Wire:
    """The request fields of one action; the stored item comes back if the condition fails."""
    expressions = Expressions()
    request: Wire = {"TableName": table, "ConditionExpression": expressions.condition(action.when)}
    match action:
        case Put():
            request["Item"] = encode_item(action.item)
        case Update():
            request["Key"] = encode_key(action.key)
            request["UpdateExpression"] = expressions.update(action)
        case Delete() | Check():
            request["Key"] = encode_key(action.key)
    return {**request, **expressions.fields(), "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


def encode_transaction_action(table: str, action: Action) -> Wire:
    """One action as a TransactWriteItem."""
    verb = {Put: "Put", Update: "Update", Delete: "Delete", Check: "ConditionCheck"}[type(action)]
    return {verb: encode_request(table, action)}


def write_cursor(last: Mapping[str, Any] | None) -> str | None:
    """The text of a LastEvaluatedKey: a JSON list of partition and sort key; None at the end."""
    return None if not last else cursor_text(decode_key(last))


def cursor_text(last: tuple[str, str]) -> str:
    """The text of a LastEvaluatedKey, given as partition and sort key."""
    return json.dumps(last, ensure_ascii=False)


def parse_cursor(cursor: str) -> Key:
    """The ExclusiveStartKey of a cursor. Raises ValueError for text that is none."""
    try:
        last = json.loads(cursor)
    except ValueError:
        last = None
    match last:
        case [str() as partition, str() as sort]:
            return Key(partition, sort)
        case _:
            raise ValueError("this is not a cursor of a DynamoDB table")
