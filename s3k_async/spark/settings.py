"""Volumes from the configuration of a Spark session: the keys of S3-FileSystem 1.0 below `spark.hadoop.`.

S3-FileSystem 1.0 takes its context from the Java property `fs.s3k.metastore.context.id`, which the driver and the
executors may be given differently (`spark.driver.extraJavaOptions`, `spark.executor.extraJavaOptions`); so a volume has
a configuration for each.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from s3k_async.config import VolumeConfig
from s3k_async.settings import resolve
from s3k_async.settings.hadoop_mapping import CONTEXT_KEY

__all__ = ["SparkVolume", "hadoop_settings", "spark_volume"]

PREFIXES = ("fs.s3k.", "fs.s3a.")
DRIVER_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
EXECUTOR_OPTIONS = ("spark.executor.defaultJavaOptions", "spark.executor.extraJavaOptions")


@dataclass(frozen=True, slots=True)
class SparkVolume:
    """A volume as the driver opens it, and as tasks do. Pickled, both are without secrets, which are looked for anew
    where they are used."""

    driver: VolumeConfig
    executors: VolumeConfig


def hadoop_settings(spark: SparkSession) -> dict[str, str]:
    """What the session's Hadoop configuration says of S3K and S3A, files of the cluster included."""
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    return {
        prefix + name: value
        for prefix in PREFIXES
        for name, value in dict(configuration.getPropsWithPrefix(prefix)).items()
    }


def spark_volume(
    spark: SparkSession, volume: str | VolumeConfig | SparkVolume, *, context: str | None = None, **settings: Any
) -> SparkVolume:
    """A volume by the session's configuration; `volume` and `settings` are those of `S3kClient`.

    `context`: for driver and executors, in the place of what their Java options say. A configuration is taken as it
    is. Raises ConfigError.
    """
    if isinstance(volume, SparkVolume):
        return volume
    if isinstance(volume, VolumeConfig):
        return SparkVolume(volume, volume)
    mapping = hadoop_settings(spark)

    def config(options: tuple[str, ...]) -> VolumeConfig:
        said = context or _context(dict(spark.sparkContext.getConf().getAll()), options)
        return resolve(volume, hadoop=mapping, context=said, **settings)

    return SparkVolume(config(DRIVER_OPTIONS), config(EXECUTOR_OPTIONS))


def _context(configuration: Mapping[str, str], options: tuple[str, ...]) -> str | None:
    """The context that Java options define; the last one counts, as Java has it."""
    found = None
    for option in options:
        for word in shlex.split(configuration.get(option, "")):
            if word.startswith(f"-D{CONTEXT_KEY}="):
                found = word.partition("=")[2]
    return found
