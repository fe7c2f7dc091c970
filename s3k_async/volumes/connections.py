"""The adapters of a volume's locations, imported on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.metering import Meter, Part, RequestCounter
from s3k_async._core.observation import Observer, inherited_observer
from s3k_async._core.retry import retry
from s3k_async._core.runtime import Runtime
from s3k_async.backends.location import OpenContext, require_capabilities
from s3k_async.backends.ports.interception import INTERCEPTOR, Interceptor, TableStore
from s3k_async.backends.ports.service_inspection import DiskInspection, TableInspection
from s3k_async.backends.registry import BLOBS
from s3k_async.backends.retrying.prefixed_items import PrefixedItems
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.config import AwsConfig, BlobLocation, TableLocation, VolumeConfig

__all__ = ["VolumeConnections", "hot_location", "log_location", "open_table"]

T = TypeVar("T")


def log_location(config: VolumeConfig) -> BlobLocation:
    """Location of a native volume's log, never inside the data location."""
    if config.log is None or config.log.place == config.data.place:
        return config.data.below("oplog")
    return config.log


def hot_location(config: VolumeConfig, hot: str) -> BlobLocation | None:
    """The hot data location of a text, as in the record, with the service settings of the data;
    None for an empty text. Raises ConfigError."""
    if not hot:
        return None
    kind = BLOBS.of_setting(hot)
    return kind.parse(kind.anchored(hot, config.table.home), config.data.service or AwsConfig())


def open_table(
    location: TableLocation, opening: OpenContext, interceptor: Interceptor | None
) -> TableStore:
    """The adapter of a table. Raises UnsupportedError for a backend without the capabilities that a
    volume needs."""
    require_capabilities(location)
    store = location.open(opening)
    return store if interceptor is None else interceptor.items(store)


@dataclass(slots=True)
class VolumeConnections:
    """Adapters of one volume, closed with `stack`.

    `session`: an aioboto3 session, or a mapping from `table`, `data` and `log` to sessions.
    """

    config: VolumeConfig
    runtime: Runtime
    session: object | None
    stack: AsyncExitStack
    counter: RequestCounter = field(default_factory=RequestCounter)
    """Counts the requests of the volume's client."""
    observer: Observer | None = None
    """Observes them."""
    interceptor: Interceptor | None = field(default_factory=INTERCEPTOR.get)
    _limits: dict[Part, AdaptiveLimit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inherited = inherited_observer()
        if inherited is not None:
            own = self.observer
            self.observer = inherited if own is None else own.joined(inherited)

    def table(self) -> tuple[RetryingItems, TableStore]:
        """The items of the volume and their table. Raises ConfigError for an invalid prefix."""
        store = self._whole_table()
        if self.config.table_prefix:
            store = PrefixedItems(store, self.config.table_prefix)
        return self._retrying(store), store

    def whole_table(self) -> tuple[RetryingItems, TableStore]:
        """As `table`, with the items of all volumes of the table, under their full keys."""
        store = self._whole_table()
        return self._retrying(store), store

    def _whole_table(self) -> TableStore:
        store = open_table(self.config.table, self._opening("table"), self.interceptor)
        self.stack.push_async_callback(store.close)
        return store

    def table_inspection(self) -> TableInspection | DiskInspection | None:
        """Settings and state of the table, if its location has them."""
        found = self.config.table.inspection(self._opening("table"))
        if isinstance(found, TableInspection):
            self.stack.push_async_callback(found.close)
        return found if isinstance(found, TableInspection | DiskInspection) else None

    def _retrying(self, store: TableStore) -> RetryingItems:
        return RetryingItems(
            store,
            self.config.tuning.retry,
            self.runtime,
            self._limit("table"),
            Meter("table", self.counter),
            self.observer,
        )

    def blobs(self, location: BlobLocation, part: Part) -> RetryingBlobs:
        """The blobs at a location; `part` is `data` or `log`."""
        require_capabilities(location)
        store = location.open(self._opening(part))
        if self.interceptor is not None:
            store = self.interceptor.blobs(store)
        self.stack.push_async_callback(store.close)
        meter = Meter(part, self.counter)
        return RetryingBlobs(
            store, self.config.tuning.retry, self.runtime, self._limit(part), meter, self.observer
        )

    def hot(self, text: str) -> RetryingBlobs | None:
        """The blobs at the hot location of a text, as in the record; None for an empty text. Raises
        ConfigError."""
        location = hot_location(self.config, text)
        return None if location is None else self.blobs(location, "data")

    async def retry_write(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run an idempotent call under the volume's retry policy of writes."""
        return await retry(call, self.config.tuning.retry.write, self.runtime)

    async def retry_read(self, call: Callable[[], Awaitable[T]]) -> T:
        """As `retry_write`, for a read."""
        return await retry(call, self.config.tuning.retry.read, self.runtime)

    def _limit(self, part: Part) -> AdaptiveLimit:
        """The concurrency limit of all requests of the volume to one part."""
        return self._limits.setdefault(part, AdaptiveLimit(self.config.tuning.max_concurrency))

    def _opening(self, part: Part) -> OpenContext:
        session = self.session.get(part) if isinstance(self.session, Mapping) else self.session
        conditional = self.config.tuning.change_detection != "client"
        return OpenContext(session, self.runtime, conditional)
