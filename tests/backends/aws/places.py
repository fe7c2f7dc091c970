"""Adapters for the tests of this folder: settings that name made-up credentials and a loopback
endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias

from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.config import AwsConfig, Secret
from s3k_async.testing import DynamoItems
from tests.engines.process import PATIENCE

__all__ = [
    "SECRET_KEY",
    "SESSION_TOKEN",
    "Adapter",
    "Items",
    "OpenBlobs",
    "OpenItems",
    "open_blobs",
    "open_items",
    "settings",
]

Items: TypeAlias = DynamoItems | WireItems
Adapter: TypeAlias = type[DynamoItems] | type[WireItems]


class OpenItems(Protocol):
    """Opens a table's adapter for the length of a block."""

    def __call__(
        self, aws: AwsConfig, name: str = "meta"
    ) -> AbstractAsyncContextManager[Items]: ...


class OpenBlobs(Protocol):
    """Opens a bucket's adapter for the length of a block."""

    def __call__(
        self, aws: AwsConfig, bucket: str = "data", prefix: str = ""
    ) -> AbstractAsyncContextManager[S3Blobs]: ...


SECRET_KEY = "wJalrXUtnFEMI-made-up-secret"
SESSION_TOKEN = "FwoGZXIvYXdz-made-up-token"


def settings(endpoint: str, **more: Any) -> AwsConfig:
    """Settings for an endpoint that does not check credentials and may be slow."""
    return AwsConfig(
        endpoint=endpoint,
        access_key_id=Secret("AKIDEXAMPLE"),
        secret_access_key=Secret(SECRET_KEY),
        session_token=Secret(SESSION_TOKEN),
        **{"connect_timeout": PATIENCE, "read_timeout": PATIENCE, **more},
    )


@asynccontextmanager
async def open_items(adapter: Adapter, aws: AwsConfig, name: str = "meta") -> AsyncIterator[Items]:
    """A table's adapter, closed at the end."""
    items = adapter(name, aws)
    try:
        yield items
    finally:
        await items.close()


@asynccontextmanager
async def open_blobs(
    adapter: type[S3Blobs], aws: AwsConfig, bucket: str = "data", prefix: str = ""
) -> AsyncIterator[S3Blobs]:
    """A bucket's adapter, closed at the end."""
    blobs = adapter(bucket, prefix, aws)
    try:
        yield blobs
    finally:
        await blobs.close()
