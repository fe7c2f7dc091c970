"""Hadoop's S3A, in the JVM of a Spark session. A directory is a prefix: renaming it copies and
deletes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.engines.process import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["S3a", "s3a_settings"]

S3A = "org.apache.hadoop:hadoop-aws:3.5.0"
"""Of the Hadoop that PySpark 4.3 has."""


def s3a_settings(data: Engine) -> dict[str, str]:
    """Settings of a session with S3A on an engine. It is fetched from Maven Central, once, into
    `.engines/ivy` (1.3 GB)."""
    return {
        "spark.jars.packages": S3A,
        "spark.jars.ivy": str(Path(".engines/ivy").absolute()),
        **{f"spark.hadoop.{name}": value for name, value in _hadoop(data).items()},
    }


def _hadoop(data: Engine) -> dict[str, str]:
    return {
        "fs.s3a.endpoint": data.endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }


class S3a:
    """A bucket as a filesystem, called from a thread."""

    def __init__(self, spark: SparkSession, data: Engine, bucket: str) -> None:
        gateway: Any = spark
        self._jvm = gateway._jvm
        settings = self._jvm.org.apache.hadoop.conf.Configuration(
            gateway._jsc.hadoopConfiguration()
        )
        credentials = {
            "fs.s3a.access.key": data.access_key,
            "fs.s3a.secret.key": data.secret_key,
        }
        for name, value in (_hadoop(data) | credentials).items():
            settings.set(name, value)
        place = self._jvm.java.net.URI(f"s3a://{bucket}/")
        self._fs = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(place, settings)

    async def close(self) -> None:
        """Close its connections."""
        await asyncio.to_thread(self._fs.close)

    async def list(self, path: str) -> int:
        """How many entries a directory has."""
        return len(await asyncio.to_thread(self._fs.listStatus, self._path(path)))

    async def rename(self, path: str, target: str) -> None:
        """Move a directory to where nothing is."""
        if not await asyncio.to_thread(self._fs.rename, self._path(path), self._path(target)):
            raise AssertionError(f"S3A has not renamed {path}")

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)
