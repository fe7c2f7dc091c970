"""The file that a physical object belongs to: the object id is in its key, and the log has the
history of the object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from s3k_async import _native
from s3k_async.errors import InvalidArgumentError, UnsupportedError
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.repair_actions import FsckVolume
from s3k_async.integrity.scope import Scope
from s3k_async.model import Entry
from s3k_async.oplog.entries import LogRecord
from s3k_async.storage.extents import physical_keys
from s3k_async.storage.object_uris import key_below
from s3k_async.storage.physical import is_uri
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.txn.upload_records import UploadRecords

__all__ = ["ObjectOwner", "OwnerState", "owner_of"]

OwnerState: TypeAlias = Literal[
    "current", "superseded", "deleted", "upload", "unpublished", "unreferenced", "unknown"
]
"""`current`: the content of the file, or a part of it. `superseded`: of an earlier version.
`deleted`: of a file that was deleted. `upload`: a part of an open multipart upload. `unpublished`:
of a change that has not ended, or was interrupted. `unreferenced`: written for the file, but no
operation in the log names it: it was never published, or its history was compacted, or it is an
earlier version in a volume of S3-FileSystem 1.0, whose log has the last operation only. `unknown`:
the log has nothing about the file."""


@dataclass(frozen=True, slots=True)
class ObjectOwner:
    """What a physical object is."""

    key: str
    """Its key, below the volume's own prefix."""
    object_id: str
    state: OwnerState
    path: str = ""
    """The path of the file, when it was last changed; empty if it is not known."""
    version: int = 0
    """The version of the file that has the object, or had it last; 0 if it is not known."""
    size: int | None = None
    """The size of the physical object in bytes; None if it does not exist."""


async def owner_of(volume: FsckVolume, physical: str) -> ObjectOwner:
    """The owner of a physical object, by its key in the volume or its URI.

    Adopted files have no key of the volume: `find` and `physical_path` lead from the file to the
    object. Raises InvalidArgumentError for a name that is no physical key of the volume,
    UnsupportedError for a volume without a log, PermissionDeniedError (in a volume with
    permissions, for any user but the superuser), and the stores' errors.
    """
    volume.store.access.require_superuser("look up the owner of an object", physical)
    key = _key_of(volume, physical)
    object_id = _native.object_id_of(key)
    if object_id is None:
        raise InvalidArgumentError("this is no physical key of a volume", path=physical)
    scope = scope_of(volume)
    if scope.log is None:
        raise UnsupportedError("without an operation log, the owner is not known", path=physical)
    info = await volume.blobs.head(key)
    size = None if info is None else info.size
    upload = await UploadRecords(volume.store.items, volume.store.runtime).get(object_id)
    if upload is not None and upload.is_open:
        return ObjectOwner(key, object_id, "upload", upload.path, 0, size)
    records = [each for each in await scope.log.history(object_id) if isinstance(each, LogRecord)]
    # The log of S3-FileSystem 1.0 has the last operation only, which may be a deletion.
    with_key = [
        each
        for each in records
        if _names(scope, each.operation.after, key)
        or (scope.is_legacy and _names(scope, each.operation.before, key))
    ]
    last = max(records, key=lambda each: each.operation.version, default=None)
    if last is None:
        return ObjectOwner(key, object_id, "unknown", size=size)
    stored = await _stored(volume, records, object_id)
    named = max([each.operation.version for each in with_key], default=0)
    if stored is not None and _names(scope, stored, key):
        state: OwnerState = "current"
    elif not with_key:
        state = "unreferenced"
    elif not any(each.state == "committed" for each in with_key):
        state = "unpublished"
    else:
        state = "deleted" if stored is None else "superseded"
    shown = stored if stored is not None and not volume.store.keys.by_id else None
    shown = shown or last.operation.after or last.operation.before
    return ObjectOwner(key, object_id, state, shown.path if shown else "", named, size)


def _key_of(volume: FsckVolume, physical: str) -> str:
    if not is_uri(physical):
        return physical
    blobs = volume.blobs
    stores = (blobs.hot, blobs.cold) if isinstance(blobs, TieredBlobs) else (blobs,)
    found = (key_below(each.uri("-").removesuffix("-"), physical) for each in stores)
    own = next((each for each in found if each is not None), None)
    if own is None:
        raise InvalidArgumentError(
            "the object is not among the data of the volume; of an adopted file, find the path with"
            " s3k find",
            path=physical,
        )
    return own


def _names(scope: Scope, entry: Entry | None, key: str) -> bool:
    """Whether the content of an entry has the physical object."""
    return (
        entry is not None
        and not entry.is_dir
        and any(
            scope.key_of(each) == key and not scope.is_elsewhere(each)
            for each in physical_keys(entry.physical)
        )
    )


async def _stored(volume: FsckVolume, records: list[LogRecord], object_id: str) -> Entry | None:
    """The entry of the object in the table, at one of the places that the log has for it."""
    places = {
        state.entry_key
        for record in records
        for state in (record.operation.before, record.operation.after)
        if state is not None and volume.store.keys.is_current(state.entry_key)
    }
    for entry in await volume.store.stored_many(sorted(places)):
        if entry is not None and entry.id == object_id:
            return entry
    return None
