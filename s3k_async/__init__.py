"""A filesystem for data pipelines: the tree in DynamoDB or SQLite, the bytes in S3 or a directory.

Importing this loads nothing; everything comes with its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from s3k_async import errors as errors
    from s3k_async._core.metering import Count, Part, RequestCounter, Requests
    from s3k_async._core.observation import (
        Metrics,
        Outcome,
        RequestAttempt,
        RequestResult,
        VerbCall,
        VerbResult,
    )
    from s3k_async._core.retry import Retries, RetryBudget, RetryPolicy
    from s3k_async._sync.sync_batch_listing import SyncBatchListing, SyncRowListing
    from s3k_async._sync.sync_client import S3kSyncClient
    from s3k_async._sync.sync_files import SyncFileReader, SyncFileWriter, SyncStagedWriter
    from s3k_async._sync.sync_transaction import SyncTransaction
    from s3k_async._sync.sync_trash import SyncTrash
    from s3k_async.attributes import Attributes
    from s3k_async.backends.aws.credential_source import CredentialSource, TemporaryCredentials
    from s3k_async.backends.ports.blobs import Buffer
    from s3k_async.backends.ports.presigning import PresignedMethod, PresignedUrl
    from s3k_async.bulk.file_versions import FileVersion, VersionState
    from s3k_async.bulk.point_in_time import PastChange, PastChangeKind, PastResult
    from s3k_async.bulk.publish import ProgressCallback
    from s3k_async.bulk.staged_uploads import StagedWriter
    from s3k_async.bulk.trash import Trash
    from s3k_async.client import S3kClient
    from s3k_async.config import (
        AlertPolicy,
        AlertSettings,
        AwsConfig,
        BlobLocation,
        DynamoTable,
        LocalDirectory,
        LogMode,
        MemoryBlobs,
        MemoryTable,
        S3Bucket,
        Secret,
        SqliteFile,
        StorageClass,
        StreamView,
        TableLocation,
        TableOptions,
        Tuning,
        VolumeConfig,
    )
    from s3k_async.errors import *  # noqa: F403
    from s3k_async.files.open_files import FileReader, FileWriter, Opening
    from s3k_async.lifecycle_rules import ActionKind, DueAction, LifecycleRule, RulesResult
    from s3k_async.listing.batch_listing import BatchListing, RowList, RowListing
    from s3k_async.listing.listings import EntryType, Walked, arrow_schema
    from s3k_async.listing.physical_files import PhysicalFile
    from s3k_async.model import (
        CacheStatistics,
        ChangeResult,
        Content,
        ContentSummary,
        Failure,
        Feature,
        FileStatus,
        FillStatistics,
        HashName,
        LayoutName,
        Progress,
        StagedFile,
        TrashItem,
        VolumeKind,
    )
    from s3k_async.namespace.addresses import Path
    from s3k_async.settings.keywords import Settings
    from s3k_async.storage_space import StorageInfo, StorageSpace
    from s3k_async.transaction import Transaction
    from s3k_async.txn.txn_record import TransactionKind, TransactionRecord, TransactionState
    from s3k_async.volumes.facade import destroy_volume, init_volume
    from s3k_async.volumes.volume_health import Component, ComponentHealth, VolumeHealth

    __version__: str

    __all__ = [  # noqa: PLE0604
        "ActionKind",
        "Attributes",
        "AlertPolicy",
        "AlertSettings",
        "AwsConfig",
        "BatchListing",
        "BlobLocation",
        "Buffer",
        "CacheStatistics",
        "ChangeResult",
        "Component",
        "ComponentHealth",
        "Content",
        "ContentSummary",
        "Count",
        "CredentialSource",
        "DynamoTable",
        "DueAction",
        "EntryType",
        "Failure",
        "Feature",
        "FileReader",
        "FileStatus",
        "FillStatistics",
        "FileVersion",
        "FileWriter",
        "HashName",
        "LayoutName",
        "LifecycleRule",
        "TemporaryCredentials",
        "TransactionKind",
        "TransactionState",
        "LocalDirectory",
        "LogMode",
        "MemoryBlobs",
        "MemoryTable",
        "Metrics",
        "Opening",
        "Outcome",
        "Part",
        "Path",
        "PastChange",
        "PastChangeKind",
        "PastResult",
        "PhysicalFile",
        "PresignedMethod",
        "PresignedUrl",
        "Progress",
        "ProgressCallback",
        "RequestAttempt",
        "RequestCounter",
        "RequestResult",
        "Requests",
        "Retries",
        "RetryBudget",
        "RetryPolicy",
        "RowList",
        "RowListing",
        "RulesResult",
        "S3Bucket",
        "S3kClient",
        "S3kSyncClient",
        "Secret",
        "Settings",
        "SqliteFile",
        "StagedFile",
        "StagedWriter",
        "StorageClass",
        "StorageInfo",
        "StorageSpace",
        "StreamView",
        "SyncBatchListing",
        "SyncFileReader",
        "SyncFileWriter",
        "SyncRowListing",
        "SyncStagedWriter",
        "SyncTransaction",
        "SyncTrash",
        "TableLocation",
        "TableOptions",
        "Transaction",
        "TransactionRecord",
        "Trash",
        "TrashItem",
        "Tuning",
        "VerbCall",
        "VerbResult",
        "VolumeConfig",
        "VersionState",
        "VolumeHealth",
        "VolumeKind",
        "Walked",
        "arrow_schema",
        "destroy_volume",
        "init_volume",
        *errors.__all__,
    ]

_NAMES: Final = {
    "attributes": "Attributes",
    "namespace.addresses": "Path",
    "client": "S3kClient",
    "backends.aws.credential_source": "CredentialSource TemporaryCredentials",
    "config": (
        "AlertPolicy AlertSettings AwsConfig BlobLocation DynamoTable LocalDirectory LogMode "
        "MemoryBlobs MemoryTable S3Bucket Secret SqliteFile StorageClass StreamView TableLocation "
        "TableOptions Tuning VolumeConfig"
    ),
    "files.open_files": "FileReader FileWriter Opening",
    "lifecycle_rules": "ActionKind DueAction LifecycleRule RulesResult",
    "listing.batch_listing": "BatchListing RowList RowListing",
    "listing.listings": "EntryType Walked arrow_schema",
    "txn.txn_record": "TransactionKind TransactionState TransactionRecord",
    "model": (
        "CacheStatistics ChangeResult Content ContentSummary Failure Feature FileStatus "
        "FillStatistics HashName LayoutName Progress StagedFile TrashItem VolumeKind"
    ),
    "listing.physical_files": "PhysicalFile",
    "bulk.point_in_time": "PastChange PastChangeKind PastResult",
    "bulk.publish": "ProgressCallback",
    "bulk.file_versions": "FileVersion VersionState",
    "_core.observation": ("Metrics Outcome RequestAttempt RequestResult VerbCall VerbResult"),
    "_core.metering": "Count Part RequestCounter Requests",
    "_core.retry": "Retries RetryBudget RetryPolicy",
    "settings.keywords": "Settings",
    "bulk.staged_uploads": "StagedWriter",
    "storage_space": "StorageInfo StorageSpace",
    "backends.ports.blobs": "Buffer",
    "backends.ports.presigning": "PresignedMethod PresignedUrl",
    "_sync.sync_batch_listing": "SyncBatchListing SyncRowListing",
    "_sync.sync_client": "S3kSyncClient",
    "_sync.sync_files": "SyncFileReader SyncFileWriter SyncStagedWriter",
    "_sync.sync_transaction": "SyncTransaction",
    "_sync.sync_trash": "SyncTrash",
    "transaction": "Transaction",
    "bulk.trash": "Trash",
    "volumes.facade": "destroy_volume init_volume",
    "volumes.volume_health": "Component ComponentHealth VolumeHealth",
}
"""Public names by module; those of `errors` are its `__all__`."""
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("s3k-async")
    if name == "errors":
        return importlib.import_module("s3k_async.errors")
    home = _HOMES.get(name)
    if home is not None:
        return getattr(importlib.import_module(f"s3k_async.{home}"), name)
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
