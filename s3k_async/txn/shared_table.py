"""Shared tables: several volumes in one table, each below a prefix of its own.

The record of a shared table is at the key of the record of a volume without a prefix, and is
created by the same conditional write. A table therefore has either one volume without a prefix or
any number of volumes with one, and clients that do not support prefixes refuse the format of the
record. The catalog is one partition with an item for each volume, in place of the table's tag.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
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
"""Number of concurrent segments of a scan for removal."""
_EXISTS: Final = Condition()
_IDENTITY: Final = ("id", "ver", OPERATION)
"""Attributes that distinguish items of different volumes, if an item has them."""
_SUCCEEDED: Final = "another volume now has this prefix"


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
    """Whether the table is already shared; otherwise it is empty. `whole`: its items, without a
    prefix.

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
    """Make a table a shared one; no effect if it already is. Raises the errors of
    `require_shareable`."""
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

    Raises VolumeMismatchError if another volume now has the prefix, and the service's errors; a
    repeated call continues.
    """

    async def is_held() -> bool:
        """Whether the volume is still being destroyed, and not removed by another client."""
        item = await items.get(RECORD_KEY)
        if item is not None and not ours.holds(item):
            raise VolumeMismatchError(_SUCCEEDED, path=prefix)
        return item is not None

    async def clear(segment: int) -> None:
        async for page in scan_all(items, segment, _SEGMENTS):
            own = [item for item in page if (item[PARTITION], item[SORT]) != RECORD_KEY]
            for start in range(0, len(own), MAX_TRANSACTION):
                await _delete(items, own[start : start + MAX_TRANSACTION], is_held, runtime)

    ours = Condition(equals={"volume_id": record.volume_id, STATE: DESTROYING})
    await run_all(clear, range(_SEGMENTS), limit=_SEGMENTS)
    key, listed = shared_key(prefix, RECORD_KEY), Key(CATALOG, prefix)
    present = await whole.get_many([key, listed])
    last: list[Check | Delete] = [Delete(key, ours)] if key in present else [Check(key, ABSENT)]
    if listed in present:
        last.append(Delete(listed, _EXISTS))
    try:
        await whole.transact(last, runtime.uuid())
    except ConditionFailedError as error:
        if any(item is not None for item in error.current.values()):
            raise VolumeMismatchError(_SUCCEEDED, path=prefix) from error


async def _delete(
    items: ItemStore,
    found: Sequence[Item],
    is_held: Callable[[], Awaitable[bool]],
    runtime: Runtime,
) -> None:
    """Delete items, which another client may be deleting, too. `is_held` is called after the items
    were read, so that they do not belong to the next volume with the prefix; an item that such a
    volume writes later at the same key differs, and is kept."""
    left = list(found)
    while left and await is_held():
        try:
            await items.transact([_deletion(item) for item in left], runtime.uuid())
        except ConditionFailedError as error:
            present = (error.current.get(place, item) for place, item in enumerate(left))
            left = [item for item in present if item is not None]
        else:
            return


def _deletion(item: Item) -> Delete:
    unchanged = {name: item[name] for name in _IDENTITY if name in item}
    return Delete(Key(str(item[PARTITION]), str(item[SORT])), Condition(equals=unchanged))


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
