"""Credentials of S3K_* and of the configuration file in tasks, which get configurations without
secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from s3k_async import S3kSyncClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.config import DynamoTable, S3Bucket, VolumeConfig
from s3k_async.errors import CredentialsError
from s3k_async.spark import delegated_credentials, each_partition, spark_volume
from tests.cli.conftest import Cli, clean_environment, cli
from tests.engines.volumes import volume_backends
from tests.spark.conftest import CREDENTIALS, task_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["clean_environment", "cli"]

pytestmark = pytest.mark.spark


def section(volume: VolumeConfig, *, secrets: bool) -> str:
    """The volume in a configuration file."""
    assert isinstance(volume.table, DynamoTable)
    assert isinstance(volume.data, S3Bucket)
    lines = [f"[volumes.{volume.name}]"]
    values = {
        "table": volume.table.name,
        "bucket": volume.data.bucket,
        "prefix": volume.data.prefix,
    }
    for part, aws in (("table", volume.table.aws), ("data", volume.data.aws)):
        values |= {f"{part}_endpoint": str(aws.endpoint), f"{part}_region": str(aws.region)}
        if secrets:
            values[f"{part}_access_key_id"] = aws.access_key_id.reveal()
            values[f"{part}_secret_access_key"] = aws.secret_access_key.reveal()
    return "\n".join([*lines, *(f'{name} = "{value}"' for name, value in values.items())])


@pytest.fixture
def tasks_without_settings(spark: SparkSession) -> Iterator[None]:
    """Workers that find no credentials in their environment."""
    with task_environment(spark, dict.fromkeys(CREDENTIALS, "")):
        yield


@volume_backends("dynoxide+seaweedfs")
def test_tasks_find_the_credentials_of_the_configuration_file(
    cli: Cli,
    spark: SparkSession,
    volume: VolumeConfig,
    tmp_path: Path,
    tasks_without_settings: None,
) -> None:
    """The table is asked for, and the data and the log are listed, by tasks. The session's Hadoop
    configuration says more of how the data is reached than the file does."""
    file = tmp_path / "volumes.toml"
    file.write_text(section(volume, secrets=True))
    with S3kSyncClient(config=volume) as fs:
        fs.write("/a", b"1")
    spark.conf.set(f"fs.s3a.bucket.{volume.name}.connection.maximum", "7")
    try:
        command = [
            "spark",
            "fsck-verify",
            "--grace",
            "0",
            "--deep",
            "--tasks",
            "2",
            f"s3k://{volume.name}",
        ]
        assert cli.ok("--config", str(file), *command).out.startswith("clean: 1 file")
    finally:
        spark.conf.unset(f"fs.s3a.bucket.{volume.name}.connection.maximum")


@volume_backends("dynoxide+seaweedfs")
def test_tasks_find_the_credentials_of_their_environment(
    spark: SparkSession, volume: VolumeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the driver knows where the volume is."""
    file = tmp_path / "volumes.toml"
    file.write_text(section(volume, secrets=False))
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)

    def write(fs: S3kSyncClient, numbers: Iterator[int]) -> Iterator[list[str]]:
        for number in numbers:
            fs.write(f"/{number}", b"1")
        yield sorted(name for name in os.environ if name.startswith("AWS_"))

    found = spark_volume(spark, f"s3k://{volume.name}", config=str(file))
    numbers = spark.sparkContext.parallelize(range(4), 2)
    assert numbers.mapPartitions(each_partition(found.executors, write)).collect() == [[], []]
    with S3kSyncClient(config=volume) as fs:
        assert {status.path for status in fs.list("/")} == {"/0", "/1", "/2", "/3"}


@dataclass(frozen=True)
class Arrived:
    """A broadcast variable in a task."""

    value: Any


def test_a_task_uses_what_the_driver_obtained_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if that expires earlier, or at an unknown time, and a repeated task has older ones."""
    monkeypatch.setattr(delegated_credentials, "_received", {})
    now = SYSTEM.now_ms()
    for issued, expires, used in ((2, now + 10**7, 2), (3, None, 3), (1, None, 3), (4, now, 4)):
        arrived: Any = Arrived((issued, str(issued), "secret", "token", expires))
        received = delegated_credentials._receive("identity", arrived)
        if expires != now:
            assert received.current().access_key_id.reveal() == str(used)
    with pytest.raises(CredentialsError, match="have expired"):
        received.current()
