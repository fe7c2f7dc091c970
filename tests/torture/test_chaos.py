"""Nothing acknowledged is lost, undone or resurrected: clients on the same paths, killed and
stopped, clocks apart. They are processes of one volume, which RocksDB does not allow."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.integrity.gc_rules import Ages
from s3k_async.migrate.features import enable_features
from s3k_async.model import LayoutName
from s3k_async.volumes import init_volume
from tests.counters.counted import counted, walked
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.level import TORTURE
from tests.torture.chaos import (
    DUE,
    LABEL,
    LIFECYCLES,
    RULED,
    TOOLS,
    TOP,
    Chaos,
    Plan,
    run_chaos,
)
from tests.torture.chaos_rules import check_rules
from tests.torture.ledger import named
from tests.torture.load import read_tree
from tests.torture.measure import report, seed_of_run
from tests.torture.overlap import check_overlapping
from tests.torture.processes import recover

TEN_MINUTES, AN_HOUR = 600.0, 3600.0
CLOCKS = {
    "together": (0.0,) * 6,
    "ten minutes": (0.0, 0.0, -TEN_MINUTES, TEN_MINUTES, 0.0, -TEN_MINUTES),
    "an hour": (0.0, 0.0, -AN_HOUR, AN_HOUR, 0.0, -AN_HOUR, -TEN_MINUTES, TEN_MINUTES),
}
LONG = Plan(240.0, (), Ages(70.0, 5.0, 60.0), 20.0, (0.1, 1.0), (0.5, 45.0))
"""Stops are longer than a transaction's lease of 30 seconds, and shorter than the time that
collection allows for late requests."""
SHORT = Plan(6.0, (), Ages(8.0, 2.0, 4.0), 3.0)


@pytest.mark.parametrize("clocks", CLOCKS if TORTURE else ["ten minutes"])
@pytest.mark.parametrize("layout", ["path", "tree"])
@volume_backends("dynoxide+seaweedfs", slow=["embedded", "redis"])
def test_chaos_undoes_nothing(
    new_volume: VolumeMaker, layout: LayoutName, clocks: str, tmp_path: Path
) -> None:
    seed = seed_of_run()
    config = new_volume(suffix_count=3, layout=layout)
    asyncio.run(init_volume(config, enable=["rules", "counters"]))
    asyncio.run(prepare(config))
    base = LONG if TORTURE else SHORT
    plan = Plan(base.seconds, CLOCKS[clocks], base.ages, base.grace, base.pause, base.stop)
    try:
        chaos = run_chaos(config, plan, seed, tmp_path)
        asyncio.run(check_tree(config, chaos))
        asyncio.run(recover(config))
        asyncio.run(check_tree(config, chaos))
        asyncio.run(check_rules(config, chaos))
        are_counted = asyncio.run(have_counters(config))
    except BaseException as error:
        error.add_note(f"S3K_TORTURE_SEED={seed}")
        raise
    report(
        "chaos",
        f"{new_volume.backend}, layout {layout}, {clocks}",
        seed=seed,
        seconds=plan.seconds,
        calls=dict(chaos.outcomes),
        kills=dict(chaos.kills),
        stops=chaos.stops,
        tools=dict(chaos.finished),
        counters="equal a walk" if are_counted else "were marked stale, and recounted",
        refused=dict(Counter(each.split(":")[0] for each in chaos.refused.elements())),
    )
    assert chaos.outcomes["done"] > 0
    assert any(call.outcome == "done" for call in chaos.calls if call.kind == "label")
    assert chaos.kills["worker"] > len(plan.clocks), "only the end killed anything"
    assert any(call.outcome == "done" for call in chaos.calls if call.kind in LIFECYCLES)
    assert all(chaos.finished[role] for role in TOOLS), "a tool never came to its end"


async def prepare(config: VolumeConfig) -> None:
    """Make the directories of the lifecycle rules."""
    async with S3kClient(config=config) as fs:
        await fs.makedirs(DUE)
        await fs.makedirs(RULED)
        await fs.set_rule(RULED, expire_at=1)


async def have_counters(config: VolumeConfig) -> bool:
    """Whether the counters need no recount: then they equal a walk as the run has left them.
    Otherwise, as after some repairs, only the recount is compared."""
    async with S3kClient(config=config) as fs:
        found, expected = await counted(fs._volume()), await walked(fs)
    if not found.is_stale:
        assert found.agrees_with(expected), (found, expected)
        return True
    await enable_features(config, ["counters"])
    async with S3kClient(config=config) as fs:
        found = await counted(fs._volume())
        assert found.agrees_with(expected), (found, expected)
    return False


async def check_tree(config: VolumeConfig, chaos: Chaos) -> None:
    async with S3kClient(config=config) as fs:
        tree = await read_tree(fs, TOP)
        listed = [status async for status in fs.list(TOP, recursive=True)]
        found = [status.path async for status in fs.find(metadata=LABEL)]
    assert sorted(found) == sorted(
        status.path for status in listed if LABEL in status.attributes.metadata
    )
    check_overlapping(
        {path: named(data) for path, data in tree.items() if data is not None},
        [call for call in chaos.calls if call.kind not in {"label", *LIFECYCLES}],
        late=config.layout == "tree",
    )
