"""Volumes and their object API. `volume_backends("memory", "embedded")` picks the stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.model import LayoutName
from s3k_async.objects import ObjectStore, SyncObjectStore
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING
from tests.engines.volumes import VolumeMaker


@pytest.fixture
def config(new_volume: VolumeMaker, layout: LayoutName) -> VolumeConfig:
    """A volume that exists, with small pieces."""
    config = new_volume(tuning=TUNING, layout=layout)
    asyncio.run(init_volume(config))
    return config


@pytest.fixture
async def fs(config: VolumeConfig) -> AsyncIterator[S3kClient]:
    """An open client."""
    async with S3kClient(config=config) as client:
        yield client


@pytest.fixture
async def objects(fs: S3kClient) -> ObjectStore:
    """The object API of the client, with the empty bucket `b`."""
    store = ObjectStore(fs)
    await store.create_bucket("b")
    return store


@pytest.fixture
def sync_objects(config: VolumeConfig) -> Iterator[SyncObjectStore]:
    """The blocking object API, with the empty bucket `b`."""
    with S3kSyncClient(config=config) as client:
        store = SyncObjectStore(client)
        store.create_bucket("b")
        yield store
