"""aiodynamo: an asyncio client in plain Python, without botocore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import anyio
from aiodynamo.client import Client
from aiodynamo.credentials import Key as AccessKey
from aiodynamo.credentials import StaticCredentials
from aiodynamo.errors import ItemNotFound
from aiodynamo.expressions import F, HashKey
from aiodynamo.http.aiohttp import AIOHTTP
from boto3.dynamodb.types import TypeDeserializer
from yarl import URL

from benchmarks.contenders.keys import bounded, item_of, key_of, partitions
from benchmarks.servers import CONNECTIONS, TABLE
from tests.engines.process import Engine

__all__ = ["Aiodynamo", "aiodynamo_client"]


@asynccontextmanager
async def aiodynamo_client(server: Engine) -> AsyncIterator[Client]:
    """A client over aiohttp."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session:
        credentials = StaticCredentials(AccessKey(server.access_key, server.secret_key))
        yield Client(AIOHTTP(session), credentials, server.region, URL(server.endpoint), int)


class Aiodynamo:
    """The rows' work over its client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def single(self, operation: str, count: int, in_flight: int) -> int:
        """`count` requests of one kind."""
        client = self.client
        read = TypeDeserializer().deserialize
        item = {name: read(value) for name, value in item_of(0).items()}
        item = {
            name: int(value) if name in {"ctime", "ver", "mtime", "size"} else value
            for name, value in item.items()
        }
        absent = F("path").does_not_exist()
        unchanged = (
            F("id").equals(item["id"]) & F("ver").equals(item["ver"]) & F("next").does_not_exist()
        )

        def key(number: int) -> dict[str, str]:
            return {name: value["S"] for name, value in key_of(number).items()}

        async def get(number: int) -> None:
            try:
                await client.get_item(TABLE, key(number), consistent_read=True)
            except ItemNotFound as error:
                raise AssertionError(key(number)) from error

        async def put(number: int) -> None:
            await client.put_item(TABLE, {**item, **key(number)}, condition=absent)

        async def delete(number: int) -> None:
            await client.delete_item(TABLE, key(number), condition=unchanged)

        await bounded(
            {"get": get, "put": put, "delete": delete}[operation], range(count), in_flight
        )
        return count

    async def list(self, path: str, suffixes: int) -> int:
        """All suffixes in parallel."""
        found = 0

        async def suffix(partition: str) -> None:
            nonlocal found
            async for _ in self.client.query(
                TABLE, HashKey("path", partition), consistent_read=True
            ):
                found += 1

        async with anyio.create_task_group() as tasks:
            for partition in partitions(path, suffixes):
                tasks.start_soon(suffix, partition)
        return found
