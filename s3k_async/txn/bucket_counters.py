"""Maintained counters of buckets, in volumes with the feature `counters`.

| item | partition key | sort key | attributes |
|---|---|---|---|
| counter | `s3k:counters/<bucket>` | `#` | `objects`, `size`, `newest`, `folded` (ids), `op` |
| journal item | `s3k:counters/<bucket>` | its id, random | `objects`, `size`, `newest`, `op` |
| mark | `s3k:counters` | `stale` | `op` |

A journal item says what one transaction of the table changes in the total of a bucket. It is
written in that transaction, so it exists if and only if the change was made, and no two writers
meet in an item. The total of a bucket is the sum of its counter and its journal; `newest`, the time
of the latest modification in epoch ms, is their maximum, and missing where there is none.

Journal items are folded in two steps: one conditional write adds their sum to the counter and lists
their ids in it, then they are deleted. The next folding deletes what the last one has left, before
it replaces the list. So an item that is missing is in the counter, and one that is listed is not
added to it. One transaction for both would not do: DynamoDB makes its effects visible item by item.
A client folds its own items when it has enough of them, and when it closes; a reader folds what
others have left.

The mark says that entries were changed without being counted, or that a folding dropped journal
items, because of a damaged counter. Then buckets are listed, until `s3k migrate --enable counters`
counts all of them again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio

from s3k_async._core.active_calls import optional
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_TRANSACTION,
    OPERATION,
    PARTITION,
    SORT,
    Condition,
    Delete,
    Item,
    ItemStore,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.backends.ports.pagination import query_all
from s3k_async.errors import (
    ConditionFailedError,
    ItemFormatError,
    S3kError,
    TransactionConflictError,
)
from s3k_async.oplog.segments import Operations
from s3k_async.txn.bucket_totals import BucketTotal, TotalChanges, refuse_moves

__all__ = ["FOLDED", "BucketCounters", "counter_put", "is_counter_partition", "stale_mark"]

_LOG = logging.getLogger(__name__)

FOLDED: Final = MAX_TRANSACTION
"""Journal items that are folded together: one transaction deletes them."""
ATTEMPTS: Final = 16
"""Attempts at a folding, or a reading, that conflicts with other foldings."""
PAGE: Final = 1000
"""Items of a bucket that are read together: far less than DynamoDB's limit of 1 MB."""
CLOSING: Final = 2.0
"""Seconds for the foldings of a client that closes, at most: as long as its calls have at the exit
of the interpreter."""
PAUSE: Final = 0.05
"""Seconds before the next attempt at a folding that conflicts, at most."""

_PARTITION: Final = "s3k:counters"
_PREFIX: Final = f"{_PARTITION}/"
_COUNTER: Final = "#"
"""The sort key of a counter, before those of all journal items."""
_STALE: Final = Key(_PARTITION, "stale")
_OBJECTS: Final = "objects"
_SIZE: Final = "size"
_NEWEST: Final = "newest"
_FOLDED: Final = "folded"
_SEPARATOR: Final = ","


