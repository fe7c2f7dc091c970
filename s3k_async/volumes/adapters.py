"""From a location to the adapter that speaks to it, imported when it is first needed."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar

from s3k_async.concurrency import AdaptiveLimit
from s3k_async.config import (
    BlobLocation,
    DynamoTable,
    LocalDirectory,
    MemoryBlobs,
    S3Bucket,
    SqliteFile,
    TableLocation,
    VolumeConfig,
)
from s3k_async.requests import Meter, Part, RequestCounter
from s3k_async.retry import retry
from s3k_async.sources import Sources
from s3k_async.stores.blobs import BlobStore
from s3k_async.stores.interception import INTERCEPTOR, Interceptor, TableStore
from s3k_async.stores.items import ItemTable
from s3k_async.stores.reliable_blobs import ReliableBlobs
from s3k_async.stores.reliable_items import ReliableItems

__all__ = ["Connections", "beside_data", "log_location", "table_text"]

T = TypeVar("T")


def table_text(table: TableLocation) -> str:
    """A table's name in messages."""
    if isinstance(table, DynamoTable):
        return table.name
    return table.path if isinstance(table, SqliteFile) else f"memory://{table.name}"


def beside_data(data: BlobLocation) -> BlobLocation:
    """The log's place where nothing else is said."""
    if isinstance(data, S3Bucket):
        return replace(data, prefix=f"{data.prefix}oplog/")
    if isinstance(data, LocalDirectory):
        return LocalDirectory(os.path.join(data.path, "oplog"))
    return MemoryBlobs(f"{data.name}/oplog")


def log_location(config: VolumeConfig) -> BlobLocation:
    """Where a native volume's log is: never in among the data."""
    if config.log is None or _place(config.log) == _place(config.data):
        return beside_data(config.data)
    return config.log


def _place(location: BlobLocation) -> object:
    """What tells places apart, whatever is said of how they are reached."""
    if isinstance(location, S3Bucket):
        return location.bucket, location.prefix, location.aws.installation
    return location


@dataclass(slots=True)
class Connections:
    """Adapters of one volume; whatever is made here is closed with `stack`.

    `session`: an aioboto3 session, or a mapping of `table`, `data` and `log` to one each.
    """

    config: VolumeConfig
    sources: Sources
    session: object | None
    stack: AsyncExitStack
    counter: RequestCounter = field(default_factory=RequestCounter)
    """Counts the requests of the client that the volume is opened for."""
    interceptor: Interceptor | None = field(default_factory=INTERCEPTOR.get)
    _limits: dict[Part, AdaptiveLimit] = field(default_factory=dict)

    def table(self) -> tuple[ReliableItems, ItemTable]:
        """The items and the table they are in."""
        store = self._table(self.config.table)
        if self.interceptor is not None:
            store = self.interceptor.items(store)
        self.stack.push_async_callback(store.close)
        meter = Meter("table", self.counter)
        return ReliableItems(
            store, self.config.tuning.retry, self.sources, self._limit("table"), meter
        ), store

    def blobs(self, location: BlobLocation, part: Part) -> ReliableBlobs:
        """The blobs at a place; `part` is `data` or `log`."""
        store = self._blobs(location, part)
        if self.interceptor is not None:
            store = self.interceptor.blobs(store)
        self.stack.push_async_callback(store.close)
        meter = Meter(part, self.counter)
        return ReliableBlobs(
            store, self.config.tuning.retry, self.sources, self._limit(part), meter
        )

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """A call that may be sent again, under the volume's retry policy."""
        return await retry(call, self.config.tuning.retry.write, self.sources)

    async def asked(self, question: Callable[[], Awaitable[T]]) -> T:
        """As `patiently`, for a call that changes nothing."""
        return await retry(question, self.config.tuning.retry.read, self.sources)

    def _limit(self, part: Part) -> AdaptiveLimit:
        """What everything of the volume that goes to one place shares."""
        return self._limits.setdefault(part, AdaptiveLimit(self.config.tuning.max_concurrency))

    def _session(self, part: str) -> object | None:
        return self.session.get(part) if isinstance(self.session, Mapping) else self.session

    def _table(self, location: TableLocation) -> TableStore:
        if isinstance(location, DynamoTable):
            from s3k_async.stores.dynamodb_wire import WireItems

            return WireItems(location, self._session("table"), sources=self.sources)
        if isinstance(location, SqliteFile):
            from s3k_async.stores.sqlite import SqliteItems

            return SqliteItems(location.path)
        from s3k_async.stores.memory_items import MemoryItems

        return MemoryItems(location.name, self.sources)

    def _blobs(self, location: BlobLocation, part: str) -> BlobStore:
        if isinstance(location, S3Bucket):
            from s3k_async.stores.s3_wire import WireBlobs

            return WireBlobs(location, self._session(part), self.sources)
        if isinstance(location, LocalDirectory):
            from s3k_async.stores.local import LocalBlobs

            return LocalBlobs(location.path)
        from s3k_async.stores.memory_blobs import MemoryBlobs as MemoryBlobStore

        return MemoryBlobStore(location.name, self.sources)
