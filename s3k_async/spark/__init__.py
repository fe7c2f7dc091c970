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

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from s3k_async.spark.dump_job import dump as dump
    from s3k_async.spark.gc_job import GcReport as GcReport
    from s3k_async.spark.gc_job import gc as gc
    from s3k_async.spark.import_job import import_objects as import_objects
    from s3k_async.spark.import_job import objects_below as objects_below
    from s3k_async.spark.import_job import objects_of_inventory as objects_of_inventory
    from s3k_async.spark.job_report import JobReport as JobReport
    from s3k_async.spark.job_report import JobResult as JobResult
    from s3k_async.spark.listing_job import du as du
    from s3k_async.spark.listing_job import listing as listing
    from s3k_async.spark.load_job import load as load
    from s3k_async.spark.purge_job import purge as purge
    from s3k_async.spark.rename_delete_jobs import delete_files as delete_files
    from s3k_async.spark.rename_delete_jobs import rename_files as rename_files
    from s3k_async.spark.reshard_job import reshard as reshard
    from s3k_async.spark.settings import SparkVolume as SparkVolume
    from s3k_async.spark.settings import spark_volume as spark_volume
    from s3k_async.spark.source import register as register
    from s3k_async.spark.source_functions import read_parquet as read_parquet
    from s3k_async.spark.source_functions import write_parquet as write_parquet
    from s3k_async.spark.worker_client import client as client
    from s3k_async.spark.worker_client import each_partition as each_partition

_NAMES: Final = {
    "dump_job": "dump",
    "gc_job": "GcReport gc",
    "import_job": "import_objects objects_below objects_of_inventory",
    "job_report": "JobReport JobResult",
    "listing_job": "du listing",
    "load_job": "load",
    "purge_job": "purge",
    "rename_delete_jobs": "delete_files rename_files",
    "reshard_job": "reshard",
    "settings": "SparkVolume spark_volume",
    "source": "register",
    "source_functions": "read_parquet write_parquet",
    "worker_client": "client each_partition",
}
"""Public names by module. A module is imported when one of its names is used: PySpark 3.5 has no
data sources, and a task needs few modules."""
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
