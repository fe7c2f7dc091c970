"""Tables that move: dumped to a file, loaded from one, resharded."""

from s3k_async.moving.dump import DumpResult, dump_volume
from s3k_async.moving.load import LoadResult, load_volume
from s3k_async.moving.reshard import ReshardResult, reshard_volume

__all__ = ["DumpResult", "LoadResult", "ReshardResult", "dump_volume", "load_volume", "reshard_volume"]
