"""The Hadoop-shaped surface: Hadoop's method names, return values and rename rules over the client.

What a method does beyond that is the client's. Every deviation from the contract of Hadoop's
`FileSystem` is listed, with its test, in `docs/hadoop-deviations.md`.
"""

from __future__ import annotations

from s3k_async.hadoop.builders import CreateFlag
from s3k_async.hadoop.filesystem import HadoopFileSystem, PathFilter

__all__ = ["CreateFlag", "HadoopFileSystem", "PathFilter"]
