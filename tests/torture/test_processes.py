"""Processes that are killed at a random moment lose nothing that they were told is done, and leave
nothing half; nor does a Redis that is killed under them.

Several processes work on one volume, which RocksDB does not allow: `test_crash_stores.py` kills its
one process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.model import LayoutName
from s3k_async.volumes import init_volume
from tests.engines import redis_server
from tests.engines.volumes import VolumeMaker, fresh_name, volume_backends
from tests.level import FULL, TORTURE
from tests.torture.ledger import check
from tests.torture.load import read_tree
from tests.torture.measure import report, seed_of_run
from tests.torture.processes import Killed, kill_round, recover

EMBEDDED, ENGINES = (200, 200) if TORTURE else (14, 6) if FULL else (6, 4)
ROUNDS = {"embedded": EMBEDDED, "dynoxide+seaweedfs": ENGINES, "redis": ENGINES}
OUTAGES = 40 if TORTURE else 6 if FULL else 2
"""Rounds in each of which the server is killed."""
ON_ONE_VOLUME = 10


@pytest.mark.parametrize("layout", ["path", "tree"])
@volume_backends("embedded", "dynoxide+seaweedfs", "redis")
def test_what_was_acknowledged_survives_kill_9(
    new_volume: VolumeMaker, layout: LayoutName, tmp_path: Path
) -> None:
    survive(
        f"{new_volume.backend}, layout {layout}",
        lambda: new_volume(suffix_count=3, layout=layout),
        ROUNDS[new_volume.backend],
        tmp_path,
    )


@pytest.mark.engine
@pytest.mark.parametrize("layout", ["path", "tree"])
def test_what_was_acknowledged_survives_kill_9_of_redis(
    killable_redis: redis_server.Server, layout: LayoutName, tmp_path: Path
) -> None:
    chance = random.Random(seed_of_run())

    def outage() -> None:
        time.sleep(chance.uniform(0.0, 0.1))
        killable_redis.kill()
        time.sleep(chance.uniform(0.0, 0.5))
        killable_redis.restart()

    def new_config() -> VolumeConfig:
        name = fresh_name("volume")
        table, data = killable_redis.places(name)
        return VolumeConfig(name, table, data, suffix_count=3, layout=layout)

    survive(f"redis that is killed, layout {layout}", new_config, OUTAGES, tmp_path, outage)


def survive(
    subject: str,
    new_config: Callable[[], VolumeConfig],
    rounds: int,
    directory: Path,
    outage: Callable[[], None] | None = None,
) -> None:
    """Rounds of killed processes, several on one volume, each with outages of its server."""
    seed = seed_of_run()
    under_way = answered = 0
    left = rounds
    for number in range(-(-left // ON_ONE_VOLUME)):
        config = new_config()
        asyncio.run(init_volume(config))
        killed: dict[str, Killed] = {}
        for each in range(min(left, ON_ONE_VOLUME)):
            place, name = f"/r{each}", f"{seed}-{number}-{each}"
            with noted(f"S3K_TORTURE_SEED={seed}, round {number}-{each}"):
                killed[place] = kill_round(config, place, name, directory / name, outage=outage)
                asyncio.run(check_round(config, place, killed[place]))
        left -= len(killed)
        asyncio.run(recover(config))
        for place, each_killed in killed.items():
            asyncio.run(check_round(config, place, each_killed))
        under_way += sum(each_killed.under_way for each_killed in killed.values())
        answered += sum(each_killed.answered for each_killed in killed.values())
    report("processes", subject, seed=seed, rounds=rounds, answered=answered, under_way=under_way)
    assert under_way > 0, "nothing was interrupted: the processes were killed while they slept"


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Errors of the body have a note."""
    try:
        yield
    except BaseException as error:
        error.add_note(note)
        raise


async def check_round(config: VolumeConfig, place: str, killed: Killed) -> None:
    async with S3kClient(config=config) as fs:
        check(await read_tree(fs, place), killed.ledgers.values())
