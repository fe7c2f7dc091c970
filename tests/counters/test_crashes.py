"""Counters equal a walk after every verb, and after its death, failure, lost answer or cancellation
at any call."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import ResponseLostError, S3kError, ServiceError
from s3k_async.model import Feature, LayoutName
from s3k_async.testing import Call, Died, FaultPlan, Moment
from tests.counters.counted import check_counters
from tests.level import FULL, TORTURE
from tests.torture.crash import Paths, Scenario, World, world_of
from tests.torture.crash_scenarios import GROWN, SCENARIOS, SMALL, TREES
from tests.torture.measure import seed_of_run

EVER = 10**9
COUNTERS: tuple[Feature, ...] = ("counters",)


async def change_in_bucket(fs: S3kClient) -> None:
    async with fs.transaction() as tx:
        await tx.write("/b/d/f", b"new")
        await tx.rename("/b/d/g", "/b/e/k", overwrite=True)
        await tx.rename("/b/s", "/b/n")
        await tx.delete("/b/t", recursive=True)


def below(bucket: str, paths: Paths) -> Paths:
    """A tree in a bucket."""
    return {bucket: None, **{bucket + path: data for path, data in paths.items()}}


TREE_MOVES = frozenset(
    {"rename:tree", "rename:not atomic", "exchange:trees", "transaction:by a record"}
    | {"transaction:of trees"}
)
"""Moves of directories to another bucket, which layout `tree` refuses."""
WITHIN: Mapping[str, Scenario] = {
    "rename:tree": Scenario(
        below("/b", GROWN), lambda fs, _: fs.rename("/b/d", "/b/e/z"), {}, gone=True
    ),
    "exchange:trees": Scenario(
        below("/b", {"/x": None, "/x/f": b"one", "/y": None, "/y/g": b"second"}),
        lambda fs, _: fs.exchange("/b/x", "/b/y"),
        {},
        layouts=("tree",),
    ),
    "transaction:of trees": Scenario(
        below("/b", TREES), lambda fs, _: change_in_bucket(fs), {}, gone=True
    ),
    "restore": Scenario(below("/b", SMALL), lambda fs, _: delete_and_restore(fs), {}),
}


async def delete_and_restore(fs: S3kClient) -> None:
    await fs.delete("/b/d", recursive=True, missing_ok=True)
    if fs.config.layout == "tree":
        await fs.trash().restore("/b/d", "/b/again")


CASES: Mapping[str, Scenario] = {
    f"{name}-{layout}": replace(scenario, layout=layout, features=(*scenario.features, *COUNTERS))
    for layout in ("path", "tree")
    for name, scenario in [
        *SCENARIOS.items(),
        *((f"within:{name}", each) for name, each in WITHIN.items()),
    ]
    if layout in scenario.layouts and not (layout == "tree" and name in TREE_MOVES)
}
cases = pytest.mark.parametrize("scenario", CASES.values(), ids=CASES)
sampled = pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(each, id=name, marks=[pytest.mark.slow] if each.layout == "path" else [])
        for name, each in CASES.items()
    ],
)
"""In layout `path` only in `make test-full`: it counts in the same places."""


async def checked(world: World) -> None:
    async with world.volume() as volume:
        await check_counters(volume)


@cases
async def test_death_at_any_call(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    plans: list[FaultPlan] = []
    async with world_of(scenario) as world:
        await checked(world)
        await world.run(scenario, plans.append)
        await checked(world)
    count = len(plans[0].calls)
    chance = random.Random(f"{seed_of_run()}-{request.node.name}")
    numbers = range(1, count + 1) if FULL else [chance.randrange(count) + 1]
    for number in numbers:
        moments: tuple[Moment, ...] = ("before", "after")
        for when in moments if TORTURE else [chance.choice(moments)]:
            await dies_at(scenario, number, when)


async def dies_at(scenario: Scenario, number: int, when: Moment) -> None:
    def arm(faults: FaultPlan) -> None:
        faults.die(number, when=when)
        faults.fail_when(lambda call: call.number > number, Died("is dead"), times=EVER)

    async with world_of(scenario) as world:
        with suppress(Died):
            async with world.client(arm) as (here, there):
                await scenario.run(here, there)
        world.clock.advance(1000)
        await checked(world)
        with suppress(S3kError):
            await world.run(scenario)  # resolves what is left
        await checked(world)


@sampled
async def test_failures_lost_answers_and_cancellation(
    scenario: Scenario, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(f"{seed_of_run()}-{request.node.name}")
    plans: list[FaultPlan] = []
    async with world_of(scenario) as world:
        await world.run(scenario, plans.append)
    count = len(plans[0].calls)
    ways = [ServiceError("no", service_code="X"), ResponseLostError("lost"), None]
    for error in ways if FULL else [chance.choice(ways)]:
        for number in range(1, count + 1) if FULL else [chance.randrange(count) + 1]:
            times = chance.choice((1, EVER))
            if error is None:
                await cancelled_at(scenario, number)
            else:
                await fails_at(scenario, number, error, times)


async def fails_at(scenario: Scenario, number: int, error: S3kError, times: int) -> None:
    when: Moment = "after" if isinstance(error, ResponseLostError) else "before"

    def arm(faults: FaultPlan) -> None:
        faults.fail_when(lambda call: call.number >= number, error, when=when, times=times)

    async with world_of(scenario) as world:
        with suppress(S3kError):
            await world.run(scenario, arm)
        world.clock.advance(1000)
        await checked(world)


async def cancelled_at(scenario: Scenario, number: int) -> None:
    async with world_of(scenario) as world:

        async def gate(call: Call) -> None:
            if call.number == number:
                task.cancel()

        def arm(faults: FaultPlan) -> None:
            faults.gate = gate

        task = asyncio.ensure_future(world.run(scenario, arm))
        with suppress(asyncio.CancelledError):
            await task
        world.clock.advance(1000)
        await checked(world)


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_fsck_and_a_lost_table_keep_the_promise(layout: LayoutName) -> None:
    """What is repaired or restored without being counted is listed, until it is counted again."""
    scenario = replace(SCENARIOS["write_many"], layout=layout, features=COUNTERS)
    async with world_of(scenario) as world:
        await world.run(scenario)
        await world.lose_table()
        async with world.volume() as volume:
            await check_counters(volume, lambda found: found.is_stale)
        await world.run(scenario)
        async with world.volume() as volume:
            await check_counters(volume, lambda found: found.is_stale)
