"""The adapters of a volume's locations, imported on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.metering import Meter, Part, RequestCounter
from s3k_async._core.retry import retry
from s3k_async._core.runtime import Sources
from s3k_async.backends.location import OpenContext, require_capabilities
from s3k_async.config import BlobLocation, VolumeConfig
from s3k_async.stores.interception import INTERCEPTOR, Interceptor
from s3k_async.stores.items import ItemTable
from s3k_async.stores.retrying_blobs import ReliableBlobs
from s3k_async.stores.retrying_items import ReliableItems

__all__ = ["VolumeConnections", "log_location"]

T = TypeVar("T")


def log_location(config: VolumeConfig) -> BlobLocation:
    """Where a native volume's log is: never in among the data."""
    if config.log is None or config.log.place == config.data.place:
        return config.data.below("oplog")
    return config.log


@dataclass(slots=True)
class VolumeConnections:
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
        location = self.config.table
        require_capabilities(location)
        store = location.open(self._opening("table"))
        if self.interceptor is not None:
            store = self.interceptor.items(store)
        self.stack.push_async_callback(store.close)
        meter = Meter("table", self.counter)
        return ReliableItems(
            store, self.config.tuning.retry, self.sources, self._limit("table"), meter
        ), store

    def blobs(self, location: BlobLocation, part: Part) -> ReliableBlobs:
        """The blobs at a place; `part` is `data` or `log`."""
        require_capabilities(location)
        store = location.open(self._opening(part))
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

    def _opening(self, part: Part) -> OpenContext:
        session = self.session.get(part) if isinstance(self.session, Mapping) else self.session
        return OpenContext(session, self.sources)
