"""The parts of a volume under diagnosis: table, data, log and hot location, each by itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from s3k_async._core.metering import Part
from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async._core.runtime import Runtime
from s3k_async.backends.location import Location, OpenContext
from s3k_async.backends.ports.interception import TableStore
from s3k_async.backends.ports.service_inspection import (
    BucketInspection,
    DiskInspection,
    TableInspection,
)
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.config import BlobLocation, VolumeConfig
from s3k_async.txn.volume_record import VolumeRecord
from s3k_async.volumes.connections import VolumeConnections, hot_location, log_location

__all__ = ["BlobPart", "TablePart", "VolumeParts", "open_parts"]

_RETRIES: Final = Retries.alike(RetryPolicy(attempts=2, deadline=2.0))
"""A service that is down is reported at once."""


@dataclass(slots=True)
class TablePart:
    """The table."""

    location: Location
    items: RetryingItems
    store: TableStore
    inspection: TableInspection | DiskInspection | None
    name: str = "table"
    blocked: str = ""
    """Why it cannot be used, once that is known; its other checks are skipped."""


@dataclass(slots=True)
class BlobPart:
    """A location of blobs."""

    name: str
    """`data`, `log` or `hot`."""
    location: BlobLocation
    blobs: RetryingBlobs
    inspection: BucketInspection | DiskInspection | None
    blocked: str = ""


@dataclass(slots=True)
class VolumeParts:
    """All parts of a volume, and what was found out about it so far."""

    config: VolumeConfig
    runtime: Runtime
    table: TablePart
    blobs: list[BlobPart]
    """The data location, then those that the record says there are (`add_recorded`)."""
    connections: VolumeConnections
    opening: Mapping[Part, OpenContext] = field(default_factory=dict)
    record: VolumeRecord | None = None
    """The record, once it was read."""

    @property
    def all(self) -> list[TablePart | BlobPart]:
        """Table and blobs."""
        return [self.table, *self.blobs]

    def add_recorded(self) -> list[BlobPart]:
        """Open the log, unless it is inside the data location or disabled, and the hot location;
        both as the record says, if it is known. Raises ConfigError, UnsupportedError."""
        record, log = self.record, log_location(self.config)
        mode = self.config.log_mode if record is None else record.log_mode
        added = []
        if mode != "disabled" and log.prefix_within(self.config.data) is None:
            added.append(self.add("log", log))
        if (hot := hot_location(self.config, "" if record is None else record.hot)) is not None:
            added.append(self.add("hot", hot))
        return added

    def add(self, name: str, location: BlobLocation) -> BlobPart:
        """Open a further location."""
        part: Part = "log" if name == "log" else "data"
        inspection = location.inspection(self.opening[part])
        if isinstance(inspection, BucketInspection):
            self.connections.stack.push_async_callback(inspection.close)
        known = inspection if isinstance(inspection, BucketInspection | DiskInspection) else None
        opened = BlobPart(name, location, self.connections.blobs(location, part), known)
        self.blobs.append(opened)
        return opened


def open_parts(
    config: VolumeConfig,
    stack: AsyncExitStack,
    *,
    session: object | Mapping[str, object] | None,
    runtime: Runtime,
) -> VolumeParts:
    """The parts of a configured volume; no request is sent yet. Raises ConfigError,
    UnsupportedError."""
    config = replace(config, tuning=replace(config.tuning, retry=_RETRIES))
    connections = VolumeConnections(config, runtime, session, stack)
    given = session if isinstance(session, Mapping) else {}
    whole = None if isinstance(session, Mapping) else session
    parts_of: tuple[Part, ...] = ("table", "data", "log")
    opening = {part: OpenContext(given.get(part, whole), runtime) for part in parts_of}
    items, store = connections.table()
    table = TablePart(config.table, items, store, connections.table_inspection())
    parts = VolumeParts(config, runtime, table, [], connections, opening)
    parts.add("data", config.data)
    return parts
