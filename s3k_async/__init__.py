"""A filesystem for data pipelines: the tree in DynamoDB or SQLite, the bytes in S3 or a directory.

Importing this loads nothing; everything comes with its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from s3k_async import errors as errors
    from s3k_async.client import S3kClient
    from s3k_async.config import Tuning, VolumeConfig
    from s3k_async.errors import *  # noqa: F403
    from s3k_async.hadoop import HadoopFileSystem
    from s3k_async.metadata.jobs import JobRecord
    from s3k_async.model import (
        ChangeResult,
        ContentSummary,
        FileStatus,
        ManyResult,
        Progress,
        StagedFile,
    )
    from s3k_async.physical_files import PhysicalFile
    from s3k_async.sync import S3kSyncClient
    from s3k_async.volumes import destroy_volume, init_volume

    __version__: str

    __all__ = [  # noqa: PLE0604
        "ChangeResult",
        "ContentSummary",
        "FileStatus",
        "ManyResult",
        "HadoopFileSystem",
        "JobRecord",
        "PhysicalFile",
        "Progress",
        "S3kClient",
        "S3kSyncClient",
        "StagedFile",
        "Tuning",
        "VolumeConfig",
        "destroy_volume",
        "init_volume",
        *errors.__all__,
    ]

_VALUES = ("ChangeResult", "ContentSummary", "FileStatus", "ManyResult", "Progress", "StagedFile")
_HOMES = dict.fromkeys(_VALUES, "s3k_async.model") | {
    "HadoopFileSystem": "s3k_async.hadoop",
    "JobRecord": "s3k_async.metadata.jobs",
    "PhysicalFile": "s3k_async.physical_files",
    "S3kClient": "s3k_async.client",
    "S3kSyncClient": "s3k_async.sync",
    "Tuning": "s3k_async.config",
    "VolumeConfig": "s3k_async.config",
    "destroy_volume": "s3k_async.volumes",
    "init_volume": "s3k_async.volumes",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("s3k-async")
    if name == "errors":
        return importlib.import_module("s3k_async.errors")
    home = _HOMES.get(name)
    if home is not None:
        return getattr(importlib.import_module(home), name)
    names = (
        importlib.import_module("s3k_async.errors").__all__
        if name == "__all__" or name[:1].isupper()
        else ()
    )
    if name == "__all__":
        return sorted([*_HOMES, *names])
    if name in names:
        return getattr(importlib.import_module("s3k_async.errors"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "__all__", "errors", *__getattr__("__all__")})
