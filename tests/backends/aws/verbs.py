"""Every request of both ports as a call that can be made against any server: what the tables of
misbehaviour use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from s3k_async.backends.ports.blobs import Unfinished
from s3k_async.backends.ports.items import ABSENT, Key, Put
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_upload import S3Upload
from tests.backends.aws.places import Items

__all__ = [
    "BLOB_READS",
    "BLOB_WRITES",
    "ITEM_READS",
    "ITEM_WRITES",
    "KEY",
    "PUT",
    "BlobCall",
    "ItemCall",
]

BlobCall: TypeAlias = Callable[[S3Blobs], Awaitable[Any]]
ItemCall: TypeAlias = Callable[[Items], Awaitable[Any]]

KEY = Key("ks://v/-sf0", "name")
PUT = Put({"path": KEY.partition, "children": KEY.sort, "op": "ours"}, ABSENT)

LARGE = bytes(2 * 1024 * 1024)
"""Sent in pieces, after asking whether it is wanted (100 Continue)."""


def _upload(blobs: S3Blobs) -> S3Upload:
    upload = blobs._resumed("key", "upload")
    upload.part_stored(1, 7, '"part"')
    return upload


async def _delete_many(blobs: S3Blobs) -> None:
    """Raises the first refusal, which `delete_many` returns."""
    for failure in await blobs.delete_many(["one", "two"]):
        raise failure.error


async def _copy_part(blobs: S3Blobs) -> None:
    await _upload(blobs).copy_part(1, blobs, "from", 0, 7, if_match="e")


async def _uploads(blobs: S3Blobs) -> list[Unfinished]:
    return [each async for each in blobs.list_uploads()]


async def _all(blobs: S3Blobs) -> list[Any]:
    return [each async for each in list_all(blobs)]


BLOB_WRITES: Mapping[str, BlobCall] = {
    "put": lambda blobs: blobs.put("key", b"content"),
    "put-large": lambda blobs: blobs.put("key", LARGE),
    "put-if-absent": lambda blobs: blobs.put("key", b"content", if_absent=True),
    "put-if-match": lambda blobs: blobs.put("key", b"content", if_match="e"),
    "copy": lambda blobs: blobs._copy_object({"Bucket": "data", "Key": "from"}, "key", None),
    "delete": lambda blobs: blobs.delete("key"),
    "delete-many": _delete_many,
    "start-upload": lambda blobs: blobs.start_upload("key"),
    "put-part": lambda blobs: _upload(blobs).put_part(2, b"content"),
    "put-part-large": lambda blobs: _upload(blobs).put_part(2, LARGE),
    "copy-part": _copy_part,
    "complete": lambda blobs: _upload(blobs).complete(),
    "abort": lambda blobs: _upload(blobs).abort(),
}
BLOB_READS: Mapping[str, BlobCall] = {
    "get": lambda blobs: blobs.get("key"),
    "get-range": lambda blobs: blobs.get("key", 3, 5),
    "head": lambda blobs: blobs.head("key"),
    "list": _all,
    "list-uploads": _uploads,
    "now": lambda blobs: blobs.now_ms(),
    "exists": lambda blobs: blobs.exists(),
}
ITEM_WRITES: Mapping[str, ItemCall] = {
    "write": lambda items: items.write(PUT),
    "transact": lambda items: items.transact([PUT], "token"),
    "load": lambda items: items.load([PUT.item]),
    "write-tag": lambda items: items.write_tag("name", "value"),
}
ITEM_READS: Mapping[str, ItemCall] = {
    "get": lambda items: items.get(KEY),
    "get-many": lambda items: items.get_many([KEY]),
    "query": lambda items: items.query(KEY.partition),
    "scan": lambda items: items.scan(0, 1),
    "exists": lambda items: items.exists(),
    "read-tag": lambda items: items.read_tag("name"),
}