class BucketCounters:
    """The counters of one volume, and the journal items of one client that are not folded yet."""

    def __init__(self, items: ItemStore, runtime: Runtime) -> None:
        self._items = items
        self._runtime = runtime
        self._journal: dict[str, list[str]] = {}
        self._seen: dict[str, Item | None] = {}
        """The counters as this client has seen them last; others may have changed them."""
        self._cleared: dict[str, Value | None] = {}
        """Versions of counters whose folded items are known to be deleted."""
        self._is_stale = False

    # Writers

    async def changes(self, operations: Operations, counted_at: str = "") -> TotalChanges:
        """What operations that are about to be logged change in the totals; `counted_at` as for
        `TotalChanges`. If that is not known for all of them, the mark is set. Raises
        UnsupportedError for a directory that is moved to another bucket, unless this client has set
        the mark, as fsck does; and the table's errors."""
        if not self._is_stale:
            refuse_moves(operations)
        changes = TotalChanges(operations, counted_at)
        if not changes.is_complete:
            await self.mark_stale()
        return changes

    def journal(self, totals: Mapping[str, BucketTotal]) -> list[Put]:
        """The journal items of a transaction that changes the totals of some buckets."""
        return [
            Put(_item(bucket, self._runtime.uuid(), change, self._runtime.uuid()), ABSENT)
            for bucket, change in totals.items()
        ]

    def written(self, journal: Iterable[Put]) -> None:
        """Note journal items that were written, to be folded by this client."""
        for put in journal:
            bucket = put.key.partition.removeprefix(_PREFIX)
            self._journal.setdefault(bucket, []).append(put.key.sort)

    async def fold_full(self) -> None:
        """Fold the journal items of buckets that have enough of them. A failure is only logged."""
        for bucket in list(self._journal):
            # Another call may have folded it meanwhile.
            if len(self._journal.get(bucket, ())) >= FOLDED:
                await self._fold_own(bucket)

    async def close(self) -> None:
        """Fold the journal items that are left. A failure is only logged, and ends it, and so does
        a table that does not answer: readers do the rest."""
        with anyio.move_on_after(CLOSING):
            while self._journal:
                bucket = next(iter(self._journal))
                if not await self._fold_own(bucket):
                    return

    async def mark_stale(self) -> None:
        """Note that entries are about to be changed without being counted, or journal items to be
        dropped. Raises the errors of the table."""
        if self._is_stale:
            return
        with suppress(ConditionFailedError):
            await self._items.write(stale_mark(self._runtime.uuid()))
        self._is_stale = True

    # Readers

    async def total(self, bucket: str) -> BucketTotal | None:
        """The total of a bucket; None if it has to be counted. What changes meanwhile may be in it
        or not, each transaction as a whole. Raises the errors of the table."""
        counter_key = _counter_key(bucket)
        for _ in range(ATTEMPTS):
            found: list[Item] = []
            async for page in query_all(self._items, counter_key.partition, limit=PAGE):
                found += page
            # A folding between the pages changes the counter, which is read again after them.
            after = await self._items.get_many([counter_key, _STALE])
            if _STALE in after:
                return None
            first = found[0] if found and found[0][SORT] == _COUNTER else None
            if _version(first) != _version(after.get(counter_key)):
                continue
            self._seen[bucket] = first
            listed = set(_folded(first))
            parts = [item for item in found if item[SORT] not in listed]
            try:
                total = sum(map(_total, parts), BucketTotal())
            except ItemFormatError:
                return None
            journal = [str(item[SORT]) for item in parts if item is not first]
            if len(journal) > FOLDED:
                await self._fold(bucket, journal[:FOLDED])
            return total
        return None

    # Folding

    async def _fold_own(self, bucket: str) -> bool:
        """As `_fold`, for items of this client. Those that it could not fold are left to
        readers."""
        held = self._journal[bucket]
        taken = held[:FOLDED]
        del held[:FOLDED]
        if not held:
            del self._journal[bucket]
        return await self._fold(bucket, taken)

    async def _fold(self, bucket: str, journal: list[str]) -> bool:
        """Fold some journal items. False if that failed, or was given up."""
        is_done = False
        try:
            with optional():
                is_done = await self._add_to_counter(bucket, journal)
        except S3kError as error:
            _LOG.info("the counter of bucket %s is left to others: %s", bucket, error)
        return is_done

    async def _add_to_counter(self, bucket: str, journal: Sequence[str]) -> bool:
        """Fold some journal items, those that another client has not folded. False after too many
        conflicts with other clients."""
        if bucket not in self._seen:
            self._seen[bucket] = await self._items.get(_counter_key(bucket))
        for _ in range(ATTEMPTS):
            try:
                return await self._add_once(bucket, journal)
            except ConditionFailedError as error:
                self._seen[bucket] = error.current.get(0)
            except TransactionConflictError:
                pass
            await self._runtime.sleep(self._runtime.uniform(0, PAUSE))
        return False

    async def _add_once(self, bucket: str, journal: Sequence[str]) -> bool:
        """As `_add_to_counter`, if the counter is as this client has seen it last. Raises
        ConditionFailedError otherwise."""
        counter = self._seen[bucket]
        listed = _folded(counter)
        is_cleared = bucket in self._cleared and self._cleared[bucket] == _version(counter)
        former = [] if is_cleared else _keys(bucket, listed)
        # After the counter was read: an item that exists, and is not listed, is not in it.
        found = await self._items.get_many([*_keys(bucket, journal), *former])
        await self._remove([key for key in former if key in found])
        new = set(journal).difference(listed)
        fresh = [item for key, item in found.items() if key.sort in new]
        if not fresh:
            return True
        sorts = [str(item[SORT]) for item in fresh]
        try:
            before = BucketTotal() if counter is None else _total(counter)
            total = sum(map(_total, fresh), before)
        except ItemFormatError:
            # Until everything is counted again, the journal would only grow.
            await self.mark_stale()
            await self._remove(_keys(bucket, sorts))
            return True
        changed = _item(bucket, _COUNTER, total, self._runtime.uuid())
        await self._items.write(_counter_write(changed, sorts, counter))
        self._seen[bucket] = {**changed, _FOLDED: _SEPARATOR.join(sorts)}
        await self._remove(_keys(bucket, sorts))
        self._cleared[bucket] = changed[OPERATION]
        return True

    async def _remove(self, keys: Sequence[Key]) -> None:
        """Delete folded items. Each belongs to one change for ever, so that it does not matter who
        deletes it. Raises TransactionConflictError."""
        left = list(keys)
        while left:
            deletes = [Delete(key, Condition()) for key in left[:MAX_TRANSACTION]]
            try:
                await self._items.transact(deletes, self._runtime.uuid())
            except ConditionFailedError as error:
                gone = {deletes[place].key for place in error.current}
                left = [key for key in left if key not in gone]
            else:
                left = left[MAX_TRANSACTION:]


