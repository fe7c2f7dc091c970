"""Open volumes: adapters, record and upper layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Final

from s3k_async._core.active_calls import Calls
from s3k_async._core.metering import RequestCounter
from s3k_async._core.observation import Observer
from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ballast import Ballast
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import Item, ItemStore, ItemTable
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.config import BlobLocation, Tuning, VolumeConfig
from s3k_async.errors import (
    ConfigError,
    PermissionDeniedError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.layouts.path.path_layout import PathLayout
from s3k_async.layouts.tree.tree_layout import TreeLayout
from s3k_async.model import LayoutName
from s3k_async.namespace.layout import Layout
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.log_writer import DisabledLog, NativeLog, OperationLog
from s3k_async.permissions import NO_OWNER, Identity, Ownership
from s3k_async.storage.cache_directory import CacheDirectory, CacheLimits
from s3k_async.storage.cached_reads import CachedReads
from s3k_async.storage.hot_fills import HotFills
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.table.keys import KeyScheme
from s3k_async.table.legacy_tables import check_suffixes
from s3k_async.txn.bucket_counters import BucketCounters
from s3k_async.txn.lease import Moment
from s3k_async.txn.volume_lock import RecordFence
from s3k_async.txn.volume_record import (
    RECORD_KEY,
    VolumeRecord,
    find_or_repair,
    load_or_repair,
    location_text,
    need_item,
)
from s3k_async.volumes.claims import require_claim, table_identity
from s3k_async.volumes.connections import VolumeConnections, hot_location, log_location

__all__ = [
    "NO_PATIENCE",
    "Volume",
    "is_beside",
    "metadata_store",
    "needs_mark",
    "open_volume",
    "require_agreement",
    "require_encryptions",
    "require_table",
]

NO_PATIENCE = RetryPolicy(attempts=1)
LAYOUTS: Final[Mapping[LayoutName, Callable[[MetadataStore], Layout]]] = {
    "path": PathLayout,
    "tree": TreeLayout,
}


@dataclass(frozen=True, slots=True, eq=False)
class Volume:
    """An open volume: its parts, assembled. Belongs to the event loop that opened it."""

    config: VolumeConfig
    """The configuration, completed from the record."""
    record: VolumeRecord
    """The record in the table; of an s3k-1.0 volume, one made of its settings."""
    items: RetryingItems
    table: ItemTable
    blobs: BlobStore
    """The volume's own blobs, by keys below its scope: `TieredBlobs` of a volume with tiers."""
    place: RetryingBlobs
    """The whole data location, with its mark and adopted objects."""
    hot_place: RetryingBlobs | None
    """The whole hot location; None in a volume without one."""
    log_place: RetryingBlobs | None
    """The whole log location; None without a log."""
    log_blobs: RetryingBlobs | None
    """The operation log, by keys below the volume's scope; None without a log."""
    storage: PhysicalStorage
    log: OperationLog
    store: MetadataStore
    read_only: bool
    calls: Calls
    """The active calls of its client."""
    counter: RequestCounter
    """Counter of requests to all of its parts."""
    _ballast: Ballast | None
    _stack: AsyncExitStack

    def is_same(self, other: Volume) -> bool:
        """Whether another client has opened the same volume, perhaps by another address."""
        volume_id = self.record.volume_id  # empty for a volume of S3-FileSystem 1.0
        return self is other or (volume_id != "" and volume_id == other.record.volume_id)

    async def need_record(self) -> Item:
        """The record item as it is now. Raises VolumeNotFoundError if the volume was destroyed
        since it was opened, or is being destroyed."""
        return await need_item(self.items, self.record, self.config.where)

    def freeing_space(self) -> AbstractContextManager[None]:
        """Context of calls that free space: on a full disk they may use the space of an embedded
        volume's ballast file."""
        return nullcontext() if self._ballast is None else self._ballast.released()

    async def close(self) -> None:
        """Wait for the log's deferred commits, then release connections and files. Idempotent."""
        await self._stack.aclose()


