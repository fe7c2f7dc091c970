"""Processes that are killed at a random moment lose nothing that they were told is done, and leave nothing half."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.fsck.repair import repair_volume
from s3k_async.fsck.verify import Verifier
from s3k_async.oplog.reader import LogReader
from s3k_async.sources import SYSTEM
from s3k_async.volumes import init_volume, open_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.torture.ledger import check
from tests.torture.load import read_tree
from tests.torture.measure import TORTURE, report, seed_of_run
from tests.torture.processes import Killed, kill_round

ROUNDS = {"embedded": 200, "dynoxide+seaweedfs": 200} if TORTURE else {"embedded": 14, "dynoxide+seaweedfs": 6}
ON_ONE_VOLUME = 10
A_DAY = 86_400_000
LATER = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + A_DAY)
"""Every lease that the dead had is over."""
LEFT = {"log_pending", "stale_mark", "duplicate_id", "reservation_expired", "orphan_data", "missing_parent"}
"""What the dead may leave for fsck. Without parents: a file whose writer died before it looked whether its directory,
which somebody moved meanwhile, still stood; it was never acknowledged."""


@volume_backends("embedded", "dynoxide+seaweedfs")
def test_what_was_acknowledged_survives_kill_9(new_volume: VolumeMaker, tmp_path: Path) -> None:
    seed = seed_of_run()
    under_way = answered = 0
    left = ROUNDS[new_volume.backend]
    for number in range(-(-left // ON_ONE_VOLUME)):
        config = new_volume(suffix_count=3)
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
        asyncio.run(settle(config, rounds))
    report(
        "processes",
        new_volume.backend,
        seed=seed,
        rounds=ROUNDS[new_volume.backend],
        answered=answered,
        under_way=under_way,
    )
    assert under_way > 0, "nothing was interrupted: the processes were killed while they slept"


async def check_round(config: VolumeConfig, place: str, killed: Killed) -> None:
    async with S3kClient(config=config) as fs:
        check(await read_tree(fs, place), killed.ledgers.values())


async def settle(config: VolumeConfig, rounds: dict[str, Killed]) -> None:
    """When all leases are over: nothing is lost, what is left is what fsck can finish, and it does."""
    volume = await open_volume(config, sources=LATER)
    try:
        repaired = await repair_volume(volume, dry_run=False, grace=60.0)
        assert {each.finding.kind for each in repaired.mended if each.finding.is_problem} <= LEFT
        assert repaired.left.problems == []
        assert volume.log_blobs is not None
        verifier = Verifier(
            volume.store, volume.blobs, LogReader(volume.log_blobs), LATER, grace=60.0, place=volume.place
        )
        assert (await verifier.verify(deep=True)).problems == []
    finally:
        await volume.close()
    for place, killed in rounds.items():
        await check_round(config, place, killed)
