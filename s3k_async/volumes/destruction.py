"""Removing a volume: its log, its bytes, its table, in that order, so that a run that was cut short can be repeated."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

import anyio.to_thread

from s3k_async.config import LocalDirectory, S3Bucket, SqliteFile, VolumeConfig
from s3k_async.errors import (
    DirectoryNotEmptyError,
    NotAVolumeError,
    PartialFailureError,
    PermissionDeniedError,
    ReadOnlyVolumeError,
)
from s3k_async.metadata.keys import ENTRY_PREFIX
from s3k_async.metadata.record import VolumeRecord, load_or_repair, mark_destroying
from s3k_async.sources import SYSTEM, Sources
from s3k_async.stores.faults import FaultPlan
from s3k_async.stores.items import PARTITION, ItemStore
from s3k_async.stores.reliable_blobs import ReliableBlobs
from s3k_async.volumes.adapters import Connections, log_location, table_text
from s3k_async.volumes.claims import CLAIM, owner_of
from s3k_async.volumes.opening import NO_PATIENCE, require_agreement, require_table

__all__ = ["destroy_volume"]

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_DATA: Final = re.compile(rf"{_UUID}\.id={_UUID}")
_LOG: Final = re.compile(r"(entries|segments|checkpoints|audit|quarantine)/.+")
_BATCH: Final = 1000


async def destroy_volume(
    config: VolumeConfig,
    *,
    force: bool = False,
    sources: Sources = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    faults: FaultPlan | None = None,
) -> int:
    """Remove a volume with everything in it; how many objects that are not the volume's were left where they were.

    Nobody may use the volume meanwhile: it is marked first, so that it cannot be opened any more; clients that
    have it open notice it within seconds, and are not waited for. Without `force` only a volume without files and
    directories is removed
    (DirectoryNotEmptyError). Only what is recognised is deleted: physical keys and log entries in places that carry
    this volume's mark; a bucket stays. Raises VolumeNotFoundError, NotAVolumeError, VolumeMismatchError,
    ReadOnlyVolumeError for kind `s3k-1.0`, PartialFailureError for objects that could not be deleted.
    """
    where = table_text(config.table)
    if config.kind == "s3k-1.0":
        raise ReadOnlyVolumeError("a volume of S3-FileSystem 1.0 is not ours to destroy", path=where)
    async with AsyncExitStack() as stack:
        connections = Connections(config, sources, session, faults, stack)
        items, table = connections.table()
        await require_table(connections, table, where)
        record = await load_or_repair(
            items,
            table,
            where,
            sources=sources,
            policy=config.tuning.retry.write,
            patience=NO_PATIENCE,
            destroying=True,
        )
        require_agreement(record, config, where)
        if not force and await _has_entries(items):
            raise DirectoryNotEmptyError("the volume holds files or directories; destroying it needs force", path=where)
        places: list[tuple[ReliableBlobs, re.Pattern[str]]] = []
        if record.log_mode != "disabled":
            places.append((connections.blobs(log_location(config), "log"), _LOG))
        places.append((connections.blobs(config.data, "data"), _DATA))
        for blobs, ours in places:
            await _require_owner(blobs, ours, record)
        await mark_destroying(items, record, where, sources=sources)
        left = 0
        for blobs, ours in places:
            within = _log_within(config) if ours is _DATA and record.log_mode != "disabled" else None
            left += await _clear(blobs, ours, within, left)
        await connections.patiently(table.drop)
    if isinstance(config.table, SqliteFile) and record.data == "./data/":
        await anyio.to_thread.run_sync(_remove_home, config.table.path)
    return left


def _log_within(config: VolumeConfig) -> str | None:
    """The keys of the data's place that begin with this are the log's; None if its place is elsewhere."""
    log, data = log_location(config), config.data
    if isinstance(log, S3Bucket) and isinstance(data, S3Bucket):
        if log.bucket == data.bucket and log.prefix.startswith(data.prefix):
            return log.prefix.removeprefix(data.prefix)
    elif isinstance(log, LocalDirectory) and isinstance(data, LocalDirectory):
        root, place = os.path.join(os.path.abspath(data.path), ""), os.path.join(os.path.abspath(log.path), "")
        if place.startswith(root):
            return place.removeprefix(root)
    return None


def _remove_home(table: str) -> None:
    """An embedded volume's directory goes with it, unless somebody keeps other files there."""
    directory = os.path.dirname(os.path.abspath(table))
    try:
        os.rmdir(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise PermissionDeniedError("the volume's directory cannot be removed", path=directory) from error


async def _has_entries(items: ItemStore) -> bool:
    cursor: str | None = None
    while True:
        page = await items.scan(0, 1, cursor=cursor)
        if any(str(item[PARTITION]).startswith(ENTRY_PREFIX) for item in page.items):
            return True
        if page.next is None:
            return False
        cursor = page.next


async def _require_owner(blobs: ReliableBlobs, ours: re.Pattern[str], record: VolumeRecord) -> None:
    """Raises NotAVolumeError unless the place carries the volume's mark, or has nothing left that could be its."""
    if not await blobs.exists():
        return
    owner = await owner_of(blobs)
    if owner == record.volume_id:
        return
    if owner is not None:
        raise NotAVolumeError("the place carries the mark of another volume", path=blobs.uri(CLAIM))
    async for info in blobs.list_all():
        if ours.fullmatch(info.key):
            raise NotAVolumeError("the place does not carry the volume's mark", path=blobs.uri(CLAIM))


async def _clear(blobs: ReliableBlobs, ours: re.Pattern[str], within: str | None, left: int) -> int:
    """Delete what is the volume's, the mark last; how many other objects there are.

    The place as a whole goes if nothing else is in it. `within`: where in it the log is, which was cleared before and
    in which `left` objects are still.
    """
    if not await blobs.exists():
        return 0
    foreign = 0
    batch: list[str] = []
    async for info in blobs.list_all():
        if ours.fullmatch(info.key):
            batch.append(info.key)
        elif info.key != CLAIM and (within is None or not info.key.startswith(within)):
            foreign += 1
        if len(batch) >= _BATCH:
            await _delete(blobs, batch)
            batch = []
    await _delete(blobs, batch)
    await blobs.delete(CLAIM)
    if not foreign and (within is None or not left):
        await blobs.drop()
    return foreign


async def _delete(blobs: ReliableBlobs, keys: list[str]) -> None:
    failures = await blobs.delete_many(keys) if keys else []
    if failures:
        raise PartialFailureError(
            f"{len(failures)} objects could not be deleted; destroying the volume again goes on",
            path=blobs.uri(failures[0].key),
            failures=[(failure.key, failure.error) for failure in failures],
        )
