"""A Spark session of two threads for the tests, on this machine alone, and what its workers need to find."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from s3k_async import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.volumes import init_volume
from tests.conftest import unavailable
from tests.engines.seaweedfs import ACCESS_KEY, SECRET_KEY
from tests.engines.volumes import VolumeMaker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

ENVIRONMENT = {
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    # Configurations are shipped without secrets, which are looked for where they are used.
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """`local[2]`, with Python workers of this environment."""
    if shutil.which("java") is None:
        unavailable("Java is not installed")
    from pyspark.sql import SparkSession

    place = tmp_path_factory.mktemp("spark")
    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, "PYTHONPATH")}
    os.environ.update(ENVIRONMENT, PYTHONPATH=os.pathsep.join(filter(None, (str(ROOT), before["PYTHONPATH"]))))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("s3k-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.local.dir", str(place / "local"))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture
async def volume(new_volume: VolumeMaker) -> VolumeConfig:
    """A new volume, with nothing in it."""
    config = new_volume()
    await init_volume(config)
    return config


@pytest.fixture
def fs(volume: VolumeConfig) -> Iterator[S3kSyncClient]:
    """A client of it, where the driver runs."""
    with S3kSyncClient(config=volume) as client:
        yield client
