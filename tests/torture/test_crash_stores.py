"""Verbs on Redis and RocksDB whose process, or whose server, is killed at a call (`kill -9`); then
recovered by each way there is.

On Redis the client dies, the server dies, or both, and the server is started again with what it had
synced. RocksDB is in the process of its one client, which dies in the middle of the verb. In `make
test` this happens to some verbs at one call, in `make test-full` to each at one, in `make torture`
at every fifth call.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any

import pytest

from s3k_async.backends.rocksdb import RocksdbBlobs, RocksdbTable
from s3k_async.client import S3kClient
from s3k_async.config import BlobLocation, TableLocation
from s3k_async.errors import S3kError
from s3k_async.model import LayoutName
from s3k_async.objects import ObjectStore
from s3k_async.testing import Call, FaultPlan
from tests.engines import redis_server
from tests.level import FULL, TORTURE
from tests.support import FakeClock
from tests.torture.crash import Scenario, World, world_of
from tests.torture.crash_objects import OBJECT_BUILT, OBJECT_LOOKS, ON_STORES
from tests.torture.crash_recovery import (
    AFTER_USE,
    RECOVERABLE,
    RECOVERIES,
    WAYS,
    calls_of,
    check_tree,
    is_complete,
    is_definite,
    try_again,
)
from tests.torture.crash_scenarios import LOOKS, OWN, verb_of
from tests.torture.crash_stores import Death, kill_at
from tests.torture.measure import report, seed_of_run

SOME, SOME_OF_OBJECTS = 4, 2
"""Verbs of the client, and of the object API, of each layout in `make test`."""
SHARE = 5

in_layouts = pytest.mark.parametrize("layout", ["path", "tree"])


def on_redis(server: redis_server.Server) -> dict[str, Any]:
    """Where the volumes of a world are."""
    return {"locate": server.places, "with_store_clock": True}


@contextmanager
def on_rocksdb() -> Iterator[dict[str, Any]]:
    """Where the volumes of a world are: in a directory with a short path."""
    with TemporaryDirectory(prefix="s3k-") as directory:

        def locate(name: str) -> tuple[TableLocation, BlobLocation]:
            place = f"{directory}/{name}"
            return RocksdbTable(place), RocksdbBlobs(place)

        yield {"locate": locate}


def chosen(layout: LayoutName, chance: random.Random) -> list[tuple[str, Scenario]]:
    """The scenarios of a run."""
    names = [name for name, scenario in ON_STORES.items() if layout in scenario.layouts]
    if not FULL:
        of_objects = [name for name in names if name.startswith("objects.")]
        of_client = [name for name in names if name not in of_objects]
        names = chance.sample(of_client, SOME) + chance.sample(of_objects, SOME_OF_OBJECTS)
    return [(name, replace(ON_STORES[name], layout=layout)) for name in names]


def test_every_verb_runs_on_stores() -> None:
    """What neither looks nor is built from another scenario, of the client and of the object
    store."""
    client = verbs_of(S3kClient) - LOOKS - OWN
    objects = verbs_of(ObjectStore) - OBJECT_LOOKS - OBJECT_BUILT.keys()
    expected = client | {f"objects.{verb}" for verb in objects}
    assert {verb_of(name) for name in ON_STORES} == expected


def verbs_of(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def calls(count: int, chance: random.Random) -> list[int]:
    """The calls at which something is killed."""
    return (
        [*range(chance.randint(1, SHARE), count + 1, SHARE)]
        if TORTURE
        else [chance.randint(1, count)]
    )


async def each(
    layout: LayoutName,
    places: Mapping[str, Any],
    kill: Callable[[World, str, Scenario, int, str], Awaitable[None]],
) -> int:
    """Kill at calls of scenarios, on a new volume each time; how often."""
    seed, tried = seed_of_run(), 0
    chance = random.Random(f"{seed}-{layout}")
    for name, scenario in chosen(layout, chance):
        count = await calls_of(scenario, clock=FakeClock(time()), **places)
        for number in calls(count, chance):
            way = WAYS[layout][(number + tried) % len(WAYS[layout])]
            try:
                async with world_of(scenario, clock=FakeClock(time()), **places) as world:
                    await kill(world, name, scenario, number, way)
            except BaseException as error:
                error.add_note(f"{name}, call {number}, {way}; S3K_TORTURE_SEED={seed}")
                raise
            tried += 1
    report("crash of stores", layout, seed=seed, deaths=tried)
    return tried


async def recovered(world: World, scenario: Scenario, way: str, *, acknowledged: bool) -> None:
    """What a dead client left is what it may leave, and can be recovered in this way."""
    world.clock.advance(1000)
    assert await world.problems() <= RECOVERABLE
    found = await check_tree(world, scenario)
    assert not acknowledged or await is_complete(world, scenario, found)
    await RECOVERIES[way](world, scenario, found)
    world.clock.advance(1000)
    assert await world.problems() <= AFTER_USE[scenario.layout]


@in_layouts
async def test_rocksdb_recovers_what_its_one_client_left(
    layout: LayoutName, tmp_path: Path
) -> None:
    async def kill(world: World, name: str, scenario: Scenario, number: int, way: str) -> None:
        acknowledged = kill_at(world, name, Death(number), tmp_path / world.name)
        await recovered(world, scenario, way, acknowledged=acknowledged)

    with on_rocksdb() as places:
        assert await each(layout, places, kill) > 0


@pytest.mark.engine
@in_layouts
@pytest.mark.parametrize("dies", ["client", "client and server"])
async def test_redis_recovers_what_a_client_left(
    layout: LayoutName, dies: str, killable_redis: redis_server.Server, tmp_path: Path
) -> None:
    async def kill(world: World, name: str, scenario: Scenario, number: int, way: str) -> None:
        victims = [killable_redis.process.pid] if dies == "client and server" else []
        acknowledged = kill_at(world, name, Death(number, victims), tmp_path / world.name)
        if victims:
            killable_redis.restart()
        await recovered(world, scenario, way, acknowledged=acknowledged)

    assert await each(layout, on_redis(killable_redis), kill) > 0


@pytest.mark.engine
@in_layouts
async def test_a_client_tells_the_truth_of_a_redis_that_died(
    layout: LayoutName, killable_redis: redis_server.Server
) -> None:
    async def kill(world: World, _: str, scenario: Scenario, number: int, __: str) -> None:
        async def gate(call: Call) -> None:
            if call.number == number:
                killable_redis.kill()

        def arm(faults: FaultPlan) -> None:
            faults.gate = gate

        raised: S3kError | None = None
        try:
            await world.run(scenario, arm)
        except S3kError as error:
            raised = error
        killable_redis.restart()
        world.clock.advance(1000)
        found = await check_tree(world, scenario)
        assert await world.problems() <= RECOVERABLE
        complete = await is_complete(world, scenario, found)
        if raised is None:
            assert complete
        elif scenario.is_seen and is_definite(raised, scenario):
            assert not complete, f"false failure: {raised!r}"
        await try_again(world, scenario, found)

    assert await each(layout, on_redis(killable_redis), kill) > 0
