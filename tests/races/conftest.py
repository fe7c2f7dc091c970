"""A volume for each race."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aioboto3
import pytest

from tests.engines.volumes import VolumeMaker
from tests.races.arena import Arena, arena_on, seed_of_run


@pytest.fixture(scope="session")
def aws_session() -> aioboto3.Session:
    """One session for all clients: each of its own would read the service models again."""
    return aioboto3.Session()


@pytest.fixture
async def arena(new_volume: VolumeMaker, aws_session: aioboto3.Session) -> AsyncIterator[Arena]:
    """A fresh volume, two clients of it."""
    async with arena_on(new_volume(), seed_of_run(), aws_session) as made:
        yield made
