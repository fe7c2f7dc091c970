"""Migration: dump, load and reshard of tables; retirement of S3-FileSystem 1.0 volumes."""

from s3k_async.migrate.dump import DumpResult, dump_volume
from s3k_async.migrate.load import LoadResult, load_volume
from s3k_async.migrate.reshard import ReshardResult, reshard_volume
from s3k_async.migrate.retirement import Retirement, retire_log

__all__ = [
    "DumpResult",
    "LoadResult",
    "ReshardResult",
    "Retirement",
    "dump_volume",
    "load_volume",
    "reshard_volume",
    "retire_log",
]
