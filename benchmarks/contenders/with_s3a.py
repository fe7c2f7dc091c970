"""Hadoop's S3A in a JVM. A directory is a prefix: renaming it copies and deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engines.process import Engine

__all__ = ["S3a", "s3a_jvm", "s3a_settings"]

S3A = "org.apache.hadoop:hadoop-aws:3.5.0"
"""Of the Hadoop that PySpark 4.3 has."""


def s3a_settings(data: Engine) -> dict[str, str]:
    """Settings of a Spark session with S3A on an engine."""
    return _packages() | {f"spark.hadoop.{name}": value for name, value in _hadoop(data).items()}


def _packages() -> dict[str, str]:
    """S3A is fetched from Maven Central, once, into `.engines/ivy` (1.3 GB)."""
    return {
        "spark.jars.packages": S3A,
        "spark.jars.ivy": str(Path(".engines/ivy").absolute()),
    }


def _hadoop(data: Engine) -> dict[str, str]:
    return {
        "fs.s3a.endpoint": data.endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }


@contextmanager
def s3a_jvm() -> Iterator[Any]:
    """PySpark's JVM with S3A, without a session of Spark: nothing else works in it."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    settings = SparkConf(loadDefaults=False)
    settings.setAll(list({**_packages(), "spark.driver.memory": "2g"}.items()))
    gateway: Any = launch_gateway(settings)  # type: ignore[no-untyped-call]
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which it ends
        gateway.proc.wait()


class S3a:
    """A bucket as a filesystem, called from a thread."""

    def __init__(self, jvm: Any, data: Engine, bucket: str) -> None:
        self._jvm = jvm
        settings = jvm.org.apache.hadoop.conf.Configuration()
        credentials = {
            "fs.s3a.access.key": data.access_key,
            "fs.s3a.secret.key": data.secret_key,
        }
        for name, value in (_hadoop(data) | credentials).items():
            settings.set(name, value)
        place = jvm.java.net.URI(f"s3a://{bucket}/")
        self._fs = jvm.org.apache.hadoop.fs.FileSystem.newInstance(place, settings)

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
