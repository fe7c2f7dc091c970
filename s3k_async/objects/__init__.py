"""The files of a volume as objects in buckets: `ObjectStore`, and blocking `SyncObjectStore`.

docs/objects.md describes the interface, and compares it with that of H3.
"""

from __future__ import annotations

from s3k_async.attributes import Attributes
from s3k_async.errors import MetadataNotFoundError, NameTooLongError, UploadNotFoundError
from s3k_async.errors import PathExistsError as AlreadyExists
from s3k_async.lifecycle_rules import LifecycleRule
from s3k_async.objects.local_bytes import BinarySource, BinaryTarget, Source, Target
from s3k_async.objects.object_info import (
    NOW,
    UNCHANGED,
    BucketInfo,
    ObjectInfo,
    ObjectPage,
    TouchTime,
    UploadInfo,
)
from s3k_async.objects.object_store import ObjectStore
from s3k_async.objects.sync_store import SyncObjectStore
from s3k_async.txn.upload_items import PartInfo

__all__ = [
    "NOW",
    "UNCHANGED",
    "AlreadyExists",
    "Attributes",
    "BinarySource",
    "BinaryTarget",
    "BucketInfo",
    "LifecycleRule",
    "MetadataNotFoundError",
    "NameTooLongError",
    "ObjectInfo",
    "ObjectPage",
    "ObjectStore",
    "PartInfo",
    "Source",
    "SyncObjectStore",
    "Target",
    "TouchTime",
    "UploadInfo",
    "UploadNotFoundError",
]
