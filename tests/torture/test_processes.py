"""Processes that are killed at a random moment lose nothing that they were told is done, and leave
nothing half."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.model import LayoutName
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.level import FULL, TORTURE
from tests.torture.ledger import check
from tests.torture.load import read_tree
from tests.torture.measure import report, seed_of_run
from tests.torture.processes import Killed, kill_round, recover

EMBEDDED, ENGINES = (200, 200) if TORTURE else (14, 6) if FULL else (6, 4)
ROUNDS = {"embedded": EMBEDDED, "dynoxide+seaweedfs": ENGINES, "redis": ENGINES}
ON_ONE_VOLUME = 10


@pytest.mark.parametrize("layout", ["path", "tree"])
@volume_backends("embedded", "dynoxide+seaweedfs", "redis")
def test_what_was_acknowledged_survives_kill_9(
    new_volume: VolumeMaker, layout: LayoutName, tmp_path: Path
) -> None:
    seed = seed_of_run()
    under_way = answered = 0
    left = ROUNDS[new_volume.backend]
    for number in range(-(-left // ON_ONE_VOLUME)):
        config = new_volume(suffix_count=3, layout=layout)
        asyncio.run(init_volume(config))
        rounds: dict[str, Killed] = {}
        for each in range(min(left, ON_ONE_VOLUME)):
            place, name = f"/r{each}", f"{seed}-{number}-{each}"
            try:
                killed = kill_round(config, place, name, tmp_path / name)
                asyncio.run(check_round(config, place, killed))
            except BaseException as error:
                error.add_note(f"S3K_TORTURE_SEED={seed}, round {number}-{each}")
                raise
            rounds[place] = killed
            under_way += killed.under_way
            answered += killed.answered
        left -= len(rounds)
        asyncio.run(recover(config))
        for place, killed in rounds.items():
            asyncio.run(check_round(config, place, killed))
    report(
        "processes",
        f"{new_volume.backend}, layout {layout}",
        seed=seed,
        rounds=ROUNDS[new_volume.backend],
        answered=answered,
        under_way=under_way,
    )
    assert under_way > 0, "nothing was interrupted: the processes were killed while they slept"


async def check_round(config: VolumeConfig, place: str, killed: Killed) -> None:
    async with S3kClient(config=config) as fs:
        check(await read_tree(fs, place), killed.ledgers.values())
