"""One volume for all tests of the Hadoop-shaped surface, on each combination of stores; empty at
each test's start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest
import pytest_asyncio

from s3k_async.adapters.hadoop import HadoopFileSystem
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.volumes import init_volume, open_volume
from tests.engines.volumes import BACKENDS, Rooms, VolumeMaker, backend_params
from tests.hadoop.ground import Ground


@pytest.fixture(
    scope="session",
    params=backend_params("embedded", "dynoxide+seaweedfs", "dynamodb_local+seaweedfs"),
)
def hadoop_volume(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VolumeConfig]:
    engines = tuple(request.getfixturevalue(name) for name in BACKENDS[request.param])
    with ExitStack() as stack:
        rooms = Rooms(request.param, engines, tmp_path_factory.mktemp("hadoop"))
        stack.callback(rooms.close)
        yield VolumeMaker(request.param, rooms)(suffix_count=10)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_ground(hadoop_volume: VolumeConfig) -> AsyncIterator[Ground]:
    await init_volume(hadoop_volume)
    volume = await open_volume(hadoop_volume)
    async with S3kClient(config=hadoop_volume) as client:
        yield Ground(HadoopFileSystem(client, user="tester"), client, volume)
    await volume.close()


@pytest_asyncio.fixture(loop_scope="session")
async def ground(shared_ground: Ground) -> AsyncIterator[Ground]:
    yield shared_ground
    shared_ground.fs.set_working_directory("/")
    await shared_ground.clear()