def counter_put(bucket: str, total: BucketTotal, operation: str) -> Put:
    """The write of a counter that does not exist, of a bucket without a journal."""
    return Put(_item(bucket, _COUNTER, total, operation), ABSENT)


def stale_mark(operation: str) -> Put:
    """The write of the mark, unless it is there."""
    return Put({PARTITION: _STALE.partition, SORT: _STALE.sort, OPERATION: operation}, ABSENT)


def is_counter_partition(partition: str) -> bool:
    """Whether a partition holds counters, journal items, or the mark."""
    return partition == _PARTITION or partition.startswith(_PREFIX)


def _counter_key(bucket: str) -> Key:
    return Key(_PREFIX + bucket, _COUNTER)


def _keys(bucket: str, sorts: Sequence[str]) -> list[Key]:
    """The keys of journal items."""
    return [Key(_PREFIX + bucket, sort) for sort in sorts]


def _item(bucket: str, sort: str, total: BucketTotal, operation: str) -> Item:
    item: dict[str, Value] = {
        PARTITION: _PREFIX + bucket,
        SORT: sort,
        _OBJECTS: total.objects,
        _SIZE: total.size,
        OPERATION: operation,
    }
    return item if total.newest_ms is None else item | {_NEWEST: total.newest_ms}


def _counter_write(changed: Item, folded: Sequence[str], counter: Item | None) -> Put | Update:
    """The write of a counter, on the condition that it is as it was read."""
    listed: dict[str, Value] = {_FOLDED: _SEPARATOR.join(folded)}
    if counter is None:
        return Put({**changed, **listed}, ABSENT)
    key = Key(str(changed[PARTITION]), str(changed[SORT]))
    fresh = {name: value for name, value in changed.items() if name not in (PARTITION, SORT)}
    return Update(key, Condition(equals={OPERATION: counter[OPERATION]}), set=fresh | listed)


def _folded(counter: Item | None) -> list[str]:
    """The ids of the journal items that were folded last."""
    text = "" if counter is None else str(counter.get(_FOLDED, ""))
    return text.split(_SEPARATOR) if text else []


def _version(counter: Item | None) -> Value | None:
    """What changes with each write of a counter."""
    return None if counter is None else counter.get(OPERATION)


def _total(item: Item) -> BucketTotal:
    """The total in an item. Raises ItemFormatError."""
    objects, size, newest = item.get(_OBJECTS), item.get(_SIZE), item.get(_NEWEST)
    if (
        type(objects) is not int
        or type(size) is not int
        or (newest is not None and type(newest) is not int)
        or not isinstance(item.get(OPERATION), str)
    ):
        raise ItemFormatError(
            "a damaged counter (s3k migrate --enable counters counts the buckets again)",
            path=f"{item[PARTITION]}/{item[SORT]}",
        )
    return BucketTotal(objects, size, newest)
