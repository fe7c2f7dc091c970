"""Every registered backend, opened by its URL, fresh for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from s3k_async.backends.location import OpenContext
from s3k_async.backends.registry import BLOBS, TABLES
from s3k_async.config import AwsConfig, DynamoTable, S3Bucket
from s3k_async.errors import VolumeNotFoundError
from s3k_async.storage.tiered_blobs import TieredBlobs
from tests.contracts.shared_tables import PartOfTable
from tests.contracts.subjects import (
    BLOB_STORES,
    BLOB_SUBJECTS,
    ITEM_STORES,
    ITEM_SUBJECTS,
    Blobs,
    Items,
    OpenBlobs,
    OpenItems,
    Subject,
    params,
)
from tests.contracts.tiers import MovedBlobs
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
    subject = ITEM_SUBJECTS[item_store]
    service = _service(subject, request)
    url = subject.url.format(
        name=fresh_name("contract"), directory=tmp_path, server=_server(service)
    )
    location = TABLES.location(url, service)
    assert location.scheme == subject.scheme

    def make() -> Items:
        if item_store == "reference":
            from s3k_async.testing import DynamoItems

            assert isinstance(location, DynamoTable)
            return DynamoItems(location.name, location.aws, request.getfixturevalue("session"))
        store = location.open(_opening(subject, request))
        if item_store == "prefixed":
            return PartOfTable(store, "team-a")
        return store

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
    subject = BLOB_SUBJECTS[blob_store]
    run, service = fresh_name("contract"), _service(subject, request)

    def make(place: str, prefix: str) -> Blobs:
        url = subject.url.format(
            name=f"{run}-{place}", directory=tmp_path, prefix=prefix, server=_server(service)
        )
        location = BLOBS.location(url, service)
        assert location.scheme == subject.scheme
        if blob_store.startswith("tiered"):
            opening = _opening(subject, request)
            hot = BLOBS.location(f"memory://{run}-{place}-hot/{prefix}", service).open(opening)
            tiers = TieredBlobs if blob_store == "tiered" else MovedBlobs
            return tiers(hot, location.open(opening))
        if blob_store == "reference_s3":
            from s3k_async.backends.s3.s3_blobs import S3Blobs

            assert isinstance(location, S3Bucket)
            return S3Blobs(
                location.bucket, location.prefix, location.aws, request.getfixturevalue("session")
            )
        return location.open(_opening(subject, request))

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


def _service(subject: Subject, request: pytest.FixtureRequest) -> AwsConfig:
    if subject.engine is None:
        return AwsConfig()
    engine: Engine = request.getfixturevalue(subject.engine)
    return engine.aws()


def _server(service: AwsConfig) -> str:
    return (service.endpoint or "").rpartition("/")[2]


def _opening(subject: Subject, request: pytest.FixtureRequest) -> OpenContext:
    return OpenContext(None if subject.engine is None else request.getfixturevalue("session"))


async def _drop(store: Blobs) -> None:
    with suppress(VolumeNotFoundError):
        await store.drop()


@pytest.fixture
async def blobs(open_blobs: OpenBlobs) -> Blobs:
    """An empty place for blobs."""
    store = await open_blobs()
    assert await store.create()
    return store
