"""Two executors, each a process of its own: one dies, and a task runs twice at the same time."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from s3k_async import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.volumes import init_volume
from tests.conftest import unavailable
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.spark.cluster import FILES, Orders
from tests.spark.conftest import ENVIRONMENT, ROOT

pytestmark = pytest.mark.spark


@pytest.fixture
async def volume(new_volume: VolumeMaker) -> VolumeConfig:
    config = new_volume()
    await init_volume(config)
    return config


@volume_backends("dynoxide+seaweedfs")
def test_files_are_moved_once_whatever_becomes_of_their_tasks(volume: VolumeConfig, tmp_path: Path) -> None:
    if shutil.which("java") is None:
        unavailable("Java is not installed")
    orders = Orders(volume, str(tmp_path))
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
    assert {path.name for path in tmp_path.iterdir()} == {"killed", "slow", "twin"}
    with fs:
        assert not list(fs.list("/in"))
        assert {status.name: status.id for status in fs.list("/out")} == ids
        assert fs.read("/out/7") == b"7"
        assert fs.jobs() == []
