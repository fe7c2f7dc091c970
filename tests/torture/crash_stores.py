"""Scenarios on a real store, in a process of its own that is killed at a call that is chosen, alone
or together with the server of the store."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from s3k_async.config import BlobLocation, TableLocation, VolumeConfig
from s3k_async.model import LayoutName
from s3k_async.testing import Call, FaultPlan
from tests.support import FakeClock
from tests.torture.crash import Locate, World
from tests.torture.crash_objects import ON_STORES
from tests.torture.processes import PRELOADED, Keys, keys_of, with_keys

__all__ = ["Death", "kill_at"]

Place = tuple[str, TableLocation, BlobLocation, Keys]
"""A volume's name, where it is, and the keys of its engines, which no location takes along."""


@dataclass(frozen=True)
class Death:
    """How the process that runs a scenario ends."""

    call: int
    """It is killed before this call."""
    victims: Sequence[int] = ()
    """Ids of processes that are killed right before it."""


def kill_at(world: World, scenario: str, death: Death, answer: Path) -> bool:
    """Run a scenario in a process that is killed; whether its caller was answered before. `answer`:
    a file of this run. Raises AssertionError if the process ends in another way."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, "rocksdict", "tests.torture.crash_stores"])
    child = context.Process(
        target=_run,
        args=(
            world.name,
            [_place(config) for config in (world.config, world.origin)],
            scenario,
            world.layout,
            world.clock.seconds,
            death,
            answer,
        ),
        daemon=True,
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL, f"it ended with {child.exitcode}"
    return answer.exists()


def _place(config: VolumeConfig) -> Place:
    return config.name, config.table, config.data, keys_of(config)


def _at(places: Sequence[Place]) -> Locate:
    there = {}
    for name, table, data, keys in places:
        config = with_keys(VolumeConfig(name, table, data), keys)
        there[name] = (config.table, config.data)
    return there.__getitem__


def _run(
    name: str,
    places: Sequence[Place],
    scenario: str,
    layout: LayoutName,
    seconds: float,
    death: Death,
    answer: Path,
) -> None:  # in the child
    chosen = replace(ON_STORES[scenario], layout=layout)
    world = World(
        name, bool(chosen.origin), layout, FakeClock(seconds), _at(places), seed=os.getpid()
    ).join()

    async def gate(call: Call) -> None:
        if call.number >= death.call:
            for victim in (*death.victims, os.getpid()):
                os.kill(victim, signal.SIGKILL)

    def arm(faults: FaultPlan) -> None:
        faults.gate = gate

    acknowledge = answer.touch

    async def run() -> None:
        async with world.client(arm) as (here, there):
            await chosen.run(here, there)
            acknowledge()

    asyncio.run(run())
