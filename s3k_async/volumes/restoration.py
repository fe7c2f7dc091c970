"""Restoration of a volume with lost entries or a lost table: see `integrity.local_restore`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeAlias, get_args

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import Item, Value
from s3k_async.backends.ports.pagination import query_all, scan_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    DirectoryNotEmptyError,
    ItemFormatError,
    NotAVolumeError,
    PathNotFoundError,
    ReadOnlyVolumeError,
    UnsupportedError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.integrity.audit import AuditRecord, AuditTrail
from s3k_async.integrity.local_restore import (
    ExistingEntries,
    MakeTree,
    RestorePlan,
    plan_restore,
)
from s3k_async.integrity.restore_plan import TreePlan
from s3k_async.integrity.restore_report import RestoreReport
from s3k_async.layouts.path.path_restore import PathPlan
from s3k_async.layouts.tree.tree_restore import IdPlan
from s3k_async.model import DEFAULT_FEATURES, ROOT, Entry, HashName, LayoutName, Progress
from s3k_async.namespace.layout import LayoutCheck
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import Operation
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.table.codec import from_item, from_items, to_item
from s3k_async.table.keys import TRASH_ID, KeyScheme
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.txn.volume_record import (
    LOCK_PURPOSE,
    RECORD_KEY,
    SCOPED,
    layout_of,
    require_flags,
    scope_of,
)
from s3k_async.volumes.claims import CLAIM, Claim, marked_hot, read_claim
from s3k_async.volumes.connections import VolumeConnections, log_location
from s3k_async.volumes.exclusive_volume import exclusive_volume
from s3k_async.volumes.volume import Volume, open_volume

__all__ = [
    "DamagedVolume",
    "PlannedRestore",
    "Planner",
    "removed_directories",
    "restore_volume",
    "write_entries",
    "write_tree",
]


TREE_PLANS: Final[Mapping[LayoutName, MakeTree]] = {"path": PathPlan, "tree": IdPlan}


@dataclass(frozen=True, slots=True)
class DamagedVolume:
    """A volume that lost its table, or entries of it."""

    config: VolumeConfig
    """Completed from the settings of the lost table in the marks."""
    volume_id: str
    scope: str
    """Prefix of its keys in its locations: `log` and `data` are below it."""
    path: str
    """Entries at and below this path are restored."""
    log: BlobStore
    data: BlobStore
    table: Volume | None
    """None if it does not exist."""
    runtime: Runtime
    hot: str = ""
    """The text of its hot location; then `data` has both."""

    @property
    def keys(self) -> KeyScheme:
        """The key scheme of its entries. Without a suffix count a restore can be planned, but not
        made."""
        if self.table is not None:
            return self.table.store.keys
        return KeyScheme(
            self.config.name or "-",
            self.config.suffix_count or 1,
            self.config.hash or "xxh3",
            self.config.layout or "path",
        )

    @property
    def make_tree(self) -> MakeTree:
        """Makes the plan of the restored tree in the layout of the volume."""
        return TREE_PLANS[self.keys.layout]


class PlannedRestore(Protocol):
    """The plan of a restore."""

    @property
    def report(self) -> RestoreReport:
        """The report of the decisions."""

    async def write(self, volume: Volume, lock: VolumeLock) -> None:
        """Write the entries to the table, under the lock."""

    def close(self) -> None:
        """Release its resources."""


Planner: TypeAlias = Callable[[DamagedVolume], Awaitable[PlannedRestore]]
"""Reads the log, the data keys and the existing entries, and decides. Changes nothing."""


@dataclass(frozen=True, slots=True)
class _LocalRestore:
    """A restore planned and written by this process."""

    plan: RestorePlan
    audit: str | None
    tell: Callable[[Progress], object]

    @property
    def report(self) -> RestoreReport:
        return self.plan.report

    async def write(self, volume: Volume, lock: VolumeLock) -> None:  # noqa: ARG002
        trail = AuditTrail(volume.log_blobs, self.report.run, self.audit)
        await write_tree(volume, self.plan.tree, trail, self.tell)

    def close(self) -> None:
        self.plan.close()


def _alone(
    audit: str | None, directory: str | None, progress: Callable[[Progress], object] | None
) -> Planner:
    tell = progress or (lambda _: None)

    async def decide(lost: DamagedVolume) -> PlannedRestore:
        plan = await plan_restore(
            lost.log,
            lost.data,
            lost.runtime,
            make_tree=lost.make_tree,
            volume_id=lost.volume_id,
            keys=lost.keys,
            existing=None if lost.table is None else _entries(lost.table),
            path=lost.path,
            directory=directory,
            progress=tell,
        )
        return _LocalRestore(plan, audit, tell)

    return decide


async def restore_volume(
    config: VolumeConfig,
    *,
    subtree: str | None = None,
    dry_run: bool = True,
    audit: str | None = None,
    directory: str | None = None,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    progress: Callable[[Progress], object] | None = None,
    planner: Planner | None = None,
) -> RestoreReport:
    """Create the lost table of a volume again and fill it from the log; or, with `subtree`, restore
    the lost entries at and below a path.

    The volume is locked meanwhile: other clients cannot open it, and open clients stop. Its
    settings are read from the marks of its locations and from `config`. Without `subtree` the table
    must hold no entries (DirectoryNotEmptyError), unless a restore was interrupted, which the same
    call finishes. Existing entries are never changed. Each entry is recorded in the audit trail,
    `audit/<run>/` in the log location, before it is written.

    With `dry_run` nothing is written. `audit`: a local file for a copy of the audit trail.
    `directory`: for a temporary file of about the size of the log. `planner`: decides and writes
    instead of this process, as the Spark job does.

    Raises VolumeNotFoundError (no location has the volume's mark, or the hot location has none),
    PathNotFoundError (nothing that exists or was lost is at or below `subtree`), NotAVolumeError,
    VolumeFormatError (the volume needs a newer version),
    ReadOnlyVolumeError for kind `s3k-1.0`, UnsupportedError for a volume without log, BusyError,
    ItemFormatError (repair the table first), and the services' errors. Damage is in the report.
    """
    where = config.where
    if config.kind == "s3k-1.0":
        raise ReadOnlyVolumeError("a volume of S3-FileSystem 1.0 cannot be restored", path=where)
    if config.log_mode == "disabled":
        raise UnsupportedError("a volume without operation log cannot be restored", path=where)
    async with AsyncExitStack() as stack:
        connections = VolumeConnections(config, runtime, session, stack)
        place = connections.blobs(config.data, "data")
        log_place = connections.blobs(log_location(config), "log")
        found = await _mark(place, log_place)
        _require_restorable(found.flags, f"the volume of the mark {place.uri(CLAIM)}", config)
        data, log = await _data(connections, place, found), log_place.below(found.scope)
        top = ROOT if subtree is None else subtree

        decide = planner or _alone(audit, directory, progress)

        async def plan(table: Volume | None) -> PlannedRestore:
            return await decide(
                DamagedVolume(
                    config,
                    found.volume_id,
                    found.scope,
                    top,
                    log,
                    data,
                    table,
                    runtime,
                    found.hot,
                )
            )

        open_as_it_is = partial(open_volume, runtime=runtime, session=session, locked=True)
        try:
            table: Volume | None = await open_as_it_is(config)
        except VolumeNotFoundError:
            if subtree is not None:
                raise
            table, config = None, _as_marked(config, found)
        try:
            if subtree is None and table is not None and not await _is_half_restored(table):
                await _need_empty(table, where)
            if dry_run:
                decided = await plan(table)
                decided.close()
                if await _is_nowhere(table, top, decided.report):
                    raise _not_found(top)
                return decided.report
        finally:
            if table is not None:
                await table.close()
        return await _restored(config, subtree, plan, runtime, session)


async def _restored(
    config: VolumeConfig,
    subtree: str | None,
    plan: Callable[[Volume], Awaitable[PlannedRestore]],
    runtime: Runtime,
    session: object | Mapping[str, object] | None,
) -> RestoreReport:
    """Plan and write a restore under the volume lock. Raises as `restore_volume`."""
    top, create = subtree or ROOT, subtree is None
    lock = VolumeLock("restore", top, runtime)
    async with exclusive_volume(
        config, lock, create=create, runtime=runtime, session=session
    ) as volume:
        if create and not lock.touched:
            await _need_empty(volume, config.where)
        # Clients may have used the table until it was lost, even if it is created again here.
        lock.alone = False
        await lock.wait_for_clients_to_stop()
        # Without a plan nothing is written, so that a table that was not lost is unlocked then,
        # unless an interrupted run has to be finished.
        lock.touched = create or lock.touched
        try:
            decided = await plan(volume)
        except ItemFormatError:
            lock.touched = create  # a damaged item has to be repaired first, by a client
            raise
        try:
            lock.touched = True
            decided.report.run = runtime.uuid()
            await decided.write(volume, lock)
        finally:
            decided.close()
        is_nowhere = await _is_nowhere(volume, top, decided.report)
    if is_nowhere:  # the volume is unlocked again
        raise _not_found(top)
    return decided.report


async def _is_nowhere(table: Volume | None, path: str, report: RestoreReport) -> bool:
    """Whether nothing at or below a path exists, was lost or is damaged."""
    if table is None or path == ROOT or report.counts.total():
        return False
    return await table.store.unrestricted().get(path) is None


def _not_found(path: str) -> PathNotFoundError:
    return PathNotFoundError("nothing that exists or was lost is at or below the path", path=path)


def _require_restorable(flags: Collection[str], what: str, config: VolumeConfig) -> None:
    """Raises VolumeFormatError (the volume needs a newer version), VolumeMismatchError (another
    layout than that of the configuration)."""
    where = config.where
    require_flags(flags, what, where)
    _require_layout(layout_of(flags), config, where)


def _require_layout(layout: LayoutName, config: VolumeConfig, where: str) -> None:
    """Raises VolumeMismatchError if the configuration names another layout than the mark."""
    if config.layout not in (None, layout):
        raise VolumeMismatchError(
            f"the volume has layout {layout}, not {config.layout}", path=where
        )


async def _mark(data: BlobStore, log: BlobStore) -> Claim:
    """The mark of the data location. Raises unless the log location belongs to the same volume."""
    found = await read_claim(data) if await data.exists() else None
    if found is None:
        raise VolumeNotFoundError(
            "no volume at this location: its mark s3k-volume.json is missing; a volume of "
            "S3-FileSystem 1.0, which has none, cannot be restored",
            path=data.uri(CLAIM),
        )
    owner = await read_claim(log) if await log.exists() else None
    if owner is None:
        raise UnsupportedError(
            "the operation log of the volume does not exist; the volume cannot be restored",
            path=log.uri(CLAIM),
        )
    if owner.volume_id != found.volume_id:
        raise NotAVolumeError(
            "the log location carries the mark of another volume", path=log.uri(CLAIM)
        )
    scope = scope_of(found.volume_id, {SCOPED})
    if not found.scope and (await log.list(scope, limit=1)).blobs:
        # The mark was written again by hand, or by a version without scopes.
        flags = " ".join((SCOPED, *DEFAULT_FEATURES))
        return replace(found, document={**found.document, "flags": flags})
    return found


async def _data(connections: VolumeConnections, place: RetryingBlobs, found: Claim) -> BlobStore:
    """The own blobs of the volume of a mark, in both locations of a volume with tiers."""
    cold = place.below(found.scope)
    hot = await marked_hot(connections, found)
    return cold if hot is None else TieredBlobs(hot.below(found.scope), cold)


def _as_marked(config: VolumeConfig, found: Claim) -> VolumeConfig:
    """The configuration for the new table, with the settings of the lost one in the mark."""
    config = replace(config, layout=layout_of(found.flags))
    count, name = found.document.get("suffix_count"), found.document.get("name")
    if config.suffix_count is None and isinstance(count, int):
        config = replace(config, suffix_count=count)
    for known in get_args(HashName):
        if config.hash is None and found.document.get("hash") == known:
            config = replace(config, hash=known)
    return replace(config, name=name) if not config.name and isinstance(name, str) else config


async def _is_half_restored(volume: Volume) -> bool:
    """Whether the entries of the table are from a restore that was interrupted or is in
    progress."""
    return (await volume.items.get(RECORD_KEY) or {}).get(LOCK_PURPOSE) == "restore"


async def _need_empty(volume: Volume, where: str) -> None:
    """Raises DirectoryNotEmptyError for a table with entries."""
    async for page in _entries(volume):
        if page.entries or page.removed:
            raise DirectoryNotEmptyError(
                "the table holds entries; only lost entries below a path can be restored "
                "(--subtree)",
                path=where,
            )


async def _entries(volume: Volume) -> AsyncIterator[ExistingEntries]:
    """The entries of the table. Raises ItemFormatError for an invalid item, which must be repaired
    first."""
    check = volume.store.layout.check()
    async for items in scan_all(volume.items):
        found = from_items(items, volume.store.keys, records=True)
        if TRASH_ID not in found.directory_keys():
            yield ExistingEntries(found, ())
            continue
        entries: list[Entry] = []
        removed: list[Entry] = []
        for item in items:
            for entry in from_items([item], volume.store.keys, records=True):
                (removed if _is_marker(check, item, entry) else entries).append(entry)
        yield ExistingEntries(entries, [entry.id for entry in removed])


def _is_marker(check: LayoutCheck, item: Item, entry: Entry) -> bool:
    """Whether an item is a removal marker: no other item stands for no object. Staged directories
    are not logged, but the entries in them have a directory. Raises ItemFormatError."""
    return not check.is_object(item, entry) and not check.is_staged(item, entry)


async def removed_directories(store: MetadataStore) -> list[str]:
    """The ids of directories that were removed as empty, by their removal markers in the table.
    Raises ItemFormatError."""
    found: list[str] = []
    check = store.layout.check()
    for partition in store.keys.partitions(TRASH_ID) if store.layout.has_trash else ():
        async for items in query_all(store.items, partition):
            for item in items:
                entry = from_item(item, store.keys)
                if _is_marker(check, item, entry):
                    found.append(entry.id)
    return found


async def write_tree(
    volume: Volume,
    tree: TreePlan,
    trail: AuditTrail,
    tell: Callable[[Progress], object] = lambda _: None,
) -> None:
    """Write the entries of a plan, level by level, each batch after recording it in the audit
    trail."""
    report = tree.report
    pending = [
        await volume.log.begin([_creation(entry) for entry in entries])
        for entries in tree.made_parents()
    ]
    for entries in tree.entries():
        await write_entries(volume, entries, trail, tree.item)
        report.written += len(entries)
        tell(Progress("restore", report.written, report.restored, path=entries[-1].path))
    for each in pending:
        await each.commit()


async def write_entries(
    volume: Volume,
    entries: Sequence[Entry],
    trail: AuditTrail,
    item: Callable[[Entry, KeyScheme], Mapping[str, Value]] = to_item,
) -> None:
    """Write some entries, under the lock, after recording them in the audit trail. `item`: makes
    the item of an entry."""
    await trail.write([_audit_record(entry) for entry in entries])
    await volume.store.indexes.add_entries(entries)
    await volume.items.load([item(entry, volume.store.keys) for entry in entries])


def _creation(entry: Entry) -> Operation:
    return Operation(
        entry.operation, "create", entry.id, entry.version, entry.mtime_ms, None, entry
    )


def _audit_record(entry: Entry) -> AuditRecord:
    return {"action": "restore_entry", "path": entry.path, "id": entry.id, "version": entry.version}
