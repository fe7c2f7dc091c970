"""Creation of a volume: locations, table, and last the volume record, with which it exists."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from s3k_async._core.metering import Part
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.location import require_capabilities
from s3k_async.backends.ports.items import ItemTable
from s3k_async.backends.registry import BLOBS
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ConfigError,
    UnsupportedError,
    VolumeExistsError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.model import Feature, LayoutName
from s3k_async.permissions import Identity
from s3k_async.settings.locations import check_name, name_of_directory
from s3k_async.storage.tiered_blobs import require_apart
from s3k_async.txn.shared_table import require_shareable, share
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.txn.volume_record import (
    PERMISSIONS,
    SCOPED,
    TIERS,
    TRASH_RETENTION,
    TREE,
    VolumeRecord,
    create_record,
    features_of,
    find_or_repair,
    layout_of,
    load_or_repair,
    location_text,
    need_retention,
    require_flags,
)
from s3k_async.volumes import claims
from s3k_async.volumes.claims import (
    claim,
    marked_hot,
    read_claim,
    require_free,
    require_unclaimed,
    table_identity,
)
from s3k_async.volumes.connections import VolumeConnections, hot_location, log_location
from s3k_async.volumes.volume import NO_PATIENCE, require_agreement, require_encryptions

__all__ = ["DEFAULT_SUFFIX_COUNT", "EMBEDDED_SUFFIX_COUNT", "claim_hot", "hot_text", "init_volume"]

DEFAULT_SUFFIX_COUNT: Final = 10
EMBEDDED_SUFFIX_COUNT: Final = 4
DEFAULT_LAYOUT: Final[LayoutName] = "path"
EMBEDDED_LAYOUT: Final[LayoutName] = "tree"
"""Of volumes whose table is a local file. Why: docs/layouts.md."""
MAX_SUFFIX_COUNT: Final = 1000


async def init_volume(
    config: VolumeConfig,
    *,
    exist_ok: bool = False,
    take_over: bool = False,
    adopting: bool = False,
    enable: Collection[Feature] = (),
    without: Collection[Feature] = (),
    hot: str = "",
    hot_on_this_machine: bool = False,
    lock: VolumeLock | None = None,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
) -> VolumeRecord:
    """Create a volume: buckets or directories, table, record. Existing buckets, directories and
    tables are used.

    Of concurrent calls exactly one creates it. An existing volume raises VolumeExistsError; with
    `exist_ok`, its record is returned, if it agrees with `config` (else VolumeMismatchError). Also
    raises ConfigError (also for an unspecified kind, which only an existing volume can determine),
    NotAVolumeError (the table holds something else), VolumeExistsError if the data or log location
    is another volume's, VolumeFormatError (it is that of an unfinished volume of another version),
    UnsupportedError for kind `s3k-1.0`, and the services' errors. After a failure, the same call
    continues, with the layout of the mark. A volume created with a `lock` was never open to another
    client.

    A location with objects of another volume is refused: VolumeExistsError. `adopting`: allow
    objects of a volume of S3-FileSystem 1.0, whose files are to be adopted. `take_over`: the table
    exists, and replaces the one in the marks of its locations, after a restore from a backup under
    another name, or after a rename. The other table must no longer be used. Missing marks are
    written again. `enable`: features that a new volume gets beside the default ones; `without`:
    those that it does not get. Raises InvalidArgumentError if they contradict each other. `hot`:
    the hot data location, empty for none; `hot_on_this_machine` as of `hot_text`.
    """
    hot = hot_text(config, hot, on_this_machine=hot_on_this_machine)
    wanted = _new_record(config, runtime, enable=enable, without=without, hot=hot)
    where = config.where
    async with AsyncExitStack() as stack:
        connections = VolumeConnections(config, runtime, session, stack)
        items, table = connections.table()
        existing = await _existing(connections, items, table, where)
        if existing is None and take_over:
            raise VolumeNotFoundError(
                "the table holds no volume that could take over its locations", path=where
            )
        if existing is None:
            _require_kind(config, where)
            require_encryptions(config)
            record = await _claimed(
                connections, wanted, adopting=adopting, rebuilding=lock is not None
            )
            await _make_table(connections, table)
            if config.table_prefix:
                await share(*connections.whole_table(), where, runtime=runtime)
            try:
                await create_record(
                    items,
                    table,
                    record,
                    where,
                    runtime=runtime,
                    policy=config.tuning.retry.write,
                    lock=None if lock is None else lock.fields(),
                )
            except VolumeExistsError:
                if not exist_ok:
                    raise
                existing = await load_or_repair(
                    items, table, where, runtime=runtime, policy=config.tuning.retry.write
                )
            else:
                return record
        if not exist_ok and not take_over:
            raise VolumeExistsError("the volume exists already", path=where)
        require_agreement(existing, config, where)
        existing.require({"hot": hot or None}, where)
        _require_retention(existing, config, where)
        if take_over:
            await _take_over(connections, existing)
        return existing


def _new_record(
    config: VolumeConfig,
    runtime: Runtime,
    *,
    enable: Collection[Feature],
    without: Collection[Feature],
    hot: str,
) -> VolumeRecord:
    """The record of the new volume. Raises ConfigError before the first request."""
    where = config.where
    if config.kind == "s3k-1.0":
        raise UnsupportedError(
            "volumes of kind s3k-1.0 are made by S3-FileSystem; they can only be read", path=where
        )
    if config.log_mode == "binary":
        raise ConfigError(
            "the binary log is S3-FileSystem's; a native volume has a native log or none",
            path=where,
        )
    home = config.table.home
    name = config.name or config.table.volume_name or (name_of_directory(home) if home else "")
    if not name:
        raise ConfigError("a new volume needs a name: s3k://NAME or the option name", path=where)
    count = config.suffix_count
    if count is None:
        count = EMBEDDED_SUFFIX_COUNT if home else DEFAULT_SUFFIX_COUNT
    if not 1 <= count <= MAX_SUFFIX_COUNT:
        raise ConfigError(f"the suffix count is 1 to {MAX_SUFFIX_COUNT}, not {count}", path=where)
    layout = config.layout or (EMBEDDED_LAYOUT if home else DEFAULT_LAYOUT)
    features = features_of(enable, without, where)
    mode = config.log_mode or "native"
    record = VolumeRecord(
        name=check_name(name),
        suffix_count=count,
        hash=config.hash or "xxh3",
        data=location_text(config.data, config.table),
        log_mode=mode,
        log="" if mode == "disabled" else location_text(log_location(config), config.table),
        volume_id=runtime.uuid(),
        created_ms=runtime.now_ms(),
        flags=(
            SCOPED,
            *((TREE,) if layout == "tree" else ()),
            *features,
            *((TIERS,) if hot else ()),
        ),
        hot=hot,
        trash_retention=_retention(config, layout, where),
        root_owner=_creator(config) if PERMISSIONS in features else "",
    )
    record.to_tag()
    return record


def _creator(config: VolumeConfig) -> str:
    """The owner of the root: whom the caller acts for."""
    creator = Identity.of(config.tuning.uid, config.tuning.gids)
    return f"{creator.uid}:{creator.gid}"


def hot_text(config: VolumeConfig, hot: str, *, on_this_machine: bool) -> str:
    """The text in the record of a hot location; empty for an empty one. A relative directory is
    below the working directory. `on_this_machine`: accept one on this machine for a volume that
    others can reach. Raises ConfigError, UnsupportedError."""
    if not hot:
        return ""
    location = hot_location(config, BLOBS.of_setting(hot).anchored(hot, None))
    assert location is not None
    require_capabilities(location)
    location.require_encryption(writable=True)
    for other in (config.data, log_location(config)):
        one, two = (each.text(None) for each in (location, other))
        if one.startswith(two) or (two.startswith(one) and other is config.data):
            raise ConfigError(
                "the hot location and the other locations of the volume are the same, or one is "
                "inside the other; give another bucket, prefix or directory",
                path=location.label,
            )
    if not location.is_remote and config.data.is_remote and not on_this_machine:
        raise ConfigError(
            "the hot location is on this machine, and the data location is not: only clients of "
            "this machine can use the volume then; give a bucket, or confirm it with "
            "--hot-on-this-machine (hot_on_this_machine)",
            path=location.label,
        )
    return location_text(location, config.table)


def _retention(config: VolumeConfig, layout: LayoutName, where: str) -> int | None:
    """The retention of the trash of a new volume; None in a layout without a trash. Raises
    ConfigError, InvalidArgumentError."""
    asked = config.trash_retention
    if layout == "path":
        if asked is not None:
            raise ConfigError(
                "the volume has layout path, which has no trash: leave out trash_retention",
                path=where,
            )
        return None
    return TRASH_RETENTION if asked is None else need_retention(asked)


def _require_retention(record: VolumeRecord, config: VolumeConfig, where: str) -> None:
    """Raises VolumeMismatchError if an existing volume has another retention than the one asked
    for. Clients are not compared with it, since it can be changed at any time."""
    difference = record.differences({"trash_retention": config.trash_retention})
    if difference:
        raise VolumeMismatchError(
            f"the volume has another retention of the trash: {difference}; s3k trash retention "
            "changes it",
            path=where,
        )


def _require_kind(config: VolumeConfig, where: str) -> None:
    """Refuse an unspecified kind: a native record in a table of S3-FileSystem 1.0 breaks its scans,
    and its writers would overwrite native entries."""
    if config.kind is None:
        raise ConfigError(
            "the Hadoop settings do not say whose volume this is, and a table of S3-FileSystem 1.0 "
            "must"
            " not become a native volume: to make a native one, give the option kind (--kind "
            "native),"
            f" or fs.s3k.volume.kind.{config.name} = native in the Hadoop settings",
            path=where,
        )


async def _existing(
    connections: VolumeConnections, items: RetryingItems, table: ItemTable, where: str
) -> VolumeRecord | None:
    """The existing record. Raises NotAVolumeError for a table of other software, and
    VolumeMismatchError for a prefix in a table that is not shared, or a missing prefix in a shared
    one."""
    if not await connections.retry_read(table.exists):
        return None
    policy = connections.config.tuning.retry.write
    record = await find_or_repair(
        items, table, where, runtime=connections.runtime, policy=policy, patience=NO_PATIENCE
    )
    if record is None and connections.config.table_prefix:
        await require_shareable(*connections.whole_table(), where)
    elif record is None:
        page = await items.scan(0, 1, limit=1)
        if page.items or page.next is not None:
            await load_or_repair(
                items,
                table,
                where,
                runtime=connections.runtime,
                policy=policy,
                patience=NO_PATIENCE,
            )
    return record


async def _claimed(
    connections: VolumeConnections, record: VolumeRecord, *, adopting: bool, rebuilding: bool
) -> VolumeRecord:
    """Create and mark the locations; returns the record with the id and layout of their marks.
    `rebuilding`: use the locations of a volume whose table was lost."""
    config = connections.config
    table, log_table = (
        table_identity(config, config.data),
        table_identity(config, log_location(config)),
    )
    blobs = await _make_place(connections, config, "data")
    log_blobs = (
        None if record.log_mode == "disabled" else await _make_place(connections, config, "log")
    )
    # The other locations are free before the data is marked for a volume with them.
    if await read_claim(blobs) is None:
        await require_unclaimed(blobs, adopting=adopting)
        if log_blobs is not None:
            await require_free(log_blobs, log_table, adopting=adopting)
    elif log_blobs is not None and await read_claim(log_blobs) is None:
        await require_unclaimed(log_blobs, adopting=adopting)
    await _free_hot(connections, record)
    made = await claim(blobs, record.volume_id, record.name, table, layout=_layout(record))
    if made.scope and made.volume_id != record.volume_id and not rebuilding:
        for place in (blobs, log_blobs):
            if place is not None and (await place.list(made.scope, limit=1)).blobs:
                raise VolumeExistsError(
                    f"the location holds the objects of the volume {made.name!r}, whose table is "
                    "not there: s3k fsck"
                    " restore, or s3k load, makes it again; for a new volume give another location",
                    path=place.uri(made.scope + "-").removesuffix("-"),
                )
    where = config.where
    require_flags(made.flags, f"the volume of the mark {blobs.uri(claims.CLAIM)}", where)
    retention = _retention(config, layout_of(made.flags), where)
    if rebuilding:
        await marked_hot(connections, made)
    elif made.hot != record.hot:
        raise VolumeMismatchError(
            f"the mark of the data location names the hot location {made.hot or '(none)'}, not "
            f"{record.hot or '(none)'}: create the volume with that one, or in another data "
            "location; s3k fsck restore makes a lost table again",
            path=where,
        )
    record = replace(
        record,
        volume_id=made.volume_id,
        flags=made.flags,
        hot=made.hot,
        trash_retention=retention,
    )
    await claim_hot(connections, record)
    if log_blobs is not None:
        await claims.take_over(
            log_blobs,
            record.volume_id,
            record.name,
            log_table,
            layout=_layout(record),
            unfinished=True,
        )
    return record


async def claim_hot(connections: VolumeConnections, record: VolumeRecord) -> None:
    """Create and mark the hot location of a record; no effect without one. Raises
    VolumeExistsError if it is another volume's, ConfigError if it is the data location."""
    found = await _free_hot(connections, record)
    if found is not None:
        hot, table = found
        layout = _layout(record)
        await claims.take_over(
            hot, record.volume_id, record.name, table, layout=layout, unfinished=True
        )


