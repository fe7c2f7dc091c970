"""Every adapter of the two ports, fresh for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from s3k_async.config import DynamoTable, S3Bucket
from s3k_async.errors import VolumeNotFoundError
from tests.contracts.subjects import (
    BLOB_STORES,
    DYNAMO,
    ITEM_STORES,
    S3,
    Blobs,
    Items,
    OpenBlobs,
    OpenItems,
    params,
)
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name


@pytest.fixture(params=params(ITEM_STORES))
def item_store(request: pytest.FixtureRequest) -> str:
    """The name of the item store under test."""
    name: str = request.param
    return name


@pytest.fixture(params=params(BLOB_STORES))
def blob_store(request: pytest.FixtureRequest) -> str:
    """The name of the blob store under test."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def session() -> object:
    """One session for all: the service models are parsed once."""
    import aioboto3

    return aioboto3.Session()


@pytest.fixture
async def open_items(
    item_store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[OpenItems]:
    """Opens the test's table, which does not exist yet; a second call gives another handle of the
    same one."""
    name = fresh_name("contract")
    engine: Engine | None = (
        request.getfixturevalue(DYNAMO[item_store]) if item_store in DYNAMO else None
    )

    def make() -> Items:
        if engine is not None:
            from s3k_async.stores.dynamodb_wire import WireItems
            from s3k_async.testing import DynamoItems

            adapter = DynamoItems if item_store == "reference" else WireItems
            return adapter(DynamoTable(name, engine.aws()), request.getfixturevalue("session"))
        if item_store == "sqlite":
            from s3k_async.stores.sqlite import SqliteItems

            return SqliteItems(str(tmp_path / "table.db"))
        from s3k_async.stores.memory_items import MemoryItems

        return MemoryItems(name)

    async with AsyncExitStack() as stack:
        opened: list[Items] = []

        async def open_one() -> Items:
            store = make()
            stack.push_async_callback(store.close)
            if not opened:
                stack.push_async_callback(store.drop)
            opened.append(store)
            return store

        yield open_one


@pytest.fixture
async def items(open_items: OpenItems) -> Items:
    """An empty table."""
    store = await open_items()
    assert await store.create()
    return store


@pytest.fixture
async def open_blobs(
    blob_store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[OpenBlobs]:
    """Opens a place for blobs by its name; the same name gives another handle of the same place."""
    run = fresh_name("contract")
    engine: Engine | None = request.getfixturevalue(S3[blob_store]) if blob_store in S3 else None

    def make(place: str, prefix: str) -> Blobs:
        if engine is not None:
            from s3k_async.stores.s3 import S3Blobs
            from s3k_async.stores.s3_wire import WireBlobs

            adapter = S3Blobs if blob_store == "reference_s3" else WireBlobs
            return adapter(
                S3Bucket(f"{run}-{place}", prefix, engine.aws()), request.getfixturevalue("session")
            )
        if blob_store == "local":
            from s3k_async.stores.local import LocalBlobs

            return LocalBlobs(str(tmp_path / place / prefix))
        from s3k_async.stores.memory_blobs import MemoryBlobs

        return MemoryBlobs(f"{run}-{place}/{prefix}")

    async with AsyncExitStack() as stack:
        cleaned = set()

        async def open_one(place: str = "main", prefix: str = "") -> Blobs:
            store = make(place, prefix)
            stack.push_async_callback(store.close)
            if (place, prefix) not in cleaned:
                cleaned.add((place, prefix))
                stack.push_async_callback(_drop, store)
            return store

        yield open_one


async def _drop(store: Blobs) -> None:
    with suppress(VolumeNotFoundError):
        await store.drop()


@pytest.fixture
async def blobs(open_blobs: OpenBlobs) -> Blobs:
    """An empty place for blobs."""
    store = await open_blobs()
    assert await store.create()
    return store
