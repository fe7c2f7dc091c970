"""The item port over a DynamoDB table, through aioboto3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from s3k_async.aws.errors import Codes, map_exceptions
from s3k_async.aws.session import AwsClient
from s3k_async.config import DynamoTable
from s3k_async.errors import (
    NotAVolumeError,
    RequestTimeoutError,
    S3kError,
    UnsupportedError,
    VolumeNotFoundError,
)
from s3k_async.sources import SYSTEM, Sources
from s3k_async.stores.actions import (
    validate,
    validate_load,
    validate_page,
    validate_segment,
    validate_transaction,
)
from s3k_async.stores.batches import read_batches, require_loaded
from s3k_async.stores.dynamodb_codec import (
    Wire,
    decode_item,
    decode_key,
    encode_item,
    encode_key,
    encode_request,
    encode_transaction_action,
    encode_value,
    parse_cursor,
    write_cursor,
)
from s3k_async.stores.items import (
    PARTITION,
    SORT,
    Action,
    Delete,
    Item,
    ItemPage,
    Key,
    Put,
    Update,
)
from s3k_async.stores.pagination import PageGuard, repeated

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb import DynamoDBClient

__all__ = ["DynamoItems", "check_advance"]

_SCHEMA = {PARTITION: "HASH", SORT: "RANGE"}
_SETTLE_TRIES = 120
_SETTLE_PAUSE = 0.05
_SETTLE_PAUSE_MOST = 2.0
_NO_TAGS: Codes = dict.fromkeys(
    ("UnknownOperationException", "UnknownOperation", "NotImplemented", "InvalidAction"),
    (UnsupportedError, "the engine has no table tags"),
)
_IN_USE = "ResourceInUseException"


class DynamoItems:
    """An ItemStore and ItemTable over one DynamoDB table. `session`: an aioboto3 or aiobotocore
    session of the user's.

    Pickled, it is its settings without secrets.
    """

    def __init__(
        self, table: DynamoTable, session: object | None = None, *, sources: Sources = SYSTEM
    ) -> None:
        self._table = table
        self._name = table.name
        self.aws = AwsClient("dynamodb", table.aws, session)
        self._sources = sources
        self._arn: str | None = None

    def __repr__(self) -> str:
        return f"DynamoItems({self._name!r}, {self.aws!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return DynamoItems, (self._table,)

    async def _client(self) -> DynamoDBClient:
        client: DynamoDBClient = await self.aws.get()
        return client

    def _path(self, key: Key) -> str:
        return f"{self._name}: {key.partition}/{key.sort}"

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
        """Ask for up to 100 keys, add what came to `found`, and return the keys that the service
        left out."""
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
        self, partition: str, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        validate_page(limit)
        request: Wire = {
            "KeyConditionExpression": "#p = :p",
            "ExpressionAttributeNames": {"#p": PARTITION},
            "ExpressionAttributeValues": {":p": encode_value(partition)},
        }
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

    async def close(self) -> None:
        await self.aws.close()

    async def create(self) -> bool:
        made = False
        for pause in self._pauses():
            table = await self._describe()
            if table is None:
                made = await self._create_once()
            elif table["TableStatus"] not in ("CREATING", "DELETING"):
                self._check_schema(table)
                return made
            else:
                await self._sources.sleep(pause)
        raise RequestTimeoutError("the table did not become usable in time", path=self._name)

    async def _create_once(self) -> bool:
        client = await self._client()
        try:
            with map_exceptions(
                self._name, writing=True, codes={_IN_USE: (_TableInUseError, "the table is in use")}
            ):
                await client.create_table(
                    TableName=self._name,
                    BillingMode="PAY_PER_REQUEST",
                    KeySchema=[
                        {"AttributeName": PARTITION, "KeyType": "HASH"},
                        {"AttributeName": SORT, "KeyType": "RANGE"},
                    ],
                    AttributeDefinitions=[
                        {"AttributeName": PARTITION, "AttributeType": "S"},
                        {"AttributeName": SORT, "AttributeType": "S"},
                    ],
                )
        except _TableInUseError:
            return False
        return True

    async def exists(self) -> bool:
        table = await self._describe()
        if table is None or table["TableStatus"] == "DELETING":
            return False
        self._check_schema(table)
        return True

    async def drop(self) -> None:
        self._arn = None
        for pause in self._pauses():
            table = await self._describe()
            if table is None:
                return
            if (
                table["TableStatus"] in ("CREATING", "DELETING", "UPDATING")
                or not await self._delete_once()
            ):
                await self._sources.sleep(pause)
        raise RequestTimeoutError("the table did not go away in time", path=self._name)

    async def _delete_once(self) -> bool:
        client = await self._client()
        try:
            with map_exceptions(
                self._name, writing=True, codes={_IN_USE: (_TableInUseError, "the table is in use")}
            ):
                await client.delete_table(TableName=self._name)
        except _TableInUseError:
            return False
        except VolumeNotFoundError:
            pass
        return True

    async def read_tag(self, name: str) -> str | None:
        client = await self._client()
        request: Wire = {"ResourceArn": await self._resource()}
        pages = PageGuard(self._name)
        with map_exceptions(self._name, codes=_NO_TAGS):
            while True:
                answer = await client.list_tags_of_resource(**request)
                for tag in answer.get("Tags", []):
                    if tag["Key"] == name:
                        return tag["Value"]
                if not answer.get("NextToken"):
                    return None
                request["NextToken"] = answer["NextToken"]
                pages.follow(answer["NextToken"])

    async def write_tag(self, name: str, value: str) -> None:
        client = await self._client()
        arn = await self._resource()
        with map_exceptions(self._name, writing=True, codes=_NO_TAGS):
            await client.tag_resource(ResourceArn=arn, Tags=[{"Key": name, "Value": value}])

    async def _resource(self) -> str:
        if self._arn is None:
            table = await self._describe()
            if table is None:
                raise VolumeNotFoundError("no such table", path=self._name)
            with map_exceptions(self._name):
                self._arn = str(table["TableArn"])
        return self._arn

    async def _describe(self) -> Wire | None:
        """The service's description of the table; None when there is none."""
        client = await self._client()
        try:
            with map_exceptions(self._name):
                table = dict((await client.describe_table(TableName=self._name))["Table"])
                if not isinstance(table["TableStatus"], str):
                    raise TypeError
                return table
        except VolumeNotFoundError:
            return None

    def _check_schema(self, table: Wire) -> None:
        with map_exceptions(self._name):
            keys = {key["AttributeName"]: key["KeyType"] for key in table["KeySchema"]}
            types = {
                kind["AttributeName"]: kind["AttributeType"]
                for kind in table["AttributeDefinitions"]
            }
        if keys != _SCHEMA or any(types.get(name) != "S" for name in _SCHEMA):
            raise NotAVolumeError(
                f"the table's keys are not the texts `{PARTITION}` (partition) and `{SORT}` (sort)",
                path=self._name,
            )

    def _pauses(self) -> list[float]:
        """The waits of a table that is being made or removed: about four minutes in all."""
        return [
            min(_SETTLE_PAUSE * 2**attempt, _SETTLE_PAUSE_MOST) for attempt in range(_SETTLE_TRIES)
        ]


class _TableInUseError(S3kError):
    """The table is being made, changed or removed by somebody."""


def check_advance(cursor: str | None, following: str | None, table: str, *, ordered: bool) -> None:
    """Raise ServiceError for a page that leads nowhere new. `ordered`: pages come in the order of
    their sort keys."""
    if cursor is None or following is None:
        return
    if cursor == following or (ordered and _sort_bytes(following) <= _sort_bytes(cursor)):
        raise repeated(table)


def _sort_bytes(cursor: str) -> bytes:
    return parse_cursor(cursor).sort.encode()


def _page(answer: Any) -> ItemPage:
    items = [decode_item(wire) for wire in answer.get("Items", [])]
    return ItemPage(items, write_cursor(answer.get("LastEvaluatedKey")))
