"""Volumes and clients for the tests of the clients. `volume_backends("memory", "embedded")` picks
the stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.model import LayoutName
from s3k_async.namespace import multi_path_commit
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING
from tests.client.versioned import Place, a_place
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
async def place(layout: LayoutName) -> AsyncIterator[Place]:
    """A volume in memory with a clock of its own."""
    async with a_place(layout) as found:
        yield found


@pytest.fixture
def sync_fs(config: VolumeConfig) -> Iterator[S3kSyncClient]:
    """A blocking client."""
    with S3kSyncClient(config=config) as client:
        yield client


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How a transaction is carried out: its size decides that, and here the test."""
    if request.param == "by a record":
        monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)


@pytest.fixture
def by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction fits into one of the table."""
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
