"""Clients whose requests are throttled, reset, delayed, cut, repeated and lost: nothing is lost,
nothing is doubled, and nobody is told anything that is not so."""

from __future__ import annotations

from collections import Counter

import pytest

from s3k_async import S3kClient
from s3k_async._core.concurrency import gather
from s3k_async.model import LayoutName
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.level import TORTURE
from tests.torture.ledger import Ledger, check
from tests.torture.load import ROLES, perform, read_tree
from tests.torture.measure import report, seed_of_run
from tests.torture.wire import ALL_KINDS, bad_network

STEPS = 150 if TORTURE else 20
SHARES = (0.01, 0.05, 0.15, 0.3) if TORTURE else (0.2,)


@pytest.mark.parametrize("layout", ["path", "tree"])
@pytest.mark.parametrize("share", SHARES)
@volume_backends("dynoxide+seaweedfs")
async def test_a_bad_network_loses_nothing_and_tells_no_lies(
    new_volume: VolumeMaker, share: float, layout: LayoutName
) -> None:
    seed = seed_of_run()
    config = new_volume(suffix_count=3, layout=layout)
    await init_volume(config)
    ledgers = {role: Ledger() for role in ROLES}
    try:
        async with bad_network(config, share, seed) as (reached, weather):

            async def live(role: str) -> None:
                async with S3kClient(config=reached) as fs:
                    await perform(fs, role, "/r", f"{seed}-{role}", ledgers[role], STEPS)

            await gather(live, ROLES, limit=len(ROLES))
        async with S3kClient(config=config) as fs:
            check(await read_tree(fs, "/r"), ledgers.values())
    except BaseException as error:
        error.add_note(f"S3K_TORTURE_SEED={seed}")
        raise
    outcomes = Counter(
        operation.outcome for ledger in ledgers.values() for operation in ledger.operations
    )
    report(
        "wire",
        f"{new_volume.backend}, layout {layout}",
        seed=seed,
        share=share,
        outcomes=outcomes,
        injected=weather.injected,
    )
    assert outcomes["done"] > 0
    assert outcomes["under way"] == 0
    befallen = {kind.partition(" ")[2] for kind, count in weather.injected.items() if count > 0}
    assert befallen == ALL_KINDS if share >= 0.15 else befallen
