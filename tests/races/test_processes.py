"""Two processes race on one embedded volume."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import anyio.to_thread
import pytest

from s3k_async.errors import PathExistsError, PathNotFoundError
from tests.engines.volumes import volume_backends
from tests.races.arena import Arena, Scene
from tests.races.operations import Operation, Rename, Write
from tests.races.order import Done
from tests.races.processes import Round, race_processes
from tests.races.scenes import DIRECTORY_SCENES, FILE_SCENES
from tests.races.test_one_winner import creators, only_winner, renamers

pytestmark = volume_backends("embedded")


async def raced(arena: Arena, rounds: Sequence[Round]) -> list[list[Done]]:
    config = arena.clients[0].config
    return await anyio.to_thread.run_sync(race_processes, config, rounds)


async def test_of_64_in_two_processes_exactly_one_wins(arena: Arena, rounds: int) -> None:
    plan = []
    for number in range(2 * rounds):
        place, seed = f"/round-{number}", f"{arena.seed}-{number}"
        await arena.build(place, {"/source": seed.encode()})
        contest = creators(random.Random(seed)) if number % 2 else renamers()
        plan.append(Round(place, contest, seed))
    for each, done in zip(plan, await raced(arena, plan), strict=True):
        source = each.seed.encode()
        if isinstance(each.operations[0], Rename):
            winner: Operation = only_winner(done, PathNotFoundError)
            assert isinstance(winner, Rename)
            assert await arena.tree(each.place) == {winner.target: source}
        else:
            winner = only_winner(done, PathExistsError)
            assert isinstance(winner, Write)
            assert await arena.tree(each.place) == {"/source": source, winner.path: winner.data}
    await arena.check_sound()


@pytest.mark.parametrize("scenes", [FILE_SCENES, DIRECTORY_SCENES], ids=["files", "directories"])
async def test_outcomes_in_two_processes_equal_some_order(
    arena: Arena, rounds: int, scenes: Sequence[Callable[[random.Random], Scene]]
) -> None:
    plan, acts = [], []
    for number in range(rounds):
        place, seed = f"/round-{number}", f"{arena.seed}-{number}"
        act = scenes[number % len(scenes)](random.Random(seed))
        await arena.clients[0].makedirs(place)
        await arena.build(place, act.start)
        acts.append(act)
        plan.append(Round(place, act.operations, seed))
    for each, act, done in zip(plan, acts, await raced(arena, plan), strict=True):
        await arena.check_explained(each.place, act, done)
    await arena.check_sound()
