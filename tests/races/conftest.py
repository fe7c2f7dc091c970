"""A volume for each race."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.engines.volumes import VolumeMaker
from tests.races.arena import Arena, arena_on, seed_of_run


@pytest.fixture
async def arena(new_volume: VolumeMaker) -> AsyncIterator[Arena]:
    """A fresh volume, two clients of it."""
    async with arena_on(new_volume(), seed_of_run()) as made:
        yield made
