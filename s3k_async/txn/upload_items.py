"""Items of multipart uploads and their parts: keys, formats, values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias, cast, get_args

from s3k_async.attributes import Attributes
from s3k_async.backends.ports.items import OPERATION, PARTITION, SORT, Item, Key, Value
from s3k_async.errors import ItemFormatError
from s3k_async.model import Content, utc

__all__ = [
    "COMPLETION",
    "ENDED",
    "STATE",
    "UPLOAD_ID",
    "UPLOAD_PREFIXES",
    "MultipartUpload",
    "PartInfo",
    "UploadState",
    "check_upload_item",
    "is_part_partition",
    "is_upload_partition",
    "part_from",
    "part_item",
    "part_key",
    "record_partitions",
    "upload_from",
    "upload_id_of",
    "upload_item",
    "upload_key",
]

_PREFIX: Final = "s3k:upload"
_RECORDS: Final = f"{_PREFIX}-sf"
"""Followed by the number of a partition."""
_PARTS: Final = f"{_PREFIX}/"
"""Followed by the id of an upload, all of whose parts are in the partition."""
UPLOAD_PREFIXES: Final = (_RECORDS, _PARTS)
"""How the partitions of uploads and their parts begin."""
_HEX: Final = "0123456789abcdef"
"""The first digit of an id gives the partition of its record: so the partitions, one after the
other, are in the order of the ids."""
UPLOAD_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_DIGITS: Final = 10
"""Of the number of a part, in the sort key of its item."""
COMPLETION: Final = "completion"
STATE: Final = "state"
_ATTRIBUTES: Final = "attrs"
_BUCKET: Final = "bucket"

UploadState: TypeAlias = Literal["open", "completed", "aborted"]
ENDED: Final = frozenset(get_args(UploadState)) - {"open"}
"""The states of an upload that can neither get parts nor be published."""


@dataclass(frozen=True, slots=True)
class MultipartUpload:
    """A multipart upload. Times are epoch milliseconds."""

    id: str
    """The object id of the file to be."""
    path: str
    """Where the file is published."""
    started_ms: int
    expires_ms: int
    """When garbage collection may abort the upload, if it is open."""
    state: UploadState = "open"
    completion: str = ""
    """The token of the last completion that has begun, unless a part was stored since."""
    operation: str = ""
    """The id of the last write of the record."""
    attributes: Attributes | None = None
    """Those of the file; None: a file that is replaced keeps its own."""
    bucket: str = ""
    """The object id of the directory of the root that was its bucket at the start; empty for an
    upload of a file, and for one of a client of former versions."""

    @property
    def started(self) -> datetime:
        """`started_ms` as a time in UTC."""
        return utc(self.started_ms)

    @property
    def expires(self) -> datetime:
        """`expires_ms` as a time in UTC."""
        return utc(self.expires_ms)

    @property
    def is_open(self) -> bool:
        """Whether it was neither completed nor aborted."""
        return self.state == "open"

    def is_of(self, directory: str, object_id: str) -> bool:
        """Whether its bucket is the directory with this object id. Without a recorded bucket, one
        at the start of its path is."""
        return self.bucket == object_id if self.bucket else self.path.startswith(f"{directory}/")


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A stored part of a multipart upload."""

    number: int
    content: Content
    modified_ms: int
    """When it was stored, epoch milliseconds."""
    operation: str = ""
    """The id of the write of its item."""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.content.size

    @property
    def etag(self) -> str:
        """The entity tag of its object; empty if it has several."""
        return self.content.etag

    @property
    def checksum(self) -> str:
        """As `Content.checksum`; empty if it is not known."""
        return self.content.checksum

    @property
    def modified(self) -> datetime:
        """`modified_ms` as a time in UTC."""
        return utc(self.modified_ms)


def is_upload_partition(partition: str) -> bool:
    """Whether a partition holds records of uploads or of parts."""
    return partition.startswith(UPLOAD_PREFIXES)


def is_part_partition(partition: str) -> bool:
    """Whether a partition holds records of parts."""
    return partition.startswith(_PARTS)


def upload_key(upload_id: str) -> Key:
    """The key of an upload's record. Raises ValueError for a text that is no id."""
    if UPLOAD_ID.fullmatch(upload_id) is None:
        raise ValueError(f"{upload_id!r} is not the id of an upload")
    return Key(f"{_RECORDS}{int(upload_id[0], 16)}", upload_id)