async def open_volume(
    config: VolumeConfig,
    *,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    counter: RequestCounter | None = None,
    observer: Observer | None = None,
    locked: bool = False,
) -> Volume:
    """Open an existing volume.

    `session`: an aioboto3 session, or a mapping from `table`, `data` and `log` to sessions.
    `counter` counts the requests, `observer` observes them. `locked`: for a caller that is about to
    take the volume's exclusive lock (see `volumes.exclusive_volume`).

    Raises VolumeNotFoundError (no table, record, bucket or directory), BusyError (another client
    holds that lock, or was interrupted while holding it), NotAVolumeError, VolumeFormatError,
    VolumeMismatchError (`config` contradicts the record or the table's keys), ConfigError, and the
    services' errors; all connections are closed then.
    """
    async with AsyncExitStack() as stack:
        connections = VolumeConnections(
            config, runtime, session, stack, counter or RequestCounter(), observer
        )
        items, table = connections.table()
        where = config.where
        await require_table(connections, table, where)
        since = Moment.now(runtime)
        record = await _record(connections, items, table, where, locked=locked)
        native = record.kind == "native"
        config = recorded(config, record)
        observer = connections.observer
        if observer is not None:
            observer.volume = record.name
        if native and not locked:
            items.fence(RecordFence(lambda: items.peek(RECORD_KEY), record, since, runtime, where))
        require_encryptions(config, writable=native)
        place = connections.blobs(config.data, "data")
        await _require_place(place)
        if native:
            await _require_mark(place, config.data, record, config)
        log_place: RetryingBlobs | None = None
        log_blobs: RetryingBlobs | None = None
        if config.log is not None:
            log_place = connections.blobs(config.log, "log")
            await _require_place(log_place)
            if native and not is_beside(config.log, config):
                await _require_mark(log_place, config.log, record, config)
            log_blobs = log_place.below(record.scope)
        log: OperationLog = DisabledLog()
        if native and log_blobs is not None:
            log = NativeLog(log_blobs, runtime)
            stack.push_async_callback(log.close)
        keys = KeyScheme(record.name, record.suffix_count, record.hash, record.layout)
        counters = BucketCounters(items, runtime) if record.counters else None
        if counters is not None:
            stack.push_async_callback(counters.close)
        store = metadata_store(
            items,
            keys,
            log,
            runtime,
            config.tuning,
            read_only=not native,
            identity=identity_of(config, record),
            root=record.root,
            rules=record.rules,
            counters=counters,
        )
        blobs: BlobStore = place.below(record.scope)
        fills: HotFills | None = None
        hot = await _hot_place(connections, record)
        if hot is not None:
            blobs = TieredBlobs(
                hot.below(record.scope), blobs, through=config.tuning.hot_writes == "through"
            )
            if config.tuning.hot_reads == "fill":
                fills = HotFills(blobs, runtime, config.tuning)
                stack.push_async_callback(fills.close)
        cache = await _read_cache(config, record, runtime, stack)
        storage = PhysicalStorage(
            blobs,
            runtime,
            config.tuning,
            place=place,
            scope=record.scope,
            extents=record.extents,
            cache=cache,
            fills=fills,
        )
        return Volume(
            config=config,
            record=record,
            items=items,
            table=table,
            blobs=blobs,
            place=place,
            hot_place=hot,
            log_place=log_place,
            log_blobs=log_blobs,
            storage=storage,
            log=log,
            store=store,
            read_only=not native,
            calls=Calls(record.name, observer),
            counter=connections.counter,
            _ballast=config.table.ballast(),
            _stack=stack.pop_all(),
        )


