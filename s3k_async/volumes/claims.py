"""Ownership claims: the mark of a volume at the root of each of its locations.

A location belongs to one native volume: the mark names the volume and its table. A second table
with the same record (a copy, or one restored from a backup under another name) does not match the
mark, and must not use the location.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from s3k_async._native import object_id_of
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_first_level
from s3k_async.backends.registry import TABLES
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.config import BlobLocation, VolumeConfig
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    ConfigError,
    NotAVolumeError,
    PermissionDeniedError,
    S3kError,
    VolumeExistsError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.storage.location_marks import CLAIM
from s3k_async.txn.volume_record import SCOPE, VolumeRecord, location_text, scope_of
from s3k_async.volumes.connections import VolumeConnections

__all__ = [
    "CLAIM",
    "Claim",
    "belongs_to_a_volume",
    "claim",
    "marked_hot",
    "read_claim",
    "renew",
    "require_claim",
    "require_free",
    "require_unclaimed",
    "rewrite",
    "table_identity",
    "take_over",
    "withdraw",
]

_LOG = logging.getLogger(__name__)

_MOST: Final = 64 * 1024
"""Most bytes of a mark."""
_PREFIX_MARK: Final = "?prefix="
_PREFIXED: Final = re.compile(rf"(.*){re.escape(_PREFIX_MARK)}([A-Za-z0-9._-]+)", re.DOTALL)
"""The identity of a table with the prefix of a volume in it."""
_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SCOPED: Final = re.compile(rf"{re.escape(SCOPE)}{_UUID}", re.ASCII)
"""The first component of the keys of a native volume."""
_OLD: Final = re.compile(rf"{_UUID}\.(info|id={_UUID})", re.ASCII)
"""Log objects of S3-FileSystem 1.0, and bytes of its volumes and of native ones without a scope."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The contents of a mark. `document` is its JSON, with the fields of the record for a
    restore."""

    volume_id: str
    name: str
    table: str
    document: Mapping[str, Any]

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the volume's record; none in a mark of an older volume."""
        return tuple(str(self.document.get("flags", "")).split())

    @property
    def hot(self) -> str:
        """The hot location of the volume's record; empty for none."""
        return str(self.document.get("hot", ""))

    @property
    def scope(self) -> str:
        """Prefix of the volume's keys in this location."""
        return scope_of(self.volume_id, self.flags)


def table_identity(config: VolumeConfig, location: BlobLocation) -> str:
    """Identity of the table in the mark of a location; without the directory if the location is in
    the same one, since an embedded volume may be moved as a whole."""
    embedded = location_text(location, config.table).startswith("./")
    identity = config.table.identity(embedded=embedded)
    return f"{identity}{_PREFIX_MARK}{config.table_prefix}" if config.table_prefix else identity


def _same_table(one: str, other: str) -> bool:
    """Whether two identities may denote the same volume of the same table, as decided by its
    backend."""
    if one == other:
        return True
    (one, own), (other, others) = (_without_prefix(each) for each in (one, other))
    if own != others:
        return False
    scheme = one.partition(":")[0]
    if other.partition(":")[0] != scheme:
        return False
    try:
        return TABLES.backend(scheme).same_table(one, other)
    except ConfigError:
        return False


def _is_mark_of(found: Claim, table: str) -> bool:
    """Whether a mark that no record confirms may be that of a table, from an unfinished
    initialisation. One that names the table without its directory is that of the volume around the
    location, and another table has that name in its own directory."""
    has_same_form = _is_relative(found.table) == _is_relative(table)
    return has_same_form and _same_table(found.table, table)


def _is_relative(identity: str) -> bool:
    return identity.partition(":")[2].startswith("./")


def _without_prefix(identity: str) -> tuple[str, str]:
    """The identity of a table, and the prefix of a volume in it; empty without one."""
    found = _PREFIXED.fullmatch(identity)
    return (found[1], found[2]) if found else (identity, "")


def belongs_to_a_volume(key: str) -> bool:
    """Whether a key belongs to data, log or mark of a volume: a native one of any version, or one
    of S3-FileSystem 1.0."""
    *directories, name = key.split("/")
    return (
        any(_SCOPED.fullmatch(each) for each in directories)
        or name == CLAIM
        or _OLD.fullmatch(name) is not None
        or object_id_of(key) is not None
    )


