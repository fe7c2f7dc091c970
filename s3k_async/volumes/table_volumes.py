"""The volumes of a table, for operators: those of a shared table, or the only one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Literal, TypeAlias

from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.retry import retry
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.location import OpenContext
from s3k_async.backends.ports.interception import INTERCEPTOR
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.config import TableLocation, Tuning
from s3k_async.errors import S3kError, VolumeNotFoundError
from s3k_async.txn.shared_table import CatalogEntry, catalog
from s3k_async.txn.volume_record import DESTROYING, LOCK, STATE, VolumeRecord, is_locked
from s3k_async.volumes.connections import open_table

__all__ = ["TableVolume", "VolumeState", "table_volumes"]

VolumeState: TypeAlias = Literal["ready", "locked", "interrupted", "destroying", "damaged"]


@dataclass(frozen=True, slots=True)
class TableVolume:
    """One volume of a table, as its record describes it."""

    prefix: str
    """Its prefix in the table; empty in a table that is not shared."""
    state: VolumeState
    """`locked`: by a load, restore, reshard or migration in progress; `interrupted`: by one that
    stopped; `damaged`: its record is missing or cannot be read."""
    record: VolumeRecord | None
    """None if it is damaged."""
    problem: str = ""
    """What is damaged."""


async def table_volumes(
    location: TableLocation,
    tuning: Tuning,
    *,
    runtime: Runtime = SYSTEM,
    session: object | None = None,
) -> AsyncGenerator[TableVolume, None]:
    """The volumes of a table, by prefix. Nothing is changed.

    A shared table costs a request for each hundred volumes and two more, none of them a scan.
    Raises VolumeNotFoundError (no table), and the service's errors.
    """
    async with AsyncExitStack() as stack:
        store = open_table(location, OpenContext(session, runtime), INTERCEPTOR.get())
        stack.push_async_callback(store.close)
        if not await retry(store.exists, tuning.retry.read, runtime):
            raise VolumeNotFoundError("the table does not exist", path=location.label)
        limit = AdaptiveLimit(tuning.max_concurrency)
        items = RetryingItems(store, tuning.retry, runtime, limit)
        async with aclosing(catalog(items)) as entries:
            async for entry in entries:
                yield _described(entry, location.label, runtime)


def _described(entry: CatalogEntry, table: str, runtime: Runtime) -> TableVolume:
    where = f"{table}/{entry.prefix}" if entry.prefix else table
    if entry.item is None:
        lost = "its record is missing; opening the volume restores it"
        return TableVolume(entry.prefix, "damaged", None, lost)
    try:
        record = VolumeRecord.from_item(entry.item, where)
    except S3kError as error:
        return TableVolume(entry.prefix, "damaged", None, error.message)
    state: VolumeState = "ready"
    if entry.item.get(STATE) == DESTROYING:
        state = "destroying"
    elif LOCK in entry.item:
        state = "locked" if is_locked(entry.item, runtime.now_ms()) else "interrupted"
    return TableVolume(entry.prefix, state, record)
