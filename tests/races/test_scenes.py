"""Races whose outcome has to equal some sequential order, and leave a sound volume."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.engines.volumes import BACKENDS, VolumeMaker
from tests.races.arena import Arena, Scene, everywhere
from tests.races.scenes import DIRECTORY_SCENES, FILE_SCENES

pytestmark = everywhere

SceneMaker = Callable[[random.Random], Scene]


@pytest.mark.parametrize("scene", FILE_SCENES, ids=lambda scene: scene.__name__)
async def test_outcomes_equal_some_order(arena: Arena, rounds: int, scene: SceneMaker) -> None:
    await arena.play_scenes(rounds, scene)


@pytest.mark.parametrize("scene", DIRECTORY_SCENES, ids=lambda scene: scene.__name__)
async def test_outcomes_with_whole_directories_equal_some_order(
    arena: Arena, new_volume: VolumeMaker, rounds: int, scene: SceneMaker
) -> None:
    # A round on an engine is a few hundred requests; most rounds are run where they are cheap.
    count = max(1, rounds // 4) if BACKENDS[new_volume.backend] else rounds
    await arena.play_scenes(count, scene)
