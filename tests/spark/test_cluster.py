"""Two executors, each a process of its own: one dies, and a task runs twice at the same time."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from anyio import to_thread

from s3k_async import S3kClient, S3kSyncClient
from s3k_async.backends.ports.items import Item
from s3k_async.config import VolumeConfig
from s3k_async.volumes import init_volume, open_volume
from tests.conftest import unavailable
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.integrity.garbage import live_keys, stored_keys
from tests.migrate.rig import entries, keys
from tests.spark.cluster import FILES, GARBAGE, Orders
from tests.spark.conftest import ROOT, spark_environment
from tests.spark.places import HANGS, entry_items, on

pytestmark = [pytest.mark.spark, pytest.mark.slow]


async def lost_table(config: VolumeConfig) -> list[Item]:
    """A volume without its table; what the table was."""
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write_many([(f"/a/b/{number}", str(number).encode()) for number in range(FILES)])
    before: list[Item] = await asyncio.to_thread(on, config, entry_items)
    opened = await open_volume(config)
    await opened.table.drop()
    await opened.close()
    return before


def run(orders: Orders) -> None:
    """Do as ordered on a cluster."""
    if shutil.which("java") is None:
        unavailable("Java is not installed")
    told = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster"],
        input=pickle.dumps(orders),
        capture_output=True,
        cwd=ROOT,
        env=spark_environment(),
        timeout=HANGS,
        check=False,
    )
    assert told.returncode == 0, told.stderr.decode()[-5000:]


@volume_backends("dynoxide+seaweedfs")
def test_nothing_is_lost_or_doubled_whatever_becomes_of_executors(
    volume: VolumeConfig, new_volume: VolumeMaker, tmp_path: Path
) -> None:
    lost = new_volume()
    before = asyncio.run(lost_table(lost))
    orders = Orders(volume, lost, str(tmp_path))
    fs = S3kSyncClient(config=volume)
    with fs:
        fs.write_many((f"/in/{number}", str(number).encode()) for number in range(FILES))
        fs.makedirs("/out")
        ids = {status.name: status.id for status in fs.list("/in")}
    run(orders)
    assert {path.name for path in tmp_path.iterdir()} == {
        "killed",
        "slow",
        "twin",
        "killed while writing",
        "stages",
    }
    with fs:
        assert not list(fs.list("/in"))
        assert {status.name: status.id for status in fs.list("/out")} == ids
        assert fs.read("/out/7") == b"7"
        assert fs.transactions() == []
    assert on(lost, entry_items) == before


@volume_backends("embedded", "dynoxide+seaweedfs")
async def test_garbage_goes_and_nothing_else_when_an_executor_dies(
    volume: VolumeConfig, tmp_path: Path
) -> None:
    """Its task has deleted what it was given, and has told nobody."""
    place = tmp_path / "place"
    place.mkdir()
    async with S3kClient(config=volume) as fs:
        await fs.write_many([(f"/in/{number}", b"old") for number in range(FILES)])
        await fs.write_many([(f"/in/{number}", b"new") for number in range(GARBAGE)])
        assert len(await stored_keys(fs._volume())) == FILES + GARBAGE
    await to_thread.run_sync(run, Orders(volume, volume, str(place), ("clean",)))
    assert {path.name for path in place.iterdir()} == {"killed while sweeping", "collecting"}
    async with S3kClient(config=volume) as fs:
        assert await stored_keys(fs._volume()) == await live_keys(fs)
        assert await fs.read("/in/0") == b"new"


@volume_backends("dynoxide+seaweedfs")
async def test_a_table_that_moves_is_whole_when_executors_die(
    volume: VolumeConfig, tmp_path: Path
) -> None:
    async with S3kClient(config=volume) as fs:
        await fs.write_many([(f"/a/b/{number}", str(number).encode()) for number in range(FILES)])
    before = await entries(volume)
    await to_thread.run_sync(run, Orders(volume, volume, str(tmp_path), ("divide", "carry")))
    told = await to_thread.run_sync(os.listdir, tmp_path)
    assert set(told) == {"killed in copy", "killed in clean", "killed while loading", "dumped"}
    assert await entries(volume) == before
    await keys(volume)
    async with S3kClient(config=volume) as fs:
        assert await fs.read("/a/b/7") == b"7"