async def _hot_place(connections: VolumeConnections, record: VolumeRecord) -> RetryingBlobs | None:
    """The whole hot data location; None in a volume without one. Raises as `open_volume`."""
    config = connections.config
    location = hot_location(config, record.hot)
    if location is None:
        return None
    location.require_encryption(writable=True)
    hot = connections.blobs(location, "data")
    await _require_place(hot)
    await _require_mark(hot, location, record, connections.config)
    return hot


async def _require_mark(
    blobs: RetryingBlobs, location: BlobLocation, record: VolumeRecord, config: VolumeConfig
) -> None:
    """Check the mark of a location. Raises as `require_claim`, and VolumeNotFoundError for a
    missing one where a disk may not be mounted: the objects there would be taken for deleted."""
    is_found = await require_claim(blobs, record, table_identity(config, location))
    if not is_found and needs_mark(location, record, config):
        raise VolumeNotFoundError(
            "the location has no mark of the volume: a directory that is on another machine, or "
            "whose disk is not mounted, holds files of the volume, so that nothing can be read "
            "without it: mount the disk; if only the mark was lost, s3k init --take-over writes it "
            "again",
            path=location.label,
        )


async def _read_cache(
    config: VolumeConfig, record: VolumeRecord, runtime: Runtime, stack: AsyncExitStack
) -> CachedReads | None:
    """The read cache of a client; None unless it is configured, and for data on this machine's
    disks. Raises ConfigError."""
    tuning = config.tuning
    if tuning.cache is None or not config.data.is_remote:
        return None
    cache = CachedReads(
        CacheDirectory(tuning.cache, runtime),
        CacheLimits.of(tuning),
        runtime,
        scope=record.scope,
        block=tuning.cache_block,
        writes=tuning.cache_writes,
    )
    await cache.prepare()
    stack.push_async_callback(cache.close)
    return cache


def metadata_store(
    items: ItemStore,
    keys: KeyScheme,
    log: OperationLog,
    runtime: Runtime,
    tuning: Tuning,
    *,
    read_only: bool,
    identity: Identity | None = None,
    root: Ownership = NO_OWNER,
    rules: bool = False,
    counters: BucketCounters | None = None,
) -> MetadataStore:
    """The metadata store of a volume in its layout; without an identity no permission is
    evaluated. `rules`: whether the volume has that feature; `counters`: those of its buckets, if it
    has them."""
    return MetadataStore(
        items,
        keys,
        log,
        runtime,
        tuning,
        LAYOUTS[keys.layout],
        read_only=read_only,
        identity=identity,
        root=root,
        rules=rules,
        counters=counters,
    )


def identity_of(config: VolumeConfig, record: VolumeRecord) -> Identity | None:
    """Whom a client acts for: the configured user, else that of this process; None in a volume that
    does not evaluate permissions."""
    if not record.permissions:
        return None
    return Identity.of(config.tuning.uid, config.tuning.gids)


def recorded(config: VolumeConfig, record: VolumeRecord) -> VolumeConfig:
    """The configuration with the values of the volume record."""
    log = log_location(config) if record.kind == "native" else config.log
    return replace(
        config,
        name=record.name,
        kind=record.kind,
        suffix_count=record.suffix_count,
        hash=record.hash,
        layout=record.layout,
        trash_retention=record.trash_retention,
        log_mode=record.log_mode,
        log=None if record.log_mode == "disabled" else log,
    )


def _wanted(config: VolumeConfig) -> dict[str, object]:
    """The fields of a native volume's record in a configuration; None for unset ones."""
    return {
        "kind": "native",
        "name": config.name or None,
        "suffix_count": config.suffix_count,
        "hash": config.hash,
        "layout": config.layout,
        "log_mode": config.log_mode,
        "data": location_text(config.data, config.table),
    }


def require_agreement(record: VolumeRecord, config: VolumeConfig, where: str) -> None:
    """Raises VolumeMismatchError if the configuration contradicts the record."""
    wanted = _wanted(config)
    if record.log_mode != "disabled":
        wanted["log"] = location_text(log_location(config), config.table)
    record.require(wanted, where)