def record_partitions(after: str = "") -> list[str]:
    """The partitions of records, in the order of their ids, from that of the id `after` on."""
    first = max(0, _HEX.find(after[:1])) if after else 0
    return [f"{_RECORDS}{number}" for number in range(first, len(_HEX))]


def part_key(upload_id: str, number: int) -> Key:
    """The key of the item of a part."""
    return Key(f"{_PARTS}{upload_id}", f"{number:0{_DIGITS}}")


def upload_id_of(item: Item) -> str:
    """The id of the upload that an item of these partitions belongs to."""
    partition = str(item[PARTITION])
    return partition.removeprefix(_PARTS) if is_part_partition(partition) else str(item[SORT])


def check_upload_item(item: Item) -> None:
    """Raise ItemFormatError for an unreadable item of these partitions."""
    (part_from if is_part_partition(str(item[PARTITION])) else upload_from)(item)


def upload_from(item: Item) -> MultipartUpload:
    """The upload that an item holds. Raises ItemFormatError."""
    state = _text(item, STATE)
    identity = _text(item, SORT)
    if state not in get_args(UploadState):
        raise _damaged(item, f"state {state!r}")
    if UPLOAD_ID.fullmatch(identity) is None or upload_key(identity).partition != item[PARTITION]:
        raise _damaged(item, "its key is not that of an upload")
    return MultipartUpload(
        id=identity,
        path=_text(item, "file"),
        started_ms=_number(item, "started"),
        expires_ms=_number(item, "expires"),
        state=cast("UploadState", state),
        completion=_text(item, COMPLETION),
        operation=_text(item, OPERATION),
        attributes=_attributes(item),
        bucket=_text(item, _BUCKET),
    )


def part_from(item: Item) -> PartInfo:
    """The part that an item holds. Raises ItemFormatError."""
    number = _text(item, SORT)
    if len(number) != _DIGITS or not (number.isascii() and number.isdecimal()):
        raise _damaged(item, "its key is not that of a part")
    physical = _text(item, "physpath")
    if not physical:
        raise _damaged(item, "it has no data")
    return PartInfo(
        int(number),
        Content(physical, _number(item, "size"), _text(item, "etag"), _text(item, "sum")),
        _number(item, "mtime"),
        _text(item, OPERATION),
    )


def _text(item: Item, name: str) -> str:
    value = item.get(name, "")
    if not isinstance(value, str):
        raise _damaged(item, f"{name!r} is no text")
    return value


def _attributes(item: Item) -> Attributes | None:
    try:
        return Attributes.from_json(_text(item, _ATTRIBUTES)) if _ATTRIBUTES in item else None
    except ItemFormatError as error:
        raise _damaged(item, error.message) from error


def _number(item: Item, name: str) -> int:
    value = item.get(name)
    if type(value) is not int or value < 0:
        raise _damaged(item, f"{name!r} is no number")
    return value


def _damaged(item: Item, reason: str) -> ItemFormatError:
    return ItemFormatError(
        f"a damaged record of a multipart upload: {reason} (s3k fsck repair puts it into "
        "quarantine)",
        path=f"{item.get(PARTITION)} / {item.get(SORT)}",
    )


def part_item(upload_id: str, part: PartInfo) -> Item:
    """The item of a part."""
    partition, sort = part_key(upload_id, part.number)
    item: dict[str, Value] = {
        PARTITION: partition,
        SORT: sort,
        "physpath": part.content.physical,
        "size": part.size,
        "mtime": part.modified_ms,
        OPERATION: part.operation,
    }
    optional = {"etag": part.etag, "sum": part.checksum}
    return item | {name: value for name, value in optional.items() if value}


def upload_item(upload: MultipartUpload) -> Item:
    """The item of a new upload."""
    partition, sort = upload_key(upload.id)
    item: dict[str, Value] = {
        PARTITION: partition,
        SORT: sort,
        "file": upload.path,
        STATE: upload.state,
        "started": upload.started_ms,
        "expires": upload.expires_ms,
        OPERATION: upload.operation,
    }
    if upload.attributes is not None:
        item[_ATTRIBUTES] = upload.attributes.to_json() or "{}"
    if upload.bucket:
        item[_BUCKET] = upload.bucket
    return item
