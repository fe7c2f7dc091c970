"""Settings of volumes from a Spark configuration: the keys of S3-FileSystem 1.0 below
`spark.hadoop.`.

S3-FileSystem 1.0 takes its context from the Java property `fs.s3k.metastore.context.id`, which the
driver and the executors may be given differently (`spark.driver.extraJavaOptions`,
`spark.executor.extraJavaOptions`); so a volume has one configuration for the driver and one for the
executors.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

from pyspark.sql import SparkSession

from s3k_async.config import VolumeConfig
from s3k_async.namespace.addresses import Path
from s3k_async.settings import resolve
from s3k_async.settings.hadoop_mapping import CONTEXT_KEY
from s3k_async.settings.keywords import Settings
from s3k_async.spark.delegated_credentials import delegating
from s3k_async.spark.hadoop_files import hadoop_configuration

__all__ = [
    "SparkSettings",
    "SparkVolume",
    "hadoop_settings",
    "patient",
    "spark_settings",
    "spark_volume",
    "with_credentials",
]

PREFIXES = ("fs.s3k.", "fs.s3a.")
DRIVER_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
EXECUTOR_OPTIONS = ("spark.executor.defaultJavaOptions", "spark.executor.extraJavaOptions")
SECRET_KEY = re.compile(
    r"fs\.s3k\.(.*[.-])?(access|secret|token|password|key)\..*"
    r"|fs\.s3a\.(.*[.-])?(access|secret|token|password|key)(\..*)?"
)
"""Keys whose values stay on the driver. The name of a KMS key is no secret and is excepted."""
KMS_KEY = re.compile(r"arn:[a-z-]+:kms:.*|alias/.*|(mrk-)?[0-9a-f-]{32,36}")
SPARK_DEFAULTS = "Set by Spark to default values"
"""Spark's name for the source of a property that Spark itself sets as a default."""
PATIENCE = 300.0
"""Minimum seconds that a job waits for entries that other clients are changing. A dead attempt of a
task holds entries until its lease expires, a live one until it has finished."""


@dataclass(frozen=True, slots=True)
class SparkVolume:
    """A volume as the driver opens it, and as tasks do. Pickled, both are without secrets, which
    are resolved again where they are used."""

    driver: VolumeConfig
    executors: VolumeConfig


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings in the configuration of a session."""

    hadoop: Mapping[str, str]
    """In the keys of S3-FileSystem 1.0 and S3A."""
    driver_context: str | None
    executor_context: str | None

    def volume(
        self,
        volume: str | VolumeConfig | SparkVolume | None,
        *,
        config: Path | None = None,
        context: str | None = None,
        **settings: Unpack[Settings],
    ) -> SparkVolume:
        """As `spark_volume`."""
        if isinstance(volume, SparkVolume):
            return volume
        if isinstance(volume, VolumeConfig):
            return SparkVolume(volume, volume)
        driver, executors = (
            resolve(volume, config=config, hadoop=self.hadoop, context=each, **settings)
            for each in (context or self.driver_context, context or self.executor_context)
        )
        return SparkVolume(driver, executors)

    def without_secrets(self) -> SparkSettings:
        """The configuration in the form in which it may be shipped."""
        shown = {
            name: value
            for name, value in self.hadoop.items()
            if not SECRET_KEY.fullmatch(name) or ("encryption" in name and KMS_KEY.fullmatch(value))
        }
        return SparkSettings(shown, self.driver_context, self.executor_context)


def hadoop_settings(spark: SparkSession) -> dict[str, str]:
    """The S3K and S3A properties of the session's Hadoop configuration, including cluster files.

    Defaults of Hadoop and Spark are excluded: they are not set on purpose, and would take
    precedence over settings for all services.
    """
    configuration = hadoop_configuration(spark)
    return {
        name: value
        for prefix in PREFIXES
        for name, value in _with_prefix(configuration, prefix)
        if not _is_default(configuration.getPropertySources(name))
    }


def _with_prefix(configuration: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in dict(configuration.getPropsWithPrefix(prefix)).items():
        yield prefix + name, value


def _is_default(sources: Sequence[str] | None) -> bool:
    """Whether the value of a property comes from a file of defaults, or from Spark's own
    default."""
    last = sources[-1] if sources else ""
    return last.endswith("-default.xml") or last == SPARK_DEFAULTS


def spark_settings(spark: SparkSession) -> SparkSettings:
    """The settings in the configuration of a session."""
    found = dict(spark.sparkContext.getConf().getAll())
    return SparkSettings(
        hadoop_settings(spark), _context(found, DRIVER_OPTIONS), _context(found, EXECUTOR_OPTIONS)
    )


def spark_volume(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    *,
    config: Path | None = None,
    context: str | None = None,
    **settings: Unpack[Settings],
) -> SparkVolume:
    """A volume by the session's configuration; `volume`, `config` and
    `settings` are those of `S3kClient`.

    `context`: for driver and executors, instead of that in their Java options. A configuration is
    used unchanged. With `delegate_credentials`, `executors` is for tasks of this session only.
    Raises ConfigError and the errors of `temporary_credentials`.
    """
    found = spark_settings(spark).volume(volume, config=config, context=context, **settings)
    return with_credentials(spark, found)


def with_credentials(spark: SparkSession, volume: SparkVolume) -> SparkVolume:
    """The volume; with `delegate_credentials`, its tasks get credentials of the driver."""
    executors = delegating(spark, volume.executors)
    return volume if executors is volume.executors else replace(volume, executors=executors)


def patient(volume: SparkVolume) -> SparkVolume:
    """The configuration with which a job opens a volume to change it."""

    def waiting(config: VolumeConfig) -> VolumeConfig:
        tuning = config.tuning
        return replace(
            config, tuning=replace(tuning, busy_timeout=max(tuning.busy_timeout, PATIENCE))
        )

    return SparkVolume(waiting(volume.driver), waiting(volume.executors))


def _context(configuration: Mapping[str, str], options: tuple[str, ...]) -> str | None:
    """The context that Java options define; the last one counts, as in Java."""
    found = None
    for option in options:
        for word in shlex.split(configuration.get(option, "")):
            if word.startswith(f"-D{CONTEXT_KEY}="):
                found = word.partition("=")[2]
    return found
