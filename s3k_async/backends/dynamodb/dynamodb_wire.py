"""The item port over a DynamoDB table, with requests that the native core encodes and signs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from s3k_async import _native
from s3k_async._core.capacity_limit import current_capacity_limit
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import Codes, dynamodb_refusal
from s3k_async.backends.aws.service_answers import check_dynamodb
from s3k_async.backends.aws.signed_http import Answer, Wire
from s3k_async.backends.dynamodb.dynamodb_codec import (
    cursor_text,
    decode_item,
    decode_key,
    parse_cursor,
)
from s3k_async.backends.dynamodb.dynamodb_items import NO_TAGS, DynamoTableAdmin, check_advance
from s3k_async.backends.dynamodb.table_options import TableOptions
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
    Delete,
    Item,
    ItemPage,
    Key,
    Put,
    Update,
)
from s3k_async.errors import ResponseLostError

__all__ = ["WireItems"]

T = TypeVar("T")
_Members: TypeAlias = dict[str, Any]
"""A JSON object."""

_WITH_CAPACITY = b'{"ReturnConsumedCapacity":"TOTAL",'
_ALL_LOADED = b'{"UnprocessedItems":{}}'
_VERBS = {Put: "PutItem", Update: "UpdateItem", Delete: "DeleteItem"}


class WireItems(DynamoTableAdmin):
    """An ItemStore and ItemTable over one DynamoDB table. `session`: the user's aioboto3 or
    aiobotocore session.

    Pickled, it is its settings without secrets.
    """

    def __init__(
        self,
        name: str,
        service: AwsConfig,
        session: object | None = None,
        *,
        runtime: Runtime = SYSTEM,
        options: TableOptions | None = None,
    ) -> None:
        super().__init__(name, service, session, runtime=runtime, options=options)
        self._wire = Wire(self.aws, runtime)

    async def get(self, key: Key) -> Item | None:
        path = self._path(key)
        body = _native.encode_get(self._name, key.partition, key.sort)
        rows = _decoded(await self._send("GetItem", body, path), path, _native.decode_item)
        return rows[0] if rows else None

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        return await read_batches(keys, self._get_batch, self._name)

    async def _get_batch(self, keys: Sequence[Key], found: dict[Key, Item]) -> list[Key]:
        """Request up to 100 keys, add the received items to `found`, and return the unprocessed
        keys."""
        body = _native.encode_batch_get(self._name, keys)
        answer = await self._send("BatchGetItem", body, self._name)
        rows, left = _decoded(
            answer, self._name, lambda body, crc: _native.decode_batch(body, self._name, crc)
        )
        for item in rows:
            found[Key(str(item[PARTITION]), str(item[SORT]))] = item
        return [Key(*key) for key in left]

    async def write(self, action: Put | Update | Delete) -> None:
        validate(action)
        await self._change(
            _VERBS[type(action)], _native.encode_write(self._name, action), action.key
        )

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        validate_transaction(actions, token)
        body = _native.encode_transaction(self._name, actions, token)
        await self._change("TransactWriteItems", body, actions[0].key)

    async def load(self, items: Sequence[Item]) -> None:
        keys = validate_load(items)
        body = _native.encode_load(self._name, items)
        answer = await self._send("BatchWriteItem", body, self._name, writing=True)
        _check(answer, self._name)
        if answer.body != _ALL_LOADED:
            require_loaded(items, keys, _left_out(answer.body, self._name), self._name)

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        validate_page(limit)
        # DynamoDB takes any key of the partition for the last one of a former page.
        start = Key(partition, after) if after and cursor is None else _start(cursor)
        body = _native.encode_query(self._name, partition, start, limit)
        return await self._page("Query", body, f"{self._name}: {partition}", cursor)

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        validate_segment(segment, segments)
        validate_page(limit)
        body = _native.encode_scan(self._name, segment, segments, _start(cursor), limit)
        return await self._page("Scan", body, self._name, cursor)

    async def _page(self, target: str, body: bytes, path: str, cursor: str | None) -> ItemPage:
        page = _decoded(await self._send(target, body, path), path, _native.decode_page)
        following = None if page.next is None else cursor_text(page.next)
        check_advance(cursor, following, path, ordered=target == "Query")
        return ItemPage(page.rows, following)

    async def _change(self, target: str, body: bytes, key: Key) -> None:
        path = self._path(key)
        answer = await self._send(target, body, path, writing=True)
        _check(answer, path)
        if answer.body != b"{}" and not _is_object(answer.body):
            raise ResponseLostError("the answer is no JSON object", path=path)

    async def _table_answer(self) -> _Members:
        return await self._described("DescribeTable", {"TableName": self._name})

    async def _tag_page(self, request: _Members) -> _Members:
        return await self._described("ListTagsOfResource", request, NO_TAGS)

    async def _described(
        self, target: str, request: _Members, codes: Codes | None = None
    ) -> _Members:
        body = json.dumps(request).encode()
        answer = await self._ask(target, body, self._name, codes=codes)
        _check(answer, self._name)
        with map_exceptions(self._name):
            return dict(json.loads(answer.body))

    async def _send(self, target: str, body: bytes, path: str, *, writing: bool = False) -> Answer:
        """The answer to a request for items, within the capacity limit. Raises the error of a
        rejected request."""
        limit = current_capacity_limit()
        if limit is None:
            return await self._ask(target, body, path, writing=writing)
        answer = await self._ask(target, _WITH_CAPACITY + body[1:], path, writing=writing)
        limit.deduct(target, _consumed(answer.body))
        return answer

    async def _ask(
        self,
        target: str,
        body: bytes,
        path: str,
        *,
        writing: bool = False,
        codes: Codes | None = None,
    ) -> Answer:
        """The answer to a request. Raises the error of a refusal; `codes` as for
        `map_exceptions`."""
        with map_exceptions(path, writing=writing):
            answer = await self._wire.dynamodb(target, body)
            check_dynamodb(answer.status, answer.headers, answer.body, answer.host)
            if answer.status != 200:
                _check(answer, path)
                raise dynamodb_refusal(
                    answer.body,
                    answer.status,
                    path=path,
                    codes=codes,
                    decode=decode_item,
                    host=answer.host,
                    operation=target,
                )
        return answer


def _consumed(body: bytes) -> float:
    """The consumed capacity units in an answer, of all tables; 0 if it has none."""
    try:
        found = json.loads(body).get("ConsumedCapacity", ())
        tables = [found] if isinstance(found, dict) else found
        return sum(float(each["CapacityUnits"]) for each in tables)
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError):
        return 0.0  # a damaged answer is an error where it is decoded


def _start(cursor: str | None) -> Key | None:
    return None if cursor is None else parse_cursor(cursor)


def _announced(answer: Answer, path: str) -> int | None:
    """The body's CRC-32, if the service sends it."""
    text = answer.headers.get("x-amz-crc32")
    if text is None:
        return None
    if not (text.isdecimal() and int(text) < 2**32):
        raise ResponseLostError(f"the answer's checksum is no CRC-32: {text}", path=path)
    return int(text)


def _decoded(answer: Answer, path: str, decode: Callable[[bytes, int | None], T]) -> T:
    try:
        return decode(answer.body, _announced(answer, path))
    except ResponseLostError as error:
        raise ResponseLostError(error.message, path=path) from error


def _check(answer: Answer, path: str) -> None:
    """Raise ResponseLostError unless the body has the announced checksum."""
    announced = _announced(answer, path)
    if announced is not None and announced != _native.crc32(answer.body):
        raise ResponseLostError("the answer was damaged on the way", path=path)


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


def _left_out(body: bytes, table: str) -> list[Key]:
    """The unprocessed keys of an answer to BatchWriteItem."""
    try:
        puts = json.loads(body).get("UnprocessedItems", {}).get(table, [])
        return [decode_key(put["PutRequest"]["Item"]) for put in puts]
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise ResponseLostError(
            "the answer to a BatchWriteItem cannot be understood", path=table
        ) from error
