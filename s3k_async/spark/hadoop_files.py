"""Files by path or URI, through Hadoop's FileSystem and with the configuration of the session."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

__all__ = ["exists", "hadoop_configuration", "hadoop_file"]


def hadoop_configuration(spark: SparkSession) -> Any:
    """The Hadoop configuration of a session, a Java object."""
    return spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - not public


def hadoop_file(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """FileSystem and Path of a file or directory, Java objects."""
    java: Any = spark.sparkContext._jvm  # noqa: SLF001 - not public
    path = java.org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(hadoop_configuration(spark)), path


def exists(spark: SparkSession, place: str) -> bool:
    """Whether a file or directory exists."""
    system, path = hadoop_file(spark, place)
    return bool(system.exists(path))
