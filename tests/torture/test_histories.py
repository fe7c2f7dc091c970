"""Concurrent calls of several clients have results that some order of the calls, one after the
other, would have, too."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import aioboto3
import pytest

from s3k_async.model import LayoutName
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.level import TORTURE
from tests.torture.histories import UndecidedError
from tests.torture.histories_runs import NO_FAULTS, Run, in_memory, in_real_time
from tests.torture.histories_scenes import SCENES
from tests.torture.histories_scheduler import Rates

FAULTS = Rates(lost=0.02, throttled=0.02, killed=0.002)
KINDS = {"answer lost before", "answer lost after", "throttled", "killed"}
CALLS = 8
"""Calls that each client of a history makes."""
MANY: Mapping[LayoutName, int] = {"path": 250 if TORTURE else 100, "tree": 250}
"""Histories of a scene in `make test-full` and `make torture`: 1,000 in layout `tree`."""
REAL_ENGINES = volume_backends("embedded", "dynoxide+seaweedfs", "redis", "rocksdb")

in_layouts = pytest.mark.parametrize(
    ("scene", "layout"),
    [
        pytest.param(name, layout, marks=[pytest.mark.slow] if scene.is_slow else [])
        for layout in ("path", "tree")
        for name, scene in SCENES.items()
        if layout in scene.layouts
    ],
)


def seed_of_run() -> int:
    seed = int(os.environ.get("S3K_TEST_SEED") or random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"S3K_TEST_SEED={seed}\n")
    return seed


async def run_many(
    scene: str, layout: LayoutName, rounds: int, rates: Rates = NO_FAULTS
) -> Counter[str]:
    return await decided(
        f"{scene}, layout {layout}",
        rounds,
        lambda seed: in_memory(scene, seed, calls=CALLS, rates=rates, layout=layout),
    )


async def decided(place: str, rounds: int, run: Callable[[str], Awaitable[Run]]) -> Counter[str]:
    """Histories until so many are decided; at most as many may be given up. Returns the faults."""
    seed = seed_of_run()
    calls = known = number = 0
    faults: Counter[str] = Counter()
    while known < rounds:
        assert number < 2 * rounds, f"{number - known} histories were given up"
        try:
            history = await run(f"{seed}-{number}")
        except UndecidedError:
            pass
        except BaseException as error:
            error.add_note(f"S3K_TEST_SEED={seed}, history {number} of {place!r}")
            raise
        else:
            known += 1
            calls += len(history.events)
            faults += history.faults
        number += 1
    sys.stdout.write(
        f"{place}: {rounds} histories, {number - known} given up, {calls} calls, {dict(faults)}\n"
    )
    return faults


@in_layouts
async def test_histories_are_linearizable(scene: str, layout: LayoutName) -> None:
    await run_many(scene, layout, SCENES[scene].rounds)


@in_layouts
async def test_histories_with_faults_are_linearizable(scene: str, layout: LayoutName) -> None:
    faults = await run_many(scene, layout, SCENES[scene].rounds + 2, FAULTS)
    assert faults


@pytest.mark.slow
@in_layouts
async def test_many_histories_are_linearizable(scene: str, layout: LayoutName) -> None:
    await run_many(scene, layout, MANY[layout])


@pytest.mark.slow
@in_layouts
async def test_many_histories_with_faults_are_linearizable(scene: str, layout: LayoutName) -> None:
    faults = await run_many(scene, layout, MANY[layout], FAULTS)
    assert faults.keys() == KINDS


@REAL_ENGINES
@in_layouts
async def test_histories_on_real_engines_are_linearizable(
    scene: str, layout: LayoutName, new_volume: VolumeMaker
) -> None:
    await on_engine(scene, layout, new_volume, 1)


@pytest.mark.slow
@REAL_ENGINES
@in_layouts
async def test_many_histories_on_real_engines_are_linearizable(
    scene: str, layout: LayoutName, new_volume: VolumeMaker
) -> None:
    await on_engine(scene, layout, new_volume, MANY[layout] // 20)


async def on_engine(scene: str, layout: LayoutName, new_volume: VolumeMaker, rounds: int) -> None:
    session = aioboto3.Session()

    async def run(seed: str) -> Run:
        config = new_volume(suffix_count=2, layout=layout)
        return await in_real_time(scene, seed, config, session, calls=CALLS)

    await decided(f"{scene} on {new_volume.backend}, layout {layout}", rounds, run)
