"""Races whose outcome has to equal some sequential order, and leave a sound volume."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.races.arena import Arena, Scene, everywhere
from tests.races.scenes import SCENES

pytestmark = everywhere


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_outcomes_equal_some_order(arena: Arena, rounds: int, scene: Callable[[random.Random], Scene]) -> None:
    await arena.play_scenes(rounds, scene)
