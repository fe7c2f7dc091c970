"""The summary of a volume: its record, its locations with their settings, and on request its
sizes."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, TypeVar

from s3k_async._core.concurrency import gather
from s3k_async.backends.location import Location, OpenContext
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_pages
from s3k_async.backends.ports.service_inspection import (
    BucketInspection,
    TableDescription,
    TableInspection,
)
from s3k_async.errors import PermissionDeniedError, UnsupportedError
from s3k_async.integrity.last_runs import LAST_RUNS, LastRun, read_last_runs
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.txn.volume_record import VolumeRecord
from s3k_async.volumes.connections import hot_location, log_location
from s3k_async.volumes.volume import Volume

__all__ = ["BlobSummary", "Usage", "VolumeSummary", "summarize"]

T = TypeVar("T")

AUDIT: Final = "audit/"
"""Prefix of the audit trails in the log."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The objects below a volume's scope in one location."""

    objects: int
    bytes: int
    audited_ms: int = 0
    """In the log: the time of the last object of an audit trail; 0 without any."""


@dataclass(frozen=True, slots=True)
class BlobSummary:
    """One location of blobs. None: not reported, or not allowed to be read."""

    location: str
    versioning: str | None
    encryption: str | None
    usage: Usage | None
    """None unless it was asked for."""


@dataclass(frozen=True, slots=True)
class VolumeSummary:
    """What a volume is."""

    record: VolumeRecord
    table: str
    """Location of the table."""
    description: TableDescription | None
    """None: not reported, or not allowed to be read."""
    backups: bool | None
    """Whether the table can be restored to a point in time."""
    blobs: Mapping[str, BlobSummary]
    """By `data`, `log` and `hot`, if there is one."""
    last_runs: Sequence[LastRun] = ()
    """The last recorded check, repair and garbage collection."""


async def summarize(
    volume: Volume, *, sizes: bool = False, session: object | None = None
) -> VolumeSummary:
    """What an open volume is. `sizes`: count the objects, by listing them, a thousand a request;
    otherwise this is a few requests. Raises the errors of the stores."""
    opening = OpenContext(session, volume.store.runtime)
    places: dict[str, tuple[Location, BlobStore | None]] = {
        "data": (volume.config.data, _cold(volume))
    }
    if volume.record.log_mode != "disabled":
        places["log"] = (volume.config.log or log_location(volume.config), volume.log_blobs)
    if (hot := hot_location(volume.config, volume.record.hot)) is not None:
        assert isinstance(volume.blobs, TieredBlobs)
        places["hot"] = (hot, volume.blobs.hot)

    async def one(place: tuple[Location, BlobStore | None]) -> BlobSummary:
        return await _blobs(*place, opening, sizes=sizes)

    async with AsyncExitStack() as stack:
        description, backups = await _table(volume.config.table, opening, stack)
        found = await gather(one, places.values(), limit=len(places))
    return VolumeSummary(
        volume.record,
        volume.config.where,
        description,
        backups,
        dict(zip(places, found, strict=True)),
        () if volume.log_blobs is None else await _last_runs(volume.log_blobs),
    )


async def _last_runs(log: BlobStore) -> Sequence[LastRun]:
    return await _allowed(read_last_runs(log)) or ()


def _cold(volume: Volume) -> BlobStore:
    return volume.blobs.cold if isinstance(volume.blobs, TieredBlobs) else volume.blobs


async def _table(
    location: Location, opening: OpenContext, stack: AsyncExitStack
) -> tuple[TableDescription | None, bool | None]:
    inspection = location.inspection(opening)
    if not isinstance(inspection, TableInspection):
        return None, None
    stack.push_async_callback(inspection.close)
    return await _allowed(inspection.description()), await _allowed(inspection.backups())


async def _blobs(
    location: Location, blobs: BlobStore | None, opening: OpenContext, *, sizes: bool
) -> BlobSummary:
    versioning = encryption = None
    inspection = location.inspection(opening)
    if isinstance(inspection, BucketInspection):
        try:
            versioning = await _allowed(inspection.versioning())
            encryption = await _allowed(inspection.encryption())
        finally:
            await inspection.close()
    usage = await _usage(blobs) if sizes and blobs is not None else None
    return BlobSummary(location.label, versioning, encryption, usage)


async def _usage(blobs: BlobStore) -> Usage:
    objects = size = audited = 0
    async for page in list_pages(blobs):
        objects += len(page)
        size += sum(info.size for info in page)
        trails = (info for info in page if info.key.startswith(AUDIT))
        times = (info.mtime_ms for info in trails if not info.key.startswith(LAST_RUNS))
        audited = max(audited, *times, 0)
    return Usage(objects, size, audited)


async def _allowed(answer: Awaitable[T]) -> T | None:
    """The answer; None if it may not be read, or the service does not have it."""
    try:
        return await answer
    except (PermissionDeniedError, UnsupportedError):
        return None
