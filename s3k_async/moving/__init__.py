"""Tables that move: dumped to a file, loaded from one, resharded; volumes of S3-FileSystem 1.0 that
are retired."""

from s3k_async.moving.dump import DumpResult, dump_volume
from s3k_async.moving.load import LoadResult, load_volume
from s3k_async.moving.reshard import ReshardResult, reshard_volume
from s3k_async.moving.retirement import Retirement, retire_log

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
