"""What the object API returns: buckets, objects and pages of objects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Final

from s3k_async.attributes import NO_ATTRIBUTES, Attributes
from s3k_async.listing.batch_listing import RowList
from s3k_async.model import FileStatus, utc
from s3k_async.txn.upload_items import MultipartUpload

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "NOW",
    "UNCHANGED",
    "BucketInfo",
    "ObjectInfo",
    "ObjectPage",
    "TouchTime",
    "UploadInfo",
    "bucket_info",
    "object_info",
    "upload_info",
]


class TouchTime(Enum):
    """A modification time that is not given as a number."""

    NOW = "now"
    UNCHANGED = "unchanged"


NOW: Final = TouchTime.NOW
"""The time of the call."""
UNCHANGED: Final = TouchTime.UNCHANGED
"""The time that the object has."""


@dataclass(frozen=True, slots=True)
class BucketInfo:
    """A bucket. Times are epoch milliseconds, or `datetime` in UTC."""

    name: str
    created_ms: int
    """When the bucket was created."""
    uid: int | None = None
    """Id of the owner; None if it was never set."""
    objects: int | None = None
    """The number of its objects; None without statistics, as the following."""
    bytes: int | None = None
    """The size of its objects together."""
    newest_ms: int | None = None
    """The latest modification of an object; None if there is no object. A counter includes those
    of objects that were deleted, moved away or given an earlier time: `bucket_info(newest=True)`
    lists the bucket instead."""

    @property
    def created(self) -> datetime:
        """`created_ms` as a time in UTC."""
        return utc(self.created_ms)

    @property
    def newest(self) -> datetime | None:
        """`newest_ms` as a time in UTC."""
        return None if self.newest_ms is None else utc(self.newest_ms)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object at one version. Times are epoch milliseconds, or `datetime` in UTC."""

    bucket: str
    key: str
    size: int
    """Bytes."""
    created_ms: int
    """When the object was created; replacing or moving it keeps this time."""
    modified_ms: int
    """When its data was changed last."""
    version: int
    """Grows with every change of the object, including those of its name and attributes."""
    etag: str
    """The entity tag that the data store has given to the data; empty if there is none, as for
    objects that were changed in place."""
    checksum: str
    """`xxh128:` and 32 hex digits: XXH3 of 128 bits of the data; empty if it is not known."""
    attributes: Attributes = NO_ATTRIBUTES
    """Mode, owner, read-only and user metadata."""

    @property
    def created(self) -> datetime:
        """`created_ms` as a time in UTC."""
        return utc(self.created_ms)

    @property
    def modified(self) -> datetime:
        """`modified_ms` as a time in UTC."""
        return utc(self.modified_ms)

    @property
    def changed_ms(self) -> int:
        """When its data, attributes or metadata were changed last, or its modification time set:
        `modified_ms`, or the time that its attributes have if that is later."""
        return self.attributes.last_change(self.modified_ms)

    @property
    def changed(self) -> datetime:
        """`changed_ms` as a time in UTC."""
        return utc(self.changed_ms)


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """A page of a listing of objects."""

    objects: tuple[ObjectInfo, ...]
    """In the order of their keys, component by component."""
    token: str | None
    """The `after` of the next page; None at the end."""

    def to_arrow(self) -> pa.Table:
        """The objects as a table with a column for each field."""
        return self._rows().to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """The objects as a data frame with the columns of `to_arrow`. Raises ConfigError (pandas is
        not installed)."""
        return self._rows().to_pandas()

    def _rows(self) -> RowList[ObjectInfo]:
        return RowList(self.objects, ObjectInfo)


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """A pending multipart upload. Times are epoch milliseconds, or `datetime` in UTC."""

    id: str
    """By which any process can add parts, complete or abort it."""
    bucket: str
    key: str
    """Of the object that its completion creates or replaces."""
    started_ms: int
    expires_ms: int
    """When garbage collection may abort it."""
    attributes: Attributes | None = None
    """Those of the object; None: one that is replaced keeps its own."""

    @property
    def started(self) -> datetime:
        """`started_ms` as a time in UTC."""
        return utc(self.started_ms)

    @property
    def expires(self) -> datetime:
        """`expires_ms` as a time in UTC."""
        return utc(self.expires_ms)


def bucket_info(
    status: FileStatus,
    *,
    objects: int | None = None,
    size: int | None = None,
    newest_ms: int | None = None,
) -> BucketInfo:
    """The bucket at a directory of the root."""
    uid = status.attributes.uid
    return BucketInfo(status.path[1:], status.ctime_ms, uid, objects, size, newest_ms)


def object_info(status: FileStatus) -> ObjectInfo:
    """The object at a file."""
    bucket, _, key = status.path[1:].partition("/")
    return ObjectInfo(
        bucket,
        key,
        status.size,
        status.ctime_ms,
        status.mtime_ms,
        status.version,
        status.etag,
        status.checksum,
        status.attributes,
    )


def upload_info(upload: MultipartUpload) -> UploadInfo:
    """The upload of a record."""
    bucket, _, key = upload.path[1:].partition("/")
    times = upload.started_ms, upload.expires_ms
    return UploadInfo(upload.id, bucket, key, *times, upload.attributes)