async def require_unclaimed(blobs: BlobStore, *, adopting: bool = False) -> None:
    """Check that a location without a mark has no objects of a volume; if its objects are to be
    adopted, only that it has none of a native volume with a scope. Only the first level is listed,
    with one request for each directory. Raises VolumeExistsError."""
    async for page in list_first_level(blobs):
        for info in page:
            first, slash, _ = info.key.partition("/")
            if _SCOPED.fullmatch(first) if slash else not adopting and _OLD.fullmatch(first):
                raise VolumeExistsError(
                    "the location holds objects of another volume, native or of S3-FileSystem 1.0; "
                    "give another"
                    " bucket, prefix or directory, or migrate that volume (docs/moving.md)",
                    path=blobs.uri(info.key),
                )


async def require_free(blobs: BlobStore, table: str, *, adopting: bool = False) -> None:
    """Check that a location has the mark of this table, or none and no objects of a volume, as
    `require_unclaimed`. Raises VolumeExistsError, NotAVolumeError (the mark is damaged)."""
    found = await read_claim(blobs)
    if found is None:
        await require_unclaimed(blobs, adopting=adopting)
    elif not _is_mark_of(found, table):
        raise VolumeExistsError(
            f"the location belongs to the volume {found.name!r} of table {found.table!r}; give "
            "another bucket, prefix or directory",
            path=blobs.uri(CLAIM),
        )


async def claim(
    blobs: BlobStore,
    volume_id: str,
    name: str,
    table: str,
    *,
    layout: Mapping[str, object] | None = None,
) -> Claim:
    """Mark a location as a volume's; returns its mark. `layout`: fields of the volume's record,
    kept in the mark for a restore of a lost table.

    An existing mark for the same table, of an unfinished or concurrent initialisation, is kept.
    Raises VolumeExistsError if the location is another table's.
    """
    document = _document(volume_id, name, table, layout)
    try:
        await blobs.put(CLAIM, json.dumps(document).encode(), if_absent=True)
    except BlobExistsError as error:
        found = await read_claim(blobs)
        if found is None:
            return await claim(blobs, volume_id, name, table, layout=layout)
        if not _is_mark_of(found, table):
            raise VolumeExistsError(
                f"the location belongs to the volume {found.name!r} of table {found.table!r}; give "
                "another"
                " bucket, prefix or directory",
                path=blobs.uri(CLAIM),
            ) from error
        return found
    return Claim(volume_id, name, table, document)


async def take_over(
    blobs: BlobStore,
    volume_id: str,
    name: str,
    table: str,
    *,
    layout: Mapping[str, object] | None = None,
    unfinished: bool = False,
) -> None:
    """Mark a location with exactly this volume and table: a mark of the same volume is changed, a
    missing or damaged one is written. `unfinished`: also replace the mark of an unfinished
    initialisation for the same table with another id. Raises VolumeExistsError if the location is
    another volume's."""
    info = await blobs.head(CLAIM)
    try:
        found = await read_claim(blobs)
    except NotAVolumeError:
        found = None
    document = _document(volume_id, name, table, layout)
    if (
        found is not None
        and found.volume_id != volume_id
        and not (unfinished and _is_mark_of(found, table))
    ):
        raise VolumeExistsError(
            f"the location belongs to the volume {found.name!r} of table {found.table!r}",
            path=blobs.uri(CLAIM),
        )
    kept = found.document if found is not None and found.volume_id == volume_id else {}
    if found is not None and {**kept, **document} == found.document:
        return
    data = json.dumps({**kept, **document}).encode()
    try:
        await blobs.put(CLAIM, data, if_match=info.etag if info else None, if_absent=info is None)
    except (BlobChangedError, BlobExistsError):
        await take_over(blobs, volume_id, name, table, layout=layout, unfinished=unfinished)


def _document(
    volume_id: str, name: str, table: str, layout: Mapping[str, object] | None
) -> dict[str, object]:
    return {"format": 1, "volume_id": volume_id, "name": name, "table": table, **(layout or {})}


