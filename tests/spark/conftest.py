"""A Spark session of two threads for the tests, on this machine alone, and what its workers need to
find."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from s3k_async import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.model import LayoutName
from s3k_async.volumes import init_volume
from tests.conftest import unavailable
from tests.engines import redis_server
from tests.engines.seaweedfs import ACCESS_KEY, SECRET_KEY
from tests.engines.volumes import VolumeMaker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

CREDENTIALS = {"S3K_ACCESS_KEY_ID": ACCESS_KEY, "S3K_SECRET_ACCESS_KEY": SECRET_KEY}
"""Configurations are shipped without secrets, which are looked for where they are used. Never by
AWS_*, which the services' default chain finds by itself."""


SMALL_JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of a JVM that sees little data: without them half of its time goes into compiling, and a
second of each start into verifying Spark's classes."""


def spark_environment() -> dict[str, str]:
    """The environment of a driver and its workers."""
    ambient = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "S3K_"))
    }
    return ambient | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), ambient.get("PYTHONPATH")))),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": SMALL_JVM,
        **CREDENTIALS,
    }


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """`local[2]`, with Python workers of this environment."""
    if shutil.which("java") is None:
        unavailable("Java is not installed")
    place = tmp_path_factory.mktemp("spark")
    with patch.dict(os.environ, spark_environment(), clear=True):
        session = _session(place)
        try:
            # The JVM, and the workers that it starts, have what they need by now.
            with patch.dict(os.environ):
                for name in CREDENTIALS:
                    del os.environ[name]
                yield session
        finally:
            session.stop()


@contextmanager
def task_environment(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Workers find these values in their environment meanwhile."""
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(values)
    try:
        yield
    finally:
        environment.clear()
        environment.update(before)


@pytest.fixture(autouse=True)
def _redis_credentials(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tasks find the credentials of Redis where a test has a volume on it, and no others."""
    names = set(request.fixturenames)
    if not {"spark", "new_volume"} <= names or (
        request.getfixturevalue("new_volume").backend != "redis"
    ):
        yield
        return
    values = (redis_server.USER, redis_server.PASSWORD)
    with task_environment(
        request.getfixturevalue("spark"), dict(zip(CREDENTIALS, values, strict=True))
    ):
        yield


def _session(place: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .appName("s3k-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.codegen.wholeStage", "false")  # compiling takes longer than it saves
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.local.dir", str(place / "local"))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


@pytest.fixture
async def volume(new_volume: VolumeMaker, layout: LayoutName) -> VolumeConfig:
    """A new volume, with nothing in it."""
    config = new_volume(layout=layout)
    await init_volume(config)
    return config


@pytest.fixture
def fs(volume: VolumeConfig) -> Iterator[S3kSyncClient]:
    """A client of it, where the driver runs."""
    with S3kSyncClient(config=volume) as client:
        yield client
