"""Spark: the client in tasks, settings from the Spark configuration, jobs over whole volumes, a data source.

    from s3k_async.spark import each_partition, spark_volume

    volume = spark_volume(spark, "s3k://analytics")
    moves = frame.rdd.mapPartitions(each_partition(volume.executors, rename))

Needs `pip install s3k-async[spark]`; importing `s3k_async` loads none of it.
"""

from s3k_async.spark.changing import delete_files, rename_files
from s3k_async.spark.executors import client, each_partition
from s3k_async.spark.importing import import_objects, objects_below, objects_of_inventory
from s3k_async.spark.listing import du, listing
from s3k_async.spark.purging import purge
from s3k_async.spark.reports import JobReport, JobResult
from s3k_async.spark.settings import SparkVolume, spark_volume

__all__ = [
    "JobReport",
    "JobResult",
    "SparkVolume",
    "client",
    "delete_files",
    "du",
    "each_partition",
    "import_objects",
    "listing",
    "objects_below",
    "objects_of_inventory",
    "purge",
    "rename_files",
    "spark_volume",
]