async def require_claim(blobs: BlobStore, record: VolumeRecord, table: str) -> bool:
    """Check that a location's mark is this volume's and this table's; False if it is missing, which
    is logged. Raises VolumeMismatchError, NotAVolumeError (the mark is damaged)."""
    try:
        found = await read_claim(blobs)
    except PermissionDeniedError:
        _LOG.warning(
            "the mark %s may not be read: the owner of the location was not checked",
            blobs.uri(CLAIM),
        )
        return True
    if found is None:
        _LOG.warning(
            "the mark %s is missing; s3k init --take-over writes it again", blobs.uri(CLAIM)
        )
        return False
    if found.volume_id != record.volume_id:
        raise VolumeMismatchError(
            f"the location belongs to the volume {found.name!r} of table {found.table!r}, not to "
            "this one: the table's"
            " record is a copy, or the settings name another volume's location",
            path=blobs.uri(CLAIM),
        )
    if not _same_table(found.table, table):
        raise VolumeMismatchError(
            f"the volume's table is {found.table!r}, and this one, {table!r}, is a copy of it or "
            "was restored under"
            " another name; if it replaces the other for good, s3k init --take-over says so",
            path=blobs.uri(CLAIM),
        )
    return True


async def renew(blobs: BlobStore, volume_id: str, layout: Mapping[str, object]) -> None:
    """Update a mark after a change of the volume's layout. The volume works without it, so a
    failure is only logged: a restore of a lost table would start with the old layout."""
    try:
        await rewrite(blobs, volume_id, layout)
    except S3kError as error:
        _LOG.warning("the mark %s could not be renewed: %s", blobs.uri(CLAIM), error)


async def rewrite(blobs: BlobStore, volume_id: str, layout: Mapping[str, object]) -> None:
    """As `renew`, but a failure is an error. No effect without a mark of this volume. Raises
    NotAVolumeError (the mark is damaged), PermissionDeniedError, and the store's errors."""
    info, found = await blobs.head(CLAIM), await read_claim(blobs)
    if info is None or found is None or found.volume_id != volume_id:
        return
    document = json.dumps({**found.document, **layout}).encode()
    try:
        await blobs.put(CLAIM, document, if_match=info.etag)
    except BlobChangedError:
        await rewrite(blobs, volume_id, layout)


async def withdraw(blobs: BlobStore, volume_id: str) -> None:
    """Remove the mark of a volume that is being destroyed. The mark of another volume is kept: one
    that was created at the location after another client had completed the destruction."""
    found = await read_claim(blobs)
    if found is not None and found.volume_id == volume_id:
        await blobs.delete(CLAIM)


async def read_claim(blobs: BlobStore) -> Claim | None:
    """A location's mark; None without one. Raises NotAVolumeError if it is damaged."""
    try:
        data = await blobs.get(CLAIM, 0, _MOST)  # a longer one is truncated, and so damaged
    except BlobNotFoundError:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotAVolumeError("the mark of a volume is damaged", path=blobs.uri(CLAIM)) from error
    if not isinstance(found, dict) or not isinstance(found.get("volume_id"), str):
        raise NotAVolumeError("the mark of a volume is damaged", path=blobs.uri(CLAIM))
    return Claim(found["volume_id"], str(found.get("name")), str(found.get("table")), found)


async def marked_hot(connections: VolumeConnections, found: Claim) -> RetryingBlobs | None:
    """The whole hot location that a mark of the data location names; None without one.

    Raises VolumeNotFoundError if it is not there, or has no mark: objects that only it has would be
    taken for lost. Raises NotAVolumeError if it is another volume's, ConfigError.
    """
    hot = connections.hot(found.hot)
    if hot is None:
        return None
    owner = await read_claim(hot) if await hot.exists() else None
    if owner is None:
        raise VolumeNotFoundError(
            "the hot location of the volume is not there, or has no mark: a directory that is on "
            "another machine, or whose disk is not mounted, holds data of the volume, and nothing "
            "is restored without it",
            path=hot.uri(CLAIM),
        )
    if owner.volume_id != found.volume_id:
        raise NotAVolumeError(
            "the hot location carries the mark of another volume", path=hot.uri(CLAIM)
        )
    return hot
