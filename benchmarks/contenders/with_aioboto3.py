"""aioboto3's table resource, which gives Python values and not the service's types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aioboto3
import anyio
from aiobotocore.config import AioConfig
from boto3.dynamodb.conditions import Attr, Key
from boto3.dynamodb.types import TypeDeserializer

from benchmarks.contenders.keys import bounded, item_of, key_of, partitions
from benchmarks.servers import CONNECTIONS, TABLE
from tests.engines.process import Engine

__all__ = ["Aioboto3", "table_of"]


@asynccontextmanager
async def table_of(server: Engine) -> AsyncIterator[Any]:
    """The table resource."""
    session = aioboto3.Session(server.access_key, server.secret_key, region_name=server.region)
    config = AioConfig(
        max_pool_connections=CONNECTIONS, retries={"total_max_attempts": 1, "mode": "legacy"}
    )
    async with session.resource(
        "dynamodb", endpoint_url=server.endpoint, config=config
    ) as resource:
        yield await resource.Table(TABLE)


def _plain(wire: dict[str, Any]) -> dict[str, Any]:
    read = TypeDeserializer().deserialize
    return {name: read(value) for name, value in wire.items()}


class Aioboto3:
    """The rows' work over the table resource."""

    def __init__(self, table: Any) -> None:
        self.table = table

    async def single(self, operation: str, count: int, in_flight: int) -> int:
        """`count` requests of one kind."""
        table = self.table
        item = _plain(item_of(0))
        unchanged = (
            Attr("id").eq(item["id"]) & Attr("ver").eq(item["ver"]) & Attr("next").not_exists()
        )

        async def get(number: int) -> None:
            await table.get_item(Key=_plain(key_of(number)), ConsistentRead=True)

        async def put(number: int) -> None:
            await table.put_item(
                Item={**item, **_plain(key_of(number))},
                ConditionExpression=Attr("path").not_exists(),
            )

        async def delete(number: int) -> None:
            await table.delete_item(Key=_plain(key_of(number)), ConditionExpression=unchanged)

        await bounded(
            {"get": get, "put": put, "delete": delete}[operation], range(count), in_flight
        )
        return count

    async def list(self, path: str, suffixes: int) -> int:
        """All suffixes in parallel."""
        found = 0

        async def suffix(partition: str) -> None:
            nonlocal found
            request: dict[str, Any] = {
                "ConsistentRead": True,
                "KeyConditionExpression": Key("path").eq(partition),
            }
            while True:
                answer = await self.table.query(**request)
                found += len(answer["Items"])
                if "LastEvaluatedKey" not in answer:
                    return
                request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

        async with anyio.create_task_group() as tasks:
            for partition in partitions(path, suffixes):
                tasks.start_soon(suffix, partition)
        return found
