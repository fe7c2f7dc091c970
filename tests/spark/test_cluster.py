"""Two executors, each a process of its own: one dies, and a task runs twice at the same time; a table is restored."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from s3k_async import S3kClient, S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.stores.items import Item
from s3k_async.volumes import init_volume, open_volume
from tests.conftest import unavailable
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.spark.cluster import FILES, Orders
from tests.spark.conftest import ENVIRONMENT, ROOT
from tests.spark.test_restoring import items_of

pytestmark = pytest.mark.spark


async def lost_table(config: VolumeConfig) -> list[Item]:
    """A volume without its table; what the table was."""
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write_many([(f"/a/b/{number}", str(number).encode()) for number in range(FILES)])
    before = await items_of(config)
    opened = await open_volume(config)
    await opened.table.drop()
    await opened.close()
    return before


@volume_backends("dynoxide+seaweedfs")
def test_nothing_is_lost_or_doubled_whatever_becomes_of_executors(
    volume: VolumeConfig, new_volume: VolumeMaker, tmp_path: Path
) -> None:
    if shutil.which("java") is None:
        unavailable("Java is not installed")
    lost = new_volume()
    before = asyncio.run(lost_table(lost))
    orders = Orders(volume, lost, str(tmp_path))
    fs = S3kSyncClient(config=volume)
    with fs:
        fs.write_many((f"/in/{number}", str(number).encode()) for number in range(FILES))
        fs.makedirs("/out")
        ids = {status.name: status.id for status in fs.list("/in")}
    told = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster"],
        input=pickle.dumps(orders),
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr.decode()[-5000:]
    assert {path.name for path in tmp_path.iterdir()} == {"killed", "slow", "twin", "killed while writing", "stages"}
    with fs:
        assert not list(fs.list("/in"))
        assert {status.name: status.id for status in fs.list("/out")} == ids
        assert fs.read("/out/7") == b"7"
        assert fs.jobs() == []
    assert asyncio.run(items_of(lost)) == before
