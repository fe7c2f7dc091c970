"""The Hadoop-shaped surface: Hadoop's method names, return values and rename rules over the client.

All other behaviour is the client's. Every deviation from the contract of Hadoop's `FileSystem` is
listed, with its test, in `docs/hadoop-deviations.md`.
"""

from __future__ import annotations

from s3k_async.adapters.hadoop.builders import CreateFlag, OpenFileBuilder, OutputStreamBuilder
from s3k_async.adapters.hadoop.file_attributes import FsAction, XAttrSetFlag
from s3k_async.adapters.hadoop.filesystem import HadoopFileSystem, PathFilter
from s3k_async.adapters.hadoop.status import (
    BlockLocation,
    HadoopContentSummary,
    HadoopFileStatus,
    HadoopLocatedFileStatus,
)
from s3k_async.adapters.hadoop.streams import HadoopInputStream, HadoopOutputStream

__all__ = [
    "BlockLocation",
    "CreateFlag",
    "FsAction",
    "HadoopContentSummary",
    "HadoopFileStatus",
    "HadoopFileSystem",
    "HadoopInputStream",
    "HadoopLocatedFileStatus",
    "HadoopOutputStream",
    "OpenFileBuilder",
    "OutputStreamBuilder",
    "PathFilter",
    "XAttrSetFlag",
]
