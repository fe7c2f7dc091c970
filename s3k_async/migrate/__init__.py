"""Migration: dump, load and reshard of tables; change of the layout; retirement of 1.0 volumes."""

from s3k_async.migrate.dump import DumpResult, dump_volume
from s3k_async.migrate.features import enable_features
from s3k_async.migrate.hot_location import add_hot_location
from s3k_async.migrate.layout_change import LayoutResult, change_layout
from s3k_async.migrate.load import LoadResult, load_volume
from s3k_async.migrate.reshard import ReshardResult, reshard_volume
from s3k_async.migrate.retirement import Retirement, retire_log

__all__ = [
    "DumpResult",
    "LayoutResult",
    "LoadResult",
    "ReshardResult",
    "Retirement",
    "add_hot_location",
    "change_layout",
    "dump_volume",
    "enable_features",
    "load_volume",
    "reshard_volume",
    "retire_log",
]
