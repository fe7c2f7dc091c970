"""Spark: the client in tasks, settings from the Spark configuration, jobs over whole volumes, a
data source.

    from s3k_async.spark import each_partition, spark_volume

    volume = spark_volume(spark, "s3k://analytics")
    moves = frame.rdd.mapPartitions(each_partition(volume.executors, rename))

    register(spark)                       # the data source: PySpark 4
    spark.read.format("s3k").load("s3k://analytics/warehouse/events")
    read_parquet(spark, "s3k://analytics/warehouse/events")     # the same for PySpark 3.5

Needs `pip install s3k-async[spark]`; importing `s3k_async` loads none of it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from s3k_async.spark.import_job import import_objects, objects_below, objects_of_inventory
from s3k_async.spark.job_report import JobReport, JobResult
from s3k_async.spark.listing_job import du, listing
from s3k_async.spark.purge_job import purge
from s3k_async.spark.rename_delete_jobs import delete_files, rename_files
from s3k_async.spark.settings import SparkVolume, spark_volume
from s3k_async.spark.worker_client import client, each_partition

if TYPE_CHECKING:
    from s3k_async.spark.dump_job import dump
    from s3k_async.spark.gc_job import GcReport, gc
    from s3k_async.spark.load_job import load
    from s3k_async.spark.reshard_job import reshard
    from s3k_async.spark.source import register
    from s3k_async.spark.source_functions import read_parquet, write_parquet

__all__ = [
    "GcReport",
    "JobReport",
    "JobResult",
    "SparkVolume",
    "client",
    "delete_files",
    "du",
    "dump",
    "each_partition",
    "gc",
    "import_objects",
    "listing",
    "load",
    "objects_below",
    "objects_of_inventory",
    "purge",
    "read_parquet",
    "register",
    "rename_files",
    "reshard",
    "spark_volume",
    "write_parquet",
]

_HOMES = {
    "GcReport": "s3k_async.spark.gc_job",
    "dump": "s3k_async.spark.dump_job",
    "gc": "s3k_async.spark.gc_job",
    "load": "s3k_async.spark.load_job",
    "read_parquet": "s3k_async.spark.source_functions",
    "register": "s3k_async.spark.source",
    "reshard": "s3k_async.spark.reshard_job",
    "write_parquet": "s3k_async.spark.source_functions",
}
"""What is loaded when it is asked for: PySpark 3.5 has no data sources, and most tasks read no
Parquet."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
