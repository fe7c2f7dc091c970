"""Destruction of a volume: log, data, table, in this order, so that an interrupted run can be
repeated."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async._core.worker_threads import in_thread
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import ItemStore
from s3k_async.backends.ports.pagination import list_all, scan_all
from s3k_async.backends.ports.service_inspection import TableInspection
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    DirectoryNotEmptyError,
    NotAVolumeError,
    PartialFailureError,
    PermissionDeniedError,
    ReadOnlyVolumeError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.oplog.log_reader import DamagedLog, LogReader
from s3k_async.storage.extents import physical_keys
from s3k_async.storage.location_marks import CLAIM, locations_in
from s3k_async.txn.shared_table import remove_items
from s3k_async.txn.upload_records import has_uploads
from s3k_async.txn.volume_lock import QUIET_SECONDS
from s3k_async.txn.volume_record import (
    RECORD_KEY,
    VolumeRecord,
    has_entries,
    load_or_repair,
    mark_destroying,
)
from s3k_async.volumes.claims import (
    read_claim,
    require_claim,
    table_identity,
    withdraw,
)
from s3k_async.volumes.connections import VolumeConnections, hot_location, log_location
from s3k_async.volumes.volume import NO_PATIENCE, require_agreement, require_table

__all__ = ["destroy_volume"]

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_DATA: Final = re.compile(rf"{_UUID}\.id={_UUID}")
_LOG: Final = re.compile(r"(entries|segments|checkpoints|audit|quarantine)/.+")
_BATCH: Final = 1000
_REPEAT: Final = "repeat s3k destroy to finish"
_PASSES: Final = 4
"""Number of times that the locations are cleared: normally twice, of which the second finds
nothing."""


@dataclass(slots=True)
class _Cleared:
    """The objects that were found in locations."""

    own: int = 0
    """Those of the volume, which were deleted."""
    foreign: int = 0
    """Others, without marks, which are kept."""


async def destroy_volume(
    config: VolumeConfig,
    *,
    force: bool = False,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
) -> int:
    """Remove a volume with all its data; returns the number of foreign objects, which are kept.

    In a shared table only the volume's items are removed; the table is kept, even without volumes.
    The volume must not be in use: it is marked first, so that it cannot be opened; clients with the
    volume open notice within seconds. In a shared table destruction waits for them; elsewhere only
    if they have written objects since it began.
    Without `force` only a volume without files, directories and multipart uploads is removed
    (DirectoryNotEmptyError). Only the volume's own objects are deleted: bytes and log below its
    scope, in locations with the mark of the volume and of its table; a bucket is kept. For a volume
    without a scope, the data objects that its table or log references are deleted. Raises
    VolumeNotFoundError, NotAVolumeError, VolumeMismatchError, ReadOnlyVolumeError for kind
    `s3k-1.0`, PermissionDeniedError for a table with deletion protection (nothing is deleted),
    BusyError (clients still write objects, or another client holds the exclusive lock),
    PartialFailureError for objects that could not be deleted. After either of the last two,
    a repeated call continues.
    """
    where = config.where
    if config.kind == "s3k-1.0":
        raise ReadOnlyVolumeError("a volume of S3-FileSystem 1.0 cannot be destroyed", path=where)
    async with AsyncExitStack() as stack:
        connections = VolumeConnections(config, runtime, session, stack)
        items, table = connections.table()
        await require_table(connections, table, where)
        record = await load_or_repair(
            items,
            table,
            where,
            runtime=runtime,
            policy=config.tuning.retry.write,
            patience=NO_PATIENCE,
            destroying=True,
        )
        require_agreement(record, config, where)
        if not force and await has_entries(items):
            raise DirectoryNotEmptyError(
                "the volume holds files or directories; destroying it needs force", path=where
            )
        if not force and await has_uploads(items):
            raise DirectoryNotEmptyError(
                "the volume has multipart uploads; destroying it needs force", path=where
            )
        await _require_unprotected(connections, where)
        data = connections.blobs(config.data, "data")
        log = (
            None
            if record.log_mode == "disabled"
            else connections.blobs(log_location(config), "log")
        )
        location = hot_location(config, record.hot)
        hot = None if location is None else connections.blobs(location, "data")
        if hot is not None and location is not None:
            await _require_owner(hot, _DATA, record, table_identity(config, location))
        await _require_owner(data, _DATA, record, table_identity(config, config.data))
        if log is not None:
            await _require_owner(log, _LOG, record, table_identity(config, log_location(config)))
        await mark_destroying(items, record, where, runtime=runtime)
        if config.table_prefix:
            # Items that an open client writes after their removal would belong to the next volume
            # with the prefix.
            await runtime.sleep(QUIET_SECONDS)
        if record.scope:
            left = await _clear_scope(record, data, log, hot, where, runtime)
        else:
            left = await _clear_named(
                items,
                record,
                data,
                log,
                None if log is None else log_location(config).prefix_within(config.data),
                where,
                runtime,
            )
        if config.table_prefix:
            whole, _ = connections.whole_table()
            await remove_items(items, whole, config.table_prefix, record, runtime=runtime)
            return left
        # Without a table, another client has removed it; the next one is that of other volumes.
        with suppress(VolumeNotFoundError):
            item = await items.get(RECORD_KEY)
            if item is not None and item.get("volume_id") != record.volume_id:
                raise VolumeMismatchError("the table now has another volume", path=where)
            await connections.retry_write(table.drop)
        if record.scope:
            await _clear_rest(record, data, log, hot)
    if config.table.home is not None and record.data == "./data/":
        await in_thread(_remove_home, config.table.home)
    return left


async def _require_unprotected(connections: VolumeConnections, where: str) -> None:
    """Raises PermissionDeniedError if the service would refuse to delete the volume's own table,
    after its data had been deleted."""
    inspection = None if connections.config.table_prefix else connections.table_inspection()
    if isinstance(inspection, TableInspection):
        description = await connections.retry_read(inspection.description)
        if description.is_protected:
            raise PermissionDeniedError(
                "the table is protected from deletion, so this call deleted nothing; disable the "
                "protection in DynamoDB first",
                path=where,
            )


def _remove_home(directory: str) -> None:
    """Remove an embedded volume's directory, unless it has other files."""
    try:
        os.rmdir(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise PermissionDeniedError(
                "the volume's directory cannot be removed", path=directory
            ) from error


async def _require_owner(
    blobs: RetryingBlobs, own_keys: re.Pattern[str], record: VolumeRecord, table: str
) -> None:
    """Raises NotAVolumeError or VolumeMismatchError unless the location has the mark of the volume
    and of this table, or no objects that could belong to the volume."""
    if not await blobs.exists():
        return
    if await read_claim(blobs) is not None:
        await require_claim(blobs, record, table)
        return
    if own_keys is _DATA and not record.scope:
        return  # only data referenced by table and log is deleted
    async for info in list_all(blobs.below(record.scope)):
        if own_keys.fullmatch(info.key):
            raise NotAVolumeError(
                "the location does not carry the volume's mark; s3k init --take-over writes it "
                "again",
                path=blobs.uri(CLAIM),
            )


async def _clear_scope(
    record: VolumeRecord,
    data: RetryingBlobs,
    log: RetryingBlobs | None,
    hot: RetryingBlobs | None,
    where: str,
    runtime: Runtime,
) -> int:
    """Delete the objects below a volume's scope in its locations, the marks last; returns the
    number of foreign objects. Empty locations are removed."""
    places = await _places(data, log, hot)

    async def clear() -> _Cleared:
        found = _Cleared()
        for place, own_keys in places:
            own = place.below(record.scope)
            cleared = await _clear(own, own_keys)
            found.own += cleared.own
            found.foreign += cleared.foreign
            async for upload in own.list_uploads():
                if upload.key:
                    await own.abort_upload(upload)
        return found

    left = await _until_clear(clear, where, runtime)
    for place, _ in places:
        await withdraw(place, record.volume_id)
    for place, _ in places:
        await place.drop(if_empty=True)
    return left


async def _clear_rest(
    record: VolumeRecord,
    data: RetryingBlobs,
    log: RetryingBlobs | None,
    hot: RetryingBlobs | None,
) -> None:
    """Delete what writes have left since the last listing; without the table none succeeds any
    more."""
    for place, own_keys in await _places(data, log, hot):
        remedy = "delete them with the tools of the service"
        if (await _clear(place.below(record.scope), own_keys, remedy)).own:
            await place.drop(if_empty=True)


async def _places(
    data: RetryingBlobs, log: RetryingBlobs | None, hot: RetryingBlobs | None
) -> list[tuple[RetryingBlobs, re.Pattern[str]]]:
    """The existing locations, with the keys that objects of a volume have there."""
    return [
        (place, own_keys)
        for place, own_keys in ((log, _LOG), (hot, _DATA), (data, _DATA))
        if place and await place.exists()
    ]


async def _clear_named(
    items: ItemStore,
    record: VolumeRecord,
    data: RetryingBlobs,
    log: RetryingBlobs | None,
    within: str | None,
    where: str,
    runtime: Runtime,
) -> int:
    """As `_clear_scope`, for a volume without a scope: only data referenced by its table and log;
    other objects may belong to another volume. `within`: the log's prefix in the data location.
    """
    has_log = log is not None and await log.exists()
    left = 0
    if await data.exists():
        async for keys in _named(items, log if has_log else None):
            await _delete(data, keys)
        async for info in list_all(data):
            left += info.key != CLAIM and (within is None or not info.key.startswith(within))
    if log is not None and has_log:
        inside = await locations_in(log)
        left += await _until_clear(partial(_clear, log, _LOG, without=inside), where, runtime)
        await withdraw(log, record.volume_id)
        await log.drop(if_empty=True)
    if await data.exists():
        await withdraw(data, record.volume_id)
        await data.drop(if_empty=True)
    return left


async def _until_clear(
    clear: Callable[[], Awaitable[_Cleared]], where: str, runtime: Runtime
) -> int:
    """Clear locations until nothing is found there; returns the number of foreign objects. What
    the second pass finds was written by an open client, and the later ones wait until such clients
    have noticed that the volume is being destroyed. Raises BusyError."""
    for number in range(_PASSES):
        if number > 1:
            await runtime.sleep(QUIET_SECONDS)
        found = await clear()
        if not found.own:
            return found.foreign
    raise BusyError(
        f"clients still use the volume: {found.own} objects were written to it while it was being "
        "destroyed; end these clients, and repeat s3k destroy to finish",
        path=where,
    )


async def _named(items: ItemStore, log: BlobStore | None) -> AsyncIterator[list[str]]:
    """The physical keys in entries of the table and records of the log, in batches, with
    duplicates."""
    async for page in scan_all(items):
        names = [str(item.get("physpath", "")) for item in page]
        keys = [key for name in names for key in physical_keys(name)]
        yield [key for key in keys if _DATA.fullmatch(key)]
    if log is None:
        return
    batch: set[str] = set()
    async for record in LogReader(log).records():
        if isinstance(record, DamagedLog):
            continue
        states = (record.operation.before, record.operation.after)
        batch |= {
            key
            for entry in states
            if entry
            for key in physical_keys(entry.physical)
            if _DATA.fullmatch(key)
        }
        if len(batch) >= _BATCH:
            yield list(batch)
            batch = set()
    yield list(batch)


async def _clear(
    blobs: RetryingBlobs,
    own_keys: re.Pattern[str],
    remedy: str = _REPEAT,
    *,
    without: tuple[str, ...] = (),
) -> _Cleared:
    """Delete the objects with matching keys, except those with the prefixes `without`. `remedy`:
    for those that cannot be deleted."""
    found = _Cleared()
    batch: list[str] = []
    async for info in list_all(blobs):
        if own_keys.fullmatch(info.key) and not info.key.startswith(without):
            batch.append(info.key)
            found.own += 1
        else:
            found.foreign += info.key != CLAIM
        if len(batch) >= _BATCH:
            await _delete(blobs, batch, remedy)
            batch = []
    await _delete(blobs, batch, remedy)
    return found


async def _delete(blobs: RetryingBlobs, keys: list[str], remedy: str = _REPEAT) -> None:
    failures = await blobs.delete_many(keys) if keys else []
    if failures:
        raise PartialFailureError(
            f"{len(failures)} objects could not be deleted; {remedy}",
            path=blobs.uri(failures[0].key),
            failures=[(failure.key, failure.error) for failure in failures],
        )
