"""aiobotocore's low-level client: what a user would write without this package, and what ratios are
taken against."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from benchmarks.contenders.keys import bounded, condition_fields, item_of, key_of, partitions
from benchmarks.contenders.small_files import SmallFiles
from benchmarks.servers import CONNECTIONS, TABLE
from s3k_async import _native
from tests.engines.process import Engine

__all__ = ["Aiobotocore", "AiobotocoreFiles", "client_of"]

IN_FLIGHT = 8
"""Transactions under way for each page, as many as the package has."""


@asynccontextmanager
async def client_of(server: Engine, service: str) -> AsyncIterator[Any]:
    """A client with the connections that every contender may have, one attempt a request."""
    config = AioConfig(
        max_pool_connections=CONNECTIONS,
        retries={"total_max_attempts": 1, "mode": "legacy"},
        s3={"addressing_style": "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    async with get_session().create_client(
        service,  # type: ignore[call-overload]  # its stubs know services by literals
        region_name=server.region,
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=config,
    ) as client:
        yield client


class Aiobotocore:
    """The rows' work over a DynamoDB client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def single(self, operation: str, count: int, in_flight: int) -> int:
        """`count` requests of one kind."""
        client = self.client

        async def get(number: int) -> None:
            await client.get_item(TableName=TABLE, Key=key_of(number), ConsistentRead=True)

        async def put(number: int) -> None:
            await client.put_item(
                TableName=TABLE,
                Item=item_of(number),
                ConditionExpression="attribute_not_exists(#n0)",
                ExpressionAttributeNames={"#n0": "path"},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )

        async def delete(number: int) -> None:
            await client.delete_item(TableName=TABLE, Key=key_of(number), **condition_fields())

        await bounded(
            {"get": get, "put": put, "delete": delete}[operation], range(count), in_flight
        )
        return count

    async def pages(self, partition: str) -> AsyncIterator[list[dict[str, Any]]]:
        """The items of one partition."""
        request: dict[str, Any] = {
            "TableName": TABLE,
            "ConsistentRead": True,
            "KeyConditionExpression": "#p = :p",
            "ExpressionAttributeNames": {"#p": "path"},
            "ExpressionAttributeValues": {":p": {"S": partition}},
        }
        while True:
            answer = await self.client.query(**request)
            yield answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def list(self, path: str, suffixes: int) -> int:
        """All suffixes in parallel; how many entries came."""
        found = 0

        async def suffix(partition: str) -> None:
            nonlocal found
            async for items in self.pages(partition):
                found += len(items)

        async with anyio.create_task_group() as tasks:
            for partition in partitions(path, suffixes):
                tasks.start_soon(suffix, partition)
        return found

    async def rename(self, path: str, target: str, suffixes: int) -> int:
        """Move every file, 50 a transaction: the old item deleted under its condition, the new one
        put if absent."""

        def moved(item: dict[str, Any]) -> list[dict[str, Any]]:
            old = {"path": item["path"], "children": item["children"]}
            suffix = _native.suffix_index(item["children"]["S"], suffixes, "xxh3")
            new = {
                **item,
                "path": {"S": partitions(target, suffixes)[suffix]},
                "ver": {"N": str(int(item["ver"]["N"]) + 1)},
                "op": {"S": str(uuid4())},
            }
            absent = {
                "ConditionExpression": "attribute_not_exists(#n0)",
                "ExpressionAttributeNames": {"#n0": "path"},
            }
            return [
                {"Delete": {"TableName": TABLE, "Key": old, **_unchanged(item)}},
                {"Put": {"TableName": TABLE, "Item": new, **absent}},
            ]

        return await self._change(path, suffixes, 50, moved)

    async def delete(self, path: str, suffixes: int) -> int:
        """Delete every file under its condition, 100 a transaction."""

        def deleted(item: dict[str, Any]) -> list[dict[str, Any]]:
            key = {"path": item["path"], "children": item["children"]}
            return [{"Delete": {"TableName": TABLE, "Key": key, **_unchanged(item)}}]

        return await self._change(path, suffixes, 100, deleted)

    async def _change(self, path: str, suffixes: int, size: int, plan: Any) -> int:
        done = 0

        async def transact(items: list[dict[str, Any]]) -> None:
            nonlocal done
            actions = [action for item in items for action in plan(item)]
            await self.client.transact_write_items(
                TransactItems=actions, ClientRequestToken=str(uuid4())
            )
            done += len(items)

        async def suffix(partition: str) -> None:
            async for items in self.pages(partition):
                await bounded(
                    transact,
                    [items[at : at + size] for at in range(0, len(items), size)],
                    IN_FLIGHT,
                )

        async with anyio.create_task_group() as tasks:
            for partition in partitions(path, suffixes):
                tasks.start_soon(suffix, partition)
        return done


def _unchanged(item: dict[str, Any]) -> dict[str, Any]:
    return {
        **condition_fields(),
        "ExpressionAttributeValues": {":v0": item["id"], ":v1": item["ver"]},
    }


class AiobotocoreFiles(SmallFiles):
    """Objects through aiobotocore's low-level client."""

    def __init__(self, client: Any, bucket: str) -> None:
        self.client = client
        self.bucket = bucket

    async def put(self, path: str, data: bytes) -> object:
        return await self.client.put_object(Bucket=self.bucket, Key=path[1:], Body=data)

    async def read(self, path: str) -> int:
        answer = await self.client.get_object(Bucket=self.bucket, Key=path[1:])
        async with answer["Body"] as body:
            return len(await body.read())

    async def stat(self, path: str) -> int:
        answer = await self.client.head_object(Bucket=self.bucket, Key=path[1:])
        return int(answer["ContentLength"])

    async def copy(self, source: str, target: str) -> object:
        place = {"Bucket": self.bucket, "Key": source[1:]}
        return await self.client.copy_object(Bucket=self.bucket, Key=target[1:], CopySource=place)

    async def delete(self, path: str) -> object:
        return await self.client.delete_object(Bucket=self.bucket, Key=path[1:])
