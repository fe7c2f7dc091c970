"""The item port over a DynamoDB table through aioboto3 alone: the reference for tests of the
product's adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.dynamodb.dynamodb_codec import (
    cursor_text,
    decode_item,
    decode_key,
    parse_cursor,
)
from s3k_async.backends.dynamodb.dynamodb_items import DynamoTableAdmin, check_advance
from s3k_async.backends.ports.batch_result import read_batches, require_loaded
from s3k_async.backends.ports.item_semantics import (
    validate,
    validate_load,
    validate_page,
    validate_segment,
    validate_transaction,
)
from s3k_async.backends.ports.items import (
    PARTITION,
    SORT,
    Action,
    Check,
    Condition,
    Delete,
    Item,
    ItemPage,
    Key,
    Put,
    Update,
    Value,
)

__all__ = [
    "DynamoItems",
    "Expressions",
    "encode_item",
    "encode_key",
    "encode_request",
    "encode_transaction_action",
    "encode_value",
    "write_cursor",
]

Wire: TypeAlias = dict[str, Any]
"""A structure of botocore."""


class DynamoItems(DynamoTableAdmin):
    """An ItemStore and ItemTable over one DynamoDB table, by botocore's serializer and parser.
    `session`: the user's aioboto3 or aiobotocore session.

    Pickled, it is its settings without secrets.
    """

    async def get(self, key: Key) -> Item | None:
        client = await self._client()
        with map_exceptions(self._path(key)):
            answer = await client.get_item(
                TableName=self._name, Key=encode_key(key), ConsistentRead=True
            )
            found = answer.get("Item")
            return decode_item(found) if found else None

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        return await read_batches(keys, self._get_batch, self._name)

    async def _get_batch(self, keys: Sequence[Key], found: dict[Key, Item]) -> list[Key]:
        """Request up to 100 keys, add the received items to `found`, and return the unprocessed
        keys."""
        client = await self._client()
        asked: Any = {
            self._name: {"Keys": [encode_key(key) for key in keys], "ConsistentRead": True}
        }
        with map_exceptions(self._name):
            answer = await client.batch_get_item(RequestItems=asked)
            for wire in answer.get("Responses", {}).get(self._name, []):
                found[decode_key(wire)] = decode_item(wire)
            unprocessed: Any = answer.get("UnprocessedKeys", {})
            return [decode_key(wire) for wire in unprocessed.get(self._name, {}).get("Keys", [])]

    async def write(self, action: Put | Update | Delete) -> None:
        validate(action)
        client = await self._client()
        request = encode_request(self._name, action)
        with map_exceptions(self._path(action.key), writing=True, decode=decode_item):
            match action:
                case Put():
                    await client.put_item(**request)
                case Update():
                    await client.update_item(**request)
                case Delete():
                    await client.delete_item(**request)

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        validate_transaction(actions, token)
        client = await self._client()
        items: Any = [encode_transaction_action(self._name, action) for action in actions]
        with map_exceptions(self._path(actions[0].key), writing=True, decode=decode_item):
            await client.transact_write_items(TransactItems=items, ClientRequestToken=token)

    async def load(self, items: Sequence[Item]) -> None:
        keys = validate_load(items)
        client = await self._client()
        puts: Any = {self._name: [{"PutRequest": {"Item": encode_item(item)}} for item in items]}
        with map_exceptions(self._name, writing=True):
            answer = await client.batch_write_item(RequestItems=puts)
            unprocessed: Any = answer.get("UnprocessedItems", {})
            left = [
                decode_key(put["PutRequest"]["Item"]) for put in unprocessed.get(self._name, [])
            ]
        require_loaded(items, keys, left, self._name)

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        validate_page(limit)
        request: Wire = {
            "KeyConditionExpression": "#p = :p",
            "ExpressionAttributeNames": {"#p": PARTITION},
            "ExpressionAttributeValues": {":p": encode_value(partition)},
        }
        if after:
            request["KeyConditionExpression"] = "#p = :p AND #s > :s"
            request["ExpressionAttributeNames"]["#s"] = SORT
            request["ExpressionAttributeValues"][":s"] = encode_value(after)
        client = await self._client()
        with map_exceptions(f"{self._name}: {partition}"):
            page = _page(await client.query(**self._page_of(request, cursor, limit)))
        check_advance(cursor, page.next, self._name, ordered=True)
        return page

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        validate_segment(segment, segments)
        validate_page(limit)
        request: Wire = {"Segment": segment, "TotalSegments": segments}
        client = await self._client()
        with map_exceptions(self._name):
            page = _page(await client.scan(**self._page_of(request, cursor, limit)))
        check_advance(cursor, page.next, self._name, ordered=False)
        return page

    def _page_of(self, request: Wire, cursor: str | None, limit: int | None) -> Wire:
        page: Wire = {"TableName": self._name, "ConsistentRead": True, **request}
        if cursor is not None:
            page["ExclusiveStartKey"] = encode_key(parse_cursor(cursor))
        if limit is not None:
            page["Limit"] = limit
        return page


def _page(answer: Any) -> ItemPage:
    items = [decode_item(wire) for wire in answer.get("Items", [])]
    return ItemPage(items, write_cursor(answer.get("LastEvaluatedKey")))


def encode_value(value: Value) -> Wire:
    """A text, whole number or boolean as an AttributeValue."""
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


class Expressions:
    """The names and values in the expressions of one request; every name is a placeholder, because
    many plain ones are reserved words."""

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
        """A condition expression equivalent to `when.holds(stored)`."""
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
        """The request fields with names and values."""
        fields: Wire = {}
        if self._names:
            fields["ExpressionAttributeNames"] = {
                placeholder: name for name, placeholder in self._names.items()
            }
        if self._values:
            fields["ExpressionAttributeValues"] = dict(self._values)
        return fields


def encode_request(table: str, action: Action) -> Wire:
    """The request fields of one action; a failed condition returns the stored item."""
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