async def require_table(connections: VolumeConnections, table: ItemTable, where: str) -> None:
    """Raises VolumeNotFoundError without a table, NotAVolumeError for a table with other keys."""
    try:
        exists = await connections.retry_read(table.exists)
    except PermissionDeniedError:
        # Describing a table needs a separate permission; the first use reports a missing table.
        return
    if not exists:
        raise VolumeNotFoundError("no volume is here: the table does not exist", path=where)


def require_encryptions(config: VolumeConfig, *, writable: bool = True) -> None:
    """Raises ConfigError if data or log would need an unsupported encryption for writing, or
    client-side encryption for reading."""
    for location in (config.data, config.log):
        if location is not None:
            location.require_encryption(writable=writable)


def needs_mark(location: BlobLocation, record: VolumeRecord, config: VolumeConfig) -> bool:
    """Whether a location cannot be used without its mark: a hot one, and a local directory that is
    not below that of the table's file, and so may be on another disk. Volumes of the first versions
    may have no marks."""
    text = location_text(location, config.table)
    is_elsewhere = location.directory is not None and not text.startswith("./")
    return text == record.hot or (is_elsewhere and bool(record.scope))


def is_beside(log: BlobLocation, config: VolumeConfig) -> bool:
    """Whether the log is in the data location, or with the data in the directory of an embedded
    volume: the mark of the data applies to both."""
    log_text, data_text = location_text(log, config.table), location_text(config.data, config.table)
    return log_text.startswith(data_text) or (
        log_text.startswith("./") and data_text.startswith("./")
    )


async def _require_place(blobs: RetryingBlobs) -> None:
    try:
        exists = await blobs.exists()
    except PermissionDeniedError:
        return
    if not exists:
        place = blobs.uri("-").removesuffix("-")
        raise VolumeNotFoundError(
            "a bucket or directory of the volume does not exist: bring it back, or mount its disk",
            path=place,
        )


async def _record(
    connections: VolumeConnections,
    items: RetryingItems,
    table: ItemTable,
    where: str,
    *,
    locked: bool,
) -> VolumeRecord:
    config = connections.config
    runtime, policy = connections.runtime, config.tuning.retry.write
    if config.kind == "native":
        record: VolumeRecord | None = await load_or_repair(
            items, table, where, runtime=runtime, policy=policy, locked=locked
        )
    else:
        record = await find_or_repair(
            items, table, where, runtime=runtime, policy=policy, patience=NO_PATIENCE
        )
    if record is None and config.table_prefix:
        raise VolumeNotFoundError("the table has no volume with this prefix", path=where)
    if record is None:
        return await _legacy_record(config, items, where)
    if config.kind == "s3k-1.0":
        raise VolumeMismatchError(
            "the table holds a native volume, not one of S3-FileSystem 1.0", path=where
        )
    require_agreement(record, config, where)
    return record


async def _legacy_record(config: VolumeConfig, items: RetryingItems, where: str) -> VolumeRecord:
    if config.suffix_count is None:
        raise ConfigError(
            "the table has no volume record; to read it as s3k-1.0, give its suffix_count",
            path=where,
        )
    if not config.name:
        raise ConfigError(
            "an s3k-1.0 volume is opened by its name, which is its bucket's", path=where
        )
    keys = KeyScheme(config.name, config.suffix_count, config.hash or "java31")
    await check_suffixes(items, keys, where)
    logged = config.log is not None and config.log_mode != "disabled"
    return VolumeRecord(
        name=config.name,
        suffix_count=config.suffix_count,
        hash=keys.hash,
        data=location_text(config.data, config.table),
        log_mode="binary" if logged else "disabled",
        log=location_text(config.log, config.table) if config.log is not None and logged else "",
        volume_id="",
        created_ms=0,
        kind="s3k-1.0",
    )
