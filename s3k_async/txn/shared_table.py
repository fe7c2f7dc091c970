"""Shared tables: several volumes in one table, each below a prefix of its own.

The record of a shared table is at the key of the record of a volume without a prefix, and is
created by the same conditional write. So a table has either one volume without a prefix or any
number of volumes with one, and clients that do not know prefixes refuse the format of the record.
The catalog is one partition with an item for each volume, in place of the table's tag.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from s3k_async._core.concurrency import run_all
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_BATCH,
    MAX_TRANSACTION,
    OPERATION,
    PARTITION,
    SORT,
    Check,
    Condition,
    Delete,
    Item,
    ItemStore,
    ItemTable,
    Key,
    Put,
    Value,
)
from s3k_async.backends.ports.pagination import query_all, scan_all
from s3k_async.backends.retrying.prefixed_items import CATALOG, shared_key
from s3k_async.errors import (
    ConditionFailedError,
    CredentialsError,
    NotAVolumeError,
    PermissionDeniedError,
    UnsupportedError,
    VolumeMismatchError,
)
from s3k_async.txn.volume_record import (
    DESTROYING,
    RECORD_KEY,
    SHARED,
    SHARED_FORMAT,
    STATE,
    TAG,
    VolumeRecord,
    is_empty,
)

__all__ = ["CatalogEntry", "catalog", "is_shared", "remove_items", "require_shareable", "share"]

_SEGMENTS: Final = 8
"""Segments of a scan for removal, read at once."""
_EXISTS: Final = Condition()


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One volume of a table."""

    prefix: str
    """Empty for the volume of a table that is not shared."""
    item: Item | None
    """The record item of the volume; None if it is missing."""


def is_shared(item: Mapping[str, Any] | None) -> bool:
    """Whether the item at the key of the record is the record of a shared table."""
    return item is not None and item.get("kind") == SHARED


async def require_shareable(whole: ItemStore, table: ItemTable, where: str) -> bool:
    """Whether the table is shared already; else it is empty. `whole`: its items, without a prefix.

    Raises VolumeMismatchError (the table has a volume without a prefix), NotAVolumeError (it has
    other items).
    """
    empty = await is_empty(whole, table)
    # Afterwards: a concurrent creator writes the record before any other item.
    item = await whole.get(RECORD_KEY)
    if is_shared(item):
        return True
    if item is not None or await _is_tagged(table):
        raise VolumeMismatchError(
            "the table has a volume without a prefix, which cannot share it: give another table",
            path=where,
        )
    if not empty and not await _has_catalog(whole):  # else the record of the table was lost
        raise NotAVolumeError(
            "the table holds items of other software, or a volume without its record: give an "
            "empty table, or one whose volumes have prefixes",
            path=where,
        )
    return False


async def share(whole: ItemStore, table: ItemTable, where: str, *, runtime: Runtime) -> None:
    """Make a table a shared one; no effect if it is. Raises as `require_shareable`."""
    if await require_shareable(whole, table, where):
        return
    record: dict[str, Value] = {
        PARTITION: RECORD_KEY.partition,
        SORT: RECORD_KEY.sort,
        "format": SHARED_FORMAT,
        "kind": SHARED,
        "created": runtime.now_ms(),
        OPERATION: runtime.uuid(),
    }
    try:
        await whole.write(Put(record, ABSENT))
    except ConditionFailedError:
        await require_shareable(whole, table, where)


async def catalog(whole: ItemStore) -> AsyncGenerator[CatalogEntry, None]:
    """The volumes of a table by prefix; the only one of a table that is not shared; none of an
    empty one. `whole`: the items of the table, without a prefix."""
    item = await whole.get(RECORD_KEY)
    if item is not None and not is_shared(item):
        yield CatalogEntry("", item)
        return
    async for page in query_all(whole, CATALOG, limit=MAX_BATCH):
        keys = {str(each[SORT]): shared_key(str(each[SORT]), RECORD_KEY) for each in page}
        records = await whole.get_many(list(keys.values()))
        for prefix, key in keys.items():
            yield CatalogEntry(prefix, records.get(key))


async def remove_items(
    items: ItemStore, whole: ItemStore, prefix: str, record: VolumeRecord, *, runtime: Runtime
) -> None:
    """Remove the items of a volume that is being destroyed, its record and its item in the catalog
    last, in one transaction. `items`: those of the volume; `whole`: those of the table.

    Raises VolumeMismatchError if another volume has the prefix by now, and the service's errors;
    repeated, it continues.
    """

    async def clear(segment: int) -> None:
        async for page in scan_all(items, segment, _SEGMENTS):
            keys = [Key(str(item[PARTITION]), str(item[SORT])) for item in page]
            own = [key for key in keys if key != RECORD_KEY]
            for start in range(0, len(own), MAX_TRANSACTION):
                await _delete(items, own[start : start + MAX_TRANSACTION], runtime)

    await run_all(clear, range(_SEGMENTS), limit=_SEGMENTS)
    ours = Condition(equals={"volume_id": record.volume_id, STATE: DESTROYING})
    key, listed = shared_key(prefix, RECORD_KEY), Key(CATALOG, prefix)
    present = await whole.get_many([key, listed])
    last: list[Check | Delete] = [Delete(key, ours)] if key in present else [Check(key, ABSENT)]
    if listed in present:
        last.append(Delete(listed, _EXISTS))
    try:
        await whole.transact(last, runtime.uuid())
    except ConditionFailedError as error:
        if any(item is not None for item in error.current.values()):
            raise VolumeMismatchError(
                "another volume has this prefix by now", path=prefix
            ) from error


async def _delete(items: ItemStore, keys: Sequence[Key], runtime: Runtime) -> None:
    """Delete items, some of which another client may be deleting."""
    left = list(keys)
    while left:
        try:
            await items.transact([Delete(key, _EXISTS) for key in left], runtime.uuid())
        except ConditionFailedError as error:
            left = [key for place, key in enumerate(left) if place not in error.current]
        else:
            return


async def _has_catalog(whole: ItemStore) -> bool:
    page = await whole.query(CATALOG, limit=1)
    return bool(page.items)


async def _is_tagged(table: ItemTable) -> bool:
    """Whether the table has the tag of a volume, whose record was lost."""
    try:
        return await table.read_tag(TAG) is not None
    except CredentialsError:
        raise
    except (UnsupportedError, PermissionDeniedError):
        return False
