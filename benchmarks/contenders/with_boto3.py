"""boto3's low-level client, with threads for what is in flight."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore.config import Config

from benchmarks.contenders.keys import condition_fields, item_of, key_of, partitions
from benchmarks.servers import CONNECTIONS, TABLE
from tests.engines.process import Engine

__all__ = ["Boto3"]


class Boto3:
    """The rows' work over a client and a pool of threads."""

    def __init__(self, server: Engine) -> None:
        self.client: Any = boto3.client(
            "dynamodb",
            region_name=server.region,
            endpoint_url=server.endpoint,
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            config=Config(
                max_pool_connections=CONNECTIONS,
                retries={"total_max_attempts": 1, "mode": "legacy"},
            ),
        )

    async def single(self, operation: str, count: int, in_flight: int) -> int:
        """`count` requests of one kind."""
        client = self.client
        numbers = itertools.count()

        def get(number: int) -> None:
            client.get_item(TableName=TABLE, Key=key_of(number), ConsistentRead=True)

        def put(number: int) -> None:
            client.put_item(
                TableName=TABLE,
                Item=item_of(number),
                ConditionExpression="attribute_not_exists(#n0)",
                ExpressionAttributeNames={"#n0": "path"},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )

        def delete(number: int) -> None:
            client.delete_item(TableName=TABLE, Key=key_of(number), **condition_fields())

        work: Callable[[int], None] = {"get": get, "put": put, "delete": delete}[operation]

        def worker(_: int) -> None:
            while (number := next(numbers)) < count:
                work(number)

        await _threads(worker, range(in_flight), in_flight)
        return count

    async def list(self, path: str, suffixes: int) -> int:
        """All suffixes in parallel."""

        def suffix(partition: str) -> int:
            pages = self.client.get_paginator("query").paginate(
                TableName=TABLE,
                ConsistentRead=True,
                KeyConditionExpression="#p = :p",
                ExpressionAttributeNames={"#p": "path"},
                ExpressionAttributeValues={":p": {"S": partition}},
            )
            return sum(len(page["Items"]) for page in pages)

        return sum(await _threads(suffix, partitions(path, suffixes), suffixes))


async def _threads(work: Callable[[Any], Any], values: Any, threads: int) -> list[Any]:
    def run() -> list[Any]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, values))

    return await asyncio.to_thread(run)