async def _free_hot(
    connections: VolumeConnections, record: VolumeRecord
) -> tuple[RetryingBlobs, str] | None:
    """The hot location of a record, which is created, and the identity of the table in its mark;
    None without one. Raises VolumeExistsError if it is another volume's, ConfigError if it is the
    data location under another name."""
    config = connections.config
    location = hot_location(config, record.hot)
    if location is None:
        return None
    await location.prepare()
    hot, table = connections.blobs(location, "data"), table_identity(config, location)
    await hot.create()
    await require_free(hot, table)
    await require_apart(hot, connections.blobs(config.data, "data"), connections.runtime.uuid())
    return hot, table


def _layout(record: VolumeRecord) -> dict[str, object]:
    """Fields of the record in the mark of the data, for a restore of a lost table."""
    return {
        "suffix_count": record.suffix_count,
        "hash": record.hash,
        "flags": " ".join(record.flags),
        **({"hot": record.hot} if record.hot else {}),
    }


async def _take_over(connections: VolumeConnections, record: VolumeRecord) -> None:
    """Mark the locations of a volume for this table."""
    config, layout = connections.config, _layout(record)
    blobs, table = connections.blobs(config.data, "data"), table_identity(config, config.data)
    await claims.take_over(blobs, record.volume_id, record.name, table, layout=layout)
    if (hot := hot_location(config, record.hot)) is not None:
        hot_blobs, hot_table = connections.blobs(hot, "data"), table_identity(config, hot)
        await claims.take_over(hot_blobs, record.volume_id, record.name, hot_table, layout=layout)
    if record.log_mode != "disabled":
        log_blobs = connections.blobs(log_location(config), "log")
        log_table = table_identity(config, log_location(config))
        await claims.take_over(log_blobs, record.volume_id, record.name, log_table, layout=layout)


async def _make_place(
    connections: VolumeConnections, config: VolumeConfig, part: Part
) -> RetryingBlobs:
    location = config.data if part == "data" else log_location(config)
    await location.prepare()
    blobs = connections.blobs(location, part)
    await blobs.create()
    return blobs


async def _make_table(connections: VolumeConnections, table: ItemTable) -> None:
    await connections.config.table.prepare()
    await connections.retry_write(table.create)
